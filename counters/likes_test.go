package counters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

func requireCode(t testing.TB, code models.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, models.ErrorCode(err), "%v", err)
}

// atOnce calls fn n times at the same time.
func atOnce(n int, fn func(i int)) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-begin
			fn(i)
		})
	}
	close(begin)
	all.Wait()
}

func TestSetLike_writesTheEventThatWasAccepted(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.comment(t, f.post(t))
	for _, liked := range []bool{true, true, false, false} {
		state, err := f.SetLike(t.Context(), target, 7, liked)
		require.NoError(t, err)
		require.Equal(t, liked, state.Liked)
		require.Equal(t, map[bool]int64{true: 1, false: 0}[liked], state.Count)
	}
	require.Equal(t, []string{
		"1-0" + opened, "1-1 c1 7", "1-2 c1 -7",
	}, entries(t, f.plain, "{s01}:outbox"))
	require.Equal(t, map[Outcome]int{Cold: 1, Changed: 2, Unchanged: 2}, f.outcomes)
}

func TestSetLike_ofAWarmTargetIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 7)
	trips := countTrips(t, f.redis)
	f.queries.reset()
	f.like(t, target, 8)
	require.EqualValues(t, 1, trips.Load())
	require.Zero(t, f.queries.selects(""))
}

func TestSetLike_warmsAColdTargetFromMySQL(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7, 8)
	state, err := f.SetLike(t.Context(), target, 9, true)
	require.NoError(t, err)
	require.Equal(t, models.LikeState{Liked: true, Count: 3}, state)
	load := warmLoad(t, f.redis, target)
	require.Equal(t, stored{
		"{s01}:post:1:likes":                hash{"count": "3", "sets": "1", "load": load, "last": "1-1"},
		"{s01}:post:1:likes:" + load + ":0": []string{"0", "7", "8", "9"},
	}, dump(t, f.plain).only("post"))
	require.Equal(t, map[Outcome]int{Cold: 1, Changed: 1}, f.outcomes)
	require.Equal(t, 1, f.queries.selects(loads))
}

func TestSetLike_repeatOnAColdTargetWritesNothing(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	state, err := f.SetLike(t.Context(), target, 7, true)
	require.NoError(t, err)
	require.Equal(t, models.LikeState{Liked: true, Count: 1}, state)
	state, err = f.SetLike(t.Context(), target, 8, false)
	require.NoError(t, err)
	require.Equal(t, models.LikeState{Liked: false, Count: 1}, state)
	require.Equal(t, []string{"1-0" + opened}, entries(t, f.plain, "{s01}:outbox"))
}

func TestSetLike_manyCallersLoadATargetOnce(t *testing.T) {
	t.Parallel()
	const callers = 100
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 1000)
	// The load waits until every caller has found the target cold.
	var cold sync.WaitGroup
	cold.Add(callers)
	likes := NewLikes(f.redis, f.store, LikesOptions{Count: func(o Outcome) {
		if o == Cold {
			cold.Done()
		}
	}})
	f.queries.hold(func(query string) {
		if strings.Contains(query, loads) {
			cold.Wait()
		}
	})
	atOnce(callers, func(i int) {
		if _, err := likes.SetLike(t.Context(), target, int64(i+1), true); err != nil {
			t.Error(err)
		}
	})
	require.Equal(t, 1, f.queries.selects(loads))
	require.Len(t, usersOf(t, f.redis, target), callers+1)
}

// warmLoad returns the name of the load that made a target warm.
func warmLoad(t testing.TB, r *Redis, target models.Target) string {
	t.Helper()
	states, err := r.TargetStates(t.Context(), []models.Target{target})
	require.NoError(t, err)
	require.True(t, states[0].Warm, "%s is cold", target)
	return states[0].Load
}

// usersOf returns who likes a warm target, in ascending order.
func usersOf(t testing.TB, r *Redis, target models.Target) []int64 {
	t.Helper()
	var users []int64
	require.NoError(t, r.EachUser(t.Context(), target, func(ids []int64) error {
		users = append(users, ids...)
		return nil
	}))
	slices.Sort(users)
	return users
}

func TestSetLike_twoProcessesLoadATargetOnce(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	second, _ := openRedis(t, urlOf(f.plain))
	other := NewLikes(second, f.store, LikesOptions{})
	for round := range 20 {
		target := f.post(t)
		f.inMySQL(t, target, 1000)
		f.queries.reset()
		atOnce(8, func(i int) {
			likes := []*Likes{f.Likes, other}[i%2]
			if _, err := likes.SetLike(t.Context(), target, int64(i+1), true); err != nil {
				t.Error(err)
			}
		})
		require.Equal(t, 1, f.queries.selects(loads), "round %d", round)
		states, err := f.redis.TargetStates(t.Context(), []models.Target{target})
		require.NoError(t, err)
		require.EqualValues(t, 9, states[0].Count)
		require.EqualValues(t, 9, states[0].Users)
	}
}

func TestSetLike_ofAnUnknownTargetLeavesNoKey(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	hidden := f.post(t)
	under := f.comment(t, hidden)
	require.NoError(t, content.New(f.store).DeletePost(t.Context(), 0, hidden.ID))
	before := dump(t, f.plain)
	for _, target := range []models.Target{hidden, under, post(999), comment(999)} {
		for _, liked := range []bool{true, false} {
			_, err := f.SetLike(t.Context(), target, 7, liked)
			requireCode(t, models.CodeNotFound, err)
		}
	}
	require.Equal(t, before, withoutTickets(dump(t, f.plain)))
}

// withoutTickets removes the numbers of tickets that shards have ever issued.
func withoutTickets(s stored) stored {
	for _, value := range s {
		if fields, ok := value.(hash); ok {
			delete(fields, "tickets")
		}
	}
	return s
}

func TestSetLike_ofADeletedWarmTargetIsNotFound(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 7)
	require.NoError(t, content.New(f.store).DeletePost(t.Context(), 0, target.ID))
	require.NoError(t, f.CloseTargets(t.Context(), []models.Target{target, post(999)}))
	before := dump(t, f.plain)
	_, err := f.SetLike(t.Context(), target, 8, true)
	requireCode(t, models.CodeNotFound, err)
	require.Equal(t, 2, f.counted(Gone), "parked, and refused")
	after := withoutTickets(dump(t, f.plain))
	require.Equal(t, hash{"8": "2"}, after["{s01}:post:1:likes:waiting"])
	ttl := f.plain.PTTL(t.Context(), "{s01}:post:1:likes:waiting").Val()
	require.Positive(t, ttl, "the ticket expires")
	delete(after, "{s01}:post:1:likes:waiting")
	delete(after["{s01}:post:1:likes"].(hash), "waiting")
	require.Equal(t, withoutTickets(before), after)
	require.Empty(t, before.only("999"))
}

// restore undoes a deletion in MySQL, and does not open the target in the gate.
func (f *forum) restore(t testing.TB, target models.Target) {
	t.Helper()
	_, err := content.New(f.store).RestorePost(t.Context(), f.author.ID, target.ID)
	require.NoError(t, err)
}

func TestSetLike_ofARestoredTargetKeepsItsLikes(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	under := f.comment(t, target)
	for _, liked := range []models.Target{target, under} {
		f.like(t, liked, 7)
		f.like(t, liked, 8)
	}
	require.NoError(t, content.New(f.store).DeletePost(t.Context(), f.author.ID, target.ID))
	require.NoError(t, f.CloseTargets(t.Context(), []models.Target{target, under}))
	for _, liked := range []models.Target{target, under} {
		_, err := f.SetLike(t.Context(), liked, 9, true)
		requireCode(t, models.CodeNotFound, err)
	}
	f.restore(t, target)
	f.queries.reset()
	for _, liked := range []models.Target{target, under} {
		state, err := f.SetLike(t.Context(), liked, 7, false)
		require.NoError(t, err)
		require.Equal(
			t,
			models.LikeState{Count: 1},
			state,
			"MySQL has none of these likes yet, and is not asked for them",
		)
		state, err = f.SetLike(t.Context(), liked, 9, true)
		require.NoError(t, err)
		require.Equal(t, models.LikeState{Liked: true, Count: 2}, state)
		require.Equal(
			t,
			map[int64]bool{7: false, 8: true, 9: true},
			fold(t, t.Context(), f.plain, liked.Shard(shards))[liked],
		)
	}
	require.Zero(t, f.queries.selects(loads))
	require.Equal(t, 2, f.queries.selects(""), "one for each target")
}

// A call that found the post restored in MySQL must not open it if the post has been deleted again.
func TestSetLike_anotherDeletionWhileReopeningWins(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 7)
	remove := func() {
		assert.NoError(t, content.New(f.store).DeletePost(t.Context(), f.author.ID, target.ID))
		assert.NoError(t, f.CloseTargets(t.Context(), []models.Target{target}))
	}
	remove()
	f.restore(t, target)
	hookBefore(f.redis, "reopen", sync.OnceFunc(remove))
	_, err := f.SetLike(t.Context(), target, 8, true)
	requireCode(t, models.CodeNotFound, err)
	_, err = f.SetLike(t.Context(), target, 8, true)
	requireCode(t, models.CodeNotFound, err)
	f.restore(t, target)
	f.like(t, target, 8)
}

// A deletion is committed, and its process is paused before it closes the target, until the post is restored.
func TestSetLike_undoesALateClose(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 7)
	require.NoError(t, content.New(f.store).DeletePost(t.Context(), f.author.ID, target.ID))
	f.restore(t, target)
	require.NoError(t, f.CloseTargets(t.Context(), []models.Target{target}))
	f.like(t, target, 8)
	require.Equal(t, 1, f.counted(Gone))
}

// After a deletion during a load of its target, at any step, the target must refuse likes.
func TestSetLike_deletionDuringALoadWins(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]struct {
		query string
		nth   int
	}{
		"under the lock":        {"FROM posts t WHERE", 1},
		"before the users come": {loads, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForum(t)
			target := f.post(t)
			f.inMySQL(t, target, 7)
			// The queries of the store's connection are held, so this uses another connection.
			deleter, err := db.Open(t.Context(), f.dsn, db.Options{})
			require.NoError(t, err)
			defer deleter.Close()
			before := dump(t, f.plain)
			n := 0
			f.queries.hold(func(query string) {
				if !strings.Contains(query, step.query) {
					return
				}
				if n++; n == step.nth {
					assert.NoError(t, content.New(deleter).DeletePost(t.Context(), 0, target.ID))
					assert.NoError(t, f.CloseTargets(t.Context(), []models.Target{target}))
				}
			})
			_, err = f.SetLike(t.Context(), target, 8, true)
			requireCode(t, models.CodeNotFound, err)
			after := withoutTickets(swept(t, f.redis, f.plain))
			waiting := f.redis.keys(target).likes + ":waiting"
			if _, left := after[waiting]; left {
				require.Positive(t, f.plain.PTTL(t.Context(), waiting).Val(), "the ticket expires")
				delete(after, waiting)
			}
			require.Equal(t, before, after)
		})
	}
}

// The deletion follows the last query, which found the target open. So only the lock reveals the deletion.
func TestSetLike_deletionAfterTheLastQueryOfALoadWins(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	before := dump(t, f.plain)
	hookBefore(f.redis, "place", sync.OnceFunc(func() {
		assert.NoError(t, content.New(f.store).DeletePost(t.Context(), 0, target.ID))
		assert.NoError(t, f.CloseTargets(t.Context(), []models.Target{target}))
	}))
	_, err := f.SetLike(t.Context(), target, 8, true)
	requireCode(t, models.CodeNotFound, err)
	require.Equal(t, before, withoutTickets(swept(t, f.redis, f.plain)))
	require.Equal(t, 2, f.counted(Cold))
}

// swept returns what is stored once all garbage is due, and swept.
func swept(t testing.TB, r *Redis, plain *redis.Client) stored {
	t.Helper()
	for shard := range shards {
		members, err := plain.ZRange(t.Context(), garbageKey(shard), 0, -1).Result()
		require.NoError(t, err)
		for _, member := range members {
			require.NoError(t, plain.ZAdd(t.Context(), garbageKey(shard), redis.Z{Score: 1, Member: member}).Err())
		}
	}
	_, err := r.Sweep(t.Context())
	require.NoError(t, err)
	return dump(t, plain)
}

// hookBefore calls fn before a script is sent from now on, alone or in a pipeline.
func hookBefore(r *Redis, script string, fn func()) {
	r.client.AddHook(beforeScript{r.script[script].Hash(), r.source[script], fn})
}

type beforeScript struct {
	hash, source string
	fn           func()
}

func (h beforeScript) is(cmd redis.Cmder) bool {
	args := cmd.Args()
	return args[0] == "evalsha" && args[1] == h.hash || args[0] == "eval" && args[1] == h.source
}

func (h beforeScript) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h beforeScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, h.is) {
			h.fn()
		}
		return next(ctx, cmds)
	}
}
func (h beforeScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.is(cmd) {
			h.fn()
		}
		return next(ctx, cmd)
	}
}

func TestSetLike_shardClosedDuringALoadRefuses(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	hookBefore(f.redis, "place", sync.OnceFunc(func() {
		assert.NoError(t, f.plain.HDel(t.Context(), shardKey(1), "epoch").Err())
	}))
	_, err := f.SetLike(t.Context(), target, 8, true)
	requireCode(t, models.CodeUnavailable, err)
	require.Equal(t, map[Outcome]int{Cold: 1, Closed: 1}, f.outcomes)
	require.NotContains(t, dump(t, f.plain), "{s01}:post:1:likes")
}

func TestSetLike_loaderThatLostItsLockDoesNotFinish(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	hookBefore(f.redis, "place", sync.OnceFunc(func() {
		// The loader is paused until its lock expires. Another loads the target, which is then liked and evicted.
		assert.NoError(t, f.plain.Del(t.Context(), f.redis.keys(target).warming).Err())
		f.inMySQL(t, target, 9)
	}))
	state, err := f.SetLike(t.Context(), target, 8, true)
	require.NoError(t, err)
	require.EqualValues(t, 3, state.Count, "9 was not there when the first load read MySQL")
	require.Equal(t, 2, f.queries.selects(loads))
}

func TestSetLike_loadOutlivesACancelledCaller(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	ctx, leave := context.WithCancel(t.Context())
	let := make(chan struct{})
	f.queries.hold(func(query string) {
		if strings.Contains(query, loads) {
			leave()
			<-let
		}
	})
	_, err := f.SetLike(ctx, target, 8, true)
	requireCode(t, models.CodeUnavailable, err)
	close(let)
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		states, err := f.redis.TargetStates(t.Context(), []models.Target{target})
		require.NoError(t, err)
		return states[0].Warm, "the target is still cold"
	})
}

// likers puts many likes into MySQL, past the gate: users 1 to n.
func (f *forum) likers(t testing.TB, target models.Target, n int) {
	t.Helper()
	const rows = 20_000 // a statement
	for first := 1; first <= n; first += rows {
		var values strings.Builder
		for user := first; user < min(first+rows, n+1); user++ {
			fmt.Fprintf(&values, ",(%d,%d)", target.ID, user)
		}
		_, err := f.store.Pool().ExecContext(t.Context(),
			"INSERT INTO post_likes (post_id, user_id) VALUES "+values.String()[1:])
		require.NoError(t, err)
	}
	_, err := f.store.Pool().ExecContext(t.Context(), "UPDATE posts SET likes_count=? WHERE id=?", n, target.ID)
	require.NoError(t, err)
}

func TestSetLike_loadsATargetOfManyLikers(t *testing.T) {
	t.Parallel()
	const likers = 120*largePage + 100 // the last page is not full
	f := newForum(t)
	target := f.post(t)
	f.likers(t, target, likers)
	state, err := f.SetLike(t.Context(), target, likers+1, true)
	require.NoError(t, err)
	require.Equal(t, models.LikeState{Liked: true, Count: likers + 1}, state)
	users := usersOf(t, f.redis, target)
	require.Len(t, users, likers+1)
	require.EqualValues(t, 1, users[0])
	require.EqualValues(t, likers+1, users[likers])
	require.Equal(t, 121, f.queries.selects(pages))
	sets := len(dump(t, f.plain).only(":likes:"))
	require.Equal(t, setsFor(likers+1), sets)
	require.Len(t, swept(t, f.redis, f.plain).only("s01}"), sets+3, "beside the sets: shard, outbox and likes")
}

func TestSetLike_fullOutboxIsUnavailable(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	small := NewLikes(f.redis, f.store, LikesOptions{OutboxLimit: 2})
	for user := int64(1); user <= 2; user++ {
		_, err := small.SetLike(t.Context(), target, user, true)
		require.NoError(t, err)
	}
	before := dump(t, f.plain)
	_, err := small.SetLike(t.Context(), target, 3, true)
	requireCode(t, models.CodeUnavailable, err)
	require.Equal(t, before, dump(t, f.plain))
}

func TestSetLike_closedShardIsUnavailable(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	warm := f.post(t)
	f.like(t, warm, 7)
	closeShard(t, f.plain, 1)
	before := dump(t, f.plain)
	f.queries.reset()
	for _, target := range []models.Target{warm, post(17)} {
		_, err := f.SetLike(t.Context(), target, 8, true)
		requireCode(t, models.CodeUnavailable, err)
	}
	require.Equal(t, before, dump(t, f.plain))
	require.Zero(t, f.queries.selects(""), "a closed shard costs MySQL nothing")
}

func TestSetLike_rewarmsADamagedTargetOnceMySQLHasItsLikes(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	clean, dirty := f.post(t), f.post(t)
	f.inMySQL(t, clean, 7, 8)
	f.like(t, clean, 7) // changes nothing, so MySQL has all its likes
	f.like(t, dirty, 7)
	for _, target := range []models.Target{clean, dirty} {
		require.NoError(t, f.plain.Del(t.Context(), f.setOf(t, target, 7)).Err())
	}

	_, err := f.SetLike(t.Context(), clean, 9, true)
	requireCode(t, models.CodeUnavailable, err)
	require.ErrorIs(t, err, errForgotten)
	state, err := f.SetLike(t.Context(), clean, 9, true)
	require.NoError(t, err)
	require.Equal(t, models.LikeState{Liked: true, Count: 3}, state)
	require.Equal(t, []int64{7, 8, 9}, usersOf(t, f.redis, clean))

	before := dump(t, f.plain)
	_, err = f.SetLike(t.Context(), dirty, 9, true)
	requireCode(t, models.CodeUnavailable, err)
	require.Equal(t, before, dump(t, f.plain))
	require.Equal(t, 2, f.counted(Damaged))
}

// setOf returns the key of the set that holds a user of a warm target.
func (f *forum) setOf(t testing.TB, target models.Target, user int64) string {
	t.Helper()
	states, err := f.redis.TargetStates(t.Context(), []models.Target{target})
	require.NoError(t, err)
	require.True(t, states[0].Warm, "%s is cold", target)
	return setKey(f.redis.keys(target).likes, states[0].Load, setOf(user, states[0].Sets))
}

func TestSetLike_whileMySQLIsDown(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	warm, cold := f.post(t), f.post(t)
	f.like(t, warm, 7)
	require.NoError(t, f.store.Close())
	f.like(t, warm, 8)
	_, err := f.SetLike(t.Context(), cold, 8, true)
	requireCode(t, models.CodeUnavailable, err)
}

func TestLikes_whileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	r, _ := openRedis(t, server.URL())
	f := newForumOn(t, r)
	openShard(t, r, 1, 1)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	f.like(t, target, 8)
	require.NoError(t, server.Kill())

	begin := time.Now()
	_, err := f.SetLike(t.Context(), target, 9, true)
	requireCode(t, models.CodeUnavailable, err)
	require.Less(t, time.Since(begin), time.Second)
	require.Equal(t, 1, f.counted(Failed))

	states, err := f.LikeStates(t.Context(), 7, rowsOf(1, target))
	require.NoError(t, err)
	require.Equal(t, []models.LikeState{{Liked: true, Count: 1}}, states)
}

// urlOf returns the address of a client's server and database.
func urlOf(client *redis.Client) string {
	return fmt.Sprintf("redis://%s/%d", client.Options().Addr, client.Options().DB)
}

// replicaRedis starts a server to which no new connection is made: it is a replica.
func replicaRedis(t testing.TB) *servers.Redis {
	t.Helper()
	server := privateRedis(t, "--replicaof", "127.0.0.1 1")
	return server
}

// If Redis answers the initial commands on a new connection with an error, as right after a restart, go-redis does not
// send the pipeline. The commands of the pipeline must have an error, too.
func TestLikeStates_whenRedisRefusesNewConnections(t *testing.T) {
	t.Parallel()
	r, _ := openRedis(t, replicaRedis(t).URL())
	f := newForumOn(t, r)
	target := f.post(t)
	f.inMySQL(t, target, 7)

	for range 2 * db.BreakerFailures { // before and after the breaker opens
		states, err := f.LikeStates(t.Context(), 7, rowsOf(1, target))
		require.NoError(t, err)
		require.Equal(t, []models.LikeState{{Liked: true, Count: 1}}, states)
		held, err := f.StatesOf(t.Context(), 7, []models.Target{target})
		require.NoError(t, err)
		require.Equal(t, map[models.Target]models.LikeState{target: {Liked: true, Count: 1}}, held)
	}
}

func TestPipelines_thatFailAsAWholeHaveNoReplies(t *testing.T) {
	t.Parallel()
	server := replicaRedis(t)
	for name, read := range map[string]func(ctx context.Context, r *Redis) error{
		"TargetStates": func(ctx context.Context, r *Redis) error {
			_, err := r.TargetStates(ctx, []models.Target{post(1)})
			return err
		},
		"Cool": func(ctx context.Context, r *Redis) error {
			_, err := r.Cool(ctx, []models.Target{post(1)}, 0, map[int]models.Position{1: pos(1, 1)})
			return err
		},
		"ShardInfos": func(ctx context.Context, r *Redis) error {
			_, err := r.ShardInfos(ctx)
			return err
		},
		"commands": func(ctx context.Context, r *Redis) error {
			cmds, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.HMGet(ctx, "a", "b")
				p.SCard(ctx, "c")
				return nil
			})
			for _, cmd := range cmds {
				require.Error(t, cmd.Err(), cmd.Name())
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := openRedis(t, server.URL())
			require.ErrorIs(t, read(t.Context(), r), errReplica)
		})
	}
}

// A host that is down does not refuse connections.
func TestLikeStates_withASilentRedisLeavesTimeForMySQL(t *testing.T) {
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
	states, err := f.LikeStates(ctx, 7, rowsOf(1, target))
	require.NoError(t, server.Resume())
	require.NoError(t, err)
	require.Equal(t, []models.LikeState{{Liked: true, Count: 1}}, states)
}

// After a change of the server's clock, or a slow call, the call is repeated with the right deadline.
func TestSetLike_learnsTheServersClock(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 7)
	f.clocks[target.Shard(shards)].Store(&serverClock{ms: 1000, epoch: 1, heard: time.Since(f.began)})
	state, err := f.SetLike(t.Context(), target, 8, true)
	require.NoError(t, err)
	require.Equal(t, models.LikeState{Liked: true, Count: 2}, state)
	require.Equal(t, 1, f.counted(Late))
	f.like(t, target, 9)
	require.Equal(t, 1, f.counted(Late))
}

func TestSetLike_retryAfterALostAnswerIsHarmless(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 7)
	// The script runs, its reply is lost, and the client library sends it again.
	f.redis.client.AddHook(twice{f.redis.script["like"].Hash()})
	for user, liked := range map[int64]bool{8: true, 7: false} {
		_, err := f.SetLike(t.Context(), target, user, liked)
		require.NoError(t, err)
	}
	state, err := f.SetLike(t.Context(), target, 8, true)
	require.NoError(t, err)
	require.Equal(t, models.LikeState{Liked: true, Count: 1}, state)
	require.EqualValues(t, 4, f.plain.XLen(t.Context(), "{s01}:outbox").Val())
}

// twice runs each script a second time, and returns the second reply.
type twice struct{ hash string }

func (h twice) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); args[0] == "evalsha" && args[1] == h.hash {
			_ = next(ctx, cmd)
			cmd.SetErr(nil)
		}
		return next(ctx, cmd)
	}
}

func rowsOf(count int64, targets ...models.Target) []models.TargetCount {
	var rows []models.TargetCount
	for _, target := range targets {
		rows = append(rows, models.TargetCount{Target: target, Count: count})
	}
	return rows
}

func TestLikeStates_warmColdAndClosed(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	warm, cold, closed := f.post(t), f.post(t), f.post(t)
	under := f.comment(t, warm)
	for _, target := range []models.Target{warm, cold, closed, under} {
		f.inMySQL(t, target, 7)
	}
	f.like(t, warm, 8)
	f.like(t, closed, 8) // in a closed shard, MySQL's state is returned
	closeShard(t, f.plain, closed.Shard(shards))
	_, err := f.SetLike(t.Context(), under, 7, false)
	require.NoError(t, err)

	rows := []models.TargetCount{
		{Target: cold, Count: 5},
		{Target: warm, Count: 5},
		{Target: under, Count: 5},
		{Target: closed, Count: 5},
		{Target: warm, Count: 5},
	}
	for viewer, want := range map[int64][]models.LikeState{
		7: {
			{Liked: true, Count: 5}, {Liked: true, Count: 2}, {Count: 0}, {Liked: true, Count: 5},
			{Liked: true, Count: 2},
		},
		8: {{Count: 5}, {Liked: true, Count: 2}, {Count: 0}, {Count: 5}, {Liked: true, Count: 2}},
		9: {{Count: 5}, {Count: 2}, {Count: 0}, {Count: 5}, {Count: 2}},
		0: {{Count: 5}, {Count: 2}, {Count: 0}, {Count: 5}, {Count: 2}},
	} {
		trips := countTrips(t, f.redis)
		f.queries.reset()
		got, err := f.LikeStates(t.Context(), viewer, rows)
		require.NoError(t, err)
		require.Equal(t, want, got, "viewer %d", viewer)
		require.EqualValues(t, 1, trips.Load())
		queries := 1
		if viewer == 0 {
			queries = 0
		}
		require.Equal(t, queries, f.queries.selects(""))
	}
}

func TestLikeStates_ofAHundredRowsCostTheSame(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	var rows []models.TargetCount
	var want []models.LikeState
	for i := range int64(100) {
		target := []models.Target{post(i + 1), comment(i + 1)}[i%2]
		rows = append(rows, models.TargetCount{Target: target, Count: 3})
		want = append(want, models.LikeState{Count: 3})
		if i%3 == 0 {
			warmUp(t, f.redis, target, 7)
			want[i] = models.LikeState{Liked: true, Count: 1}
		}
	}
	trips := countTrips(t, f.redis)
	f.queries.reset()
	got, err := f.LikeStates(t.Context(), 7, rows)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.EqualValues(t, 1, trips.Load())
	require.Equal(t, 1, f.queries.selects(""))

	// All targets are warm, so MySQL is not queried.
	var warm []models.TargetCount
	for i := 0; i < 100; i += 3 {
		warm = append(warm, rows[i])
	}
	f.queries.reset()
	_, err = f.LikeStates(t.Context(), 7, warm)
	require.NoError(t, err)
	require.Zero(t, f.queries.selects(""))

	trips.Store(0)
	got, err = f.LikeStates(t.Context(), 7, nil)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Zero(t, trips.Load())
}

func TestLikeStates_keyOfAWrongTypeIsReadFromMySQL(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	broken, fine := f.post(t), f.post(t)
	f.inMySQL(t, broken, 7)
	f.like(t, broken, 8)
	f.like(t, fine, 7)
	set := f.setOf(t, broken, 7)
	require.NoError(t, f.plain.Del(t.Context(), set).Err())
	require.NoError(t, f.plain.Set(t.Context(), set, "x", 0).Err())
	states, err := f.LikeStates(t.Context(), 7, rowsOf(1, broken, fine))
	require.NoError(t, err)
	require.Equal(t, []models.LikeState{{Liked: true, Count: 1}, {Liked: true, Count: 1}}, states)
}
