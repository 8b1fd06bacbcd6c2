package db_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/stock"
)

func TestRun_ofClaims(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1732270000123)
	events := []models.Event{
		models.ClaimEvent(42, 7, 881726354918, true, at),
		models.ClaimEvent(42, 8, 771, false, at),
		models.DropEvent(42, 3, at),
		models.ClaimEvent(58, 7, 772, true, at),
	}
	run := models.NewRun(events...)
	assert.Equal(t, models.Run("claims 1732270000123 d42 +7:881726354918 -8:771 =3 d58 +7:772"), run)
	decoded, err := run.Events(10, 16)
	require.NoError(t, err)
	assert.Equal(t, events, decoded)
	assert.Equal(t, at, run.Time())
	assert.Equal(t, models.Target{Kind: models.KindDrop, ID: 42}, decoded[0].Target())
	assert.Equal(t, events, models.LastEvents(events))

	repeated := slices.Concat(events, []models.Event{events[1], events[0]})
	assert.Equal(t, repeated, models.LastEvents(repeated), "each event of a claim counts")
	replaced := []models.Event{models.ClaimEvent(42, 7, 770, false, at), models.ClaimEvent(42, 7, 773, true, at),
		models.ClaimEvent(42, 8, 774, true, at), models.ClaimEvent(42, 7, 773, false, at),
		models.ClaimEvent(58, 7, 775, true, at), models.ClaimEvent(42, 7, 776, true, at),
		models.ClaimEvent(42, 7, 776, false, at)}
	assert.Equal(t, slices.Concat(replaced[:1], replaced[2:3], replaced[4:]), models.LastEvents(replaced),
		"a claim that was replaced has no effect")
	for _, bad := range []models.Run{
		"claims 1 d42 +7", "claims 1 d42 +7:0", "claims 1 d42 +7:1:2", "claims 1 d42 =3:1", "claims 1 d42 =0",
		"claims 1 +7:1", "claims 1 d43 +7:1", "claims 1 p42 +7:1", "claims 1 p42 +7", "likes 1 d42 7",
		"likes 1 d42 +7:1", "likes 1 p42 =3", "likes 1 p42 7:1", "claims 0 d42 +7:1", "claims 1", "claims",
		"claims 1 d42 !7:1", "claims 1 d42 7:1", "likes 1 p42 +7",
	} {
		_, err := bad.Events(10, 16)
		assert.Error(t, err, string(bad))
	}
}

// insertDrop writes a drop on a post.
func insertDrop(t testing.TB, store *db.DB, post *models.Post, stock, confirmWithin int64) int64 {
	t.Helper()
	result, err := store.Pool().ExecContext(t.Context(), `
		INSERT INTO drops (post_id, user_id, title, stock, confirm_within, created_at, updated_at)
		VALUES (?, ?, 'Tickets', ?, ?, ?, ?)`, post.ID, post.Author.ID, stock, confirmWithin, past, past)
	require.NoError(t, err)
	id, err := result.LastInsertId()
	require.NoError(t, err)
	return id
}

// insertClaim writes the row of a claim and counts it if it is live.
func insertClaim(t testing.TB, store *db.DB, dropID, userID, id int64, state models.ClaimState) {
	t.Helper()
	_, err := store.Pool().ExecContext(t.Context(), `
		INSERT INTO claims (id, drop_id, user_id, state, created_at)
		VALUES (?, ?, ?, ?, ?)`, id, dropID, userID, state, past)
	require.NoError(t, err)
	if state.Live() {
		_, err = store.Pool().ExecContext(t.Context(), "UPDATE drops SET claimed=claimed+1 WHERE id=?", dropID)
		require.NoError(t, err)
	}
}

func TestDropGate_readsSettingsAndLiveClaims(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	post := newPost(t, store, newUser(t, store, "ada"))
	hidden := newPost(t, store, post.Author)
	one, empty := insertDrop(t, store, post, 5, 0), insertDrop(t, store, post, 7, 0)
	other := insertDrop(t, store, hidden, 9, 0)
	insertClaim(t, store, one, 8, 108, models.StateConfirmed)
	insertClaim(t, store, one, 7, 107, models.StateReserved)
	for state := models.StateReturned; state <= models.StateVoided; state++ {
		insertClaim(t, store, one, 10+int64(state), 110+int64(state), state)
	}
	require.NoError(t, content.New(store).DeletePost(t.Context(), 0, hidden.ID))
	ids := []int64{one, empty, other, 999}
	drops, err := stock.New(store).DropGate(t.Context(), ids, 2)
	require.NoError(t, err)
	claims := []models.LiveClaim{{UserID: 7, ID: 107}, {UserID: 8, ID: 108}}
	assert.Equal(t, map[int64]*models.GateDrop{
		one:   {ID: one, Stock: 5, Version: 1, Claimed: 2, Claims: claims},
		empty: {ID: empty, Stock: 7, Version: 1},
	}, drops)

	drops, err = stock.New(store).DropGate(t.Context(), ids, 1)
	require.NoError(t, err)
	assert.Equal(t, &models.GateDrop{ID: one, Stock: 5, Version: 1, Claimed: 2}, drops[one], "too many claims")
	first, err := stock.New(store).LiveClaims(t.Context(), one, 0, 1)
	require.NoError(t, err)
	second, err := stock.New(store).LiveClaims(t.Context(), one, first[0].UserID, 5)
	require.NoError(t, err)
	assert.Equal(t, claims, append(first, second...))

	ends, closed, always := past.Add(time.Hour), past.Add(time.Minute), time.UnixMilli(1).UTC()
	for _, c := range []struct{ ends, closed, gateBegins, gateEnds *time.Time }{
		{nil, nil, &past, nil}, {&ends, nil, &past, &ends},
		{nil, &closed, nil, &always}, {&ends, &closed, nil, &always}, {&closed, &ends, nil, &always},
	} {
		_, err = store.Pool().ExecContext(t.Context(),
			"UPDATE drops SET ends_at=?, closed_at=?, begins_at=? WHERE id=?",
			c.ends, c.closed, past, one)
		require.NoError(t, err)
		drops, err = stock.New(store).DropGate(t.Context(), ids, 2)
		require.NoError(t, err)
		assert.Equal(t, c.gateEnds, drops[one].Ends)
		assert.Equal(t, c.gateBegins, drops[one].Begins)
		drop := models.Drop{Stock: 1, BeginsAt: &past, EndsAt: c.ends, ClosedAt: c.closed}
		for _, at := range []time.Time{past.Add(-time.Hour), past, past.Add(2 * time.Hour)} {
			ended := c.closed != nil || c.ends != nil && at.After(*c.ends)
			assert.Equal(t, ended, drop.Ended(at), "at %v", at)
			assert.Equal(t, ended, models.ErrorCode(drop.Refusal(at)) == models.CodeEnded, "at %v", at)
		}
	}

	for id, want := range map[int64]bool{one: true, other: false, 999: false} {
		open, err := store.TargetOpen(t.Context(), models.Target{Kind: models.KindDrop, ID: id})
		require.NoError(t, err)
		assert.Equal(t, want, open)
	}
	missing, err := likes.New(store).Missing(t.Context(), []models.Target{
		{Kind: models.KindDrop, ID: one}, {Kind: models.KindDrop, ID: 999}})
	require.NoError(t, err)
	assert.Equal(t, []models.Target{{Kind: models.KindDrop, ID: 999}}, missing)
}

func TestConfirmWithin_ofADropWhosePostIsDeleted(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 1)
	d := l.drop(models.DropSettings{Stock: 3, ConfirmWithin: 60})
	require.NoError(t, content.New(l.store).DeletePost(t.Context(), 0, l.post.ID))
	seconds, err := stock.New(l.store).ConfirmWithin(t.Context(), d.ID)
	require.NoError(t, err)
	assert.EqualValues(t, 60, seconds)
	_, err = stock.New(l.store).ConfirmWithin(t.Context(), d.ID+1)
	refusedAs(t, models.CodeNotFound, err)
}
