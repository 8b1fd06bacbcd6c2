package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"likewise/handlers"
	"likewise/internal/testkit"
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
	t.Parallel()
	a := newAPI(t, modes[0])
	anonymous := account{}
	registration := obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"}
	r := a.must(t, 201, anonymous, "POST", "/v1/auth/register", registration)
	registered := read[session](t, r)
	if r.Header.Get("Location") == "" || registered.User.Username != "ada" || registered.User.Email == nil ||
		registered.User.Role != "user" {
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
		in := read[session](t, a.must(t, 200, anonymous, "POST", "/v1/auth/login",
			obj{"login": login, "password": "difference engine"}))
		if in.Token == registered.Token || in.User.ID != me.ID {
			t.Errorf("login as %s: %+v", login, in)
		}
		as := account{Token: in.Token}
		a.must(t, 204, as, "POST", "/v1/auth/logout", nil)
		a.refused(t, 401, "unauthorized", as, "GET", "/v1/me", nil)
	}
	a.must(t, 200, account{Token: registered.Token}, "GET", "/v1/me", nil) // the other session is not affected

	a.refusedField(t, 409, "conflict", "username", anonymous, "POST", "/v1/auth/register",
		obj{"username": "Ada", "email": "a@example.org", "password": password})
	a.refusedField(t, 409, "conflict", "email", anonymous, "POST", "/v1/auth/register",
		obj{"username": "ada2", "email": "ADA@example.org", "password": password})
}

func TestLogin_revealsNothingAboutAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"})
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
	t.Parallel()
	a := newAPI(t, modes[0])
	for field, values := range map[string][]string{
		"username": {"", "ab", strings.Repeat("a", 51), "a b c", "größe", "-ab", "ab-", "a\x00bc", "<b>"},
		"email": {"", "ada", "ada@", "ada@localhost", "Ada <ada@example.org>", "ada@example.invalid",
			strings.Repeat("a", 100) + "@example.org", "a\n@b.c"},
		"password": {"", "1234567", strings.Repeat("x", 129)},
	} {
		for _, value := range values {
			in := obj{"username": "ada", "email": "ada@example.org", "password": password}
			in[field] = value
			a.refusedField(t, 422, "invalid", field, account{}, "POST", "/v1/auth/register", in)
		}
	}
	if n := a.number(t, "SELECT COUNT(*) FROM users"); n != 0 {
		t.Errorf("%d accounts were made", n)
	}
}

func TestMe_hidesThePlaceholderOfAMissingEmail(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	if me := read[user](t, a.must(t, 200, a.account(t), "GET", "/v1/me", nil)); me.Email != nil {
		t.Errorf("e-mail %q", *me.Email)
	}
}

func TestAuth_distinguishesIdentityFromPermission(t *testing.T) {
	t.Parallel()
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
	// An invalid token is refused even where none is needed: otherwise a signed-out client would not notice.
	a.refused(t, 401, "unauthorized", account{Token: "made up"}, "GET", "/v1/posts", nil)
	a.refused(t, 401, "unauthorized", account{}, "GET", "/v1/posts", nil, header{"Authorization", "Basic YTpi"})
	a.must(t, 200, account{}, "GET", "/v1/posts", nil, header{"Authorization", "bearer " + ada.Token})
}

func TestSession_expires(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	if _, err := a.store.Pool().Exec("UPDATE sessions SET expires_at='2020-01-01'"); err != nil {
		t.Fatal(err)
	}
	a.refused(t, http.StatusUnauthorized, string(models.CodeUnauthorized), ada, "GET", "/v1/me", nil)
}

func avatarsAt(hosts ...string) func(*handlers.Config) {
	return func(c *handlers.Config) { c.AvatarHosts = hosts }
}

// A reader's browser loads avatars from their hosts: only hosts that the site allows learn of readers.
func TestAvatar_isShownOfNamedHostsAlone(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	closed, open := serve(t, store), serve(t, store, avatarsAt("*"))
	named := serve(t, store, avatarsAt("images.example.org", "cdn.example.org"))
	ada := closed.person(t, "ada")
	p := closed.newPost(t, ada)
	for _, url := range []string{"https://tracker.example/ada.png", "https://images.example.org:8443/a",
		"https://sub.images.example.org/a", "https://images.example.org.tracker.example/"} {
		for _, a := range []*api{closed, named} {
			a.refusedField(t, 422, "invalid", "avatar_url", ada, "PATCH", "/v1/me", obj{"avatar_url": url})
		}
	}
	open.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": "https://tracker.example/ada.png"})
	admin := closed.promoted(t, closed.account(t), models.RoleAdmin)
	see := func(a *api, want int) {
		t.Helper()
		for _, path := range []string{"/v1/me", userPath(ada), "/v1/users?username=ada", pathOf(p), "/v1/posts",
			"/v1/admin/users", "/v1/admin/users/" + fmt.Sprint(ada.ID)} {
			as := ada
			if strings.HasPrefix(path, "/v1/admin") {
				as = admin
			}
			if r := a.must(t, 200, as, "GET", path, nil); strings.Count(string(r.Body), "example/ada.png") != want {
				t.Errorf("%s: %s, want %d avatars", path, r, want)
			}
		}
	}
	see(closed, 0)
	see(named, 0)
	see(open, 1)
	named.must(t, 200, ada, "PATCH", "/v1/me", obj{"bio": "Counts."}) // a hidden avatar does not block edits
	r := named.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": "https://Images.example.org/ada.png"})
	if got := read[obj](t, r)["avatar_url"]; got != "https://Images.example.org/ada.png" {
		t.Errorf("the avatar is %v", got)
	}
	closed.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": ""})
	for _, hosts := range [][]string{{"*", "example.org"}, {"https://example.org"}, {"example.org:443"},
		{"Example.org"}, {""}, {"127.0.0.1"}, {"*.example.org"}, {"a/b"}} {
		if err := handlers.CheckAvatarHosts(hosts); err == nil {
			t.Errorf("%q are hosts", hosts)
		}
	}
}

func TestRegister_refusesReservedNamesAndCommonPasswords(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.ReservedNames = []string{"forum-desk"} })
	register := func(field, name, pass string) {
		t.Helper()
		a.refusedField(t, 422, "invalid", field, account{}, "POST", "/v1/auth/register",
			obj{"username": name, "email": "countess@example.org", "password": pass})
	}
	for _, name := range []string{"moderator", "administrator", "support", "system", "root", "deleted", "Adm1n", "M0d",
		"F0rumDesk"} {
		register("username", name, password)
	}
	for _, pass := range []string{"password", "12345678", "Byron1815", "Countess_1"} {
		register("password", "byron", pass)
	}
	ada := a.person(t, "byron")
	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"display_name": "Ada Lovelace"})
	for _, pass := range []string{"password", "byron123", "ada lovelace 1815"} {
		a.refusedField(t, 422, "invalid", "new_password", ada, "PUT", "/v1/me/password",
			obj{"current_password": password, "new_password": pass})
	}
}

func TestProfile_isChangedAndShown(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], avatarsAt("example.org"))
	ada := a.person(t, "ada")
	before := a.newPost(t, ada)
	profile := obj{"display_name": "Ada 🦜 Lovelace", "bio": "Counts.\nWith engines.",
		"avatar_url": "https://example.org/a%20b.png?x=1"}
	r := a.must(t, 200, ada, "PATCH", "/v1/me", profile)
	for _, r := range []reply{r, a.must(t, 200, ada, "GET", "/v1/me", nil),
		a.must(t, 200, account{}, "GET", userPath(ada), nil)} {
		got := read[obj](t, r)
		for field, want := range profile {
			if got[field] != want {
				t.Errorf("%s is %v, want %v", field, got[field], want)
			}
		}
	}
	c := a.newComment(t, ada, before.ID) // the session holds the new name at once
	a.must(t, 200, ada, "PUT", pathOf(c)+"/like", nil)
	for _, path := range []string{pathOf(before), pathOf(c)} {
		author := read[struct {
			Author struct {
				DisplayName string `json:"display_name"`
				AvatarURL   string `json:"avatar_url"`
			}
		}](t, a.must(t, 200, account{}, "GET", path, nil)).Author
		if author.DisplayName != profile["display_name"] || author.AvatarURL != profile["avatar_url"] {
			t.Errorf("%s is by %+v", path, author)
		}
	}
	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"bio": nil, "display_name": ""})
	u := a.user(t, account{}, ada)
	if u.DisplayName != nil || u.Bio != profile["bio"] || u.AvatarURL == nil || u.PostsCount != 1 ||
		u.CommentsCount != 1 {
		t.Errorf("after clearing the name: %+v", u)
	}
	for field, values := range map[string][]string{
		"display_name": {strings.Repeat("é", 51), "a\nb", "a\u202eb", "\x00"},
		"bio":          {strings.Repeat("é", 501), "a\x00", "\u2066"},
		"avatar_url": {"http://example.org/a.png", "javascript:alert(1)", "https:", "https://", "//example.org/a",
			"https://user@example.org/a", "https://u:p@example.org/",
			"https://example.org/\"onerror", "https://exämple.org/", "https://example.org/a b", "HTTPS:example.org",
			"https://example.org/" + strings.Repeat("a", 500), "data:image/png,x"},
	} {
		for _, value := range values {
			a.refusedField(t, 422, "invalid", field, ada, "PATCH", "/v1/me", obj{field: value})
		}
	}
	a.refusedField(t, 422, "invalid", "username", ada, "PATCH", "/v1/me", obj{"username": "eve"})
	a.refused(t, 401, "unauthorized", account{}, "PATCH", "/v1/me", profile)
}

func TestUser_isFoundByName(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.person(t, "ada")
	for name, want := range map[string]int{"ada": 1, "ADA": 1, "ad": 0, "ada%25": 0, "nobody": 0} {
		if p := read[page[publicUser]](t,
			a.must(t, 200, account{}, "GET", "/v1/users?username="+name, nil)); len(p.Items) != want || want > 0 &&
			p.Items[0].ID != ada.ID {
			t.Errorf("%s: %+v", name, p)
		}
	}
	a.refusedField(t, 422, "invalid", "username", account{}, "GET", "/v1/users", nil)
	if r := a.must(t, 200, account{}, "GET", userPath(ada), nil); strings.Contains(string(r.Body), "example.org") ||
		strings.Contains(string(r.Body), "role") {
		t.Errorf("everybody sees %s", r)
	}
	for _, path := range []string{"/v1/users/424242", "/v1/users/x", "/v1/users/0"} {
		for _, list := range []string{"", "/posts", "/comments", "/likes", "/followers", "/following"} {
			a.refused(t, 404, "not_found", account{}, "GET", path+list, nil)
		}
	}
}

func TestDeletion_leavesAPlaceholder(t *testing.T) {
	t.Parallel()
	var ahead clock
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.person(t, "ada"), a.account(t)
		p := a.newPost(t, ada)
		c := a.newComment(t, ada, p.ID)
		phone := a.login(t, "ada", password)
		a.must(t, 200, phone, "PATCH", "/v1/me", obj{"display_name": "Ada", "bio": "Counts."})
		a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
		a.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
		a.must(t, 200, bob, "PUT", userPath(ada)+"/follow", nil)
		a.refusedField(t, 403, "forbidden", "password", ada, "DELETE", "/v1/me", obj{"password": "wrong"})
		a.refusedField(t, 403, "forbidden", "password", ada, "DELETE", "/v1/me", obj{})
		a.must(t, 204, ada, "DELETE", "/v1/me", obj{"password": password})

		for _, as := range []account{ada, phone} {
			a.refused(t, 401, "unauthorized", as, "GET", "/v1/me", nil)
		}
		name := fmt.Sprintf("deleted~%d", ada.ID)
		for _, login := range []string{"ada", "ada@example.org", name} {
			for _, pass := range []string{password, ""} {
				a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login",
					obj{"login": login, "password": pass})
			}
		}
		for _, path := range []string{"", "/posts", "/comments", "/likes", "/followers", "/following"} {
			a.refused(t, 404, "not_found", bob, "GET", userPath(ada)+path, nil)
		}
		for _, path := range []string{"/follow", "/block"} {
			a.refused(t, 404, "not_found", bob, "PUT", userPath(ada)+path, nil)
		}
		if following := a.listed(t, bob, userPath(bob)+"/following"); len(following) != 0 {
			t.Errorf("bob follows %v", following)
		}
		if found := read[page[publicUser]](t,
			a.must(t, 200, bob, "GET", "/v1/users?username="+name, nil)); len(found.Items) != 0 {
			t.Errorf("found as %+v", found)
		}
		for _, r := range []reply{a.must(t, 200, bob, "GET", pathOf(p), nil),
			a.must(t, 200, bob, "GET", pathOf(c), nil), a.must(t, 200, bob, "GET", "/v1/posts", nil)} {
			want := fmt.Sprintf(`{"id":%d,"username":"%s","display_name":"[deleted]","avatar_url":null}`, ada.ID, name)
			if !strings.Contains(string(r.Body), want) || strings.Contains(string(r.Body), "Ada") {
				t.Errorf("its author is not %s in %s", want, r)
			}
		}
		if strings.Contains(fmt.Sprint(a.number(t,
			"SELECT COUNT(*) FROM users WHERE email LIKE 'ada%' OR password_hash LIKE '$argon2%'")), "1") {
			t.Error("the account still exists")
		}
		in := obj{"username": "Ada", "email": "ada@example.org", "password": password}
		a.refusedField(t, 409, "conflict", "username", account{}, "POST", "/v1/auth/register", in)
		in["username"] = "ada2" // the address is free, and the name is not
		a.must(t, 201, account{}, "POST", "/v1/auth/register", in)
		a.refusedField(t, 422, "invalid", "username", account{}, "POST", "/v1/auth/register",
			obj{"username": name, "email": "x@example.org", "password": password})
		a.settle()
		if n := a.number(t, "SELECT COUNT(*) FROM like_voids WHERE user_id=? AND done_at IS NULL", ada.ID); n != 1 {
			t.Errorf("%d requests to take the likes back", n)
		}
	}, withClock(&ahead))
}

// The account has the number of unread notifications, so that the header of a page takes one request.
func TestMe_countsUnreadNotifications(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		counts := func(want int64) {
			t.Helper()
			r := a.must(t, 200, ada, "GET", "/v1/me", nil)
			unread := read[struct {
				Count int64 `json:"unread_notifications_count"`
			}](t, r)
			assert.Equal(t, want, unread.Count)
			alone := read[struct {
				Count int64 `json:"unread_count"`
			}](t, a.must(t, 200, ada, "GET", "/v1/notifications/unread-count", nil))
			assert.Equal(t, want, alone.Count)
		}
		counts(0)
		tag := a.must(t, 200, ada, "GET", "/v1/me", nil).Header.Get("ETag")
		p := a.newPost(t, ada)
		a.newComment(t, bob, p.ID)
		counts(1)
		a.must(t, 200, ada, "GET", "/v1/me", nil, header{"If-None-Match", tag})
		a.newComment(t, bob, p.ID)
		counts(2)
		edited := a.must(t, 200, ada, "PATCH", "/v1/me", obj{"bio": "Counts."})
		assert.NotContains(t, string(edited.Body), "unread")
		a.must(t, 200, ada, "PUT", userPath(bob)+"/block", nil)
		counts(0)
	})
}
