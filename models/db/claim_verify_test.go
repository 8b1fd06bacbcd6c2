package db_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/stock"
)

func TestTallyDrop_findsAndRepairsACountThatIsOff(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 3)
	d := l.drop(models.DropSettings{Stock: 3})
	l.apply(l.take(d.ID, l.users[0], 100), l.take(d.ID, l.users[1], 101))
	problem := func() string {
		t.Helper()
		tally, ok, err := stock.New(l.store).TallyDrop(t.Context(), d.ID)
		require.NoError(t, err)
		require.True(t, ok)
		list, err := stock.New(l.store).TallyDrops(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, []models.DropTally{tally}, list)
		return tally.Problem()
	}
	assert.Empty(t, problem())
	l.exec("UPDATE drops SET claimed=3")
	assert.Equal(t, "claimed is 3 and there are 2 live claims", problem())
	require.NoError(t, stock.New(l.store).RecountDrop(t.Context(), d.ID))
	assert.Empty(t, problem())

	insert := func(user, id int64) {
		l.exec("INSERT INTO claims (drop_id, user_id, id, state, created_at) VALUES (?,?,?,2,NOW(3))", d.ID, user, id)
	}
	l.exec("UPDATE drops SET stock=2")
	insert(l.users[2], 102)
	assert.Equal(t, "claimed is 2 and there are 3 live claims", problem(), "a row too many")
	require.NoError(t, stock.New(l.store).RecountDrop(t.Context(), d.ID))
	assert.Empty(t, problem())
	drop, err := stock.New(l.store).Drop(t.Context(), d.ID)
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 2}, []int64{drop.Stock, drop.Version}, "the gate gets the stock")
	l.exec("DELETE FROM claims WHERE id=100")
	assert.Equal(t, "claimed is 3 and there are 2 live claims", problem(), "a row too few")
	_, ok, err := stock.New(l.store).TallyDrop(t.Context(), 999)
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestCompareClaims_findsEveryDifference(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 6)
	d := l.drop(models.DropSettings{Stock: 6}).ID
	u := l.users
	l.apply(l.take(d, u[0], 100), l.take(d, u[1], 101), l.take(d, u[2], 102), l.take(d, u[4], 104))
	_, err := stock.New(l.store).VoidClaims(t.Context(), models.ClaimVoid{ActorID: l.moderator("mod"), UserID: u[4],
		Reason: "x"})
	require.NoError(t, err)
	held := []models.LiveClaim{{UserID: u[0], ID: 100}, {UserID: u[2], ID: 202}, {UserID: u[3], ID: 103}, {UserID: u[4],
		ID: 104}, {UserID: u[5], ID: 105}}
	gate := func(_ context.Context, after, upTo int64) ([]models.LiveClaim, error) {
		return slices.DeleteFunc(slices.Clone(held), func(c models.LiveClaim) bool {
			return c.UserID <= after || upTo != 0 && c.UserID > upTo
		}), nil
	}
	want := []models.ClaimDrift{
		{UserID: u[1], Row: 101}, {UserID: u[2], Row: 102, Gate: 202}, {UserID: u[3], Gate: 103},
		{UserID: u[4], Gate: 104, Ended: true, Leaves: true}, {UserID: u[5], Gate: 105},
	}
	compare := func() (found []models.ClaimDrift) {
		t.Helper()
		err := stock.New(l.store).CompareClaims(t.Context(), d, gate, func(batch []models.ClaimDrift) error {
			found = append(found, batch...)
			return nil
		})
		require.NoError(t, err)
		return found
	}
	assert.Equal(t, want, compare())
	texts := map[string]bool{}
	for _, drift := range want {
		texts[drift.String()] = true
	}
	assert.Len(t, texts, len(want))
	err = stock.New(l.store).CompareClaims(t.Context(), d, func(context.Context, int64, int64) ([]models.LiveClaim,
		error) {
		return nil, assert.AnError
	}, nil)
	require.ErrorIs(t, err, assert.AnError)
	err = stock.New(l.store).CompareClaims(t.Context(), d, gate,
		func([]models.ClaimDrift) error { return assert.AnError })
	require.ErrorIs(t, err, assert.AnError)

	l.apply(l.back(d, u[4], 104))
	want[3].Leaves = false
	assert.Equal(t, want, compare(), "nothing releases it")
	for id, want := range map[int64]bool{104: true, 100: false, 999: false} {
		user := map[int64]int64{104: u[4], 100: u[0], 999: u[5]}[id]
		ok, err := stock.New(l.store).ReleaseClaim(t.Context(), d, user, id)
		require.NoError(t, err)
		assert.Equal(t, want, ok)
	}
	assert.Equal(t, []models.EndedClaim{{DropID: d, UserID: u[4], ID: 104}}, l.toRelease())
}
