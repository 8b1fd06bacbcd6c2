package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/valyala/fasthttp"

	"likewise/counters"
	"likewise/models"
)

// Quota bounds one kind of action. Without a rate it bounds nothing.
type Quota struct {
	Name    string        // in RateLimit headers, metrics and keys
	User    counters.Rate // of an account
	Fresh   counters.Rate // of an account younger than freshFor, in place of User
	Address counters.Rate // of an address: all its accounts, and its anonymous requests
}

// The quotas. Those of accounts bind first. An address has room for many people, because schools and offices share one.
// Moderators have moderatorFactor times the quota of other accounts, and no quota by address.
var (
	// Every request of /v1, counted in each process alone: answers from memory must not wait for Redis. 50 a second.
	requestQuota = Quota{Name: "requests", Address: counters.Rate{Burst: 1000, Every: 20 * time.Millisecond}}

	SearchQuota = Quota{
		Name:    "search",
		User:    counters.Rate{Burst: 30, Every: 2 * time.Second},
		Address: counters.Rate{Burst: 100, Every: time.Second / 2},
	}
	PostQuota = Quota{
		Name:    "posts",
		User:    counters.Rate{Burst: 10, Every: 2 * time.Minute},
		Fresh:   counters.Rate{Burst: 3, Every: 10 * time.Minute},
		Address: counters.Rate{Burst: 100, Every: 12 * time.Second},
	}
	CommentQuota = Quota{
		Name:    "comments",
		User:    counters.Rate{Burst: 30, Every: 20 * time.Second},
		Fresh:   counters.Rate{Burst: 10, Every: time.Minute},
		Address: counters.Rate{Burst: 300, Every: 2 * time.Second},
	}
	ReportQuota = Quota{
		Name:    "reports",
		User:    counters.Rate{Burst: 10, Every: 2 * time.Minute},
		Fresh:   counters.Rate{Burst: 5, Every: 10 * time.Minute},
		Address: counters.Rate{Burst: 100, Every: 12 * time.Second},
	}
	PasswordQuota = Quota{
		Name:    "passwords",
		User:    counters.Rate{Burst: 10, Every: 90 * time.Second},
		Address: counters.Rate{Burst: 100, Every: 9 * time.Second},
	}
	RenderQuota = Quota{
		Name:    "previews",
		User:    counters.Rate{Burst: 60, Every: time.Second},
		Address: counters.Rate{Burst: 300, Every: time.Second / 5},
	}
	WriteQuota = Quota{
		Name:    "writes",
		User:    counters.Rate{Burst: 120, Every: 5 * time.Second},
		Fresh:   counters.Rate{Burst: 40, Every: 15 * time.Second},
		Address: counters.Rate{Burst: 1200, Every: time.Second / 2},
	}

	// NoteQuota bounds read marks and drafts, which front ends send by themselves while people read and write.
	NoteQuota = Quota{
		Name:    "notes",
		User:    counters.Rate{Burst: 300, Every: time.Second},
		Address: counters.Rate{Burst: 3000, Every: 100 * time.Millisecond},
	}

	UploadQuota = Quota{
		Name:    "uploads",
		User:    counters.Rate{Burst: 50, Every: 30 * time.Minute},
		Fresh:   counters.Rate{Burst: 10, Every: 2 * time.Hour},
		Address: counters.Rate{Burst: 300, Every: 5 * time.Minute},
	}

	// The time that decoding uploads takes, in units of decodingUnit: ten seconds at once, and then a tenth of a
	// processor for an account, and a fifth for an address.
	decodingQuota = Quota{
		Name:    "decoding",
		User:    counters.Rate{Burst: 100, Every: time.Second},
		Address: counters.Rate{Burst: 150, Every: time.Second / 2},
	}

	// Edits of one post or comment, in addition to WriteQuota. The oldest versions are deleted when there are too many,
	// and an author must not be able to push a version out within days.
	editQuota = Quota{Name: "edits", User: counters.Rate{Burst: 20, Every: time.Hour}}

	RegisterQuota = Quota{Name: "accounts", Address: counters.Rate{Burst: 10, Every: 6 * time.Minute}}
	// MailQuota bounds what sends a mail to an address that the client names. Each recipient has a rate, too.
	MailQuota  = Quota{Name: "mails", Address: counters.Rate{Burst: 5, Every: 12 * time.Minute}}
	LoginQuota = Quota{Name: "logins", Address: counters.Rate{Burst: 100, Every: 9 * time.Second}}
)

const (
	freshFor        = 24 * time.Hour // accounts younger than this are new
	moderatorFactor = 10
)

// Units in which work is charged that is known when it is done. All but decodingUnit are rounded down.
const (
	bytesPerRequest = 256 << 10 // bytes of an image that cost as much as a request
	decodingUnit    = 100 * time.Millisecond

	examinedPerRequest = 500   // entries that cost as much as a request
	examinedPerSearch  = 5_000 // entries that cost as much as a search
)

// Client is who sends a request, as far as it is counted.
type Client struct {
	Address   string    // as network.Key returns it
	Account   int64     // 0 for the anonymous
	Since     time.Time // when the account was registered
	Moderator bool      // or a higher role
	// Answer gets the RateLimit fields of what is counted last.
	Answer *fasthttp.ResponseHeader
}

// Rates counts the actions of clients. Its methods return CodeRateLimited over a rate.
type Rates struct {
	limiter *counters.Limiter // nil: no rates
	factor  float64
	now     func() time.Time
	refused func(policy string)
	likes   likeLimits
}

// RatesConfig holds the settings of Rates.
type RatesConfig struct {
	Limiter *counters.Limiter // nil: nothing is counted, or refused
	Factor  float64           // of all rates
	Now     func() time.Time
	// LikesPerMinute bounds the likes and unlikes of an account; 0 means DefaultLikesPerMinute.
	LikesPerMinute int
	Refused        func(policy string) // is called for each refused action
}

// NewRates returns the rates of a process.
func NewRates(c RatesConfig) (*Rates, error) {
	likes, err := newLikeLimits(c.LikesPerMinute)
	if err != nil {
		return nil, err
	}
	return &Rates{limiter: c.Limiter, factor: c.Factor, now: c.Now, refused: c.Refused, likes: likes}, nil
}

// Request counts a request against its address, before any other work.
func (r *Rates) Request(from Client) error { return r.requests(from, 0, 1) }

// Weigh raises the number of requests that a request counts as from one number to another.
func (r *Rates) Weigh(from Client, old, cost int) error { return r.requests(from, old, cost) }

func (r *Rates) requests(from Client, old, cost int) error {
	if r.limiter == nil {
		return nil
	}
	rate := requestQuota.Address.Scale(r.factor)
	// A cost above the burst could never be paid.
	taken := r.limiter.TakeHere(requestKey(from.Address), rate, min(cost, rate.Burst)-old)
	if !taken.OK {
		return r.refuse(from, requestQuota.Name, rate, taken)
	}
	return nil
}

func requestKey(address string) string { return "requests:" + address }

// Charge counts the index entries that a list has examined against the quotas of its client, those of a search also
// against SearchQuota. It takes at most what is left: the work is done already, so the next request is refused instead
// of this one.
func (r *Rates) Charge(ctx context.Context, from Client, examined int, search bool) {
	if r.limiter == nil || examined < examinedPerRequest {
		return
	}
	r.chargeRequests(from, examined/examinedPerRequest)
	searches := examined / examinedPerSearch
	if searches == 0 || !search {
		return
	}
	for _, part := range r.parts(from, SearchQuota) {
		takeAtMost(searches, func(n int) counters.Taken { return r.limiter.Take(ctx, part.key, part.rate, n) })
	}
}

// ChargeBytes counts the bytes of an image that is sent as further requests of its address.
func (r *Rates) ChargeBytes(from Client, size int64) {
	r.chargeRequests(from, int(size/bytesPerRequest))
}

func (r *Rates) chargeRequests(from Client, n int) {
	if r.limiter == nil {
		return
	}
	rate := requestQuota.Address.Scale(r.factor)
	takeAtMost(n, func(n int) counters.Taken {
		return r.limiter.TakeHere(requestKey(from.Address), rate, n)
	})
}

// MayDecode returns CodeRateLimited if the account or its address has used up its time of decoding.
func (r *Rates) MayDecode(ctx context.Context, from Client) error {
	for _, part := range r.parts(from, decodingQuota) {
		if taken := r.limiter.Take(ctx, part.key, part.rate, 1); !taken.OK {
			return r.refuse(from, part.policy, part.rate, taken)
		}
	}
	return nil
}

// ChargeDecoding counts time of decoding, of which MayDecode has taken one unit. It takes at most what is left.
func (r *Rates) ChargeDecoding(ctx context.Context, from Client, took time.Duration) {
	units := int((took + decodingUnit - 1) / decodingUnit)
	for _, part := range r.parts(from, decodingQuota) {
		takeAtMost(units-1, func(n int) counters.Taken { return r.limiter.Take(ctx, part.key, part.rate, n) })
	}
}

// takeAtMost takes n, or less if less is left.
func takeAtMost(n int, take func(n int) counters.Taken) {
	if n = min(n, take(0).Remaining); n > 0 {
		take(n)
	}
}

// part is one rate of a quota.
type part struct {
	policy, key string
	rate        counters.Rate
}

// parts returns the rates of a quota that bind a client. The address comes first: an exhausted address must not use up
// the quota of an account.
func (r *Rates) parts(from Client, q Quota) (parts []part) {
	if r.limiter == nil {
		return nil
	}
	rate, factor := q.User, r.factor
	switch {
	case from.Account == 0:
		rate = counters.Rate{}
	case from.Moderator:
		factor *= moderatorFactor
		q.Address = counters.Rate{}
	case q.Fresh.Burst > 0 && r.now().Sub(from.Since) < freshFor:
		rate = q.Fresh
	}
	if q.Address.Burst > 0 {
		policy := q.Name + "-by-address"
		parts = append(parts, part{policy, policy + ":" + from.Address, q.Address.Scale(factor)})
	}
	if rate.Burst > 0 {
		parts = append(parts, part{q.Name, counters.AccountLimit(from.Account, q.Name), rate.Scale(factor)})
	}
	return parts
}

// Take counts one action.
func (r *Rates) Take(ctx context.Context, from Client, q Quota) error {
	for _, part := range r.parts(from, q) {
		if err := r.take(ctx, from, part); err != nil {
			return err
		}
	}
	return nil
}

// recipientRate bounds the mails to one address that anybody can cause: three an hour.
var recipientRate = counters.Rate{Burst: 3, Every: 20 * time.Minute}

// TakeMail counts a mail to an address that the client names, whether it is known here or not.
func (r *Rates) TakeMail(ctx context.Context, from Client, address string) error {
	if r.limiter == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(models.NormalizeLogin(address)))
	return r.take(ctx, from, part{
		"mails-to-address", "mails-to:" + hex.EncodeToString(sum[:16]), recipientRate.Scale(r.factor),
	})
}

// TakeEdit counts one edit of a post or comment.
func (r *Rates) TakeEdit(ctx context.Context, from Client, target models.Target) error {
	for _, part := range r.parts(from, editQuota) {
		part.key = target.String()
		if err := r.take(ctx, from, part); err != nil {
			return err
		}
	}
	return nil
}

// take counts one action and sets the fields with the rest of the rate.
func (r *Rates) take(ctx context.Context, from Client, p part) error {
	taken := r.limiter.Take(ctx, p.key, p.rate, 1)
	if !taken.OK {
		return r.refuse(from, p.policy, p.rate, taken)
	}
	SetLimit(from.Answer, p.policy, p.rate, taken)
	return nil
}

// refuse returns the error of an action over a rate.
func (r *Rates) refuse(from Client, policy string, rate counters.Rate, taken counters.Taken) error {
	r.refused(policy)
	SetLimit(from.Answer, policy, rate, taken)
	return &models.Error{Code: models.CodeRateLimited, RetryAfter: taken.RetryAfter,
		Message: "You have sent too many requests in a short time; try again later."}
}

// SetLimit sets the fields of draft-ietf-httpapi-ratelimit-headers-10: a policy has a quota of q in w seconds, of which
// r is left. All of it is available again after t seconds.
func SetLimit(answer *fasthttp.ResponseHeader, policy string, rate counters.Rate, taken counters.Taken) {
	answer.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=%d`, policy, rate.Burst, Seconds(rate.Window())))
	answer.Set("RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, policy, taken.Remaining, Seconds(taken.ResetAfter)))
}

// Seconds rounds up, so that no client retries too early.
func Seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }
