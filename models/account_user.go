package models

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
	"gorm.io/gorm"
)

// User is an account. An account without a password hash cannot log in.
type User struct {
	ID             int64
	Username       string // unique without regard to case or accents
	Email          string // unique; ends in NoEmailDomain if the account has no address
	PasswordHash   string
	Role           Role
	DisplayName    *string // nil: shows the username
	Bio            string
	AvatarURL      *string // nil: none
	FollowersCount int64
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Author is the author of content, or another user that a list shows. Of a deleted account it has only the id, a
// username that begins with "deleted~", and the display name "[deleted]".
type Author struct {
	ID          int64
	Username    string
	DisplayName *string // nil: shows the username
	AvatarURL   *string // nil: none
}

// authorColumns reads the user u as an Author that is embedded with the prefix author_.
const authorColumns = `u.id AS author_id, u.username AS author_username,
			u.display_name AS author_display_name, u.avatar_url AS author_avatar_url`

// Registration is the input that opens an account.
type Registration struct {
	Username string
	Email    string
	Password string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (r Registration) Validate() error {
	var f fieldErrors
	f.checkUsername("username", r.Username)
	f.checkEmail("email", r.Email)
	checkPassword(&f, "password", r.Password, append(emailNames(r.Email), r.Username)...)
	return f.err()
}

// ValidatePassword checks a new password of the account, which came in field (CodeInvalid).
func (u *User) ValidatePassword(field, password string) error {
	names := append(emailNames(u.Email), u.Username)
	if u.DisplayName != nil {
		names = append(names, *u.DisplayName)
	}
	var f fieldErrors
	checkPassword(&f, field, password, names...)
	return f.err()
}

// Profile is the description that users give of themselves. An empty field is none.
type Profile struct {
	DisplayName string
	Bio         string // plain text
	AvatarURL   string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (p Profile) Validate() error {
	var f fieldErrors
	f.checkLength("display_name", p.DisplayName, MaxDisplayName)
	if p.DisplayName != "" && showsNothing(p.DisplayName) {
		f.check(false, "display_name", NotALine().Saying("must be visible"))
	} else {
		f.checkLine("display_name", p.DisplayName)
	}
	f.checkLength("bio", p.Bio, MaxBio)
	f.checkLines("bio", p.Bio)
	f.checkAvatarURL("avatar_url", p.AvatarURL)
	return f.err()
}

// CreateUser creates an account and sets its id and times. CodeConflict, with the field: the name or the address is
// taken, or held by a ban (see DeleteBannedUser).
func (s *Store) CreateUser(ctx context.Context, u *User) error {
	return s.createdUser(ctx, u, s.transact(ctx, func(tx *Tx) error {
		if err := createUser(tx, u); err != nil {
			return err
		}
		return logSecurity(tx, securityEvent{kind: eventAccountCreated, userID: u.ID})
	}))
}

func createUser(tx *Tx, u *User) error {
	u.ID = 0 // the transaction may be retried
	if u.Role == 0 {
		u.Role = RoleUser
	}
	if u.CreatedAt.IsZero() {
		u.CreatedAt = tx.Now
	}
	u.CreatedAt = wholeSeconds(u.CreatedAt)
	u.UpdatedAt = u.CreatedAt
	if err := tx.Create(u).Error; err != nil {
		return err
	}
	return notHeld(tx, u) // a deletion that freed the name meanwhile has held it in the same COMMIT
}

// createdUser returns the error of creating u as one that the caller can act on.
func (s *Store) createdUser(ctx context.Context, u *User, err error) error {
	if mySQLCode(err) == errDuplicateKey {
		return s.takenField(ctx, u)
	}
	if err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	return nil
}

// takenField finds out which of the two unique fields is taken. The server names it only in the text of its message.
func (s *Store) takenField(ctx context.Context, u *User) error {
	const query = `
		SELECT COUNT(*)
		FROM users
		WHERE username=?`
	var names int
	if err := s.db.WithContext(ctx).Raw(query, u.Username).Scan(&names).Error; err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	if names > 0 {
		return errTaken("username")
	}
	return errTaken("email")
}

func errTaken(field string) *Error {
	return &Error{Code: CodeConflict, Message: "An account with this " + field + " exists.",
		Fields: []FieldError{Broken(FieldTaken, "is taken").In(field)}}
}

func errNoUser() *Error { return Errorf(CodeNotFound, "There is no such user.") }

// UserByID reads an account. CodeNotFound: it does not exist or was deleted.
func (s *Store) UserByID(ctx context.Context, id int64) (*User, error) {
	return s.userWhere(ctx, "id=?", id)
}

// NormalizeLogin returns the form in which logins are compared, which equates what MySQL does: without space around it,
// regardless of case, accents and invisible characters.
func NormalizeLogin(login string) string {
	base := strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) || isInvisible(r) {
			return -1
		}
		return r
	}, norm.NFKD.String(strings.TrimSpace(login)))
	return norm.NFC.String(cases.Fold().String(base))
}

// UserByLogin reads an account by its name or, if login contains an '@', by its e-mail address. Both are compared by
// NormalizeLogin, and a name has to be in ASCII. CodeNotFound: the account does not exist.
func (s *Store) UserByLogin(ctx context.Context, login string) (*User, error) {
	login = CleanLine(login)
	column, of := "username", func(u *User) bool { return strings.EqualFold(u.Username, login) }
	if strings.Contains(login, "@") {
		column, of = "email", func(u *User) bool { return NormalizeLogin(u.Email) == NormalizeLogin(login) }
	}
	user, err := s.userWhere(ctx, column+"=?", login)
	if err == nil && !of(user) {
		return nil, errNoUser()
	}
	return user, err
}

func (s *Store) userWhere(ctx context.Context, condition string, arg any) (*User, error) {
	var u User
	err := s.db.WithContext(ctx).Where(condition+" AND deleted_at IS NULL", arg).Take(&u).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, errNoUser()
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	return &u, nil
}

// PublicUser is the public view of an account.
type PublicUser struct {
	Author         Author `gorm:"embedded;embeddedPrefix:author_"`
	Role           Role
	Bio            string
	CreatedAt      time.Time
	PostsCount     int64 // not deleted
	CommentsCount  int64 // not deleted, including those on deleted posts
	FollowersCount int64
	FollowingCount int64
	Followed       bool // by the viewer
	Blocked        bool // by the viewer
}

// PublicUserByID reads a user as viewer (0 for the anonymous) sees them, in one query. Followers are a column. The
// other counts read one index entry for each row they count, about 0.1 ms per thousand; FollowingCount is at most
// MaxFollows. CodeNotFound: the user does not exist or was deleted.
func (s *Store) PublicUserByID(ctx context.Context, viewer, id int64) (*PublicUser, error) {
	return s.publicUser(ctx, viewer, "u.id=?", id)
}

// PublicUserByName is PublicUserByID for a username, without regard to case.
func (s *Store) PublicUserByName(ctx context.Context, viewer int64, name string) (*PublicUser, error) {
	user, err := s.publicUser(ctx, viewer, "u.username=?", name)
	if err == nil && !strings.EqualFold(user.Author.Username, name) { // as in UserByLogin
		return nil, errNoUser()
	}
	return user, err
}

// prefixWindow is the number of names that UsersByPrefix examines.
const prefixWindow = 100

// UsersByPrefix returns users whose names begin with prefix, without regard to case, in the order of their names: at
// most limit of the first prefixWindow. It passes over deleted accounts and those that the viewer blocks.
func (s *Store) UsersByPrefix(ctx context.Context, viewer int64, prefix string, limit int) ([]Author, error) {
	if len(prefix) > MaxUsername {
		return nil, nil
	}
	query := `
		SELECT u.id, u.username, u.display_name, u.avatar_url
		FROM (
			SELECT id
			FROM users FORCE INDEX (idx_username)
			WHERE username LIKE ?
			ORDER BY username
			LIMIT ?
		) n
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=n.id
		WHERE u.deleted_at IS NULL AND ` + notBlocked("u.id") + `
		ORDER BY u.username
		LIMIT ?`
	var users []Author
	err := s.db.WithContext(ctx).Raw(query, likeEscape(prefix)+"%", prefixWindow, viewer, limit).Scan(&users).Error
	if err != nil {
		return nil, fmt.Errorf("complete a username: %w", err)
	}
	return users, nil
}

func (s *Store) publicUser(ctx context.Context, viewer int64, condition string, arg any) (*PublicUser, error) {
	query := `
		SELECT ` + authorColumns + `, u.role, u.bio, u.created_at, u.followers_count,
			(SELECT COUNT(*) FROM posts p WHERE p.user_id=u.id AND p.status=?) AS posts_count,
			(SELECT COUNT(*) FROM comments c WHERE c.user_id=u.id AND c.status=?) AS comments_count,
			(SELECT COUNT(*) FROM follows f WHERE f.user_id=u.id) AS following_count,
			EXISTS (SELECT 1 FROM follows f WHERE f.user_id=? AND f.followed_id=u.id) AS followed,
			` + isBlocked("u.id") + ` AS blocked
		FROM users u
		WHERE ` + condition + ` AND u.deleted_at IS NULL`
	var u PublicUser
	read := s.db.WithContext(ctx).Raw(query, StatusNormal, StatusNormal, viewer, viewer, arg).Scan(&u)
	if read.Error != nil {
		return nil, fmt.Errorf("read user: %w", read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoUser()
	}
	return &u, nil
}

// UserExists returns CodeNotFound if the user does not exist or was deleted.
func (s *Store) UserExists(ctx context.Context, id int64) error {
	const query = `
		SELECT COUNT(*)
		FROM users
		WHERE id=? AND deleted_at IS NULL`
	var n int
	if err := s.db.WithContext(ctx).Raw(query, id).Scan(&n).Error; err != nil {
		return fmt.Errorf("read user %d: %w", id, err)
	}
	if n == 0 {
		return errNoUser()
	}
	return nil
}

// UpdateProfile replaces the profile of a user. Of two concurrent updates, the later one stays.
func (s *Store) UpdateProfile(ctx context.Context, userID int64, p Profile) error {
	const update = `
		UPDATE users
		SET display_name=NULLIF(?,''), bio=?, avatar_url=NULLIF(?,'')
		WHERE id=? AND deleted_at IS NULL`
	err := s.transact(ctx, func(tx *Tx) error {
		if err := tx.Exec(update, p.DisplayName, p.Bio, p.AvatarURL, userID).Error; err != nil {
			return err
		}
		if err := setImageUses(tx, userSubject(userID), []int64{userID}, p.AvatarURL); err != nil {
			return err
		}
		return sessionsChanged(tx, userID) // which hold the name
	})
	if err != nil {
		return fmt.Errorf("update profile of user %d: %w", userID, err)
	}
	return nil
}

// UserIDs returns the first limit ids of users that were not deleted, in ascending order.
func (s *Store) UserIDs(ctx context.Context, limit int) ([]int64, error) {
	const query = `
		SELECT id
		FROM users
		WHERE deleted_at IS NULL
		ORDER BY id
		LIMIT ?`
	var ids []int64
	if err := s.db.WithContext(ctx).Raw(query, limit).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read user ids: %w", err)
	}
	return ids, nil
}
