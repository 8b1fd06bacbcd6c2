package db_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// agingStore is a store whose clock the test moves.
func agingStore(t *testing.T) (store *db.DB, age func(time.Duration)) {
	t.Helper()
	now := time.Now().Truncate(time.Second) // what MySQL rounds is the same then
	store = openWith(t, db.Options{Now: func() time.Time { return now }})
	return store, func(d time.Duration) { now = now.Add(d) }
}

// hold is how long the tests hold a key.
const hold = 15 * time.Second

func request(key, body byte) db.IdempotentRequest {
	return db.IdempotentRequest{Key: [32]byte{key}, Body: [32]byte{body}}
}

// lease leases a request that is to be carried out.
func lease(t *testing.T, store *db.DB, r db.IdempotentRequest) *db.RequestLease {
	t.Helper()
	lease, err := store.LeaseRequest(t.Context(), r, hold)
	require.NoError(t, err)
	require.False(t, lease.Done())
	return lease
}

func leaseFails(t *testing.T, want error, store *db.DB, r db.IdempotentRequest) {
	t.Helper()
	_, err := store.LeaseRequest(t.Context(), r, hold)
	require.ErrorIs(t, err, want)
}

// repeat leases a request that was carried out, and returns the context of its repetition.
func repeat(t *testing.T, store *db.DB, r db.IdempotentRequest) context.Context {
	t.Helper()
	lease, err := store.LeaseRequest(t.Context(), r, hold)
	require.NoError(t, err)
	require.True(t, lease.Done())
	return db.WithRequestLease(t.Context(), lease)
}

func release(t *testing.T, store *db.DB, c *db.RequestLease) (done bool) {
	t.Helper()
	done, err := store.ReleaseRequest(t.Context(), c)
	require.NoError(t, err)
	return done
}

func TestRequestLease_isHeldUntilTheEnd(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	c := lease(t, store, request(1, 1))
	leaseFails(t, db.ErrKeyInUse, store, request(1, 1))
	leaseFails(t, db.ErrKeyReused, store, request(1, 2))
	lease(t, store, request(2, 1))
	require.NoError(t, db.KeepAnswer(db.WithRequestLease(t.Context(), c), "<answer>"))
	require.NoError(t, store.FinishRequest(t.Context(), c))
	kept, err := db.KeptAnswer(repeat(t, store, request(1, 1)))
	require.NoError(t, err)
	assert.JSONEq(t, `"<answer>"`, string(kept))
	leaseFails(t, db.ErrKeyReused, store, request(1, 2))
	assert.True(t, release(t, store, c))
	age(db.IdempotencyLife - time.Second)
	repeat(t, store, request(1, 1))
	age(time.Second)
	lease(t, store, request(1, 2))
}

func TestRequestLease_isReleased(t *testing.T) {
	t.Parallel()
	store, _ := agingStore(t)
	c := lease(t, store, request(1, 1))
	assert.False(t, release(t, store, c))
	lease(t, store, request(1, 2))
	require.ErrorIs(t, store.FinishRequest(t.Context(), c), db.ErrKeyInUse)
	leaseFails(t, db.ErrKeyInUse, store, request(1, 2))
}

// An answer that is too long is not kept: a row has a bound.
func TestRequestLease_keepsOnlySmallAnswers(t *testing.T) {
	t.Parallel()
	store, _ := agingStore(t)
	c := lease(t, store, request(1, 1))
	require.NoError(t, db.KeepAnswer(db.WithRequestLease(t.Context(), c), strings.Repeat("x", 40_000)))
	require.NoError(t, store.FinishRequest(t.Context(), c))
	_, err := db.KeptAnswer(repeat(t, store, request(1, 1)))
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	assert.Less(t, count(t, store, "SELECT LENGTH(effect) FROM idempotency_keys"), 100)
}

// What creates something names it in the row of the key, so a repetition finds it.
func TestRequestLease_namesCreatedRows(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	for i, create := range []func(ctx context.Context) int64{
		func(ctx context.Context) int64 {
			text := models.PostText{Title: "A post", Content: "text", Tags: models.Tags{"new"}}
			p, err := content.New(store).CreatePost(ctx, ada, text)
			require.NoError(t, err)
			return p.ID
		},
		func(ctx context.Context) int64 {
			c, err := content.New(store).CreateComment(ctx, ada, post.ID, nil, models.CommentText{Content: "text"})
			require.NoError(t, err)
			return c.ID
		},
		func(ctx context.Context) int64 {
			token, err := accounts.New(store).Register(ctx, &models.User{Username: "grace", Email: "grace@example.org"},
				"", false)
			require.NoError(t, err)
			hash := models.HashToken(token)
			return int64(binary.BigEndian.Uint64(hash[:]))
		},
	} {
		r := request(byte(i), 1)
		c := lease(t, store, r)
		want := []int64{create(db.WithRequestLease(t.Context(), c))}
		assert.Equal(t, want, db.Made(repeat(t, store, r)))
		leaseFails(t, db.ErrKeyReused, store, request(byte(i), 2))
		age(hold)
		assert.Equal(t, want, db.Made(repeat(t, store, r)), "it is not to be taken over")
		assert.True(t, release(t, store, c), "it is not to be released")
	}
}

// A request has one effect. A second transaction is a mistake of the program, and shows before anything is lost by it.
func TestRequestLease_refusesASecondEffect(t *testing.T) {
	t.Parallel()
	store, _ := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	c := lease(t, store, request(1, 1))
	ctx := db.WithRequestLease(t.Context(), c)
	comment := func(ctx context.Context) error {
		_, err := content.New(store).CreateComment(ctx, ada, post.ID, nil, models.CommentText{Content: "text"})
		return err
	}
	require.NoError(t, comment(db.Aside(ctx)))
	require.NoError(t, comment(ctx))
	require.ErrorContains(t, comment(ctx), "needs Aside or Step")
	require.NoError(t, comment(db.Aside(ctx)))
	assert.Equal(t, 3, count(t, store, "SELECT COUNT(*) FROM comments"))
}

// The process that takes a request over goes on where the one before it died.
func TestRequestLease_continuesAfterItsSteps(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	begun := func(c *db.RequestLease, name string) bool {
		ctx, done := db.Step(db.WithRequestLease(t.Context(), c), name)
		if !done {
			_, err := content.New(store).CreateComment(ctx, ada, post.ID, nil, models.CommentText{Content: name})
			require.NoError(t, err)
		}
		return done
	}
	first := lease(t, store, request(1, 1))
	assert.False(t, begun(first, "a"))
	assert.False(t, begun(first, "b"))
	leaseFails(t, db.ErrKeyInUse, store, request(1, 1))
	age(hold)
	second := lease(t, store, request(1, 1))
	ctx, done := db.Step(db.WithRequestLease(t.Context(), first), "c")
	assert.False(t, done)
	_, err := content.New(store).CreateComment(ctx, ada, post.ID, nil, models.CommentText{Content: "late"})
	require.ErrorIs(t, err, db.ErrKeyInUse)
	assert.True(t, begun(second, "a"))
	assert.True(t, begun(second, "b"))
	assert.False(t, begun(second, "c"))
	require.NoError(t, store.FinishRequest(t.Context(), second))
	repeat(t, store, request(1, 1))
	assert.Equal(t, 3, count(t, store, "SELECT COUNT(*) FROM comments"))

	// One that failed is forgotten, with its steps.
	failed := lease(t, store, request(2, 1))
	assert.False(t, begun(failed, "a"))
	assert.False(t, release(t, store, failed))
	assert.False(t, begun(lease(t, store, request(2, 1)), "a"))
}

// A request that was given up may still be at work. What it does after its key was taken over must not be.
func TestRequestLease_lateCommitIsRolledBack(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	create := func(c *db.RequestLease) error {
		_, err := content.New(store).CreateComment(
			db.WithRequestLease(t.Context(), c),
			ada,
			post.ID,
			nil,
			models.CommentText{Content: "once"},
		)
		return err
	}
	first := lease(t, store, request(1, 1))
	age(hold - time.Millisecond)
	leaseFails(t, db.ErrKeyInUse, store, request(1, 1))
	age(time.Millisecond)
	second := lease(t, store, request(1, 1))
	leaseFails(t, db.ErrKeyInUse, store, request(1, 1))
	require.ErrorIs(t, create(first), db.ErrKeyInUse)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM comments"))
	assert.Zero(t, count(t, store, "SELECT comments_count FROM posts"))
	assert.False(t, release(t, store, first))
	require.NoError(t, create(second))
	require.ErrorIs(t, create(first), db.ErrKeyInUse)
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM comments"))
	repeat(t, store, request(1, 1))
}

// The row that the transaction holds decides whether a COMMIT without an answer took place.
func TestRequestLease_waitsForACommitUnderWay(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	for i, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		r := request(byte(i), 1)
		c := lease(t, store, r)
		tx, err := store.Pool().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(
			t.Context(),
			`UPDATE idempotency_keys SET effect='{"done":true,"made":[7]}', claim=claim+1 WHERE effect IS NULL`,
		)
		require.NoError(t, err)
		age(hold)
		type result struct {
			lease *db.RequestLease
			done  bool
			err   error
		}
		taken, released := make(chan result, 1), make(chan result, 1)
		go func() {
			done, err := store.ReleaseRequest(t.Context(), c)
			released <- result{c, done, err}
			lease, err := store.LeaseRequest(t.Context(), r, hold)
			taken <- result{lease: lease, err: err}
		}()
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			waiting := count(t, store, `
				SELECT COUNT(*)
				FROM information_schema.processlist
				WHERE db=DATABASE() AND info LIKE 'DELETE FROM idempotency_keys%'`)
			return waiting > 0, "the release does not wait"
		})
		require.NoError(t, end(tx))
		first, second := <-released, <-taken
		require.NoError(t, first.err)
		require.NoError(t, second.err)
		assert.Equal(t, i == 0, first.done)
		assert.Equal(t, i == 0, second.lease.Done())
		if i == 0 {
			assert.Equal(t, []int64{7}, db.Made(db.WithRequestLease(t.Context(), first.lease)))
			assert.Equal(t, []int64{7}, db.Made(db.WithRequestLease(t.Context(), second.lease)))
		}
	}
}

// A key that is given back and leased again all the time is a row that many delete and insert at once: MySQL breaks
// deadlocks between them, and no caller sees them.
func TestRequestLease_isReleasedAndTakenConcurrently(t *testing.T) {
	t.Parallel()
	store, _ := agingStore(t)
	var leased, busy atomic.Int64
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			for range 100 {
				lease, err := store.LeaseRequest(t.Context(), request(1, 1), hold)
				if errors.Is(err, db.ErrKeyInUse) {
					busy.Add(1)
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				leased.Add(1)
				if _, err := store.ReleaseRequest(t.Context(), lease); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d leased, %d in use", leased.Load(), busy.Load())
}

func TestPurgeIdempotencyKeys_takesTheExpired(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	for key := range byte(3) {
		lease(t, store, request(key, 1))
	}
	age(db.IdempotencyLife)
	lease(t, store, request(9, 1))
	for _, want := range []int64{2, 1, 0} {
		n, err := store.PurgeIdempotencyKeys(t.Context(), 2)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM idempotency_keys"))
}
