package db_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/people"
	"likewise/models/reader"
)

// hiddenRows is how long the lists of openHidden are, of which three rows are visible: the latest, one in the middle,
// and the earliest.
const (
	hiddenRows = 20_000
	maxPassed  = 5_000 // entries that a page looks at, and for each of them some rows are looked up
)

// ofUsers is added to the ids of rows of users, of whom as many are hidden: they are deleted, and all but cy
// block them.
const ofUsers = 100_000

// openHidden opens a store with posts by ada, most of them deleted, each with one comment by her. Bob has bookmarked
// and likes all of them. Ada has a notification of each. Users, most of whom are hidden, follow ada, are followed by
// her, are blocked by cy and like post ofUsers+1, which is bob's.
func openHidden(t *testing.T) (store *db.DB, ada, bob, cy, dan models.Author) {
	t.Helper()
	store = openWith(t, db.Options{MaxConns: 1})
	ada, bob, cy, dan = newUser(
		t,
		store,
		"ada",
	), newUser(
		t,
		store,
		"bob",
	), newUser(
		t,
		store,
		"cy",
	), newUser(
		t,
		store,
		"dan",
	)
	run := func(query string, args ...any) {
		t.Helper()
		_, err := patient(store).ExecContext(t.Context(), query, args...)
		require.NoError(t, err, query)
	}
	// MariaDB fills an empty table faster without these checks: it sorts the entries of each index first.
	run("SET unique_checks=0, foreign_key_checks=0")
	defer run("SET unique_checks=1, foreign_key_checks=1")
	run(`
INSERT INTO posts (id, user_id, title, content, created_at, status)
WITH digits AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
numbers AS (
	SELECT 1+a.n+10*b.n+100*c.n+1000*d.n+10000*e.n AS n
	FROM digits a, digits b, digits c, digits d, digits e
	WHERE e.n<2)
SELECT n, ?, 'T', 'C', FROM_UNIXTIME(1600000000+n DIV 3), IF(n IN (1,10000,?), 1, 2)
FROM numbers
ORDER BY n`, ada.ID, hiddenRows)
	run(`
			INSERT INTO comments (id, post_id, user_id, content, created_at)
			SELECT p.id AS id, p.id AS post_id, p.user_id, 'C', p.created_at
			FROM posts p
			ORDER BY p.id`)
	run("INSERT INTO bookmarks (id, user_id, post_id) SELECT id, ?, id FROM posts ORDER BY id", bob.ID)
	run("INSERT INTO post_likes (id, user_id, post_id) SELECT id, ?, id FROM posts ORDER BY id", bob.ID)
	run("INSERT INTO comment_likes (id, user_id, comment_id) SELECT id, ?, id FROM posts ORDER BY id", bob.ID)
	run(`
			INSERT INTO notifications (id, user_id, kind, actor_id, post_id)
			SELECT id, ?, ?, ?, id
			FROM posts
			ORDER BY id`, ada.ID, models.NotifyMention, dan.ID)
	run(`
INSERT INTO users (id, username, email, password_hash, created_at, deleted_at)
SELECT id+?, CONCAT('user',id), CONCAT('user',id,'@example.org'), '', created_at, IF(status=1, NULL, created_at)
FROM posts
ORDER BY id`, ofUsers)
	run(`
			INSERT INTO follows (id, user_id, followed_id)
			SELECT u.id AS id, u.id AS user_id, ?
			FROM users u
			WHERE u.id>?
			ORDER BY u.id`, ada.ID, ofUsers)
	run(
		"INSERT INTO follows (id, user_id, followed_id) SELECT id+?, ?, id FROM users WHERE id>? ORDER BY id",
		ofUsers,
		ada.ID,
		ofUsers,
	)
	run(`
			INSERT INTO blocks (user_id, blocked_id, created_at)
			SELECT ?, id, created_at
			FROM users
			WHERE id>?
			ORDER BY id`, cy.ID, ofUsers)
	for _, viewer := range []models.Author{ada, bob, dan} {
		run(`
				INSERT INTO blocks (user_id, blocked_id)
				SELECT ?, id
				FROM users
				WHERE id>? AND deleted_at IS NOT NULL
				ORDER BY id`, viewer.ID, ofUsers)
	}
	run(`
			INSERT INTO post_likes (id, user_id, post_id)
			SELECT u.id AS id, u.id AS user_id, ?
			FROM users u
			WHERE u.id>?
			ORDER BY u.id`, ofUsers+1, ofUsers)
	// Other users write, too. Otherwise the servers would begin with the few posts.
	run(`
			INSERT INTO posts (id, user_id, title, content, created_at, status)
			SELECT id+100000, ?, title, content, created_at, 1
			FROM posts
			ORDER BY id`, bob.ID)
	run("ANALYZE TABLE users, posts, comments, bookmarks, post_likes, comment_likes, notifications, follows, blocks")
	return store, ada, bob, cy, dan
}

// A page passes over a bounded number of hidden rows, and going from page to page meets every visible row once.
func TestLists_boundSkippedRows(t *testing.T) {
	t.Parallel()
	store, ada, bob, cy, dan := openHidden(t)
	ctx := t.Context()
	before := func(after *models.ListKey) int64 {
		if after == nil {
			return 0
		}
		return after.ID
	}
	type list func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error)
	for name, list := range map[string]list{
		"bookmarks": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := reader.New(store).BookmarkedPosts(ctx, bob.ID, before(after), limit)
			key := func(k *models.KeptPost) models.ListKey { return models.ListKey{ID: k.RowID} }
			return keys(rows, key), rest, err
		},
		"liked posts": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := reader.New(store).LikedPosts(ctx, ada.ID, bob.ID, before(after), limit)
			return keys(rows, (*models.Liked[models.Post]).Key), rest, err
		},
		"liked comments": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := reader.New(store).LikedComments(ctx, ada.ID, bob.ID, before(after), limit)
			return keys(rows, (*models.Liked[models.Comment]).Key), rest, err
		},
		"comments of a user": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := reader.New(store).CommentsByUser(ctx, bob.ID, ada.ID, after, limit)
			key := func(c *models.UserComment) models.ListKey { return c.Comment.Key(models.CommentsNew) }
			return keys(rows, key), rest, err
		},
		"followers": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := people.New(store).Followers(ctx, 0, ada.ID, after, limit)
			return keys(rows, (*models.ListedUser).Key), rest, err
		},
		"following": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := people.New(store).Following(ctx, 0, ada.ID, after, limit)
			return keys(rows, (*models.ListedUser).Key), rest, err
		},
		"blocks": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := people.New(store).BlockedUsers(ctx, cy.ID, after, limit)
			return keys(rows, (*models.ListedUser).Key), rest, err
		},
		"likers": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			target := models.Target{Kind: models.KindPost, ID: ofUsers + 1}
			rows, rest, err := likes.New(store).Likers(ctx, dan.ID, target, before(after), limit)
			return keys(rows, func(l *models.Liker) models.ListKey { return models.ListKey{ID: l.RowID} }), rest, err
		},
		"notifications": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := people.New(store).Notifications(ctx, ada.ID, false, before(after), limit)
			return keys(rows, (*models.Notification).Key), rest, err
		},
		"unread": func(after *models.ListKey, limit int) ([]models.ListKey, *models.ListKey, error) {
			rows, rest, err := people.New(store).Notifications(ctx, ada.ID, true, before(after), limit)
			return keys(rows, (*models.Notification).Key), rest, err
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
				// An entry is read twice, then its user or post, and a block; then the page.
				most := 5*maxPassed + 500
				if name == "liked comments" {
					most = 8 * maxPassed // with the post of each, and its author
				}
				assert.Less(t, n, most, "%s: rows and entries read", name)
				for _, key := range page {
					seen = append(seen, key.ID%ofUsers)
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
	n := entriesRead(t, store, func() {
		unread, err := people.New(store).UnreadCount(ctx, ada.ID)
		require.NoError(t, err)
		assert.EqualValues(t, 1, unread, "of the latest 5,000")
	})
	assert.Less(t, n, 5*maxPassed+500, "unread count: rows and entries read")
}

func keys[T any](rows []T, key func(*T) models.ListKey) []models.ListKey {
	list := make([]models.ListKey, len(rows))
	for i := range rows {
		list[i] = key(&rows[i])
	}
	return list
}

// A page of comments passes over a bounded number of leaves that the viewer does not see, whatever the order, and so
// does a thread on each of its levels. Going from page to page meets every visible comment once.
func TestListComments_boundSkippedRows(t *testing.T) {
	t.Parallel()
	store := openWith(t, db.Options{MaxConns: 1})
	ada, bob, cy := newUser(t, store, "ada"), newUser(t, store, "bob"), newUser(t, store, "cy")
	require.NoError(t, people.New(store).Block(t.Context(), bob.ID, cy.ID))
	post := newPost(t, store, ada)
	// On each of two levels. The first comment, the one in the middle and the last one are visible.
	const comments, middle = 9_999, 5_000
	exec(t, store, `
INSERT INTO comments (id, post_id, user_id, content, likes_count, created_at, status)
WITH digits AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
numbers AS (SELECT a.n+10*b.n+100*c.n+1000*d.n AS n FROM digits a, digits b, digits c, digits d)
SELECT n, ?, IF(n IN (1,?,?) OR n%2=0, ?, ?), 'C', n DIV 500,
	FROM_UNIXTIME(1600000000+n DIV 3), IF(n IN (1,?,?) OR n%2=1, 1, 2)
FROM numbers
WHERE n>0
ORDER BY n`, post.ID, middle, comments, ada.ID, cy.ID, middle, comments)
	exec(t, store, `
INSERT INTO comments (id, post_id, parent_id, depth, user_id, content, likes_count, created_at, status)
SELECT c.id+?, c.post_id, ?, 2, c.user_id, c.content, c.likes_count, c.created_at, c.status
FROM comments c
ORDER BY c.id`, ofUsers, middle)
	exec(t, store, "ANALYZE TABLE comments, posts, blocks")

	for _, sort := range []models.CommentSort{models.CommentsOld, models.CommentsNew, models.CommentsTop} {
		want := []int64{comments, middle, 1}
		if sort == models.CommentsOld {
			want = []int64{1, middle, comments}
		}
		for _, limit := range []int{1, 20} {
			for name, q := range map[string]content.CommentQuery{
				"top level": {PostID: post.ID},
				"replies":   {ParentID: middle},
			} {
				q.ViewerID, q.Sort, q.Limit = bob.ID, sort, limit
				var seen []int64
				short := false
				for pages := 1; ; pages++ {
					require.Less(t, pages, 20, "%s by %s does not end", name, sort)
					var list []models.Comment
					n := entriesRead(t, store, func() {
						var err error
						list, q.After, err = content.New(store).ListComments(t.Context(), q)
						require.NoError(t, err)
					})
					assert.Less(t, n, 5*maxPassed, "%s by %s: rows and entries read", name, sort)
					for _, c := range list {
						seen = append(seen, c.ID%ofUsers)
					}
					if q.After == nil {
						break
					}
					short = short || len(list) < limit
				}
				assert.True(t, short, "%s by %s has a short page that is not the last", name, sort)
				assert.Equal(t, want, seen, "%s by %s", name, sort)
			}
		}

		q := models.ThreadQuery{ViewerID: bob.ID, PostID: post.ID, Sort: sort, Depth: 10, Limit: 100}
		var seen []int64
		for pages := 1; ; pages++ {
			require.Less(t, pages, 20, "a thread by %s does not end", sort)
			var top []models.Comment
			n := entriesRead(t, store, func() {
				var err error
				top, q.After, err = content.New(store).Thread(t.Context(), q)
				require.NoError(t, err)
			})
			assert.Less(t, n, 8*maxPassed, "a thread by %s: rows and entries read", sort)
			for _, c := range top {
				seen = append(seen, c.ID)
				for _, r := range c.Replies {
					assert.Equal(t, want[0]+ofUsers, r.ID, "the first reply by %s", sort)
				}
				if c.ID == middle {
					assert.NotNil(t, c.RepliesRest(sort), "the replies by %s go on", sort)
				}
			}
			if q.After == nil {
				break
			}
		}
		assert.Equal(t, want, seen, "a thread by %s", sort)
	}
}

// A page that passes over hidden rows is read in segments. All of them together have the content of one page.
func TestLists_readOnePageOfContentInAllSegments(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, bob := newUser(t, store, "ada"), newUser(t, store, "bob")
	text := strings.Repeat("x", models.MaxContent)
	const bookmarks, visible = 600, 15
	for i := range bookmarks {
		post, err := content.New(store).CreatePost(t.Context(), ada, models.PostText{Title: "A post",
			Content: "with text"})
		require.NoError(t, err)
		require.NoError(t, reader.New(store).SetBookmark(t.Context(), bob.ID, post.ID, true))
		status := models.StatusDeleted
		if i%100 < visible {
			status = models.StatusNormal
		}
		_, err = store.Pool().
			ExecContext(t.Context(), "UPDATE posts SET content=?, status=? WHERE id=?", text, status, post.ID)
		require.NoError(t, err)
	}
	held := 0
	ctx := db.WithBudget(t.Context(), func(bytes int) error { held += bytes; return nil })
	page, _, err := reader.New(store).BookmarkedPosts(ctx, bob.ID, 0, 100)
	require.NoError(t, err)
	assert.Greater(t, len(page), visible, "rows of the first segment alone")
	assert.LessOrEqual(t, held, db.PageBytes+models.MaxContent)
}
