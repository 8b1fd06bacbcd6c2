package handlers_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"likewise/handlers"
)

// plain requests an uncompressed answer.
var plain = header{"Accept-Encoding", "identity"}

// notModified checks that a GET is answered with 304, the tag and no body.
func (a *api) notModified(t *testing.T, as account, path, known, tag string, headers ...header) {
	t.Helper()
	r := a.must(t, 304, as, "GET", path, nil, append(headers, header{"If-None-Match", known})...)
	if len(r.Body) > 0 || r.Header.Get("ETag") != tag || r.Header.Get("Cache-Control") != cacheControl(path) {
		t.Errorf("%s: 304 with %v and %q, want the tag %s", path, r.Header, r.Body, tag)
	}
}

// cacheControl returns the expected Cache-Control of a path: answers under /v1 depend on the viewer.
func cacheControl(path string) string {
	if strings.HasPrefix(path, "/v1/") {
		return "private, no-cache"
	}
	return "public, no-cache"
}

func TestETag_savesRereading(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.compress(true)
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	c := a.newComment(t, ada, p.ID)
	paths := []string{
		pathOf(p), fmt.Sprintf("/v1/comments/%d", c.ID), "/v1/posts", pathOf(p) + "/comments", pathOf(p) + "/likes",
		fmt.Sprintf("/v1/users/%d", ada.ID), "/v1/me", "/openapi.yaml",
	}
	tags := map[string]string{}
	for _, path := range paths {
		r := a.must(t, 200, ada, "GET", path, nil, plain)
		tag := r.Header.Get("ETag")
		tags[path] = tag
		if vary := strings.Join(r.Header.Values("Vary"), ", "); r.Header.Get("Cache-Control") != cacheControl(path) ||
			strings.Contains(vary, "Authorization") != strings.HasPrefix(path, "/v1/") ||
			!strings.Contains(vary, "Accept-Encoding") {
			t.Errorf("%s: Cache-Control is %q, Vary %q", path, r.Header.Get("Cache-Control"), vary)
		}
		for _, known := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			a.notModified(t, ada, path, known, tag, plain)
		}
		for _, unknown := range []string{`"other"`, "rubbish", `"v0"`, `"v0-"`, strings.TrimSuffix(tag, `"`)} {
			a.must(t, 200, ada, "GET", path, nil, plain, header{"If-None-Match", unknown})
		}
		head := a.must(t, 200, ada, "HEAD", path, nil, plain)
		if head.Header.Get("ETag") != tag || len(head.Body) > 0 ||
			head.Header.Get("Content-Length") != fmt.Sprint(len(r.Body)) {
			t.Errorf("HEAD %s: %v %q", path, head.Header, head.Body)
		}
		if r := a.must(t, 304, ada, "HEAD", path, nil, plain, header{"If-None-Match", tag}); len(r.Body) > 0 {
			t.Errorf("HEAD %s: 304 with %q", path, r.Body)
		}
	}
	// A like changes the tag without a new version, also for viewers who did not like the post.
	a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
	r := a.must(t, 200, ada, "GET", pathOf(p), nil, plain, header{"If-None-Match", tags[pathOf(p)]})
	mine := r.Header.Get("ETag")
	others := a.must(t, 200, bob, "GET", pathOf(p), nil, plain, header{"If-None-Match", mine}).Header.Get("ETag")
	if mine == tags[pathOf(p)] || others == mine || others == tags[pathOf(p)] {
		t.Errorf("tags before and after the like, of its user and of another: %s %s %s", tags[pathOf(p)], mine,
			others)
	}
	for _, path := range paths[2:5:5] {
		changed := path != pathOf(p)+"/comments"
		want := map[bool]int{true: 200, false: 304}[changed]
		a.must(t, want, ada, "GET", path, nil, plain, header{"If-None-Match", tags[path]})
	}
	for _, r := range []reply{a.must(t, 404, ada, "GET", "/v1/posts/4242", nil),
		a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)} {
		if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("ETag") != "" {
			t.Errorf("%s with %v", r, r.Header)
		}
	}
}

// An edit is checked against the version that the client saw, in any coding.
func TestIfMatch_comparesTheVersionAlone(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.compress(true)
	ada, bob := a.account(t), a.account(t)
	long := obj{"title": "A title", "content": strings.Repeat("Some long content. ", 200)}
	created := a.must(t, 201, ada, "POST", "/v1/posts", long)
	p := read[post](t, created)
	path := pathOf(p)
	version := 0
	edit := func(tag string) reply {
		t.Helper()
		version++
		return a.must(t, 200, ada, "PATCH", path, obj{"title": fmt.Sprint("Title ", version)}, header{"If-Match", tag})
	}
	tag := func(coding string) string {
		t.Helper()
		return a.raw(t, "GET", path, coding).Header.Get("ETag")
	}
	edited := edit(created.Header.Get("ETag"))
	edit(edited.Header.Get("ETag"))
	edit(tag("identity"))
	for _, coding := range []string{"gzip", "br"} {
		compressed := tag(coding)
		if !strings.HasPrefix(compressed, fmt.Sprintf(`"v%d-`, version)) ||
			!strings.HasSuffix(compressed, "-"+coding+`"`) {
			t.Errorf("the tag of the %s form is %s", coding, compressed)
		}
		edit(compressed)
	}
	before := tag("identity")
	a.must(t, 200, bob, "PUT", path+"/like", nil)
	edit(before) // a like is not an edit
	edit(fmt.Sprintf(`"v%d"`, version))
	edit("*")
	problem, r := a.refused(t, 412, "precondition_failed", ada, "PATCH", path, obj{"title": "T"},
		header{"If-Match", before})
	if r.Header.Get("ETag") != fmt.Sprintf(`"v%d"`, version) || *problem.Version != int64(version) {
		t.Errorf("412 with the tag %s and version %d, want %d", r.Header.Get("ETag"), *problem.Version, version)
	}
	edit(r.Header.Get("ETag"))
	a.refused(t, 412, "precondition_failed", ada, "PATCH", path, obj{"title": "T"},
		header{"If-Match", "W/" + tag("identity")})
}

// raw sends a request and does not decompress the answer.
func (a *api) raw(t *testing.T, method, path, accept string, headers ...header) reply {
	t.Helper()
	req, err := http.NewRequest(method, a.url+path, nil)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", accept)
	for _, h := range headers {
		req.Header.Set(h.name, h.value)
	}
	resp, err := a.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return reply{resp.StatusCode, resp.Header, raw}
}

func TestCompression_ofReadsThatShrink(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.compress(true)
	ada := a.account(t)
	for range 10 {
		a.newPost(t, ada)
	}
	whole := a.raw(t, "GET", "/v1/posts", "identity")
	for accept, coding := range map[string]string{"gzip": "gzip", "br": "br", "gzip, deflate, br": "br", "gzip;q=0": "",
		"br;q=1.0, gzip;q=0.8": "br", "gzip,br": "br", "br;q=0,gzip": "gzip", "deflate": "", "identity": ""} {
		r := a.raw(t, "GET", "/v1/posts", accept)
		if got := r.Header.Get("Content-Encoding"); got != coding {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q, want %q", accept, got, coding)
			continue
		}
		var body []byte
		switch coding {
		case "gzip":
			z, err := gzip.NewReader(bytes.NewReader(r.Body))
			require.NoError(t, err)
			if body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		case "br":
			var b bytes.Buffer
			if _, err := fasthttp.WriteUnbrotli(&b, r.Body); err != nil {
				t.Fatal(err)
			}
			body = b.Bytes()
		default:
			body = r.Body
		}
		if !bytes.Equal(body, whole.Body) || coding != "" && len(r.Body) > len(whole.Body)/3 {
			t.Errorf("%q: %d bytes of %d, which are %d, and the same: %t", accept, len(r.Body), len(whole.Body),
				len(body), bytes.Equal(body, whole.Body))
		}
		tag, base := r.Header.Get("ETag"), strings.TrimSuffix(whole.Header.Get("ETag"), `"`)
		if want := base + map[bool]string{true: "-" + coding, false: ""}[coding != ""] + `"`; tag != want {
			t.Errorf("%q: the tag is %s, want %s", accept, tag, want)
		}
		if r.Header.Get("Vary") == "" {
			t.Errorf("%q: no Vary", accept)
		}
		// The client's copy is valid in every coding.
		if again := a.raw(t, "GET", "/v1/posts", "identity", header{"If-None-Match", tag}); again.Status != 304 ||
			again.Header.Get("ETag") != tag {
			t.Errorf("%q: asked again for %s: %d with %s", accept, tag, again.Status, again.Header.Get("ETag"))
		}
		head := a.raw(t, "HEAD", "/v1/posts", accept)
		if head.Header.Get("ETag") != tag || head.Header.Get("Content-Encoding") != coding ||
			head.Header.Get("Content-Length") != fmt.Sprint(len(r.Body)) || len(head.Body) > 0 {
			t.Errorf("HEAD with %q: %v, %d bytes", accept, head.Header, len(head.Body))
		}
	}
	if r := a.raw(t, "GET", "/v1/posts/1", "gzip"); r.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d bytes are compressed", len(r.Body))
	}
	long := obj{"title": "T", "content": strings.Repeat("Some long content. ", 200)}
	// The answer of a POST is not compressed: some show secrets beside the client's input.
	a.must(t, 201, ada, "POST", "/v1/posts", long, header{"Accept-Encoding", "gzip"}) // not decompressed
}

// origin sets the Origin header of a browser.
func origin(value string) header { return header{"Origin", value} }

func TestCORS_allowsConfiguredOrigins(t *testing.T) {
	t.Parallel()
	const forum, other = "https://forum.example", "https://forum.example.evil.example"
	a := newAPI(t, modes[0], func(c *handlers.Config) {
		c.Origins, c.MaxInFlight = []string{"http://localhost:3000", forum}, 1
	})
	a.compress(true)
	ada := a.account(t)
	asks := []header{origin(forum), {"Access-Control-Request-Method", "PATCH"},
		{"Access-Control-Request-Headers", "authorization,if-match"}}
	r := a.preflight(t, "/v1/posts/1", asks...)
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":  forum,
		"Access-Control-Allow-Methods": "PATCH", "Access-Control-Allow-Headers": "If-Match",
		"Access-Control-Max-Age": "7200",
	} {
		if !strings.Contains(r.Header.Get(name), want) {
			t.Errorf("%s is %q, want %s in it", name, r.Header.Get(name), want)
		}
	}
	for _, name := range []string{"Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID",
		"X-Request-Id"} {
		if !strings.Contains(r.Header.Get("Access-Control-Allow-Headers"), name) {
			t.Errorf("%s may not be sent", name)
		}
	}
	if r := a.preflight(t, "/v1/posts",
		append(asks, origin(other))...); r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%s is allowed", other)
	}

	big := strings.Repeat("x", 400_000)
	answers := map[string]reply{
		"200": a.must(t, 200, ada, "GET", "/v1/posts", nil, origin(forum)),
		"201": a.must(t, 201, ada, "POST", "/v1/posts", text, origin(forum)),
		"304": a.must(t, 304, ada, "GET", "/v1/posts", nil, origin(forum), header{"If-None-Match", "*"}),
		"400": a.must(t, 400, ada, "POST", "/v1/posts", "{", origin(forum)),
		"401": a.must(t, 401, account{}, "POST", "/v1/posts", text, origin(forum)),
		"404": a.must(t, 404, account{}, "GET", "/v1/nothing", nil, origin(forum)),
		"405": a.must(t, 405, account{}, "PUT", "/v1/posts", nil, origin(forum)),
		"413": a.must(t, 413, ada, "POST", "/v1/posts", big, origin(forum)),
	}
	for name, r := range answers {
		if r.Header.Get("Access-Control-Allow-Origin") != forum ||
			!strings.Contains(r.Header.Get("Access-Control-Expose-Headers"), "Idempotency-Replayed") {
			t.Errorf("%s: %v", name, r.Header)
		}
	}
	for _, h := range [][]header{{origin(other)}, {origin("null")}, {origin("HTTPS://FORUM.EXAMPLE")},
		{origin("http://forum.example")}, nil} {
		r := a.must(t, 200, ada, "GET", "/v1/posts", nil, h...)
		if r.Header.Get("Access-Control-Allow-Origin") != "" ||
			!strings.Contains(strings.Join(r.Header.Values("Vary"), ","), "Origin") {
			t.Errorf("%v: %v", h, r.Header)
		}
	}
	a.must(t, 405, account{}, "OPTIONS", "/v1/posts", nil, origin(forum)) // not a preflight
}

// preflight sends a preflight request, which the contract does not describe.
func (a *api) preflight(t *testing.T, path string, headers ...header) reply {
	t.Helper()
	r := a.raw(t, "OPTIONS", path, "", headers...)
	if r.Status != 204 || len(r.Body) > 0 {
		t.Fatalf("OPTIONS %s: %s", path, r)
	}
	return r
}

func TestCORS_marksRefusals(t *testing.T) {
	t.Parallel()
	held := heldLikes{taken: make(chan struct{}), release: make(chan struct{})}
	a := newAPI(t, modes[0], func(c *handlers.Config) {
		held.Likes = c.Likes
		c.Likes, c.MaxInFlight, c.Origins = held, 1, []string{"*"}
	})
	a.compress(true)
	ada := a.account(t)
	p := a.newPost(t, ada)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if _, err := a.try(ada, "PUT", pathOf(p)+"/like", nil); err != nil {
			t.Error(err)
		}
	}()
	<-held.taken
	r := a.must(t, 503, account{}, "GET", "/v1/posts", nil, origin("https://any.example"))
	close(held.release)
	<-answered
	if r.Header.Get("Access-Control-Allow-Origin") != "*" ||
		!regexp.MustCompile(`\bRetry-After\b`).MatchString(r.Header.Get("Access-Control-Expose-Headers")) {
		t.Errorf("503 with %v", r.Header)
	}
}

func TestCORS_isOffByDefault(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.compress(true)
	r := a.must(t, 200, account{}, "GET", "/v1/posts", nil, origin("https://forum.example"))
	for name := range r.Header {
		if strings.HasPrefix(name, "Access-Control-") ||
			strings.Contains(strings.Join(r.Header.Values("Vary"), ","), "Origin") {
			t.Errorf("%s: %v", name, r.Header)
		}
	}
	a.must(t, 405, account{}, "OPTIONS", "/v1/posts", nil, origin("https://forum.example"),
		header{"Access-Control-Request-Method", "POST"})
}

func TestCheckOrigins(t *testing.T) {
	t.Parallel()
	for _, good := range [][]string{nil, {"*"}, {"https://forum.example"},
		{"http://localhost:3000", "https://127.0.0.1:8443", "http://[::1]:3000"}} {
		if err := handlers.CheckOrigins(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "null", "forum.example", "https://", "https://forum.example/", "https://Forum.example",
		"https://*.forum.example", "ftp://forum.example",
		"https://forum.example:443", "http://forum.example:80", "https://forum.example:", "https://user@forum.example",
		"https://forum.example?x", "https://a.example,https://b.example", " https://forum.example",
	} {
		if err := handlers.CheckOrigins([]string{bad}); err == nil {
			t.Errorf("%q is taken for an origin", bad)
		}
	}
	if handlers.CheckOrigins([]string{"*", "https://forum.example"}) == nil {
		t.Error("* is accepted beside other origins")
	}
}
