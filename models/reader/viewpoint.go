package reader

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

// Viewpoints reads the Viewpoints of users.
func (s *Store) Viewpoints(ctx context.Context, viewers []int64) (map[int64]models.Viewpoint, error) {
	query := `
		SELECT u.id,
			EXISTS (SELECT 1 FROM blocks b WHERE b.user_id=u.id) AS blocks,
			EXISTS (SELECT 1 FROM bookmarks m WHERE m.user_id=u.id) AS bookmarks,
			EXISTS (SELECT 1 FROM read_marks r WHERE r.user_id=u.id) OR
				EXISTS (SELECT 1 FROM subscriptions w WHERE w.user_id=u.id) AS has_reader_states
		FROM users u FORCE INDEX (PRIMARY)
		WHERE u.id IN (` + db.JoinIDs(viewers) + `)`
	var rows []struct {
		ID   int64
		View models.Viewpoint `gorm:"embedded"`
	}
	if err := s.Read(ctx).Raw(query).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read the viewpoints of %d users: %w", len(viewers), err)
	}
	views := make(map[int64]models.Viewpoint, len(rows))
	for _, row := range rows {
		views[row.ID] = row.View
	}
	return views, nil
}

// Bookmarked returns which of the posts the user has bookmarked.
func (s *Store) Bookmarked(ctx context.Context, userID int64, posts []int64) (map[int64]bool, error) {
	bookmarked := map[int64]bool{}
	if len(posts) == 0 {
		return bookmarked, nil
	}
	const query = `
		SELECT post_id
		FROM bookmarks FORCE INDEX (idx_user_post)
		WHERE user_id=? AND post_id IN ?`
	var ids []int64
	if err := s.Read(ctx).Raw(query, userID, posts).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read bookmarks of user %d: %w", userID, err)
	}
	for _, id := range ids {
		bookmarked[id] = true
	}
	return bookmarked, nil
}
