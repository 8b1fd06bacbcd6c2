package network

import (
	"testing"
)

func TestParseProxies_refusesTypingErrors(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::1", "::ffff:192.0.2.1"} {
		if _, err := ParseProxies([]string{good}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "proxy", "10.0.0.1/8", "10.0.0.0/33", "0.0.0.0/0", "::/0", "10.0.0.0/", "10.0.0",
		"fe80::1%eth0", "*", "::ffff:10.0.0.0/104", "10.0.0.0-10.0.0.9"} {
		if got, err := ParseProxies([]string{"192.0.2.1", bad}); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
