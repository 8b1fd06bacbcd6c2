package models

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"gorm.io/gorm"
)

// Role is what a user may do beyond their own content.
type Role int8

// The roles, each with the rights of those before it. No user has RoleAnonymous: it is what everybody may do.
const (
	RoleAnonymous Role = 0
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
	ID             int64
	Username       string // unique without regard to case or accents
	Email          string // unique; ends in NoEmailDomain where there is none
	PasswordHash   string
	Role           Role
	DisplayName    *string // nil: shows the username
	Bio            string
	AvatarURL      *string // nil: none
	FollowersCount int64
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Author is the user who wrote something, or another user that a list shows. Of a deleted account nothing is left but
// the id, a username that begins with "deleted~", and the display name "[deleted]".
type Author struct {
	ID          int64
	Username    string
	DisplayName *string // nil: shows the username
	AvatarURL   *string // nil: none
}

// authorColumns reads the user u as an Author that is embedded with the prefix author_.
const authorColumns = "u.id AS author_id, u.username AS author_username, u.display_name AS author_display_name, u.avatar_url AS author_avatar_url"

// NoEmailDomain ends the address of an account that has none: the column is unique and not null, and no mail can
// ever go to the reserved name "invalid" (RFC 2606).
const NoEmailDomain = ".invalid"

// Limits on what a user gives, in characters.
const (
	MinUsername    = 3
	MaxUsername    = 50
	MaxEmail       = 100
	MinPassword    = 8
	MaxPassword    = 128
	MaxDisplayName = 50
	MaxBio         = 500
	MaxAvatarURL   = 500
)

// usernames are plain ASCII so that no two look alike and a mention in a text has a clear end.
var usernamePattern = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])$`)

// ValidUsername reports whether an account can have the name.
func ValidUsername(name string) bool {
	return len(name) >= MinUsername && len(name) <= MaxUsername && usernamePattern.MatchString(name)
}

// Registration is what a person gives to open an account.
type Registration struct {
	Username string
	Email    string
	Password string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (r Registration) Validate() error {
	var f fieldErrors
	f.check(ValidUsername(r.Username), "username",
		fmt.Sprintf("must be %d to %d letters (a-z), digits, '_', '.' or '-', beginning with a letter or digit and ending with one or '_'", MinUsername, MaxUsername))
	f.check(validEmail(r.Email), "email", fmt.Sprintf("must be an e-mail address of at most %d characters", MaxEmail))
	checkPassword(&f, "password", r.Password, append(emailNames(r.Email), r.Username)...)
	return f.err()
}

var passwordRule = fmt.Sprintf("must have %d to %d characters", MinPassword, MaxPassword)

// ValidatePassword holds the new password of an account, which came in field, to the rules (CodeInvalid).
func (u *User) ValidatePassword(field, password string) error {
	names := append(emailNames(u.Email), u.Username)
	if u.DisplayName != nil {
		names = append(names, *u.DisplayName)
	}
	var f fieldErrors
	checkPassword(&f, field, password, names...)
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
	return strings.Contains(domain, ".") && !strings.HasSuffix(s, NoEmailDomain) && !strings.ContainsAny(s, " \"") &&
		!strings.ContainsFunc(s, isUnseen)
}

// Profile is what users say about themselves. Empty is nothing.
type Profile struct {
	DisplayName string
	Bio         string // plain text
	AvatarURL   string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (p Profile) Validate() error {
	var f fieldErrors
	f.check(utf8.RuneCountInString(p.DisplayName) <= MaxDisplayName, "display_name", fmt.Sprintf("must have at most %d characters", MaxDisplayName))
	f.check(!strings.ContainsFunc(p.DisplayName, isUnseen) && p.DisplayName == strings.TrimSpace(p.DisplayName) &&
		(p.DisplayName == "" || !showsNothing(p.DisplayName)), "display_name",
		"must not begin or end with space, and be a single line of what can be seen, without control characters")
	f.check(utf8.RuneCountInString(p.Bio) <= MaxBio, "bio", fmt.Sprintf("must have at most %d characters", MaxBio))
	f.check(!strings.ContainsFunc(p.Bio, func(r rune) bool { return isUnseen(r) && !strings.ContainsRune("\n\r\t", r) }), "bio",
		"must have no control characters but line ends and tabs")
	f.check(p.AvatarURL == "" || validAvatarURL(p.AvatarURL), "avatar_url",
		fmt.Sprintf("must be an https URL of at most %d characters, without a user name", MaxAvatarURL))
	return f.err()
}

// validAvatarURL takes only what every client reads the same way: the characters of RFC 3986, and a host.
func validAvatarURL(s string) bool {
	if len(s) > MaxAvatarURL || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }) {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && !strings.Contains(u.Host, "%")
}

// CreateUser writes a new account and fills in its id and times. A name or address that is taken, or held by a ban (see
// DeleteBannedUser), is CodeConflict with the field named.
func (s *Store) CreateUser(ctx context.Context, u *User) error {
	return s.createdUser(ctx, u, s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.createUser(tx, u); err != nil {
			return err
		}
		return s.logSecurity(tx, securityEvent{kind: EventAccountCreated, userID: u.ID})
	}))
}

func (s *Store) createUser(tx *gorm.DB, u *User) error {
	u.ID = 0 // the transaction may run again
	if u.Role == 0 {
		u.Role = RoleUser
	}
	if u.CreatedAt.IsZero() {
		u.CreatedAt = s.now()
	}
	u.CreatedAt = second(u.CreatedAt)
	u.UpdatedAt = u.CreatedAt
	if err := tx.Create(u).Error; err != nil {
		return err
	}
	return s.notHeld(tx, u) // a deletion that freed the name meanwhile has held it in the same COMMIT
}

// createdUser makes the error of an account that could not be created one to act on.
func (s *Store) createdUser(ctx context.Context, u *User, err error) error {
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
	return errTaken(field)
}

func errTaken(field FieldError) *Error {
	return &Error{Code: CodeConflict, Message: "An account with this " + field.Field + " exists.", Fields: []FieldError{field}}
}

func errNoUser() *Error { return Errorf(CodeNotFound, "There is no such user.") }

// UserByID gives CodeNotFound when there is none, or it was deleted.
func (s *Store) UserByID(ctx context.Context, id int64) (*User, error) {
	return s.userWhere(ctx, "id=?", id)
}

// NormalizeLogin returns the form in which logins are compared: in lower case, and in the composed form of Unicode.
func NormalizeLogin(login string) string { return strings.ToLower(norm.NFC.String(login)) }

// UserByLogin finds a user by name or, when login has an '@', by e-mail address. Both are compared by NormalizeLogin: MySQL
// takes more for the same than it should here, such as characters that it ignores. CodeNotFound when there is none.
func (s *Store) UserByLogin(ctx context.Context, login string) (*User, error) {
	column, of := "username", func(u *User) string { return u.Username }
	if strings.Contains(login, "@") {
		column, of = "email", func(u *User) string { return u.Email }
	}
	user, err := s.userWhere(ctx, column+"=?", login)
	if err == nil && NormalizeLogin(of(user)) != NormalizeLogin(login) {
		return nil, errNoUser()
	}
	return user, err
}

func (s *Store) userWhere(ctx context.Context, where string, arg any) (*User, error) {
	var u User
	err := s.db.WithContext(ctx).Where(where+" AND deleted_at IS NULL", arg).Take(&u).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, errNoUser()
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	return &u, nil
}

// PublicUser is an account as everybody may see it.
type PublicUser struct {
	Author         Author `gorm:"embedded;embeddedPrefix:author_"`
	Bio            string
	CreatedAt      time.Time
	PostsCount     int64 // not deleted
	CommentsCount  int64 // not deleted, be they on a post that was
	FollowersCount int64
	FollowingCount int64
	Followed       bool // by the viewer
	Blocked        bool // by the viewer
}

// PublicUserByID reads a user as viewer (0 for the anonymous) sees it, in one query. Followers are a column; the other
// counts read as much of one index as they count, some 0.1 ms a thousand, and FollowingCount is at most MaxFollows.
// CodeNotFound when there is none, or it was deleted.
func (s *Store) PublicUserByID(ctx context.Context, viewer, id int64) (*PublicUser, error) {
	return s.publicUser(ctx, viewer, "u.id=?", id)
}

// PublicUserByName is PublicUserByID for a username, without regard to case.
func (s *Store) PublicUserByName(ctx context.Context, viewer int64, name string) (*PublicUser, error) {
	return s.publicUser(ctx, viewer, "u.username=?", name)
}

func (s *Store) publicUser(ctx context.Context, viewer int64, where string, arg any) (*PublicUser, error) {
	var u PublicUser
	read := s.db.WithContext(ctx).Raw("SELECT "+authorColumns+", u.bio, u.created_at, u.followers_count,"+
		" (SELECT COUNT(*) FROM posts p WHERE p.user_id=u.id AND p.status=1) AS posts_count,"+
		" (SELECT COUNT(*) FROM comments c WHERE c.user_id=u.id AND c.status=1) AS comments_count,"+
		" (SELECT COUNT(*) FROM follows f WHERE f.user_id=u.id) AS following_count,"+
		" EXISTS (SELECT 1 FROM follows f WHERE f.user_id=? AND f.followed_id=u.id) AS followed,"+
		" "+isBlocked("u.id")+" AS blocked"+
		" FROM users u WHERE "+where+" AND u.deleted_at IS NULL", viewer, viewer, arg).Scan(&u)
	if read.Error != nil {
		return nil, fmt.Errorf("read user: %w", read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoUser()
	}
	return &u, nil
}

// UserExists gives CodeNotFound when there is no such user, or it was deleted.
func (s *Store) UserExists(ctx context.Context, id int64) error {
	var n int
	if err := s.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM users WHERE id=? AND deleted_at IS NULL", id).Scan(&n).Error; err != nil {
		return fmt.Errorf("read user %d: %w", id, err)
	}
	if n == 0 {
		return errNoUser()
	}
	return nil
}

// UpdateProfile replaces what the user says about themselves; of two updates at once the later one stays.
func (s *Store) UpdateProfile(ctx context.Context, userID int64, p Profile) error {
	_, err := s.write(ctx, "UPDATE users SET display_name=NULLIF(?,''), bio=?, avatar_url=NULLIF(?,'') WHERE id=? AND deleted_at IS NULL",
		p.DisplayName, p.Bio, p.AvatarURL, userID)
	if err != nil {
		return fmt.Errorf("update profile of user %d: %w", userID, err)
	}
	return nil
}

// SetRole changes what a user may do, as a command of the operator: the moderation log has it without an actor. A lower role
// ends sessions and API tokens as in ChangeRole. Of a user who has the role nothing changes, and nothing is logged.
// CodeNotFound when there is no such user.
func (s *Store) SetRole(ctx context.Context, userID int64, role Role) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		found, err := lockStandings(tx, userID)
		if err != nil {
			return err
		}
		user := found[userID]
		if user == nil {
			return errNoUser()
		}
		if user.Role == role {
			return nil
		}
		if err := tx.Exec("UPDATE users SET role=? WHERE id=?", role, userID).Error; err != nil {
			return err
		}
		if role < user.Role {
			if _, err := endSessions(tx, userID, ""); err != nil {
				return err
			}
		}
		if err := s.logSecurity(tx, securityEvent{kind: EventRole, userID: userID, detail: user.Role.String() + " to " + role.String()}); err != nil {
			return err
		}
		return s.logModeration(tx, Act{Action: "user.role", TargetType: "user", TargetID: userID,
			Before: map[string]any{"role": user.Role.String()}, After: map[string]any{"role": role.String()}})
	})
	if err != nil {
		return fmt.Errorf("set role of user %d: %w", userID, err)
	}
	return nil
}

// UserIDs gives the first limit ids of users that were not deleted, in ascending order.
func (s *Store) UserIDs(ctx context.Context, limit int) ([]int64, error) {
	var ids []int64
	if err := s.db.WithContext(ctx).Raw("SELECT id FROM users WHERE deleted_at IS NULL ORDER BY id LIMIT ?", limit).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read user ids: %w", err)
	}
	return ids, nil
}

// DeleteUser makes an account a placeholder for the author of its content, in one transaction: name, address and
// password are freed, the profile is emptied, all sessions end, and it is put on record that likes have to go (see
// LikeVoid), and with them everything else that hangs on the account (see PurgeUser). It gives the hashes of the ended
// sessions. passwordHash is what was checked: CodeForbidden when the password was changed since. CodeBanned while the
// account is banned. CodeConflict keeps the last admin from leaving nobody who could make another one.
func (s *Store) DeleteUser(ctx context.Context, userID int64, passwordHash string) (ended [][32]byte, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.leaveAdmin(tx, userID); err != nil {
			return err
		}
		found, err := lockStandings(tx, userID)
		if err != nil {
			return err
		}
		user := found[userID]
		if user == nil {
			return errNoUser()
		}
		if ban := user.ban(s.now()); ban != nil {
			return errBanned(*ban) // an admin decides what becomes of it: see DeleteBannedUser
		}
		if user.PasswordHash != passwordHash {
			return Errorf(CodeForbidden, "The password was changed meanwhile.")
		}
		ended, err = s.emptyAccount(tx, userID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delete user %d: %w", userID, err)
	}
	return ended, nil
}

// emptyAccount does what DeleteUser does to an account that the transaction has locked.
func (s *Store) emptyAccount(tx *gorm.DB, userID int64) (ended [][32]byte, err error) {
	now := s.now().UTC()
	id := strconv.FormatInt(userID, 10)
	// "~" is in no username, and the address ends in NoEmailDomain: neither can be anybody else's.
	err = tx.Exec(`
		UPDATE users
		SET username=?, email=?, password_hash='', role=?, display_name='[deleted]', bio='', avatar_url=NULL,
			banned_until=NULL, ban_reason='', deleted_at=?
		WHERE id=?`,
		"deleted~"+id, id+"@deleted"+NoEmailDomain, RoleUser, now, userID).Error
	if err != nil {
		return nil, err
	}
	if ended, err = endSessions(tx, userID, ""); err != nil {
		return nil, err
	}
	if err := dropExport(tx, userID); err != nil {
		return nil, err
	}
	if err := s.logSecurity(tx, securityEvent{kind: EventAccountDeleted, userID: userID}); err != nil {
		return nil, err
	}
	return ended, tx.Exec("INSERT INTO like_voids (user_id, requested_by, requested_at) VALUES (?,?,?)", userID, userID, now).Error
}

// leaveAdmin gives CodeConflict when the user is the only admin who is not banned. The admins, who are few, are locked: of
// the last two only one can go.
func (s *Store) leaveAdmin(tx *gorm.DB, userID int64) error {
	var role Role
	if err := tx.Raw("SELECT role FROM users WHERE id=?", userID).Scan(&role).Error; err != nil || role != RoleAdmin {
		return err
	}
	var ids []int64
	if err := tx.Raw("SELECT id FROM users FORCE INDEX (idx_role) WHERE role=? AND deleted_at IS NULL", RoleAdmin).Scan(&ids).Error; err != nil {
		return err
	}
	users, err := lockStandings(tx, ids...)
	if err != nil {
		return err
	}
	for id, user := range users {
		if id != userID && s.stillActs(user, RoleAdmin) == nil {
			return nil
		}
	}
	return Errorf(CodeConflict, "You are the last admin: make somebody else one first.")
}
