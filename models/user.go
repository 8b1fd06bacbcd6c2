package models

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/mail"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"
)

// Role is what a user may do beyond their own content.
type Role int8

// The roles, each with the rights of those before it.
const (
	RoleUser      Role = 1
	RoleModerator Role = 2
	RoleAdmin     Role = 3
)

var roleNames = map[Role]string{RoleUser: "user", RoleModerator: "moderator", RoleAdmin: "admin"}

func (r Role) String() string { return roleNames[r] }

// ParseRole reads "user", "moderator" or "admin".
func ParseRole(name string) (Role, error) {
	for role, n := range roleNames {
		if n == name {
			return role, nil
		}
	}
	return 0, fmt.Errorf("role %q is none of user, moderator, admin", name)
}

// User is an account. An account without a password hash cannot log in.
type User struct {
	ID           int64
	Username     string // unique without regard to case or accents
	Email        string // unique; ends in NoEmailDomain where there is none
	PasswordHash string
	Role         Role
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// NoEmailDomain ends the address of an account that has none: the column is unique and not null, and no mail can
// ever go to the reserved name "invalid" (RFC 2606).
const NoEmailDomain = ".invalid"

// Limits on what a user gives, in characters.
const (
	MinUsername = 3
	MaxUsername = 50
	MaxEmail    = 100
	MinPassword = 8
	MaxPassword = 128
)

// usernames are plain ASCII so that no two look alike and a mention in a text has a clear end.
var usernamePattern = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])$`)

// Registration is what a person gives to open an account.
type Registration struct {
	Username string
	Email    string
	Password string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (r Registration) Validate() error {
	var f fieldErrors
	n := utf8.RuneCountInString(r.Username)
	f.check(n >= MinUsername && n <= MaxUsername && usernamePattern.MatchString(r.Username), "username",
		fmt.Sprintf("must be %d to %d letters (a-z), digits, '_', '.' or '-', beginning with a letter or digit and ending with one or '_'", MinUsername, MaxUsername))
	f.check(validEmail(r.Email), "email", fmt.Sprintf("must be an e-mail address of at most %d characters", MaxEmail))
	f.check(validPassword(r.Password), "password", fmt.Sprintf("must have %d to %d characters", MinPassword, MaxPassword))
	return f.err()
}

func validPassword(p string) bool {
	n := utf8.RuneCountInString(p)
	return utf8.ValidString(p) && n >= MinPassword && n <= MaxPassword
}

func validEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	if err != nil || a.Address != s || utf8.RuneCountInString(s) > MaxEmail {
		return false
	}
	_, domain, _ := strings.Cut(s, "@")
	return strings.Contains(domain, ".") && !strings.HasSuffix(s, NoEmailDomain) && !strings.ContainsAny(s, " \"")
}

// CreateUser writes a new account and fills in its id and times. A taken name or address gives CodeConflict with the
// field named.
func (s *Store) CreateUser(ctx context.Context, u *User) error {
	if u.Role == 0 {
		u.Role = RoleUser
	}
	if u.CreatedAt.IsZero() {
		u.CreatedAt = s.now()
	}
	u.CreatedAt = second(u.CreatedAt)
	u.UpdatedAt = u.CreatedAt
	err := s.db.WithContext(ctx).Create(u).Error
	if mysqlCode(err) == errDuplicateKey {
		return s.takenField(ctx, u)
	}
	if err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	return nil
}

// takenField asks which of the two unique fields was taken: the server's message would tell, but only as text.
func (s *Store) takenField(ctx context.Context, u *User) error {
	var names int
	if err := s.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM users WHERE username=?", u.Username).Scan(&names).Error; err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	field := FieldError{"email", "is taken"}
	if names > 0 {
		field = FieldError{"username", "is taken"}
	}
	return &Error{Code: CodeConflict, Message: "An account with this " + field.Field + " exists.", Fields: []FieldError{field}}
}

// UserByID gives CodeNotFound when there is none.
func (s *Store) UserByID(ctx context.Context, id int64) (*User, error) {
	return s.userWhere(ctx, "id=?", id)
}

// UserByLogin finds a user by name or, when login has an '@', by e-mail address. CodeNotFound when there is none.
func (s *Store) UserByLogin(ctx context.Context, login string) (*User, error) {
	if strings.Contains(login, "@") {
		return s.userWhere(ctx, "email=?", login)
	}
	return s.userWhere(ctx, "username=?", login)
}

func (s *Store) userWhere(ctx context.Context, where string, arg any) (*User, error) {
	var u User
	err := s.db.WithContext(ctx).Where(where, arg).Take(&u).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, Errorf(CodeNotFound, "There is no such user.")
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	return &u, nil
}

// SetRole changes what a user may do. CodeNotFound when there is no such user.
func (s *Store) SetRole(ctx context.Context, userID int64, role Role) error {
	err := s.db.WithContext(ctx).Exec("UPDATE users SET role=? WHERE id=?", role, userID).Error
	if err != nil {
		return fmt.Errorf("set role of user %d: %w", userID, err)
	}
	return nil
}

// UserIDs gives the first limit user ids in ascending order.
func (s *Store) UserIDs(ctx context.Context, limit int) ([]int64, error) {
	var ids []int64
	if err := s.db.WithContext(ctx).Raw("SELECT id FROM users ORDER BY id LIMIT ?", limit).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read user ids: %w", err)
	}
	return ids, nil
}

// SessionLife is how long a token is good for.
const SessionLife = 90 * 24 * time.Hour

// Session is who a token stands for.
type Session struct {
	UserID    int64
	Username  string
	Role      Role
	ExpiresAt time.Time
}

// NewToken makes a bearer token, 256 random bits in 43 characters of URL-safe base64, and the hash it is stored as.
func NewToken() (token string, hash [32]byte) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	token = base64.RawURLEncoding.EncodeToString(secret[:])
	return token, HashToken(token)
}

// HashToken gives the form in which a token is stored and looked up. The token is random, so a plain hash will do.
func HashToken(token string) [32]byte { return sha256.Sum256([]byte(token)) }

// CreateSession opens a session of SessionLife and gives its token, which is stored nowhere.
func (s *Store) CreateSession(ctx context.Context, userID int64) (string, error) {
	token, hash := NewToken()
	now := second(s.now())
	err := s.db.WithContext(ctx).Exec("INSERT INTO sessions (user_id, token_hash, created_at, expires_at) VALUES (?,UNHEX(?),?,?)",
		userID, hexOf(hash), now, now.Add(SessionLife)).Error
	if err != nil {
		return "", fmt.Errorf("create session: %w", err)
	}
	return token, nil
}

// SessionByHash gives the session of a token's hash; CodeUnauthorized when it is unknown, ended or expired.
func (s *Store) SessionByHash(ctx context.Context, hash [32]byte) (*Session, error) {
	var session Session
	read := s.db.WithContext(ctx).Raw("SELECT s.user_id, u.username, u.role, s.expires_at FROM sessions s JOIN users u ON u.id=s.user_id"+
		" WHERE s.token_hash=UNHEX(?) AND s.expires_at>?", hexOf(hash), s.now().UTC()).Scan(&session)
	if read.Error != nil {
		return nil, fmt.Errorf("read session: %w", read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, Errorf(CodeUnauthorized, "The token is not valid.")
	}
	return &session, nil
}

// DeleteSession ends one session; ending what is not there is no error.
func (s *Store) DeleteSession(ctx context.Context, hash [32]byte) error {
	if err := s.db.WithContext(ctx).Exec("DELETE FROM sessions WHERE token_hash=UNHEX(?)", hexOf(hash)).Error; err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	return nil
}

// PurgeSessions deletes at most limit expired sessions and says how many it deleted.
func (s *Store) PurgeSessions(ctx context.Context, limit int) (int64, error) {
	purge := s.db.WithContext(ctx).Exec("DELETE FROM sessions WHERE expires_at<=? ORDER BY expires_at LIMIT ?", s.now().UTC(), limit)
	if purge.Error != nil {
		return 0, fmt.Errorf("purge sessions: %w", purge.Error)
	}
	return purge.RowsAffected, nil
}
