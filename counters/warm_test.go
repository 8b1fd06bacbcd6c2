package counters

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestKeys_ofAShardShareAHashTag(t *testing.T) {
	r := &Redis{shards: shards}
	require.Equal(t, targetKeys{
		shard: "{s10}:shard", outbox: "{s10}:outbox", likes: "{s10}:post:42:likes",
		users: "{s10}:post:42:likes_users", warming: "{s10}:post:42:warming",
	}, r.keys(post(42)))
	require.Equal(t, "{s08}:comment:8:likes", r.keys(comment(8)).likes)
	require.Equal(t, "{s10}:relay", relayKey(10))
}

func TestParseLikesKey(t *testing.T) {
	r := &Redis{shards: 128}
	for _, target := range []models.Target{post(8), comment(9), post(127), comment(1 << 62)} {
		got, ok := parseLikesKey(r.keys(target).likes)
		require.True(t, ok)
		require.Equal(t, target, got)
	}
	for _, key := range []string{
		"", "likes", "{s01}:post:1:likes_users", "{s01}:post:1:warming", "{s01}:post:x:likes", "{s01}:post::likes",
		"{s01}:user:1:likes", "{s}:post:1:likes", "s01:post:1:likes", "{s01}:post:1:loading:likes",
	} {
		_, ok := parseLikesKey(key)
		require.False(t, ok, key)
	}
}

func TestEachWarm(t *testing.T) {
	r, plain := newGate(t)
	for shard := range shards {
		if shard != 1 {
			openShard(t, r, shard, 1)
		}
	}
	want := map[models.Target]bool{post(1): true}
	for id := int64(2); id <= 1200; id++ {
		target := []models.Target{post(id), comment(id)}[id%2]
		openNew(t, r, target)
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
	r, _ := newRedis(t)
	require.NoError(t, r.EachWarm(t.Context(), func([]models.Target) error { return errors.New("called") }))
}

func TestCool_usesTheWatermarkOfEachShard(t *testing.T) {
	r, plain := newRedis(t)
	targets := []models.Target{post(1), comment(2), post(3), post(17), post(33)}
	for shard := 1; shard <= 3; shard++ {
		openShard(t, r, shard, 1)
	}
	for _, target := range targets[:4] {
		openNew(t, r, target)
		like(t, r, target, 7) // at 1000 ms; 1-1, and 1-2 of post 17
	}
	trips := countTrips(t, r)
	n, err := r.Cool(t.Context(), targets, time.UnixMilli(1000), map[int]models.Position{1: pos(1, 1), 2: pos(1, 1)})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.EqualValues(t, 1, trips.Load())
	var left []string
	for key := range dump(t, plain).only("likes") {
		left = append(left, key)
	}
	slices.Sort(left)
	require.Equal(
		t,
		[]string{"{s01}:post:17:likes", "{s01}:post:17:likes_users", "{s03}:post:3:likes", "{s03}:post:3:likes_users"},
		left,
		"post 17 is not in MySQL yet, and shard 3 is to be left alone",
	)

	n, err = r.Cool(t.Context(), nil, time.UnixMilli(1000), nil)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestCool_continuesAfterADamagedTarget(t *testing.T) {
	r, plain := newGate(t)
	targets := []models.Target{post(17), post(33), post(49), post(1)}
	damaged := []map[string]any{
		{"count": 0, "last": "0-0"},
		{"count": 0, "at": 1},
		{"count": 0, "last": "never", "at": "soon"},
	}
	for i, fields := range damaged {
		require.NoError(t, plain.HSet(t.Context(), r.keys(targets[i]).likes, fields).Err())
	}
	want := dump(t, plain)
	n, err := r.Cool(t.Context(), targets, time.UnixMilli(1000), map[int]models.Position{1: pos(1, 1)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	delete(want, r.keys(post(1)).likes)
	require.Equal(t, want, dump(t, plain))
}

func TestForget_evictsATargetThatWasJustLiked(t *testing.T) {
	r, plain := newGate(t)
	_, err := r.run(t.Context(), "like", gateKeys(r.keys(post(1))), 1, 7, `"e"`, 100, time.Now().UnixMilli(), never).
		Result()
	require.NoError(t, err)
	forgotten, err := r.Forget(t.Context(), post(1), pos(1, 0))
	require.NoError(t, err)
	require.False(t, forgotten)
	forgotten, err = r.Forget(t.Context(), post(1), pos(1, 1))
	require.NoError(t, err)
	require.True(t, forgotten)
	require.Empty(t, dump(t, plain).only("post"))
}

func TestTargetStates(t *testing.T) {
	r, plain := newGate(t)
	openNew(t, r, post(17))
	like(t, r, post(1), 7)
	like(t, r, post(1), 8)
	closeTarget(t, r, post(1))
	require.NoError(t, plain.SAdd(t.Context(), r.keys(post(33)).users, 1, 2, 3).Err())
	trips := countTrips(t, r)
	states, err := r.TargetStates(t.Context(), []models.Target{post(999), post(1), post(17), post(33)})
	require.NoError(t, err)
	require.EqualValues(t, 1, trips.Load())
	require.Equal(t, []TargetState{
		{},
		{Warm: true, Closed: true, Count: 2, Users: 2, Last: pos(1, 2)},
		{Warm: true},
		{Users: 3},
	}, states)

	require.NoError(t, plain.HSet(t.Context(), r.keys(post(1)).likes, "last", "never").Err())
	_, err = r.TargetStates(t.Context(), []models.Target{post(1)})
	require.ErrorContains(t, err, "post:1")
}

func TestEachUser(t *testing.T) {
	r, plain := newGate(t)
	want := map[int64]bool{}
	var members []any
	for user := int64(1); user <= 12_000; user++ {
		want[user] = true
		members = append(members, user)
	}
	require.NoError(t, plain.SAdd(t.Context(), r.keys(post(1)).users, members...).Err())
	got := map[int64]bool{}
	batches := 0
	require.NoError(t, r.EachUser(t.Context(), post(1), func(ids []int64) error {
		batches++
		for _, id := range ids {
			got[id] = true
		}
		return nil
	}))
	require.True(t, maps.Equal(want, got))
	require.Greater(t, batches, 1)

	failure := errors.New("enough")
	require.ErrorIs(t, r.EachUser(t.Context(), post(1), func([]int64) error { return failure }), failure)
	require.NoError(t, r.EachUser(t.Context(), post(17), func(ids []int64) error {
		require.Empty(t, ids)
		return nil
	}), "cold")
	require.NoError(t, plain.SAdd(t.Context(), r.keys(post(1)).users, "somebody").Err())
	require.ErrorContains(t, r.EachUser(t.Context(), post(1), func([]int64) error { return nil }), "post:1")
}

func TestReassert_sendsTheCurrentState(t *testing.T) {
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	f.like(t, target, 8)
	require.NoError(t, f.Reassert(t.Context(), target, []int64{7, 9, 8}))
	event := func(n int, kind string, user int) string {
		return "1-" + strconv.Itoa(n) + ` {"type":"post.` + kind + `","id":1,"user_id":` + strconv.Itoa(
			user,
		) + `,"at":1700000000000}`
	}
	require.Equal(
		t,
		[]string{
			"1-0" + opened,
			event(1, "liked", 8),
			event(2, "liked", 7),
			event(3, "unliked", 9),
			event(4, "liked", 8),
		},
		entries(t, f.plain, "{s01}:outbox"),
	)
	require.Equal(t, "1-4", dump(t, f.plain)["{s01}:post:1:likes"].(hash)["last"])
}

func TestReassert_splitsManyUsers(t *testing.T) {
	r, plain := newGate(t)
	l := NewLikes(r, nil, LikesOptions{OutboxLimit: 1100})
	users := make([]int64, 1001)
	for i := range users {
		users[i] = int64(i + 1)
	}
	require.NoError(t, l.Reassert(t.Context(), post(1), users))
	got := fold(t, t.Context(), plain, 1)[post(1)]
	require.Len(t, got, len(users))

	err := l.Reassert(t.Context(), post(1), users[:99])
	requireCode(t, models.CodeUnavailable, err)
	require.EqualValues(t, 1002, plain.XLen(t.Context(), "{s01}:outbox").Val())
}

func TestReassert_needsAWarmTargetInAnOpenShard(t *testing.T) {
	r, plain := newGate(t)
	l := NewLikes(r, nil, LikesOptions{})
	assert.ErrorIs(t, l.Reassert(t.Context(), post(17), []int64{7}), ErrNotWarm)
	assert.NoError(t, l.Reassert(t.Context(), post(17), nil))
	closeShard(t, plain, 1)
	assert.ErrorIs(t, l.Reassert(t.Context(), post(1), []int64{7}), ErrNotWarm)
}

func TestCheckPolicy(t *testing.T) {
	server := privateRedis(t, "--maxmemory-policy", "allkeys-lru")
	r, plain := openRedis(t, server.URL())
	require.ErrorIs(t, r.CheckPolicy(t.Context()), ErrEvicts)
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, r.CheckPolicy(t.Context()))
}

func TestOpen_refusesMalformedURLs(t *testing.T) {
	for _, url := range []string{
		"", "localhost:6379", "http://localhost", "redis+cluster://host:port", "redis://h:1?master_name=m&nonsense=1",
	} {
		_, err := Open(url, shards)
		require.Error(t, err, url)
	}
}
