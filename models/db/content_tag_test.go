package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

// wrongTags counts the tags whose count differs from the number of their posts. While transactions run, the tags must
// be locked: see lockedWrongTags.
const wrongTags = `
	SELECT COUNT(*)
	FROM tags t
	WHERE t.posts_count<>(
		SELECT COUNT(*)
		FROM post_tags g
		JOIN posts p ON p.id=g.post_id AND p.status=1
		WHERE g.tag_id=t.id AND g.status=1
	)`

// lockedWrongTags is wrongTags while the rows of the tags are locked. It ignores tags that are created meanwhile.
//
// wrongTags alone reports differences that never were. To take a snapshot, MariaDB visits the running transactions one
// by one, and the snapshot may have a transaction without one whose lock it waited for (see Locks in docs/design.md).
// The count of their tag is then that of both, and the rows are those of one.
//
// A transaction that changes the posts of a tag holds the lock of the tag's row when it commits. So under these locks,
// a snapshot has all of such a transaction or nothing. If the product wrote rows and counts in two transactions, the
// second would wait for the locks, and the rows of the first would be found without it.
func lockedWrongTags(store *db.DB) (wrong int, err error) {
	const lock = `
		SELECT id
		FROM tags FORCE INDEX (PRIMARY)
		ORDER BY id
		FOR UPDATE`
	err = store.Transact(context.Background(), func(tx *db.Tx) error {
		var ids []int64
		if err := tx.Raw(lock).Scan(&ids).Error; err != nil || len(ids) == 0 {
			return err
		}
		return tx.Raw(wrongTags + " AND t.id IN (" + db.JoinIDs(ids) + ")").Scan(&wrong).Error
	})
	return wrong, err
}

func tagged(t testing.TB, store *db.DB, author models.Author, tags ...string) *models.Post {
	t.Helper()
	p, err := content.New(store).CreatePost(t.Context(), author,
		models.PostText{Title: "A post", Content: "with text", Tags: models.NormalTags(tags)})
	require.NoError(t, err)
	return p
}

func TestTags_countsHoldAtEveryCommit(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	var done atomic.Bool
	var watching sync.WaitGroup
	checks := 0
	watching.Go(func() {
		for ; !done.Load(); checks++ {
			if wrong, err := lockedWrongTags(store); err != nil || wrong != 0 {
				t.Errorf("%d tags are counted wrongly at check %d, %v", wrong, checks, err)
				return
			}
		}
	})
	names := []string{"a", "b", "c", "d", "e", "f"}
	batch := func(r *rand.Rand) models.Tags {
		var tags []string
		for _, i := range r.Perm(len(names))[:r.IntN(6)] {
			tags = append(tags, names[i])
		}
		return models.NormalTags(tags)
	}
	var writing sync.WaitGroup
	for writer := range 8 {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(writer)))
			for range 12 {
				p, err := content.New(store).CreatePost(t.Context(), ada, models.PostText{Title: "T", Content: "C",
					Tags: batch(r)})
				if !assert.NoError(t, err) {
					return
				}
				_, err = content.New(store).UpdatePost(t.Context(), ada.ID, p.ID, 0,
					models.PostText{Title: "T", Content: "C", Tags: batch(r)})
				assert.NoError(t, err)
				// Two deletions at once, of which one finds it gone.
				errs := make([]error, 2)
				var both sync.WaitGroup
				for i := range errs {
					both.Go(func() { errs[i] = content.New(store).DeletePost(t.Context(), ada.ID, p.ID) })
				}
				both.Wait()
				assert.NotEqual(t, errs[0] == nil, errs[1] == nil, "%v", errs)
				if r.IntN(2) == 0 {
					_, err = content.New(store).RestorePost(t.Context(), ada.ID, p.ID)
					assert.NoError(t, err)
				}
			}
		})
	}
	writing.Wait()
	done.Store(true)
	watching.Wait()
	assert.Greater(t, checks, 5)
	assert.Zero(t, count(t, store, wrongTags))
	assert.Equal(t, 6, count(t, store, "SELECT COUNT(*) FROM tags"))
	assert.Zero(t, count(t, store, `
		SELECT COUNT(*)
		FROM post_tags g
		JOIN posts p ON p.id=g.post_id
		WHERE g.status<>p.status OR g.created_at<>p.created_at`))
	assert.Zero(t, count(t, store, `
		SELECT COUNT(*)
		FROM posts p
		WHERE (status=1)<>EXISTS (SELECT 1 FROM post_terms t WHERE t.post_id=p.id)`))
	n, err := content.New(store).IndexPosts(t.Context(), 10)
	require.NoError(t, err)
	assert.Zero(t, n, "the writer of a post indexes it")
}

func TestListTags(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	for i, name := range []string{"go", "gin", "grpc", "rust", "C++", "c#", "量子", "zig"} {
		for range i%3 + 1 {
			tagged(t, store, ada, name)
		}
	}
	gone := tagged(t, store, ada, "unused")
	require.NoError(t, content.New(store).DeletePost(t.Context(), ada.ID, gone.ID))
	for _, list := range []struct {
		sort   models.TagSort
		prefix string
		want   string
	}{
		{models.TagsPopular, "", "[c# 3][grpc 3][zig 2][c++ 2][gin 2][量子 1][rust 1][go 1]"},
		{models.TagsName, "", "[c# 3][c++ 2][gin 2][go 1][grpc 3][rust 1][zig 2][量子 1]"},
		{models.TagsPopular, "g", "[grpc 3][gin 2][go 1]"},
		{models.TagsName, "g", "[gin 2][go 1][grpc 3]"},
		{models.TagsName, "c", "[c# 3][c++ 2]"},
		{models.TagsPopular, "c+", "[c++ 2]"},
		{models.TagsName, "x", ""},
	} {
		for limit := 1; limit <= 9; limit++ {
			got, after := "", (*models.ListKey)(nil)
			for {
				tags, _, err := content.New(store).ListTags(t.Context(),
					models.TagQuery{Sort: list.sort, Prefix: list.prefix, After: after, Limit: limit})
				require.NoError(t, err)
				for _, tag := range tags {
					got += fmt.Sprintf("[%s %d]", tag.Name, tag.PostsCount)
					key := tag.Key(list.sort)
					after = &key
				}
				if len(tags) < limit {
					break
				}
			}
			assert.Equal(t, list.want, got, "%s %q by %d", list.sort, list.prefix, limit)
		}
	}
}

// A page of tags examines a bounded number of them, even if many begin with the same letters, are unused, or are more
// popular than the listed ones.
func TestListTags_boundWhatIsPassedOver(t *testing.T) {
	t.Parallel()
	store := openWith(t, db.Options{MaxConns: 1})
	exec(t, store, `
INSERT INTO tags (id, name, posts_count)
WITH digits AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
numbers AS (
	SELECT 1+a.n+10*b.n+100*c.n+1000*d.n+10000*e.n AS n
	FROM digits a, digits b, digits c, digits d, digits e
	WHERE e.n<3
)
SELECT n, CONCAT(IF(n>20000,'b','a'), LPAD(n,5,'0')), IF(n>20000, 9, IF(n IN (1,10000,20000), 1, 0))
FROM numbers`)
	exec(t, store, "ANALYZE TABLE tags")
	for _, list := range []struct {
		sort   models.TagSort
		prefix string
		want   []int64
		short  bool
	}{
		{models.TagsName, "a", []int64{1, 10_000, 20_000}, true},
		{models.TagsPopular, "a", []int64{20_000, 10_000, 1}, true},
		{models.TagsPopular, "a1", []int64{10_000}, true},
		{models.TagsPopular, "a10", []int64{10_000}, false},
	} {
		for _, limit := range []int{1, 20} {
			var seen []int64
			q, short := models.TagQuery{Sort: list.sort, Prefix: list.prefix, Limit: limit}, false
			for pages := 1; ; pages++ {
				require.Less(t, pages, 20, "%v does not end", list)
				var tags []models.Tag
				var rest *models.ListKey
				n := entriesRead(t, store, func() {
					var err error
					tags, rest, err = content.New(store).ListTags(t.Context(), q)
					require.NoError(t, err)
				})
				assert.Less(t, n, 3*maxPassed, "%v: rows and entries read", list)
				for i := range tags {
					seen = append(seen, tags[i].ID)
				}
				short = short || len(tags) < limit && rest != nil
				if q.After = rest; rest == nil && len(tags) == limit {
					key := tags[limit-1].Key(list.sort)
					q.After = &key
				}
				if q.After == nil {
					break
				}
			}
			assert.Equal(t, list.want, seen, "%v by %d", list, limit)
			assert.Equal(t, list.short, short, "%v by %d has a short page that is not the last", list, limit)
		}
	}
}

// Names that only look alike, or that a collation takes for equal, are different tags.
func TestTags_areWhatTheyLookLike(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	names := []string{"resume", "résumé", "strasse", "straße", "o", "ö", "ø", "は", "ば", "ハ", "1", "１"}
	for _, name := range names {
		p := tagged(t, store, ada, name)
		got, err := content.New(store).PostByID(t.Context(), 0, p.ID)
		require.NoError(t, err)
		assert.Equal(t, models.Tags{name}, got.Tags)
	}
	assert.Equal(t, len(names), count(t, store, "SELECT COUNT(*) FROM tags WHERE posts_count=1"))
	assert.Equal(t, models.Tags{"b", "a"}, tagged(t, store, ada, "B", " b ", "a").Tags,
		"each once, in the author's order")
}

func TestTags_haveOneSpelling(t *testing.T) {
	t.Parallel()
	assert.Equal(t, models.Tags{"go", "c++", "量子", "café"},
		models.NormalTags([]string{" Go", "GO", "c++", "量子", "Cafe\u0301", "café"}))
	for _, name := range []string{
		"go", "c++", "c#", ".net", "node.js", "r", "c-sharp", "量子计算", "हिन्दी", "x86-64", "1", strings.Repeat("é",
			30),
	} {
		assert.True(t, models.ValidTag(name), name)
		assert.True(t, models.ValidTagPrefix(name), name)
		assert.Equal(t, name, models.NormalTag(strings.ToUpper(name)), name)
	}
	for _, name := range []string{
		"", "-", "+", ".", "..net", "-a", "a-", "a.", "a b", "a_b", "a,b", "a\x00", "🎀", "<a>", "a%",
		strings.Repeat("é", 31),
	} {
		assert.False(t, models.ValidTag(name), name)
	}
	require.True(t, models.ValidTagPrefix("."))
	require.True(t, models.ValidTagPrefix("c-"))
	require.False(t, models.ValidTagPrefix("c%"))
	require.False(t, models.ValidTagPrefix(""))
}
