package counters

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/redis/go-redis/v9"
)

// Rate admits Burst actions at once, and one more each Every. The zero Rate admits none.
type Rate struct {
	Burst int
	Every time.Duration
}

// Window returns the time in which an exhausted burst is refilled.
func (r Rate) Window() time.Duration { return time.Duration(r.Burst) * r.Every }

// Taken is the reply of a Limiter.
type Taken struct {
	OK         bool
	Remaining  int           // actions that would be admitted now
	RetryAfter time.Duration // until the requested actions would be admitted; 0 if OK
	ResetAfter time.Duration // until the burst is refilled
}

// Limiter limits rates by the generic cell rate algorithm. For each key it stores one time, at which the key's burst is
// refilled. With Redis, all processes count together. While Redis does not answer, each process counts by itself and
// starts with full bursts. So an outage of Redis neither refuses requests nor removes limits. A Limiter is safe for
// concurrent use.
//
// A key is the name of a limit. If the limit has an owner, the key starts with the owner and a slash: see AccountLimit.
// Redis stores the limits of an owner in one key, so that Redis.ForgetAccount removes all limits of an account.
//
// A Limiter has its own connections and its own breaker, so that a slow Redis neither delays requests at their limits
// nor opens the breaker of the gate.
type Limiter struct {
	client redis.UniversalClient // nil if each process counts by itself
	take   *redis.Script
	tats   *otter.Cache[string, time.Time] // theoretical arrival times, as GCRA calls them
	now    func() time.Time
	alone  func()
	wait   time.Duration // for a reply of Redis

	mu      sync.Mutex
	waiting []*taking
	running bool // run is
}

// taking is a call of Take that waits for Redis.
type taking struct {
	key    string
	args   [takingArgs]any
	reply  chan Taken
	failed chan struct{}
	left   atomic.Bool // the caller waits no more
}

const (
	limitConnections = 8
	takingArgs       = 4       // of the script for each call, and the numbers of its reply
	maxTakings       = 128     // in a round trip: 1 ms of Redis
	maxLimitKeys     = 100_000 // in this process; about 15 MB
)

// DefaultLimitWait is how long a Limiter waits for Redis before it counts by itself.
const DefaultLimitWait = 100 * time.Millisecond

// OpenLimiter returns a Limiter on the Redis at url, which has one of the forms of Open. If url is empty, the Limiter
// counts in this process. OpenLimiter does not connect. If Redis does not reply within wait, the Limiter counts the
// call in this process, and calls alone if it is not nil.
func OpenLimiter(url string, wait time.Duration, alone func(), options ...Option) (*Limiter, error) {
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
	if l.client, err = connect(url, connection{pool: limitConnections, timeout: wait}, options); err != nil {
		return nil, err
	}
	if item, ok := l.client.(*redis.Client); ok {
		item.AddHook(newBreaker())
	}
	source, err := luaFiles.ReadFile("lua/take.lua")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read scripts: %w", err), l.client.Close())
	}
	l.take = redis.NewScript(heads["take"] + string(source))
	return l, nil
}

// Take counts n actions against the limit key if it admits them. If n is 0, Take only reads the limit.
func (l *Limiter) Take(ctx context.Context, key string, rate Rate, n int) Taken {
	if rate.Burst < 1 || rate.Every <= 0 {
		return Taken{RetryAfter: time.Hour}
	}
	if l.client == nil {
		return l.TakeHere(key, rate, n)
	}
	owner, limit := splitLimit(key)
	every := max(time.Microsecond, rate.Every) // the unit of the script
	t := &taking{
		key:   limitsKey(owner),
		args:  [takingArgs]any{limit, rate.Burst, every.Microseconds(), n},
		reply: make(chan Taken, 1), failed: make(chan struct{}),
	}
	l.queue(t) //nolint:contextcheck // a round trip belongs to many callers
	timeout := time.NewTimer(l.wait)
	defer timeout.Stop()
	select {
	case taken := <-t.reply:
		return taken
	case <-t.failed:
	case <-ctx.Done():
	case <-timeout.C:
	}
	t.left.Store(true)
	l.alone()
	return l.TakeHere(key, rate, n)
}

// queue adds a call to those of the next round trip. One is under way at a time, so that calls of a crowd share it.
func (l *Limiter) queue(t *taking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, t)
	if !l.running {
		l.running = true
		go l.run()
	}
}

func (l *Limiter) run() {
	for {
		l.mu.Lock()
		n := min(len(l.waiting), maxTakings)
		if n == 0 {
			l.waiting, l.running = nil, false
			l.mu.Unlock()
			return
		}
		batch := l.waiting[:n:n]
		l.waiting = l.waiting[n:]
		l.mu.Unlock()
		batch = slices.DeleteFunc(batch, func(t *taking) bool { return t.left.Load() })
		l.takeTogether(batch)
	}
}

// takeTogether answers calls in one round trip, or in two if Redis has forgotten the script. One script takes all of
// them, except in a cluster, where the keys of a script belong to one slot.
func (l *Limiter) takeTogether(batch []*taking) {
	ctx, cancel := context.WithTimeout(context.Background(), l.wait)
	defer cancel()
	together := max(1, len(batch))
	if _, cluster := l.client.(*redis.ClusterClient); cluster {
		together = 1
	}
	for _, command := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{
		l.take.EvalSha, l.take.Eval,
	} {
		var calls [][]*taking
		for chunk := range slices.Chunk(batch, together) {
			calls = append(calls, chunk)
		}
		replies := make([]*redis.Cmd, len(calls))
		_, _ = l.client.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its error
			for i, call := range calls {
				keys, args := make([]string, 0, len(call)), make([]any, 0, takingArgs*len(call))
				for _, t := range call {
					keys, args = append(keys, t.key), append(args, t.args[:]...)
				}
				replies[i] = command(ctx, p, keys, args...)
			}
			return nil
		})
		batch = nil
		for i, call := range calls {
			if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
				batch = append(batch, call...)
				continue
			}
			answerTakings(call, replies[i])
		}
		if len(batch) == 0 {
			return
		}
	}
	for _, t := range batch {
		close(t.failed)
	}
}

// answerTakings answers the calls that a script has taken.
func answerTakings(call []*taking, reply *redis.Cmd) {
	numbers, err := reply.Int64Slice()
	for i, t := range call {
		if err != nil || len(numbers) != takingArgs*len(call) {
			close(t.failed)
			continue
		}
		result := numbers[takingArgs*i:]
		if result[0] < 0 {
			close(t.failed)
			continue
		}
		t.reply <- Taken{
			OK:         result[0] == 1,
			Remaining:  int(result[1]),
			RetryAfter: time.Duration(result[2]) * time.Microsecond,
			ResetAfter: time.Duration(result[3]) * time.Microsecond,
		}
	}
}

// TakeHere is Take without Redis: it counts actions in this process.
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

// Forget refills the burst of a key.
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

// splitLimit returns the owner and the name of a limit. A limit without an owner is its own owner.
func splitLimit(key string) (owner, limit string) {
	owner, limit, _ = strings.Cut(key, "/")
	return owner, limit
}

// ForgetAccount removes the limits of an account, its failed logins and the networks of its successful logins. A
// process that still caches a session of the account may write some of them again.
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
