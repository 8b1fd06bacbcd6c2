package handlers

import (
	"net/netip"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/admission"
	"likewise/handlers/network"
	"likewise/models"
)

// clientAddress returns the address that the request came from. It trusts X-Forwarded-For of the configured proxies
// alone.
func (s *Server) clientAddress(c *fiber.Ctx) netip.Addr {
	remote := network.AddressOf(c.Context().RemoteAddr())
	forwarded := c.Request().Header.PeekAll(fiber.HeaderXForwardedFor)
	if len(forwarded) == 0 {
		return remote
	}
	if !s.proxies.Trust(remote) {
		s.warnedProxy.Do(func() {
			s.log.Warn("X-Forwarded-For is ignored: all clients behind this address share its limits; "+
				"if it is your proxy, name it in --trusted-proxies", "address", remote.String())
		})
		return remote
	}
	return s.proxies.Client(remote, forwarded)
}

// clientKey returns the name under which the address of the client is counted.
func (s *Server) clientKey(c *fiber.Ctx) string {
	if key, ok := c.Locals(addressKey).(string); ok {
		return key
	}
	key := network.Key(s.clientAddress(c))
	c.Locals(addressKey, key)
	return key
}

// overTLS reports whether a trusted proxy has received the request over TLS.
func (s *Server) overTLS(c *fiber.Ctx) bool {
	return len(s.proxies) > 0 && c.Get(fiber.HeaderXForwardedProto) == "https" &&
		s.proxies.Trust(network.AddressOf(c.Context().RemoteAddr()))
}

// client returns who is counted for the request. The account is known after authorize.
func (s *Server) client(c *fiber.Ctx) admission.Client {
	from := admission.Client{Address: s.clientKey(c), Answer: &c.Response().Header}
	if session := viewer(c); session != nil {
		from.Account, from.Since, from.Moderator = session.UserID, session.Since, session.Role >= models.RoleModerator
	}
	return from
}
