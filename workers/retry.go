package workers

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sethvargo/go-retry"
)

// The pauses between two attempts at a server that does not answer.
const (
	retryFirst = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

// backOff returns pauses that double from first to most and never end, each with jitter.
func backOff(first, limit time.Duration) retry.Backoff {
	doubled := retry.WithCappedDuration(limit, retry.NewExponential(first))
	return retry.BackoffFunc(func() (next time.Duration, stop bool) {
		next, stop = doubled.Next()
		return jitter(next), stop
	})
}

// pause waits for d, with jitter. It reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	return wait(ctx, jitter(d))
}

// wait waits for d. If ctx ends first, wait reports false.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jitter returns a random duration from half of d to d, so that processes that failed together do not retry together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
