package db_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/moderation"
	"likewise/models/privacy"
)

func TestCreateScripts_passesOverNamesThatAreTakenOrHeld(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	create := func(name, email string) *models.User {
		u := &models.User{Username: name, Email: email}
		require.NoError(t, accounts.New(store).CreateUser(t.Context(), u))
		return u
	}
	admin := create("admin", "admin@example.org")
	require.NoError(t, accounts.New(store).SetRole(t.Context(), admin.ID, models.RoleAdmin))
	create("Script-3", "c@example.org")
	create("somebody", "script-5@script"+models.NoEmailDomain)
	held := create("script-1007", "h@example.org")
	until := time.Now().Add(time.Hour)
	_, err := moderation.New(store).BanUser(t.Context(), admin.ID, held.ID, &models.Ban{Until: until, Reason: "Spam."})
	require.NoError(t, err)
	_, err = privacy.New(store).DeleteBanned(t.Context(), held.ID, "Spam.")
	require.NoError(t, err)
	const n = 2100
	ids, err := accounts.New(store).CreateScripts(t.Context(), n)
	require.NoError(t, err)
	assert.Len(t, ids, n)
	slices.Sort(ids)
	assert.Len(t, slices.Compact(ids), n)
	var names []string
	rows, err := store.Pool().Query("SELECT username FROM users WHERE username LIKE 'script-%' ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	assert.Len(t, names, n+1)
	for _, name := range []string{"script-3", "script-5", "script-1007"} {
		assert.NotContains(t, names, name)
	}
	assert.Contains(t, names, "script-2103")
	more, err := accounts.New(store).CreateScripts(t.Context(), 1)
	require.NoError(t, err)
	assert.Greater(t, more[0], ids[n-1])
}
