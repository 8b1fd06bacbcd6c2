package counters

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachUser(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	users := make([]int64, 12_000)
	for i := range users {
		users[i] = int64(i + 1)
	}
	warmUp(t, r, post(1), users...)
	var got []int64
	batches := 0
	require.NoError(t, r.EachUser(t.Context(), post(1), func(ids []int64) error {
		batches++
		got = append(got, ids...)
		return nil
	}))
	slices.Sort(got)
	require.Equal(t, users, got)
	require.Greater(t, batches, 1)

	failure := errors.New("enough")
	require.ErrorIs(t, r.EachUser(t.Context(), post(1), func([]int64) error { return failure }), failure)
	require.ErrorIs(t, r.EachUser(t.Context(), post(17), func([]int64) error { return nil }), ErrNotWarm)
	require.NoError(t, plain.SAdd(t.Context(), setKey(r.keys(post(1)).likes, "load", 0), "somebody").Err())
	require.ErrorContains(t, r.EachUser(t.Context(), post(1), func([]int64) error { return nil }), "post:1")
}

// A set that is split after its turn was planned moves half of its users to a set behind all others.
func TestEachUser_findsUsersThatASplitMoves(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	users := make([]int64, 12_000)
	for i := range users {
		users[i] = int64(i + 1)
	}
	warmUp(t, r, post(1), users...)
	found := map[int64]bool{}
	next := int64(len(users))
	require.NoError(t, r.EachUser(t.Context(), post(1), func(ids []int64) error {
		for _, id := range ids {
			found[id] = true
		}
		for range 1000 {
			if next++; next > 14_000 {
				break
			}
			require.Equal(t, done(next), gate(t, r, 10_000, wanted{post(1), []string{strconv.FormatInt(next, 10)}}))
		}
		return plain.XTrimMaxLen(t.Context(), outboxKey(1), 0).Err()
	}))
	for _, user := range users {
		require.True(t, found[user], "user %d liked it long before", user)
	}
	err := r.EachUser(t.Context(), post(1), func([]int64) error {
		return plain.HSet(t.Context(), r.keys(post(1)).likes, "load", "another").Err()
	})
	require.ErrorIs(t, err, ErrNotWarm, "it was evicted and warmed again")
}

func TestLikers_reportsWhoLikesAWarmTarget(t *testing.T) {
	t.Parallel()
	r, _ := newRedis(t)
	openShard(t, r, 1, 1)
	var users []int64
	for i := range int64(2000) {
		users = append(users, 2*i+2)
	}
	warmUp(t, r, post(1), users...)
	trips := countTrips(t, r)
	liked, err := r.Likers(t.Context(), post(1), []int64{1, 2, 3, 4000, 4001})
	require.NoError(t, err)
	require.Equal(t, map[int64]bool{1: false, 2: true, 3: false, 4000: true, 4001: false}, liked)
	require.EqualValues(t, 2, trips.Load())
	_, err = r.Likers(t.Context(), post(17), []int64{1})
	require.ErrorIs(t, err, ErrNotWarm)
	liked, err = r.Likers(t.Context(), post(17), nil)
	require.NoError(t, err)
	require.Empty(t, liked)
}
