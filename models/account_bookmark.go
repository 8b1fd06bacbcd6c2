package models

import (
	"context"
	"fmt"

	"gorm.io/gorm"
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
// row before (0 for the first page). Posts that were deleted, or whose author the user blocks, are passed over. If that
// makes the page short, rest is where the list continues; nil for its end.
func (s *Store) BookmarkedPosts(ctx context.Context, userID, before int64, limit int) (list []BookmarkedPost, rest *ListKey, err error) {
	bookmarks := trail{from: "bookmarks k FORCE INDEX (idx_user_id)", where: "k.user_id=?", args: []any{userID}, id: "k.id"}
	list, rest, err = sift(ctx, s, bookmarks, beforeID(before), limit, func(where string, args []any, limit int) *gorm.DB {
		args = append(append([]any{userID}, args...), userID, limit)
		return s.db.WithContext(ctx).Raw(`
SELECT `+postColumns+`, k.id AS row_id
FROM `+bookmarks.from+`
STRAIGHT_JOIN posts p ON p.id=k.post_id AND p.status=1
STRAIGHT_JOIN `+listedUsers+`
WHERE `+where+` AND `+notBlocked("p.user_id")+`
ORDER BY `+bookmarks.order()+`
LIMIT ?`, args...)
	}, func(b *BookmarkedPost) int { return postSize(&b.Post) })
	if err != nil {
		return nil, nil, fmt.Errorf("list bookmarks of user %d: %w", userID, err)
	}
	return list, rest, nil
}
