package main

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echoes starts an echo server behind a proxy.
func echoes(t *testing.T) *proxy {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	p, err := newProxy()
	require.NoError(t, err)
	t.Cleanup(func() {
		p.set(condition{flow: cut})
		p.listener.Close()
	})
	p.lead(server.Addr().String())
	return p
}

func dial(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
}

func hear(t *testing.T, c net.Conn, text string) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	got := make([]byte, len(text))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

func hearNothing(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	n, err := c.Read(make([]byte, 1))
	var timeout net.Error
	require.True(t, errors.As(err, &timeout) && timeout.Timeout(), "%d bytes, %v", n, err)
}

func hearReset(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestProxy_forwardsAndResets(t *testing.T) {
	p := echoes(t)
	c := dial(t, p)
	say(t, c, "one")
	hear(t, c, "one")
	p.reset()
	hearReset(t, c)
	c = dial(t, p)
	say(t, c, "two")
	hear(t, c, "two")
	p.set(condition{flow: cut})
	hearReset(t, c)
	if c, err := net.Dial("tcp", p.addr()); err == nil { // or it is reset before we know that it stands
		hearReset(t, c)
		c.Close()
	}
	p.set(condition{})
	c = dial(t, p)
	say(t, c, "three")
	hear(t, c, "three")
}

func TestProxy_deliversStalledBytesLate(t *testing.T) {
	p := echoes(t)
	c := dial(t, p)
	say(t, c, "one")
	hear(t, c, "one")
	p.set(condition{flow: stalled})
	say(t, c, "late")
	hearNothing(t, c)
	p.set(condition{})
	hear(t, c, "late")
}

func TestProxy_resetsConnectionsThatLostBytes(t *testing.T) {
	for _, f := range []flow{lost, deaf} {
		p := echoes(t)
		c := dial(t, p)
		say(t, c, "one")
		hear(t, c, "one")
		p.set(condition{flow: f})
		say(t, c, "gone")
		hearNothing(t, c)
		p.set(condition{})
		hearReset(t, c)
	}
}

func TestProxy_keepsOrphansAtTheServer(t *testing.T) {
	p := echoes(t)
	c := dial(t, p)
	say(t, c, "one")
	hear(t, c, "one")
	p.orphan()
	hearReset(t, c)
	require.Len(t, p.orphans, 1)
	hearNothing(t, p.orphans[0])
	p.bury()
	c = dial(t, p)
	say(t, c, "two")
	hear(t, c, "two")
}

func TestProxy_delays(t *testing.T) {
	p := echoes(t)
	c := dial(t, p)
	p.set(condition{delay: 50 * time.Millisecond})
	begin := time.Now()
	say(t, c, "slow")
	hear(t, c, "slow")
	require.GreaterOrEqual(t, time.Since(begin), 100*time.Millisecond)
}
