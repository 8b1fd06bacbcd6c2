package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// visitKey is the key of the visit in the context of a request that is passed on.
type visitKey struct{}

func visitOf(r *http.Request) *visit {
	return r.Context().Value(visitKey{}).(*visit) //nolint:forcetypeassert // see pass
}

// pass hands a request on to the API. Its answer may take as long as the browser stays.
func (s *Server) pass(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a recorder has none
	v := s.visit(w, r)
	s.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
}

// newProxy returns the way from a browser to those operations of the API that scripts, images and downloads need. The
// token of the session takes the place of the cookie.
func (s *Server) newProxy(transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // a stream's events are passed on at once
		ErrorLog:      slog.NewLogLogger(s.config.Log.Handler(), slog.LevelWarn),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(s.config.API)
			r.Out.Header.Del("Cookie")
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("Origin") // it was checked here
			if token := s.token(r.In); token != "" {
				r.Out.Header.Set("Authorization", "Bearer "+token)
			}
			r.Out.Header.Set("X-Forwarded-For", s.client(r.In))
			r.Out.Header.Set("X-Request-Id", visitOf(r.In).id)
		},
		ModifyResponse: answered,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			v := visitOf(r)
			if _, ok := errors.AsType[*problem](err); !ok {
				err = unreachable(err)
			}
			v.fail(err)
		},
	}
}

// uploadTimeout is for the answer to an image, which waits for its turn to be decoded. The API takes a minute at most.
const uploadTimeout = 75 * time.Second

// byPatience sends uploads to one transport, and all else to the other.
type byPatience struct{ quick, uploads http.RoundTripper }

// RoundTrip sends a request.
func (t byPatience) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.URL.Path == "/v1/images" {
		return t.uploads.RoundTrip(r)
	}
	return t.quick.RoundTrip(r)
}

// answered adapts an answer of the API. For a person who follows a link, an error is one of a page.
func answered(resp *http.Response) error {
	v := visitOf(resp.Request)
	v.w.Header().Del("X-Request-Id") // the API's answer has it
	resp.Header.Del("Access-Control-Allow-Origin")
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Header.Set("X-Accel-Buffering", "no") // a proxy between the API and this one removes it
	}
	if resp.StatusCode == http.StatusAccepted && resp.Request.URL.Path == "/v1/me/export" {
		// The archive is not ready. A person wants a page.
		resp.StatusCode = http.StatusSeeOther
		resp.Header.Set("Location", "/settings/data?building")
	}
	if resp.StatusCode < http.StatusBadRequest || !navigates(v.r) {
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAPIBytes))
	if err != nil {
		return fmt.Errorf("read an error of the API: %w", err)
	}
	return asProblem(resp, body)
}
