package models_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

// hiddenRows is how long the lists of openHidden are, of which three rows are visible: the latest, one in the middle, and
// the earliest.
const (
	hiddenRows = 20_000
	maxPassed  = 5_000 // entries that a page looks at, and for each of them some rows are looked up
)

// openHidden opens a store with posts by ada, most of them deleted, each with one comment by her. Bob has bookmarked and
// likes all of them.
func openHidden(t *testing.T) (store *models.Store, ada, bob models.Author) {
	t.Helper()
	store, err := models.Open(t.Context(), testkit.Database(t), models.Options{MaxConns: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	ada, bob = newUser(t, store, "ada"), newUser(t, store, "bob")
	run := func(query string, args ...any) {
		t.Helper()
		_, err := store.Pool().ExecContext(t.Context(), query, args...)
		require.NoError(t, err, query)
	}
	run(`
INSERT INTO posts (id, user_id, title, content, created_at, status)
WITH digits AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
numbers AS (SELECT 1+a.n+10*b.n+100*c.n+1000*d.n+10000*e.n AS n FROM digits a, digits b, digits c, digits d, digits e WHERE e.n<2)
SELECT n, ?, 'T', 'C', FROM_UNIXTIME(1600000000+n DIV 3), IF(n IN (1,10000,?), 1, 2)
FROM numbers
ORDER BY n`, ada.ID, hiddenRows)
	run("INSERT INTO comments (id, post_id, user_id, content, created_at) SELECT p.id AS id, p.id AS post_id, p.user_id, 'C', p.created_at FROM posts p ORDER BY p.id")
	run("INSERT INTO bookmarks (id, user_id, post_id) SELECT id, ?, id FROM posts ORDER BY id", bob.ID)
	run("INSERT INTO post_likes (id, user_id, post_id) SELECT id, ?, id FROM posts ORDER BY id", bob.ID)
	run("INSERT INTO comment_likes (id, user_id, comment_id) SELECT id, ?, id FROM posts ORDER BY id", bob.ID)
	// Others write, too, or the servers would begin with the few posts that are there.
	run("INSERT INTO posts (id, user_id, title, content, created_at, status) SELECT id+100000, ?, title, content, created_at, 1 FROM posts ORDER BY id", bob.ID)
	run("ANALYZE TABLE posts, comments, bookmarks, post_likes, comment_likes")
	return store, ada, bob
}

// A page passes over a bounded number of hidden rows, and going from page to page meets every visible row once.
func TestLists_boundWhatIsPassedOver(t *testing.T) {
	store, ada, bob := openHidden(t)
	ctx := t.Context()
	before := func(after *models.ListKey) int64 {
		if after == nil {
			return 0
		}
		return after.ID
	}
	for name, list := range map[string]func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error){
		"bookmarks": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := store.BookmarkedPosts(ctx, bob.ID, before(after), limit)
			return keys(rows, func(b *models.BookmarkedPost) models.ListKey { return models.ListKey{ID: b.RowID} }), rest, err
		},
		"liked posts": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := store.LikedPosts(ctx, ada.ID, bob.ID, before(after), limit)
			return keys(rows, (*models.Liked[models.Post]).Key), rest, err
		},
		"liked comments": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := store.LikedComments(ctx, ada.ID, bob.ID, before(after), limit)
			return keys(rows, (*models.Liked[models.Comment]).Key), rest, err
		},
		"comments of a user": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := store.CommentsByUser(ctx, bob.ID, ada.ID, after, limit)
			return keys(rows, func(c *models.UserComment) models.ListKey { return c.Comment.Key(models.CommentsNew) }), rest, err
		},
	} {
		_, _, err := list(nil, 1) // opens its tables, and MySQL counts what it reads of its own dictionary for that
		require.NoError(t, err, name)
		for _, limit := range []int{1, 2, 21} {
			var seen []int64
			short := false
			var after *models.ListKey
			for pages := 1; ; pages++ {
				require.Less(t, pages, 20, "%s does not end", name)
				var page []models.ListKey
				var rest *models.ListKey
				n := entriesRead(t, store, func() {
					var err error
					page, rest, err = list(after, limit)
					require.NoError(t, err, name)
				})
				most := 4 * maxPassed
				if name == "liked comments" {
					most *= 2 // with the post of each, and whether the author is blocked
				}
				assert.Less(t, n, most, "%s: rows and entries read", name)
				for _, key := range page {
					seen = append(seen, key.ID)
				}
				short = short || len(page) < limit && rest != nil
				switch {
				case rest != nil:
					after = rest
				case len(page) == limit:
					after = &page[limit-1]
				default:
					after = nil
				}
				if after == nil {
					break
				}
			}
			assert.True(t, short, "%s has a short page that is not the last", name)
			assert.Equal(t, []int64{hiddenRows, 10_000, 1}, seen, name)
		}
	}
}

func keys[T any](rows []T, key func(*T) models.ListKey) []models.ListKey {
	list := make([]models.ListKey, len(rows))
	for i := range rows {
		list[i] = key(&rows[i])
	}
	return list
}
