package counters

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
)

// If Redis hangs, the first calls wait for a timeout, and the breaker refuses later calls at once.
func TestBreaker_refusesAtOnceWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	r, err := Open(server.URL(), 16)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	ask := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := r.TargetStates(ctx, []models.Target{{Kind: models.KindPost, ID: 1}})
		return err
	}
	require.NoError(t, ask())
	require.NoError(t, server.Pause())
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		err := ask()
		require.Error(t, err)
		return errors.Is(err, gobreaker.ErrOpenState), err.Error()
	})
	assert.ErrorIs(t, r.Ping(t.Context()), gobreaker.ErrOpenState, "single commands too")
	require.NoError(t, server.Resume())
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		return ask() == nil, "it does not notice that Redis is back"
	})
	for range 20 {
		assert.Error(t, r.client.Do(t.Context(), "NONSENSE").Err())
	}
	assert.NoError(t, ask(), "an answer that says no is an answer")
}
