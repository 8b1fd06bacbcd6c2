package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"

	"golang.org/x/sync/errgroup"
)

// apiHeader returns the header of every request to the API on behalf of r.
func (s *Server) apiHeader(r *http.Request, id string) http.Header {
	h := http.Header{}
	h.Set("X-Forwarded-For", s.client(r))
	if id != "" {
		h.Set("X-Request-Id", id)
	}
	if agent := r.UserAgent(); agent != "" {
		h.Set("User-Agent", agent)
	}
	return h
}

// fetch returns a function that reads a path of the API into out.
func (v *visit) fetch(path string, out any) func() error {
	return func() error {
		a, err := v.api.do(v.r.Context(), call{
			method: http.MethodGet, path: path, token: v.token, header: v.apiHeader(v.r, v.id),
		})
		if err != nil {
			return err
		}
		if v.reads != nil {
			v.reads.add(path, a)
		}
		return decode(path, a, out)
	}
}

func decode(path string, a *answer, out any) error {
	if out == nil || len(a.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", path, err)
	}
	return nil
}

// load runs fetches at the same time, and reads the account that has signed in. It returns the error of the first fetch
// that failed, in their order.
func (v *visit) load(fetches ...func() error) error {
	errs := make([]error, len(fetches)+1)
	var g errgroup.Group
	for i, f := range fetches {
		g.Go(func() error { errs[i+1] = f(); return nil })
	}
	if v.token != "" && v.me == nil {
		g.Go(func() error {
			var me account
			if errs[0] = v.fetch("/v1/me", &me)(); errs[0] == nil {
				v.me = &me
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// optional returns a fetch that may fail: its page goes without.
func (v *visit) optional(f func() error) func() error {
	return func() error {
		err := f()
		if p := (*problem)(nil); errors.As(err, &p) && p.Status != http.StatusUnauthorized {
			v.without("a part", err)
			if v.reads != nil {
				v.reads.add("", &answer{}) // the page is not the one that others should see
			}
			return nil
		}
		return err
	}
}

// without logs that a page goes without a part that could not be read. What does not exist is not worth a line.
func (v *visit) without(what string, err error) {
	if problemOf(err).Status != http.StatusNotFound && !left(v.r.Context()) {
		v.config.Log.WarnContext(v.r.Context(), "page incomplete", "request_id", v.id, "path", v.r.URL.Path,
			"without", what, "error", err)
	}
}

// fetchDraft returns a fetch of a draft. Without one, d keeps its zero value.
func (v *visit) fetchDraft(key string, d *draft) func() error {
	return func() error {
		err := v.fetch(at("me", "drafts", key), d)()
		if err != nil && problemOf(err).Status == http.StatusNotFound {
			return nil
		}
		return err
	}
}

// send carries out a change. The further headers are pairs of name and value; those without a value are left out.
func (v *visit) send(method, path string, in, out any, header ...string) error {
	h := v.apiHeader(v.r, v.id)
	more := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] != "" {
			more.Set(header[i], header[i+1])
		}
	}
	maps.Copy(h, more)
	a, err := v.api.do(v.r.Context(), call{method: method, path: path, token: v.token, header: h, body: in})
	if err != nil {
		return err
	}
	return decode(path, a, out)
}

// sendBody posts a body that is not JSON.
func (v *visit) sendBody(path, contentType string, body io.Reader) error {
	h := v.apiHeader(v.r, v.id)
	h.Set("Content-Type", contentType)
	_, err := v.api.do(v.r.Context(), call{
		method: http.MethodPost, path: path, token: v.token, header: h, stream: body,
	})
	return err
}

// etag returns the ETag of a version, for If-Match.
func etag(version int64) string { return fmt.Sprintf(`"v%d"`, version) }
