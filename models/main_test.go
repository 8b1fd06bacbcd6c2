package models_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// openStore returns a store on a database of the test.
func openStore(t testing.TB) *models.Store {
	t.Helper()
	store, err := models.Open(t.Context(), testkit.Database(t), models.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func newUser(t testing.TB, store *models.Store, name string) models.Author {
	t.Helper()
	u := &models.User{Username: name, Email: name + "@example.org"}
	require.NoError(t, store.CreateUser(t.Context(), u))
	return models.Author{ID: u.ID, Username: name}
}

func newPost(t testing.TB, store *models.Store, author models.Author) *models.Post {
	t.Helper()
	p, err := store.CreatePost(t.Context(), author, models.PostText{Title: "A post", Content: "with text"})
	require.NoError(t, err)
	return p
}

func newComment(t testing.TB, store *models.Store, author models.Author, post *models.Post, parent *models.Comment,
) *models.Comment {
	t.Helper()
	var parentID *int64
	if parent != nil {
		parentID = &parent.ID
	}
	c, err := store.CreateComment(t.Context(), author, post.ID, parentID, models.CommentText{Content: "a comment"})
	require.NoError(t, err)
	return c
}

func count(t testing.TB, store *models.Store, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, store.Pool().QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

// past is before the time of any clock in a test.
var past = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
