package models_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

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
		require.Error(t, err)
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
		return errors.Is(err, gobreaker.ErrOpenState), err.Error()
	})
	_, err = store.CreateComment(t.Context(), author, 1, nil, models.CommentText{Content: "a comment"})
	assert.ErrorIs(t, err, gobreaker.ErrOpenState, "a transaction is not begun either")

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
