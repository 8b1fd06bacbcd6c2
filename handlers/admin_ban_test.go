package handlers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
)

// promoted sets the role of an account.
func (a *api) promoted(t *testing.T, as account, role models.Role) account {
	t.Helper()
	// SetRole is logged.
	if _, err := a.store.Pool().Exec("UPDATE users SET role=? WHERE id=?", role, as.ID); err != nil {
		t.Fatal(err)
	}
	return as
}

func adminPath(user account, what string) string {
	return fmt.Sprintf("/v1/admin/users/%d/%s", user.ID, what)
}

func TestBan_lastsUntilItEnds(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	mod := a.promoted(t, a.account(t), models.RoleModerator)
	ada := a.person(t, "ada")
	phone := a.login(t, "ada", password)
	bot := ada.with(a.newToken(t, ada, "read", "write").Token)
	post := a.newPost(t, ada)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)

	login := func() reply {
		t.Helper()
		return a.send(t, account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": password})
	}
	banned := func(until, reason string) {
		t.Helper()
		a.refused(t, 403, "banned", account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": password})
		if r := login().String(); !strings.Contains(r, fmt.Sprintf(`"ban":{"until":%s,"reason":%q}`, until, reason)) {
			t.Errorf("the ban is told as %s", r)
		}
		// Without the password, the answer does not mention the ban.
		if _, r := a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login",
			obj{"login": "ada", "password": "not the password"}); strings.Contains(r.String(), "ban") {
			t.Errorf("a stranger is told %s", r)
		}
	}
	r := a.must(t, 200, mod, "POST", adminPath(ada, "ban"), obj{"until": until, "reason": "Spam."})
	if want := fmt.Sprintf(`200 {"until":%q,"reason":"Spam."}`, until.Format(time.RFC3339)); r.String() != want {
		t.Errorf("%s, want %s", r, want)
	}
	for _, as := range []account{ada, phone, bot} {
		a.refused(t, 401, "unauthorized", as, "GET", "/v1/me", nil)
		a.refused(t, 401, "unauthorized", as, "POST", "/v1/posts", obj{"title": "T", "content": "C"})
		a.refused(t, 401, "unauthorized", as, "PUT", pathOf(post)+"/like", nil)
	}
	banned(`"`+until.Format(time.RFC3339)+`"`, "Spam.")
	a.must(t, 200, account{}, "GET", pathOf(post), nil) // what the user wrote stays

	// A token that an operator creates for the user does not work until the ban ends.
	token, err := accounts.New(a.store).CreateSession(t.Context(), ada.ID)
	require.NoError(t, err)
	a.refused(t, 401, "unauthorized", ada.with(token), "GET", "/v1/me", nil)

	a.must(t, 200, mod, "POST", adminPath(ada, "ban"), obj{"reason": "Spam, again."})
	banned("null", "Spam, again.")
	for range 2 {
		a.must(t, 204, mod, "POST", adminPath(ada, "unban"), obj{"reason": "It was somebody else."})
	}
	in := a.login(t, "ada", password)
	a.must(t, 200, in, "GET", "/v1/me", nil)
	a.refused(t, 401, "unauthorized", bot, "GET", "/v1/me", nil)

	a.must(t, 200, mod, "POST", adminPath(ada, "ban"), obj{"until": until, "reason": "Spam."})
	if _, err := a.store.Pool().Exec("UPDATE users SET banned_until=? WHERE id=?", time.Now().UTC().Add(-time.Second),
		ada.ID); err != nil {
		t.Fatal(err)
	}
	a.must(t, 200, a.login(t, "ada", password), "GET", "/v1/me", nil) // it has ended by itself
}

func TestBan_takesEffectElsewhereWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	var ahead clock
	here, there := serve(t, store), serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	ada := here.account(t)
	mod := here.promoted(t, here.account(t), models.RoleModerator)
	there.must(t, 200, ada, "GET", "/v1/me", nil)
	here.must(t, 200, mod, "POST", adminPath(ada, "ban"), obj{"reason": "Spam."})
	here.refused(t, 401, "unauthorized", ada, "GET", "/v1/me", nil)
	ahead.advance(5 * time.Second)
	there.refused(t, 401, "unauthorized", ada, "GET", "/v1/me", nil)
}

func TestBan_needsRankAndAReason(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	user, other := a.account(t), a.account(t)
	mod, mod2 := a.promoted(t, a.account(t), models.RoleModerator), a.promoted(t, a.account(t), models.RoleModerator)
	admin, admin2 := a.promoted(t, a.account(t), models.RoleAdmin), a.promoted(t, a.account(t), models.RoleAdmin)
	for _, what := range []string{"ban", "unban"} {
		for by, whom := range map[account][]account{user: {other, mod, admin, user}, mod: {mod2, admin, mod},
			admin: {admin}} {
			for _, u := range whom {
				a.refused(t, 403, "forbidden", by, "POST", adminPath(u, what), obj{"reason": "x"})
			}
		}
		a.refused(t, 404, "not_found", mod, "POST", "/v1/admin/users/424242/"+what, obj{"reason": "x"})
		a.refused(t, 404, "not_found", mod, "POST", "/v1/admin/users/x/"+what, obj{"reason": "x"})
		for _, reason := range []any{nil, "", "  ", strings.Repeat("é", 501), "a\nb", "\u202e"} {
			a.refusedField(t, 422, "invalid", "reason", mod, "POST", adminPath(user, what), obj{"reason": reason})
		}
	}
	for _, until := range []string{"", "tomorrow", "2020-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
		"2999-13-01T00:00:00Z", time.Now().UTC().Format(time.RFC3339)} {
		a.refusedField(t, 422, "invalid", "until", mod, "POST", adminPath(user, "ban"),
			obj{"until": until, "reason": "x"})
	}
	if n := a.number(t, `
		SELECT (SELECT COUNT(*) FROM users WHERE banned_until IS NOT NULL OR ban_reason<>'')
			+ (SELECT COUNT(*) FROM moderation_log)`); n != 0 {
		t.Errorf("refused requests left %d rows", n)
	}
	// In this order: a banned user cannot ban.
	for _, pair := range [][2]account{{mod, user}, {admin, mod2}, {admin2, admin}} {
		a.must(t, 200, pair[0], "POST", adminPath(pair[1], "ban"), obj{"reason": strings.Repeat("é", 500)})
	}
}

// If two moderators ban or demote each other at the same time, one is refused, even with a cached session.
func TestRole_ofAdminsNeverRunsOut(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	for range 20 {
		pair := []account{a.promoted(t, a.account(t), models.RoleAdmin), a.promoted(t, a.account(t), models.RoleAdmin)}
		for _, as := range pair {
			a.must(t, 200, as, "GET", "/v1/me", nil)
		}
		statuses := make([]int, 2)
		together(2, func(i int) {
			r, err := a.try(pair[i], "PUT", adminPath(pair[1-i], "role"), obj{"role": "user", "reason": "A coup."})
			assert.NoError(t, err)
			statuses[i] = r.Status
		})
		slices.Sort(statuses)
		// Its sessions have ended, or its role is lower.
		if statuses[0] != 200 || statuses[1] != 401 && statuses[1] != 403 {
			t.Errorf("answers %v", statuses)
		}
		if n := a.number(t, "SELECT COUNT(*) FROM users WHERE role=3 AND id IN (?,?)", pair[0].ID, pair[1].ID); n != 1 {
			t.Errorf("%d admins are left", n)
		}
	}
}

func TestRole_isChangedByAdminsAlone(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	var ahead clock
	a := serve(t, store)
	there := serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	admin := a.promoted(t, a.account(t), models.RoleAdmin)
	user, other := a.account(t), a.account(t)
	body := func(role string) obj { return obj{"role": role, "reason": "Keeps order."} }
	there.refused(t, 403, "forbidden", user, "POST", adminPath(other, "ban"), obj{"reason": "x"})
	if r := a.must(t, 200, admin, "PUT", adminPath(user, "role"),
		body("moderator")).String(); r != `200 {"role":"moderator"}` {
		t.Errorf("%s", r)
	}
	ahead.advance(5 * time.Second)
	there.must(t, 200, user, "POST", adminPath(other, "ban"), obj{"reason": "x"}) // with the same session
	a.refused(t, 403, "forbidden", user, "PUT", adminPath(other, "role"), body("moderator"))
	a.refused(t, 403, "forbidden", user, "PUT", adminPath(user, "role"), body("admin"))
	a.refused(t, 403, "forbidden", admin, "PUT", adminPath(admin, "role"), body("user"))
	a.refused(t, 404, "not_found", admin, "PUT", "/v1/admin/users/424242/role", body("user"))
	for _, role := range []string{"", "Admin", "anonymous", "owner", "3"} {
		a.refusedField(t, 422, "invalid", "role", admin, "PUT", adminPath(user, "role"), body(role))
	}
	a.refusedField(t, 422, "invalid", "reason", admin, "PUT", adminPath(user, "role"), obj{"role": "user"})
	a.must(t, 200, admin, "PUT", adminPath(user, "role"), body("user"))
	// The cached session does not help.
	there.refused(t, 401, "unauthorized", user, "POST", adminPath(other, "unban"), obj{"reason": "x"})
}

func TestBan_andRolesAreInTheLog(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	admin, user := a.promoted(t, a.account(t), models.RoleAdmin), a.account(t)
	a.must(t, 200, admin, "POST", adminPath(user, "ban"), obj{"until": "2998-01-01T00:00:00Z", "reason": "One."})
	a.must(t, 200, admin, "POST", adminPath(user, "ban"), obj{"reason": "Two."})
	a.must(t, 204, admin, "POST", adminPath(user, "unban"), obj{"reason": "Three."})
	a.must(t, 200, admin, "PUT", adminPath(user, "role"), obj{"role": "moderator", "reason": "Four."})
	rows, err := a.store.Pool().QueryContext(t.Context(),
		`SELECT actor_id, target_id, CONCAT_WS(' ', action, target_type, reason, before_state, after_state)
		FROM moderation_log
		ORDER BY id`)
	require.NoError(t, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var actor, target int64
		var act string
		require.NoError(t, rows.Scan(&actor, &target, &act))
		if actor != admin.ID || target != user.ID {
			t.Errorf("%d on %d: %s", actor, target, act)
		}
		got = append(got, strings.ReplaceAll(act, ": ", ":")) // MySQL writes JSON its own way
	}
	require.NoError(t, rows.Err())
	want := []string{
		`user.ban user One. {"banned_until":null} {"ban_reason":"One.","banned_until":"2998-01-01T00:00:00Z"}`,
		`user.ban user Two. {"ban_reason":"One.","banned_until":"2998-01-01T00:00:00Z"} ` +
			`{"ban_reason":"Two.","banned_until":"9999-12-31T00:00:00Z"}`,
		`user.unban user Three. {"ban_reason":"Two.","banned_until":"9999-12-31T00:00:00Z"} {"banned_until":null}`,
		`user.role user Four. {"role":"user"} {"role":"moderator"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
