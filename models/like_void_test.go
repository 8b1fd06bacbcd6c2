package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// TestVoidLikes_ofTheBannedEndsWithTheBan limits a request to the likes that a banned user's last sessions may bring.
// Likes after the end of the ban, whatever ended it, are not voided.
func TestVoidLikes_ofTheBannedEndsWithTheBan(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	mod := newModerator(t, store, "mod")
	ban := func(user models.Author, until time.Time) {
		t.Helper()
		_, err := store.BanUser(ctx, mod.ID, user.ID, &models.Ban{Until: until, Reason: "Bought likes."})
		require.NoError(t, err)
	}
	void := func(user models.Author) (end func() time.Time) {
		t.Helper()
		v := models.LikeVoid{UserID: user.ID, RequestedBy: mod.ID, Reason: "Bought likes."}
		require.NoError(t, store.VoidLikes(ctx, &v))
		return func() time.Time {
			t.Helper()
			now, err := store.LikeVoid(ctx, v.ID)
			require.NoError(t, err)
			require.NotNil(t, now.LikedUntil, "the request has no end")
			return *now.LikedUntil
		}
	}
	now := time.Now().UTC()
	forGood, shortly, shorter, deleted := newUser(t, store,
		"good"), newUser(t, store, "short"), newUser(t, store, "shorter"), newUser(t, store, "deleted")

	ban(forGood, models.ForGood)
	end := void(forGood)
	assert.WithinRange(t, end(), now.Add(models.SessionStale), now.Add(models.SessionStale+5*time.Minute),
		"what the last sessions may bring")
	require.NoError(t, store.UnbanUser(ctx, mod.ID, forGood.ID, "It was somebody else."))
	assert.WithinRange(t, end(), now.Add(-time.Second), time.Now(), "after the ban was lifted")

	until := now.Add(2 * time.Minute).Truncate(time.Second)
	ban(shortly, until)
	assert.Equal(t, until, void(shortly)().UTC(), "of a ban that ends soon")

	ban(shorter, models.ForGood)
	end = void(shorter)
	ban(shorter, until)
	assert.Equal(t, until, end().UTC(), "after the ban was made shorter")
	exec(t, store, "UPDATE like_voids SET liked_until=NULL") // as requests were made before they had an end
	require.NoError(t, store.UnbanUser(ctx, mod.ID, shorter.ID, "It was somebody else."))
	assert.WithinRange(t, end(), now.Add(-time.Second), time.Now())

	_, err := store.DeleteUser(ctx, deleted.ID, "")
	require.NoError(t, err)
	assert.Equal(t, 1,
		count(t, store, "SELECT COUNT(*) FROM like_voids WHERE user_id=? AND liked_until IS NULL", deleted.ID),
		"of a deleted account there is no end")
}
