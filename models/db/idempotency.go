package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"likewise/models"
)

// An Idempotency-Key is a row that goes through these states:
//
//	leased    a request works on it, until claimed_until
//	begun     some steps of the request are committed, and named in the row; see Step
//	effected  the effect of the request is committed
//
// Transact writes the row in the COMMIT that it is about, so that both take place or neither does. Each of these
// COMMITs adds 1 to the lease. A request that dies leaves its row as the last of them did. A repetition of an effected
// request is answered from what the row names. One that is leased or begun is taken over after claimed_until, by
// drawing another lease: a late commit of the request that was given up then finds that the lease is not its own and is
// rolled back. So the effect happens once, however slow or dead a process is and whatever became of its COMMIT.
//
// The row holds ids and never texts, tokens or passwords: an answer is made again from what MySQL has.

// IdempotencyLife is the time for which a key is kept.
const IdempotencyLife = 24 * time.Hour

// maxKept is the maximum size of an answer that a row keeps, in bytes.
const maxKept = 32 << 10

// IdempotentRequest identifies a request that has an Idempotency-Key.
type IdempotentRequest struct {
	Key  [32]byte // hash of the key and its sender
	Body [32]byte // hash of everything that a repetition has in common with the request
}

// RequestLease is the right to carry out an idempotent request. It is not safe for concurrent use.
type RequestLease struct {
	key    [32]byte
	id     int64  // as the row has it
	effect effect // as the row has it
	repeat bool   // the request was carried out before: the lease is the right to answer it again
	kept   json.RawMessage
}

// effect is what is committed of a request.
type effect struct {
	Done  bool            `json:"done,omitempty"`
	Made  []int64         `json:"made,omitempty"`  // see Made
	Steps []string        `json:"steps,omitempty"` // see Step
	Kept  json.RawMessage `json:"kept,omitempty"`  // see KeepAnswer
}

// Done reports whether the effect of the request is committed.
func (c *RequestLease) Done() bool { return c.effect.Done }

// The errors of LeaseRequest that a client can act on are these and CodeUnavailable.
var (
	// ErrKeyReused means that the key was sent with another request.
	ErrKeyReused = &models.Error{Code: models.CodeInvalid,
		Message: "The Idempotency-Key was sent before, with another request.",
		Fields: []models.FieldError{models.Broken(models.FieldKeyReused,
			"belongs to another request").In("Idempotency-Key")}}
	// ErrKeyInUse means that the request is being carried out.
	ErrKeyInUse = &models.Error{
		Code: models.CodeConflict, Message: "The request with this Idempotency-Key is still being carried out.",
		Fields: []models.FieldError{models.Broken(models.FieldKeyInUse, "is in use").In("Idempotency-Key")},
	}
)

// errTwoEffects is the error of a handler that breaks the contract of WithRequestLease.
var errTwoEffects = errors.New(
	"a request with an Idempotency-Key has a second transaction: one of the two needs Aside or Step")

type (
	leaseKey struct{}
	stepKey  struct{}
)

// WithRequestLease returns a context under which the transaction of the DB is the effect of the leased request.
// There can be one; the others need Aside or Step.
func WithRequestLease(ctx context.Context, lease *RequestLease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// Aside returns a context for writes that are not the effect of the request: bookkeeping, and what can be done again.
func Aside(ctx context.Context) context.Context { return WithRequestLease(ctx, nil) }

// Step returns a context for a transaction that is a part of the effect of the request, and reports whether that part
// is committed already, by a process that died before the end. The name is unique in the request.
func Step(ctx context.Context, name string) (step context.Context, done bool) {
	lease := leaseOf(ctx)
	return context.WithValue(ctx, stepKey{}, name), lease != nil && slices.Contains(lease.effect.Steps, name)
}

// KeepAnswer has the answer of the request kept with its effect or its next step, if it has at most maxKept bytes as
// JSON. It is for answers that cannot be made again, and must hold no texts of users.
func KeepAnswer(ctx context.Context, answer any) error {
	lease := leaseOf(ctx)
	if lease == nil {
		return nil
	}
	kept, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("keep answer: %w", err)
	}
	if len(kept) <= maxKept {
		lease.kept = kept
	}
	return nil
}

// KeptAnswer returns what is committed of KeepAnswer for the request under the context. CodeNotFound if that is
// nothing, because it was too much.
func KeptAnswer(ctx context.Context) (json.RawMessage, error) {
	lease := leaseOf(ctx)
	if lease == nil || lease.effect.Kept == nil {
		return nil, models.Errorf(models.CodeNotFound, "The answer was not kept.")
	}
	return lease.effect.Kept, nil
}

// Made returns the ids of what the request that is repeated under the context has created, as the DB named them: of
// a session or an API token the first 64 bits of its hash, of a row its id.
func Made(ctx context.Context) []int64 {
	if lease := leaseOf(ctx); lease != nil {
		return lease.effect.Made
	}
	return nil
}

func leaseOf(ctx context.Context) *RequestLease {
	lease, _ := ctx.Value(leaseKey{}).(*RequestLease)
	return lease
}

// after returns the effect when the transaction under the context is committed.
func (c *RequestLease) after(ctx context.Context, tx *Tx) (effect, error) {
	next := c.effect
	if c.kept != nil {
		next.Kept = c.kept
	}
	step, isStep := ctx.Value(stepKey{}).(string)
	switch {
	case isStep:
		next.Steps = append(slices.Clip(next.Steps), step)
		return next, nil
	case next.Done && !c.repeat:
		return next, errTwoEffects
	}
	next.Done = true
	if tx.made != nil {
		next.Made = tx.made
	}
	return next, nil
}

// record records in the row of the request's key what the transaction adds to its effect, and returns that effect. The
// transaction fails with ErrKeyInUse if the lease was taken over. Without a lease, record does nothing.
func (c *RequestLease) record(ctx context.Context, tx *Tx) (next effect, err error) {
	if c == nil {
		return next, nil
	}
	if next, err = c.after(ctx, tx); err != nil {
		return next, err
	}
	text, err := json.Marshal(next)
	if err != nil {
		return next, fmt.Errorf("record effect: %w", err)
	}
	update := tx.Exec(`
		UPDATE idempotency_keys
		SET effect=?, claim=claim+1
		WHERE key_hash=UNHEX(?) AND claim=?`, string(text), HexOf(c.key), c.id)
	if update.Error == nil && update.RowsAffected == 0 {
		return next, ErrKeyInUse
	}
	return next, update.Error
}

// committed follows the row after the COMMIT that record is part of.
func (c *RequestLease) committed(next effect) {
	if c != nil {
		c.effect = next
		c.id++
	}
}

// LeaseRequest returns the right to carry the request out, for as long as hold, or to answer it again if it is Done.
// ErrKeyReused, ErrKeyInUse.
func (s *DB) LeaseRequest(ctx context.Context, r IdempotentRequest, hold time.Duration) (*RequestLease, error) {
	for range maxAttempts {
		lease, err := s.insertLease(ctx, r, hold)
		if lease != nil || err != nil {
			return lease, err
		}
		row, err := s.readKey(ctx, r.Key)
		if err != nil {
			return nil, err
		}
		now := s.Now().UTC()
		switch {
		case row == nil: // it was released meanwhile
			continue
		case !now.Before(row.ExpiresAt):
			if err := s.forgetKey(ctx, r.Key, now); err != nil {
				return nil, err
			}
			continue
		case row.RequestHash != HexOf(r.Body):
			return nil, ErrKeyReused
		case row.effect.Done:
			return &RequestLease{key: r.Key, id: row.Claim, effect: row.effect, repeat: true}, nil
		case now.Before(row.ClaimedUntil):
			return nil, ErrKeyInUse
		}
		lease, err = s.takeOver(ctx, r.Key, row, hold)
		if lease != nil || err != nil {
			return lease, err
		}
	}
	return nil, ErrKeyInUse
}

// CarriedOut reports whether the effect of the request is committed. It leases nothing.
func (s *DB) CarriedOut(ctx context.Context, r IdempotentRequest) (bool, error) {
	row, err := s.readKey(ctx, r.Key)
	if err != nil || row == nil {
		return false, err
	}
	return row.effect.Done && row.RequestHash == HexOf(r.Body) && s.Now().UTC().Before(row.ExpiresAt), nil
}

// newLeaseID draws a lease. It leaves room for the COMMITs that are counted in it.
func newLeaseID() int64 { return rand.Int64N(1 << 62) }

// insertLease returns nil if the key is known.
func (s *DB) insertLease(ctx context.Context, r IdempotentRequest, hold time.Duration) (*RequestLease, error) {
	lease, now := &RequestLease{key: r.Key, id: newLeaseID()}, s.Now().UTC()
	const insert = `
		INSERT INTO idempotency_keys (key_hash, request_hash, claim, claimed_until, expires_at)
		VALUES (UNHEX(?),UNHEX(?),?,?,?)`
	_, err := s.Write(ctx, insert,
		HexOf(r.Key), HexOf(r.Body), lease.id, now.Add(hold), now.Add(IdempotencyLife))
	switch {
	case models.MySQLCode(err) == DuplicateKey:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("lease idempotency key: %w", err)
	}
	return lease, nil
}

type idempotencyRow struct {
	RequestHash  string
	Claim        int64
	Effect       []byte
	ClaimedUntil time.Time
	ExpiresAt    time.Time
	effect       effect
}

// readKey returns nil if the key is not known.
func (s *DB) readKey(ctx context.Context, key [32]byte) (*idempotencyRow, error) {
	var row idempotencyRow
	read := s.Read(ctx).Raw(`
		SELECT LOWER(HEX(request_hash)) AS request_hash, claim, effect, claimed_until, expires_at
		FROM idempotency_keys
		WHERE key_hash=UNHEX(?)`, HexOf(key)).Scan(&row)
	if read.Error != nil {
		return nil, fmt.Errorf("read idempotency key: %w", read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, nil
	}
	if row.Effect != nil {
		if err := json.Unmarshal(row.Effect, &row.effect); err != nil {
			return nil, fmt.Errorf("read idempotency key: %w", err)
		}
	}
	return &row, nil
}

func (s *DB) forgetKey(ctx context.Context, key [32]byte, now time.Time) error {
	const remove = `
		DELETE FROM idempotency_keys
		WHERE key_hash=UNHEX(?) AND expires_at<=?`
	if _, err := s.Write(ctx, remove, HexOf(key), now); err != nil {
		return fmt.Errorf("forget idempotency key: %w", err)
	}
	return nil
}

// takeOver returns nil if the request that held the lease committed something after all, or another was faster.
func (s *DB) takeOver(
	ctx context.Context, key [32]byte, row *idempotencyRow, hold time.Duration,
) (*RequestLease, error) {
	lease := &RequestLease{key: key, id: newLeaseID(), effect: row.effect}
	taken, err := s.Write(ctx, `
		UPDATE idempotency_keys
		SET claim=?, claimed_until=?
		WHERE key_hash=UNHEX(?) AND claim=?`, lease.id, s.Now().UTC().Add(hold), HexOf(key), row.Claim)
	if err != nil {
		return nil, fmt.Errorf("take over idempotency key: %w", err)
	}
	if taken == 0 {
		return nil, nil
	}
	return lease, nil
}

// FinishRequest records that the request succeeded, unless its transaction did so: because it had none, or only steps.
func (s *DB) FinishRequest(ctx context.Context, lease *RequestLease) error {
	if lease.effect.Done {
		return nil
	}
	ctx = WithRequestLease(ctx, lease)
	if err := s.Transact(ctx, func(*Tx) error { return nil }); err != nil {
		return fmt.Errorf("finish idempotent request: %w", err)
	}
	return nil
}

// ReleaseRequest forgets a request that failed, with the steps of it that are committed, and reports whether it had its
// effect after all: then it is remembered, and can be answered again. A COMMIT whose outcome is unknown holds the row
// until it is decided, and ReleaseRequest waits for it.
func (s *DB) ReleaseRequest(ctx context.Context, lease *RequestLease) (done bool, err error) {
	lease.repeat = true
	if lease.effect.Done {
		return true, nil
	}
	const remove = `
		DELETE FROM idempotency_keys
		WHERE key_hash=UNHEX(?) AND claim=?`
	released, err := s.Write(ctx, remove, HexOf(lease.key), lease.id)
	if err != nil {
		return false, fmt.Errorf("release idempotency key: %w", err)
	}
	if released > 0 {
		return false, nil
	}
	row, err := s.readKey(ctx, lease.key)
	if err != nil || row == nil || row.Claim != lease.id+1 {
		return false, err // another request has it
	}
	lease.id, lease.effect = row.Claim, row.effect
	return lease.effect.Done, nil
}

// PurgeIdempotencyKeys deletes at most limit expired keys and returns how many it deleted.
func (s *DB) PurgeIdempotencyKeys(ctx context.Context, limit int) (int64, error) {
	const remove = `
		DELETE FROM idempotency_keys
		WHERE expires_at<=?
		ORDER BY expires_at
		LIMIT ?`
	purged, err := s.Write(ctx, remove, s.Now().UTC(), limit)
	if err != nil {
		return 0, fmt.Errorf("purge idempotency keys: %w", err)
	}
	return purged, nil
}
