package models

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// Caller is who sent the request that a transaction is part of.
type Caller struct {
	UserID    int64    // 0: nobody is signed in
	Session   [32]byte // hash of the token, unless UserID is 0
	Address   string   // IP address; "" if it is not known
	UserAgent string   // what the client called itself
}

type callerKey struct{}

// WithCaller makes transactions under the context those of a caller: each of them ends with CodeUnauthorized if by then the
// caller's session has ended, or the account is banned or was deleted, whatever a cached session says. A nil caller makes
// them nobody's, and not held to anything.
func WithCaller(ctx context.Context, caller *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// callerOf returns the caller of the context; nil if there is none.
func callerOf(ctx context.Context) *Caller {
	caller, _ := ctx.Value(callerKey{}).(*Caller)
	return caller
}

// admitCaller holds the caller of a transaction to their session and account as they are now (see WithCaller). It locks
// nothing, so a ban that is committed between this and the COMMIT comes after the transaction.
func (s *Store) admitCaller(tx *gorm.DB) error {
	caller := callerOf(tx.Statement.Context)
	if caller == nil || caller.UserID == 0 {
		return nil
	}
	var there int
	now := s.now().UTC()
	err := tx.Raw(`
		SELECT COUNT(*)
		FROM sessions s
		JOIN users u ON u.id=s.user_id
		WHERE s.token_hash=UNHEX(?) AND s.user_id=? AND s.expires_at>?
			AND u.deleted_at IS NULL AND (u.banned_until IS NULL OR u.banned_until<=?)`,
		hexOf(caller.Session), caller.UserID, now, now).Scan(&there).Error
	if err != nil {
		return fmt.Errorf("check session: %w", err)
	}
	if there == 0 {
		return Errorf(CodeUnauthorized, "The token is not valid.")
	}
	return nil
}
