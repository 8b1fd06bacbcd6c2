package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/moderation"
)

func TestFence_admitsTheLatestHolderAlone(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	write := func(ctx context.Context, id int64) error {
		return moderation.New(store).SetRingCheckpoint(ctx, models.KindPost, id)
	}
	first, err := store.NextFence(t.Context(), "work")
	require.NoError(t, err)
	require.NoError(t, write(db.WithFence(t.Context(), "work", first), 1))
	second, err := store.NextFence(t.Context(), "work")
	require.NoError(t, err)
	require.Equal(t, first+1, second)
	require.ErrorIs(t, write(db.WithFence(t.Context(), "work", first), 2), db.ErrFenced)
	require.NoError(t, write(db.WithFence(t.Context(), "work", second), 3))
	require.NoError(t, write(t.Context(), 4), "of no lock")
	require.ErrorIs(t, write(db.WithFence(t.Context(), "other", first), 5), db.ErrFenced, "never issued")
	other, err := store.NextFence(t.Context(), "other")
	require.NoError(t, err)
	require.EqualValues(t, 1, other, "each lock has its own numbers")
	id, _, err := moderation.New(store).RingCheckpoint(t.Context(), models.KindPost)
	require.NoError(t, err)
	require.EqualValues(t, 4, id)
}

// A holder that has begun to write is waited for: the next one sees all that it wrote.
func TestFence_waitsForATransactionUnderWay(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	author := newUser(t, store, "ada")
	post := newPost(t, store, author)
	target := models.Target{Kind: models.KindPost, ID: post.ID}
	_, err := likes.New(store).SetLike(t.Context(), target, author.ID, true)
	require.NoError(t, err)
	require.NoError(t, content.New(store).DeletePost(t.Context(), author.ID, post.ID))
	number, err := store.NextFence(t.Context(), "work")
	require.NoError(t, err)
	inside, goOn := make(chan struct{}), make(chan struct{})
	ended, next := make(chan error, 1), make(chan int64, 1)
	go func() {
		_, err := likes.New(store).WithdrawLike(db.WithFence(t.Context(), "work", number), target, author.ID,
			func() (bool, error) {
				close(inside)
				<-goOn
				return true, nil
			})
		ended <- err
	}()
	<-inside
	go func() {
		number, err := store.NextFence(t.Context(), "work")
		assert.NoError(t, err)
		next <- number
	}()
	select {
	case <-next:
		t.Error("a later number was issued while a transaction of the earlier one was under way")
	case <-time.After(200 * time.Millisecond): // the statement waits for the row
	}
	close(goOn)
	require.NoError(t, <-ended, "it is committed")
	require.Equal(t, number+1, <-next)
}
