package models

import "time"

// RedactedText replaces the title and the content of a post or comment whose present version was redacted, until its
// author edits it.
const RedactedText = "[redacted]"

// Outcomes of a Redaction.
const (
	OutcomeRedacted = "redacted"
	OutcomeDeclined = "declined"
)

// Redaction is an author's request that a moderator overwrite the text of one version of a post or comment.
type Redaction struct {
	ID          int64
	TargetType  TargetKind
	TargetID    int64
	Version     int64
	Requester   Author `gorm:"embedded;embeddedPrefix:author_"`
	Reason      string
	RequestedAt time.Time
	Resolver    Author `gorm:"embedded;embeddedPrefix:resolver_"` // the zero Author while it is open
	ResolvedAt  *time.Time
	Outcome     *string // nil while it is open
	Note        string  // of the moderator who resolved it
	ReportID    int64   // the open case about the target, else 0: the version may be evidence
}

// Key returns the place of the request in a list.
func (r *Redaction) Key() ListKey { return ListKey{ID: r.ID} }
