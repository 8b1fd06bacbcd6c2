package handlers_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
)

// X-Forwarded-For is read from its end, and only as far as trusted proxies have written it. The limit that a request
// counts against reveals the address that the server has determined.
func TestClientAddress_isTakenFromTrustedProxiesAlone(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	for _, test := range []struct {
		name    string
		trusted string   // in addition to the tests' own address; "none": no proxy
		sent    []string // values of X-Forwarded-For, one header line each
		as      string   // the address that it counts as
	}{
		{"no trusted proxy", "none", []string{"192.0.2.1"}, "127.0.0.1"},
		{"no trusted proxy, many headers", "none", []string{"192.0.2.1", "192.0.2.2"}, "127.0.0.1"},
		{"a single hop", "", []string{"192.0.2.1"}, "192.0.2.1"},
		{"a client that writes the header itself", "", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{"a client that writes a trusted address", "10.0.0.0/8", []string{"203.0.113.9, 10.1.2.3, 192.0.2.1, 10.9.9.9"},
			"192.0.2.1"},
		{"in two headers", "10.0.0.0/8", []string{"203.0.113.9, 192.0.2.1", "10.9.9.9"}, "192.0.2.1"},
		{"trusted proxies alone", "10.0.0.0/8", []string{"10.1.1.1, 10.2.2.2"}, "10.1.1.1"},
		{"not an address", "", []string{"192.0.2.1, unknown"}, "127.0.0.1"},
		{"before a word", "10.0.0.0/8", []string{"192.0.2.1, <script>, 10.2.2.2"}, "10.2.2.2"},
		{"empty", "", []string{""}, "127.0.0.1"},
		{"commas", "", []string{",,,"}, "127.0.0.1"},
		{"with a port", "", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{"IPv6 with a port", "", []string{"[2001:db8::1]:4711"}, "2001:db8::"},
		{"IPv6 in brackets", "", []string{"[2001:db8::1]"}, "2001:db8::"},
		{"IPv6 with a zone", "", []string{"fe80::1%eth0"}, "fe80::"},
		{"IPv4 in IPv6", "", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"octal", "", []string{"0300.0.2.1"}, "127.0.0.1"},
		{"very long", "", []string{strings.Repeat("192.0.2.1, ", 500) + "192.0.2.7"}, "192.0.2.7"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var proxies []netip.Prefix
			if test.trusted != "none" {
				proxies = append(proxies, netip.MustParsePrefix("127.0.0.1/32"))
			}
			if strings.Contains(test.trusted, "/") {
				proxies = append(proxies, netip.MustParsePrefix(test.trusted))
			}
			a := serve(t, store, limited(t, "", 0.001), func(c *handlers.Config) { c.TrustedProxies = proxies })
			if status := a.forwarded(t, test.sent...); status != 200 {
				t.Fatalf("the first request is answered with %d", status)
			}
			// A second request exceeds the limit of that address, and of no other.
			again := []string{test.as}
			if test.as == "127.0.0.1" {
				again = nil
			}
			if status := a.forwarded(t, again...); status != 429 {
				t.Errorf("it was not counted as %s", test.as)
			}
			if status := a.forwarded(t, "198.51.100.77"); (status == 200) != (test.trusted != "none") {
				t.Errorf("another client gets %d", status)
			}
			if told := strings.Contains(a.log.String(),
				"name it in --trusted-proxies"); told != (test.trusted == "none") {
				t.Errorf("the operator was told: %v", told)
			}
		})
	}
}

// forwarded sends a request with these lines of X-Forwarded-For.
func (a *api) forwarded(t *testing.T, lines ...string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/v1/posts", nil)
	require.NoError(t, err)
	req.Header["X-Forwarded-For"] = lines
	// Similar headers are ignored.
	req.Header.Set("X-Real-IP", "203.0.113.200")
	req.Header.Set("Forwarded", "for=203.0.113.201")
	req.Header.Set("True-Client-IP", "203.0.113.202")
	req.Header.Set("CF-Connecting-IP", "203.0.113.203")
	resp, err := a.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestSecurityHeaders_areOnEveryAnswer(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], behindProxy)
	ada := a.account(t)
	p := a.newPost(t, ada)
	check := func(name string, h http.Header) {
		t.Helper()
		for field, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
			"Server":                       "", "X-Powered-By": "",
			"Strict-Transport-Security": "",
		} {
			if got := h.Get(field); got != want {
				t.Errorf("%s: %s is %q, want %q", name, field, got, want)
			}
		}
	}
	for _, r := range []reply{
		a.must(t, 200, account{}, "GET", "/v1/posts", nil), a.must(t, 200, account{}, "GET", pathOf(p), nil),
		a.must(t, 200, account{}, "GET", "/healthz", nil),
		a.must(t, 200, account{}, "GET", "/openapi.yaml", nil),
		a.must(t, 404, account{}, "GET", "/v1/posts/999", nil), a.must(t, 401, account{}, "POST", "/v1/posts", obj{}),
		a.must(t, 405, account{}, "PUT", "/v1/posts", nil),
		a.must(t, 413, ada, "POST", "/v1/posts", strings.Repeat(" ", 400_000)),
		a.must(t, 431, account{}, "GET", "/v1/posts", nil, header{"X-Long", strings.Repeat("x", 10_000)}),
		a.must(t, 204, ada, "DELETE", pathOf(p), nil),
	} {
		check(fmt.Sprintf("%.60s", r.String()), r.Header)
	}
	docs := a.must(t, 200, account{}, "GET", "/docs", nil).Header
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
		"base-uri 'none'"} {
		if policy := docs.Get("Content-Security-Policy"); !strings.Contains(policy, part) ||
			strings.Contains(policy, "unsafe-eval") || strings.Contains(policy, "script-src 'self' 'unsafe") {
			t.Errorf("the page's policy is %q", policy)
		}
	}
	// Only a trusted proxy can report that the client uses TLS.
	if got := a.send(t, account{}, "GET", "/healthz", nil,
		header{"X-Forwarded-Proto", "https"}).Header.Get("Strict-Transport-Security"); got != "max-age=31536000" {
		t.Errorf("over TLS: Strict-Transport-Security is %q", got)
	}
	bare := newAPI(t, modes[0])
	check("untrusted", bare.send(t, account{}, "GET", "/healthz", nil, header{"X-Forwarded-Proto", "https"}).Header)

	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "what is this\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	check("no HTTP", resp.Header)
}

// The connections of one address are bounded, idle or not; other addresses and trusted proxies are not affected.
func TestConnections_ofOneAddressAreBounded(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	for _, trusted := range []bool{false, true} {
		a := serve(t, store, limited(t, "", 0.03), func(c *handlers.Config) { // thirty
			if trusted {
				behindProxy(c)
			}
		})
		open := func(local string) net.Conn {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}, Timeout: 10 * time.Second}
			conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(a.url, "http://"))
			require.NoError(t, err)
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		closed := 0
		for range 50 {
			conn := open("127.0.0.3")
			fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") // and it stays open
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				closed++
				continue
			}
			resp.Body.Close()
		}
		if want := map[bool]int{false: 20, true: 0}[trusted]; closed != want {
			t.Errorf("trusted %v: %d of 50 connections were closed at once, want %d", trusted, closed, want)
		}
		conn := open("127.0.0.4")
		fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("another address is not served: %v", err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("another address gets %s", resp.Status)
		}
	}
}
