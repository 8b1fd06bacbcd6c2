package stackexchange

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/reader"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// extract holds real rows: seven questions with their answers, comments and votes. It has users with the same name,
// posts and a comment without a user, tag wikis, and comments and up-votes whose post is missing.
const extract = "testdata/quantumcomputing.stackexchange"

func openStore(t *testing.T) *db.DB {
	t.Helper()
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func importInto(t *testing.T, store *db.DB, dir string) Summary {
	t.Helper()
	s, err := Import(t.Context(), Options{Dir: dir, Store: store, Likes: likes.New(store)})
	require.NoError(t, err)
	return s
}

// strs returns the first column of all rows.
func strs(t *testing.T, store *db.DB, query string, args ...any) []string {
	t.Helper()
	rows, err := store.Pool().QueryContext(t.Context(), query, args...)
	require.NoError(t, err)
	defer rows.Close()
	var list []string
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		list = append(list, s)
	}
	require.NoError(t, rows.Err())
	return list
}

// contentOf lists all rows without the ids that the server assigned, in one order. A server sorts by the first bytes of
// a long text alone, so it would return the likes of a long comment in the order in which it read them.
func contentOf(t *testing.T, store *db.DB) []string {
	t.Helper()
	var all []string
	for _, query := range []string{
		// The placeholder is created at the time of the import.
		`
		SELECT CONCAT_WS('|', 'user',
			username, email, IF(username='deleted', '', created_at), password_hash)
		FROM users`,
		`
		SELECT CONCAT_WS('|', 'post',
			title, username, likes_count, comments_count, p.created_at, p.updated_at, version, content,
			(SELECT GROUP_CONCAT(t.name ORDER BY g.position)
				FROM post_tags g JOIN tags t ON t.id=g.tag_id
				WHERE g.post_id=p.id))
		FROM posts p JOIN users u ON u.id=p.user_id`,
		`
		SELECT CONCAT_WS('|', 'comment',
			p.title, u.username, c.likes_count, c.replies_count, c.created_at, c.updated_at, c.content,
			parent.content)
		FROM comments c
		JOIN users u ON u.id=c.user_id
		JOIN posts p ON p.id=c.post_id
		LEFT JOIN comments parent ON parent.id=c.parent_id`,
		`
		SELECT CONCAT_WS('|', 'post like', title, username)
		FROM post_likes l
		JOIN posts p ON p.id=l.post_id
		JOIN users u ON u.id=l.user_id`,
		`
		SELECT CONCAT_WS('|', 'comment like', content, username)
		FROM comment_likes l
		JOIN comments c ON c.id=l.comment_id
		JOIN users u ON u.id=l.user_id`,
		`
		SELECT CONCAT_WS('|', 'import', source, kind, external_id)
		FROM imports`,
	} {
		all = append(all, strs(t, store, query)...)
	}
	slices.Sort(all)
	return all
}

// requireExact compares every count with the rows that it counts.
func requireExact(t *testing.T, store *db.DB) {
	t.Helper()
	for _, query := range []string{
		`
		SELECT CONCAT('likes of post ', id)
		FROM posts p
		WHERE likes_count <> (SELECT COUNT(*) FROM post_likes l WHERE l.post_id=p.id)`,
		`
		SELECT CONCAT('likes of comment ', id)
		FROM comments c
		WHERE likes_count <> (SELECT COUNT(*) FROM comment_likes l WHERE l.comment_id=c.id)`,
		fmt.Sprintf(`
		SELECT CONCAT('comments of post ', id)
		FROM posts p
		WHERE comments_count <> (SELECT COUNT(*) FROM comments c WHERE c.post_id=p.id AND c.status=%d)`,
			models.StatusNormal),
		`
		SELECT CONCAT('notification ', id)
		FROM notifications`,
		`
		SELECT CONCAT('posts with tag ', name)
		FROM tags t
		WHERE posts_count <> (SELECT COUNT(*) FROM post_tags g WHERE g.tag_id=t.id)`,
		`
		SELECT CONCAT('post ', id, ' cannot be found')
		FROM posts p
		WHERE NOT EXISTS (SELECT 1 FROM post_terms t WHERE t.post_id=p.id)`,
		fmt.Sprintf(`
		SELECT CONCAT('replies to ', id)
		FROM comments p
		WHERE replies_count <> (SELECT COUNT(*) FROM comments c WHERE c.parent_id=p.id AND c.status=%d)`,
			models.StatusNormal),
	} {
		require.Empty(t, strs(t, store, query))
	}
}

func TestImport_mapsTheDump(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	s := importInto(t, store, extract)
	require.Equal(t, Summary{
		Source:       "stackexchange:quantumcomputing.stackexchange",
		Users:        Tally{Read: 41, Created: 41},
		Posts:        Tally{Read: 11, Created: 7, Skipped: map[Reason]int64{TagWiki: 4}},
		Comments:     Tally{Read: 42, Created: 40, Skipped: map[Reason]int64{NoPost: 2}},
		PostLikes:    Tally{Read: 72, Created: 69, Skipped: map[Reason]int64{NoPost: 3}},
		CommentLikes: Tally{Read: 73, Created: 69, Skipped: map[Reason]int64{LeftOut: 4}},
		Placeholders: 1,
		NoAuthor:     3,
		OtherVotes:   31,
		NoPlace: map[string]int64{
			"accepted answers": 5, "closings of questions": 1, "names of deleted accounts": 3,
		},
	}, s)
	requireExact(t, store)
	require.Equal(
		t,
		[]string{"quantum-algorithms,performance,classical-computing"},
		strs(t, store, `
			SELECT GROUP_CONCAT(t.name ORDER BY g.position)
			FROM post_tags g
			JOIN tags t ON t.id=g.tag_id
			JOIN posts p ON p.id=g.post_id
			WHERE p.title LIKE '%ignoring constants%'`),
	)
	require.Equal(t, []string{"42 7 40 12 69 69"}, strs(t, store, `SELECT CONCAT_WS(' ',
		(SELECT COUNT(*) FROM users), (SELECT COUNT(*) FROM posts), (SELECT COUNT(*) FROM comments),
		(SELECT COUNT(*) FROM comments WHERE parent_id IS NOT NULL),
		(SELECT COUNT(*) FROM post_likes), (SELECT COUNT(*) FROM comment_likes))`))
	require.Equal(t, []string{"22 2018-03-12 18:12:22 2018-03-12 18:12:22"}, strs(t, store, `
		SELECT CONCAT_WS(' ', likes_count, created_at, updated_at)
		FROM posts
		WHERE title='Can a quantum computer simulate a normal computer?'`))

	// Content without an author belongs to the placeholder, whose account nobody can log in to.
	require.Equal(
		t,
		[]string{"1 post, 2 comments"},
		strs(t, store, `
			SELECT CONCAT(
				(SELECT COUNT(*) FROM posts WHERE user_id=u.id), ' post, ',
				(SELECT COUNT(*) FROM comments WHERE user_id=u.id), ' comments')
			FROM users u
			WHERE username='deleted' AND password_hash=''`),
	)
	// Six users have the same name.
	require.Equal(t, []string{"Martin", "Martin-625", "Martin-905", "Martin-1854", "martin-2102", "Martin-2245"},
		strs(t, store, `SELECT username FROM users WHERE username LIKE 'martin%' ORDER BY id`))
	// Older rows have lower ids, wherever they are in the file. Question 1808 is older than its move to this site.
	for _, kind := range []string{"user", "post", "answer", "comment"} {
		table := map[string]string{"user": "users", "post": "posts"}[kind]
		if table == "" {
			table = "comments"
		}
		ids := strs(
			t,
			store,
			"SELECT local_id FROM imports JOIN "+table+" t ON t.id=local_id WHERE kind=? ORDER BY t.created_at, t.id",
			kind,
		)
		byID := strs(t, store, "SELECT local_id FROM imports WHERE kind=? ORDER BY local_id", kind)
		require.Equal(t, byID, ids, kind)
	}
}

// A reader of an imported thread sees what came since.
func TestImport_canBeReadOn(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	importInto(t, store, extract)
	threads := strs(t, store, `
		SELECT CONCAT_WS(' ', post_id, MAX(id))
		FROM comments
		GROUP BY post_id
		ORDER BY COUNT(*) DESC
		LIMIT 1`)
	var post, last int64
	_, err := fmt.Sscan(threads[0], &post, &last)
	require.NoError(t, err)
	var people [2]models.Author
	for i, name := range []string{"reader", "writer"} {
		u := &models.User{Username: name, Email: name + "@example.org"}
		require.NoError(t, accounts.New(store).CreateUser(t.Context(), u))
		people[i] = models.Author{ID: u.ID, Username: name}
	}
	unread := func() int64 {
		standings, _, err := reader.New(store).ReaderStates(t.Context(), people[0].ID, []int64{post})
		require.NoError(t, err)
		require.NotNil(t, standings[post].Mark)
		require.Equal(t, last, standings[post].Mark.CommentID)
		return standings[post].Mark.Unread
	}
	require.NoError(t, reader.New(store).MarkRead(t.Context(), people[0].ID, post, 0))
	require.Zero(t, unread())
	_, err = content.New(store).CreateComment(t.Context(), people[1], post, nil,
		models.CommentText{Content: "Another one."})
	require.NoError(t, err)
	require.EqualValues(t, 1, unread())
}

func TestImport_secondTimeChangesNothing(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	importInto(t, store, extract)
	// A second import keeps later changes: a withdrawn like, a new like and an edit.
	post := models.Target{Kind: models.KindPost, ID: 1}
	likers, err := likes.New(store).LikerIDs(t.Context(), post, 0, 100)
	require.NoError(t, err)
	_, err = likes.New(store).SetLike(t.Context(), post, likers[0], false)
	require.NoError(t, err)
	_, err = content.New(store).UpdatePost(t.Context(), 0, 2, 0, models.PostText{Title: "Edited", Content: "here"})
	require.NoError(t, err)
	before := contentOf(t, store)

	s := importInto(t, store, extract)
	require.Equal(t, before, contentOf(t, store))
	require.Equal(t, Tally{Read: 41, Present: 41}, s.Users)
	require.Equal(t, Tally{Read: 42, Present: 40, Skipped: map[Reason]int64{NoPost: 2}}, s.Comments)
	require.Equal(t, Tally{Read: 72, Present: 69, Skipped: map[Reason]int64{NoPost: 3}}, s.PostLikes)
	require.Zero(t, s.Placeholders)
}

func TestImport_continuesAfterAStop(t *testing.T) {
	t.Parallel()
	whole := openStore(t)
	importInto(t, whole, extract)
	want := contentOf(t, whole)

	// stopAfter ends an import at its n-th step. A step is a written batch or an accepted like.
	stopAfter := func(t *testing.T, store *db.DB, n int64) error {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var steps atomic.Int64
		_, err := Import(
			ctx,
			Options{Dir: extract, Store: store, Likes: likes.New(store), batch: 5, Progress: func(stage Stage, _,
				_ int64) {
				if stage != StageRead && steps.Add(1) >= n {
					stop()
				}
			}},
		)
		return err
	}
	for _, n := range []int64{1, 9, 10, 14, 22, 40, 90, 150} {
		t.Run(fmt.Sprintf("after %d", n), func(t *testing.T) {
			store := openStore(t)
			require.ErrorIs(t, stopAfter(t, store, n), context.Canceled)
			requireExact(t, store)
			importInto(t, store, extract)
			require.Equal(t, want, contentOf(t, store))
			requireExact(t, store)
		})
	}
	t.Run("again and again", func(t *testing.T) {
		store := openStore(t)
		runs := int64(1)
		for stopAfter(t, store, runs) != nil {
			runs++
		}
		require.Greater(t, runs, int64(5))
		require.Equal(t, want, contentOf(t, store))
		requireExact(t, store)
	})
}

// failing returns an error for each like after the first n.
type failing struct {
	Likes
	left atomic.Int64
	err  error
}

func (f *failing) SetLike(
	ctx context.Context,
	target models.Target,
	userID int64,
	liked bool,
) (models.LikeState, error) {
	if f.left.Add(-1) < 0 {
		return models.LikeState{}, f.err
	}
	return f.Likes.SetLike(ctx, target, userID, liked)
}

func TestImport_continuesAfterFailedLikes(t *testing.T) {
	t.Parallel()
	whole := openStore(t)
	importInto(t, whole, extract)
	store, broken := openStore(t), errors.New("broken")
	for _, n := range []int64{0, 1, 20, 40, 40} {
		likes := &failing{Likes: likes.New(store), err: broken}
		likes.left.Store(n)
		_, err := Import(t.Context(), Options{Dir: extract, Store: store, Likes: likes})
		require.ErrorIs(t, err, broken)
		requireExact(t, store)
	}
	importInto(t, store, extract)
	require.Equal(t, contentOf(t, whole), contentOf(t, store))
}

func TestImport_continuesAfterLostConnections(t *testing.T) {
	t.Parallel()
	whole := openStore(t)
	importInto(t, whole, extract)
	store, killer := openStore(t), openStore(t)
	done, killed := make(chan struct{}), make(chan int)
	database := strs(t, store, "SELECT DATABASE()")[0]
	go func() {
		n := 0
		defer func() { killed <- n }()
		for pause := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-done:
				return
			case <-pause.C:
			}
			rows, err := killer.Pool().
				Query("SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE db=?", database)
			if err != nil {
				t.Errorf("list connections: %v", err)
				return
			}
			var kills []string
			for rows.Next() {
				var kill string
				if rows.Scan(&kill) == nil {
					kills = append(kills, kill)
				}
			}
			rows.Close()
			for _, kill := range kills {
				if _, err := killer.Pool().Exec(kill); err == nil { // else it has ended by itself
					n++
				}
			}
		}
	}()
	for range 60 {
		if _, err := Import(t.Context(), Options{Dir: extract, Store: store, Likes: likes.New(store),
			batch: 1}); err == nil {
			break
		}
	}
	close(done)
	require.Greater(t, <-killed, 5)
	testkit.Eventually(t, time.Minute, func() (bool, string) { // the breaker may be open
		err := store.Ping(t.Context())
		return err == nil, fmt.Sprint(err)
	})
	importInto(t, store, extract)
	require.Equal(t, contentOf(t, whole), contentOf(t, store))
	requireExact(t, store)
}

func TestImport_isIdempotentWhenTwoRunAtOnce(t *testing.T) {
	t.Parallel()
	whole := openStore(t)
	importInto(t, whole, extract)
	store := openStore(t)
	var runs sync.WaitGroup
	for range 2 {
		runs.Go(func() {
			_, err := Import(t.Context(), Options{Dir: extract, Store: store, Likes: likes.New(store), batch: 3})
			if err != nil && models.ErrorCode(err) != models.CodeConflict {
				t.Errorf("neither done nor refused for the other: %v", err)
			}
		})
	}
	runs.Wait()
	importInto(t, store, extract)
	requireExact(t, store)
	// Names are assigned in the order of writes, which differs when two imports run at once.
	for _, table := range []string{"users", "posts", "comments", "post_likes", "comment_likes", "imports"} {
		query := "SELECT COUNT(*) FROM " + table
		require.Equal(t, strs(t, whole, query), strs(t, store, query), table)
	}
}

func TestImport_skipsTakenNames(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for _, name := range []string{"MARTIN", "community", "martin-625", "Deleted"} {
		require.NoError(t, accounts.New(store).CreateUser(t.Context(), &models.User{Username: name,
			Email: name + "@example.org"}))
	}
	importInto(t, store, extract)
	require.Equal(
		t,
		[]string{"Community--1"},
		strs(t, store, "SELECT username FROM users JOIN imports ON local_id=id WHERE kind='user' AND external_id=-1"),
	)
	require.Equal(
		t,
		[]string{"Martin-395", "user-625"},
		strs(t, store, `
			SELECT username
			FROM users JOIN imports ON local_id=id
			WHERE kind='user' AND external_id IN (395, 625)
			ORDER BY id`),
	)
	require.Equal(
		t,
		[]string{"deleted-user"},
		strs(t, store, "SELECT username FROM users JOIN imports ON local_id=id WHERE kind='placeholder'"),
	)
}

func TestImport_skipsCommentsAndLikesOfDeletedContent(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx, stop := context.WithCancel(t.Context())
	_, err := Import(ctx, Options{Dir: extract, Store: store, Likes: likes.New(store), Progress: func(stage Stage, _,
		_ int64) {
		if stage == StageAnswers {
			stop()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	// Question 1478 has three comments and an answer with one; answer 29 has two.
	post := strs(t, store, "SELECT local_id FROM imports WHERE kind='post' AND external_id=1478")
	answer := strs(t, store, "SELECT local_id FROM imports WHERE kind='answer' AND external_id=29")
	_, err = store.Pool().Exec("UPDATE posts SET status=2 WHERE id=?", post[0])
	require.NoError(t, err)
	_, err = store.Pool().Exec("UPDATE comments SET status=2 WHERE id=?", answer[0])
	require.NoError(t, err)

	s := importInto(t, store, extract)
	require.Equal(t, int64(3+1+2), s.Comments.Skipped[DeletedHere])
	require.Equal(t, int64(10), s.PostLikes.Skipped[DeletedHere])
	require.Equal(t, int64(9+3), s.CommentLikes.Skipped[DeletedHere])
	require.Equal(
		t,
		[]string{"1"},
		strs(t, store, "SELECT comments_count FROM posts WHERE id=?", post[0]),
		"its answer, which was there before",
	)
	require.Equal(t, []string{"0"}, strs(t, store, "SELECT replies_count FROM comments WHERE id=?", answer[0]))
	require.Equal(t, []string{"0"}, strs(t, store, "SELECT COUNT(*) FROM post_likes WHERE post_id=?", post[0]))
}

// writeDump writes a dump of the given rows, by the names of their files.
func writeDump(t *testing.T, rows map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny.example")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, name := range []string{"Users", "Posts", "Comments", "Votes"} {
		root := strings.ToLower(name)
		text := "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<" + root + ">\n" + rows[name] + "\n</" + root + ">\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".xml"), []byte(text), 0o644))
	}
	return dir
}

const (
	twoUsers = `<row Id="1" CreationDate="2020-01-01T00:00:00.000" DisplayName="Ada"/>
<row Id="2" CreationDate="2020-01-01T00:00:00.000" DisplayName="ADA"/>`
	oneQuestion = `<row Id="10" PostTypeId="1" CreationDate="2020-01-02T00:00:00.000" OwnerUserId="1" ` +
		`Title="T" Body="&lt;p&gt;Q&lt;/p&gt;"/>`
)

func TestImport_usesEachUserOnceForATarget(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	dir := writeDump(t, map[string]string{
		"Users": twoUsers,
		"Posts": oneQuestion,
		"Comments": `<row Id="1" PostId="10" Score="2147483647" Text="all like it" ` +
			`CreationDate="2020-01-03T00:00:00.000" UserId="404"/>`,
		"Votes": strings.Repeat(`<row Id="1" PostId="10" VoteTypeId="2" CreationDate="2020-01-02T00:00:00.000"/>`, 5),
	})
	s := importInto(t, store, dir)
	require.Equal(t, Tally{Read: 5, Created: 2, Skipped: map[Reason]int64{TooFewUsers: 3}}, s.PostLikes)
	require.Equal(t, int64(2), s.CommentLikes.Created)
	require.Equal(t, int64(1), s.NoAuthor, "user 404 is not in the dump")
	require.Equal(t, []string{"Ada", "ADA-2", "deleted"}, strs(t, store, "SELECT username FROM users ORDER BY id"))
	requireExact(t, store)
}

func TestImport_adaptsTextsToTheForum(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	dir := writeDump(t, map[string]string{
		"Users": twoUsers,
		"Posts": `<row Id="10" PostTypeId="1" CreationDate="2020-01-02T00:00:00.000"
	LastEditDate="2020-02-02T00:00:00.000" OwnerUserId="1"
	Title="` + strings.Repeat("é", 300) + `"
	Body="` + strings.Repeat("&lt;p&gt;long line&lt;/p&gt;", 8000) + `"/>
<row Id="11" PostTypeId="2" ParentId="10" CreationDate="2020-01-03T00:00:00.000" OwnerUserId="2"
	Body="&lt;p&gt; &lt;/p&gt;"/>
<row Id="12" PostTypeId="2" ParentId="99" CreationDate="2020-01-03T00:00:00.000" OwnerUserId="2"
	Body="hangs on nothing"/>
<row Id="13" PostTypeId="6" CreationDate="2020-01-03T00:00:00.000" Body="a nomination"/>`,
	})
	s := importInto(t, store, dir)
	require.Equal(t, Tally{Read: 2, Created: 1, Skipped: map[Reason]int64{OtherPost: 1}}, s.Posts)
	require.Equal(t, Tally{Read: 2, Created: 1, Skipped: map[Reason]int64{NoPost: 1}}, s.Comments)
	require.Equal(t, [2]int64{1, 1}, [2]int64{s.Cut, s.Blank})
	post, err := content.New(store).PostByID(t.Context(), 0, 1)
	require.NoError(t, err)
	require.NoError(t, models.PostText{Title: post.Title, Content: post.Content}.Validate())
	require.True(t, strings.HasSuffix(post.Content, "\n\nlong line"+wasCut), "cut between lines")
	require.Equal(t, time.Date(2020, 2, 2, 0, 0, 0, 0, time.UTC), post.UpdatedAt)
}

// What people wrote about themselves has a place here, also what no username can hold.
func TestImport_keepsNamesBiosAndPictures(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	const at = ` CreationDate="2020-01-01T00:00:00.000" `
	dir := writeDump(t, map[string]string{"Users": `
<row Id="1"` + at + `DisplayName="José Núñez" ProfileImageUrl="https://images.example.org/1.png?s=128"
	AboutMe="&lt;p&gt;I &amp;lt;3 &lt;a href=&quot;https://example.org/wiki&quot;&gt;wikis&lt;/a&gt;.&lt;/p&gt;
&lt;ul&gt;&#xA;&lt;li&gt;one&lt;/li&gt;&#xA;&lt;li&gt;two&lt;/li&gt;&#xA;&lt;/ul&gt;"/>
<row Id="2"` + at + `DisplayName="张伟" AboutMe="` + strings.Repeat("长", 600) + `" ProfileImageUrl="javascript:alert(1)"/>
<row Id="3"` + at + `DisplayName=" محمد &#x0E;" Location="القاهرة"/>
<row Id="4"` + at + `DisplayName=""/>
<row Id="5"` + at + `DisplayName="` + strings.Repeat("w", 60) + `"/>`})
	s := importInto(t, store, dir)
	require.Equal(t, Tally{Read: 5, Created: 5}, s.Users)
	require.Equal(t, [3]int64{1, 1, 1}, [3]int64{s.CutBios, s.Profiles, s.Illegal})
	require.Equal(t, map[string]int64{"locations of users": 1}, s.NoPlace)
	require.Equal(t, []string{
		"Jose-Nunez|José Núñez|https://images.example.org/1.png?s=128|" +
			"I <3 wikis (https://example.org/wiki).\n\n• one\n\n• two",
		"Zhang-Wei|张伟||" + strings.Repeat("长", 499) + "…",
		"mHmd|محمد||",
		"user-4|||",
		strings.Repeat("w", 50) + "|" + strings.Repeat("w", 49) + "…||",
	}, strs(t, store, `
		SELECT CONCAT(username, '|', COALESCE(display_name, ''), '|', COALESCE(avatar_url, ''), '|', bio)
		FROM users
		ORDER BY id`))
}

func TestImport_leavesOutWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	dir := writeDump(t, map[string]string{"Users": twoUsers,
		"Posts": strings.Replace(oneQuestion, `Title="`, `Title="&#x0E;`, 1),
		"Votes": `<row Id="1" PostId="x" VoteTypeId="2"/>`})
	s := importInto(t, store, dir)
	require.Equal(t, [2]int64{1, 1}, [2]int64{s.Illegal, s.Unread})
	require.Equal(t, []string{`Votes.xml, line 3: PostId="x" is not a whole number from 1 to 9223372036854775807`},
		s.Examples)
	require.EqualValues(t, 1, s.Posts.Created)
	var printed strings.Builder
	require.NoError(t, s.Print(&printed))
	require.Contains(t, printed.String(), "rows left out because of their values: 1\n  Votes.xml, line 3: PostId=")
}

func TestImport_refusesABrokenDump(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	dir := writeDump(t, map[string]string{"Users": twoUsers, "Posts": oneQuestion + "<row"})
	_, err := Import(t.Context(), Options{Dir: dir, Store: store, Likes: likes.New(store)})
	require.ErrorContains(t, err, "Posts.xml: row 2 (line ")
	require.Equal(t, []string{"0"}, strs(t, store, "SELECT COUNT(*) FROM users"))
	require.NoError(t, os.Remove(filepath.Join(dir, "Votes.xml")))
	_, err = Import(t.Context(), Options{Dir: dir, Store: store, Likes: likes.New(store)})
	require.ErrorContains(t, err, "Votes.xml is missing: a dump is a folder with")
}

// refusing refuses likes until a given time.
type refusing struct{ until time.Time }

func (r refusing) SetLike(context.Context, models.Target, int64, bool) (models.LikeState, error) {
	if time.Now().Before(r.until) {
		return models.LikeState{}, models.Unavailable("closed", nil)
	}
	return models.LikeState{}, nil
}

func TestSetLike_waitsAMinuteForTheGate(t *testing.T) {
	t.Parallel()
	target := models.Target{Kind: models.KindPost, ID: 1}
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, setLike(t.Context(), refusing{time.Now().Add(50 * time.Second)}, target, 1))
	})
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		err := setLike(t.Context(), refusing{time.Now().Add(time.Hour)}, target, 1)
		require.ErrorContains(t, err, "likes were not accepted for 1m0s: unavailable: closed")
		require.WithinDuration(t, begin.Add(time.Minute), time.Now(), 6*time.Second)
	})
}

// Whatever its folder is called, a dump is imported once.
func TestImport_refusesADumpUnderAnotherName(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	importInto(t, store, extract)
	before := contentOf(t, store)
	renamed := filepath.Join(t.TempDir(), "another name")
	require.NoError(t, os.CopyFS(renamed, os.DirFS(extract)))
	_, err := Import(t.Context(), Options{Dir: renamed, Store: store, Likes: likes.New(store)})
	require.ErrorContains(t, err, `this dump was imported under the name "quantumcomputing.stackexchange": `+
		`add --site quantumcomputing.stackexchange to continue that import`)
	require.Equal(t, before, contentOf(t, store))
	s, err := Import(t.Context(), Options{
		Dir: renamed, Site: "QuantumComputing.StackExchange", Store: store, Likes: likes.New(store),
	})
	require.NoError(t, err)
	require.Zero(t, s.Users.Created+s.Posts.Created+s.Comments.Created)
	require.Equal(t, before, contentOf(t, store))

	// Another site in a folder of the same name: the same ids, and other times.
	other := filepath.Join(t.TempDir(), filepath.Base(extract))
	require.NoError(t, os.CopyFS(other, os.DirFS(extract)))
	users, err := os.ReadFile(filepath.Join(other, "Users.xml"))
	require.NoError(t, err)
	moved := strings.ReplaceAll(string(users), `CreationDate="201`, `CreationDate="200`)
	require.NotEqual(t, string(users), moved)
	require.NoError(t, os.WriteFile(filepath.Join(other, "Users.xml"), []byte(moved), 0o600))
	_, err = Import(t.Context(), Options{Dir: other, Store: store, Likes: likes.New(store)})
	require.ErrorContains(t, err, "another dump was imported under the name")
}
