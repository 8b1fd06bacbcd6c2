package admission

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"likewise/counters"
)

// likeLimits bounds the likes and unlikes of an account. A like costs one round trip to Redis, and its limit must not
// double that. So a process takes leases of several likes from the account's limit and spends them from memory. It
// advances the first like of an account that it has no lease of. When a lease is nearly spent, it takes the next one in
// the background.
//
// The rest of a lease expires after the time in which the limit refills by as much, and the limit on Redis is smaller
// by that much. So in any period, all processes together admit no more likes than the limit, plus at most one advanced
// like for each process.
type likeLimits struct {
	perMinute int
	users     *otter.Cache[int64, *likeLease]
}

// DefaultLikesPerMinute is the default bound on the likes and unlikes of an account in a minute.
const DefaultLikesPerMinute = 60

const (
	likeLeases    = 10      // a lease is a tenth of the limit
	maxLikeLeases = 100_000 // accounts in memory; about 15 MB. After eviction, an account is advanced a like again.
)

// likeLease is the part of an account's limit that a process holds.
type likeLease struct {
	mu       sync.Mutex
	current  likeLot
	next     likeLot // spent after current
	renewing bool    // next is being taken
	owed     int     // likes that were advanced before the first lease
}

// likeLot are likes that were taken from an account's limit at once.
type likeLot struct {
	left  int
	until time.Time // when left expires
}

// spend spends one like, and reports whether one was left.
func (l *likeLease) spend(now time.Time) bool {
	if l.current.left == 0 || !now.Before(l.current.until) {
		l.current, l.next = l.next, likeLot{}
	}
	if l.current.left == 0 || !now.Before(l.current.until) {
		return false
	}
	l.current.left--
	return true
}

func newLikeLimits(perMinute int) (likeLimits, error) {
	if perMinute == 0 {
		perMinute = DefaultLikesPerMinute
	}
	users, err := otter.New(&otter.Options[int64, *likeLease]{MaximumSize: maxLikeLeases})
	if err != nil {
		return likeLimits{}, fmt.Errorf("like limits: %w", err)
	}
	return likeLimits{perMinute, users}, nil
}

// rate returns the limit of an account.
func (l likeLimits) rate(factor float64, of Client, now time.Time) counters.Rate {
	rate := counters.Rate{Burst: l.perMinute, Every: time.Minute / time.Duration(l.perMinute)}
	switch {
	case of.Moderator:
		factor *= moderatorFactor
	case now.Sub(of.Since) < freshFor:
		factor /= 2
	}
	return rate.Scale(factor)
}

// Like counts a like, unlike, claim or return of an account, mostly without a round trip.
func (r *Rates) Like(ctx context.Context, from Client) error {
	if r.limiter == nil {
		return nil
	}
	now := r.now()
	rate := r.likes.rate(r.factor, from, now)
	lease, ok := r.likes.users.GetIfPresent(from.Account)
	if !ok {
		if lease, ok = r.likes.users.SetIfAbsent(from.Account, &likeLease{owed: 1}); ok {
			return nil
		}
	}
	lease.mu.Lock() // one request of the account takes a lease, and the others wait for it
	defer lease.mu.Unlock()
	size := max(1, rate.Burst/likeLeases)
	lot := counters.Rate{Burst: rate.Burst - (size - 1), Every: rate.Every}
	key := counters.AccountLimit(from.Account, "likes")
	if lease.spend(now) {
		if lease.current.left <= size/3 && lease.next.left == 0 && !lease.renewing && size > 1 {
			lease.renewing = true
			go r.renewLease(context.WithoutCancel(ctx), lease, key, lot, size)
		}
		return nil
	}
	// More than the burst would always be refused. Only a limit of one like is that small; then owed likes are waived.
	taken := r.limiter.Take(ctx, key, lot, min(size+lease.owed, lot.Burst))
	if !taken.OK && size > 1 { // near the limit, leases hold one like
		size = 1
		taken = r.limiter.Take(ctx, key, lot, size+lease.owed)
	}
	if !taken.OK {
		return r.refuse(from, "likes", rate, taken)
	}
	lease.current, lease.owed = likeLot{size - 1, now.Add(time.Duration(size-1) * rate.Every)}, 0
	return nil
}

// renewLease takes the next lot of a lease. If the limit does not admit that many, the lease ends with its current lot.
func (r *Rates) renewLease(ctx context.Context, lease *likeLease, key string, lot counters.Rate, size int) {
	now := r.now()
	taken := r.limiter.Take(ctx, key, lot, size)
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.renewing = false
	if taken.OK {
		lease.next = likeLot{size, now.Add(time.Duration(size-1) * lot.Every)}
	}
}
