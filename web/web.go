// Package web is the front end of a forum: pages for people, moderators and operators. It knows the JSON API alone, so
// it is also the proof that a front end can be built on it. It keeps no state but copies of anonymous pages.
package web

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a Server.
type Config struct {
	API       *url.URL // of the API, without a path
	PublicURL *url.URL // that browsers use, without a path
	SiteName  string   // "" means the host of PublicURL, or "Likewise" on localhost
	// TrustedProxies are the addresses whose X-Forwarded-For is believed. The address of the client goes on to the API.
	TrustedProxies []netip.Prefix
	Log            *slog.Logger
	Registry       prometheus.Registerer // gets the metrics; may be nil
	Dev            http.Handler          // answers what is below /dev/ on a developer's machine; nil: nothing is
}

// Server serves the pages.
type Server struct {
	config    Config
	api       client
	proxy     *httputil.ReverseProxy
	metrics   *metrics
	assets    *assets
	languages []*language
	pages     *pageCache
	handler   http.Handler

	background background
}

// maxForm is the most bytes of a form: a text of 60,000 bytes, each of them escaped, and that of a version beside it.
const maxForm = 1 << 20

// New returns a server. It connects to nothing.
func New(config Config) (*Server, error) {
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.Registry == nil {
		config.Registry = prometheus.NewRegistry()
	}
	s := &Server{config: config, background: newBackground()}
	var err error
	if s.metrics, err = newMetrics(config.Registry); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // the API is near
	transport.MaxIdleConnsPerHost = 64
	transport.ResponseHeaderTimeout = apiTimeout
	measured := timed{transport, s.metrics.api}
	s.api = client{config.API, &http.Client{Transport: measured, CheckRedirect: noRedirect}}
	uploads := transport.Clone()
	uploads.ResponseHeaderTimeout = uploadTimeout
	s.proxy = s.newProxy(byPatience{measured, timed{uploads, s.metrics.api}})
	if s.assets, err = newAssets(); err != nil {
		return nil, err
	}
	if s.languages, err = newLanguages(s); err != nil {
		return nil, err
	}
	if s.pages, err = newPageCache(); err != nil {
		return nil, err
	}
	if s.handler, err = s.newHandler(); err != nil {
		return nil, err
	}
	return s, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// newHandler wraps the routes with what holds for all requests.
func (s *Server) newHandler() (http.Handler, error) {
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1<<10), gzhttp.ContentTypes([]string{
		"text/html", "text/css", "text/javascript", "application/json", "application/problem+json", "image/svg+xml",
		"application/manifest+json", "application/xml", "application/atom+xml",
	}))
	if err != nil {
		return nil, fmt.Errorf("set up compression: %w", err)
	}
	guard := http.NewCrossOriginProtection()
	if err := guard.AddTrustedOrigin(s.config.PublicURL.Scheme + "://" + s.config.PublicURL.Host); err != nil {
		return nil, fmt.Errorf("trust the public URL: %w", err)
	}
	guard.SetDenyHandler(s.page(func(*visit) error { return refusedElsewhere() }))
	routes := s.metrics.count(guard.Handler(s.requireOrigin(s.routes())))
	secure := s.config.PublicURL.Scheme == "https"
	return compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		if secure { // without TLS, browsers ignore both, and complain
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		routes.ServeHTTP(w, r)
	})), nil
}

// contentPolicy allows what the pages consist of: our own files. Nothing is inline.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; manifest-src 'self'; base-uri 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types likewise"

// requireOrigin refuses a change that does not say where it comes from. Every browser of today does.
func (s *Server) requireOrigin(next http.Handler) http.Handler {
	refuse := s.page(func(*visit) error { return refusedElsewhere() })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		safe := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		if !safe && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" {
			refuse(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refusedElsewhere() error {
	return &problem{
		Status: http.StatusForbidden, Code: "cross_origin", Detail: "This form was not sent from this site.",
	}
}

// visit is a request while it is answered.
type visit struct {
	*Server

	w       http.ResponseWriter
	r       *http.Request
	id      string    // of the request, here and in the API's log
	token   string    // of the session; "" for the anonymous
	lang    *language // that the pages are in
	me      *account  // whose session it is; nil until it is read, and for the anonymous
	reads   *reads    // the answers that a copy of the page depends on; nil if no copy is kept
	started time.Time
}

func (s *Server) visit(w http.ResponseWriter, r *http.Request) *visit {
	id := rand.Text()
	w.Header().Set("X-Request-Id", id)
	return &visit{
		Server: s, w: w, r: r, id: id, token: s.token(r), lang: s.languageOf(r), started: time.Now(),
	}
}

// page returns a handler that shows the error of h as a page.
func (s *Server) page(h func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		v := s.visit(w, r)
		err := parse(r)
		if err == nil {
			err = h(v)
		}
		if err != nil {
			v.fail(err)
		}
	}
}

// parse reads the form of a request, so that no handler goes on with half of one.
func parse(r *http.Request) error {
	if r.Method != http.MethodPost {
		return nil
	}
	err := r.ParseForm()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok || err == nil {
		return err
	}
	return errBadForm
}

// private is page for what only those who have signed in can use.
func (s *Server) private(h func(*visit) error) http.HandlerFunc {
	return s.page(func(v *visit) error {
		if v.token == "" {
			return errSignIn
		}
		if answered, err := v.prove(); answered || err != nil {
			return err
		}
		return h(v)
	})
}

// errSignIn leads to the page for signing in, and back.
var errSignIn = errors.New("not signed in")

// fail shows an error as a page, with the form that was sent. A script gets it as JSON.
func (v *visit) fail(err error) {
	if left(v.r.Context()) {
		v.w.WriteHeader(statusLeft)
		return
	}
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		v.config.Log.ErrorContext(v.r.Context(), "page failed", "request_id", v.id, "path", v.r.URL.Path, "error", err)
	}
	switch {
	case errors.Is(err, errSignIn), p.Status == http.StatusUnauthorized:
		v.signInAgain()
		return
	case v.scripted():
		_ = v.plainProblem(p)
		return
	case p.Code == codeUnproven:
		v.askPassword(nil)
		return
	}
	if p.RetryAfter > 0 {
		v.w.Header().Set("Retry-After", fmt.Sprint(p.RetryAfter))
	}
	if p.Status < http.StatusInternalServerError {
		_ = v.load() // without it, the page has no menu of the account
	}
	if v.r.Method == http.MethodPost && typed(v.r.PostForm) {
		v.renderKept(p.Status, keptForm{v.r.URL.RequestURI(), v.r.PostForm}, p)
		return
	}
	page := &errorPage{Problem: p}
	page.Title = "That did not work"
	if v.r.Method != http.MethodGet { // a form is sent again from its page
		page.Here = v.back("/")
	}
	v.render(p.Status, "error", page)
}

// statusLeft is in the metrics for requests whose browser did not wait for the answer. nginx has the same.
const statusLeft = 499

// errStopping is why the context of a request ends when the server stops.
var errStopping = errors.New("the server stops")

// left reports whether the context of a request has ended because its browser has left.
func left(ctx context.Context) bool { return errors.Is(context.Cause(ctx), context.Canceled) }

type errorPage struct {
	view

	Problem *problem
}

// redirect leads to a path of this site after a change, so that reloading the page does not repeat it.
func (v *visit) redirect(path string) error {
	v.w.Header().Set("Location", path)
	v.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// back returns the path that the form names as the one to return to, or else that of the page that it was on, or else
// the other one. It never leads to another site.
func (v *visit) back(other string) string {
	if from, err := url.Parse(v.r.Referer()); err == nil && from.Host == v.config.PublicURL.Host {
		other = localPath(from.RequestURI(), other)
	}
	return localPath(v.r.FormValue("back"), other)
}

func localPath(path, other string) string {
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(path, "/") ||
		strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return other
	}
	return path
}

// client returns the address of the browser: the last one in X-Forwarded-For that is not a trusted proxy's.
func (s *Server) client(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && s.trusts(host); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		host = hop.Unmap().String()
	}
	return host
}

func (s *Server) trusts(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	for _, p := range s.config.TrustedProxies {
		if p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}
