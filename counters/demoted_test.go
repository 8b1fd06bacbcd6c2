package counters

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

// demoted returns a server that was demoted with all its keys, and no longer follows its primary. The shard 1 is open
// there, in the history of the primary. Connections from before the demotion last.
func demoted(t *testing.T) *Redis {
	t.Helper()
	// A replica cannot be stopped while it writes its first append-only file.
	leader, follower := privateRedis(t, "--appendonly", "no"), privateRedis(t, "--appendonly", "no")
	primary, _ := openRedis(t, leader.URL())
	r, plain := openRedis(t, follower.URL())
	old, err := connect(follower.URL(), connection{pool: 10, timeout: ioTimeout}, nil) // does not ask for the role
	require.NoError(t, err)
	t.Cleanup(func() { old.Close() })
	r.client = old
	host, port, err := net.SplitHostPort(leader.Addr())
	require.NoError(t, err)
	require.NoError(t, plain.ReplicaOf(t.Context(), host, port).Err())
	// The first replica of a server changes its history, which closes its shards.
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		info := plain.Info(t.Context(), "replication").Val()
		return strings.Contains(info, "master_link_status:up"), info
	})
	openShard(t, primary, 1, 1)
	warmUp(t, primary, post(1))
	like(t, primary, post(1), 7)
	warmDrop(t, primary, drop(1), 5, models.LiveClaim{UserID: 7, ID: 7*shards + 1})
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return plain.Exists(t.Context(), primary.keys(drop(1)).likes).Val() == 1, "replication"
	})
	require.NoError(t, plain.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	require.Contains(t, plain.Info(t.Context(), "replication").Val(), "role:slave")
	return r
}

// What a demoted server knows may be old, so it answers nothing: no script, even if it writes nothing, and no read.
func TestDemoted_answersNothing(t *testing.T) {
	t.Parallel()
	r := demoted(t)
	ctx := t.Context()
	for name, script := range r.script {
		err := script.Run(ctx, r.client, nil).Err()
		require.True(t, redis.HasErrorPrefix(err, "READONLY"), "script %s: %v", name, err)
	}
	targets := []models.Target{post(1), drop(1)}
	gate, claims := NewLikes(r, nil, LikesOptions{}), NewClaims(r, nil, ClaimsOptions{})
	item := []models.Target{post(1)}
	state := []TargetState{{Warm: true, Sets: 1, Load: "load"}}
	for name, ask := range map[string]func() error{
		"SetLike, unchanged": func() error { _, err := gate.SetLike(ctx, post(1), 7, true); return err },
		"Return, of another claim": func() error {
			_, err := claims.Return(ctx, 1, 7, 9*shards+1)
			return err
		},
		"Release": func() error {
			_, err := claims.Release(ctx, []models.EndedClaim{{DropID: 1, UserID: 9}})
			return err
		},
		"Taken":          func() error { _, _, err := claims.Taken(ctx, 7*shards+1); return err },
		"ShardInfos":     func() error { _, err := r.ShardInfos(ctx); return err },
		"Probe":          func() error { _, err := r.Probe(ctx, 1); return err },
		"CloseShards":    func() error { _, err := r.CloseShards(ctx); return err },
		"EachWarm":       func() error { return r.EachWarm(ctx, func([]models.Target) error { return nil }) },
		"EachWarmOf":     func() error { return r.EachWarmOf(ctx, 1, func([]models.Target) error { return nil }) },
		"CloseOvertaken": func() error { _, err := r.CloseOvertaken(ctx, 1, pos(9, 9)); return err },
		"IsCold":         func() error { _, err := r.IsCold(ctx, post(2)); return err },
		"TargetStates":   func() error { _, err := r.TargetStates(ctx, targets); return err },
		"LastChange":     func() error { _, _, err := r.LastChange(ctx, post(1)); return err },
		"ChangedAfter": func() error {
			_, err := r.ChangedAfter(ctx, targets, pos(1, 0))
			return err
		},
		"EachUser":    func() error { return r.EachUser(ctx, post(1), func([]int64) error { return nil }) },
		"UsersOf":     func() error { _, err := r.UsersOf(ctx, item, state); return err },
		"Likers":      func() error { _, err := r.Likers(ctx, post(1), []int64{7}); return err },
		"HeldClaims":  func() error { _, err := r.HeldClaims(ctx, 1); return err },
		"HeldClaim":   func() error { _, err := r.HeldClaim(ctx, 1, 7); return err },
		"SettingsOf":  func() error { _, err := r.SettingsOf(ctx, 1); return err },
		"Edition":     func() error { _, err := NewEdition(r).Current(ctx); return err },
		"HoldOutbox":  func() error { _, err := r.HoldOutbox(ctx, 1, "token", time.Minute); return err },
		"RefuseLikes": func() error { return r.RefuseLikes(ctx, 7, time.Second) },
		"Reassert":    func() error { return gate.Reassert(ctx, post(1), []int64{7}) },
	} {
		err := ask()
		require.Error(t, err, name)
		require.NotErrorIs(t, err, ErrShardClosed, name)
		require.NotErrorIs(t, err, ErrLockLost, name)
	}
	states, err := gate.LikeStates(ctx, 0, rowsOf(99, post(1)))
	require.NoError(t, err)
	require.EqualValues(t, 99, states[0].Count, "readers go to MySQL")
	require.Empty(t, claims.States(ctx, 7, []int64{1}))
}

// A shard is opened on no server that may evict its keys, whenever the policy was changed.
func TestSeal_refusesAServerThatEvicts(t *testing.T) {
	t.Parallel()
	r, plain := openRedis(t, privateRedis(t).URL())
	openShard(t, r, 1, 1)
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	outbox := hold(t, r, 1)
	_, err := outbox.Seal(t.Context(), 2)
	require.ErrorIs(t, err, ErrEvicts)
	require.ErrorContains(t, err, "allkeys-lru")
	info, err := r.ShardInfo(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, pos(1, 0), info.Last, "nothing was begun")
	require.ErrorIs(t, r.CheckPolicy(t.Context()), ErrEvicts)
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	_, err = outbox.Seal(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, r.CheckPolicy(t.Context()))
}

func TestCheckPolicy_asksEveryMaster(t *testing.T) {
	t.Parallel()
	url, masters, _ := startCluster(t)
	r, err := Open(url, shards)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	require.NoError(t, r.CheckPolicy(t.Context()))
	for _, master := range masters {
		require.NoError(t, master.ConfigSet(t.Context(), "maxmemory-policy", "volatile-ttl").Err())
		require.ErrorIs(t, r.CheckPolicy(t.Context()), ErrEvicts)
		require.NoError(t, master.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	}
}
