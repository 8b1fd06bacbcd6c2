package accounts

import (
	"context"
	"fmt"
	"slices"

	"likewise/models"
	"likewise/models/db"
)

const tokenColumns = "token_hash, name, scopes, created_at, expires_at, last_used_at"

// CreateToken creates an API token for a user who is signed in with the session of this hash. It returns the row and
// the token itself, which is not stored.
//
// CodeUnauthorized: the session has ended meanwhile. An act that ends the sessions of a user ends the tokens, too, and
// no token may be created after that. CodeForbidden: the user's role does not have the scopes. CodeConflict: the user
// has MaxTokens tokens.
func (s *Store) CreateToken(
	ctx context.Context, userID int64, session [32]byte, grant models.TokenGrant,
) (*models.APIToken, string, error) {
	scopes, err := grant.Validate()
	if err != nil {
		return nil, "", err
	}
	const count = `
		SELECT COUNT(*)
		FROM sessions
		WHERE user_id=? AND is_token AND expires_at>?`
	const insert = `
		INSERT INTO sessions (user_id, token_hash, is_token, name, scopes, created_at, expires_at, second_factor)
		VALUES (?,UNHEX(?),TRUE,?,?,?,?,?)`
	token, hash := models.NewToken()
	now := models.WholeSeconds(s.Now())
	t := &models.APIToken{
		TokenHash: hash[:], Name: grant.Name, Scopes: scopes,
		CreatedAt: now, ExpiresAt: now.AddDate(0, 0, int(grant.Days)),
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		secondFactor, err := lockSession(tx, userID, session, scopes)
		if err != nil {
			return err
		}
		var n int
		if err := tx.Raw(count, userID, now).Scan(&n).Error; err != nil {
			return err
		}
		if n >= models.MaxTokens {
			return models.Errorf(models.CodeConflict, "You have %d tokens; revoke one first.", n)
		}
		err = tx.Exec(insert, userID, db.HexOf(hash), t.Name, uint8(t.Scopes), t.CreatedAt, t.ExpiresAt,
			secondFactor).Error
		if err != nil {
			return err
		}
		tx.AnswerHas(models.HashNumber(t.TokenHash))
		detail := models.SessionID(hash) + " " + t.Scopes.String()
		return LogSecurity(tx, SecurityEvent{Kind: eventTokenCreated, UserID: userID, Detail: detail})
	})
	if err != nil {
		return nil, "", fmt.Errorf("create token of user %d: %w", userID, err)
	}
	return t, token, nil
}

// lockSession locks a user and checks that their session has not ended and that their role has the scopes. It reports
// whether the session used a second factor.
func lockSession(
	tx *db.Tx, userID int64, session [32]byte, scopes models.Scope,
) (secondFactor bool, err error) {
	found, err := LockStandings(tx, userID)
	if err != nil {
		return false, err
	}
	const query = `
		SELECT second_factor
		FROM sessions
		WHERE token_hash=UNHEX(?) AND user_id=? AND NOT is_token AND expires_at>?`
	var sessions []bool
	if err := tx.Raw(query, db.HexOf(session), userID, tx.Now).Scan(&sessions).Error; err != nil {
		return false, err
	}
	user := found[userID]
	if len(sessions) == 0 || user == nil || user.Ban(tx.Now) != nil {
		return false, models.Errorf(models.CodeUnauthorized, "The token is not valid.")
	}
	if scopes&models.ScopeModerate != 0 && user.Role < models.RoleModerator {
		return false, &models.Error{Code: models.CodeForbidden,
			Message: "Only a moderator can have a token that moderates.",
			Fields: []models.FieldError{models.Broken(models.FieldNotPermitted,
				"must not have "+models.ScopeModerate.String()).In("scopes")}}
	}
	return sessions[0], nil
}

// ReissueToken returns the API token that was created under this number (see Made) with a new secret, because the first
// one is not stored. CodeNotFound: it was revoked meanwhile.
func (s *Store) ReissueToken(ctx context.Context, userID, number int64) (*models.APIToken, string, error) {
	const lock = `
		SELECT ` + tokenColumns + `
		FROM sessions FORCE INDEX (PRIMARY)
		WHERE user_id=? AND is_token AND token_hash BETWEEN UNHEX(?) AND UNHEX(?)
		FOR UPDATE`
	const update = `
		UPDATE sessions
		SET token_hash=UNHEX(?)
		WHERE token_hash=UNHEX(?)`
	token, hash := models.NewToken()
	from, to := hashRange(numberID(number))
	var t models.APIToken
	err := s.Transact(ctx, func(tx *db.Tx) error {
		read := tx.Raw(lock, userID, from, to).Scan(&t)
		if read.Error != nil {
			return read.Error
		}
		if read.RowsAffected == 0 {
			return errNoSession()
		}
		old := [32]byte(slices.Clone(t.TokenHash))
		t.TokenHash = hash[:]
		tx.AnswerHas(models.HashNumber(t.TokenHash))
		return tx.Exec(update, db.HexOf(hash), db.HexOf(old)).Error
	})
	if err != nil {
		return nil, "", fmt.Errorf("reissue token of user %d: %w", userID, err)
	}
	return &t, token, nil
}

// Tokens lists the API tokens of a user that have not expired, latest first: at most limit after the key (nil for the
// first page).
func (s *Store) Tokens(ctx context.Context, userID int64, after *models.ListKey, limit int) ([]models.APIToken, error) {
	query, args := s.sessionsQuery(tokenColumns, userID, true, after, limit)
	var list []models.APIToken
	if err := s.Read(ctx).Raw(query, args...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list tokens of user %d: %w", userID, err)
	}
	return list, nil
}

// RevokeToken ends one of the user's API tokens by its SessionID and returns its hash. CodeNotFound: it does not exist.
func (s *Store) RevokeToken(ctx context.Context, userID int64, id string) (ended [][32]byte, err error) {
	return s.endSession(ctx, userID, true, id)
}
