package handlers_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/handlers"
)

func TestPublicListener_showsOnlyThatTheProcessIsAlive(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.must(t, 200, account{}, "GET", "/healthz", nil)
	for _, path := range []string{"/metrics", "/readyz"} {
		a.refused(t, 404, "not_found", account{}, "GET", path, nil)
	}
}

// admin configures an admin listener whose clock the test sets.
type admin struct {
	config handlers.AdminConfig
	clock  atomic.Int64 // seconds
}

func newAdmin(dependencies map[string]func(context.Context) error) *admin {
	a := &admin{}
	a.config = handlers.AdminConfig{Registry: prometheus.NewRegistry(), Dependencies: dependencies,
		Logger: slog.New(slog.DiscardHandler),
		Now:    func() time.Time { return time.Unix(a.clock.Load(), 0) }}
	return a
}

func TestAdmin_reportsUnavailableServers(t *testing.T) {
	t.Parallel()
	mysql, redis := error(nil), error(nil)
	a := newAdmin(map[string]func(context.Context) error{
		"mysql": func(context.Context) error { return mysql },
		"redis": func(context.Context) error { return redis },
	})
	stopping := make(chan struct{})
	a.config.Stopping = stopping
	h := handlers.Admin(a.config)
	check := func(status int, want string) {
		t.Helper()
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != status || got != want {
			t.Errorf("readyz answers %d %s, want %d %s", answer.Code, got, status, want)
		}
		if retry := answer.Header().Get("Retry-After"); (status == 503) != (retry == "1") {
			t.Errorf("%d with Retry-After %q", status, retry)
		}
		answer = httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/healthz", nil))
		if answer.Code != 200 || answer.Body.String() != `{"status":"ok"}` {
			t.Errorf("healthz answers %d %s", answer.Code, answer.Body)
		}
		a.clock.Add(2)
	}
	check(200, `{"status":"ok","dependencies":{"mysql":"ok","redis":"ok"}}`)
	redis = errors.New("dial tcp 10.1.2.3:6379")
	check(200, `{"status":"degraded","dependencies":{"mysql":"ok","redis":"unavailable"}}`)
	mysql = errors.New("dial tcp 10.1.2.3:3306")
	check(503, `{"status":"unavailable","dependencies":{"mysql":"unavailable","redis":"unavailable"}}`)
	redis = nil
	check(503, `{"status":"unavailable","dependencies":{"mysql":"unavailable","redis":"ok"}}`)
	mysql = nil
	close(stopping)
	check(503, `{"status":"stopping","dependencies":{"mysql":"ok","redis":"ok"}}`)
}

// Concurrent requests share one query of the servers in a second.
func TestAdmin_queriesItsServersOnceForAll(t *testing.T) {
	t.Parallel()
	var pings atomic.Int64
	ping := func(context.Context) error { pings.Add(1); return nil }
	a := newAdmin(map[string]func(context.Context) error{"mysql": ping})
	h := handlers.Admin(a.config)
	ask := func(n int) {
		t.Helper()
		var asking sync.WaitGroup
		for range n {
			asking.Go(func() {
				answer := httptest.NewRecorder()
				h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
				if answer.Code != 200 {
					t.Errorf("readyz answers %d %s", answer.Code, answer.Body)
				}
			})
		}
		asking.Wait()
	}
	ask(200)
	if n := pings.Load(); n != 1 {
		t.Errorf("200 requests in one second pinged %d times", n)
	}
	a.clock.Add(2)
	ask(200)
	if n := pings.Load(); n != 2 {
		t.Errorf("after a second there were %d pings in all, want 2", n)
	}
}
