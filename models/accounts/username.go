package accounts

import (
	"context"
	"fmt"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// A username that its account has given up is kept in former_usernames. It leads to the account, as mentions in old
// texts must, and only that account can have it again.

// ChangeUsername replaces the name of a user. The caller has validated the new one. The name that the user has already
// changes nothing.
//
// CodeConflict, with the field: another account has or had the name, or a ban holds it; or the user has changed the
// name within models.UsernameLife. A change of case alone does not begin that time anew.
func (s *Store) ChangeUsername(ctx context.Context, userID int64, name string) error {
	const rename = `
		UPDATE users
		SET username=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		found, err := LockStandings(tx, userID)
		if err != nil {
			return err
		}
		user := found[userID]
		if user == nil {
			return ErrNoUser()
		}
		if user.Username == name {
			return nil
		}
		if err := mayRename(tx, userID); err != nil {
			return err
		}
		if err := tx.Exec(rename, name, userID).Error; err != nil {
			return err
		}
		if !strings.EqualFold(user.Username, name) {
			if err := exchangeUsernames(tx, userID, user.Username, name); err != nil {
				return err
			}
		}
		if err := SessionsChanged(tx, userID); err != nil { // which hold the name
			return err
		}
		if err := notify(tx, userID, eventUsername); err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventUsername, UserID: userID})
	})
	if models.MySQLCode(err) == db.DuplicateKey {
		return errTaken("username")
	}
	if err != nil {
		return fmt.Errorf("change username of user %d: %w", userID, err)
	}
	return nil
}

// mayRename returns CodeConflict if the user has changed the name within UsernameLife.
func mayRename(tx *db.Tx, userID int64) error {
	const read = `
		SELECT changed_at
		FROM former_usernames
		WHERE user_id=?
		ORDER BY id DESC
		LIMIT 1`
	var last *time.Time
	if err := tx.Raw(read, userID).Scan(&last).Error; err != nil || last == nil {
		return err
	}
	next := last.UTC().Add(models.UsernameLife)
	if !tx.Now.Before(next) {
		return nil
	}
	return &models.Error{Code: models.CodeConflict, Message: "A username can be changed once in 30 days.",
		Fields: []models.FieldError{models.TooSoon(next).In("username")}}
}

// exchangeUsernames reserves the name that a user has given up, and ends the reservation of the new one if it is
// theirs.
// CodeConflict: the new name is held or reserved for somebody else.
func exchangeUsernames(tx *db.Tx, userID int64, given, taken string) error {
	const release = `
		DELETE FROM former_usernames
		WHERE username=? AND user_id=?`
	const reserve = `
		INSERT INTO former_usernames (user_id, username, changed_at)
		VALUES (?,?,?)`
	if err := usernameFree(tx, userID, taken); err != nil {
		return err
	}
	if err := tx.Exec(release, taken, userID).Error; err != nil {
		return err
	}
	return tx.Exec(reserve, userID, given, models.WholeSeconds(tx.Now)).Error
}

// usernameFree returns CodeConflict if the name is held (see HoldUsernames), or is the former name of a user other than
// userID, which is 0 for an account that does not exist yet.
func usernameFree(tx *db.Tx, userID int64, name string) error {
	if err := notHeld(tx, "username", name); err != nil {
		return err
	}
	return NotFormer(tx, userID, name)
}

// NotFormer returns CodeConflict if the name is the former name of a user other than userID.
func NotFormer(tx *db.Tx, userID int64, name string) error {
	const read = `
		SELECT COUNT(*)
		FROM former_usernames
		WHERE username=? AND user_id<>?`
	var others int
	if err := tx.Raw(read, name, userID).Scan(&others).Error; err != nil {
		return fmt.Errorf("read former usernames: %w", err)
	}
	if others > 0 {
		return errTaken("username")
	}
	return nil
}

// PresentUsername returns the present name of the user who had a name, without regard to case. CodeNotFound: nobody had
// it, or the account was deleted.
func (s *Store) PresentUsername(ctx context.Context, former string) (string, error) {
	const read = `
		SELECT f.username AS former, u.username AS present
		FROM former_usernames f
		JOIN users u ON u.id=f.user_id AND u.deleted_at IS NULL
		WHERE f.username=?`
	var found struct{ Former, Present string }
	query := s.Read(ctx).Raw(read, former).Scan(&found)
	if query.Error != nil {
		return "", fmt.Errorf("read former usernames: %w", query.Error)
	}
	if query.RowsAffected == 0 || !strings.EqualFold(found.Former, former) { // as in UserByLogin
		return "", ErrNoUser()
	}
	return found.Present, nil
}

// PresentUsernames returns the present names of the users who had one of the names.
func PresentUsernames(tx *db.Tx, former []string) ([]string, error) {
	const read = `
		SELECT u.username
		FROM former_usernames f
		JOIN users u ON u.id=f.user_id
		WHERE f.username IN ?`
	var names []string
	if err := tx.Raw(read, former).Scan(&names).Error; err != nil {
		return nil, fmt.Errorf("read former usernames: %w", err)
	}
	return names, nil
}

// FormerUsernames returns the latest names that a user gave up, latest first; never nil.
func (s *Store) FormerUsernames(ctx context.Context, userID int64) ([]string, error) {
	const read = `
		SELECT username
		FROM former_usernames
		WHERE user_id=?
		ORDER BY id DESC
		LIMIT 100`
	names := []string{}
	if err := s.Read(ctx).Raw(read, userID).Scan(&names).Error; err != nil {
		return nil, fmt.Errorf("read former usernames of user %d: %w", userID, err)
	}
	return names, nil
}
