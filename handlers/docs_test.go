package handlers_test

import (
	"bytes"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"golang.org/x/net/html"

	"likewise/handlers"
	"likewise/internal/testkit"
)

func TestContract_isServed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.compress(true)
	want, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	if r := a.must(t, 200, account{}, "GET", "/openapi.yaml", nil); !bytes.Equal(r.Body, want) ||
		r.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d bytes of %q, want the %d of openapi.yaml", len(r.Body), r.Header.Get("Content-Type"), len(want))
	}
}

var (
	styleURL  = regexp.MustCompile(`url\(\s*['"]?([^'")]*)`)
	scriptURL = regexp.MustCompile(`https?://|//[a-z0-9-]+\.`)
)

// TestDocs_needNoOtherHost follows the references of the page. The page's policy restricts what Swagger UI's own script
// may load, and browsers enforce it.
func TestDocs_needNoOtherHost(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.compress(true)
	page := a.must(t, 200, account{}, "GET", "/docs", nil)
	for directive := range strings.SplitSeq(page.Header.Get("Content-Security-Policy"), ";") {
		for _, source := range strings.Fields(directive)[1:] {
			if source != "'self'" && source != "'none'" && source != "data:" &&
				(source != "'unsafe-inline'" || !strings.Contains(directive, "style-src")) {
				t.Errorf("the policy allows %s", directive)
			}
		}
	}
	if !strings.Contains(page.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("the policy %q does not begin with nothing", page.Header.Get("Content-Security-Policy"))
	}
	doc, err := html.Parse(bytes.NewReader(page.Body))
	require.NoError(t, err)
	base, err := url.Parse("/docs")
	require.NoError(t, err)
	var files int
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if (n.Data == "script" || n.Data == "style") && n.FirstChild != nil {
			t.Errorf("the page has a <%s> of its own", n.Data)
		}
		for _, attr := range n.Attr {
			if attr.Key != "src" && attr.Key != "href" {
				continue
			}
			ref, err := url.Parse(attr.Val)
			if err != nil || ref.IsAbs() || ref.Host != "" {
				t.Errorf("the page refers to %q", attr.Val)
				continue
			}
			files++
			a.checkDocsFile(t, base.ResolveReference(ref).Path)
		}
	}
	if files < 4 {
		t.Errorf("the page refers to %d files", files)
	}
	a.refused(t, 404, "not_found", account{}, "GET", "/docs/swagger-ui.js", nil)
	a.refused(t, 404, "not_found", account{}, "GET", "/docs/..%2fopenapi.yaml", nil)
}

func (a *api) checkDocsFile(t *testing.T, name string) {
	t.Helper()
	file := a.must(t, 200, account{}, "GET", name, nil)
	want, _, _ := mime.ParseMediaType(map[string]string{
		".css": "text/css", ".js": "text/javascript", ".png": "image/png", ".yaml": "application/yaml",
	}[path.Ext(name)])
	if kind, _, _ := mime.ParseMediaType(file.Header.Get("Content-Type")); kind != want {
		t.Errorf("%s has the type %q", name, kind)
	}
	for _, m := range styleURL.FindAllSubmatch(file.Body, -1) {
		if path.Ext(name) == ".css" && !bytes.HasPrefix(m[1], []byte("data:")) {
			t.Errorf("%s refers to %s", name, m[1])
		}
	}
	if path.Base(name) == "docs.js" && scriptURL.Match(file.Body) {
		t.Errorf("%s names a host", name)
	}
	// The client of the suite requests gzip and decompresses it; a client that does not receives the same bytes.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+name, nil)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := a.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var plain bytes.Buffer
	if _, err := plain.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Content-Encoding") != "" || !bytes.Equal(plain.Bytes(), file.Body) {
		t.Errorf("%s without gzip: %d bytes, coding %q; with it: %d bytes", name, plain.Len(),
			resp.Header.Get("Content-Encoding"), len(file.Body))
	}
}

// The root leads browsers to the front end, unless the request was sent to its host, or there is none.
func TestRoot_leadsBrowsersToTheFrontEnd(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	for _, c := range []struct{ public, host, want string }{
		{"https://forum.example", "", "https://forum.example/"},
		{"https://forum.example", "api.forum.example", "https://forum.example/"},
		{"https://forum.example/community", "api.forum.example", "https://forum.example/community/"},
		{"https://forum.example", "Forum.example", "docs"},
		{"https://forum.example:8443", "forum.example", "docs"}, // from a proxy that leaves out the port
		{"http://localhost:8083", "localhost:8080", "http://localhost:8083/"},
		{"http://localhost:8083", "localhost:8083", "docs"},
		{"", "", "docs"},
	} {
		a := serve(t, store, func(config *handlers.Config) { config.PublicURL = c.public })
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/", nil)
		require.NoError(t, err)
		req.Host = c.host
		req.Header.Set("Accept", "text/html,application/xml;q=0.9,*/*;q=0.8")
		resp, err := a.client.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, http.StatusFound, resp.StatusCode)
		assert.Equal(t, c.want, resp.Header.Get("Location"), "%+v", c)
	}
}

// Without a front end, the root leads browsers to the page, also below the path of a proxy. It names the page to other
// clients.
func TestDocs_areFoundFromTheRoot(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.PublicURL = "" })
	for _, method := range []string{"GET", "HEAD"} {
		r := a.must(t, 302, account{}, method, "/", nil, header{"Accept", "text/html,application/xml;q=0.9,*/*;q=0.8"})
		if where := r.Header.Get("Location"); where != "docs" {
			t.Errorf("%s / leads to %q", method, where)
		}
	}
	for _, accept := range []string{"*/*", "application/json", "application/json, text/html;q=0.5"} {
		var root struct{ Docs, Contract, Posts string }
		a.must(t, 200, account{}, "GET", "/", nil, header{"Accept", accept}).into(t, &root)
		for _, path := range []string{root.Docs, root.Contract, root.Posts} {
			a.must(t, 200, account{}, "GET", path, nil)
		}
	}
	a.refused(t, 405, "method_not_allowed", account{}, "POST", "/", nil)
}

// Compressing the page's script takes 14 ms of a core: it is done once, and every answer shares the bytes in memory.
func TestDocs_areCompressedOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.compress(true)
	for _, path := range []string{"/openapi.yaml", "/docs", "/docs/docs.js", "/docs/swagger-ui.css",
		"/docs/swagger-ui-bundle.js"} {
		for _, coding := range []string{"", "gzip", "br"} {
			ask := func() (body []byte, tag string) {
				r := &fasthttp.RequestCtx{}
				r.Request.SetRequestURI(path)
				r.Request.Header.Set("Accept-Encoding", coding)
				a.Answer(r)
				if got := string(r.Response.Header.ContentEncoding()); r.Response.StatusCode() != 200 || got != coding {
					t.Fatalf("%s in %q: %d in %q", path, coding, r.Response.StatusCode(), got)
				}
				return r.Response.Body(), string(r.Response.Header.Peek("ETag"))
			}
			body, tag := ask()
			again, same := ask()
			if len(body) == 0 || len(body) != len(again) || unsafe.SliceData(body) != unsafe.SliceData(again) ||
				tag != same || tag == "" {
				t.Errorf("%s in %q: %d bytes with %s, then %d others with %s", path, coding, len(body), tag, len(again),
					same)
			}
			a.must(t, 304, account{}, "GET", path, nil, header{"If-None-Match", tag}, header{"Accept-Encoding", coding})
		}
	}
}
