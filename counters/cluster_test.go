package counters

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

// openCluster starts a cluster and opens it.
func openCluster(t *testing.T) (r *Redis, masters []*redis.Client) {
	t.Helper()
	url, masters, _ := startCluster(t)
	r, err := Open(url, shards)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	return r, masters
}

// A target has the mark that users wait for it, whose tickets have expired. While its slot moves, Redis refuses the
// missing key. A like must not stay in a set without an event.
func TestCluster_movingSlotLeavesNoLikeWithoutAnEvent(t *testing.T) {
	t.Parallel()
	r, masters := openCluster(t)
	ctx := t.Context()
	openShard(t, r, 1, 1)
	warmUp(t, r, post(1), 7)
	from, to := masters[0], masters[1]
	slot := int(from.ClusterKeySlot(ctx, shardKey(1)).Val())
	if slot > 8191 {
		from, to = to, from
	}
	require.NoError(t, from.HSet(ctx, r.keys(post(1)).likes, "waiting", 1).Err())
	require.NoError(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ClusterMyID(ctx).Val()).Err())
	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ClusterMyID(ctx).Val()).Err())
	before := dump(t, from)
	require.Equal(t, refused(isUnstored)[0].status, like(t, r, post(1), 8)[0].status)
	require.Equal(t, before, dump(t, from))
	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "STABLE").Err())
	require.Equal(t, done(2), like(t, r, post(1), 8))
	require.Equal(t, done(1), unlike(t, r, post(1), 7))
}

// While a slot moves key by key, some targets are on the other node, and the shard may still be open on the first. A
// scan must not miss them. It ends with an error, and so does whatever needs all targets of the shard.
func TestCluster_movingSlotEndsTheScanOfItsShard(t *testing.T) {
	t.Parallel()
	r, masters := openCluster(t)
	ctx := t.Context()
	openShard(t, r, 1, 1)
	for _, target := range []models.Target{post(1), post(17)} {
		warmUp(t, r, target, 7)
	}
	scan := func() (targets []models.Target, err error) {
		err = r.EachWarmOf(ctx, 1, func(batch []models.Target) error {
			targets = append(targets, batch...)
			return nil
		})
		return targets, err
	}
	both := []models.Target{post(1), post(17)}
	targets, err := scan()
	require.NoError(t, err)
	require.ElementsMatch(t, both, targets)
	outbox := hold(t, r, 1)
	_, err = outbox.Seal(ctx, 2)
	require.NoError(t, err)

	from, to := masters[0], masters[1]
	slot := int(from.ClusterKeySlot(ctx, shardKey(1)).Val())
	if slot > 8191 {
		from, to = to, from
	}
	set := func(node *redis.Client, args ...any) {
		t.Helper()
		require.NoError(t, node.Do(ctx, append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err())
	}
	set(to, "IMPORTING", from.ClusterMyID(ctx).Val())
	set(from, "MIGRATING", to.ClusterMyID(ctx).Val())
	host, port, err := net.SplitHostPort(to.Options().Addr)
	require.NoError(t, err)
	move := func(part string) {
		t.Helper()
		for _, key := range from.ClusterGetKeysInSlot(ctx, slot, 1000).Val() {
			if strings.Contains(key, part) {
				require.NoError(t, from.Migrate(ctx, host, port, key, 0, 5*time.Second).Err())
			}
		}
	}
	move("post:17:")
	_, err = scan()
	require.ErrorIs(t, err, ErrMoving)
	require.ErrorIs(t, outbox.ForgetTargets(ctx, 2), ErrMoving)

	move("")
	set(to, "NODE", to.ClusterMyID(ctx).Val())
	set(from, "NODE", to.ClusterMyID(ctx).Val())
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		targets, err = scan()
		return err == nil, fmt.Sprint(err)
	})
	require.ElementsMatch(t, both, targets)
	require.NoError(t, outbox.ForgetTargets(ctx, 2))
	targets, err = scan()
	require.NoError(t, err)
	require.Empty(t, targets)
}

// A shard whose keys are on two nodes cannot be read. The others are read all the same.
func TestCluster_movingSlotLeavesTheOtherShardsReadable(t *testing.T) {
	t.Parallel()
	r, masters := openCluster(t)
	ctx := t.Context()
	for shard := range shards {
		openShard(t, r, shard, 1)
	}
	unread := func() (failed []int) {
		infos, err := r.ShardInfos(ctx)
		require.NoError(t, err)
		require.Len(t, infos, shards)
		for shard, info := range infos {
			require.Equal(t, shard, info.Shard)
			require.Equal(t, info.Err == nil, info.Open)
			if info.Err != nil {
				require.ErrorContains(t, info.Err, "TRYAGAIN")
				failed = append(failed, shard)
			}
		}
		return failed
	}
	require.Empty(t, unread())
	from, to := masters[0], masters[1]
	slot := int(from.ClusterKeySlot(ctx, shardKey(1)).Val())
	if slot > 8191 {
		from, to = to, from
	}
	require.NoError(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ClusterMyID(ctx).Val()).Err())
	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ClusterMyID(ctx).Val()).Err())
	require.Equal(t, []int{1}, unread(), "the lock of its relay could be on either node")
	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "STABLE").Err())
	require.Empty(t, unread())
}

// startCluster starts two masters with half of the slots each, and a replica of the first. It returns plain clients.
func startCluster(t *testing.T) (url string, masters []*redis.Client, replica *redis.Client) {
	t.Helper()
	ctx := t.Context()
	var nodes []*redis.Client
	var buses []string
	for range 3 {
		// A replica cannot be stopped while it writes its first append-only file.
		bus := freePort(t)
		server := privateRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--appendonly", "no",
			"--cluster-port", bus)
		buses = append(buses, bus)
		node := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
		t.Cleanup(func() { node.Close() })
		nodes = append(nodes, node)
	}
	masters, replica = nodes[:2], nodes[2]
	require.NoError(t, masters[0].ClusterAddSlotsRange(ctx, 0, 8191).Err())
	require.NoError(t, masters[1].ClusterAddSlotsRange(ctx, 8192, 16383).Err())
	host, port, err := net.SplitHostPort(masters[0].Options().Addr)
	require.NoError(t, err)
	for i, node := range nodes[1:] {
		require.NoError(t, node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		require.NoError(t, node.Do(ctx, "CLUSTER", "MEET", host, port, buses[0]).Err())
	}
	id := masters[0].ClusterMyID(ctx).Val()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		err := replica.ClusterReplicate(ctx, id).Err()
		return err == nil, fmt.Sprint(err)
	})
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		all := replica.Info(ctx, "replication").Val()
		for _, node := range nodes {
			all += node.ClusterInfo(ctx).Val() + node.ClusterNodes(ctx).Val()
		}
		return strings.Contains(all, "master_link_status:up") && strings.Count(all, "cluster_state:ok") == len(nodes) &&
			strings.Count(all, "slave "+id) == len(nodes) && !strings.Contains(all, "handshake"), all
	})
	return "redis+cluster://" + masters[1].Options().Addr + "?addr=" + replica.Options().Addr, masters, replica
}

// freePort returns a port for a cluster's bus. It is outside the ranges of client ports and of package servers.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		port := strconv.Itoa(10_000 + rand.IntN(10_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	url, masters, replica := startCluster(t)
	r, err := Open(url, shards)
	require.NoError(t, err)
	defer r.Close()
	var targets []models.Target
	for shard := range shards {
		openShard(t, r, shard, 1)
		targets = append(targets, post(int64(100*shards+shard)))
		warmUp(t, r, targets[shard])
		require.Equal(t, done(1), like(t, r, targets[shard], 7))
	}

	t.Run("serves the shards of every master", func(t *testing.T) {
		for _, master := range masters {
			require.NotEmpty(t, dump(t, master), "a master has no shard to serve")
		}
		infos, err := r.ShardInfos(t.Context())
		require.NoError(t, err)
		for shard, info := range infos {
			require.Equal(t, ShardInfo{Shard: shard, Open: true, Depth: 1, Runs: 2, Last: pos(1, 1)}, info)
		}
		var warm []models.Target
		require.NoError(t, r.EachWarm(t.Context(), func(targets []models.Target) error {
			warm = append(warm, targets...)
			return nil
		}))
		require.ElementsMatch(t, targets, warm)
		states, err := NewLikes(r, nil, LikesOptions{}).LikeStates(t.Context(), 0, rowsOf(9, targets...))
		require.NoError(t, err)
		for _, state := range states {
			require.EqualValues(t, 1, state.Count)
		}
		events, err := hold(t, r, 3).Read(t.Context(), models.Position{}, 10, time.Second)
		require.NoError(t, err)
		require.Len(t, events, 2)
		n, err := r.Cool(
			t.Context(),
			targets,
			0,
			map[int]models.Position{4: pos(1, 1), 5: pos(1, 1), 6: pos(1, 0)},
		)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		forgetTargets(t, r, 7)
		now, err := r.TargetStates(t.Context(), targets[4:9])
		require.NoError(t, err)
		require.Equal(
			t,
			[]bool{false, false, true, false, true},
			[]bool{now[0].Warm, now[1].Warm, now[2].Warm, now[3].Warm, now[4].Warm},
		)
	})

	t.Run("a promoted replica takes no like until its shards are opened", func(t *testing.T) {
		shard := 8
		for ; ; shard++ { // a shard of the first master
			if n, err := masters[0].Exists(t.Context(), shardKey(shard)).Result(); err == nil && n == 1 {
				break
			}
		}
		before := dump(t, masters[0])
		// The client makes connections to the replica to read the layout of the cluster.
		early := redis.NewClient(&redis.Options{Addr: replica.Options().Addr, OnConnect: refuseReplica})
		defer early.Close()
		require.ErrorIs(t, early.Ping(t.Context()).Err(), errReplica)

		testkit.Eventually(t, 20*time.Second, func() (bool, string) {
			if strings.Contains(replica.Info(t.Context(), "replication").Val(), "role:master") {
				return true, ""
			}
			err := replica.ClusterFailover(t.Context()).Err()
			return false, fmt.Sprint(err)
		})
		target := targets[shard]
		testkit.Eventually(t, 20*time.Second, func() (bool, string) {
			// Until the new master is known, the old one redirects the client to it.
			k := r.keys(target)
			reply, err := numbers(r.runOnce(t.Context(), "like", []string{k.shard, k.outbox, k.likes},
				100, 0, never, 1, 0, 1, target.Short(), 1, "8"))
			require.False(t, err == nil && reply[0] == 0, "a like was accepted: %v", reply)
			return err == nil && reply[0] == 1, fmt.Sprint(reply, err)
		})
		after := dump(t, replica)
		for _, key := range []string{
			shardKey(shard), outboxKey(shard), r.keys(target).likes, setKey(r.keys(target).likes, "load", 0),
		} {
			require.Equal(t, before[key], after[key])
		}
		openShard(t, r, shard, 2)
		require.Equal(t, done(2), like(t, r, target, 8))
	})
}

// While a slot moves to another node, likes of other shards go on. Those of the moved shard are refused until its relay
// has opened it on the new node. No acknowledged like is lost, and none is half done.
func TestCluster_movedSlotLosesNoLike(t *testing.T) {
	t.Parallel()
	url, masters, _ := startCluster(t)
	r, err := Open(url, shards)
	require.NoError(t, err)
	defer r.Close()
	f := newForumOn(t, r)
	targets := make([]models.Target, shards)
	for range shards {
		target := f.post(t)
		targets[target.Shard(shards)] = target
	}
	const moved = 3
	f.likers(t, targets[moved], 415) // so that its set is split soon
	for shard := range shards {
		openShard(t, r, shard, 1)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { stop(); all.Wait() }()
	all.Go(func() { // the relays, which retry
		for ctx.Err() == nil {
			for shard := range shards {
				info, err := r.ShardInfo(ctx, shard)
				if err != nil || info.Open {
					continue
				}
				outbox, err := r.HoldOutbox(ctx, shard, "relay", time.Minute)
				if err != nil {
					continue
				}
				if _, err := outbox.Seal(ctx, info.Last.Epoch+1); err == nil {
					_ = outbox.Opened(ctx, info.Last.Epoch+1)
				}
			}
		}
	})
	var accepted [shards]atomic.Int64
	var users [shards][]int64 // whose likes were acknowledged
	for shard := range shards {
		all.Go(func() {
			for user := int64(1000); ctx.Err() == nil; user++ {
				call, cancel := context.WithTimeout(ctx, 5*time.Second)
				_, err := f.SetLike(call, targets[shard], user, true)
				cancel()
				if err == nil {
					users[shard] = append(users[shard], user)
					accepted[shard].Add(1)
				}
			}
		})
	}
	progress := func(which func(shard int) bool, what string) {
		t.Helper()
		var from [shards]int64
		for shard := range shards {
			from[shard] = accepted[shard].Load()
		}
		testkit.Eventually(t, time.Minute, func() (bool, string) {
			for shard := range shards {
				if which(shard) && accepted[shard].Load() < from[shard]+20 {
					return false, fmt.Sprintf("%s: shard %d accepts nothing", what, shard)
				}
			}
			return true, ""
		})
	}
	everyone := func(int) bool { return true }
	others := func(shard int) bool { return shard != moved }
	progress(everyone, "before")

	slot := int(masters[0].ClusterKeySlot(ctx, shardKey(moved)).Val())
	from, to := masters[0], masters[1]
	if slot > 8191 {
		from, to = to, from
	}
	set := func(node *redis.Client, args ...any) {
		t.Helper()
		require.NoError(t, node.Do(ctx, append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err())
	}
	fromID, toID := from.ClusterMyID(ctx).Val(), to.ClusterMyID(ctx).Val()
	set(to, "IMPORTING", fromID)
	set(from, "MIGRATING", toID)
	progress(others, "while the slot begins to move")
	begin := accepted[moved].Load()
	testkit.Eventually(t, time.Minute, func() (bool, string) { // a split is due, and Redis refuses new sets
		n := accepted[moved].Load() - begin
		return n > 250, fmt.Sprintf("%d likes of the shard that moves", n)
	})
	host, port, err := net.SplitHostPort(to.Options().Addr)
	require.NoError(t, err)
	move := func(part string) {
		t.Helper()
		for _, key := range from.ClusterGetKeysInSlot(ctx, slot, 1000).Val() {
			if strings.Contains(key, part) {
				require.NoError(t, from.Migrate(ctx, host, port, key, 0, 5*time.Second).Err())
			}
		}
	}
	move(":likes:")
	f.awaitCount(t, Unstored, 5)
	progress(others, "while sets have moved")
	move(":likes")
	progress(others, "while targets have moved")
	move(":outbox")
	progress(others, "while the outbox has moved")
	for len(from.ClusterGetKeysInSlot(ctx, slot, 1).Val()) > 0 {
		move("")
	}
	set(to, "NODE", toID)
	set(from, "NODE", toID)
	progress(everyone, "after")
	stop()
	all.Wait()

	for shard := range shards {
		node := masters[0]
		if n, err := node.Exists(t.Context(), shardKey(shard)).Result(); err != nil || n == 0 {
			node = masters[1]
		}
		liked := usersOf(t, r, targets[shard])
		for _, user := range users[shard] {
			require.Contains(t, liked, user, "shard %d", shard)
		}
		states, err := r.TargetStates(t.Context(), []models.Target{targets[shard]})
		require.NoError(t, err)
		require.EqualValues(t, len(liked), states[0].Count, "shard %d", shard)
		inOutbox := fold(t, t.Context(), node, shard)[targets[shard]]
		if shard == moved {
			require.Len(t, inOutbox, len(liked)-415)
			require.Equal(t, setsFor(len(liked)), states[0].Sets)
			continue
		}
		require.Len(t, inOutbox, len(liked), "shard %d", shard)
	}
}
