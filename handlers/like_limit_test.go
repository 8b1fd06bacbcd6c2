package handlers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
)

// TestLikeLimit_holdsForAllProcessesTogether sends likes of one account to several processes as fast as possible.
func TestLikeLimit_holdsForAllProcessesTogether(t *testing.T) {
	store := openStore(t, testkit.Database(t))
	var processes []*api
	redis := redisURL(t)
	for range 3 {
		processes = append(processes,
			serve(t, store, limited(t, redis, 1), func(c *handlers.Config) { c.LikeLimit = 40 }))
	}
	first := processes[0]
	as := first.grow(t, first.account(t), models.RoleUser)
	p := first.newPost(t, first.account(t))
	path := fmt.Sprintf("/v1/posts/%d/like", p.ID)
	var passed, refused atomic.Int64
	began := time.Now()
	together(12, func(i int) {
		for range 12 {
			r, err := processes[i%3].try(as, []string{"PUT", "DELETE"}[rand.IntN(2)], path, nil)
			switch {
			case err != nil:
				t.Error(err)
			case r.Status == 200:
				passed.Add(1)
			case r.Status == 429:
				refused.Add(1)
			default:
				t.Errorf("%s", r)
			}
		}
	})
	// What the limit allows in that time, and one advanced like for each process.
	limit := 40 + int64(time.Since(began)/(1500*time.Millisecond)) + 3
	if n := passed.Load(); n > limit || n < 30 || refused.Load() == 0 {
		t.Errorf("%d likes passed, %d were refused; want at most %d and at least 30", n, refused.Load(), limit)
	}
	_, r := first.refused(t, 429, "rate_limited", as, "PUT", path, nil)
	if after := number(t, `(\d+)`, r.Header.Get("Retry-After")); after < 1 || after > 4 {
		t.Errorf("Retry-After %d", after)
	}
	if q := number(t, `"likes";q=(\d+);w=60`, r.Header.Get("RateLimit-Policy")); q != 40 {
		t.Errorf("RateLimit-Policy: %d", q)
	}
	// Other accounts are not affected.
	first.must(t, 200, first.account(t), "PUT", path, nil)
}

func TestLikeLimit_isByTrust(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, "", 1), func(c *handlers.Config) { c.LikeLimit = 20 })
	p := a.newPost(t, a.account(t))
	path := fmt.Sprintf("/v1/posts/%d/like", p.ID)
	for _, try := range []struct {
		name string
		as   account
		want int
	}{
		{"a new account", a.account(t), 10},
		{"an old one", a.grow(t, a.account(t), models.RoleUser), 20},
		{"a moderator", a.grow(t, a.account(t), models.RoleModerator), 200},
	} {
		began := time.Now()
		passed, _ := a.until(t, 200, try.as, "PUT", path, nil)
		// What the limit, which is for a minute, allows meanwhile, and one advanced like.
		limit := try.want + int(time.Since(began)*time.Duration(try.want)/time.Minute) + 2
		if passed < try.want*9/10 || passed > limit {
			t.Errorf("%s likes %d times at once, want %d and at most %d", try.name, passed, try.want, limit)
		}
	}
}

// Claims and returns share the limit of likes, also if they change nothing.
func TestLikeLimit_countsClaimsAndReturns(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, "", 1), func(c *handlers.Config) { c.LikeLimit = 20 })
	d := a.newDrop(t, a.account(t), nil)
	for _, method := range []string{"POST", "DELETE"} {
		as := a.grow(t, a.account(t), models.RoleUser)
		c := a.claim(t, 201, as, d)
		path, status := d.path()+"/claims", 200
		if method == "DELETE" {
			path, status = "/v1/claims/"+c.ID, 204
		}
		began := time.Now()
		passed, _ := a.until(t, status, as, method, path, nil)
		limit := 20 + int(time.Since(began)*20/time.Minute) + 1 // one is advanced
		if passed < 17 || passed > limit {
			t.Errorf("%s passes %d times at once, want 20 and at most %d", method, passed, limit)
		}
	}
}

// TestLikeLimit_forgetsOldLeases lets leases expire: what several processes had left must not be added to the limit
// when the account likes again much later.
func TestLikeLimit_forgetsOldLeases(t *testing.T) {
	var ahead atomic.Int64
	store, redis := openStore(t, testkit.Database(t)), redisURL(t)
	var processes []*api
	for range 3 {
		processes = append(processes, serve(t, store, limited(t, redis, 1), func(c *handlers.Config) {
			c.LikeLimit = 40
			c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		}))
	}
	as := processes[0].grow(t, processes[0].account(t), models.RoleUser)
	path := fmt.Sprintf("/v1/posts/%d/like", processes[0].newPost(t, processes[0].account(t)).ID)
	began := time.Now()
	for _, a := range processes {
		a.must(t, 200, as, "PUT", path, nil) // advanced
		a.must(t, 200, as, "PUT", path, nil) // pays for that, and leases four, of which three are left
	}
	ahead.Store(int64(time.Hour))
	passed := 0
	for _, a := range processes {
		n, _ := a.until(t, 200, as, "PUT", path, nil)
		passed += n
	}
	if limit := 37 - 3*5 + int(time.Since(began)/(1500*time.Millisecond)) + 1; passed > limit || passed < 20 {
		t.Errorf("%d likes passed afterwards, want at most %d and at least 20", passed, limit)
	}
}

// TestLikeLimit_locksNobodyOut checks that the smallest limits admit likes again once they have refilled.
func TestLikeLimit_locksNobodyOut(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	for limit := 1; limit <= 3; limit++ {
		var limiter *counters.Limiter
		a := serve(t, store, limited(t, redisURL(t), 1),
			func(c *handlers.Config) { c.LikeLimit, limiter = limit, c.Limiter })
		path := fmt.Sprintf("/v1/posts/%d/like", a.newPost(t, a.account(t)).ID)
		for name, as := range map[string]account{"a new account": a.account(t),
			"an old one": a.grow(t, a.account(t), models.RoleUser)} {
			for range 2 {
				if passed, _ := a.until(t, 200, as, "PUT", path, nil); passed < 1 || passed > limit+1 {
					t.Errorf("with a limit of %d %s likes %d times", limit, name, passed)
				}
				limiter.Forget(t.Context(), counters.AccountLimit(as.ID, "likes")) // as time does
			}
		}
	}
}

// The next lease is taken before the last one is spent, so no like of a busy account waits for a second round trip.
func TestLikeLimit_takesTheNextLeaseAhead(t *testing.T) {
	t.Parallel()
	redis, err := servers.StartRedis(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, redis.Stop(context.Background())) })
	var alone atomic.Int64
	limiter, err := counters.OpenLimiter(redis.URL(), time.Minute, func() { alone.Add(1) })
	require.NoError(t, err)
	t.Cleanup(func() { limiter.Close() })
	now := time.Now() // stands still, so that no lease expires
	a := newAPI(t, modes[0], func(c *handlers.Config) {
		c.Limiter, c.LimitFactor, c.LikeLimit, c.Now = limiter, 1, 600, func() time.Time { return now }
	})
	as := a.grow(t, a.account(t), models.RoleUser)
	path := pathOf(a.newPost(t, a.account(t))) + "/like"
	a.must(t, 200, as, "PUT", path, nil) // advanced
	rate := counters.Rate{Burst: 541, Every: 100 * time.Millisecond}
	taken := func() int {
		return rate.Burst - limiter.Take(t.Context(), counters.AccountLimit(as.ID, "likes"), rate, 0).Remaining
	}
	a.must(t, 200, as, "PUT", path, nil) // takes a lease of 60, and pays for the advance
	before, start := taken(), time.Now()
	for range 40 {
		a.must(t, 200, as, "PUT", path, nil)
	}
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		n := taken() + int(time.Since(start)/rate.Every)
		return n > before+50, fmt.Sprintf("%d likes were taken, and before %d", n, before)
	})
	require.NoError(t, redis.Pause())
	for range 50 { // more than are left of the first lease
		a.must(t, 200, as, "PUT", path, nil)
	}
	assert.Zero(t, alone.Load())
	require.NoError(t, redis.Resume())
}
