package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// A stop ends streams at once. Even if a stream blocks, the process ends in time.
func TestStream_endsWhenTheProcessIsStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada := s.accounts(1)[0]
	s.start("worker")
	s.awaitOpen()
	api, url := s.api()
	post := newPost(t, url, ada)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		fmt.Sprintf("%s/v1/stream?posts=%d", url, post.ID),
		nil,
	)
	require.NoError(t, err)
	response, err := http.DefaultTransport.RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	await := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the stream ends before %s: %v", want, lines.Err())
	}
	await(`"likes_count":0`)
	like(t, url, ada, post.path(), true)
	await(`"likes_count":1`)
	begin := time.Now()
	api.stop()
	assert.Less(t, time.Since(begin), 10*time.Second)
	for lines.Scan() {
		assert.Empty(t, lines.Text())
	}
}

// The memory and time that a stream costs the process. `go test -v -run Streams_cost ./cmd/likewise` prints the figures
// of docs/benchmarks.md. The bounds are wide, for slow machines and the race detector.
func TestStreams_costLittle(t *testing.T) {
	const clients, length = 2000, 5 * time.Second
	s := newSite(t)
	users := s.accounts(300) // more than there are beats
	api, url := s.api("--likes=direct")
	post := newPost(t, url, users[0])
	before, _ := usage(t, api.Pid())
	var read, events atomic.Int64
	// A process refuses requests beyond those in flight, so the test connects only that many clients at once.
	opening := make(chan struct{}, 100)
	for range clients {
		opening <- struct{}{}
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "GET /v1/stream?posts=%d HTTP/1.1\r\nHost: x\r\n\r\n", post.ID)
		require.NoError(t, err)
		go func() { // until the test closes the connection
			opened := sync.OnceFunc(func() { <-opening })
			defer opened()
			var b [1024]byte
			for {
				n, err := conn.Read(b[:])
				if err != nil {
					return
				}
				read.Add(int64(n))
				if heard := strings.Count(string(b[:n]), "event: "); heard > 0 {
					events.Add(int64(heard))
					opened()
				}
			}
		}()
	}
	awaitEvents := func(n int64) {
		t.Helper()
		testkit.Eventually(t, patience, func() (bool, string) {
			return events.Load() >= n, fmt.Sprintf("%d events of %d", events.Load(), n)
		})
	}
	awaitEvents(clients)
	_, idle := usage(t, api.Pid())
	read.Store(0)
	events.Store(0)
	resident, cpu := usage(t, api.Pid())
	begin, likes := time.Now(), 0
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for ; time.Since(begin) < length; likes++ {
		<-beat.C
		like(t, url, users[likes], post.path(), true)
	}
	_, after := usage(t, api.Pid())
	took := time.Since(begin)
	awaitEvents(clients) // each heard at least once
	memory := (resident - before) / clients
	t.Logf(
		"%d clients on one post: %.1f KiB each, resident; %d likes in %v, %.0f events/s of %.0f bytes; "+
			"%.0f%% of one core, likes included; connecting took %v of it each",
		clients,
		float64(memory)/1024,
		likes,
		took.Round(time.Millisecond),
		float64(events.Load())/took.Seconds(),
		float64(read.Load())/float64(events.Load()),
		100*(after-cpu).Seconds()/took.Seconds(),
		(idle / clients).Round(time.Microsecond),
	)
	assert.LessOrEqual(t, events.Load(), clients*int64(took/time.Second+2), "a client hears once a second at most")
	assert.Less(t, memory, int64(256<<10))
}

var residentSize = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// usage returns the memory of a process, in bytes, and its processor time.
func usage(t *testing.T, pid int) (resident int64, cpu time.Duration) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	kib, err := strconv.ParseInt(residentSize.FindStringSubmatch(string(status))[1], 10, 64)
	require.NoError(t, err)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		ticks, err := strconv.ParseInt(field, 10, 64)
		require.NoError(t, err)
		cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	return kib << 10, cpu
}
