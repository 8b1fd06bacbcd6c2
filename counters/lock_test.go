package counters

import (
	"context"
	"crypto/rand"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/moderation"
)

var errStalled = errors.New("the network is stalled")

// stall holds back the renewals of a process, as a process that is paused does. Its other calls pass.
type stall struct {
	hash    string // of the script hold
	stalled atomic.Bool
}

func (s *stall) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.stalled.Load() && len(cmd.Args()) > 1 && cmd.Args()[1] == s.hash {
			<-ctx.Done()
			cmd.SetErr(errStalled)
			return errStalled
		}
		return next(ctx, cmd)
	}
}

func (s *stall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// lockProcess is a process of its own, whose renewals can be held back.
type lockProcess struct {
	*Redis
	stall
}

func newLockProcess(t testing.TB, url string) *lockProcess {
	t.Helper()
	r, _ := openRedis(t, url)
	p := &lockProcess{Redis: r}
	p.hash = r.script["hold"].Hash()
	require.NoError(t, r.script["hold"].Load(t.Context(), r.client).Err())
	r.client.AddHook(&p.stall)
	return p
}

// acquire acquires the lock of the job work.
func (p *lockProcess) acquire(t testing.TB, token string, ttl time.Duration) *Lock {
	t.Helper()
	l := p.JobLock("work", token)
	require.NoError(t, l.Acquire(t.Context(), ttl, 10*time.Second))
	return l
}

// The seed's wrong way: SET NX EX, and DEL in the finally block. The holder whose lock has expired deletes that of the
// next one, and a third process works beside the second.
func TestLock_anExpiredLockIsNotReleasedByAnother(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	first, second := newLockProcess(t, urlOf(plain)), newLockProcess(t, urlOf(plain))
	expired := first.acquire(t, "first", 20*time.Millisecond)
	next := second.acquire(t, "second", time.Minute) // waits until it has expired
	require.NoError(t, expired.Release(t.Context()), "not an error")
	require.Equal(t, "second", plain.Get(t.Context(), "cron:work").Val())
	require.ErrorIs(t, expired.Renew(t.Context(), time.Minute), ErrLockLost)
	require.Greater(t, plain.PTTL(t.Context(), "cron:work").Val(), 30*time.Second)
	third := second.JobLock("work", "third")
	require.ErrorIs(t, third.Acquire(t.Context(), time.Minute, 0), ErrLockLost)
	require.NoError(t, next.Release(t.Context()))
	require.Empty(t, dump(t, plain))
}

// The work takes many times as long as the lock: While renews it.
func TestLock_isRenewedWhileTheWorkRuns(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	const ttl = time.Second
	first, second := newLockProcess(t, urlOf(plain)), newLockProcess(t, urlOf(plain))
	l := first.acquire(t, "first", ttl)
	err := l.While(t.Context(), func(ctx context.Context) error {
		err := second.JobLock("work", "second").Acquire(ctx, time.Minute, 4*ttl)
		assert.ErrorIs(t, err, ErrLockLost, "a bounded wait")
		return ctx.Err()
	})
	require.NoError(t, err)
	require.NoError(t, second.JobLock("work", "second").Acquire(t.Context(), time.Minute, 0), "released at once")
}

func TestLock_whoseHolderDiesIsFreeAfterItsTime(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	dead, next := newLockProcess(t, urlOf(plain)), newLockProcess(t, urlOf(plain))
	begin := time.Now()
	dead.acquire(t, "dead", 200*time.Millisecond)
	next.acquire(t, "next", time.Minute)
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
}

// Two wait for the lock at once. Each of three works alone, and all of them in the end.
func TestLock_twoWaitersWorkOneAfterTheOther(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	var working, highest, worked atomic.Int32
	var processes sync.WaitGroup
	for range 3 {
		p := newLockProcess(t, urlOf(plain))
		processes.Go(func() {
			for range 5 {
				err := p.acquire(t, rand.Text(), 2*time.Second).While(t.Context(), func(ctx context.Context) error {
					highest.Store(max(highest.Load(), working.Add(1)))
					for range 10 { // the others have time to disturb
						assert.NoError(t, plain.Ping(ctx).Err())
					}
					worked.Add(1)
					working.Add(-1)
					return nil
				})
				assert.NoError(t, err)
			}
		})
	}
	processes.Wait()
	require.EqualValues(t, 1, highest.Load())
	require.EqualValues(t, 15, worked.Load())
}

func TestLock_waitsForABoundedTime(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	first, second := newLockProcess(t, urlOf(plain)), newLockProcess(t, urlOf(plain))
	first.acquire(t, "first", time.Minute)
	trips := countTrips(t, second.Redis)
	l := second.JobLock("work", "second")
	begin := time.Now()
	require.ErrorIs(t, l.Acquire(t.Context(), 400*time.Millisecond, 200*time.Millisecond), ErrLockLost)
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
	require.Less(t, trips.Load(), int64(15), "attempts are 20 to 40 ms apart")

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	require.ErrorIs(t, l.Acquire(ctx, time.Minute, time.Hour), context.Canceled)
	require.NoError(t, second.JobLock("other", "second").Acquire(t.Context(), time.Minute, 0), "a key for each job")
}

// The work stops when the lock is lost: whether another process has it, or Redis does not answer any longer.
func TestLock_theWorkStopsWhenItIsLost(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	const ttl = 2 * time.Second
	for name, lose := range map[string]func(p *lockProcess){
		"to another process": func(*lockProcess) {
			assert.NoError(t, plain.Set(t.Context(), "cron:work", "another", time.Minute).Err())
		},
		"with the memory of Redis": func(*lockProcess) { assert.NoError(t, plain.FlushDB(t.Context()).Err()) },
		"without an answer":        func(p *lockProcess) { p.stalled.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, plain.FlushDB(t.Context()).Err())
			p := newLockProcess(t, urlOf(plain))
			l := p.acquire(t, "holder", ttl)
			var stopped time.Time
			err := l.While(t.Context(), func(ctx context.Context) error {
				lose(p)
				<-ctx.Done()
				stopped = time.Now()
				assert.ErrorIs(t, context.Cause(ctx), ErrLockLost)
				return nil // as if all had gone well
			})
			require.ErrorIs(t, err, ErrLockLost)
			require.Less(t, stopped.Sub(l.since), ttl, "before the key expires")
		})
	}
}

// A process is paused after it has acquired the lock, as by SIGSTOP: it renews nothing, and its clock does not stop its
// work either. Another process takes over, and writes. The first one continues, and must not write.
func TestLock_aPausedHolderDoesNotWriteAfterATakeover(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	store := openStoreAt(t, testkit.Database(t))
	paused, next := newLockProcess(t, urlOf(plain)), newLockProcess(t, urlOf(plain))
	write := func(ctx context.Context, id int64) error {
		return moderation.New(store).SetRingCheckpoint(ctx, models.KindPost, id)
	}

	l := paused.acquire(t, "paused", 50*time.Millisecond)
	number, err := store.NextFence(t.Context(), "work")
	require.NoError(t, err)
	ctx := db.WithFence(t.Context(), "work", number) // not that of While, so that nothing stops the work
	require.NoError(t, write(ctx, 1))
	paused.stalled.Store(true)

	// Redis loses its memory, too: a number of its own would begin again.
	require.NoError(t, plain.FlushDB(t.Context()).Err())
	other := next.acquire(t, "next", time.Minute)
	later, err := store.NextFence(t.Context(), "work")
	require.NoError(t, err)
	require.Greater(t, later, number)

	require.ErrorIs(t, write(ctx, 2), db.ErrFenced)
	id, _, err := moderation.New(store).RingCheckpoint(t.Context(), models.KindPost)
	require.NoError(t, err)
	require.EqualValues(t, 1, id)
	require.NoError(t, write(db.WithFence(t.Context(), "work", later), 3), "the present holder writes")
	require.NoError(t, write(db.WithFence(t.Context(), "other work", 0), 4), "another lock")
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, other.Renew(t.Context(), time.Minute), "and does not lose its lock")
}

// What a holder writes into Redis is fenced by its token, in the script that writes: see TestOutbox_… and TestLoad_….

func TestLock_isNotAcquiredInATransaction(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	ctx := db.WithTransaction(t.Context())
	_, err := r.HoldOutbox(ctx, 1, "relay", time.Minute)
	require.ErrorIs(t, err, ErrInTransaction)
	require.ErrorIs(t, r.JobLock("work", "token").Acquire(ctx, time.Minute, time.Minute), ErrInTransaction)
	require.Empty(t, dump(t, plain))
}

// Functions that are passed to a Store may run inside its transactions, with a context of before. None of them acquires
// a lock.
func TestLock_isNotAcquiredInCallbacksOfTheStore(t *testing.T) {
	t.Parallel()
	acquires := map[string]bool{
		"Acquire": true, "HoldOutbox": true, "AwaitOutbox": true, "JobLock": true, "While": true,
	}
	found := 0
	for _, folder := range []string{".", "../workers", "../handlers", "../cmd/likewise"} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			require.NoError(t, err)
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !ofStore(call) {
					return true
				}
				for _, arg := range call.Args {
					if _, ok := arg.(*ast.FuncLit); !ok {
						continue
					}
					found++
					ast.Inspect(arg, func(n ast.Node) bool {
						if s, ok := n.(*ast.SelectorExpr); ok && acquires[s.Sel.Name] {
							t.Errorf("%s: %s in a function that the store calls", set.Position(s.Pos()), s.Sel.Name)
						}
						return true
					})
				}
				return true
			})
		}
	}
	require.Positive(t, found)
}

// ofStore reports whether a call is that of a method of a value named store.
func ofStore(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch of := method.X.(type) {
	case *ast.Ident:
		return strings.EqualFold(of.Name, "store")
	case *ast.SelectorExpr:
		return strings.EqualFold(of.Sel.Name, "store")
	}
	return false
}
