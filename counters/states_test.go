package counters

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
)

func TestStatesOf_warmColdClosedAndGone(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	warm, cold, closed, deleted, buried := f.post(t), f.post(t), f.post(t), f.post(t), f.post(t)
	under, below := f.comment(t, warm), f.comment(t, buried)
	targets := []models.Target{warm, cold, closed, deleted, under, below}
	for _, target := range targets {
		f.inMySQL(t, target, 7)
	}
	for _, target := range []models.Target{warm, closed, deleted} {
		f.like(t, target, 8) // not in MySQL yet
	}
	// The gate knows the deletion of the first target. Only MySQL knows that of the second.
	require.NoError(t, content.New(f.store).DeletePost(t.Context(), f.author.ID, deleted.ID))
	require.NoError(t, f.CloseTargets(t.Context(), []models.Target{deleted}))
	require.NoError(t, content.New(f.store).DeletePost(t.Context(), f.author.ID, buried.ID))
	closeShard(t, f.plain, closed.Shard(shards))
	targets = append(targets, post(99999), comment(99999))

	for viewer, want := range map[int64]map[models.Target]models.LikeState{
		7: {
			warm:   {Liked: true, Count: 2},
			cold:   {Liked: true, Count: 1},
			closed: {Liked: true, Count: 1},
			under:  {Liked: true, Count: 1},
		},
		8: {warm: {Liked: true, Count: 2}, cold: {Count: 1}, closed: {Count: 1}, under: {Count: 1}},
		0: {warm: {Count: 2}, cold: {Count: 1}, closed: {Count: 1}, under: {Count: 1}},
	} {
		trips := countTrips(t, f.redis)
		f.queries.reset()
		got, err := f.StatesOf(t.Context(), viewer, targets)
		require.NoError(t, err)
		require.Equal(t, want, got, "viewer %d", viewer)
		require.EqualValues(t, 1, trips.Load())
		require.Equal(t, 1, f.queries.selects(""), "one query for both kinds")
	}
	got, err := f.StatesOf(t.Context(), 7, nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

// One of the sets of a target is lost: the only one, or one of several. Nothing shows who likes it, so MySQL does.
func TestStatesOf_targetWithALostSet(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	for _, users := range []int{3, 1000} {
		target := f.post(t)
		f.inMySQL(t, target, 1)
		var list []int64
		for user := range int64(users) {
			list = append(list, user+1)
		}
		warmUp(t, f.redis, target, list...)
		sets := setsFor(users)
		states := func(viewers ...int64) (found []models.LikeState) {
			for _, viewer := range viewers {
				got, err := f.StatesOf(t.Context(), viewer, []models.Target{target})
				require.NoError(t, err)
				found = append(found, got[target])
			}
			return found
		}
		require.Equal(t, []models.LikeState{{Liked: true, Count: int64(users)}, {Count: int64(users)}}, states(1, 5000))
		lost := setOf(1, sets)
		require.NoError(t, f.plain.Del(t.Context(), setKey(f.redis.likesKey(target), "load", lost)).Err())
		require.Equal(t, []models.LikeState{{Liked: true, Count: 1}}, states(1), "%d users", users)
		if sets == 1 {
			require.Equal(t, []models.LikeState{{Count: 1}}, states(5000))
		}
	}
}

func TestStatesOf_aHundredWarmTargetsCostNoQuery(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	var targets []models.Target
	want := map[models.Target]models.LikeState{}
	for i := range int64(100) {
		target := []models.Target{post(i + 1), comment(i + 1)}[i%2]
		warmUp(t, f.redis, target, 7+i%2)
		targets = append(targets, target)
		want[target] = models.LikeState{Liked: i%2 == 0, Count: 1}
	}
	trips := countTrips(t, f.redis)
	f.queries.reset()
	got, err := f.StatesOf(t.Context(), 7, targets)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.EqualValues(t, 1, trips.Load())
	require.Zero(t, f.queries.selects(""))
}

func TestStatesOf_withASilentRedisLeavesTimeForMySQL(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	r, _ := openRedis(t, server.URL())
	f := newForumOn(t, r)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	require.NoError(t, r.Ping(t.Context()))
	require.NoError(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	states, err := f.StatesOf(ctx, 7, []models.Target{target})
	require.NoError(t, server.Resume())
	require.NoError(t, err)
	require.Equal(t, map[models.Target]models.LikeState{target: {Liked: true, Count: 1}}, states)
}

// A restoration does not open the target in the gate. StatesOf returns the likes in the gate, because MySQL may lack
// some.
func TestStatesOf_hasRestoredTargetsAtOnce(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	under := f.comment(t, target)
	for _, liked := range []models.Target{target, under} {
		f.inMySQL(t, liked, 7)
		f.like(t, liked, 8)
	}
	require.NoError(t, content.New(f.store).DeletePost(t.Context(), f.author.ID, target.ID))
	require.NoError(t, f.CloseTargets(t.Context(), []models.Target{target, under}))
	got, err := f.StatesOf(t.Context(), 8, []models.Target{target, under})
	require.NoError(t, err)
	require.Empty(t, got)

	f.restore(t, target)
	trips := countTrips(t, f.redis)
	f.queries.reset()
	got, err = f.StatesOf(t.Context(), 8, []models.Target{target, under})
	require.NoError(t, err)
	state := models.LikeState{Liked: true, Count: 2}
	require.Equal(t, map[models.Target]models.LikeState{target: state, under: state}, got)
	require.EqualValues(t, 1, trips.Load())
	require.Equal(t, 1, f.queries.selects(""))
}

func TestCloseTargets_takesARoundTripForEachFiveHundred(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	var targets []models.Target
	for i := range int64(1100) {
		targets = append(targets, comment(i+1))
		if i%7 == 0 {
			warmUp(t, f.redis, comment(i+1))
		}
	}
	require.NoError(t, f.redis.Ping(t.Context()))
	trips := countTrips(t, f.redis)
	require.NoError(t, f.CloseTargets(t.Context(), targets))
	require.EqualValues(t, 3, trips.Load())
	states, err := f.redis.TargetStates(t.Context(), targets)
	require.NoError(t, err)
	for i, s := range states {
		require.Equal(t, i%7 == 0, s.Closed, "%d", i)
	}
}

// Most comments have no likes. A page of them must not cost each viewer a query.
func TestLikeStates_ofColdTargetsWithoutLikesCostNoQuery(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	cold, liked, closed := f.post(t), f.post(t), f.post(t)
	for closed.Shard(shards) == cold.Shard(shards) || closed.Shard(shards) == liked.Shard(shards) {
		closed = f.post(t)
	}
	f.inMySQL(t, liked, 7)
	f.inMySQL(t, closed, 7)
	states := func(rows ...models.TargetCount) []models.LikeState {
		f.queries.reset()
		got, err := f.LikeStates(t.Context(), 7, rows)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, []models.LikeState{{}}, states(models.TargetCount{Target: cold}))
	require.Zero(t, f.queries.selects(""))

	both := []models.TargetCount{{Target: cold}, {Target: liked, Count: 1}}
	require.Equal(t, []models.LikeState{{}, {Liked: true, Count: 1}}, states(both...))
	require.Equal(t, 1, f.queries.selects(""))

	// A closed shard may have accepted the like after the row was read.
	closeShard(t, f.plain, closed.Shard(shards))
	require.Equal(t, []models.LikeState{{Liked: true}}, states(models.TargetCount{Target: closed}))
	require.Equal(t, 1, f.queries.selects(""))

	// So may the gate.
	f.like(t, cold, 7)
	require.Equal(t, []models.LikeState{{Liked: true, Count: 1}}, states(models.TargetCount{Target: cold}))
	require.Zero(t, f.queries.selects(""))
}
