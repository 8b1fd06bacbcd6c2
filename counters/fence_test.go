package counters

import (
	"context"
	"net"
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

func shardHash(t testing.TB, plain *redis.Client, shard int) hash {
	t.Helper()
	fields, err := plain.HGetAll(t.Context(), shardKey(shard)).Result()
	require.NoError(t, err)
	return fields
}

// history returns the replication id of a server.
func history(t testing.TB, plain *redis.Client) string {
	t.Helper()
	id := plain.InfoMap(t.Context(), "replication").Item("Replication", "master_replid")
	require.Len(t, id, 40)
	return id
}

func TestFence_openShardKnowsItsServer(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	require.Equal(t, hash{"epoch": "1", "server": history(t, plain), "last": "1-0"}, shardHash(t, plain, 1))
	like(t, r, post(1), 7)
	other, _ := openRedis(t, urlOf(plain))
	require.Equal(t, done(2), like(t, other, post(1), 8), "another process, the same server")
}

// A primary that is promoted again without a restart has the same run id and another history. Connections outlive it,
// and so does every key.
func TestFence_promotionClosesTheShard(t *testing.T) {
	t.Parallel()
	// A replica cannot be stopped while it writes its first append-only file.
	server, replica := privateRedis(t, "--appendonly", "no"), privateRedis(t, "--appendonly", "no")
	r, plain := openRedis(t, server.URL())
	_, second := openRedis(t, replica.URL())
	openShard(t, r, 1, 1)
	warmUp(t, r, post(1))
	like(t, r, post(1), 7)
	_, err := hold(t, r, 2).Seal(t.Context(), 1)
	require.NoError(t, err)
	before := history(t, plain)
	old, another := plain.Conn(), plain.Conn()
	defer another.Close()
	k := r.keys(post(1))
	gateOn := func(conn *redis.Conn, epoch int, word string) ([]int64, error) {
		return numbers(conn.EvalSha(t.Context(), r.script["like"].Hash(), []string{k.shard, k.outbox, k.likes},
			100, 0, never, epoch, 0, 1, "p1", 1, word))
	}
	require.NoError(t, another.Ping(t.Context()).Err())
	reply, err := gateOn(old, 1, "8")
	require.NoError(t, err)
	require.EqualValues(t, isChanged, reply[2])

	// The second server is promoted, and accepts a like that the first receives as its replica.
	follow := func(follower, leader *redis.Client) {
		t.Helper()
		host, port, err := net.SplitHostPort(leader.Options().Addr)
		require.NoError(t, err)
		require.NoError(t, leader.ReplicaOf(t.Context(), "NO", "ONE").Err())
		require.NoError(t, follower.ReplicaOf(t.Context(), host, port).Err())
		testkit.Eventually(t, 20*time.Second, func() (bool, string) {
			info := follower.Info(t.Context(), "replication").Val()
			return strings.Contains(info, "master_link_status:up"), info
		})
	}
	follow(second, plain)
	follow(plain, second)
	require.NotEqual(t, before, history(t, second), "promoted")
	_, err = gateOn(old, 1, "9")
	require.True(t, redis.HasErrorPrefix(err, "READONLY"), "the demoted server accepts nothing: %v", err)
	old.Close() // as the client does after this error
	rr, _ := openRedis(t, replica.URL())
	require.Nil(t, like(t, rr, post(1), 9), "the promoted server is closed")
	openShard(t, rr, 1, 2)
	require.Equal(t, done(3), like(t, rr, post(1), 9))
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		first, second := plain.XLen(t.Context(), outboxKey(1)).Val(), second.XLen(t.Context(), outboxKey(1)).Val()
		return first == second, "replication"
	})
	_, err = gateOn(another, 2, "10")
	require.True(t, redis.HasErrorPrefix(err, "READONLY"), "the shard is open, as on the primary: %v", err)
	require.Error(t, another.Ping(t.Context()).Err(), "the client drops connections to a replica")

	// Promoted again, with all its keys and connections, it has another replication id.
	require.NoError(t, plain.ReplicaOf(t.Context(), "NO", "ONE").Err())
	reply, err = gateOn(plain.Conn(), 2, "10")
	require.NoError(t, err)
	require.Equal(t, []int64{1}, reply[:1])
	require.Nil(t, like(t, r, post(1), 10))
	states, err := NewLikes(r, nil, LikesOptions{}).LikeStates(t.Context(), 0, rowsOf(99, post(1)))
	require.NoError(t, err)
	require.EqualValues(t, 99, states[0].Count, "readers go to MySQL")
	info, err := r.ShardInfo(t.Context(), 1)
	require.NoError(t, err)
	require.False(t, info.Open)
	openShard(t, r, 1, 3)
	require.Equal(t, done(4), like(t, r, post(1), 10))
}

func TestFence_anotherServerClosesTheShardAndKeepsItsData(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	outbox := hold(t, r, 2)
	_, err := outbox.Seal(t.Context(), 1)
	require.NoError(t, err)
	for _, shard := range []int{1, 2} {
		require.NoError(t, plain.HSet(t.Context(), shardKey(shard), "server", strings.Repeat("0", 40)).Err())
	}
	want := dump(t, plain)
	require.Nil(t, like(t, r, post(1), 8))
	require.ErrorIs(t, outbox.Opened(t.Context(), 1), ErrLockLost, "the opening that began on the other server")
	require.Equal(t, want, dump(t, plain))
}

func TestConnect_refusesAReplica(t *testing.T) {
	t.Parallel()
	r, _ := openRedis(t, replicaRedis(t).URL())
	require.ErrorIs(t, r.Ping(t.Context()), errReplica)
}

func TestFence_restartedServerRefusesLikesUntilItsShardsAreOpened(t *testing.T) {
	t.Parallel()
	server := privateRedis(t, "--appendfsync", "always")
	r, plain := openRedis(t, server.URL())
	openShard(t, r, 1, 1)
	warmUp(t, r, post(1))
	like(t, r, post(1), 7)
	before := dump(t, plain)
	k := r.keys(post(1))

	require.NoError(t, server.Kill())
	keys := []string{k.shard, k.outbox, k.likes}
	require.Error(t, r.runOnce(t.Context(), "like", keys, 100, 0, never, 1, 0, 1, "p1", 1, "8").Err())
	require.NoError(t, server.Start(t.Context()))

	require.Nil(t, like(t, r, post(1), 8))
	require.Equal(t, before, dump(t, plain), "the data is kept")

	openShard(t, r, 1, 2)
	require.Equal(t, done(2), like(t, r, post(1), 8))
	require.Equal(
		t,
		[]string{"1-0" + opened, "1-1 p1 7", "2-0 opened 1-1", "2-1 p1 8"},
		entries(t, plain, "{s01}:outbox"),
	)
}

func TestFence_restartBetweenSealAndOpenedStartsTheOpeningOver(t *testing.T) {
	t.Parallel()
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
	require.Equal(t, []string{"1-0" + opened, "2-0 opened 1-0", "3-0 opened 2-0"}, entries(t, plain, "{s01}:outbox"))
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
