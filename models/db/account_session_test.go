package db_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/privacy"
)

// A login checks the password before it opens the session; meanwhile the password may have gone.
func TestLogin_failsAfterThePasswordChanged(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	user := &models.User{Username: "ada", Email: "ada@example.org", PasswordHash: "first"}
	token, err := accounts.New(store).Register(ctx, user, "", false)
	require.NoError(t, err)
	keep := models.HashToken(token)
	before := *user
	ended, err := accounts.New(store).ChangePassword(ctx, user.ID, "first", "second", keep)
	require.NoError(t, err)
	assert.Empty(t, ended)
	_, err = accounts.New(store).Login(ctx, &before, "")
	assert.Equal(t, models.CodeUnauthorized, models.ErrorCode(err))
	_, err = accounts.New(store).ChangePassword(ctx, user.ID, "first", "third", keep)
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err))
	_, err = privacy.New(store).DeleteUser(ctx, user.ID, "first")
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err))

	user.PasswordHash = "second"
	other, err := accounts.New(store).Login(ctx, user, "")
	require.NoError(t, err)
	ended, err = privacy.New(store).DeleteUser(ctx, user.ID, "second")
	require.NoError(t, err)
	assert.ElementsMatch(t, [][32]byte{keep, models.HashToken(other)}, ended)
	_, err = accounts.New(store).Login(ctx, user, "")
	assert.Equal(t, models.CodeUnauthorized, models.ErrorCode(err))
	late, err := accounts.New(store).CreateSession(ctx, user.ID)
	if err == nil {
		found, err := accounts.New(store).SessionsByHash(ctx, [][32]byte{models.HashToken(late)})
		require.NoError(t, err)
		assert.Empty(t, found, "a session of a deleted account")
	}
}

// Of the last two admins who leave at the same moment one stays. A ban keeps its account, and goes with it once it is
// over.
func TestDeleteUser_leavesAnAdmin(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	var admins [2]*models.User
	for i := range admins {
		admins[i] = &models.User{
			Username:     "admin" + string(rune('a'+i)),
			Email:        string(rune('a'+i)) + "@example.org",
			PasswordHash: "x",
			Role:         models.RoleAdmin,
		}
		require.NoError(t, accounts.New(store).CreateUser(t.Context(), admins[i]))
	}
	var wg sync.WaitGroup
	var errs [2]error
	for i, u := range admins {
		wg.Go(func() { _, errs[i] = privacy.New(store).DeleteUser(t.Context(), u.ID, "x") })
	}
	wg.Wait()
	left := 0
	if errs[0] == nil {
		left = 1
	}
	require.NoError(t, errs[1-left])
	assert.Equal(t, models.CodeConflict, models.ErrorCode(errs[left]))
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM users WHERE role=3 AND deleted_at IS NULL"))
	exec(t, store, "UPDATE users SET banned_until='9999-12-31', ban_reason='Spam.'")
	require.NoError(t, accounts.New(store).SetRole(t.Context(), newUser(t, store, "eve").ID, models.RoleAdmin))
	_, err := privacy.New(store).DeleteUser(t.Context(), admins[left].ID, "x")
	assert.Equal(t, models.CodeBanned, models.ErrorCode(err))
	exec(t, store, "UPDATE users SET banned_until='2001-01-01'")
	_, err = privacy.New(store).DeleteUser(t.Context(), admins[left].ID, "x")
	require.NoError(t, err)
	assert.Equal(
		t,
		1,
		count(
			t,
			store,
			"SELECT COUNT(*) FROM users WHERE id=? AND banned_until IS NULL AND ban_reason=''",
			admins[left].ID,
		),
	)
}
