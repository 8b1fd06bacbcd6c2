package db_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/moderation"
	"likewise/models/privacy"
)

// spammer has posts and comments, on their own posts and on others'.
func spammer(t *testing.T, store *db.DB, posts, comments int) (models.Author, *models.Post) {
	t.Helper()
	eve, ada := newUser(t, store, "eve"), newUser(t, store, "ada")
	other := newPost(t, store, ada)
	var last *models.Post
	for i := range posts {
		var err error
		last, err = content.New(store).CreatePost(
			t.Context(),
			eve,
			models.PostText{Title: "Buy", Content: fmt.Sprint("now ", i), Tags: models.Tags{"spam"}},
		)
		require.NoError(t, err)
	}
	var parent *models.Comment
	for i := range comments {
		on := other
		if i%3 == 0 && last != nil {
			on, parent = last, nil
		}
		parent = newComment(t, store, eve, on, parent)
		if i%5 == 0 {
			newComment(t, store, ada, on, parent)
			parent = nil
		}
		if i%3 == 0 {
			parent = nil
		}
	}
	return eve, other
}

// contentOf describes the content of a user, with its deletions.
func contentOf(t *testing.T, store *db.DB) string {
	t.Helper()
	var text string
	err := store.Pool().QueryRowContext(t.Context(), `
			SELECT CONCAT(
				(
					SELECT GROUP_CONCAT(
						CONCAT_WS(' ',id,status,deleted_by,delete_reason,operation_id,comments_count)
						ORDER BY id SEPARATOR ';')
					FROM posts),
				'|',
				(
					SELECT GROUP_CONCAT(
						CONCAT_WS(' ',id,status,deleted_by,delete_reason,operation_id,replies_count)
						ORDER BY id SEPARATOR ';')
					FROM comments))`).
		Scan(&text)
	require.NoError(t, err)
	return text
}

func step(t *testing.T, store *db.DB, id int64) moderation.OperationStep {
	t.Helper()
	s, err := moderation.New(store).StepOperation(t.Context(), id)
	require.NoError(t, err)
	return s
}

// finish carries out an operation with concurrent callers and returns the number of changed targets.
func finish(t *testing.T, store *db.DB, id int64) int {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	changed := 0
	for range 3 {
		group.Go(func() {
			for {
				s, err := moderation.New(store).StepOperation(context.Background(), id)
				if !assert.NoError(t, err) || s.Done {
					return
				}
				mu.Lock()
				changed += s.Changed
				mu.Unlock()
				assert.NoError(t, moderation.New(store).CloseStep(context.Background(), id, s))
			}
		})
	}
	group.Wait()
	return changed
}

func TestOperation_deletesAllAndIsUndoneExactly(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	eve, other := spammer(t, store, 45, 230)
	mod := newModerator(t, store, "mod")
	// Earlier deletions do not belong to the operation.
	found, err := content.New(store).ListPosts(ctx, content.PostQuery{Sort: models.PostsNew, AuthorID: eve.ID,
		Limit: 100})
	require.NoError(t, err)
	posts := found.Posts
	require.NoError(t, content.New(store).DeletePost(ctx, eve.ID, posts[0].ID))
	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod.ID, postTarget(&posts[1]), "Spam."))
	before := contentOf(t, store)

	o, err := moderation.New(store).RemoveAll(ctx, mod.ID, eve.ID, "All spam.")
	require.NoError(t, err)
	assert.Equal(t, models.OperationDeleting, o.State)
	late := newPost(t, store, eve)
	assert.Equal(t, 273, finish(t, store, o.ID))
	exactCounts(t, store)
	assert.Equal(
		t,
		1,
		count(t, store, "SELECT COUNT(*) FROM posts WHERE user_id=? AND status=1", eve.ID),
		"what comes after the request is left alone",
	)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM comments WHERE user_id=? AND status=1", eve.ID))
	o, err = moderation.New(store).OperationByID(ctx, o.ID)
	require.NoError(t, err)
	assert.Equal(t, models.OperationDeleted, o.State)
	assert.Equal(t, [2]int64{43, 230}, [2]int64{o.PostsDeleted, o.CommentsDeleted})
	assert.NotNil(t, o.FinishedAt)
	assert.Empty(t, must(moderation.New(store).OpenOperations(ctx, 10)))
	require.Error(t, must1(content.New(store).PostByID(ctx, 0, posts[5].ID)))
	require.NoError(t, must1(content.New(store).PostByID(ctx, 0, other.ID)))

	_, err = store.Pool().ExecContext(ctx, "DELETE FROM posts WHERE id=?", late.ID)
	require.NoError(t, err)
	_, err = store.Pool().ExecContext(ctx, "DELETE FROM post_terms WHERE post_id=?", late.ID)
	require.NoError(t, err)
	// One is restored by hand, and another operation finds nothing else.
	require.NoError(t, moderation.New(store).ReinstateContent(ctx, mod.ID, postTarget(&posts[2]), "No spam."))
	for range 2 { // undoing again changes nothing
		o, err = moderation.New(store).UndoOperation(ctx, mod.ID, o.ID, "It was somebody else.")
		require.NoError(t, err)
		assert.Equal(t, models.OperationUndoing, o.State)
	}
	assert.Equal(t, 272, finish(t, store, o.ID))
	exactCounts(t, store)
	assert.Equal(t, before, contentOf(t, store))
	o, err = moderation.New(store).OperationByID(ctx, o.ID)
	require.NoError(t, err)
	assert.Equal(t, models.OperationUndone, o.State)
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE action='user.delete_content'"))
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE action='user.restore_content'"))
}

// TestOperation_isExactAtEveryStep stops between the steps, as a process does that is killed, and undoes it half way.
func TestOperation_isExactAtEveryStep(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	eve, _ := spammer(t, store, 25, 120)
	mod := newModerator(t, store, "mod")
	before := contentOf(t, store)
	o, err := moderation.New(store).RemoveAll(t.Context(), mod.ID, eve.ID, "All spam.")
	require.NoError(t, err)
	first := step(t, store, o.ID)
	exactCounts(t, store)
	assert.Equal(t, 100, first.Changed)
	// The step was not closed: the next one returns the same targets for the gate, and deletes nothing.
	again := step(t, store, o.ID)
	assert.Equal(t, first.Close, again.Close)
	assert.Zero(t, again.Changed)
	require.NoError(t, moderation.New(store).CloseStep(t.Context(), o.ID, again))
	for i := range 2 {
		s := step(t, store, o.ID)
		require.False(t, s.Done, "step %d", i)
		exactCounts(t, store)
		require.NoError(t, moderation.New(store).CloseStep(t.Context(), o.ID, s))
	}
	_, err = moderation.New(store).UndoOperation(t.Context(), mod.ID, o.ID, "It was somebody else.")
	require.NoError(t, err)
	assert.Equal(t, 140, finish(t, store, o.ID))
	exactCounts(t, store)
	assert.Equal(t, before, contentOf(t, store))
}

// TestOperation_reachesDeletedAccounts deletes the content of a deleted account.
func TestOperation_reachesDeletedAccounts(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	mod, mod2 := newModerator(t, store, "mod"), newModerator(t, store, "mod2")
	eve := &models.User{Username: "eve", Email: "eve@example.org", PasswordHash: "x"}
	require.NoError(t, accounts.New(store).CreateUser(ctx, eve))
	newPost(t, store, models.Author{ID: eve.ID})
	must(privacy.New(store).DeleteUser(ctx, eve.ID, "x"))
	o := must(moderation.New(store).RemoveAll(ctx, mod.ID, eve.ID, "Spam."))
	assert.Equal(t, 1, finish(t, store, o.ID))
	must(moderation.New(store).UndoOperation(ctx, mod2.ID, o.ID, "No spam."))
	assert.Equal(t, 1, finish(t, store, o.ID))
	for actor, code := range map[int64]models.Code{
		mod2.ID: models.CodeForbidden,
		mod.ID:  models.CodeForbidden,
		eve.ID:  models.CodeForbidden,
	} {
		_, err := moderation.New(store).RemoveAll(ctx, actor, mod.ID, "Spam.")
		assert.Equal(t, code, models.ErrorCode(err), "%d", actor)
	}
	_, err := moderation.New(store).RemoveAll(ctx, mod.ID, 999, "Spam.")
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	_, err = moderation.New(store).UndoOperation(ctx, mod.ID, 999, "Spam.")
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
}

// TestOperation_leavesDeletionsOfModerators deletes, out of what an operation has hidden, some by itself.
func TestOperation_leavesDeletionsOfModerators(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	eve, ada, mod, mod2 := newUser(
		t,
		store,
		"eve",
	), newUser(
		t,
		store,
		"ada",
	), newModerator(
		t,
		store,
		"mod",
	), newModerator(
		t,
		store,
		"mod2",
	)
	kept, judged, plain := newPost(t, store, eve), newPost(t, store, eve), newPost(t, store, eve)
	comment := newComment(t, store, eve, newPost(t, store, ada), nil)
	report := reported(t, store, ada, postTarget(judged))
	o := must(moderation.New(store).RemoveAll(ctx, mod.ID, eve.ID, "All spam."))
	finish(t, store, o.ID)
	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod2.ID, postTarget(kept), "Illegal."))
	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod.ID, commentTarget(comment), "Illegal."))
	require.NoError(t, moderation.New(store).ResolveReport(ctx, mod2.ID, report,
		models.Verdict{Outcome: models.OutcomeRemoved, Note: "Illegal."}))
	assert.Equal(
		t,
		3,
		count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE action IN ('post.delete','comment.delete')"),
	)
	must(moderation.New(store).UndoOperation(ctx, mod.ID, o.ID, "No spam."))
	assert.Equal(t, 1, finish(t, store, o.ID))
	assert.Equal(
		t,
		2,
		count(t, store, `
				SELECT COUNT(*)
				FROM posts
				WHERE status=2 AND operation_id IS NULL AND delete_reason='Illegal.' AND deleted_by=? AND id IN (?,?)`,
			mod2.ID, kept.ID, judged.ID))
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM comments WHERE status=2 AND id=?", comment.ID))
	require.NoError(t, must1(content.New(store).PostByID(ctx, 0, plain.ID)))
	exactCounts(t, store)
}

// TestOperation_keepsEarlierDeletions restores as an author, while the deletion of all stands and after.
func TestOperation_keepsEarlierDeletions(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	eve, mod := newUser(t, store, "eve"), newModerator(t, store, "mod")
	p := newPost(t, store, eve)
	require.NoError(t, content.New(store).DeletePost(ctx, eve.ID, p.ID))
	o := must(moderation.New(store).RemoveAll(ctx, mod.ID, eve.ID, "All spam."))
	forbidden(t, must1(content.New(store).RestorePost(ctx, eve.ID, p.ID)), "while it is at work")
	finish(t, store, o.ID)
	forbidden(t, must1(content.New(store).RestorePost(ctx, eve.ID, p.ID)), "when it is done")
	later := newPost(t, store, eve)
	require.NoError(t, content.New(store).DeletePost(ctx, eve.ID, later.ID))
	require.NoError(t, must1(content.New(store).RestorePost(ctx, eve.ID, later.ID)), "it is not about what came later")
	must(moderation.New(store).UndoOperation(ctx, mod.ID, o.ID, "No spam."))
	finish(t, store, o.ID)
	require.NoError(t, must1(content.New(store).RestorePost(ctx, eve.ID, p.ID)))
	exactCounts(t, store)
}
