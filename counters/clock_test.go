package counters

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// The clock of an API process may show anything: the times of events and of targets are Redis's, a fresh like is not
// idle, and a call is not late.
func TestClock_ofTheProcessDoesNotMatter(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, clock := range map[string]time.Time{
		"2000":              {}, // the clock of a bubble begins there
		"two hours behind":  now.Add(-2 * time.Hour),
		"20 seconds behind": now.Add(-20 * time.Second),
		"two hours ahead":   now.Add(2 * time.Hour),
		"2039":              time.Date(2039, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			f := newForum(t)
			target, cold := f.post(t), f.post(t)
			f.inMySQL(t, cold, 1000)
			f.like(t, target, 1)
			shard := target.Shard(shards)
			url, dsn := urlOf(f.plain), f.dsn
			begin := redisTime(t, f.plain)
			synctest.Test(t, func(t *testing.T) {
				if !clock.IsZero() {
					<-time.After(time.Until(clock)) // the clock of the bubble jumps
				}
				r, err := Open(url, shards)
				require.NoError(t, err)
				store, err := db.Open(t.Context(), dsn, db.Options{})
				require.NoError(t, err)
				l := NewLikes(r, store, LikesOptions{})
				for _, target := range []models.Target{target, cold} {
					for user := int64(7); user <= 9; user++ {
						state, err := l.SetLike(t.Context(), target, user, true)
						require.NoError(t, err)
						require.True(t, state.Liked)
					}
				}
				_, err = l.SetLike(t.Context(), target, 9, false)
				require.NoError(t, err)
				n, err := r.Cool(t.Context(), []models.Target{target, cold}, time.Minute,
					map[int]models.Position{shard: pos(99, 0), cold.Shard(shards): pos(99, 0)})
				require.NoError(t, err)
				require.Zero(t, n, "both were just liked")
				n, err = r.Sweep(t.Context())
				require.NoError(t, err)
				require.Zero(t, n)
				require.NoError(t, r.Close())
				require.NoError(t, store.Close())
			})
			end := redisTime(t, f.plain)
			require.Equal(t, []int64{1, 7, 8}, usersOf(t, f.redis, target))
			require.Equal(t, []int64{7, 8, 9, 1000}, usersOf(t, f.redis, cold))
			second := pos(f.epochs[shard], 2).String()
			for _, m := range f.plain.XRange(t.Context(), outboxKey(shard), second, "+").Val() {
				at := models.Run(m.Values["run"].(string)).Time()
				require.WithinRange(t, at, begin, end, "%v", m.Values)
			}
			at, err := f.plain.HGet(t.Context(), f.redis.keys(target).likes, "at").Int64()
			require.NoError(t, err)
			require.WithinRange(t, time.UnixMilli(at), begin, end)
			require.Equal(t, models.LikesApplied{}.Gaps, (&model{f: f}).applyWithGaps(t, t.Context(), shard),
				"and MySQL takes every event")
			users, err := likes.New(f.store).LikerIDs(t.Context(), target, 0, 10)
			require.NoError(t, err)
			require.Equal(t, []int64{1, 7, 8}, users)
		})
	}
}

func redisTime(t testing.TB, plain *redis.Client) time.Time {
	t.Helper()
	now, err := plain.Time(t.Context()).Result()
	require.NoError(t, err)
	return now.Truncate(time.Millisecond)
}

// In a cluster, the clock of likes is that of every server that accepts them.
func TestRedis_readsTheClocksOfAllServers(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	before := redisTime(t, f.plain)
	earliest, latest, err := f.redis.Clock(t.Context())
	require.NoError(t, err)
	require.Equal(t, earliest, latest)
	require.WithinRange(t, earliest, before, redisTime(t, f.plain).Add(time.Millisecond))

	url, masters, _ := startCluster(t)
	r, err := Open(url, shards)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	before = redisTime(t, masters[0])
	earliest, latest, err = r.Clock(t.Context())
	require.NoError(t, err)
	require.True(t, earliest.Before(latest), "each server was asked")
	require.WithinRange(t, earliest, before, latest)
	require.WithinRange(t, latest, earliest, redisTime(t, masters[0]).Add(time.Millisecond))
}
