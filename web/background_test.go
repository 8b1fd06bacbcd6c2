package web

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The reader of a post does not wait until it is marked as read, and a server that stops does.
func TestHaveRead_delaysNobody(t *testing.T) {
	t.Parallel()
	begun, free := make(chan struct{}, maxAfter), make(chan struct{})
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			begun <- struct{}{}
			<-free
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, anything)
	}))
	t.Cleanup(behind.Close)
	at, err := url.Parse(behind.URL)
	require.NoError(t, err)
	s, err := New(Config{API: at, PublicURL: at, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	pages := httptest.NewServer(s)
	t.Cleanup(pages.Close)
	open := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, pages.URL+"/posts/1", nil)
		require.NoError(t, err)
		req.AddCookie(&http.Cookie{Name: "session", Value: "token"})
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err, "the answer ends before the post is marked")
	}
	for range maxAfter {
		open()
		<-begun
	}
	open() // without a mark: too much goes on
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.Wait(ended), "the marks go on")
	close(free)
	require.NoError(t, s.Wait(t.Context()))
	assert.Empty(t, begun)
}
