package models_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/migrations"
	"likewise/models"
)

func createDatabase(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE DATABASE likewise CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")
	return err
}

// A MySQL that hangs costs the first few calls their deadline, and those after them nothing.
func TestStore_refusesAtOnceWhileMySQLIsAway(t *testing.T) {
	server, err := servers.StartMySQL(t.Context(), filepath.Join(t.TempDir(), "mysql"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, createDatabase(t.Context(), server.DSN("")))
	require.NoError(t, migrations.Up(t.Context(), server.DSN("likewise"), 0))
	store, err := models.Open(t.Context(), server.DSN("likewise"), models.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	author := newUser(t, store, "ada")

	ask := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := store.UserByID(ctx, author.ID)
		return err
	}
	require.NoError(t, ask())
	require.NoError(t, server.Pause())
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		err := ask()
		if err == nil {
			return false, "a signal takes its time: the server still answers"
		}
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
		return errors.Is(err, gobreaker.ErrOpenState), err.Error()
	})
	// Once a second a call is let through, whichever it is; the next one of its kind is not.
	for what, call := range map[string]func(context.Context) error{
		"a transaction is not begun": func(ctx context.Context) error {
			_, err := store.CreateComment(ctx, author, 1, nil, models.CommentText{Content: "a comment"})
			return err
		},
		"it is not called ready": store.Ping,
	} {
		testkit.Eventually(t, time.Minute, func() (bool, string) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			err := call(ctx)
			require.Error(t, err)
			return errors.Is(err, gobreaker.ErrOpenState), what + ": " + err.Error()
		})
	}

	require.NoError(t, server.Resume())
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		err := ask()
		return err == nil, "it does not notice that MySQL is back"
	})
	for range 20 {
		_, err := store.UserByID(t.Context(), 999)
		assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "an answer that says no is an answer")
	}
}

// Calls that wait for a connection until their time is over report nothing about the server.
func TestStore_isNotAwayWhenItsConnectionsAreBusy(t *testing.T) {
	store, err := models.Open(t.Context(), testkit.Database(t), models.Options{MaxConns: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	author := newUser(t, store, "ada")
	busy, err := store.Pool().Conn(t.Context())
	require.NoError(t, err)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := store.UserByID(ctx, author.ID)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err))
	}
	require.NoError(t, busy.Close())
	_, err = store.UserByID(t.Context(), author.ID)
	require.NoError(t, err)
}

// A server that takes no writes, because it is read-only or its disk is full, is not away: what needs no write goes on.
func TestStore_readsFromMySQLThatTakesNoWrites(t *testing.T) {
	server, err := servers.StartMySQL(t.Context(), filepath.Join(t.TempDir(), "mysql"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, createDatabase(t.Context(), server.DSN("")))
	require.NoError(t, migrations.Up(t.Context(), server.DSN("likewise"), 0))
	admin, err := sql.Open("mysql", server.DSN("likewise"))
	require.NoError(t, err)
	t.Cleanup(func() { admin.Close() })
	exec := func(statement string) {
		_, err := admin.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	exec("CREATE USER 'ordinary'@'127.0.0.1' IDENTIFIED BY 'password'") // an administrator may write all the same
	exec("GRANT ALL ON likewise.* TO 'ordinary'@'127.0.0.1'")
	ordinary, err := mysql.ParseDSN(server.DSN("likewise"))
	require.NoError(t, err)
	ordinary.User, ordinary.Passwd = "ordinary", "password"
	store, err := models.Open(t.Context(), ordinary.FormatDSN(), models.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	author := newUser(t, store, "ada")
	post := newPost(t, store, author)

	exec("SET GLOBAL read_only = 1")
	for range 20 {
		_, err := store.CreateSession(t.Context(), author.ID)
		require.Error(t, err)
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
		assert.NotErrorIs(t, err, gobreaker.ErrOpenState)
	}
	_, err = store.UserByID(t.Context(), author.ID)
	require.NoError(t, err)
	exec("SET GLOBAL read_only = 0")
	newComment(t, store, author, post, nil)
}

func TestStore_closesConnectionsThatWereCut(t *testing.T) {
	var made []net.Conn // the store is opened and used by this goroutine alone
	mysql.RegisterDialContext("cuttable", func(ctx context.Context, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		made = append(made, c)
		return c, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext("cuttable") })
	dsn, err := mysql.ParseDSN(testkit.Database(t))
	require.NoError(t, err)
	dsn.Net = "cuttable"
	store, err := models.Open(t.Context(), dsn.FormatDSN(), models.Options{})
	require.NoError(t, err)
	newUser(t, store, "ada")
	require.Positive(t, store.Pool().Stats().Idle)
	for _, c := range made {
		require.NoError(t, c.Close())
	}
	require.NoError(t, store.Close())
}
