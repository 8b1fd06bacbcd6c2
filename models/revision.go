package models

import (
	"math/bits"
	"time"
)

// Changes is the set of parts of a text that differ from the version before.
type Changes uint8

// The parts.
const (
	changedTitle Changes = 1 << iota
	ChangedContent
	changedTags
)

var changeNames = map[Changes]string{changedTitle: "title", ChangedContent: "content", changedTags: "tags"}

// Names returns the parts one by one, in the order of the constants; never nil.
func (c Changes) Names() []string {
	names := make([]string, 0, bits.OnesCount8(uint8(c)))
	for part := changedTitle; part <= changedTags; part <<= 1 {
		if c&part != 0 {
			names = append(names, changeNames[part])
		}
	}
	return names
}

// Revision is a version of a post or comment. In lists it has no text.
type Revision struct {
	Version    int64
	Editor     Author `gorm:"embedded;embeddedPrefix:author_"` // the zero Author after a redaction
	Title      string // of a post, as are Tags
	Content    string // Markdown
	Tags       Tags
	Size       int64      // of Content, in bytes
	Changed    Changes    // none in the first version
	CreatedAt  time.Time  // when it was written
	RedactedAt *time.Time // nil unless the version was redacted; it has no text then
}

// Bounds on the versions of one post or comment. The current version, the first one and the reported ones (see
// MaxReportedVersions) are always kept. An edit that exceeds a bound deletes the oldest of the others.
const (
	MaxRevisions     = 100
	MaxRevisionBytes = 2 << 20 // of content
)
