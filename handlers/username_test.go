package handlers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// renamed serves the API on a clock that can be moved on.
func renamed(t *testing.T) (*api, *clock) {
	t.Helper()
	var ahead clock
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{Now: ahead.now})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	return serve(t, store), &ahead
}

func (a *api) rename(t *testing.T, as account, name string) {
	t.Helper()
	r := a.must(t, 200, as, "PUT", "/v1/me/username", obj{"username": name})
	require.Equal(t, name, read[struct{ Username string }](t, r).Username)
}

func TestUsername_changesOnceInThirtyDays(t *testing.T) {
	t.Parallel()
	a, ahead := renamed(t)
	ada := a.person(t, "ada")
	a.rename(t, ada, "lovelace")
	a.rename(t, ada, "lovelace") // the same name again changes nothing
	r := a.must(t, 409, ada, "PUT", "/v1/me/username", obj{"username": "countess"})
	require.Contains(t, r.String(), `"too_soon"`)
	require.Contains(t, r.String(), ahead.now().UTC().Add(models.UsernameLife).Format("2006-01-02T15:"))
	ahead.advance(models.UsernameLife)
	ada = ada.with(a.session(t, ada.ID))
	a.rename(t, ada, "countess")
	me := read[struct{ Username string }](t, a.must(t, 200, ada, "GET", "/v1/me", nil))
	assert.Equal(t, "countess", me.Username)
	post := a.newPost(t, ada)
	r = a.must(t, 200, account{}, "GET", pathOf(post), nil)
	assert.Contains(t, r.String(), `"countess"`, "the session has the new name")
	assert.Contains(t, securityKinds(t, a, ada.ID), "username.changed")

	admin := a.promoted(t, a.account(t), models.RoleModerator)
	r = a.must(t, 200, admin, "GET", fmt.Sprintf("/v1/admin/users/%d", ada.ID), nil)
	assert.Contains(t, r.String(), `"former_usernames":["lovelace","ada"]`)
}

func TestUsername_needsARecentProof(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.person(t, "ada")
	a.proveAt(t, ada.Token, time.Now().UTC().Add(-models.ProofLife-time.Second))
	a.refused(t, 403, "reauthentication_required", ada, "PUT", "/v1/me/username", obj{"username": "lovelace"})
}

func TestUsername_isNeverThatOfSomebodyElse(t *testing.T) {
	t.Parallel()
	a, ahead := renamed(t)
	ada, bob := a.person(t, "ada"), a.person(t, "bob")
	eve := a.person(t, "eve")
	change := func(as account, name string) {
		t.Helper()
		a.refusedField(t, 409, "conflict", "username", as, "PUT", "/v1/me/username", obj{"username": name})
	}
	change(bob, "ADA") // is taken
	a.refusedField(t, 422, "invalid", "username", bob, "PUT", "/v1/me/username", obj{"username": "admin"})
	a.refusedField(t, 422, "invalid", "username", bob, "PUT", "/v1/me/username", obj{"username": "b b"})
	a.rename(t, ada, "lovelace")
	change(bob, "Ada") // was taken
	a.refusedField(t, 409, "conflict", "username", account{}, "POST", "/v1/auth/register",
		obj{"username": "Ada", "email": "x@example.org", "password": password})
	a.must(t, 204, eve, "DELETE", "/v1/me", obj{"password": password})
	change(bob, "eve") // was deleted

	ahead.advance(models.UsernameLife)
	ada, bob = ada.with(a.session(t, ada.ID)), bob.with(a.session(t, bob.ID))
	change(bob, "ada")
	a.rename(t, ada, "ada") // only the account itself can have it again
	change(bob, "lovelace")
	a.must(t, 200, account{}, "GET", "/v1/users/by-name/ada", nil)
	a.must(t, 204, ada, "DELETE", "/v1/me", obj{"password": password})
	change(bob, "lovelace") // a former name of a deleted account
	a.must(t, 404, account{}, "GET", "/v1/users/by-name/lovelace", nil)
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM former_usernames"), "nobody can read the names any longer")
}

func TestUsername_ofFormerTimesLeadsToItsUser(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.person(t, "ada"), a.person(t, "bob")
	a.rename(t, ada, "lovelace")
	r := a.must(t, 307, account{}, "GET", "/v1/users/by-name/Ada?include=posts", nil)
	require.Equal(t, "/v1/users/by-name/lovelace?include=posts", r.Header.Get("Location"))
	require.Equal(t, 200, a.send(t, account{}, "GET", r.Header.Get("Location"), nil).Status)
	list := read[page[struct{ ID int64 }]](t, a.must(t, 200, bob, "GET", "/v1/users?username=ada", nil)).Items
	require.Len(t, list, 1)
	assert.Equal(t, ada.ID, list[0].ID)
	a.must(t, 404, account{}, "GET", "/v1/users/by-name/%C3%A4da", nil)

	// A new text that mentions the former name notifies the user who had it, once, and nobody else.
	for i, content := range []string{"@ada, look", "@ada and @lovelace, look"} {
		a.must(t, 201, bob, "POST", "/v1/posts", obj{"title": "Engines", "content": content})
		assert.EqualValues(t, i+1, a.number(t, "SELECT COUNT(*) FROM notifications WHERE kind=2 AND user_id=?", ada.ID))
		assert.EqualValues(t, i+1, a.number(t, "SELECT COUNT(*) FROM notifications"))
	}
}

// A user who wants a name in the moment in which another leaves it does not get it.
func TestUsername_isReservedInTheCommitThatGivesItUp(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	store := accounts.New(a.store)
	for i := range 10 {
		ada := a.person(t, fmt.Sprintf("ada%d", i))
		bob := a.account(t)
		done := make(chan error, 2)
		go func() { done <- store.ChangeUsername(t.Context(), ada.ID, ada.Name+"x") }()
		go func() { done <- store.ChangeUsername(t.Context(), bob.ID, ada.Name) }()
		failed := 0
		for range 2 {
			if err := <-done; err != nil {
				failed++
				require.Equal(t, models.CodeConflict, models.ErrorCode(err))
			}
		}
		require.Equal(t, 1, failed)
	}
}
