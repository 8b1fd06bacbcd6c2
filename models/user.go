package models

import (
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// User is an account. An account without a password hash cannot log in.
type User struct {
	ID                 int64
	Username           string     // unique without regard to case or accents
	Email              string     // unique; ends in NoEmailDomain if the account has no address
	EmailVerifiedAt    *time.Time // nil: nobody has shown that the address is theirs
	EmailUndeliverable bool       // a mail to the address was refused for good
	PendingEmail       *string    // waits for its confirmation; nil: none
	PasswordHash       string
	Role               Role
	DisplayName        *string // nil: shows the username
	Bio                string
	AvatarURL          *string // nil: none
	FollowersCount     int64
	CreatedAt          time.Time
	UpdatedAt          time.Time
}

// Author is the author of content, or another user that a list shows. Of a deleted account it has only the id, a
// username that begins with "deleted~", and the display name "[deleted]".
type Author struct {
	ID          int64
	Username    string
	DisplayName *string // nil: shows the username
	AvatarURL   *string // nil: none
}

// Registration is the input that opens an account.
type Registration struct {
	Username string
	Email    string
	Password string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (r Registration) Validate() error {
	var f FieldErrors
	f.checkUsername("username", r.Username)
	f.checkEmail("email", r.Email)
	checkPassword(&f, "password", r.Password, append(emailNames(r.Email), r.Username)...)
	return f.Err()
}

// ValidatePassword checks a new password of the account, which came in field (CodeInvalid).
func (u *User) ValidatePassword(field, password string) error {
	names := append(emailNames(u.Email), u.Username)
	if u.DisplayName != nil {
		names = append(names, *u.DisplayName)
	}
	var f FieldErrors
	checkPassword(&f, field, password, names...)
	return f.Err()
}

// UsernameLife is the time for which a user keeps a new username.
const UsernameLife = 30 * 24 * time.Hour

// ValidateUsername checks a new username, which came in field (CodeInvalid).
func ValidateUsername(field, name string) error {
	var f FieldErrors
	f.checkUsername(field, name)
	return f.Err()
}

// Profile is the description that users give of themselves. An empty field is none.
type Profile struct {
	DisplayName string
	Bio         string // plain text
	AvatarURL   string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (p Profile) Validate() error {
	var f FieldErrors
	f.checkLength("display_name", p.DisplayName, MaxDisplayName)
	if p.DisplayName != "" && showsNothing(p.DisplayName) {
		f.Check(false, "display_name", NotALine().Saying("must be visible"))
	} else {
		f.checkLine("display_name", p.DisplayName)
	}
	f.checkLength("bio", p.Bio, MaxBio)
	f.checkLines("bio", p.Bio)
	f.checkAvatarURL("avatar_url", p.AvatarURL)
	return f.Err()
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

// Account is a user as moderators see them.
type Account struct {
	User        User `gorm:"embedded"`
	BannedUntil *time.Time
	BanReason   string
}

// Ban returns the ban that is in force at the time; nil if there is none.
func (a *Account) Ban(now time.Time) *Ban { return BanAt(now, a.BannedUntil, a.BanReason) }

// AccountQuery selects the accounts to list. With Username or Email, accounts are in the order of that field; otherwise
// the latest come first.
type AccountQuery struct {
	Username string // a prefix; "" for all
	Email    string // a prefix; only without Username
	Role     Role   // 0 for all
	Banned   bool   // only accounts that are banned now
	After    int64  // the id of the last account of the page before; 0 for the first page
	Limit    int
}

// AccountCounts holds the numbers of rows that belong to an account.
type AccountCounts struct {
	Posts, DeletedPosts       int64
	Comments, DeletedComments int64
	Sessions, Tokens          int64 // that have not expired
}

// Ban keeps a user from signing in, and so from everything that requires a token. The user's content and likes stay.
type Ban struct {
	Until  time.Time // ForGood, or the end of the ban, to the second
	Reason string    // shown to the user
}

// BanAt returns the ban of an account that is banned until a time, nil for one that is not; nil if it is over at now.
func BanAt(now time.Time, until *time.Time, reason string) *Ban {
	if until == nil || !until.After(now) {
		return nil
	}
	return &Ban{until.UTC(), reason}
}

// ForGood is the end of a permanent ban.
var ForGood = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Validate names every field that breaks a rule (CodeInvalid).
func (b Ban) Validate(now time.Time) error {
	var f FieldErrors
	f.Check(b.Until.After(now) && !b.Until.After(ForGood), "until", Broken(FieldNotFuture, "must be in the future"))
	f.CheckReason("reason", b.Reason)
	return f.Err()
}

// Permanent reports whether the ban has no end.
func (b Ban) Permanent() bool { return !b.Until.Before(ForGood) }

// ListedUser is a user in a list of followers, followed or blocked users.
type ListedUser struct {
	Author    Author    `gorm:"embedded;embeddedPrefix:author_"`
	Since     time.Time // when the follow or block was made
	ListOrder int64     // the id that breaks ties in the list's order
}

// Key returns the user's place in the list.
func (u *ListedUser) Key() ListKey { return ListKey{u.Since.Unix(), u.ListOrder} }

// MaxFollows is the number of users that one user can follow. A page of the feed reads each of them once.
const MaxFollows = 5000

// Viewpoint is what makes pages of posts and comments differ between viewers, apart from likes.
type Viewpoint struct {
	Blocks          bool // the viewer blocks somebody, whose posts and comments are left out
	Bookmarks       bool // the viewer has bookmarked a post
	HasReaderStates bool // the viewer has read a post, or subscribed to one
}

// UserComment is a comment in the list of a user's comments, with the title of its post.
type UserComment struct {
	Comment   Comment `gorm:"embedded"`
	PostTitle string
}

// Liked is a post or a comment in the list of a user's likes.
type Liked[T Post | Comment] struct {
	Item    T `gorm:"embedded"`
	RowID   int64
	LikedAt time.Time
}

// Key returns the place of the like in the list.
func (l *Liked[T]) Key() ListKey { return ListKey{ID: l.RowID} }
