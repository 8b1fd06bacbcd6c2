package workers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/moderation"
)

// closeDeleted runs a Closer, and returns the number of deletions.
func (p *pipeline) closeDeleted() int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := NewCloser(p.store, counters.NewTargets(p.store, p.likes)).Close(ctx)
	require.NoError(p.t, err)
	return n
}

// aged makes the deletions so old that they are closed for the second time.
func (p *pipeline) aged() {
	p.t.Helper()
	p.exec("UPDATE gate_closings SET deleted_at=deleted_at - INTERVAL 2 MINUTE")
}

// TestCloser_closesTargetsOfKilledProcesses deletes as a process that is killed after its COMMIT.
func TestCloser_closesTargetsOfKilledProcesses(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	ctx := t.Context()
	post, other, back := p.post(), p.post(), p.post()
	under, single, again := p.comment(post), p.comment(other), p.comment(back)
	closed, open := []models.Target{post, under, single}, []models.Target{other, back, again}
	for _, target := range append(closed, open...) {
		p.set(target, 1, true)
	}
	p.flush()
	require.NoError(t, content.New(p.store).DeletePost(ctx, p.author.ID, post.ID))
	require.NoError(t, content.New(p.store).DeleteComment(ctx, &models.Comment{ID: single.ID, Author: p.author}))
	require.NoError(t, content.New(p.store).DeletePost(ctx, p.author.ID, back.ID))
	_, err := content.New(p.store).RestorePost(ctx, p.author.ID, back.ID)
	require.NoError(t, err)
	for _, target := range closed {
		p.set(target, 2, true) // the gate does not know of the deletion
	}
	assert.Equal(t, 3, p.closeDeleted())
	refused := func() {
		t.Helper()
		for _, target := range closed {
			_, err := p.likes.SetLike(ctx, target, 3, true)
			assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "%s takes likes", target)
		}
	}
	refused()
	states, err := p.redis.TargetStates(ctx, open)
	require.NoError(t, err)
	for i, s := range states {
		assert.False(t, s.Closed, "%s is open", open[i])
		assert.Equal(t, int64(2), p.set(open[i], 2, true).Count)
	}
	p.flush()
	assert.Empty(t, p.verify(false))
	for _, target := range closed {
		assert.Equal(t, []int64{1, 2}, p.likers(target), "%s", target)
	}

	// Redis is restarted, and has lost its last second.
	assert.Zero(t, p.closeDeleted(), "all of it is closed")
	for _, target := range closed {
		require.NoError(t, p.raw.HDel(ctx, p.likesKey(target), "closed").Err())
	}
	p.aged()
	assert.Equal(t, 3, p.closeDeleted())
	refused()
	assert.Zero(t, p.count("SELECT COUNT(*) FROM gate_closings"))

	// Closing a restored post does no harm.
	_, err = content.New(p.store).RestorePost(ctx, p.author.ID, post.ID)
	require.NoError(t, err)
	require.NoError(t, p.likes.CloseTargets(ctx, open))
	for _, target := range append(open, post) {
		assert.Equal(t, int64(3), p.set(target, 3, true).Count, "%s", target)
	}
	p.flush()
}

// Redis was down for minutes after the deletion, and right after the first closing it loses the mark.
func TestCloser_closesTwiceAfterALateFirstTime(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	post := p.post()
	p.set(post, 1, true)
	require.NoError(t, content.New(p.store).DeletePost(t.Context(), p.author.ID, post.ID))
	p.aged()
	assert.Equal(t, 1, p.closeDeleted())
	require.NoError(t, p.raw.HDel(t.Context(), p.likesKey(post), "closed").Err())
	assert.Zero(t, p.closeDeleted(), "what Redis lost may be older than a second closing right after the first")
	p.aged()
	assert.Equal(t, 1, p.closeDeleted())
	_, err := p.likes.SetLike(t.Context(), post, 2, true)
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "%v", err)
	assert.Zero(t, p.count("SELECT COUNT(*) FROM gate_closings"))
}

// A moderator removes all content of a user, and Redis loses the marks of that.
func TestCloser_closesWhatAnOperationDeletedOnceMore(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	mod := p.deletable("mod")
	require.NoError(t, accounts.New(p.store).SetRole(t.Context(), mod, models.RoleModerator))
	post := p.post()
	all := []models.Target{post, p.comment(post)}
	for _, target := range all {
		p.set(target, 1, true)
	}
	_, err := moderation.New(p.store).RemoveAll(t.Context(), mod, p.author.ID, "All spam.")
	require.NoError(t, err)
	_, err = NewModerator(moderation.New(p.store), counters.NewTargets(p.store, p.likes)).Moderate(t.Context())
	require.NoError(t, err)
	assert.Zero(t, p.closeDeleted(), "the operation has closed it")
	for _, target := range all {
		require.NoError(t, p.raw.HDel(t.Context(), p.likesKey(target), "closed").Err())
	}
	p.aged()
	assert.Equal(t, 2, p.closeDeleted())
	for _, target := range all {
		_, err := p.likes.SetLike(t.Context(), target, 2, true)
		assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "%s takes likes", target)
	}
	assert.Zero(t, p.count("SELECT COUNT(*) FROM gate_closings"))
}

// TestCloser_continuesAfterAKill has a post with comments for several batches, and a gate that dies before each call.
func TestCloser_continuesAfterAKill(t *testing.T) {
	t.Parallel()
	p := setup(t)
	defer p.start()()
	post := p.post()
	const comments = 3*counters.CloseBatch + 1
	p.exec(
		"INSERT INTO comments (post_id, user_id, content) VALUES " + strings.TrimSuffix(
			strings.Repeat(fmt.Sprintf("(%d,%d,'text'),", post.ID, p.author.ID), comments),
			",",
		),
	)
	ids, err := content.New(p.store).CommentIDs(t.Context(), post.ID, 0, 2*comments)
	require.NoError(t, err)
	last := models.Target{Kind: models.KindComment, ID: ids[comments-1]}
	p.set(last, 1, true)
	require.NoError(t, content.New(p.store).DeletePost(t.Context(), p.author.ID, post.ID))
	deaths := 0
	for ; ; deaths++ {
		require.Less(t, deaths, 10)
		n, err := NewCloser(
			p.store,
			counters.NewTargets(p.store, &mortal{p.likes, 2}),
		).Close(t.Context())
		// the post, and a batch
		if err == nil {
			assert.Equal(t, 1, n)
			break
		}
		require.ErrorIs(t, err, errDied)
		require.Zero(t, n)
	}
	assert.Equal(t, 3, deaths, "each gets a batch further")
	_, err = p.likes.SetLike(t.Context(), last, 2, true)
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	p.flush()
}

// In direct mode there is nothing to close, and the Closer only removes the records.
func TestCloser_removesRecordsInDirectMode(t *testing.T) {
	t.Parallel()
	p := setup(t)
	for range closePage + 1 {
		require.NoError(t, content.New(p.store).DeletePost(t.Context(), p.author.ID, p.post().ID))
	}
	n, err := NewCloser(p.store, counters.NewTargets(p.store, nil)).Close(t.Context())
	require.NoError(t, err)
	assert.Equal(t, closePage+1, n)
	assert.Zero(t, p.count("SELECT COUNT(*) FROM gate_closings"))
}
