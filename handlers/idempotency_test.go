package handlers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/likes"
)

func key(k string) header { return header{"Idempotency-Key", k} }

func replayed(r reply) bool { return r.Header.Get("Idempotency-Replayed") == "true" }

// sameAnswer checks that an answer equals an earlier one, but for a new token.
func sameAnswer(t *testing.T, first, again reply) {
	t.Helper()
	if replayed(first) || !replayed(again) {
		t.Errorf("Idempotency-Replayed is %q, then %q", first.Header.Get("Idempotency-Replayed"),
			again.Header.Get("Idempotency-Replayed"))
	}
	if again.Status != first.Status ||
		!bytes.Equal(secret.ReplaceAll(again.Body, nil), secret.ReplaceAll(first.Body, nil)) {
		t.Errorf("answered with %s, then with %s", first, again)
	}
	for _, name := range []string{"Location", "ETag", "Content-Type", "Cache-Control"} {
		if first.Header.Get(name) != again.Header.Get(name) {
			t.Errorf("%s: %q, then %q", name, first.Header.Get(name), again.Header.Get(name))
		}
	}
}

var text = obj{"title": "A title", "content": "Some *content*."}

func TestIdempotency_repeatsAnswers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	in := obj{"username": "grace", "email": "grace@example.org", "password": "nanoseconds"}
	first := a.must(t, 201, account{}, "POST", "/v1/auth/register", in, key("an-unlikely-key-a"))
	sameAnswer(t, first, a.must(t, 201, account{}, "POST", "/v1/auth/register", in, key("an-unlikely-key-a")))
	a.refused(t, 409, "conflict", account{}, "POST", "/v1/auth/register", in)
	in = obj{"login": "grace", "password": "nanoseconds"}
	login := a.must(t, 200, account{}, "POST", "/v1/auth/login", in, key("an-unlikely-key-b"))
	again := a.must(t, 200, account{}, "POST", "/v1/auth/login", in, key("an-unlikely-key-b"))
	sameAnswer(t, login, again)
	if n := a.number(t, `
		SELECT COUNT(*)
		FROM sessions s
		JOIN users u ON u.id=s.user_id AND u.username='grace'`); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	grace := account{Token: read[session](t, again).Token}
	// The key of a logout belongs to the token, which is no longer valid when the request is repeated.
	sameAnswer(t, a.must(t, 204, grace, "POST", "/v1/auth/logout", nil, key("c")),
		a.must(t, 204, grace, "POST", "/v1/auth/logout", nil, key("c")))
	a.must(t, 401, grace, "POST", "/v1/auth/logout", nil)
	a.must(t, 401, grace, "POST", "/v1/auth/logout", nil, key("another-key-than-that"))
	a.must(t, 401, grace, "POST", "/v1/auth/logout", nil, key("an-unlikely-key-b"))
	a.must(t, 401, grace, "POST", "/v1/auth/logout", nil, key("no\tkey"))
	a.must(t, 401, grace, "GET", "/v1/me", nil, key("c"))
	a.must(t, 401, account{Token: "another token"}, "POST", "/v1/auth/logout", nil, key("c"))
	a.must(t, 401, account{}, "POST", "/v1/auth/logout", nil, key("c"))

	created := a.must(t, 201, ada, "POST", "/v1/posts", text, key("d"))
	sameAnswer(t, created, a.must(t, 201, ada, "POST", "/v1/posts", text, key("d")))
	p := read[post](t, created)
	comment1 := a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": "C"}, key("e"))
	sameAnswer(t, comment1, a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": "C"}, key("e")))
	path := fmt.Sprintf("/v1/comments/%d/replies", read[comment](t, comment1).ID)
	reply1 := a.must(t, 201, ada, "POST", path, obj{"content": "R"}, key("f"))
	sameAnswer(t, reply1, a.must(t, 201, ada, "POST", path, obj{"content": "R"}, key("f")))
	if n := a.number(t, "SELECT comments_count FROM posts"); n != 2 {
		t.Errorf("%d comments, want 2", n)
	}
	// The answer shows the present state: neither edited nor deleted text returns.
	a.must(t, 200, ada, "PATCH", pathOf(p), obj{"title": "Another"}, header{"If-Match", "*"})
	if r := a.must(t, 201, ada, "POST", "/v1/posts", text, key("d")); !replayed(r) ||
		read[post](t, r).Title != "Another" {
		t.Errorf("answered with %s", r)
	}
	a.must(t, 204, ada, "DELETE", pathOf(p), nil)
	a.refused(t, 409, "conflict", ada, "POST", "/v1/posts", text, key("d"))
	a.must(t, 201, ada, "POST", "/v1/posts", text)
	if n := a.number(t, "SELECT COUNT(*) FROM posts"); n != 2 {
		t.Errorf("%d posts, want 2", n)
	}
}

func TestIdempotency_belongsToOneRequestOfOneUser(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	users := a.accounts(t, 2)
	first := a.must(t, 201, users[0], "POST", "/v1/posts", text, key("k"))
	other := a.must(t, 201, users[1], "POST", "/v1/posts", text, key("k"))
	if replayed(other) || bytes.Equal(first.Body, other.Body) {
		t.Errorf("another user's key got %s", other)
	}
	for _, in := range []any{obj{"title": "A title", "content": "Other."},
		`{"title":"A title" ,"content":"Some *content*."}`} {
		a.refusedField(t, 422, "invalid", "Idempotency-Key", users[0], "POST", "/v1/posts", in, key("k"))
	}
	a.refusedField(t, 422, "invalid", "Idempotency-Key", users[0], "POST", pathOf(read[post](t, first))+"/comments",
		text, key("k"))
	// Another session of the user is the same user.
	token, err := accounts.New(a.store).CreateSession(t.Context(), users[0].ID)
	require.NoError(t, err)
	sameAnswer(t, first, a.must(t, 201, account{Token: token}, "POST", "/v1/posts", text, key("k")))
	if n := a.number(t, "SELECT COUNT(*) FROM posts"); n != 2 {
		t.Errorf("%d posts, want 2", n)
	}
}

// A refused request had no effect, so its key is unused.
func TestIdempotency_forgetsRefusals(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	a.refused(t, 422, "invalid", ada, "POST", "/v1/posts", obj{"title": "", "content": "C"}, key("k"))
	a.refused(t, 400, "malformed", ada, "POST", "/v1/posts", "{", key("k"))
	a.refused(t, 404, "not_found", ada, "POST", "/v1/posts/7/comments", obj{"content": "C"}, key("k"))
	if r := a.must(t, 201, ada, "POST", "/v1/posts", text, key("k")); replayed(r) {
		t.Error("the first success is said to be a repetition")
	}
	if n := a.number(t, "SELECT COUNT(*) FROM idempotency_keys"); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
}

// withoutKey are the paths of the POSTs that take no Idempotency-Key.
var withoutKey = []string{
	"/v1/drops/:id/claims", "/v1/render", "/v1/images", "/v1/auth/challenge", "/v1/me/factors/totp",
	"/v1/me/factors/totp/confirm", "/v1/me/factors/recovery-codes", "/v1/admin/users/:id/factor-reset",
}

func TestIdempotency_refusesUnreadableKeysOnEveryPOST(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for _, k := range []string{"", strings.Repeat("x", 256), "caf\xc3\xa9", "a\tb"} {
		a.refusedField(t, 400, "malformed", "Idempotency-Key", ada, "POST", "/v1/posts", text, key(k))
	}
	root := a.account(t)
	require.NoError(t, accounts.New(a.store).SetRole(t.Context(), root.ID, models.RoleAdmin))
	posts := 0
	for _, route := range a.Routes() {
		if route.Method != http.MethodPost || slices.Contains(withoutKey, route.Path) {
			continue
		}
		posts++
		path := strings.ReplaceAll(route.Path, ":id", "1")
		a.refusedField(t, 400, "malformed", "Idempotency-Key", root, "POST", path, obj{}, key(""))
	}
	if posts < 6 {
		t.Errorf("%d routes take POST", posts)
	}
	for _, path := range []string{"/v1/auth/register", "/v1/auth/login"} { // anonymous clients share their keys
		for _, k := range []string{"", "1", strings.Repeat("~", 15), strings.Repeat("~", 256)} {
			p, r := a.refused(t, 400, "malformed", account{}, "POST", path, obj{}, key(k))
			if len(p.Errors) != 1 || p.Errors[0].Field != "Idempotency-Key" ||
				!strings.Contains(p.Errors[0].Message, "16 to 255") {
				t.Errorf("%q: %s", k, r)
			}
		}
	}
	in := obj{"username": "grace", "email": "grace@example.org", "password": "nanoseconds"}
	a.must(t, 201, account{}, "POST", "/v1/auth/register", in, key(strings.Repeat("~", 16)))
	for _, k := range []string{"x", " ", strings.Repeat("~", 255), `"quoted"`} {
		if k == " " { // client libraries trim blanks
			k = "a b"
		}
		sameAnswer(t, a.must(t, 201, ada, "POST", "/v1/posts", text, key(k)),
			a.must(t, 201, ada, "POST", "/v1/posts", text, key(k)))
	}
}

func TestIdempotency_onePostOfManyAtOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	const keys, tries = 5, 20
	var created, again, refused atomic.Int64
	together(keys*tries, func(i int) {
		r, err := a.try(ada, "POST", "/v1/posts", text, key(fmt.Sprint(i%keys)))
		switch {
		case err != nil:
			t.Error(err)
		case r.Status == 201 && replayed(r):
			again.Add(1)
		case r.Status == 201:
			created.Add(1)
		case r.Status == 409 && r.Header.Get("Retry-After") == "1":
			refused.Add(1)
		default:
			t.Errorf("%s", r)
		}
	})
	t.Logf("%d created, %d answered again, %d refused", created.Load(), again.Load(), refused.Load())
	if n := a.number(t, "SELECT COUNT(*) FROM posts"); n != keys || created.Load() != keys {
		t.Errorf("%d posts, %d said to be created, want %d", n, created.Load(), keys)
	}
}

// A key that is released and claimed again and again is a row that many requests delete and insert at once.
func TestIdempotency_manyRepetitionsOfARefusal(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	var refused, busy atomic.Int64
	together(30, func(i int) {
		for range 20 {
			r, err := a.try(ada, "POST", "/v1/posts", obj{"title": "", "content": "C"}, key(fmt.Sprint(i%2)))
			switch {
			case err != nil:
				t.Error(err)
			case r.Status == 422:
				refused.Add(1)
			case r.Status == 409:
				busy.Add(1)
			default:
				t.Errorf("%s", r)
			}
		}
	})
	t.Logf("%d refused, %d while another was", refused.Load(), busy.Load())
}

// A process can stall or die between the COMMIT and its answer. The next request finds the created object.
func TestIdempotency_answersFromCreatedObjects(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	store, sent := openRecorded(t, dsn)
	entered, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	stuck, a := serve(t, store), serve(t, openStore(t, dsn))
	ada := a.account(t)
	answered := make(chan reply, 2)
	send := func(path string, body any, k, insert string) {
		sent.onceAfter(insert, func() {
			sent.onceAfter("COMMIT", func() {
				entered <- struct{}{}
				<-released
			})
		})
		go func() {
			r, err := stuck.try(ada, "POST", path, body, key(k))
			if err != nil {
				r.Body = []byte(err.Error())
			}
			answered <- r
		}()
		<-entered
	}
	send("/v1/posts", text, "post", "INSERT INTO posts")
	r := a.must(t, 201, ada, "POST", "/v1/posts", text, key("post"))
	p := read[post](t, r)
	if !replayed(r) || r.Header.Get("Location") != pathOf(p) || p.Title != "A title" {
		t.Errorf("answered with %v %s", r.Header, r)
	}
	send(pathOf(p)+"/comments", obj{"content": "C"}, "comment", "INSERT INTO comments")
	r = a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": "C"}, key("comment"))
	if c := read[comment](t, r); !replayed(r) || c.Content != "C" ||
		r.Header.Get("Location") != fmt.Sprintf("/v1/comments/%d", c.ID) {
		t.Errorf("answered with %v %s", r.Header, r)
	}
	if posts, comments := a.number(t, "SELECT COUNT(*) FROM posts"),
		a.number(t, "SELECT COUNT(*) FROM comments"); posts != 1 || comments != 1 {
		t.Errorf("%d posts and %d comments, want one of each", posts, comments)
	}
	release()
	for range 2 {
		if r := <-answered; r.Status != 201 || replayed(r) {
			t.Errorf("the one that was held got %s", r)
		}
	}
}

// A repeated registration or login opens a new session in place of the first, but only with the present password.
func TestIdempotency_repeatedLoginNeedsThePasswordOfNow(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	in := obj{"username": "grace", "email": "grace@example.org", "password": "nanoseconds"}
	login := obj{"login": "grace", "password": "nanoseconds"}
	var last session
	for _, request := range []struct {
		status int
		path   string
		body   obj
		key    header
	}{{201, "/v1/auth/register", in, key("an-unlikely-key-k")},
		{200, "/v1/auth/login", login, key("an-unlikely-key-l")}} {
		first := a.must(t, request.status, account{}, "POST", request.path, request.body, request.key)
		tokens := map[string]bool{read[session](t, first).Token: true}
		for range 3 {
			again := a.must(t, request.status, account{}, "POST", request.path, request.body, request.key)
			sameAnswer(t, first, again)
			last = read[session](t, again)
			tokens[last.Token] = true
		}
		if len(tokens) != 4 {
			t.Errorf("%s: %d different tokens, want 4", request.path, len(tokens))
		}
		a.must(t, 200, account{Token: last.Token}, "GET", "/v1/me", nil)
	}
	if n := a.number(t, "SELECT COUNT(*) FROM sessions"); n != 2 {
		t.Errorf("%d sessions, want one of the registration and one of the login", n)
	}
	a.must(t, 204, account{Token: last.Token}, "PUT", "/v1/me/password",
		obj{"current_password": "nanoseconds", "new_password": "picoseconds"})
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/register", in, key("an-unlikely-key-k"))
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login", login, key("an-unlikely-key-l"))
	if n := a.number(t, "SELECT COUNT(*) FROM sessions"); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
}

// An error after the COMMIT, or of the COMMIT itself, does not reach a client that sent a key.
func TestIdempotency_answersThoughTheAnswerFailed(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	broken := brokenLikes{likes.New(store), &atomic.Bool{}}
	a := serve(t, store, func(c *handlers.Config) { c.Likes = broken })
	ada := a.account(t)
	p := a.newPost(t, ada)
	a.must(t, 204, ada, "DELETE", pathOf(p), nil)
	broken.fail.Store(true)
	a.refused(t, 500, "internal", ada, "POST", pathOf(p)+"/restore", nil, key("k"))
	broken.fail.Store(false)
	r := a.must(t, 200, ada, "POST", pathOf(p)+"/restore", nil, key("k"))
	if restored := read[post](t, r); !replayed(r) || restored.ID != p.ID {
		t.Errorf("answered with %s", r)
	}
}

// brokenLikes fails to read likes while it is set to fail, so that no post can be shown.
type brokenLikes struct {
	*likes.Store
	fail *atomic.Bool
}

func (b brokenLikes) LikeStates(ctx context.Context, viewer int64,
	rows []models.TargetCount) ([]models.LikeState, error) {
	if b.fail.Load() {
		return nil, errors.New("broken")
	}
	return likes.New(b.DB).LikeStates(ctx, viewer, rows)
}

// The table alone reveals neither texts, tokens nor passwords, nor a fast way to guess passwords. The length of a row
// does not depend on that of the text.
func TestIdempotency_keepsNoTextsAndNoSecrets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	const body = `{"username":"grace","email":"grace@example.org","password":"nanoseconds"}`
	r := a.must(t, 201, account{}, "POST", "/v1/auth/register", body, key("the-very-key-itself"))
	a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": strings.Repeat("&", 60_000)}, key("long"))
	a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "Confidential", "content": strings.Repeat("&", 60_000)},
		key("longer"))
	rows, err := a.store.Pool().QueryContext(t.Context(),
		"SELECT key_hash, request_hash, COALESCE(effect,'') FROM idempotency_keys")
	require.NoError(t, err)
	defer rows.Close()
	seen := 0
	for ; rows.Next(); seen++ {
		var keyHash, requestHash, effect []byte
		require.NoError(t, rows.Scan(&keyHash, &requestHash, &effect))
		if len(effect) > 100 {
			t.Errorf("the effect has %d bytes: %.200s", len(effect), effect)
		}
		for _, secret := range []string{"grace", "nanoseconds", read[session](t, r).Token, "the-very-key-itself", "&&&",
			"Confidential"} {
			if bytes.Contains(bytes.Join([][]byte{keyHash, requestHash, effect}, nil), []byte(secret)) {
				t.Errorf("%q is in the table", secret)
			}
		}
		if plain := sha256.Sum256([]byte("the-very-key-itself")); bytes.Equal(keyHash, plain[:]) {
			t.Error("the key's hash is that of the key alone")
		}
		for _, guess := range []string{body, "POST /v1/auth/register\n" + body} {
			if plain := sha256.Sum256([]byte(guess)); bytes.Equal(requestHash, plain[:]) {
				t.Error("the request's hash is that of the request alone")
			}
		}
	}
	if err := rows.Err(); err != nil || seen != 3 {
		t.Errorf("%d rows, %v", seen, err)
	}
}

// If a login is repeated many times at once, every answer has a token, and one session is left.
func TestIdempotency_manyRepetitionsOfALogin(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	in := obj{"username": "grace", "email": "grace@example.org", "password": "nanoseconds"}
	a.must(t, 201, account{}, "POST", "/v1/auth/register", in, key("an-unlikely-key-k"))
	var answered, busy atomic.Int64
	together(12, func(int) {
		r, err := a.try(account{}, "POST", "/v1/auth/register", in, key("an-unlikely-key-k"))
		switch {
		case err != nil:
			t.Error(err)
		case r.Status == 201 && replayed(r):
			answered.Add(1)
		case r.Status == 409 && r.Header.Get("Retry-After") == "1":
			busy.Add(1)
		default:
			t.Errorf("%s", r)
		}
	})
	t.Logf("%d answered, %d refused", answered.Load(), busy.Load())
	if n := a.number(t, "SELECT COUNT(*) FROM sessions"); n != 1 || answered.Load() == 0 {
		t.Errorf("%d sessions after %d answers, want 1", n, answered.Load())
	}
}
