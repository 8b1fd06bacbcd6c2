package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// limit is a row of the table of limits: its policy, and requests that count against it.
type limit struct {
	policy         string
	older, younger burst // of accounts
	route          func(v *visit, as account) (route string, body any)
}

// burst is what passes at once, and the time until all of it is available again.
type burst struct {
	limit int
	every time.Duration
}

func (b burst) policy(name string) string {
	return fmt.Sprintf(`"%s";q=%d;w=%d`, name, b.limit, int(b.every.Seconds())*b.limit)
}

// announced tries the limits of an old and of a new account, which the answers name in RateLimit-Policy.
func announced(l limit) func(*visit) {
	return func(v *visit) {
		for _, a := range []struct {
			as account
			of burst
		}{{v.user(), l.older}, {v.fresh(), l.younger}} {
			route, body := l.route(v, a.as)
			r := v.ask(a.as, route, body, `If-Match: "v0"`)
			assert.Equal(v.t, a.of.policy(l.policy), r.header.Get("RateLimit-Policy"), "%s answers %s", route, r)
		}
	}
}

// always returns a route that needs nothing.
func always(route string, body any) func(*visit, account) (string, any) {
	return func(*visit, account) (string, any) { return route, body }
}

var securityStatements = []statement{
	{"an API token in the cookie `__Host-session`: `HttpOnly`, `Secure`, `SameSite=Lax`.", func(v *visit) {
		r := v.browses(303, anonymous, "POST /sign-up", url.Values{
			"username": {"of.a.browser"}, "email": {"browser@example.org"}, "password": {"a password of mine"},
		}, "Origin: "+publicURL)
		assert.Regexp(v.t, "^__Host-session=[^;]+; Path=/; Max-Age=[0-9]+; HttpOnly; Secure; SameSite=Lax$",
			r.header.Get("Set-Cookie"))
	}},
	{"Pages of somebody who has signed in are never stored (`no-store`).", func(v *visit) {
		r := v.browses(200, v.user(), "GET /settings", nil)
		assert.Contains(v.t, r.header.Get("Cache-Control"), "no-store")
	}},
	{"A `POST` from another site is refused by what browsers report (`Sec-Fetch-Site`, `Origin`), and one that " +
		"reports neither is refused, too.", func(v *visit) {
		as, post := v.user(), v.post(v.user())
		like := "POST " + strings.TrimPrefix(post, "/v1") + "/like"
		v.browses(403, as, like, nil)
		v.browses(403, as, like, nil, "Origin: https://other.example")
		v.browses(403, as, like, nil, "Sec-Fetch-Site: cross-site")
		v.browses(403, as, like, nil, "Sec-Fetch-Site: same-site", "Origin: https://other.forum.example")
		assert.Equal(v.t, "0", v.gets(200, anonymous, "GET "+post, nil).text(v.t, "likes_count"))
		v.browses(303, as, like, nil, "Origin: "+publicURL)
		assert.Equal(v.t, "1", v.gets(200, anonymous, "GET "+post, nil).text(v.t, "likes_count"))
	}},
	{"Redirections lead to paths of the site alone.", func(v *visit) {
		r := v.browses(303, anonymous, "POST /display", url.Values{"back": {"https://other.example/"}},
			"Origin: "+publicURL)
		assert.Equal(v.t, "/", r.header.Get("Location"))
	}},
	{"allows our own files and nothing inline, no frames, no `base`, and HTML from scripts through one policy of " +
		"Trusted Types only.", func(v *visit) {
		policy := v.browses(200, anonymous, "GET /help", nil).header.Get("Content-Security-Policy")
		assert.NotContains(v.t, policy, "unsafe")
		for _, part := range []string{
			"default-src 'none'", "script-src 'self'", "base-uri 'none'", "frame-ancestors 'none'",
			"require-trusted-types-for 'script'",
		} {
			assert.Contains(v.t, policy, part)
		}
	}},
	{"has the operations that scripts, images and downloads need, and no others.", func(v *visit) {
		v.browses(200, anonymous, "GET /v1/feeds/new", nil)
		v.browses(404, v.adminUser(), "GET /v1/admin/users", nil)
		v.browses(404, v.user(), "GET /v1/me/tokens", nil)
	}},
	{"**New passwords** have 8 to 128 characters. They must not be among the 85,000 most common passwords, words and " +
		"names of zxcvbn's lists, with or without digits after them and with `@`, `0`, `1` or `$` for letters, nor " +
		"the account's username, display name or e-mail address.", func(v *visit) {
		try := func(password string) string {
			r := v.refused(422, "invalid", anonymous, "POST /v1/auth/register",
				obj{"username": "new.password", "email": "new.password@example.org", "password": password})
			assert.Equal(v.t, "password", r.at(v.t, "errors", 0, "field"))
			return r.text(v.t, "errors", 0, "code")
		}
		assert.Equal(v.t, "too_short", try("a5-Zx!q"))
		assert.Equal(v.t, "too_long", try(strings.Repeat("a5-Zx!q9", 16)+"x"))
		assert.Equal(v.t, "too_common", try("p@$$w0rd1"))
		assert.Equal(v.t, "personal", try("new.password"))
		assert.Equal(v.t, "personal", try("new.password@example.org"))
		v.gets(201, anonymous, "POST /v1/auth/register", obj{"username": "new.password",
			"email": "new.password@example.org", "password": strings.Repeat("a5-Zx!q9", 16)})
	}},
	{"**Reserved usernames**: nobody can register `admin`, `moderator`, `support`, `system`, `root`, `deleted` and " +
		"some thirty others, nor those of `--reserved-names`. Names are compared without case, without `.`, `-` and " +
		"`_`, and with look-alikes folded: `Adm1n`, `4d-min` and `adrnin` are reserved, too.", func(v *visit) {
		for _, name := range []string{
			"admin", "moderator", "support", "system", "root", "deleted", "Adm1n", "4d-min", "adrnin",
		} {
			r := v.refused(422, "invalid", anonymous, "POST /v1/auth/register",
				obj{"username": name, "email": "r@example.org", "password": password})
			assert.Equal(v.t, "username reserved", r.text(v.t, "errors", 0, "field")+" "+
				r.text(v.t, "errors", 0, "code"), name)
		}
	}},
	{"**Logins** are counted by typed login and address (10 tries, then one each 90 s), by account (100, then one " +
		"each 36 s) and by address (100, then one each 9 s).", func(v *visit) {
		body := obj{"login": "nobody.of.this.name", "password": password}
		for range 10 {
			v.refused(401, "unauthorized", anonymous, "POST /v1/auth/login", body)
		}
		r := v.refused(429, "rate_limited", anonymous, "POST /v1/auth/login", body)
		wait, err := strconv.Atoi(r.header.Get("Retry-After"))
		require.NoError(v.t, err)
		assert.True(v.t, 0 < wait && wait <= 90, "%d", wait)
		r = v.elsewhere().refused(401, "unauthorized", anonymous, "POST /v1/auth/login", body)
		assert.Equal(v.t, burst{100, 9 * time.Second}.policy("logins-by-address"), r.header.Get("RateLimit-Policy"))
	}},
	{"A right password resets the first count.", func(v *visit) {
		v.register("resets.the.count")
		wrong, right := obj{"login": "resets.the.count", "password": "wrong"},
			obj{"login": "resets.the.count", "password": password}
		for range 9 {
			v.refused(401, "unauthorized", anonymous, "POST /v1/auth/login", wrong)
		}
		v.gets(200, anonymous, "POST /v1/auth/login", right)
		for range 9 {
			v.refused(401, "unauthorized", anonymous, "POST /v1/auth/login", wrong)
		}
		v.gets(200, anonymous, "POST /v1/auth/login", right)
	}},
	{"The typed login is compared with usernames and e-mail addresses without case and without space around it, and " +
		"with e-mail addresses also without accents, as MySQL compares them when it decides whether one is taken. A " +
		"login that differs in anything else, such as a control character, finds no account.", func(v *visit) {
		v.gets(201, anonymous, "POST /v1/auth/register",
			obj{"username": "typed.login", "email": "typed.lögin@example.org", "password": password})
		for login, status := range map[string]int{
			"typed.login": 200, "\u0020Typed.Login\u0020": 200,
			"TYPED.LÖGIN@example.org": 200, "typed.login@example.org": 200,
			"typed.lögin": 401, "typed\u0001.login": 401, "typed.login\u0001@example.org": 401, "typedlogin": 401,
		} {
			r := v.ask(anonymous, "POST /v1/auth/login", obj{"login": login, "password": password})
			assert.Equal(v.t, status, r.status, "%q: %s", login, r)
		}
	}},
	{"**Registration** reports that an e-mail address is taken (409), unless `--registration=verified` answers every " +
		"address alike and sends a mail. " +
		"It counts each valid request against the address (10, then one each 6 minutes), whatever the " +
		"answer.", func(v *visit) {
		v.register("takes.an.address")
		body := obj{"username": "takes.another", "email": "takes.an.address@example.org", "password": password}
		for range 9 {
			r := v.refused(409, "conflict", anonymous, "POST /v1/auth/register", body)
			assert.Equal(v.t, "email", r.at(v.t, "errors", 0, "field"))
		}
		r := v.refused(429, "rate_limited", anonymous, "POST /v1/auth/register", body)
		assert.Contains(v.t, r.header.Get("RateLimit-Policy"), "q=10;w=3600")
	}},
	{"**Demotion** ends all sessions and API tokens of the user.", func(v *visit) {
		admin, mod := v.adminUser(), v.moderator()
		v.gets(200, mod, "GET /v1/admin/reports", nil)
		v.gets(200, admin, fmt.Sprintf("PUT /v1/admin/users/%d/role", mod.id), obj{"role": "user", "reason": "r"})
		v.eventually(func() (bool, string) {
			r := v.ask(mod, "GET /v1/me", nil)
			return r.status == 401, r.String()
		})
	}},
	{"The address of one account is shown to moderators whose role is above the account's, and to admins; each " +
		"reading is recorded in the security log before it is answered.", func(v *visit) {
		mod, admin, ada := v.moderator(), v.adminUser(), v.user()
		of := func(a account) string { return fmt.Sprintf("GET /v1/admin/users/%d", a.id) }
		assert.Contains(v.t, v.gets(200, mod, of(ada), nil).text(v.t, "email"), "@")
		assert.Nil(v.t, v.gets(200, mod, of(admin), nil).at(v.t, "email"))
		assert.Contains(v.t, v.gets(200, admin, of(mod), nil).text(v.t, "email"), "@")
		r := v.gets(200, admin, fmt.Sprintf("GET /v1/admin/security-log?account=%d", ada.id), nil)
		assert.Contains(v.t, r.body, `"email.read"`)
	}},

	// The table of limits. TestLimits_areThoseOfThePage compares all of its numbers with the code.
	{"`LIKEWISE_LIMITS=2` doubles all of them, `0` turns them off.", defaults("api", "limits", "1")},
	{"| write a post | 10, then 1 in 2 min | 3, then 1 in 10 min |", announced(limit{policy: "posts",
		older: burst{10, 2 * time.Minute}, younger: burst{3, 10 * time.Minute},
		route: always("POST /v1/posts", obj{"title": "T", "content": "c"})})},
	{"| comment | 30, then 1 in 20 s | 10, then 1 a minute |", announced(limit{policy: "comments",
		older: burst{30, 20 * time.Second}, younger: burst{10, time.Minute},
		route: func(v *visit, _ account) (string, any) {
			return "POST " + v.post(v.user()) + "/comments", obj{"content": "c"}
		}})},
	{"| report, request a redaction | 10, then 1 in 2 min | 5, then 1 in 10 min |", announced(limit{policy: "reports",
		older: burst{10, 2 * time.Minute}, younger: burst{5, 10 * time.Minute},
		route: always("POST /v1/reports", obj{})})},
	{"| search | 30, then 1 in 2 s | the same |", announced(limit{policy: "search",
		older: burst{30, 2 * time.Second}, younger: burst{30, 2 * time.Second},
		route: always("GET /v1/posts?q=word", nil)})},
	{"| upload an image | 50, then 1 in 30 min | 10, then 1 in 2 h |", func(v *visit) {
		for _, a := range []struct {
			as account
			of burst
		}{{v.user(), burst{50, 30 * time.Minute}}, {v.fresh(), burst{10, 2 * time.Hour}}} {
			r := v.upload(a.as, pictureOf(v.t, 10, 10))
			assert.Equal(v.t, a.of.policy("uploads"), r.header.Get("RateLimit-Policy"))
		}
	}},
	{"| change a password, delete the account | 10, then 1 in 90 s | the same |", announced(limit{policy: "passwords",
		older: burst{10, 90 * time.Second}, younger: burst{10, 90 * time.Second},
		route: always("PUT /v1/me/password", obj{})})},
	{"| edit one post or comment | 20, then 1 an hour | the same |", announced(limit{policy: "edits",
		older: burst{20, time.Hour}, younger: burst{20, time.Hour},
		route: func(v *visit, as account) (string, any) {
			// An edit that is carried out: its headers are the last to be set.
			return "PATCH " + v.post(as), obj{"content": "d"}
		}})},
	{"| mark a post as read, save a draft | 300, then 1 a second | the same |", announced(limit{policy: "notes",
		older: burst{300, time.Second}, younger: burst{300, time.Second},
		route: always("PUT /v1/me/drafts/1", obj{"content": "c"})})},
	{"| other writes | 120, then 1 in 5 s | 40, then 1 in 15 s |", announced(limit{policy: "writes",
		older: burst{120, 5 * time.Second}, younger: burst{40, 15 * time.Second},
		route: always("PATCH /v1/me", obj{"bio": "b"})})},
	{"| preview a text (each KiB also counts as a request) | 60, then 1 a second | the same |",
		announced(limit{policy: "previews", older: burst{60, time.Second}, younger: burst{60, time.Second},
			route: always("POST /v1/render", obj{"content": "c"})})},
	{"Likes and claims share a limit of their own: 60 likes, unlikes, claims and returns a minute and " +
		"account, half of that for a new one.", func(v *visit) {
		post := v.post(v.user())
		for _, a := range []struct {
			as    account
			limit int
		}{{v.user(), 60}, {v.fresh(), 30}} {
			begin, n := time.Now(), 0
			for ; v.ask(a.as, "PUT "+post+"/like", nil).status != 429; n++ {
				require.Less(v.t, n, 300)
			}
			// One like is admitted in advance, and the limit refills meanwhile.
			refilled := int(time.Since(begin).Seconds())*a.limit/60 + 1
			assert.LessOrEqual(v.t, n, a.limit+1+refilled)
			assert.GreaterOrEqual(v.t, n, a.limit-a.limit/5)
		}
	}},
	{"Moderators have ten times as much of everything, and are not limited by address.", func(v *visit) {
		r := v.gets(201, v.moderator(), "POST /v1/posts", obj{"title": "T", "content": "c"})
		assert.Equal(v.t, burst{100, 12 * time.Second}.policy("posts"), r.header.Get("RateLimit-Policy"))
	}},
	{"`X-Forwarded-For` is then read from its end, over trusted hops, to the first that is not trusted; anything " +
		"further left is under the client's control.", func(v *visit) {
		body := obj{"login": "forwarded.for", "password": password}
		for i := range 11 {
			r := v.ask(anonymous, "POST /v1/auth/login", body,
				fmt.Sprintf("X-Forwarded-For: 198.51.100.%d, %s, 127.0.0.1", i, v.from))
			assert.Equal(v.t, i == 10, r.status == 429, "%d: %s", i, r)
		}
	}},

	// Answers, connections and framing.
	{"a problem names at most 20 fields.", func(v *visit) {
		body := obj{}
		for i := range 25 {
			body[fmt.Sprint("unknown", i)] = 1
		}
		errors, ok := v.refused(422, "invalid", v.user(), "POST /v1/posts", body).at(v.t, "errors").([]any)
		assert.True(v.t, ok)
		assert.Len(v.t, errors, 20)
	}},
	{"384 KiB of body, which is room for 60,000 bytes of text in which each is written as an escape;", func(v *visit) {
		v.gets(201, v.user(), "POST /v1/posts",
			`{"title":"T","content":"`+strings.Repeat(`\u0061`, models.MaxContent)+`"}`)
	}},
	{"The bodies of 512 requests in flight are 192 MiB at most.", func(v *visit) {
		assert.Equal(v.t, 192, 512*384>>10)
	}},
	{"**Framing**: a header that a proxy could read as a message of another length (`Content-Length` with " +
		"`Transfer-Encoding`, folded lines, lines that end with LF alone, codings other than `chunked`) gets 400, " +
		"and the connection is closed.", func(v *visit) {
		const head = "POST /v1/posts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		for _, text := range []string{
			head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			head + "X-A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}",
			head + "X-A: b\nContent-Length: 2\r\n\r\n{}",
			head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		} {
			assert.Contains(v.t, v.raw(text), "HTTP/1.1 400 ", "%q", text)
		}
	}},
	{"It is on loopback by default, and the public one has only `/healthz`.",
		each(defaults("api", "admin-listen", "127.0.0.1:9080"), func(v *visit) {
			v.gets(200, anonymous, "GET /healthz", nil)
			for _, path := range []string{"/metrics", "/readyz"} {
				v.refused(404, "not_found", anonymous, "GET "+path, nil)
			}
		})},
	{"Each has `X-Content-Type-Options: nosniff`, `Content-Security-Policy: default-src 'none'; frame-ancestors " +
		"'none'`, `Referrer-Policy: no-referrer` and `Cross-Origin-Resource-Policy: same-origin`;", func(v *visit) {
		post := v.post(v.user())
		for _, route := range []string{
			"GET /v1/posts", "GET " + post, "GET /healthz", "GET /v1/nothing", "POST /v1/posts", "TRACE /v1/posts",
			"GET /v1/feeds/new", "GET /v1/posts?q=" + strings.Repeat("a", 9000),
		} {
			h := v.ask(anonymous, route, nil).header
			assert.Equal(v.t, "nosniff", h.Get("X-Content-Type-Options"), route)
			assert.Equal(v.t, "default-src 'none'; frame-ancestors 'none'", h.Get("Content-Security-Policy"), route)
			assert.Equal(v.t, "no-referrer", h.Get("Referrer-Policy"), route)
			assert.Equal(v.t, "same-origin", h.Get("Cross-Origin-Resource-Policy"), route)
		}
	}},
	{"`Strict-Transport-Security` for a year is sent if a trusted proxy reports that the client used TLS " +
		"(`X-Forwarded-Proto: https`).", func(v *visit) {
		const name = "Strict-Transport-Security"
		assert.Empty(v.t, v.gets(200, anonymous, "GET /v1/posts", nil).header.Get(name))
		assert.Equal(v.t, "max-age=31536000",
			v.gets(200, anonymous, "GET /v1/posts", nil, "X-Forwarded-Proto: https").header.Get(name))
		r, err := v.askAt(v.s.bare, anonymous, "GET /v1/posts", nil, "X-Forwarded-Proto: https")
		require.NoError(v.t, err)
		assert.Empty(v.t, r.header.Get(name))
	}},
	{"No answer names the server or its version.", func(v *visit) {
		for _, route := range []string{"GET /v1/posts", "GET /healthz", "GET /nothing"} {
			h := v.ask(anonymous, route, nil).header
			assert.Empty(v.t, h.Get("Server"), route)
			assert.Empty(v.t, h.Get("X-Powered-By"), route)
		}
	}},
	{"By default, `avatar_url` can only be an image that was uploaded to the site.",
		each(defaults("api", "avatar-hosts", ""), func(v *visit) {
			ada := v.user()
			r := v.refused(422, "invalid", ada, "PATCH /v1/me", obj{"avatar_url": "https://images.example.org/a.png"})
			assert.Equal(v.t, "avatar_url not_permitted",
				r.text(v.t, "errors", 0, "field")+" "+r.text(v.t, "errors", 0, "code"))
			url := v.upload(ada, pictureOf(v.t, 8, 8)).text(v.t, "url")
			assert.Equal(v.t, url, v.gets(200, ada, "PATCH /v1/me", obj{"avatar_url": url}).at(v.t, "avatar_url"))
		})},
	{"It is answered with its exact type, `nosniff`, and a policy under which nothing runs.", func(v *visit) {
		r := v.gets(200, anonymous, "GET "+v.upload(v.user(), pictureOf(v.t, 8, 8)).text(v.t, "url"), nil)
		assert.Equal(v.t, http.DetectContentType([]byte(r.body)), r.header.Get("Content-Type"))
		assert.Equal(v.t, "nosniff", r.header.Get("X-Content-Type-Options"))
		assert.Contains(v.t, r.header.Get("Content-Security-Policy"), "default-src 'none'")
	}},

	// Personal data.
	{"A session of the account; API tokens are refused, because a token to read would otherwise reveal the e-mail " +
		"address and the list of sessions.", func(v *visit) {
		ada := v.user()
		token := v.gets(201, ada, "POST /v1/me/tokens", obj{"name": "reader", "scopes": []string{"read"}})
		v.refused(403, "forbidden", account{token: token.text(v.t, "token")}, "GET /v1/me/export", nil)
	}},
	{"Requests are logged with route, status, duration, request id and user id: no bodies, headers, queries or " +
		"addresses.",
		func(v *visit) {
			ada := v.user()
			r := v.gets(200, ada, "GET /v1/posts?q=unloggedquery", nil, "X-Secret: unloggedheader")
			id := r.header.Get("X-Request-Id")
			var line string
			v.eventually(func() (bool, string) {
				for l := range strings.Lines(v.s.api.stderr.String()) {
					if strings.Contains(l, "request_id="+id) {
						line = l
					}
				}
				return line != "", "the log has no line of it"
			})
			user := fmt.Sprint("user_id=", ada.id)
			for _, want := range []string{"route=/v1/posts", "status=200", "duration_ms=", user} {
				assert.Contains(v.t, line, want)
			}
			for _, secret := range []string{"unlogged", v.from, "2001:db8"} {
				assert.NotContains(v.t, line, secret)
			}
		}},
}
