package web

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// served returns pages on an API that is a handler.
func served(t *testing.T, api http.HandlerFunc) (pages *httptest.Server, registry *prometheus.Registry) {
	t.Helper()
	behind := httptest.NewServer(api)
	t.Cleanup(behind.Close)
	at, err := url.Parse(behind.URL)
	require.NoError(t, err)
	registry = prometheus.NewRegistry()
	s, err := New(Config{API: at, PublicURL: at, Registry: registry})
	require.NoError(t, err)
	pages = httptest.NewServer(s)
	t.Cleanup(pages.Close)
	return pages, registry
}

// Requests are counted by route and not by path. A stream counts until its first byte.
func TestMetrics_areByRoute(t *testing.T) {
	t.Parallel()
	events := make(chan string)
	pages, registry := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/stream" {
			http.NotFound(w, r)
			return
		}
		for event := range events {
			_, _ = io.WriteString(w, event)
			w.(http.Flusher).Flush()
		}
	})
	for _, path := range []string{"/posts/1", "/posts/2", "/invented/3", "/healthz"} {
		resp, err := http.Get(pages.URL + path)
		require.NoError(t, err)
		resp.Body.Close()
	}
	resp, err := http.Post(pages.URL+"/sign-in", "", nil)
	require.NoError(t, err)
	resp.Body.Close()
	stream, err := http.NewRequestWithContext(t.Context(), http.MethodGet, pages.URL+"/v1/stream", nil)
	require.NoError(t, err)
	go func() { events <- "data: 1\n\n" }()
	asked := time.Now()
	resp, err = http.DefaultClient.Do(stream)
	require.NoError(t, err)
	line := make([]byte, 9)
	_, err = io.ReadFull(resp.Body, line)
	require.NoError(t, err, "an event arrives while the stream is open")
	begun := time.Since(asked)
	<-time.After(50 * time.Millisecond)
	close(events)
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	resp.Body.Close()

	want := map[string]float64{
		"GET /healthz 200": 1, "GET /posts/{id} 404": 2, "GET /v1/stream 200": 1,
		noRoute + " " + noRoute + " 403": 1, noRoute + " " + noRoute + " 404": 1,
	}
	require.Eventually(t, func() bool {
		return maps.Equal(want, series(t, registry, "likewise_web_requests_total"))
	}, 10*time.Second, time.Millisecond)
	assert.LessOrEqual(t, seconds(t, registry, "/v1/stream"), begun.Seconds(), "until it begins")
	api := series(t, registry, "likewise_web_api_request_duration_seconds")
	assert.Equal(t, 1.0, api["GET 200"])
	assert.Positive(t, api["GET 404"])
}

// series returns the values of a metric by its labels, and how often a histogram was observed.
func series(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			found[strings.Join(labels, " ")] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return found
}

// seconds returns how long requests of a route took together.
func seconds(t *testing.T, registry *prometheus.Registry, route string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil && m.GetLabel()[1].GetValue() == route {
				return h.GetSampleSum()
			}
		}
	}
	t.Fatalf("no time of %s", route)
	return 0
}

// What the API does not answer is counted apart, unless the browser has left.
func TestMetrics_countWhatTheAPIDoesNotAnswer(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	pages, registry := served(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/me/export" {
			close(asked)
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	})
	leaving, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(leaving, http.MethodGet, pages.URL+"/v1/me/export", nil)
	require.NoError(t, err)
	go func() {
		<-asked
		leave()
	}()
	_, err = http.DefaultClient.Do(r) //nolint:bodyclose // it has none
	require.Error(t, err)
	resp, err := http.Get(pages.URL + "/tags")
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(page), "The forum does not answer")
	require.Eventually(t, func() bool {
		return len(series(t, registry, "likewise_web_requests_total")) == 2
	}, 10*time.Second, time.Millisecond)
	api := series(t, registry, "likewise_web_api_request_duration_seconds")
	assert.Len(t, api, 1)
	assert.Positive(t, api["GET none"])
}
