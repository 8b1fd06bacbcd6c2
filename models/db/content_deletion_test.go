package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/moderation"
)

func TestActiveAt_isThatOfTheLatestVisibleComment(t *testing.T) {
	t.Parallel()
	now := past
	store := openWith(t, db.Options{Now: func() time.Time { return now }})
	ada, mod := newUser(t, store, "ada"), newUser(t, store, "mod")
	require.NoError(t, accounts.New(store).SetRole(t.Context(), mod.ID, models.RoleModerator))
	post, other := newPost(t, store, ada), newPost(t, store, ada)
	at := func() time.Time {
		t.Helper()
		p, err := content.New(store).PostByID(t.Context(), 0, post.ID)
		require.NoError(t, err)
		return p.ActiveAt
	}
	var comments []*models.Comment
	for range 4 {
		now = now.Add(time.Hour)
		var parent *models.Comment
		if len(comments) == 2 {
			parent = comments[0]
		}
		comments = append(comments, newComment(t, store, ada, post, parent))
		newComment(t, store, ada, other, nil)
	}
	latest := now
	now = now.Add(time.Hour)
	require.NoError(t, content.New(store).DeleteComment(t.Context(), comments[1]))
	assert.Equal(t, latest, at(), "of another than the latest nothing changes")
	require.NoError(t, content.New(store).DeleteComment(t.Context(), comments[3]))
	assert.Equal(t, comments[2].CreatedAt, at(), "replies count")
	target := func(i int) models.Target { return models.Target{Kind: models.KindComment, ID: comments[i].ID} }
	require.NoError(t, moderation.New(store).ReinstateContent(t.Context(), mod.ID, target(3), "not spam"))
	assert.Equal(t, latest, at())
	require.NoError(t, moderation.New(store).RemoveContent(t.Context(), mod.ID, target(3), "spam"))
	require.NoError(t, moderation.New(store).RemoveContent(t.Context(), mod.ID, target(2), "spam"))
	assert.Equal(t, comments[0].CreatedAt, at())
	require.NoError(t, content.New(store).DeleteComment(t.Context(), comments[0]))
	assert.Equal(t, post.CreatedAt, at())
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM posts WHERE active_at=?", latest),
		"the other post stays as it was")
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM posts WHERE updated_at<>?", past))
}
