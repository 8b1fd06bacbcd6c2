package counters

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestEachWarm(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	for shard := range shards {
		if shard != 1 {
			openShard(t, r, shard, 1)
		}
	}
	want := map[models.Target]bool{post(1): true}
	for id := int64(2); id <= 1200; id++ {
		target := []models.Target{post(id), comment(id)}[id%2]
		warmUp(t, r, target)
		want[target] = true
	}
	like(t, r, post(1), 7)
	closeTarget(t, r, post(2))
	require.NoError(t, plain.HSet(t.Context(), "{s01}:elsewhat:1:likes", "count", 1).Err())
	require.NoError(t, plain.Set(t.Context(), "session:likes", "no target", 0).Err())

	got := map[models.Target]bool{}
	batches := 0
	require.NoError(t, r.EachWarm(t.Context(), func(targets []models.Target) error {
		require.LessOrEqual(t, len(targets), 500)
		batches++
		for _, target := range targets {
			got[target] = true
		}
		return nil
	}))
	require.Equal(t, want, got)
	require.GreaterOrEqual(t, batches, 3)

	calls := 0
	failure := errors.New("enough")
	require.ErrorIs(t, r.EachWarm(t.Context(), func([]models.Target) error { calls++; return failure }), failure)
	require.Equal(t, 1, calls)
}

func TestEachWarm_none(t *testing.T) {
	t.Parallel()
	r, _ := newRedis(t)
	require.NoError(t, r.EachWarm(t.Context(), func([]models.Target) error { return errors.New("called") }))
}
