package models

import "time"

// LikeRing is a report of accounts that repeatedly like the same author in the same seconds. workers.RingFinder decides
// what is a ring.
type LikeRing struct {
	ID           int64
	AuthorID     int64 // of the posts and comments that they like
	Author       string
	Coincidences int // likes that at least two of them gave in the same seconds
	Occasions    int // the number of these times
	FirstAt      time.Time
	LastAt       time.Time
	Evidence     []RingOccasion `gorm:"-"` // the latest ones, latest first
	EvidenceJSON string         `gorm:"column:evidence"`
	FoundAt      time.Time
	Status       RingStatus
	ResolvedAt   *time.Time
	ResolvedBy   *int64
	Reason       string
	Members      []RingMember `gorm:"-"`
}

// Key returns the place of the ring in the list.
func (r *LikeRing) Key() ListKey { return ListKey{ID: r.ID} }

// RingStatus is how a ring was resolved.
type RingStatus string

// The statuses.
const (
	RingOpen      RingStatus = "open"
	RingDismissed RingStatus = "dismissed" // a moderator found nothing wrong
	RingVoided    RingStatus = "voided"    // a moderator had the likes of its members voided
)

// RingMember is an account of a ring.
type RingMember struct {
	RingID       int64
	UserID       int64
	Username     string
	Coincidences int // likes given in the same seconds as another member
	Likes        int // all likes that the account gave the author in the examined days
}

// RingOccasion is a time at which members of a ring liked something of the author together.
type RingOccasion struct {
	At    time.Time  `json:"at"`
	Likes []RingLike `json:"likes"`
}

// RingLike is a like at an occasion.
type RingLike struct {
	UserID int64      `json:"user_id"`
	Type   TargetKind `json:"type"`
	ID     int64      `json:"id"`
	At     time.Time  `json:"liked_at"`
}

// AuthoredLike is a row of a like with the author of what was liked.
type AuthoredLike struct {
	RowID, UserID, TargetID, AuthorID int64
	Kind                              TargetKind `gorm:"-"`
	LikedAt                           time.Time
}

// MemberIDs returns the ids of the members, in their order.
func (r *LikeRing) MemberIDs() []int64 {
	ids := make([]int64, len(r.Members))
	for i, m := range r.Members {
		ids[i] = m.UserID
	}
	return ids
}
