package accounts

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// heldForever is the end of the hold of a deleted username, which no clock reaches.
var heldForever = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// HoldUsernames holds the username of an account that the transaction deletes, and its former ones, for good: mentions
// of them in old texts must not lead to somebody else.
func HoldUsernames(tx *db.Tx, userID int64) error {
	const read = `
		SELECT username
		FROM users
		WHERE id=?
		UNION
		SELECT username
		FROM former_usernames
		WHERE user_id=?`
	const forget = `
		DELETE FROM former_usernames
		WHERE user_id=?`
	const hold = `
		INSERT INTO held_names (name_hash, held_until)
		VALUES (UNHEX(?),?)
		ON DUPLICATE KEY UPDATE held_until=VALUES(held_until)`
	var names []string
	if err := tx.Raw(read, userID, userID).Scan(&names).Error; err != nil {
		return err
	}
	for _, name := range names {
		if err := tx.Exec(hold, db.HexOf(HeldHash(tx, "username", name)), heldForever).Error; err != nil {
			return fmt.Errorf("hold username: %w", err)
		}
	}
	return tx.Exec(forget, userID).Error
}

// HeldHash returns the key of a username or an e-mail address in held_names. Names that differ only in case have the
// same key.
func HeldHash(tx *db.Tx, field, name string) [32]byte {
	h := hmac.New(sha256.New, tx.CursorKey())
	fmt.Fprintf(h, "held %s %s", field, models.NormalizeLogin(name))
	return [32]byte(h.Sum(nil))
}

// notHeld returns CodeConflict if a deleted account, or its ban, holds the name: a username or an e-mail address.
func notHeld(tx *db.Tx, field, name string) error {
	const read = `
		SELECT held_until
		FROM held_names
		WHERE name_hash=UNHEX(?)`
	var until *time.Time
	if err := tx.Raw(read, db.HexOf(HeldHash(tx, field, name))).Scan(&until).Error; err != nil {
		return fmt.Errorf("read held names: %w", err)
	}
	if until != nil && until.After(tx.Now) {
		return errTaken(field)
	}
	return nil
}

// PurgeHeldNames deletes at most limit rows of bans that have ended and returns how many it deleted.
func (s *Store) PurgeHeldNames(ctx context.Context, limit int) (int64, error) {
	const remove = `
		DELETE FROM held_names
		WHERE held_until<=?
		ORDER BY held_until
		LIMIT ?`
	purged, err := s.Write(ctx, remove, s.Now().UTC(), limit)
	if err != nil {
		return 0, fmt.Errorf("purge held names: %w", err)
	}
	return purged, nil
}

// FreeUsername returns CodeConflict, with the field, if an account has or had the username.
func (s *Store) FreeUsername(ctx context.Context, username string) error {
	const count = `
		SELECT COUNT(*)
		FROM users
		WHERE username=?`
	err := s.Transact(db.Aside(ctx), func(tx *db.Tx) error {
		var taken int
		if err := tx.Raw(count, username).Scan(&taken).Error; err != nil {
			return err
		}
		if taken > 0 {
			return errTaken("username")
		}
		return usernameFree(tx, 0, username)
	})
	if err != nil {
		return fmt.Errorf("check username: %w", err)
	}
	return nil
}
