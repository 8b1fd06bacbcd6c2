package models

import (
	"context"
	"time"
)

// NotFound returns the CodeNotFound of a target that is deleted or never existed.
func NotFound(kind TargetKind) *Error {
	return Errorf(CodeNotFound, "There is no such %s.", kind)
}

// Liker is a user who likes a target.
type Liker struct {
	Author    Author    `gorm:"embedded;embeddedPrefix:author_"`
	RowID     int64     // grows with the time when the like was written; the order of the list
	CreatedAt time.Time // when the like was accepted
}

// LikesMode is how the likes of a site reach MySQL. All processes of a site agree on it, because Redis is the truth in
// one mode and MySQL in the other.
type LikesMode string

// The modes.
const (
	LikesGated  LikesMode = "gated"  // through the gate
	LikesDirect LikesMode = "direct" // in one transaction each
)

// LikeClock reads the clock by which likes are accepted. Several servers may accept likes, so it returns the earliest
// and the latest of their times.
type LikeClock func(context.Context) (earliest, latest time.Time, err error)

// GivenLike is the row of a like, as moderators see it.
type GivenLike struct {
	RowID     int64
	TargetID  int64
	LikedAt   time.Time // when it was accepted
	Status    Status    // of the target; 0 if it has no row
	AuthorID  int64     // of the target; 0 if it has no row
	Author    string    // the username of the author
	PostTitle string    // of the post, or of the post of the comment
}

// VoidedLike is a like that a LikeVoid voids.
type VoidedLike struct {
	RowID    int64
	TargetID int64
}
