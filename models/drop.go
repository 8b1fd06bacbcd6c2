package models

import (
	"context"
	"fmt"
	"time"
)

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

// Ends returns when the drop ends or was closed, whichever is earlier; nil if it has no end.
func (d *Drop) Ends() *time.Time {
	if d.ClosedAt != nil && (d.EndsAt == nil || d.ClosedAt.Before(*d.EndsAt)) {
		return d.ClosedAt
	}
	return d.EndsAt
}

// dropEnds is Drop.Ends of a drop d.
const dropEnds = "LEAST(COALESCE(d.ends_at, d.closed_at), COALESCE(d.closed_at, d.ends_at))"

// GateDrop is the part of a drop that the gate needs.
type GateDrop struct {
	ID      int64
	Stock   int64
	Begins  *time.Time // nil: at once
	Ends    *time.Time // see Drop.Ends
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

const gateDropColumns = "d.id, d.stock, d.begins_at AS begins, " + dropEnds + " AS ends, d.version, d.claimed"

// DropGate returns the settings of drops and their live claims, as of one commit. Drops that do not exist, and those
// whose post is deleted, are left out. A drop with more than most live claims comes without them, for LiveClaims.
func (s *Store) DropGate(ctx context.Context, ids []int64, most int) (map[int64]*GateDrop, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	query := `
		SELECT ` + gateDropColumns + `, c.user_id, c.id AS claim_id
		FROM drops d
		STRAIGHT_JOIN posts p ON p.id=d.post_id AND p.status=?
		LEFT JOIN claims c FORCE INDEX (PRIMARY) ON c.drop_id=d.id AND c.state IN (?,?) AND d.claimed<=?
		WHERE d.id IN (` + joinIDs(ascending(ids)) + `)
		ORDER BY d.id, c.user_id`
	rows, err := s.db.WithContext(ctx).Raw(query, StatusNormal, StateReserved, StateConfirmed, most).Rows()
	if err != nil {
		return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
	}
	defer rows.Close()
	drops := make(map[int64]*GateDrop, len(ids))
	for rows.Next() {
		var d GateDrop
		var userID, claimID *int64
		err := rows.Scan(&d.ID, &d.Stock, &d.Begins, &d.Ends, &d.Version, &d.Claimed, &userID, &claimID)
		if err != nil {
			return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
		}
		if drops[d.ID] == nil {
			drops[d.ID] = &d
		}
		if userID != nil {
			drops[d.ID].Claims = append(drops[d.ID].Claims, LiveClaim{*userID, *claimID})
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
	}
	return drops, nil
}

// LiveClaims returns live claims of a drop in the order of their users: at most limit with users above after.
func (s *Store) LiveClaims(ctx context.Context, dropID, after int64, limit int) ([]LiveClaim, error) {
	const query = `
		SELECT user_id, id
		FROM claims FORCE INDEX (PRIMARY)
		WHERE drop_id=? AND user_id>? AND state IN (?,?)
		ORDER BY user_id
		LIMIT ?`
	// Row by row: Scan takes a multiple of the time.
	rows, err := s.db.WithContext(ctx).Raw(query, dropID, after, StateReserved, StateConfirmed, limit).Rows()
	if err != nil {
		return nil, fmt.Errorf("read claims of drop %d: %w", dropID, err)
	}
	defer rows.Close()
	list := make([]LiveClaim, 0, min(limit, 1024))
	for rows.Next() {
		var c LiveClaim
		if err := rows.Scan(&c.UserID, &c.ID); err != nil {
			return nil, fmt.Errorf("read claims of drop %d: %w", dropID, err)
		}
		list = append(list, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read claims of drop %d: %w", dropID, err)
	}
	return list, nil
}
