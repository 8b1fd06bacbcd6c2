package models

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"
)

// SessionStale is the maximum age of a cached session that a process uses while it cannot read the session again.
const SessionStale = 10 * time.Minute

// Session is the user and the rights behind a token.
type Session struct {
	UserID      int64
	Username    string
	DisplayName *string
	AvatarURL   *string
	Role        Role
	Since       time.Time  // when the account was created
	IsToken     bool       // an API token, which is limited to Scopes
	Scopes      Scope      // of an API token
	LastUsedAt  *time.Time // of an API token, to the minute; nil: never
	ExpiresAt   time.Time
	ProvenAt    *time.Time // when the user last entered the password in it; nil: never, and for API tokens
	// SecondFactor reports whether the session used a second factor, or the operator created it; of an API token,
	// whether the session did that created it.
	SecondFactor bool
	// Blocked reports whether any user has blocked this one. If not, no check needs to look for a block.
	Blocked bool
}

// Unnoted reports whether the use of an API token is due to be recorded (see db.DB.UseTokens).
func (s *Session) Unnoted(now time.Time) bool {
	return s.IsToken && (s.LastUsedAt == nil || now.Sub(*s.LastUsedAt) >= TokenUsedEvery)
}

// ProofLife is the time for which a proof of who is using a session, such as its login, counts as recent.
const ProofLife = 10 * time.Minute

// Proven reports whether the user has entered the password in this session within ProofLife.
func (s *Session) Proven(now time.Time) bool {
	return s.ProvenAt != nil && now.Sub(*s.ProvenAt) < ProofLife
}

// Author returns the user as an author.
func (s *Session) Author() Author { return Author{s.UserID, s.Username, s.DisplayName, s.AvatarURL} }

// NewToken returns a bearer token, 256 random bits in 43 characters of URL-safe base64, and the hash under which it is
// stored.
func NewToken() (token string, hash [32]byte) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	token = base64.RawURLEncoding.EncodeToString(secret[:])
	return token, HashToken(token)
}

// HashToken returns the hash under which a token is stored and looked up. The token is random, so the hash has no salt.
func HashToken(token string) [32]byte { return sha256.Sum256([]byte(token)) }

// SessionInfo is a session as its user sees it in a list.
type SessionInfo struct {
	TokenHash []byte
	CreatedAt time.Time
	ExpiresAt time.Time
	UserAgent string
}

// SessionID returns the public id of a session or an API token: the first 64 bits of the token's hash.
func SessionID(hash [32]byte) string { return hex.EncodeToString(hash[:SessionIDBytes]) }

// SessionIDBytes is the length of the public id of a session, in bytes.
const SessionIDBytes = 8

// Hash returns the hash of the session's token.
func (i *SessionInfo) Hash() [32]byte { return [32]byte(i.TokenHash) }

// Key returns the place of the session in the list.
func (i *SessionInfo) Key() ListKey {
	return ListKey{i.CreatedAt.Unix(), HashNumber(i.TokenHash)}
}

// SessionChange says that sessions of a user have ended or changed: the user signed out, was banned or blocked, got
// another role, or edited the profile. Processes that cache sessions read the changes and evict those of the user.
type SessionChange struct {
	ID     int64 // numbers are issued in order, and may be committed out of order
	UserID int64
}

// An API token is a row of sessions that has a name and scopes. So one lookup serves both, and an act that ends a
// user's access ends both.

// Limits on API tokens.
const (
	MaxTokenName     = 100 // characters
	MaxTokenDays     = 365
	DefaultTokenDays = 90
	MaxTokens        = 50 // of one user at a time
)

// TokenUsedEvery is the precision of the recorded last use of a token.
const TokenUsedEvery = time.Minute

// TokenGrant is the input that creates an API token.
type TokenGrant struct {
	Name   string
	Scopes []string // their names: read, write, moderate
	Days   int64    // until it expires
}

// Validate returns the scopes. It names every field that breaks a rule (CodeInvalid).
func (g TokenGrant) Validate() (Scope, error) {
	var f FieldErrors
	n := utf8.RuneCountInString(g.Name)
	f.Check(n >= 1 && n <= MaxTokenName, "name", WrongLength(n, 1, MaxTokenName))
	f.checkLine("name", g.Name)
	scopes, err := parseScopes(g.Scopes)
	f.Check(err == nil && scopes != 0, "scopes", NotOneOf(allScopes.Names()...).
		Saying("must be one or several of %s", strings.Join(allScopes.Names(), ", ")))
	f.Check(g.Days >= 1 && g.Days <= MaxTokenDays, "expires_in_days", OutOfRange(1, MaxTokenDays))
	return scopes, f.Err()
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

// Hash returns the hash of the token.
func (t *APIToken) Hash() [32]byte { return [32]byte(t.TokenHash) }

// Key returns the token's place in the list.
func (t *APIToken) Key() ListKey { return ListKey{t.CreatedAt.Unix(), HashNumber(t.TokenHash)} }

// HashNumber returns the SessionID of a token's hash as a number.
func HashNumber(hash []byte) int64 { return int64(binary.BigEndian.Uint64(hash)) }
