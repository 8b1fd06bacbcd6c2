package counters

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCloseShards_returnsWhichWereOpen(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	r, plain := openRedis(t, server.URL())
	openShard(t, r, 1, 1)
	warmUp(t, r, post(1))
	like(t, r, post(1), 7)
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory", "1").Err())
	closed := func(shard int) ShardInfo {
		t.Helper()
		infos, err := r.CloseShards(t.Context())
		require.NoError(t, err)
		require.Len(t, infos, shards)
		return infos[shard]
	}
	require.Equal(t, ShardInfo{Shard: 1, Open: true, Last: pos(1, 1)}, closed(1))
	require.Equal(t, ShardInfo{Shard: 2}, closed(2))
	info, err := r.ShardInfo(t.Context(), 1)
	require.NoError(t, err)
	require.False(t, info.Open)
	require.Equal(t, ShardInfo{Shard: 1, Last: pos(1, 1)}, closed(1), "the first call closed it")

	outbox, err := r.HoldOutbox(t.Context(), 1, "relay", time.Minute)
	require.NoError(t, err)
	_, err = outbox.Seal(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, ShardInfo{Shard: 1, Last: pos(2, 0)}, closed(1), "a relay has begun to open it")
	require.ErrorIs(t, outbox.Opened(t.Context(), 2), ErrLockLost, "the opening is over")
	_, err = outbox.Seal(t.Context(), 3)
	require.NoError(t, err)
	require.NoError(t, outbox.Opened(t.Context(), 3))
	require.Equal(t, ShardInfo{Shard: 1, Open: true, Last: pos(3, 0)}, closed(1))
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, plain.HSet(t.Context(), shardKey(1), "server", "another").Err())
	require.Equal(t, ShardInfo{Shard: 1, Last: pos(3, 0)}, closed(1), "of another server")
}
