package handlers_test

import (
	"net/http"
	"strings"
	"testing"

	"likewise/models"
)

type user struct {
	ID        int64
	Username  string
	Email     *string
	Role      string
	CreatedAt string `json:"created_at"`
}

type session struct {
	User  user
	Token string
}

func TestAccount_fromRegistrationToLogout(t *testing.T) {
	a := newAPI(t, modes[0])
	anonymous := account{}
	registration := obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"}
	r := a.must(t, 201, anonymous, "POST", "/v1/auth/register", registration)
	registered := read[session](t, r)
	if r.Header.Get("Location") == "" || registered.User.Username != "ada" || registered.User.Email == nil || registered.User.Role != "user" {
		t.Errorf("registered: %s %v", r, r.Header)
	}
	if strings.Contains(string(r.Body), "argon2") {
		t.Error("the password's hash is shown")
	}
	me := read[user](t, a.must(t, 200, account{Token: registered.Token}, "GET", "/v1/me", nil))
	if me.ID != registered.User.ID || *me.Email != "ada@example.org" || !strings.HasSuffix(me.CreatedAt, "Z") {
		t.Errorf("me: %+v", me)
	}

	for _, login := range []string{"ada", "ADA", "ada@example.org"} {
		in := read[session](t, a.must(t, 200, anonymous, "POST", "/v1/auth/login", obj{"login": login, "password": "difference engine"}))
		if in.Token == registered.Token || in.User.ID != me.ID {
			t.Errorf("login as %s: %+v", login, in)
		}
		as := account{Token: in.Token}
		a.must(t, 204, as, "POST", "/v1/auth/logout", nil)
		a.refused(t, 401, "unauthorized", as, "GET", "/v1/me", nil)
	}
	a.must(t, 200, account{Token: registered.Token}, "GET", "/v1/me", nil) // another session goes on

	a.refusedField(t, 409, "conflict", "username", anonymous, "POST", "/v1/auth/register", obj{"username": "Ada", "email": "a@example.org", "password": "12345678"})
	a.refusedField(t, 409, "conflict", "email", anonymous, "POST", "/v1/auth/register", obj{"username": "ada2", "email": "ADA@example.org", "password": "12345678"})
}

func TestLogin_tellsNothingAboutAccounts(t *testing.T) {
	a := newAPI(t, modes[0])
	a.must(t, 201, account{}, "POST", "/v1/auth/register", obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"})
	without := a.account(t) // has no password
	var first problem
	for i, in := range []obj{
		{"login": "ada", "password": "wrong"},
		{"login": "nobody", "password": "difference engine"},
		{"login": "nobody@example.org", "password": "difference engine"},
		{"login": without.Name, "password": ""},
		{"login": "", "password": ""},
		{},
	} {
		p, r := a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login", in)
		if r.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("login %v: no challenge in %v", in, r.Header)
		}
		p.RequestID = ""
		if i == 0 {
			first = p
		} else if p.Detail != first.Detail || len(p.Errors) != 0 {
			t.Errorf("login %v is told apart: %+v, not %+v", in, p, first)
		}
	}
}

func TestRegister_namesBadFields(t *testing.T) {
	a := newAPI(t, modes[0])
	for field, values := range map[string][]string{
		"username": {"", "ab", strings.Repeat("a", 51), "a b c", "größe", "-ab", "ab-", "a\x00bc", "<b>"},
		"email":    {"", "ada", "ada@", "ada@localhost", "Ada <ada@example.org>", "ada@example.invalid", strings.Repeat("a", 100) + "@example.org", "a@b.c\n"},
		"password": {"", "1234567", strings.Repeat("x", 129)},
	} {
		for _, value := range values {
			in := obj{"username": "ada", "email": "ada@example.org", "password": "12345678"}
			in[field] = value
			a.refusedField(t, 422, "invalid", field, account{}, "POST", "/v1/auth/register", in)
		}
	}
	if n := a.number(t, "SELECT COUNT(*) FROM users"); n != 0 {
		t.Errorf("%d accounts were made", n)
	}
}

func TestMe_hidesThePlaceOfAMissingEmail(t *testing.T) {
	a := newAPI(t, modes[0])
	if me := read[user](t, a.must(t, 200, a.account(t), "GET", "/v1/me", nil)); me.Email != nil {
		t.Errorf("e-mail %q", *me.Email)
	}
}

func TestAuth_tellsWhoYouAreFromWhatYouMay(t *testing.T) {
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	c := a.newComment(t, ada, p.ID)
	text := obj{"title": "T", "content": "C"}
	match := header{"If-Match", `"v0"`}
	for _, path := range []string{pathOf(p), pathOf(c)} {
		for _, as := range []account{{}, {Token: "made up"}, {Token: strings.Repeat("x", 3000)}} {
			for _, method := range []string{"PATCH", "DELETE"} {
				_, r := a.refused(t, 401, "unauthorized", as, method, path, text, match)
				if r.Header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("no challenge in %v", r.Header)
				}
			}
			a.refused(t, 401, "unauthorized", as, "PUT", path+"/like", nil)
		}
		a.refused(t, 403, "forbidden", bob, "DELETE", path, nil)
	}
	a.refused(t, 403, "forbidden", bob, "PATCH", pathOf(p), text, match)
	a.refused(t, 403, "forbidden", bob, "PATCH", pathOf(c), obj{"content": "C"}, match)
	// A token that does not hold is refused where none is needed, too: its owner believes to be signed in.
	a.refused(t, 401, "unauthorized", account{Token: "made up"}, "GET", "/v1/posts", nil)
	a.refused(t, 401, "unauthorized", account{}, "GET", "/v1/posts", nil, header{"Authorization", "Basic YTpi"})
	a.must(t, 200, account{}, "GET", "/v1/posts", nil, header{"Authorization", "bearer " + ada.Token})
}

func TestSession_expires(t *testing.T) {
	a := newAPI(t, modes[0])
	ada := a.account(t)
	if _, err := a.store.Pool().Exec("UPDATE sessions SET expires_at='2020-01-01'"); err != nil {
		t.Fatal(err)
	}
	a.refused(t, http.StatusUnauthorized, string(models.CodeUnauthorized), ada, "GET", "/v1/me", nil)
}
