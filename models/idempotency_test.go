package models_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

// agingStore is a store whose clock the test moves.
func agingStore(t *testing.T) (store *models.Store, age func(time.Duration)) {
	t.Helper()
	now := time.Now().Truncate(time.Second) // what MySQL rounds is the same then
	store, err := models.Open(t.Context(), testkit.Database(t), models.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store, func(d time.Duration) { now = now.Add(d) }
}

// hold is how long the tests hold a key.
const hold = 15 * time.Second

func request(key, body byte) models.IdempotentRequest {
	return models.IdempotentRequest{Key: [32]byte{key}, Body: [32]byte{body}}
}

func claim(t *testing.T, store *models.Store, r models.IdempotentRequest) *models.Claim {
	t.Helper()
	claim, outcome, err := store.ClaimRequest(t.Context(), r, hold)
	require.NoError(t, err)
	require.Nil(t, outcome)
	require.NotNil(t, claim)
	return claim
}

func claimFails(t *testing.T, want error, store *models.Store, r models.IdempotentRequest) {
	t.Helper()
	_, _, err := store.ClaimRequest(t.Context(), r, hold)
	require.ErrorIs(t, err, want)
}

func outcome(t *testing.T, store *models.Store, r models.IdempotentRequest) *models.Outcome {
	t.Helper()
	claim, outcome, err := store.ClaimRequest(t.Context(), r, hold)
	require.NoError(t, err)
	require.Nil(t, claim)
	require.NotNil(t, outcome)
	return outcome
}

func TestClaim_isHeldUntilTheAnswer(t *testing.T) {
	store, age := agingStore(t)
	c := claim(t, store, request(1, 1))
	claimFails(t, models.ErrKeyInUse, store, request(1, 1))
	claimFails(t, models.ErrKeyReused, store, request(1, 2))
	claim(t, store, request(2, 1))
	require.NoError(t, store.StoreAnswer(t.Context(), c, []byte("\x00answer\xff")))
	assert.Equal(t, &models.Outcome{Answer: []byte("\x00answer\xff")}, outcome(t, store, request(1, 1)))
	claimFails(t, models.ErrKeyReused, store, request(1, 2))
	kept, err := store.ReleaseClaim(t.Context(), c)
	require.NoError(t, err)
	assert.Nil(t, kept)
	age(models.IdempotencyLife - time.Second)
	assert.NotNil(t, outcome(t, store, request(1, 1)))
	age(time.Second)
	claim(t, store, request(1, 2))
}

func TestClaim_isGivenBack(t *testing.T) {
	store, _ := agingStore(t)
	c := claim(t, store, request(1, 1))
	kept, err := store.ReleaseClaim(t.Context(), c)
	require.NoError(t, err)
	assert.Nil(t, kept)
	claim(t, store, request(1, 2))
	require.NoError(t, store.StoreAnswer(t.Context(), c, []byte("late")))
	claimFails(t, models.ErrKeyInUse, store, request(1, 2))
}

// Whatever creates something names it in the row of the key, so a repetition finds it though nobody stored an answer.
func TestClaim_knowsWhatWasCreated(t *testing.T) {
	store, age := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	for i, create := range []func(ctx context.Context) (models.ResourceKind, int64, error){
		func(ctx context.Context) (models.ResourceKind, int64, error) {
			p, err := store.CreatePost(ctx, ada, models.PostText{Title: "A post", Content: "text"})
			require.NoError(t, err)
			return models.ResourcePost, p.ID, err
		},
		func(ctx context.Context) (models.ResourceKind, int64, error) {
			c, err := store.CreateComment(ctx, ada, post.ID, nil, models.CommentText{Content: "text"})
			require.NoError(t, err)
			return models.ResourceComment, c.ID, err
		},
		func(ctx context.Context) (models.ResourceKind, int64, error) {
			u := &models.User{Username: "grace", Email: "grace@example.org"}
			_, err := store.Register(ctx, u, "")
			require.NoError(t, err)
			return models.ResourceUser, u.ID, err
		},
	} {
		r := request(byte(i), 1)
		c := claim(t, store, r)
		kind, id, err := create(models.WithClaim(t.Context(), c))
		require.NoError(t, err)
		want := &models.Outcome{Resource: kind, ResourceID: id}
		assert.Equal(t, want, outcome(t, store, r))
		claimFails(t, models.ErrKeyReused, store, request(byte(i), 2))
		age(hold)
		assert.Equal(t, want, outcome(t, store, r), "it is not to be taken over")
		kept, err := store.ReleaseClaim(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, want, kept, "it is not to be given back")
	}
}

// A request that was given up may still be at work. What it does after its key was taken over must not be.
func TestClaim_lateCommitIsRolledBack(t *testing.T) {
	store, age := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	create := func(c *models.Claim) error {
		_, err := store.CreateComment(models.WithClaim(t.Context(), c), ada, post.ID, nil, models.CommentText{Content: "once"})
		return err
	}
	first := claim(t, store, request(1, 1))
	age(hold - time.Millisecond)
	claimFails(t, models.ErrKeyInUse, store, request(1, 1))
	age(time.Millisecond)
	second := claim(t, store, request(1, 1))
	claimFails(t, models.ErrKeyInUse, store, request(1, 1))
	require.ErrorIs(t, create(first), models.ErrKeyInUse)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM comments"))
	assert.Zero(t, count(t, store, "SELECT comments_count FROM posts"))
	require.NoError(t, store.StoreAnswer(t.Context(), first, []byte("late")))
	kept, err := store.ReleaseClaim(t.Context(), first)
	require.NoError(t, err)
	assert.Nil(t, kept)
	require.NoError(t, create(second))
	require.ErrorIs(t, create(first), models.ErrKeyInUse)
	require.ErrorIs(t, create(second), models.ErrKeyInUse, "once is all a claim is good for")
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM comments"))
	assert.Nil(t, outcome(t, store, request(1, 1)).Answer)
}

// Whether a COMMIT took place that was never heard of is decided by the row that the transaction holds.
func TestClaim_waitsForACommitUnderWay(t *testing.T) {
	store, age := agingStore(t)
	for i, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		r := request(byte(i), 1)
		c := claim(t, store, r)
		tx, err := store.Pool().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "UPDATE idempotency_keys SET resource_kind='post', resource_id=7 WHERE resource_id IS NULL")
		require.NoError(t, err)
		age(hold)
		type result struct {
			claim   *models.Claim
			outcome *models.Outcome
			err     error
		}
		taken, released := make(chan result, 1), make(chan result, 1)
		go func() {
			kept, err := store.ReleaseClaim(t.Context(), c)
			released <- result{nil, kept, err}
			claim, outcome, err := store.ClaimRequest(t.Context(), r, hold)
			taken <- result{claim, outcome, err}
		}()
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			waiting := count(t, store, "SELECT COUNT(*) FROM information_schema.processlist WHERE db=DATABASE() AND info LIKE 'DELETE FROM idempotency_keys%'")
			return waiting > 0, "the release does not wait"
		})
		require.NoError(t, end(tx))
		first, second := <-released, <-taken
		require.NoError(t, first.err)
		require.NoError(t, second.err)
		if i == 0 {
			want := &models.Outcome{Resource: models.ResourcePost, ResourceID: 7}
			assert.Equal(t, want, first.outcome)
			assert.Equal(t, want, second.outcome)
		} else {
			assert.Nil(t, first.outcome)
			assert.NotNil(t, second.claim)
		}
	}
}

// A key that is given back and claimed again all the time is a row that many delete and insert at once: MySQL breaks
// deadlocks between them, and nobody hears of it.
func TestClaim_isGivenBackAndTakenByManyAtOnce(t *testing.T) {
	store, _ := agingStore(t)
	var claimed, busy atomic.Int64
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			for range 100 {
				claim, _, err := store.ClaimRequest(t.Context(), request(1, 1), hold)
				if errors.Is(err, models.ErrKeyInUse) {
					busy.Add(1)
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				claimed.Add(1)
				if _, err := store.ReleaseClaim(t.Context(), claim); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d claimed, %d in use", claimed.Load(), busy.Load())
}

func TestPurgeIdempotencyKeys_takesTheExpired(t *testing.T) {
	store, age := agingStore(t)
	for key := range byte(3) {
		claim(t, store, request(key, 1))
	}
	age(models.IdempotencyLife)
	claim(t, store, request(9, 1))
	for _, want := range []int64{2, 1, 0} {
		n, err := store.PurgeIdempotencyKeys(t.Context(), 2)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM idempotency_keys"))
}
