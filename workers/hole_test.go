package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// closeShard makes a shard look as after a restart of Redis: it was opened on another server.
func (p *pipeline) closeShard(shard int) {
	p.t.Helper()
	key := fmt.Sprintf("{s%02d}:shard", shard)
	require.NoError(p.t, p.raw.HSet(context.Background(), key, "server", "restarted").Err())
}

// loseOutbox removes the runs in the outbox of a shard, as if Kafka had acknowledged and lost them.
func (p *pipeline) loseOutbox(shard int) {
	p.t.Helper()
	require.NoError(p.t, p.raw.XTrimMaxLen(context.Background(), fmt.Sprintf("{s%02d}:outbox", shard), 0).Err())
}

func (p *pipeline) openGaps() int {
	p.t.Helper()
	return p.count("SELECT COUNT(*) FROM like_gaps WHERE reconciled_at IS NULL")
}

// holed returns a target whose shard has a gap: MySQL lacks the unlike of user 1 and the like of user 2. No worker
// runs.
func (p *pipeline) holed() models.Target {
	p.t.Helper()
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 1, false)
	p.set(target, 2, true)
	p.loseOutbox(6)
	p.set(target, 3, true)
	stop = p.work()
	p.flush()
	stop()
	require.Equal(p.t, []int64{1, 3}, p.likers(target))
	require.Equal(p.t, 1, p.openGaps())
	return target
}

// Kafka loses the end of an epoch, and nothing but the next opening can show it.
func TestRecovery_aNewEpochShowsWhatTheLogLostBefore(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 1, false)
	p.set(target, 2, true)
	p.loseOutbox(6)
	p.closeShard(6)
	p.start()
	p.set(target, 3, true)
	p.flush()
	assert.Equal(t, 1, p.openGaps())
	p.idle(target)
	cooled, _, err := NewJanitor(p.redis, p.store, p.metrics, time.Hour).Cool(t.Context())
	require.NoError(t, err)
	assert.Zero(t, cooled, "Redis alone has what is missing")
	resent, err := NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, resent)
	p.flush()
	assert.Equal(t, []int64{2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

func TestReconciler_keepsTheGapOfAClosedShard(t *testing.T) {
	t.Parallel()
	p := setup(t)
	target := p.holed()
	p.closeShard(6)
	reconciler := NewReconciler(p.redis, p.store, p.likes)
	_, err := reconciler.Reconcile(t.Context())
	require.ErrorIs(t, err, counters.ErrShardClosed)
	assert.Equal(t, 1, p.openGaps(), "nothing was sent")
	p.start()
	resent, err := reconciler.Reconcile(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, resent)
	p.flush()
	assert.Equal(t, []int64{2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// addGap makes a shard have a gap that began at its watermark.
func (p *pipeline) addGap(shard int) {
	p.t.Helper()
	p.exec(`
		INSERT INTO like_gaps (shard, after_epoch, after_seq, before_epoch, before_seq, created_at)
		SELECT shard, applied_epoch, applied_seq, applied_epoch, applied_seq+2, NOW(3)
		FROM like_shards
		WHERE shard=?`, shard)
}

// Redis was restarted, so it may have lost targets that the gap is about. That nothing differs does not repair the gap.
func TestReconciler_closesGapsOnlyOfShardsThatStayOpen(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.addGap(6)
	p.closeShard(6)
	reconciler := NewReconciler(p.redis, p.store, p.likes)
	_, err := reconciler.Reconcile(t.Context())
	require.ErrorIs(t, err, counters.ErrShardClosed)
	assert.Equal(t, 1, p.openGaps())

	p.start()
	p.addGap(7)
	between := func() { // two pages of the scan
		p.closeShard(6)
		p.awaitOpen()
	}
	reconciler.scan = func(ctx context.Context, shard int, fn func([]models.Target) error) error {
		if shard == 6 {
			between()
		}
		return p.redis.EachWarmOf(ctx, shard, fn)
	}
	_, err = reconciler.Reconcile(t.Context())
	require.ErrorIs(t, err, errReopened)
	assert.Equal(t, 1, p.openGaps(), "that of the other shard is closed")

	stop = p.work()
	reconciler = NewReconciler(p.redis, p.store, p.likes)
	_, err = reconciler.Reconcile(t.Context())
	require.NoError(t, err)
	assert.Zero(t, p.openGaps())
	stop()
}

// A shard that is closed after the scan, and not opened yet, keeps its gap, too.
func TestReconciler_keepsTheGapOfAShardThatCloses(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()()
	p.addGap(6)
	reconciler := NewReconciler(p.redis, p.store, p.likes)
	between := func() { p.closeShard(6) }
	reconciler.scan = func(ctx context.Context, shard int, fn func([]models.Target) error) error {
		if shard == 6 {
			between()
		}
		return p.redis.EachWarmOf(ctx, shard, fn)
	}
	_, err := reconciler.Reconcile(t.Context())
	require.ErrorIs(t, err, counters.ErrShardClosed)
	assert.Equal(t, 1, p.openGaps())
}

// A probe in the outbox has no likes, and the relay has not sent it yet. Another one would show nothing more.
func TestReconciler_probesAnEmptyOutboxOnly(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 2, true)
	p.loseOutbox(6)
	reconciler := NewReconciler(p.redis, p.store, p.likes)
	probed, err := reconciler.Probe(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, 1, probed)
	probed, err = reconciler.Probe(t.Context(), 0)
	require.NoError(t, err)
	assert.Zero(t, probed, "the first one waits for a relay")
}

// The outbox of one shard is full. That shard keeps its gap, and the other one is repaired.
func TestReconciler_keepsTheGapOfAFailedShardAlone(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	first, second := p.postIn(6), p.postIn(7)
	p.set(first, 1, true)
	p.set(second, 1, true)
	p.flush()
	stop()
	for _, target := range []models.Target{first, second} {
		p.set(target, 2, true)
		p.loseOutbox(target.Shard(p.store.Shards()))
		p.set(target, 3, true)
	}
	stop = p.start()
	p.flush()
	stop()
	require.Equal(t, 2, p.openGaps())
	p.set(first, 4, true)
	small := counters.NewLikes(p.redis, p.store, counters.LikesOptions{OutboxLimit: 1})
	_, err := NewReconciler(p.redis, p.store, small).Reconcile(t.Context())
	require.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
	assert.Equal(t, 1, p.openGaps())
	p.start()
	p.flush()
	assert.Equal(t, []int64{1, 2, 3}, p.likers(second))
	_, err = NewReconciler(p.redis, p.store, small).Reconcile(t.Context())
	require.NoError(t, err)
	assert.Zero(t, p.openGaps())
	p.flush()
	assert.Equal(t, []int64{1, 2, 3, 4}, p.likers(first))
	assert.Empty(t, p.verify(false))
}

// A gap concerns the targets that were changed since it began. The others, of which there may be a million, are not
// read.
func TestReconciler_readsWhatWasChangedSinceTheGap(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	before, changed := p.postIn(6), p.postIn(6)
	p.set(before, 1, true)
	p.set(changed, 1, true)
	p.flush()
	stop()
	p.set(changed, 2, true)
	p.loseOutbox(6)
	p.set(changed, 3, true)
	p.start()
	p.flush()
	require.Equal(t, 1, p.openGaps())
	targets := []models.Target{before, changed}
	gaps, err := likes.New(p.store).OpenGaps(t.Context(), 6)
	require.NoError(t, err)
	read, err := p.redis.ChangedAfter(t.Context(), targets, gaps.After)
	require.NoError(t, err)
	assert.Equal(t, []models.Target{changed}, read)
	resent, err := NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, resent)
	p.flush()
	assert.Equal(t, []int64{1, 2, 3}, p.likers(changed))
	assert.Empty(t, p.verify(false))
}

// The log has lost likes, and Redis one of the sets of their target. What Redis still has is sent, and of the others
// MySQL keeps what it has. Then the target can be made whole again from MySQL.
func TestReconciler_sendsWhatIsLeftOfADamagedTarget(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	const users = 1000
	testkit.AddUsers(t, p.store.Pool(), 2001, 2000+users)
	for user := int64(1); user <= users; user++ {
		p.set(target, user, true)
	}
	p.flush()
	stop()
	for user := int64(1); user <= users; user++ {
		p.set(target, 2000+user, true)
	}
	p.loseOutbox(6)
	p.set(target, 1, false)
	p.start()
	p.flush()
	require.Equal(t, 1, p.openGaps())
	require.NoError(t, p.raw.Del(t.Context(), p.set0(target)).Err())
	resent, err := NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	assert.Zero(t, p.openGaps())
	p.flush()
	likers := p.likers(target)
	assert.Greater(t, resent, users/2)
	assert.Len(t, likers, users-1+resent, "the likes of the set that is left, and all that MySQL had")
	forgotten, err := p.redis.Forget(t.Context(), p.store, target)
	require.NoError(t, err)
	assert.True(t, forgotten)
	assert.EqualValues(t, len(likers)+1, p.set(target, 1, true).Count)
}

// Another Redis has served the site meanwhile, so MySQL has applied likes of a higher epoch. What this Redis accepts
// would be dropped.
func TestRelay_opensAShardAgainThatWasOvertaken(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	overtake := func(epoch int, notice func()) {
		p.exec("UPDATE like_shards SET epoch=?, applied_epoch=?, applied_seq=5 WHERE shard=6", epoch, epoch)
		testkit.Eventually(t, patience, func() (bool, string) {
			notice()
			infos, err := p.redis.ShardInfos(context.Background())
			return err == nil && infos[6].Open && infos[6].Last.Epoch > int64(epoch), fmt.Sprint(infos, err)
		})
	}
	overtake(50, func() {
		_, err := NewReconciler(p.redis, p.store, p.likes).Probe(t.Context(), time.Hour)
		require.NoError(t, err)
	})
	p.set(target, 2, true)
	p.flush()
	user := int64(1000)
	overtake(60, func() { // at most those of two seconds are lost
		user++
		_, err := p.likes.SetLike(t.Context(), target, user, true)
		require.True(t, err == nil || models.ErrorCode(err) == models.CodeUnavailable, "%v", err)
		pause(t.Context(), 50*time.Millisecond)
	})
	p.set(target, 3, true)
	p.flush()
	assert.Subset(t, p.likers(target), []int64{1, 2, 3})
	assert.Empty(t, p.verify(false))
}

// reopened waits until shard 6 is open under a higher epoch.
func (p *pipeline) reopened(before int64) {
	p.t.Helper()
	testkit.Eventually(p.t, patience, func() (bool, string) {
		infos, err := p.redis.ShardInfos(context.Background())
		return err == nil && infos[6].Open && infos[6].Last.Epoch > before, fmt.Sprint(infos[6], err)
	})
}

// An operator deletes the outbox of a live shard. The log lacks what was in it, which the gate still has, and what is
// accepted afterwards reaches MySQL.
func TestRelay_losesNothingWithTheOutbox(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	lose := func() { require.NoError(t, p.raw.Del(t.Context(), "{s06}:outbox").Err()) }
	lose()
	p.set(target, 2, true)
	p.flush()
	assert.Equal(t, []int64{1, 2}, p.likers(target), "positions went on")
	assert.Zero(t, p.openGaps())
	stop()
	p.set(target, 1, false)
	p.set(target, 3, true)
	lose()
	p.set(target, 4, true)
	p.start()
	p.flush()
	assert.Equal(t, 1, p.openGaps())
	resent, err := NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, resent)
	p.flush()
	assert.Equal(t, []int64{2, 3, 4}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// A machine is set back to a snapshot of its memory, so Redis neither restarts nor notices, and its positions come
// again. Nobody likes, so nothing but the job finds out.
func TestReconciler_closesAShardThatWasSetBack(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	back := p.rewind()
	p.set(target, 1, false)
	p.set(target, 2, true)
	p.flush()
	back()
	reconciler := NewReconciler(p.redis, p.store, p.likes)
	probed, err := reconciler.Probe(t.Context(), time.Hour)
	require.NoError(t, err)
	assert.Equal(t, 1, probed)
	p.reopened(1)
	assert.EqualValues(t, 2, p.set(target, 3, true).Count, "read from MySQL again")
	p.flush()
	assert.Equal(t, []int64{2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// The same, while likes come: before a relay looks, the shard is past the watermark again. The relay remembers what it
// has trimmed.
func TestRelay_opensAShardAgainThatWasSetBack(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	back := p.rewind()
	for user := int64(2); user <= 4; user++ {
		p.set(target, user, true)
		p.flush()
	}
	testkit.Eventually(t, patience, func() (bool, string) {
		n, err := p.raw.XLen(context.Background(), "{s06}:outbox").Result()
		return err == nil && n == 0, fmt.Sprint(n, " runs are not trimmed, ", err)
	})
	before, err := p.redis.ShardInfos(t.Context())
	require.NoError(t, err)
	last := before[6].Last
	require.Equal(t, models.Position{Epoch: 1, Seq: 4}, last)
	back(func(tx redis.Pipeliner) {
		for seq := int64(2); seq <= 9; seq++ {
			id := models.Position{Epoch: 1, Seq: seq}.String()
			run := models.NewRun(models.LikeEvent(target, 10+seq, true, time.Now()))
			values := []any{"run", string(run), "before", seq}
			tx.XAdd(t.Context(), &redis.XAddArgs{Stream: "{s06}:outbox", ID: id, Values: values})
			tx.HSet(t.Context(), "{s06}:shard", "last", id)
		}
	})
	p.reopened(1)
	p.set(target, 5, true)
	p.flush()
	assert.Subset(t, p.likers(target), []int64{1, 2, 3, 4, 5})
	assert.Empty(t, p.verify(false), "the targets were read from MySQL again")
}

// Another process has taken the lock, and remembers nothing. MySQL shows it as long as it is ahead.
func TestRelay_asksMySQLWithEveryBatch(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	p.exec("UPDATE like_shards SET applied_seq=applied_seq+9 WHERE shard=6")
	state, err := p.likes.SetLike(t.Context(), target, 2, true)
	require.NoError(t, err)
	assert.EqualValues(t, 2, state.Count)
	p.reopened(1)
	assert.EqualValues(t, 2, p.set(target, 3, true).Count, "that like was not sent")
	p.flush()
	assert.Empty(t, p.verify(false))
}

// The watermark of such a shard does not show that MySQL has what was accepted.
func TestFlush_waitsForAShardThatWasOvertaken(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()()
	p.exec("UPDATE like_shards SET applied_seq=applied_seq+9 WHERE shard=6")
	for name, flush := range map[string]func(context.Context, *counters.Redis, *db.DB) error{
		"Flush": Flush, "FlushOpen": FlushOpen, "FlushWhole": FlushWhole,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		var behind *FlushError
		require.ErrorAs(t, flush(ctx, p.redis, p.store), &behind, name)
		require.Len(t, behind.Behind, 1)
		assert.True(t, behind.Behind[0].Closed && behind.Behind[0].Shard == 6, "%s: %v", name, behind)
	}
}

// A shard that was overtaken when the flush began is sealed meanwhile, and so no longer behind. Kafka may still have
// what was acknowledged before, until the shard is open.
func TestFlushOpen_waitsUntilAnOvertakenShardIsOpen(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()()
	p.exec("UPDATE like_shards SET applied_seq=applied_seq+9 WHERE shard=6")
	outbox := p.hold()
	sealed := false
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := flushShards(ctx, p.redis, p.store, func(shard int) bool {
		if shard == 7 && !sealed { // shard 6 was looked at
			closed, err := p.redis.CloseOvertaken(t.Context(), 6, models.Position{Epoch: 1, Seq: 9})
			require.NoError(t, err)
			require.True(t, closed)
			_, err = outbox.Seal(t.Context(), 2)
			require.NoError(t, err)
			sealed = true
		}
		return shard == 6
	}, true)
	require.True(t, sealed)
	var behind *FlushError
	require.ErrorAs(t, err, &behind)
	require.Len(t, behind.Behind, 1)
	assert.True(t, behind.Behind[0].Closed)
}

// While the users in MySQL are compared, another unlike makes the numbers agree.
func TestReconciler_comparesUsersAndNotNumbers(t *testing.T) {
	t.Parallel()
	p := setup(t)
	target := p.holed()
	unliked := errors.New("not compared")
	var found []int64
	require.NoError(t, eachDiffering(t.Context(), p.redis, p.store, target, func(users []int64) error {
		if unliked != nil { // user 1, who is in MySQL alone
			_, unliked = p.likes.SetLike(t.Context(), target, 3, false)
		}
		found = append(found, users...)
		return unliked
	}))
	assert.Equal(t, []int64{1, 2}, found, "Redis has one user, and MySQL had one in common with it")
}

// While a shard has a gap, MySQL does not have all of its targets, even if the watermark is past their last changes.
func TestForget_keepsTargetsOfAShardWithAGap(t *testing.T) {
	t.Parallel()
	p := setup(t)
	target := p.holed()
	require.NoError(t, p.raw.Del(t.Context(), p.set0(p.warmed(target))).Err())
	_, err := p.likes.SetLike(t.Context(), target, 4, true)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
	gate := &gatedVoids{p.redis, p.store}
	forgotten, err := p.redis.Forget(t.Context(), p.store, target)
	require.NoError(t, err)
	assert.False(t, forgotten)
	p.work()
	cold, err := gate.forget(t.Context(), []models.Target{target})
	require.NoError(t, err)
	assert.Empty(t, cold)
	states, err := p.redis.TargetStates(t.Context(), []models.Target{target})
	require.NoError(t, err)
	assert.True(t, states[0].Warm)
}

// warmed returns a target after checking that it is warm.
func (p *pipeline) warmed(target models.Target) models.Target {
	p.t.Helper()
	states, err := p.redis.TargetStates(context.Background(), []models.Target{target})
	require.NoError(p.t, err)
	require.True(p.t, states[0].Warm)
	return target
}

// The outbox takes fewer likes than one batch of the Reconciler has.
func TestReconciler_repairsThroughASmallOutbox(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	const lost = 60
	for user := int64(2); user < 2+lost; user++ {
		p.set(target, user, true)
	}
	p.loseOutbox(6)
	p.set(target, 1, false)
	p.work()
	p.flush()
	require.Equal(t, 1, p.openGaps())
	small := counters.NewLikes(p.redis, p.store, counters.LikesOptions{OutboxLimit: 10})
	testkit.Eventually(t, patience, func() (bool, string) {
		_, err := NewReconciler(p.redis, p.store, small).Reconcile(context.Background())
		return err == nil, fmt.Sprint(err)
	})
	assert.Zero(t, p.openGaps())
	p.flush()
	assert.Len(t, p.likers(target), lost)
	assert.Empty(t, p.verify(false))
}

// A relay is killed while it opens a shard. The second attempt must not take the first one's event for a loss.
func TestRelay_forgetsNothingAtASecondAttempt(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.closeShard(6)
	relay := NewRelay(p.redis, p.store, p.kafka, p.metrics)
	outbox, err := p.redis.HoldOutbox(t.Context(), 6, "killed", time.Minute)
	require.NoError(t, err)
	_, err = relay.beginOpening(t.Context(), 6, outbox)
	require.NoError(t, err)
	require.NoError(t, outbox.Release(t.Context()))
	p.start()
	p.warmed(target)
	assert.Equal(t, int64(2), p.set(target, 2, true).Count)
	p.flush()
	assert.Equal(t, []int64{1, 2}, p.likers(target))
	assert.Zero(t, p.openGaps())
}

// Redis has lost its last like, and the relay is killed while it opens the shard. At the second attempt, the outbox
// ends with the first one's event, which must not hide the loss.
func TestRelay_forgetsWhatRedisLostAtASecondAttempt(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	_, err := likes.New(p.store).ApplyLikes(t.Context(), []models.LikeRecord{p.runOf(target, 2)})
	require.NoError(t, err)
	p.closeShard(6)
	relay := NewRelay(p.redis, p.store, p.kafka, p.metrics)
	outbox, err := p.redis.HoldOutbox(t.Context(), 6, "killed", time.Minute)
	require.NoError(t, err)
	_, err = relay.beginOpening(t.Context(), 6, outbox)
	require.NoError(t, err)
	require.NoError(t, outbox.Release(t.Context()))
	p.start()
	assert.Equal(t, int64(3), p.set(target, 3, true).Count, "counted from MySQL")
	p.flush()
	assert.Equal(t, []int64{1, 2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// The broker takes less than the relay would send in one record.
func TestRelay_halvesRecordsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	p := setup(t)
	limit := "700"
	admin, err := sarama.NewClusterAdmin(p.kafka.Brokers, p.kafka.config())
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.CreateTopic(p.kafka.Topic, &sarama.TopicDetail{NumPartitions: int32(p.store.Shards()),
		ReplicationFactor: 1, ConfigEntries: map[string]*string{"max.message.bytes": &limit}}, false))
	stop := p.start()
	target := p.postIn(6)
	p.flush()
	stop()
	const likes = 100
	for user := range int64(likes) {
		id := 1_000_003 * (user + 1) % 2_000_000_011 // compression does not make such numbers short
		testkit.AddUsers(t, p.store.Pool(), id, id)
		p.set(target, id, true)
	}
	p.work()
	p.flush()
	assert.Len(t, p.likers(target), likes)
	assert.Zero(t, p.count("SELECT COUNT(*) FROM like_gaps"))
	assert.Empty(t, p.verify(false))
}

// refuseDevils makes MySQL refuse likes of user 666.
func (p *pipeline) refuseDevils() {
	p.t.Helper()
	p.exec(`
		CREATE TRIGGER refuse BEFORE INSERT ON post_likes FOR EACH ROW
		BEGIN
			IF NEW.user_id=666 THEN
				SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='no devils';
			END IF;
		END`)
}

// runOf returns the record of a run of likes of a target in shard 6, at the position after the watermark.
func (p *pipeline) runOf(target models.Target, users ...int64) models.LikeRecord {
	p.t.Helper()
	state, err := likes.New(p.store).ShardState(context.Background(), 6)
	require.NoError(p.t, err)
	var events []models.Event
	for _, user := range users {
		events = append(events, models.LikeEvent(target, max(user, -user), user > 0, time.Now()))
	}
	return models.LikeRecord{Shard: 6, Pos: models.Position{Epoch: state.Applied.Epoch, Seq: state.Applied.Seq + 1},
		Events: events, Payload: []byte(models.NewRun(events...)), Topic: p.kafka.Topic, Partition: 6}
}

func TestLikeWriter_isolatesOneLikeOfARun(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.refuseDevils()
	p.start()()
	target := p.postIn(6)
	run := p.runOf(target, 1, 2, 666, 4, 5)
	writer := NewLikeWriter(p.store, p.kafka, p.metrics)

	// The writer is killed after each of its transactions, and another one begins again.
	rest := [][]models.LikeRecord{{run}}
	for range 3 {
		first, second := halve(rest[0])
		if _, err := likes.New(p.store).ApplyLikes(t.Context(), first); err != nil {
			require.True(t, db.IsBadData(err), "%v", err)
			second = first
		}
		state, err := likes.New(p.store).ShardState(t.Context(), 6)
		require.NoError(t, err)
		require.True(t, run.Pos.After(state.Applied), "the run is not applied yet")
		if rest[0] = second; !divisible(second) {
			break
		}
	}
	require.True(t, writer.apply(t.Context(), []models.LikeRecord{run}))
	require.True(t, writer.apply(t.Context(), []models.LikeRecord{run}), "read twice")

	assert.Equal(t, []int64{1, 2, 4, 5}, p.likers(target))
	state, err := likes.New(p.store).ShardState(t.Context(), 6)
	require.NoError(t, err)
	assert.Equal(t, run.Pos, state.Applied)
	assert.Zero(t, state.OpenGaps)
	letters, err := likes.New(p.store).ListDeadLetters(t.Context(), false, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	assert.Equal(t, run.Pos, letters[0].Pos)
	assert.Contains(t, letters[0].Error, "no devils")
	events, at, err := letters[0].Events(p.store.Shards())
	require.NoError(t, err)
	assert.Equal(t, run.Pos, at)
	assert.Equal(t, run.Events[2:3], events)
}

// A late writer may apply a part of a run once more, after a later part. So no part has what a later one takes back.
func TestLikeWriter_partsOfARunHaveTheLastEventOfAUser(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.refuseDevils()
	p.start()()
	target := p.postIn(6)
	run := p.runOf(target, 1, 2, -1, 666, 4)
	first, _ := halve([]models.LikeRecord{run})
	require.True(t, NewLikeWriter(p.store, p.kafka, p.metrics).apply(t.Context(), []models.LikeRecord{run}))
	again, err := likes.New(p.store).ApplyLikes(t.Context(), first)
	require.NoError(t, err)
	assert.Equal(t, len(first[0].Events), again.Duplicates)
	first[0].Pos.Seq++ // the watermark had not moved
	_, err = likes.New(p.store).ApplyLikes(t.Context(), first[:1])
	require.NoError(t, err)
	assert.Equal(t, []int64{2, 4}, p.likers(target))
}

func TestLikeWriter_storesALetterWithoutItsPayload(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.exec(`
		CREATE TRIGGER refuse_large BEFORE INSERT ON dead_letters FOR EACH ROW
		BEGIN
			IF LENGTH(NEW.payload)>1000 THEN
				SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='too large';
			END IF;
		END`)
	p.start()
	target := p.postIn(6)
	p.produce(6, strings.Repeat("garbage", 1000))
	p.set(target, 1, true)
	p.flush()
	assert.Equal(t, []int64{1}, p.likers(target), "it did not wait for the letter")
	testkit.Eventually(t, patience, func() (bool, string) {
		n := p.count(`
			SELECT COUNT(*)
			FROM dead_letters
			WHERE payload LIKE 'sha256 %' AND error LIKE '%too large%' AND error LIKE '%not readable%'`)
		return n == 1, fmt.Sprintf("%d letters", n)
	})
}

// A batch that MySQL cannot write in time is written in parts.
func TestLikeWriter_halvesABatchThatTakesTooLong(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.exec("CREATE TRIGGER slow BEFORE INSERT ON post_likes FOR EACH ROW DO SLEEP(0.05)")
	p.start()()
	target := p.postIn(6)
	var users []int64
	for user := range int64(64) {
		users = append(users, user+1)
	}
	writer := NewLikeWriter(p.store, p.kafka, p.metrics)
	writer.limit = time.Second // for a third of them
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.True(t, writer.apply(ctx, []models.LikeRecord{p.runOf(target, users...)}))
	assert.Equal(t, users, p.likers(target))
}

// The driver breaks the connection of a statement that takes longer than its readTimeout. That is not the limit of the
// batch, and yet the batch will never be written as it is.
func TestLikeWriter_halvesABatchThatTheDriverGivesUp(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.exec("CREATE TRIGGER slow BEFORE INSERT ON post_likes FOR EACH ROW DO SLEEP(0.05)")
	p.start()()
	target := p.postIn(6)
	var users []int64
	for user := range int64(64) {
		users = append(users, user+1)
	}
	impatient, err := db.Open(t.Context(), p.dsn+"&readTimeout=1s", db.Options{})
	require.NoError(t, err)
	defer impatient.Close()
	writer := NewLikeWriter(impatient, p.kafka, p.metrics)
	writer.limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.True(t, writer.apply(ctx, []models.LikeRecord{p.runOf(target, users...)}))
	assert.Equal(t, users, p.likers(target))
}

// A record may have many times the events of a batch.
func TestLikeWriter_cutsWhatItWrites(t *testing.T) {
	t.Parallel()
	run := func(events int) models.LikeRecord { return models.LikeRecord{Events: make([]models.Event, events)} }
	sizes := func(limit int, runs ...models.LikeRecord) (parts [][]int) {
		for _, part := range cut(runs, limit) {
			var events []int
			for _, item := range part {
				events = append(events, len(item.Events))
			}
			parts = append(parts, events)
		}
		return parts
	}
	assert.Equal(t, [][]int{{4, 6}, {1, 9}, {2}}, sizes(10, run(4), run(6), run(1), run(9), run(2)))
	assert.Equal(t, [][]int{{1}, {11}, {1}}, sizes(10, run(1), run(11), run(1)))
	assert.Equal(t, [][]int{{0, 9}, {0}}, sizes(10, run(0), run(9), run(0)), "a run without events has its cost")
	assert.Empty(t, sizes(10))
}

// session is that of a consumer group, without a group.
type session struct {
	sarama.ConsumerGroupSession
	of     func() context.Context
	marked chan int64
}

func (s session) Context() context.Context   { return s.of() }
func (s session) Claims() map[string][]int32 { return nil }

func (s session) MarkMessage(m *sarama.ConsumerMessage, _ string) { s.marked <- m.Offset }

// A backlog has larger records than a transaction should have, and more of them than fit into memory.
func TestLikeWriter_boundsWhatItHoldsAndWrites(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()()
	p.exec("CREATE TABLE batches (seq BIGINT)")
	p.exec("CREATE TRIGGER batch AFTER UPDATE ON like_shards FOR EACH ROW INSERT INTO batches VALUES (NEW.applied_seq)")
	ctx, stop := context.WithCancel(t.Context())
	s := session{of: func() context.Context { return ctx }, marked: make(chan int64)}
	b := &batcher{writer: NewLikeWriter(p.store, p.kafka, p.metrics)}
	require.NoError(t, b.Setup(s))
	assert.LessOrEqual(t, cap(b.records), 8)

	const runs = 2*batchMost/1000 + 1
	item := decoded{record: &sarama.ConsumerMessage{Partition: 6, Offset: 17}, events: runs * 1000}
	run := p.runOf(models.Target{Kind: models.KindPost, ID: 1_000_006}, 1)
	for i := range int64(runs) {
		next := run
		next.Pos.Seq += i
		for user := range int64(1000) {
			next.Events = append(next.Events, models.LikeEvent(run.Events[0].Target(), i*1000+user+2, true, time.Now()))
		}
		next.Events = next.Events[1:]
		item.runs = append(item.runs, next)
	}
	b.records <- item
	assert.Equal(t, int64(17), <-s.marked)
	assert.Equal(t, 3, p.count("SELECT COUNT(*) FROM batches"))
	stop()
	require.NoError(t, b.Cleanup(s))
}
