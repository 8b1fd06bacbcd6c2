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

// claim claims a request that is to be carried out.
func claim(t *testing.T, store *db.DB, r db.IdempotentRequest) *db.RequestClaim {
	t.Helper()
	claim, err := store.ClaimRequest(t.Context(), r, hold)
	require.NoError(t, err)
	require.False(t, claim.Done())
	return claim
}

func claimFails(t *testing.T, want error, store *db.DB, r db.IdempotentRequest) {
	t.Helper()
	_, err := store.ClaimRequest(t.Context(), r, hold)
	require.ErrorIs(t, err, want)
}

// repeat claims a request that was carried out, and returns the context of its repetition.
func repeat(t *testing.T, store *db.DB, r db.IdempotentRequest) context.Context {
	t.Helper()
	claim, err := store.ClaimRequest(t.Context(), r, hold)
	require.NoError(t, err)
	require.True(t, claim.Done())
	return db.WithRequestClaim(t.Context(), claim)
}

func release(t *testing.T, store *db.DB, c *db.RequestClaim) (done bool) {
	t.Helper()
	done, err := store.ReleaseRequest(t.Context(), c)
	require.NoError(t, err)
	return done
}

func TestRequestClaim_isHeldUntilTheEnd(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	c := claim(t, store, request(1, 1))
	claimFails(t, db.ErrKeyInUse, store, request(1, 1))
	claimFails(t, db.ErrKeyReused, store, request(1, 2))
	claim(t, store, request(2, 1))
	require.NoError(t, db.KeepAnswer(db.WithRequestClaim(t.Context(), c), "<answer>"))
	require.NoError(t, store.FinishRequest(t.Context(), c))
	kept, err := db.KeptAnswer(repeat(t, store, request(1, 1)))
	require.NoError(t, err)
	assert.JSONEq(t, `"<answer>"`, string(kept))
	claimFails(t, db.ErrKeyReused, store, request(1, 2))
	assert.True(t, release(t, store, c))
	age(db.IdempotencyLife - time.Second)
	repeat(t, store, request(1, 1))
	age(time.Second)
	claim(t, store, request(1, 2))
}

func TestRequestClaim_isReleased(t *testing.T) {
	t.Parallel()
	store, _ := agingStore(t)
	c := claim(t, store, request(1, 1))
	assert.False(t, release(t, store, c))
	claim(t, store, request(1, 2))
	require.ErrorIs(t, store.FinishRequest(t.Context(), c), db.ErrKeyInUse)
	claimFails(t, db.ErrKeyInUse, store, request(1, 2))
}

// An answer that is too long is not kept: a row has a bound.
func TestRequestClaim_keepsOnlySmallAnswers(t *testing.T) {
	t.Parallel()
	store, _ := agingStore(t)
	c := claim(t, store, request(1, 1))
	require.NoError(t, db.KeepAnswer(db.WithRequestClaim(t.Context(), c), strings.Repeat("x", 40_000)))
	require.NoError(t, store.FinishRequest(t.Context(), c))
	_, err := db.KeptAnswer(repeat(t, store, request(1, 1)))
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	assert.Less(t, count(t, store, "SELECT LENGTH(effect) FROM idempotency_keys"), 100)
}

// What creates something names it in the row of the key, so a repetition finds it.
func TestRequestClaim_namesCreatedRows(t *testing.T) {
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
				"")
			require.NoError(t, err)
			hash := models.HashToken(token)
			return int64(binary.BigEndian.Uint64(hash[:]))
		},
	} {
		r := request(byte(i), 1)
		c := claim(t, store, r)
		want := []int64{create(db.WithRequestClaim(t.Context(), c))}
		assert.Equal(t, want, db.Made(repeat(t, store, r)))
		claimFails(t, db.ErrKeyReused, store, request(byte(i), 2))
		age(hold)
		assert.Equal(t, want, db.Made(repeat(t, store, r)), "it is not to be taken over")
		assert.True(t, release(t, store, c), "it is not to be released")
	}
}

// A request has one effect. A second transaction is a mistake of the program, and shows before anything is lost by it.
func TestRequestClaim_refusesASecondEffect(t *testing.T) {
	t.Parallel()
	store, _ := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	c := claim(t, store, request(1, 1))
	ctx := db.WithRequestClaim(t.Context(), c)
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
func TestRequestClaim_continuesAfterItsSteps(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	begun := func(c *db.RequestClaim, name string) bool {
		ctx, done := db.Step(db.WithRequestClaim(t.Context(), c), name)
		if !done {
			_, err := content.New(store).CreateComment(ctx, ada, post.ID, nil, models.CommentText{Content: name})
			require.NoError(t, err)
		}
		return done
	}
	first := claim(t, store, request(1, 1))
	assert.False(t, begun(first, "a"))
	assert.False(t, begun(first, "b"))
	claimFails(t, db.ErrKeyInUse, store, request(1, 1))
	age(hold)
	second := claim(t, store, request(1, 1))
	ctx, done := db.Step(db.WithRequestClaim(t.Context(), first), "c")
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
	failed := claim(t, store, request(2, 1))
	assert.False(t, begun(failed, "a"))
	assert.False(t, release(t, store, failed))
	assert.False(t, begun(claim(t, store, request(2, 1)), "a"))
}

// A request that was given up may still be at work. What it does after its key was taken over must not be.
func TestRequestClaim_lateCommitIsRolledBack(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	create := func(c *db.RequestClaim) error {
		_, err := content.New(store).CreateComment(
			db.WithRequestClaim(t.Context(), c),
			ada,
			post.ID,
			nil,
			models.CommentText{Content: "once"},
		)
		return err
	}
	first := claim(t, store, request(1, 1))
	age(hold - time.Millisecond)
	claimFails(t, db.ErrKeyInUse, store, request(1, 1))
	age(time.Millisecond)
	second := claim(t, store, request(1, 1))
	claimFails(t, db.ErrKeyInUse, store, request(1, 1))
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
func TestRequestClaim_waitsForACommitUnderWay(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	for i, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		r := request(byte(i), 1)
		c := claim(t, store, r)
		tx, err := store.Pool().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(
			t.Context(),
			`UPDATE idempotency_keys SET effect='{"done":true,"made":[7]}', claim=claim+1 WHERE effect IS NULL`,
		)
		require.NoError(t, err)
		age(hold)
		type result struct {
			claim *db.RequestClaim
			done  bool
			err   error
		}
		taken, released := make(chan result, 1), make(chan result, 1)
		go func() {
			done, err := store.ReleaseRequest(t.Context(), c)
			released <- result{c, done, err}
			claim, err := store.ClaimRequest(t.Context(), r, hold)
			taken <- result{claim: claim, err: err}
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
		assert.Equal(t, i == 0, second.claim.Done())
		if i == 0 {
			assert.Equal(t, []int64{7}, db.Made(db.WithRequestClaim(t.Context(), first.claim)))
			assert.Equal(t, []int64{7}, db.Made(db.WithRequestClaim(t.Context(), second.claim)))
		}
	}
}

// A key that is given back and claimed again all the time is a row that many delete and insert at once: MySQL breaks
// deadlocks between them, and no caller sees them.
func TestRequestClaim_isReleasedAndTakenConcurrently(t *testing.T) {
	t.Parallel()
	store, _ := agingStore(t)
	var claimed, busy atomic.Int64
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			for range 100 {
				claim, err := store.ClaimRequest(t.Context(), request(1, 1), hold)
				if errors.Is(err, db.ErrKeyInUse) {
					busy.Add(1)
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				claimed.Add(1)
				if _, err := store.ReleaseRequest(t.Context(), claim); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d claimed, %d in use", claimed.Load(), busy.Load())
}

func TestPurgeIdempotencyKeys_takesTheExpired(t *testing.T) {
	t.Parallel()
	store, age := agingStore(t)
	for key := range byte(3) {
		claim(t, store, request(key, 1))
	}
	age(db.IdempotencyLife)
	claim(t, store, request(9, 1))
	for _, want := range []int64{2, 1, 0} {
		n, err := store.PurgeIdempotencyKeys(t.Context(), 2)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM idempotency_keys"))
}
