//go:build web

package handlers_test

import (
	"bytes"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"likewise/handlers"
	"likewise/web"
)

// forum is the front end on an API of its own. What it asks the API, and what the API answers, is held to the contract.
type forum struct {
	*api

	base  string       // of the pages
	away  atomic.Bool  // the API does not answer
	delay atomic.Int64 // nanoseconds that the API takes longer
	lost  atomic.Bool  // the API carries a change out, and its answer is lost
	pages *web.Server
	log   *logBuffer

	mu    sync.Mutex
	asked []string // requests to the API, but those of streams
}

func newForum(t *testing.T, changes ...func(*handlers.Config)) *forum {
	t.Helper()
	s := &forum{log: &logBuffer{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	s.base = "http://localhost:" + port
	s.api = newAPI(t, modes[1], append([]func(*handlers.Config){func(c *handlers.Config) {
		c.PublicURL = s.base
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	}}, changes...)...)
	door := httptest.NewServer(s.judged(t))
	t.Cleanup(door.Close)
	apiURL, err := url.Parse(door.URL)
	require.NoError(t, err)
	public, err := url.Parse(s.base)
	require.NoError(t, err)
	s.pages, err = web.New(web.Config{
		API: apiURL, PublicURL: public, Log: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	require.NoError(t, err)
	server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: s.pages}}
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		if strings.Contains(s.log.String(), "template failed") || t.Failed() {
			t.Errorf("log of the pages:\n%s", s.log.tail())
		}
	})
	return s
}

// judged passes requests to the API, and checks each exchange against the contract.
func (s *forum) judged(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream := strings.HasPrefix(r.URL.Path, "/v1/stream")
		sent, err := io.ReadAll(r.Body)
		if err != nil || s.away.Load() {
			panic(http.ErrAbortHandler)
		}
		if d := s.delay.Load(); d > 0 {
			<-time.After(time.Duration(d))
		}
		if !stream {
			s.mu.Lock()
			s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
			s.mu.Unlock()
		}
		req, err := http.NewRequestWithContext(r.Context(), r.Method, s.url+r.URL.RequestURI(),
			bytes.NewReader(sent))
		if err != nil {
			t.Errorf("make a request: %v", err)
			return
		}
		if len(sent) == 0 {
			req.Body = http.NoBody
		}
		req.Header = r.Header.Clone()
		req.Header.Del("Connection")
		resp, err := s.client.Transport.RoundTrip(req)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		if s.lost.Load() && (r.Method == http.MethodPost || r.Method == http.MethodPut) {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		if stream {
			flush := http.NewResponseController(w)
			buffer := make([]byte, 32<<10)
			for {
				n, err := resp.Body.Read(buffer)
				_, _ = w.Write(buffer[:n])
				_ = flush.Flush()
				if err != nil {
					return
				}
			}
		}
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			return
		}
		_, _ = w.Write(raw)
		if resp.Header.Get("Content-Encoding") != "" {
			return // of an image or a feed that the proxy passes on
		}
		contract, err := spec()
		if err == nil {
			err = contract.check(req, sent, reply{resp.StatusCode, resp.Header, raw})
		}
		if err != nil {
			t.Errorf("%s %s, answered with %d %.300s, breaks the contract: %v", r.Method, r.URL, resp.StatusCode, raw,
				err)
		}
	})
}

// requests returns what the pages have asked the API since the last call.
func (s *forum) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// guest is a browser without scripts.
type guest struct {
	*forum

	t      *testing.T
	client *http.Client
	at     string // the page that is shown
}

func (s *forum) guest(t *testing.T) *guest {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &guest{s, t, &http.Client{Jar: jar, Timeout: 30 * time.Second}, ""}
}

// as returns a visitor who has signed in.
func (s *forum) as(t *testing.T, a account) *guest {
	t.Helper()
	v := s.guest(t)
	at, err := url.Parse(s.base)
	require.NoError(t, err)
	v.client.Jar.SetCookies(at, []*http.Cookie{{Name: "session", Value: a.Token, Path: "/"}})
	return v
}

// document is a page that a visitor sees.
type document struct {
	v      *guest
	status int
	url    *url.URL
	header http.Header
	body   string
	root   *html.Node
}

// get opens a path.
func (v *guest) get(path string) *document {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.base+path, nil)
	require.NoError(v.t, err)
	return v.open(req)
}

// see is get for a page that must exist.
func (v *guest) see(path string) *document {
	v.t.Helper()
	d := v.get(path)
	require.Equal(v.t, http.StatusOK, d.status, "%s: %s", path, d.text())
	return d
}

func (v *guest) open(req *http.Request) *document {
	v.t.Helper()
	resp, err := v.client.Do(req)
	require.NoError(v.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(v.t, err)
	d := &document{v: v, status: resp.StatusCode, url: resp.Request.URL, header: resp.Header, body: string(raw)}
	d.root, err = html.Parse(bytes.NewReader(raw))
	require.NoError(v.t, err)
	require.NoError(v.t, v.pages.Wait(v.t.Context())) // a page is marked as read after it
	v.at = d.url.String()
	return d
}

// post sends a form as a browser would.
func (v *guest) post(path string, values url.Values) *document {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.base+path,
		strings.NewReader(values.Encode()))
	require.NoError(v.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", v.base)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if v.at != "" {
		req.Header.Set("Referer", v.at)
	}
	return v.open(req)
}

func attribute(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// elements returns those with a name.
func (d *document) elements(name string) []*html.Node {
	var list []*html.Node
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			list = append(list, n)
		}
	}
	return list
}

// text returns the text of the page.
func (d *document) text() string {
	var out strings.Builder
	for n := range d.root.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "script" && n.Parent.Data != "style" {
			out.WriteString(n.Data)
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// form returns what the form with an action would send, and fails if there is none. An empty action is the page's own.
func (d *document) form(action string) url.Values {
	d.v.t.Helper()
	for _, f := range d.elements("form") {
		if method, _ := attribute(f, "method"); method != "post" {
			continue
		}
		if to, _ := attribute(f, "action"); to == action {
			return fieldsOf(f)
		}
	}
	require.Fail(d.v.t, "no such form", "%s at %s: %s", action, d.url, d.text())
	return nil
}

func fieldsOf(form *html.Node) url.Values {
	values := url.Values{}
	for n := range form.Descendants() {
		name, ok := attribute(n, "name")
		if !ok || n.Type != html.ElementNode {
			continue
		}
		kind, _ := attribute(n, "type")
		value, _ := attribute(n, "value")
		_, checked := attribute(n, "checked")
		switch {
		case n.Data == "textarea":
			if n.FirstChild != nil {
				values.Set(name, strings.TrimPrefix(n.FirstChild.Data, "\n"))
			} else {
				values.Set(name, "")
			}
		case n.Data == "button", n.Data == "meta", (kind == "radio" || kind == "checkbox") && !checked:
		default:
			values.Add(name, value)
		}
	}
	return values
}

// submit fills the form with an action and sends it. The further arguments are pairs of name and value.
func (d *document) submit(action string, pairs ...string) *document {
	d.v.t.Helper()
	values := d.form(action)
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	if action == "" {
		action = d.url.Path
	}
	return d.v.post(action, values)
}

// done is submit for a form that must be carried out.
func (d *document) done(action string, pairs ...string) *document {
	d.v.t.Helper()
	next := d.submit(action, pairs...)
	require.Equal(d.v.t, http.StatusOK, next.status, "%s: %s", action, next.text())
	return next
}

func (d *document) has(text string) *document {
	d.v.t.Helper()
	assert.Contains(d.v.t, d.text(), text)
	return d
}

func (d *document) hasNot(text string) *document {
	d.v.t.Helper()
	assert.NotContains(d.v.t, d.text(), text)
	return d
}

// wellFormed checks what holds for every page.
func (d *document) wellFormed() {
	d.v.t.Helper()
	ids := map[string]bool{}
	for n := range d.root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if id, ok := attribute(n, "id"); ok {
			assert.False(d.v.t, ids[id], "%s: the id %q comes twice", d.url, id)
			ids[id] = true
		}
		for _, a := range n.Attr {
			assert.False(d.v.t, a.Key == "style" || strings.HasPrefix(a.Key, "on"), "%s: inline %s", d.url, a.Key)
		}
		if n.Data == "script" {
			src, _ := attribute(n, "src")
			assert.True(d.v.t, strings.HasPrefix(src, "/assets/"), "%s: a script from %q", d.url, src)
		}
	}
	assert.Len(d.v.t, d.elements("h1"), 1, d.url.String())
	assert.NotContains(d.v.t, d.body, "ZgotmplZ", d.url.String())
	assert.NotContains(d.v.t, d.body, "%!", d.url.String())
}
