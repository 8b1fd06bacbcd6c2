package models

import (
	"time"
)

// claimColumns are the columns of a Claim.
const claimColumns = `c.id, c.drop_id, c.user_id, c.state, c.reason, c.created_at, c.expires_at, c.confirmed_at,
			c.ended_at`

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
