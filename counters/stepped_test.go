package counters

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/likes"
)

// stepped is a server whose time of day can be set.
type stepped struct {
	*servers.Redis
	clock string // a file with the seconds by which it is off
}

// steppedRedis starts a server with the library that the fault tests use.
func steppedRedis(t testing.TB) *stepped {
	t.Helper()
	dir := t.TempDir()
	s := &stepped{clock: filepath.Join(dir, "clock")}
	s.set(t, 0)
	library := filepath.Join(dir, "clock.so")
	build := exec.CommandContext(t.Context(), "cc", "-O2", "-shared", "-fPIC", "-x", "c",
		"../internal/faults/clock.c.txt", "-o", library)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.Redis = privateRedis(t)
	require.NoError(t, s.Stop(t.Context()))
	s.Setenv("LD_PRELOAD="+library, "LIKEWISE_FAULTS_CLOCK="+s.clock)
	require.NoError(t, s.Start(t.Context()))
	return s
}

// set sets by how much the clock is off, in whole seconds.
func (s *stepped) set(t testing.TB, off time.Duration) {
	t.Helper()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(int64(off/time.Second)))
	f, err := os.OpenFile(s.clock, os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.Write(b[:])
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// newSteppedForum is newForum on a server of its own.
func newSteppedForum(t testing.TB) (*forum, *stepped) {
	t.Helper()
	server := steppedRedis(t)
	r, plain := openRedis(t, server.URL())
	f := newForumOn(t, r)
	f.plain = plain
	for shard := range shards {
		epoch, err := likes.New(f.store).NextEpoch(t.Context(), shard, 0)
		require.NoError(t, err)
		openShard(t, r, shard, epoch)
	}
	return f, server
}

// A call is held by the network. Its caller is told that it failed, and that the opposite call has succeeded. The held
// call then changes nothing, whatever the clock of Redis does, and whichever process makes the second call: the same
// one, another that has read the clock before, or a new one.
func TestSetLike_heldCallDoesNotOutliveAStepOfTheClock(t *testing.T) {
	t.Parallel()
	const minute = -time.Minute
	for name, c := range map[string]struct {
		// By how much the clock is off: when the call is sent, while it is held, and at the end.
		before, during, after time.Duration
		stopped               time.Duration // the server's machine stands still for so long
		cutOff                bool          // nothing of the process arrives meanwhile
		by                    []string      // who makes the second call
	}{
		"set back while it is held":       {0, minute, minute, 0, false, []string{"same", "other", "new"}},
		"set back before it was sent":     {minute, minute, minute, 0, false, []string{"same", "other", "new"}},
		"set back after its end":          {0, 0, minute, 0, false, []string{"same", "other", "new"}},
		"set back a little after its end": {0, 0, -500 * time.Millisecond, 0, false, []string{"same", "other", "new"}},
		"set back by a second":            {0, -time.Second, -time.Second, 0, false, []string{"same", "other", "new"}},
		"set back, and cut off":           {0, minute, minute, 0, true, []string{"other", "new"}},
		"a machine that stood still":      {0, 0, -3 * time.Second, 3 * time.Second, false, []string{"same", "other"}},
		"set ahead, and right again":      {0, 10 * time.Minute, 0, 0, false, []string{"same", "new"}},
		"set ahead before, right again":   {3 * time.Hour, 0, 0, 0, false, []string{"same", "new"}},
	} {
		for _, by := range c.by {
			t.Run(name+", "+by+" process", func(t *testing.T) {
				t.Parallel()
				f, server := newSteppedForum(t)
				target := f.post(t)
				f.like(t, target, 7)
				slow := newNetwork(t, server.Addr())
				r, _ := openRedis(t, "redis://"+slow.Addr().String()+"/0")
				far := NewLikes(r, f.store, LikesOptions{})
				_, err := far.SetLike(t.Context(), target, 8, true) // far knows the server's clock
				require.NoError(t, err)

				server.set(t, c.before)
				held := r.script["like"].Hash()
				if c.cutOff {
					held = "$" // every command has one
				}
				let := slow.hold(t, held, false)
				call := start(t.Context(), far, target, 7, false)
				await(t, slow.caught)
				server.set(t, c.during)
				resumed := time.After(c.stopped)
				if c.stopped > 0 {
					require.NoError(t, server.Pause())
				}
				requireCode(t, models.CodeUnavailable, soon(t, call).err)
				<-resumed
				server.set(t, c.after)
				if c.stopped > 0 {
					require.NoError(t, server.Resume())
				}
				second := f.Likes
				switch by {
				case "same":
					second = far
					slow.spare() // only the first is held
				case "new":
					second = f.process(t).Likes
				}
				state, err := second.SetLike(t.Context(), target, 7, true)
				require.NoError(t, err)
				require.True(t, state.Liked)
				let()
				testkit.Eventually(t, 20*time.Second, func() (bool, string) {
					return slow.arrived.Load() > 0, "the held call did not arrive"
				})
				require.Equal(t, []int64{7, 8}, usersOf(t, f.redis, target))
			})
		}
	}
}

// spare lets everything pass from now on, except what is held.
func (n *network) spare() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.part = nil
}

// A report of a clock is used for some seconds. After that, a call asks first.
func TestPeriod_ofAnOldReportIsOver(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	begin := time.Now()
	f.heard(1, 1_000_000, 5, 2)
	p := f.period(1, begin.Add(time.Second), callLimit)
	require.InDelta(t, 1_000_980, p.earliest, 30)
	require.Equal(t, p.earliest+callLimit.Milliseconds(), p.deadline)
	require.Equal(t, []int64{5, 2}, []int64{p.epoch, p.turn})
	p = f.period(1, begin.Add(clockAge+time.Second), callLimit)
	require.Zero(t, p.deadline)
	require.InDelta(t, 1_005_980, p.earliest, 30, "still an earliest time")
	require.Equal(t, period{}, f.period(2, begin, callLimit), "the clock is unknown")
}

// After the clock was set back three hours, what should have ended in a moment does not last three hours longer.
func TestLocks_endAlthoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	f, server := newSteppedForum(t)
	r, ctx := f.redis, t.Context()
	target, large := f.post(t), f.post(t)
	f.like(t, target, 7)
	_, err := r.HoldOutbox(ctx, 3, "dead", 5*time.Second)
	require.NoError(t, err)
	require.NoError(t, r.JobLock("work", "dead").Acquire(ctx, 5*time.Second, 0))
	loading, _ := f.loader.lock(ctx, "dead", []load{{target: large}})
	require.Len(t, loading, 1)
	require.NoError(t, r.pipelined(ctx, func(p pipe) { r.noteLoad(ctx, p, r.keys(large), "dead", 1) }))
	require.NoError(t, r.RefuseLikes(ctx, 7, 12*time.Second))
	_, err = f.SetLike(ctx, target, 8, true)
	require.NoError(t, err, "another user")
	limits, err := OpenLimiter(server.URL(), 10*time.Second, nil)
	require.NoError(t, err)
	t.Cleanup(func() { limits.Close() })
	rate := Rate{Burst: 2, Every: 200 * time.Millisecond}
	require.True(t, limits.Take(ctx, "limit", rate, 2).OK)

	server.set(t, -3*time.Hour)
	_, err = r.HoldOutbox(ctx, 3, "next", 5*time.Second)
	require.NoError(t, err, "the lock of a relay")
	require.NoError(t, r.JobLock("work", "next").Acquire(ctx, 5*time.Second, 0), "the lock of a job")
	_, err = r.HoldOutbox(ctx, 3, "third", 5*time.Second)
	require.ErrorIs(t, err, ErrLockLost, "the next holder is alive")
	server.set(t, -3*time.Hour-time.Minute)
	_, err = r.HoldOutbox(ctx, 3, "third", 5*time.Second)
	require.NoError(t, err, "a step of a minute")
	again, _ := f.loader.lock(ctx, "next", []load{{target: large}})
	require.Len(t, again, 1, "the lock of a load")
	_, err = f.SetLike(ctx, target, 7, false)
	require.NoError(t, err)
	_, err = f.SetLike(ctx, target, 7, true)
	require.NoError(t, err, "the refusal of a user's likes")
	n, err := r.Sweep(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n, "what the dead load left")
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return limits.Take(ctx, "limit", rate, 1).OK, "the limit"
	})
}

// A time that MySQL cannot store is refused at the gate: afterwards it would be too late to tell anybody.
func TestGate_refusesATimeThatMySQLCannotStore(t *testing.T) {
	t.Parallel()
	f, server := newSteppedForum(t)
	ctx := t.Context()
	target := f.post(t)
	f.like(t, target, 7)
	outbox := outboxKey(target.Shard(shards))
	before := entries(t, f.plain, outbox)
	for _, year := range []int{1960, 2039} {
		server.set(t, time.Until(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)))
		for _, liked := range []bool{true, false} {
			_, err := f.SetLike(ctx, target, 7, liked)
			requireCode(t, models.CodeUnavailable, err)
			require.ErrorContains(t, err, "mysql cannot store the time")
		}
		require.ErrorContains(t, f.Reassert(ctx, target, []int64{7}), "cannot store")
		_, err := NewClaims(f.redis, f.store, ClaimsOptions{}).Claim(ctx, target.ID, 7, target.ID)
		requireCode(t, models.CodeUnavailable, err)
		require.ErrorContains(t, err, "mysql cannot store the time")
		require.Equal(t, before, entries(t, f.plain, outbox))
	}
	require.NotZero(t, f.counted(Undated))
	server.set(t, 0)
	f.like(t, target, 9)
	require.Equal(t, []int64{7, 9}, usersOf(t, f.redis, target))
}
