package models

import (
	"context"
	"fmt"
)

// StrangeClaim is a live claim of a user who has no row.
type StrangeClaim struct{ DropID, UserID, ID int64 }

// StrangeClaims returns at most limit live claims whose user has no row.
func (s *Store) StrangeClaims(ctx context.Context, limit int) (list []StrangeClaim, err error) {
	const query = `
		SELECT c.drop_id, c.user_id, c.id
		FROM claims c FORCE INDEX (idx_user_id)
		LEFT JOIN users u ON u.id=c.user_id
		WHERE u.id IS NULL AND c.state IN (?,?)
		LIMIT ?`
	if err := s.db.WithContext(ctx).Raw(query, StateReserved, StateConfirmed, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("find strangers in claims: %w", err)
	}
	return list, nil
}

// EndStrangeClaim voids a claim as the deletion of its account would have, so that its share of the stock comes back.
// With a gate, the job that releases ended claims takes it from there.
func (s *Store) EndStrangeClaim(ctx context.Context, c StrangeClaim) error {
	which := matching("user_id=? AND id=?", c.UserID, c.ID)
	if _, err := s.endClaims(ctx, c.DropID, StateVoided, ReasonAccountDeleted, which); err != nil {
		return fmt.Errorf("end claim %d: %w", c.ID, err)
	}
	return nil
}
