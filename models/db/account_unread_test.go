package db_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/reader"
)

// fillMarked writes n posts by ada, each with a comment by her that came a second after that on the post before, and
// marks of bob on all of them. He has read the comments but those on the posts for which unread holds, an expression of
// p.id.
func fillMarked(t testing.TB, store *db.DB, n int, unread string) (ada, bob models.Author) {
	t.Helper()
	ada, bob = newUser(t, store, "ada"), newUser(t, store, "bob")
	exec(t, store, `
INSERT INTO posts (id, user_id, title, content, created_at, active_at)
WITH digits AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
numbers AS (
	SELECT 1+a.n+10*b.n+100*c.n+1000*d.n+10000*e.n AS n
	FROM digits a, digits b, digits c, digits d, digits e)
SELECT n, ?, 'T', 'C', FROM_UNIXTIME(1600000000), FROM_UNIXTIME(1600000000+n)
FROM numbers
WHERE n<=?
ORDER BY n`, ada.ID, n)
	exec(t, store, `
		INSERT INTO comments (id, post_id, user_id, content, created_at)
		SELECT p.id, p.id AS post_id, ?, 'C', p.active_at
		FROM posts p
		ORDER BY p.id`, ada.ID)
	exec(t, store, `
		INSERT INTO read_marks (user_id, post_id, comment_id, read_at)
		SELECT ?, p.id, p.id-(`+unread+`), p.active_at
		FROM posts p
		ORDER BY p.id`, bob.ID)
	exec(t, store, "ANALYZE TABLE users, posts, comments, read_marks, subscriptions")
	return ada, bob
}

// A page of unread posts reads a bounded number of rows, whether the marks are few enough to be sorted or not. Going
// from page to page meets every unread post once, the latest comment first.
func TestUnreadPosts_boundTheWork(t *testing.T) {
	t.Parallel()
	const perMark = 12 // rows and entries for a mark that is joined and sorted: 8 of MariaDB, 11 of MySQL
	for name, c := range map[string]struct {
		posts  int
		unread string // which of them
		every  int    // the same
		limit  int    // rows and entries read for a page of 20; the marks are counted, up to maxPassed
		short  bool   // pages may be short
	}{
		"10,000 hot posts":              {10_000, "1", 1, maxPassed + 1_000, false},
		"10,000 posts, almost all read": {10_000, "p.id%4000=0", 4000, perMark * maxPassed, true},
		"5,000 posts, almost all read":  {5_000, "p.id%1000=0", 1000, perMark * maxPassed, false},
		"5,000 hot posts":               {5_000, "1", 1, perMark * maxPassed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := openWith(t, db.Options{MaxConns: 1})
			_, bob := fillMarked(t, store, c.posts, c.unread)
			_, _, _, err := reader.New(store).UnreadPosts(t.Context(), bob.ID, nil, 1) // opens its tables
			require.NoError(t, err)
			var after *models.ListKey
			next := int64(c.posts / c.every * c.every)
			for pages := range 5 {
				var list []models.Post
				var rest *models.ListKey
				started := time.Now()
				n := entriesRead(t, store, func() {
					list, rest, _, err = reader.New(store).UnreadPosts(t.Context(), bob.ID, after, 20)
					require.NoError(t, err)
				})
				t.Logf("page %d: %d posts, %d rows and entries read, %v", pages, len(list), n, time.Since(started))
				assert.Less(t, n, c.limit, "rows and entries read for page %d", pages)
				for _, p := range list {
					require.Equal(t, next, p.ID)
					next -= int64(c.every)
				}
				if !c.short && next > 0 {
					require.Len(t, list, 20)
				}
				if after = rest; after == nil && len(list) == 20 {
					key := list[19].Key(models.PostsActive)
					after = &key
				}
				if after == nil {
					require.Zero(t, next, "the list ends early")
					return
				}
			}
			require.Equal(t, 1, c.every, "the list does not end")
		})
	}
}

// With more marks than are sorted, the list walks the index of the order, and sorts nothing but its page.
func TestUnreadPosts_walkTheIndexOfTheOrder(t *testing.T) {
	t.Parallel()
	store, log := openWatched(t, testkit.Database(t))
	_, bob := fillMarked(t, store, 10_000, "1")
	middle := models.ListKey{Value: 1600000000 + 5_000, ID: 5_000}
	for _, after := range []*models.ListKey{nil, &middle} {
		log.selects()
		_, _, _, err := reader.New(store).UnreadPosts(t.Context(), bob.ID, after, 21)
		require.NoError(t, err)
		queries := log.selects()
		require.Len(t, queries, 3, "the number of marks, the end of the segment, its posts")
		var keys []string
		for _, query := range queries[1:] {
			for _, step := range explain(t, store, query) {
				if !slices.Contains([]string{"p", "m", "q", "n", "c"}, step.table) { // the page, or empty
					continue
				}
				assert.NotEqual(t, "ALL", step.access, "%v\n%s", step, query)
				assert.NotContains(t, step.extra, "filesort", "%v\n%s", step, query)
				keys = append(keys, step.table+" by "+step.key)
			}
		}
		for _, key := range []string{"p by idx_status_active", "m by PRIMARY", "q by idx_user_post",
			"n by PRIMARY", "c by idx_post_id"} {
			assert.Contains(t, keys, key)
		}
	}
}

// A page counts the comments of a bounded number of posts.
func TestUnreadPosts_boundTheCounting(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	_, bob := fillMarked(t, store, 1_200, "1")
	exec(t, store, "UPDATE comments SET user_id=? WHERE id<>100", bob.ID) // their reader wrote them
	var after *models.ListKey
	for range 2 {
		list, rest, examined, err := reader.New(store).UnreadPosts(t.Context(), bob.ID, after, 20)
		require.NoError(t, err)
		assert.Empty(t, list)
		assert.Equal(t, 500, examined)
		require.NotNil(t, rest)
		after = rest
	}
	list, rest, examined, err := reader.New(store).UnreadPosts(t.Context(), bob.ID, after, 20)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.EqualValues(t, 100, list[0].ID)
	assert.Equal(t, 199, examined)
	assert.Nil(t, rest)
}
