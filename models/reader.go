package models

import (
	"regexp"
	"slices"
	"time"
)

// KeptPost is a post in a list of posts that a user keeps, such as bookmarks.
type KeptPost struct {
	Post  Post `gorm:"embedded"`
	RowID int64
}

// MaxDrafts is the number of drafts of an account.
const MaxDrafts = 50

// draftKeyPattern permits what needs no escaping in a path.
var draftKeyPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ValidDraftKey reports whether a draft can have the key.
func ValidDraftKey(key string) bool { return draftKeyPattern.MatchString(key) }

// Draft is a text that its user has not posted yet, and that nobody else sees.
type Draft struct {
	ID        int64
	Key       string    `gorm:"column:draft_key"` // chosen by the client
	Text      DraftText `gorm:"embedded"`
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// DraftText is the part of a draft that its user writes: of a new post, or of a comment if it has a PostID.
type DraftText struct {
	PostID   int64 // 0: it is a new post
	ParentID int64 // the comment that it replies to; 0 for none
	Title    string
	Content  string
	Tags     Tags // see NormalTags
}

// Validate returns CodeInvalid with every field that breaks a rule. Parts may be empty: a draft is not finished.
func (t DraftText) Validate() error {
	var f FieldErrors
	f.checkLength("title", t.Title, MaxTitle)
	f.checkLine("title", t.Title)
	f.checkText(t.Content)
	f.checkTags(t.Tags)
	f.Check(t.PostID >= 0, "post_id", BadFormat(FormatID, "must be the id of a post"))
	f.Check(t.ParentID >= 0, "parent_id", BadFormat(FormatID, "must be the id of a comment"))
	f.Check(t.ParentID == 0 || t.PostID != 0, "parent_id", About(FieldNeeds, "post_id", "needs post_id"))
	comment := t.PostID != 0
	f.Check(!comment || t.Title == "", "title",
		About(FieldExclusive, "post_id", "must be empty: a comment has no title"))
	f.Check(!comment || len(t.Tags) == 0, "tags",
		About(FieldExclusive, "post_id", "must be empty: a comment has no tags"))
	return f.Err()
}

// Equal reports whether two texts are the same.
func (t DraftText) Equal(other DraftText) bool {
	return t.PostID == other.PostID && t.ParentID == other.ParentID && t.Title == other.Title &&
		t.Content == other.Content && slices.Equal(t.Tags, other.Tags)
}

// MaxUnreadComments bounds the comments on one post that are examined to count the unread ones. As a count it stands
// for that many or more since the mark, including deleted ones.
const MaxUnreadComments = 1000

// ReadMark is how far a user has read the comments on a post.
type ReadMark struct {
	CommentID int64 // the last comment that was read; 0 if there was none
	ReadAt    time.Time
	Unread    int64 // see MaxUnreadComments
}

// ReaderState is the relation of a user to a post.
type ReaderState struct {
	Mark         *ReadMark // nil if the user has not opened the post
	Subscription Subscription
}
