package db_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/privacy"
)

// milestonesOf returns the log of a post by ada, and a function that returns her notifications of it.
func milestonesOf(t *testing.T) (shardLog, func() string) {
	t.Helper()
	l := newLog(t)
	ada := models.Author{ID: int64(count(t, l.store, "SELECT user_id FROM posts"))}
	return l, func() string { return notified(t, l.store, ada) }
}

// likesOf makes the records of users (first, first+1, …, last) who like or no longer like the target, from seq on.
func (l shardLog) likesOf(seq, first, last int64, liked bool) []models.LikeRecord {
	var log []models.LikeRecord
	for user := first; user <= last; user++ {
		log = append(log, l.at(1, seq+user-first, user, liked))
	}
	return log
}

func TestMilestones_notifyOncePerTarget(t *testing.T) {
	t.Parallel()
	l, notified := milestonesOf(t)
	l.apply(l.likesOf(1, 1, 9, true)...)
	assert.Equal(t, "1", notified())
	log := l.at(1, 10, 10, true)
	l.apply(log)
	assert.Equal(t, "1 10", notified())
	l.apply(log)
	assert.Equal(t, "1 10", notified(), "a replay")
	for seq := int64(11); seq < 31; seq++ {
		l.apply(l.at(1, seq, 10, seq%2 == 0))
	}
	assert.Equal(t, "1 10", notified(), "going to and fro")
	_, err := l.store.Pool().ExecContext(t.Context(), "DELETE FROM notifications")
	require.NoError(t, err)
	l.apply(l.likesOf(31, 1, 10, false)...)
	l.apply(l.likesOf(41, 1, 10, true)...)
	assert.Empty(t, notified(), "a purged milestone does not notify again")
	l.apply(l.likesOf(51, 11, 1234, true)...)
	assert.Equal(t, "100 1000", notified(), "all that one batch passes")
	l.check(l.target)
}

func TestMilestones_ofComments(t *testing.T) {
	t.Parallel()
	l, notified := milestonesOf(t)
	post, err := content.New(l.store).PostByID(t.Context(), 0, l.target.ID)
	require.NoError(t, err)
	comment := newComment(t, l.store, post.Author, post, nil)
	target := models.Target{Kind: models.KindComment, ID: comment.ID}
	l.apply(l.of(target, 1, 1, 7, true), l.at(1, 2, 7, true))
	assert.Equal(t, "1 1", notified())
	assert.Equal(
		t,
		1,
		count(
			t,
			l.store,
			"SELECT COUNT(*) FROM notifications WHERE comment_id=? AND post_id=? AND kind=3 AND actor_id=0",
			comment.ID,
			post.ID,
		),
	)
	assert.Equal(
		t,
		1,
		count(t, l.store, "SELECT COUNT(*) FROM notifications WHERE comment_id=0 AND post_id=?", post.ID),
	)
}

// The author's own like counts for no milestone, wherever it comes among the likes of others and the batches.
func TestMilestones_countTheLikesOfOthers(t *testing.T) {
	t.Parallel()
	type like struct {
		user  int64 // 0: the author
		liked bool
	}
	others := func(first, last int64) (list []like) {
		for user := first; user <= last; user++ {
			list = append(list, like{user, true})
		}
		return list
	}
	own, withdrawn := []like{{0, true}}, []like{{0, false}}
	for name, test := range map[string]struct {
		steps [][]like
		want  []string // after each step
	}{
		"only the author's":     {[][]like{own, withdrawn, own}, []string{"", "", ""}},
		"the first":             {[][]like{own, others(1, 1), others(2, 10)}, []string{"", "1", "1 10"}},
		"the tenth":             {[][]like{others(1, 9), own, others(10, 10)}, []string{"1", "1", "1 10"}},
		"in the batch":          {[][]like{append(others(1, 9), own...), others(10, 10)}, []string{"1", "1 10"}},
		"more than a milestone": {[][]like{own, others(1, 11)}, []string{"", "1 10"}},
		"withdrawn": {
			[][]like{own, others(1, 9), withdrawn, others(10, 10)},
			[]string{"", "1", "1", "1 10"},
		},
		"withdrawn in the batch": {
			[][]like{own, others(1, 9), append(others(10, 10), withdrawn...)},
			[]string{"", "1", "1 10"},
		},
		"given again": {
			[][]like{others(1, 10), own, withdrawn, {{1, false}, {0, true}}, others(1, 1)},
			[]string{"1 10", "1 10", "1 10", "1 10", "1 10"},
		},
	} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, direct %v", name, direct), func(t *testing.T) {
				l, notified := milestonesOf(t)
				ada, seq := int64(count(t, l.store, "SELECT user_id FROM posts")), int64(0)
				for i, step := range test.steps {
					var records []models.LikeRecord
					for _, e := range step {
						if e.user == 0 {
							e.user = ada
						}
						if seq++; !direct {
							records = append(records, l.at(1, seq, e.user, e.liked))
						} else if _, err := l.likes.SetLike(
							t.Context(), l.target, e.user, e.liked,
						); err != nil {
							t.Fatal(err)
						}
					}
					if !direct {
						l.apply(records...)
					}
					l.check(l.target)
					assert.Equal(t, test.want[i], notified(), "after step %d", i)
				}
			})
		}
	}
}

func TestMilestones_skipDeletedTargets(t *testing.T) {
	t.Parallel()
	l, notified := milestonesOf(t)
	ada := int64(count(t, l.store, "SELECT user_id FROM posts"))
	_, err := l.store.Pool().ExecContext(t.Context(), "UPDATE posts SET status=2")
	require.NoError(t, err)
	l.apply(l.at(1, 1, 7, true))
	_, err = l.store.Pool().ExecContext(t.Context(), "UPDATE posts SET status=1")
	require.NoError(t, err)
	assert.Empty(t, notified(), "of a deleted post")
	_, err = privacy.New(l.store).DeleteUser(t.Context(), ada, "")
	require.NoError(t, err)
	l.apply(l.likesOf(2, 8, 20, true)...)
	assert.Empty(t, notified(), "to a deleted author")
	l.check(l.target)
}

// Writers that each claim the shard bring a count over two milestones, while it goes up and down in direct
// mode as well.
func TestMilestones_notifyOnceAmongConcurrentWriters(t *testing.T) {
	t.Parallel()
	l, notified := milestonesOf(t)
	var log []models.LikeRecord
	for seq := int64(1); seq <= 200; seq++ {
		log = append(log, l.at(1, seq, 1+seq%15, seq%30 < 15))
	}
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			for start := 0; start < len(log); start += 5 {
				if _, err := l.likes.ApplyLikes(
					context.Background(),
					log[max(0, start-5):min(start+5, len(log))],
				); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for user := int64(101); user <= 104; user++ {
		writers.Go(func() {
			for round := range 30 {
				if _, err := l.likes.SetLike(context.Background(), l.target, user,
					round%2 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	l.check(l.target)
	l.hotScores()
	assert.Equal(t, "1 10", notified())
	assert.Equal(t, 10, count(t, l.store, "SELECT milestone FROM posts"))
}

// A like that another transaction counts while the batch is being written takes the count to the milestone with it.
func TestMilestones_areReachedDespiteOtherCounts(t *testing.T) {
	t.Parallel()
	l, notified := milestonesOf(t)
	l.apply(l.likesOf(1, 1, 8, true)...)
	other, err := l.store.Pool().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	_, err = other.ExecContext(t.Context(), "INSERT INTO post_likes (post_id, user_id) VALUES (?,99)", l.target.ID)
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), "UPDATE posts SET likes_count=likes_count+1 WHERE id=?", l.target.ID)
	require.NoError(t, err)
	var applied sync.WaitGroup
	applied.Go(func() {
		_, err := l.likes.ApplyLikes(context.Background(), []models.LikeRecord{l.at(1, 9, 9, true)})
		assert.NoError(t, err)
	})
	// Either it waits for the row before it has read it, or it has read it and waits to count.
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		return count(t, l.store, `
				SELECT COUNT(*)
				FROM information_schema.processlist
				WHERE db=DATABASE() AND id<>CONNECTION_ID() AND (info LIKE ? OR info LIKE ?)`,
			"%SELECT%id, likes_count%FOR UPDATE", "UPDATE posts%SET hot_score%") == 1, "no statement waits"
	})
	require.NoError(t, other.Commit())
	applied.Wait()
	assert.Equal(t, "1 10", notified())
	assert.Equal(t, 10, count(t, l.store, "SELECT likes_count FROM posts"))
}

func TestMilestones_inDirectMode(t *testing.T) {
	t.Parallel()
	l, notified := milestonesOf(t)
	set := func(user int64, liked bool) {
		_, err := l.likes.SetLike(t.Context(), l.target, user, liked)
		require.NoError(t, err)
	}
	for user := int64(1); user <= 11; user++ {
		set(user, true)
		set(user, true)
	}
	assert.Equal(t, "1 10", notified())
	for range 3 {
		set(10, false)
		set(11, false)
		set(10, true)
		set(11, true)
	}
	assert.Equal(t, "1 10", notified())
	_, err := l.store.Pool().ExecContext(t.Context(), "DELETE FROM notifications")
	require.NoError(t, err)
	set(10, false)
	set(11, false)
	set(10, true)
	assert.Empty(t, notified(), "a purged milestone does not notify again")
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM posts WHERE updated_at=created_at AND version=0"))
}

func TestPassMilestones_ofImportedLikes(t *testing.T) {
	t.Parallel()
	l, notified := milestonesOf(t)
	require.NoError(t, l.likes.PassMilestones(t.Context(), l.target, 37))
	l.apply(l.likesOf(1, 1, 99, true)...)
	assert.Empty(t, notified())
	l.apply(l.at(1, 100, 100, true))
	assert.Equal(t, "100", notified())
	require.NoError(t, l.likes.PassMilestones(t.Context(), l.target, 5))
	assert.Equal(t, 100, count(t, l.store, "SELECT milestone FROM posts"))
}
