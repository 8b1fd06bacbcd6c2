package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// unread requests the largest answer of each route on 200 connections at once, and does not read the answers.
var unread = scenario{
	name: "unread",
	help: "200 requests at once for the largest answer of each route, without reading the answers",
	run:  runUnread,
}

const (
	unreadConnections = 200
	unreadFor         = 5 * time.Second // less than the server's write timeout
	idleFor           = 3 * time.Second

	maxGrowth = 300 << 20 // bytes of resident memory
	maxSlower = 5.0       // times the idle p99
)

// largest returns the routes with content in their answers, and the token that each needs.
func (w worst) largest() []struct{ path, token string } {
	post, user := fmt.Sprintf("/v1/posts/%d", w.post), fmt.Sprintf("/v1/users/%d", w.author)
	chain := fmt.Sprintf("/v1/comments/%d", w.deepest)
	type route = struct{ path, token string }
	return []route{
		{"/v1/posts?limit=100&view=full", ""},
		{"/v1/posts?limit=100&sort=hot&view=full", ""},
		{"/v1/posts?limit=100&sort=top&view=full", ""},
		{"/v1/posts?limit=100&sort=active&view=full", ""},
		{"/v1/posts?limit=100&tag=siege&view=full", ""},
		{"/v1/posts?limit=100&q=needle&view=full", ""},
		{"/v1/posts?limit=100&pinned=true&view=full", ""},
		{post, ""},
		{post + "/revisions?limit=100", ""},
		{post + "/comments?limit=100", ""},
		{post + "/comments?limit=100&sort=top", ""},
		{post + "/thread?limit=500&depth=10", ""},
		{post + "/likes?limit=100", ""},
		{chain, ""},
		{chain + "/ancestors?limit=100", ""},
		{user + "/posts?limit=100&view=full", ""},
		{user + "/comments?limit=100", ""},
		{user + "/likes?limit=100&view=full", ""},
		{user + "/likes?limit=100&type=comment", ""},
		{"/v1/tags?limit=100", ""},
		{"/v1/me/bookmarks?limit=100&view=full", w.token},
		{"/v1/me/likes?limit=100&view=full", w.token},
		{"/v1/feed?limit=100&view=full", w.token},
		{"/v1/admin/posts?limit=100&view=full", w.modToken},
		{"/v1/admin/comments?limit=100", w.modToken},
	}
}

func runUnread(ctx context.Context, s *site, o options) ([]figure, error) {
	if _, err := s.probeFor(ctx, idleFor, s.data.small); err != nil { // warms up the caches
		return nil, err
	}
	before, err := s.resident()
	if err != nil {
		return nil, err
	}
	var figures []figure
	for i, route := range s.data.largest() {
		if !strings.Contains(route.path, o.paths) {
			continue
		}
		idle, err := s.probeFor(ctx, idleFor, s.data.small)
		if err != nil {
			return nil, err
		}
		started, err := s.resident()
		if err != nil {
			return nil, err
		}
		statuses, refused, peak, during, err := s.besiege(ctx, route.path, route.token, i+1, o.addresses)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", route.path, err)
		}
		slower := float64(during.p99()) / float64(idle.p99())
		f := figure{name: "GET " + route.path, within: peak-before < maxGrowth && slower < maxSlower && refused == 0}
		f.text = fmt.Sprintf(
			"memory %+4d MB (since the beginning %+4d MB); "+
				"p99 %.1f ms, idle %.1f ms: %.1f times, %d refused; answers %s",
			(peak-started)>>20,
			(peak-before)>>20,
			milliseconds(during.p99()),
			milliseconds(idle.p99()),
			slower,
			refused,
			statuses,
		)
		figures = append(figures, f)
		fmt.Fprintln(os.Stderr, f.name, f.text)
	}
	return figures, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// besiege sends 200 requests at once for one path, and reads only the status of each answer. It watches the site for
// unreadFor. It returns the number of requests by status, the number of another client's refused requests, the peak of
// the memory, and the latencies of the other client.
func (s *site) besiege(
	ctx context.Context,
	path, token string,
	attack, addresses int,
) (statuses string, refused int, peak int64, during latencies, err error) {
	watching, stop := context.WithTimeout(ctx, unreadFor)
	defer stop()
	var running sync.WaitGroup
	var watchErr error
	running.Go(func() { during, refused, watchErr = s.probe(watching, s.data.small) })
	var sampleErr error
	running.Go(func() {
		for watching.Err() == nil {
			now, err := s.resident()
			if err != nil {
				sampleErr = err
				return
			}
			peak = max(peak, now)
			select {
			case <-watching.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	request := "GET " + path + " HTTP/1.1\r\nHost: siege\r\n"
	if token != "" {
		request += "Authorization: Bearer " + token + "\r\n"
	}
	request += "\r\n"
	var mu sync.Mutex
	counts := map[string]int{}
	var connections []net.Conn
	defer func() {
		for _, c := range connections {
			c.Close()
		}
	}()
	for i := range unreadConnections {
		conn, err := s.dial(ctx, fmt.Sprintf("127.%d.%d.1", attack, i%addresses+1))
		if err != nil {
			stop()
			running.Wait()
			return "", 0, 0, nil, err
		}
		connections = append(connections, conn)
		_ = conn.(interface{ SetReadBuffer(bytes int) error }).SetReadBuffer(
			4 << 10,
		) // a small buffer makes the server wait earlier
	}
	for _, conn := range connections {
		running.Go(func() {
			status := "none yet"
			line := make([]byte, len("HTTP/1.1 200"))
			_ = conn.SetDeadline(time.Now().Add(unreadFor))
			if _, err := io.WriteString(conn, request); err == nil {
				if _, err := io.ReadFull(conn, line); err == nil {
					status = string(line[len("HTTP/1.1 "):])
				}
			}
			mu.Lock()
			counts[status]++
			mu.Unlock()
		})
	}
	running.Wait()
	if err := errors.Join(watchErr, sampleErr); err != nil {
		return "", 0, 0, nil, err
	}
	var words []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d×%s", counts[status], status))
	}
	return strings.Join(words, " "), refused, peak, during, nil
}
