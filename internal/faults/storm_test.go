package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"likewise/internal/faults/oracle"
)

// With the same seed and the same number, a fault makes the same choices, regardless of earlier faults.
func TestInjection_followsFromSeedAndNumber(t *testing.T) {
	draw := func(seed uint64, number int) uint64 {
		return newInjection(newStorm(&site{began: time.Now()}), seed, number).rng.Uint64()
	}
	first := draw(1, 2)
	assert.Equal(t, first, draw(1, 2))
	assert.NotEqual(t, draw(1, 2), draw(1, 3))
	assert.NotEqual(t, draw(1, 2), draw(2, 2))
}

func TestFaults_areManyAndDifferent(t *testing.T) {
	kinds := map[string]bool{}
	for _, f := range faults() {
		assert.False(t, kinds[f.kind], "%s is there twice", f.kind)
		kinds[f.kind] = true
	}
	assert.GreaterOrEqual(t, len(kinds), 60)
}

func TestInternals_areRecognized(t *testing.T) {
	for _, text := range []string{
		"dial tcp 10.0.0.1:6379: connection refused",
		"Error 1213: Deadlock found",
		"READONLY redis replica",
		"goroutine 1 [running]",
		"open /tmp/x",
		"unexpected EOF",
		"context deadline exceeded",
		"kafka: client has run out of brokers",
	} {
		assert.Regexp(t, internals, text)
	}
	assert.NotRegexp(
		t,
		internals,
		`{"type":"about:blank","title":"Service Unavailable","code":"unavailable",`+
			`"detail":"The server cannot do this at the moment; try again."}`,
	)
}

// A request may have been carried out although its connection broke. If it were sent again, the judge would see the
// second outcome alone.
func TestSend_sendsEachRequestOnce(t *testing.T) {
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if arrived.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	st := newStorm(&site{began: time.Now()})
	st.site.urls, st.http = []string{server.URL}, server.Client()
	q := request{method: http.MethodPost, path: "/v1/posts", body: map[string]any{"title": "T"},
		header: map[string]string{"Idempotency-Key": "key"}}
	by := route{0, 5 * time.Second}
	assert.Equal(t, oracle.OK, st.send(t.Context(), by, q).outcome, "opens the connection")
	assert.Equal(t, oracle.Unknown, st.send(t.Context(), by, q).outcome)
	assert.EqualValues(t, 2, arrived.Load())
}
