package db_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
)

func TestUpdate_thatChangesNothingMakesNoVersion(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	text := models.PostText{Title: "T", Content: "C", Tags: models.Tags{"b", "a"}}
	post, err := content.New(store).CreatePost(t.Context(), ada, text)
	require.NoError(t, err)
	comment := newComment(t, store, ada, post, nil)
	exec(t, store, "UPDATE posts SET updated_at='2020-01-01'")
	exec(t, store, "UPDATE comments SET updated_at='2020-01-01'")

	same, err := content.New(store).UpdatePost(t.Context(), ada.ID, post.ID, 0, text)
	require.NoError(t, err)
	assert.Zero(t, same.Version)
	assert.Equal(t, models.PostText{Title: same.Title, Content: same.Content, Tags: same.Tags}, text)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM post_revisions"))
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM posts WHERE updated_at<>'2020-01-01'"))
	_, err = content.New(store).UpdatePost(t.Context(), ada.ID, post.ID, 7, text)
	assert.Equal(t, models.CodePrecondition, models.ErrorCode(err))

	kept, err := content.New(store).UpdateComment(t.Context(), ada.ID, comment.ID, 0,
		models.CommentText{Content: "a comment"})
	require.NoError(t, err)
	assert.Zero(t, kept.Version)
	assert.Equal(t, "a comment", kept.Content)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM comments WHERE updated_at<>'2020-01-01'"))
	_, err = content.New(store).UpdateComment(t.Context(), ada.ID, comment.ID, 7,
		models.CommentText{Content: "a comment"})
	assert.Equal(t, models.CodePrecondition, models.ErrorCode(err))

	// Any one of the three is a change, and so is the order of the tags.
	for i, text := range []models.PostText{
		{Title: "t", Content: "C", Tags: text.Tags},
		{Title: "t", Content: "c", Tags: text.Tags},
		{Title: "t", Content: "c", Tags: models.Tags{"a", "b"}},
	} {
		edited, err := content.New(store).UpdatePost(t.Context(), ada.ID, post.ID, int64(i), text)
		require.NoError(t, err)
		read, err := content.New(store).PostByID(t.Context(), ada.ID, post.ID)
		require.NoError(t, err)
		assert.Equal(t, read, edited)
	}
	edited, err := content.New(store).UpdateComment(t.Context(), ada.ID, comment.ID, 0,
		models.CommentText{Content: "A comment"})
	require.NoError(t, err)
	read, err := content.New(store).CommentByID(t.Context(), ada.ID, comment.ID)
	require.NoError(t, err)
	assert.Equal(t, read, edited)
}

// versionNow returns the current version from the error of a stale edit.
func versionNow(t *testing.T, err error) int64 {
	t.Helper()
	e, ok := errors.AsType[*models.Error](err)
	if !assert.True(t, ok) {
		return 0
	}
	return *e.Version
}

// TestUpdate_returnsItsOwnVersion has editors write in such quick succession that a read after a commit often finds the
// next version.
func TestUpdate_returnsItsOwnVersion(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	comment := newComment(t, store, ada, post, nil)
	var wg sync.WaitGroup
	for editor := range 4 {
		wg.Go(func() {
			var postVersion, commentVersion int64
			for i := range 60 {
				text := fmt.Sprintf("edit %d of editor %d", i, editor)
				p, err := content.New(store).UpdatePost(t.Context(), ada.ID, post.ID, postVersion,
					models.PostText{Title: "T", Content: text})
				switch {
				case models.ErrorCode(err) == models.CodePrecondition:
					postVersion = versionNow(t, err)
				case assert.NoError(t, err):
					assert.Equal(t, postVersion+1, p.Version)
					assert.Equal(t, text, p.Content)
					postVersion++
				}
				c, err := content.New(store).UpdateComment(t.Context(), ada.ID, comment.ID, commentVersion,
					models.CommentText{Content: text})
				switch {
				case models.ErrorCode(err) == models.CodePrecondition:
					commentVersion = versionNow(t, err)
				case assert.NoError(t, err):
					assert.Equal(t, commentVersion+1, c.Version)
					assert.Equal(t, text, c.Content)
					commentVersion++
				}
			}
		})
	}
	wg.Wait()
}
