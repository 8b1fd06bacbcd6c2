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

func TestProxy_deliversHeldRequestsAfterLaterOnes(t *testing.T) {
	p := echoes(t)
	first := dial(t, p)
	say(t, first, "one")
	hear(t, first, "one")
	p.hold(func() bool { return true })
	say(t, first, "held")
	hearNothing(t, first)
	second := dial(t, p)
	say(t, second, "two")
	hear(t, second, "two")
	require.Equal(t, 1, p.release())
	hear(t, first, "held")
	say(t, first, "three")
	hear(t, first, "three")
	require.Len(t, p.holds(), 1)
	require.False(t, p.holds()[0].end.IsZero())
}

// What a client sent before it hung up arrives, as it does from a network.
func TestProxy_deliversWhatWasHeldOfClientsThatHungUp(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	p, err := newProxy()
	require.NoError(t, err)
	defer p.listener.Close()
	p.lead(server.Addr().String())
	c := dial(t, p)
	behind, err := server.Accept()
	require.NoError(t, err)
	defer behind.Close()
	say(t, c, "one")
	hear(t, behind, "one")
	p.hold(func() bool { return true })
	say(t, c, "held")
	c.Close()
	hearNothing(t, behind)
	p.release()
	hear(t, behind, "held")
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
