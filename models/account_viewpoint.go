package models

import (
	"context"
	"fmt"
)

// Viewpoint is what makes pages of posts and comments differ between viewers, apart from likes.
type Viewpoint struct {
	Blocks    bool // the viewer blocks somebody, whose posts and comments are left out
	Bookmarks bool // the viewer has bookmarked a post
	Standings bool // the viewer has read a post, or subscribed to one
}

// Viewpoint reads the Viewpoint of a user.
func (s *Store) Viewpoint(ctx context.Context, viewer int64) (Viewpoint, error) {
	const query = `
		SELECT
			EXISTS (SELECT 1 FROM blocks WHERE user_id=?) AS blocks,
			EXISTS (SELECT 1 FROM bookmarks WHERE user_id=?) AS bookmarks,
			EXISTS (SELECT 1 FROM read_marks WHERE user_id=?) OR
				EXISTS (SELECT 1 FROM subscriptions WHERE user_id=?) AS standings`
	var v Viewpoint
	if err := s.db.WithContext(ctx).Raw(query, viewer, viewer, viewer, viewer).Scan(&v).Error; err != nil {
		return Viewpoint{}, fmt.Errorf("read the viewpoint of user %d: %w", viewer, err)
	}
	return v, nil
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
	if err := s.db.WithContext(ctx).Raw(query, userID, posts).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read bookmarks of user %d: %w", userID, err)
	}
	for _, id := range ids {
		bookmarked[id] = true
	}
	return bookmarked, nil
}
