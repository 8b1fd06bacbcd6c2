package db_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models/likes"
)

// A target may be evicted if its last change is not above the watermark and its shard has no gap. So every gap below
// the watermark has to be in the state, whatever is committed while it is read.
func TestShardState_hasEveryGapBelowTheWatermark(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	conn, err := store.Pool().Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	run := func(statement string) {
		t.Helper()
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	before, err := likes.New(store).ShardState(t.Context(), 3)
	require.NoError(t, err)
	run("LOCK TABLES like_gaps WRITE") // the state waits for them
	var running sync.WaitGroup
	var ended atomic.Bool
	running.Go(func() {
		state, err := likes.New(store).ShardState(context.Background(), 3)
		ended.Store(true)
		assert.NoError(t, err)
		assert.Equal(t, before.Applied, state.Applied, "the watermark is of after the gaps, or of the same time")
		assert.Equal(t, 2, state.OpenGaps)
	})
	awaitWaiting(t, store, "%FROM like_gaps%", &ended)
	exec(t, store, "UPDATE like_shards SET applied_epoch=applied_epoch+1, applied_seq=9")
	for range 2 {
		run(`INSERT INTO like_gaps (shard, after_epoch, after_seq, before_epoch, before_seq, created_at)
			VALUES (3, 0, 0, 1, 5, NOW())`)
	}
	run("INSERT INTO like_gaps VALUES (9, 3, 0, 0, 1, 5, NOW(), NOW())") // reconciled
	run("INSERT INTO like_gaps VALUES (10, 4, 0, 0, 1, 5, NOW(), NULL)") // of another shard
	run("UNLOCK TABLES")
	running.Wait()
}
