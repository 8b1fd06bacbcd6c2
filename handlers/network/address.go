package network

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Proxies are the addresses and networks of trusted proxies.
type Proxies []netip.Prefix

// ParseProxies reads addresses and networks such as 10.0.0.0/8. It returns an error for a network whose address has
// bits beyond the mask, which is a typing error, and for /0, which would let every client choose its address.
func ParseProxies(list []string) (Proxies, error) {
	var proxies Proxies
	for _, s := range list {
		network, err := netip.ParsePrefix(s)
		if address, addressErr := netip.ParseAddr(s); addressErr == nil && address.Zone() == "" {
			network, err = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
		}
		switch {
		case err != nil || network.Addr().Is4In6():
			return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", s)
		case network != network.Masked():
			return nil, fmt.Errorf("%q has bits beyond its mask: did you mean %s?", s, network.Masked())
		case network.Bits() == 0:
			return nil, fmt.Errorf("%q includes every address: any client could choose its address", s)
		}
		proxies = append(proxies, network)
	}
	return proxies, nil
}

// Trust reports whether a is the address of a trusted proxy.
func (p Proxies) Trust(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(proxy netip.Prefix) bool { return proxy.Contains(a) })
}

// Client returns the address of the client of a request from a trusted proxy. forwarded holds the X-Forwarded-For
// headers. Each hop appends the address that it was asked from, so Client reads from the end, up to the first address
// that is not a trusted proxy. Anybody could have written what stands before it, where Fiber looks.
func (p Proxies) Client(proxy netip.Addr, forwarded [][]byte) netip.Addr {
	hops := bytes.Split(bytes.Join(forwarded, []byte(",")), []byte(","))
	client := proxy
	for _, text := range slices.Backward(hops) {
		hop, ok := parseHop(string(bytes.TrimSpace(text)))
		if !ok {
			break // "unknown", or forged: the hop that wrote it is the last known address
		}
		client = hop
		if !p.Trust(hop) {
			break
		}
	}
	return client
}

// AddressOf returns the IP address of a; the zero Addr if it has none.
func AddressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// parseHop reads an address as proxies write it: some add the port, and some put brackets around IPv6.
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

// Key returns the name under which an address is counted: an IPv4 address itself, and the /64 of an IPv6 address, which
// is the least that one customer has.
func Key(a netip.Addr) string {
	if a.Is6() {
		network, _ := a.Prefix(64) // cannot fail: the address has 128 bits
		return network.String()
	}
	return a.String()
}
