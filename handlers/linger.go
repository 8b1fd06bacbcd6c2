package handlers

import (
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
)

// Closing a connection on a client that is still sending makes the kernel throw the answer away that the client has
// not read yet: a body over the limit would end as "connection reset" as often as with 413. So what is refused before
// it was read is first read to its end, within these bounds.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// sendBuffer bounds what the kernel takes of an answer before the client does, in bytes; Linux doubles it. It would take
// megabytes, which nobody counts.
const sendBuffer = 128 << 10

// Connections cost memory, some 20 KB each, and file descriptors, whether anything is sent on them or not. A client that
// sends nothing is rid of after readTimeout; until then these bounds hold.
const (
	maxConnections      = 20_000 // of a process, but never so many that none is left for MySQL and Redis
	maxConnectionsOfOne = 1000   // of an address that is no trusted proxy's, times Config.LimitFactor
	minConnectionsOfOne = 20     // a browser has six, and some are closing
	reservedDescriptors = 256
	acceptPause         = 50 * time.Millisecond // when there is no descriptor left all the same
)

// connections counts those that are open and closes at once those that are too many.
type connections struct {
	most      int
	mostOfOne int                   // 0: any number
	exempt    func(netip.Addr) bool // from mostOfOne
	log       *slog.Logger
	open      prometheus.Gauge
	refused   prometheus.Counter

	mu    sync.Mutex
	all   int
	of    map[string]int
	cried time.Time // when the log was last told
}

// admit counts a connection, or reports that it is one too many.
func (k *connections) admit(from netip.Addr) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := networkOf(from)
	if k.all >= k.most || k.mostOfOne > 0 && k.of[one] >= k.mostOfOne && !k.exempt(from) {
		k.refused.Inc()
		if now := time.Now(); now.Sub(k.cried) > time.Minute {
			k.cried = now
			k.log.Warn("too many connections: more are closed at once", "open", k.all, "address", one, "of_address", k.of[one])
		}
		return false
	}
	k.all++
	k.of[one]++
	k.open.Inc()
	return true
}

func (k *connections) leave(from netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := networkOf(from)
	k.all--
	if k.of[one]--; k.of[one] == 0 {
		delete(k.of, one)
	}
	k.open.Dec()
}

// descriptors is how many connections the process may have open, of those that are wanted.
func descriptors(wanted int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > uint64(wanted)+reservedDescriptors {
		return wanted
	}
	return max(1, int(limit.Cur)-reservedDescriptors)
}

// lingeringListener gives connections that can be told to linger, and no more of them than may be.
type lingeringListener struct {
	net.Listener
	connections *connections
}

func (l lingeringListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if passing(err) {
			// fasthttp would take this for the end, and the process would end with it.
			l.connections.log.Warn("no connection can be taken for a moment", "error", err)
			<-time.After(acceptPause)
			continue
		}
		if err != nil {
			return nil, err
		}
		from := addressOf(conn.RemoteAddr())
		if !l.connections.admit(from) {
			_ = conn.Close() // whoever it was hears so by it
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			if err := tcp.SetWriteBuffer(sendBuffer); err != nil {
				l.connections.log.Debug("the send buffer stays as it is", "error", err) // the connection is closed already
			}
		}
		return &lingeringConn{Conn: conn, left: sync.OnceFunc(func() { l.connections.leave(from) })}, nil
	}
}

// passing reports whether accepting will work again: the client was gone already, or something ran out.
func passing(err error) bool {
	for _, number := range []syscall.Errno{syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, number) {
			return true
		}
	}
	return false
}

type lingeringConn struct {
	net.Conn
	left   func()
	linger atomic.Bool
	answer atomic.Pointer[answer] // on its way
}

// Close waits, if told to linger, until the client has stopped sending, for at most lingerTime.
func (c *lingeringConn) Close() error {
	defer c.left()
	if c.linger.Load() {
		half, ok := c.Conn.(interface{ CloseWrite() error })
		if ok && half.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // however it ends, the connection is closed now
		}
	}
	return c.Conn.Close()
}
