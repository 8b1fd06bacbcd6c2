package accounts

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

// A link can be used once. Its mail is written by the transaction that causes it, and the link itself when the mail is
// first sent, so that the processes that answer requests need no key. A newer link of the same kind replaces an older
// one, and a change of the password, the address or the factors of an account ends all its links.
//
// A link that undoes a change of address is an exception. Otherwise somebody who has taken over an account could change
// the address twice, or the password after it, and the owner could not undo it.

// linkMail makes the link of a mail, or finds the one that an earlier attempt made. It reports whether the link can
// still be used: the reader of a mail whose server hung up may have used it already. The account is locked.
func linkMail(tx *db.Tx, d dueMail, m *models.Mail, key []byte) (usable bool, err error) {
	const insert = `
		INSERT INTO account_links (token_hash, mail_id, kind, user_id, registration_id, address, created_at, expires_at)
		VALUES (UNHEX(?),?,?,NULLIF(?,0),NULLIF(?,0),?,?,?)`
	const note = `
		UPDATE mails
		SET linked_at=?, user_id=NULLIF(?,0)
		WHERE id=?`
	const read = `
		SELECT expires_at
		FROM account_links
		WHERE token_hash=UNHEX(?) AND ended_at IS NULL AND expires_at>?`
	token, hash := models.LinkToken(key, m.ID)
	m.Token = token
	now := models.WholeSeconds(tx.Now)
	if d.LinkedAt != nil {
		found := tx.Raw(read, db.HexOf(hash), now).Scan(&m.Expires)
		return found.RowsAffected > 0, found.Error
	}
	m.Expires = now.Add(m.Kind.LinkLife())
	if d.UserID != 0 && m.Kind != models.MailEmailChanged {
		if err := endLinks(tx, d.UserID, db.Matching("kind=?", m.Kind)); err != nil {
			return false, err
		}
	}
	err = tx.Exec(insert, db.HexOf(hash), m.ID, m.Kind, d.UserID, d.RegistrationID, d.Address, now, m.Expires).Error
	if err != nil {
		return false, err
	}
	return true, tx.Exec(note, tx.Now, d.UserID, m.ID).Error
}

// endLinks ends those links of a user that meet the conditions. The caller holds the lock of the user.
func endLinks(tx *db.Tx, userID int64, which db.Conditions) error {
	where := which.Clone()
	where.Add("user_id=? AND ended_at IS NULL", userID)
	update := `
		UPDATE account_links FORCE INDEX (idx_user_id)
		SET ended_at=?
		` + where.Clause()
	return tx.Exec(update, append([]any{models.WholeSeconds(tx.Now)}, where.Args...)...).Error
}

// endAllLinks ends the links of a user whose password, address or factors change, but for those that undo a change of
// address, and drops the mails that would make more of them.
// The caller holds the lock of the user.
func endAllLinks(tx *db.Tx, userID int64, email string) error {
	const drop = `
		UPDATE mails FORCE INDEX (idx_address)
		SET due_at=NULL, outcome=?
		WHERE address=? AND kind=? AND due_at IS NOT NULL`
	if err := endLinks(tx, userID, db.Matching("kind<>?", models.MailEmailChanged)); err != nil {
		return err
	}
	return tx.Exec(drop, mailDropped, email, models.MailPasswordReset).Error
}

// endLinksOf is endAllLinks for a user whose address the transaction has not read.
func endLinksOf(tx *db.Tx, userID int64) error {
	const read = `
		SELECT email
		FROM users
		WHERE id=?`
	var email string
	if err := tx.Raw(read, userID).Scan(&email).Error; err != nil {
		return err
	}
	return endAllLinks(tx, userID, email)
}

// ErrBadLink returns the error of a link that cannot be used.
func ErrBadLink() *models.Error {
	return models.Errorf(models.CodeBadLink,
		"The link cannot be used: it has expired, was used already, or a newer one replaces it. Ask for a new one.")
}

// link is a link that was found by its token.
type link struct {
	MailID         int64
	Kind           models.MailKind
	UserID         int64
	RegistrationID int64
	Address        string
}

// findLink returns the link with this token, if it is of one of the kinds and can be used. The caller consumes it in
// the transaction of the change. CodeBadLink: there is none.
func findLink(tx *db.Tx, token string, kinds ...models.MailKind) (*link, error) {
	const read = `
		SELECT mail_id, kind, COALESCE(user_id,0) AS user_id, COALESCE(registration_id,0) AS registration_id, address
		FROM account_links
		WHERE token_hash=UNHEX(?) AND kind IN ? AND ended_at IS NULL AND expires_at>?`
	var l link
	found := tx.Raw(read, db.HexOf(models.HashToken(token)), kinds, tx.Now).Scan(&l)
	if found.Error != nil {
		return nil, found.Error
	}
	if found.RowsAffected == 0 {
		return nil, ErrBadLink()
	}
	return &l, nil
}

// consume ends a link. Of several transactions that have found it, one succeeds. The caller holds the lock of the user.
func consume(tx *db.Tx, token string) error {
	const update = `
		UPDATE account_links
		SET ended_at=?
		WHERE token_hash=UNHEX(?) AND ended_at IS NULL AND expires_at>?`
	ended := tx.Exec(update, models.WholeSeconds(tx.Now), db.HexOf(models.HashToken(token)), tx.Now)
	if ended.Error == nil && ended.RowsAffected == 0 {
		return ErrBadLink()
	}
	return ended.Error
}

// RequestReset queues the mail with which the owner of an address can set a new password. It looks nothing up, so that
// neither its time nor its statements depend on whether there is such an account: the mailer finds out.
func (s *Store) RequestReset(ctx context.Context, email string) error {
	err := s.Transact(ctx, func(tx *db.Tx) error {
		return queueMail(tx, mailRow{kind: models.MailPasswordReset, address: email})
	})
	if err != nil {
		return fmt.Errorf("request a reset: %w", err)
	}
	return nil
}

// UserOfReset returns the account whose password the token resets. CodeBadLink: the link cannot be used.
func (s *Store) UserOfReset(ctx context.Context, token string) (*models.User, error) {
	var l *link
	err := s.Transact(db.Aside(ctx), func(tx *db.Tx) (err error) { // the effect of the request comes later
		l, err = findLink(tx, token, models.MailPasswordReset)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read link: %w", err)
	}
	user, err := s.UserByID(ctx, l.UserID)
	if models.ErrorCode(err) == models.CodeNotFound {
		return nil, ErrBadLink()
	}
	return user, err
}

// ResetPassword sets the hash of a new password by a link, and ends all sessions and API tokens of the account. The
// link shows that the address is the user's, so it counts as verified. It returns the hashes of the ended sessions.
// CodeBadLink: the link cannot be used.
func (s *Store) ResetPassword(ctx context.Context, token, hash string) (ended [][32]byte, err error) {
	const update = `
		UPDATE users
		SET password_hash=?, email_verified_at=COALESCE(email_verified_at,?), pending_email=NULLIF(pending_email,email)
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		l, err := findLink(tx, token, models.MailPasswordReset)
		if err != nil {
			return err
		}
		user, err := lockAddress(tx, l.UserID)
		if err != nil {
			return err
		}
		if user == nil || !sameAddress(user.Email, l.Address) {
			return ErrBadLink()
		}
		if err := consume(tx, token); err != nil {
			return err
		}
		if err := tx.Exec(update, hash, models.WholeSeconds(tx.Now), l.UserID).Error; err != nil {
			return err
		}
		if ended, err = EndSessions(tx, l.UserID, db.Conditions{}); err != nil {
			return err
		}
		return passwordChanged(tx, l.UserID, user.Email, eventPasswordReset)
	})
	if err != nil {
		return nil, fmt.Errorf("reset password: %w", err)
	}
	return ended, nil
}

// passwordChanged ends the links of an account whose password has changed, sends a notice, and writes the security log.
func passwordChanged(tx *db.Tx, userID int64, email, event string) error {
	if err := endAllLinks(tx, userID, email); err != nil {
		return err
	}
	err := queueMail(tx, mailRow{kind: models.MailPasswordChanged, userID: userID, address: email})
	if err != nil {
		return err
	}
	return LogSecurity(tx, SecurityEvent{Kind: event, UserID: userID})
}

// RequestEmail makes an address wait for its confirmation, and queues the mail with the link. The account keeps the
// address that it has until then. Whether another account has the address is found out by the mailer alone. It is a
// mail to the present address if that is to be verified.
func (s *Store) RequestEmail(ctx context.Context, userID int64, email string) error {
	const update = `
		UPDATE users
		SET pending_email=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		user, err := lockAddress(tx, userID)
		if err != nil {
			return err
		}
		if user == nil {
			return ErrNoUser()
		}
		if err := tx.Exec(update, email, userID).Error; err != nil {
			return err
		}
		if err := endLinks(tx, userID, db.Matching("kind=?", models.MailEmailConfirm)); err != nil {
			return err
		}
		err = queueMail(tx, mailRow{kind: models.MailEmailConfirm, userID: userID, address: email})
		if err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventEmailRequested, UserID: userID})
	})
	if err != nil {
		return fmt.Errorf("request an address for user %d: %w", userID, err)
	}
	return nil
}

// RequestRegistration keeps a registration until its address is confirmed, and queues the mail. It looks nothing up and
// reserves nothing, so that nobody learns from it who is registered.
func (s *Store) RequestRegistration(ctx context.Context, u *models.User) error {
	const insert = `
		INSERT INTO registrations (username, email, password_hash, created_at)
		VALUES (?,?,?,?)`
	const last = "SELECT LAST_INSERT_ID()"
	err := s.Transact(ctx, func(tx *db.Tx) error {
		err := tx.Exec(insert, u.Username, u.Email, u.PasswordHash, models.WholeSeconds(tx.Now)).Error
		if err != nil {
			return err
		}
		var id int64
		if err := tx.Raw(last).Scan(&id).Error; err != nil {
			return err
		}
		return queueMail(tx, mailRow{kind: models.MailRegistration, registrationID: id, address: u.Email})
	})
	if err != nil {
		return fmt.Errorf("request a registration: %w", err)
	}
	return nil
}

// ConfirmEmail confirms exactly the address that the link was sent to: of an account, which has it from then on, or of
// a registration, which becomes an account. CodeBadLink: the link cannot be used. CodeConflict, with the field: the
// address, or the name of a registration, was taken meanwhile.
func (s *Store) ConfirmEmail(ctx context.Context, token string) error {
	var created *models.User
	err := s.Transact(ctx, func(tx *db.Tx) error {
		created = nil
		l, err := findLink(tx, token, models.MailEmailConfirm, models.MailRegistration)
		if err != nil {
			return err
		}
		if l.Kind == models.MailRegistration {
			created = &models.User{}
			return confirmRegistration(tx, token, l, created)
		}
		return confirmAddress(tx, token, l)
	})
	if models.MySQLCode(err) == db.DuplicateKey {
		if created != nil {
			return s.takenField(ctx, created)
		}
		return errTaken("email")
	}
	if err != nil {
		return fmt.Errorf("confirm address: %w", err)
	}
	return nil
}

func confirmRegistration(tx *db.Tx, token string, l *link, u *models.User) error {
	const read = `
		SELECT username, email, password_hash
		FROM registrations
		WHERE id=?`
	const remove = `
		DELETE FROM registrations
		WHERE id=?`
	found := tx.Raw(read, l.RegistrationID).Scan(u)
	if found.Error != nil {
		return found.Error
	}
	if found.RowsAffected == 0 {
		return ErrBadLink()
	}
	u.EmailVerifiedAt = new(models.WholeSeconds(tx.Now))
	if err := createUser(tx, u); err != nil {
		return err
	}
	if err := consume(tx, token); err != nil {
		return err
	}
	if err := tx.Exec(remove, l.RegistrationID).Error; err != nil {
		return err
	}
	return LogSecurity(tx, SecurityEvent{Kind: eventAccountCreated, UserID: u.ID})
}

func confirmAddress(tx *db.Tx, token string, l *link) error {
	const update = `
		UPDATE users
		SET email=?, email_verified_at=?, email_undeliverable=FALSE, pending_email=NULL
		WHERE id=?`
	user, err := lockAddress(tx, l.UserID)
	if err != nil {
		return err
	}
	if user == nil || !sameAddress(user.PendingEmail, l.Address) {
		return ErrBadLink()
	}
	if err := consume(tx, token); err != nil {
		return err
	}
	// As an account with this address would: a ban may hold it.
	if err := notHeld(tx, "email", user.PendingEmail); err != nil {
		return err
	}
	if err := tx.Exec(update, user.PendingEmail, models.WholeSeconds(tx.Now), l.UserID).Error; err != nil {
		return err
	}
	if sameAddress(user.Email, l.Address) {
		return LogSecurity(tx, SecurityEvent{Kind: eventEmailVerified, UserID: l.UserID})
	}
	if err := endAllLinks(tx, l.UserID, user.Email); err != nil {
		return err
	}
	err = queueMail(tx, mailRow{kind: models.MailEmailChanged, userID: l.UserID, address: user.Email})
	if err != nil {
		return err
	}
	return LogSecurity(tx, SecurityEvent{Kind: eventEmailChanged, UserID: l.UserID})
}

// UndoEmail restores the address that an account had before a change, by the link in the notice to that address. It
// ends all sessions and API tokens, because somebody else may have changed it, and returns their hashes. CodeBadLink:
// the link cannot be used. CodeConflict: another account has the address meanwhile.
func (s *Store) UndoEmail(ctx context.Context, token string) (ended [][32]byte, err error) {
	const update = `
		UPDATE users
		SET email=?, email_verified_at=?, email_undeliverable=FALSE, pending_email=NULL
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		l, err := findLink(tx, token, models.MailEmailChanged)
		if err != nil {
			return err
		}
		user, err := lockAddress(tx, l.UserID)
		if err != nil {
			return err
		}
		if user == nil {
			return ErrBadLink()
		}
		if err := consume(tx, token); err != nil {
			return err
		}
		if err := tx.Exec(update, l.Address, models.WholeSeconds(tx.Now), l.UserID).Error; err != nil {
			return err
		}
		if err := endAllLinks(tx, l.UserID, user.Email); err != nil {
			return err
		}
		if err := endLinks(tx, l.UserID, db.Matching("mail_id>=?", l.MailID)); err != nil { // of later changes
			return err
		}
		if ended, err = EndSessions(tx, l.UserID, db.Conditions{}); err != nil {
			return err
		}
		if err := notify(tx, l.UserID, eventEmailRestored); err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventEmailRestored, UserID: l.UserID})
	})
	if models.MySQLCode(err) == db.DuplicateKey {
		return nil, errTaken("email")
	}
	if err != nil {
		return nil, fmt.Errorf("undo a change of address: %w", err)
	}
	return ended, nil
}

// PurgeLinks deletes at most limit links that expired a day ago, and returns how many it deleted. Until then, no mail
// can make the same link again.
func (s *Store) PurgeLinks(ctx context.Context, limit int) (int64, error) {
	const remove = `
		DELETE FROM account_links
		WHERE expires_at<?
		ORDER BY expires_at
		LIMIT ?`
	purged, err := s.Write(ctx, remove, s.Now().UTC().Add(-models.MailLife), limit)
	if err != nil {
		return 0, fmt.Errorf("purge links: %w", err)
	}
	return purged, nil
}

// PurgeRegistrations deletes at most limit registrations that nobody can confirm any longer, and returns how many it
// deleted.
func (s *Store) PurgeRegistrations(ctx context.Context, limit int) (int64, error) {
	const remove = `
		DELETE FROM registrations
		WHERE created_at<?
		ORDER BY created_at
		LIMIT ?`
	before := s.Now().UTC().Add(-models.MailLife - models.ConfirmLinkLife)
	purged, err := s.Write(ctx, remove, before, limit)
	if err != nil {
		return 0, fmt.Errorf("purge registrations: %w", err)
	}
	return purged, nil
}
