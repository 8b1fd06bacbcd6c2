package counters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"likewise/models/db"
)

// Lock is a lock in Redis, which one process of a site holds at a time. The relay of a shard, the load of a target and
// the run of a cron job have one each. A Lock is used by one goroutine at a time.
//
// The rules:
//
//   - The value of the key is a token of the holder. Scripts compare it before they extend or delete the key (hold.lua,
//     unlock.lua). So nobody releases the lock of another process after its own has expired.
//   - The key expires, so that a holder that dies blocks the others for no longer than the ttl. While renews it as long
//     as the work runs, so that work may take longer than the ttl.
//   - The clock of Redis may be set back. A lock with more than a minute left is free, so that one whose holder died
//     lasts for a minute at most.
//   - When the lock is lost, or cannot be renewed in time, the context of the work ends. The work stops.
//   - A lock is acquired before a transaction, and never inside one: there it would be released before the COMMIT, and
//     the rows would stay locked while it is waited for. Acquire returns ErrInTransaction.
//   - There is one key for each shard, target or job. Work on different ones does not wait.
//   - A process that waits for a lock does so for a bounded time, with jitter.
//
// None of this is enough for a write to be correct. A holder may be paused for longer than the ttl at any instruction,
// and a Redis that fails over or loses its memory forgets its locks. So whatever is written under a lock is compared
// with a number or a token where it is written:
//
//   - In Redis, the scripts that write for a holder compare the token in the same step (trim, seal, opened, forget,
//     lock, place, put, load, warm, warm_drop). The token of a load is also the name of what it writes.
//   - In Kafka and for the like writer, each run has a position. Its epoch is the relay's fencing number: MySQL issues
//     it, and drops the runs of an earlier one.
//   - In MySQL, the transactions of a cron job have a fencing number (db.WithFence).
//
// Both numbers come from MySQL. A number from Redis would begin again when Redis has lost its memory, and so admit the
// paused holder and reject the present one.
type Lock struct {
	redis *Redis
	key   string
	token string
	ttl   time.Duration
	since time.Time // when the last successful attempt to acquire or to renew the lock was sent
}

// Errors of locks.
var (
	// ErrLockLost means that a lock expired or has another holder.
	ErrLockLost = errors.New("the lock is lost")
	// ErrInTransaction means that a lock was to be acquired inside a transaction of MySQL, which is a bug.
	ErrInTransaction = errors.New("a lock is acquired inside a transaction")
)

// lock returns a lock that is not held yet. The token is unique to the holder. A holder that uses one token again holds
// the lock at once if Redis was down when it should have been released.
func (r *Redis) lock(key, token string) Lock { return Lock{redis: r, key: key, token: token} }

// JobLock returns the lock of a cron job, which is not held yet.
func (r *Redis) JobLock(job, token string) *Lock {
	l := r.lock(jobKey(job), token)
	return &l
}

// Acquire acquires the lock for ttl. If another process holds it, Acquire tries again until wait is over, and then
// returns ErrLockLost.
func (l *Lock) Acquire(ctx context.Context, ttl, wait time.Duration) error {
	if db.InTransaction(ctx) {
		return fmt.Errorf("%w: %s", ErrInTransaction, l.key)
	}
	end := time.Now().Add(wait)
	for {
		err := l.hold(ctx, ttl, true)
		left := time.Until(end)
		if !errors.Is(err, ErrLockLost) || left <= 0 {
			return err
		}
		select {
		case <-time.After(min(left, ttl/20+rand.N(ttl/20+1))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Renew extends the lock by ttl from now. If the lock has expired, Renew returns ErrLockLost.
func (l *Lock) Renew(ctx context.Context, ttl time.Duration) error { return l.hold(ctx, ttl, false) }

func (l *Lock) hold(ctx context.Context, ttl time.Duration, take bool) error {
	sent := time.Now()
	held, err := l.redis.run(ctx, "hold", []string{l.key}, l.token, ttl.Milliseconds(), take).Int()
	if err != nil {
		return fmt.Errorf("lock %s: %w", l.key, err)
	}
	if held == 0 {
		return ErrLockLost
	}
	l.ttl, l.since = ttl, sent
	return nil
}

// Release releases the lock. A lock that is already lost is not an error.
func (l *Lock) Release(ctx context.Context) error {
	if err := l.redis.run(ctx, "unlock", []string{l.key}, l.token).Err(); err != nil {
		return fmt.Errorf("release lock %s: %w", l.key, err)
	}
	return nil
}

// releaseIn adds the release to a pipeline. The keys in with are removed with the lock, if this process holds it.
func (l *Lock) releaseIn(ctx context.Context, p pipe, with ...string) {
	p.script(ctx, "unlock", append([]string{l.key}, with...), l.token)
}

// releaseLimit is how long a release may take after the work.
const releaseLimit = time.Second

// While runs work under a lock that was acquired, renews the lock meanwhile, and releases it. The context of the work
// ends when the lock is lost, or could not be renewed for two thirds of its ttl. Then While returns ErrLockLost,
// whatever work returns.
func (l *Lock) While(ctx context.Context, work func(ctx context.Context) error) (err error) {
	held, lose := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { lose(l.keep(held)) })
	defer func() {
		if cause := context.Cause(held); cause != nil && ctx.Err() == nil {
			err = cause
		}
		lose(nil)
		renewing.Wait()
		releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		if released := l.Release(releasing); released != nil && err == nil {
			err = released
		}
	}()
	return work(held)
}

// keep renews the lock until ctx ends. If that fails until the lock may soon expire, keep returns an error. All times
// are those of this process, and begin when a renewal is sent, so that they end before the key expires.
func (l *Lock) keep(ctx context.Context) error {
	ttl := l.ttl
	for {
		if !waitUntil(ctx, l.since.Add(ttl/3)) {
			return nil
		}
		deadline := l.since.Add(2 * ttl / 3)
		for {
			renewing, cancel := context.WithDeadline(ctx, deadline)
			err := l.Renew(renewing, ttl)
			cancel()
			if err == nil || ctx.Err() != nil {
				break
			}
			if errors.Is(err, ErrLockLost) {
				return err
			}
			if again := time.Now().Add(ttl / 20); again.After(deadline) {
				return fmt.Errorf("%w: %w", ErrLockLost, err)
			}
			if !waitUntil(ctx, time.Now().Add(ttl/20)) {
				return nil
			}
		}
	}
}

// waitUntil reports false if ctx ends before the time has come.
func waitUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
