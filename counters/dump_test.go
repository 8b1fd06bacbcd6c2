package counters

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that checks every member of what it restores takes the sets for its own.
func TestDumpSet_isWhatRedisDumps(t *testing.T) {
	t.Parallel()
	_, plain := openRedis(t, privateRedis(t).URL())
	require.NoError(t, plain.ConfigSet(t.Context(), "sanitize-dump-payload", "yes").Err())
	many := func(n int, below int64) []int64 {
		users := make([]int64, n)
		for i := range users {
			users[i] = 1 + rand.Int64N(below-1)
		}
		return users
	}
	for i, users := range [][]int64{
		{}, {1}, {3, 1, 2}, {7, 7, 8}, {1<<15 - 1}, {1 << 15, 1}, {1<<31 - 1, 5}, {1 << 31}, {1<<53 - 1, 1, 1 << 40},
		many(26, 1<<15), many(27, 1<<15), many(28, 1<<15), many(28, 1<<31), many(500, 1<<31), many(500, 1<<53),
		many(513, 1<<31), many(5000, 1<<53), // too many for an array
	} {
		t.Run(fmt.Sprint(i, " of ", len(users)), func(t *testing.T) {
			ctx := t.Context()
			members := make([]any, 1, 1+len(users))
			members[0] = 0
			for _, user := range users {
				members = append(members, user)
			}
			require.NoError(t, plain.Del(ctx, "restored", "added").Err())
			require.NoError(t, plain.Restore(ctx, "restored", 0, string(dumpSet(slices.Clone(users)))).Err())
			require.NoError(t, plain.SAdd(ctx, "added", members...).Err())
			require.ElementsMatch(t, plain.SMembers(ctx, "added").Val(), plain.SMembers(ctx, "restored").Val())
			require.Equal(t, plain.ObjectEncoding(ctx, "added").Val(), plain.ObjectEncoding(ctx, "restored").Val())
			for _, user := range append(users, 1<<52) {
				is := plain.SIsMember(ctx, "added", user).Val()
				require.Equal(t, is, plain.SIsMember(ctx, "restored", user).Val(), strconv.FormatInt(user, 10))
			}
			require.EqualValues(t, 1, plain.SAdd(ctx, "restored", 1<<52+1).Val())
		})
	}
}
