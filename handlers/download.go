package handlers

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

const (
	maxExports    = 4 // that are under way in a process: each may take long, and holds a piece
	exportTimeout = 10 * time.Second
)

// download is a body that is read piece by piece as the client takes it, so that it holds a piece in memory and nothing
// in the database. When a piece cannot be read the answer breaks off, without the end that would make it look whole.
type download struct {
	next  func(ctx context.Context, piece *bytes.Buffer) (ended bool, err error)
	size  int       // in bytes; -1: it is not known
	ends  time.Time // when a client has to have all of it; the zero time: any time
	leave func()    // is called once, at the end; nil: nothing

	conn     net.Conn
	piece    bytes.Buffer
	ended    bool
	underWay *atomic.Int64 // of the process
	closed   sync.Once
}

// send answers with a download. Only maxExports are sent at a time; CodeUnavailable beyond. The first piece is read while
// an error can still be answered.
func (s *Server) send(c *fiber.Ctx, d *download) error {
	d.conn, d.underWay = c.Context().Conn(), &s.downloads
	if s.downloads.Add(1) > maxExports {
		d.Close()
		return models.Unavailable("Too many exports are under way; try again.", nil)
	}
	if err := d.read(); err != nil {
		d.Close()
		return err
	}
	c.Context().SetBodyStream(d, d.size)
	return nil
}

// Close makes room for another download. fasthttp calls it at the end, however that comes.
func (d *download) Close() error {
	d.closed.Do(func() {
		d.underWay.Add(-1)
		if d.leave != nil {
			d.leave()
		}
	})
	return nil
}

func (d *download) read() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	d.ended, err = d.next(ctx, &d.piece)
	return err
}

// Read gives a client as much time for each piece as the server has for an answer.
func (d *download) Read(p []byte) (int, error) {
	for d.piece.Len() == 0 {
		if d.ended {
			return 0, io.EOF
		}
		if err := d.read(); err != nil {
			return 0, err
		}
	}
	deadline := time.Now().Add(writeTimeout)
	if !d.ends.IsZero() && d.ends.Before(deadline) {
		deadline = d.ends
	}
	if err := d.conn.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	return d.piece.Read(p)
}
