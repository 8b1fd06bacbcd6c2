package models

import "time"

// NotificationKind is the kind of event that a notification reports.
type NotificationKind int8

// The kinds.
const (
	NotifyReply     NotificationKind = 1 // a comment on the user's post, or a reply to their comment
	NotifyMention   NotificationKind = 2 // somebody wrote @name
	NotifyMilestone NotificationKind = 3 // the likes of the user's post or comment reached a milestone
	NotifyReport    NotificationKind = 4 // the user's report was resolved
	NotifyConfirmed NotificationKind = 5 // the user's claim is confirmed
	NotifyRejected  NotificationKind = 6 // the user's claim was rejected
	NotifyExpiring  NotificationKind = 7 // the user's claim expires soon
	NotifyComment   NotificationKind = 8 // a comment on a post that the user follows
)

func (k NotificationKind) String() string {
	switch k {
	case NotifyReply:
		return "reply"
	case NotifyMention:
		return "mention"
	case NotifyReport:
		return "report"
	case NotifyConfirmed:
		return "claim_confirmed"
	case NotifyRejected:
		return "claim_rejected"
	case NotifyExpiring:
		return "claim_expiring"
	case NotifyComment:
		return "comment"
	}
	return "milestone"
}

// Notification reports an action of others to a user. It is written in the transaction of the action, and a unique key
// keeps it from being written twice. Users are not notified of their own actions, nor of those of users whom they
// block. Milestones count the likes of others than the author.
//
// The author of a post is notified of comments at its top level, the author of a comment of direct replies. A user who
// is notified of a comment as a reply is not notified of it as a mention too. An edit notifies
// those whom it mentions anew. Followers of a post are notified by NotifyFollowers. Users who mute a post are notified
// of nothing about it but outcomes.
type Notification struct {
	ID        int64
	Kind      NotificationKind
	Actor     Author `gorm:"embedded;embeddedPrefix:author_"` // zero except for replies, mentions and comments
	PostID    int64
	PostTitle string // of a report, "" if the post was deleted or its author is blocked by the user
	// Excerpt is that of the post; "" if it is not shown, or if the notification is about a comment.
	Excerpt   string
	CommentID int64 // 0: it is about the post
	// CommentText is the beginning of the comment's Markdown; "" if it is not shown.
	CommentText string
	Milestone   int64 // the number of likes that was reached; 0 for the other kinds
	ReportID    int64 // the user's report; 0 for the other kinds
	ClaimID     int64 // the user's claim; 0 for the other kinds
	// Claim is the rest of the claim; zero if the user has made a later claim to the same drop.
	Claim struct {
		DropID    int64
		DropTitle string // "" if the post was deleted
		Reason    string
		ExpiresAt *time.Time
	} `gorm:"embedded;embeddedPrefix:claim_"`
	Outcome   string // of the report
	CreatedAt time.Time
	Read      bool `gorm:"column:is_read"`
}

// MaxMentions is the number of names in one text whose users are notified. Further names notify nobody.
const MaxMentions = 10

// Key returns the place of n in the list.
func (n *Notification) Key() ListKey { return ListKey{ID: n.ID} }

// MaxUnread is the number up to which unread notifications are counted. It stands for any higher number, too.
const MaxUnread = 100

// UnreadVersion changes whenever a user is notified, or has read a notification in another second than before.
type UnreadVersion struct {
	Unread int64 // the latest unread notification; 0 for none
	ReadAt int64 // Unix time at which the user last read one; 0 for never
}

// Subscription is which notifications of a post a user gets.
type Subscription int8

// The subscriptions. Without one, a user is notified of replies and mentions.
const (
	NotSubscribed Subscription = 0
	Following     Subscription = 1 // also of every other comment, see NotifyFollowers
	Muted         Subscription = 2 // of nothing but the outcome of reports and claims
)

func (l Subscription) String() string {
	switch l {
	case Following:
		return "following"
	case Muted:
		return "muted"
	}
	return ""
}

// NewsStep is the result of NotifyFollowers.
type NewsStep struct {
	PostID   int64 // 0: no post is left
	Worked   bool  // false: the post waits for its next pass
	Begun    bool  // the step began a pass over the followers of the post
	Notified int64
}
