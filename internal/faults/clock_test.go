package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
)

// The overlay fits the version of Go that is installed.
func TestTimeSources_areThoseOfThisGo(t *testing.T) {
	sources, err := timeSources(t.Context())
	require.NoError(t, err)
	require.Len(t, sources, 2)
}

func TestClock_stepsTheTimeOfDayOfAServer(t *testing.T) {
	library, err := preload(t.Context(), t.TempDir())
	require.NoError(t, err)
	server, err := servers.StartRedis(t.Context(), t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Kill()) }()
	c, err := newClock(t.TempDir(), "redis")
	require.NoError(t, err)
	require.NoError(t, server.Stop(t.Context()))
	server.Setenv("LD_PRELOAD="+library, c.env())
	require.NoError(t, server.Start(t.Context()))
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	off := func() time.Duration { return time.Until(client.Time(t.Context()).Val()) }
	require.InDelta(t, 0, off(), float64(time.Minute))
	require.NoError(t, c.set(-3*time.Hour))
	require.InDelta(t, -3*time.Hour, off(), float64(time.Minute))
	require.NoError(t, c.set(10*time.Minute))
	require.InDelta(t, 10*time.Minute, off(), float64(time.Minute))
	require.NoError(t, c.set(0))
	require.InDelta(t, 0, off(), float64(time.Minute))
}
