package models

import "time"

// SecurityLogLife is the time for which the security log is kept.
const SecurityLogLife = 90 * 24 * time.Hour

// LoggedEvent is a row of the security log: one event, or several equal ones, in an hour.
type LoggedEvent struct {
	ID        int64
	Kind      string
	UserID    *int64 // nil: no account, or several
	ActorID   *int64 // nil: the account itself, or the operator
	LoginHash string // "" unless it is a failed login without an account
	Address   string // "": the operator, or several
	UserAgent string // of the first
	Detail    string
	Attempts  int64
	CreatedAt time.Time // of the first, to the millisecond
	LastAt    time.Time // of the last
}

// Key returns the place of the event in the log.
func (e *LoggedEvent) Key() ListKey { return ListKey{e.CreatedAt.UnixMilli(), e.ID} }

// EventQuery selects the events to list. A field with its zero value does not filter.
type EventQuery struct {
	UserID, ActorID int64
	Address, Kind   string
	Since, Until    time.Time // from, and before
	After           *ListKey  // nil for the first page
	Limit           int
}
