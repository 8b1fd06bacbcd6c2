package db_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/moderation"
	"likewise/models/people"
	"likewise/models/search"
)

// findComments pages through a search and returns the ids that it finds, and whether all pages are complete.
func findComments(t *testing.T, store *db.DB, q models.CommentSearch, text string) (ids []int64, complete bool) {
	t.Helper()
	q.Terms, complete = search.QueryTerms(text), true
	for {
		page, err := content.New(store).FindComments(t.Context(), q)
		require.NoError(t, err)
		require.LessOrEqual(t, page.Examined, 41_000)
		require.LessOrEqual(t, len(page.Comments), q.Limit)
		complete = complete && page.Complete
		for i := range page.Comments {
			ids = append(ids, page.Comments[i].Comment.ID)
		}
		switch {
		case len(page.Comments) == q.Limit:
			last := page.Key(&page.Comments[q.Limit-1])
			q.After = &last
		case page.Rest != nil:
			q.After = page.Rest
		default:
			return ids, complete
		}
	}
}

func TestFindComments_findsWhatIsShown(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, bob := newUser(t, store, "ada"), newUser(t, store, "bob")
	mod, admin := newModerator(t, store, "mod"), newUser(t, store, "admin")
	require.NoError(t, accounts.New(store).SetRole(t.Context(), admin.ID, models.RoleAdmin))
	p := newPost(t, store, ada)
	comment := func(by models.Author, text string) *models.Comment {
		t.Helper()
		c, err := content.New(store).CreateComment(t.Context(), by, p.ID, nil, models.CommentText{Content: text})
		require.NoError(t, err)
		return c
	}
	long := comment(ada, "Qubits are rare, and this text has many other words that say nothing about any of them.")
	short := comment(bob, "Two *qubits*, 量子计算")
	other := comment(bob, "Something else")
	found := func(viewer int64, text string) []int64 {
		t.Helper()
		byRelevance, complete := findComments(t, store,
			models.CommentSearch{ViewerID: viewer, Sort: models.PostsRelevance, Limit: 1}, text)
		assert.True(t, complete)
		latest, complete := findComments(t, store,
			models.CommentSearch{ViewerID: viewer, Sort: models.PostsNew, Limit: 1}, text)
		assert.True(t, complete)
		assert.ElementsMatch(t, byRelevance, latest)
		assert.IsNonIncreasing(t, latest)
		return byRelevance
	}
	assert.Equal(t, []int64{short.ID, long.ID}, found(0, "qubit"), "the shorter one is more relevant")
	assert.Equal(t, []int64{short.ID}, found(0, "QUBIT 量子"))
	assert.Empty(t, found(0, "qubit nowhere"))
	assert.Empty(t, found(0, "post"), "only its post has the word")

	require.NoError(t, people.New(store).Block(t.Context(), ada.ID, bob.ID))
	assert.Equal(t, []int64{long.ID}, found(ada.ID, "qubit"))
	require.NoError(t, people.New(store).Block(t.Context(), mod.ID, ada.ID))
	assert.Empty(t, found(mod.ID, "qubit"), "the author of the post is blocked")

	edited, err := content.New(store).UpdateComment(t.Context(), ada.ID, long.ID, long.Version,
		models.CommentText{Content: "Bits"})
	require.NoError(t, err)
	assert.Equal(t, []int64{short.ID}, found(0, "qubit"))
	assert.Equal(t, []int64{long.ID}, found(0, "bit"))

	// Redaction, deletion and restoration, in any order.
	require.NoError(t, moderation.New(store).RedactVersion(t.Context(), mod.ID, commentTarget(edited), edited.Version,
		"Private."))
	assert.Empty(t, found(0, "bit"))
	require.NoError(t, moderation.New(store).RemoveContent(t.Context(), mod.ID, commentTarget(short), "Spam."))
	assert.Empty(t, found(0, "qubit"))
	exactCounts(t, store)
	require.NoError(t, moderation.New(store).ReinstateContent(t.Context(), mod.ID, commentTarget(short), "A mistake."))
	assert.Equal(t, []int64{short.ID}, found(0, "qubit"))
	exactCounts(t, store)
	require.NoError(t, moderation.New(store).RemoveContent(t.Context(), mod.ID, commentTarget(short), "Spam."))
	require.NoError(t, moderation.New(store).RedactVersion(t.Context(), mod.ID, commentTarget(short), 0,
		"While it is deleted."))
	exactCounts(t, store)
	require.NoError(t, moderation.New(store).ReinstateContent(t.Context(), mod.ID, commentTarget(short), "A mistake."))
	assert.Empty(t, found(0, "qubit"))
	assert.Len(t, found(0, "redacted"), 2)
	require.NoError(t, moderation.New(store).PurgeContent(t.Context(), admin.ID, commentTarget(other), "Private."))
	assert.Empty(t, found(0, "something"))
	exactCounts(t, store)

	require.NoError(t, content.New(store).DeletePost(t.Context(), ada.ID, p.ID))
	assert.Empty(t, found(0, "redacted"), "the post is deleted")
}

// Comments that an older version wrote have no terms.
func TestIndexComments_addsThoseThatAreMissing(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	p := newPost(t, store, ada)
	for range 5 {
		newComment(t, store, ada, p, nil)
	}
	deleted := newComment(t, store, ada, p, nil)
	require.NoError(t, content.New(store).DeleteComment(t.Context(), deleted))
	exec(t, store, "DELETE FROM comment_terms WHERE comment_id>2")
	exec(t, store, "UPDATE comments SET terms_version=0, updated_at=?", past)
	for _, want := range []int{2, 2, 1, 0} {
		n, err := content.New(store).IndexComments(t.Context(), 2)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	exactCounts(t, store)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM comments WHERE updated_at<>?", past))
}

// A word that most comments have is searched within bounds, and all pages together have every comment once.
func TestFindComments_isBounded(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	p := newPost(t, store, ada)
	const many, rare = 50_000, 500
	exec(t, store, `
		INSERT INTO comments (id, post_id, user_id, content, terms_version)
		WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<1000)
		SELECT (a.i-1)*1000+b.i, ?, ?, 'text', 1
		FROM n a, n b
		WHERE a.i<=?`, p.ID, ada.ID, many/1000)
	exec(t, store, "INSERT INTO comment_terms (comment_id, term, weight) SELECT id, 'common', 1+id%300 FROM comments")
	exec(t, store, `
		INSERT INTO comment_terms (comment_id, term, weight)
		SELECT id, 'rare', 1 FROM comments WHERE id%?=0`, many/rare)
	for _, sort := range []models.PostSort{models.PostsRelevance, models.PostsNew} {
		q := models.CommentSearch{Sort: sort, Limit: 100}
		ids, complete := findComments(t, store, q, "rare common")
		assert.Len(t, ids, rare, sort)
		assert.True(t, complete, sort)
		assert.Len(t, distinctIDs(ids), rare, sort)
	}
	q := models.CommentSearch{Sort: models.PostsRelevance, Limit: 1000}
	ids, complete := findComments(t, store, q, "common")
	assert.Len(t, ids, 20_000, "the newest ones are ranked")
	assert.False(t, complete)
	assert.Len(t, distinctIDs(ids), 20_000)
	for _, id := range ids {
		require.Greater(t, id, int64(many-20_000))
	}
	// With conditions that nothing meets, the latest first are examined in parts.
	exec(t, store, "UPDATE posts SET status=2")
	q = models.CommentSearch{Sort: models.PostsNew, Limit: 10, Terms: []string{"common"}}
	var pages, examined int
	for {
		page, err := content.New(store).FindComments(t.Context(), q)
		require.NoError(t, err)
		require.Empty(t, page.Comments)
		pages, examined = pages+1, examined+page.Examined
		if page.Rest == nil {
			break
		}
		require.False(t, page.Complete)
		q.After = page.Rest
	}
	assert.Equal(t, 3, pages, fmt.Sprint(examined, " entries"))
}

func distinctIDs(ids []int64) map[int64]bool {
	distinct := map[int64]bool{}
	for _, id := range ids {
		distinct[id] = true
	}
	return distinct
}
