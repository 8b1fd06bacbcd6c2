package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/likes"
	"likewise/models/people"
	"likewise/models/privacy"
	"likewise/models/reader"
)

// deletable creates an account that can be deleted, and returns its id.
func (p *pipeline) deletable(name string) int64 {
	p.t.Helper()
	u := &models.User{Username: name, Email: name + "@example.org", PasswordHash: "of " + name}
	require.NoError(p.t, accounts.New(p.store).CreateUser(context.Background(), u))
	return u.ID
}

func (p *pipeline) deleteUser(id int64, name string) {
	p.t.Helper()
	_, err := privacy.New(p.store).DeleteUser(context.Background(), id, "of "+name)
	require.NoError(p.t, err)
}

func (p *pipeline) comment(post models.Target) models.Target {
	p.t.Helper()
	c, err := content.New(p.store).CreateComment(
		context.Background(),
		p.author,
		post.ID,
		nil,
		models.CommentText{Content: "a comment"},
	)
	require.NoError(p.t, err)
	return models.Target{Kind: models.KindComment, ID: c.ID}
}

// deletePost deletes a post as a handler does: in MySQL, and then in the gate.
func (p *pipeline) deletePost(post models.Target, comments ...models.Target) {
	p.t.Helper()
	p.exec("UPDATE posts SET status=2, updated_at=updated_at WHERE id=?", post.ID)
	require.NoError(p.t, p.likes.CloseTargets(context.Background(), append(comments, post)))
}

// void runs a Voider.
func (p *pipeline) void() (likes, done int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	likes, done, err := NewVoider(p.store, p.redis, p.likes).Void(ctx)
	require.NoError(p.t, err)
	return likes, done
}

// pass makes the open requests older, and lets time pass on the clock of likes.
func (p *pipeline) pass(d time.Duration) {
	p.t.Helper()
	p.exec("UPDATE like_voids SET requested_at=requested_at - INTERVAL ? SECOND", d/time.Second)
	clock := p.store.LikeTime
	earliest, _, err := clock(context.Background())
	require.NoError(p.t, err)
	offset := time.Until(earliest) + d
	p.store.UseLikeClock(func(context.Context) (earliest, latest time.Time, err error) {
		now := time.Now().Add(offset)
		return now, now, nil
	})
}

// afterAll is the time after which no like of a deleted account can be accepted.
const afterAll = models.SessionStale + 2*time.Minute

// TestVoider_leavesNoLike has likes of all kinds of targets: warm, cold, deleted and warm, deleted and cold, under a
// deleted post, and missing. One like is in the pipeline, and one is accepted after the account is deleted.
func TestVoider_leavesNoLike(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	bob, carol := p.deletable("bob"), p.deletable("carol")
	var all []models.Target
	for range 8 {
		post := p.post()
		all = append(all, post, p.comment(post))
	}
	for _, target := range all {
		p.set(target, bob, true)
		p.set(target, carol, true)
	}
	p.flush()
	cold, closed, closedCold, gone := all[2:4], all[4:6], all[6:8], all[8:10] // the others are warm
	p.deletePost(closed[0], closed[1])
	p.deletePost(closedCold[0], closedCold[1])
	for _, target := range slices.Concat(cold, closedCold, gone) {
		ok, err := p.redis.Forget(t.Context(), p.store, target)
		require.NoError(t, err)
		require.True(t, ok)
	}
	p.exec("DELETE FROM posts WHERE id=?", gone[0].ID)
	p.exec("DELETE FROM comments WHERE id=?", gone[1].ID)

	stop() // no further event reaches MySQL
	late := []models.Target{p.post(), p.post()}
	p.set(late[0], bob, true) // in the pipeline when the account is deleted
	p.deleteUser(bob, "bob")
	p.set(late[1], bob, true) // by a process that still caches the session
	p.work()
	p.void()
	p.flush()
	assert.Equal(
		t,
		1,
		p.count("SELECT COUNT(*) FROM like_voids WHERE done_at IS NULL"),
		"nothing is done while a like could still come",
	)
	p.set(late[0], bob, true)
	p.pass(afterAll)
	_, done := p.void()
	assert.Equal(t, 1, done)
	_, done = p.void()
	assert.Zero(t, done)
	p.flush()
	for table, want := range map[string]int{"post_likes": 8, "comment_likes": 8} {
		assert.Zero(t, p.count("SELECT COUNT(*) FROM "+table+" WHERE user_id=?", bob), table)
		assert.Equal(t, want, p.count("SELECT COUNT(*) FROM "+table+" WHERE user_id=?", carol), table)
	}
	// After its restoration, the target has the likes of other users, in the gate and in MySQL.
	p.exec("UPDATE posts SET status=1, updated_at=updated_at WHERE status=2")
	for _, target := range slices.Concat(closed, closedCold) {
		assert.Equal(t, int64(2), p.set(target, p.author.ID, true).Count, "%s", target)
	}
	p.flush()
	for _, target := range all {
		if !slices.Contains(gone, target) {
			assert.NotContains(t, p.likers(target), bob, "%s", target)
		}
	}
	p.exec("DELETE FROM post_likes WHERE post_id=?", gone[0].ID)
	p.exec("DELETE FROM comment_likes WHERE comment_id=?", gone[1].ID)
	assert.Empty(t, p.verify(false))
}

// dying fails after a number of likes, like a killed process.
type dying struct {
	likeSetter
	left atomic.Int64
}

var errKilled = errors.New("killed")

func (d *dying) SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error) {
	if d.left.Add(-1) < 0 {
		return models.LikeState{}, errKilled
	}
	return d.likeSetter.SetLike(ctx, target, userID, liked)
}

func TestVoider_continuesAfterAKill(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	bob := p.deletable("bob")
	const targets = 60
	for range targets {
		p.set(p.post(), bob, true)
	}
	p.flush()
	p.deleteUser(bob, "bob")
	p.pass(afterAll)
	for killed, runs := 0, 0; ; runs++ {
		require.Less(t, runs, targets)
		d := &dying{likeSetter: p.likes}
		d.left.Store(7)
		_, done, err := NewVoider(p.store, p.redis, d).Void(t.Context())
		if done == 1 {
			require.NoError(t, err)
			assert.GreaterOrEqual(t, killed, targets/7)
			break
		}
		if err != nil { // otherwise its turn was over, and the next run continues
			require.ErrorIs(t, err, errKilled)
			killed++
		}
		p.flush()
	}
	assert.Zero(t, p.count("SELECT COUNT(*) FROM post_likes"))
	assert.Zero(t, p.count("SELECT COUNT(*) FROM like_voids WHERE done_at IS NULL"))
	assert.Empty(t, p.verify(false))
}

func TestVoider_withdrawsOnlyTheRequestedPeriod(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	bob := p.deletable("bob")
	before, within, after := p.post(), p.post(), p.post()
	for _, target := range []models.Target{before, within, after} {
		p.set(target, bob, true)
	}
	p.flush()
	p.exec("UPDATE post_likes SET created_at='2026-01-01 10:00:00' WHERE post_id=?", before.ID)
	p.exec("UPDATE post_likes SET created_at='2026-01-02 10:00:00' WHERE post_id=?", within.ID)
	p.exec(`
		INSERT INTO like_voids (user_id, requested_by, requested_at, liked_since, liked_until)
		VALUES (?,1,NOW(3),'2026-01-02','2026-01-03')`, bob)
	_, done := p.void()
	assert.Equal(t, 1, done, "no like of January can follow")
	assert.Equal(t, []int64{bob}, p.likers(before))
	assert.Empty(t, p.likers(within))
	assert.Equal(t, []int64{bob}, p.likers(after))
	assert.Empty(t, p.verify(false))
}

// If the clock is set ahead, the gate accepts likes of the user again. What was read before must not be withdrawn then:
// the user may have withdrawn and repeated a like since.
func TestVoider_stopsWhenTheClockIsSetAhead(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	bob := p.deletable("bob")
	const targets = voidPage + 5
	var last models.Target
	for range targets {
		last = p.post()
		p.set(last, bob, true)
	}
	p.flush()
	p.exec(`
		INSERT INTO like_voids (user_id, requested_by, requested_at, liked_since, liked_until)
		VALUES (?,1,NOW(3) - INTERVAL 1 HOUR,NOW(3) - INTERVAL 1 DAY,NOW(3))`, bob)
	reads := 0
	p.store.UseLikeClock(func(context.Context) (earliest, latest time.Time, err error) {
		now := time.Now()
		// It was read for the end of the period, for that of the refusal, and before the first page.
		if reads++; reads > 3 {
			now = now.Add(time.Minute)
		}
		return now, now, nil
	})
	likes, done := p.void()
	assert.Equal(t, voidPage, likes)
	assert.Zero(t, done)
	p.flush()
	assert.Equal(t, []int64{bob}, p.likers(last), "it is of the second page")
	likes, done = p.void() // by the same clock, which is a minute ahead now
	assert.Equal(t, targets-voidPage, likes)
	assert.Equal(t, 1, done)
	assert.Empty(t, p.verify(false))
}

func TestVoider_purgesADeletedAccount(t *testing.T) {
	t.Parallel()
	p := setup(t)
	ctx := t.Context()
	bob := p.deletable("bob")
	const others = 1200 // more than a batch
	for i := range others {
		p.exec(
			"INSERT INTO users (username, email, password_hash, followers_count) VALUES (?,?,'',1)",
			fmt.Sprint("u", i),
			fmt.Sprint("u", i, "@x.invalid"),
		)
	}
	p.exec("INSERT INTO follows (user_id, followed_id) SELECT ?, id FROM users WHERE username LIKE 'u%'", bob)
	p.exec("INSERT INTO follows (user_id, followed_id) SELECT id, ? FROM users WHERE username LIKE 'u%'", bob)
	_, err := people.New(p.store).Follow(ctx, p.author.ID, bob)
	require.NoError(t, err)
	require.NoError(t, people.New(p.store).Block(ctx, bob, p.author.ID))
	post := p.post()
	p.exec("INSERT INTO bookmarks (user_id, post_id) VALUES (?,?)", bob, post.ID)
	p.exec("INSERT INTO notifications (user_id, kind, post_id) VALUES (?,3,?)", bob, post.ID)
	require.NoError(t, reader.New(p.store).MarkRead(ctx, bob, post.ID, 0))
	require.NoError(t, people.New(p.store).SetSubscription(ctx, bob, post.ID, models.Following))
	_, _, err = reader.New(p.store).SaveDraft(ctx, bob, "post", models.DraftText{Content: "Half"},
		func(*models.Draft) error { return nil })
	require.NoError(t, err)
	deleted, err := privacy.New(p.store).PurgeUser(ctx, bob)
	require.NoError(t, err)
	assert.False(t, deleted)
	assert.Equal(t, others, p.count("SELECT COUNT(*) FROM follows WHERE user_id=?", bob))
	p.deleteUser(bob, "bob")
	deleted, err = privacy.New(p.store).PurgeUser(ctx, bob)
	require.NoError(t, err)
	assert.True(t, deleted)
	for _, where := range []string{
		"follows WHERE user_id=? OR followed_id=?",
		"blocks WHERE user_id=? OR blocked_id=?",
		"bookmarks WHERE user_id=? OR user_id=?",
		"notifications WHERE user_id=? OR user_id=?",
		"read_marks WHERE user_id=? OR user_id=?",
		"subscriptions WHERE user_id=? OR user_id=?",
		"drafts WHERE user_id=? OR user_id=?",
	} {
		assert.Zero(t, p.count("SELECT COUNT(*) FROM "+where, bob, bob), where)
	}
	assert.Zero(t, p.count("SELECT COUNT(*) FROM users WHERE followers_count<>0 AND deleted_at IS NULL"))
}

// TestVoider_worksOnEveryRequest has more open requests than a query returns, which all must wait for their end, and
// one more.
func TestVoider_worksOnEveryRequest(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	bob := p.deletable("bob")
	post := p.post()
	p.set(post, bob, true)
	p.flush()
	const others = voidRequests + 1
	for i := range others {
		p.exec("INSERT INTO like_voids (user_id, requested_by, requested_at) VALUES (?,1,NOW(3))", 1000+i)
	}
	p.deleteUser(bob, "bob")
	voided, done := p.void()
	assert.Equal(t, 1, voided)
	assert.Zero(t, done)
	p.flush()
	assert.Empty(t, p.likers(post))

	late := p.post()
	p.set(late, 5, true)
	p.flush()
	p.exec("INSERT INTO like_voids (user_id, requested_by, requested_at) VALUES (5,1,NOW(3))")
	open, err := likes.New(p.store).OpenLikeVoids(t.Context(), time.Now(), 2)
	require.NoError(t, err)
	require.Len(t, open, 2)
	assert.Equal(
		t,
		[]int64{5, 1000},
		[]int64{open[0].UserID, open[1].UserID},
		"who had no turn, then who waited longest",
	)
	p.pass(afterAll)
	_, done = p.void()
	assert.Equal(t, others+2, done)
	assert.Empty(t, p.likers(late))
	assert.Empty(t, p.verify(false))
}

// endless never finishes withdrawing the likes of one user.
type endless struct {
	likeSetter
	user int64
}

func (e endless) SetLike(
	ctx context.Context,
	target models.Target,
	userID int64,
	liked bool,
) (models.LikeState, error) {
	if userID == e.user {
		<-ctx.Done()
		return models.LikeState{}, ctx.Err()
	}
	return e.likeSetter.SetLike(ctx, target, userID, liked)
}

func TestVoider_givesEachRequestItsTurn(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	huge, bob := p.deletable("huge"), p.deletable("bob")
	post := p.post()
	p.set(post, huge, true)
	p.set(post, bob, true)
	p.flush()
	p.deleteUser(huge, "huge")
	p.deleteUser(bob, "bob")
	p.pass(afterAll)
	v := NewVoider(p.store, p.redis, endless{p.likes, huge})
	v.turn = 2 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	likes, done, err := v.Void(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, likes)
	assert.Equal(t, 1, done)
	p.flush()
	assert.Equal(t, []int64{huge}, p.likers(post))
	_, done = p.void()
	assert.Equal(t, 1, done)
	assert.Empty(t, p.likers(post))
}
