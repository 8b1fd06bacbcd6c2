package counters

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestCool_usesTheWatermarkOfEachShard(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	targets := []models.Target{post(1), comment(2), post(3), post(17), post(33)}
	for shard := 1; shard <= 3; shard++ {
		openShard(t, r, shard, 1)
	}
	for _, target := range targets[:4] {
		warmUp(t, r, target)
		like(t, r, target, 7) // 1-1, and 1-2 of post 17
	}
	trips := countTrips(t, r)
	n, err := r.Cool(t.Context(), targets, 0, map[int]models.Position{1: pos(1, 1), 2: pos(1, 1)})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.EqualValues(t, 1, trips.Load())
	n, err = r.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(
		t,
		[]string{
			"{s01}:post:17:likes", "{s01}:post:17:likes:load:0",
			"{s03}:post:3:likes", "{s03}:post:3:likes:load:0",
		},
		slices.Sorted(maps.Keys(dump(t, plain).only("likes"))),
		"post 17 is not in MySQL yet, and shard 3 is to be left alone",
	)

	n, err = r.Cool(t.Context(), nil, 0, nil)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestCool_continuesAfterADamagedTarget(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	targets := []models.Target{post(17), post(33), post(49), post(65), post(1)}
	damaged := []map[string]any{
		{"count": 0, "sets": 1, "load": "load", "last": "0-0"},
		{"count": 0, "sets": 1, "load": "load", "at": 1},
		{"count": 0, "sets": 1, "load": "load", "last": "never", "at": "soon"},
		{"count": 0, "last": "0-0", "at": 1},
	}
	for i, fields := range damaged {
		require.NoError(t, plain.HSet(t.Context(), r.keys(targets[i]).likes, fields).Err())
	}
	want := dump(t, plain)
	n, err := r.Cool(t.Context(), targets, 0, map[int]models.Position{1: pos(1, 1)})
	require.NoError(t, err)
	require.Equal(t, 3, n, "all whose last position is known")
	for _, target := range []models.Target{post(17), post(65), post(1)} {
		delete(want, r.keys(target).likes)
	}
	want["{s01}:garbage"] = []string{"{s01}:post:17:likes:load 1", "{s01}:post:1:likes:load 1"}
	require.Equal(t, want, dump(t, plain))
}

// The idle time is that of Redis alone: the change of a target and the call of Cool are compared on one clock.
func TestCool_idleTimeIsThatOfRedis(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	cool := func(idle time.Duration) int {
		n, err := r.Cool(t.Context(), []models.Target{post(1)}, idle, map[int]models.Position{1: pos(1, 1)})
		require.NoError(t, err)
		return n
	}
	require.Zero(t, cool(time.Hour))
	// Redis changed it two hours ago.
	now, err := plain.Time(t.Context()).Result()
	require.NoError(t, err)
	at := now.Add(-2 * time.Hour).UnixMilli()
	require.NoError(t, plain.HSet(t.Context(), r.keys(post(1)).likes, "at", at).Err())
	require.Zero(t, cool(3*time.Hour))
	require.Equal(t, 1, cool(time.Hour))
}

func TestForget_evictsATargetOnceMySQLHasAllOfIt(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 7)
	forget := func() bool {
		forgotten, err := f.redis.Forget(t.Context(), f.store, target)
		require.NoError(t, err)
		return forgotten
	}
	require.False(t, forget(), "the like is not in MySQL yet")
	(&model{f: f}).apply(t, t.Context(), target.Shard(shards))
	require.True(t, forget())
	require.NotContains(t, dump(t, f.plain), f.redis.keys(target).likes)
	require.False(t, forget(), "it is cold")
}

// Only the gate may still know what is in a gap.
func TestForget_asksForGaps(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	shard := target.Shard(shards)
	f.like(t, target, 7)
	f.like(t, target, 8)
	// The first like is lost on its way, and the second arrives.
	require.NoError(t, f.plain.XDel(t.Context(), outboxKey(shard), pos(f.epochs[shard], 1).String()).Err())
	gaps := (&model{f: f}).applyWithGaps(t, t.Context(), shard)
	require.Equal(t, 1, gaps)
	forgotten, err := f.redis.Forget(t.Context(), f.store, target)
	require.NoError(t, err)
	require.False(t, forgotten)
	require.Equal(t, []int64{7, 8}, usersOf(t, f.redis, target))
}
