package counters

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
)

// awaitLoads waits until n targets wait for the loader.
func (f *forum) awaitLoads(t testing.TB, n int) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		f.loader.mu.Lock()
		defer f.loader.mu.Unlock()
		return len(f.loader.waiting) >= n, "too few targets wait"
	})
}

// Targets that are asked for while others are loaded cost one query for their states, and one for their likers.
func TestLoader_loadsTargetsInCompany(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	first := f.post(t)
	var targets []models.Target
	for i := range loadTargets {
		target := f.post(t)
		if i%2 == 1 {
			target = f.comment(t, first)
		}
		f.inMySQL(t, target, 1000, int64(2000+i))
		targets = append(targets, target)
	}
	f.queries.reset()
	caught, let := f.queries.holdAll(t, loads)
	calls := []<-chan result{start(t.Context(), f.Likes, first, 7, true)}
	await(t, caught)
	for _, target := range targets {
		calls = append(calls, insist(t.Context(), f.Likes, target, 7))
	}
	f.awaitLoads(t, loadTargets)
	trips := countTrips(t, f.redis)
	let()
	for i, done := range calls {
		got := soon(t, done)
		require.NoError(t, got.err)
		require.Equal(t, models.LikeState{Liked: true, Count: int64(min(i, 1)*2 + 1)}, got.state)
	}
	require.Equal(t, 2, f.queries.selects("FROM posts t WHERE"), "that of the first, and one for both kinds")
	require.Equal(t, 2, f.queries.selects(loads))
	// Both loads end, one takes the locks, and the calls of all shards go to the gate together, once or twice.
	require.LessOrEqual(t, trips.Load(), int64(3+4))
	for i, target := range targets {
		require.Equal(t, []int64{7, 1000, int64(2000 + i)}, usersOf(t, f.redis, target))
	}
}

// A key of one target that has a wrong type does not keep the others cold.
func TestLoader_damagedTargetDoesNotHarmItsCompany(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	posts := f.sameShard(t, 4)
	caught, let := f.queries.holdAll(t, loads)
	calls := []<-chan result{start(t.Context(), f.Likes, posts[0], 7, true)}
	await(t, caught)
	for _, target := range posts[1:] {
		calls = append(calls, start(t.Context(), f.Likes, target, 7, true))
	}
	f.awaitLoads(t, 3)
	lock := f.redis.keys(posts[2]).warming
	second := make(chan struct{}, 1)
	hookBefore(f.redis, "place", sync.OnceFunc(func() { // of the first
		hookBefore(f.redis, "place", sync.OnceFunc(func() { // of the others
			assert.NoError(t, f.plain.Del(t.Context(), lock).Err())
			assert.NoError(t, f.plain.LPush(t.Context(), lock, "of a wrong type").Err())
			second <- struct{}{}
		}))
	}))
	let()
	await(t, second)
	for i, done := range calls {
		got := soon(t, done)
		if i == 2 {
			requireCode(t, models.CodeUnavailable, got.err)
			require.ErrorContains(t, got.err, "WRONGTYPE")
			continue
		}
		require.NoError(t, got.err)
	}
	require.NoError(t, f.plain.Del(t.Context(), lock).Err())
	f.like(t, posts[2], 8)
}

func TestLoader_largeTargetDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	const likers = 30_000
	f := newForum(t)
	large, small := f.post(t), f.post(t)
	f.likers(t, large, likers)
	caught, let := f.queries.holdAll(t, pages)
	waits := start(t.Context(), f.Likes, large, likers+1, true)
	await(t, caught)
	f.like(t, small, 7)
	f.like(t, f.comment(t, large), 7)
	another := start(t.Context(), f.Likes, large, likers+2, true)
	f.awaitParked(t, large, 2)
	let()
	got := []int64{}
	for _, done := range []<-chan result{waits, another} {
		r := soon(t, done)
		require.NoError(t, r.err)
		got = append(got, r.state.Count)
	}
	require.ElementsMatch(t, []int64{likers + 1, likers + 2}, got)
	require.Len(t, usersOf(t, f.redis, large), likers+2)
	require.Equal(t, likers/largePage+1, f.queries.selects(pages), "each page once")
}

// The lock of a long load is extended now and then, not with each page.
func TestLoader_keepsTheLockOfALongLoad(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.likers(t, target, loadUsers+1)
	caught, let := f.queries.holdAll(t, pages)
	var keeps atomic.Int64
	hookBefore(f.redis, "load", func() { keeps.Add(1) })
	var left time.Duration
	hookBefore(f.redis, "put", sync.OnceFunc(func() {
		left = f.plain.PTTL(t.Context(), f.redis.keys(target).warming).Val()
	}))
	call := start(t.Context(), f.Likes, target, 7, true)
	await(t, caught)
	<-time.After(loadLock / 5)
	let()
	require.NoError(t, soon(t, call).err)
	require.Greater(t, left, loadLock*85/100, "it was extended since the first page")
	require.GreaterOrEqual(t, keeps.Load(), int64(3), "at first, after the first page, and before the sets")
	require.Less(t, keeps.Load(), int64(loadUsers/largePage))
}

// dead fails every command once its process is killed.
type dead struct{ killed atomic.Bool }

var errDead = errors.New("the process was killed")

func (d *dead) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d *dead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.killed.Load() {
			cmd.SetErr(errDead)
			return errDead
		}
		return next(ctx, cmd)
	}
}

func (d *dead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if d.killed.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(errDead)
			}
			return errDead
		}
		return next(ctx, cmds)
	}
}

func TestLoader_killedHalfWayLeavesGarbageThatIsSwept(t *testing.T) {
	t.Parallel()
	const likers = 30_000
	f := newForum(t)
	other := f.process(t)
	target := f.post(t)
	f.likers(t, target, likers)
	before := dump(t, f.plain)
	process := &dead{}
	other.redis.client.AddHook(process)
	hookBefore(other.redis, "put", func() { process.killed.Store(true) }) // after this round trip
	_, err := other.SetLike(t.Context(), target, 7, true)
	requireCode(t, models.CodeUnavailable, err)
	require.ErrorIs(t, err, errDead)
	left := dump(t, f.plain)
	require.NotContains(t, left, f.redis.keys(target).likes)
	require.Len(t, left.only(":likes:"), largeSets+1, "sets, and the ticket")
	n, err := f.redis.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "it may still be alive")
	require.Len(t, dump(t, f.plain), len(left))

	// Its lock expires, and another process loads the target.
	require.NoError(t, f.plain.Del(t.Context(), f.redis.keys(target).warming).Err())
	f.like(t, target, likers+1)
	require.Len(t, usersOf(t, f.redis, target), likers+1)
	sets := setsFor(likers + 1)
	after := swept(t, f.redis, f.plain)
	require.Len(t, usersOf(t, f.redis, target), likers+1)
	require.NotContains(t, after, garbageKey(target.Shard(shards)))
	require.Len(t, after, len(before)+1+sets+1, "the hash, its sets, and the ticket of the killed process")
}

// The reply of the lock was lost, and the client asks again. The lock is its own.
func TestLoader_findsItsOwnLock(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	f.redis.client.AddHook(lockTwice{f.redis.script["hold"].Hash()})
	begin := time.Now()
	f.like(t, target, 8)
	require.Less(t, time.Since(begin), loadLock, "it does not wait until the lock expires")
	require.Equal(t, []int64{7, 8}, usersOf(t, f.redis, target))
}

// lockTwice sends each pipeline that has a script twice, and returns the second replies.
type lockTwice struct{ script string }

func (h lockTwice) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h lockTwice) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h lockTwice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any(h.script)) }) {
			_ = next(ctx, cmds)
			for _, cmd := range cmds {
				cmd.SetErr(nil)
			}
		}
		return next(ctx, cmds)
	}
}

// The state of a large target is read before its likers. A deletion meanwhile wins.
func TestLoader_deletionDuringALargeLoadIsNotFound(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	other := f.process(t)
	target := f.post(t)
	f.likers(t, target, loadUsers+1)
	caught, let := f.queries.holdAll(t, pages)
	call := start(t.Context(), f.Likes, target, 7, true)
	await(t, caught)
	require.NoError(t, content.New(other.store).DeletePost(t.Context(), f.author.ID, target.ID))
	require.NoError(t, other.CloseTargets(t.Context(), []models.Target{target}))
	let()
	requireCode(t, models.CodeNotFound, soon(t, call).err)
	require.NotContains(t, dump(t, f.plain), f.redis.keys(target).likes)
}

// A target that another process loads is waited for.
func TestLoader_waitsForAnotherProcess(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	other := f.process(t)
	target := f.post(t)
	f.inMySQL(t, target, 1000)
	f.queries.reset()
	caught, let := f.queries.holdAll(t, loads)
	first := start(t.Context(), f.Likes, target, 1, true)
	await(t, caught)
	second := start(t.Context(), other.Likes, target, 2, true)
	other.awaitParked(t, target, 1)
	let()
	require.NoError(t, soon(t, first).err)
	require.NoError(t, soon(t, second).err)
	require.Equal(t, 1, f.queries.selects(loads)+other.queries.selects(loads))
	require.Equal(t, []int64{1, 2, 1000}, usersOf(t, f.redis, target))
}

// Many targets of one crowd, some of which do not exist, are loaded and answered each on its own.
func TestLoader_answersEachOfACrowd(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	var targets []models.Target
	for i := range 3 * loadTargets {
		if i%3 == 2 {
			targets = append(targets, comment(int64(100_000+i)))
			continue
		}
		targets = append(targets, f.post(t))
	}
	var mu sync.Mutex
	failed := map[int]error{}
	atOnce(len(targets), func(i int) {
		_, err := f.SetLike(t.Context(), targets[i], int64(i+1), true)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed[i] = err
		}
	})
	require.Len(t, failed, loadTargets)
	for i, err := range failed {
		require.Equal(t, 2, i%3)
		requireCode(t, models.CodeNotFound, err)
	}
	states, err := f.redis.TargetStates(t.Context(), targets)
	require.NoError(t, err)
	warm := slices.DeleteFunc(states, func(s TargetState) bool { return !s.Warm })
	require.Len(t, warm, 2*loadTargets)
}

// A shard that was closed and opened again while a target was loaded does not make its likes wait for a lock to expire.
func TestLoader_releasesItsLockAfterAnotherOpening(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	hookBefore(f.redis, "place", sync.OnceFunc(func() {
		closeShard(t, f.plain, target.Shard(shards))
		openShard(t, f.redis, target.Shard(shards), 2)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), loadLock/2)
	defer cancel()
	_, err := f.SetLike(ctx, target, 7, true)
	require.NoError(t, err)
	require.Equal(t, 2, f.queries.selects(loads))
	require.Zero(t, f.plain.Exists(t.Context(), f.redis.keys(target).warming).Val())
}

// A restarted Redis has forgotten all scripts, and learns again those that are called alone.
func TestLoader_sendsForgottenScriptsAgain(t *testing.T) {
	t.Parallel()
	r, plain := openRedis(t, privateRedis(t).URL()) // whose scripts no other test needs
	f := newOpenForum(t, r, plain)
	for _, remembered := range []string{"", "lock", "place"} {
		target := f.post(t)
		f.inMySQL(t, target, 7)
		require.NoError(t, f.plain.ScriptFlush(t.Context()).Err())
		if remembered != "" {
			require.NoError(t, f.redis.script[remembered].Load(t.Context(), f.plain).Err())
		}
		f.like(t, target, 8)
		require.Equal(t, []int64{7, 8}, usersOf(t, f.redis, target))
		require.Empty(t, dump(t, f.plain).only(":warming"))
	}
	require.Equal(t, 3, f.outcomes[Cold], "none was refused")
}

// One script makes targets of all shards warm. Each has an outcome of its own. A replay changes nothing, and neither
// does a copy that arrives after a target was liked, or evicted.
func TestPlaceScript_eachTargetHasItsOutcome(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	targets := []models.Target{post(1), post(2), post(3), post(4), post(5)}
	for _, target := range targets {
		openShard(t, r, target.Shard(shards), 7)
	}
	const token = "load"
	var batch []load
	for _, target := range targets {
		batch = append(batch, load{target: target, epoch: "7"})
		if target != post(2) { // whose lock is lost
			require.NoError(t, plain.Set(t.Context(), r.keys(target).warming, token, time.Minute).Err())
		}
	}
	batch[2].epoch = "6" // the shard was opened again since
	require.NoError(t, plain.Set(t.Context(), r.keys(post(4)).likes, "of a wrong type", 0).Err())
	users := map[models.Target][]int64{post(1): {8, 9}, post(2): {8}, post(3): {8}, post(4): {8}}
	place := func() []string {
		placed := map[models.Target]func() (bool, error){}
		err := r.pipelined(t.Context(), func(p pipe) {
			likeLoading{redis: r}.warmSmall(t.Context(), p, batch, users, token, placed)
		})
		require.NoError(t, err)
		var outcomes []string
		for _, target := range targets {
			warm, err := placed[target]()
			if err != nil {
				require.ErrorContains(t, err, "WRONGTYPE")
			}
			switch {
			case err != nil:
				outcomes = append(outcomes, "failed")
			case warm:
				outcomes = append(outcomes, "warm")
			default:
				outcomes = append(outcomes, "old")
			}
		}
		return outcomes
	}
	require.Equal(t, []string{"warm", "old", "old", "failed", "warm"}, place())
	require.Equal(t, []int64{8, 9}, usersOf(t, r, post(1)))
	require.Empty(t, usersOf(t, r, post(5)), "nobody likes it")
	require.Equal(t, done(3), like(t, r, post(1), 10))
	require.Equal(t, done(2), unlike(t, r, post(1), 8))
	before := dump(t, plain)
	require.Equal(t, []string{"warm", "old", "old", "failed", "warm"}, place(), "a replay")
	require.Equal(t, before, dump(t, plain))
	require.NoError(t, plain.Del(t.Context(), r.keys(post(1)).likes).Err())
	before = dump(t, plain)
	require.Equal(t, []string{"old", "old", "old", "failed", "warm"}, place(), "a copy that arrives late")
	require.Equal(t, before, dump(t, plain))
}

// The locks of targets are taken by one script, too.
func TestLockScript_eachTargetHasItsOutcome(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	targets := []models.Target{post(1), post(2), post(3), post(4)}
	for _, target := range targets[:3] {
		openShard(t, r, target.Shard(shards), 7)
	}
	require.NoError(t, plain.Set(t.Context(), r.keys(post(2)).warming, "another", time.Minute).Err())
	require.NoError(t, plain.LPush(t.Context(), r.keys(post(3)).warming, "of a wrong type").Err())
	var keys []string
	for _, target := range targets {
		k := r.keys(target)
		keys = append(keys, k.warming, k.shard, k.likes)
	}
	for range 2 { // a replay finds its own lock
		reply := r.run(t.Context(), "lock", keys, "load", 10_000)
		for i, want := range [][]any{
			{int64(1), "7", int64(0)}, {int64(0), "7", int64(0)}, nil, {int64(1), "", int64(0)},
		} {
			got, err := ofTarget[[]any](reply, i)
			if want == nil {
				require.ErrorContains(t, err, "WRONGTYPE")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	require.InDelta(t, 10*time.Second, plain.PTTL(t.Context(), r.keys(post(1)).warming).Val(), float64(9*time.Second))
	require.Equal(t, "another", plain.Get(t.Context(), r.keys(post(2)).warming).Val())
}
