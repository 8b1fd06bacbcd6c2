package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"
)

// Probes are the requests of a well-behaved client, one at a time on a persistent connection. They come from many
// addresses in turn, so that they stay within the rate limits. All requests count, and the last is not cancelled.
const (
	probeAddresses = 20
	probePause     = 10 * time.Millisecond
)

// latencies are the durations of a client's requests, sorted.
type latencies []time.Duration

// p99 returns the 99th percentile of the latencies, or 0 without any.
func (l latencies) p99() time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(len(l)-1, len(l)*99/100)]
}

// longest returns the longest latency, or 0 without any.
func (l latencies) longest() time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[len(l)-1]
}

// probe reads a post repeatedly until ctx ends. It returns the latencies and the number of refused requests.
func (s *site) probe(ctx context.Context, post int64) (took latencies, refused int, err error) {
	if len(s.probes) == 0 {
		for i := range probeAddresses {
			transport := &http.Transport{MaxIdleConnsPerHost: 1, DialContext: s.dialer(fmt.Sprintf("127.0.9.%d", i+1))}
			s.probes = append(s.probes, &http.Client{Transport: transport, Timeout: 30 * time.Second})
		}
	}
	url := fmt.Sprintf("http://%s/v1/posts/%d", s.api, post)
	for i := 0; ctx.Err() == nil; i++ {
		client := s.probes[i%len(s.probes)]
		started := time.Now()
		status, body, err := get(context.WithoutCancel(ctx), client, url)
		if err != nil {
			return nil, 0, fmt.Errorf("probe: %w", err)
		}
		if status != http.StatusOK {
			fmt.Fprintf(os.Stderr, "refused: %d: %s\n", status, body)
			refused++
		}
		took = append(took, time.Since(started))
		select {
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
	slices.Sort(took)
	return took, refused, nil
}

// probeFor is probe for a given time.
func (s *site) probeFor(ctx context.Context, length time.Duration, post int64) (latencies, error) {
	probing, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	took, refused, err := s.probe(probing, post)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && refused > 0 {
		err = fmt.Errorf("%d requests were refused although no other client was active", refused)
	}
	return took, err
}
