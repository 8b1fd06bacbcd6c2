package content

import (
	"context"
	"fmt"

	"likewise/models"
)

// LastPostID returns the highest id of a post, deleted ones included; 0 without posts.
func (s *Store) LastPostID(ctx context.Context) (id int64, err error) {
	const query = `
		SELECT COALESCE(MAX(id), 0)
		FROM posts`
	if err := s.Read(ctx).Raw(query).Scan(&id).Error; err != nil {
		return 0, fmt.Errorf("read the last post: %w", err)
	}
	return id, nil
}

// PostTimes lists the posts with the next ids after this one, except deleted posts.
func (s *Store) PostTimes(ctx context.Context, after, ids int64) ([]models.PostTime, error) {
	const query = `
		SELECT id, IF(updated_at>active_at, updated_at, active_at) AS changed_at
		FROM posts FORCE INDEX (PRIMARY)
		WHERE id>? AND id<=? AND status=?
		ORDER BY id
		LIMIT ?`
	var list []models.PostTime
	err := s.Read(ctx).Raw(query, after, after+ids, models.StatusNormal, ids).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list the posts after %d: %w", after, err)
	}
	return list, nil
}
