package handlers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/maypok86/otter/v2"

	"likewise/counters"
	"likewise/models"
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

// DefaultLikeLimit is the default bound on the likes and unlikes of an account in a minute.
const DefaultLikeLimit = 60

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
		perMinute = DefaultLikeLimit
	}
	users, err := otter.New(&otter.Options[int64, *likeLease]{MaximumSize: maxLikeLeases})
	if err != nil {
		return likeLimits{}, fmt.Errorf("like limits: %w", err)
	}
	return likeLimits{perMinute, users}, nil
}

// rate returns the limit of an account.
func (l likeLimits) rate(factor float64, session *models.Session, now time.Time) counters.Rate {
	rate := counters.Rate{Burst: l.perMinute, Every: time.Minute / time.Duration(l.perMinute)}
	switch {
	case session.Role >= models.RoleModerator:
		factor *= moderatorFactor
	case now.Sub(session.Since) < freshFor:
		factor /= 2
	}
	return rate.Scale(factor)
}

// spendLike counts a like or unlike of the viewer. It returns CodeRateLimited over the limit.
func (s *Server) spendLike(c *fiber.Ctx) error {
	if s.limits.Limiter == nil {
		return nil
	}
	session, now := viewer(c), s.limits.now()
	rate := s.likeLimits.rate(s.limits.factor, session, now)
	lease, ok := s.likeLimits.users.GetIfPresent(session.UserID)
	if !ok {
		if lease, ok = s.likeLimits.users.SetIfAbsent(session.UserID, &likeLease{owed: 1}); ok {
			return nil
		}
	}
	lease.mu.Lock() // one request of the account takes a lease, and the others wait for it
	defer lease.mu.Unlock()
	size := max(1, rate.Burst/likeLeases)
	from := counters.Rate{Burst: rate.Burst - (size - 1), Every: rate.Every}
	key := counters.AccountLimit(session.UserID, "likes")
	if lease.spend(now) {
		if lease.current.left <= size/3 && lease.next.left == 0 && !lease.renewing && size > 1 {
			lease.renewing = true
			go s.renewLease(lease, key, from, size)
		}
		return nil
	}
	// More than the burst would always be refused. Only a limit of one like is that small; then owed likes are waived.
	taken := s.limits.Take(c.UserContext(), key, from, min(size+lease.owed, from.Burst))
	if !taken.OK && size > 1 { // near the limit, leases hold one like
		size = 1
		taken = s.limits.Take(c.UserContext(), key, from, size+lease.owed)
	}
	if !taken.OK {
		return s.refuseOverLimit(c, "likes", rate, taken)
	}
	lease.current, lease.owed = likeLot{size - 1, now.Add(time.Duration(size-1) * rate.Every)}, 0
	return nil
}

// renewLease takes the next lot of a lease. If the limit does not admit that many, the lease ends with its current lot.
func (s *Server) renewLease(lease *likeLease, key string, from counters.Rate, size int) {
	now := s.limits.now()
	taken := s.limits.Take(context.Background(), key, from, size)
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.renewing = false
	if taken.OK {
		lease.next = likeLot{size, now.Add(time.Duration(size-1) * from.Every)}
	}
}
