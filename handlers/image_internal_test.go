package handlers

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// An address has two places, and a user one. If all are taken, the slowest client loses its place to a new one, unless
// all send fast enough.
func TestUploads_slowClientsLoseTheirPlaces(t *testing.T) {
	t.Parallel()
	u := newUploads(maxUploadsOfOne)
	now := time.Now()
	enter := func(user int64, from string, bytes int64) (*upload, net.Conn, error) {
		server, client := net.Pipe()
		t.Cleanup(func() { _, _ = server.Close(), client.Close() })
		up := &upload{user: user, from: from, conn: server, began: now}
		if bytes > 0 {
			up.began = now.Add(-10 * time.Second)
		}
		up.received.Store(bytes)
		return up, server, u.enter(up)
	}
	var slowest net.Conn
	for user := range int64(maxUploads) {
		up, conn, err := enter(user, string('a'+rune(user/2)), 10*slowUpload+user)
		require.NoError(t, err)
		if user == 3 {
			slowest = conn
			defer func() { assert.False(t, u.entered(up)) }()
		}
	}
	_, _, err := enter(100, "a", 0)
	assert.Equal(t, models.CodeRateLimited, models.ErrorCode(err), "the address has its places")
	_, _, err = enter(1, "new", 0)
	assert.Equal(t, models.CodeRateLimited, models.ErrorCode(err), "the user has a place")
	_, _, err = enter(101, "new", 0)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "all send fast enough")
	for up := range u.places {
		if up.user == 3 {
			up.received.Store(1)
		}
	}
	late, _, err := enter(101, "new", 0)
	require.NoError(t, err)
	_, err = slowest.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Len(t, u.places, maxUploads)
	assert.True(t, u.entered(late))
	u.leave(late)
	assert.Len(t, u.places, maxUploads-1)
}

// What has been received is not lost, however long it waits for its turn.
func TestUploads_receivedKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	u := newUploads(maxUploads)
	for user := range int64(maxUploads) {
		up := &upload{user: user, from: "a", began: time.Now().Add(-time.Hour)}
		require.NoError(t, u.enter(up))
		require.True(t, u.entered(up))
	}
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(u.enter(&upload{user: 100, from: "b", began: time.Now()})))
}

// deadlined records the deadlines of a connection.
type deadlined struct {
	net.Conn

	last time.Time
}

func (d *deadlined) SetWriteDeadline(t time.Time) error {
	d.last = t
	return nil
}

// A client has writeTimeout for each piece, and must keep up a rate.
func TestSending_givesSlowReadersTime(t *testing.T) {
	t.Parallel()
	conn := &deadlined{}
	body := io.NopCloser(strings.NewReader(strings.Repeat("x", 100)))
	s := &sending{io.LimitReader(body, 8), body, conn, time.Now(), 0}
	n, err := s.Read(make([]byte, 5))
	require.NoError(t, err)
	assert.Equal(t, 5, n)
	assert.EqualValues(t, 5, s.read)
	assert.InDelta(t, writeTimeout.Seconds(), time.Until(conn.last).Seconds(), 10)
	s.began, s.read = time.Now().Add(-2*time.Minute), 4*60*slowestDownload
	_, err = s.Read(nil)
	require.NoError(t, err)
	assert.InDelta(t, writeTimeout.Seconds(), time.Until(conn.last).Seconds(), 10, "it has read fast enough")
	s.read = 60 * slowestDownload
	n, err = s.Read(make([]byte, 5))
	require.NoError(t, err)
	assert.Equal(t, 3, n, "no more than was asked for")
	assert.Negative(t, time.Until(conn.last))
	_, err = s.Read(make([]byte, 5))
	assert.ErrorIs(t, err, io.EOF)
}
