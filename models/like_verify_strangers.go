package models

import (
	"context"
	"fmt"
)

// StrangeLike is a like of a user who has no row.
type StrangeLike struct {
	Target Target
	UserID int64
}

// StrangeLikes returns at most limit likes of a kind of target whose user has no row.
func (s *Store) StrangeLikes(ctx context.Context, kind TargetKind, limit int) ([]StrangeLike, error) {
	t := likeTables[kind]
	query := `
		SELECT l.` + t.column + ` AS id, l.user_id
		FROM ` + t.likes + ` l FORCE INDEX (idx_user_id)
		LEFT JOIN users u ON u.id=l.user_id
		WHERE u.id IS NULL
		LIMIT ?`
	var list []struct{ ID, UserID int64 }
	if err := s.db.WithContext(ctx).Raw(query, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("find strangers in %s: %w", t.likes, err)
	}
	likes := make([]StrangeLike, len(list))
	for i, l := range list {
		likes[i] = StrangeLike{Target{kind, l.ID}, l.UserID}
	}
	return likes, nil
}
