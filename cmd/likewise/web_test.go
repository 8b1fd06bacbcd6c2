package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

var webAddress = regexp.MustCompile(`"?web serves"? .*address=(\S+)`)

// startWeb starts a process of the pages on the API, and returns it with its URL. Browsers know the pages as publicURL.
func startWeb(t *testing.T, api string, args ...string) (*process, string) {
	t.Helper()
	p := start(t, nil, append([]string{"web", "--api=" + api, "--public-url=" + publicURL}, args...)...)
	return p, "http://" + p.awaitPrint(webAddress)
}

// page is a page as a browser shows it.
type page struct {
	status int
	header http.Header
	body   string
}

// browse opens a page, or sends a form to it. The cookie is that of a session; "" for none.
func browse(t *testing.T, client *http.Client, at, cookie string, form url.Values) page {
	t.Helper()
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(t.Context(), method, at, body)
	require.NoError(t, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", publicURL)
	}
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: "__Host-session", Value: cookie})
	}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return page{resp.StatusCode, resp.Header, string(text)}
}

// stays is a client that follows no redirection.
func stays() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func TestWeb_servesTheForumOnTheAPIAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada := s.accounts(1)[0]
	_, api := s.api("--likes=direct", "--trusted-proxies=127.0.0.1")
	post := newPost(t, api, ada)
	p, forum := startWeb(t, api, "--trusted-proxies=127.0.0.1")
	front := browse(t, stays(), forum+"/", "", nil)
	assert.Equal(t, http.StatusOK, front.status)
	assert.Contains(t, front.body, `href="`+post.path()[len("/v1"):]+`"`)
	commented := browse(t, stays(), forum+post.path()[len("/v1"):]+"/comments", ada.token, url.Values{
		"content": {"From a form."}, "key": {"web-test"},
	})
	assert.Equal(t, http.StatusSeeOther, commented.status, commented.body)
	assert.Equal(t, 1, s.count("SELECT COUNT(*) FROM comments WHERE content='From a form.'"))
	assert.Equal(t, http.StatusNotFound, browse(t, stays(), forum+"/v1/admin/users", ada.token, nil).status,
		"what pages do not need is not passed on")

	assert.Equal(t, http.StatusOK, browse(t, stays(), forum+"/healthz", "", nil).status)
	for _, path := range []string{"/metrics", "/readyz"} {
		assert.Equal(t, http.StatusNotFound, browse(t, stays(), forum+path, "", nil).status, path)
	}
	succeed(t, nil, "healthcheck", forum+"/healthz")
	awaitReady(t, p.admin(), "ok", http.StatusOK)
	metrics := scrape(t, p.admin())
	assert.Equal(t, 1.0, metrics[`likewise_web_requests_total{method="GET",route="/{$}",status="200"}`])
	assert.Positive(t, metrics[`likewise_web_api_request_duration_seconds_count{method="GET",status="200"}`])
	p.stop()
	assert.NotContains(t, p.stderr.String(), ada.token)
}

// After SIGTERM, /readyz answers 503, pages are served until --drain has passed, requests in progress are answered, and
// streams end.
func TestWeb_drainsBeforeItStops(t *testing.T) {
	t.Parallel()
	const drain = 6 * time.Second
	asked, answer := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(asked) })
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: begun\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/v1/tags":
			begun()
			<-answer
		}
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, `{"items":[]}`)
	}))
	defer api.Close()
	p, forum := startWeb(t, api.URL, "--drain="+drain.String())
	admin := p.admin()
	awaitReady(t, admin, "ok", http.StatusOK)
	stream, err := http.Get(forum + "/v1/stream")
	require.NoError(t, err)
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	require.True(t, lines.Scan())
	begin := time.Now()
	p.term()
	awaitReady(t, admin, "stopping", http.StatusServiceUnavailable)
	page, err := http.Get(forum + "/help")
	require.NoError(t, err, "a new connection while it drains")
	page.Body.Close()
	assert.Equal(t, http.StatusOK, page.StatusCode)
	assert.True(t, page.Close, "its connection is closed, so that no proxy uses it again")
	slow := make(chan int, 1)
	go func() {
		resp, err := http.Get(forum + "/tags")
		if assert.NoError(t, err) {
			resp.Body.Close()
			slow <- resp.StatusCode
		}
		close(slow)
	}()
	<-asked
	p.awaitPrint(regexp.MustCompile("web stops"))
	close(answer)
	assert.Equal(t, http.StatusOK, <-slow)
	for lines.Scan() {
		assert.Empty(t, lines.Text(), "the stream only ends")
	}
	assert.Zero(t, p.await())
	assert.GreaterOrEqual(t, time.Since(begin), drain)
	assert.Less(t, time.Since(begin), drain+drainLimit)
	assert.Contains(t, p.stderr.String(), `msg="web stopped"`)
}

// Without the API, pages say so, and the process goes on.
func TestWeb_outlivesTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	api, at := s.api("--likes=direct")
	p, forum := startWeb(t, at)
	assert.Equal(t, http.StatusOK, browse(t, stays(), forum+"/", "", nil).status)
	api.Kill()
	var away page
	testkit.Eventually(t, patience, func() (bool, string) { // a copy of the page is good for a second
		away = browse(t, stays(), forum+"/", "", nil)
		return away.status == http.StatusServiceUnavailable, away.body
	})
	assert.Equal(t, "1", away.header.Get("Retry-After"))
	assert.Contains(t, away.body, "Request <code>"+away.header.Get("X-Request-Id")+"</code>")
	testkit.Eventually(t, patience, func() (bool, string) { // the log comes through a pipe, after the answer
		said := p.stderr.String()
		return strings.Contains(said, "request_id="+away.header.Get("X-Request-Id")) &&
			strings.Contains(said, "connection refused"), "the log does not have the request and the cause: " + said
	})
	awaitReady(t, p.admin(), "degraded", http.StatusOK)
	assert.Equal(t, 0.0, scrape(t, p.admin())[`likewise_dependency_up{dependency="api"}`])

	_, port, _ := strings.Cut(strings.TrimPrefix(at, "http://"), ":")
	s.start("api", "--likes=direct", "--listen=127.0.0.1:"+port)
	testkit.Eventually(t, patience, func() (bool, string) {
		back := browse(t, stays(), forum+"/", "", nil)
		return back.status == http.StatusOK, back.body
	})
	p.stop()
}

func TestWeb_namesTheFlagOfAFault(t *testing.T) {
	t.Parallel()
	said := fail(t, 2, nil, "web")
	assert.Contains(t, said, "missing: --api (or $LIKEWISE_API), --public-url (or $LIKEWISE_PUBLIC_URL)")
	good := []string{"web", "--api=http://127.0.0.1:1", "--public-url=" + publicURL}
	for flag, want := range map[string]string{
		"--api=127.0.0.1:8080":                "--api (or $LIKEWISE_API): ",
		"--api=http://127.0.0.1:1/v1":         "--api (or $LIKEWISE_API): ",
		"--public-url=https://forum.test/a":   "--public-url (or $LIKEWISE_PUBLIC_URL): ",
		"--trusted-proxies=everybody":         "--trusted-proxies (or $LIKEWISE_TRUSTED_PROXIES): ",
		"--drain=11m":                         "--drain (or $LIKEWISE_DRAIN) must be from 0s to 10m0s",
		"--public-url=ftp://forum.example":    "--public-url (or $LIKEWISE_PUBLIC_URL): ",
		"--public-url=https://forum.example/": "--public-url (or $LIKEWISE_PUBLIC_URL): ",
	} {
		assert.Contains(t, fail(t, 2, nil, append(good, flag)...), want, flag)
	}
	p, forum := startWeb(t, "http://127.0.0.1:1")
	for flag, taken := range map[string]string{
		"--listen (or $LIKEWISE_LISTEN)":             "--listen=" + strings.TrimPrefix(forum, "http://"),
		"--admin-listen (or $LIKEWISE_ADMIN_LISTEN)": "--admin-listen=" + strings.TrimPrefix(p.admin(), "http://"),
	} {
		assert.Contains(t, fail(t, 1, nil, append(good, taken)...), flag)
	}
}

// The API must see the visitor, because limits are by address.
func TestWeb_passesTheAddressOfTheVisitorOn(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 100)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- strings.Join(r.Header.Values("X-Forwarded-For"), ",")
		w.Header().Set("ETag", `"1"`) // a page without it is not shared, and read again
		_, _ = io.WriteString(w, `{"items":[]}`)
	}))
	defer api.Close()
	_, direct := startWeb(t, api.URL)
	_, behind := startWeb(t, api.URL, "--trusted-proxies=127.0.0.1,10.0.0.0/8")
	for _, forum := range []string{direct, behind} {
		for _, path := range []string{"/tags", "/v1/feeds/new"} {
			r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, forum+path, nil)
			require.NoError(t, err)
			r.Header.Set("X-Forwarded-For", "203.0.113.7, 192.0.2.1, 10.0.0.9")
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			resp.Body.Close()
			want := "192.0.2.1"
			if forum == direct {
				want = "127.0.0.1"
			}
			assert.Equal(t, want, <-seen, path)
		}
	}
}
