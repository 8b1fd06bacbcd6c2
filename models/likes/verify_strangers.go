package likes

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

// StrangeLikes returns at most limit likes of a kind of target whose user has no row.
func (s *Store) StrangeLikes(ctx context.Context, kind models.TargetKind, limit int) ([]models.StrangeLike, error) {
	t := db.TargetTables[kind]
	query := `
		SELECT l.` + t.Column + ` AS id, l.user_id
		FROM ` + t.Likes + ` l FORCE INDEX (idx_user_id)
		LEFT JOIN users u ON u.id=l.user_id
		WHERE u.id IS NULL
		LIMIT ?`
	var list []struct{ ID, UserID int64 }
	if err := s.Read(ctx).Raw(query, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("find strangers in %s: %w", t.Likes, err)
	}
	likes := make([]models.StrangeLike, len(list))
	for i, l := range list {
		likes[i] = models.StrangeLike{Target: models.Target{Kind: kind, ID: l.ID}, UserID: l.UserID}
	}
	return likes, nil
}
