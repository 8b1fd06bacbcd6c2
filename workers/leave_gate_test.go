package workers

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// gated starts the site in gated mode.
func (p *pipeline) gated() {
	p.t.Helper()
	require.NoError(p.t, p.store.StartLikes(context.Background(), models.LikesGated))
}

// toDirect makes the site direct, whatever Redis has.
func (p *pipeline) toDirect() {
	p.t.Helper()
	p.gated()
	none := func(context.Context, []models.ShardState) error { return nil }
	require.NoError(p.t, likes.New(p.store).SwitchToDirect(context.Background(), none))
}

// leaveGate calls LeaveGate, and returns the differences that it reports.
func (p *pipeline) leaveGate() (found []models.Difference, err error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = LeaveGate(ctx, p.redis, p.likes, p.store, func(d models.Difference) { found = append(found, d) })
	return found, err
}

// staysGated checks that LeaveGate refuses, with a message that contains a text.
func (p *pipeline) staysGated(says string) {
	p.t.Helper()
	_, err := p.leaveGate()
	require.Equal(p.t, models.CodeConflict, models.ErrorCode(err), "%v", err)
	assert.ErrorContains(p.t, err, says)
	mode, err := p.store.LikesMode(context.Background())
	require.NoError(p.t, err)
	assert.Equal(p.t, models.LikesGated, mode)
}

// relay runs a relay without a like writer until stop is called or the test ends.
func (p *pipeline) relay() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { NewRelay(p.redis, p.store, p.kafka, p.metrics).Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	p.t.Cleanup(stop)
	return stop
}

// hold acquires the relay lock of shard 6.
func (p *pipeline) hold() *counters.Outbox {
	p.t.Helper()
	outbox, err := p.redis.HoldOutbox(context.Background(), 6, "test", time.Minute)
	require.NoError(p.t, err)
	return outbox
}

// applyOpened applies the first event of an epoch of shard 6.
func (p *pipeline) applyOpened(epoch int64, after models.Position) {
	p.t.Helper()
	_, err := likes.New(p.store).ApplyLikes(context.Background(), []models.LikeRecord{{Shard: 6,
		Pos: models.Position{Epoch: epoch}, Events: []models.Event{{Type: models.ShardOpened, After: after}}}})
	require.NoError(p.t, err)
}

// rewind returns a function that takes shard 6 in Redis back to the present, as when Redis loses its last writes. The
// commands that it is given are part of the same step.
func (p *pipeline) rewind() (back func(more ...func(redis.Pipeliner))) {
	p.t.Helper()
	ctx := context.Background()
	keys := func() []string {
		keys, err := p.raw.Keys(ctx, "{s06}:*").Result()
		require.NoError(p.t, err)
		return keys
	}
	saved := map[string]string{}
	for _, key := range keys() {
		dump, err := p.raw.Dump(ctx, key).Result()
		require.NoError(p.t, err)
		saved[key] = dump
	}
	return func(more ...func(redis.Pipeliner)) {
		p.t.Helper()
		_, err := p.raw.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Del(ctx, keys()...)
			for key, dump := range saved {
				tx.Restore(ctx, key, 0, dump)
			}
			for _, add := range more {
				add(tx)
			}
			return nil
		})
		require.NoError(p.t, err)
	}
}

const flushFirst = "Run `likewise cron run flush`, and then this command again."

// A like is in Redis, then in Kafka as well, and at last in MySQL.
func TestLeaveGate_refusesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.gated()
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 2, true)
	p.staysGated("shard 6: accepted up to ")
	p.staysGated(flushFirst)
	stop = p.relay()
	testkit.Eventually(t, patience, func() (bool, string) {
		infos, err := p.redis.ShardInfos(context.Background())
		return err == nil && infos[6].Runs == 0, fmt.Sprint(infos, err)
	})
	stop()
	p.staysGated("shard 6: accepted up to ")
	p.set(target, 3, true) // a refusal closes nothing
	stop = p.work()
	p.flush()
	stop()

	found, err := p.leaveGate()
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Equal(t, []int64{1, 2, 3}, p.likers(target))
	_, err = p.likes.SetLike(t.Context(), target, 4, true)
	require.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
}

// Nothing is on its way, and Redis has a like that MySQL does not have.
func TestLeaveGate_refusesADifference(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.gated()
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.exec("DELETE FROM post_likes WHERE post_id=?", target.ID)
	p.exec("UPDATE posts SET likes_count=0 WHERE id=?", target.ID)
	found, err := p.leaveGate()
	require.Equal(t, models.CodeConflict, models.ErrorCode(err), "%v", err)
	assert.ErrorContains(t, err, "Run `likewise verify --repair` and `likewise cron run flush`")
	require.Len(t, found, 1)
	assert.Equal(t, target, found[0].Target)
	p.set(target, 2, true) // a refusal closes nothing
}

// A process that was not stopped accepts a like after the comparison, and tries another after the gate is closed.
func TestLeaveGate_comparesWhatAProcessAcceptsMeanwhile(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.gated()
	p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	compare := closeGate(p.redis)
	err := likes.New(p.store).SwitchToDirect(t.Context(), func(ctx context.Context, states []models.ShardState) error {
		p.set(target, 2, true) //nolint:contextcheck // it has a deadline of its own
		return compare(ctx, states)
	})
	require.Equal(t, models.CodeConflict, models.ErrorCode(err), "%v", err)
	assert.ErrorContains(t, err, "shard 6: accepted up to ")
	p.recovered(time.Now())

	p.set(target, 3, true)
	p.flush()
	late := func(ctx context.Context, states []models.ShardState) error {
		if err := compare(ctx, states); err != nil {
			return err
		}
		_, err := p.likes.SetLike(ctx, target, 4, true)
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
		return nil
	}
	require.NoError(t, likes.New(p.store).SwitchToDirect(t.Context(), late))
	assert.Equal(t, []int64{1, 2, 3}, p.likers(target))
}

// Workers and likers are not stopped. What they were told is what MySQL has, each like once.
func TestLeaveGate_losesNothingOfRunningProcesses(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.gated()
	p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var rest atomic.Int64 // of each user between two likes: longer with each try, as a busy machine needs it
	rest.Store(int64(200 * time.Millisecond))
	may := make([]map[bool]bool, 5) // states that a user's like may have: both after a call without an answer
	for user := 1; user < len(may); user++ {
		may[user] = map[bool]bool{user == 1: true}
		running.Go(func() {
			for set := user != 1; ctx.Err() == nil; set = !set {
				_, err := p.likes.SetLike(context.WithoutCancel(ctx), target, int64(user), set)
				if err == nil {
					may[user] = map[bool]bool{set: true}
				} else if models.ErrorCode(err) != models.CodeUnavailable {
					t.Errorf("user %d: %v", user, err)
				}
				pause(ctx, time.Duration(rest.Load())*time.Duration(4+user)/4)
			}
		})
	}
	tries := 0
	testkit.Eventually(t, patience, func() (bool, string) {
		tries++
		_, err := p.leaveGate()
		rest.Store(min(rest.Load()*11/10, int64(3*time.Second)))
		return err == nil, fmt.Sprint(err)
	})
	t.Logf("direct after %d tries", tries)
	pause(t.Context(), time.Second) // they go on, to no effect
	stop()
	running.Wait()
	likers := p.likers(target)
	for user := 1; user < len(may); user++ {
		assert.True(t, may[user][slices.Contains(likers, int64(user))],
			"user %d: may be %v, and %v", user, may[user], likers)
	}
	assert.Equal(t, len(likers), p.count(fmt.Sprintf("SELECT likes_count FROM posts WHERE id=%d", target.ID)))
}

// Redis is emptied while Kafka has a like that MySQL lacks. The last position in Redis is 0-0 then, and MySQL has that.
func TestLeaveGate_refusesAnEmptiedRedis(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.gated()
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	stop = p.relay()
	p.set(target, 2, true)
	testkit.Eventually(t, patience, func() (bool, string) {
		infos, err := p.redis.ShardInfos(context.Background())
		return err == nil && infos[6].Runs == 0, fmt.Sprint(infos, err)
	})
	stop()
	require.NoError(t, p.raw.FlushDB(t.Context()).Err())
	p.staysGated("shard 6 is closed, ")
	err := likes.New(p.store).SwitchToDirect(t.Context(), closeGate(p.redis))
	require.Equal(t, models.CodeConflict, models.ErrorCode(err), "%v", err)
	stop = p.start()
	p.flush()
	stop()
	_, err = p.leaveGate()
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 2}, p.likers(target))
}

// The site has had another Redis since this one opened the shard.
func TestLeaveGate_refusesARedisThatWasOvertaken(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.gated()
	p.start()()
	p.exec("UPDATE like_shards SET epoch=50, applied_epoch=50, applied_seq=5 WHERE shard=6")
	p.staysGated("shard 6 is closed, MySQL has up to 50-5")
	err := likes.New(p.store).SwitchToDirect(t.Context(), closeGate(p.redis))
	require.Equal(t, models.CodeConflict, models.ErrorCode(err), "%v", err)
}

// A relay is paused between two steps of an opening, until the site is direct. The shard must stay closed.
func TestRelay_finishesNoOpeningAfterTheGateWasLeft(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprint("gated again ", back), func(t *testing.T) {
			t.Parallel()
			p := setup(t)
			relay, outbox := NewRelay(p.redis, p.store, p.kafka, p.metrics), p.hold()
			epoch, err := likes.New(p.store).NextEpoch(t.Context(), 6, 0)
			require.NoError(t, err)
			p.toDirect()
			if back {
				require.NoError(t, likes.New(p.store).SwitchToGated(t.Context()))
			}
			restored, err := outbox.Seal(t.Context(), epoch)
			require.NoError(t, err)
			p.applyOpened(epoch, restored)
			done, err := relay.finishOpening(t.Context(), 6, outbox, &opening{epoch: epoch, restored: restored})
			require.ErrorIs(t, err, counters.ErrLockLost)
			assert.False(t, done)
			info, err := outbox.Info(t.Context())
			require.NoError(t, err)
			assert.False(t, info.Open)
		})
	}
}

// direct changes likes of a target in direct mode, behind the back of Redis.
func (p *pipeline) direct(target models.Target) {
	p.t.Helper()
	p.toDirect()
	_, err := likes.New(p.store).SetLike(context.Background(), target, 1, false)
	require.NoError(p.t, err)
	_, err = likes.New(p.store).SetLike(context.Background(), target, 2, true)
	require.NoError(p.t, err)
	require.NoError(p.t, likes.New(p.store).SwitchToGated(context.Background()))
}

// A shard that is still open, for whatever reason, is opened again after direct mode.
func TestRelay_evictsAllAfterDirectMode(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.direct(target)
	state, err := likes.New(p.store).ShardState(t.Context(), 6)
	require.NoError(t, err)
	p.work()
	testkit.Eventually(t, patience, func() (bool, string) {
		infos, err := p.redis.ShardInfos(context.Background())
		return err == nil && infos[6].Open && infos[6].Last.Epoch > state.Epoch, fmt.Sprint(infos, err)
	})
	assert.Equal(t, int64(2), p.set(target, 1, true).Count)
	p.flush()
	assert.Equal(t, []int64{1, 2}, p.likers(target))
	assert.Empty(t, p.verify(false))
	assert.Zero(t, p.openGaps())
}

// After direct mode, Redis loses the evictions of an opening, and with them the end of the opening.
func TestRelay_evictsAgainWhatRedisForgotToEvict(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.direct(target)
	relay, outbox := NewRelay(p.redis, p.store, p.kafka, p.metrics), p.hold()
	opening, err := relay.beginOpening(t.Context(), 6, outbox)
	require.NoError(t, err)
	back := p.rewind()
	p.applyOpened(opening.epoch, opening.restored)
	done, err := relay.finishOpening(t.Context(), 6, outbox, opening)
	require.NoError(t, err)
	require.True(t, done)
	back()
	p.closeShard(6)
	p.warmed(target)
	require.NoError(t, outbox.Release(t.Context()))
	p.start()
	assert.Equal(t, int64(2), p.set(target, 1, true).Count)
	p.flush()
	assert.Equal(t, []int64{1, 2}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// The log has lost likes that only Redis has, and then Redis loses its last writes.
func TestRelay_logsThatItEvictsTargetsOfAShardWithAGap(t *testing.T) {
	t.Parallel()
	p := setup(t)
	target := p.holed()
	_, err := likes.New(p.store).ApplyLikes(t.Context(), []models.LikeRecord{p.runOf(target, 4)})
	require.NoError(t, err)
	p.closeShard(6)
	var logged bytes.Buffer
	store, err := db.Open(t.Context(), p.dsn, db.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	require.NoError(t, err)
	defer store.Close()
	relay, outbox := NewRelay(p.redis, store, p.kafka, p.metrics), p.hold()
	opening, err := relay.beginOpening(t.Context(), 6, outbox)
	require.NoError(t, err)
	p.applyOpened(opening.epoch, opening.restored)
	done, err := relay.finishOpening(t.Context(), 6, outbox, opening)
	require.NoError(t, err)
	require.True(t, done)
	assert.Regexp(t, `level=ERROR msg="likes are lost: .*" shard=6 gaps=1`, logged.String())
}
