package stock

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

// StrangeClaims returns at most limit live claims whose user has no row.
func (s *Store) StrangeClaims(ctx context.Context, limit int) (list []models.StrangeClaim, err error) {
	const query = `
		SELECT c.drop_id, c.user_id, c.id
		FROM claims c FORCE INDEX (idx_user_id)
		LEFT JOIN users u ON u.id=c.user_id
		WHERE u.id IS NULL AND c.state IN (?,?)
		LIMIT ?`
	if err := s.Read(ctx).Raw(query, models.StateReserved, models.StateConfirmed,
		limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("find strangers in claims: %w", err)
	}
	return list, nil
}

// EndStrangeClaim voids a claim as the deletion of its account would have, so that its share of the stock comes back.
// With a gate, the job that releases ended claims takes it from there.
func (s *Store) EndStrangeClaim(ctx context.Context, c models.StrangeClaim) error {
	which := db.Matching("user_id=? AND id=?", c.UserID, c.ID)
	if _, err := s.endClaims(ctx, c.DropID, models.StateVoided, models.ReasonAccountDeleted, which); err != nil {
		return fmt.Errorf("end claim %d: %w", c.ID, err)
	}
	return nil
}
