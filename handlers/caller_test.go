package handlers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/privacy"
)

// A cached session is accepted for seconds after a ban. It must not suffice for any write but a like, which works
// without MySQL.
func TestBan_isCheckedByEveryWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, o := range operations(t) {
		if o.method == "GET" || o.rule.Scope == models.NoToken || o.rule.Least == models.RoleAnonymous ||
			o.op.value["x-permission"] == "like.set" || o.id == "renderText" { // these do not query MySQL
			continue
		}
		banned := w.someone(caller{role: max(o.rule.Least, models.RoleUser)})
		owner := banned
		if o.rule.On == models.Others || o.rule.On == models.Lower {
			owner = w.someone(caller{role: models.RoleUser})
		}
		path, headers := o.request(w, banned, owner)
		w.must(t, 200, banned, "GET", "/v1/me", nil) // caches the session
		w.exec("UPDATE users SET banned_until='9999-12-31', ban_reason='Spam.' WHERE id=?", banned.ID)
		before := w.checksums()
		if r := w.ask(o, banned, path, o.body(t), headers); r.Status != 401 {
			t.Errorf("%s of a banned user: %s, want 401", o.id, r)
		}
		for table, sum := range w.checksums() {
			if sum != before[table] {
				t.Errorf("%s of a banned user changed %s", o.id, table)
			}
		}
	}
}

// A banned user cannot end the ban by deleting the account, and the names stay taken.
func TestBan_outlivesTheAttemptToDeleteTheAccount(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	here, there := serve(t, store), serve(t, store)
	ada := here.person(t, "ada")
	mod := here.promoted(t, here.account(t), models.RoleModerator)
	there.must(t, 200, ada, "GET", "/v1/me", nil)
	here.must(t, 200, mod, "POST", adminPath(ada, "ban"), obj{"reason": "Spam."})
	there.must(t, 200, ada, "GET", "/v1/me", nil) // still cached there
	there.refused(t, 401, "unauthorized", ada, "DELETE", "/v1/me", obj{"password": password})
	user, err := accounts.New(store).UserByID(t.Context(), ada.ID)
	require.NoError(t, err)
	if _, err := privacy.New(store).DeleteUser(t.Context(), user.ID,
		user.PasswordHash); models.ErrorCode(err) != models.CodeBanned {
		t.Errorf("deleting a banned account: %v", err)
	}
	for field, in := range map[string]obj{
		"username": {"username": "Ada", "email": "other@example.org", "password": password},
		"email":    {"username": "other", "email": "ADA@example.org", "password": password},
	} {
		here.refusedField(t, 409, "conflict", field, account{}, "POST", "/v1/auth/register", in)
	}
}

// A demotion ends the sessions and tokens of the higher role for good, even if the role is restored.
func TestRole_demotionEndsSessionsAndTokensForGood(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	var ahead clock
	a, there := serve(t, store), serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	admin := a.promoted(t, a.account(t), models.RoleAdmin)
	mod := a.person(t, "byron")
	role := func(role string) {
		t.Helper()
		a.must(t, 200, admin, "PUT", adminPath(mod, "role"), obj{"role": role, "reason": "Keeps order."})
	}
	role("moderator")
	a.must(t, 200, mod, "GET", "/v1/me", nil) // a promotion ends nothing
	ahead.advance(5 * time.Second)
	bot := mod.with(a.newToken(t, a.login(t, "byron", password), "moderate").Token)
	for _, at := range []*api{a, there} {
		at.must(t, 200, bot, "GET", "/v1/admin/posts", nil)
	}
	role("user")
	a.refused(t, 401, "unauthorized", bot, "GET", "/v1/admin/posts", nil)
	a.refused(t, 401, "unauthorized", mod, "GET", "/v1/me", nil)
	role("moderator")
	ahead.advance(5 * time.Second)
	for _, at := range []*api{a, there} {
		at.refused(t, 401, "unauthorized", bot, "GET", "/v1/admin/posts", nil)
		at.refused(t, 401, "unauthorized", mod, "GET", "/v1/me", nil)
	}
	a.newToken(t, a.login(t, "byron", password), "moderate")
	// the operator's command does the same
	require.NoError(t, accounts.New(store).SetRole(t.Context(), mod.ID, models.RoleUser))
	if n := a.number(t, "SELECT COUNT(*) FROM sessions WHERE user_id=?", mod.ID); n != 0 {
		t.Errorf("%d sessions outlive a demotion", n)
	}
}
