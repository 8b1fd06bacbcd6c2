package db_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/likes"
	"likewise/models/stock"
)

func newDirectSite(t testing.TB, users int) claimSite {
	t.Helper()
	l := newClaimSite(t, users)
	require.NoError(t, l.store.StartLikes(t.Context(), models.LikesDirect))
	return l
}

func TestClaimDirect_takesAndReturns(t *testing.T) {
	t.Parallel()
	l := newDirectSite(t, 3)
	d := l.drop(models.DropSettings{Stock: 1})
	c, taken, err := stock.New(l.store).ClaimDirect(t.Context(), d.ID, l.users[0], 100)
	require.NoError(t, err)
	assert.True(t, taken)
	at := l.now.UTC()
	want := models.Claim{ID: 100, DropID: d.ID, UserID: l.users[0], State: models.StateConfirmed, CreatedAt: at,
		ConfirmedAt: &at}
	assert.Equal(t, &want, c)
	c, taken, err = stock.New(l.store).ClaimDirect(t.Context(), d.ID, l.users[0], 101)
	require.NoError(t, err)
	assert.False(t, taken)
	assert.Equal(t, &want, c, "the claim that the user has")
	_, _, err = stock.New(l.store).ClaimDirect(t.Context(), d.ID, l.users[1], 102)
	refusedAs(t, models.CodeSoldOut, err)
	l.check()

	_, err = stock.New(l.store).ReturnDirect(t.Context(), l.users[1], 100)
	refusedAs(t, models.CodeNotFound, err)
	for range 2 {
		c, err = stock.New(l.store).ReturnDirect(t.Context(), l.users[0], 100)
		require.NoError(t, err)
		assert.Equal(t, models.StateReturned, c.State)
	}
	assert.Zero(t, l.claimed(d.ID))
	for i, user := range []int64{l.users[0], l.users[1]} {
		id := int64(103 + i)
		_, taken, err = stock.New(l.store).ClaimDirect(t.Context(), d.ID, user, id)
		require.NoError(t, err)
		assert.True(t, taken)
		_, err = stock.New(l.store).ReturnDirect(t.Context(), user, id)
		require.NoError(t, err)
	}
	assert.Equal(t, "103 returned", l.row(d.ID, l.users[0]), "the row has the later claim")
	assert.Equal(t, []string{"claim_confirmed 103", "claim_confirmed 100"}, l.notified(l.users[0]))
	l.check()
}

func TestClaimDirect_inItsTime(t *testing.T) {
	t.Parallel()
	l := newDirectSite(t, 2)
	begins, ends := l.now.Add(time.Minute), l.now.Add(2*time.Minute)
	d := l.drop(models.DropSettings{Stock: 1, BeginsAt: &begins, EndsAt: &ends, ConfirmWithin: 60})
	claim := func(user int, id int64) error {
		_, _, err := stock.New(l.store).ClaimDirect(t.Context(), d.ID, l.users[user], id)
		return err
	}
	refusedAs(t, models.CodeNotStarted, claim(0, 100))
	*l.now = begins
	require.NoError(t, claim(0, 100))
	assert.Equal(t, "100 reserved", l.row(d.ID, l.users[0]))
	*l.now = ends
	refusedAs(t, models.CodeEnded, claim(1, 101))
	_, err := stock.New(l.store).ReturnDirect(t.Context(), l.users[0], 100)
	refusedAs(t, models.CodeEnded, err)

	expired, _, err := stock.New(l.store).ExpireClaims(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, expired)
	assert.Equal(t, "100 expired", l.row(d.ID, l.users[0]), "without a gate, there is nothing to release")
	_, err = stock.New(l.store).ReturnDirect(t.Context(), l.users[0], 100)
	refusedAs(t, models.CodeConflict, err)

	open := l.drop(models.DropSettings{Stock: 1})
	_, err = stock.New(l.store).CloseDrop(t.Context(), l.post.Author.ID, open.ID)
	require.NoError(t, err)
	_, _, err = stock.New(l.store).ClaimDirect(t.Context(), open.ID, l.users[0], 102)
	refusedAs(t, models.CodeEnded, err)
	_, _, err = stock.New(l.store).ClaimDirect(t.Context(), 999, l.users[0], 102)
	refusedAs(t, models.CodeNotFound, err)
	require.NoError(t, content.New(l.store).DeletePost(t.Context(), 0, l.post.ID))
	_, _, err = stock.New(l.store).ClaimDirect(t.Context(), open.ID, l.users[0], 102)
	refusedAs(t, models.CodeNotFound, err)

	require.NoError(t, likes.New(l.store).SwitchToGated(t.Context()))
	refusedAs(t, models.CodeUnavailable, claim(0, 103))
	_, err = stock.New(l.store).ReturnDirect(t.Context(), l.users[0], 100)
	refusedAs(t, models.CodeUnavailable, err)
	_, err = stock.New(l.store).ClearCold(t.Context(), models.ColdDrop{ID: d.ID}, func() (bool, error) {
		return true,
			nil
	})
	refusedAs(t, models.CodeUnavailable, err)
}

// Users claim, return, and claim again, each from two devices, while claims expire and the stock changes.
func TestClaimDirect_countsExactlyUnderLoad(t *testing.T) {
	t.Parallel()
	l := newDirectSite(t, 12)
	d := l.drop(models.DropSettings{Stock: 5})
	var all sync.WaitGroup
	for i, user := range append(l.users, l.users...) {
		all.Go(func() {
			for n := range 15 {
				c, _, err := stock.New(l.store).ClaimDirect(context.Background(), d.ID, user, int64(1000*(i+1)+n))
				if err != nil {
					if models.ErrorCode(err) != models.CodeSoldOut {
						t.Error(err)
					}
					continue
				}
				if _, err := stock.New(l.store).ReturnDirect(context.Background(), user, c.ID); err != nil &&
					models.ErrorCode(err) != models.CodeNotFound { // the other device has made a later claim
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	l.check()
	assert.Zero(t, l.claimed(d.ID))
}
