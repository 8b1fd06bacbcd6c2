package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/workers"
)

// fetch reads a page of the admin listener.
func (v *visit) fetch(path string) (status int, body string) {
	v.t.Helper()
	response, err := http.Get(v.s.admin + path)
	require.NoError(v.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(v.t, err)
	return response.StatusCode, string(text)
}

// composeHas tries that compose.yaml sets something.
func composeHas(text string) func(*visit) {
	return func(v *visit) {
		file, err := os.ReadFile("../../compose.yaml")
		require.NoError(v.t, err)
		assert.Contains(v.t, string(file), text)
	}
}

var operationsStatements = []statement{
	{"| `/healthz` | 200 while the process runs; the listeners of api and web have it, too |", func(v *visit) {
		status, _ := v.fetch("/healthz")
		assert.Equal(v.t, 200, status)
		v.gets(200, anonymous, "GET /healthz", nil)
		v.browses(200, anonymous, "GET /healthz", nil)
	}},
	{"| `/readyz` | 200 `ok`;", func(v *visit) {
		status, body := v.fetch("/readyz")
		assert.Equal(v.t, 200, status)
		assert.Contains(v.t, body, `"status":"ok"`)
	}},
	{"| `/metrics` | metrics for Prometheus, at most four scrapes at once |", func(v *visit) {
		status, body := v.fetch("/metrics")
		assert.Equal(v.t, 200, status)
		assert.Contains(v.t, body, "likewise_http_requests_total")
	}},
	{"`likewise_role` is 1 for each role of a process, and a process exports the metrics of its roles alone.",
		func(v *visit) {
			_, body := v.fetch("/metrics")
			assert.Regexp(v.t, `(?m)^likewise_role\{.*role="api".*\} 1$`, body)
			assert.NotContains(v.t, body, "likewise_relay_shards")
		}},
	{"The listener is therefore on loopback by default: port 9080 for the api, 9081 for the worker, 9082 for cron, " +
		"9083 for web.",
		each(defaults("api", "admin-listen", "127.0.0.1:9080"), defaults("worker", "admin-listen", "127.0.0.1:9081"),
			defaults("cron", "admin-listen", "127.0.0.1:9082"), defaults("web", "admin-listen", "127.0.0.1:9083"))},
	{"`compose.yaml` limits it to 512 MB.", composeHas("mem_limit: 512m")},
	{"a browser that opens `/` of the API is led there.", func(v *visit) {
		request, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.s.url+"/", nil)
		require.NoError(v.t, err)
		request.Header.Set("Accept", "text/html")
		r, err := stays().Do(request)
		require.NoError(v.t, err)
		r.Body.Close()
		assert.Equal(v.t, publicURL+"/", r.Header.Get("Location"))
	}},
	{"Requests are logged only if they fail, with the `request_id` that the page shows.", func(v *visit) {
		v.browses(200, anonymous, "GET /help", nil)
		assert.NotContains(v.t, v.s.web.stderr.String(), "/help")
	}},
	{"After SIGTERM, a web [drains](#a-restart) as an api does.", defaults("web", "drain", "5s")},
	{"`compose.yaml` sets `:9080` for all roles and does not publish the port, so only containers of its network can " +
		"scrape it:", each(composeHas(`LIKEWISE_ADMIN_LISTEN: ":9080"`), func(v *visit) {
		file, err := os.ReadFile("../../compose.yaml")
		require.NoError(v.t, err)
		assert.NotRegexp(v.t, `(?m)^\s+- .*9080:`, string(file))
	})},
	{"| an api is stopped (SIGTERM) | nothing: it [drains](#a-restart), and requests in progress are answered | | it " +
		"exits within `--drain` (5 s) and 10 s |", each(defaults("api", "drain", "5s"), func(v *visit) {
		assert.LessOrEqual(v.t, drainLimit.Seconds(), 10.0)
	})},
	{"After SIGTERM, `/readyz` of an api answers 503, and the api still accepts requests for the time of `--drain`, " +
		"5 s by default.", defaults("api", "drain", "5s")},
	{"Then the api accepts no new connection, serves those that the kernel has established, closes idle ones after a " +
		"second, and finishes the requests in progress within 9 s.", func(v *visit) {
		assert.Equal(v.t, 9.0, drainLimit.Seconds())
	}},
	{"| no worker runs | nothing at first; after `--outbox-limit` likes in a shard, 503 |",
		defaults("api", "outbox-limit", fmt.Sprint(counters.DefaultOutboxLimit))},
	{"Times in the log are in UTC (RFC 3339), whatever the zone of the process.", func(v *visit) {
		assert.Regexp(v.t, `(?m)^time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z level=`, v.s.api.stderr.String())
	}},
	{"| `method`, `route` | the route as in the contract, such as `/v1/posts/:id` |", func(v *visit) {
		v.refused(404, "not_found", anonymous, "GET /v1/posts/99999", nil)
		v.eventually(func() (bool, string) {
			text := v.s.api.stderr.String()
			return regexp.MustCompile(`method=GET route=/v1/posts/:id status=404`).MatchString(text), "no such line"
		})
	}},
	{"`--access-log=errors` logs only requests that were answered with 4xx or 5xx, and `none` not even the error of " +
		"a 5xx.",
		defaults("api", "access-log", "all")},
	{"with a session or an API token with the scope `moderate`. Every change requires a `reason` and is in the " +
		"moderation log.",
		func(v *visit) {
			admin := v.adminUser()
			token := v.gets(201, admin, "POST /v1/me/tokens", obj{"name": "desk", "scopes": []string{"moderate"}})
			r := v.gets(200, account{token: token.text(v.t, "token")}, "GET /v1/admin/pipeline", nil)
			assert.NotEmpty(v.t, r.at(v.t, "shards"))
			r = v.refused(422, "invalid", admin, "POST /v1/admin/reconcile",
				obj{"target_type": "post", "target_id": 1, "dry_run": false})
			assert.Equal(v.t, "reason", r.at(v.t, "errors", 0, "field"))
		}},
	{"It is a dry run unless `dry_run` is `false`.", func(v *visit) {
		post := v.post(v.user())
		var id int64
		_, err := fmt.Sscanf(post, "/v1/posts/%d", &id)
		require.NoError(v.t, err)
		r := v.gets(200, v.adminUser(), "POST /v1/admin/reconcile", obj{"target_type": "post", "target_id": id,
			"reason": "r"})
		assert.Equal(v.t, true, r.at(v.t, "dry_run"))
	}},
	{"- `GET /v1/admin/pipeline` has, for every shard: whether it takes likes, which process relays it (`host:pid/…`)",
		func(v *visit) {
			r := v.gets(200, v.adminUser(), "GET /v1/admin/pipeline", nil)
			assert.Equal(v.t, true, r.at(v.t, "shards", 0, "open"))
			v.refused(403, "forbidden", v.moderator(), "GET /v1/admin/pipeline", nil)
		}},

	// Behind a proxy.
	{"- **Uploads** have up to 11 MB.", func(v *visit) {
		assert.Less(v.t, 10<<20+64<<10, 11_000_000)
	}},
	{"because the answer has `X-Accel-Buffering: no`.", func(v *visit) {
		post := v.post(v.user())
		response, err := v.open(v.s.url, anonymous, "GET "+
			"/v1/stream?posts="+post[strings.LastIndexByte(post, '/')+1:], nil)
		require.NoError(v.t, err)
		defer response.Body.Close()
		assert.Equal(v.t, "no", response.Header.Get("X-Accel-Buffering"))
	}},
	{"- **Links to profiles** in `content_html` go to `/users/NAME`.", func(v *visit) {
		r := v.gets(200, v.user(), "POST /v1/render", obj{"content": "@ada"})
		assert.Contains(v.t, r.text(v.t, "content_html"), `href="/users/ada"`)
	}},
	{"- **Feeds and the sitemap** need `--public-url`, the URL of the front end, which forwards `/v1` to the api. " +
		"They link to its pages `/posts/ID` (a comment is `#comment-ID` there), `/users/ID` and " +
		"`/tags/TAG`;", func(v *visit) {
		ada := v.user()
		r := v.gets(201, ada, "POST /v1/posts", obj{"title": "T", "content": "c", "tags": []string{"feeds"}})
		post := "/posts/" + r.text(v.t, "id")
		comment := v.comment(ada, "/v1"+post)
		v.eventually(func() (bool, string) {
			body := v.gets(200, anonymous, "GET /v1/feeds"+post, nil).body
			id := comment[strings.LastIndexByte(comment, '/')+1:]
			return strings.Contains(body, publicURL+post+"#comment-"+id), body
		})
	}},
	{"- **Other origins** are allowed by `--cors-origins`;", each(defaults("api", "cors-origins", ""), func(v *visit) {
		r := v.gets(200, anonymous, "GET /v1/posts", nil, "Origin: https://other.example")
		assert.Empty(v.t, r.header.Get("Access-Control-Allow-Origin"))
	})},
	{"The job `export` (every 5 s) builds the archives that users request with `GET " +
		"/v1/me/export`", every("export", "5s")},
	{"The job `claims` (every second) ends claims that were not confirmed in time", every("claims", "1s")},

	// Images.
	{"Without it, uploads get 403.", func(v *visit) {
		r, err := v.askAt(v.s.bare, v.user(), "POST /v1/images", "x", "Content-Type: multipart/form-data; boundary=b")
		require.NoError(v.t, err)
		assert.Equal(v.t, 403, r.status, "%s", r)
	}},
	{"| an account | `--images-room-of-user`, 200 MiB | 409 `no_room` |",
		each(defaults("api", "images-room-of-user", "200"), func(v *visit) {
			ada := v.user()
			v.s.exec(`INSERT INTO images (name, user_id, state, type, width, height, bytes, thumbnail_bytes)
				VALUES ('aaaaaaaaaaaaaaaaaaaa', ?, 2, 'image/png', 1, 1, 200<<20, 0)`, ada.id)
			r := v.upload(ada, pictureOf(v.t, 10, 10))
			assert.Equal(v.t, 409, r.status, "%s", r)
			assert.Equal(v.t, "no_room", r.text(v.t, "errors", 0, "code"))
		})},
	{"| the site | `--images-room`, 20 GiB, counted in `settings` under `image_bytes` until the objects are deleted " +
		"| 409 `no_room` |", defaults("api", "images-room", fmt.Sprint(20<<10))},
	{"the answer ends, and `Range` gets the rest |", func(v *visit) {
		url := "GET " + v.upload(v.user(), pictureOf(v.t, 100, 100)).text(v.t, "url")
		whole := v.gets(200, anonymous, url, nil)
		assert.Equal(v.t, "bytes", whole.header.Get("Accept-Ranges"))
		part := v.gets(206, anonymous, url, nil, "Range: bytes=10-")
		assert.Equal(v.t, whole.body[10:], part.body)
	}},
	{"So `compose.yaml` limits it to 1 GiB and sets `GOMEMLIMIT=800MiB`", composeHas("GOMEMLIMIT: 800MiB")},

	// Upgrade.
	{"A process refuses to *start* on a schema that is newer than its program, unless `--allow-newer-schema` is set.",
		defaults("api", "allow-newer-schema", "")},
}

// every compares the interval of a job with what a page says.
func every(job, want string) func(*visit) {
	return func(v *visit) {
		for _, j := range workers.Schedule() {
			if j.Name == job {
				assert.Equal(v.t, want, j.Every.String())
				return
			}
		}
		v.t.Errorf("job %s does not exist", job)
	}
}

var moderationStatements = []statement{
	{"Moderators act on users only, never on each other or on themselves; admins act on everybody but themselves.",
		func(v *visit) {
			mod, other, admin, ada := v.moderator(), v.moderator(), v.adminUser(), v.user()
			ban := func(as, whom account, status int) {
				v.t.Helper()
				v.gets(status, as, fmt.Sprintf("POST /v1/admin/users/%d/ban", whom.id), obj{"reason": "r"})
			}
			ban(mod, other, 403)
			ban(mod, mod, 403)
			ban(admin, admin, 403)
			ban(mod, ada, 200)
			ban(admin, other, 200)
		}},
	{"Moderators and admins may delete, lock and pin their own, but nothing else (403): the author of content can " +
		"neither restore, redact nor purge it, neither claim nor resolve a report of it, and not see its reporters.",
		func(v *visit) {
			reason := obj{"reason": "r"}
			for _, mod := range []account{v.moderator(), v.adminUser()} {
				post := v.post(mod)
				var id int64
				_, err := fmt.Sscanf(post, "/v1/posts/%d", &id)
				require.NoError(v.t, err)
				admin := "/v1/admin" + strings.TrimPrefix(post, "/v1")
				for _, act := range []string{"lock", "unlock", "pin", "unpin"} {
					v.gets(200, mod, "POST "+admin+"/"+act, reason)
				}
				v.gets(201, v.user(), "POST /v1/reports", obj{"target_type": "post", "target_id": id, "reason": "spam"})
				report := 0
				require.NoError(v.t, v.s.db.QueryRowContext(v.t.Context(),
					"SELECT id FROM report_cases WHERE target_type='post' AND target_id=?", id).Scan(&report))
				of := fmt.Sprintf("/v1/admin/reports/%d", report)
				v.refused(403, "forbidden", mod, "POST "+of+"/claim", nil)
				v.refused(403, "forbidden", mod, "POST "+of+"/resolve", obj{"action": "dismissed", "note": "n"})
				v.refused(403, "forbidden", mod, "GET "+of+"/reports", nil)
				v.refused(403, "forbidden", mod, "POST "+admin+"/revisions/0/redact", reason)
				v.refused(403, "forbidden", mod, "POST "+admin+"/purge", reason)
				v.gets(200, mod, "POST "+admin+"/delete", reason)
				v.refused(403, "forbidden", mod, "POST "+admin+"/restore", reason)
			}
		}},
	{"A locked post takes new comments from moderators alone, who can say there why it is locked. Its text is " +
		"frozen: its author cannot edit it, and only moderators can edit comments on it " +
		"(403, `locked`).", func(v *visit) {
		ada := v.user()
		post := v.post(ada)
		comment := v.comment(ada, post)
		mod := v.moderator()
		v.gets(200, mod, "POST /v1/admin"+strings.TrimPrefix(post, "/v1")+"/lock", obj{"reason": "r"})
		v.comment(mod, post)
		v.refused(403, "locked", ada, "POST "+post+"/comments", obj{"content": "c"})
		v.refused(403, "locked", ada, "PATCH "+post, obj{"content": "c"}, v.version(post))
		v.refused(403, "locked", ada, "PATCH "+comment, obj{"content": "c"}, v.version(comment))
		v.gets(200, ada, "PUT "+post+"/like", nil)
	}},
	{"the cron job `moderate` (every 2 seconds) processes it", every("moderate", "2s")},
	{"The cron job `void` (every 5 seconds) carries it out", every("void", "5s")},
}

var webhookStatements = []statement{
	{"Registering, changing, deleting and new secrets need a session; tokens with the scope `moderate` read, send " +
		"pings and replay.", func(v *visit) {
		admin := v.adminUser()
		body := obj{"url": "https://hooks.example.org/b", "events": []string{"post.created"}}
		made := v.gets(201, admin, "POST /v1/admin/webhooks", body)
		path := "/v1/admin/webhooks/" + made.text(v.t, "id")
		token := v.gets(201, admin, "POST /v1/me/tokens", obj{"name": "hooks", "scopes": []string{"moderate"}})
		bot := account{token: token.text(v.t, "token")}
		v.gets(200, bot, "GET "+path, nil)
		v.refused(403, "forbidden", bot, "POST /v1/admin/webhooks", body)
		v.refused(403, "forbidden", bot, "POST "+path+"/rotate-secret", nil)
		v.refused(403, "forbidden", bot, "DELETE "+path, nil)
	}},
	{"Webhooks must use HTTPS and be on the public Internet.", func(v *visit) {
		admin := v.adminUser()
		for _, url := range []string{"http://hooks.example.org/", "https://127.0.0.1/", "https://10.0.0.1/",
			"https://169.254.169.254/", "https://[::1]/", "https://[::ffff:10.0.0.1]/"} {
			r := v.refused(422, "invalid", admin, "POST /v1/admin/webhooks",
				obj{"url": url, "events": []string{"post.created"}})
			assert.Equal(v.t, "url", r.at(v.t, "errors", 0, "field"), url)
		}
	}},
	{"In that time, another rotation is refused with 409 until the use of the previous secret was " +
		"ended:", func(v *visit) {
		admin := v.adminUser()
		made := v.gets(201, admin, "POST /v1/admin/webhooks",
			obj{"url": "https://hooks.example.org/c", "events": []string{"post.created"}})
		path := "/v1/admin/webhooks/" + made.text(v.t, "id")
		v.gets(200, admin, "POST "+path+"/rotate-secret", nil)
		v.refused(409, "conflict", admin, "POST "+path+"/rotate-secret", nil)
		v.gets(204, admin, "DELETE "+path+"/previous-secret", nil)
		v.gets(200, admin, "POST "+path+"/rotate-secret", nil)
	}},
}
