package web

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"
)

// view is what every page has.
type view struct {
	Me        *account
	Lang      string
	Dir       string // of the text: ltr or rtl
	Theme     string // "light" or "dark"; "" follows the system
	Site      string // the name of the site
	Title     string
	Named     string // in place of the title, what a user wrote: it is not translated
	About     string // for search engines and previews
	Canonical string // the page's URL; "" if it is not to be indexed
	Feed      string // the URL of its Atom feed; "" without one
	Here      string // the path with its query, to come back to
	Path      string
	RequestID string
	Live      string // what the page follows, for its script
	now       time.Time
}

func (p *view) common() *view { return p }

// pageData is the data of a page: a struct that embeds a view.
type pageData interface{ common() *view }

// render answers with a page.
func (v *visit) render(status int, name string, data pageData) {
	p := data.common()
	p.Me, p.Lang, p.Dir, p.Theme = v.me, v.lang.name, v.lang.dir, v.theme(v.r)
	p.Site, p.Path, p.RequestID, p.now = v.siteName(), v.r.URL.Path, v.id, time.Now()
	switch {
	case p.Here != "":
	case v.r.Method == http.MethodPost: // nobody can come back to the answer to a form
		p.Here = v.back("/")
	default:
		p.Here = v.r.URL.RequestURI()
	}
	var out bytes.Buffer
	if err := v.lang.pages[name].ExecuteTemplate(&out, "page", data); err != nil {
		v.config.Log.ErrorContext(v.r.Context(), "template failed", "request_id", v.id, "template", name, "error", err)
		http.Error(v.w, v.lang.text("Something went wrong. Request %s.", v.id), http.StatusInternalServerError)
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "private, no-cache")
	if v.token != "" {
		h.Set("Cache-Control", "private, no-store") // nothing of an account stays after signing out
	}
	h.Add("Vary", "Accept-Language, Cookie")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(out.Bytes()) // the browser has gone, if that fails
}

// fragment answers a script with a part of a page.
func (v *visit) fragment(status int, page, part string, data pageData) {
	p := data.common()
	p.Me, p.Lang, p.Here, p.now = v.me, v.lang.name, v.back("/"), time.Now()
	var out bytes.Buffer
	if err := v.lang.pages[page].ExecuteTemplate(&out, part, data); err != nil {
		v.config.Log.ErrorContext(v.r.Context(), "template failed", "request_id", v.id, "template", part, "error", err)
		http.Error(v.w, v.lang.text("Something went wrong. Request %s.", v.id), http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("Cache-Control", "no-store")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(out.Bytes())
}

// scripted reports whether a script of ours sent the request, which wants a part of a page.
func (v *visit) scripted() bool { return scripted(v.r) }

func scripted(r *http.Request) bool {
	ofAPI := strings.HasPrefix(r.URL.Path, "/v1/") && !navigates(r)
	return ofAPI || r.Header.Get("X-Requested-With") == "fetch"
}

// navigates reports whether a person follows a link or sends a form, and wants a page.
func navigates(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Mode") == "navigate" }

// theme returns the colours that the visitor has chosen; "" for those of the system.
func (s *Server) theme(r *http.Request) string {
	if t := s.cookie(r, "theme"); t == "light" || t == "dark" {
		return t
	}
	return ""
}

// siteName returns the name of the site; if it has none, its host, as people know it.
func (s *Server) siteName() string {
	if s.config.SiteName != "" {
		return s.config.SiteName
	}
	if host := s.config.PublicURL.Hostname(); host != "localhost" {
		return host
	}
	return "Likewise"
}

// url returns the public URL of a path.
func (s *Server) url(path string) string {
	return strings.TrimSuffix(s.config.PublicURL.String(), "/") + path
}

// trusted is the only function that turns text into HTML. The API has sanitized the text.
func trusted(contentHTML string) template.HTML {
	return template.HTML(contentHTML) //nolint:gosec // see above
}

// part is the data of a template that shows one thing of a page.
type part struct {
	Page any // the page's data
	It   any
	Note any // what else the part needs
}

// functions returns the functions of the templates in one language.
func (s *Server) functions(l *language) template.FuncMap {
	return template.FuncMap{
		"t":     l.text,
		"n":     l.number,
		"ago":   func(t time.Time) string { return l.ago(t, time.Now()) },
		"date":  l.date,
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"html":  trusted,
		"asset": s.assets.url,
		"part": func(page, it any, note ...any) part {
			if len(note) > 0 {
				return part{page, it, note[0]}
			}
			return part{Page: page, It: it}
		},
		"key":     newKey,
		"join":    strings.Join,
		"escape":  url.QueryEscape,
		"tagPath": func(tag string) string { return "/tags/" + url.PathEscape(tag) },
		"str":     deref[string],
		"num":     deref[int64],
		"initial": func(s string) string { return string([]rune(s + " ")[:1]) },
		"add":     func(a, b int64) int64 { return a + b },
		"list":    func(items ...string) []string { return items },
		"reason":  l.reason,
		"brief":   l.brief,
		"float":   deref[float64],
		"minute":  func(t time.Time) string { return t.UTC().Format("15:04") },
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"words":   l.words,

		"comments": l.comments,
	}
}

func deref[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}

// fixedText is a text of a template that has no arguments.
var fixedText = regexp.MustCompile(`\{\{t "([^"\\]*)"\}\}`)

// source returns a template in one language. The texts without arguments are put in place before it is parsed: they are
// half of all that a page would have to evaluate.
func source(l *language, file string) (string, error) {
	raw, err := fs.ReadFile(files, file)
	if err != nil {
		return "", fmt.Errorf("read a template: %w", err)
	}
	return fixedText.ReplaceAllStringFunc(string(raw), func(found string) string {
		return template.HTMLEscapeString(l.text(fixedText.FindStringSubmatch(found)[1]))
	}), nil
}

// parse parses the templates in one language: a set for each page, because all define the same blocks.
func (s *Server) parse(l *language) (map[string]*template.Template, error) {
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	base := template.New("").Funcs(s.functions(l))
	pages := map[string]*template.Template{}
	for _, shared := range []bool{true, false} { // pages are clones of what they share
		for _, file := range names {
			name := strings.TrimSuffix(path.Base(file), ".html")
			if strings.HasPrefix(name, "_") != shared {
				continue
			}
			text, err := source(l, file)
			if err != nil {
				return nil, err
			}
			set := base
			if !shared {
				if set, err = base.Clone(); err != nil {
					return nil, err
				}
				pages[name] = set
			}
			if _, err := set.New(name).Parse(text); err != nil {
				return nil, fmt.Errorf("parse a template: %w", err)
			}
		}
	}
	return pages, nil
}
