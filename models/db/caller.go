package db

import (
	"context"
	"fmt"

	"likewise/models"
)

// Caller is the sender of the request that a transaction belongs to.
type Caller struct {
	UserID    int64    // 0 for the anonymous
	Session   [32]byte // hash of the token, unless UserID is 0
	Address   string   // IP address; "" if it is not known
	UserAgent string   // header of the request
	RequestID string   // "" if the request has none
}

type callerKey struct{}

// WithCaller returns a context whose transactions belong to a caller. If by then the caller's session has ended, or the
// account is banned or was deleted, such a transaction returns CodeUnauthorized, even while the session is cached. With
// a nil caller, transactions belong to nobody and are not checked.
func WithCaller(ctx context.Context, caller *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// callerOf returns the caller of the context; nil if there is none.
func callerOf(ctx context.Context) *Caller {
	caller, _ := ctx.Value(callerKey{}).(*Caller)
	return caller
}

// admitCaller checks the caller's session and account as they are now (see WithCaller). It locks nothing, so a ban that
// is committed between this check and the COMMIT takes effect after the transaction.
func admitCaller(tx *Tx) error {
	caller := tx.caller
	if caller == nil || caller.UserID == 0 {
		return nil
	}
	const query = `
		SELECT COUNT(*)
		FROM sessions s
		JOIN users u ON u.id=s.user_id
		WHERE s.token_hash=UNHEX(?) AND s.user_id=? AND s.expires_at>?
			AND u.deleted_at IS NULL AND (u.banned_until IS NULL OR u.banned_until<=?)`
	var sessions int
	err := tx.Raw(query, HexOf(caller.Session), caller.UserID, tx.Now, tx.Now).Scan(&sessions).Error
	if err != nil {
		return fmt.Errorf("check session: %w", err)
	}
	if sessions == 0 {
		return models.Errorf(models.CodeUnauthorized, "The token is not valid.")
	}
	return nil
}
