package models

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"
)

// An Idempotency-Key is a row that goes through these states:
//
//	claimed   a request works on it, until claimed_until
//	effected  what the request created is committed, and named in the row by the same transaction
//	answered  the answer is stored, sealed
//
// A request that dies leaves its row claimed or effected. Who repeats an effected request is answered from what was
// created. A claimed one is taken over after claimed_until, by drawing another claim: a late commit of the request
// that was given up then finds that the claim is not its own and is rolled back. So the effect happens once, however
// slow or dead a process is and whatever became of its COMMIT.

// ResourceKind is what a request created, for the answer to its repetition.
type ResourceKind string

// The kinds of resources.
const (
	ResourcePost      ResourceKind = "post"
	ResourceComment   ResourceKind = "comment"
	ResourceUser      ResourceKind = "user"
	ResourceToken     ResourceKind = "token"     // an API token; its id is the first 64 bits of its hash
	ResourceOperation ResourceKind = "operation" // a ContentOperation
)

// IdempotencyLife is how long a key is remembered.
const IdempotencyLife = 24 * time.Hour

// IdempotentRequest identifies a request that has an Idempotency-Key.
type IdempotentRequest struct {
	Key  [32]byte // hash of the key and of who sent it
	Body [32]byte // hash of everything that a repetition has to have in common
}

// Claim is the right to carry an idempotent request out.
type Claim struct {
	key [32]byte
	id  int64
}

// Outcome is what became of an idempotent request that was sent before: it has an Answer, or a Resource and no Answer,
// because its process died in between.
type Outcome struct {
	Answer     []byte // as it was given to StoreAnswer
	Resource   ResourceKind
	ResourceID int64
}

// The errors of ClaimRequest that a client can act on are these and CodeUnavailable.
var (
	// ErrKeyReused: the key was sent with another request.
	ErrKeyReused = &Error{Code: CodeInvalid, Message: "The Idempotency-Key was sent before, with another request.",
		Fields: []FieldError{{"Idempotency-Key", "belongs to another request"}}}
	// ErrKeyInUse: the request is being carried out.
	ErrKeyInUse = &Error{Code: CodeConflict, Message: "The request with this Idempotency-Key is still being carried out.",
		Fields: []FieldError{{"Idempotency-Key", "is in use"}}}
)

type claimKey struct{}

// WithClaim makes what is created under the context belong to the claim.
func WithClaim(ctx context.Context, claim *Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, claim)
}

// ClaimRequest gives the right to carry the request out, for as long as hold, or else the outcome that it has already.
// ErrKeyReused, ErrKeyInUse.
func (s *Store) ClaimRequest(ctx context.Context, r IdempotentRequest, hold time.Duration) (*Claim, *Outcome, error) {
	for range maxAttempts {
		claim, err := s.insertClaim(ctx, r, hold)
		if claim != nil || err != nil {
			return claim, nil, err
		}
		row, err := s.readKey(ctx, r.Key)
		if err != nil {
			return nil, nil, err
		}
		now := s.now().UTC()
		switch {
		case row == nil: // it was given back meanwhile
			continue
		case !now.Before(row.ExpiresAt):
			if err := s.forgetKey(ctx, r.Key, now); err != nil {
				return nil, nil, err
			}
			continue
		case row.RequestHash != hexOf(r.Body):
			return nil, nil, ErrKeyReused
		case row.Answer != nil || row.ResourceID != 0:
			return nil, &Outcome{row.Answer, row.ResourceKind, row.ResourceID}, nil
		case now.Before(row.ClaimedUntil):
			return nil, nil, ErrKeyInUse
		}
		claim, err = s.takeOver(ctx, r.Key, row.Claim, hold)
		if claim != nil || err != nil {
			return claim, nil, err
		}
	}
	return nil, nil, ErrKeyInUse
}

// insertClaim gives nil when the key is known.
func (s *Store) insertClaim(ctx context.Context, r IdempotentRequest, hold time.Duration) (*Claim, error) {
	claim, now := &Claim{r.Key, rand.Int64()}, s.now().UTC()
	_, err := s.write(ctx, "INSERT INTO idempotency_keys (key_hash, request_hash, claim, claimed_until, expires_at)"+
		" VALUES (UNHEX(?),UNHEX(?),?,?,?)", hexOf(r.Key), hexOf(r.Body), claim.id, now.Add(hold), now.Add(IdempotencyLife))
	switch {
	case mysqlCode(err) == errDuplicateKey:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("claim idempotency key: %w", err)
	}
	return claim, nil
}

type idempotencyRow struct {
	RequestHash  string
	Claim        int64
	ResourceKind ResourceKind
	ResourceID   int64
	Answer       []byte
	ClaimedUntil time.Time
	ExpiresAt    time.Time
}

// readKey gives nil when the key is not known.
func (s *Store) readKey(ctx context.Context, key [32]byte) (*idempotencyRow, error) {
	var row idempotencyRow
	read := s.db.WithContext(ctx).Raw("SELECT LOWER(HEX(request_hash)) AS request_hash, claim, COALESCE(resource_kind,'') AS resource_kind,"+
		" COALESCE(resource_id,0) AS resource_id, answer, claimed_until, expires_at FROM idempotency_keys WHERE key_hash=UNHEX(?)", hexOf(key)).Scan(&row)
	if read.Error != nil {
		return nil, fmt.Errorf("read idempotency key: %w", read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, nil
	}
	return &row, nil
}

func (s *Store) forgetKey(ctx context.Context, key [32]byte, now time.Time) error {
	_, err := s.write(ctx, "DELETE FROM idempotency_keys WHERE key_hash=UNHEX(?) AND expires_at<=?", hexOf(key), now)
	if err != nil {
		return fmt.Errorf("forget idempotency key: %w", err)
	}
	return nil
}

// takeOver gives nil when the request that held the claim came to its end after all, or another was faster.
func (s *Store) takeOver(ctx context.Context, key [32]byte, from int64, hold time.Duration) (*Claim, error) {
	claim := &Claim{key, rand.Int64()}
	taken, err := s.write(ctx, "UPDATE idempotency_keys SET claim=?, claimed_until=? WHERE key_hash=UNHEX(?) AND claim=?"+
		" AND resource_id IS NULL AND answer IS NULL", claim.id, s.now().UTC().Add(hold), hexOf(key), from)
	if err != nil {
		return nil, fmt.Errorf("take over idempotency key: %w", err)
	}
	if taken == 0 {
		return nil, nil
	}
	return claim, nil
}

// recordOnce is called by the transaction that creates a resource. If it does so for an idempotent request, the
// transaction also names the resource in the row of the key, so that both are committed or none is. CodeConflict when
// the claim was taken over: the transaction must be rolled back.
func recordOnce(tx *gorm.DB, kind ResourceKind, id int64) error {
	claim, ok := tx.Statement.Context.Value(claimKey{}).(*Claim)
	if !ok {
		return nil
	}
	update := tx.Exec("UPDATE idempotency_keys SET resource_kind=?, resource_id=? WHERE key_hash=UNHEX(?) AND claim=? AND resource_id IS NULL",
		kind, id, hexOf(claim.key), claim.id)
	if update.Error == nil && update.RowsAffected == 0 {
		return ErrKeyInUse
	}
	return update.Error
}

// StoreAnswer keeps the answer of the request that the claim is for, unless it has one.
func (s *Store) StoreAnswer(ctx context.Context, claim *Claim, answer []byte) error {
	_, err := s.write(ctx, "UPDATE idempotency_keys SET answer=UNHEX(?) WHERE key_hash=UNHEX(?) AND claim=? AND answer IS NULL",
		hex.EncodeToString(answer), hexOf(claim.key), claim.id)
	if err != nil {
		return fmt.Errorf("store answer: %w", err)
	}
	return nil
}

// ReleaseClaim gives the key back, unless the request had an effect after all: then it gives the outcome. A COMMIT
// whose outcome is unknown holds the row until it is decided, and this waits for it.
func (s *Store) ReleaseClaim(ctx context.Context, claim *Claim) (*Outcome, error) {
	released, err := s.write(ctx, "DELETE FROM idempotency_keys WHERE key_hash=UNHEX(?) AND claim=? AND resource_id IS NULL AND answer IS NULL",
		hexOf(claim.key), claim.id)
	if err != nil {
		return nil, fmt.Errorf("release idempotency key: %w", err)
	}
	if released > 0 {
		return nil, nil
	}
	row, err := s.readKey(ctx, claim.key)
	if err != nil || row == nil || row.Claim != claim.id || row.ResourceID == 0 {
		return nil, err
	}
	return &Outcome{row.Answer, row.ResourceKind, row.ResourceID}, nil
}

// PurgeIdempotencyKeys deletes at most limit expired keys and says how many it deleted.
func (s *Store) PurgeIdempotencyKeys(ctx context.Context, limit int) (int64, error) {
	purged, err := s.write(ctx, "DELETE FROM idempotency_keys WHERE expires_at<=? ORDER BY expires_at LIMIT ?", s.now().UTC(), limit)
	if err != nil {
		return 0, fmt.Errorf("purge idempotency keys: %w", err)
	}
	return purged, nil
}
