package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
)

// Anonymous visitors get copies of pages. A copy is checked with the API at most once in freshFor, by one visitor for
// all, and written again if an answer that it depends on has changed, or when its ages are out of date.
const (
	freshFor     = time.Second
	renderedFor  = time.Minute
	maxPageBytes = 64 << 20 // of all copies together
)

type pageCache struct {
	copies  *otter.Cache[string, *pageCopy]
	flights singleflight.Group
}

// pageCopy is a rendered page.
type pageCopy struct {
	plain, zipped []byte
	reads         []read
	rendered      time.Time
	checked       atomic.Int64 // Unix nanoseconds
}

// read is an answer of the API that a page was made from.
type read struct{ path, etag string }

// reads collects them while a page is made. Requests run in parallel.
type reads struct {
	mu   sync.Mutex
	list []read
	no   bool // an answer has no ETag, so the page cannot be checked
}

func (r *reads) add(path string, a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	etag := a.header.Get("ETag")
	r.no = r.no || etag == ""
	r.list = append(r.list, read{path, etag})
}

func newPageCache() (*pageCache, error) {
	copies, err := otter.New(&otter.Options[string, *pageCopy]{
		MaximumWeight: maxPageBytes,
		Weigher: func(key string, c *pageCopy) uint32 {
			return uint32(len(key) + len(c.plain) + len(c.zipped))
		},
	})
	if err != nil {
		return nil, err
	}
	return &pageCache{copies: copies}, nil
}

// shared returns a handler like page, whose pages the anonymous share.
func (s *Server) shared(h func(*visit) error) http.HandlerFunc {
	// Who was signed in may read on without.
	own := s.page(func(v *visit) error {
		err := h(v)
		if err == nil || v.token == "" || !expired(err) {
			return err
		}
		v.endSession()
		return v.redirect(v.r.URL.RequestURI())
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if s.token(r) != "" || r.Method != http.MethodGet || scripted(r) {
			own(w, r)
			return
		}
		key := s.languageOf(r).name + s.theme(r) + " " + r.URL.RequestURI()
		c, ok := s.pages.copies.GetIfPresent(key)
		if !ok || time.Since(time.Unix(0, c.checked.Load())) > freshFor {
			made, err, _ := s.pages.flights.Do(key, func() (any, error) { return s.renew(key, c, r, h) })
			if err != nil && problemOf(err).Status == http.StatusTooManyRequests {
				own(w, r) // the limit is that of the visitor who asked for all
				return
			}
			if err != nil {
				s.visit(w, r).fail(err)
				return
			}
			if c = made.(*pageCopy); c == nil {
				own(w, r) // nobody may share it
				return
			}
		}
		c.serve(w, r)
	}
}

func (c *pageCopy) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "private, no-cache")
	h.Add("Vary", "Accept-Encoding")
	h.Add("Vary", "Accept-Language, Cookie")
	body := c.plain
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = c.zipped
	}
	_, _ = w.Write(body) // the browser has gone, if that fails
}

// renew returns the copy if it is still right, or else a new one; nil if the page cannot be shared. An error is that of
// the page.
func (s *Server) renew(key string, old *pageCopy, r *http.Request, h func(*visit) error) (*pageCopy, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), apiTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	if old != nil && time.Since(old.rendered) < renderedFor && s.unchanged(r, old.reads) {
		old.checked.Store(time.Now().UnixNano())
		return old, nil
	}
	w := &recorder{header: http.Header{}}
	v := s.visit(w, r)
	v.reads = &reads{}
	began := time.Now()
	if err := h(v); err != nil { // the copy is checked again by the next visitor
		return nil, err
	}
	if w.status != http.StatusOK || v.reads.no || len(v.reads.list) == 0 {
		s.pages.copies.Invalidate(key)
		return nil, nil
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(w.body.Bytes()) // a buffer never fails
	_ = z.Close()
	c := &pageCopy{plain: w.body.Bytes(), zipped: zipped.Bytes(), reads: v.reads.list, rendered: began}
	c.checked.Store(began.UnixNano())
	s.pages.copies.Set(key, c)
	return c, nil
}

// unchanged asks the API whether the answers are the ones that it would give now.
func (s *Server) unchanged(r *http.Request, reads []read) bool {
	var g errgroup.Group
	for _, one := range reads {
		g.Go(func() error {
			header := s.apiHeader(r, "")
			header.Set("If-None-Match", one.etag)
			a, err := s.api.do(r.Context(), call{method: http.MethodGet, path: one.path, header: header})
			if err == nil && a.status != http.StatusNotModified {
				return errChanged
			}
			return err
		})
	}
	return g.Wait() == nil
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

var errChanged = errors.New("the answer has changed")
