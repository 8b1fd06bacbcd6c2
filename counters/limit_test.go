package counters

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// newLimiter returns a Limiter that waits long for Redis, for busy machines.
func newLimiter(t testing.TB, url string) (*Limiter, *atomic.Int64) {
	t.Helper()
	return newImpatientLimiter(t, url, time.Minute)
}

func newImpatientLimiter(t testing.TB, url string, wait time.Duration) (*Limiter, *atomic.Int64) {
	t.Helper()
	var alone atomic.Int64
	l, err := OpenLimiter(url, wait, func() { alone.Add(1) })
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l, &alone
}

func limitersURL(t testing.TB) string {
	t.Helper()
	o := testkit.Redis(t)
	return fmt.Sprintf("redis://%s/%d", o.Addr, o.DB)
}

func TestLimiter_admitsABurstAndThenOneEach(t *testing.T) {
	t.Parallel()
	rate := Rate{Burst: 3, Every: time.Hour}
	for name, url := range map[string]string{"redis": limitersURL(t), "alone": ""} {
		t.Run(name, func(t *testing.T) {
			l, alone := newLimiter(t, url)
			for left := 2; left >= 0; left-- {
				taken := l.Take(t.Context(), "a", rate, 1)
				require.True(t, taken.OK)
				assert.Equal(t, left, taken.Remaining)
				assert.Zero(t, taken.RetryAfter)
				assert.InDelta(t, time.Duration(3-left)*time.Hour, taken.ResetAfter, float64(time.Minute))
			}
			for range 2 { // refused actions are not counted
				taken := l.Take(t.Context(), "a", rate, 1)
				assert.False(t, taken.OK)
				assert.InDelta(t, time.Hour, taken.RetryAfter, float64(time.Minute))
				assert.InDelta(t, 3*time.Hour, taken.ResetAfter, float64(time.Minute))
			}
			assert.True(t, l.Take(t.Context(), "b", rate, 3).OK, "another key")
			assert.False(t, l.Take(t.Context(), "c", rate, 4).OK, "more than a burst")
			assert.Equal(t, 3, l.Take(t.Context(), "c", rate, 0).Remaining, "refused and looked at, but not counted")
			assert.Equal(t, 0, l.Take(t.Context(), "a", rate, 0).Remaining)
			l.Forget(t.Context(), "a")
			assert.Equal(t, 3, l.Take(t.Context(), "a", rate, 0).Remaining)
			assert.False(t, l.Take(t.Context(), "d", Rate{}, 1).OK)
			assert.Zero(t, alone.Load())
		})
	}
}

func TestLimiter_refillsOneByOne(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, "")
	now := time.Unix(1_700_000_000, 0)
	l.now = func() time.Time { return now }
	rate := Rate{Burst: 5, Every: time.Minute}
	require.True(t, l.Take(t.Context(), "a", rate, 5).OK)
	for range 100 {
		now = now.Add(rate.Every - time.Nanosecond)
		require.False(t, l.Take(t.Context(), "a", rate, 1).OK)
		now = now.Add(time.Nanosecond)
		require.True(t, l.Take(t.Context(), "a", rate, 1).OK)
	}
	now = now.Add(24 * time.Hour)
	assert.True(t, l.Take(t.Context(), "a", rate, 5).OK)
	assert.False(t, l.Take(t.Context(), "a", rate, 1).OK, "no more than a burst is saved up")
}

func TestLimiter_ofManyProcessesCountsTogether(t *testing.T) {
	t.Parallel()
	url := limitersURL(t)
	var passed atomic.Int64
	var running sync.WaitGroup
	for range 4 {
		l, alone := newLimiter(t, url)
		for range 8 {
			running.Go(func() {
				for range 25 {
					if l.Take(context.Background(), "a", Rate{Burst: 100, Every: time.Hour}, 1).OK {
						passed.Add(1)
					}
				}
			})
		}
		t.Cleanup(func() { assert.Zero(t, alone.Load()) })
	}
	running.Wait()
	assert.EqualValues(t, 100, passed.Load())
}

// While Redis is down, every process applies the limits by itself, and waits for Redis only briefly.
func TestLimiter_outlivesRedis(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	l, alone := newImpatientLimiter(t, server.URL(), DefaultLimitWait)
	rate := Rate{Burst: 10, Every: time.Hour}
	require.True(t, l.Take(t.Context(), "a", rate, 10).OK)
	require.False(t, l.Take(t.Context(), "a", rate, 1).OK)
	require.NoError(t, server.Pause()) // accepts commands and does not answer
	start := time.Now()
	passed := 0
	for range 1000 {
		if l.Take(t.Context(), "a", rate, 1).OK {
			passed++
		}
	}
	assert.Less(t, time.Since(start), 5*time.Second, "a thousand requests while Redis is silent")
	assert.Equal(t, 10, passed)
	assert.EqualValues(t, 1000, alone.Load())
	require.NoError(t, server.Resume())
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { // the breaker retries once a second
		before := alone.Load()
		return !l.Take(t.Context(), "a", rate, 1).OK && alone.Load() == before, "Redis does not count again"
	})
}

// Each script uses one key, so it works on a cluster.
func TestLimiter_worksOnCluster(t *testing.T) {
	t.Parallel()
	url, _, _ := startCluster(t)
	l, alone := newLimiter(t, url)
	for i := range 50 {
		// A slow machine may not answer in time. Then the process counts by itself, and the test uses another key.
		attempt := 0
		testkit.Eventually(t, time.Minute, func() (bool, string) {
			key, before := fmt.Sprint("key ", i, " ", attempt), alone.Load()
			attempt++
			both := l.Take(t.Context(), key, Rate{Burst: 2, Every: time.Hour}, 2).OK
			third := l.Take(t.Context(), key, Rate{Burst: 2, Every: time.Hour}, 1).OK
			if alone.Load() != before {
				return false, "the cluster does not count"
			}
			assert.True(t, both)
			assert.False(t, third)
			return true, ""
		})
	}
}

func TestLimiter_leavesNoKeys(t *testing.T) {
	t.Parallel()
	o := testkit.Redis(t)
	l, _ := newLimiter(t, fmt.Sprintf("redis://%s/%d", o.Addr, o.DB))
	_, plain := openRedis(t, fmt.Sprintf("redis://%s/%d", o.Addr, o.DB))
	require.True(t, l.Take(t.Context(), "a", Rate{Burst: 2, Every: 30 * time.Second}, 1).OK)
	ttl, err := plain.TTL(t.Context(), "limits:a").Result()
	require.NoError(t, err)
	assert.InDelta(t, 30*time.Second, ttl, float64(2*time.Second))
}

func TestRate_scales(t *testing.T) {
	t.Parallel()
	rate := Rate{Burst: 10, Every: time.Minute}
	assert.Equal(t, Rate{Burst: 25, Every: 24 * time.Second}, rate.Scale(2.5))
	assert.Equal(t, Rate{Burst: 1, Every: 100 * time.Minute}, rate.Scale(0.01))
	assert.Equal(t, Rate{}, Rate{}.Scale(2))
	assert.Equal(t, 10*time.Minute, rate.Window())
}

// BenchmarkLimiter counts actions in Redis and in the process. plain is one INCR on as many connections.
func BenchmarkLimiter(b *testing.B) {
	rate := Rate{Burst: 1 << 30, Every: time.Nanosecond}
	b.Run("plain", func(b *testing.B) {
		_, client := openRedis(b, limitersURL(b))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				assert.NoError(b, client.Incr(b.Context(), "a").Err())
			}
		})
	})
	for name, url := range map[string]string{"redis": limitersURL(b), "alone": ""} {
		b.Run(name, func(b *testing.B) {
			l, _ := newLimiter(b, url)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Take(b.Context(), "a", rate, 1)
				}
			})
		})
	}
}

// Calls that arrive together share a script and its round trip, and each gets its own answer.
func TestLimiter_aCrowdSharesRoundTrips(t *testing.T) {
	t.Parallel()
	l, alone := newLimiter(t, limitersURL(t))
	trips := &roundTrips{}
	l.client.AddHook(trips)
	const accounts, each = 100, 4
	rates := []Rate{{Burst: 1, Every: time.Hour}, {Burst: 3, Every: time.Hour}}
	var admitted [accounts]atomic.Int64
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range accounts * each {
		of := i % accounts
		all.Go(func() {
			<-start
			if l.Take(context.Background(), AccountLimit(int64(of), "likes"), rates[of%2], 1).OK {
				admitted[of].Add(1)
			}
		})
	}
	close(start)
	all.Wait()
	for of := range admitted {
		assert.EqualValues(t, rates[of%2].Burst, admitted[of].Load(), "account %d", of)
	}
	assert.Less(t, trips.n.Load(), int64(accounts*each/4))
	assert.LessOrEqual(t, trips.commands.Load(), trips.n.Load()+1, "a script each, which Redis may not have at first")
	assert.Zero(t, alone.Load())
}

// A damaged key fails its own call alone. That call is counted in the process.
func TestLimiter_aDamagedKeyFailsItsOwnCallAlone(t *testing.T) {
	t.Parallel()
	l, alone := newLimiter(t, limitersURL(t))
	rate := Rate{Burst: 3, Every: time.Hour}
	require.NoError(t, l.client.Set(t.Context(), limitsKey("damaged"), "of a wrong type", 0).Err())
	batch := make([]*taking, 3)
	for i, key := range []string{"a", "damaged", "b"} {
		batch[i] = &taking{key: limitsKey(key), args: [takingArgs]any{"", 3, time.Hour.Microseconds(), 1},
			reply: make(chan Taken, 1), failed: make(chan struct{})}
	}
	l.takeTogether(batch)
	for i, item := range batch {
		select {
		case taken := <-item.reply:
			assert.NotEqual(t, 1, i)
			assert.Equal(t, 2, taken.Remaining)
		case <-item.failed:
			assert.Equal(t, 1, i)
		}
	}
	assert.Equal(t, 1, l.Take(t.Context(), "a", rate, 1).Remaining)
	assert.Equal(t, 2, l.Take(t.Context(), "damaged", rate, 1).Remaining)
	assert.EqualValues(t, 1, alone.Load())
}

// After a restart, Redis has forgotten the script.
func TestLimiter_sendsAForgottenScriptAgain(t *testing.T) {
	t.Parallel()
	l, alone := newLimiter(t, privateRedis(t).URL())
	rate := Rate{Burst: 3, Every: time.Hour}
	for left := 2; left >= 0; left-- {
		require.NoError(t, l.client.ScriptFlush(t.Context()).Err())
		assert.Equal(t, left, l.Take(t.Context(), "a", rate, 1).Remaining)
	}
	assert.Zero(t, alone.Load())
}
