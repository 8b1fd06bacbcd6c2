package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// After SIGTERM, /readyz answers 503, and the API accepts new connections until --drain has passed.
func TestAPI_drainsBeforeItStops(t *testing.T) {
	t.Parallel()
	const drain = 6 * time.Second
	s := newSite(t)
	p, url := s.api("--likes=direct", "--drain="+drain.String())
	admin := p.admin()
	fetch := func(url string) (status int, err error) {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get(url)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	begin := time.Now()
	p.term()
	testkit.Eventually(t, drain, func() (bool, string) {
		status, err := fetch(admin + "/readyz")
		require.NoError(t, err)
		return status == http.StatusServiceUnavailable, "it is ready still"
	})
	status, err := fetch(url + "/v1/posts")
	require.NoError(t, err, "a new connection while it drains")
	assert.Equal(t, http.StatusOK, status)
	assert.Zero(t, p.await())
	assert.GreaterOrEqual(t, time.Since(begin), drain)
	assert.Less(t, time.Since(begin), drain+drainLimit)
}

func TestAPI_refusesImpossibleDrains(t *testing.T) {
	t.Parallel()
	for _, drain := range []string{"-1s", "11m"} {
		assert.Contains(t, fail(t, 2, nil, "api", "--likes=direct", "--mysql-dsn=u:p@tcp(127.0.0.1)/db",
			"--drain="+drain), "--drain (or $LIKEWISE_DRAIN) must be from 0s to 10m0s")
	}
}
