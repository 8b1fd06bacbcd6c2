package admission

import (
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// Bounds on the size and the duration of requests.
const (
	MaxBody        = 384 << 10 // bytes; 413 beyond. Room for models.MaxContent bytes, each as an escape (\u0041)
	MaxHeader      = 8 << 10   // bytes; 431 beyond
	RequestTimeout = 10 * time.Second
	ReadTimeout    = 15 * time.Second
	WriteTimeout   = 15 * time.Second
	IdleTimeout    = 2 * time.Minute
)

// ReadBody reads the body of a request, at most MaxBody bytes, from stream. It returns fasthttp's errors.
func ReadBody(r *fasthttp.RequestCtx, stream io.Reader) error {
	if r.Request.Header.ContentLength() > MaxBody {
		return fasthttp.ErrBodyTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(stream, MaxBody+1))
	if err != nil {
		return err
	}
	if len(body) > MaxBody {
		return fasthttp.ErrBodyTooLarge
	}
	r.Request.SetBodyRaw(body)
	return nil
}

// slowestDownload is the rate at which a client must read an image, in bytes a second, after WriteTimeout.
const slowestDownload = 16 << 10

// Sending is the body of an answer that a client reads. The client has WriteTimeout for each piece. For all that it has
// read, it has WriteTimeout and a time in proportion, so that one who is too slow is disconnected soon.
type Sending struct {
	io.Reader
	io.Closer

	conn  net.Conn
	began time.Time
	read  int64 // bytes, of which the kernel may hold some
}

// NewSending returns the body of an answer on conn: the first size bytes of body, which it closes.
func NewSending(conn net.Conn, body io.ReadCloser, size int64) *Sending {
	return &Sending{io.LimitReader(body, size), body, conn, time.Now(), 0}
}

// Read sets the deadline of the client and reads the next piece.
func (s *Sending) Read(p []byte) (int, error) {
	deadline := time.Now().Add(WriteTimeout)
	last := s.began.Add(WriteTimeout + time.Duration(s.read)*time.Second/slowestDownload)
	if last.Before(deadline) {
		deadline = last
	}
	if err := s.conn.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := s.Reader.Read(p)
	s.read += int64(n)
	return n, err
}
