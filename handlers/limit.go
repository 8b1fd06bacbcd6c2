package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/counters"
	"likewise/models"
)

// quota bounds one kind of action. What has no rate is not bounded.
type quota struct {
	name    string        // in RateLimit headers, metrics and keys
	user    counters.Rate // of an account
	fresh   counters.Rate // of an account younger than freshFor, in place of user
	address counters.Rate // of an address: all its accounts, and whoever has none
}

// The limits. An account's own come first; an address has room for many people, because schools and offices have but
// one. Moderators have moderatorFactor times as much as others and no limit by address.
var (
	// Every request of /v1, in each process for itself: what is read from memory should not ask Redis first.
	requestLimit = quota{name: "requests", address: counters.Rate{Burst: 1000, Every: 20 * time.Millisecond}} // 50 a second

	searchLimit   = quota{name: "search", user: counters.Rate{Burst: 30, Every: 2 * time.Second}, address: counters.Rate{Burst: 100, Every: time.Second / 2}}
	postLimit     = quota{name: "posts", user: counters.Rate{Burst: 10, Every: 2 * time.Minute}, fresh: counters.Rate{Burst: 3, Every: 10 * time.Minute}, address: counters.Rate{Burst: 100, Every: 12 * time.Second}}
	commentLimit  = quota{name: "comments", user: counters.Rate{Burst: 30, Every: 20 * time.Second}, fresh: counters.Rate{Burst: 10, Every: time.Minute}, address: counters.Rate{Burst: 300, Every: 2 * time.Second}}
	reportLimit   = quota{name: "reports", user: counters.Rate{Burst: 10, Every: 2 * time.Minute}, fresh: counters.Rate{Burst: 5, Every: 10 * time.Minute}, address: counters.Rate{Burst: 100, Every: 12 * time.Second}}
	passwordLimit = quota{name: "passwords", user: counters.Rate{Burst: 10, Every: 90 * time.Second}, address: counters.Rate{Burst: 100, Every: 9 * time.Second}}
	writeLimit    = quota{name: "writes", user: counters.Rate{Burst: 120, Every: 5 * time.Second}, fresh: counters.Rate{Burst: 40, Every: 15 * time.Second}, address: counters.Rate{Burst: 1200, Every: time.Second / 2}}

	// Edits of one post or comment, besides writeLimit: old versions are deleted when there are too many, and should last
	// for days under whoever wants to be rid of one.
	editLimit = quota{name: "edits", user: counters.Rate{Burst: 20, Every: time.Hour}}

	registerLimit = quota{name: "accounts", address: counters.Rate{Burst: 10, Every: 6 * time.Minute}}
	loginLimit    = quota{name: "logins", address: counters.Rate{Burst: 100, Every: 9 * time.Second}}
)

const (
	freshFor        = 24 * time.Hour // an account is young
	moderatorFactor = 10
)

// Tries of one password. An account has more tries than an address has with a name of it, so nobody alone can use them up;
// and a user who has logged in from an address before goes on doing so when many together did.
var (
	pairRate    = counters.Rate{Burst: 10, Every: 90 * time.Second} // what was typed, from an address
	accountRate = counters.Rate{Burst: 100, Every: 36 * time.Second}
	knownRate   = counters.Rate{Burst: 1, Every: 30 * 24 * time.Hour} // spent: the account has logged in from there
)

// limitOf names the limit of the routes that have one of their own. Of the others, what writes has writeLimit, and what
// reads has requestLimit alone, as every request.
var limitOf = map[string]*quota{
	"POST /v1/auth/register":                             nil, // registerLimit, when it is known that nothing was mistyped
	"POST /v1/auth/login":                                &loginLimit,
	"PUT /v1/me/password":                                &passwordLimit,
	"DELETE /v1/me":                                      &passwordLimit,
	"POST /v1/posts":                                     &postLimit,
	"POST /v1/posts/:id/comments":                        &commentLimit,
	"POST /v1/comments/:id/replies":                      &commentLimit,
	"POST /v1/reports":                                   &reportLimit,
	"POST /v1/posts/:id/revisions/:version/redaction":    &reportLimit,
	"POST /v1/comments/:id/revisions/:version/redaction": &reportLimit,
	// Likes have a limit that costs no round trip.
	"PUT /v1/posts/:id/like":       nil,
	"DELETE /v1/posts/:id/like":    nil,
	"PUT /v1/comments/:id/like":    nil,
	"DELETE /v1/comments/:id/like": nil,
}

// costOf is what a route costs of requestLimit where that is more than 1. It weighs what the databases do for a request:
// an index is read for each row of a page, and rows of several tables. What a list of posts looked through is counted
// besides, when it is known.
var costOf = map[string]int{
	"GET /v1/posts":                  2,
	"GET /v1/users/:id/posts":        2,
	"GET /v1/users/:id/comments":     2,
	"GET /v1/users/:id/likes":        2,
	"GET /v1/users/:id/followers":    2,
	"GET /v1/users/:id/following":    2,
	"GET /v1/posts/:id/revisions":    2,
	"GET /v1/posts/:id/comments":     3,
	"GET /v1/posts/:id/thread":       5,
	"GET /v1/posts/:id/likes":        2,
	"GET /v1/comments/:id/ancestors": 2,
	"GET /v1/comments/:id/replies":   3,
	"GET /v1/comments/:id/likes":     2,
	"GET /v1/tags":                   2,
	"GET /v1/feed":                   5,
	"GET /v1/notifications":          2,
	"GET /v1/me/likes":               2,
	"GET /v1/me/bookmarks":           2,
	"GET /v1/me/blocks":              2,
	"GET /v1/admin/posts":            5,
	"GET /v1/admin/comments":         5,
}

// What was examined is counted in these pieces, rounded down.
const (
	examinedPerRequest = 500   // entries of indexes that cost as much as a request
	examinedPerSearch  = 5_000 // and as much as a search
)

// limits is the door's memory of who did what.
type limits struct {
	*counters.Limiter // nil: no limits
	factor            float64
	now               func() time.Time
}

// requests counts every request, before anything is done for it.
func (s *Server) requests(c *fiber.Ctx) error {
	if s.limits.Limiter != nil {
		rate := requestLimit.address.Scale(s.limits.factor)
		if taken := s.limits.TakeHere("requests:"+networkOf(s.clientAddress(c)), rate, 1); !taken.OK {
			return s.limited(c, requestLimit.name, rate, taken)
		}
	}
	return c.Next()
}

// spend counts a request against the limit of its route; it runs when it is known whose request it is.
func (s *Server) spend(c *fiber.Ctx) error {
	route := c.Route()
	l, named := limitOf[route.Method+" "+route.Path]
	reads := route.Method == fiber.MethodGet || route.Method == fiber.MethodHead
	switch {
	case reads && route.Path != "/v1/tags" && c.Context().QueryArgs().Has("q"): // tags are found by an index alone
		l = &searchLimit
	case !reads && !named:
		l = &writeLimit
	}
	if l != nil {
		if err := s.take(c, *l); err != nil {
			return err
		}
	}
	cost := costOf[route.Method+" "+route.Path]
	if cost <= 1 {
		return c.Next()
	}
	if s.limits.Limiter != nil {
		from := networkOf(s.clientAddress(c))
		rate := requestLimit.address.Scale(s.limits.factor)
		// One is spent already. A price above the burst could never be paid.
		if taken := s.limits.TakeHere("requests:"+from, rate, min(cost, rate.Burst)-1); !taken.OK {
			return s.limited(c, requestLimit.name, rate, taken)
		}
	}
	share := s.dear
	if session := viewer(c); session != nil && session.Role >= models.RoleModerator {
		share = s.moderatorShare // a moderator may have to end what keeps all others waiting
	}
	leave, err := share.enter(c.UserContext())
	if err != nil {
		return err
	}
	defer leave()
	return c.Next()
}

// charge counts what a list has examined against the limits of its caller, as far as they go: the next request is
// refused instead of this one, which has cost already.
func (s *Server) charge(c *fiber.Ctx, examined int) {
	if s.limits.Limiter == nil || examined < examinedPerRequest {
		return
	}
	from := networkOf(s.clientAddress(c))
	rate := requestLimit.address.Scale(s.limits.factor)
	spendAll(examined/examinedPerRequest, func(n int) counters.Taken { return s.limits.TakeHere("requests:"+from, rate, n) })
	searches := examined / examinedPerSearch
	if searches == 0 || !c.Context().QueryArgs().Has("q") {
		return
	}
	session, factor := viewer(c), s.limits.factor
	take := func(key string, rate counters.Rate) {
		spendAll(searches, func(n int) counters.Taken { return s.limits.Take(c.UserContext(), key, rate, n) })
	}
	if session != nil && session.Role >= models.RoleModerator {
		factor *= moderatorFactor
	} else {
		take(searchLimit.name+"-by-address:"+from, searchLimit.address.Scale(factor))
	}
	if session != nil {
		take(counters.AccountLimit(session.UserID, searchLimit.name), searchLimit.user.Scale(factor))
	}
}

// spendAll takes n, or what is left if that is less.
func spendAll(n int, take func(n int) counters.Taken) {
	if n = min(n, take(0).Remaining); n > 0 {
		take(n)
	}
}

// take counts one action of the viewer, by address first: who has used that up shall not use up what is another's.
func (s *Server) take(c *fiber.Ctx, l quota) error {
	if s.limits.Limiter == nil {
		return nil
	}
	session, factor := viewer(c), s.limits.factor
	rate := l.user
	switch {
	case session == nil:
		rate = counters.Rate{}
	case session.Role >= models.RoleModerator:
		factor *= moderatorFactor
		l.address = counters.Rate{}
	case l.fresh.Burst > 0 && s.limits.now().Sub(session.Since) < freshFor:
		rate = l.fresh
	}
	if l.address.Burst > 0 {
		policy := l.name + "-by-address"
		if err := s.takeOne(c, policy, policy+":"+networkOf(s.clientAddress(c)), l.address.Scale(factor)); err != nil {
			return err
		}
	}
	if rate.Burst > 0 {
		return s.takeOne(c, l.name, counters.AccountLimit(session.UserID, l.name), rate.Scale(factor))
	}
	return nil
}

// takeEdit counts one edit of a post or comment.
func (s *Server) takeEdit(c *fiber.Ctx, target models.Target) error {
	if s.limits.Limiter == nil {
		return nil
	}
	factor := s.limits.factor
	if viewer(c).Role >= models.RoleModerator {
		factor *= moderatorFactor
	}
	return s.takeOne(c, editLimit.name, target.String(), editLimit.user.Scale(factor))
}

// takeOne counts one action and tells the client what is left.
func (s *Server) takeOne(c *fiber.Ctx, policy, key string, rate counters.Rate) error {
	taken := s.limits.Take(c.UserContext(), key, rate, 1)
	if !taken.OK {
		return s.limited(c, policy, rate, taken)
	}
	tellLimit(c, policy, rate, taken)
	return nil
}

// limited is the answer to too much.
func (s *Server) limited(c *fiber.Ctx, policy string, rate counters.Rate, taken counters.Taken) error {
	s.metrics.limited.WithLabelValues(policy).Inc()
	tellLimit(c, policy, rate, taken)
	return &models.Error{Code: models.CodeRateLimited, Message: "This was too much in too short a time; try again later.", RetryAfter: taken.RetryAfter}
}

// tellLimit writes the fields of draft-ietf-httpapi-ratelimit-headers-10: a policy has a quota of q in w seconds, of
// which r is left, and all of it again after t seconds.
func tellLimit(c *fiber.Ctx, policy string, rate counters.Rate, taken counters.Taken) {
	c.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=%d`, policy, rate.Burst, seconds(rate.Window())))
	c.Set("RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, policy, taken.Remaining, seconds(taken.ResetAfter)))
}

// seconds rounds up, so that nobody comes too early.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// loginTry is a try of a password.
type loginTry struct {
	pair, known string
	// blocked is whether the account was tried too often, by whatever addresses and names. It is answered as a wrong
	// password is: an answer of its own would report which names and addresses belong to one account.
	blocked bool
}

// tryLogin counts a try of the password of user (id 0: nobody), whom login was found to be. CodeRateLimited when what was
// typed was tried too often from this address: that depends on no account.
func (s *Server) tryLogin(c *fiber.Ctx, user *models.User, login string) (loginTry, error) {
	if s.limits.Limiter == nil {
		return loginTry{}, nil
	}
	sum := sha256.Sum256([]byte(models.NormalizeLogin(login)))
	typed := "typed:" + hex.EncodeToString(sum[:16])
	limit := func(name string) string { return typed + "/" + name } // of nobody: the same work is done
	if user.ID != 0 {
		limit = func(name string) string { return counters.AccountLimit(user.ID, name) }
	}
	from := networkOf(s.clientAddress(c))
	t := loginTry{pair: typed + "/login:" + from, known: limit("known:" + from)}
	ctx := c.UserContext()
	rate := pairRate.Scale(s.limits.factor)
	if taken := s.limits.Take(ctx, t.pair, rate, 1); !taken.OK {
		return t, s.limited(c, "logins-of-account-by-address", rate, taken)
	}
	taken := s.limits.Take(ctx, limit("login"), accountRate.Scale(s.limits.factor), 1)
	t.blocked = !taken.OK && s.limits.Take(ctx, t.known, knownRate, 0).Remaining > 0
	if t.blocked {
		s.metrics.limited.WithLabelValues("logins-of-account").Inc()
	}
	return t, nil
}

// loggedIn ends a try that was right.
func (s *Server) loggedIn(ctx context.Context, t loginTry) {
	if s.limits.Limiter != nil {
		s.limits.Forget(ctx, t.pair)
		s.limits.Forget(ctx, t.known) // or the mark that stands would not be made anew
		s.limits.Take(ctx, t.known, knownRate, 1)
	}
}
