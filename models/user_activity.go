package models

import (
	"context"
	"fmt"
	"time"
)

// UserComment is a comment in the list of what a user wrote, with the title of its post.
type UserComment struct {
	Comment   Comment `gorm:"embedded"`
	PostTitle string
}

// CommentsByUser lists what a user wrote on posts that are not deleted, latest first, as viewer (0 for the anonymous)
// sees it: at most limit comments after the key (nil for the first page).
func (s *Store) CommentsByUser(ctx context.Context, viewer, userID int64, after *ListKey, limit int) ([]UserComment, error) {
	where, args := "c.user_id=? AND c.status=1 AND "+notBlocked("c.user_id")+" AND "+notBlocked("p.user_id"), []any{viewer, userID, viewer, viewer}
	if after != nil {
		where += " AND c.created_at<=FROM_UNIXTIME(?) AND (c.created_at<FROM_UNIXTIME(?) OR c.id<?)"
		args = append(args, after.Value, after.Value, after.ID)
	}
	list, _, err := scanPage(s.db.WithContext(ctx).Raw("SELECT "+commentColumns+", p.title AS post_title FROM comments c JOIN posts p ON p.id=c.post_id AND p.status=1"+
		" JOIN users u ON u.id=c.user_id WHERE "+where+" ORDER BY c.created_at DESC, c.id DESC LIMIT ?", append(args, limit)...), func(c *UserComment) int { return len(c.Comment.Content) })
	if err != nil {
		return nil, fmt.Errorf("list comments of user %d: %w", userID, err)
	}
	return list, nil
}

// Liked is a post or a comment in the list of what a user likes.
type Liked[T Post | Comment] struct {
	Item    T `gorm:"embedded"`
	RowID   int64
	LikedAt time.Time
}

// Key gives the place of the like in the list.
func (l *Liked[T]) Key() ListKey { return ListKey{ID: l.RowID} }

// LikedPosts lists the posts that a user likes, the latest like first, as viewer sees them: at most limit likes older
// than row before (0 for the first page). Likes of what was deleted are passed over.
func (s *Store) LikedPosts(ctx context.Context, viewer, userID, before int64, limit int) ([]Liked[Post], error) {
	where, args := likedBefore(before, viewer, userID)
	list, _, err := scanPage(s.db.WithContext(ctx).Raw("SELECT "+postColumns+", l.id AS row_id, l.created_at AS liked_at FROM post_likes l FORCE INDEX (idx_user_id)"+
		" JOIN posts p ON p.id=l.post_id AND p.status=1 JOIN users u ON u.id=p.user_id WHERE "+where+
		" ORDER BY l.id DESC LIMIT ?", append(args, limit)...), func(l *Liked[Post]) int { return len(l.Item.Content) })
	if err != nil {
		return nil, fmt.Errorf("list liked posts of user %d: %w", userID, err)
	}
	return list, nil
}

// LikedComments lists the comments that a user likes, as LikedPosts does. Those under posts of somebody whom the viewer
// blocks are left out, too.
func (s *Store) LikedComments(ctx context.Context, viewer, userID, before int64, limit int) ([]Liked[Comment], error) {
	where, args := likedBefore(before, viewer, userID)
	where, args = where+" AND "+notBlocked("c.user_id"), append(args, viewer)
	list, _, err := scanPage(s.db.WithContext(ctx).Raw("SELECT "+commentColumns+", l.id AS row_id, l.created_at AS liked_at FROM comment_likes l FORCE INDEX (idx_user_id)"+
		" JOIN comments c ON c.id=l.comment_id AND c.status=1 JOIN posts p ON p.id=c.post_id AND p.status=1 JOIN users u ON u.id=c.user_id WHERE "+where+
		" ORDER BY l.id DESC LIMIT ?", append(args, limit)...), func(l *Liked[Comment]) int { return len(l.Item.Content) })
	if err != nil {
		return nil, fmt.Errorf("list liked comments of user %d: %w", userID, err)
	}
	return list, nil
}

// likedBefore is the condition of a list of likes l, with its arguments after the viewer of the columns. The lists name
// their index: left alone, MariaDB begins every page at the latest like and throws away those before the page.
func likedBefore(before, viewer, userID int64) (where string, args []any) {
	where, args = "l.user_id=? AND "+notBlocked("p.user_id"), []any{viewer, userID, viewer}
	if before > 0 {
		where, args = where+" AND l.id<?", append(args, before)
	}
	return where, args
}
