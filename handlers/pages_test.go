package handlers_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

// site serves testdata/pages.html beside an API, and records what a browser requests of the API.
type site struct {
	*httptest.Server

	page string

	mu       sync.Mutex
	requests []string
	ready    chan struct{} // the stream has begun
	done     chan string   // the text of the page
	shown    chan struct{} // closed when done has been received
}

func newSite(t *testing.T, a *api) *site {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("testdata", "pages.html"))
	require.NoError(t, err)
	target, err := url.Parse(a.url)
	require.NoError(t, err)
	s := &site{
		page: string(page), ready: make(chan struct{}, 1), done: make(chan string, 1), shown: make(chan struct{}),
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		proxy.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s.page) })
	mux.HandleFunc("POST /ready", func(http.ResponseWriter, *http.Request) { s.ready <- struct{}{} })
	mux.HandleFunc("POST /done", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		s.done <- string(text)
		close(s.shown)
	})
	mux.HandleFunc("GET /hold.png", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-s.shown:
		case <-r.Context().Done():
		}
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// show opens a page in Chromium, calls news once the page's stream has begun, and returns the text of the page and the
// requests that it made of the API, besides its stream.
func (s *site) show(
	t *testing.T, chromium, name string, as account, id int64, news func(),
) (text string, asked []string) {
	t.Helper()
	folder := os.Getenv("LIKEWISE_SCREENSHOTS") // to look at them
	if folder == "" {
		folder = t.TempDir()
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	browser := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--no-first-run", "--user-data-dir="+t.TempDir(), "--window-size=1000,1400",
		"--screenshot="+filepath.Join(folder, name+".png"),
		fmt.Sprintf("%s/#%s,%s,%d", s.URL, name, as.Token, id))
	browser.WaitDelay = 20 * time.Second // its helpers end after it, later on a busy machine
	ended := make(chan error, 1)
	output := &logBuffer{}
	browser.Stdout, browser.Stderr = output, output
	require.NoError(t, browser.Start())
	go func() { ended <- browser.Wait() }()
	for text == "" {
		select {
		case <-s.ready:
			news()
		case text = <-s.done:
		case err := <-ended:
			t.Fatalf("chromium has ended before the page was done: %v\n%s", err, output)
		}
	}
	if err := <-ended; err != nil {
		t.Fatalf("chromium: %v\n%s", err, output)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return text, slices.DeleteFunc(s.requests, func(r string) bool { return r == "GET /v1/stream" })
}

// A page needs few requests, and has with them all that it shows.
func TestPages_needFewRequests(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v; scripts/install-packages.sh chromium installs it", err)
	}
	a := newAPI(t, modes[0])
	a.brisk()
	ada, bob := a.person(t, "ada"), a.person(t, "bob")
	mod := a.promoted(t, a.person(t, "mia"), models.RoleModerator)
	write := func(as account, path string, body obj) (id int64) {
		t.Helper()
		return read[struct{ ID int64 }](t, a.must(t, 201, as, "POST", path, body)).ID
	}
	var posts []int64
	for i := range 22 {
		posts = append(posts, write(ada, "/v1/posts", obj{"title": fmt.Sprintf("Post %d", i),
			"content": fmt.Sprintf("The *text* of post %d, for @bob.", i), "tags": []string{"go", "redis"}}))
	}
	for _, id := range []int64{posts[3], posts[21]} {
		a.must(t, 200, mod, "POST", fmt.Sprintf("/v1/admin/posts/%d/pin", id), obj{"reason": "News."})
	}
	comments := fmt.Sprintf("/v1/posts/%d/comments", posts[0])
	for i := range 20 {
		id := write(bob, comments, obj{"content": fmt.Sprintf("Comment **%d**.", i)})
		if i%5 == 0 {
			write(ada, fmt.Sprintf("/v1/comments/%d/replies", id), obj{"content": "A reply to @bob."})
		}
		write(ada, "/v1/reports", obj{"target_type": "comment", "target_id": id, "reason": "spam",
			"detail": fmt.Sprintf("Detail of report %d.", i)})
	}
	late := func(by account) func() {
		return func() { write(by, comments, obj{"content": "Late news for @ada and @mia."}) }
	}
	for name, want := range map[string]struct {
		as       account
		requests int
		texts    []string
		news     func()
	}{
		"front": {ada, 3, []string{"ada · ", "go (22)", "redis (22)", "The text of post 20", "New reply by bob"},
			late(bob)},
		"thread": {bob, 2, []string{"The text of post 0", "Comment 19.", "A reply to @bob.",
			"New mention by ada: Hello @bob"},
			func() { write(ada, "/v1/posts", obj{"title": "Another", "content": "Hello @bob"}) }},
		"notifications": {bob, 2, []string{"mention in “Post 21”", "reply in “Post 0”", "A reply to @bob.",
			"New mention by ada"},
			func() { write(ada, "/v1/posts", obj{"title": "Another", "content": "Hello @bob"}) }},
		"queue": {mod, 2, []string{"20 cases are open.", "comment by bob in “Post 0”", "Comment **19**.",
			"ada: spam. Detail of report 19."}, nil},
	} {
		s := newSite(t, a)
		text, asked := s.show(t, chromium, name, want.as, posts[0], want.news)
		t.Logf("%s: %d requests: %q", name, len(asked), asked)
		if len(asked) > want.requests {
			t.Errorf("%s takes %d requests: %q", name, len(asked), asked)
		}
		for _, part := range append(want.texts, "") {
			if !strings.Contains(text, part) || strings.Contains(text, "ERROR") {
				t.Errorf("%s does not show %q:\n%s", name, part, text)
			}
		}
		if n := strings.Count(text, "Post 21\n"); name == "front" && n != 1 {
			t.Errorf("a pinned post appears %d times:\n%s", n, text)
		}
	}
}
