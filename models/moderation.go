package models

import "time"

// PostFlag is a property that moderators set on a post, deleted or not.
type PostFlag string

// The flags.
const (
	PostLocked PostFlag = "locked" // new comments, and edits of the post and its comments, are rejected
	PostPinned PostFlag = "pinned" // it is in the list of pinned posts
)

// MaxPinned is the number of posts that can be pinned at the same time, including deleted ones. A page of the list of
// pinned posts reads and sorts all of them.
const MaxPinned = 100

// Moderation is the part of content that only moderators see.
type Moderation struct {
	Deletion Deletion `gorm:"embedded;embeddedPrefix:deletion_"` // the zero Deletion while it is not deleted
	ReportID int64    // the open case of its reports, else 0
}

// ModeratedPost is a post, deleted or not, as moderators see it.
type ModeratedPost struct {
	Post       Post       `gorm:"embedded"`
	Moderation Moderation `gorm:"embedded"`
}

// ModeratedComment is a comment, deleted or not, as moderators see it, without its replies.
type ModeratedComment struct {
	Comment    Comment `gorm:"embedded"`
	PostTitle  string
	Moderation Moderation `gorm:"embedded"`
}

// LoggedAct is an entry of the moderation log.
type LoggedAct struct {
	ID                      int64
	Actor                   Author `gorm:"embedded;embeddedPrefix:author_"`
	Action                  string
	TargetType              string
	TargetID                int64
	Reason                  string
	BeforeState, AfterState *string // JSON objects; nil if the target did not or does not exist
	RequestID               string
	CreatedAt               time.Time // to the millisecond
}

// Key returns the place of the act in the log: its time in milliseconds since 1970, and its id.
func (a *LoggedAct) Key() ListKey { return ListKey{a.CreatedAt.UnixMilli(), a.ID} }

// ActQuery selects the acts to list. A field with its zero value does not filter.
type ActQuery struct {
	ActorID      int64
	Action       string
	TargetType   string
	TargetID     int64     // with TargetType only
	Since, Until time.Time // from, and before
	After        *ListKey  // nil for the first page
	Limit        int
}

// OperationState is the progress of a ContentOperation.
type OperationState int8

// The states. An operation can be undone from each of the first two.
const (
	OperationDeleting OperationState = 1
	OperationDeleted  OperationState = 2
	OperationUndoing  OperationState = 3
	OperationUndone   OperationState = 4
)

func (o OperationState) String() string {
	return [...]string{"", "deleting", "deleted", "undoing", "undone"}[o]
}

// ContentOperation deletes all content that a user had written when it was requested. If it is undone, it restores
// exactly the content that it deleted: that is marked with the id of the operation, until another act restores or
// deletes it. The operation is a row that any process carries on, a batch at a time, so that it completes even if
// processes die.
type ContentOperation struct {
	ID                              int64
	UserID                          int64
	State                           OperationState
	RequestedBy                     int64
	RequestedAt                     time.Time
	Reason                          string
	LastPostID, LastCommentID       int64 // the user's latest when it was requested
	DonePostID, DoneCommentID       int64 // all content up to these is deleted, and closed in the gate
	PostsDeleted, CommentsDeleted   int64
	PostsRestored, CommentsRestored int64
	UndoneBy                        *int64
	FinishedAt                      *time.Time // of the deletion, then of the restoration
}
