package counters

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-redis/redis_rate/v10"
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
// Its connections are its own, and so is its breaker: a Redis that is merely slow must neither hold up every request for
// a limit's sake, nor close the gate.
type Limiter struct {
	client redis.UniversalClient // nil: each process for itself
	redis  *redis_rate.Limiter
	tats   *otter.Cache[string, time.Time] // theoretical arrival times, as GCRA calls them
	now    func() time.Time
	alone  func()
}

const (
	limitTimeout     = 100 * time.Millisecond // for an answer of Redis
	limitConnections = 32
	maxLimitKeys     = 100_000 // in this process; about 15 MB
)

// OpenLimiter makes a Limiter on the Redis at url, in the forms that Open takes, or for this process alone if url is
// empty. It does not connect. Alone, if not nil, is called each time when Redis should have counted and did not.
func OpenLimiter(url string, alone func()) (*Limiter, error) {
	tats, err := otter.New(&otter.Options[string, time.Time]{MaximumSize: maxLimitKeys})
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	l := &Limiter{tats: tats, now: time.Now, alone: alone}
	if alone == nil {
		l.alone = func() {}
	}
	if url == "" {
		return l, nil
	}
	setPoolLog()
	if l.client, err = connect(url, connection{pool: limitConnections, timeout: limitTimeout}); err != nil {
		return nil, err
	}
	if one, ok := l.client.(*redis.Client); ok {
		one.AddHook(newBreaker())
	}
	l.redis = redis_rate.NewLimiter(l.client)
	return l, nil
}

// Take asks whether n may pass under key, and counts them if they may. With n=0 it only looks.
func (l *Limiter) Take(ctx context.Context, key string, rate Rate, n int) Taken {
	if rate.Burst < 1 || rate.Every <= 0 {
		return Taken{RetryAfter: time.Hour}
	}
	if l.redis == nil {
		return l.TakeHere(key, rate, n)
	}
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	result, err := l.redis.AllowN(ctx, key, redis_rate.Limit{Rate: 1, Period: rate.Every, Burst: rate.Burst}, n)
	if err != nil {
		l.alone()
		return l.TakeHere(key, rate, n)
	}
	return Taken{
		OK: result.RetryAfter < 0, Remaining: result.Remaining,
		RetryAfter: max(result.RetryAfter, 0), ResetAfter: result.ResetAfter,
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
	if l.redis == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	if err := l.redis.Reset(ctx, key); err != nil {
		l.alone()
	}
}

// Close closes the connections.
func (l *Limiter) Close() error {
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}

// Scale gives the rate times factor: more at once, and more often. A burst never becomes less than 1.
func (r Rate) Scale(factor float64) Rate {
	if r.Burst == 0 {
		return r
	}
	return Rate{Burst: int(max(1, math.Round(float64(r.Burst)*factor))), Every: max(1, time.Duration(float64(r.Every)/factor))}
}
