package workers

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/likes"
)

// startCluster starts a Redis Cluster of two nodes, each with half of the slots.
func startCluster(t *testing.T) (url string, nodes []*servers.Redis) {
	t.Helper()
	var bus string
	for i, slots := range [][2]int{{0, 8191}, {8192, 16383}} {
		port := freePort(t)
		node, err := servers.StartRedis(t.Context(), filepath.Join(t.TempDir(), "node"), "--databases", "1",
			"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", port)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, node.Stop(context.Background())) })
		client := redis.NewClient(&redis.Options{Addr: node.Addr()})
		defer client.Close()
		require.NoError(t, client.ClusterAddSlotsRange(t.Context(), slots[0], slots[1]).Err())
		if i == 0 {
			bus = port
		} else {
			host, port, err := net.SplitHostPort(nodes[0].Addr())
			require.NoError(t, err)
			require.NoError(t, client.Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err())
		}
		nodes = append(nodes, node)
	}
	for _, node := range nodes {
		client := redis.NewClient(&redis.Options{Addr: node.Addr()})
		defer client.Close()
		testkit.Eventually(t, patience, func() (bool, string) {
			info, err := client.ClusterInfo(context.Background()).Result()
			if err != nil {
				return false, err.Error()
			}
			return containsText([]string{info}, "cluster_state:ok") &&
				containsText([]string{info}, "cluster_known_nodes:2"), info
		})
	}
	return "redis+cluster://" + nodes[0].Addr() + "?addr=" + nodes[1].Addr(), nodes
}

// freePort returns a free port for the cluster bus. The default, 10,000 above the client port, may be in use.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

// The log has lost a like of a target, whose keys are on another node when the gaps are reconciled. The shard's own
// keys are the last to move, so it is open until then.
func TestReconciler_keepsTheGapOfAShardThatMoves(t *testing.T) {
	t.Parallel()
	url, nodes := startCluster(t)
	brokers, topic := testkit.Topic(t)
	p := newPipeline(t, testkit.Database(t), url, brokers, topic)
	other := redis.NewClient(&redis.Options{Addr: nodes[1].Addr()})
	defer other.Close()
	ctx, from, to := t.Context(), p.raw, other
	slot := int(from.ClusterKeySlot(ctx, "{s06}").Val())
	if slot > 8191 {
		from, to = to, from
	}
	p.raw = from // it has the keys of shard 6
	target := p.holed()
	lock := p.hold() // of a relay, which keeps the shard readable while it moves
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
	move(target.String())
	infos, err := p.redis.ShardInfos(ctx)
	require.NoError(t, err)
	require.True(t, infos[6].Open)
	reconciler := NewReconciler(p.redis, p.store, p.likes)
	_, err = reconciler.Reconcile(ctx)
	require.ErrorIs(t, err, counters.ErrMoving)
	require.Equal(t, 1, p.openGaps())

	move("")
	set(to, "NODE", to.ClusterMyID(ctx).Val())
	set(from, "NODE", to.ClusterMyID(ctx).Val())
	testkit.Eventually(t, patience, func() (bool, string) {
		err := lock.Release(context.Background())
		return err == nil, fmt.Sprint(err)
	})
	p.start()
	testkit.Eventually(t, patience, func() (bool, string) {
		_, err := reconciler.Reconcile(context.Background())
		return err == nil, fmt.Sprint(err)
	})
	assert.Zero(t, p.openGaps())
	p.flush()
	assert.Equal(t, []int64{2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// While the keys of a shard are on two nodes, nobody knows its state. What concerns the other shards goes on: they are
// probed and measured. A flush waits for the shard.
func TestCluster_movingShardLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	url, nodes := startCluster(t)
	brokers, topic := testkit.Topic(t)
	p := newPipeline(t, testkit.Database(t), url, brokers, topic)
	stop := p.start()
	for _, shard := range []int{6, 7} {
		p.set(p.postIn(shard), 1, true)
	}
	p.flush()
	stop() // gives up the locks of the relays, so that some keys of the shard are missing
	ctx := t.Context()
	from, to := p.raw, redis.NewClient(&redis.Options{Addr: nodes[1].Addr()})
	defer to.Close()
	slot := int(from.ClusterKeySlot(ctx, "{s06}").Val())
	if slot > 8191 {
		from, to = to, from
	}
	require.NoError(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ClusterMyID(ctx).Val()).Err())
	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ClusterMyID(ctx).Val()).Err())

	registry, metrics := prometheus.NewRegistry(), NewMetrics()
	metrics.ExportPipeline(registry)
	metrics.observe(ctx, p.redis, p.store)
	families, err := registry.Gather()
	require.NoError(t, err)
	var open []string
	for _, family := range families {
		if family.GetName() == "likewise_shard_open" {
			for _, item := range family.GetMetric() {
				require.InDelta(t, 1, item.GetGauge().GetValue(), 0)
				open = append(open, item.GetLabel()[0].GetValue())
			}
		}
	}
	assert.Len(t, open, p.store.Shards()-1)
	assert.NotContains(t, open, "6")

	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var behind *FlushError
	require.ErrorAs(t, Flush(short, p.redis, p.store), &behind)
	require.Len(t, behind.Behind, 1)
	require.ErrorContains(t, behind, "shard 6 is unknown, MySQL has up to 1-1 (read shard 6: TRYAGAIN")

	p.exec("UPDATE like_shards SET applied_epoch=applied_epoch+1 WHERE shard=7")
	reconciler := NewReconciler(p.redis, p.store, p.likes)
	probed, err := reconciler.Probe(ctx, time.Hour)
	require.ErrorContains(t, err, "read shard 6: TRYAGAIN")
	assert.Equal(t, 1, probed, "shard 7, which MySQL has overtaken")
	p.exec("UPDATE like_shards SET applied_epoch=applied_epoch-1 WHERE shard=7")

	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "STABLE").Err())
	p.flush()
}

func TestPipeline_runsOnARedisCluster(t *testing.T) {
	t.Parallel()
	url, nodes := startCluster(t)
	brokers, topic := testkit.Topic(t)
	p := newPipeline(t, testkit.Database(t), url, brokers, topic)
	p.start()
	var targets []models.Target
	for range 40 {
		targets = append(targets, p.post())
	}
	like := func(user int64) {
		for _, target := range targets {
			p.set(target, user, true)
		}
	}
	like(1)
	like(2)
	rows := make([]models.TargetCount, len(targets))
	for i, target := range targets {
		rows[i].Target = target
	}
	states, err := p.likes.LikeStates(t.Context(), 2, rows)
	require.NoError(t, err)
	for i, state := range states {
		assert.Equal(t, models.LikeState{Liked: true, Count: 2}, state, "%s", targets[i])
	}
	p.flush()
	assert.Empty(t, p.verify(false))

	// One node is killed. Its shards are closed and opened again, and the shards of the other stay open.
	require.NoError(t, nodes[1].Kill())
	require.NoError(t, nodes[1].Start(t.Context()))
	testkit.Eventually(t, patience, func() (bool, string) {
		for _, target := range targets {
			if _, err := p.likes.SetLike(context.Background(), target, 3, true); err != nil {
				return false, err.Error()
			}
		}
		return true, ""
	})
	p.flush()
	for _, target := range targets {
		assert.Equal(t, []int64{1, 2, 3}, p.likers(target))
	}
	assert.Empty(t, p.verify(false))
	epochs := map[int64]int{}
	shards, err := likes.New(p.store).ShardStates(t.Context())
	require.NoError(t, err)
	for _, s := range shards {
		epochs[s.Applied.Epoch]++
	}
	// The number of attempts to open a shard while its node restarts is random.
	assert.True(
		t,
		epochs[1] > 0 && epochs[1] < len(shards),
		"shards of one node in their first epoch, of the other in a later one: %v",
		epochs,
	)
}
