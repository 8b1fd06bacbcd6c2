package models

import (
	"context"
	"fmt"
)

// SetBookmark makes the user's bookmark of a post as asked; saying it again changes nothing. CodeNotFound: the post is
// deleted or was never there.
func (s *Store) SetBookmark(ctx context.Context, userID, postID int64, bookmarked bool) error {
	open, err := s.TargetOpen(ctx, Target{KindPost, postID})
	if err != nil {
		return err
	}
	if !open {
		return notFound(KindPost)
	}
	query, args := "DELETE FROM bookmarks WHERE user_id=? AND post_id=?", []any{userID, postID}
	if bookmarked {
		query = "INSERT INTO bookmarks (user_id, post_id, created_at) VALUES (?,?,?) ON DUPLICATE KEY UPDATE id=id"
		args = append(args, second(s.now()))
	}
	if _, err := s.write(ctx, query, args...); err != nil {
		return fmt.Errorf("set bookmark of post %d: %w", postID, err)
	}
	return nil
}

// BookmarkedPost is a post in the list of what a user bookmarked.
type BookmarkedPost struct {
	Post  Post `gorm:"embedded"`
	RowID int64
}

// BookmarkedPosts lists the posts that the user bookmarked, the latest bookmark first: at most limit bookmarks older than
// row before (0 for the first page). Posts that were deleted, or whose author the user blocks, are passed over.
func (s *Store) BookmarkedPosts(ctx context.Context, userID, before int64, limit int) ([]BookmarkedPost, error) {
	where, args := "k.user_id=? AND "+notBlocked("p.user_id"), []any{userID, userID, userID}
	if before > 0 {
		where, args = where+" AND k.id<?", append(args, before)
	}
	list, _, err := scanPage(s.db.WithContext(ctx).Raw("SELECT "+postColumns+", k.id AS row_id FROM bookmarks k FORCE INDEX (idx_user_id)"+
		" JOIN posts p ON p.id=k.post_id AND p.status=1 JOIN users u ON u.id=p.user_id WHERE "+where+
		" ORDER BY k.id DESC LIMIT ?", append(args, limit)...), func(b *BookmarkedPost) int { return len(b.Post.Content) })
	if err != nil {
		return nil, fmt.Errorf("list bookmarks of user %d: %w", userID, err)
	}
	return list, nil
}
