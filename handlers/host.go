package handlers

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

const messageForeignHost = "This is a development server. It answers for localhost and for addresses, and for the " +
	"host of --public-url."

// CheckHost reports whether a request for host, with or without a port, may be answered on a developer's machine: for
// an address, for localhost, and for the host of the URL site. Any page can let the name of its own host lead to
// 127.0.0.1 after it was loaded. It would then read and write here as the same origin.
func CheckHost(host, site string) bool {
	host, public := hostname(host), hostname(publicURL(site).host())
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host != "" && host == public
}

// hostname returns a host in lower case, without its port and the dot that may end it.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func (s *Server) checkHost(c *fiber.Ctx) error {
	if s.local && !CheckHost(string(c.Request().Host()), string(s.publicURL)) {
		return models.Errorf(models.CodeForbidden, messageForeignHost)
	}
	return c.Next()
}

// LocalAlone answers requests as next does, but refuses those for a host that DNS could have led here. See CheckHost.
func LocalAlone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !CheckHost(r.Host, "") {
			http.Error(w, messageForeignHost, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
