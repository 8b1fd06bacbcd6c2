package handlers

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/admission"
)

// exportTimeout is for reading a piece.
const exportTimeout = 10 * time.Second

// download is a body that is read piece by piece as the client reads it. It holds one piece in memory and nothing in
// the database. If a piece cannot be read, the answer ends without its terminator, so that the client sees it is
// incomplete.
type download struct {
	kind    string // of the content
	name    string // of the file
	next    func(ctx context.Context, piece *bytes.Buffer) (ended bool, err error)
	size    int       // in bytes; -1: unknown
	ends    time.Time // the deadline of the whole body; the zero time: none
	account int64     // whose archive it is; 0: not of an account

	conn    net.Conn
	piece   bytes.Buffer
	ended   bool
	entered *admission.Downloads // nil before it has a place
	closed  sync.Once
}

// send answers with a download. It returns the error of admission.Downloads.Enter. It reads the first
// piece itself, while an error can still be answered.
func (s *Server) send(c *fiber.Ctx, d *download) error {
	if err := s.downloads.Enter(d.account); err != nil {
		d.Close()
		return err
	}
	d.conn, d.entered = c.Context().Conn(), &s.downloads
	if err := d.read(); err != nil {
		d.Close()
		return err
	}
	c.Set(fiber.HeaderContentType, d.kind)
	c.Set(fiber.HeaderContentDisposition, `attachment; filename="`+d.name+`"`)
	c.Context().SetBodyStream(d, d.size)
	return nil
}

// Close frees the place of the download. fasthttp calls it at the end, even if the client disconnects.
func (d *download) Close() error {
	d.closed.Do(func() {
		if d.entered != nil {
			d.entered.Leave(d.account)
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

// Read extends the write deadline with each read: a client has admission.WriteTimeout for each piece.
func (d *download) Read(p []byte) (int, error) {
	for d.piece.Len() == 0 {
		if d.ended {
			return 0, io.EOF
		}
		if err := d.read(); err != nil {
			return 0, err
		}
	}
	deadline := time.Now().Add(admission.WriteTimeout)
	if !d.ends.IsZero() && d.ends.Before(deadline) {
		deadline = d.ends
	}
	if err := d.conn.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	return d.piece.Read(p)
}
