package handlers

import (
	"fmt"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/maypok86/otter/v2"

	"likewise/counters"
	"likewise/models"
)

// likeLimits bound how many likes and unlikes an account gives. A like goes to Redis once, and its limit must not double
// that; so a process takes likes from the account's limit a lease at a time and hands them out from memory, and the first
// like of an account that it sees it lends.
//
// What is left of a lease is good for as long as the limit takes to give as much again, and the limit that is leased from
// is smaller by that much. So in any time, all processes together let pass what the limit says, and besides at most the
// one like that each has lent.
type likeLimits struct {
	perMinute int
	users     *otter.Cache[int64, *likeLease]
}

// DefaultLikeLimit is how many likes and unlikes an account may give in a minute, at once or one after the other.
const DefaultLikeLimit = 60

const (
	likeLeases    = 10      // of which a limit consists
	maxLikeLeases = 100_000 // accounts that are remembered; about 15 MB. An account that is forgotten is lent a like again.
)

// likeLease is what a process has of an account's limit.
type likeLease struct {
	mu    sync.Mutex
	left  int
	until time.Time // when left is worth nothing any more
	owed  int       // likes that were let pass before any was leased
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

// rate is the limit of an account.
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

// spendLike counts a like or unlike of the viewer.
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
	lease.mu.Lock() // one request of the account leases, and the others wait for it
	defer lease.mu.Unlock()
	if lease.left > 0 && now.Before(lease.until) {
		lease.left--
		return nil
	}
	size := max(1, rate.Burst/likeLeases)
	from := counters.Rate{Burst: rate.Burst - (size - 1), Every: rate.Every}
	key := counters.AccountLimit(session.UserID, "likes")
	// More than the burst would be refused for ever. Only a limit of one like is that small: then what was lent is given.
	taken := s.limits.Take(c.UserContext(), key, from, min(size+lease.owed, from.Burst))
	if !taken.OK && size > 1 { // near the end of the limit, one by one
		size = 1
		taken = s.limits.Take(c.UserContext(), key, from, size+lease.owed)
	}
	if !taken.OK {
		return s.refuseOverLimit(c, "likes", rate, taken)
	}
	lease.left, lease.until, lease.owed = size-1, now.Add(time.Duration(size-1)*rate.Every), 0
	return nil
}
