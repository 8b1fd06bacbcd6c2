package db

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"likewise/models"
)

// A deleted account leaves a row in held_names for its username, for good. A banned one leaves one for its e-mail
// address, too, until the ban ends. They are hashes with a key of the installation, so the deleted names cannot be read
// from them.

// errNotBanned is the error of DeleteBannedUser and DeleteBanned for other users.
var errNotBanned = models.Errorf(models.CodeConflict,
	"The user is not banned. Only the account of a banned user can be deleted by others.")

// DeleteBannedUser deletes the account of a banned user for an admin, as DeleteUser does. The ban stays in force: until
// it ends, nobody can register with the username or the e-mail address. It returns the hashes of the sessions that
// ended. The errors are those of ChangeRole; CodeConflict: the user is not banned.
func (s *DB) DeleteBannedUser(
	ctx context.Context, actor, userID int64, reason string,
) (ended [][32]byte, err error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	err = s.Transact(ctx, func(tx *Tx) error {
		found, err := lockStandings(tx, actor, userID)
		if err != nil {
			return err
		}
		admin, user := found[actor], found[userID]
		if err := requireRole(tx, admin, models.RoleAdmin); err != nil {
			return err
		}
		if user == nil {
			return errNoUser()
		}
		if err := models.Outranks(actor, admin.Role, userID, user.Role); err != nil {
			return err
		}
		ended, err = deleteBanned(tx, actor, user, reason)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delete banned user %d: %w", userID, err)
	}
	return ended, nil
}

// DeleteBanned is DeleteBannedUser as a command of the operator: the moderation log records it without an actor. It
// returns the ban that stays in force. CodeInvalid: the reason breaks a rule. CodeNotFound: the user does not exist.
// CodeConflict: the user is not banned.
func (s *DB) DeleteBanned(ctx context.Context, userID int64, reason string) (ban *models.Ban, err error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	err = s.Transact(ctx, func(tx *Tx) error {
		found, err := lockStandings(tx, userID)
		if err != nil {
			return err
		}
		user := found[userID]
		if user == nil {
			return errNoUser()
		}
		ban = user.ban(tx.Now)
		_, err = deleteBanned(tx, 0, user, reason)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delete banned user %d: %w", userID, err)
	}
	return ban, nil
}

// deleteBanned deletes the account of a user that the transaction has locked, and logs it as an act of the actor.
func deleteBanned(tx *Tx, actor int64, user *standing, reason string) (ended [][32]byte, err error) {
	ban := user.ban(tx.Now)
	if ban == nil {
		return nil, errNotBanned
	}
	const read = `
		SELECT email
		FROM users
		WHERE id=?`
	const hold = `
		INSERT INTO held_names (name_hash, held_until)
		VALUES (UNHEX(?),?), (UNHEX(?),?)
		ON DUPLICATE KEY UPDATE held_until=GREATEST(held_until,VALUES(held_until))`
	var email string
	if err := tx.Raw(read, user.ID).Scan(&email).Error; err != nil {
		return nil, err
	}
	hashes := []string{hexOf(heldHash(tx, "username", user.Username)), hexOf(heldHash(tx, "email", email))}
	slices.Sort(hashes)
	if err := tx.Exec(hold, hashes[0], ban.Until, hashes[1], ban.Until).Error; err != nil {
		return nil, fmt.Errorf("hold names: %w", err)
	}
	if ended, err = emptyAccount(tx, user.ID); err != nil {
		return nil, err
	}
	return ended, logModeration(tx, moderationAct{
		ActorID: actor, Action: "user.delete", TargetType: "user", TargetID: user.ID, Reason: reason,
		Before: banState(ban),
	})
}

// heldForever is the end of the hold of a deleted username, which no clock reaches.
var heldForever = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// holdUsername holds the username of an account that the transaction deletes, for good: mentions of it in old texts
// must not lead to somebody else.
func holdUsername(tx *Tx, userID int64) error {
	const read = `
		SELECT username
		FROM users
		WHERE id=?`
	const hold = `
		INSERT INTO held_names (name_hash, held_until)
		VALUES (UNHEX(?),?)
		ON DUPLICATE KEY UPDATE held_until=VALUES(held_until)`
	var username string
	if err := tx.Raw(read, userID).Scan(&username).Error; err != nil {
		return err
	}
	if err := tx.Exec(hold, hexOf(heldHash(tx, "username", username)), heldForever).Error; err != nil {
		return fmt.Errorf("hold username: %w", err)
	}
	return nil
}

// heldHash returns the key of a username or an e-mail address in held_names. Names that differ only in case have the
// same key.
func heldHash(tx *Tx, field, name string) [32]byte {
	h := hmac.New(sha256.New, tx.store.cursorKey)
	fmt.Fprintf(h, "held %s %s", field, models.NormalizeLogin(name))
	return [32]byte(h.Sum(nil))
}

// notHeld returns CodeConflict if a deleted account, or its ban, holds the username or the e-mail address of u.
func notHeld(tx *Tx, u *models.User) error {
	const read = `
		SELECT held_until
		FROM held_names
		WHERE name_hash=UNHEX(?)`
	for _, f := range []struct{ field, name string }{{"username", u.Username}, {"email", u.Email}} {
		var until *time.Time
		if err := tx.Raw(read, hexOf(heldHash(tx, f.field, f.name))).Scan(&until).Error; err != nil {
			return fmt.Errorf("read held names: %w", err)
		}
		if until != nil && until.After(tx.Now) {
			return errTaken(f.field)
		}
	}
	return nil
}

// PurgeHeldNames deletes at most limit rows of bans that have ended and returns how many it deleted.
func (s *DB) PurgeHeldNames(ctx context.Context, limit int) (int64, error) {
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
