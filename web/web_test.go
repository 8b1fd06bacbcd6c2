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

func TestSiteName_isSetOrTheHost(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for public, name := range map[string]string{
		"https://forum.example:8443": "forum.example", "http://localhost:8083": "Likewise",
	} {
		var err error
		s.config.PublicURL, err = url.Parse(public)
		require.NoError(t, err)
		require.Equal(t, name, s.siteName())
	}
	s.config.SiteName = "The Engines"
	require.Equal(t, "The Engines", s.siteName())
}
