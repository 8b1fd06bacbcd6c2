package models

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// UserComment is a comment in the list of what a user wrote, with the title of its post.
type UserComment struct {
	Comment   Comment `gorm:"embedded"`
	PostTitle string
}

// CommentsByUser lists what a user wrote on posts that are not deleted, latest first, as viewer (0 for the anonymous)
// sees it: at most limit comments after the key (nil for the first page). If what is passed over makes the page short,
// rest is where the list continues; nil for its end.
func (s *Store) CommentsByUser(ctx context.Context, viewer, userID int64, after *ListKey, limit int) (list []UserComment, rest *ListKey, err error) {
	written := trail{
		from: "comments c FORCE INDEX (idx_user_status_created)", where: "c.user_id=? AND c.status=1", args: []any{userID},
		time: "c.created_at", id: "c.id",
	}
	list, rest, err = sift(ctx, s, written, after, limit, func(where string, args []any, limit int) *gorm.DB {
		args = append(append([]any{viewer}, args...), viewer, viewer, limit)
		return s.db.WithContext(ctx).Raw(`
SELECT `+commentColumns+`, p.title AS post_title
FROM `+written.from+`
STRAIGHT_JOIN posts p ON p.id=c.post_id AND p.status=1
STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=c.user_id
WHERE `+where+` AND `+notBlocked("c.user_id")+` AND `+notBlocked("p.user_id")+`
ORDER BY `+written.order()+`
LIMIT ?`, args...)
	}, func(c *UserComment) int { return commentSize(&c.Comment) })
	if err != nil {
		return nil, nil, fmt.Errorf("list comments of user %d: %w", userID, err)
	}
	return list, rest, nil
}

// Liked is a post or a comment in the list of what a user likes.
type Liked[T Post | Comment] struct {
	Item    T `gorm:"embedded"`
	RowID   int64
	LikedAt time.Time
}

// Key gives the place of the like in the list.
func (l *Liked[T]) Key() ListKey { return ListKey{ID: l.RowID} }

// likesOf is the trail of a user's likes l in a table of likes. It names the index: left alone, MariaDB begins every page
// at the latest like and throws away those before the page.
func likesOf(table string, userID int64) trail {
	return trail{from: table + " l FORCE INDEX (idx_user_id)", where: "l.user_id=?", args: []any{userID}, id: "l.id"}
}

// LikedPosts lists the posts that a user likes, the latest like first, as viewer sees them: at most limit likes older
// than row before (0 for the first page). Likes of what was deleted are passed over. If that makes the page short, rest
// is where the list continues; nil for its end.
func (s *Store) LikedPosts(ctx context.Context, viewer, userID, before int64, limit int) (list []Liked[Post], rest *ListKey, err error) {
	likes := likesOf("post_likes", userID)
	list, rest, err = sift(ctx, s, likes, beforeID(before), limit, func(where string, args []any, limit int) *gorm.DB {
		args = append(append([]any{viewer}, args...), viewer, limit)
		return s.db.WithContext(ctx).Raw(`
SELECT `+postColumns+`, l.id AS row_id, l.created_at AS liked_at
FROM `+likes.from+`
STRAIGHT_JOIN posts p ON p.id=l.post_id AND p.status=1
STRAIGHT_JOIN `+listedUsers+`
WHERE `+where+` AND `+notBlocked("p.user_id")+`
ORDER BY `+likes.order()+`
LIMIT ?`, args...)
	}, func(l *Liked[Post]) int { return postSize(&l.Item) })
	if err != nil {
		return nil, nil, fmt.Errorf("list liked posts of user %d: %w", userID, err)
	}
	return list, rest, nil
}

// LikedComments lists the comments that a user likes, as LikedPosts does. Those under posts of somebody whom the viewer
// blocks are left out, too.
func (s *Store) LikedComments(ctx context.Context, viewer, userID, before int64, limit int) (list []Liked[Comment], rest *ListKey, err error) {
	likes := likesOf("comment_likes", userID)
	list, rest, err = sift(ctx, s, likes, beforeID(before), limit, func(where string, args []any, limit int) *gorm.DB {
		args = append(append([]any{viewer}, args...), viewer, viewer, limit)
		return s.db.WithContext(ctx).Raw(`
SELECT `+commentColumns+`, l.id AS row_id, l.created_at AS liked_at
FROM `+likes.from+`
STRAIGHT_JOIN comments c ON c.id=l.comment_id AND c.status=1
STRAIGHT_JOIN posts p ON p.id=c.post_id AND p.status=1
STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=c.user_id
WHERE `+where+` AND `+notBlocked("p.user_id")+` AND `+notBlocked("c.user_id")+`
ORDER BY `+likes.order()+`
LIMIT ?`, args...)
	}, func(l *Liked[Comment]) int { return commentSize(&l.Item) })
	if err != nil {
		return nil, nil, fmt.Errorf("list liked comments of user %d: %w", userID, err)
	}
	return list, rest, nil
}
