package db_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
)

// shardLog makes the records of one target's shard.
type shardLog struct {
	t      *testing.T
	store  *db.DB
	likes  *likes.Store
	target models.Target
}

func (l shardLog) at(epoch, seq, user int64, liked bool) models.LikeRecord {
	return l.of(l.target, epoch, seq, user, liked)
}

func (l shardLog) of(target models.Target, epoch, seq, user int64, liked bool) models.LikeRecord {
	return l.run(epoch, seq, models.LikeEvent(target, user, liked, past))
}

// run makes the record of events that have one position.
func (l shardLog) run(epoch, seq int64, events ...models.Event) models.LikeRecord {
	return models.LikeRecord{Shard: l.target.Shard(l.store.Shards()), Pos: models.Position{Epoch: epoch, Seq: seq},
		Events: events, Payload: []byte(models.NewRun(events...)), Topic: "likes", Offset: seq}
}

// opened makes the first record of an epoch. Its outbox had positions up to after.
func (l shardLog) opened(epoch int64, after models.Position) models.LikeRecord {
	return l.run(epoch, 0, models.Event{Type: models.ShardOpened, After: after})
}

func (l shardLog) apply(records ...models.LikeRecord) models.LikesApplied {
	l.t.Helper()
	done, err := l.likes.ApplyLikes(context.Background(), records)
	require.NoError(l.t, err)
	l.check(l.target)
	return done
}

// check compares the count with the rows.
func (l shardLog) check(target models.Target) {
	l.t.Helper()
	tally, ok, err := l.likes.TallyOf(context.Background(), target)
	require.NoError(l.t, err)
	require.True(l.t, ok)
	require.Equal(l.t, tally.LikeRows, tally.Likes, "likes_count of %s and its rows", target)
}

func (l shardLog) likers() []int64 {
	l.t.Helper()
	ids, err := l.likes.LikerIDs(context.Background(), l.target, 0, 1000)
	require.NoError(l.t, err)
	return ids
}

func (l shardLog) state() models.ShardState {
	l.t.Helper()
	state, err := l.likes.ShardState(context.Background(), l.target.Shard(l.store.Shards()))
	require.NoError(l.t, err)
	return state
}

// newLog makes a post whose shard has been opened with epoch 1.
func newLog(t *testing.T) shardLog {
	t.Helper()
	store := openStore(t)
	testkit.AddUsers(t, store.Pool(), 1, 2000) // before the author, whose likes count for no milestone
	post := newPost(t, store, newUser(t, store, "ada"))
	l := shardLog{t, store, likes.New(store), models.Target{Kind: models.KindPost, ID: post.ID}}
	l.apply(l.opened(1, models.Position{}))
	return l
}

func TestApplyLikes_writesRowsCountAndWatermark(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	done := l.apply(l.at(1, 1, 7, true), l.at(1, 2, 8, true))
	assert.Equal(t, 2, done.Inserted)
	assert.Equal(t, []int64{7, 8}, l.likers())
	assert.Equal(t, models.Position{Epoch: 1, Seq: 2}, l.state().Applied)
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM post_likes WHERE user_id=7 AND created_at=?", past),
		"the like has the time of its acceptance")
	assert.Equal(t, 2, count(t, l.store, "SELECT likes_count FROM posts WHERE id=?", l.target.ID))

	done = l.apply(l.at(1, 3, 7, false))
	assert.Equal(t, 1, done.Deleted)
	assert.Equal(t, []int64{8}, l.likers())
}

// Likes that have a row, because they are reasserted, neither count twice nor keep the others out.
func TestApplyLikes_likesThatHaveARow(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.apply(l.at(1, 1, 7, true), l.at(1, 2, 9, true))
	done := l.apply(l.at(1, 3, 6, true), l.at(1, 4, 7, true), l.at(1, 5, 8, true))
	assert.Equal(t, 2, done.Inserted)
	assert.Equal(t, []int64{6, 7, 8, 9}, l.likers())
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM post_likes WHERE user_id=7 AND created_at=?", past))
	done = l.apply(l.at(1, 6, 6, true), l.at(1, 7, 7, true))
	assert.Zero(t, done.Inserted)
	assert.Equal(t, []int64{6, 7, 8, 9}, l.likers())
	assert.Equal(t, models.Position{Epoch: 1, Seq: 7}, l.state().Applied)
}

func TestApplyLikes_dropsDuplicates(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.apply(l.at(1, 1, 7, true), l.at(1, 2, 7, false))
	done := l.apply(l.at(1, 1, 7, true))
	assert.Equal(t, 1, done.Duplicates)
	assert.Empty(t, l.likers(), "the like was taken back; its duplicate must not bring it back")
	done = l.apply(l.at(1, 1, 7, true), l.at(1, 2, 7, false), l.at(1, 3, 8, true))
	assert.Equal(t, 2, done.Duplicates)
	assert.Equal(t, []int64{8}, l.likers())
	assert.Zero(t, done.Gaps)
}

func TestApplyLikes_recordsAJumpAndAppliesOverIt(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.apply(l.at(1, 1, 7, true))
	done := l.apply(l.at(1, 4, 8, true))
	assert.Equal(t, 1, done.Gaps)
	assert.Equal(t, []int64{7, 8}, l.likers(), "a shard does not wait for ever")
	assert.Equal(t, models.Position{Epoch: 1, Seq: 4}, l.state().Applied)
	assert.Equal(t, 1, l.state().OpenGaps)
	assert.Equal(
		t,
		1,
		count(t, l.store,
			"SELECT COUNT(*) FROM like_gaps WHERE after_epoch=1 AND after_seq=1 AND before_epoch=1 AND before_seq=4"),
	)

	gaps, err := l.likes.OpenGaps(t.Context(), l.state().Shard)
	require.NoError(t, err)
	assert.Equal(t, models.Position{Epoch: 1, Seq: 1}, gaps.After)
	require.NoError(t, l.likes.CloseGaps(t.Context(), gaps.IDs))
	assert.Zero(t, l.state().OpenGaps)
}

func TestApplyLikes_recordsAnEpochThatBeginsInTheMiddle(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	assert.Equal(t, 1, l.apply(l.at(2, 1, 7, true)).Gaps)
	assert.Equal(t, []int64{7}, l.likers())
}

func TestApplyLikes_dropsAnOldEpoch(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.apply(l.at(1, 1, 7, true), l.opened(2, models.Position{Epoch: 1, Seq: 1}), l.at(2, 1, 7, false))
	done := l.apply(l.at(1, 2, 7, true), l.at(1, 99, 8, true))
	assert.Equal(t, 2, done.Duplicates)
	assert.Empty(t, l.likers())
	assert.Zero(t, done.Gaps)
	assert.Equal(t, models.Position{Epoch: 2, Seq: 1}, l.state().Applied)
}

func TestApplyLikes_acceptsAHigherEpochFromItsFirstNumber(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.apply(l.at(1, 1, 7, true), l.at(1, 2, 8, true))
	done := l.apply(l.opened(5, models.Position{Epoch: 1, Seq: 2}), l.at(5, 1, 9, true))
	assert.Zero(t, done.Gaps, "epochs in which nothing was opened leave no gap")
	assert.Equal(t, []int64{7, 8, 9}, l.likers())
	assert.Equal(t, models.Position{Epoch: 1, Seq: 2}, l.state().Sealed, "where the epoch before ended")
}

// An epoch begins with the position before it. The log has lost the runs in between, and nobody else would notice.
func TestApplyLikes_recordsWhatTheLogLostBeforeAnOpening(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.apply(l.at(1, 1, 7, true))
	done := l.apply(l.opened(2, models.Position{Epoch: 1, Seq: 3}), l.at(2, 1, 8, true))
	assert.Equal(t, 1, done.Gaps)
	assert.Equal(t, []int64{7, 8}, l.likers())
	assert.Equal(t, 1, count(t, l.store, `
		SELECT COUNT(*)
		FROM like_gaps
		WHERE after_epoch=1 AND after_seq=1 AND before_epoch=2 AND before_seq=0`))
	assert.Zero(t, l.apply(l.opened(3, models.Position{Epoch: 1, Seq: 1})).Gaps, "the log has what Redis lost")
}

// An opening that is given up begins an epoch without likes. Then MySQL is not ahead of a Redis that has kept all.
func TestApplyLikes_keepsTheLastPositionOverSeveralOpenings(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	last := models.Position{Epoch: 1, Seq: 1}
	l.apply(l.at(1, 1, 7, true), l.opened(2, last), l.opened(3, models.Position{Epoch: 2}))
	assert.Equal(t, last, l.state().Sealed)
	l.apply(l.opened(4, models.Position{Epoch: 3}))
	assert.Equal(t, last, l.state().Sealed)
	assert.Zero(t, l.state().OpenGaps)
}

// Events of one run have one position.
func TestApplyLikes_appliesARunAsOne(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	like := func(user int64, liked bool) models.Event { return models.LikeEvent(l.target, user, liked, past) }
	run := l.run(1, 1, like(7, true), like(8, true), like(7, false), like(9, true))
	done := l.apply(run, l.at(1, 2, 10, true))
	assert.Equal(t, 5, done.Accepted)
	assert.Equal(t, 3, done.Inserted)
	assert.Zero(t, done.Gaps)
	assert.Equal(t, []int64{8, 9, 10}, l.likers())
	assert.Equal(t, 4, l.apply(run).Duplicates)

	part := l.run(1, 3, like(11, true))
	part.Part = true
	l.apply(part)
	assert.Equal(t, []int64{8, 9, 10, 11}, l.likers())
	assert.Equal(t, models.Position{Epoch: 1, Seq: 2}, l.state().Applied, "the rest of the run is not applied")
	assert.Zero(t, l.apply(l.run(1, 3)).Gaps)
	assert.Equal(t, models.Position{Epoch: 1, Seq: 3}, l.state().Applied)
}

func TestApplyLikes_foldsABatchToTheLastEventOfEachUser(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	done := l.apply(l.at(1, 1, 7, true), l.at(1, 2, 7, false), l.at(1, 3, 7, true), l.at(1, 4, 8, true),
		l.at(1, 5, 8, false))
	assert.Equal(t, 1, done.Inserted)
	assert.Zero(t, done.Deleted)
	assert.Equal(t, []int64{7}, l.likers())
}

// A user withdraws a like and likes again. In one batch this must have the same outcome as in two, because a LikeVoid
// voids the likes of a period.
func TestApplyLikes_renewsALikeThatWasWithdrawn(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	like := func(user int64, liked bool, after time.Duration) models.Event {
		return models.LikeEvent(l.target, user, liked, past.Add(after))
	}
	users := []int64{7, 8, 9, 10}
	for i, user := range users {
		l.apply(l.at(1, int64(i+1), user, true))
	}
	one := l.run(1, 5, like(7, false, time.Hour), like(8, true, time.Hour))
	two := l.run(1, 6, like(7, true, time.Hour), like(9, false, time.Hour), like(9, true, time.Hour),
		like(9, true, time.Hour))
	three := l.run(1, 7, models.LastEvents([]models.Event{like(10, false, 2*time.Hour), like(10, true, 2*time.Hour),
		like(10, true, 2*time.Hour)})...)
	done := l.apply(one, two, three)
	assert.Zero(t, done.Inserted+done.Deleted)
	assert.Equal(t, users, l.likers())
	liked := func(user int64, after time.Duration) {
		t.Helper()
		assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM post_likes WHERE user_id=? AND created_at=?",
			user, past.Add(after)), "user %d", user)
	}
	liked(7, time.Hour)
	liked(8, 0) // liked twice, without an unlike in between
	liked(9, time.Hour)
	liked(10, 2*time.Hour)

	l.apply(l.run(1, 8, like(7, false, 3*time.Hour), like(7, true, 3*time.Hour), like(7, false, 3*time.Hour)))
	assert.Equal(t, users[1:], l.likers())
}

// A list that is too long for the range optimizer would lock the whole table.
func TestApplyLikes_locksSomeThousandTargetsAtATime(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	store, log := openWatched(t, dsn)
	l := shardLog{t, store, likes.New(store), models.Target{Kind: models.KindPost, ID: newPost(t, store, newUser(t,
		store, "ada")).ID}}
	events := []models.Event{models.LikeEvent(l.target, 7, true, past)}
	testkit.AddUsers(t, store.Pool(), 7, 7)
	const ghosts = 12_000
	for i := range int64(ghosts) {
		ghost := models.Target{Kind: models.KindPost, ID: l.target.ID + (i+1)*int64(store.Shards())}
		events = append(events, models.LikeEvent(ghost, 7, true, past))
	}
	log.selects()
	done := l.apply(l.opened(1, models.Position{}), l.run(1, 1, events...))
	assert.Equal(t, ghosts, done.Vanished)
	assert.Equal(t, []int64{7}, l.likers())
	for _, query := range log.selects() {
		assert.LessOrEqual(t, strings.Count(query, ","), 5000+10)
	}
}

func TestApplyLikes_countsOnlyRowsThatChange(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.apply(l.at(1, 1, 7, true))
	done := l.apply(l.at(1, 2, 7, true), l.at(1, 3, 8, false))
	assert.Zero(t, done.Inserted+done.Deleted, "an existing like and an unlike of none change nothing")
	assert.Equal(t, 1, count(t, l.store, "SELECT likes_count FROM posts WHERE id=?", l.target.ID))
}

func TestApplyLikes_passesOverAVanishedTarget(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	ghost := models.Target{Kind: models.KindPost, ID: l.target.ID + 16} // in the same shard
	done := l.apply(l.of(ghost, 1, 1, 7, true), l.at(1, 2, 8, true))
	assert.Equal(t, 1, done.Vanished)
	assert.Equal(t, []int64{8}, l.likers())
	assert.Zero(t, count(t, l.store, "SELECT COUNT(*) FROM post_likes WHERE post_id=?", ghost.ID), "no like of nothing")
}

func TestApplyLikes_appliesLikesOfADeletedPost(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	require.NoError(t, content.New(l.store).DeletePost(t.Context(), 0, l.target.ID))
	l.apply(l.at(1, 1, 7, true))
	assert.Equal(t, []int64{7}, l.likers(), "it was acknowledged before the deletion, and a restored post shows it")
}

func TestApplyLikes_keepsPoisonAsDeadLetter(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	poison := l.at(1, 2, 9, true)
	poison.Problem, poison.Payload = "makes no sense", []byte("\xff\x00{")
	done := l.apply(l.at(1, 1, 7, true), poison, l.at(1, 3, 8, true))
	assert.Equal(t, 1, done.DeadLetters)
	assert.Zero(t, done.Gaps, "a letter has its number")
	assert.Equal(t, []int64{7, 8}, l.likers(), "the rest of the batch proceeds")
	assert.Equal(
		t,
		1,
		count(t, l.store, "SELECT COUNT(*) FROM dead_letters WHERE seq=2 AND error='makes no sense' AND payload=?",
			poison.Payload),
	)
	l.apply(poison)
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM dead_letters"))
}

func TestApplyLikes_keepsAnUnreadableRecordOnce(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	garbage := models.LikeRecord{
		Shard:   l.state().Shard,
		Payload: []byte("garbage"),
		Problem: "unreadable",
		Topic:   "likes",
		Offset:  3,
	}
	l.apply(garbage)
	l.apply(garbage)
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM dead_letters"))
	other := garbage
	other.Offset = 4
	l.apply(other)
	assert.Equal(t, 2, count(t, l.store, "SELECT COUNT(*) FROM dead_letters"))
	assert.Equal(t, models.Position{Epoch: 1}, l.state().Applied, "garbage has no number")
}

func TestApplyLikes_refusesAShardThatIsNotInstalled(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	stray := l.at(1, 1, 7, true)
	stray.Shard = 99
	assert.Equal(t, 1, l.apply(stray).DeadLetters)
}

func TestApplyLikes_reportsBadData(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.store.Pool().ExecContext(
		t.Context(),
		`
		CREATE TRIGGER refuse BEFORE INSERT ON post_likes FOR EACH ROW
		BEGIN
			IF NEW.user_id=666 THEN
				SIGNAL SQLSTATE '45000';
			END IF;
		END`,
	)
	require.NoError(t, err)
	_, err = l.likes.ApplyLikes(t.Context(), []models.LikeRecord{l.at(1, 1, 7, true), l.at(1, 2, 666, true)})
	require.Error(t, err)
	assert.True(t, db.IsBadData(err))
	assert.Empty(t, l.likers(), "all or nothing")
	assert.Equal(t, models.Position{Epoch: 1}, l.state().Applied)

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.likes.ApplyLikes(cancelled, []models.LikeRecord{l.at(1, 1, 7, true)})
	require.Error(t, err)
	assert.False(t, db.IsBadData(err))
}

func TestApplyLikes_movesNeitherVersionNorUpdatedAt(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	post, err := content.New(l.store).PostByID(t.Context(), 0, l.target.ID)
	require.NoError(t, err)
	comment := newComment(t, l.store, post.Author, post, nil)
	_, err = l.store.Pool().ExecContext(t.Context(), "UPDATE posts SET updated_at=?", past)
	require.NoError(t, err)
	_, err = l.store.Pool().ExecContext(t.Context(), "UPDATE comments SET updated_at=?", past)
	require.NoError(t, err)

	c := shardLog{t, l.store, l.likes, models.Target{Kind: models.KindComment, ID: comment.ID}}
	l.apply(l.at(1, 1, 7, true), c.of(c.target, 1, 2, 7, true))
	l.apply(l.at(1, 3, 7, false), c.of(c.target, 1, 4, 8, true))
	c.check(c.target)
	assert.Equal(t, []int64{7, 8}, c.likers())
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM posts WHERE version=0 AND updated_at=?", past))
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM comments WHERE version=0 AND updated_at=?", past))
}

// Several writers of one shard apply overlapping parts of the log, in pieces and more than once.
func TestApplyLikes_writersThatBothOwnAShardTakeTurns(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	var log []models.LikeRecord
	want := map[int64]bool{}
	for seq := int64(1); seq <= 300; seq++ {
		user, liked := rand.Int64N(20)+1, rand.IntN(2) == 0
		log = append(log, l.at(1, seq, user, liked))
		want[user] = liked
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for start := 0; start < len(log); {
				end := min(start+1+rand.IntN(25), len(log))
				if _, err := l.likes.ApplyLikes(context.Background(), log[start:end]); err != nil {
					t.Error(err)
					return
				}
				start = max(start+1, end-rand.IntN(10)) // goes back a little, as after a rebalance
			}
		})
	}
	writers.Wait()
	l.check(l.target)
	for user, liked := range want {
		assert.Equal(t, liked, slices.Contains(l.likers(), user), "user %d", user)
	}
	assert.Zero(t, l.state().OpenGaps)
}

// Direct mode can still serve requests while the pipeline writes, for example during a rollout.
func TestApplyLikes_agreesWithDirectWrites(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	var direct sync.WaitGroup
	for range 4 {
		direct.Go(func() {
			for range 60 {
				if _, err := l.likes.SetLike(context.Background(), l.target, rand.Int64N(10)+1,
					rand.IntN(2) == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for seq := int64(1); seq <= 60; seq++ {
		_, err := l.likes.ApplyLikes(context.Background(),
			[]models.LikeRecord{l.at(1, seq, rand.Int64N(10)+1, seq%2 == 0)})
		require.NoError(t, err)
	}
	direct.Wait()
	l.check(l.target)
}

func TestNextEpoch_isHigherThanEverythingBefore(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	shard := l.state().Shard
	first, err := l.likes.NextEpoch(t.Context(), shard, 0)
	require.NoError(t, err)
	assert.Equal(t, int64(2), first, "epoch 1 is applied already")
	second, err := l.likes.NextEpoch(t.Context(), shard, 40)
	require.NoError(t, err)
	assert.Equal(t, int64(41), second)
	_, err = l.likes.NextEpoch(t.Context(), 99, 0)
	assert.Error(t, err)

	seen := map[int64]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			epoch, err := l.likes.NextEpoch(context.Background(), shard, 0)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[epoch] {
				t.Errorf("epoch %d twice, or %v", epoch, err)
			}
			seen[epoch] = true
		})
	}
	all.Wait()
}

func TestPosition_order(t *testing.T) {
	t.Parallel()
	p := func(e, s int64) models.Position { return models.Position{Epoch: e, Seq: s} }
	for _, c := range []struct {
		a, b           models.Position
		after, follows bool
	}{
		{p(1, 0), p(0, 0), true, false},
		{p(1, 1), p(1, 0), true, true},
		{p(1, 2), p(1, 0), true, false},
		{p(2, 0), p(1, 9), true, false},
		{p(2, 1), p(1, 9), true, false},
		{p(1, 9), p(2, 0), false, false},
		{p(1, 1), p(1, 1), false, false},
		{p(5, 0), p(1, 1), true, false},
	} {
		assert.Equal(t, c.after, c.a.After(c.b), "%s after %s", c.a, c.b)
		assert.Equal(t, c.follows, c.a.Follows(c.b), "%s follows %s", c.a, c.b)
	}
}

func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"0-0", "3-17", "-1-2", "3", "9223372036854775808-0", "1-2-3", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := models.ParsePosition(s)
		if err != nil {
			return
		}
		again, err := models.ParsePosition(p.String())
		if err != nil || again != p || p.Epoch < 0 || p.Seq < 0 {
			t.Fatalf("%q became %v, then %v, %v", s, p, again, err)
		}
	})
}

func FuzzRun(f *testing.F) {
	f.Add(string(models.NewRun(
		models.LikeEvent(models.Target{Kind: models.KindPost, ID: 3}, 7, true, past),
		models.LikeEvent(models.Target{Kind: models.KindPost, ID: 3}, 8, false, past),
		models.LikeEvent(models.Target{Kind: models.KindComment, ID: 19}, 7, true, past),
	)))
	f.Add(string(models.NewRun(
		models.ClaimEvent(3, 7, 881726354918, true, past),
		models.ClaimEvent(3, 8, 771, false, past),
		models.DropEvent(19, 3, past),
	)))
	for _, run := range []string{"claims 1 d3 +7", "claims 1 d3 7:8", "claims 1 d3 +7:0", "claims 1 d3 +7:8:9",
		"claims 1 d3 =3:4", "claims 1 p3 +7:1", "likes 1 d3 7", "likes 1 p3 7:1", "likes 1 p3 =3", "claims 1 d4 +7:1",
		"claims 1 d3 =0", "claims 1 =3",
		"claims 1 d3 +7:9223372036854775808", "claims 1 d3 !7:1", "claims"} {
		f.Add(run)
	}
	for _, run := range []string{"probed", "opened 3-17", "opened", "likes", "likes 1 p3", "likes 1 7",
		"likes 1 p3 +7", "likes 1 p3 --1", "likes 1 p4 7", "likes 0 p3 7", "likes 4102444800000 p3 7", "likes 1 p3  7",
		"likes 1 p3 7 ", ""} {
		f.Add(run)
	}
	f.Fuzz(func(t *testing.T, text string) {
		events, err := models.Run(text).Events(3, 16)
		if err != nil {
			return
		}
		if len(events) == 0 {
			t.Fatalf("%q has no events", text)
		}
		for _, e := range events {
			if e.Type == models.ShardOpened || e.Type == models.ShardProbed {
				if len(events) > 1 {
					t.Fatalf("%q has several events", text)
				}
				continue
			}
			claim := e.Type == models.ClaimTaken || e.Type == models.ClaimReturned
			if e.ID <= 0 || (e.UserID <= 0) == (e.Type != models.DropSet) || (e.ClaimID > 0) != claim ||
				(e.Version > 0) != (e.Type == models.DropSet) || (e.Target().Kind == models.KindDrop) != e.OfDrop() ||
				e.Target().Shard(16) != 3 || time.UnixMilli(e.At).Year() > 2038 ||
				e.At <= 0 {
				t.Fatalf("accepted %+v", e)
			}
		}
		again, err := models.NewRun(events...).Events(3, 16)
		if err != nil || !slices.Equal(again, events) {
			t.Fatalf("%q became %+v, then %+v, %v", text, events, again, err)
		}
	})
}

// After a restore from a backup, the log has likes of accounts that the backup lacks. Their ids must not come to like
// anything when they are issued again.
func TestApplyLikes_dropsLikesOfUsersWithoutARow(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	const gone = 70_000
	done := l.apply(l.at(1, 1, 7, true), l.at(1, 2, gone, true), l.at(1, 3, gone+1, true), l.at(1, 4, gone+1, false))
	assert.Equal(t, 1, done.Strangers, "an unlike takes nothing but a row away")
	assert.Equal(t, 3, done.Accepted)
	assert.Equal(t, []int64{7}, l.likers())
	assert.Equal(t, models.Position{Epoch: 1, Seq: 4}, l.state().Applied)
	done = l.apply(l.at(1, 5, 8, true), l.at(1, 6, gone, true))
	assert.Equal(t, 1, done.Strangers, "nobody remembers a user without a row")
	testkit.AddUsers(t, l.store.Pool(), gone, gone)
	done = l.apply(l.at(1, 7, gone, true), l.at(1, 8, 8, false))
	assert.Zero(t, done.Strangers)
	assert.Equal(t, []int64{7, gone}, l.likers())
}

func TestApplyLikes_asksForAUserOnce(t *testing.T) {
	t.Parallel()
	store, log := openWatched(t, testkit.Database(t))
	l := shardLog{t, store, likes.New(store), models.Target{Kind: models.KindPost, ID: newPost(t, store, newUser(t,
		store, "ada")).ID}}
	testkit.AddUsers(t, store.Pool(), 1, 9)
	asked := func(records ...models.LikeRecord) (queries int) {
		log.selects()
		l.apply(records...)
		for _, query := range log.selects() {
			if strings.Contains(query, "FROM users FORCE INDEX (PRIMARY)") {
				queries++
			}
		}
		return queries
	}
	assert.Equal(t, 1, asked(l.opened(1, models.Position{}), l.at(1, 1, 7, true), l.at(1, 2, 8, true)))
	assert.Zero(t, asked(l.at(1, 3, 7, false), l.at(1, 4, 8, true)))
	assert.Equal(t, 1, asked(l.at(1, 5, 7, true), l.at(1, 6, 9, true)))
}
