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
	maxExports    = 4 // in progress in a process: each may take long, and holds a piece in memory
	exportTimeout = 10 * time.Second
)

// download is a body that is read piece by piece as the client reads it. It holds one piece in memory and nothing in
// the database. If a piece cannot be read, the answer ends without its terminator, so that the client sees it is
// incomplete.
type download struct {
	next  func(ctx context.Context, piece *bytes.Buffer) (ended bool, err error)
	size  int       // in bytes; -1: unknown
	ends  time.Time // the deadline of the whole body; the zero time: none
	leave func()    // called once, at the end; may be nil

	conn     net.Conn
	piece    bytes.Buffer
	ended    bool
	underWay *atomic.Int64 // of the process
	closed   sync.Once
}

// send answers with a download. It returns CodeUnavailable if maxExports are in progress. It reads the first piece
// itself, while an error can still be answered.
func (s *Server) send(c *fiber.Ctx, d *download) error {
	d.conn, d.underWay = c.Context().Conn(), &s.downloads
	if s.downloads.Add(1) > maxExports {
		d.Close()
		return models.Unavailable("Too many exports are in progress; try again.", nil)
	}
	if err := d.read(); err != nil {
		d.Close()
		return err
	}
	c.Context().SetBodyStream(d, d.size)
	return nil
}

// Close frees the place of the download. fasthttp calls it at the end, even if the client disconnects.
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

// Read extends the write deadline with each read: a client has writeTimeout for each piece.
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
