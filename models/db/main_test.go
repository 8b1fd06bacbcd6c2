package db_test

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/webhooks"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// openStore returns a store on a database of the test.
func openStore(t testing.TB) *db.DB {
	t.Helper()
	return openWith(t, db.Options{})
}

// openWith returns a store with options on a database of the test. Its excerpts are beginnings of the content.
func openWith(t testing.TB, options db.Options) *db.DB {
	t.Helper()
	options.Excerpt, options.Describe = beginning, webhooks.Describe
	dsn := testkit.Database(t)
	store, err := db.Open(t.Context(), dsn, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	addPatient(t, store, dsn)
	return store
}

// beginning returns at most models.MaxExcerpt characters of content.
func beginning(content string) string {
	runes := []rune(content)
	return string(runes[:min(len(runes), models.MaxExcerpt)])
}

// patients holds a pool without a deadline for each store, by *db.DB. A store cancels a statement
// after 15 s, and on a busy machine a statement that fills a table may take longer.
var patients sync.Map

// addPatient opens the pool of a store on the database that dsn names.
func addPatient(t testing.TB, store *db.DB, dsn string) {
	t.Helper()
	dsn, err := db.DSN(dsn)
	require.NoError(t, err)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.ReadTimeout = 0
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	patients.Store(store, pool)
	t.Cleanup(func() {
		patients.Delete(store)
		require.NoError(t, pool.Close())
	})
}

// patient returns the pool of a store for statements that fill tables.
func patient(store *db.DB) *sql.DB {
	if pool, ok := patients.Load(store); ok {
		return pool.(*sql.DB)
	}
	return store.Pool() // of a store that the test has opened itself
}

func newUser(t testing.TB, store *db.DB, name string) models.Author {
	t.Helper()
	u := &models.User{Username: name, Email: name + "@example.org"}
	require.NoError(t, accounts.New(store).CreateUser(t.Context(), u))
	return models.Author{ID: u.ID, Username: name}
}

func newPost(t testing.TB, store *db.DB, author models.Author) *models.Post {
	t.Helper()
	p, err := content.New(store).CreatePost(t.Context(), author, models.PostText{Title: "A post", Content: "with text"})
	require.NoError(t, err)
	return p
}

func newComment(t testing.TB, store *db.DB, author models.Author, post *models.Post, parent *models.Comment,
) *models.Comment {
	t.Helper()
	var parentID *int64
	if parent != nil {
		parentID = &parent.ID
	}
	c, err := content.New(store).CreateComment(t.Context(), author, post.ID, parentID,
		models.CommentText{Content: "a comment"})
	require.NoError(t, err)
	return c
}

func count(t testing.TB, store *db.DB, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, store.Pool().QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

// past is before the time of any clock in a test.
var past = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

// awaitWaiting waits until a statement like this one, of a call that must not end meanwhile, runs in the database.
func awaitWaiting(t *testing.T, store *db.DB, statement string, ended *atomic.Bool) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		return ended.Load() || count(t, store, `
			SELECT COUNT(*)
			FROM information_schema.processlist
			WHERE db=DATABASE() AND id<>CONNECTION_ID() AND info LIKE ?`, statement) > 0, "no statement waits"
	})
	require.False(t, ended.Load(), "it did not wait: %s", statement)
}
