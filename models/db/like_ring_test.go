package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/moderation"
)

// TestSaveRing_reportsNoRingThatIsBeingResolved has a job report a ring while a moderator is resolving it. The job
// waits, and then neither adds to the resolved report nor reports the ring again.
func TestSaveRing_reportsNoRingThatIsBeingResolved(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	author, bob, carol := newUser(t, store, "ada"), newUser(t, store, "bob"), newUser(t, store, "carol")
	at := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	report := func(last time.Time) (*models.LikeRing, bool) {
		ring := &models.LikeRing{
			AuthorID:     author.ID,
			Coincidences: 9,
			Occasions:    9,
			FirstAt:      at,
			LastAt:       last,
			Members: []models.RingMember{
				{UserID: bob.ID, Coincidences: 9, Likes: 9},
				{UserID: carol.ID, Coincidences: 9, Likes: 9},
			},
		}
		isNew, err := moderation.New(store).SaveRing(ctx, ring)
		assert.NoError(t, err)
		return ring, isNew
	}
	first, isNew := report(at)
	require.True(t, isNew)
	again, isNew := report(at)
	assert.False(t, isNew)
	assert.Equal(t, first.ID, again.ID)

	tx, err := store.Pool().BeginTx(ctx, nil) // as DismissRing does
	require.NoError(t, err)
	_, err = tx.ExecContext(
		ctx,
		`
		UPDATE like_rings
		SET status='dismissed', resolved_at=UTC_TIMESTAMP(3), resolved_by=?, reason='A fan club.'
		WHERE id=?`,
		author.ID,
		first.ID,
	)
	require.NoError(t, err)
	type saved struct {
		ring  *models.LikeRing
		isNew bool
	}
	done := make(chan saved, 1)
	go func() {
		ring, isNew := report(at)
		done <- saved{ring, isNew}
	}()
	select {
	case got := <-done:
		t.Errorf("it did not wait: %+v", got)
	case <-time.After(200 * time.Millisecond):
		require.NoError(t, tx.Commit())
		got := <-done
		assert.False(t, got.isNew)
		assert.Zero(t, got.ring.ID, "what was judged is reported again")
	}
	later, isNew := report(time.Now().Add(time.Minute).UTC().Truncate(time.Second))
	assert.True(t, isNew, "what they do afterwards is reported")
	assert.NotEqual(t, first.ID, later.ID)
}
