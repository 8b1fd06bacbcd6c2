package counters

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckPolicy(t *testing.T) {
	t.Parallel()
	server := privateRedis(t, "--maxmemory-policy", "allkeys-lru")
	r, plain := openRedis(t, server.URL())
	require.ErrorIs(t, r.CheckPolicy(t.Context()), ErrEvicts)
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, r.CheckPolicy(t.Context()))
}

func TestOpen_refusesMalformedURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "localhost:6379", "http://localhost", "redis+cluster://host:port", "redis://h:1?master_name=m&nonsense=1",
	} {
		_, err := Open(url, shards)
		require.Error(t, err, url)
	}
}
