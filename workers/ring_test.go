package workers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/moderation"
)

// likedWorld is a database of likes at given times. It does not need a pipeline.
type likedWorld struct {
	t     *testing.T
	store *db.DB
	now   time.Time
}

func newLikedWorld(t *testing.T) *likedWorld {
	t.Helper()
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return &likedWorld{t, store, time.Now().UTC().Truncate(time.Second)}
}

func (w *likedWorld) exec(query string, args ...any) int64 {
	w.t.Helper()
	result, err := w.store.Pool().ExecContext(context.Background(), query, args...)
	require.NoError(w.t, err)
	id, err := result.LastInsertId()
	require.NoError(w.t, err)
	return id
}

func (w *likedWorld) user() int64 {
	w.t.Helper()
	name := fmt.Sprint("u", rand.Uint64())
	return w.exec("INSERT INTO users (username, email, password_hash) VALUES (?,?,'')", name, name+"@x.invalid")
}

func (w *likedWorld) users(n int) []int64 {
	w.t.Helper()
	list := make([]int64, n)
	for i := range list {
		list[i] = w.user()
	}
	return list
}

func (w *likedWorld) post(author int64) int64 {
	w.t.Helper()
	return w.exec("INSERT INTO posts (user_id, title, content) VALUES (?,'A post','with text')", author)
}

func (w *likedWorld) posts(author int64, n int) []int64 {
	w.t.Helper()
	list := make([]int64, n)
	for i := range list {
		list[i] = w.post(author)
	}
	return list
}

// like adds a like of the given age.
func (w *likedWorld) like(user, post int64, ago time.Duration) {
	w.t.Helper()
	w.exec("INSERT IGNORE INTO post_likes (post_id, user_id, created_at) VALUES (?,?,?)", post, user, w.now.Add(-ago))
}

func (w *likedWorld) find() (found int) {
	w.t.Helper()
	_, found, err := NewRingFinder(moderation.New(w.store), func() time.Time { return w.now }).Find(w.t.Context())
	require.NoError(w.t, err)
	return found
}

func (w *likedWorld) open() []models.LikeRing {
	w.t.Helper()
	rings, err := moderation.New(w.store).LikeRings(w.t.Context(), models.RingOpen, 0, 100)
	require.NoError(w.t, err)
	return rings
}

func memberIDs(r models.LikeRing) []int64 {
	var ids []int64
	for _, m := range r.Members {
		ids = append(ids, m.UserID)
	}
	slices.Sort(ids)
	return ids
}

// traffic adds likes of readers. Each likes some posts at random times of the last day.
func (w *likedWorld) traffic(readers, posts []int64) {
	w.t.Helper()
	for _, reader := range readers {
		for range 20 {
			w.like(reader, posts[rand.IntN(len(posts))], time.Duration(rand.Int64N(int64(23*time.Hour))))
		}
	}
}

func TestRings_findsAPlantedRingAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newLikedWorld(t)
	authors, readers, ring := w.users(5), w.users(40), w.users(4)
	var all []int64
	posts := map[int64][]int64{}
	for _, author := range authors {
		posts[author] = w.posts(author, 12)
		all = append(all, posts[author]...)
	}
	w.traffic(readers, all)
	w.traffic(ring[:2], posts[authors[4]]) // members of a ring also read
	for i, post := range posts[authors[0]] {
		for j, member := range ring {
			if (i+j)%6 != 0 { // some members miss some posts
				w.like(member, post, time.Duration(i+1)*50*time.Minute)
			}
		}
	}
	viral := w.post(authors[1])
	for range 300 { // unrelated accounts, in one second
		w.like(w.user(), viral, time.Hour)
	}
	for _, reader := range readers { // and regular readers with them
		w.like(reader, viral, time.Hour)
	}

	require.Equal(t, 1, w.find())
	rings := w.open()
	require.Len(t, rings, 1)
	assert.Equal(t, authors[0], rings[0].AuthorID)
	assert.Equal(t, slices.Sorted(slices.Values(ring)), memberIDs(rings[0]))
	assert.Equal(t, 12, rings[0].Occasions)
	assert.Equal(t, 40, rings[0].Coincidences)
	assert.Equal(t, 40, w.count("SELECT SUM(coincidences) FROM like_ring_members"))
	assert.Len(t, rings[0].Evidence, 12)
	for _, e := range rings[0].Evidence {
		assert.GreaterOrEqual(t, len(e.Likes), 2)
		for _, l := range e.Likes {
			assert.Equal(
				t,
				1,
				w.count(
					"SELECT COUNT(*) FROM post_likes WHERE user_id=? AND post_id=? AND created_at=?",
					l.UserID,
					l.ID,
					l.At,
				),
			)
		}
	}
	assert.True(t, rings[0].FirstAt.Before(rings[0].LastAt))

	// A second run finds the same rings, and does not report them again.
	assert.Zero(t, w.find())
	assert.Len(t, w.open(), 1)
}

func (w *likedWorld) count(query string, args ...any) int {
	w.t.Helper()
	var n int
	require.NoError(w.t, w.store.Pool().QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

// together has accounts like each post in the same second. The last post is liked the given time ago, and the earlier
// ones at the given distance.
func (w *likedWorld) together(users, posts []int64, apart, ago time.Duration) {
	w.t.Helper()
	for i, post := range posts {
		at := ago + time.Duration(len(posts)-1-i)*apart
		for _, user := range users {
			w.like(user, post, at)
		}
	}
}

func TestRings_ofOneBurstOrOfAFewADay(t *testing.T) {
	t.Parallel()
	w := newLikedWorld(t)
	authors := w.users(3)
	burst, slow, pals := w.users(3), w.users(2), w.users(2)
	w.together(burst, w.posts(authors[0], 6), 0, time.Hour)                // within one second
	w.together(slow, w.posts(authors[1], 6), 11*time.Hour, 30*time.Minute) // over days, of which a run reads one
	w.together(pals, w.posts(authors[2], 4), time.Hour, time.Hour)         // too rarely to be a ring
	// The first run reads all days. A later run must also find the slow ring by the last day alone.
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		last, err := moderation.New(w.store).LastLikeID(t.Context(), kind)
		require.NoError(t, err)
		require.NoError(t, moderation.New(w.store).SetRingCheckpoint(t.Context(), kind, last))
	}
	assert.Equal(t, 2, w.find())
	found := map[int64][]int64{}
	for _, r := range w.open() {
		found[r.AuthorID] = memberIDs(r)
	}
	assert.Equal(
		t,
		map[int64][]int64{
			authors[0]: slices.Sorted(slices.Values(burst)),
			authors[1]: slices.Sorted(slices.Values(slow)),
		},
		found,
	)
}

// TestRings_ignoresFans has two accounts that like nearly all posts of an author, mostly at different times.
func TestRings_ignoresFans(t *testing.T) {
	t.Parallel()
	w := newLikedWorld(t)
	author, fans := w.user(), w.users(2)
	posts := w.posts(author, 20)
	w.together(fans, posts[:6], time.Hour, time.Hour)
	for i, post := range posts[6:] {
		w.like(fans[i%2], post, time.Duration(i)*time.Hour+20*time.Minute)
		w.like(fans[1-i%2], post, time.Duration(i)*time.Hour+40*time.Minute)
	}
	assert.Zero(t, w.find(), "6 of 20 is not half")
	assert.Empty(t, w.open())
}

func TestRings_growAndAreDecided(t *testing.T) {
	t.Parallel()
	w := newLikedWorld(t)
	author, ring, admin := w.user(), w.users(4), w.user()
	w.exec("UPDATE users SET role=2 WHERE id=?", admin)
	posts := w.posts(author, 24)
	w.together(ring[:3], posts[:6], time.Minute, 3*time.Hour)
	require.Equal(t, 1, w.find())
	w.together(ring, posts[6:12], time.Minute, 2*time.Hour) // with a fourth member
	assert.Zero(t, w.find(), "it is the same ring")
	rings := w.open()
	require.Len(t, rings, 1)
	assert.Equal(t, slices.Sorted(slices.Values(ring)), memberIDs(rings[0]))
	assert.Equal(t, 12, rings[0].Occasions)

	ctx := t.Context()
	err := moderation.New(w.store).DismissRing(ctx, admin, rings[0].ID, " ")
	require.Equal(t, models.CodeInvalid, models.ErrorCode(err))
	require.NoError(t, moderation.New(w.store).DismissRing(ctx, admin, rings[0].ID, "A family."))
	assert.Equal(t, models.CodeConflict, models.ErrorCode(moderation.New(w.store).DismissRing(ctx, admin, rings[0].ID,
		"A family.")))
	assert.Zero(t, w.find(), "what was judged is not reported again")
	assert.Empty(t, w.open())
	w.now = w.now.Add(3 * time.Hour) // the ring continues
	w.together(ring[:2], posts[12:18], time.Minute, time.Hour)
	assert.Equal(t, 1, w.find())
	rings = w.open()
	require.Len(t, rings, 1)
	assert.Equal(t, 6, rings[0].Occasions)

	voids, err := moderation.New(w.store).VoidRing(ctx, admin, rings[0].ID, "Bought.")
	require.NoError(t, err)
	require.Len(t, voids, 2)
	for _, v := range voids {
		assert.Equal(t, rings[0].FirstAt, *v.LikedSince)
		assert.NotNil(t, v.LikedUntil, "who is not banned goes on")
	}
	_, err = moderation.New(w.store).VoidRing(ctx, admin, rings[0].ID, "Bought.")
	assert.Equal(t, models.CodeConflict, models.ErrorCode(err))
	assert.Equal(t, 2, w.count("SELECT COUNT(*) FROM like_voids WHERE done_at IS NULL"))
	assert.Equal(t, 2, w.count("SELECT COUNT(*) FROM moderation_log WHERE target_type='like_ring'"))
	// Only an admin may decide on a ring that has a moderator.
	moderator := w.user()
	w.exec("UPDATE users SET role=1 WHERE id IN (?,?)", moderator, ring[0])
	w.together(ring[:2], posts[18:24], time.Minute, -time.Hour)
	w.now = w.now.Add(3 * time.Hour)
	require.Equal(t, 1, w.find())
	_, err = moderation.New(w.store).VoidRing(ctx, moderator, w.open()[0].ID, "Bought.")
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err))
	assert.Equal(t, 2, w.count("SELECT COUNT(*) FROM like_voids"))
}

// TestRings_areFoundInACrowd has a ring that likes at the same time as many accounts that often like the author.
func TestRings_areFoundInACrowd(t *testing.T) {
	t.Parallel()
	var likes []models.AuthoredLike
	at := time.Unix(1_800_000_000, 0)
	const crowdSize, posts = 200, 30
	for post := range int64(posts) {
		when := at.Add(time.Duration(post) * time.Hour)
		for user := range int64(crowdSize) {
			if rand.IntN(20) == 0 {
				likes = append(
					likes,
					models.AuthoredLike{UserID: 1000 + user, AuthorID: 1, TargetID: post, LikedAt: when},
				)
			}
		}
		for user := range int64(50) {
			likes = append(likes, models.AuthoredLike{UserID: 10 + user, AuthorID: 1, TargetID: post, LikedAt: when})
		}
	}
	pairs := suspectPairs(likes)[1]
	among := 0
	for _, p := range pairs {
		if p[0] < 1000 && p[1] < 1000 {
			among++
		}
	}
	assert.GreaterOrEqual(t, among, 28, "at least eight of them are compared with each other")
	began := time.Now()
	for i := range likes {
		likes[i].UserID = int64(i) // one like of each account, so that none is compared
	}
	assert.Empty(t, suspectPairs(likes))
	assert.Less(t, time.Since(began), time.Second)
}
