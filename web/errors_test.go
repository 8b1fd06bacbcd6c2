package web

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onAPI returns pages on an API that is a handler, and their log.
func onAPI(t *testing.T, api http.HandlerFunc) (s *Server, log *bytes.Buffer) {
	t.Helper()
	behind := httptest.NewServer(api)
	t.Cleanup(behind.Close)
	at, err := url.Parse(behind.URL)
	require.NoError(t, err)
	log = &bytes.Buffer{}
	s, err = New(Config{API: at, PublicURL: at, Log: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	return s, log
}

// answering returns an API that answers requests of a method with a problem, and others with anything.
func answering(method string, status int, problem string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == method || method == "" {
			w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
			w.WriteHeader(status)
			_, _ = io.WriteString(w, problem)
			return
		}
		_, _ = io.WriteString(w, anything)
	}
}

// send sends a request of who has signed in. The headers are pairs of name and value.
func send(s *Server, method, path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.AddCookie(&http.Cookie{Name: "session", Value: "token"})
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

type plain struct {
	Status    int
	Code      string
	Detail    string
	RequestID string `json:"request_id"`
}

func plainOf(t *testing.T, w *httptest.ResponseRecorder) plain {
	t.Helper()
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), w.Body.String())
	var p plain
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	assert.Equal(t, w.Code, p.Status)
	assert.NotEmpty(t, p.RequestID)
	assert.Equal(t, []string{p.RequestID}, w.Header().Values("X-Request-Id"))
	return p
}

// What web itself answers to a script is in the language of its page, and names the request.
func TestErrors_forScripts(t *testing.T) {
	t.Parallel()
	gone, log := onAPI(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	p := plainOf(t, send(gone, http.MethodPut, "/v1/posts/1/like", nil, "Accept-Language", "zh-CN"))
	assert.Equal(t, "论坛没有响应，请稍后再试。 请求编号 "+p.RequestID+"。", p.Detail)
	assert.Contains(t, log.String(), p.RequestID)
	p = plainOf(t, send(gone, http.MethodPut, "/v1/posts/1/like", nil))
	assert.Equal(t, "The forum does not answer. Try again in a moment. Request "+p.RequestID+".", p.Detail)
	p = plainOf(t, send(gone, http.MethodGet, "/v1/nothing", nil, "Accept-Language", "zh-CN"))
	assert.Equal(t, http.StatusNotFound, p.Status)
	assert.NotEqual(t, errNotFound.Detail, p.Detail)
	p = plainOf(t, send(gone, http.MethodPut, "/v1/posts/1/like", nil, "Sec-Fetch-Site", "cross-site"))
	assert.Equal(t, "cross_origin", p.Code)

	const invalid = `{"status":422,"code":"invalid","detail":"The request has an invalid field.","request_id":"R",
		"errors":[{"field":"content","code":"too_short","message":"must not be empty"}]}`
	refusing, _ := onAPI(t, answering("", http.StatusUnprocessableEntity, invalid))
	w := send(refusing, http.MethodPut, "/v1/me/drafts/k", nil, "Accept-Language", "zh-CN")
	assert.JSONEq(t, invalid, w.Body.String(), "the answer of the API is not changed")
	assert.Len(t, w.Header().Values("X-Request-Id"), 1)
	w = send(refusing, http.MethodPost, "/preview", url.Values{"content": {""}}, "X-Requested-With", "fetch")
	var shown plain
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &shown))
	assert.Equal(t, plain{422, "invalid", "The request has an invalid field. content must not be empty.", "R"}, shown)
}

// Who follows a link to what the API makes gets a page if that fails.
func TestErrors_forPeople(t *testing.T) {
	t.Parallel()
	ended, _ := onAPI(t, answering("", http.StatusUnauthorized, `{"status":401,"code":"unauthorized","detail":"No."}`))
	w := send(ended, http.MethodGet, "/v1/me/export", nil, "Sec-Fetch-Mode", "navigate")
	assert.Equal(t, http.StatusUnauthorized, w.Code)
	assert.Contains(t, w.Body.String(), `<input type="hidden" name="next" value="/v1/me/export">`)
	busy, _ := onAPI(t, answering("", http.StatusTooManyRequests, `{"code":"rate_limited","detail":"No."}`))
	w = send(busy, http.MethodGet, "/v1/me/export", nil, "Sec-Fetch-Mode", "navigate")
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Contains(t, w.Body.String(), "<h1>Slow down</h1>")

	bad, _ := onAPI(t, answering(http.MethodGet, http.StatusUnprocessableEntity,
		`{"status":422,"code":"invalid","detail":"The request has an invalid field.","request_id":"R42",
		"errors":[{"field":"q","code":"too_long","message":"must have 1 to 200 characters"}]}`))
	for _, path := range []string{"/moderate/posts?q=x", "/moderate/users?username=x", "/search?q=x"} {
		w = send(bad, http.MethodGet, path, nil)
		assert.Contains(t, w.Body.String(), "R42", path)
		assert.Contains(t, w.Body.String(), "must have 1 to 200 characters", path)
	}
}

// When a browser leaves, the site has not failed.
func TestErrors_ofBrowsersThatLeave(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/feed", "/v1/stream", "/v1/me/export"} {
		ctx, leave := context.WithCancel(t.Context())
		s, log := onAPI(t, func(_ http.ResponseWriter, r *http.Request) {
			leave()
			<-r.Context().Done()
		})
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.AddCookie(&http.Cookie{Name: "session", Value: "token"})
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		assert.Equal(t, statusLeft, w.Code, path)
		assert.Empty(t, log.String(), path)
	}
}

// A form is said to be carried out once only if it has a key.
func TestErrors_promiseWhatHolds(t *testing.T) {
	t.Parallel()
	const once = "it is carried out only once"
	s, _ := onAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			panic(http.ErrAbortHandler)
		}
		answering(http.MethodPost, 0, "")(w, r)
	})
	for _, path := range []string{"/posts/1/report", "/settings/tokens", "/operate/webhooks", "/posts/1/drops/new"} {
		body := send(s, http.MethodGet, path, nil).Body.String()
		key := regexp.MustCompile(`name="key" value="(\w+)"`).FindStringSubmatch(body)
		require.NotNil(t, key, path)
		w := send(s, http.MethodPost, path, url.Values{
			"key": {key[1]}, "detail": {"d"}, "name": {"bot"}, "scope": {"write"}, "url": {"https://hook.example"},
			"title": {"T"}, "stock": {"1"},
		})
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, path)
		assert.Contains(t, w.Body.String(), once, path)
		assert.Contains(t, w.Body.String(), key[1], path)
	}
	for path, form := range map[string]url.Values{
		"/settings/profile":            {"bio": {"Mine."}},
		"/operate/webhooks/1":          {"url": {"https://hook.example"}, "version": {"1"}},
		"/moderate/users/1/role":       {"reason": {"Trusted."}, "role": {"moderator"}},
		"/posts/1/comments":            {"content": {"By a page that is too old to have a key."}},
		"/settings/sessions?id=1":      {"id": {"1"}},
		"/moderate/images/x/delete":    {},
		"/settings/password":           {"new_password": {"p"}},
		"/operate/webhooks/1/delete":   {},
		"/operate/reconcile":           {"target": {"1"}, "kind": {"post"}},
		"/operate/dead-letters/1":      {"do": {"retry"}, "reason": {"Again."}},
		"/operate/webhooks/1/replay/2": {},
	} {
		w := send(s, http.MethodPost, path, form)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, path)
		assert.NotContains(t, w.Body.String(), once, path)
	}
}

// A form comes back filled although its page cannot be read: from an API that is away, or that refuses.
func TestErrors_loseNoField(t *testing.T) {
	t.Parallel()
	away, _ := onAPI(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	w := send(away, http.MethodPost, "/settings/tokens", url.Values{
		"name": {"my bot"}, "scope": {"read", "write"}, "key": {"k"},
	})
	for _, field := range []string{
		"it is carried out only once", `name="key" value="k"`,
		`<input name="name" value="my bot"`, `name="scope" value="read"`, `name="scope" value="write"`,
		`action="/settings/tokens"`,
	} {
		assert.Contains(t, w.Body.String(), field)
	}
	refusing, _ := onAPI(t, answering(http.MethodPost, http.StatusUnprocessableEntity,
		`{"status":422,"code":"invalid","detail":"The request has an invalid field.",
		"errors":[{"field":"name","code":"taken","message":"is taken"}]}`))
	w = send(refusing, http.MethodPost, "/settings/tokens", url.Values{"name": {"my bot"}, "scope": {"write"}})
	assert.Contains(t, w.Body.String(), `<input name="name" value="my bot"`)
	assert.Contains(t, w.Body.String(), `value="write" checked`)
	assert.NotContains(t, w.Body.String(), `value="read" checked`)
}

// A picture that is too large is not taken for an API that is away.
func TestErrors_ofLargeFiles(t *testing.T) {
	t.Parallel()
	s, _ := onAPI(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, anything)
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/images",
		strings.NewReader(strings.Repeat("x", maxUpload+1)))
	r.AddCookie(&http.Cookie{Name: "session", Value: "token"})
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	assert.Contains(t, w.Body.String(), "What you sent is too large.")
}

// What is shown once is shown although the rest of its page cannot be read.
func TestErrors_loseNoSecret(t *testing.T) {
	t.Parallel()
	s, _ := onAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/v1/me/tokens" {
			_, _ = io.WriteString(w, `{"id": "7", "token": "SHOWN-ONCE"}`)
			return
		}
		_, _ = io.WriteString(w, `{"id": 7, "secret": "SHOWN-ONCE"}`)
	})
	for path, form := range map[string]url.Values{
		"/settings/tokens": {"name": {"bot"}}, "/operate/webhooks": {"url": {"https://hook.example"}},
		"/operate/webhooks/7/rotate": {},
	} {
		w := send(s, http.MethodPost, path, form)
		assert.Contains(t, w.Body.String(), "SHOWN-ONCE", path)
	}
}

// An edit that is refused because it was saved before goes on as if it was saved now.
func TestErrors_savedBefore(t *testing.T) {
	t.Parallel()
	s, _ := onAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			answering("", http.StatusPreconditionFailed, `{"code":"conflict","detail":"No.","version":3}`)(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"id":1,"url":"https://a.example","active":true,"events":["b","a"],"version":3,
			"items":[]}`)
	})
	form := url.Values{"url": {"https://a.example"}, "event": {"a", "b"}, "active": {"1"}, "version": {"2"}}
	w := send(s, http.MethodPost, "/operate/webhooks/1", form)
	assert.Equal(t, "/operate/webhooks/1?done=saved", w.Header().Get("Location"))
	form.Set("url", "https://other.example")
	w = send(s, http.MethodPost, "/operate/webhooks/1", form)
	assert.Equal(t, http.StatusPreconditionFailed, w.Code)
	assert.Contains(t, w.Body.String(), `value="https://other.example"`)
}

// public are the fields of forms that need no session.
var public = []string{"login", "username", "email"}

// Every field of a template that people type into is one that comes back, but passwords.
func TestTypedFields_areAll(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(files, "templates/*.html")
	require.NoError(t, err)
	form := regexp.MustCompile(`(?s)<form[^>]*method="post".*?</form>`)
	field := regexp.MustCompile(`<(?:input|textarea)\b[^>]*>`)
	skip := regexp.MustCompile(`type="(hidden|radio|checkbox|file|search)"|readonly`)
	name := regexp.MustCompile(`\bname="([^"{]+)"`)
	found := 0
	for _, file := range names {
		raw, err := fs.ReadFile(files, file)
		require.NoError(t, err)
		for _, f := range form.FindAllString(string(raw), -1) {
			for _, tag := range field.FindAllString(f, -1) {
				m := name.FindStringSubmatch(tag)
				if skip.MatchString(tag) || m == nil || slices.Contains(public, m[1]) {
					continue
				}
				found++
				known := slices.ContainsFunc(typedFields, func(f keptField) bool { return f.Name == m[1] })
				assert.True(t, known || isSecret(m[1]), "%s: %s", path.Base(file), m[1])
			}
		}
	}
	assert.Greater(t, found, 15)
}

// A form that was sent after the session had ended comes back whole, with its button and without passwords.
func TestKept_bringsEverythingBack(t *testing.T) {
	t.Parallel()
	s, _ := onAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/auth/login" {
			_, _ = io.WriteString(w, `{"token": "new", "user": {"id": 1, "username": "ada"}}`)
			return
		}
		answering("", http.StatusUnauthorized, `{"status":401,"code":"unauthorized","detail":"No."}`)(w, r)
	})
	kept := regexp.MustCompile(`name="kept" value="([^"]*)"`)
	for path, c := range map[string]struct {
		form   url.Values
		button string
	}{
		"/settings/profile": {url.Values{"display_name": {""}, "bio": {"Two\nlines."}}, "Send"},
		"/settings/tokens":  {url.Values{"name": {"bot"}, "scope": {"read", "write"}, "key": {"k"}}, "Send"},
		"/posts/new": {
			url.Values{"title": {"Only a title"}, "content": {""}, "tags": {"go"}, "do": {"preview"}}, "Preview",
		},
		"/posts/1/drops/new": {
			url.Values{"title": {"Tickets"}, "stock": {"7"}, "ends_at": {"2027-01-01T10:00"}}, "Send",
		},
		"/posts/1/report":         {url.Values{"reason": {"spam"}, "detail": {""}, "back": {"/posts/1"}}, "Send"},
		"/operate/webhooks":       {url.Values{"url": {"https://hook.example"}, "event": {"a", "b"}}, "Send"},
		"/moderate/users/1/ban":   {url.Values{"reason": {"Spam <b>"}, "for": {"week"}}, "Ban the account"},
		"/operate/dead-letters/4": {url.Values{"reason": {"Again."}, "do": {"discard"}}, "Discard it"},
		"/moderate/reports/resolve": {
			url.Values{"case": {"1:post-1", "2:post-2"}, "reason": {"Spam."}, "action": {"removed"}},
			"Remove the content",
		},
	} {
		sent := url.Values{"password": {"S3CRET"}, "current_password": {"S3CRET"}}
		maps.Copy(sent, c.form)
		w := send(s, http.MethodPost, path, sent)
		require.Equal(t, http.StatusUnauthorized, w.Code, path)
		assert.NotContains(t, w.Body.String(), "S3CRET", path)
		m := kept.FindStringSubmatch(w.Body.String())
		require.NotNil(t, m, path)
		back := send(s, http.MethodPost, "/sign-in", url.Values{
			"login": {"ada"}, "password": {"p"}, "kept": {html.UnescapeString(m[1])},
		})
		require.Equal(t, http.StatusOK, back.Code, path)
		body := html.UnescapeString(back.Body.String())
		assert.Contains(t, body, `action="`+path+`"`)
		assert.Contains(t, body, ">"+c.button+"</button>", path)
		for name, values := range c.form {
			for _, value := range values {
				inTag, inArea := `name="`+name+`" value="`+value+`"`, `name="`+name+`" rows="12" dir="auto">`+value+`<`
				assert.True(t, strings.Contains(body, inTag) || strings.Contains(body, inArea), "%s: %s", path, name)
			}
		}
	}
	w := send(s, http.MethodPost, "/settings/password", url.Values{"new_password": {"S3CRET"}})
	assert.NotContains(t, w.Body.String(), "kept", "nothing but secrets was typed")
	w = send(s, http.MethodPost, "/images", nil, "Content-Type", "multipart/form-data; boundary=b")
	assert.Contains(t, w.Body.String(), "The file was not sent.")
}

// What cannot be undone is asked first.
func TestRemovals_ask(t *testing.T) {
	t.Parallel()
	var deleted []string
	s, _ := onAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted = append(deleted, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, anything)
	})
	for path, at := range map[string]string{
		"/drafts/k/delete": "/v1/me/drafts/k", "/images/x/delete": "/v1/images/x", "/posts/1/delete": "/v1/posts/1",
		"/comments/1/delete": "/v1/comments/1",
	} {
		w := send(s, http.MethodPost, path, url.Values{})
		assert.Equal(t, http.StatusOK, w.Code, path)
		assert.Contains(t, w.Body.String(), `action="`+path+`"`)
		assert.Empty(t, deleted, path)
		w = send(s, http.MethodPost, path, url.Values{"sure": {"yes"}})
		assert.Equal(t, http.StatusSeeOther, w.Code, path)
		assert.Equal(t, []string{at}, deleted)
		deleted = nil
	}
}

// A part that is missing is logged, unless it does not exist.
func TestOptional_isLogged(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{404: "", 503: "page incomplete"} {
		s, log := onAPI(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/tags" {
				w.WriteHeader(status)
				return
			}
			_, _ = io.WriteString(w, anything)
		})
		assert.Equal(t, http.StatusOK, send(s, http.MethodGet, "/new", nil).Code)
		if want == "" {
			assert.Empty(t, log.String())
		} else {
			assert.Contains(t, log.String(), want)
		}
	}
}

// Browsers reach those operations of the API alone that a page, a script or a feed uses.
func TestAPIRoutes_areUsed(t *testing.T) {
	t.Parallel()
	var used strings.Builder
	for _, glob := range []string{"templates/*.html", "assets/*.js"} {
		names, err := fs.Glob(files, glob)
		require.NoError(t, err)
		for _, file := range names {
			raw, err := fs.ReadFile(files, file)
			require.NoError(t, err)
			used.Write(raw)
		}
	}
	for _, elsewhere := range []string{
		"/v1/images/{id}", "/v1/images/{id}/thumbnail", // in texts
		"/v1/sitemap.xml", "/v1/sitemap/{page}", // in robots.txt
		"/v1/feeds/new", "/v1/feeds/tags/{tag}", "/v1/feeds/users/{id}", "/v1/feeds/posts/{id}", // in the head of pages
		"/v1/admin/log.csv", // in the log of the desk
	} {
		used.WriteString(elsewhere + "\n")
	}
	var routes patterns
	newTestServer(t).apiRoutes(&routes)
	variable := regexp.MustCompile(`\\\{\w+\\\}`)
	for _, pattern := range routes {
		_, path, _ := strings.Cut(pattern, " ")
		form := regexp.QuoteMeta(path)
		if kind := regexp.MustCompile(`^/v1/(posts|comments)/\\\{id\\\}/like$`); kind.MatchString(form) {
			form = `/v1/\{\{\.Note\}\}/\{\{\$it\.ID\}\}/like`
		}
		form = variable.ReplaceAllString(form, `(\{\{[^}]*\}\}|\$\{\w+\}|\{\w+\})`)
		assert.Regexp(t, form, used.String(), pattern)
	}
}
