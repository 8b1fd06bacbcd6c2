package handlers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers/signin"
	"likewise/models"
	"likewise/models/accounts"
)

// needProof are the requests that need a recent proof, with their bodies and the status of success.
var needProof = []struct {
	method, path string
	body         any
	status       int
}{
	{"POST", "/v1/me/tokens", obj{"name": "bot", "scopes": []string{"read"}}, 201},
	{"GET", "/v1/me/export", nil, 202},
}

// withPassword creates an account that can enter a password. The token is that of a login.
func withPassword(t *testing.T, a *api) account {
	t.Helper()
	hash, err := signin.HashPassword("correct horse")
	require.NoError(t, err)
	user := a.account(t)
	_, err = a.store.Pool().ExecContext(t.Context(), "UPDATE users SET password_hash=? WHERE id=?", hash, user.ID)
	require.NoError(t, err)
	return user.with(logIn(t, a, user))
}

func logIn(t *testing.T, a *api, user account) string {
	t.Helper()
	r := a.must(t, 200, account{}, "POST", "/v1/auth/login", obj{"login": user.Name, "password": "correct horse"})
	return read[struct {
		Token string `json:"token"`
	}](t, r).Token
}

// refusedUnproven checks that the account is asked for the password by each request that needs a proof.
func refusedUnproven(t *testing.T, a *api, as account) {
	t.Helper()
	for _, r := range needProof {
		a.refused(t, 403, "reauthentication_required", as, r.method, r.path, r.body)
	}
}

func TestReauthentication_isNeededAfterTenMinutes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := withPassword(t, a)
	for _, r := range needProof { // a login is a proof
		a.must(t, r.status, ada, r.method, r.path, r.body)
	}
	bob := withPassword(t, a)
	a.proveAt(t, bob.Token, time.Now().UTC().Add(-models.ProofLife-time.Second))
	refusedUnproven(t, a, bob)
	a.must(t, 204, bob, "POST", "/v1/auth/reauthenticate", obj{"password": "correct horse"})
	for _, r := range needProof {
		a.must(t, r.status, bob, r.method, r.path, r.body)
	}
	require.Contains(t, securityKinds(t, a, bob.ID), "session.proven")
}

func TestReauthentication_needsThePassword(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := withPassword(t, a)
	a.proveAt(t, ada.Token, nil)
	a.refusedField(t, 403, "forbidden", "password", ada, "POST", "/v1/auth/reauthenticate",
		obj{"password": "battery staple"})
	refusedUnproven(t, a, ada)
	require.Contains(t, securityKinds(t, a, ada.ID), "password.failed")
}

func TestReauthentication_isOfOneSession(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := withPassword(t, a)
	other := ada.with(logIn(t, a, ada))
	a.proveAt(t, other.Token, nil)
	a.must(t, 204, ada, "POST", "/v1/auth/reauthenticate", obj{"password": "correct horse"})
	refusedUnproven(t, a, other)
}

func TestReauthentication_isNotForAPITokens(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := withPassword(t, a)
	bot := ada.with(a.newToken(t, ada, "read", "write").Token)
	a.refused(t, 403, "forbidden", bot, "POST", "/v1/auth/reauthenticate", obj{"password": "correct horse"})
	a.proveAt(t, bot.Token, "2037-01-01")
	for _, p := range needProof {
		a.refused(t, 403, "forbidden", bot, p.method, p.path, p.body)
	}
}

// A session of the operator, made by "likewise user token", is as one that has just begun with a login.
func TestReauthentication_ofTheOperatorsToken(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := withPassword(t, a)
	begin := func() account {
		token, err := accounts.New(a.store).CreateSession(t.Context(), ada.ID)
		require.NoError(t, err)
		return ada.with(token)
	}
	a.must(t, 201, begin(), "POST", "/v1/me/tokens", needProof[0].body)
	old := begin()
	a.proveAt(t, old.Token, time.Now().UTC().Add(-models.ProofLife-time.Second))
	refusedUnproven(t, a, old)
	a.must(t, 204, old, "POST", "/v1/auth/reauthenticate", obj{"password": "correct horse"})
	a.must(t, 201, old, "POST", "/v1/me/tokens", needProof[0].body)
}

// Another process may have written the proof a moment ago, which the cache of this one does not have yet.
func TestReauthentication_ofAnotherProcessCounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := withPassword(t, a)
	a.proveAt(t, ada.Token, nil)
	refusedUnproven(t, a, ada) // the session is cached
	a.proveAt(t, ada.Token, time.Now().UTC())
	a.must(t, 201, ada, "POST", "/v1/me/tokens", needProof[0].body)
}

// securityKinds returns the kinds of the events of a user in the security log.
func securityKinds(t *testing.T, a *api, userID int64) []string {
	t.Helper()
	events, err := accounts.New(a.store).SecurityLog(t.Context(), models.EventQuery{UserID: userID, Limit: 100})
	require.NoError(t, err)
	kinds := make([]string, len(events))
	for i, e := range events {
		kinds[i] = e.Kind
	}
	return kinds
}
