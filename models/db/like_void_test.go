package db_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/moderation"
	"likewise/models/privacy"
)

// TestVoidLikes_ofTheBannedEndsWithTheBan limits a request to the likes that a banned user's last sessions may bring.
// Likes after the end of the ban, whatever ended it, are not voided.
func TestVoidLikes_ofTheBannedEndsWithTheBan(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	mod := newModerator(t, store, "mod")
	ban := func(user models.Author, until time.Time) {
		t.Helper()
		_, err := moderation.New(store).BanUser(ctx, mod.ID, user.ID, &models.Ban{Until: until,
			Reason: "Bought likes."})
		require.NoError(t, err)
	}
	void := func(user models.Author) (end func() time.Time) {
		t.Helper()
		v := likes.LikeVoid{UserID: user.ID, RequestedBy: mod.ID, Reason: "Bought likes."}
		require.NoError(t, likes.New(store).VoidLikes(ctx, &v))
		return func() time.Time {
			t.Helper()
			now, err := likes.New(store).LikeVoid(ctx, v.ID)
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
	require.NoError(t, moderation.New(store).UnbanUser(ctx, mod.ID, forGood.ID, "It was somebody else."))
	assert.WithinRange(t, end(), now.Add(-time.Second), time.Now(), "after the ban was lifted")

	until := now.Add(2 * time.Minute).Truncate(time.Second)
	ban(shortly, until)
	assert.WithinDuration(t, until, void(shortly)(), 5*time.Second, "of a ban that ends soon")

	ban(shorter, models.ForGood)
	end = void(shorter)
	ban(shorter, until)
	assert.WithinDuration(t, until, end(), 5*time.Second, "after the ban was made shorter")
	exec(t, store, "UPDATE like_voids SET liked_until=NULL") // as requests were made before they had an end
	require.NoError(t, moderation.New(store).UnbanUser(ctx, mod.ID, shorter.ID, "It was somebody else."))
	assert.WithinRange(t, end(), now.Add(-time.Second), time.Now())

	_, err := privacy.New(store).DeleteUser(ctx, deleted.ID, "")
	require.NoError(t, err)
	assert.Equal(t, 1,
		count(t, store, "SELECT COUNT(*) FROM like_voids WHERE user_id=? AND liked_until IS NULL", deleted.ID),
		"of a deleted account there is no end")
}

// The clocks of processes may show anything: a request without an end has the likes that were accepted before it, by
// the clock of likes, and is not over before that clock says so.
func TestVoidLikes_comparesNoClockOfAProcess(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	clock := time.Now().Add(3 * time.Hour).UTC()
	for name, process := range map[string]time.Time{
		"as MySQL": time.Now(), "behind": time.Now().Add(-20 * time.Hour), "ahead": time.Now().Add(20 * time.Hour),
	} {
		store, err := db.Open(t.Context(), dsn, db.Options{Now: func() time.Time { return process }})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		earliest, latest := clock.Add(-time.Minute), clock
		store.UseLikeClock(func(context.Context) (time.Time, time.Time, error) { return earliest, latest, nil })
		mod, user := newModerator(t, store, "mod "+name), newUser(t, store, "user "+name)
		void := func() (v likes.LikeVoid) {
			t.Helper()
			v = likes.LikeVoid{UserID: user.ID, RequestedBy: mod.ID, Reason: "Bought likes."}
			require.NoError(t, likes.New(store).VoidLikes(t.Context(), &v), name)
			return v
		}
		over := func(v likes.LikeVoid) bool {
			t.Helper()
			over, err := likes.New(store).LikesOver(t.Context(), likes.OpenLikeVoid{LikeVoid: v})
			require.NoError(t, err)
			return over
		}
		v := void()
		assert.Equal(t, clock.Truncate(time.Second), *v.LikedUntil, "%s: by the latest clock", name)
		assert.False(t, over(v), "%s: one server is behind", name)
		earliest = clock.Truncate(time.Second).Add(time.Second)
		assert.True(t, over(v), name)

		_, err = moderation.New(store).BanUser(t.Context(), mod.ID, user.ID,
			&models.Ban{Until: process.Add(90 * time.Second), Reason: "Bought likes."})
		require.NoError(t, err)
		end := process.Truncate(time.Second).Sub(process) + 90*time.Second // a ban ends at a whole second
		v = void()
		assert.Equal(t, clock.Add(end).Round(time.Second), *v.LikedUntil, "%s: with the ban", name)
		require.NoError(t, moderation.New(store).UnbanUser(t.Context(), mod.ID, user.ID, "It was somebody else."))
		now, err := likes.New(store).LikeVoid(t.Context(), v.ID)
		require.NoError(t, err)
		assert.Equal(t, clock.Truncate(time.Second), now.LikedUntil.UTC(), "%s: without a ban", name)

		_, err = privacy.New(store).DeleteUser(t.Context(), user.ID, "")
		require.NoError(t, err)
		deleted := func() likes.OpenLikeVoid {
			t.Helper()
			open, err := likes.New(store).OpenLikeVoids(t.Context(), time.Now(), 100)
			require.NoError(t, err)
			return open[slices.IndexFunc(open, func(v likes.OpenLikeVoid) bool {
				return v.UserID == user.ID && v.LikedUntil == nil
			})]
		}
		assert.False(t, deleted().SessionsOver, name)
		exec(t, store, "UPDATE like_voids SET requested_at=requested_at - INTERVAL 12 MINUTE WHERE user_id=?", user.ID)
		assert.True(t, deleted().SessionsOver, name)
	}
}

// A period that ends now cannot be requested without the time of likes. A ban can.
func TestVoidLikes_needsTheClockOfLikes(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	mod, user := newModerator(t, store, "mod"), newUser(t, store, "user")
	store.UseLikeClock(func(context.Context) (_, _ time.Time, err error) { return time.Time{}, time.Time{}, io.EOF })
	err := likes.New(store).VoidLikes(t.Context(), &likes.LikeVoid{UserID: user.ID, RequestedBy: mod.ID,
		Reason: "Bought likes."})
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM like_voids"))
	until := time.Now().Add(-time.Hour)
	require.NoError(t, likes.New(store).VoidLikes(t.Context(),
		&likes.LikeVoid{UserID: user.ID, RequestedBy: mod.ID, LikedUntil: &until, Reason: "Bought likes."}))
	exec(t, store, "DELETE FROM like_voids")

	exec(t, store, "INSERT INTO like_voids (user_id, requested_by, requested_at) VALUES (?,?,NOW(3))", user.ID, mod.ID)
	ban := &models.Ban{Until: time.Now().Add(time.Hour), Reason: "Bought likes."}
	_, err = moderation.New(store).BanUser(t.Context(), mod.ID, user.ID, ban)
	require.NoError(t, err)
	require.NoError(t, moderation.New(store).UnbanUser(t.Context(), mod.ID, user.ID, "It was somebody else."))
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM like_voids WHERE liked_until BETWEEN ? AND ?",
		time.Now().UTC().Add(-time.Minute), time.Now().UTC()))
}
