package models_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// A login checks the password before it opens the session; meanwhile the password may have gone.
func TestLogin_comesToNothingAfterItsPassword(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	user := &models.User{Username: "ada", Email: "ada@example.org", PasswordHash: "first"}
	token, err := store.Register(ctx, user, "")
	require.NoError(t, err)
	keep := models.HashToken(token)
	before := *user
	ended, err := store.ChangePassword(ctx, user.ID, "first", "second", keep)
	require.NoError(t, err)
	assert.Empty(t, ended)
	_, err = store.Login(ctx, &before, "")
	assert.Equal(t, models.CodeUnauthorized, models.ErrorCode(err))
	_, err = store.ChangePassword(ctx, user.ID, "first", "third", keep)
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err))
	_, err = store.DeleteUser(ctx, user.ID, "first")
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err))

	user.PasswordHash = "second"
	other, err := store.Login(ctx, user, "")
	require.NoError(t, err)
	ended, err = store.DeleteUser(ctx, user.ID, "second")
	require.NoError(t, err)
	assert.ElementsMatch(t, [][32]byte{keep, models.HashToken(other)}, ended)
	_, err = store.Login(ctx, user, "")
	assert.Equal(t, models.CodeUnauthorized, models.ErrorCode(err))
	late, err := store.CreateSession(ctx, user.ID)
	if err == nil {
		_, err = store.SessionByHash(ctx, models.HashToken(late))
	}
	assert.Error(t, err, "a session of a deleted account")
}
