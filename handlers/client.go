package handlers

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/gofiber/fiber/v2"
)

// clientAddress is where the request came from. X-Forwarded-For is believed only of the proxies that the configuration
// names, and read from its end: each hop appends where it was asked from, and what is further left than the first hop
// that is no proxy of ours was written by somebody else. (Fiber would take the leftmost, which anybody can make up.)
func (s *Server) clientAddress(c *fiber.Ctx) netip.Addr {
	remote := addressOf(c.Context().RemoteAddr())
	sent := c.Request().Header.PeekAll(fiber.HeaderXForwardedFor)
	if len(sent) == 0 {
		return remote
	}
	if !s.trusted(remote) {
		s.warnedProxy.Do(func() {
			s.log.Warn("X-Forwarded-For is not believed: every client behind this address shares its limits; if it is your proxy, name it in --trusted-proxies",
				"address", remote.String())
		})
		return remote
	}
	hops := bytes.Split(bytes.Join(sent, []byte(",")), []byte(","))
	client := remote
	for _, text := range slices.Backward(hops) {
		hop, ok := parseHop(string(bytes.TrimSpace(text)))
		if !ok {
			break // it says that it does not know, or lies; the hop that wrote it is as far as we know
		}
		client = hop
		if !s.trusted(hop) {
			break
		}
	}
	return client
}

// ParseProxies reads addresses and networks such as 10.0.0.0/8. It refuses a network whose address has bits beyond the
// mask, which is a slip, and the network of everybody, which would let every client choose its address.
func ParseProxies(list []string) ([]netip.Prefix, error) {
	var proxies []netip.Prefix
	for _, s := range list {
		network, err := netip.ParsePrefix(s)
		if address, addressErr := netip.ParseAddr(s); addressErr == nil && address.Zone() == "" {
			network, err = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
		}
		switch {
		case err != nil || network.Addr().Is4In6():
			return nil, fmt.Errorf("%q is no address and no network such as 10.0.0.0/8", s)
		case network != network.Masked():
			return nil, fmt.Errorf("%q has bits beyond its mask: %s is meant?", s, network.Masked())
		case network.Bits() == 0:
			return nil, fmt.Errorf("%q is everybody: any client could choose its address", s)
		}
		proxies = append(proxies, network)
	}
	return proxies, nil
}

// overTLS reports whether a trusted proxy says that the client speaks TLS with it.
func (s *Server) overTLS(c *fiber.Ctx) bool {
	return len(s.proxies) > 0 && c.Get(fiber.HeaderXForwardedProto) == "https" && s.trusted(addressOf(c.Context().RemoteAddr()))
}

func (s *Server) trusted(a netip.Addr) bool {
	for _, proxy := range s.proxies {
		if proxy.Contains(a) {
			return true
		}
	}
	return false
}

func addressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// parseHop reads an address as proxies write it: some add the port, and some put IPv6 into brackets.
func parseHop(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		port, portErr := netip.ParseAddrPort(s)
		if a = port.Addr(); portErr != nil {
			if len(s) < 2 || s[0] != '[' || s[len(s)-1] != ']' {
				return netip.Addr{}, false
			}
			if a, err = netip.ParseAddr(s[1 : len(s)-1]); err != nil {
				return netip.Addr{}, false
			}
		}
	}
	return a.Unmap().WithZone(""), true
}

// networkOf is what an address is counted as: an IPv4 address alone, of IPv6 the /64 that one customer has at least.
func networkOf(a netip.Addr) string {
	if a.Is6() {
		network, _ := a.Prefix(64) // it has that many bits
		return network.String()
	}
	return a.String()
}
