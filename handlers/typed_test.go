package handlers_test

import (
	"strings"
	"testing"

	"likewise/models"
)

func TestBodies_haveEachFieldOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	body := `{"title": "one", "content": "x", "title": "two"}`
	a.refusedField(t, 400, "malformed", "title", ada, "POST", "/v1/posts", body)
}

func TestIntegers_canHaveAFractionOfZeros(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	create := func(status int, stock string) reply {
		t.Helper()
		return a.must(t, status, ada, "POST", pathOf(p)+"/drops", `{"title": "x", "stock": `+stock+`}`)
	}
	for number, want := range map[string]int64{"1.0": 1, "1e2": 100, "2.50E+1": 25, "10e-1": 1} {
		if got := read[struct{ Stock int64 }](t, create(201, number)).Stock; got != want {
			t.Errorf("%s is %d, want %d", number, got, want)
		}
	}
	for _, number := range []string{"1.5", "1e-2", "1e400", "1e-999999999", "1e999999999", `"1"`, "[]"} {
		create(400, number)
	}
	create(422, "-0.0")
}

func TestTexts_areCleanedAndNameWhatIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	r := a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "  a\u200btitle ", "content": " x "})
	if p := read[post](t, r); p.Title != "atitle" || p.Content != " x " {
		t.Errorf("%s", r)
	}
	_, r = a.refused(t, 422, "invalid", ada, "POST", "/v1/posts", obj{"title": "a\u202eb", "content": "x"})
	if !strings.Contains(string(r.Body), "U+202E") {
		t.Errorf("%s", r)
	}
	_, r = a.refused(t, 422, "invalid", ada, "GET", "/v1/posts?q=%ff", nil)
	if !strings.Contains(string(r.Body), "must be valid UTF-8") {
		t.Errorf("%s", r)
	}
	for _, name := range []string{"[deleted]", "Moderator", "Моdеrаtоr"} {
		a.refusedField(t, 422, "invalid", "display_name", ada, "PATCH", "/v1/me", obj{"display_name": name})
	}
	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"display_name": " Ada\u00ad "})
}

func TestLogins_areComparedAsPeopleTypeThem(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	const composed, decomposed = "schlüsselbrett 9", "schlu\u0308sselbrett 9"
	register := func(status int, name, email string) {
		t.Helper()
		a.must(t, status, account{}, "POST", "/v1/auth/register",
			obj{"username": name, "email": email, "password": composed})
	}
	register(201, " typist ", "josé@forum.example")
	register(422, "20260711", "digits@forum.example")
	for _, login := range []string{"typist", " Typist\u200b ", "josé@forum.example", "jose\u0301@FORUM.example ",
		"jose@forum.example"} {
		a.must(t, 200, account{}, "POST", "/v1/auth/login", obj{"login": login, "password": decomposed})
	}
	a.must(t, 401, account{}, "POST", "/v1/auth/login", obj{"login": "typist", "password": "schlusselbrett 9"})
}

func TestUsernames_ofDeletedAccountsStayTheirs(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	body := obj{"username": "leaver", "email": "leaver@forum.example", "password": "difference engine"}
	s := read[struct{ Token string }](t, a.must(t, 201, account{}, "POST", "/v1/auth/register", body))
	a.must(t, 204, account{Token: s.Token}, "DELETE", "/v1/me", obj{"password": "difference engine"})
	a.refusedField(t, 409, "conflict", "username", account{}, "POST", "/v1/auth/register", body)
	body["username"] = "returner"
	a.must(t, 201, account{}, "POST", "/v1/auth/register", body)
}

func TestMentions_ofEditsNotifyOnceAndThoseOfQuotationsDoNot(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	r := a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "x", "content": "> @" + bob.Name})
	p := read[post](t, r)
	mentions := func() int64 {
		return a.number(t, "SELECT COUNT(*) FROM notifications WHERE user_id=? AND kind=?",
			bob.ID, models.NotifyMention)
	}
	if n := mentions(); n != 0 {
		t.Fatalf("a quotation notifies %d times", n)
	}
	for i, content := range []string{"hello @" + bob.Name, "again @" + bob.Name, "nobody", "@" + bob.Name} {
		r = a.must(t, 200, ada, "PATCH", pathOf(p), obj{"content": content}, header{"If-Match", r.Header.Get("ETag")})
		if n := mentions(); n != 1 {
			t.Fatalf("%d notifications after edit %d", n, i)
		}
	}
}
