package handlers

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// cors sets the headers that tell browsers which other origins may call the API (Fetch standard). Credentials are never
// allowed: the API takes tokens, which a page must hold, and no cookies, which a browser would add by itself.
//
// Fiber's middleware cannot set the headers of answers that no handler writes, such as 413. A page of an allowed origin
// would see a failed connection instead.
type cors struct {
	origins []string // exact; "*" alone means every origin
	local   bool     // every origin on this machine, too
}

// What browsers may send and read, and for how long they may cache that: Chromium caps it at two hours.
const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Request-Id"
	corsExposed = "ETag, Idempotency-Replayed, Location, RateLimit, RateLimit-Limit, RateLimit-Policy, " +
		"RateLimit-Remaining, RateLimit-Reset, Retry-After, X-Request-Id"
	corsMaxAge = "7200" // seconds
)

// CheckOrigins returns an error unless the list is "*" alone, or origins as browsers send them, such as
// https://forum.example or http://localhost:3000.
func CheckOrigins(origins []string) error {
	for _, origin := range origins {
		if origin == "*" {
			if len(origins) > 1 {
				return errors.New(`origin "*" means every origin and cannot be combined with others`)
			}
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			u.Host == "" || strings.ContainsAny(u.Host, "*,") ||
			u.Scheme+"://"+strings.ToLower(u.Host) != origin || isDefaultPort(u) {
			return fmt.Errorf("origin %q is not of the form https://HOST or https://HOST:PORT, "+
				"in lower case, without a path and without the default port", origin)
		}
	}
	return nil
}

func isDefaultPort(u *url.URL) bool {
	return u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443" ||
		strings.HasSuffix(u.Host, ":")
}

// isLocalOrigin reports whether an origin is on the client's own machine, at any port.
func isLocalOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Scheme+"://"+u.Host != origin {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// on reports whether any other origin may call the API.
func (k cors) on() bool { return k.local || len(k.origins) > 0 }

// allow sets the headers that let the origin of the request read the answer, if it is allowed.
func (k cors) allow(c *fiber.Ctx) (allowed bool) {
	if !k.on() {
		return false
	}
	origin := c.Get(fiber.HeaderOrigin)
	if slices.Contains(k.origins, "*") {
		c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	} else {
		c.Vary(fiber.HeaderOrigin)
		if !slices.Contains(k.origins, origin) && (!k.local || !isLocalOrigin(origin)) {
			return false
		}
		c.Set(fiber.HeaderAccessControlAllowOrigin, origin)
	}
	c.Set(fiber.HeaderAccessControlExposeHeaders, corsExposed)
	return true
}

// allowOrigin sets the headers of every answer, refusals included.
func (k cors) allowOrigin(c *fiber.Ctx) error {
	k.allow(c)
	return c.Next()
}

// preflight answers preflight requests and passes all others on.
func (k cors) preflight(c *fiber.Ctx) error {
	isPreflight := c.Method() == fiber.MethodOptions && c.Get(fiber.HeaderOrigin) != "" &&
		c.Get(fiber.HeaderAccessControlRequestMethod) != ""
	if !isPreflight || !k.on() {
		return c.Next()
	}
	allowed := k.allow(c)
	c.Response().Header.Del(fiber.HeaderAccessControlExposeHeaders)
	if allowed {
		c.Set(fiber.HeaderAccessControlAllowMethods, corsMethods)
		c.Set(fiber.HeaderAccessControlAllowHeaders, corsHeaders)
		c.Set(fiber.HeaderAccessControlMaxAge, corsMaxAge)
	}
	return c.SendStatus(http.StatusNoContent)
}
