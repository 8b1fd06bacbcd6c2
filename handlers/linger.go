package handlers

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Closing a connection on a client that is still sending makes the kernel throw the answer away that the client has
// not read yet: a body over the limit would end as "connection reset" as often as with 413. So what is refused before
// it was read is first read to its end, within these bounds.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 16 << 20
)

// lingeringListener makes every connection one that can be told to linger.
type lingeringListener struct{ net.Listener }

func (l lingeringListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lingeringConn{Conn: conn}, nil
}

type lingeringConn struct {
	net.Conn
	linger atomic.Bool
}

// Close waits, if told to linger, until the client has stopped sending, for at most lingerTime.
func (c *lingeringConn) Close() error {
	if c.linger.Load() {
		half, ok := c.Conn.(interface{ CloseWrite() error })
		if ok && half.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // however it ends, the connection is closed now
		}
	}
	return c.Conn.Close()
}
