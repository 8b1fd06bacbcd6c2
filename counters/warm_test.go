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
	t.Parallel()
	r := &Redis{shards: shards}
	require.Equal(t, targetKeys{
		shard: "{s10}:shard", outbox: "{s10}:outbox", garbage: "{s10}:garbage", likes: "{s10}:post:42:likes",
		warming: "{s10}:post:42:warming",
	}, r.keys(post(42)))
	require.Equal(t, "{s08}:comment:8:likes", r.keys(comment(8)).likes)
	require.Equal(t, "{s10}:relay", relayKey(10))
	require.Equal(t, "{s10}:post:42:likes:load:3", setKey("{s10}:post:42:likes", "load", 3))
}

func TestParseLikesKey(t *testing.T) {
	t.Parallel()
	r := &Redis{shards: 128}
	for _, target := range []models.Target{post(8), comment(9), post(127), comment(1 << 62)} {
		got, ok := parseLikesKey(r.keys(target).likes)
		require.True(t, ok)
		require.Equal(t, target, got)
	}
	for _, key := range []string{
		"", "likes", "{s01}:post:1:likes:load:0", "{s01}:post:1:likes:waiting",
		"{s01}:post:1:warming", "{s01}:post:x:likes", "{s01}:post::likes",
		"{s01}:user:1:likes", "{s}:post:1:likes", "s01:post:1:likes", "{s01}:post:1:loading:likes",
	} {
		_, ok := parseLikesKey(key)
		require.False(t, ok, key)
	}
}

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

// A position that is damaged may have been any, so its target may be one that a gap is about.
func TestChangedAfter_returnsTargetsWithADamagedPosition(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	targets := []models.Target{post(1), post(17), comment(1)}
	warmUp(t, r, post(17))
	for _, last := range []string{"1-1", "x", "", "1", "-1-0"} {
		require.NoError(t, plain.HSet(t.Context(), r.keys(post(1)).likes, "last", last).Err())
		changed, err := r.ChangedAfter(t.Context(), targets, pos(1, 1))
		require.NoError(t, err)
		if last == "1-1" {
			require.Empty(t, changed, "neither later, nor warm")
		} else {
			require.Equal(t, targets[:1], changed, "%q", last)
		}
	}
}

func TestTargetStates(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	warmUp(t, r, post(17))
	like(t, r, post(1), 7)
	like(t, r, post(1), 8)
	closeTarget(t, r, post(1))
	many := make([]int64, 1000)
	for i := range many {
		many[i] = int64(i + 1)
	}
	warmUp(t, r, post(33), many...)
	set := setKey(r.keys(post(33)).likes, "load", setOf(500, setsFor(1000)))
	require.NoError(t, plain.SRem(t.Context(), set, 500).Err())
	trips := countTrips(t, r)
	states, err := r.TargetStates(t.Context(), []models.Target{post(999), post(1), post(17), post(33)})
	require.NoError(t, err)
	require.EqualValues(t, 2, trips.Load())
	require.Equal(t, []TargetState{
		{},
		{Warm: true, Closed: true, Count: 2, Users: 2, Sets: 1, Load: "load", Last: pos(1, 2)},
		{Warm: true, Sets: 1, Load: "load"},
		{Warm: true, Count: 1000, Users: 999, Sets: setsFor(1000), Load: "load"},
	}, states)

	require.NoError(t, plain.HSet(t.Context(), r.keys(post(1)).likes, "last", "never").Err())
	states, err = r.TargetStates(t.Context(), []models.Target{post(1), post(17)})
	require.NoError(t, err, "a damaged target does not hide the others")
	require.NotEqual(t, states[0].Count, states[0].Users)
	require.True(t, states[0].Warm)
	require.Equal(t, TargetState{Warm: true, Sets: 1, Load: "load"}, states[1])
}

func TestEachUser(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	users := make([]int64, 12_000)
	for i := range users {
		users[i] = int64(i + 1)
	}
	warmUp(t, r, post(1), users...)
	var got []int64
	batches := 0
	require.NoError(t, r.EachUser(t.Context(), post(1), func(ids []int64) error {
		batches++
		got = append(got, ids...)
		return nil
	}))
	slices.Sort(got)
	require.Equal(t, users, got)
	require.Greater(t, batches, 1)

	failure := errors.New("enough")
	require.ErrorIs(t, r.EachUser(t.Context(), post(1), func([]int64) error { return failure }), failure)
	require.ErrorIs(t, r.EachUser(t.Context(), post(17), func([]int64) error { return nil }), ErrNotWarm)
	require.NoError(t, plain.SAdd(t.Context(), setKey(r.keys(post(1)).likes, "load", 0), "somebody").Err())
	require.ErrorContains(t, r.EachUser(t.Context(), post(1), func([]int64) error { return nil }), "post:1")
}

// A set that is split after its turn was planned moves half of its users to a set behind all others.
func TestEachUser_findsUsersThatASplitMoves(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	users := make([]int64, 12_000)
	for i := range users {
		users[i] = int64(i + 1)
	}
	warmUp(t, r, post(1), users...)
	found := map[int64]bool{}
	next := int64(len(users))
	require.NoError(t, r.EachUser(t.Context(), post(1), func(ids []int64) error {
		for _, id := range ids {
			found[id] = true
		}
		for range 1000 {
			if next++; next > 14_000 {
				break
			}
			require.Equal(t, done(next), gate(t, r, 10_000, wanted{post(1), []string{strconv.FormatInt(next, 10)}}))
		}
		return plain.XTrimMaxLen(t.Context(), outboxKey(1), 0).Err()
	}))
	for _, user := range users {
		require.True(t, found[user], "user %d liked it long before", user)
	}
	err := r.EachUser(t.Context(), post(1), func([]int64) error {
		return plain.HSet(t.Context(), r.keys(post(1)).likes, "load", "another").Err()
	})
	require.ErrorIs(t, err, ErrNotWarm, "it was evicted and warmed again")
}

func TestLikers_reportsWhoLikesAWarmTarget(t *testing.T) {
	t.Parallel()
	r, _ := newRedis(t)
	openShard(t, r, 1, 1)
	var users []int64
	for i := range int64(2000) {
		users = append(users, 2*i+2)
	}
	warmUp(t, r, post(1), users...)
	trips := countTrips(t, r)
	liked, err := r.Likers(t.Context(), post(1), []int64{1, 2, 3, 4000, 4001})
	require.NoError(t, err)
	require.Equal(t, map[int64]bool{1: false, 2: true, 3: false, 4000: true, 4001: false}, liked)
	require.EqualValues(t, 2, trips.Load())
	_, err = r.Likers(t.Context(), post(17), []int64{1})
	require.ErrorIs(t, err, ErrNotWarm)
	liked, err = r.Likers(t.Context(), post(17), nil)
	require.NoError(t, err)
	require.Empty(t, liked)
}

func TestReassert_sendsTheCurrentState(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	f.like(t, target, 8)
	require.NoError(t, f.Reassert(t.Context(), target, []int64{7, 9, 8}))
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 8", "1-2 p1 7 -9 8"}, entries(t, f.plain, "{s01}:outbox"))
	require.Equal(t, "1-2", dump(t, f.plain)["{s01}:post:1:likes"].(hash)["last"])
}

func TestReassert_splitsManyUsers(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	l := NewLikes(r, nil, LikesOptions{OutboxLimit: 901})
	users := make([]int64, 1000)
	for i := range users {
		users[i] = int64(i + 1)
	}
	require.NoError(t, l.Reassert(t.Context(), post(1), users))
	got := fold(t, t.Context(), plain, 1)[post(1)]
	require.Len(t, got, len(users))
	require.EqualValues(t, 9, plain.XLen(t.Context(), "{s01}:outbox").Val(), "eight parts, after the opening")

	err := l.Reassert(t.Context(), post(1), users[:99])
	requireCode(t, models.CodeUnavailable, err)
	require.EqualValues(t, 9, plain.XLen(t.Context(), "{s01}:outbox").Val())
}

// However low the limit of the outbox is, a gap can be closed.
func TestReassert_fitsASmallOutbox(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	l := NewLikes(r, nil, LikesOptions{OutboxLimit: 1})
	require.NoError(t, l.Reassert(t.Context(), post(1), []int64{1, 2, 3}))
	require.Len(t, fold(t, t.Context(), plain, 1)[post(1)], 3)
	err := l.Reassert(t.Context(), post(1), []int64{4})
	requireCode(t, models.CodeUnavailable, err)
}

func TestReassert_needsAWarmTargetInAnOpenShard(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	l := NewLikes(r, nil, LikesOptions{})
	assert.ErrorIs(t, l.Reassert(t.Context(), post(17), []int64{7}), ErrNotWarm)
	assert.NoError(t, l.Reassert(t.Context(), post(17), nil))
	require.NoError(t, plain.HSet(t.Context(), r.keys(post(33)).likes, "count", 1).Err())
	assert.ErrorIs(t, l.Reassert(t.Context(), post(33), []int64{7}), ErrNotWarm, "damaged")
	closeShard(t, plain, 1)
	err := l.Reassert(t.Context(), post(1), []int64{7})
	assert.ErrorIs(t, err, ErrShardClosed)
	assert.NotErrorIs(t, err, ErrNotWarm)
}

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
