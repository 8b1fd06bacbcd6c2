package web

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// The objects of the API, with the members that the pages show.

type list[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

type author struct {
	ID          int64   `json:"id"`
	Username    string  `json:"username"`
	DisplayName *string `json:"display_name"`
}

// Name returns the name to show.
func (a author) Name() string {
	if a.DisplayName != nil && *a.DisplayName != "" {
		return *a.DisplayName
	}
	return a.Username
}

type account struct {
	author

	Email               *string   `json:"email"`
	EmailVerified       bool      `json:"email_verified"`
	PendingEmail        *string   `json:"pending_email"`
	Role                string    `json:"role"`
	Bio                 string    `json:"bio"`
	CreatedAt           time.Time `json:"created_at"`
	UnreadNotifications int64     `json:"unread_notifications_count"`
}

// Moderates reports whether the account may use the moderators' desk.
func (a *account) Moderates() bool { return a != nil && (a.Role == "moderator" || a.Role == "admin") }

// Operates reports whether the account may use the operators' desk.
func (a *account) Operates() bool { return a != nil && a.Role == "admin" }

type session struct {
	User  account `json:"user"`
	Token string  `json:"token"`
}

type lastRead struct {
	CommentID *int64    `json:"comment_id"`
	At        time.Time `json:"at"`
}

type postCan struct {
	Edit, Delete, Comment, Like, Report, Remove bool
	AddDrop                                     bool `json:"add_drop"`
}

type post struct {
	ID            int64     `json:"id"`
	Author        author    `json:"author"`
	Title         string    `json:"title"`
	Content       string    `json:"content"`
	ContentHTML   string    `json:"content_html"`
	Excerpt       string    `json:"excerpt"`
	Tags          []string  `json:"tags"`
	LikesCount    int64     `json:"likes_count"`
	CommentsCount int64     `json:"comments_count"`
	Liked         bool      `json:"liked"`
	Bookmarked    bool      `json:"bookmarked"`
	Status        string    `json:"status"`
	Locked        bool      `json:"locked"`
	Pinned        bool      `json:"pinned"`
	LastRead      *lastRead `json:"last_read"`
	UnreadCount   *int64    `json:"unread_count"`
	Subscription  *string   `json:"subscription"`
	Version       int64     `json:"version"`
	CreatedAt     time.Time `json:"created_at"`
	Can           postCan   `json:"can"`
}

// Kind returns "post", as reports name it.
func (post) Kind() string { return "post" }

// Following reports whether the viewer follows the post.
func (p post) Following() bool { return p.Subscription != nil && *p.Subscription == "following" }

// Muted reports whether the viewer has muted the post.
func (p post) Muted() bool { return p.Subscription != nil && *p.Subscription == "muted" }

// Unread reports whether the viewer has something to read in the post.
func (p post) Unread() bool { return p.UnreadCount == nil || *p.UnreadCount > 0 }

// New returns the number of unread comments; 0 if the viewer has not read the post at all.
func (p post) New() int64 {
	if p.UnreadCount == nil {
		return 0
	}
	return *p.UnreadCount
}

type commentCan struct {
	Edit, Delete, Reply, Like, Report, Remove bool
}

type comment struct {
	ID           int64         `json:"id"`
	PostID       int64         `json:"post_id"`
	ParentID     *int64        `json:"parent_id"`
	Depth        int           `json:"depth"`
	Author       *author       `json:"author"`
	Content      string        `json:"content"`
	ContentHTML  string        `json:"content_html"`
	LikesCount   int64         `json:"likes_count"`
	RepliesCount int64         `json:"replies_count"`
	PostComments int64         `json:"post_comments_count"`
	Liked        bool          `json:"liked"`
	Status       string        `json:"status"`
	Version      int64         `json:"version"`
	CreatedAt    time.Time     `json:"created_at"`
	Can          commentCan    `json:"can"`
	Replies      list[comment] `json:"replies"`
}

// Kind returns "comment", as reports name it.
func (comment) Kind() string { return "comment" }

type titledComment struct {
	PostTitle string  `json:"post_title"`
	Comment   comment `json:"comment"`
}

type draft struct {
	Key       string    `json:"key"`
	PostID    *int64    `json:"post_id"`
	ParentID  *int64    `json:"parent_id"`
	Title     string    `json:"title"`
	Content   string    `json:"content"`
	Tags      []string  `json:"tags"`
	Version   int64     `json:"version"`
	UpdatedAt time.Time `json:"updated_at"`
}

// editKey is the form of the key of the draft of an edit: what is edited, and the version that the edit begins with. A
// number at its end keeps apart the drafts of several browsers.
var editKey = regexp.MustCompile(`^edit-(posts|comments)-([1-9][0-9]*)-([0-9]+)(?:-[0-9]+)?$`)

// Edits reports what the draft is an edit of: "posts", "comments", or "" if it is of something new.
func (d *draft) Edits() string {
	if m := editKey.FindStringSubmatch(d.Key); m != nil {
		return m[1]
	}
	return ""
}

// edits returns the version that the draft is an edit of; -1 if it is not an edit of that text.
func (d *draft) edits(kind string, id int64) int64 {
	m := editKey.FindStringSubmatch(d.Key)
	if m == nil || m[1] != kind || m[2] != strconv.FormatInt(id, 10) {
		return -1
	}
	version, err := strconv.ParseInt(m[3], 10, 64)
	if err != nil {
		return -1
	}
	return version
}

func (d *draft) ofNewPost() bool { return d.PostID == nil && d.Edits() == "" }

// Path returns the page on which the draft can be continued.
func (d *draft) Path() string {
	asked := "?draft=" + url.QueryEscape(d.Key)
	switch m := editKey.FindStringSubmatch(d.Key); {
	case m != nil:
		return "/" + m[1] + "/" + m[2] + "/edit" + asked
	case d.ParentID != nil:
		return fmt.Sprintf("/comments/%d/reply", *d.ParentID) + asked
	case d.PostID == nil:
		return "/posts/new" + asked
	case d.Key == draftKey(*d.PostID, 0):
		return fmt.Sprintf("/posts/%d", *d.PostID)
	}
	return fmt.Sprintf("/posts/%d/comment", *d.PostID) + asked
}

type ownClaim struct {
	ID        string     `json:"id"`
	State     string     `json:"state"`
	ExpiresAt *time.Time `json:"expires_at"`
}

type drop struct {
	ID            int64      `json:"id"`
	Title         string     `json:"title"`
	Stock         int64      `json:"stock"`
	Remaining     int64      `json:"remaining"`
	BeginsAt      *time.Time `json:"begins_at"`
	EndsAt        *time.Time `json:"ends_at"`
	ConfirmWithin *int64     `json:"confirm_within"`
	ClosedAt      *time.Time `json:"closed_at"`
	State         string     `json:"state"`
	Claim         *ownClaim  `json:"claim"`
	Can           struct{ Close, Claim bool }
}

type claim struct {
	ID        string     `json:"id"`
	DropTitle string     `json:"drop_title"`
	PostID    int64      `json:"post_id"`
	User      *author    `json:"user"`
	State     string     `json:"state"`
	Reason    *string    `json:"reason"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	EndedAt   *time.Time `json:"ended_at"`
}

type thread struct {
	list[comment]

	Post  *post  `json:"post"`
	Drops []drop `json:"drops"`
	Draft *draft `json:"draft"`
}

type postPage struct {
	list[post]

	Complete   *bool  `json:"complete"`
	TotalCount *int64 `json:"total_count"`
	Pinned     []post `json:"pinned"`
}

type commentPage struct {
	list[titledComment]

	Complete *bool `json:"complete"`
}

type tag struct {
	Name       string `json:"name"`
	PostsCount int64  `json:"posts_count"`
}

type user struct {
	author

	Bio            string    `json:"bio"`
	PostsCount     int64     `json:"posts_count"`
	CommentsCount  int64     `json:"comments_count"`
	FollowersCount int64     `json:"followers_count"`
	FollowingCount int64     `json:"following_count"`
	Followed       bool      `json:"followed"`
	Blocked        bool      `json:"blocked"`
	CreatedAt      time.Time `json:"created_at"`
	Can            struct {
		Follow, Block, Ban bool
	} `json:"can"`
	// Of the latest posts or comments, the page has one.
	Posts    *list[post]          `json:"posts"`
	Comments *list[titledComment] `json:"comments"`
}

type listedUser struct {
	User      author    `json:"user"`
	CreatedAt time.Time `json:"created_at"`
}

type liked struct {
	Post    *post    `json:"post"`
	Comment *comment `json:"comment"`
}

type notification struct {
	ID    int64   `json:"id"`
	Kind  string  `json:"kind"`
	Actor *author `json:"actor"`
	Post  struct {
		ID    int64  `json:"id"`
		Title string `json:"title"`
	} `json:"post"`
	CommentID *int64 `json:"comment_id"`
	Excerpt   string `json:"excerpt"`
	Milestone *int64 `json:"milestone"`
	Report    *struct {
		Outcome string `json:"outcome"`
	} `json:"report"`
	Claim *struct {
		DropTitle string `json:"drop_title"`
	} `json:"claim"`
	CreatedAt time.Time `json:"created_at"`
	Read      bool      `json:"read"`
}

type report struct {
	TargetType string    `json:"target_type"`
	TargetID   int64     `json:"target_id"`
	Reason     string    `json:"reason"`
	Detail     string    `json:"detail"`
	Outcome    *string   `json:"outcome"`
	CreatedAt  time.Time `json:"created_at"`
}

type sessionInfo struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	UserAgent string    `json:"user_agent"`
	Current   bool      `json:"current"`
}

type apiToken struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Scopes     []string   `json:"scopes"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
	Token      string     `json:"token"`
}

type revision struct {
	Version     int64     `json:"version"`
	Author      *author   `json:"author"`
	Size        int64     `json:"size"`
	Changed     []string  `json:"changed"`
	Redacted    bool      `json:"redacted"`
	CreatedAt   time.Time `json:"created_at"`
	Title       *string   `json:"title"`
	Content     *string   `json:"content"`
	ContentHTML *string   `json:"content_html"`
	Tags        []string  `json:"tags"`
}

// factors is the second factors of the visitor.
type factors struct {
	TOTP *struct {
		CreatedAt time.Time `json:"created_at"`
	} `json:"totp"`
	RecoveryCodesLeft int        `json:"recovery_codes_left"`
	ResetDueAt        *time.Time `json:"reset_due_at"`
}

// newTOTP is the secret of an app for codes.
type newTOTP struct {
	Secret string `json:"secret"`
	URI    string `json:"uri"`
}

type recoveryCodes struct {
	RecoveryCodes []string `json:"recovery_codes"`
}
