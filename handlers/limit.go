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
	"likewise/handlers/admission"
	"likewise/models"
	"likewise/models/db"
)

// quota bounds one kind of action. Without a rate it bounds nothing.
type quota struct {
	name    string        // in RateLimit headers, metrics and keys
	user    counters.Rate // of an account
	fresh   counters.Rate // of an account younger than freshFor, in place of user
	address counters.Rate // of an address: all its accounts, and its anonymous requests
}

// The quotas. Those of accounts bind first. An address has room for many people, because schools and offices share one.
// Moderators have moderatorFactor times the quota of other accounts, and no quota by address.
var (
	// Every request of /v1, counted in each process alone: answers from memory must not wait for Redis. 50 a second.
	requestQuota = quota{name: "requests", address: counters.Rate{Burst: 1000, Every: 20 * time.Millisecond}}

	searchQuota = quota{
		name:    "search",
		user:    counters.Rate{Burst: 30, Every: 2 * time.Second},
		address: counters.Rate{Burst: 100, Every: time.Second / 2},
	}
	postQuota = quota{
		name:    "posts",
		user:    counters.Rate{Burst: 10, Every: 2 * time.Minute},
		fresh:   counters.Rate{Burst: 3, Every: 10 * time.Minute},
		address: counters.Rate{Burst: 100, Every: 12 * time.Second},
	}
	commentQuota = quota{
		name:    "comments",
		user:    counters.Rate{Burst: 30, Every: 20 * time.Second},
		fresh:   counters.Rate{Burst: 10, Every: time.Minute},
		address: counters.Rate{Burst: 300, Every: 2 * time.Second},
	}
	reportQuota = quota{
		name:    "reports",
		user:    counters.Rate{Burst: 10, Every: 2 * time.Minute},
		fresh:   counters.Rate{Burst: 5, Every: 10 * time.Minute},
		address: counters.Rate{Burst: 100, Every: 12 * time.Second},
	}
	passwordQuota = quota{
		name:    "passwords",
		user:    counters.Rate{Burst: 10, Every: 90 * time.Second},
		address: counters.Rate{Burst: 100, Every: 9 * time.Second},
	}
	renderQuota = quota{
		name:    "previews",
		user:    counters.Rate{Burst: 60, Every: time.Second},
		address: counters.Rate{Burst: 300, Every: time.Second / 5},
	}
	writeQuota = quota{
		name:    "writes",
		user:    counters.Rate{Burst: 120, Every: 5 * time.Second},
		fresh:   counters.Rate{Burst: 40, Every: 15 * time.Second},
		address: counters.Rate{Burst: 1200, Every: time.Second / 2},
	}

	// Read marks and drafts, which front ends send by themselves while people read and write.
	noteQuota = quota{
		name:    "notes",
		user:    counters.Rate{Burst: 300, Every: time.Second},
		address: counters.Rate{Burst: 3000, Every: 100 * time.Millisecond},
	}

	uploadQuota = quota{
		name:    "uploads",
		user:    counters.Rate{Burst: 50, Every: 30 * time.Minute},
		fresh:   counters.Rate{Burst: 10, Every: 2 * time.Hour},
		address: counters.Rate{Burst: 300, Every: 5 * time.Minute},
	}

	// The time that decoding uploads takes, in units of decodingUnit: ten seconds at once, and then a tenth of a
	// processor for an account, and a fifth for an address.
	decodingQuota = quota{
		name:    "decoding",
		user:    counters.Rate{Burst: 100, Every: time.Second},
		address: counters.Rate{Burst: 150, Every: time.Second / 2},
	}

	// Edits of one post or comment, in addition to writeQuota. The oldest versions are deleted when there are too many,
	// and an author must not be able to push a version out within days.
	editQuota = quota{name: "edits", user: counters.Rate{Burst: 20, Every: time.Hour}}

	registerQuota = quota{name: "accounts", address: counters.Rate{Burst: 10, Every: 6 * time.Minute}}
	loginQuota    = quota{name: "logins", address: counters.Rate{Burst: 100, Every: 9 * time.Second}}
)

const (
	freshFor        = 24 * time.Hour // the age at which an account is no longer young
	moderatorFactor = 10
)

// routeLimit is what a request of a route is counted against. Every request also counts once against requestQuota.
type routeLimit struct {
	quota *quota // nil: none of its own
	// cost is how many requests of requestQuota the request counts as; 0 means 1. It weighs the work of the databases:
	// index reads for each row of a page, and rows of several tables. A cost above 1 makes the request expensive: it
	// runs in an admission.Share. What a list examined is charged in addition, by charge.
	cost int
	// searchable means that a request with ?q= counts against searchQuota.
	searchable bool
}

// The limits of routes, by name; routes.go assigns one to each.
var (
	limitNone = &routeLimit{} // not counted and never refused

	limitRead         = &routeLimit{searchable: true}
	limitReadList     = &routeLimit{searchable: true, cost: 2}
	limitReadComments = &routeLimit{searchable: true, cost: 3} // a list with the first replies
	limitReadLarge    = &routeLimit{searchable: true, cost: 5} // rows of many tables or authors
	limitReadTags     = &routeLimit{cost: 2}                   // ?q= reads an index alone

	limitWrite    = &routeLimit{quota: &writeQuota}
	limitNote     = &routeLimit{quota: &noteQuota} // it changes nothing that others see
	limitUpload   = &routeLimit{quota: &uploadQuota}
	limitPost     = &routeLimit{quota: &postQuota}
	limitComment  = &routeLimit{quota: &commentQuota}
	limitReport   = &routeLimit{quota: &reportQuota}
	limitPassword = &routeLimit{quota: &passwordQuota}
	limitLogin    = &routeLimit{quota: &loginQuota}
	limitRender   = &routeLimit{quota: &renderQuota, cost: 2} // and more by the length of the text

	// The handlers of these count by themselves.
	limitRegister = &routeLimit{cost: 1} // registerQuota, after the fields were validated
	limitLike     = &routeLimit{cost: 1} // spendLike, without a round trip
)

// Attempts at one password. An account allows more attempts than one address may make against it, so no single address
// can lock it out. If many addresses together exhaust them, users can still log in from addresses used before.
var (
	pairRate    = counters.Rate{Burst: 10, Every: 90 * time.Second} // of a login as typed, from an address
	accountRate = counters.Rate{Burst: 100, Every: 36 * time.Second}
	// knownMark is not a limit. It is spent once the account has logged in from an address.
	knownMark = counters.Rate{Burst: 1, Every: 30 * 24 * time.Hour}
)

// Units in which work is charged that is known when it is done, rounded down.
const (
	bytesPerRequest = 256 << 10 // bytes of an image that cost as much as a request

	examinedPerRequest = 500   // entries that cost as much as a request
	examinedPerSearch  = 5_000 // entries that cost as much as a search
)

// limits counts the actions of clients.
type limits struct {
	*counters.Limiter // nil: no limits
	factor            float64
	now               func() time.Time
}

// takeRequests raises the number of requests that c counts as from one number to another. The Limiter must not be nil.
func (s *Server) takeRequests(c *fiber.Ctx, from, to int) error {
	rate := requestQuota.address.Scale(s.limits.factor)
	// A cost above the burst could never be paid.
	taken := s.limits.TakeHere(requestKey(s.clientKey(c)), rate, min(to, rate.Burst)-from)
	if !taken.OK {
		return s.refuseOverLimit(c, requestQuota.name, rate, taken)
	}
	return nil
}

func requestKey(network string) string { return "requests:" + network }

// spend counts a request against the limit of its route and runs the rest of the chain. It runs after the session is
// known.
func (s *Server) spend(c *fiber.Ctx, limit *routeLimit) error {
	quota := limit.quota
	if limit.searchable && c.Context().QueryArgs().Has("q") {
		quota = &searchQuota
	}
	if quota != nil {
		if err := s.take(c, *quota); err != nil {
			return err
		}
	}
	if limit.cost <= 1 {
		return c.Next()
	}
	if s.limits.Limiter != nil {
		if err := s.takeRequests(c, 1, limit.cost); err != nil { // countRequest has taken one
			return err
		}
	}
	share := s.expensive
	if session := viewer(c); session != nil && session.Role >= models.RoleModerator {
		share = s.moderatorShare // a moderator may have to end what all others wait for
	}
	p := admission.NewPlace(share)
	defer p.Leave()
	c.Locals(placeKey, p)
	c.SetUserContext(db.WithEntrance(c.UserContext(), p.Enter))
	return c.Next()
}

// hasPlace reports whether the request has a place in an admission.Share.
func hasPlace(c *fiber.Ctx) bool {
	p, ok := c.Locals(placeKey).(*admission.Place)
	return ok && p.Has()
}

// charge counts the index entries that a list has examined against the quotas of its caller. It takes at most what is
// left: the work is done already, so the next request is refused instead of this one.
func (s *Server) charge(c *fiber.Ctx, examined int) {
	if s.limits.Limiter == nil || examined < examinedPerRequest {
		return
	}
	from := s.clientKey(c)
	rate := requestQuota.address.Scale(s.limits.factor)
	takeAtMost(examined/examinedPerRequest, func(n int) counters.Taken {
		return s.limits.TakeHere(requestKey(from), rate, n)
	})
	searches := examined / examinedPerSearch
	if searches == 0 || !c.Context().QueryArgs().Has("q") {
		return
	}
	session, factor := viewer(c), s.limits.factor
	take := func(key string, rate counters.Rate) {
		takeAtMost(searches, func(n int) counters.Taken { return s.limits.Take(c.UserContext(), key, rate, n) })
	}
	if session != nil && session.Role >= models.RoleModerator {
		factor *= moderatorFactor
	} else {
		take(searchQuota.name+"-by-address:"+from, searchQuota.address.Scale(factor))
	}
	if session != nil {
		take(counters.AccountLimit(session.UserID, searchQuota.name), searchQuota.user.Scale(factor))
	}
}

// chargeBytes counts the bytes of an image that is sent as further requests of its address.
func (s *Server) chargeBytes(c *fiber.Ctx, size int64) {
	if s.limits.Limiter == nil {
		return
	}
	from, rate := s.clientKey(c), requestQuota.address.Scale(s.limits.factor)
	takeAtMost(int(size/bytesPerRequest), func(n int) counters.Taken {
		return s.limits.TakeHere(requestKey(from), rate, n)
	})
}

// mayDecode returns CodeRateLimited if the viewer or its address has used up its time of decoding.
func (s *Server) mayDecode(c *fiber.Ctx) error {
	for _, part := range s.decodingParts(c) {
		if taken := s.limits.Take(c.UserContext(), part.key, part.rate, 1); !taken.OK {
			return s.refuseOverLimit(c, part.policy, part.rate, taken)
		}
	}
	return nil
}

// chargeDecoding counts time of decoding, in units of which mayDecode has taken one. It takes at most what is left.
func (s *Server) chargeDecoding(ctx context.Context, c *fiber.Ctx, units int) {
	for _, part := range s.decodingParts(c) {
		takeAtMost(units-1, func(n int) counters.Taken {
			return s.limits.Take(ctx, part.key, part.rate, n)
		})
	}
}

// limitPart is one rate of a quota.
type limitPart struct {
	policy, key string
	rate        counters.Rate
}

// decodingParts returns the rates that bound the viewer's decoding.
func (s *Server) decodingParts(c *fiber.Ctx) []limitPart {
	if s.limits.Limiter == nil {
		return nil
	}
	q, session, factor := decodingQuota, viewer(c), s.limits.factor
	account := counters.AccountLimit(session.UserID, q.name)
	if session.Role >= models.RoleModerator {
		return []limitPart{{q.name, account, q.user.Scale(factor * moderatorFactor)}}
	}
	policy := q.name + "-by-address"
	return []limitPart{{policy, policy + ":" + s.clientKey(c), q.address.Scale(factor)},
		{q.name, account, q.user.Scale(factor)}}
}

// takeAtMost takes n, or less if less is left.
func takeAtMost(n int, take func(n int) counters.Taken) {
	if n = min(n, take(0).Remaining); n > 0 {
		take(n)
	}
}

// take counts one action of the viewer. The address comes first: an exhausted address must not use up the quota of an
// account.
func (s *Server) take(c *fiber.Ctx, q quota) error {
	if s.limits.Limiter == nil {
		return nil
	}
	session, factor := viewer(c), s.limits.factor
	rate := q.user
	switch {
	case session == nil:
		rate = counters.Rate{}
	case session.Role >= models.RoleModerator:
		factor *= moderatorFactor
		q.address = counters.Rate{}
	case q.fresh.Burst > 0 && s.limits.now().Sub(session.Since) < freshFor:
		rate = q.fresh
	}
	if q.address.Burst > 0 {
		policy := q.name + "-by-address"
		if err := s.takeOne(c, policy, policy+":"+s.clientKey(c), q.address.Scale(factor)); err != nil {
			return err
		}
	}
	if rate.Burst > 0 {
		return s.takeOne(c, q.name, counters.AccountLimit(session.UserID, q.name), rate.Scale(factor))
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
	return s.takeOne(c, editQuota.name, target.String(), editQuota.user.Scale(factor))
}

// takeOne counts one action and sets the headers with the rest of the quota.
func (s *Server) takeOne(c *fiber.Ctx, policy, key string, rate counters.Rate) error {
	taken := s.limits.Take(c.UserContext(), key, rate, 1)
	if !taken.OK {
		return s.refuseOverLimit(c, policy, rate, taken)
	}
	setLimitHeaders(c, policy, rate, taken)
	return nil
}

// refuseOverLimit returns the error of a request over a limit.
func (s *Server) refuseOverLimit(c *fiber.Ctx, policy string, rate counters.Rate, taken counters.Taken) error {
	s.metrics.limited.WithLabelValues(policy).Inc()
	setLimitHeaders(c, policy, rate, taken)
	return &models.Error{Code: models.CodeRateLimited, RetryAfter: taken.RetryAfter, Message: messageOverLimit}
}

const messageOverLimit = "You have sent too many requests in a short time; try again later."

// setLimitHeaders sets the fields of draft-ietf-httpapi-ratelimit-headers-10: a policy has a quota of q in w seconds,
// of which r is left. All of it is available again after t seconds.
func setLimitHeaders(c *fiber.Ctx, policy string, rate counters.Rate, taken counters.Taken) {
	c.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=%d`, policy, rate.Burst, seconds(rate.Window())))
	c.Set("RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, policy, taken.Remaining, seconds(taken.ResetAfter)))
}

// seconds rounds up, so that no client retries too early.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// loginAttempt is an attempt at a password.
type loginAttempt struct {
	pair, known string
	// blocked reports whether the account was attempted too often, from any address and under any of its names. It is
	// answered like a wrong password: a different answer would leak which names and addresses belong to one account.
	blocked bool
}

// countLogin counts an attempt at the password of user, whom login names; id 0 stands for an unknown login. It returns
// CodeRateLimited if the login as typed was attempted too often from this address, whether it exists or not.
func (s *Server) countLogin(c *fiber.Ctx, user *models.User, login string) (loginAttempt, error) {
	if s.limits.Limiter == nil {
		return loginAttempt{}, nil
	}
	sum := sha256.Sum256([]byte(models.NormalizeLogin(login)))
	typed := "typed:" + hex.EncodeToString(sum[:16])
	limit := func(name string) string { return typed + "/" + name } // an unknown login costs the same work
	if user.ID != 0 {
		limit = func(name string) string { return counters.AccountLimit(user.ID, name) }
	}
	from := s.clientKey(c)
	t := loginAttempt{pair: typed + "/login:" + from, known: limit("known:" + from)}
	ctx := c.UserContext()
	rate := pairRate.Scale(s.limits.factor)
	if taken := s.limits.Take(ctx, t.pair, rate, 1); !taken.OK {
		return t, s.refuseOverLimit(c, "logins-of-account-by-address", rate, taken)
	}
	taken := s.limits.Take(ctx, limit("login"), accountRate.Scale(s.limits.factor), 1)
	t.blocked = !taken.OK && s.limits.Take(ctx, t.known, knownMark, 0).Remaining > 0
	if t.blocked {
		s.metrics.limited.WithLabelValues("logins-of-account").Inc()
	}
	return t, nil
}

// loginSucceeded resets the count of the pair and marks the address as known.
func (s *Server) loginSucceeded(ctx context.Context, t loginAttempt) {
	if s.limits.Limiter != nil {
		s.limits.Forget(ctx, t.pair)
		s.limits.Forget(ctx, t.known) // otherwise the existing mark would not be renewed
		s.limits.Take(ctx, t.known, knownMark, 1)
	}
}
