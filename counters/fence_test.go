package counters

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

func urlOf(client *redis.Client) string {
	return fmt.Sprintf("redis://%s/%d", client.Options().Addr, client.Options().DB)
}

func runID(t testing.TB, plain *redis.Client) string {
	t.Helper()
	id := plain.InfoMap(t.Context(), "server").Item("Server", "run_id")
	require.Len(t, id, 40)
	history := plain.InfoMap(t.Context(), "replication").Item("Replication", "master_replid")
	require.Len(t, history, 40)
	return id + ":" + history
}

func shardHash(t testing.TB, plain *redis.Client, shard int) hash {
	t.Helper()
	fields, err := plain.HGetAll(t.Context(), shardKey(shard)).Result()
	require.NoError(t, err)
	return fields
}

func TestFence_storesTheServerOfEveryShard(t *testing.T) {
	r, plain := newRedis(t)
	require.NoError(t, r.Ping(t.Context()))
	for shard := range shards {
		require.Equal(t, hash{"run": runID(t, plain)}, shardHash(t, plain, shard))
	}
}

func TestFence_sameServerKeepsTheShardOpen(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	_, err := hold(t, r, 2).Seal(t.Context(), 1)
	require.NoError(t, err)
	before := dump(t, plain)
	other, _ := openRedis(t, urlOf(plain))
	require.NoError(t, other.Ping(t.Context()))
	require.Equal(t, before, dump(t, plain))
	require.Equal(t, done(2), like(t, other, post(1), 8))
}

// A primary that is promoted again without a restart has the same run id and another history.
func TestFence_promotionClosesTheShard(t *testing.T) {
	server := privateRedis(t)
	r, plain := openRedis(t, "redis://"+server.Addr()+"/0")
	openShard(t, r, 1, 1)
	require.NoError(t, plain.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	require.NoError(t, plain.ReplicaOf(t.Context(), "NO", "ONE").Err())
	require.NoError(t, hold(t, r, 1).Fence(t.Context()))
	open, err := hold(t, r, 2).Open(t.Context())
	require.NoError(t, err)
	require.False(t, open)
	require.NotContains(t, shardHash(t, plain, 1), "epoch")
}

func TestFence_anotherServerClosesTheShardAndKeepsItsData(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	_, err := hold(t, r, 2).Seal(t.Context(), 1)
	require.NoError(t, err)
	for _, shard := range []int{1, 2} {
		require.NoError(t, plain.HSet(t.Context(), shardKey(shard), "run", strings.Repeat("0", 40)).Err())
	}
	want := dump(t, plain)
	delete(want, "{s01}:shard")
	want["{s02}:shard"] = hash{"restored": "0-0"} // no longer opening

	other, _ := openRedis(t, urlOf(plain))
	require.Equal(t, isClosed, like(t, other, post(1), 8), "the first command of the first connection")
	require.Equal(t, want, dump(t, plain))
	require.Equal(t, hash{"run": runID(t, plain), "opened": "1"}, shardHash(t, plain, 1))
}

func TestFence_failureRefusesTheConnection(t *testing.T) {
	r, plain := newRedis(t)
	require.NoError(t, plain.Set(t.Context(), shardKey(5), "no hash", 0).Err())
	require.ErrorContains(t, r.Ping(t.Context()), "WRONGTYPE")
}

func TestFence_restartedServerRefusesLikesUntilItsShardsAreOpened(t *testing.T) {
	server := privateRedis(t, "--appendfsync", "always")
	r, plain := openRedis(t, server.URL())
	openShard(t, r, 1, 1)
	openNew(t, r, post(1))
	like(t, r, post(1), 7)
	before := dump(t, plain)

	require.NoError(t, server.Kill())
	require.Error(t, r.run(t.Context(), "like", gateKeys(r.keys(post(1))), 1, 8, `"e"`, 100, 1000, never).Err())
	require.NoError(t, server.Start(t.Context()))

	require.Equal(t, isClosed, like(t, r, post(1), 8))
	delete(before, "{s01}:shard")
	require.Equal(t, before, dump(t, plain), "the data is kept")

	openShard(t, r, 1, 2)
	require.Equal(t, done(2), like(t, r, post(1), 8))
	require.Equal(
		t,
		[]string{"1-0" + opened, `1-1 "on"`, "2-0" + opened, `2-1 "on"`},
		entries(t, plain, "{s01}:outbox"),
	)
}

func TestFence_restartBetweenSealAndOpenedStartsTheOpeningOver(t *testing.T) {
	server := privateRedis(t, "--appendfsync", "always")
	r, plain := openRedis(t, server.URL())
	openShard(t, r, 1, 1)
	closeShard(t, plain, 1)
	outbox := hold(t, r, 1)
	restored, err := outbox.Seal(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, pos(1, 0), restored)

	require.NoError(t, server.Kill())
	require.NoError(t, server.Start(t.Context()))
	// The first call on an old connection fails, and the client retries on a new one.
	require.ErrorIs(t, outbox.Opened(t.Context(), 2), ErrLockLost)
	restored, err = outbox.Seal(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, pos(1, 0), restored, "still what was known before the first attempt")
	require.NoError(t, outbox.Opened(t.Context(), 3))
	require.Equal(t, []string{"1-0" + opened, "2-0" + opened, "3-0" + opened}, entries(t, plain, "{s01}:outbox"))
}

func TestFence_holdsWithABusyPool(t *testing.T) {
	t.Parallel()
	const callers = 20
	server := privateRedis(t, "--appendfsync", "always")
	r, plain := openRedis(t, server.URL())
	// Two processes, each with connections from before the crash.
	other, _ := openRedis(t, server.URL())
	f := newForumOn(t, r)
	openShard(t, r, 1, 1)
	if f.post(t) != post(1) {
		t.Fatal("the first post is not post 1")
	}
	var refused [2]atomic.Int64 // by process: likes that reached Redis and found the shard closed
	var likes []*Likes
	for i, r := range []*Redis{r, other} {
		likes = append(likes, NewLikes(r, f.store, LikesOptions{Count: func(o Outcome) {
			if o == Closed {
				refused[i].Add(1)
			}
		}}))
	}
	for _, l := range likes {
		require.NoError(t, l.OpenTarget(t.Context(), post(1), time.Now()))
	}

	var user, accepted atomic.Int64
	var mayAccept atomic.Bool
	var early atomic.Int64 // likes accepted although the call began after the restart and ended before the opening
	var restarted atomic.Bool
	mayAccept.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				afterRestart := restarted.Load()
				_, err := likes[i%2].SetLike(ctx, post(1), user.Add(1), true)
				switch {
				case err != nil:
					if ctx.Err() == nil && models.ErrorCode(err) != models.CodeUnavailable {
						t.Errorf("a like failed with %v", err)
					}
				case afterRestart && !mayAccept.Load():
					early.Add(1)
				default:
					accepted.Add(1)
				}
			}
		})
	}
	wait := func(n *atomic.Int64, more int64, what string) {
		from := n.Load()
		testkit.Eventually(t, 20*time.Second, func() (bool, string) { return n.Load() >= from+more, what })
	}
	wait(&accepted, 500, "likes before the crash")
	require.NoError(t, server.Kill())
	mayAccept.Store(false)
	restarted.Store(true) // from here on no like may be accepted: the server is down, and then its shards are closed
	require.NoError(t, server.Start(t.Context()))
	for i := range refused {
		wait(&refused[i], 200, "refusals after the restart")
	}
	depth, err := plain.XLen(t.Context(), "{s01}:outbox").Result()
	require.NoError(t, err)
	for i := range refused {
		wait(&refused[i], 200, "more refusals")
	}
	require.Equal(t, depth, plain.XLen(t.Context(), "{s01}:outbox").Val(), "nothing was written to a closed shard")
	require.Zero(t, early.Load())

	mayAccept.Store(true)
	openShard(t, r, 1, 2)
	wait(&accepted, 500, "likes after the opening")
	stop()
	all.Wait()
	require.Zero(t, early.Load())

	states, err := r.TargetStates(t.Context(), []models.Target{post(1)})
	require.NoError(t, err)
	assert.Equal(t, states[0].Users, states[0].Count)
	assert.GreaterOrEqual(
		t,
		states[0].Count,
		accepted.Load(),
		"what was acknowledged is there; more may be, of unknown outcome",
	)
	assert.Len(t, fold(t, t.Context(), plain, 1)[post(1)], int(states[0].Count))
}
