package db_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/privacy"
)

func TestSetRole_isLoggedAndLeavesDeletedAccountsAlone(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	ada, gone := newUser(t, store, "ada"), newUser(t, store, "gone")
	for range 2 {
		require.NoError(t, accounts.New(store).SetRole(ctx, ada.ID, models.RoleModerator))
	}
	acts, err := accounts.New(store).ModerationLog(ctx, models.ActQuery{TargetType: "user", Limit: 10})
	require.NoError(t, err)
	require.Len(t, acts, 1)
	assert.Zero(t, acts[0].Actor.ID, "a command has no actor")
	assert.Equal(t, ada.ID, acts[0].TargetID)
	assert.JSONEq(t, `{"role":"moderator"}`, *acts[0].AfterState)

	_, err = privacy.New(store).DeleteUser(ctx, gone.ID, "")
	require.NoError(t, err)
	for _, id := range []int64{gone.ID, 999_999} {
		assert.Equal(t, models.CodeNotFound, models.ErrorCode(accounts.New(store).SetRole(ctx, id, models.RoleAdmin)))
	}
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM users WHERE role=3"))
}
