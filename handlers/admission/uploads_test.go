package admission

import (
	"net"
	"os"
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
	u := NewUploads(1)
	now := time.Now()
	enter := func(user int64, from string, bytes int64) (*Upload, net.Conn, error) {
		server, client := net.Pipe()
		t.Cleanup(func() { _, _ = server.Close(), client.Close() })
		up := &Upload{User: user, From: from, Conn: server, Began: now}
		if bytes > 0 {
			up.Began = now.Add(-10 * time.Second)
		}
		up.received.Store(bytes)
		return up, server, u.Enter(up)
	}
	var slowest net.Conn
	for user := range int64(maxUploads) {
		up, conn, err := enter(user, string('a'+rune(user/2)), 10*slowUpload+user)
		require.NoError(t, err)
		if user == 3 {
			slowest = conn
			defer func() { assert.False(t, u.Received(up)) }()
		}
	}
	_, _, err := enter(100, "a", 0)
	assert.Equal(t, models.CodeRateLimited, models.ErrorCode(err), "the address has its places")
	_, _, err = enter(1, "new", 0)
	assert.Equal(t, models.CodeRateLimited, models.ErrorCode(err), "the user has a place")
	_, _, err = enter(101, "new", 0)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "all send fast enough")
	for up := range u.places {
		if up.User == 3 {
			up.received.Store(1)
		}
	}
	late, _, err := enter(101, "new", 0)
	require.NoError(t, err)
	_, err = slowest.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Len(t, u.places, maxUploads)
	assert.True(t, u.Received(late))
	u.Leave(late)
	assert.Len(t, u.places, maxUploads-1)
}

// What has been received is not lost, however long it waits for its turn.
func TestUploads_receivedKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	u := NewUploads(0)
	for user := range int64(maxUploads) {
		up := &Upload{User: user, From: "a", Began: time.Now().Add(-time.Hour)}
		require.NoError(t, u.Enter(up))
		require.True(t, u.Received(up))
	}
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(u.Enter(&Upload{User: 100, From: "b", Began: time.Now()})))
}
