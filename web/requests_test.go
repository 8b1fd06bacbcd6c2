package web

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patterns is a router that lists the routes.
type patterns []string

func (p *patterns) Handle(pattern string, _ http.Handler) { *p = append(*p, pattern) }

func (p *patterns) HandleFunc(pattern string, _ func(http.ResponseWriter, *http.Request)) {
	*p = append(*p, pattern)
}

// anything has the members of every object that a page cannot do without.
const anything = `{"id": 1, "username": "grace", "role": "admin", "key": "k", "post_id": 1, "items": [], "version": 1,
	"post": {"id": 1}, "posts": {"items": []}, "comments": {"items": []}, "user": {"id": 1}}`

// recording is an API that answers everything alike. It knows the page that asks by the name of the browser.
type recording struct {
	mu      sync.Mutex
	list    map[string][]string // of requests, by page
	crowds  map[string]int      // the number of reads that a page must send before any of them is answered
	arrived map[string]chan struct{}
}

func (a *recording) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page := r.UserAgent()
	a.mu.Lock()
	a.list[page] = append(a.list[page], r.Method+" "+r.URL.RequestURI())
	all := a.arrived[page]
	if crowd := a.crowds[page]; crowd > 0 && r.Method == http.MethodGet {
		if a.crowds[page]--; crowd == 1 {
			close(all)
		}
	} else {
		all = nil
	}
	a.mu.Unlock()
	if all != nil {
		select {
		case <-all:
		case <-r.Context().Done():
		}
	}
	answer := anything
	if strings.HasPrefix(r.URL.Path, "/v1/admin/images/") {
		answer = `{"id": "1"}`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(answer))
}

// asked returns what a page has asked, and begins anew: the answers wait until a number of requests has arrived.
func (a *recording) asked(page string, crowd int) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list[page]
	a.list[page], a.crowds[page], a.arrived[page] = nil, crowd, make(chan struct{})
	return list
}

// pagesToOpen returns a path of each page: that of its route, and those whose query makes it ask more.
func pagesToOpen(t *testing.T) []string {
	t.Helper()
	var all patterns
	newTestServer(t).addRoutes(&all)
	paths := []string{
		"/search?q=a", "/search?q=a&in=comments", "/moderate?case=1", "/operate/like?post=1", "/users/1?cursor=c",
		"/users/1/comments?cursor=c", "/posts/1/revisions?version=0", "/likes?type=comment", "/posts/new?draft=k",
		"/comments/1/reply?quote=1", "/posts/1?cursor=c", "/users/ada/comments", "/moderate/posts?author=ada",
		"/moderate/log?actor=ada",
	}
	values := strings.NewReplacer("{id}", "1", "{name}", "1", "{version}", "0", "{comment}", "1", "{$}", "")
	for _, pattern := range all {
		method, path, _ := strings.Cut(pattern, " ")
		if method == http.MethodGet && !strings.HasPrefix(path, "/v1/") && path != assetPath {
			paths = append(paths, values.Replace(path))
		}
	}
	require.Greater(t, len(paths), 70)
	return paths
}

// A page makes at most three requests to the API, and its reads all at once. What was read is marked after it.
func TestPages_askLittleAndAtOnce(t *testing.T) {
	t.Parallel()
	api := &recording{list: map[string][]string{}, crowds: map[string]int{}, arrived: map[string]chan struct{}{}}
	behind := httptest.NewServer(api)
	t.Cleanup(behind.Close)
	at, err := url.Parse(behind.URL)
	require.NoError(t, err)
	s, err := New(Config{API: at, PublicURL: at, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, path := range pagesToOpen(t) {
		open := func() int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Header.Set("User-Agent", path)
			r.AddCookie(&http.Cookie{Name: "session", Value: "token"})
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w.Code
		}
		require.Less(t, open(), http.StatusBadRequest, path)
		require.NoError(t, s.Wait(t.Context()))
		list := api.asked(path, 0)
		assert.LessOrEqual(t, len(list), 3, "%s: %s", path, strings.Join(list, ", "))
		reads := slices.DeleteFunc(list, func(one string) bool { return strings.HasPrefix(one, http.MethodPut) })
		if one := sequential[path]; one {
			continue
		}
		api.asked(path, len(reads))
		assert.Less(t, open(), http.StatusBadRequest, "%s: one waits for another: %s", path, strings.Join(reads, ", "))
	}
	require.NoError(t, s.Wait(t.Context()))
}

// sequential are the pages that cannot know all that they need at once: which account has the name of a condition.
var sequential = map[string]bool{"/moderate/posts?author=ada": true, "/moderate/log?actor=ada": true}
