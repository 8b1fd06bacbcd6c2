package models

import "time"

// Comment is a comment on a post, or a reply to a comment.
type Comment struct {
	ID           int64
	PostID       int64
	ParentID     *int64 // nil at the top level
	Author       Author `gorm:"embedded;embeddedPrefix:author_"`
	Depth        int    // 1 at the top level, one more than the parent's below
	Content      string // Markdown
	LikesCount   int64
	RepliesCount int64 // direct replies that are not deleted
	Status       Status
	Version      int64 // grows with each edit
	CreatedAt    time.Time
	UpdatedAt    time.Time
	Blocked      bool // the viewer has blocked the author

	Replies []Comment `gorm:"-"` // the replies that were read with the comment, in the order of the list
	// More reports whether the list of replies continues after Replies, at Rest. All of its rest may be deleted.
	More bool
	Rest *ListKey `gorm:"-"` // the last reply that was passed over after Replies; nil for none

	PostComments int64 `gorm:"-"` // on the post with this comment; 0 but for the one who has created it
}

// MaxDepth is the maximum depth of a comment.
const MaxDepth = 64

// Hidden reports whether the viewer sees a placeholder instead of the comment, because its replies are still shown.
func (c *Comment) Hidden() bool { return c.Status != StatusNormal || c.Blocked }

// CommentText is the part of a comment that its author writes.
type CommentText struct {
	Content  string
	Mentions []string // names of the users to notify, once each; at most MaxMentions
}

// Validate returns CodeInvalid with every field that breaks a rule.
func (t CommentText) Validate() error {
	var f FieldErrors
	f.checkContent(t.Content)
	return f.Err()
}

// CommentSort is the order of a list of comments.
type CommentSort string

// The orders. Ties are broken by id, in the direction of the list.
const (
	CommentsOld CommentSort = "old" // earliest first
	CommentsNew CommentSort = "new" // latest first
	CommentsTop CommentSort = "top" // most likes first

	CommentsFlatOld CommentSort = "flat old" // all comments on a post, whatever they reply to, earliest first
	CommentsFlatNew CommentSort = "flat new" // the same, latest first
)

// Flat reports whether the order is one of all comments on a post.
func (s CommentSort) Flat() bool { return s == CommentsFlatOld || s == CommentsFlatNew }

// Key returns the place of c in a list sorted by sort.
func (c *Comment) Key(sort CommentSort) ListKey {
	switch sort {
	case CommentsTop:
		return ListKey{c.LikesCount, c.ID}
	case CommentsFlatOld, CommentsFlatNew:
		return ListKey{c.ID, c.ID}
	}
	return ListKey{c.CreatedAt.Unix(), c.ID}
}

// ThreadQuery selects the part of a post's comments to read as a tree.
type ThreadQuery struct {
	ViewerID int64 // 0 for the anonymous
	PostID   int64
	Sort     CommentSort // of every level
	After    *ListKey    // of the top level; nil for its beginning
	Around   int64       // the comment whose ancestors and replies to read; 0 for the whole thread
	Depth    int         // levels at most, from 1; with Around, of replies to that comment
	Limit    int         // comments at most, from 1; with Around, beyond that comment and its ancestors
}

// RepliesRest returns the place where the list of replies to c, sorted by sort, continues after those that were read.
// It returns nil at the end of the list, and the zero ListKey if no reply was read.
func (c *Comment) RepliesRest(sort CommentSort) *ListKey {
	switch {
	case !c.More:
		return nil
	case c.Rest != nil:
		return c.Rest
	case len(c.Replies) == 0:
		return &ListKey{}
	}
	key := c.Replies[len(c.Replies)-1].Key(sort)
	return &key
}

// CommentSearch selects the comments that have all of some terms.
type CommentSearch struct {
	ViewerID int64    // 0 for the anonymous
	Terms    []string // see search.QueryTerms; at least one
	Sort     PostSort // PostsRelevance or PostsNew, the latest id first
	After    *ListKey // nil for the first page
	Limit    int
}

// FoundComment is a comment in the result of a search, with the title of its post.
type FoundComment struct {
	UserComment `gorm:"embedded"`

	Relevance int64
}

// Deletion describes how something was deleted.
type Deletion struct {
	At        time.Time // the zero time if unknown
	By        Author    `gorm:"embedded;embeddedPrefix:by_"` // the zero Author if unknown
	Reason    string    // "" if the author deleted it
	Operation int64     // id of the ContentOperation that deleted it; 0 for none
	Purged    bool      // the text was deleted, too, and nothing can be restored
}
