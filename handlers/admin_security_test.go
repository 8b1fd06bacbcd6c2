package handlers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

type securityEvent struct {
	Kind      string
	AccountID *int64  `json:"account_id"`
	ActorID   *int64  `json:"actor_id"`
	LoginHash *string `json:"login_hash"`
	Address   *string
	UserAgent string `json:"user_agent"`
	Detail    string
	Count     int64
}

func (a *api) securityLog(t *testing.T, admin account, query string) []securityEvent {
	t.Helper()
	var events []securityEvent
	for cursor := ""; ; {
		p := read[page[securityEvent]](t,
			a.must(t, 200, admin, "GET", "/v1/admin/security-log?limit=3&"+query+cursor, nil))
		events = append(events, p.Items...)
		if p.NextCursor == nil {
			return events
		}
		cursor = "&cursor=" + *p.NextCursor
	}
}

func TestSecurityLog_recordsWhatHappensToAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], behindProxy)
	admin := a.promoted(t, a.account(t), models.RoleAdmin)
	from, agent := comesFrom("192.0.2.7"), header{"User-Agent", "Phone/1"}
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "byron", "email": "byron@example.org", "password": password}, from, agent)
	in := func(pass string) account {
		t.Helper()
		s := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login",
			obj{"login": "byron", "password": pass}, from, agent))
		return account{ID: s.User.ID, Name: "byron", Token: s.Token}
	}
	const secret = "my secret typed as a name"
	ada := in(password)
	for range 3 {
		a.must(t, 401, account{}, "POST", "/v1/auth/login", obj{"login": "byron", "password": secret}, from, agent)
		a.must(t, 401, account{}, "POST", "/v1/auth/login", obj{"login": secret, "password": "x"}, from, agent)
	}
	token := a.newToken(t, ada, "read")
	a.must(t, 204, ada, "DELETE", "/v1/me/tokens/"+token.ID, nil, from)
	a.must(t, 204, in(password), "POST", "/v1/auth/logout", nil, from)
	in(password)
	a.must(t, 204, ada, "DELETE", "/v1/me/sessions", nil, from)
	a.must(t, 403, ada, "PUT", "/v1/me/password", obj{"current_password": secret, "new_password": "analytical engine"},
		from)
	a.must(t, 204, ada, "PUT", "/v1/me/password",
		obj{"current_password": password, "new_password": "analytical engine"}, from)
	for _, role := range []string{"moderator", "user"} {
		a.must(t, 200, admin, "PUT", adminPath(ada, "role"), obj{"role": role, "reason": "x"}, from)
	}
	a.must(t, 200, admin, "POST", adminPath(ada, "ban"), obj{"reason": "x"}, from)
	a.must(t, 204, admin, "POST", adminPath(ada, "unban"), obj{"reason": "x"}, from)
	a.must(t, 200, admin, "GET", fmt.Sprintf("/v1/admin/users/%d", ada.ID), nil, from)
	a.must(t, 200, admin, "GET", "/v1/admin/users?email=byr", nil, from)
	a.must(t, 204, in("analytical engine"), "DELETE", "/v1/me", obj{"password": "analytical engine"}, from)

	counts := map[string]int64{}
	for _, e := range a.securityLog(t, admin, fmt.Sprintf("account=%d", ada.ID)) {
		counts[e.Kind] += e.Count
		if *e.AccountID != ada.ID || e.Kind != "token.created" && (e.Address == nil || *e.Address != "192.0.2.7") {
			t.Errorf("event %+v", e)
		}
		byAdmin := strings.HasPrefix(e.Kind, "role.") || strings.HasSuffix(e.Kind, "banned") ||
			strings.HasPrefix(e.Kind, "email.")
		if byAdmin != (e.ActorID != nil && *e.ActorID == admin.ID) {
			t.Errorf("the actor of %+v is wrong", e)
		}
		if e.Kind == "login" && e.UserAgent != "Phone/1" {
			t.Errorf("the client of %+v is not named", e)
		}
	}
	want := map[string]int64{"account.created": 1, "login": 4, "login.failed": 3, "token.created": 1,
		"token.revoked": 1, "logout": 1, "session.ended": 1, "password.failed": 1,
		"password.changed": 1, "role.changed": 2, "account.banned": 1, "account.unbanned": 1, "email.read": 1,
		"account.deleted": 1}
	if fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("the log has %v, want %v", counts, want)
	}
	strangers := a.securityLog(t, admin, "kind=login.failed&address=192.0.2.7&since=2020-01-01T00:00:00Z")
	if len(strangers) != 2 || strangers[0].Count != 3 ||
		(strangers[0].LoginHash == nil) == (strangers[1].LoginHash == nil) {
		t.Errorf("failed logins %+v", strangers)
	}
	if n := len(a.securityLog(t, admin, fmt.Sprintf("actor=%d", admin.ID))); n != 6 {
		t.Errorf("%d acts of the admin, want 6", n)
	}
	all, err := json.Marshal(a.securityLog(t, admin, ""))
	if err != nil || strings.Contains(string(all), secret) || strings.Contains(string(all), "byron@") {
		t.Errorf("the log holds a secret: %s, %v", all, err)
	}
	a.refused(t, 403, "forbidden", a.moderator(t), "GET", "/v1/admin/security-log", nil)
	for query, field := range map[string]string{"account=x": "account", "actor=0": "actor", "address=here": "address",
		"kind=A": "kind", "since=now": "since"} {
		a.refusedField(t, 422, "invalid", field, admin, "GET", "/v1/admin/security-log?"+query, nil)
	}
	if _, err := a.store.Pool().Exec("UPDATE security_log SET created_at=?",
		time.Now().UTC().Add(-models.SecurityLogLife-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := accounts.New(a.store).PurgeSecurityLog(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	if n := a.number(t, "SELECT COUNT(*) FROM security_log"); n != 0 {
		t.Errorf("%d events outlive their time", n)
	}
}

// The rows of an hour are bounded whatever clients try, and every event is counted.
func TestSecurityLog_cannotBeFilled(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	ada := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(store).CreateUser(t.Context(), ada))
	number := func(query string) (n int64) {
		t.Helper()
		require.NoError(t, store.Pool().QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	failed := 0
	fail := func(address, login string) {
		t.Helper()
		failed++
		ctx := db.WithCaller(t.Context(), &db.Caller{Address: address, UserAgent: login})
		require.NoError(t, accounts.New(store).LogFailedLogin(ctx, 0, login))
	}
	for i := range 100 { // of one address
		fail("192.0.2.1", fmt.Sprint("name", i))
	}
	if n := number("SELECT COUNT(*) FROM security_log WHERE address='192.0.2.1'"); n > 21 {
		t.Errorf("one address takes %d rows", n)
	}
	if _, err := store.Pool().Exec(`
		INSERT INTO security_log (bucket, kind, login_hash, address, user_agent, detail, created_at, last_at)
		WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<970)
		SELECT UNHEX(SHA2(i,256)), 'login.failed', '', CONCAT('10.0.0.',i), '', '',
			UTC_TIMESTAMP(3), UTC_TIMESTAMP(3)
		FROM n`); err != nil {
		t.Fatal(err)
	}
	failed += 970
	for i := range 100 { // of as many
		fail(fmt.Sprintf("198.51.100.%d", i), "name")
	}
	if n := number("SELECT COUNT(*) FROM security_log WHERE kind='login.failed'"); n > 1001 {
		t.Errorf("failed logins take %d rows", n)
	}
	if n := number("SELECT SUM(attempts) FROM security_log WHERE kind='login.failed'"); n != int64(failed) {
		t.Errorf("%d failed logins are counted, want %d", n, failed)
	}
	for i := range 50 { // by one account, from everywhere
		ctx := db.WithCaller(t.Context(), &db.Caller{Address: fmt.Sprintf("203.0.113.%d", i)})
		if _, err := accounts.New(store).Login(ctx, ada, ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := number("SELECT COUNT(*) FROM security_log WHERE kind='login'"); n > 31 {
		t.Errorf("one account takes %d rows", n)
	}
	if n := number("SELECT SUM(attempts) FROM security_log WHERE kind='login'"); n != 50 {
		t.Errorf("%d logins are counted, want 50", n)
	}
}

// emailReads selects how often an actor has read the e-mail address of a user.
const emailReads = `
	SELECT COALESCE(SUM(attempts),0)
	FROM security_log
	WHERE kind='email.read' AND user_id=? AND actor_id=?`

// A moderator can read the addresses of lower roles alone, one at a time, and each read is recorded.
func TestEmail_isReadByHigherRolesAndRecorded(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(*handlers.Config) {})
	mod, admin := a.moderator(t), a.promoted(t, a.account(t), models.RoleAdmin)
	made := map[models.Role]int64{}
	for _, role := range []models.Role{models.RoleUser, models.RoleModerator, models.RoleAdmin} {
		u := &models.User{Username: "the-" + role.String(), Email: "mail-" + role.String() + "@example.org", Role: role}
		require.NoError(t, accounts.New(a.store).CreateUser(t.Context(), u))
		made[role] = u.ID
	}
	for as, limit := range map[account]models.Role{mod: models.RoleUser, admin: models.RoleAdmin} {
		if r := a.must(t, 200, as, "GET", "/v1/admin/users", nil); strings.Contains(string(r.Body), "@example.org") {
			t.Errorf("a list shows addresses: %s", r)
		}
		for role, id := range made {
			before := a.number(t, emailReads, id, as.ID)
			r := a.must(t, 200, as, "GET", fmt.Sprintf("/v1/admin/users/%d", id), nil)
			shown := strings.Contains(string(r.Body), "@example.org")
			if shown != (role <= limit) {
				t.Errorf("of a %s: %s", role, r)
			}
			after := a.number(t, emailReads, id, as.ID)
			if shown != (after == before+1) {
				t.Errorf("the reading of a %s's address is recorded %d times", role, after-before)
			}
		}
	}
	a.refusedField(t, 403, "forbidden", "email", mod, "GET", "/v1/admin/users?email=mail-a", nil)
}
