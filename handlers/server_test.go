package handlers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/likes"
	"likewise/workers"
)

// scriptedLikes is the store with a SetLike that the test defines.
type scriptedLikes struct {
	*likes.Store
	setLike func(ctx context.Context) (models.LikeState, error)
}

func (l scriptedLikes) SetLike(ctx context.Context, _ models.Target, _ int64, _ bool) (models.LikeState, error) {
	return l.setLike(ctx)
}

// newScripted serves an API whose likes call setLike.
func newScripted(t *testing.T,
	setLike func(context.Context) (models.LikeState, error), changes ...func(*handlers.Config)) *api {
	t.Helper()
	store, sent := openRecorded(t, testkit.Database(t))
	a := serve(t, store, append(changes, func(c *handlers.Config) {
		c.Likes = scriptedLikes{likes.New(store),
			setLike}
	})...)
	a.sent = sent
	return a
}

func TestRequest_thatIsNotJSONIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	path := pathOf(a.newPost(t, ada))
	match := header{"If-Match", `"v0"`}
	for _, body := range []string{
		"", " ", "{", `{"title":"T"`, `{"title":"T",}`, `{title:"T"}`, `"T"`, "1", "null", "true", "[]",
		`[{"title":"T","content":"C"}]`,
		`{"title":"T","content":"C"} x`, `{"title":"T","content":"C"}{}`, "{\"title\":\"\xff\",\"content\":\"C\"}",
		strings.Repeat("[", 60_000),
		`{"title":"T","content":` + strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000) + `}`,
		"\x1f\x8b\x08\x00",
	} {
		a.refused(t, 400, "malformed", ada, "POST", "/v1/posts", body)
		a.refused(t, 400, "malformed", ada, "PATCH", path, body, match)
	}
	for _, value := range []string{"1", "true", "[]", "{}", `["T"]`} {
		a.refusedField(t, 400, "malformed", "title", ada, "POST", "/v1/posts", `{"content":"C","title":`+value+`}`)
	}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded",
		"multipart/form-data; boundary=x", "application/jsonx", ";"} {
		a.refused(t, 415, "unsupported_media_type", ada, "POST", "/v1/posts", obj{"title": "T", "content": "C"},
			header{"Content-Type", kind})
	}
	a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "T", "content": "C"},
		header{"Content-Type", "Application/JSON; charset=UTF-8"})
	a.refused(t, 400, "malformed", ada, "POST", "/v1/posts", "\x1f\x8b\x08\x00", header{"Content-Encoding", "gzip"})
	if n := a.number(t, "SELECT COUNT(*) FROM posts"); n != 2 {
		t.Errorf("%d posts, want 2", n)
	}
}

func TestRequest_overTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	body := func(size int) string {
		start := `{"title":"T","content":"`
		return start + strings.Repeat("x", size-len(start)-2) + `"}`
	}
	a.must(t, 201, ada, "POST", "/v1/posts", body(60_000))
	a.refusedField(t, 422, "invalid", "content", ada, "POST", "/v1/posts", body(384<<10))
	// Some clients write everything but ASCII, or everything, as escapes.
	escaped := strings.Repeat(`\u0041`, 60_000)
	p := read[post](t, a.must(t, 201, ada, "POST", "/v1/posts", `{"title":"T","content":"`+escaped+`"}`))
	if p.Content != strings.Repeat("A", 60_000) {
		t.Errorf("%d bytes are returned", len(p.Content))
	}
	// The client must be able to read the answer although it has not sent its whole body.
	for i := range 50 {
		a.refused(t, 413, "too_large", ada, "POST", "/v1/posts", body(384<<10+1+i*100_000))
	}
	a.refused(t, 431, "header_too_large", account{}, "GET", "/v1/posts", nil,
		header{"X-Long", strings.Repeat("x", 10_000)})
}

func TestRequest_thatNoRouteTakesIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	for _, path := range []string{"/v", "/v1", "/v2/posts", "/v1/posts/1/", "/v1/Posts", "/v1/posts/1/like/x",
		"/v1/users/1", "//v1/posts"} {
		a.refused(t, 404, "not_found", account{}, "GET", path, nil)
	}
	for _, try := range []struct{ method, path, allow string }{
		{"PUT", "/v1/posts", "GET, HEAD, POST"},
		{"POST", "/v1/posts/1", "GET, HEAD, DELETE, PATCH"},
		{"GET", "/v1/posts/1/like", "PUT, DELETE"},
		{"POST", "/healthz", "GET, HEAD"},
		{"OPTIONS", "/v1/auth/login", "POST"},
		{"BREW", "/v1/posts", "GET, HEAD, POST"},
		{"OPTIONS", "/v1/admin/reports/resolve", "POST"}, // although GET /v1/admin/reports/:id matches it
	} {
		if _, r := a.refused(t, 405, "method_not_allowed", account{}, try.method, try.path,
			nil); r.Header.Get("Allow") != try.allow {
			t.Errorf("%s %s: Allow is %q, want %q", try.method, try.path, r.Header.Get("Allow"), try.allow)
		}
	}
	a.must(t, 200, account{}, "HEAD", "/v1/posts", nil)

	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "what is this\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	if p := read[problem](t, reply{resp.StatusCode, resp.Header, raw}); p.Status != 400 || p.Code != "malformed" ||
		p.RequestID == "" {
		t.Errorf("no HTTP at all is answered with %d %s", resp.StatusCode, raw)
	}
}

func TestRequestID_isTakenIfItIsSafe(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	for _, id := range []string{"a", "A-b_c.9", strings.Repeat("x", 64)} {
		if got := a.send(t, account{}, "GET", "/healthz", nil,
			header{"X-Request-Id", id}).Header.Get("X-Request-Id"); got != id {
			t.Errorf("%q became %q", id, got)
		}
	}
	made := map[string]bool{}
	for _, id := range []string{"", "a b", strings.Repeat("x", 65), `"`, "ä", "a\tb", "a/b"} {
		got := a.send(t, account{}, "GET", "/healthz", nil, header{"X-Request-Id", id}).Header.Get("X-Request-Id")
		if got == id || len(got) < 16 || made[got] {
			t.Errorf("%q became %q", id, got)
		}
		made[got] = true
	}
}

func TestLog_hasEachRequestOnceAndNoSecrets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"})
	in := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login",
		obj{"login": "ada@example.org", "password": "difference engine"}))
	ada := account{Token: in.Token}
	a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "Confidential", "content": "Very confidential"},
		header{"X-Request-Id", "find-me"})
	a.must(t, 401, account{Token: "some-token"}, "GET", "/v1/posts/123456?cursor=abc", nil,
		header{"X-Request-Id", "find-me-too"})
	testkit.Eventually(t, 5*time.Second, func() (bool, string) { // a request is logged after it is answered
		return strings.Contains(a.log.String(), "find-me-too"), a.log.String()
	})
	log := a.log.String()
	for id, wants := range map[string][]string{
		"find-me\"": {`"method":"POST"`, `"route":"/v1/posts"`, `"status":201`, `"duration_ms":`,
			fmt.Sprintf(`"user_id":%d`, in.User.ID)},
		"find-me-too": {`"route":"/v1/posts/:id"`, `"status":401`},
	} {
		if strings.Count(log, id) != 1 {
			t.Errorf("%s is logged %d times", id, strings.Count(log, id))
		}
		for _, line := range strings.Split(log, "\n") {
			for _, want := range wants {
				if strings.Contains(line, id) && !strings.Contains(line, want) {
					t.Errorf("%s lacks %s", line, want)
				}
			}
		}
	}
	for _, secret := range []string{in.Token, "difference", "example.org", "onfidential", "some-token", "123456",
		"argon2"} {
		if strings.Contains(log, secret) {
			t.Errorf("%q is in the log:\n%s", secret, log)
		}
	}
}

func TestFailure_showsNothingInternal(t *testing.T) {
	t.Parallel()
	fail := func(context.Context) (models.LikeState, error) { panic("not yet set") }
	a := newScripted(t, func(ctx context.Context) (models.LikeState, error) { return fail(ctx) })
	ada := a.account(t)
	path := pathOf(a.newPost(t, ada)) + "/like"
	for _, f := range []struct {
		status int
		code   string
		fail   func(context.Context) (models.LikeState, error)
	}{
		{500, "internal", func(context.Context) (models.LikeState, error) { panic("secret reason") }},
		{500, "internal", func(context.Context) (models.LikeState, error) {
			return models.LikeState{}, errors.New("secret reason")
		}},
		{500, "internal", func(context.Context) (models.LikeState, error) {
			return models.LikeState{}, fmt.Errorf("x: %w", &models.Error{Code: "unheard_of", Message: "secret reason"})
		}},
		{503, "unavailable", func(context.Context) (models.LikeState, error) {
			return models.LikeState{}, models.Unavailable("Come back.", errors.New("secret reason"))
		}},
		{503, "unavailable", func(context.Context) (models.LikeState, error) {
			return models.LikeState{}, fmt.Errorf("secret reason: %w", context.DeadlineExceeded)
		}},
	} {
		fail = f.fail
		p, r := a.refused(t, f.status, f.code, ada, "PUT", path, nil)
		if strings.Contains(string(r.Body), "secret") {
			t.Errorf("the client sees %s", r)
		}
		if (r.Header.Get("Retry-After") == "1") != (f.status == 503) {
			t.Errorf("%d with Retry-After %q", f.status, r.Header.Get("Retry-After"))
		}
		testkit.Eventually(t, 5*time.Second, func() (bool, string) {
			for _, line := range strings.Split(a.log.String(), "\n") {
				if strings.Contains(line, `"msg":"request"`) && strings.Contains(line, p.RequestID) {
					return strings.Contains(line, "secret reason") && strings.Contains(line, `"level":"ERROR"`), line
				}
			}
			return false, "request not logged"
		})
	}
	if !strings.Contains(a.log.String(), "server_test.go") {
		t.Error("the panic's stack is not in the log")
	}
}

func TestRequest_hasADeadline(t *testing.T) {
	t.Parallel()
	a := newScripted(t, func(ctx context.Context) (models.LikeState, error) {
		<-ctx.Done()
		return models.LikeState{}, fmt.Errorf("waited: %w", ctx.Err())
	}, func(c *handlers.Config) { c.Timeout = 50 * time.Millisecond })
	ada := a.account(t)
	a.refused(t, 503, "unavailable", ada, "PUT", "/v1/posts/1/like", nil)
}

// blocked is an API with one like in flight, which release unblocks.
func blocked(t *testing.T) (a *api, answered <-chan reply, release func()) {
	t.Helper()
	entered, released := make(chan struct{}), make(chan struct{})
	a = newScripted(t, func(context.Context) (models.LikeState, error) {
		close(entered)
		<-released
		return models.LikeState{Liked: true, Count: 7}, nil
	})
	ada, answer := a.account(t), make(chan reply, 1)
	go func() {
		r, err := a.try(ada, "PUT", "/v1/posts/1/like", nil)
		if err != nil {
			r.Body = []byte(err.Error())
		}
		answer <- r
	}()
	<-entered
	return a, answer, func() { close(released) }
}

func TestShutdown_answersRequestsInFlight(t *testing.T) {
	t.Parallel()
	a, answered, release := blocked(t)
	stopped := make(chan error, 1)
	go func() { stopped <- a.Shutdown(context.Background()) }()
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil, "still takes connections"
	})
	if len(stopped) != 0 {
		t.Error("stopped before the request was answered")
	}
	release()
	if r := <-answered; r.String() != `200 {"liked":true,"likes_count":7}` {
		t.Errorf("the request under way got %s", r)
	}
	if err := <-stopped; err != nil {
		t.Errorf("shut down: %v", err)
	}
}

func TestDrain_servesNewConnectionsAndClosesEach(t *testing.T) {
	t.Parallel()
	a, answered, release := blocked(t)
	draining, stop := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() { defer close(drained); a.Drain(draining, time.Hour) }()
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		answer, err := http.Get(a.url + "/healthz")
		if err != nil {
			t.Fatalf("while it drains: %v", err)
		}
		answer.Body.Close()
		return answer.Close && answer.StatusCode == http.StatusOK, "the answer leaves its connection open"
	})
	select {
	case <-drained:
		t.Error("it has drained before its time")
	default:
	}
	stop()
	<-drained
	release()
	<-answered
}

func TestShutdown_endsAtItsDeadline(t *testing.T) {
	t.Parallel()
	a, answered, release := blocked(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutting down while a request is under way: %v, want a deadline", err)
	}
	release()
	<-answered
}

func TestServe_afterShutdownReturns(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	server, err := handlers.New(handlers.Config{Store: store, Likes: likes.New(store), IDs: counters.NewIDs(nil, store),
		Desk: workers.NewDesk(store, nil, nil), Registry: prometheus.NewRegistry()})
	require.NoError(t, err)
	require.NoError(t, server.Shutdown(t.Context()))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if err := server.Serve(ln); err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestNew_refusesIncompleteConfigs(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	whole := handlers.Config{Store: store, Likes: likes.New(store), IDs: counters.NewIDs(nil, store),
		Desk: workers.NewDesk(store, nil, nil), Registry: prometheus.NewRegistry()}
	for name, spoil := range map[string]func(*handlers.Config){
		"no store":         func(c *handlers.Config) { c.Store = nil },
		"no likes":         func(c *handlers.Config) { c.Likes = nil },
		"no ids":           func(c *handlers.Config) { c.IDs = nil },
		"no desk":          func(c *handlers.Config) { c.Desk = nil },
		"no registry":      func(c *handlers.Config) { c.Registry = nil },
		"negative timeout": func(c *handlers.Config) { c.Timeout = -1 },
	} {
		c := whole
		spoil(&c)
		if _, err := handlers.New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := handlers.New(whole); err != nil {
		t.Fatal(err)
	}
	if _, err := handlers.New(whole); err == nil {
		t.Error("a registry is accepted twice")
	}
}

func TestMetrics_areLabelledByRoute(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	for range 3 {
		a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
	}
	a.must(t, 404, ada, "PUT", "/v1/posts/424242/like", nil)
	a.must(t, 404, ada, "GET", "/v1/zyx/up", nil)
	a.must(t, 405, ada, "PUT", "/v1/posts", nil)
	a.must(t, 405, ada, "BREW", "/v1/posts", nil)
	testkit.Eventually(t, 5*time.Second, func() (bool, string) { // a request is counted after it is answered
		text := a.metrics(t)
		for _, want := range []string{
			`likewise_http_requests_total{method="PUT",route="/v1/posts/:id/like",status="200"} 3`,
			`likewise_http_requests_total{method="PUT",route="/v1/posts/:id/like",status="404"} 1`,
			`likewise_http_requests_total{method="GET",route="none",status="404"} 1`,
			`likewise_http_requests_total{method="PUT",route="none",status="405"} 1`,
			`likewise_http_requests_total{method="other",route="none",status="405"} 1`,
			`likewise_http_request_duration_seconds_count{method="PUT",route="/v1/posts/:id/like"} 4`,
		} {
			if !strings.Contains(text, want+"\n") {
				return false, want + " is not in\n" + text
			}
		}
		if strings.Contains(text, "424242") || strings.Contains(text, "zyx") || strings.Contains(text, "BREW") {
			t.Error("a client made a label")
		}
		return true, ""
	})
}
