package admission

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// deadlined records the deadlines of a connection.
type deadlined struct {
	net.Conn

	last time.Time
}

func (d *deadlined) SetWriteDeadline(t time.Time) error {
	d.last = t
	return nil
}

// A client has WriteTimeout for each piece, and must keep up a rate.
func TestSending_givesSlowReadersTime(t *testing.T) {
	t.Parallel()
	conn := &deadlined{}
	body := io.NopCloser(strings.NewReader(strings.Repeat("x", 100)))
	s := &Sending{io.LimitReader(body, 8), body, conn, time.Now(), 0}
	n, err := s.Read(make([]byte, 5))
	require.NoError(t, err)
	assert.Equal(t, 5, n)
	assert.EqualValues(t, 5, s.read)
	assert.InDelta(t, WriteTimeout.Seconds(), time.Until(conn.last).Seconds(), 10)
	s.began, s.read = time.Now().Add(-2*time.Minute), 4*60*slowestDownload
	_, err = s.Read(nil)
	require.NoError(t, err)
	assert.InDelta(t, WriteTimeout.Seconds(), time.Until(conn.last).Seconds(), 10, "it has read fast enough")
	s.read = 60 * slowestDownload
	n, err = s.Read(make([]byte, 5))
	require.NoError(t, err)
	assert.Equal(t, 3, n, "no more than was asked for")
	assert.Negative(t, time.Until(conn.last))
	_, err = s.Read(make([]byte, 5))
	assert.ErrorIs(t, err, io.EOF)
}
