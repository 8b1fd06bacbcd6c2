// Package network accepts the connections of the API and determines where requests come from.
//
// The Listener bounds open connections, for the process and for each address, and closes those over a bound at once.
// It never returns a transient error, because fasthttp would stop serving. A Conn is owned by the HTTP server until it
// is hijacked, and leaves the count when it is closed.
//
// Requests whose framing is ambiguous are refused (CheckFraming). X-Forwarded-For counts only from trusted Proxies.
package network

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sethvargo/go-retry"
	"github.com/valyala/fasthttp"
)

// If a connection is closed while the client still sends, the kernel discards the answer that the client has not read:
// a body over the limit would end as "connection reset" as often as with 413. So a refused request is first read to its
// end, within these bounds.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// sendBuffer bounds how much of an answer the kernel buffers, in bytes; Linux doubles it. By default the kernel buffers
// megabytes, which nothing counts.
const sendBuffer = 128 << 10

// An open connection costs a file descriptor and some 20 KB of memory, even when idle. These bounds hold until the
// server's read timeout disconnects an idle client.
const (
	maxConnections      = 20_000 // of a process; fewer if its file descriptors would not suffice for MySQL and Redis
	maxConnectionsOfOne = 1000   // of an address, times Config.Factor; trusted proxies are exempt
	minConnectionsOfOne = 20     // a browser opens six, and some are closing
	reservedDescriptors = 256
	acceptPause         = 50 * time.Millisecond // after a transient error
	warnInterval        = time.Minute
)

// Config holds the parts of a Listener.
type Config struct {
	Factor  float64 // of the bound for each address; 0 means no such bound
	Proxies Proxies // exempt from it
	Now     func() time.Time
	Logger  *slog.Logger
	Open    prometheus.Gauge   // open connections
	Refused prometheus.Counter // connections that were closed at once
}

// Listener counts open connections and closes new ones that are over a bound.
type Listener struct {
	net.Listener
	config    Config
	limit     int
	mostOfOne int // 0: no bound

	mu     sync.Mutex // guards all below
	all    int
	of     map[string]int // by Key of the address
	warned time.Time      // when a refusal was last logged
}

// Listen returns a Listener that accepts its connections from ln.
func Listen(ln net.Listener, c Config) *Listener {
	l := &Listener{Listener: ln, config: c, limit: descriptors(maxConnections), of: map[string]int{}}
	if c.Factor > 0 {
		l.mostOfOne = max(minConnectionsOfOne, int(maxConnectionsOfOne*c.Factor))
	}
	return l
}

// descriptors returns how many connections the process may open, at most wanted.
func descriptors(wanted int) int {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err != nil || limit.Cur > uint64(wanted)+reservedDescriptors {
		return wanted
	}
	return max(1, int(limit.Cur)-reservedDescriptors)
}

// admit counts a connection and reports whether it is within the bounds.
func (l *Listener) admit(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	item := Key(from)
	if l.all >= l.limit || l.mostOfOne > 0 && l.of[item] >= l.mostOfOne && !l.config.Proxies.Trust(from) {
		l.config.Refused.Inc()
		if now := l.config.Now(); now.Sub(l.warned) > warnInterval {
			l.warned = now
			l.config.Logger.Warn("too many open connections: new ones are closed at once",
				"open", l.all, "address", item, "of_address", l.of[item])
		}
		return false
	}
	l.all++
	l.of[item]++
	l.config.Open.Inc()
	return true
}

func (l *Listener) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	item := Key(from)
	l.all--
	if l.of[item]--; l.of[item] == 0 {
		delete(l.of, item)
	}
	l.config.Open.Dec()
}

// Accept returns the next connection within the bounds, a *Conn. It retries after transient errors.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := retry.DoValue(context.Background(), retry.NewConstant(acceptPause), l.accept)
		if err != nil {
			return nil, err
		}
		from := AddressOf(conn.RemoteAddr())
		if !l.admit(from) {
			_ = conn.Close() // the client needs no other notice
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			if err := tcp.SetWriteBuffer(sendBuffer); err != nil { // the connection is closed already
				l.config.Logger.Debug("the send buffer was not set", "error", err)
			}
		}
		return &Conn{Conn: conn, left: sync.OnceFunc(func() { l.leave(from) })}, nil
	}
}

// accept marks transient errors as retryable. Closing the listener ends it.
func (l *Listener) accept(context.Context) (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if transient(err) {
		l.config.Logger.Warn("connections cannot be accepted at the moment", "error", err)
		err = retry.RetryableError(err)
	}
	return conn, err
}

// transient reports whether accepting can work again: the client has gone, or a resource ran out.
func transient(err error) bool {
	for _, number := range []syscall.Errno{
		syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	} {
		if errors.Is(err, number) {
			return true
		}
	}
	return false
}

// Conn is a connection of a Listener.
type Conn struct {
	net.Conn
	left     func()
	linger   atomic.Bool
	answered atomic.Pointer[func()]
}

// NetConn returns the underlying connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Linger makes Close wait until the client has stopped sending.
func (c *Conn) Linger() { c.linger.Store(true) }

// OnAnswered sets the function that StateChanged calls once, when the answer that is being prepared has been written.
func (c *Conn) OnAnswered(f func()) { c.answered.Store(&f) }

// Close closes the connection. After Linger it first waits until the client has stopped sending, at most 2 s.
func (c *Conn) Close() error {
	defer c.left()
	if c.linger.Load() {
		half, ok := c.Conn.(interface{ CloseWrite() error })
		if ok && half.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // the connection is closed whatever the error
		}
	}
	return c.Conn.Close()
}

// StateChanged is the ConnState hook of the HTTP server. It ends the request whose answer was in flight: the answer is
// written, or never will be, or conn was hijacked.
func StateChanged(conn net.Conn, state fasthttp.ConnState) {
	if state != fasthttp.StateIdle && state != fasthttp.StateClosed && state != fasthttp.StateHijacked {
		return
	}
	if c, ok := conn.(*Conn); ok {
		if answered := c.answered.Swap(nil); answered != nil {
			(*answered)()
		}
	}
}
