package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

func TestInTransaction_isThatOfTransact(t *testing.T) {
	t.Parallel()
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{})
	require.NoError(t, err)
	defer store.Close()
	require.False(t, db.InTransaction(t.Context()))
	require.NoError(t, store.Transact(t.Context(), func(tx *db.Tx) error {
		require.True(t, db.InTransaction(tx.Statement.Context))
		return nil
	}))
}

// A transaction closes in the gate what it has deleted: once, after its COMMIT, and whatever becomes of the request.
func TestTransact_closesWhatItDeletes(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	s, err := db.Open(t.Context(), dsn, db.Options{})
	require.NoError(t, err)
	defer s.Close()
	author := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(s).CreateUser(t.Context(), author))
	post, err := content.New(s).CreatePost(t.Context(), models.Author{ID: author.ID}, models.PostText{Title: "A post",
		Content: "Text."})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var closed []models.Target
	s.CloseDeletedWith(func(closing context.Context, targets ...models.Target) error {
		cancel()
		require.NoError(t, closing.Err(), "the end of the request does not end it")
		_, err := content.New(s).PostByID(closing, 0, targets[0].ID)
		require.Equal(t, models.CodeNotFound, models.ErrorCode(err), "it is committed")
		closed = append(closed, targets...)
		return nil
	})
	deletion := models.Deletion{At: s.Now(), By: models.Author{ID: author.ID}}
	failed := errors.New("failed")
	require.ErrorIs(t, s.Transact(ctx, func(tx *db.Tx) error {
		_, err := content.HidePosts(tx, []int64{post.ID}, deletion)
		return errors.Join(err, failed)
	}), failed)
	require.Empty(t, closed, "nothing is deleted")

	runs := 0
	require.NoError(t, s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := content.HidePosts(tx, []int64{post.ID}, deletion); err != nil {
			return err
		}
		if runs++; runs == 1 {
			return db.ErrChangedMeanwhile
		}
		return nil
	}))
	require.Equal(t, 2, runs)
	require.Equal(t, []models.Target{{Kind: models.KindPost, ID: post.ID}}, closed)
}
