package handlers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// A banned account stays banned after an admin deletes it: its names cannot be registered until the ban ends.
func TestBan_outlivesItsAccount(t *testing.T) {
	t.Parallel()
	var ahead clock
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{Now: ahead.now})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	a := serve(t, store)
	ada, mod, admin := a.person(t, "ada"), a.promoted(t, a.account(t), models.RoleModerator),
		a.promoted(t, a.account(t), models.RoleAdmin)
	post := a.newPost(t, ada)
	path, why := adminPath(ada, "delete"), obj{"reason": "Asked to go."}
	a.refused(t, 409, "conflict", admin, "POST", path, why)
	a.must(t, 200, mod, "POST", adminPath(ada, "ban"), obj{"reason": "Spam.", "until": ahead.now().Add(time.Hour)})
	a.refused(t, 403, "forbidden", mod, "POST", path, why)
	a.refusedField(t, 422, "invalid", "reason", admin, "POST", path, obj{"reason": " "})
	a.refused(t, 404, "not_found", admin, "POST", "/v1/admin/users/424242/delete", why)
	a.must(t, 204, admin, "POST", path, why)
	a.refused(t, 404, "not_found", admin, "POST", path, why)
	a.must(t, 404, account{}, "GET", fmt.Sprintf("/v1/users/%d", ada.ID), nil)
	a.must(t, 200, account{}, "GET", pathOf(post), nil) // what the user wrote stays
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": password})

	register := func(field, name, email string) {
		t.Helper()
		in := obj{"username": name, "email": email, "password": password}
		if field == "" {
			a.must(t, 201, account{}, "POST", "/v1/auth/register", in)
			return
		}
		a.refusedField(t, 409, "conflict", field, account{}, "POST", "/v1/auth/register", in)
	}
	register("username", "Ada", "other@example.org")
	register("email", "other", "ADA@example.org")
	if n := a.number(t, "SELECT COUNT(*) FROM users WHERE username='other' OR email='other@example.org'"); n != 0 {
		t.Errorf("registrations that were refused left %d accounts", n)
	}
	if n := a.number(t, `
		SELECT COUNT(*)
		FROM moderation_log
		WHERE action='user.delete' AND actor_id=? AND target_id=?
			AND reason='Asked to go.' AND before_state LIKE '%Spam.%'`,
		admin.ID, ada.ID); n != 1 {
		t.Errorf("the moderation log has it %d times", n)
	}
	if n := a.number(t, "SELECT COUNT(*) FROM security_log WHERE kind='account.deleted' AND actor_id=? AND user_id=?",
		admin.ID, ada.ID); n != 1 {
		t.Errorf("the security log has it %d times", n)
	}

	ahead.advance(2 * time.Hour)
	register("username", "Ada", "other@example.org") // for good, like that of every deleted account
	register("", "other", "ADA@example.org")
	purged, err := accounts.New(store).PurgeHeldNames(t.Context(), 1000)
	if err != nil || purged != 1 {
		t.Errorf("%d names are purged, %v", purged, err)
	}
}
