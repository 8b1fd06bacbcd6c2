package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers/live"
)

const password = "nine brown foxes"

// register opens an account with a password.
func (v *visit) register(name string) account {
	v.t.Helper()
	r := v.gets(201, anonymous, "POST /v1/auth/register",
		obj{"username": name, "email": name + "@example.org", "password": password})
	return account{token: r.text(v.t, "token")}
}

// pictureOf returns a PNG of this size.
func pictureOf(t testing.TB, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))))
	return b.Bytes()
}

var apiStatements = []statement{
	{"A running server serves it at `/openapi.yaml`, and at `/docs` as a page to read and try it", func(v *visit) {
		assert.Contains(v.t, v.gets(200, anonymous, "GET /openapi.yaml", nil).body, "openapi: 3.1")
		assert.Contains(v.t, v.gets(200, anonymous, "GET /docs", nil).header.Get("Content-Type"), "text/html")
	}},
	{"Bodies are JSON objects, sent as `application/json`, of at most 384 KiB.", func(v *visit) {
		ada := v.user()
		v.refused(400, "malformed", ada, "POST /v1/posts", "[1]")
		v.refused(415, "unsupported_media_type", ada, "POST /v1/posts", "{}", "Content-Type: text/plain")
		body := func(size int) string {
			const head, tail = `{"title":"T","content":"`, `"}`
			return head + strings.Repeat("a", size-len(head)-len(tail)) + tail
		}
		v.refused(422, "invalid", ada, "POST /v1/posts", body(384<<10)) // read, and then the text is too long
		v.refused(413, "too_large", ada, "POST /v1/posts", body(384<<10+1))
	}},
	{"An unknown field is refused and named, and so is one that comes twice; `null` is the same as leaving a field " +
		"out.",
		func(v *visit) {
			ada := v.user()
			r := v.refused(422, "invalid", ada, "POST /v1/posts", `{"title":"T","content":"c","colour":1}`)
			assert.Equal(v.t, "colour", r.at(v.t, "errors", 0, "field"))
			r = v.refused(400, "malformed", ada, "POST /v1/posts", `{"title":"T","content":"c","title":"U"}`)
			assert.Equal(v.t, "title", r.at(v.t, "errors", 0, "field"))
			v.gets(201, ada, "POST /v1/posts", `{"title":"T","content":"c","tags":null}`)
		}},
	{"Unknown query parameters are ignored.", func(v *visit) { v.gets(200, anonymous, "GET /v1/posts?colour=1", nil) }},
	{"Times are RFC 3339 in UTC.", func(v *visit) {
		at := v.gets(200, anonymous, "GET "+v.post(v.user()), nil).text(v.t, "created_at")
		_, err := time.Parse(time.RFC3339, at)
		assert.NoError(v.t, err)
		assert.True(v.t, strings.HasSuffix(at, "Z"), at)
	}},
	{"Where the contract has `security` of `{}` and `bearer`, no token is needed, but an invalid one still gets 401.",
		func(v *visit) {
			v.gets(200, anonymous, "GET /v1/posts", nil)
			r := v.refused(401, "unauthorized", account{token: "invalid"}, "GET /v1/posts", nil)
			assert.Equal(v.t, "Bearer", r.header.Get("WWW-Authenticate"))
		}},
	{"A revoked token is refused within 5 seconds.", func(v *visit) {
		ada := v.user()
		v.gets(200, ada, "GET /v1/me", nil)
		_, err := v.askAt(v.s.bare, ada, "GET /v1/me", nil) // which keeps the session
		require.NoError(v.t, err)
		v.gets(204, ada, "POST /v1/auth/logout", nil)
		ended := time.Now()
		v.eventually(func() (bool, string) {
			r, err := v.askAt(v.s.bare, ada, "GET /v1/me", nil)
			require.NoError(v.t, err)
			return r.status == 401, fmt.Sprint(r.status)
		})
		assert.Less(v.t, time.Since(ended), 5*time.Second)
	}},
	{"**Errors** are `application/problem+json` (RFC 9457):", func(v *visit) {
		r := v.refused(422, "invalid", v.user(), "POST /v1/posts",
			obj{"title": strings.Repeat("a", 201), "content": "c"})
		assert.Equal(v.t, "application/problem+json", r.header.Get("Content-Type"))
		assert.Equal(v.t, "about:blank", r.at(v.t, "type"))
		assert.Equal(v.t, "Unprocessable Entity", r.at(v.t, "title"))
		assert.Equal(v.t, "422", r.text(v.t, "status"))
	}},
	{`"errors": [{"field": "title", "code": "too_long", "params": {"max": 200, "unit": "characters"},
             "message": "must have at most 200 characters"}]}`, func(v *visit) {
		r := v.refused(422, "invalid", v.user(), "POST /v1/posts",
			obj{"title": strings.Repeat("a", 201), "content": "c"})
		assert.Contains(v.t, r.body, `"errors":[{"field":"title","code":"too_long","params":{"max":200,`+
			`"unit":"characters"},`+
			`"message":"must have at most 200 characters"}]`)
	}},
	{"`request_id` is also the header `X-Request-Id`, and identifies the request in the server's log.", func(v *visit) {
		r := v.refused(404, "not_found", anonymous, "GET /v1/posts/999999999", nil)
		id := r.text(v.t, "request_id")
		assert.Equal(v.t, id, r.header.Get("X-Request-Id"))
		v.eventually(func() (bool, string) {
			return strings.Contains(v.s.api.stderr.String(), "request_id="+id), "the log has no line of it"
		})
	}},

	// The table of statuses.
	{"| 400 · 415 | the request cannot be read: invalid JSON, a field of the wrong type, a cursor of another list | " +
		"no |",
		func(v *visit) {
			ada := v.user()
			v.refused(400, "malformed", ada, "POST /v1/posts", "{")
			v.refused(400, "malformed", ada, "POST /v1/posts", obj{"title": 1, "content": "c"})
			post := v.post(ada)
			v.comment(ada, post)
			v.comment(ada, post)
			next := v.gets(200, anonymous, "GET "+post+"/comments?limit=1", nil).text(v.t, "next_cursor")
			v.gets(200, anonymous, "GET "+post+"/comments?limit=1&cursor="+next, nil)
			v.refused(400, "malformed", anonymous, "GET /v1/posts?cursor="+next, nil)
			v.refused(415, "unsupported_media_type", ada, "POST /v1/posts", "{}", "Content-Type: text/html")
		}},
	{"| 401 · 403 | no valid token · not allowed; or a drop has not begun (`not_started`) or has ended (`ended`) | " +
		"no |",
		func(v *visit) {
			ada, ben := v.user(), v.user()
			v.refused(401, "unauthorized", anonymous, "GET /v1/me", nil)
			v.refused(403, "forbidden", ben, "DELETE "+v.post(ada), nil)
			later := v.drop(ada, obj{"begins_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
			v.refused(403, "not_started", ben, "POST "+later+"/claims", nil)
			closed := v.drop(ada, nil)
			v.gets(200, ada, "POST "+closed+"/close", nil)
			v.refused(403, "ended", ben, "POST "+closed+"/claims", nil)
		}},
	{"| 404 · 405 | deleted or never existed · the path does not support the method; `Allow` lists those that it " +
		"does | no |",
		func(v *visit) {
			ada := v.user()
			post := v.post(ada)
			v.gets(204, ada, "DELETE "+post, nil)
			v.refused(404, "not_found", anonymous, "GET "+post, nil)
			v.refused(404, "not_found", anonymous, "GET /v1/posts/999999999", nil)
			r := v.refused(405, "method_not_allowed", anonymous, "DELETE /v1/posts", nil)
			for _, method := range []string{"GET", "HEAD", "POST"} {
				assert.Contains(v.t, r.header.Get("Allow"), method)
			}
		}},
	{"| 408 | the request took too long to arrive | yes |", func(v *visit) {
		begin := time.Now()
		answer := v.raw("POST /v1/posts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + v.user().token +
			"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		assert.Contains(v.t, answer, "HTTP/1.1 408 ")
		assert.Contains(v.t, answer, `"code":"request_timeout"`)
		assert.Less(v.t, time.Since(begin), 40*time.Second)
	}},
	{"| 409 | the request conflicts with existing data; nothing is left of a drop (`sold_out`); or a later call for " +
		"the same like has replaced this one (`superseded`) | no |", func(v *visit) {
		ada, ben, cem := v.user(), v.user(), v.user()
		drop := v.drop(ada, nil)
		v.gets(201, ben, "POST "+drop+"/claims", nil)
		v.refused(409, "sold_out", cem, "POST "+drop+"/claims", nil)
		v.register("taken.name")
		v.refused(409, "conflict", anonymous, "POST /v1/auth/register",
			obj{"username": "Taken.Name", "email": "other@example.org", "password": password})
	}},
	{"| 412 · 428 | edited meanwhile; `version` is the present one · `If-Match` is missing | after reading it again |",
		func(v *visit) {
			ada := v.user()
			post := v.post(ada)
			v.refused(428, "if_match_required", ada, "PATCH "+post, obj{"content": "b"})
			v.gets(200, ada, "PATCH "+post, obj{"content": "b"}, `If-Match: "v0"`)
			r := v.refused(412, "precondition_failed", ada, "PATCH "+post, obj{"content": "c"}, `If-Match: "v0"`)
			assert.Equal(v.t, "1", r.text(v.t, "version"))
		}},
	{"| 413 · 431 | the body is larger than 384 KiB · path and headers are larger than 8 KiB | no |", func(v *visit) {
		ada := v.user()
		v.refused(413, "too_large", ada, "POST /v1/posts", strings.Repeat(" ", 384<<10+1))
		v.refused(431, "header_too_large", ada, "GET /v1/posts?q="+strings.Repeat("a", 8<<10), nil)
		v.refused(431, "header_too_large", ada, "GET /v1/posts", nil, "X-Any: "+strings.Repeat("a", 8<<10))
		v.gets(200, ada, "GET /v1/posts", nil, "X-Any: "+strings.Repeat("a", 7<<10))
	}},
	{"| 422 | a field breaks a rule; each is in `errors` | no |", func(v *visit) {
		r := v.refused(422, "invalid", v.user(), "POST /v1/posts", obj{"title": "", "content": ""})
		assert.Equal(v.t, "content", r.at(v.t, "errors", 1, "field"))
		assert.Equal(v.t, "title", r.at(v.t, "errors", 0, "field"))
	}},
	{"| 429 · 503 | over a limit · a server that is needed is unavailable | after `Retry-After` seconds |",
		func(v *visit) {
			ada := v.fresh()
			for range 3 {
				v.post(ada)
			}
			r := v.refused(429, "rate_limited", ada, "POST /v1/posts", obj{"title": "T", "content": "c"})
			wait, err := strconv.Atoi(r.header.Get("Retry-After"))
			require.NoError(v.t, err)
			assert.True(v.t, 0 < wait && wait <= 600, "%d", wait)
		}},

	// Retries.
	{"Every `GET`, `PUT` and `DELETE` can be sent again, likes included: they are absolute, and repeating one " +
		"changes nothing.",
		func(v *visit) {
			ada := v.user()
			post := v.post(ada)
			for range 2 {
				assert.Equal(v.t, "1", v.gets(200, ada, "PUT "+post+"/like", nil).text(v.t, "likes_count"))
			}
			for range 2 {
				assert.Equal(v.t, "0", v.gets(200, ada, "DELETE "+post+"/like", nil).text(v.t, "likes_count"))
			}
			bookmark := "/v1/posts/" + post[strings.LastIndexByte(post, '/')+1:] + "/bookmark"
			for _, method := range []string{"PUT ", "PUT ", "DELETE ", "DELETE "} {
				v.gets(200, ada, method+bookmark, nil)
			}
		}},
	{"A post or comment that is deleted already gets 404.", func(v *visit) {
		ada := v.user()
		post := v.post(ada)
		for _, path := range []string{v.comment(ada, post), post} {
			v.gets(204, ada, "DELETE "+path, nil)
			v.refused(404, "not_found", ada, "DELETE "+path, nil)
		}
	}},
	{"A `POST` can be sent again with the same `Idempotency-Key`, and is carried out once within 24 hours.",
		func(v *visit) {
			ada, key := v.user(), "Idempotency-Key: "+uuid.NewString()
			body := obj{"title": "T", "content": "c"}
			first := v.gets(201, ada, "POST /v1/posts", body, key)
			again := v.gets(201, ada, "POST /v1/posts", body, key)
			assert.Equal(v.t, first.at(v.t, "id"), again.at(v.t, "id"))
			left := v.s.count(`SELECT MAX(TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(), expires_at)) FROM idempotency_keys`)
			assert.True(v.t, 23*60 <= left && left <= 24*60, "%d minutes", left)
		}},
	{"The same key with another request gets 422.", func(v *visit) {
		ada, key := v.user(), "Idempotency-Key: "+uuid.NewString()
		v.gets(201, ada, "POST /v1/posts", obj{"title": "T", "content": "c"}, key)
		v.refused(422, "invalid", ada, "POST /v1/posts", obj{"title": "T", "content": "d"}, key)
	}},
	{"While the first request is in progress, and up to 15 seconds after a process died before its COMMIT, a " +
		"repetition gets 409 with `Retry-After`.", func(v *visit) {
		ada, key := v.user(), "Idempotency-Key: "+uuid.NewString()
		body := obj{"title": "T", "content": "c"}
		made := v.gets(201, ada, "POST /v1/posts", body, key).text(v.t, "id")
		// As if the process had died: the key is claimed, and nothing was committed with it.
		const unfinished = "effect LIKE CONCAT('%\"made\":[', ?, ']%')"
		left := v.s.count("SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), claimed_until) FROM idempotency_keys WHERE "+
			unfinished, made)
		assert.LessOrEqual(v.t, left, 15)
		v.s.exec("UPDATE idempotency_keys SET effect=NULL WHERE "+unfinished, made)
		r := v.refused(409, "conflict", ada, "POST /v1/posts", body, key)
		assert.NotEmpty(v.t, r.header.Get("Retry-After"))
	}},
	{"A refused request has no effect and is not remembered: sent again, it is tried again.", func(v *visit) {
		ada, ben, key := v.user(), v.user(), "Idempotency-Key: "+uuid.NewString()
		post := v.post(ada)
		v.gets(200, ada, "PUT /v1/users/"+fmt.Sprint(ben.id)+"/block", nil)
		v.refused(403, "forbidden", ben, "POST "+post+"/comments", obj{"content": "c"}, key)
		v.gets(200, ada, "DELETE /v1/users/"+fmt.Sprint(ben.id)+"/block", nil)
		v.gets(201, ben, "POST "+post+"/comments", obj{"content": "c"}, key)
	}},
	{"A repetition has the status of the first answer and `Idempotency-Replayed: true`.", func(v *visit) {
		ada, key := v.user(), "Idempotency-Key: "+uuid.NewString()
		for _, replayed := range []string{"", "true"} {
			r := v.gets(201, ada, "POST /v1/posts", obj{"title": "T", "content": "c"}, key)
			assert.Equal(v.t, replayed, r.header.Get("Idempotency-Replayed"))
		}
	}},
	{"If that is gone, or hidden from its sender, the answer is 409 with the code `conflict`, whose `detail` reports " +
		"that the request was carried out.", func(v *visit) {
		ada, key := v.user(), "Idempotency-Key: "+uuid.NewString()
		r := v.gets(201, ada, "POST /v1/posts", obj{"title": "T", "content": "c"}, key)
		v.gets(204, ada, "DELETE /v1/posts/"+r.text(v.t, "id"), nil)
		r = v.refused(409, "conflict", ada, "POST /v1/posts", obj{"title": "T", "content": "c"}, key)
		assert.Contains(v.t, r.text(v.t, "detail"), "carried out")
	}},
	{"- **Register, log in, create an API token**: a repetition returns a new token, and the previous one is revoked.",
		func(v *visit) {
			v.register("repeats.logins")
			key, body := "Idempotency-Key: "+uuid.NewString(), obj{"login": "repeats.logins", "password": password}
			first := v.gets(200, anonymous, "POST /v1/auth/login", body, key).text(v.t, "token")
			second := v.gets(200, anonymous, "POST /v1/auth/login", body, key).text(v.t, "token")
			assert.NotEqual(v.t, first, second)
			v.gets(200, account{token: second}, "GET /v1/me", nil)
			v.refused(401, "unauthorized", account{token: first}, "GET /v1/me", nil)
		}},
	{"Registering and logging in check the present password: the answer is 401 if it was changed.", func(v *visit) {
		ada := v.register("changes.password")
		key, body := "Idempotency-Key: "+uuid.NewString(), obj{"login": "changes.password", "password": password}
		v.gets(200, anonymous, "POST /v1/auth/login", body, key)
		v.gets(204, ada, "PUT /v1/me/password", obj{"current_password": password, "new_password": "ten red herons"})
		v.refused(401, "unauthorized", anonymous, "POST /v1/auth/login", body, key)
	}},
	{"Their keys have at least 16 characters, because all callers without a token share one space of keys: use " +
		"random UUIDs.",
		func(v *visit) {
			body := obj{"login": "nobody", "password": password}
			v.refused(400, "malformed", anonymous, "POST /v1/auth/login", body, "Idempotency-Key: 0123456789abcde")
			v.refused(401, "unauthorized", anonymous, "POST /v1/auth/login", body, "Idempotency-Key: 0123456789abcdef")
		}},
	{"- **Log out**: the key belongs to the token. A repetition with the key is answered although the token is " +
		"invalid by then. Without the key, or with another, it gets 401.", func(v *visit) {
		ada, key := v.user(), "Idempotency-Key: "+uuid.NewString()
		v.gets(204, ada, "POST /v1/auth/logout", nil, key)
		v.gets(204, ada, "POST /v1/auth/logout", nil, key)
		v.refused(401, "unauthorized", ada, "POST /v1/auth/logout", nil)
		v.refused(401, "unauthorized", ada, "POST /v1/auth/logout", nil, "Idempotency-Key: "+uuid.NewString())
	}},
	{"- **Register a webhook, change its secret**: the secret is shown once, and a repetition has `null` in place of " +
		"it.",
		func(v *visit) {
			ada, key := v.adminUser(), "Idempotency-Key: "+uuid.NewString()
			body := obj{"url": "https://hooks.example.org/a", "events": []string{"post.created"}}
			r := v.gets(201, ada, "POST /v1/admin/webhooks", body, key)
			assert.Contains(v.t, r.text(v.t, "secret"), "whsec_")
			assert.Nil(v.t, v.gets(201, ada, "POST /v1/admin/webhooks", body, key).at(v.t, "secret"))
			rotate := "POST /v1/admin/webhooks/" + r.text(v.t, "id") + "/rotate-secret"
			assert.Contains(v.t, v.gets(200, ada, rotate, nil, key+"-").text(v.t, "secret"), "whsec_")
			assert.Nil(v.t, v.gets(200, ada, rotate, nil, key+"-").at(v.t, "secret"))
		}},

	// Lists.
	{"**Lists** return `{\"items\": […], \"next_cursor\": \"…\"}`. Request the next page with `cursor=NEXT_CURSOR` " +
		"and the same other parameters, until it is `null`.", func(v *visit) {
		ada := v.user()
		post := v.post(ada)
		for range 3 {
			v.comment(ada, post)
		}
		seen, cursor := map[any]bool{}, ""
		for pages := 0; ; pages++ {
			r := v.gets(200, anonymous, "GET "+post+"/comments?limit=2"+cursor, nil)
			for i := range r.items(v.t) {
				seen[r.at(v.t, "items", i, "id")] = true
			}
			next := r.at(v.t, "next_cursor")
			if next == nil {
				break
			}
			require.Less(v.t, pages, 3)
			cursor = fmt.Sprint("&cursor=", next)
		}
		assert.Len(v.t, seen, 3)
	}},
	{"`limit` is 1 to 100, and 20 by default.", func(v *visit) {
		ada := v.user()
		post := v.post(ada)
		for range 21 {
			v.comment(ada, post)
		}
		list := "GET " + post + "/comments"
		assert.Len(v.t, v.gets(200, anonymous, list, nil).items(v.t), 20)
		assert.Len(v.t, v.gets(200, anonymous, list+"?limit=100", nil).items(v.t), 21)
		for _, limit := range []string{"0", "101", "x"} {
			r := v.refused(422, "invalid", anonymous, list+"?limit="+limit, nil)
			assert.Equal(v.t, "limit", r.at(v.t, "errors", 0, "field"))
		}
	}},
	{"Cursors are opaque, signed, and valid for one list in one order.", func(v *visit) {
		ada := v.user()
		v.post(ada)
		v.post(ada)
		list := fmt.Sprintf("GET /v1/posts?author=%d&limit=1", ada.id)
		next := v.gets(200, anonymous, list, nil).text(v.t, "next_cursor")
		v.gets(200, anonymous, list+"&cursor="+next, nil)
		v.refused(400, "malformed", anonymous, list+"&sort=top&cursor="+next, nil)
		v.refused(400, "malformed", anonymous, fmt.Sprintf("GET /v1/users/%d/likes?cursor=%s", ada.id, next), nil)
		other := []byte(next)
		if other[5]++; other[5] > 'y' {
			other[5] = 'b'
		}
		v.refused(400, "malformed", anonymous, list+"&cursor="+string(other), nil)
	}},
	{"In a list, a post has no `content` and no `content_html`. It has an `excerpt` of at most 280 " +
		"characters",
		func(v *visit) {
			ada := v.user()
			v.gets(201, ada, "POST /v1/posts", obj{"title": "T", "content": strings.Repeat("words ", 100)})
			r := v.gets(200, anonymous, fmt.Sprintf("GET /v1/posts?author=%d", ada.id), nil)
			first, ok := r.at(v.t, "items", 0).(obj)
			require.True(v.t, ok)
			assert.NotContains(v.t, first, "content")
			assert.NotContains(v.t, first, "content_html")
			assert.LessOrEqual(v.t, len([]rune(r.text(v.t, "items", 0, "excerpt"))), 280)
			assert.Greater(v.t, len([]rune(r.text(v.t, "items", 0, "excerpt"))), 250)
			assert.Nil(v.t, r.at(v.t, "items", 0, "last_commenter"))
			assert.NotNil(v.t, r.at(v.t, "items", 0, "active_at"))
		}},
	{"`GET /v1/posts/{id}` returns the text.", func(v *visit) {
		r := v.gets(200, anonymous, "GET "+v.post(v.user()), nil)
		assert.NotEmpty(v.t, r.text(v.t, "content"))
		assert.NotEmpty(v.t, r.text(v.t, "content_html"))
	}},
	{"A deleted comment that has replies stays in lists without author and content.", func(v *visit) {
		ada := v.user()
		post := v.post(ada)
		comment := v.comment(ada, post)
		id, err := strconv.ParseInt(comment[strings.LastIndexByte(comment, '/')+1:], 10, 64)
		require.NoError(v.t, err)
		v.gets(201, ada, "POST "+post+"/comments", obj{"content": "a reply", "parent_id": id})
		v.gets(204, ada, "DELETE "+comment, nil)
		r := v.gets(200, anonymous, "GET "+post+"/comments", nil)
		require.Len(v.t, r.items(v.t), 1)
		assert.Nil(v.t, r.at(v.t, "items", 0, "author"))
		assert.Empty(v.t, r.at(v.t, "items", 0, "content"))
	}},
	{"`q` of `GET /v1/posts` and `GET /v1/comments` finds what has all of its words. A page examines at most 20,000 " +
		"index entries, and `complete` reports whether that was all.", func(v *visit) {
		ada := v.user()
		v.gets(201, ada, "POST /v1/posts", obj{"title": "Zanzibar cloves", "content": "c"})
		v.gets(201, ada, "POST /v1/posts", obj{"title": "Zanzibar", "content": "c"})
		r := v.gets(200, anonymous, "GET /v1/posts?q=zanzibar+cloves", nil)
		assert.Len(v.t, r.items(v.t), 1)
		assert.Equal(v.t, true, r.at(v.t, "complete"))
	}},

	// What is new.
	{"`PUT /v1/posts/{id}/read` marks the comments on a post as read, up to `comment_id` or the latest one. A mark " +
		"only moves forward.", func(v *visit) {
		ada, ben := v.user(), v.user()
		post := v.post(ada)
		first, second := v.comment(ada, post), v.comment(ada, post)
		id := func(path string) obj {
			n, err := strconv.ParseInt(path[strings.LastIndexByte(path, '/')+1:], 10, 64)
			require.NoError(v.t, err)
			return obj{"comment_id": n}
		}
		unread := func() string { return v.gets(200, ben, "GET "+post, nil).text(v.t, "unread_count") }
		v.ask(ben, "PUT "+post+"/read", id(first))
		assert.Equal(v.t, "1", unread())
		v.ask(ben, "PUT "+post+"/read", id(second))
		assert.Equal(v.t, "0", unread())
		v.ask(ben, "PUT "+post+"/read", id(first))
		assert.Equal(v.t, "0", unread())
	}},
	{"Both are `null` for posts without a mark, and for the anonymous.", func(v *visit) {
		post := v.post(v.user())
		for _, as := range []account{anonymous, v.user()} {
			r := v.gets(200, as, "GET "+post, nil)
			assert.Nil(v.t, r.at(v.t, "last_read"))
			assert.Nil(v.t, r.at(v.t, "unread_count"))
		}
	}},

	// Images and drafts.
	{"`POST /v1/images` takes one JPEG, PNG, GIF or WebP of at most 10 MiB and 40 megapixels, as the field `file` of " +
		"`multipart/form-data`.", func(v *visit) {
		ada := v.user()
		assert.Equal(v.t, 201, v.upload(ada, pictureOf(v.t, 10, 10)).status)
		large := v.upload(ada, append(pictureOf(v.t, 10, 10), make([]byte, 10<<20)...))
		assert.Contains(v.t, []int{413, 422}, large.status)
		assert.Equal(v.t, 422, v.upload(ada, []byte("<svg/>")).status)
		wide := pictureOf(v.t, 41_000, 1000)
		assert.Equal(v.t, 422, v.upload(ada, wide).status)
		v.refused(415, "unsupported_media_type", ada, "POST /v1/images", "{}")
	}},
	{"The image is reduced to fit 2048×2048, and its thumbnail 480×480.", func(v *visit) {
		ada := v.user()
		r := v.upload(ada, pictureOf(v.t, 4096, 1024))
		require.Equal(v.t, 201, r.status, "%s", r)
		assert.Equal(v.t, "2048 512", r.text(v.t, "width")+" "+r.text(v.t, "height"))
		thumbnail := v.gets(200, anonymous, "GET "+r.text(v.t, "thumbnail_url"), nil)
		size, _, err := image.DecodeConfig(strings.NewReader(thumbnail.body))
		require.NoError(v.t, err)
		assert.Equal(v.t, 480, size.Width)
	}},
	{"Caches may show an image for another hour.", func(v *visit) {
		r := v.upload(v.user(), pictureOf(v.t, 10, 10))
		assert.Contains(v.t, v.gets(200, anonymous, "GET "+r.text(v.t, "url"), nil).header.Get("Cache-Control"),
			"max-age=3600")
	}},
	{"`POST /v1/images` takes no `Idempotency-Key`: after a timeout, upload again, and the unused copy is deleted.",
		func(v *visit) {
			ada, key := v.user(), "Idempotency-Key: "+uuid.NewString()
			first, second := v.upload(ada, pictureOf(v.t, 9, 9), key), v.upload(ada, pictureOf(v.t, 9, 9), key)
			assert.NotEqual(v.t, first.text(v.t, "url"), second.text(v.t, "url"))
		}},
	{"To replace one, send the `ETag` of its version as `If-Match` (428 without, 412 for another version). An " +
		"account has at most 50, of 60,000 bytes each.", func(v *visit) {
		ada := v.user()
		draft := obj{"title": "T", "content": "c"}
		r := v.gets(201, ada, "PUT /v1/me/drafts/1", draft)
		v.refused(428, "if_match_required", ada, "PUT /v1/me/drafts/1", draft)
		v.gets(200, ada, "PUT /v1/me/drafts/1", obj{"content": "d"}, "If-Match: "+r.header.Get("ETag"))
		v.refused(412, "precondition_failed", ada, "PUT /v1/me/drafts/1", draft, "If-Match: "+r.header.Get("ETag"))
		for i := 2; i <= 50; i++ {
			v.gets(201, ada, fmt.Sprintf("PUT /v1/me/drafts/%d", i), draft)
		}
		v.refused(409, "conflict", ada, "PUT /v1/me/drafts/51", draft)
		v.gets(204, ada, "DELETE /v1/me/drafts/50", nil)
		v.gets(201, ada, "PUT /v1/me/drafts/51", obj{"content": strings.Repeat("a", 60_000)})
		v.refused(422, "invalid", ada, "PUT /v1/me/drafts/51", obj{"content": strings.Repeat("a", 60_001)},
			`If-Match: "v1"`)
	}},
	{"All of them are what the anonymous see, may be cached for a minute (the sitemap for an hour), and exist only " +
		"with [`--public-url`](operations.md#behind-a-proxy).", func(v *visit) {
		post := v.post(v.user())
		for path, age := range map[string]string{
			"/v1/feeds/new": "max-age=60", "/v1/feeds" + strings.TrimPrefix(post, "/v1"): "max-age=60",
			"/v1/sitemap.xml": "max-age=3600",
		} {
			assert.Contains(v.t, v.gets(200, anonymous, "GET "+path, nil).header.Get("Cache-Control"), age, path)
			r, err := v.askAt(v.s.bare, anonymous, "GET "+path, nil)
			require.NoError(v.t, err)
			assert.Equal(v.t, 404, r.status, path)
		}
	}},
	{"**Edits** of posts, comments and drops require `If-Match` with the `ETag` of the version that was edited, or " +
		"`\"v3\"` for version 3. Of two editors one wins, and the other gets 412 with the present " +
		"version.", func(v *visit) {
		ada := v.user()
		post := v.post(ada)
		for path, edit := range map[string]obj{
			post: {"content": "b"}, v.comment(ada, post): {"content": "b"}, v.drop(ada, nil): {"stock": 2},
		} {
			tag := v.gets(200, anonymous, "GET "+path, nil).header.Get("ETag")
			v.refused(428, "if_match_required", ada, "PATCH "+path, edit)
			v.gets(200, ada, "PATCH "+path, edit, "If-Match: "+tag)
			v.refused(412, "precondition_failed", ada, "PATCH "+path, edit, "If-Match: "+tag)
			of := regexp.MustCompile(`"v\d+`).FindString(v.version(path))
			v.gets(200, ada, "PATCH "+path, edit, "If-Match: "+of+`"`)
		}
	}},

	// Caching, exports and streams.
	{"with `If-None-Match` the answer is 304 while nothing in it has changed. Answers from 1 KiB on are compressed " +
		"for clients that accept gzip or Brotli.", func(v *visit) {
		ada := v.user()
		r := v.gets(201, ada, "POST /v1/posts", obj{"title": "T", "content": strings.Repeat("words ", 300)})
		path := "GET /v1/posts/" + r.text(v.t, "id")
		tag := v.gets(200, anonymous, path, nil).header.Get("ETag")
		v.gets(304, anonymous, path, nil, "If-None-Match: "+tag)
		zipped := v.gets(200, anonymous, path, nil, "Accept-Encoding: gzip")
		assert.Equal(v.t, "gzip", zipped.header.Get("Content-Encoding"))
		_, err := gzip.NewReader(strings.NewReader(zipped.body))
		assert.NoError(v.t, err)
		assert.Equal(v.t, "br",
			v.gets(200, anonymous, path, nil, "Accept-Encoding: br").header.Get("Content-Encoding"))
		v.gets(201, ada, "POST "+strings.TrimPrefix(path, "GET ")+"/comments", obj{"content": "c"})
		v.gets(200, anonymous, path, nil, "If-None-Match: "+tag)
		small := v.gets(200, anonymous, "GET /v1/tags?q=none", nil, "Accept-Encoding: gzip")
		assert.Empty(v.t, small.header.Get("Content-Encoding"), "%s", small)
	}},
	{"Every `GET` has an `ETag`, except `/healthz`, `/v1/stream` and the downloads `/v1/me/export` and " +
		"`/v1/admin/log.csv`",
		func(v *visit) {
			ada, mod := v.user(), v.moderator()
			post := v.post(ada)
			for _, path := range []string{
				post, "/v1/posts", post + "/comments", post + "/thread", "/v1/me", "/v1/me/sessions", "/v1/tags",
				"/v1/notifications", "/v1/me/drafts", "/v1/site", "/v1/feeds/new", "/v1/sitemap.xml",
				"/openapi.yaml", "/docs", v.upload(ada, pictureOf(v.t, 5, 5)).text(v.t, "url"),
			} {
				assert.NotEmpty(v.t, v.gets(200, ada, "GET "+path, nil).header.Get("ETag"), path)
			}
			for _, path := range []string{"/healthz", "/v1/admin/log.csv"} {
				assert.Empty(v.t, v.gets(200, mod, "GET "+path, nil).header.Get("ETag"), path)
			}
		}},
	{"`GET /v1/me/export` gets 202 with `Retry-After` while the archive is built, which takes seconds, and then 200 " +
		"with a `tar.gz` of JSON files.", func(v *visit) {
		ada := v.user()
		r := v.gets(202, ada, "GET /v1/me/export", nil)
		assert.NotEmpty(v.t, r.header.Get("Retry-After"))
		v.eventually(func() (bool, string) {
			r = v.ask(ada, "GET /v1/me/export", nil)
			return r.status == 200, fmt.Sprint(r.status)
		})
		_, err := gzip.NewReader(strings.NewReader(r.body))
		assert.NoError(v.t, err)
	}},
	{"It gets 404 once the stream has ended,", func(v *visit) {
		v.refused(404, "not_found", v.user(), "PUT /v1/streams/none.none", obj{"posts": []int{1}})
	}},
	{"`GET /v1/stream?posts=1,2&comments=3&drops=4` sends counts as they change, as server-sent events: of up to 512 " +
		"targets, if their ids fit in 8 KiB of headers.", func(v *visit) {
		ada := v.user()
		var list []string
		for i := range 513 {
			list = append(list, strconv.Itoa(5000+i))
			v.s.exec("INSERT INTO posts (id, user_id, title, content) VALUES (?,?,'T','c')", 5000+i, ada.id)
		}
		ids := func(n int) string { return strings.Join(list[:n], ",") }
		v.refused(422, "invalid", anonymous, "GET /v1/stream?posts="+ids(513), nil)
		response, err := v.open(v.s.url, anonymous, "GET /v1/stream?posts="+ids(512), nil)
		require.NoError(v.t, err)
		defer response.Body.Close()
		assert.Equal(v.t, 200, response.StatusCode)
		assert.Equal(v.t, "text/event-stream", response.Header.Get("Content-Type"))
	}},
	{"An address has up to 100 streams that follow up to 4,000 posts, comments and drops together, and 10 with 512 " +
		"while a process is three quarters full (429 beyond).", func(v *visit) {
		post := v.post(v.user())
		route := "GET /v1/stream?posts=" + post[strings.LastIndexByte(post, '/')+1:]
		var mu sync.Mutex
		var open []*http.Response
		defer func() {
			for _, r := range open {
				r.Body.Close()
			}
		}()
		var opening sync.WaitGroup
		for range 100 {
			opening.Go(func() {
				response, err := v.open(v.s.url, anonymous, route, nil)
				if !assert.NoError(v.t, err) {
					return
				}
				assert.Equal(v.t, 200, response.StatusCode)
				mu.Lock()
				defer mu.Unlock()
				open = append(open, response)
			})
		}
		opening.Wait()
		v.refused(429, "rate_limited", anonymous, route, nil)
	}},
	{"A process has 10,000 streams that follow up to 20,000 (503 beyond).", func(v *visit) {
		assert.Equal(v.t, 10_000, live.MaxStreams)
	}},
	{"With `notifications=true` and a token, the stream also has an event `notifications`, with the number of unread " +
		"ones and the latest five.", func(v *visit) {
		v.refused(401, "unauthorized", anonymous, "GET /v1/stream?notifications=true", nil)
		response, err := v.open(v.s.url, v.user(), "GET /v1/stream?notifications=true", nil)
		require.NoError(v.t, err)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			if lines.Text() == "event: notifications" {
				return
			}
		}
		v.t.Error("the stream ends without the event")
		assert.NoError(v.t, lines.Err())
	}},

	// What a page needs.
	{"everything is `false` for the anonymous.", func(v *visit) {
		can, ok := v.gets(200, anonymous, "GET "+v.post(v.user()), nil).at(v.t, "can").(obj)
		require.True(v.t, ok)
		for action, allowed := range can {
			assert.Equal(v.t, false, allowed, action)
		}
	}},
	{"`GET /v1/users/by-name/{name}` reads a profile by its name, and `GET /v1/users/by-prefix/{prefix}` completes " +
		"names after an `@`.", func(v *visit) {
		ada := v.user()
		name := v.gets(200, ada, "GET /v1/me", nil).text(v.t, "username")
		assert.Equal(v.t, fmt.Sprint(ada.id),
			v.gets(200, anonymous, "GET /v1/users/by-name/"+name, nil).text(v.t, "id"))
		assert.NotEmpty(v.t, v.gets(200, ada, "GET /v1/users/by-prefix/"+name[:2], nil).items(v.t))
	}},
	{"**Mentions** in `content_html` are links with the class `mention` to `/users/NAME`, with the name " +
		"in lower case.", func(v *visit) {
		html := v.gets(200, v.user(), "POST "+
			"/v1/render", obj{"content": "Hello " +
			"@AdaLovelace!"}).text(v.t, "content_html")
		assert.Contains(v.t, html, `href="/users/adalovelace"`)
		assert.Contains(v.t, html, `class="mention"`)
	}},
	{"A link with a scheme other than `http`, `https` and `mailto` is shown as its text and its " +
		"address.", func(v *visit) {
		html := v.gets(200, v.user(), "POST "+
			"/v1/render", obj{"content": "[a](ftp://b.example/c) " +
			"[d](https://e.example)"}).
			text(v.t, "content_html")
		assert.NotContains(v.t, html, `href="ftp:`)
		assert.Contains(v.t, html, "ftp://b.example/c")
		assert.Contains(v.t, html, `href="https://e.example"`)
	}},

	{"Reading content by its own path shows it.", func(v *visit) {
		ada, ben := v.user(), v.user()
		post := v.post(ben)
		comment := v.comment(ben, post)
		v.gets(200, ada, fmt.Sprintf("PUT /v1/users/%d/block", ben.id), nil)
		assert.Empty(v.t, v.gets(200, ada, fmt.Sprintf("GET /v1/posts?author=%d", ben.id), nil).items(v.t))
		assert.Equal(v.t, "with *text*", v.gets(200, ada, "GET "+post, nil).at(v.t, "content"))
		assert.Equal(v.t, "a comment", v.gets(200, ada, "GET "+comment, nil).at(v.t, "content"))
	}},
	{"**Feeds.** Atom feeds of the newest posts (`/v1/feeds/new`), those with a tag (`…/tags/{tag}`) and of a user " +
		"(`…/users/{id}`), and of the latest comments on a post (`…/posts/{id}`) have up to 50 entries and 1 MiB.",
		func(v *visit) {
			ada := v.user()
			post := v.post(ada)
			id := post[strings.LastIndexByte(post, '/')+1:]
			for i := range 60 {
				v.s.exec("INSERT INTO posts (id, user_id, title, content) VALUES (?,?,'T','c')", 6000+i, ada.id)
			}
			of := fmt.Sprintf("GET /v1/feeds/users/%d", ada.id)
			for _, route := range []string{
				"GET /v1/feeds/new", "GET /v1/feeds/tags/none", of, "GET /v1/feeds/posts/" + id,
			} {
				r := v.gets(200, anonymous, route, nil)
				assert.Contains(v.t, r.header.Get("Content-Type"), "application/atom+xml", route)
				assert.LessOrEqual(v.t, len(r.body), 1<<20, route)
			}
			assert.Equal(v.t, 50, strings.Count(v.gets(200, anonymous, of, nil).body, "<entry>"))
		}},
	{"`/v1/posts/{id}/revisions` and `/v1/comments/{id}/revisions` list the versions of a text without the texts, " +
		"and `…/revisions/{version}` returns one. A redacted version has `\"redacted\": true` and `null` for its " +
		"text;",
		func(v *visit) {
			ada := v.user()
			post := v.post(ada)
			v.gets(200, ada, "PATCH "+post, obj{"content": "edited"}, v.version(post))
			list := v.gets(200, anonymous, "GET "+post+"/revisions", nil)
			assert.Len(v.t, list.items(v.t), 2)
			assert.NotContains(v.t, list.body, "with *text*")
			old := "GET " + post + "/revisions/0"
			assert.Equal(v.t, "with *text*", v.gets(200, anonymous, old, nil).at(v.t, "content"))
			v.gets(200, v.moderator(), "POST /v1/admin"+strings.TrimPrefix(post, "/v1")+"/revisions/0/redact",
				obj{"reason": "r"})
			r := v.gets(200, anonymous, old, nil)
			assert.Equal(v.t, true, r.at(v.t, "redacted"))
			assert.Nil(v.t, r.at(v.t, "content"))
		}},
	{"`GET /v1/posts?pinned=once` has pinned posts in `pinned` and nowhere else.", func(v *visit) {
		ada := v.user()
		post, tag := v.gets(201, ada, "POST "+
			"/v1/posts", obj{"title": "T", "content": "c", "tags": []string{"pinned-once"}}), ""
		v.gets(201, ada, "POST /v1/posts", obj{"title": "U", "content": "c", "tags": []string{"pinned-once"}})
		tag = "GET /v1/posts?tag=pinned-once"
		v.gets(200, v.moderator(), "POST /v1/admin/posts/"+post.text(v.t, "id")+"/pin", obj{"reason": "r"})
		r := v.gets(200, anonymous, tag+"&pinned=once", nil)
		assert.Equal(v.t, post.at(v.t, "id"), r.at(v.t, "pinned", 0, "id"))
		assert.Len(v.t, r.items(v.t), 1)
		assert.Len(v.t, v.gets(200, anonymous, tag, nil).items(v.t), 2)
	}},
	{"A list of the posts of a tag has `total_count`;", func(v *visit) {
		v.gets(201, v.user(), "POST /v1/posts", obj{"title": "T", "content": "c", "tags": []string{"counted"}})
		assert.Equal(v.t, "1", v.gets(200, anonymous, "GET /v1/posts?tag=counted", nil).text(v.t, "total_count"))
	}},
	{"and the list has `open_count`.", func(v *visit) {
		assert.NotNil(v.t, v.gets(200, v.moderator(), "GET /v1/admin/reports", nil).at(v.t, "open_count"))
	}},
	{"Of a followed post, at most one notification is unread:", func(v *visit) {
		ada, ben := v.user(), v.user()
		post := v.post(ben)
		v.gets(200, ada, "PUT "+post+"/subscription", obj{"level": "following"})
		v.comment(ben, post)
		v.eventually(func() (bool, string) {
			r := v.gets(200, ada, "GET /v1/notifications", nil)
			return len(r.items(v.t)) == 1, r.body
		})
		v.comment(ben, post)
		v.s.succeed("cron", "run", "notify")
		assert.Len(v.t, v.gets(200, ada, "GET /v1/notifications", nil).items(v.t), 1)
	}},

	// Drops and claims.
	{"A post can have 100. `PATCH /v1/drops/{id}` with `If-Match` changes all but the last. The stock goes up or " +
		"down, but never below what is claimed (409).", func(v *visit) {
		ada := v.moderator() // with ten times the limits
		post := v.post(ada)
		var drop string
		for range 100 {
			r := v.gets(201, ada, "POST "+post+"/drops", obj{"title": "A voucher", "stock": 2})
			drop = "/v1/drops/" + r.text(v.t, "id")
		}
		v.refused(409, "conflict", ada, "POST "+post+"/drops", obj{"title": "A voucher", "stock": 2})
		v.gets(201, v.user(), "POST "+drop+"/claims", nil)
		v.gets(201, v.user(), "POST "+drop+"/claims", nil)
		v.eventually(func() (bool, string) {
			return v.s.count("SELECT claimed FROM drops WHERE id=?", drop[strings.LastIndexByte(drop, '/')+1:]) == 2,
				"the claims are not in MySQL"
		})
		v.refused(409, "conflict", ada, "PATCH "+drop, obj{"stock": 1}, v.version(drop))
		v.gets(200, ada, "PATCH "+drop, obj{"stock": 3}, v.version(drop))
		r := v.refused(422, "invalid", ada, "PATCH "+drop, obj{"confirm_within": 5}, v.version(drop))
		assert.Equal(v.t, "unknown_field", r.at(v.t, "errors", 0, "code"))
	}},
	{"`POST /v1/drops/{id}/claims` returns 201 with the new claim, or 200 with the one that the caller has.",
		func(v *visit) {
			ada := v.user()
			drop := v.drop(ada, nil)
			first := v.gets(201, ada, "POST "+drop+"/claims", nil)
			again := v.gets(200, ada, "POST "+drop+"/claims", nil)
			assert.Equal(v.t, first.at(v.t, "id"), again.at(v.t, "id"))
		}},
	{"409 `sold_out` is not final: shares that are returned or expire can be claimed again.", func(v *visit) {
		ada, ben := v.user(), v.user()
		drop := v.drop(ada, nil)
		claim := v.gets(201, ada, "POST "+drop+"/claims", nil).text(v.t, "id")
		v.refused(409, "sold_out", ben, "POST "+drop+"/claims", nil)
		v.gets(204, ada, "DELETE /v1/claims/"+claim, nil)
		v.gets(201, ben, "POST "+drop+"/claims", nil)
	}},
	{"If the drop has `confirm_within`, `POST /v1/claims/{id}/confirm` is needed before `expires_at`. Later it gets " +
		"409 `too_late`.", func(v *visit) {
		ada := v.user()
		slow, quick := v.drop(ada, obj{"confirm_within": 600}), v.drop(ada, obj{"confirm_within": 1})
		claim := v.gets(201, ada, "POST "+slow+"/claims", nil)
		assert.NotNil(v.t, claim.at(v.t, "expires_at"))
		v.eventually(func() (bool, string) {
			return v.s.count("SELECT COUNT(*) FROM claims WHERE id=?", claim.text(v.t, "id")) == 1, "it is not in MySQL"
		})
		v.gets(200, ada, "POST /v1/claims/"+claim.text(v.t, "id")+"/confirm", nil)
		claim = v.gets(201, ada, "POST "+quick+"/claims", nil)
		v.eventually(func() (bool, string) {
			r := v.ask(ada, "GET /v1/claims/"+claim.text(v.t, "id"), nil)
			return r.status == 200 && r.text(v.t, "state") == "expired", r.String()
		})
		v.refused(409, "too_late", ada, "POST /v1/claims/"+claim.text(v.t, "id")+"/confirm", nil)
	}},
	{"`DELETE /v1/claims/{id}` returns a claim to the stock until the drop ends. It can be repeated.", func(v *visit) {
		ada := v.user()
		claim := v.gets(201, ada, "POST "+v.drop(ada, nil)+"/claims", nil).text(v.t, "id")
		v.gets(204, ada, "DELETE /v1/claims/"+claim, nil)
		v.gets(204, ada, "DELETE /v1/claims/"+claim, nil)
	}},
	{"**Ids of claims** have 63 bits, so they are strings in JSON.", func(v *visit) {
		ada := v.user()
		id, ok := v.gets(201, ada, "POST "+v.drop(ada, nil)+"/claims", nil).at(v.t, "id").(string)
		assert.True(v.t, ok)
		_, err := strconv.ParseInt(id, 10, 64)
		assert.NoError(v.t, err)
	}},
}
