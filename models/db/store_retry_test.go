package db

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

func TestTransactBackoff_allowsMaxAttempts(t *testing.T) {
	t.Parallel()
	pauses := transactBackoff()
	for n := 1; n < maxAttempts; n++ {
		next, stop := pauses.Next()
		assert.False(t, stop, "after run %d", n)
		assert.GreaterOrEqual(t, next, time.Duration(0))
		assert.Less(t, next, time.Duration(n)*2*time.Millisecond)
	}
	_, stop := pauses.Next()
	assert.True(t, stop, "after run %d", maxAttempts)
}

func TestTransact_isUnavailableAfterMaxAttempts(t *testing.T) {
	t.Parallel()
	retried := 0
	store, err := Open(t.Context(), testkit.Database(t), Options{Retried: func(cause RetryCause) {
		assert.Equal(t, RetryChanged, cause)
		retried++
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	runs := 0
	changed := func(*Tx) error {
		runs++
		return ErrChangedMeanwhile
	}
	err = store.Transact(t.Context(), changed)
	require.ErrorIs(t, err, ErrChangedMeanwhile)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err))
	assert.Equal(t, maxAttempts, runs)
	assert.Equal(t, maxAttempts, retried)

	ended, cancel := context.WithCancel(t.Context())
	err = store.Transact(ended, func(*Tx) error {
		cancel()
		return ErrChangedMeanwhile
	})
	require.ErrorIs(t, err, context.Canceled)
}

// A writer of a hot post that gave up its place in the queue might never write.
func TestTransact_keepsItsPlaceInTheQueueOfARow(t *testing.T) {
	t.Parallel()
	var causes atomic.Int64
	store, err := Open(t.Context(), testkit.Database(t), Options{Retried: func(RetryCause) { causes.Add(1) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	const lock = "SELECT value FROM settings WHERE name='cursor_key' FOR UPDATE"
	holder, err := store.Pool().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = holder.ExecContext(t.Context(), lock)
	require.NoError(t, err)
	written := make(chan error, 1)
	go func() {
		written <- store.Transact(t.Context(), func(tx *Tx) error { return tx.Exec(lock).Error })
	}()
	<-time.After(2500 * time.Millisecond)
	require.NoError(t, holder.Rollback())
	require.NoError(t, <-written)
	assert.Zero(t, causes.Load())
}
