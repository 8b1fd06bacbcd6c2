package web

import (
	"net/http"
	"time"
)

// sessionAge is how long a browser keeps a session. The API ends it earlier if it is not used.
const sessionAge = 365 * 24 * time.Hour

// cookieName returns the name of a cookie. Under https it has a prefix with which browsers refuse a cookie that another
// host or a page without TLS has set.
func (s *Server) cookieName(name string) string {
	if s.config.PublicURL.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

func (s *Server) setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	c := &http.Cookie{ //nolint:gosec // Secure under https; without TLS, browsers would refuse it
		Name: s.cookieName(name), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: s.config.PublicURL.Scheme == "https", MaxAge: int(age.Seconds()),
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

func (s *Server) cookie(r *http.Request, name string) string {
	c, err := r.Cookie(s.cookieName(name))
	if err != nil {
		return ""
	}
	return c.Value
}

// token returns the API token of the session; "" without one.
func (s *Server) token(r *http.Request) string { return s.cookie(r, "session") }

func (v *visit) beginSession(token string) {
	v.setCookie(v.w, "session", token, sessionAge)
	v.token = token
}

func (v *visit) endSession() {
	v.setCookie(v.w, "session", "", 0)
	v.token, v.me = "", nil
}
