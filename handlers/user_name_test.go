package handlers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestUsers_areReadByName(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, posts := a.person(t, "Ada_L"), a.person(t, "posts")
	for _, user := range []account{ada, posts} { // one has the name of another route
		byID := a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/users/%d", user.ID), nil)
		byName := a.must(t, 200, ada, "GET", "/v1/users/by-name/"+strings.ToUpper(user.Name), nil)
		if string(byID.Body) != string(byName.Body) {
			t.Errorf("by id %s, by name %s", byID, byName)
		}
	}
	for _, name := range []string{"nobody", "ada", "%C3%A4da_l", "ada_l%E2%80%8B", "deleted~1"} {
		a.refused(t, 404, "not_found", ada, "GET", "/v1/users/by-name/"+name, nil)
	}
}

func TestUsernames_areCompleted(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, adam, eve := a.person(t, "ada"), a.person(t, "Adam"), a.person(t, "adele")
	a.person(t, "a_da")
	a.person(t, "bob")
	names := func(as account, query string) (names []string) {
		t.Helper()
		type user struct{ Username string }
		for _, u := range read[page[user]](t, a.must(t, 200, as, "GET", "/v1/users/by-prefix/"+query, nil)).Items {
			names = append(names, u.Username)
		}
		return names
	}
	for query, want := range map[string][]string{
		"ad": {"ada", "Adam", "adele"}, "ADA": {"ada", "Adam"}, "ad?limit=2": {"ada", "Adam"}, "a_": {"a_da"},
		"x": nil, "%25": nil, "adele": {"adele"}, strings.Repeat("a", 60): nil,
	} {
		if got := names(adam, query); !slices.Equal(got, want) {
			t.Errorf("%s is completed to %q, want %q", query, got, want)
		}
	}
	a.must(t, 200, adam, "PUT", fmt.Sprintf("/v1/users/%d/block", ada.ID), nil)
	a.must(t, 204, eve, "DELETE", "/v1/me", obj{"password": password})
	if got := names(adam, "ad"); !slices.Equal(got, []string{"Adam"}) {
		t.Errorf("with a blocked and a deleted user: %q", got)
	}
	if got := names(adam, "deleted"); got != nil {
		t.Errorf("deleted users: %q", got)
	}
	a.refused(t, 401, "unauthorized", account{}, "GET", "/v1/users/by-prefix/ad", nil)
	a.refusedField(t, 422, "invalid", "limit", adam, "GET", "/v1/users/by-prefix/ad?limit=21", nil)
}
