package workers

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
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

// switchTo changes the mode of the site, step by step.
func (p *pipeline) switchTo(modes ...models.LikesMode) {
	p.t.Helper()
	mode, err := p.store.LikesMode(context.Background())
	require.NoError(p.t, err)
	if mode == "" {
		require.NoError(p.t, p.store.StartLikes(context.Background(), models.LikesGated))
	}
	for _, mode := range modes {
		require.NoError(p.t, p.store.SwitchLikes(context.Background(), mode))
	}
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

func (p *pipeline) refusesToDrain() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := Drain(ctx, p.redis, p.store)
	require.Equal(p.t, models.CodeConflict, models.ErrorCode(err), "%v", err)
	assert.ErrorContains(p.t, err, "were closed, so their last likes are not known")
}

func TestDrain_waitsForEveryLike(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 2, true)
	p.switchTo(models.LikesDraining)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := Drain(short, p.redis, p.store)
	var behind *FlushError
	require.ErrorAs(t, err, &behind)
	require.Len(t, behind.Behind, 1)
	_, err = p.likes.SetLike(t.Context(), target, 3, true)
	require.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)

	p.work()
	require.NoError(t, Drain(t.Context(), p.redis, p.store), "again")
	assert.Equal(t, []int64{1, 2}, p.likers(target))
	require.NoError(t, Drain(t.Context(), p.redis, p.store), "and again")
}

// Redis is emptied while Kafka has a like that MySQL lacks. The last position in Redis is 0-0 then, and MySQL has that.
func TestDrain_refusesAnEmptiedRedis(t *testing.T) {
	t.Parallel()
	p := setup(t)
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
	p.switchTo(models.LikesDraining)
	p.refusesToDrain()
	require.NoError(t, p.store.StopDraining(t.Context()))
	p.start()
	require.NoError(t, p.store.SwitchLikes(t.Context(), models.LikesDraining))
	require.NoError(t, Drain(t.Context(), p.redis, p.store))
	assert.Equal(t, []int64{1, 2}, p.likers(target))
}

// Redis restarts between two attempts, and may have lost what the first one waited for.
func TestDrain_refusesARedisThatRestartedSinceTheFirstAttempt(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	p.flush()
	p.switchTo(models.LikesDraining)
	require.NoError(t, Drain(t.Context(), p.redis, p.store))
	p.closeShard(6)
	p.refusesToDrain()
}

// The site has had another Redis since this one opened the shard.
func TestDrain_refusesARedisThatWasOvertaken(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()()
	p.exec("UPDATE like_shards SET epoch=50, applied_epoch=50, applied_seq=5 WHERE shard=6")
	p.switchTo(models.LikesDraining)
	p.refusesToDrain()
}

// A relay is paused between two steps of an opening, until the site is draining. The shard must stay closed.
func TestRelay_finishesNoOpeningAfterTheGateWasClosed(t *testing.T) {
	t.Parallel()
	for _, modes := range [][]models.LikesMode{
		{models.LikesDraining},
		{models.LikesDraining, models.LikesDirect},
		{models.LikesDraining, models.LikesDirect, models.LikesGated},
		{models.LikesDraining, models.LikesGated},
	} {
		t.Run(fmt.Sprint(modes), func(t *testing.T) {
			t.Parallel()
			p := setup(t)
			relay, outbox := NewRelay(p.redis, p.store, p.kafka, p.metrics), p.hold()
			epoch, err := likes.New(p.store).NextEpoch(t.Context(), 6, 0)
			require.NoError(t, err)
			p.switchTo(modes[0])
			_, err = p.redis.CloseShards(t.Context())
			require.NoError(t, err)
			p.switchTo(modes[1:]...)
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
	p.switchTo(models.LikesDraining, models.LikesDirect)
	_, err := likes.New(p.store).SetLike(context.Background(), target, 1, false)
	require.NoError(p.t, err)
	_, err = likes.New(p.store).SetLike(context.Background(), target, 2, true)
	require.NoError(p.t, err)
	p.switchTo(models.LikesGated)
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
