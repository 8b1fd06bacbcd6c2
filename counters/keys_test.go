package counters

import (
	"testing"

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
