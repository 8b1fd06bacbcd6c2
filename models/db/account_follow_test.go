package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/people"
	"likewise/models/reader"
)

// crowd is a forum of 1,000 authors with 100 posts each. The reader follows them all, the guest three of them. The
// writer has written 20,000 comments and likes all of it.
type crowd struct {
	store                 *db.DB
	reader, guest, writer models.Author
}

const crowdAuthors, crowdPosts, crowdComments = 1000, 100, 20_000

func newCrowd(tb testing.TB) *crowd {
	tb.Helper()
	// One connection, so that what the server counts for a session is what the test did.
	store := openWith(tb, db.Options{MaxConns: 1})
	exec := func(query string, args ...any) {
		tb.Helper()
		_, err := patient(store).ExecContext(tb.Context(), query, args...)
		require.NoError(tb, err)
	}
	c := &crowd{store: store}
	for _, item := range []struct {
		author *models.Author
		name   string
	}{{&c.reader, "reader"}, {&c.guest, "guest"}, {&c.writer, "writer"}} {
		u := &models.User{Username: item.name, Email: item.name + "@example.org"}
		require.NoError(tb, accounts.New(store).CreateUser(tb.Context(), u))
		*item.author = models.Author{ID: u.ID, Username: u.Username}
	}
	exec("CREATE TEMPORARY TABLE n (i INT PRIMARY KEY)")
	exec("INSERT INTO n WITH RECURSIVE r AS (SELECT 0 AS i UNION ALL SELECT i+1 FROM r WHERE i<999) SELECT i FROM r")
	exec(`
			INSERT INTO users (username, email, password_hash)
			SELECT CONCAT('author',i), CONCAT('author',i,'@example.org'), ''
			FROM n`)
	// Each author has written now and then, all through a year.
	for post := range crowdPosts {
		exec(`
			INSERT INTO posts (user_id, title, content, created_at)
			SELECT u.id, 'T', 'C', '2026-01-01' + INTERVAL ((? * 311040 + u.id * 7919 * 40) MOD 31104000) SECOND
			FROM users u
			WHERE u.username LIKE 'author%'`, post)
	}
	exec(
		"INSERT INTO follows (user_id, followed_id) SELECT ?, id FROM users WHERE username LIKE 'author%'",
		c.reader.ID,
	)
	exec(
		"INSERT INTO follows (user_id, followed_id) SELECT id, ? FROM users WHERE username LIKE 'author%'",
		c.reader.ID,
	)
	exec(`
			INSERT INTO follows (user_id, followed_id)
			SELECT ?, id
			FROM users
			WHERE username IN ('author1','author500','author900')`, c.guest.ID)
	exec("INSERT INTO blocks (user_id, blocked_id) SELECT ?, id FROM users WHERE username LIKE 'author%'", c.writer.ID)
	exec(`
			INSERT INTO comments (post_id, user_id, content, created_at)
			SELECT p.id, ?, 'C', p.created_at
			FROM posts p
			LIMIT ?`, c.writer.ID, crowdComments)
	exec("INSERT INTO post_likes (post_id, user_id) SELECT id, ? FROM posts", c.guest.ID)
	exec("INSERT INTO comment_likes (comment_id, user_id) SELECT id, ? FROM comments", c.guest.ID)
	exec(
		"INSERT INTO sessions (token_hash, user_id, expires_at) SELECT UNHEX(SHA2(i,256)), ?, '2037-01-01' FROM n",
		c.guest.ID,
	)
	exec("ANALYZE TABLE users, posts, comments, follows, blocks, post_likes, comment_likes, sessions")
	return c
}

// reads is the number of rows and index entries that the server has read for this connection.
func (c *crowd) reads(tb testing.TB) (n int64) {
	tb.Helper()
	rows, err := c.store.Pool().QueryContext(tb.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	require.NoError(tb, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var value int64
		require.NoError(tb, rows.Scan(&name, &value))
		n += value
	}
	require.NoError(tb, rows.Err())
	return n
}

// TestPeople_listsReadNoMoreThanTheyShow counts what the server reads: on a table of 100,000 posts any plan but the one
// by the list's own index reads many times more.
func TestPeople_listsReadNoMoreThanTheyShow(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	ctx, store := t.Context(), c.store
	const limit = 21
	noise := -c.reads(t)
	noise += c.reads(t) // of asking
	middle := &models.ListKey{Value: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC).Unix(), ID: 1 << 40}
	for name, list := range map[string]struct {
		read  func() (int, error)
		limit int64 // rows and entries read
	}{
		"feed of 1000": {func() (int, error) {
			l, err := reader.New(store).Feed(ctx, c.reader.ID, nil, limit)
			return len(l), err
		}, 6*crowdAuthors + 3*limit*limit},
		"feed of 1000, later": {func() (int, error) {
			l, err := reader.New(store).Feed(ctx, c.reader.ID, middle, limit)
			return len(l), err
		}, 6*crowdAuthors + 3*limit*limit},
		"feed of 3": {func() (int, error) {
			l, err := reader.New(store).Feed(ctx, c.guest.ID, nil, limit)
			return len(l), err
		}, 3 * limit * limit},
		"feed of 3, later": {func() (int, error) {
			l, err := reader.New(store).Feed(ctx, c.guest.ID, middle, limit)
			return len(l), err
		}, 3 * limit * limit},
		"followers": {func() (int, error) {
			l, _, err := people.New(store).Followers(ctx, c.reader.ID, c.reader.ID, nil, limit)
			return len(l), err
		}, 15 * limit},
		"following": {func() (int, error) {
			l, _, err := people.New(store).Following(ctx, c.reader.ID, c.reader.ID, nil, limit)
			return len(l), err
		}, 15 * limit},
		"following, later": {func() (int, error) {
			l, _, err := people.New(store).Following(ctx, c.reader.ID, c.reader.ID, &models.ListKey{ID: 500}, limit)
			return len(l), err
		}, 15 * limit},
		"blocks": {func() (int, error) {
			l, _, err := people.New(store).BlockedUsers(ctx, c.writer.ID, nil, limit)
			return len(l), err
		}, 15 * limit},
		"comments": {func() (int, error) {
			l, _, err := reader.New(store).CommentsByUser(ctx, c.guest.ID, c.writer.ID, nil, limit)
			return len(l), err
		}, 15 * limit},
		"comments, later": {func() (int, error) {
			l, _, err := reader.New(store).CommentsByUser(ctx, c.guest.ID, c.writer.ID, middle, limit)
			return len(l), err
		}, 15 * limit},
		"liked posts": {func() (int, error) {
			l, _, err := reader.New(store).LikedPosts(ctx, c.reader.ID, c.guest.ID, 0, limit)
			return len(l), err
		}, 15 * limit},
		"liked posts, later": {func() (int, error) {
			l, _, err := reader.New(store).LikedPosts(ctx, c.reader.ID, c.guest.ID, 50_000, limit)
			return len(l), err
		}, 15 * limit},
		"liked comments": {func() (int, error) {
			l, _, err := reader.New(store).LikedComments(ctx, c.reader.ID, c.guest.ID, 0, limit)
			return len(l), err
		}, 15 * limit},
		"liked comments later": {func() (int, error) {
			l, _, err := reader.New(store).LikedComments(ctx, c.reader.ID, c.guest.ID, 10_000, limit)
			return len(l), err
		}, 15 * limit},
		"sessions": {func() (int, error) {
			l, err := accounts.New(store).Sessions(ctx, c.guest.ID, nil, limit)
			return len(l), err
		}, 5 * limit},
	} {
		_, err := list.read() // opens its tables, and MySQL counts what it reads of its own dictionary for that
		require.NoError(t, err, name)
		before := c.reads(t)
		n, err := list.read()
		read := c.reads(t) - before - noise
		require.NoError(t, err, name)
		assert.Equal(t, limit, n, name)
		assert.LessOrEqual(t, read, list.limit, "%s: rows and entries read", name)
		t.Logf("%s: %d read for %d", name, read, n)
	}
}

// TestFeed_isTheOrderOfAllPosts walks feeds in which many posts share a second, so that pages end within one.
func TestFeed_isTheOrderOfAllPosts(t *testing.T) {
	t.Parallel()
	store, ctx := openStore(t), t.Context()
	follower := newUser(t, store, "reader")
	random := rand.New(rand.NewPCG(4, 2))
	for i := range 25 {
		author := newUser(t, store, fmt.Sprint("author", i))
		_, err := people.New(store).Follow(ctx, follower.ID, author.ID)
		require.NoError(t, err)
		for range random.IntN(8) {
			_, err := store.Pool().ExecContext(ctx, `
					INSERT INTO posts (user_id, title, content, created_at)
					VALUES (?,'T','C',FROM_UNIXTIME(1767225600+?))`,
				author.ID, random.IntN(40))
			require.NoError(t, err)
		}
	}
	var want []int64
	rows, err := store.Pool().QueryContext(ctx, "SELECT id FROM posts ORDER BY created_at DESC, id DESC")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		want = append(want, id)
	}
	require.NoError(t, rows.Err())
	require.Greater(t, len(want), 50)
	for limit := 1; limit < 30; limit++ {
		var got []int64
		for after := (*models.ListKey)(nil); ; {
			posts, err := reader.New(store).Feed(ctx, follower.ID, after, limit)
			require.NoError(t, err)
			for _, p := range posts {
				got = append(got, p.ID)
			}
			if len(posts) < limit {
				break
			}
			key := posts[limit-1].Key(models.PostsNew)
			after = &key
		}
		assert.Equal(t, want, got, "by %d", limit)
	}
}

// BenchmarkFeed measures a page of 20 on a table of 100,000 posts.
func BenchmarkFeed(b *testing.B) {
	c := newCrowd(b)
	all, err := reader.New(c.store).Feed(context.Background(), c.reader.ID, nil, 21)
	require.NoError(b, err)
	require.Len(b, all, 21)
	page := &models.ListKey{Value: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC).Unix(), ID: 1 << 40}
	for follows, user := range map[int]models.Author{crowdAuthors: c.reader, 3: c.guest} {
		for name, after := range map[string]*models.ListKey{"first page": nil, "after 91,000 posts": page} {
			for _, limit := range []int{21, 101} {
				b.Run(fmt.Sprintf("%d followed, %s of %d", follows, name, limit-1), func(b *testing.B) {
					for b.Loop() {
						_, err := reader.New(c.store).Feed(context.Background(), user.ID, after,
							limit)
						require.NoError(b, err)
					}
				})
			}
		}
		const query = `
			DO (
				SELECT COUNT(*)
				FROM (
					SELECT p.id
					FROM follows f
					JOIN posts p ON p.user_id=f.followed_id AND p.status=1
					WHERE f.user_id=?
					ORDER BY p.created_at DESC, p.id DESC
					LIMIT 21) x)`
		b.Run(fmt.Sprintf("%d followed, plain join", follows), func(b *testing.B) {
			for b.Loop() {
				if _, err := c.store.Pool().Exec(query, user.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPublicUser measures a profile of a user with 20,000 comments, and of one with 1,000 followers.
func BenchmarkPublicUser(b *testing.B) {
	c := newCrowd(b)
	for name, user := range map[string]models.Author{
		"20,000 comments":              c.writer,
		"1,000 followers and followed": c.reader,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := accounts.New(c.store).PublicUserByID(context.Background(), 0, user.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
