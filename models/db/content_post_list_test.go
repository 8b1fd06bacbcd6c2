package db_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/people"
)

// oldPosts is the size of a site of old posts, all by one author, with one tag and with the same ten words.
const oldPosts = 3_000

func openOld(t *testing.T) (store *db.DB, author models.Author, words []string) {
	t.Helper()
	store = openWith(t, db.Options{MaxConns: 1})
	author = newUser(t, store, "ada")
	newUser(t, store, "bob")
	run := func(query string, args ...any) {
		t.Helper()
		_, err := patient(store).ExecContext(t.Context(), query, args...)
		require.NoError(t, err, query)
	}
	run("INSERT INTO tags (id, name, posts_count) VALUES (1,'old',?)", oldPosts)
	for from := 0; from < oldPosts; from += 1000 {
		rows := make([]string, 1000)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d)", from+i+1)
		}
		run("CREATE TEMPORARY TABLE ids (n INT PRIMARY KEY)")
		run("INSERT INTO ids VALUES " + strings.Join(rows, ","))
		run(`
INSERT INTO posts (id, user_id, title, content, likes_count, created_at, active_at, hot_score, terms_version)
SELECT n, ?, 'T', 'C', n%7, FROM_UNIXTIME(1600000000+n), FROM_UNIXTIME(1600000000+n*n%9973), 1600000000+n*n%9973, 1
FROM ids`, author.ID)
		run(`
INSERT INTO post_tags (post_id, tag_id, position, created_at, user_id, likes_count, hot_score, active_at)
SELECT p.id, 1, 0, p.created_at, p.user_id, p.likes_count, p.hot_score, p.active_at
FROM ids JOIN posts p ON p.id=ids.n`)
		for i := range 10 {
			run("INSERT INTO post_terms (post_id, term, weight) SELECT n, ?, 1+n%300 FROM ids",
				fmt.Sprintf("word%d", i))
		}
		run("DROP TEMPORARY TABLE ids")
	}
	for i := range 10 {
		words = append(words, fmt.Sprintf("word%d", i))
	}
	return store, author, words
}

// entriesRead counts the entries of indexes and the rows that a call reads.
func entriesRead(t *testing.T, store *db.DB, call func()) (n int) {
	t.Helper()
	_, err := store.Pool().ExecContext(t.Context(), "FLUSH STATUS")
	require.NoError(t, err)
	call()
	rows, err := store.Pool().QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var value int
		require.NoError(t, rows.Scan(&name, &value))
		if name != "Handler_read_rnd_next" { // temporary tables, this list among them
			n += value
		}
	}
	require.NoError(t, rows.Err())
	return n
}

// Every order of an author's and of a tag's posts is read from an index, on the first page and on others.
func TestListPosts_readNoMoreThanThePage(t *testing.T) {
	t.Parallel()
	store, author, _ := openOld(t)
	for _, sort := range []models.PostSort{models.PostsNew, models.PostsHot, models.PostsTop, models.PostsActive} {
		queries := map[string]content.PostQuery{"all": {}, "author": {AuthorID: author.ID}, "tag": {Tag: "old"}}
		for name, q := range queries {
			q.Sort, q.Limit = sort, 21
			seen := map[int64]bool{}
			for range 3 {
				var page content.PostPage
				n := entriesRead(t, store, func() {
					var err error
					page, err = content.New(store).ListPosts(t.Context(), q)
					require.NoError(t, err)
				})
				require.Len(t, page.Posts, 21)
				assert.Less(t, n, 400, "%s of %s", sort, name)
				for _, p := range page.Posts {
					assert.False(t, seen[p.ID], "post %d comes twice", p.ID)
					seen[p.ID] = true
				}
				key := page.Key(&page.Posts[20])
				q.After = &key
			}
		}
	}
}

// A search for words of all posts stops at its bound, is not Complete, and has the same posts on all pages.
func TestListPosts_boundASearch(t *testing.T) {
	t.Parallel()
	store, _, words := openOld(t)
	for _, sort := range []models.PostSort{models.PostsRelevance, models.PostsNew, models.PostsTop} {
		q := content.PostQuery{Sort: sort, Terms: words, Limit: 101}
		var page content.PostPage
		n := entriesRead(t, store, func() {
			var err error
			page, err = content.New(store).ListPosts(t.Context(), q)
			require.NoError(t, err)
		})
		assert.Len(t, page.Posts, 101)
		assert.Less(t, n, 50_000, "%s", sort)
		assert.LessOrEqual(t, page.Examined, 45_000)
		assert.Equal(t, sort != models.PostsRelevance, page.Complete, "%s", sort)
	}
	q := content.PostQuery{Sort: models.PostsRelevance, Terms: words, Limit: 500}
	seen := map[int64]bool{}
	for {
		page, err := content.New(store).ListPosts(t.Context(), q)
		require.NoError(t, err)
		assert.False(t, page.Complete)
		for _, p := range page.Posts {
			assert.False(t, seen[p.ID], "post %d comes twice", p.ID)
			assert.Greater(t, p.ID, int64(oldPosts-2000), "only the newest are ranked")
			seen[p.ID] = true
		}
		if len(page.Posts) < q.Limit {
			break
		}
		key := page.Key(&page.Posts[len(page.Posts)-1])
		q.After = &key
	}
	assert.Len(t, seen, 2000)

	few, err := content.New(store).ListPosts(t.Context(), content.PostQuery{Sort: models.PostsRelevance,
		Terms: words[:1], Limit: 10})
	require.NoError(t, err)
	assert.True(t, few.Complete, "one word is looked up for every post")
}

// The number of blocked posts that a page passes over is bounded, also with a window and a tag. The first page is empty
// and has a Rest, and the next one finds the only post that the viewer sees.
func TestListPosts_boundWhatIsPassedOver(t *testing.T) {
	t.Parallel()
	store := openWith(t, db.Options{MaxConns: 1})
	const posts, maxExamined = 30_000, 20_000
	ada, bob, dan := newUser(t, store, "ada"), newUser(t, store, "bob"), newUser(t, store, "dan")
	require.NoError(t, people.New(store).Block(t.Context(), bob.ID, ada.ID))
	exec(t, store, `
INSERT INTO posts (id, user_id, title, content, likes_count, created_at, hot_score, active_at, terms_version)
WITH digits AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
numbers AS (
	SELECT 1+a.n+10*b.n+100*c.n+1000*d.n+10000*e.n AS n
	FROM digits a, digits b, digits c, digits d, digits e
	WHERE e.n<3
)
SELECT n, IF(n=1, ?, ?), 'T', 'C', n%7, FROM_UNIXTIME(1600000000+n), 1600000000+n, FROM_UNIXTIME(1600000000+n), 1
FROM numbers
ORDER BY n`, dan.ID, ada.ID)
	exec(t, store, "UPDATE posts SET likes_count=0 WHERE id=1") // the last in every order
	exec(t, store, "INSERT INTO tags (id, name, posts_count) VALUES (1,'old',?)", posts)
	exec(t, store, `
INSERT INTO post_tags (post_id, tag_id, position, created_at, user_id, likes_count, hot_score, active_at)
SELECT id, 1, 0, created_at, user_id, likes_count, hot_score, active_at
FROM posts
ORDER BY id`)
	exec(t, store, "ANALYZE TABLE posts, post_tags, blocks")
	since := time.Unix(1_500_000_000, 0)
	for name, q := range map[string]content.PostQuery{
		"all": {Sort: models.PostsHot}, "of a window": {Sort: models.PostsTop, Since: since},
		"of a tag":               {Sort: models.PostsActive, Tag: "old"},
		"of a window with a tag": {Sort: models.PostsTop, Tag: "old", Since: since},
	} {
		q.Limit, q.ViewerID = 21, bob.ID
		var first content.PostPage
		n := entriesRead(t, store, func() {
			var err error
			first, err = content.New(store).ListPosts(t.Context(), q)
			require.NoError(t, err, name)
		})
		assert.Empty(t, first.Posts, name)
		assert.False(t, first.Complete, name)
		assert.Equal(t, maxExamined, first.Examined, name)
		if !assert.NotNil(t, first.Rest, name) {
			continue
		}
		// An entry is read twice and its author looked up among the blocked; a window is counted.
		assert.Less(t, n, 4*maxExamined+1000, "%s: rows and entries read", name)
		q.After = first.Rest
		second, err := content.New(store).ListPosts(t.Context(), q)
		require.NoError(t, err, name)
		if assert.Len(t, second.Posts, 1, name) {
			assert.EqualValues(t, 1, second.Posts[0].ID, name)
		}
		assert.Nil(t, second.Rest, name)
	}
}

// The columns that lists of a tag are ordered by change with the post, and Recount repairs wrong ones.
func TestTags_keepWhatTheirPostsAreOrderedBy(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, bob := newUser(t, store, "ada"), newUser(t, store, "bob")
	p, err := content.New(store).CreatePost(t.Context(), ada, models.PostText{Title: "T", Content: "C",
		Tags: models.Tags{"a", "b"}})
	require.NoError(t, err)
	stale := func() int64 {
		tally, there, err := likes.New(store).TallyOf(t.Context(), postTarget(p))
		require.NoError(t, err)
		require.True(t, there)
		return tally.TagsStale
	}
	check := func(what string, err error) {
		t.Helper()
		require.NoError(t, err, what)
		assert.Zero(t, stale(), what)
		assert.Zero(t, count(t, store, `
			SELECT COUNT(*)
			FROM tags t
			WHERE posts_count<>(SELECT COUNT(*) FROM post_tags g WHERE g.tag_id=t.id AND g.status=1)`), what)
	}
	check("a new post", nil)
	_, err = likes.New(store).SetLike(t.Context(), postTarget(p), bob.ID, true)
	check("a like", err)
	_, err = likes.New(store).SetLike(t.Context(), postTarget(p), bob.ID, false)
	check("no like", err)
	exec := func(query string, args ...any) {
		_, err := patient(store).ExecContext(t.Context(), query, args...)
		require.NoError(t, err)
	}
	exec("UPDATE posts SET created_at='2020-01-01', active_at='2020-01-01', hot_score=? WHERE id=?",
		models.HotScore(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), 0), p.ID)
	assert.EqualValues(t, 2, stale())
	check("a recount", likes.New(store).Recount(t.Context(), postTarget(p)))
	c := newComment(t, store, bob, p, nil)
	check("a comment", nil)
	check("a deleted comment", content.New(store).DeleteComment(t.Context(), c))
	_, err = content.New(store).UpdatePost(t.Context(), ada.ID, p.ID, p.Version,
		models.PostText{Title: "T", Content: "C2", Tags: models.Tags{"b", "c"}})
	check("an edit", err)
	check("a deletion", content.New(store).DeletePost(t.Context(), ada.ID, p.ID))
	_, err = content.New(store).RestorePost(t.Context(), ada.ID, p.ID)
	check("a restoration", err)
	exec("UPDATE post_tags SET status=2 WHERE post_id=?", p.ID)
	exec("UPDATE tags SET posts_count=0")
	assert.EqualValues(t, 2, stale())
	check("a mended status", likes.New(store).Recount(t.Context(), postTarget(p)))
}
