package db_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/likes"
	"likewise/models/stock"
)

// A locked tally waits for a transaction that changes the counts. An unlocked one does not, and its snapshot may be of
// no single moment.
func TestLockedTally_waitsForTransactions(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 1)
	drop := l.drop(models.DropSettings{Stock: 1})
	ada := newUser(t, l.store, "author")
	post := newPost(t, l.store, ada)
	comment := newComment(t, l.store, ada, post, nil)
	for _, try := range []struct {
		change, statement string
		tally             func() (children, rows int64, ok bool, err error)
	}{
		{
			"UPDATE posts SET comments_count=comments_count+1", "%FROM posts%FOR UPDATE%",
			func() (int64, int64, bool, error) {
				tally, ok, err := likes.New(l.store).LockedTally(context.Background(), postTarget(post))
				return tally.Children, tally.ChildRows, ok, err
			},
		},
		{
			"UPDATE comments SET replies_count=replies_count+1", "%FROM comments%FOR UPDATE%",
			func() (int64, int64, bool, error) {
				target := models.Target{Kind: models.KindComment, ID: comment.ID}
				tally, ok, err := likes.New(l.store).LockedTally(context.Background(), target)
				return tally.Children, tally.ChildRows, ok, err
			},
		},
		{
			"UPDATE drops SET claimed=claimed+1", "%FROM drops%FOR UPDATE%",
			func() (int64, int64, bool, error) {
				tally, ok, err := stock.New(l.store).LockedDropTally(context.Background(), drop.ID)
				return tally.Claimed, tally.Rows, ok, err
			},
		},
	} {
		other, err := l.store.Pool().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = other.ExecContext(t.Context(), try.change)
		require.NoError(t, err)
		var running sync.WaitGroup
		var ended atomic.Bool
		running.Go(func() {
			counted, rows, ok, err := try.tally()
			ended.Store(true)
			assert.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, rows+1, counted, "%s: what was committed meanwhile", try.change)
		})
		awaitWaiting(t, l.store, try.statement, &ended)
		require.NoError(t, other.Commit())
		running.Wait()
	}
	_, ok, err := likes.New(l.store).LockedTally(t.Context(), models.Target{Kind: models.KindComment, ID: 999})
	require.NoError(t, err)
	assert.False(t, ok)
	_, ok, err = stock.New(l.store).LockedDropTally(t.Context(), 999)
	require.NoError(t, err)
	assert.False(t, ok)
}
