package workers

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/likes"
)

func sqlOpen(dsn string) (*sql.DB, error) { return sql.Open("mysql", dsn) }

func TestPipeline_movesLikesOfPostsAndCommentsToMySQL(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.post()
	comment, err := content.New(p.store).CreateComment(
		t.Context(),
		p.author,
		target.ID,
		nil,
		models.CommentText{Content: "a comment"},
	)
	require.NoError(t, err)
	under := models.Target{Kind: models.KindComment, ID: comment.ID}
	for user := int64(1); user <= 30; user++ {
		require.Equal(t, user, p.set(target, user, true).Count)
		p.set(under, user, true)
	}
	for user := int64(1); user <= 10; user++ {
		p.set(target, user, false)
	}
	p.flush()
	assert.Len(t, p.likers(target), 20)
	assert.Len(t, p.likers(under), 30)
	assert.Empty(t, p.verify(false))
	infos, err := p.redis.ShardInfos(t.Context())
	require.NoError(t, err)
	for _, info := range infos {
		assert.Zero(t, info.Depth, "Kafka has it, so the outbox of shard %d has dropped it", info.Shard)
	}
}

func TestPipeline_keepsGarbageAsDeadLettersAndContinues(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.post()
	shard := target.Shard(p.store.Shards())
	outbox := fmt.Sprintf("{s%02d}:outbox", shard)
	p.set(target, 7, true)
	for i, run := range []string{"no run at all\n", "likes 1 p-4 1"} {
		last := fmt.Sprint("1-", 2+i)
		require.NoError(t, p.raw.Do(t.Context(), "XADD", outbox, last, "run", run, "before", 1).Err())
		require.NoError(t, p.raw.HSet(t.Context(), fmt.Sprintf("{s%02d}:shard", shard), "last", last).Err())
	}
	p.set(target, 8, true)
	p.produce(shard, "not an envelope")
	p.produce(shard, fmt.Sprintf(`{"v":2,"shard":%d,"runs":[]}`, shard))
	p.produce(shard, fmt.Sprintf(`{"v":1,"shard":%d,"runs":[]}`, shard+1))
	p.produce(shard, fmt.Sprintf(`{"v":1,"shard":%d,"runs":[]}`, shard))
	p.set(target, 9, true)
	p.flush()
	assert.Equal(t, []int64{7, 8, 9}, p.likers(target))
	testkit.Eventually(t, patience, func() (bool, string) {
		n := p.count("SELECT COUNT(*) FROM dead_letters")
		return n == 6, fmt.Sprintf("%d dead letters", n)
	})
	assert.Zero(t, p.count("SELECT COUNT(*) FROM like_gaps"))
}

func TestLikeWriter_isolatesWhatMySQLRefuses(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.exec(`
		CREATE TRIGGER refuse BEFORE INSERT ON post_likes FOR EACH ROW
		BEGIN
			IF NEW.user_id=666 THEN
				SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='no devils';
			END IF;
		END`)
	stop := p.start()
	target := p.post()
	p.set(target, 1, true)
	p.flush()
	stop()
	for user := int64(660); user < 670; user++ { // one batch, because no writer is running
		p.set(target, user, true)
	}
	p.work()
	p.flush()
	assert.Len(t, p.likers(target), 10, "nine of the ten, and the first")
	assert.Equal(
		t,
		1,
		p.count("SELECT COUNT(*) FROM dead_letters WHERE error LIKE '%no devils%' AND payload LIKE '%666%'"),
	)
}

func TestLikeWriter_dropsWhatIsSentTwice(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.postIn(3)
	p.set(target, 7, true)
	p.flush()
	p.set(target, 7, false)
	p.flush()
	p.produce(
		3,
		fmt.Sprintf(`{"v":1,"shard":3,"runs":[{"pos":"1-1","run":"likes 1700000000000 p%d 7"}]}`, target.ID),
	)
	p.set(target, 8, true)
	p.flush()
	assert.Equal(t, []int64{8}, p.likers(target), "the zombie's like stays dropped")
}

// Two processes relay and write, and are stopped and started, while users like and unlike through several gates.
func TestPipeline_keepsTheLastStateOfEachUserWhileWorkersRestart(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stops := []func(){p.start(), p.work()}
	targets := []models.Target{p.post(), p.post(), p.post()}
	_, second := p.gate()
	gates := []interface {
		SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error)
	}{p.likes, second}

	const users = 60
	type key struct {
		target models.Target
		user   int64
	}
	last := map[key]bool{}
	var mu sync.Mutex
	done := make(chan struct{})
	var clients sync.WaitGroup
	for user := int64(1); user <= users; user++ {
		clients.Go(func() {
			for range 40 {
				target, liked := targets[rand.IntN(len(targets))], rand.IntN(2) == 0
				state, err := gates[rand.IntN(2)].SetLike(context.Background(), target, user, liked)
				if err != nil {
					t.Error(err)
					return
				}
				if state.Count < 0 || state.Count > users {
					t.Errorf("count %d", state.Count)
				}
				mu.Lock()
				last[key{target, user}] = liked
				mu.Unlock()
			}
		})
	}
	go func() {
		defer close(done)
		clients.Wait()
	}()
	for restarts := 0; ; restarts++ {
		stops[restarts%2]()
		stops[restarts%2] = p.work()
		select {
		case <-done:
		default:
			continue
		}
		if restarts >= 3 {
			break
		}
	}
	p.flush()
	for k, liked := range last {
		ids := p.likers(k.target)
		found := false
		for _, id := range ids {
			found = found || id == k.user
		}
		assert.Equal(t, liked, found, "%v", k)
	}
	assert.Empty(t, p.verify(false))
	assert.Zero(t, p.count("SELECT COUNT(*) FROM like_gaps"))
}

func TestPipeline_acceptsLikesWhileKafkaIsDown(t *testing.T) {
	t.Parallel()
	p, all := setupOwn(t)
	p.start()
	warm, cold := p.post(), p.post()
	p.set(warm, 1, true)
	p.flush()
	require.NoError(t, all.Kafka.Kill())
	for user := int64(2); user <= 40; user++ {
		p.set(warm, user, true)
		p.set(cold, user, true)
	}
	assert.Len(t, p.likers(warm), 1, "nothing can have arrived")
	shard := warm.Shard(p.store.Shards())
	testkit.Eventually(t, patience, func() (bool, string) { // the desk shows the failure and its process
		failures, err := likes.New(p.store).ShardFailures(context.Background())
		noted := slices.ContainsFunc(failures, func(f models.ShardFailure) bool {
			return f.Shard == shard && f.Stage == models.StageRelay && f.Worker == process() && f.Error != ""
		})
		return noted, fmt.Sprint(failures, err)
	})
	infos, err := p.redis.ShardInfos(t.Context())
	require.NoError(t, err)
	assert.True(
		t,
		infos[shard].Holder == "" || strings.HasPrefix(infos[shard].Holder, process()+"/"),
		infos[shard].Holder,
	)
	require.NoError(t, all.Kafka.Start(t.Context()))
	p.flush()
	assert.Len(t, p.likers(warm), 40)
	assert.Len(t, p.likers(cold), 39)
	assert.Empty(t, p.verify(false))
}

func TestPipeline_acceptsWarmLikesWhileMySQLIsDown(t *testing.T) {
	t.Parallel()
	p, all := setupOwn(t)
	p.start()
	warm, cold := p.post(), p.post()
	p.set(warm, 1, true)
	p.flush()
	require.NoError(t, all.MySQL.Kill())
	for user := int64(2); user <= 40; user++ {
		p.set(warm, user, true)
	}
	_, err := p.likes.SetLike(t.Context(), cold, 1, true)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
	require.NoError(t, all.MySQL.Start(t.Context()))
	p.flush()
	assert.Len(t, p.likers(warm), 40)
	p.set(cold, 1, true)
	p.flush()
	assert.Empty(t, p.verify(false))
}

func TestPipeline_refusesLikesAndServesReadsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	p, all := setupOwn(t)
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.set(target, 2, true)
	p.flush()
	require.NoError(t, all.Redis.Kill())
	_, err := p.likes.SetLike(t.Context(), target, 3, true)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
	states, err := p.likes.LikeStates(t.Context(), 2, []models.TargetCount{{Target: target, Count: 2}})
	require.NoError(t, err)
	assert.Equal(t, []models.LikeState{{Liked: true, Count: 2}}, states)

	require.NoError(t, all.Redis.Start(t.Context()))
	p.awaitOpen()
	assert.Equal(t, int64(3), p.set(target, 3, true).Count)
	p.flush()
	assert.Equal(t, []int64{1, 2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// A restart without a loss keeps warm targets, and the events in the outbox arrive.
func TestRelay_keepsTargetsWarmWhenRedisRestartsWithItsData(t *testing.T) {
	t.Parallel()
	p, all := setupOwn(t)
	stop := p.start()
	target := p.post()
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 2, true)
	require.NoError(t, all.Redis.Kill())
	require.NoError(t, all.Redis.Start(t.Context()))
	_, err := p.likes.SetLike(t.Context(), target, 3, true)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "closed until a worker opens it: %v", err)
	p.start()
	states, err := p.redis.TargetStates(t.Context(), []models.Target{target})
	require.NoError(t, err)
	assert.True(t, states[0].Warm)
	p.flush()
	assert.Equal(t, []int64{1, 2}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// Redis restarts with an older file. MySQL has likes that Redis lacks, and MySQL's likes are kept.
func TestRelay_forgetsTargetsWhenRedisHasLostItsLastEvents(t *testing.T) {
	t.Parallel()
	p, all := setupOwn(t)
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.set(target, 2, true)
	p.flush()
	data := filepath.Join(all.Redis.Dir(), "data")
	older := filepath.Join(t.TempDir(), "older")
	require.NoError(t, all.Redis.Stop(t.Context()))
	copyFolder(t, data, older)
	require.NoError(t, all.Redis.Start(t.Context()))
	p.awaitOpen()
	p.set(target, 1, false)
	p.set(target, 3, true)
	p.flush()

	require.NoError(t, all.Redis.Kill())
	copyFolder(t, older, data)
	require.NoError(t, all.Redis.Start(t.Context()))
	p.awaitOpen()
	assert.Equal(t, []int64{2, 3}, p.likers(target))
	assert.Equal(t, int64(3), p.set(target, 4, true).Count, "counted from MySQL, not from the old file")
	p.flush()
	assert.Equal(t, []int64{2, 3, 4}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

func TestRelay_opensShardsAgainWhenRedisIsEmptied(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.set(target, 2, true)
	p.flush()
	require.NoError(t, p.raw.FlushDB(t.Context()).Err())
	p.awaitOpen()
	assert.Equal(t, int64(2), p.set(target, 1, true).Count, "warmed from MySQL: there already")
	p.set(target, 3, true)
	p.flush()
	assert.Equal(t, []int64{1, 2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// The first event of an epoch is lost in Kafka. The shard must neither stay closed for ever nor open too early.
func TestReconciler_repairsEventsLostInTheLog(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(5)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 2, true)
	p.set(target, 1, false)
	p.set(target, 3, true)
	// The log loses events 2 and 3 of the shard.
	require.NoError(t, p.raw.Do(t.Context(), "XDEL", "{s05}:outbox", "1-2", "1-3").Err())
	p.work()
	p.flush()
	assert.Equal(t, []int64{1, 3}, p.likers(target), "applied over the hole")
	assert.NotEmpty(t, p.verify(false))

	p.idle(target)
	cooled, _, err := NewJanitor(p.redis, p.store, p.metrics, MinCoolAfter).Cool(t.Context())
	require.NoError(t, err)
	assert.Zero(t, cooled, "Redis alone knows what is missing")

	resent, err := NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, resent)
	p.flush()
	assert.Equal(t, []int64{2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
	resent, err = NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	assert.Zero(t, resent, "reconciled once")
}

func TestJanitor_evictsIdleCleanTargets(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	clean, dirty := p.postIn(1), p.postIn(2)
	p.set(clean, 1, true)
	p.set(dirty, 1, true)
	p.flush()
	stop()
	p.set(dirty, 2, true)

	janitor := NewJanitor(p.redis, p.store, p.metrics, time.Hour)
	cooled, warm, err := janitor.Cool(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 0, cooled, "nothing is idle yet")
	assert.Equal(t, 2, warm)
	p.idle(clean, dirty)
	cooled, warm, err = janitor.Cool(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, cooled)
	assert.Equal(t, 1, warm, "what MySQL does not have stays")

	p.work()
	assert.Equal(t, int64(2), p.set(clean, 2, true).Count, "warmed again on its next like")
	p.flush()
	assert.Equal(t, []int64{1, 2}, p.likers(clean))
	assert.Equal(t, []int64{1, 2}, p.likers(dirty))
	assert.Empty(t, p.verify(false))
}

// MySQL has refused a like, which waits for an admin. Until then the gate alone has it. Were its target evicted, the
// retry would find the opposite in MySQL.
func TestJanitor_keepsWhatADeadLetterIsAbout(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.refuseDevils()
	p.gated()
	p.start()
	target, other := p.postIn(6), p.postIn(7)
	p.set(target, 1, true)
	p.set(target, 666, true)
	p.set(other, 1, true)
	p.flush()
	require.Equal(t, 1, p.count("SELECT COUNT(*) FROM dead_letters"))
	require.Equal(t, []int64{1}, p.likers(target))
	janitor := NewJanitor(p.redis, p.store, p.metrics, time.Hour)
	p.idle(target, other)
	cooled, _, err := janitor.Cool(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, cooled, "that of the other shard")
	forgotten, err := p.redis.Forget(t.Context(), p.store, target)
	require.NoError(t, err)
	assert.False(t, forgotten)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, FlushWhole(short, p.redis, p.store), "shard 6 has dead letters (1)")
	p.staysGated("shard 6 has dead letters (1), which an admin retries or discards")

	p.exec("DROP TRIGGER refuse")
	letters, err := likes.New(p.store).ListDeadLetters(t.Context(), false, 0, 10)
	require.NoError(t, err)
	events, at, err := letters[0].Events(p.store.Shards())
	require.NoError(t, err)
	desk := NewDesk(p.store, p.redis, p.likes)
	require.NoError(t, desk.Reassert(t.Context(), events[0], at))
	p.flush()
	assert.Equal(t, []int64{1, 666}, p.likers(target))

	// An operator evicts the target, and its next like loads it from MySQL.
	p.exec("DELETE FROM post_likes WHERE user_id=666")
	p.exec("UPDATE posts SET likes_count=1 WHERE id=?", target.ID)
	require.NoError(t, p.raw.Del(t.Context(), p.likesKey(target)).Err())
	p.set(target, 2, true)
	require.ErrorIs(t, desk.Reassert(t.Context(), events[0], at), counters.ErrNotWarm)

	p.exec("UPDATE dead_letters SET resolution='discarded', resolved_at=NOW(3)")
	p.flush()
	require.NoError(t, FlushWhole(t.Context(), p.redis, p.store))
	p.idle(target)
	cooled, _, err = janitor.Cool(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, cooled)
}

// The set of a warm target is deleted manually. Neither a like nor the verifier may take that for a mass unlike.
func TestPipeline_reloadsALostSetFromMySQL(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target, other := p.postIn(4), p.postIn(4)
	for user := int64(1); user <= 3; user++ {
		p.set(target, user, true)
		p.set(other, user, true)
	}
	p.flush()
	require.NoError(t, p.raw.Del(t.Context(), p.set0(target), p.set0(other)).Err())
	_, err := p.likes.SetLike(t.Context(), target, 4, true)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "the first like finds the loss: %v", err)
	assert.Equal(t, int64(4), p.set(target, 4, true).Count)
	require.Len(t, p.verify(true), 1)
	p.flush()
	assert.Equal(t, []int64{1, 2, 3, 4}, p.likers(target))
	assert.Equal(t, []int64{1, 2, 3}, p.likers(other))
	assert.Empty(t, p.verify(false))

	stop()
	p.set(target, 5, true)
	require.NoError(t, p.raw.Del(t.Context(), p.set0(target)).Err())
	_, err = p.likes.SetLike(t.Context(), target, 6, true)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "what was accepted must reach MySQL first: %v", err)
	p.work()
	p.flush()
	_, err = p.likes.SetLike(t.Context(), target, 6, true)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
	assert.Equal(t, int64(6), p.set(target, 6, true).Count)
	p.flush()
	assert.Empty(t, p.verify(false))
}

func TestFlush_namesTheShardsThatAreBehind(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(9)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 2, true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := Flush(ctx, p.redis, p.store)
	var behind *FlushError
	require.ErrorAs(t, err, &behind)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, behind.Behind, 1)
	assert.Equal(t, 9, behind.Behind[0].Shard)
	assert.Equal(t, int64(1), behind.Behind[0].Depth)
	assert.Contains(t, err.Error(), "shard 9: accepted up to 1-2, MySQL has up to 1-1, 1 likes in the outbox")
}

// The events of a gap were acknowledged, so a flush has not ended while the gap is open.
func TestFlush_waitsForGaps(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.postIn(9)
	p.set(target, 1, true)
	p.flush()
	p.addGap(9)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := FlushWhole(ctx, p.redis, p.store)
	var behind *FlushError
	require.ErrorAs(t, err, &behind)
	assert.Contains(t, err.Error(), "shard 9 has open gaps (1), which the cron job reconcile repairs")

	flushed := make(chan error, 1)
	go func() { flushed <- FlushWhole(t.Context(), p.redis, p.store) }()
	_, err = NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	require.NoError(t, <-flushed)
	assert.Zero(t, p.openGaps())
}

func TestVerify_findsAndRepairsEachDifference(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	count, lost, extra, counter, comments, orphan := p.post(), p.post(), p.post(), p.post(), p.post(), p.post()
	for _, target := range []models.Target{count, lost, extra, counter, orphan} {
		p.set(target, 1, true)
		p.set(target, 2, true)
	}
	p.flush()
	require.Empty(t, p.verify(false))

	p.exec("UPDATE posts SET likes_count=9, updated_at=updated_at WHERE id=?", count.ID)
	p.exec("UPDATE posts SET comments_count=9, updated_at=updated_at WHERE id=?", comments.ID)
	p.exec("DELETE FROM post_likes WHERE post_id=? AND user_id=2", lost.ID)
	p.exec("UPDATE posts SET likes_count=1 WHERE id=?", lost.ID)
	p.exec("INSERT INTO post_likes (post_id, user_id) VALUES (?, 5)", extra.ID)
	p.exec("UPDATE posts SET likes_count=3 WHERE id=?", extra.ID)
	key := fmt.Sprintf("{s%02d}:%s:likes", counter.Shard(p.store.Shards()), counter)
	require.NoError(t, p.raw.HIncrBy(t.Context(), key, "count", 1).Err())
	p.exec("DELETE FROM posts WHERE id=?", orphan.ID)

	found := p.verify(false)
	assert.True(t, containsText(found, count.String()+": likes_count is 9 and there are 2 rows"), "%q", found)
	assert.True(t, containsText(found, comments.String()+": comments_count is 9 and there are 0 rows"), "%q", found)
	assert.True(t, containsText(found, lost.String()+": Redis has 2 users and MySQL 1"), "%q", found)
	assert.True(t, containsText(found, extra.String()+": Redis has 2 users and MySQL 3"), "%q", found)
	assert.True(
		t,
		containsText(found, counter.String()+": the counter in Redis is 3 and its set has 2 users"),
		"%q",
		found,
	)
	assert.True(t, containsText(found, orphan.String()+": it has 2 likes and does not exist"), "%q", found)
	assert.True(t, containsText(found, orphan.String()+": it is in Redis and does not exist in MySQL"), "%q", found)
	for _, target := range []models.Target{lost, extra} {
		assert.True(t, containsText(found, target.String()+": hot_score is "), "%q", found)
	}
	assert.Len(t, found, 9)
	assert.Equal(t, found, p.verify(false), "looking changes nothing")

	assert.Len(t, p.verify(true), 9)
	p.flush()
	assert.Empty(t, p.verify(false))
	assert.Equal(t, []int64{1, 2}, p.likers(lost), "an acknowledged like is brought back")
}

func TestVerify_findsDeletedTargetsThatAreOpenInTheGate(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	deleted, under, normal := p.post(), p.post(), p.post()
	comment, err := content.New(p.store).CreateComment(
		t.Context(),
		p.author,
		under.ID,
		nil,
		models.CommentText{Content: "a comment"},
	)
	require.NoError(t, err)
	reply := models.Target{Kind: models.KindComment, ID: comment.ID}
	for _, target := range []models.Target{deleted, under, normal, reply} {
		p.set(target, 1, true)
	}
	p.flush()
	require.NoError(t, content.New(p.store).DeletePost(t.Context(), 0, under.ID))
	require.NoError(t, p.likes.CloseTargets(t.Context(), []models.Target{under, reply}))
	assert.Empty(t, p.verify(false), "a comment under a deleted post is closed rightly")

	require.NoError(t, content.New(p.store).DeletePost(t.Context(), 0, deleted.ID)) // not closed in Redis
	require.NoError(t, p.likes.CloseTargets(t.Context(), []models.Target{normal}))
	// The closed normal target is not a difference, because the gate reads MySQL before it refuses a like.
	assert.Equal(t, []string{deleted.String() + ": it takes likes in Redis but is deleted in MySQL"}, p.verify(false))
	assert.Len(t, p.verify(true), 1)
	assert.Empty(t, p.verify(false))
	_, err = p.likes.SetLike(t.Context(), deleted, 2, true)
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	assert.Equal(t, int64(2), p.set(normal, 2, true).Count)
}

func TestVerify_ignoresEventsInThePipeline(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.post()
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for user := range int64(4) {
		clients.Go(func() {
			for ctx.Err() == nil {
				if _, err := p.likes.SetLike(
					context.WithoutCancel(ctx),
					target,
					user+1,
					rand.IntN(2) == 0,
				); err != nil {
					t.Error(err)
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	for range 5 {
		for _, found := range p.verify(false) {
			assert.Contains(t, found, "changed during every comparison", "the only problem a busy target may have")
		}
	}
	stop()
	clients.Wait()
	p.flush()
	assert.Empty(t, p.verify(false))
}

func TestKafka_refusesATopicWithOtherPartitions(t *testing.T) {
	t.Parallel()
	p := setup(t)
	require.NoError(t, p.kafka.EnsureTopic(16))
	require.NoError(t, p.kafka.EnsureTopic(16))
	err := p.kafka.EnsureTopic(4)
	assert.ErrorIs(t, err, ErrPartitions)
}

func TestDriftWatch_loopsAndCounts(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.post()
	p.set(target, 1, true)
	p.flush()
	registry := prometheus.NewRegistry()
	watch := NewDriftWatch(p.store, p.redis, p.likes, registry, func(models.Difference) {})
	round := func() int {
		t.Helper()
		n, err := watch.Watch(t.Context())
		require.NoError(t, err)
		return n
	}
	assert.Zero(t, round())
	p.exec("UPDATE posts SET likes_count=7, updated_at=updated_at WHERE id=?", target.ID)
	assert.Zero(t, round(), "it is at the end")
	assert.Equal(t, 1, round(), "and begins again")
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		values[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	assert.Equal(t, map[string]float64{"likewise_drift_total": 1, "likewise_drift_compared_total": 2}, values)
	p.exec("UPDATE posts SET likes_count=1, updated_at=updated_at WHERE id=?", target.ID)

	stop()
	p.set(target, 2, true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := watch.Watch(ctx)
	require.NoError(t, err)
	assert.Zero(t, n)
	n, err = watch.Watch(ctx)
	require.NoError(t, err)
	assert.Zero(t, n, "likes in transit are not drift")
}
