package counters

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/redis/go-redis/v9"
)

// Rate lets Burst pass at once, and one more each Every. The zero Rate lets nothing pass.
type Rate struct {
	Burst int
	Every time.Duration
}

// Window is how long it takes until all of a spent burst is there again.
func (r Rate) Window() time.Duration { return time.Duration(r.Burst) * r.Every }

// Taken is what came of asking a Limiter.
type Taken struct {
	OK         bool
	Remaining  int           // what could pass now
	RetryAfter time.Duration // until as much as was asked for can pass; 0 with OK
	ResetAfter time.Duration // until all of the burst is there again
}

// Limiter counts by the generic cell rate algorithm: of each key it keeps one time, that at which the key's burst is
// whole again. With Redis all processes count together. While Redis does not answer, each counts for itself, beginning
// with whole bursts: nothing is refused because Redis is away, and nothing is unlimited. It is safe for concurrent use.
//
// A key is the name of a limit, with its owner and a slash in front if it has one: see AccountLimit. Redis keeps the
// limits of one owner in one key, so that Redis.ForgetAccount removes all that it holds about an account.
//
// Its connections are its own, and so is its breaker: a Redis that is merely slow must neither hold up every request
// for a limit's sake, nor close the gate.
type Limiter struct {
	client redis.UniversalClient // nil: each process for itself
	take   *redis.Script
	tats   *otter.Cache[string, time.Time] // theoretical arrival times, as GCRA calls them
	now    func() time.Time
	alone  func()
	wait   time.Duration // for an answer of Redis
}

const (
	limitWait        = 100 * time.Millisecond
	limitConnections = 32
	maxLimitKeys     = 100_000 // in this process; about 15 MB
)

// OpenLimiter makes a Limiter on the Redis at url, in the forms that Open takes, or for this process alone if url is
// empty. It does not connect. Alone, if not nil, is called each time when Redis should have counted and did not.
func OpenLimiter(url string, alone func()) (*Limiter, error) {
	return openLimiter(url, alone, limitWait)
}

func openLimiter(url string, alone func(), wait time.Duration) (*Limiter, error) {
	tats, err := otter.New(&otter.Options[string, time.Time]{MaximumSize: maxLimitKeys})
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	l := &Limiter{tats: tats, now: time.Now, alone: alone, wait: wait}
	if alone == nil {
		l.alone = func() {}
	}
	if url == "" {
		return l, nil
	}
	setPoolLog()
	if l.client, err = connect(url, connection{pool: limitConnections, timeout: wait}); err != nil {
		return nil, err
	}
	if one, ok := l.client.(*redis.Client); ok {
		one.AddHook(newBreaker())
	}
	source, err := luaFiles.ReadFile("lua/take.lua")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read scripts: %w", err), l.client.Close())
	}
	l.take = redis.NewScript(string(source))
	return l, nil
}

// Take asks whether n may pass under key, and counts them if they may. With n=0 it only looks.
func (l *Limiter) Take(ctx context.Context, key string, rate Rate, n int) Taken {
	if rate.Burst < 1 || rate.Every <= 0 {
		return Taken{RetryAfter: time.Hour}
	}
	if l.client == nil {
		return l.TakeHere(key, rate, n)
	}
	ctx, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	owner, limit := splitLimit(key)
	every := max(time.Microsecond, rate.Every) // the unit of the script
	result, err := l.take.Run(ctx, l.client, []string{limitsKey(owner)}, limit, rate.Burst, every.Microseconds(), n).
		Int64Slice()
	if err != nil || len(result) != 4 {
		l.alone()
		return l.TakeHere(key, rate, n)
	}
	return Taken{
		OK:         result[0] == 1,
		Remaining:  int(result[1]),
		RetryAfter: time.Duration(result[2]) * time.Microsecond,
		ResetAfter: time.Duration(result[3]) * time.Microsecond,
	}
}

// TakeHere is Take without Redis: it counts what passes in this process.
func (l *Limiter) TakeHere(key string, rate Rate, n int) Taken {
	var taken Taken
	l.tats.Compute(key, func(tat time.Time, _ bool) (time.Time, otter.ComputeOp) {
		now := l.now()
		if tat.Before(now) {
			tat = now
		}
		after := tat.Add(time.Duration(n) * rate.Every)
		room := rate.Window() - after.Sub(now)
		if room < 0 {
			taken = Taken{RetryAfter: -room, ResetAfter: tat.Sub(now)}
			return tat, otter.CancelOp
		}
		taken = Taken{OK: true, Remaining: int(room / rate.Every), ResetAfter: after.Sub(now)}
		if n == 0 {
			return tat, otter.CancelOp
		}
		return after, otter.WriteOp
	})
	return taken
}

// Forget makes the burst of a key whole again.
func (l *Limiter) Forget(ctx context.Context, key string) {
	l.tats.Invalidate(key)
	if l.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	owner, limit := splitLimit(key)
	if err := l.client.ZRem(ctx, limitsKey(owner), limit).Err(); err != nil {
		l.alone()
	}
}

// AccountLimit returns the key of a limit of an account.
func AccountLimit(userID int64, limit string) string { return accountOwner(userID) + "/" + limit }

func accountOwner(userID int64) string { return "account:" + strconv.FormatInt(userID, 10) }

// splitLimit returns the owner of a limit and its name. A limit without an owner owns itself.
func splitLimit(key string) (owner, limit string) {
	owner, limit, _ = strings.Cut(key, "/")
	return owner, limit
}

// ForgetAccount removes what Limiters keep about an account: its limits, its tries of passwords and the networks from
// which it has logged in. Processes that still believe a session of the account may write some of it again.
func (r *Redis) ForgetAccount(ctx context.Context, userID int64) error {
	if err := r.client.Unlink(ctx, limitsKey(accountOwner(userID))).Err(); err != nil {
		return fmt.Errorf("forget limits of user %d: %w", userID, err)
	}
	return nil
}

// Close closes the connections.
func (l *Limiter) Close() error {
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}

// Scale returns the rate times factor: a larger burst, and a shorter interval. A burst is at least 1.
func (r Rate) Scale(factor float64) Rate {
	if r.Burst == 0 {
		return r
	}
	return Rate{
		Burst: int(max(1, math.Round(float64(r.Burst)*factor))),
		Every: max(1, time.Duration(float64(r.Every)/factor)),
	}
}
