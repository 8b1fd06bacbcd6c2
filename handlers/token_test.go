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

type apiToken struct {
	ID         string
	Name       string
	Scopes     []string
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
	Token      string
}

func (a *api) newToken(t *testing.T, as account, scopes ...string) apiToken {
	t.Helper()
	return read[apiToken](t, a.must(t, 201, as, "POST", "/v1/me/tokens",
		obj{"name": "Weekly digest", "scopes": scopes}))
}

// with is the account with another token.
func (as account) with(token string) account { return account{as.ID, as.Name, token} }

func (a *api) tokens(t *testing.T, as account) []apiToken {
	t.Helper()
	return read[page[apiToken]](t, a.must(t, 200, as, "GET", "/v1/me/tokens", nil)).Items
}

func TestToken_hasItsScopesUntilItIsRevoked(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.person(t, "ada"), a.person(t, "bob")
	made := a.newToken(t, ada, "write", "read", "write")
	if len(made.Token) != 43 || made.Name != "Weekly digest" || !slices.Equal(made.Scopes, []string{"read", "write"}) ||
		made.LastUsedAt != nil ||
		made.ExpiresAt.Sub(made.CreatedAt) != models.DefaultTokenDays*24*time.Hour {
		t.Errorf("made %+v", made)
	}
	bot := ada.with(made.Token)
	if post := a.newPost(t, bot); post.Author.Username != "ada" {
		t.Errorf("by %v", post.Author.Username)
	}
	a.must(t, 200, bot, "GET", "/v1/me", nil)
	reader := ada.with(a.newToken(t, ada, "read").Token)
	a.must(t, 200, reader, "GET", "/v1/posts", nil)
	a.refused(t, 403, "forbidden", reader, "POST", "/v1/posts", obj{"title": "T", "content": "C"})
	a.refused(t, 403, "forbidden", ada.with(a.newToken(t, ada, "write").Token), "GET", "/v1/posts", nil)
	// API tokens cannot create, list or revoke credentials.
	for _, r := range [][2]string{{"GET", "/v1/me/tokens"}, {"POST", "/v1/me/tokens"},
		{"DELETE", "/v1/me/tokens/" + made.ID}, {"GET", "/v1/me/sessions"},
		{"DELETE", "/v1/me/sessions"}, {"POST", "/v1/auth/logout"}, {"PUT", "/v1/me/password"}, {"DELETE", "/v1/me"}} {
		a.refused(t, 403, "forbidden", bot, r[0], r[1], nil)
	}

	var list []apiToken
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { // uses are recorded once a second
		list = a.tokens(t, ada)
		return len(list) == 3 && list[0].Token == "" && slices.ContainsFunc(list, func(l apiToken) bool {
			return l.ID == made.ID && l.LastUsedAt != nil
		}), fmt.Sprintf("list %+v", list)
	})
	if sessions := a.sessions(t, ada); len(sessions) != 1 {
		t.Errorf("tokens are listed as sessions: %+v", sessions)
	}
	first := read[page[apiToken]](t, a.must(t, 200, ada, "GET", "/v1/me/tokens?limit=2", nil))
	rest := read[page[apiToken]](t, a.must(t, 200, ada, "GET", "/v1/me/tokens?limit=2&cursor="+*first.NextCursor, nil))
	if all := slices.Concat(first.Items, rest.Items); rest.NextCursor != nil || len(all) != 3 ||
		all[0].ID != list[0].ID || all[2].ID != list[2].ID {
		t.Errorf("pages %+v, %+v", first, rest)
	}

	for _, id := range []string{"x", "0123456789abcdef", strings.ToUpper(made.ID) + "0", a.sessions(t, ada)[0].ID} {
		a.refused(t, 404, "not_found", ada, "DELETE", "/v1/me/tokens/"+id, nil)
	}
	a.refused(t, 404, "not_found", bob, "DELETE", "/v1/me/tokens/"+made.ID, nil)
	a.refused(t, 404, "not_found", ada, "DELETE", "/v1/me/sessions/"+made.ID, nil)
	a.must(t, 204, ada, "DELETE", "/v1/me/sessions", nil) // all other sessions
	a.must(t, 200, bot, "GET", "/v1/me", nil)
	a.must(t, 204, ada, "DELETE", "/v1/me/tokens/"+made.ID, nil)
	a.refused(t, 401, "unauthorized", bot, "GET", "/v1/me", nil)
	a.refused(t, 404, "not_found", ada, "DELETE", "/v1/me/tokens/"+made.ID, nil)
	a.must(t, 200, reader, "GET", "/v1/me", nil)

	a.must(t, 204, ada, "PUT", "/v1/me/password",
		obj{"current_password": password, "new_password": "analytical engine"})
	a.refused(t, 401, "unauthorized", reader, "GET", "/v1/me", nil)
	a.must(t, 200, ada, "GET", "/v1/me", nil)
}

func TestToken_thatBreaksARuleIsNotCreated(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for field, bodies := range map[string][]obj{
		"name": {{"scopes": []string{"read"}}, {"name": "", "scopes": []string{"read"}},
			{"name": "a\nb", "scopes": []string{"read"}},
			{"name": strings.Repeat("é", 101), "scopes": []string{"read"}},
			{"name": "\u200b\u00ad", "scopes": []string{"read"}}},
		"scopes": {{"name": "x"}, {"name": "x", "scopes": []string{}},
			{"name": "x", "scopes": []string{"read", "admin"}}, {"name": "x", "scopes": []string{"READ"}},
			{"name": "x", "scopes": []string{""}}},
		"expires_in_days": {{"name": "x", "scopes": []string{"read"}, "expires_in_days": 0},
			{"name": "x", "scopes": []string{"read"}, "expires_in_days": 366},
			{"name": "x", "scopes": []string{"read"}, "expires_in_days": -1}},
	} {
		for _, body := range bodies {
			a.refusedField(t, 422, "invalid", field, ada, "POST", "/v1/me/tokens", body)
		}
	}
	a.refusedField(t, 403, "forbidden", "scopes", ada, "POST", "/v1/me/tokens",
		obj{"name": "x", "scopes": []string{"moderate"}})
	year := read[apiToken](t, a.must(t, 201, ada, "POST", "/v1/me/tokens",
		obj{"name": strings.Repeat("é", 100), "scopes": []string{"read"}, "expires_in_days": 365}))
	if year.ExpiresAt.Sub(year.CreatedAt) != 365*24*time.Hour {
		t.Errorf("expires after %v", year.ExpiresAt.Sub(year.CreatedAt))
	}
}

func TestToken_capHoldsForManyAtOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for range models.MaxTokens - 3 {
		a.newToken(t, ada, "read")
	}
	statuses := make([]int, 10)
	together(len(statuses), func(i int) {
		r, err := a.try(ada, "POST", "/v1/me/tokens", obj{"name": "x", "scopes": []string{"read"}})
		assert.NoError(t, err)
		statuses[i] = r.Status
	})
	slices.Sort(statuses)
	if want := []int{201, 201, 201, 409, 409, 409, 409, 409, 409, 409}; !slices.Equal(statuses, want) {
		t.Errorf("%v, want %v", statuses, want)
	}
	if n := len(read[page[apiToken]](t,
		a.must(t, 200, ada, "GET", "/v1/me/tokens?limit=100", nil)).Items); n != models.MaxTokens {
		t.Errorf("%d tokens", n)
	}
	if _, err := a.store.Pool().Exec("UPDATE sessions SET expires_at='2020-01-01' WHERE is_token LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	a.newToken(t, ada, "read") // expired tokens do not count
}

// A session that was just ended elsewhere must not create a token that outlives it.
func TestToken_isNotCreatedByAnEndedSession(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	here, there := serve(t, store), serve(t, store)
	cached := 0
	for range 100 {
		ada := here.account(t)
		there.must(t, 200, ada, "GET", "/v1/me", nil)
		here.must(t, 204, ada, "POST", "/v1/auth/logout", nil)
		r, err := there.try(ada, "GET", "/v1/me", nil)
		require.NoError(t, err)
		there.refused(t, 401, "unauthorized", ada, "POST", "/v1/me/tokens",
			obj{"name": "x", "scopes": []string{"read"}})
		if r.Status == 200 { // the other process has not read of the end yet, which takes it a second at most
			if cached++; cached == 3 {
				return
			}
		}
	}
	t.Errorf("%d of 100 sessions were cached after their end", cached)
}

func TestToken_usesAreRecordedOnceAMinute(t *testing.T) {
	store := openStore(t, testkit.Database(t))
	var ahead clock
	a := serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	ada := a.account(t)
	made := a.newToken(t, ada, "read")
	bot := ada.with(made.Token)
	used := func() *time.Time {
		t.Helper()
		list := a.tokens(t, ada)
		return list[slices.IndexFunc(list, func(l apiToken) bool { return l.ID == made.ID })].LastUsedAt
	}
	setUsed := func(ago time.Duration) time.Time {
		t.Helper()
		at := time.Now().UTC().Add(-ago).Truncate(time.Second)
		if _, err := store.Pool().Exec("UPDATE sessions SET last_used_at=? WHERE is_token", at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	isUsed := func(after time.Time) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			at := used()
			return at != nil && at.After(after), fmt.Sprintf("used at %v, want after %v", at, after)
		})
	}
	if used() != nil {
		t.Errorf("used at %v before its first use", used())
	}
	a.must(t, 200, bot, "GET", "/v1/me", nil)
	isUsed(time.Now().Add(-time.Minute))
	lately := setUsed(30 * time.Second)
	ahead.advance(10 * time.Second)
	a.must(t, 200, bot, "GET", "/v1/me", nil)
	// The use of another token is recorded in the same second as this one would be, or later.
	a.must(t, 200, ada.with(a.newToken(t, ada, "read").Token), "GET", "/v1/me", nil)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		n := a.number(t, "SELECT COUNT(*) FROM sessions WHERE is_token AND last_used_at>?", lately)
		return n == 1, "not recorded"
	})
	if n := a.number(t, "SELECT COUNT(*) FROM sessions WHERE is_token AND last_used_at=?", lately); n != 1 {
		t.Error("a use is recorded less than a minute after the last one")
	}
	long := setUsed(2 * time.Minute)
	ahead.advance(time.Minute)
	a.must(t, 200, bot, "GET", "/v1/me", nil)
	isUsed(long.Add(time.Minute))
}

func TestToken_toModerateEndsWithTheRole(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	var ahead clock
	a := serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	ada, bob := a.account(t), a.account(t)
	require.NoError(t, accounts.New(store).SetRole(t.Context(), ada.ID, models.RoleModerator))
	ban := func(i int) string { return fmt.Sprintf("/v1/admin/users/%d/%s", bob.ID, []string{"ban", "unban"}[i%2]) }
	reason := obj{"reason": "Spam."}
	bot := ada.with(a.newToken(t, ada, "moderate").Token)
	reader := ada.with(a.newToken(t, ada, "read", "write").Token)
	a.must(t, 200, bot, "POST", ban(0), reason)
	a.must(t, 204, bot, "POST", ban(1), reason)
	a.refused(t, 403, "forbidden", reader, "POST", ban(0), reason)
	a.refused(t, 403, "forbidden", bot, "GET", "/v1/posts", nil)
	require.NoError(t, accounts.New(store).SetRole(t.Context(), ada.ID, models.RoleUser))
	a.refused(t, 401, "unauthorized", bot, "POST", ban(0), reason) // MySQL decides, not the cache
	ahead.advance(5 * time.Second)
	a.refused(t, 401, "unauthorized", bot, "POST", ban(0), reason)
	ada = ada.with(a.session(t, ada.ID))
	a.refusedField(t, 403, "forbidden", "scopes", ada, "POST", "/v1/me/tokens",
		obj{"name": "x", "scopes": []string{"read", "moderate"}})
}

func TestToken_isCreatedOnceForOneIdempotencyKey(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	body, key := obj{"name": "x", "scopes": []string{"read"}}, header{"Idempotency-Key", "make it once"}
	first := read[apiToken](t, a.must(t, 201, ada, "POST", "/v1/me/tokens", body, key))
	// The token is not stored, so a repeated request returns another one, and the first is revoked.
	for range 2 {
		other := read[apiToken](t, a.must(t, 201, ada, "POST", "/v1/me/tokens", body, key))
		if other.Token == first.Token || other.Name != "x" || !slices.Equal(other.Scopes, []string{"read"}) ||
			!other.ExpiresAt.Equal(first.ExpiresAt) {
			t.Errorf("%+v, and again %+v", first, other)
		}
		a.refused(t, 401, "unauthorized", ada.with(first.Token), "GET", "/v1/posts", nil)
		first = other
	}
	a.must(t, 200, ada.with(first.Token), "GET", "/v1/me", nil)
	list := a.tokens(t, ada)
	if len(list) != 1 {
		t.Errorf("%d tokens", len(list))
	}
	a.must(t, 204, ada, "DELETE", "/v1/me/tokens/"+list[0].ID, nil)
	a.refused(t, 409, "conflict", ada, "POST", "/v1/me/tokens", body, key)
}
