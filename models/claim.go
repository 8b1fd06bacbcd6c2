package models

import (
	"fmt"
	"time"
)

// ClaimState is the state of a Claim.
type ClaimState int8

// The states. The first two are live: they count as claimed. The others are ended.
const (
	StateReserved  ClaimState = 1 // until it is confirmed, or expires
	StateConfirmed ClaimState = 2
	StateReturned  ClaimState = 3 // by its user
	StateExpired   ClaimState = 4 // it was not confirmed in time
	StateRejected  ClaimState = 5 // the gate accepted it, and the database could not
	StateVoided    ClaimState = 6 // by a moderator, or with the account of its user
)

var claimStates = map[ClaimState]string{
	StateReserved: "reserved", StateConfirmed: "confirmed", StateReturned: "returned", StateExpired: "expired",
	StateRejected: "rejected", StateVoided: "voided",
}

func (s ClaimState) String() string { return claimStates[s] }

// Live reports whether a claim in this state counts as claimed.
func (s ClaimState) Live() bool { return s == StateReserved || s == StateConfirmed }

// The reasons for which claims are rejected or voided.
const (
	ReasonStockLowered   = "stock_lowered"
	ReasonAccountDeleted = "account_deleted"
	ReasonPostDeleted    = "post_deleted"
	ReasonModerator      = "moderator"
)

// Claim is one user's share of a Drop. A user's later claim to the same drop takes the row of the earlier one, with a
// new id.
type Claim struct {
	ID          int64 // a global id: its remainder by the number of shards is the shard of the drop
	DropID      int64
	UserID      int64
	State       ClaimState
	Reason      string // why it was rejected or voided; "" in other states
	CreatedAt   time.Time
	ExpiresAt   *time.Time // nil if it needs no confirmation
	ConfirmedAt *time.Time // nil if it was not confirmed
	EndedAt     *time.Time // nil while it is live
}

// HeldClaim is a claim with the drop that it is to, as its user sees it.
type HeldClaim struct {
	Claim     `gorm:"embedded"`
	DropTitle string // "" if the post is deleted
	PostID    int64
}

// ClaimOfDrop is a claim with its user, as moderators see it.
type ClaimOfDrop struct {
	Claim `gorm:"embedded"`
	User  Author `gorm:"embedded;embeddedPrefix:author_"`
}

// ClaimVoid is the act of a moderator who voids the live claims of a user.
type ClaimVoid struct {
	ActorID int64
	UserID  int64
	DropID  int64 // 0: to all drops
	Reason  string
}

// MaxVoided is the number of claims that one call of VoidClaims ends at most.
const MaxVoided = 1000

// EndedClaim is a claim that MySQL ended first, and that the gate may still hold.
type EndedClaim struct {
	DropID int64
	UserID int64
	ID     int64
}

// ColdDrop is what had to be sent to the gate about a drop that turned out to be cold.
type ColdDrop struct {
	ID      int64
	Version int64        // of the settings; 0 for none
	Claims  []EndedClaim // to release
}

// ErrDropEnded returns the error of a claim of a drop that has ended.
func ErrDropEnded() *Error { return Errorf(CodeEnded, "The drop has ended.") }

func errSoldOut() *Error    { return Errorf(CodeSoldOut, "The drop is sold out.") }
func errNotStarted() *Error { return Errorf(CodeNotStarted, "The drop has not begun yet.") }

// Refusal returns the error of a claim that the drop does not accept at a time: CodeEnded, CodeNotStarted or
// CodeSoldOut, in this order; nil if it accepts one.
func (d *Drop) Refusal(at time.Time) error {
	switch {
	case d.Ended(at):
		return ErrDropEnded()
	case d.BeginsAt != nil && at.Before(*d.BeginsAt):
		return errNotStarted()
	case d.Claimed >= d.Stock:
		return errSoldOut()
	}
	return nil
}

// DropTally is a drop with its stored count and the count of its rows.
type DropTally struct {
	ID      int64
	Open    bool // its post is not deleted
	Stock   int64
	Claimed int64 // the column
	Rows    int64 `gorm:"column:live_rows"` // live claims
	Unsent  bool  // the gate may lack its settings
}

// Problem describes a count that is off; "" if it is right.
func (t *DropTally) Problem() string {
	switch {
	case t.Claimed != t.Rows:
		return fmt.Sprintf("claimed is %d and there are %d live claims", t.Claimed, t.Rows)
	case t.Rows > t.Stock:
		return fmt.Sprintf("there are %d live claims and the stock is %d", t.Rows, t.Stock)
	}
	return ""
}

// ClaimDrift is a difference between the live claims that MySQL has of a drop and those of the gate: a user with
// another claim, or with a claim in one of them.
type ClaimDrift struct {
	UserID int64
	Row    int64 // the id of the live claim in MySQL; 0: none
	Gate   int64 // the id in the gate; 0: none
	Ended  bool  // MySQL has ended the claim of the gate
	Leaves bool  // and it is to be released
}

func (d ClaimDrift) String() string {
	switch {
	case d.Leaves:
		return fmt.Sprintf("user %d: claim %d has ended in MySQL, and the gate is about to release it",
			d.UserID, d.Gate)
	case d.Ended:
		return fmt.Sprintf("user %d: claim %d has ended in MySQL, and the gate holds it", d.UserID, d.Gate)
	case d.Gate == 0:
		return fmt.Sprintf("user %d: claim %d is in MySQL, and not in the gate", d.UserID, d.Row)
	case d.Row == 0:
		return fmt.Sprintf("user %d: claim %d is in the gate, and has no row", d.UserID, d.Gate)
	}
	return fmt.Sprintf("user %d: claim %d is in MySQL, and claim %d in the gate", d.UserID, d.Row, d.Gate)
}

// StrangeClaim is a live claim of a user who has no row.
type StrangeClaim struct{ DropID, UserID, ID int64 }
