package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
)

// exec runs a statement without the store.
func exec(t testing.TB, store *db.DB, query string, args ...any) {
	t.Helper()
	_, err := patient(store).ExecContext(context.Background(), query, args...)
	require.NoError(t, err)
}

// chain writes a chain of replies down to depth n and returns the deepest comment.
func chain(t *testing.T, store *db.DB, author models.Author, post *models.Post, n int) *models.Comment {
	t.Helper()
	var c *models.Comment
	for range n {
		c = newComment(t, store, author, post, c)
	}
	return c
}

func TestRecount_repairsTheDepthsOfTrees(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	post, random := newPost(t, store, ada), rand.New(rand.NewPCG(1, 2))
	depths := []int{}
	var rows []string
	for i := range 1500 {
		parent, depth := "NULL", 1
		switch {
		case i > 0 && i <= 300: // a chain, deeper than the column goes
			parent, depth = fmt.Sprint(i), min(depths[i-1]+1, 255)
		case i > 0 && random.IntN(4) > 0:
			p := 301 + random.IntN(max(1, i-301))
			if p < i {
				parent, depth = fmt.Sprint(p+1), depths[p]+1
			}
		}
		depths = append(depths, depth)
		rows = append(rows, fmt.Sprintf("(%d,%d,%d,%s,'C','2020-01-01')", i+1, post.ID, ada.ID, parent))
	}
	exec(t, store,
		"INSERT INTO comments (id, post_id, user_id, parent_id, content, updated_at) VALUES "+strings.Join(rows, ","))
	for i, depth := range depths {
		if depth == 2 { // what is below follows
			target := models.Target{Kind: models.KindComment, ID: int64(i + 1)}
			require.NoError(t, likes.New(store).Recount(t.Context(), target))
		}
	}
	deepest := 0
	for i, want := range depths {
		deepest = max(deepest, want)
		if got := count(t, store, "SELECT depth FROM comments WHERE id=?", i+1); got != want {
			t.Fatalf("comment %d has the depth %d, want %d", i+1, got, want)
		}
	}
	assert.Equal(t, 255, deepest)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM comments WHERE updated_at<>'2020-01-01'"),
		"a repair is not an edit")
}

func TestCreateComment_goesNoDeeperThanMaxDepth(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	deepest := chain(t, store, ada, post, models.MaxDepth)
	assert.Equal(t, 64, deepest.Depth)
	_, err := content.New(store).CreateComment(t.Context(), ada, post.ID, &deepest.ID,
		models.CommentText{Content: "deeper"})
	require.Equal(t, models.CodeInvalid, models.ErrorCode(err))
	assert.ErrorContains(t, err, "parent_id")
	assert.Equal(t, models.MaxDepth, count(t, store, "SELECT comments_count FROM posts"))
	assert.Zero(t, count(t, store, "SELECT replies_count FROM comments WHERE id=?", deepest.ID))
	assert.Equal(t, models.MaxDepth,
		count(t, store, "SELECT SUM(depth=(SELECT COUNT(*) FROM comments a WHERE a.id<=c.id)) FROM comments c"))
}

func TestImportComments_keepDepthAndActivity(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	exec(t, store, "UPDATE posts SET active_at='2020-01-01', created_at='2020-01-01'")
	deepest := chain(t, store, ada, post, models.MaxDepth)
	exec(t, store, "UPDATE posts SET active_at='2020-01-01'")
	reply := func(external, parent int64, at time.Time) models.ImportedComment {
		return models.ImportedComment{ExternalID: external, PostID: post.ID, ParentID: parent, AuthorID: ada.ID,
			Text: models.CommentText{Content: "imported"}, CreatedAt: at, UpdatedAt: at}
	}
	top := count(t, store, "SELECT MIN(id) FROM comments")
	ids, err := content.New(store).ImportComments(t.Context(), "elsewhere", "comment", []models.ImportedComment{
		reply(1, 0, past),
		reply(2, int64(top), past.Add(time.Hour)),
		reply(3, deepest.ID, past),
		reply(4, deepest.ID, past),
		reply(5, 1<<40, past),
	})
	require.NoError(t, err)
	require.Zero(t, ids[4])
	for i, want := range []struct {
		parent any
		depth  int
	}{{0, 1}, {top, 2}, {int(*deepest.ParentID), 64}, {int(*deepest.ParentID), 64}} {
		assert.Equal(t, want.parent, count(t, store, "SELECT COALESCE(parent_id,0) FROM comments WHERE id=?", ids[i]),
			"parent of import %d", i+1)
		assert.Equal(t, want.depth, count(t, store, "SELECT depth FROM comments WHERE id=?", ids[i]),
			"depth of import %d", i+1)
	}
	assert.Equal(t, int(past.Add(time.Hour).Unix()), count(t, store, "SELECT UNIX_TIMESTAMP(active_at) FROM posts"))
	checkCounts(t, store)
	// An old comment makes nothing look younger or older.
	_, err = content.New(store).ImportComments(t.Context(), "elsewhere", "comment",
		[]models.ImportedComment{reply(6, 0, past.AddDate(-10, 0, 0))})
	require.NoError(t, err)
	assert.Equal(t, int(past.Add(time.Hour).Unix()), count(t, store, "SELECT UNIX_TIMESTAMP(active_at) FROM posts"))
}

// checkCounts compares every count of comments and replies with the rows while all posts and comments are locked. Each
// transaction that changes such a count or row holds the lock of the post when it commits. So under the locks, a
// snapshot has all of such a transaction or nothing; without them it might not (see Locks in docs/design.md). If the
// product wrote rows and counts in two transactions, the second would wait for the locks.
func checkCounts(t *testing.T, store *db.DB) {
	t.Helper()
	const lock = `
		SELECT id
		FROM %s FORCE INDEX (PRIMARY)
		ORDER BY id
		FOR UPDATE`
	err := store.Transact(context.Background(), func(tx *db.Tx) error {
		for _, table := range []string{"posts", "comments"} {
			if err := tx.Exec(fmt.Sprintf(lock, table)).Error; err != nil {
				return err
			}
		}
		for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
			tallies, err := likes.New(store).Tally(context.Background(), kind, 0, 1_000_000)
			if err != nil {
				return err
			}
			for _, tally := range tallies {
				if tally.Children != tally.ChildRows {
					t.Errorf("%s %d counts %d comments below it, and has %d", kind, tally.ID, tally.Children,
						tally.ChildRows)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestCommentCounts_areExactAtEveryCommit has many users write and delete comments on one post, some twice and some
// below parents that are being deleted, until the post is deleted. Meanwhile it checks the counts.
func TestCommentCounts_areExactAtEveryCommit(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	ctx := context.Background()
	var mu sync.Mutex
	all := []*models.Comment{newComment(t, store, ada, post, nil)}
	batch := func(random *rand.Rand) *models.Comment {
		mu.Lock()
		defer mu.Unlock()
		return all[max(0, len(all)-1-random.IntN(12))]
	}
	var created, deleted, refused, checks atomic.Int64
	ended := make(chan struct{})
	var writers, checker sync.WaitGroup
	checker.Go(func() {
		for {
			checkCounts(t, store)
			checks.Add(1)
			select {
			case <-ended:
				return
			default:
			}
		}
	})
	for i := range 16 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3))
			for n := range 40 {
				if i == 0 && n == 35 {
					assert.NoError(t, content.New(store).DeletePost(ctx, ada.ID, post.ID))
				}
				var err error
				target := batch(random)
				switch random.IntN(5) {
				case 0, 1: // most of these meet with others that delete the same, or write below it
					if err = content.New(store).DeleteComment(ctx, target); err == nil {
						deleted.Add(1)
					}
				default:
					var parent *int64
					if target.Depth < models.MaxDepth && random.IntN(4) > 0 {
						parent = &target.ID
					}
					var c *models.Comment
					if c, err = content.New(store).CreateComment(ctx, ada, post.ID, parent,
						models.CommentText{Content: "C"}); err == nil {
						created.Add(1)
						mu.Lock()
						all = append(all, c)
						mu.Unlock()
					}
				}
				if models.ErrorCode(err) == models.CodeNotFound {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(ended)
	checker.Wait()
	checkCounts(t, store)
	left := count(t, store, "SELECT comments_count FROM posts")
	assert.EqualValues(t, 1+created.Load()-deleted.Load(), left)
	assert.Equal(t, left, count(t, store, "SELECT COUNT(*) FROM comments WHERE status=1"))
	for what, n := range map[string]int64{
		"created": created.Load(), "deleted": deleted.Load(), "refused": refused.Load(), "checks": checks.Load(),
	} {
		assert.Greater(t, n, int64(5), what)
	}
	_, err := content.New(store).CreateComment(ctx, ada, post.ID, nil, models.CommentText{Content: "late"})
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "a comment on a deleted post")
}

func TestCreateComment_refusesUsersBlockedByTheAuthors(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, bob, eve, joe := newUser(t, store,
		"ada"), newUser(t, store, "bob"), newUser(t, store, "eve"), newUser(t, store, "joe")
	post, other := newPost(t, store, ada), newPost(t, store, joe)
	block := func(by, whom models.Author) {
		exec(t, store, "INSERT INTO blocks (user_id, blocked_id) VALUES (?,?)", by.ID, whom.ID)
	}
	onPost, onOther := newComment(t, store, bob, post, nil), newComment(t, store, bob, other, nil)
	block(ada, eve) // of the post
	block(bob, joe) // of the comment
	block(eve, ada) // the other way round means nothing here
	for _, c := range []struct {
		writer models.Author
		post   *models.Post
		parent *models.Comment
		code   models.Code
	}{
		{eve, post, nil, models.CodeForbidden},
		{eve, post, onPost, models.CodeForbidden},
		{joe, post, onPost, models.CodeForbidden},
		{joe, other, onOther, models.CodeForbidden}, // on their own post, even
		{joe, post, nil, ""},
		{eve, other, onOther, ""},
		{ada, other, onOther, ""},
	} {
		var parent *int64
		if c.parent != nil {
			parent = &c.parent.ID
		}
		_, err := content.New(store).CreateComment(t.Context(), c.writer, c.post.ID, parent,
			models.CommentText{Content: "C"})
		if c.code == "" {
			assert.NoError(t, err)
			continue
		}
		assert.Equal(t, c.code, models.ErrorCode(err), "%s on post %d under %v: %v", c.writer.Username, c.post.ID,
			c.parent, err)
		assert.ErrorContains(t, err, "has blocked you")
	}
	checkCounts(t, store)
}

func TestAncestors_leadFromTheTopToTheParent(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	newComment(t, store, ada, post, nil)
	deepest := chain(t, store, ada, post, models.MaxDepth)
	newComment(t, store, ada, post, nil)
	path, err := content.New(store).Ancestors(t.Context(), 0, deepest.ID, 0, models.MaxDepth)
	require.NoError(t, err)
	require.Len(t, path, models.MaxDepth-1)
	for i, c := range path {
		assert.Equal(t, i+1, c.Depth)
		assert.True(t, c.More)
		if i > 0 {
			assert.Equal(t, path[i-1].ID, *c.ParentID)
		}
	}
	// The order does not hang on depths: a process of before there were any wrote none.
	exec(t, store, "UPDATE comments SET depth=1 WHERE id%3<>0")
	unsorted, err := content.New(store).Ancestors(t.Context(), 0, deepest.ID, 0, models.MaxDepth)
	require.NoError(t, err)
	require.Len(t, unsorted, len(path))
	for i := range path {
		assert.Equal(t, path[i].ID, unsorted[i].ID)
	}
	rest, err := content.New(store).Ancestors(t.Context(), 0, deepest.ID, path[4].ID, 3)
	require.NoError(t, err)
	require.Len(t, rest, 3)
	assert.Equal(t, path[5].ID, rest[0].ID)
	none, err := content.New(store).Ancestors(t.Context(), 0, path[0].ID, 0, models.MaxDepth)
	require.NoError(t, err)
	assert.Empty(t, none)
	require.NoError(t, content.New(store).DeleteComment(t.Context(), &path[10]))
	path, err = content.New(store).Ancestors(t.Context(), 0, deepest.ID, 0, models.MaxDepth)
	require.NoError(t, err)
	assert.True(t, path[10].Hidden())
	for _, id := range []int64{path[10].ID, 1 << 40} {
		_, err = content.New(store).Ancestors(t.Context(), 0, id, 0, models.MaxDepth)
		assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	}
}
