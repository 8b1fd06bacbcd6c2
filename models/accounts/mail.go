package accounts

import (
	"context"
	"fmt"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// mailRow is a row of mails as it is written.
type mailRow struct {
	kind           models.MailKind
	userID         int64 // 0: none, or not known yet
	registrationID int64 // 0: none
	address        string
	detail         string
}

// queueMail writes a mail in the transaction that causes it. A mailer sends it after the COMMIT. An account without an
// address gets none.
func queueMail(tx *db.Tx, m mailRow) error {
	const insert = `
		INSERT INTO mails (kind, user_id, registration_id, address, detail, created_at, due_at)
		VALUES (?,NULLIF(?,0),NULLIF(?,0),?,?,?,?)`
	if strings.HasSuffix(m.address, models.NoEmailDomain) {
		return nil
	}
	err := tx.Exec(insert, m.kind, m.userID, m.registrationID, m.address, m.detail, tx.Now, tx.Now).Error
	if err != nil {
		return fmt.Errorf("queue mail: %w", err)
	}
	return nil
}

// notify queues a notice to a user about an event of the security log.
func notify(tx *db.Tx, userID int64, event string) error {
	const read = `
		SELECT email
		FROM users
		WHERE id=?`
	var address string
	if err := tx.Raw(read, userID).Scan(&address).Error; err != nil {
		return err
	}
	return queueMail(tx, mailRow{kind: models.MailSecurity, userID: userID, address: address, detail: event})
}

const (
	// mailLease is the time for which a mailer has a mail to itself. It is longer than an attempt may take.
	mailLease = 2 * time.Minute
	// The pause after the first failed attempt, and the longest one. They double in between.
	mailRetryFirst = 30 * time.Second
	mailRetryMost  = time.Hour
	maxFailure     = 200 // characters of a server's answer that are kept
)

// The outcomes of mails. A mail that is due has none.
const (
	mailSent    = "sent"
	mailDropped = "dropped" // what it says does not hold any longer
	mailRefused = "refused" // by the server of the address, for good
	mailExpired = "expired" // it could not be sent within MailLife
)

// dueMail is a mail as DueMails reads it.
type dueMail struct {
	ID             int64
	Kind           models.MailKind
	UserID         int64
	RegistrationID int64
	Address        string
	Detail         string
	CreatedAt      time.Time
	LinkedAt       *time.Time
	Attempts       int
}

// DueMails returns mails that are due, at most limit, and leases them for mailLease: no other mailer gets them until
// then. It makes their links, whose tokens are derived from key. Mails whose link was used, or whose cause does not
// hold any longer, are dropped.
func (s *Store) DueMails(ctx context.Context, key []byte, limit int) ([]models.Mail, error) {
	due, err := s.leaseMails(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("lease mails: %w", err)
	}
	mails := make([]models.Mail, 0, len(due))
	for _, d := range due {
		m, err := s.prepareMail(ctx, d, key)
		if err != nil {
			return mails, fmt.Errorf("prepare mail %d: %w", d.ID, err)
		}
		if m != nil {
			mails = append(mails, *m)
		}
	}
	return mails, nil
}

func (s *Store) leaseMails(ctx context.Context, limit int) (due []dueMail, err error) {
	const find = `
		SELECT id, kind, COALESCE(user_id,0) AS user_id, COALESCE(registration_id,0) AS registration_id, address,
			detail, created_at, linked_at, attempts
		FROM mails FORCE INDEX (idx_due_at)
		WHERE due_at<=?
		ORDER BY due_at, id
		LIMIT ?
		FOR UPDATE SKIP LOCKED`
	const expire = `
		UPDATE mails
		SET due_at=NULL, outcome=?
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		due = nil
		var found []dueMail
		if err := tx.Raw(find, tx.Now, limit).Scan(&found).Error; err != nil || len(found) == 0 {
			return err
		}
		var ids []int64
		for _, d := range found {
			if tx.Now.Sub(d.CreatedAt) < models.MailLife {
				due, ids = append(due, d), append(ids, d.ID)
				continue
			}
			if err := tx.Exec(expire, mailExpired, d.ID).Error; err != nil {
				return err
			}
		}
		if len(ids) == 0 {
			return nil
		}
		lease := `
			UPDATE mails
			SET due_at=?
			WHERE id IN (` + db.JoinIDs(db.Ascending(ids)) + `)`
		return tx.Exec(lease, tx.Now.Add(mailLease)).Error
	})
	return due, err
}

// prepareMail returns the mail to send, with its link; nil if it was dropped.
func (s *Store) prepareMail(ctx context.Context, d dueMail, key []byte) (m *models.Mail, err error) {
	const drop = `
		UPDATE mails
		SET due_at=NULL, outcome=?
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		m = &models.Mail{
			ID: d.ID, Kind: d.Kind, To: d.Address, Detail: d.Detail, CreatedAt: d.CreatedAt, Attempts: d.Attempts,
		}
		holds, err := address(tx, &d, m)
		if err == nil && holds && m.Kind.LinkLife() > 0 {
			holds, err = linkMail(tx, d, m, key)
		}
		if err != nil {
			return err
		}
		if !holds {
			m = nil
			return tx.Exec(drop, mailDropped, d.ID).Error
		}
		return nil
	})
	return m, err
}

// address finds out whose account a mail is about, locks it, and reports whether what caused the mail still holds. A
// mail to somebody who has an account already becomes a notice.
func address(tx *db.Tx, d *dueMail, m *models.Mail) (holds bool, err error) {
	if d.UserID == 0 && m.Kind == models.MailPasswordReset {
		if d.UserID, err = userAt(tx, d.Address); err != nil || d.UserID == 0 {
			return false, err
		}
	}
	if m.Kind == models.MailRegistration {
		return registrationHolds(tx, d, m)
	}
	user, err := lockAddress(tx, d.UserID)
	if err != nil || user == nil {
		return false, err
	}
	m.Username = user.Username
	switch m.Kind {
	case models.MailPasswordReset:
		return sameAddress(user.Email, d.Address), nil
	case models.MailEmailConfirm:
		if !sameAddress(user.PendingEmail, d.Address) {
			return false, nil
		}
		owner, err := userAt(tx, d.Address)
		if err == nil && owner != 0 && owner != d.UserID {
			m.Kind, m.Username = models.MailAccountExists, ""
		}
		return err == nil, err
	case models.MailPasswordChanged, models.MailEmailChanged, models.MailAccountExists, models.MailSecurity:
	case models.MailRegistration: // above
	}
	return true, nil
}

// registrationHolds is address for a registration.
func registrationHolds(tx *db.Tx, d *dueMail, m *models.Mail) (bool, error) {
	const read = `
		SELECT username
		FROM registrations
		WHERE id=?`
	if err := tx.Raw(read, d.RegistrationID).Scan(&m.Username).Error; err != nil || m.Username == "" {
		return false, err
	}
	owner, err := userAt(tx, d.Address)
	if err == nil && owner != 0 {
		m.Kind, m.Username = models.MailAccountExists, ""
	}
	return err == nil, err
}

// userAt returns the id of the account with this e-mail address; 0 if there is none.
func userAt(tx *db.Tx, email string) (int64, error) {
	const read = `
		SELECT id, email
		FROM users
		WHERE email=? AND deleted_at IS NULL`
	var found struct {
		ID    int64
		Email string
	}
	if err := tx.Raw(read, email).Scan(&found).Error; err != nil || !sameAddress(found.Email, email) {
		return 0, err
	}
	return found.ID, nil
}

// sameAddress compares addresses as UserByLogin does: the server equates more, such as letters with and without
// accents, which are different mailboxes.
func sameAddress(a, b string) bool { return strings.EqualFold(a, b) }

// addressed is the part of an account that its mails depend on.
type addressed struct {
	Username     string
	Email        string
	PendingEmail string // "" if there is none
	Verified     bool
}

// lockAddress locks a user and reads the addresses; nil if the account does not exist or was deleted.
func lockAddress(tx *db.Tx, userID int64) (*addressed, error) {
	const lock = `
		SELECT username, email, COALESCE(pending_email,'') AS pending_email, email_verified_at IS NOT NULL AS verified
		FROM users FORCE INDEX (PRIMARY)
		WHERE id=? AND deleted_at IS NULL
		FOR UPDATE`
	var user addressed
	read := tx.Raw(lock, userID).Scan(&user)
	if read.Error != nil || read.RowsAffected == 0 {
		return nil, read.Error
	}
	return &user, nil
}

// MailSent records that a mail was sent.
func (s *Store) MailSent(ctx context.Context, id int64) error {
	const update = `
		UPDATE mails
		SET due_at=NULL, outcome=?, failure=''
		WHERE id=?`
	if _, err := s.Write(ctx, update, mailSent, id); err != nil {
		return fmt.Errorf("record mail %d: %w", id, err)
	}
	return nil
}

// MailFailed records that an attempt failed. The next one follows after a pause that grows, until the mail is MailLife
// old. If the server of the address refused it for good, there is none, and the address is marked as undeliverable.
func (s *Store) MailFailed(ctx context.Context, id int64, permanent bool, cause string) error {
	const lock = `
		SELECT COALESCE(user_id,0) AS user_id, address, attempts, created_at
		FROM mails
		WHERE id=?
		FOR UPDATE`
	const update = `
		UPDATE mails
		SET due_at=?, outcome=?, attempts=attempts+1, failure=?
		WHERE id=?`
	const mark = `
		UPDATE users
		SET email_undeliverable=TRUE, updated_at=updated_at
		WHERE email=? AND deleted_at IS NULL`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		var m struct {
			Address   string
			Attempts  int
			CreatedAt time.Time
		}
		if permanent { // users are locked before mails
			var address string
			if err := tx.Raw("SELECT address FROM mails WHERE id=?", id).Scan(&address).Error; err != nil {
				return err
			}
			if err := tx.Exec(mark, address).Error; err != nil {
				return err
			}
		}
		if err := tx.Raw(lock, id).Scan(&m).Error; err != nil {
			return err
		}
		due, outcome := new(tx.Now.Add(mailPause(m.Attempts))), ""
		switch {
		case permanent:
			due, outcome = nil, mailRefused
		case due.Sub(m.CreatedAt) >= models.MailLife:
			due, outcome = nil, mailExpired
		}
		return tx.Exec(update, due, outcome, shortFailure(cause), id).Error
	})
	if err != nil {
		return fmt.Errorf("record mail %d: %w", id, err)
	}
	return nil
}

// mailPause returns the pause after a number of failed attempts before this one.
func mailPause(attempts int) time.Duration {
	return min(mailRetryFirst<<min(attempts, 10), mailRetryMost)
}

// shortFailure returns what is kept of a server's answer, which comes from outside.
func shortFailure(cause string) string {
	cause = models.CleanLine(strings.ToValidUTF8(cause, ""))
	if runes := []rune(cause); len(runes) > maxFailure {
		return string(runes[:maxFailure])
	}
	return cause
}

// OldestMail returns when the oldest mail that is due was written; the zero time if none is.
func (s *Store) OldestMail(ctx context.Context) (time.Time, error) {
	const read = `
		SELECT created_at
		FROM mails FORCE INDEX (idx_due_at)
		WHERE due_at IS NOT NULL
		ORDER BY created_at
		LIMIT 1`
	var oldest time.Time
	if err := s.Read(ctx).Raw(read).Scan(&oldest).Error; err != nil {
		return time.Time{}, fmt.Errorf("read the oldest mail: %w", err)
	}
	return oldest, nil
}

// PurgeMails deletes at most limit mails that are older than MailsKept and returns how many it deleted.
func (s *Store) PurgeMails(ctx context.Context, limit int) (int64, error) {
	const remove = `
		DELETE FROM mails
		WHERE created_at<?
		ORDER BY created_at
		LIMIT ?`
	purged, err := s.Write(ctx, remove, s.Now().UTC().Add(-models.MailsKept), limit)
	if err != nil {
		return 0, fmt.Errorf("purge mails: %w", err)
	}
	return purged, nil
}

// ForgetMail deletes the mails and the links of an account that the transaction deletes, and what was sent to its
// address. The caller holds the lock of the user.
func ForgetMail(tx *db.Tx, userID int64) error {
	const read = `
		SELECT email
		FROM users
		WHERE id=?`
	const removeMails = `
		DELETE FROM mails
		WHERE user_id=?`
	const removeMailsTo = `
		DELETE FROM mails
		WHERE address=?`
	const removeLinks = `
		DELETE FROM account_links
		WHERE user_id=?`
	var email string
	if err := tx.Raw(read, userID).Scan(&email).Error; err != nil {
		return err
	}
	for _, remove := range []struct {
		query string
		of    any
	}{{removeMails, userID}, {removeMailsTo, email}, {removeLinks, userID}} {
		if err := tx.Exec(remove.query, remove.of).Error; err != nil {
			return fmt.Errorf("forget mail: %w", err)
		}
	}
	return nil
}
