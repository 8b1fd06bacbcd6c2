package accounts

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"likewise/models"
	"likewise/models/db"
)

// sessionLife is the time after which a session expires.
const sessionLife = 90 * 24 * time.Hour

// CreateSession opens one session as CreateSessions does.
func (s *Store) CreateSession(ctx context.Context, userID int64) (string, error) {
	tokens, err := s.CreateSessions(ctx, []int64{userID})
	if err != nil {
		return "", err
	}
	return tokens[0], nil
}

// CreateSessions opens a session of 90 days for each user without a login, as a command of the operator, and returns
// their tokens, which are not stored. The operator vouches for who uses them, as a login would (see ProveSession),
// with a second factor.
func (s *Store) CreateSessions(ctx context.Context, userIDs []int64) ([]string, error) {
	const atOnce = 1000
	var tokens []string
	for batch := range slices.Chunk(userIDs, atOnce) {
		var opened []string
		err := s.Transact(ctx, func(tx *db.Tx) error {
			opened = opened[:0]
			now := models.WholeSeconds(tx.Now)
			var rows []string
			var args []any
			for _, id := range batch {
				token, hash := models.NewToken()
				opened = append(opened, token)
				rows = append(rows, "(?,UNHEX(?),?,?,?,TRUE)")
				args = append(args, id, db.HexOf(hash), now, now.Add(sessionLife), now)
			}
			insert := `
				INSERT INTO sessions (user_id, token_hash, created_at, expires_at, proven_at, second_factor)
				VALUES ` + strings.Join(rows, ",")
			if err := tx.Exec(insert, args...).Error; err != nil {
				return err
			}
			return logSecurityOfAll(tx, eventSessionCreated, batch)
		})
		if err != nil {
			return nil, fmt.Errorf("create sessions: %w", err)
		}
		tokens = append(tokens, opened...)
	}
	return tokens, nil
}

// createSession opens the session of a login, which is the first proof of who uses it.
func createSession(tx *db.Tx, userID int64, userAgent string) (string, error) {
	const insert = `
		INSERT INTO sessions (user_id, token_hash, created_at, expires_at, proven_at, user_agent)
		VALUES (?,UNHEX(?),?,?,?,?)`
	token, hash := models.NewToken()
	now := models.WholeSeconds(tx.Now)
	tx.AnswerHas(models.HashNumber(hash[:]))
	insertion := tx.Exec(insert, userID, db.HexOf(hash), now, now.Add(sessionLife), now, cleanAgent(userAgent))
	return token, insertion.Error
}

// maxAgent is the width of sessions.user_agent, in characters.
const maxAgent = 200

// cleanAgent returns a User-Agent header without characters that cannot be printed, and at most maxAgent long.
func cleanAgent(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > maxAgent {
		return string(runes[:maxAgent])
	}
	return s
}

// Register creates an account, as CreateUser does, and its first session, in one transaction. If confirm is set, a mail
// asks the user to confirm the address.
func (s *Store) Register(
	ctx context.Context, u *models.User, userAgent string, confirm bool,
) (token string, err error) {
	if confirm {
		u.PendingEmail = &u.Email
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if err := createUser(tx, u); err != nil {
			return err
		}
		if confirm {
			err := queueMail(tx, mailRow{kind: models.MailEmailConfirm, userID: u.ID, address: u.Email})
			if err != nil {
				return err
			}
		}
		if token, err = createSession(tx, u.ID, userAgent); err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventAccountCreated, UserID: u.ID})
	})
	return token, s.createdUser(ctx, u, err)
}

// Login opens a session of a user whose password was checked against the hash in u. If a request is repeated, the
// session that it opened before ends.
//
// CodeUnauthorized: the hash has changed since. A change of the password, and a deletion of the account, end all
// sessions, and no session may begin after that. CodeBanned, with the Ban: the user is banned. CodeSecondFactor, with a
// Challenge: the login needs a code, too (see AnswerChallenge).
func (s *Store) Login(ctx context.Context, u *models.User, userAgent string) (token string, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		found, err := LockStandings(tx, u.ID)
		if err != nil {
			return err
		}
		now := found[u.ID]
		if now == nil || now.PasswordHash != u.PasswordHash {
			return models.Errorf(models.CodeUnauthorized, "The login or the password is wrong.")
		}
		if ban := now.Ban(tx.Now); ban != nil {
			return ErrBanned(*ban)
		}
		if err := needFactor(tx, u.ID); err != nil {
			return err
		}
		for _, number := range db.Made(ctx) {
			from, to := hashRange(numberID(number))
			which := db.Matching("NOT is_token AND token_hash BETWEEN UNHEX(?) AND UNHEX(?)", from, to)
			if _, err := EndSessions(tx, u.ID, which); err != nil {
				return err
			}
		}
		if token, err = createSession(tx, u.ID, userAgent); err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventLogin, UserID: u.ID})
	})
	if errors.Is(err, errFactorDue) {
		err = s.challenge(ctx, u)
	}
	if err != nil {
		return "", fmt.Errorf("log in: %w", err)
	}
	return token, nil
}

// ProveSession records that the user of a session, with the hash of its token, has entered the password that was
// checked against the hash in u.
//
// CodeForbidden: the hash has changed since. CodeUnauthorized: the session has ended.
func (s *Store) ProveSession(ctx context.Context, u *models.User, session [32]byte) error {
	const update = `
		UPDATE sessions
		SET proven_at=?
		WHERE token_hash=UNHEX(?)`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := lockSession(tx, u.ID, session, 0); err != nil {
			return err
		}
		found, err := LockStandings(tx, u.ID)
		if err != nil {
			return err
		}
		if found[u.ID].PasswordHash != u.PasswordHash {
			return models.Errorf(models.CodeForbidden, "The password was changed meanwhile.")
		}
		if err := tx.Exec(update, models.WholeSeconds(tx.Now), db.HexOf(session)).Error; err != nil {
			return err
		}
		if err := SessionsChanged(tx, u.ID); err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventSessionProven, UserID: u.ID})
	})
	if err != nil {
		return fmt.Errorf("prove session of user %d: %w", u.ID, err)
	}
	return nil
}

// Sessions lists the sessions of a user that have not expired, latest first: at most limit after the key (nil for the
// first page).
func (s *Store) Sessions(
	ctx context.Context, userID int64, after *models.ListKey, limit int,
) ([]models.SessionInfo, error) {
	const columns = "token_hash, created_at, expires_at, user_agent"
	query, args := s.sessionsQuery(columns, userID, false, after, limit)
	var list []models.SessionInfo
	if err := s.Read(ctx).Raw(query, args...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list sessions of user %d: %w", userID, err)
	}
	return list, nil
}

// sessionsQuery returns the query of a page of the sessions of a user, or of the API tokens, with its arguments.
func (s *Store) sessionsQuery(
	columns string, userID int64, tokens bool, after *models.ListKey, limit int,
) (query string, args []any) {
	where := db.Matching("user_id=? AND is_token=? AND expires_at>?", userID, tokens, s.Now().UTC())
	if after != nil {
		where.Add("created_at<=FROM_UNIXTIME(?)", after.Value)
		where.Add("(created_at<FROM_UNIXTIME(?) OR token_hash<UNHEX(?))",
			after.Value, fmt.Sprintf("%016x%048d", uint64(after.ID), 0))
	}
	query = `
		SELECT ` + columns + `
		FROM sessions FORCE INDEX (idx_user_token_created)
		` + where.Clause() + `
		ORDER BY created_at DESC, token_hash DESC
		LIMIT ?`
	return query, append(where.Args, limit)
}

// EndSession ends one of the user's sessions by its SessionID and returns its hash. CodeNotFound: it does not exist.
func (s *Store) EndSession(ctx context.Context, userID int64, id string) (ended [][32]byte, err error) {
	return s.endSession(ctx, userID, false, id)
}

// numberID returns the SessionID of the session or token with this HashNumber.
func numberID(number int64) string { return fmt.Sprintf("%016x", uint64(number)) }

// hashRange returns the bounds of the hashes that begin with a SessionID, in hexadecimal digits.
func hashRange(id string) (from, to string) {
	rest := 64 - 2*models.SessionIDBytes
	return id + strings.Repeat("0", rest), id + strings.Repeat("f", rest)
}

func (s *Store) endSession(ctx context.Context, userID int64, token bool, id string) (ended [][32]byte, err error) {
	if b, err := hex.DecodeString(id); err != nil || len(b) != models.SessionIDBytes {
		return nil, errNoSession()
	}
	from, to := hashRange(id)
	which := db.Matching("is_token=? AND token_hash BETWEEN UNHEX(?) AND UNHEX(?)", token, from, to)
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := LockStandings(tx, userID); err != nil {
			return err
		}
		ended, err = EndSessions(tx, userID, which)
		if err != nil || len(ended) == 0 {
			return err
		}
		kind := eventSessionEnded
		if token {
			kind = eventTokenRevoked
		}
		return LogSecurity(tx, SecurityEvent{Kind: kind, UserID: userID, Detail: id})
	})
	if err != nil {
		return nil, fmt.Errorf("end session of user %d: %w", userID, err)
	}
	if len(ended) == 0 {
		return nil, errNoSession()
	}
	return ended, nil
}

func errNoSession() *models.Error {
	return models.Errorf(models.CodeNotFound, "There is no such session.")
}

// EndOtherSessions ends all of the user's sessions except one and returns their hashes. API tokens stay.
func (s *Store) EndOtherSessions(ctx context.Context, userID int64, keep [32]byte) (ended [][32]byte, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := LockStandings(tx, userID); err != nil {
			return err
		}
		ended, err = EndSessions(tx, userID, db.Matching("NOT is_token AND token_hash<>UNHEX(?)", db.HexOf(keep)))
		if err != nil || len(ended) == 0 {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventSessionEnded, UserID: userID, Detail: "all others"})
	})
	if err != nil {
		return nil, fmt.Errorf("end sessions of user %d: %w", userID, err)
	}
	return ended, nil
}

// ChangePassword sets the hash of a new password, and ends all sessions except one and all API tokens, in one
// transaction. It returns the hashes of those. CodeForbidden: the password does not have the hash old any longer.
func (s *Store) ChangePassword(
	ctx context.Context, userID int64, old, hash string, keep [32]byte,
) (ended [][32]byte, err error) {
	const update = `
		UPDATE users
		SET password_hash=?
		WHERE id=? AND password_hash=? AND deleted_at IS NULL`
	const readEmail = `
		SELECT email
		FROM users
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		updated := tx.Exec(update, hash, userID, old)
		if updated.Error != nil {
			return updated.Error
		}
		if updated.RowsAffected == 0 {
			return models.Errorf(models.CodeForbidden, "The password was changed meanwhile.")
		}
		if ended, err = EndSessions(tx, userID, db.Matching("token_hash<>UNHEX(?)", db.HexOf(keep))); err != nil {
			return err
		}
		var email string
		if err := tx.Raw(readEmail, userID).Scan(&email).Error; err != nil {
			return err
		}
		return passwordChanged(tx, userID, email, eventPassword)
	})
	if err != nil {
		return nil, fmt.Errorf("change password of user %d: %w", userID, err)
	}
	return ended, nil
}

// EndSessions deletes those sessions and API tokens of a user that meet the conditions, and returns their hashes. The
// caller holds the lock of the user. Otherwise two transactions that end the same sessions would find them before, and
// miss them after, the other one, and retry each other beyond maxAttempts.
func EndSessions(tx *db.Tx, userID int64, which db.Conditions) ([][32]byte, error) {
	where := which.Clone() // the transaction may be retried
	where.Add("user_id=?", userID)
	query := `
		SELECT token_hash
		FROM sessions
		` + where.Clause() + `
		ORDER BY token_hash`
	var found []struct{ TokenHash []byte }
	if err := tx.Raw(query, where.Args...).Scan(&found).Error; err != nil {
		return nil, err
	}
	ended := make([][32]byte, len(found))
	for i, f := range found {
		ended[i] = [32]byte(f.TokenHash)
	}
	if len(ended) == 0 {
		return ended, nil
	}
	deleted, err := deleteSessions(tx, ended)
	if err == nil && deleted != int64(len(ended)) {
		err = db.ErrChangedMeanwhile // one of them has ended or has another hash
	}
	if err != nil {
		return nil, err
	}
	return ended, SessionsChanged(tx, userID)
}

// deleteSessions deletes sessions through the primary key, as DeleteSession does.
func deleteSessions(tx *db.Tx, hashes [][32]byte) (deleted int64, err error) {
	if len(hashes) == 0 {
		return 0, nil
	}
	remove := tx.Exec(`
		DELETE s
		FROM sessions s FORCE INDEX (PRIMARY)
		WHERE s.token_hash IN (` + hashList(hashes) + `)`)
	return remove.RowsAffected, remove.Error
}

// DeleteSession ends one session. If it does not exist, nothing changes.
func (s *Store) DeleteSession(ctx context.Context, hash [32]byte) error {
	const lock = `
		SELECT user_id
		FROM sessions
		WHERE token_hash=UNHEX(?)
		FOR UPDATE`
	const remove = `
		DELETE FROM sessions
		WHERE token_hash=UNHEX(?)`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		var userID int64
		if err := tx.Raw(lock, db.HexOf(hash)).Scan(&userID).Error; err != nil || userID == 0 {
			return err
		}
		if err := tx.Exec(remove, db.HexOf(hash)).Error; err != nil {
			return err
		}
		if err := SessionsChanged(tx, userID); err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventLogout, UserID: userID})
	})
	if err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	return nil
}

// PurgeSessions deletes at most limit expired sessions and returns how many it deleted.
func (s *Store) PurgeSessions(ctx context.Context, limit int) (int64, error) {
	const find = `
		SELECT token_hash
		FROM sessions FORCE INDEX (idx_expires_at)
		WHERE expires_at<=?
		ORDER BY expires_at
		LIMIT ?`
	var purged int64
	err := s.Transact(ctx, func(tx *db.Tx) error {
		var expired []struct{ TokenHash []byte }
		if err := tx.Raw(find, tx.Now, limit).Scan(&expired).Error; err != nil {
			return err
		}
		hashes := make([][32]byte, len(expired))
		for i, e := range expired {
			hashes[i] = [32]byte(e.TokenHash)
		}
		slices.SortFunc(hashes, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
		var err error
		purged, err = deleteSessions(tx, hashes)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge sessions: %w", err)
	}
	return purged, nil
}
