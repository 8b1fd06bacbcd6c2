package accounts

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// The kinds of events in the security log.
const (
	eventAccountCreated = "account.created"
	EventAccountDeleted = "account.deleted"
	EventBanned         = "account.banned"
	EventUnbanned       = "account.unbanned"
	eventEmailChanged   = "email.changed"
	eventEmailRead      = "email.read"
	eventEmailRequested = "email.requested" // a new address waits for its confirmation
	eventEmailRestored  = "email.restored"  // a change was undone
	eventEmailSearched  = "email.searched"
	eventEmailVerified  = "email.verified"
	eventFactorAdded    = "factor.added"
	eventFactorFailed   = "factor.failed" // a wrong code at sign-in
	eventFactorRemoved  = "factor.removed"
	eventFactorReset    = "factor.reset" // as an admin requested
	eventLogin          = "login"
	eventLoginFailed    = "login.failed"
	eventLogout         = "logout"
	eventPassword       = "password.changed"
	eventPasswordFailed = "password.failed"
	eventPasswordReset  = "password.reset"
	eventRole           = "role.changed"
	eventSessionCreated = "session.created" // by the operator, without a login
	eventSessionEnded   = "session.ended"
	eventSessionProven  = "session.proven" // the password was entered again
	eventTokenCreated   = "token.created"
	eventTokenRevoked   = "token.revoked"
	eventUsername       = "username.changed"

	eventFactorResetRequested = "factor.reset_requested"
	eventFactorResetCanceled  = "factor.reset_canceled"
	eventRecoveryReplaced     = "recovery_codes.replaced"
)

// Bounds on the rows of an hour. Events over a bound share a row that has fewer details.
const (
	maxEventsOfUser     = 30   // of one kind, by the account itself; then without address and detail
	maxFailuresOfSource = 20   // of one kind and address; then without account
	maxFailures         = 1000 // of one kind; then without address, too
)

// SecurityEvent is an event that concerns the access to an account. Address, user agent and actor are those of the
// caller (see WithCaller).
type SecurityEvent struct {
	Kind      string
	UserID    int64  // 0: no account
	loginHash string // of a login without an account
	Detail    string
}

func (e SecurityEvent) failed() bool {
	return e.Kind == eventLoginFailed || e.Kind == eventPasswordFailed || e.Kind == eventFactorFailed
}

// securityRow is a row of the log as it is written.
type securityRow struct {
	SecurityEvent
	actor          int64
	address, agent string
	hour, created  time.Time
}

// bucket returns the key of the row. The user agent is not part of it, because a client could send a new one each time.
func (r *securityRow) bucket() string {
	key := fmt.Appendf(nil, "%q %d %d %q %q %q %d",
		r.Kind, r.UserID, r.actor, r.loginHash, r.address, r.Detail, r.hour.Unix())
	return db.HexOf(sha256.Sum256(key))
}

// LogSecurity writes an event into the security log as the last statement of tx, the transaction of the event. Equal
// events share a row in each hour, and the rows of an hour are bounded, so that no client can fill the log.
func LogSecurity(tx *db.Tx, e SecurityEvent) error {
	r := &securityRow{SecurityEvent: e, hour: tx.Now.Truncate(time.Hour), created: tx.Now}
	if caller := tx.CalledBy(); caller != nil {
		r.address, r.agent = caller.Address, cleanAgent(caller.UserAgent)
		if caller.UserID != e.UserID {
			r.actor = caller.UserID
		}
	}
	if err := boundRow(tx, r); err != nil {
		return fmt.Errorf("log security: %w", err)
	}
	return insertSecurity(tx, []*securityRow{r})
}

// logSecurityOfAll writes an event of the operator for each of the accounts. No client causes it, so it has no bound.
func logSecurityOfAll(tx *db.Tx, kind string, userIDs []int64) error {
	rows := make([]*securityRow, len(userIDs))
	for i, id := range userIDs {
		e := SecurityEvent{Kind: kind, UserID: id}
		rows[i] = &securityRow{SecurityEvent: e, hour: tx.Now.Truncate(time.Hour), created: tx.Now}
	}
	return insertSecurity(tx, rows)
}

func insertSecurity(tx *db.Tx, rows []*securityRow) error {
	const row = "(UNHEX(?),?,NULLIF(?,0),NULLIF(?,0),?,?,?,?,?,?)"
	insert := `
		INSERT INTO security_log (bucket, kind, user_id, actor_id, login_hash,
			address, user_agent, detail, created_at, last_at)
		VALUES ` + row + strings.Repeat(","+row, len(rows)-1) + `
		ON DUPLICATE KEY UPDATE attempts=attempts+1, last_at=VALUES(last_at)`
	var args []any
	for _, r := range rows {
		args = append(args, r.bucket(), r.Kind, r.UserID, r.actor, r.loginHash,
			r.address, r.agent, r.Detail, r.created, r.created)
	}
	if err := tx.Exec(insert, args...).Error; err != nil {
		return fmt.Errorf("log security: %w", err)
	}
	return nil
}

// boundRow removes from a row over a bound the details that keep it from sharing another row.
func boundRow(tx *db.Tx, r *securityRow) error {
	const findRow = `
		SELECT COUNT(*)
		FROM security_log
		WHERE bucket=UNHEX(?)`
	full := func(bound int, index string, where db.Conditions) (bool, error) {
		var known, rows int
		if err := tx.Raw(findRow, r.bucket()).Scan(&known).Error; err != nil || known > 0 {
			return false, err
		}
		where.Add("kind=? AND created_at>=?", r.Kind, r.hour)
		count := `
			SELECT COUNT(*)
			FROM (
				SELECT 1
				FROM security_log FORCE INDEX (` + index + `)
				` + where.Clause() + `
				LIMIT ?) r`
		err := tx.Raw(count, append(where.Args, bound)...).Scan(&rows).Error
		return rows >= bound, err
	}
	if !r.failed() {
		if r.actor != 0 || r.UserID == 0 {
			return nil
		}
		over, err := full(maxEventsOfUser, "idx_user_created", db.Matching("user_id=?", r.UserID))
		if over {
			r.address, r.agent, r.Detail = "", "", ""
		}
		return err
	}
	over, err := full(maxFailuresOfSource, "idx_address_created", db.Matching("address=?", r.address))
	if err != nil {
		return err
	}
	if over {
		r.UserID, r.actor, r.loginHash, r.agent = 0, 0, "", ""
	}
	if over, err = full(maxFailures, "idx_kind_created", db.Conditions{}); over {
		r.UserID, r.actor, r.loginHash, r.agent, r.address = 0, 0, "", "", ""
	}
	return err
}

// LogFailedLogin records that a login was rejected. If there is no such account, userID is 0. Then the log keeps a hash
// of the login, with a key of the installation, because people enter passwords there.
func (s *Store) LogFailedLogin(ctx context.Context, userID int64, login string) error {
	e := SecurityEvent{Kind: eventLoginFailed, UserID: userID}
	if userID == 0 {
		h := hmac.New(sha256.New, s.CursorKey())
		h.Write([]byte("security log " + models.NormalizeLogin(login)))
		e.loginHash = hex.EncodeToString(h.Sum(nil)[:16])
	}
	return s.logAlone(ctx, e)
}

// LogFailedPassword records that a signed-in user was rejected for a wrong password.
func (s *Store) LogFailedPassword(ctx context.Context, userID int64) error {
	return s.logAlone(ctx, SecurityEvent{Kind: eventPasswordFailed, UserID: userID})
}

// LogEmailRead records that the caller read the e-mail address of an account.
func (s *Store) LogEmailRead(ctx context.Context, userID int64) error {
	return s.logAlone(ctx, SecurityEvent{Kind: eventEmailRead, UserID: userID})
}

// LogEmailSearched records that the caller searched accounts by a prefix of their e-mail addresses.
func (s *Store) LogEmailSearched(ctx context.Context) error {
	return s.logAlone(ctx, SecurityEvent{Kind: eventEmailSearched})
}

// logAlone writes an event in a transaction of its own. It is not the effect of an idempotent request.
func (s *Store) logAlone(ctx context.Context, e SecurityEvent) error {
	return s.Transact(db.Aside(ctx), func(tx *db.Tx) error { return LogSecurity(tx, e) })
}

// SecurityLog lists events, latest first, in one query.
func (s *Store) SecurityLog(ctx context.Context, q models.EventQuery) ([]models.LoggedEvent, error) {
	index := "idx_created_at"
	switch {
	case q.UserID != 0:
		index = "idx_user_created"
	case q.ActorID != 0:
		index = "idx_actor_created"
	case q.Address != "":
		index = "idx_address_created"
	case q.Kind != "":
		index = "idx_kind_created"
	}
	var where db.Conditions
	where.AddIf(q.UserID != 0, "user_id=?", q.UserID)
	where.AddIf(q.ActorID != 0, "actor_id=?", q.ActorID)
	where.AddIf(q.Address != "", "address=?", q.Address)
	where.AddIf(q.Kind != "", "kind=?", q.Kind)
	where.AddIf(!q.Since.IsZero(), "created_at>=?", q.Since.UTC())
	where.AddIf(!q.Until.IsZero(), "created_at<?", q.Until.UTC())
	if q.After != nil {
		at := time.UnixMilli(q.After.Value).UTC()
		where.Add("(created_at<? OR created_at=? AND id<?)", at, at, q.After.ID)
	}
	query := `
		SELECT id, kind, user_id, actor_id, login_hash, address, user_agent, detail, attempts, created_at, last_at
		FROM security_log FORCE INDEX (` + index + `)
		` + where.Clause() + `
		ORDER BY created_at DESC, id DESC
		LIMIT ?`
	var events []models.LoggedEvent
	if err := s.Read(ctx).Raw(query, append(where.Args, q.Limit)...).Scan(&events).Error; err != nil {
		return nil, fmt.Errorf("read security log: %w", err)
	}
	return events, nil
}

// PurgeSecurityLog deletes at most limit rows that are older than SecurityLogLife and returns how many it deleted.
func (s *Store) PurgeSecurityLog(ctx context.Context, limit int) (int64, error) {
	const remove = `
		DELETE FROM security_log
		WHERE created_at<?
		ORDER BY created_at
		LIMIT ?`
	purged, err := s.Write(ctx, remove, s.Now().UTC().Add(-models.SecurityLogLife), limit)
	if err != nil {
		return 0, fmt.Errorf("purge security log: %w", err)
	}
	return purged, nil
}
