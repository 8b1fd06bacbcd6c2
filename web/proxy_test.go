package web

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An image waits for its turn to be decoded, longer than any other answer takes.
func TestByPatience_waitsForUploads(t *testing.T) {
	t.Parallel()
	assert.Greater(t, uploadTimeout, time.Minute)
	assert.Less(t, uploadTimeout, writeTimeout)
	var quick, slow []string
	note := func(to *[]string) roundTrip {
		return func(r *http.Request) (*http.Response, error) {
			*to = append(*to, r.Method+" "+r.URL.Path)
			return nil, errors.New("seen")
		}
	}
	transport := byPatience{note(&quick), note(&slow)}
	for _, one := range [][2]string{{"POST", "/v1/images"}, {"GET", "/v1/images/a"}, {"PUT", "/v1/posts/1/like"}} {
		r := httptest.NewRequestWithContext(t.Context(), one[0], one[1], nil)
		_, err := transport.RoundTrip(r) //nolint:bodyclose // there is none
		require.Error(t, err)
	}
	assert.Equal(t, []string{"POST /v1/images"}, slow)
	assert.Equal(t, []string{"GET /v1/images/a", "PUT /v1/posts/1/like"}, quick)

	// And the server is made with it.
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	at, err := url.Parse(api.URL)
	require.NoError(t, err)
	s, err := New(Config{API: at, PublicURL: at, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	made, ok := s.proxy.Transport.(byPatience)
	require.True(t, ok)
	uploads, ok := made.uploads.(timed)
	require.True(t, ok)
	used, ok := uploads.RoundTripper.(*http.Transport)
	require.True(t, ok)
	assert.Equal(t, uploadTimeout, used.ResponseHeaderTimeout)
}
