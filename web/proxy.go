package web

import (
	"net/http"
	"net/http/httputil"
	"strings"
)

// newProxy returns the way from a browser to those operations of the API that scripts, images and downloads need. The
// token of the session takes the place of the cookie.
func (s *Server) newProxy(transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // a stream's events are passed on at once
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(s.config.API)
			r.Out.Header.Del("Cookie")
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("Origin") // it was checked here
			if token := s.token(r.In); token != "" {
				r.Out.Header.Set("Authorization", "Bearer "+token)
			}
			r.Out.Header.Set("X-Forwarded-For", s.client(r.In))
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del("Access-Control-Allow-Origin")
			if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
				resp.Header.Set("X-Accel-Buffering", "no") // a proxy between the API and this one removes it
			}
			if resp.StatusCode == http.StatusAccepted && resp.Request.URL.Path == "/v1/me/export" {
				// The archive is not ready. A person wants a page.
				resp.StatusCode = http.StatusSeeOther
				resp.Header.Set("Location", "/settings/data?building")
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			s.config.Log.WarnContext(r.Context(), "the api does not answer", "path", r.URL.Path, "error", err)
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"status":503,"code":"unavailable","detail":"The forum does not answer."}`))
		},
	}
}
