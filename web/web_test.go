package web

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// newTestServer returns a server of an API that does not exist.
func newTestServer(t testing.TB) *Server {
	t.Helper()
	api, err := url.Parse("http://127.0.0.1:1")
	require.NoError(t, err)
	s, err := New(Config{API: api, PublicURL: api})
	require.NoError(t, err)
	return s
}
