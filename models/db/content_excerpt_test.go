package db_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/moderation"
)

// excerptNow returns the stored excerpt of a post, deleted or not.
func excerptNow(t *testing.T, store *db.DB, id int64) string {
	t.Helper()
	var excerpt string
	row := store.Pool().QueryRowContext(t.Context(), "SELECT excerpt FROM posts WHERE id=?", id)
	require.NoError(t, row.Scan(&excerpt))
	return excerpt
}

func TestExcerpt_followsTheText(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, mod, admin := newUser(t, store, "ada"), newUser(t, store, "mod"), newUser(t, store, "admin")
	require.NoError(t, accounts.New(store).SetRole(t.Context(), mod.ID, models.RoleModerator))
	require.NoError(t, accounts.New(store).SetRole(t.Context(), admin.ID, models.RoleAdmin))
	write := func() (*models.Post, models.Target) {
		t.Helper()
		p := newPost(t, store, ada)
		require.Equal(t, "with text", excerptNow(t, store, p.ID))
		return p, models.Target{Kind: models.KindPost, ID: p.ID}
	}
	p, target := write()
	edited := func(text models.PostText) string {
		t.Helper()
		var err error
		p, err = content.New(store).UpdatePost(t.Context(), ada.ID, p.ID, p.Version, text)
		require.NoError(t, err)
		return excerptNow(t, store, p.ID)
	}
	assert.Equal(t, "other text", edited(models.PostText{Title: "A post", Content: "other text"}))
	assert.Equal(t, "other text", edited(models.PostText{Title: "Other", Content: "other text"}))
	assert.Len(t, edited(models.PostText{Title: "Other", Content: strings.Repeat("x", 1000)}), models.MaxExcerpt)

	require.NoError(t, moderation.New(store).RedactVersion(t.Context(), mod.ID, target, 0, "An old version."))
	assert.Len(t, excerptNow(t, store, p.ID), models.MaxExcerpt)
	require.NoError(t, moderation.New(store).RedactVersion(t.Context(), mod.ID, target, p.Version,
		"The present version."))
	assert.Equal(t, models.RedactedText, excerptNow(t, store, p.ID))

	p, target = write()
	require.NoError(t, content.New(store).DeletePost(t.Context(), ada.ID, p.ID))
	assert.Empty(t, excerptNow(t, store, p.ID))
	require.NoError(t, moderation.New(store).RedactVersion(t.Context(), mod.ID, target, 0, "While it is deleted."))
	assert.Empty(t, excerptNow(t, store, p.ID))
	_, err := content.New(store).RestorePost(t.Context(), ada.ID, p.ID)
	require.NoError(t, err)
	assert.Equal(t, models.RedactedText, excerptNow(t, store, p.ID))

	p, target = write()
	require.NoError(t, moderation.New(store).RemoveContent(t.Context(), mod.ID, target, "Spam."))
	assert.Empty(t, excerptNow(t, store, p.ID))
	require.NoError(t, moderation.New(store).ReinstateContent(t.Context(), mod.ID, target, "Not spam."))
	assert.Equal(t, "with text", excerptNow(t, store, p.ID))
	exec(t, store, "UPDATE posts SET status=? WHERE id=?", models.StatusDeleted, p.ID) // and left an excerpt
	require.NoError(t, moderation.New(store).PurgeContent(t.Context(), admin.ID, target, "An address."))
	assert.Empty(t, excerptNow(t, store, p.ID))

	p, _ = write()
	removeAll(t, store, mod.ID, ada.ID)
	assert.Empty(t, excerptNow(t, store, p.ID))

	bob := newUser(t, store, "bob")
	ids, err := content.New(store).ImportPosts(t.Context(), "dump", "post", []models.ImportedPost{{
		ExternalID: 1, AuthorID: bob.ID, Text: models.PostText{Title: "T", Content: "imported"},
		CreatedAt: past, UpdatedAt: past,
	}})
	require.NoError(t, err)
	assert.Equal(t, "imported", excerptNow(t, store, ids[0]))
}

func TestWriteExcerpts_makesThoseThatAreMissing(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	without, err := db.Open(t.Context(), dsn, db.Options{})
	require.NoError(t, err)
	defer without.Close()
	with, err := db.Open(t.Context(), dsn, db.Options{Excerpt: beginning})
	require.NoError(t, err)
	defer with.Close()
	ada := newUser(t, with, "ada")
	ready, deleted := newPost(t, with, ada), newPost(t, without, ada)
	require.NoError(t, content.New(without).DeletePost(t.Context(), ada.ID, deleted.ID))
	var missing []*models.Post
	for range 5 {
		missing = append(missing, newPost(t, without, ada))
		require.Empty(t, excerptNow(t, without, missing[0].ID))
	}
	exec(t, with, "UPDATE posts SET excerpt='by earlier rules' WHERE id=?", missing[1].ID)
	exec(t, with, "UPDATE posts SET excerpt='by these rules' WHERE id=?", ready.ID)
	exec(t, with, "UPDATE posts SET updated_at=?", past)

	n, err := content.New(without).WriteExcerpts(t.Context(), 2)
	require.NoError(t, err)
	assert.Zero(t, n, "by a store that makes none")
	for _, want := range []int{2, 2, 1, 0} {
		n, err := content.New(with).WriteExcerpts(t.Context(), 2)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	for _, p := range missing {
		assert.Equal(t, "with text", excerptNow(t, with, p.ID))
	}
	assert.Equal(t, "by these rules", excerptNow(t, with, ready.ID))
	assert.Empty(t, excerptNow(t, with, deleted.ID))
	assert.Zero(t, count(t, with, "SELECT COUNT(*) FROM posts WHERE updated_at<>?", past))
}
