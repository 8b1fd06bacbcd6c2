package models

import "time"

// Drop is limited stock that is attached to a post: vouchers, tickets, badges. A user has at most one live Claim to it.
// The users of a drop can claim it from BeginsAt until Ends, while claims are left and its post is not deleted.
type Drop struct {
	ID            int64
	PostID        int64
	Author        Author `gorm:"embedded;embeddedPrefix:author_"` // who made it
	Title         string
	Stock         int64
	Claimed       int64      // live claims that MySQL has; at most Stock
	BeginsAt      *time.Time // nil: at once
	EndsAt        *time.Time // nil: never
	ClosedAt      *time.Time // nil: it was not closed
	ConfirmWithin int64      // the time to confirm a claim, in seconds; 0: claims need no confirmation
	Version       int64      // grows with each change of the settings, from 1
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// Target returns the drop as a target of the gate.
func (d *Drop) Target() Target { return Target{KindDrop, d.ID} }

// Remaining returns the number of claims that are left.
func (d *Drop) Remaining() int64 { return d.Stock - d.Claimed }

// Ended reports whether the drop has ended at a time, or was closed. A closed drop stays closed on every clock.
func (d *Drop) Ended(at time.Time) bool {
	return d.ClosedAt != nil || d.EndsAt != nil && !at.Before(*d.EndsAt)
}

// DropState is whether a drop can be claimed.
type DropState string

// The states of drops.
const (
	DropOpen     DropState = "open"
	DropUpcoming DropState = "upcoming" // it has not begun
	DropSoldOut  DropState = "sold_out" // no claims are left
	DropEnded    DropState = "ended"    // or was closed
)

// StateAt returns the state of the drop at a time at which so many claims are left.
func (d *Drop) StateAt(at time.Time, remaining int64) DropState {
	switch {
	case d.Ended(at):
		return DropEnded
	case d.BeginsAt != nil && at.Before(*d.BeginsAt):
		return DropUpcoming
	case remaining == 0:
		return DropSoldOut
	}
	return DropOpen
}

// GateDrop is the part of a drop that the gate needs.
type GateDrop struct {
	ID      int64
	Stock   int64
	Begins  *time.Time // nil: at once
	Ends    *time.Time // nil: never; a drop that was closed has ended in 1970
	Version int64      // of these settings
	Claimed int64      // the number of live claims
	// Claims are the live claims in the order of their users. DropGate leaves them out if there are too many.
	Claims []LiveClaim `gorm:"-"`
}

// Target returns the drop as a target of the gate.
func (d *GateDrop) Target() Target { return Target{KindDrop, d.ID} }

// LiveClaim is a claim that is reserved or confirmed.
type LiveClaim struct {
	UserID int64
	ID     int64
}

// Limits on drops.
const (
	MaxStock         = 1_000_000
	MaxDrops         = 100            // of a post
	MaxConfirmWithin = 30 * 24 * 3600 // seconds
)

// lastDropTime bounds the times of drops: the gate compares them with its clock in milliseconds.
var lastDropTime = time.UnixMilli(maxEventTime)

// DropSettings are the part of a drop that its maker writes.
type DropSettings struct {
	Title         string
	Stock         int64
	BeginsAt      *time.Time // in whole milliseconds; nil: at once
	EndsAt        *time.Time // in whole milliseconds; nil: never
	ConfirmWithin int64      // seconds; 0: claims need no confirmation
}

// Settings returns the settings of the drop.
func (d *Drop) Settings() DropSettings {
	return DropSettings{d.Title, d.Stock, d.BeginsAt, d.EndsAt, d.ConfirmWithin}
}

// Validate returns CodeInvalid with every field that breaks a rule.
func (d DropSettings) Validate() error {
	var f FieldErrors
	f.checkTitle(d.Title)
	f.Check(d.Stock >= 1 && d.Stock <= MaxStock, "stock", OutOfRange(1, MaxStock))
	f.Check(d.ConfirmWithin >= 0 && d.ConfirmWithin <= MaxConfirmWithin, "confirm_within",
		OutOfRange(1, MaxConfirmWithin).Saying("must be between 1 and %d seconds", MaxConfirmWithin))
	for field, at := range map[string]*time.Time{"begins_at": d.BeginsAt, "ends_at": d.EndsAt} {
		f.Check(at == nil || at.Year() >= 1970 && at.Before(lastDropTime), field, Fault{FieldNotBefore,
			Params{"before": lastDropTime.UTC()}, "must be a time from 1970 to 2037"})
	}
	f.Check(d.BeginsAt == nil || d.EndsAt == nil || d.BeginsAt.Before(*d.EndsAt), "ends_at",
		About(FieldBadOrder, "begins_at", "must be after begins_at"))
	return f.Err()
}

// InMillis returns the settings with times as the columns keep them.
func (d DropSettings) InMillis() DropSettings {
	for _, at := range []**time.Time{&d.BeginsAt, &d.EndsAt} {
		if *at != nil {
			t := (*at).UTC().Truncate(time.Millisecond)
			*at = &t
		}
	}
	return d
}

// Equal reports whether two settings are the same.
func (d DropSettings) Equal(o DropSettings) bool {
	same := func(a, b *time.Time) bool { return a == nil && b == nil || a != nil && b != nil && a.Equal(*b) }
	return d.Title == o.Title && d.Stock == o.Stock && d.ConfirmWithin == o.ConfirmWithin &&
		same(d.BeginsAt, o.BeginsAt) && same(d.EndsAt, o.EndsAt)
}

// Logged returns the settings as the moderation log keeps them.
func (d DropSettings) Logged() map[string]any {
	return map[string]any{
		"title": d.Title, "stock": d.Stock, "begins_at": d.BeginsAt, "ends_at": d.EndsAt,
		"confirm_within": d.ConfirmWithin,
	}
}
