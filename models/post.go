package models

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Status is whether content is shown or deleted.
type Status int8

// The states of posts and comments.
const (
	StatusNormal  Status = 1
	StatusDeleted Status = 2
)

func (s Status) String() string {
	if s == StatusDeleted {
		return "deleted"
	}
	return "normal"
}

// Post is a post as a viewer reads it, with its author's name.
type Post struct {
	ID            int64
	Author        Author `gorm:"embedded;embeddedPrefix:author_"`
	Title         string
	Content       string // Markdown; "" in a list with ViewSummary
	Excerpt       string // see Options.Excerpt; "" unless it is in a list with ViewSummary
	Tags          Tags
	LikesCount    int64
	CommentsCount int64
	Status        Status
	Version       int64 // grows with each edit
	CreatedAt     time.Time
	UpdatedAt     time.Time
	HotScore      int64     // see HotScore
	ActiveAt      time.Time // of the latest comment; CreatedAt while there is none
	LastCommenter Author    `gorm:"embedded;embeddedPrefix:last_commenter_"` // see lastCommenter
	Locked        bool      // takes no new comments and no edits
	Pinned        bool      // is in the list of pinned posts
	Bookmarked    bool      // by the viewer
	Relevance     int64     // to the terms of the search it was read from; 0 for other lists
}

// Limits on content. A title is counted in characters; content in bytes, as TEXT is.
const (
	MaxTitle   = 200
	MaxContent = 60_000
)

// PostText is the part of a post that its author writes.
type PostText struct {
	Title   string
	Content string
	Tags    Tags // see NormalTags

	Mentions []string // names of the users to notify, once each; at most MaxMentions
}

// Validate returns CodeInvalid with every field that breaks a rule.
func (t PostText) Validate() error {
	var f FieldErrors
	f.checkTitle(t.Title)
	f.checkContent(t.Content)
	f.checkTags(t.Tags)
	return f.Err()
}

// PostState is the part of a post that decides what may be done with its comments and drops.
type PostState struct {
	AuthorID int64
	Locked   bool
}

// ChangesTo returns the parts in which text differs from the post.
func (p *Post) ChangesTo(text PostText) Changes {
	var c Changes
	if p.Title != text.Title {
		c |= changedTitle
	}
	if p.Content != text.Content {
		c |= ChangedContent
	}
	if !slices.Equal(p.Tags, text.Tags) {
		c |= changedTags
	}
	return c
}

// VersionMismatch returns the error of an edit that is based on an outdated version; current is the latest one.
func VersionMismatch(current int64) *Error {
	return &Error{
		Code:    CodePrecondition,
		Message: fmt.Sprintf("It has been edited since you read it; its version is now %d.", current),
		Version: &current,
	}
}

// RestoreWithin is the time for which authors can restore a post that they deleted.
const RestoreWithin = 24 * time.Hour

// PostSort is the order of a list of posts.
type PostSort string

// The orders. Ties are broken by id, latest first.
const (
	PostsNew       PostSort = "new"       // latest first
	PostsHot       PostSort = "hot"       // highest HotScore first
	PostsTop       PostSort = "top"       // most likes first
	PostsActive    PostSort = "active"    // latest comment first
	PostsRelevance PostSort = "relevance" // by the terms of the query, which must have some
)

// Window is the period of creation that a list of posts is limited to. It ends now.
type Window string

// The windows.
const (
	WindowAll   Window = "all"
	WindowDay   Window = "day"   // 24 hours
	WindowWeek  Window = "week"  // 7 days
	WindowMonth Window = "month" // 30 days
	WindowYear  Window = "year"  // 365 days
)

// Since returns the beginning of the window that ends at now, in whole seconds; the zero time for WindowAll.
func (w Window) Since(now time.Time) time.Time {
	days := map[Window]int{WindowDay: 1, WindowWeek: 7, WindowMonth: 30, WindowYear: 365}[w]
	if days == 0 {
		return time.Time{}
	}
	return WholeSeconds(now).AddDate(0, 0, -days)
}

// Key returns the place of p in a list sorted by sort. For PostsRelevance use PostPage.Key.
func (p *Post) Key(sort PostSort) ListKey {
	switch sort {
	case PostsHot:
		return ListKey{p.HotScore, p.ID}
	case PostsTop:
		return ListKey{p.LikesCount, p.ID}
	case PostsActive:
		return ListKey{p.ActiveAt.Unix(), p.ID}
	}
	return ListKey{p.CreatedAt.Unix(), p.ID}
}

// HotSecondsPerTenfold is what ten times as many likes add to a HotScore, in seconds.
//
// Scores are stored. After a change of the formula, `likewise verify --repair` corrects those of existing posts.
const HotSecondsPerTenfold = 45_000

// HotScore returns a post's place in the order PostsHot: the time of its creation in seconds since 1970, plus 45,000
// seconds (12.5 hours) for each factor of ten in its likes, rounded to the second. The score changes only with likes,
// and not with the clock. So an index keeps the order.
func HotScore(createdAt time.Time, likes int64) int64 {
	return createdAt.Unix() + int64(math.Round(HotSecondsPerTenfold*math.Log10(float64(max(likes, 1)))))
}

// MaxExcerpt is the maximum length of an excerpt, in characters.
const MaxExcerpt = 280

// ExcerptVersion is the version of the rules of Options.Excerpt. It is incremented when the rules change, so that the
// excerpts of all posts are made again.
const ExcerptVersion = 2

// PostTime is when a post, or its comments, changed last.
type PostTime struct {
	ID        int64
	ChangedAt time.Time
}

// NewsVersion differs if the comments or drops of a post, or the posts of a tag, have changed. If one is deleted and
// another one restored, it can stay the same.
type NewsVersion struct {
	Name       string // of a tag
	Count      int64  // of the comments or posts that are not deleted
	Latest     int64  // id of the latest comment, deleted or not, or of the latest post that is not deleted
	LatestDrop int64  // of a post
}

// NewsItem is a comment or post, as news.
type NewsItem struct{ ID, UserID int64 }

// LiveCounts are the counts of a target that change without an edit.
type LiveCounts struct {
	Target
	Likes   int64
	Replies int64 // comments on a post, or direct replies to a comment, that are not deleted
}
