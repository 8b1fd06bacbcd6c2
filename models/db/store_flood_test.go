package db_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
)

// floodFor is how long a flood lasts; 0: until every writer has written a few times between any two acts.
var floodFor = flag.Duration("flood", 0, "how long a flood of writers lasts, such as 10s; see `make flood`")

// retries counts what a store reports to Options.Retried.
type retries struct {
	deadlock, lockWait, changed atomic.Int64
}

func (r *retries) count(cause db.RetryCause) {
	switch cause {
	case db.RetryDeadlock:
		r.deadlock.Add(1)
	case db.RetryLockWait:
		r.lockWait.Add(1)
	case db.RetryChanged:
		r.changed.Add(1)
	}
}

// openCounted returns a store on a database of the test's own, and what its transactions were run again for. The test
// fails if one of them ends in a deadlock.
func openCounted(t *testing.T) (*db.DB, *retries) {
	t.Helper()
	var r retries
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{MaxConns: 48, Retried: r.count})
	require.NoError(t, err)
	t.Cleanup(func() {
		if n := r.deadlock.Load(); n > 0 {
			t.Errorf("%d deadlocks; the latest:\n%s", n, latestDeadlock(t, store))
		}
		require.NoError(t, store.Close())
	})
	return store, &r
}

// latestDeadlock returns what the server shows of the latest deadlock: the statements that met, and their locks.
func latestDeadlock(t *testing.T, store *db.DB) string {
	t.Helper()
	var engine, name, status string
	require.NoError(
		t,
		store.Pool().QueryRowContext(context.Background(), "SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &status),
	)
	_, status, _ = strings.Cut(status, "LATEST DETECTED DEADLOCK\n")
	status, _, _ = strings.Cut(status, "\nTRANSACTIONS\n")
	lines := strings.Split(status, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, " ") && strings.Contains(line, ": len ") // the bytes of locked records
	}), "\n")
}

// flood runs writers until it is stopped.
type flood struct {
	t       *testing.T
	done    chan struct{}
	writers sync.WaitGroup
	rounds  []atomic.Int64 // by writer
}

// startFlood runs n writers, each over and over. A writer's errors fail the test, except for those with a code of
// allowed.
func startFlood(t *testing.T, n int, allowed []models.Code, write func(random *rand.Rand, writer int) error) *flood {
	f := &flood{t: t, done: make(chan struct{}), rounds: make([]atomic.Int64, n)}
	for i := range n {
		f.writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for {
				select {
				case <-f.done:
					return
				default:
				}
				if err := write(random, i); err != nil && !slices.Contains(allowed, models.ErrorCode(err)) {
					t.Error(err)
				}
				f.rounds[i].Add(1)
			}
		})
	}
	return f
}

// goOn returns when every writer has written some more, or a share of the time that -flood sets is over.
func (f *flood) goOn(rounds int64, share float64) {
	f.t.Helper()
	if *floodFor > 0 {
		<-time.After(time.Duration(share * float64(*floodFor)))
		return
	}
	var want []int64
	for i := range f.rounds {
		want = append(want, f.rounds[i].Load()+rounds)
	}
	testkit.Eventually(f.t, time.Minute, func() (bool, string) {
		for i := range f.rounds {
			if f.rounds[i].Load() < want[i] {
				return false, fmt.Sprintf("writer %d is stuck", i)
			}
		}
		return true, ""
	})
}

func (f *flood) stop() (written int64) {
	close(f.done)
	f.writers.Wait()
	for i := range f.rounds {
		written += f.rounds[i].Load()
	}
	return written
}

// act fails the test if what a moderator does fails, and returns how long it took.
func act(t *testing.T, what string, do func() error) time.Duration {
	t.Helper()
	began := time.Now()
	require.NoError(t, do(), what)
	return time.Since(began).Round(time.Millisecond)
}
