package db_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/people"
	"likewise/models/privacy"
	"likewise/models/reader"
)

// notified returns the kinds of a user's notifications, earliest first: "reply", "mention" and the numbers of
// milestones.
func notified(t testing.TB, store *db.DB, user models.Author) string {
	t.Helper()
	list, _, err := people.New(store).Notifications(context.Background(), user.ID, false, 0, 1000)
	require.NoError(t, err)
	words := make([]string, 0, len(list))
	for _, n := range slices.Backward(list) {
		word := n.Kind.String()
		if n.Kind == models.NotifyMilestone {
			word = fmt.Sprint(n.Milestone)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func write(
	t testing.TB,
	store *db.DB,
	author models.Author,
	post *models.Post,
	parent *models.Comment,
	mentions ...string,
) *models.Comment {
	t.Helper()
	var parentID *int64
	if parent != nil {
		parentID = &parent.ID
	}
	c, err := content.New(store).CreateComment(
		t.Context(),
		author,
		post.ID,
		parentID,
		models.CommentText{Content: "hello", Mentions: mentions},
	)
	require.NoError(t, err)
	return c
}

func TestNotifications_reachTheUsersConcerned(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	var users []models.Author
	for _, name := range []string{"ada", "bob", "cyd", "Dan"} {
		users = append(users, newUser(t, store, name))
	}
	ada, bob, cyd, dan := users[0], users[1], users[2], users[3]
	everybody := func() string {
		var all []string
		shown := 0
		for _, u := range users {
			words := notified(t, store, u)
			all = append(all, u.Username+": "+words)
			shown += len(strings.Fields(words))
		}
		assert.Equal(t, count(t, store, "SELECT COUNT(*) FROM notifications"), shown, "rows, hidden ones included")
		_, err := store.Pool().ExecContext(t.Context(), "DELETE FROM notifications")
		require.NoError(t, err)
		return strings.ReplaceAll(strings.Join(all, ", ")+",", ": ,", ",")
	}
	post, err := content.New(store).CreatePost(
		t.Context(),
		ada,
		models.PostText{Title: "For some", Content: "text", Mentions: []string{"dan", "ada", "nobody"}},
	)
	require.NoError(t, err)
	assert.Equal(t, "ada, bob, cyd, Dan: mention,", everybody(), "a post")
	write(t, store, ada, post, nil)
	assert.Equal(t, "ada, bob, cyd, Dan,", everybody(), "one's own post")
	comment := write(t, store, bob, post, nil, "ada", "cyd", "bob")
	assert.Equal(t, "ada: reply, bob, cyd: mention, Dan,", everybody(), "a comment")
	reply := write(t, store, cyd, post, comment)
	assert.Equal(t, "ada, bob: reply, cyd, Dan,", everybody(), "a reply is its parent's author's alone")
	write(t, store, cyd, post, reply, "ada", "bob")
	assert.Equal(t, "ada: mention, bob: mention, cyd, Dan,", everybody(), "a reply to oneself")

	require.NoError(t, people.New(store).Block(t.Context(), dan.ID, cyd.ID))
	write(t, store, cyd, post, nil, "dan", "bob")
	assert.Equal(t, "ada: reply, bob: mention, cyd, Dan,", everybody(), "one who blocks the writer")
	write(t, store, dan, post, nil, "cyd")
	assert.Equal(t, "ada: reply, bob, cyd: mention, Dan,", everybody(), "one whom the writer blocks")

	_, err = privacy.New(store).DeleteUser(t.Context(), ada.ID, "")
	require.NoError(t, err)
	write(t, store, bob, post, nil, "ada")
	assert.Equal(t, "ada, bob, cyd, Dan,", everybody(), "a deleted user")
	_, err = content.New(store).UpdateComment(
		t.Context(),
		bob.ID,
		comment.ID,
		0,
		models.CommentText{Content: "changed", Mentions: []string{"dan", "cyd"}},
	)
	require.NoError(t, err)
	assert.Equal(t, "ada, bob, cyd: mention, Dan: mention,", everybody(), "an edit")
	_, err = content.New(store).UpdateComment(t.Context(), cyd.ID, reply.ID, 0,
		models.CommentText{Content: "changed", Mentions: []string{"bob"}})
	require.NoError(t, err)
	assert.Equal(t, "ada, bob, cyd, Dan,", everybody(), "an edit that mentions the author of the parent")
}

func TestNotifications_areListedAndRead(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, bob, cyd := newUser(t, store, "ada"), newUser(t, store, "bob"), newUser(t, store, "cyd")
	post := newPost(t, store, ada)
	first := write(t, store, bob, post, nil)
	second := write(t, store, cyd, post, nil)
	third := write(t, store, bob, post, nil)
	list := func(unread bool, before int64) (ids []int64) {
		rows, _, err := people.New(store).Notifications(t.Context(), ada.ID, unread, before, 10)
		require.NoError(t, err)
		for _, n := range rows {
			assert.Equal(t, "A post", n.PostTitle)
			assert.Equal(t, post.ID, n.PostID)
			assert.NotEmpty(t, n.Actor.Username)
			ids = append(ids, n.CommentID)
		}
		return ids
	}
	unread := func() int64 {
		n, err := people.New(store).UnreadCount(t.Context(), ada.ID)
		require.NoError(t, err)
		return n
	}
	assert.Equal(t, []int64{third.ID, second.ID, first.ID}, list(false, 0), "latest first")
	assert.Equal(t, int64(3), unread())
	rows, _, err := people.New(store).Notifications(t.Context(), ada.ID, false, 0, 10)
	require.NoError(t, err)
	assert.Equal(t, []int64{second.ID, first.ID}, list(false, rows[0].ID))

	require.NoError(t, people.New(store).ReadNotifications(t.Context(), bob.ID, []int64{rows[1].ID}))
	assert.Equal(t, int64(3), unread(), "of another user")
	require.NoError(t, people.New(store).ReadNotifications(t.Context(), ada.ID, []int64{rows[1].ID, rows[1].ID, 99999}))
	assert.Equal(t, []int64{third.ID, first.ID}, list(true, 0))
	require.NoError(t, people.New(store).ReadNotificationsUpTo(t.Context(), ada.ID, rows[1].ID))
	assert.Equal(t, []int64{third.ID}, list(true, 0), "what came later stays unread")
	assert.Equal(t, []int64{third.ID, second.ID, first.ID}, list(false, 0))

	require.NoError(t, people.New(store).Block(t.Context(), ada.ID, bob.ID))
	assert.Equal(t, []int64{second.ID}, list(false, 0), "of somebody blocked since")
	assert.Zero(t, unread())
	require.NoError(t, people.New(store).Unblock(t.Context(), ada.ID, bob.ID))
	require.NoError(t, content.New(store).DeleteComment(t.Context(), third))
	assert.Equal(t, []int64{second.ID, first.ID}, list(false, 0), "of a deleted comment")
	assert.Zero(t, unread())
	_, err = store.Pool().ExecContext(t.Context(), "UPDATE posts SET status=2")
	require.NoError(t, err)
	assert.Empty(t, list(false, 0), "of a deleted post")
}

func TestNotifications_manyAreReadAndCounted(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, bob := newUser(t, store, "ada"), newUser(t, store, "bob")
	post := newPost(t, store, ada)
	rows := make([]string, 2500)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d,3,%d,%d)", ada.ID, post.ID, i+1)
	}
	insert := "INSERT INTO notifications (user_id, kind, post_id, milestone) VALUES " + strings.Join(rows, ",")
	_, err := store.Pool().ExecContext(t.Context(), insert)
	require.NoError(t, err)
	write(t, store, bob, post, nil)
	n, err := people.New(store).UnreadCount(t.Context(), ada.ID)
	require.NoError(t, err)
	assert.Equal(t, int64(models.MaxUnread), n)
	last := count(t, store, "SELECT MAX(id) FROM notifications")
	require.NoError(t, people.New(store).ReadNotificationsUpTo(t.Context(), ada.ID, int64(last)-1))
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM notifications WHERE read_at IS NULL"))
}

func TestPurgeNotifications(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	for i, days := range [][2]int{{0, -1}, {91, -1}, {364, -1}, {366, -1}, {400, 91}, {92, 91}, {92, 89}, {400, 1}} {
		const insert = `
			INSERT INTO notifications (user_id, kind, post_id, milestone, created_at, read_at)
			VALUES (?,?,?,?, NOW()-INTERVAL ? DAY, IF(?<0,NULL,NOW()-INTERVAL ? DAY))`
		_, err := store.Pool().ExecContext(t.Context(), insert,
			ada.ID, models.NotifyMilestone, post.ID, i+1, days[0], days[1], days[1])
		require.NoError(t, err)
	}
	n, err := people.New(store).PurgeNotifications(t.Context(), 2)
	require.NoError(t, err)
	assert.Equal(t, int64(2), n, "no more than asked for")
	n, err = people.New(store).PurgeNotifications(t.Context(), 100)
	require.NoError(t, err)
	assert.Equal(t, int64(1), n)
	assert.Equal(t, "1 2 3 7 8", notified(t, store, ada))
}

// TestCreateComment_notifiesOnceWhenRetried makes the transaction the victim of a deadlock.
func TestCreateComment_notifiesOnceWhenRetried(t *testing.T) {
	t.Parallel()
	var retried atomic.Int64
	store, err := db.Open(
		t.Context(),
		testkit.Database(t),
		db.Options{Retried: func(db.RetryCause) { retried.Add(1) }},
	)
	require.NoError(t, err)
	defer store.Close()
	ada, bob, cyd := newUser(t, store, "ada"), newUser(t, store, "bob"), newUser(t, store, "cyd")
	post := newPost(t, store, ada)
	parent := write(t, store, ada, post, nil)
	for i := range 200 {
		newUser(t, store, fmt.Sprintf("user%d", i))
	}

	other, err := store.Pool().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	// The database ends the transaction that has changed less.
	_, err = other.ExecContext(t.Context(), "UPDATE users SET bio='changed' WHERE username LIKE 'user%'")
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), "UPDATE comments SET content='locked' WHERE id=?", parent.ID)
	require.NoError(t, err)
	var created sync.WaitGroup
	created.Go(func() {
		_, err := content.New(store).CreateComment(
			context.Background(),
			bob,
			post.ID,
			&parent.ID,
			models.CommentText{Content: "text", Mentions: []string{"cyd"}},
		)
		assert.NoError(t, err)
	})
	awaitStatement(t, store, "UPDATE comments FORCE INDEX (PRIMARY)%SET replies_count%")
	_, err = other.ExecContext(t.Context(), "UPDATE posts SET title='locked' WHERE id=?", post.ID)
	require.NoError(t, err)
	require.NoError(t, other.Commit())
	created.Wait()
	assert.Equal(t, int64(1), retried.Load(), "no deadlock, no test")
	assert.Equal(t, "reply", notified(t, store, ada))
	assert.Equal(t, "mention", notified(t, store, cyd))
	assert.Equal(t, 2, count(t, store, "SELECT COUNT(*) FROM comments"))
}

// awaitStatement waits until a connection runs a statement like this, and returns its id.
func awaitStatement(t *testing.T, store *db.DB, like string) (connection int) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		connection = count(t, store, `
			SELECT COALESCE(MAX(id),0)
			FROM information_schema.processlist
			WHERE db=DATABASE() AND info LIKE ?`, like)
		return connection != 0, "no statement like " + like
	})
	return connection
}

func TestCreateComment_notifiesNobodyWhenKilled(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, bob := newUser(t, store, "ada"), newUser(t, store, "bob")
	post := newPost(t, store, ada)
	// A transaction that notifies this user waits for the lock.
	other, err := store.Pool().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	var next int64
	require.NoError(
		t,
		store.Pool().QueryRowContext(t.Context(), "SELECT COALESCE(MAX(id),0)+1 FROM comments").Scan(&next),
	)
	// It begins with other words than the store's INSERT, because MySQL lists a statement for a moment after it has
	// answered.
	_, err = other.ExecContext(
		t.Context(),
		"INSERT IGNORE INTO notifications (user_id, kind, post_id, comment_id) VALUES (?,1,?,?)",
		ada.ID,
		post.ID,
		next,
	)
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := content.New(store).CreateComment(context.Background(), bob, post.ID, nil,
			models.CommentText{Content: "hello"})
		failed <- err
	}()
	id := awaitStatement(t, store, "INSERT INTO notifications%")
	_, err = store.Pool().ExecContext(t.Context(), fmt.Sprintf("KILL %d", id))
	require.NoError(t, err)
	require.Error(t, <-failed)
	require.NoError(t, other.Rollback())
	assert.Empty(t, notified(t, store, ada))
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM comments"))
	assert.Zero(t, count(t, store, "SELECT comments_count FROM posts"))
	write(t, store, bob, post, nil)
	assert.Equal(t, "reply", notified(t, store, ada))
}

// rowsRead is how many rows a connection of the store has read, going by the server's own count. The store must have
// one connection only.
func rowsRead(t *testing.T, store *db.DB) int {
	t.Helper()
	rows, err := store.Pool().QueryContext(t.Context(), `
		SHOW SESSION STATUS
		WHERE Variable_name LIKE 'Handler_read%' OR Variable_name='Sort_rows'`)
	require.NoError(t, err)
	defer rows.Close()
	sum := 0
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		sum += n
	}
	require.NoError(t, rows.Err())
	return sum
}

// TestLists_ofAUserReadOnlyTheirPage counts the rows that pages at the beginning and far behind make the server
// read.
func TestLists_ofAUserReadOnlyTheirPage(t *testing.T) {
	t.Parallel()
	store := openWith(t, db.Options{MaxConns: 1})
	ada, bob := newUser(t, store, "ada"), newUser(t, store, "bob")
	const n, page = 20_000, 20
	insert := func(into string, row func(i int) string) {
		for start := 0; start < n; start += 2000 {
			rows := make([]string, 2000)
			for i := range rows {
				rows[i] = row(start + i)
			}
			_, err := patient(store).ExecContext(t.Context(), "INSERT INTO "+into+" VALUES "+strings.Join(rows, ","))
			require.NoError(t, err)
		}
	}
	// Of a table of a few rows the servers rather read all, and sort.
	insert(
		"users (username, email, password_hash)",
		func(i int) string { return fmt.Sprintf("('user%d','user%d@x','')", i, i) },
	)
	insert(
		"posts (id, user_id, title, content)",
		func(i int) string { return fmt.Sprintf("(%d,%d,'t','c')", i+1, bob.ID) },
	)
	insert("notifications (user_id, kind, actor_id, post_id, read_at)", func(i int) string {
		read := "NULL"
		if i%2 == 0 {
			read = "NOW()"
		}
		return fmt.Sprintf("(%d,2,%d,%d,%s)", []int64{ada.ID, bob.ID}[i/4%2], bob.ID, i+1, read)
	})
	insert(
		"bookmarks (user_id, post_id)",
		func(i int) string { return fmt.Sprintf("(%d,%d)", []int64{ada.ID, bob.ID}[i/4%2], i+1) },
	)
	_, err := store.Pool().ExecContext(t.Context(), "ANALYZE TABLE posts, notifications, bookmarks, users")
	require.NoError(t, err)
	for name, list := range map[string]func(before int64) (int, error){
		"notifications": func(before int64) (int, error) {
			list, _, err := people.New(store).Notifications(t.Context(), ada.ID, false, before, page)
			return len(list), err
		},
		"unread": func(before int64) (int, error) {
			list, _, err := people.New(store).Notifications(t.Context(), ada.ID, true, before, page)
			return len(list), err
		},
		"unread count": func(int64) (int, error) {
			n, err := people.New(store).UnreadCount(t.Context(), ada.ID)
			return int(n) / (models.MaxUnread / page), err
		},
		"bookmarks": func(before int64) (int, error) {
			list, _, err := reader.New(store).BookmarkedPosts(t.Context(), ada.ID, before, page)
			return len(list), err
		},
	} {
		_, err := list(0) // opens its tables, and MySQL counts what it reads of its own dictionary for that
		require.NoError(t, err)
		for _, before := range []int64{0, n / 2} {
			start := rowsRead(t, store)
			got, err := list(before)
			require.NoError(t, err)
			read := rowsRead(t, store) - start
			assert.Equal(t, page, got, name)
			limit := page * 16 // the row, its post, author, comment, and the rows that decide whether it is hidden
			if name == "unread count" {
				limit = models.MaxUnread * 8
			}
			assert.Less(t, read, limit, "%s before %d", name, before)
		}
	}
}
