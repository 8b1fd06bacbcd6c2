package images_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/images"
	"likewise/internal/testkit"
)

func TestS3_keepsObjects(t *testing.T) {
	t.Parallel()
	server := testkit.S3(t)
	s, err := images.Open(server.Address())
	require.NoError(t, err)
	keeps(t, s)

	for _, wrong := range []string{
		strings.Replace(server.Address(), "key:", "other:", 1),
		strings.Replace(server.Address(), "/images/", "/nothing/", 1),
	} {
		s, err := images.Open(wrong)
		require.NoError(t, err)
		require.Error(t, s.Check(t.Context()), "a bucket that is not ours is found at the start")
	}
}

// A server that does not answer, or that is gone, costs a bounded time, and works again when it is back.
func TestS3_failsInTime(t *testing.T) {
	t.Parallel()
	server := testkit.S3(t)
	s, err := images.Open(server.Address())
	require.NoError(t, err)
	require.NoError(t, s.Put(t.Context(), "abcdef", "image/png", []byte("one")))

	require.NoError(t, server.Pause())
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Error(t, s.Put(ctx, "abcdef", "image/png", []byte("two")))
	_, _, err = s.Open(ctx, "abcdef", 0)
	require.Error(t, err)
	require.NotErrorIs(t, err, images.ErrMissing)
	require.Error(t, s.Delete(ctx, "abcdef"))
	assert.Less(t, time.Since(begin), 5*time.Second)
	require.NoError(t, server.Resume())

	require.NoError(t, server.Kill())
	require.Error(t, s.Put(t.Context(), "abcdef", "image/png", []byte("two")))
	require.NoError(t, s.Check(t.Context()), "a server that is down does not keep the API from starting")
	require.NoError(t, server.Start(t.Context()))
	body, size, err := s.Open(t.Context(), "abcdef", 0)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	assert.EqualValues(t, 3, size)
	require.NoError(t, s.Put(t.Context(), "abcdef", "image/png", []byte("two")))
}
