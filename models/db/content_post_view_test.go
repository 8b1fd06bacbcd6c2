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
	"likewise/models/people"
)

func TestLastCommenter_isTheAuthorOfTheLatestVisibleComment(t *testing.T) {
	t.Parallel()
	now := past
	store := openWith(t, db.Options{Now: func() time.Time { return now }})
	ada, bob, cy, mod := newUser(t, store, "ada"), newUser(t, store, "bob"), newUser(t, store, "cy"),
		newUser(t, store, "mod")
	require.NoError(t, accounts.New(store).SetRole(t.Context(), mod.ID, models.RoleModerator))
	post := newPost(t, store, ada)
	newComment(t, store, cy, newPost(t, store, ada), nil)
	seen := func(viewer models.Author) (username string) {
		t.Helper()
		page, err := content.New(store).ListPosts(t.Context(), content.PostQuery{
			ViewerID: viewer.ID, View: content.ViewSummary, Sort: models.PostsNew, Limit: 10,
		})
		require.NoError(t, err)
		require.Len(t, page.Posts, 2)
		assert.Equal(t, "with text", page.Posts[1].Excerpt)
		assert.Empty(t, page.Posts[1].Content)
		return page.Posts[1].LastCommenter.Username
	}
	none := models.Author{}
	assert.Empty(t, seen(none))
	first := newComment(t, store, ada, post, nil)
	reply := newComment(t, store, bob, post, first) // in the same second
	assert.Equal(t, "bob", seen(none))
	now = now.Add(time.Minute)
	latest := newComment(t, store, cy, post, first)
	assert.Equal(t, "cy", seen(none))
	require.NoError(t, people.New(store).Block(t.Context(), bob.ID, cy.ID))
	assert.Empty(t, seen(bob))
	assert.Equal(t, "cy", seen(ada))
	target := models.Target{Kind: models.KindComment, ID: latest.ID}
	require.NoError(t, moderation.New(store).RemoveContent(t.Context(), mod.ID, target, "Spam."))
	assert.Equal(t, "bob", seen(none))
	require.NoError(t, moderation.New(store).ReinstateContent(t.Context(), mod.ID, target, "Not spam."))
	assert.Equal(t, "cy", seen(none))
	require.NoError(t, content.New(store).DeleteComment(t.Context(), latest))
	require.NoError(t, content.New(store).DeleteComment(t.Context(), reply))
	assert.Equal(t, "ada", seen(none))
	require.NoError(t, content.New(store).DeleteComment(t.Context(), first))
	assert.Empty(t, seen(none))
}
