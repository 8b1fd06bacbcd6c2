package models

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"
)

// An API token is a row of sessions that has a name and scopes, so that one lookup serves both and whatever ends a
// user's access ends both.

// Limits on API tokens.
const (
	MaxTokenName     = 100 // characters
	MaxTokenDays     = 365
	DefaultTokenDays = 90
	MaxTokens        = 50 // that a user can have at a time
)

// tokenUsedEvery is how exactly the last use of a token is kept.
const tokenUsedEvery = time.Minute

// TokenGrant is what a user asks for with a new API token.
type TokenGrant struct {
	Name   string
	Scopes []string // see ParseScopes
	Days   int64    // until it expires
}

// Validate names every field that breaks a rule (CodeInvalid) and gives the scopes.
func (g TokenGrant) Validate() (Scope, error) {
	var f fieldErrors
	n := utf8.RuneCountInString(g.Name)
	f.check(n >= 1 && n <= MaxTokenName && utf8.ValidString(g.Name), "name", fmt.Sprintf("must have 1 to %d characters", MaxTokenName))
	f.check(!strings.ContainsFunc(g.Name, isUnseen) && g.Name == strings.TrimSpace(g.Name), "name",
		"must not begin or end with space, and be a single line without control characters")
	scopes, err := ParseScopes(g.Scopes)
	f.check(err == nil && scopes != 0, "scopes", "must be one or several of "+strings.Join(allScopes.Names(), ", "))
	f.check(g.Days >= 1 && g.Days <= MaxTokenDays, "expires_in_days", fmt.Sprintf("must be a number from 1 to %d", MaxTokenDays))
	return scopes, f.err()
}

// APIToken is an API token as its user sees it in a list.
type APIToken struct {
	TokenHash  []byte
	Name       string
	Scopes     Scope
	CreatedAt  time.Time
	ExpiresAt  time.Time
	LastUsedAt *time.Time // to the minute; nil: never
}

// Hash is that of the token.
func (t *APIToken) Hash() [32]byte { return [32]byte(t.TokenHash) }

// Key gives the token's place in the list.
func (t *APIToken) Key() ListKey { return ListKey{t.CreatedAt.Unix(), hashNumber(t.TokenHash)} }

// hashNumber is the part of a token's hash that the token is called by, as a number.
func hashNumber(hash []byte) int64 { return int64(binary.BigEndian.Uint64(hash)) }

const tokenColumns = "token_hash, name, scopes, created_at, expires_at, last_used_at"

// CreateToken makes an API token for a user who is signed in with the session of this hash, and gives it with the token
// itself, which is stored nowhere. CodeUnauthorized when the session has ended meanwhile: whoever ends the sessions of
// a user ends the tokens, and none must come after them. CodeForbidden with scopes that the user's role does not have;
// CodeConflict when the user has MaxTokens.
func (s *Store) CreateToken(ctx context.Context, userID int64, session [32]byte, grant TokenGrant) (*APIToken, string, error) {
	scopes, err := grant.Validate()
	if err != nil {
		return nil, "", err
	}
	token, hash := NewToken()
	now := second(s.now())
	t := &APIToken{TokenHash: hash[:], Name: grant.Name, Scopes: scopes, CreatedAt: now, ExpiresAt: now.AddDate(0, 0, int(grant.Days))}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockSession(tx, userID, session, scopes); err != nil {
			return err
		}
		var n int
		if err := tx.Raw("SELECT COUNT(*) FROM sessions WHERE user_id=? AND is_token AND expires_at>?", userID, now).Scan(&n).Error; err != nil {
			return err
		}
		if n >= MaxTokens {
			return Errorf(CodeConflict, "You have %d tokens; revoke one first.", n)
		}
		err := tx.Exec("INSERT INTO sessions (user_id, token_hash, is_token, name, scopes, created_at, expires_at) VALUES (?,UNHEX(?),TRUE,?,?,?,?)",
			userID, hexOf(hash), t.Name, uint8(t.Scopes), t.CreatedAt, t.ExpiresAt).Error
		if err != nil {
			return err
		}
		made(tx, hashNumber(t.TokenHash))
		return s.logSecurity(tx, securityEvent{kind: EventTokenCreated, userID: userID, detail: SessionID(hash) + " " + t.Scopes.String()})
	})
	if err != nil {
		return nil, "", fmt.Errorf("create token of user %d: %w", userID, err)
	}
	return t, token, nil
}

// lockSession holds a user to a session that has not ended, and to a role that has the scopes.
func (s *Store) lockSession(tx *gorm.DB, userID int64, session [32]byte, scopes Scope) error {
	found, err := lockStandings(tx, userID)
	if err != nil {
		return err
	}
	var there int
	err = tx.Raw("SELECT COUNT(*) FROM sessions WHERE token_hash=UNHEX(?) AND user_id=? AND NOT is_token AND expires_at>?",
		hexOf(session), userID, s.now().UTC()).Scan(&there).Error
	if err != nil {
		return err
	}
	user := found[userID]
	if there == 0 || user == nil || user.ban(s.now()) != nil {
		return Errorf(CodeUnauthorized, "The token is not valid.")
	}
	if scopes&ScopeModerate != 0 && user.Role < RoleModerator {
		return &Error{Code: CodeForbidden, Message: "Only a moderator can have a token that moderates.",
			Fields: []FieldError{{"scopes", "must not have " + ScopeModerate.String()}}}
	}
	return nil
}

// ReissueToken returns the API token that was created under this number (see Made) with another secret, because the first
// is stored nowhere. CodeNotFound if it was revoked meanwhile.
func (s *Store) ReissueToken(ctx context.Context, userID, number int64) (*APIToken, string, error) {
	token, hash := NewToken()
	from, to := hashRange(numberID(number))
	var t APIToken
	err := s.transact(ctx, func(tx *gorm.DB) error {
		read := tx.Raw("SELECT "+tokenColumns+" FROM sessions FORCE INDEX (PRIMARY) WHERE user_id=? AND is_token AND token_hash BETWEEN UNHEX(?) AND UNHEX(?) FOR UPDATE",
			userID, from, to).Scan(&t)
		if read.Error != nil {
			return read.Error
		}
		if read.RowsAffected == 0 {
			return errNoSession()
		}
		old := [32]byte(slices.Clone(t.TokenHash))
		t.TokenHash = hash[:]
		made(tx, hashNumber(t.TokenHash))
		return tx.Exec("UPDATE sessions SET token_hash=UNHEX(?) WHERE token_hash=UNHEX(?)", hexOf(hash), hexOf(old)).Error
	})
	if err != nil {
		return nil, "", fmt.Errorf("reissue token of user %d: %w", userID, err)
	}
	return &t, token, nil
}

// Tokens lists the API tokens of a user that have not expired, latest first: at most limit after the key (nil for the
// first page).
func (s *Store) Tokens(ctx context.Context, userID int64, after *ListKey, limit int) ([]APIToken, error) {
	var list []APIToken
	if err := s.listSessions(ctx, tokenColumns, userID, true, after, limit, &list); err != nil {
		return nil, fmt.Errorf("list tokens of user %d: %w", userID, err)
	}
	return list, nil
}

// RevokeToken ends one of the user's API tokens by its SessionID and gives its hash; CodeNotFound when there is none.
func (s *Store) RevokeToken(ctx context.Context, userID int64, id string) (ended [][32]byte, err error) {
	return s.endSession(ctx, userID, true, id)
}

// UseToken keeps that a token is used now, unless it was used less than a minute ago.
func (s *Store) UseToken(ctx context.Context, hash [32]byte) error {
	now := second(s.now())
	_, err := s.write(ctx, "UPDATE sessions SET last_used_at=? WHERE token_hash=UNHEX(?) AND (last_used_at IS NULL OR last_used_at<=?)",
		now, hexOf(hash), now.Add(-tokenUsedEvery))
	if err != nil {
		return fmt.Errorf("keep use of token: %w", err)
	}
	return nil
}
