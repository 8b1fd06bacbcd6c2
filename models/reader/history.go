package reader

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

// CommentsByUser lists the comments of a user on posts that are not deleted, latest first, as viewer (0 for the
// anonymous) sees them: at most limit comments after the key (nil for the first page). If skipped comments make the
// page short, rest is where the list continues; nil at its end.
func (s *Store) CommentsByUser(
	ctx context.Context, viewer, userID int64, after *models.ListKey, limit int,
) (list []models.UserComment, rest *models.ListKey, err error) {
	written := db.Trail{
		From:  "comments c FORCE INDEX (idx_user_status_created)",
		Where: db.Matching("c.user_id=? AND c.status=?", userID, models.StatusNormal),
		Time:  "c.created_at",
		ID:    "c.id",
	}
	visible := func(where db.Conditions, limit int) *gorm.DB {
		where.Add(db.NotBlocked("c.user_id"), viewer)
		where.Add(db.NotBlocked("p.user_id"), viewer)
		query := `
			SELECT ` + content.CommentColumns + `, p.title AS post_title
			FROM ` + written.From + `
			STRAIGHT_JOIN posts p ON p.id=c.post_id AND p.status=` + db.SQLNormal + `
			STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=c.user_id
			` + where.Clause() + `
			ORDER BY ` + written.Order() + `
			LIMIT ?`
		return s.Read(ctx).Raw(query, where.Between([]any{viewer}, limit)...)
	}
	size := func(c *models.UserComment) int { return db.CommentSize(&c.Comment) }
	list, rest, err = db.Sift(ctx, s.DB, written, after, limit, visible, size)
	if err != nil {
		return nil, nil, fmt.Errorf("list comments of user %d: %w", userID, err)
	}
	return list, rest, nil
}

// likesOf returns the trail of a user's likes l in a table of likes. It names the index: left alone, MariaDB begins
// every page at the latest like and discards those before the page.
func likesOf(table string, userID int64) db.Trail {
	return db.Trail{From: table + " l FORCE INDEX (idx_user_id)", Where: db.Matching("l.user_id=?", userID), ID: "l.id"}
}

// LikedPosts lists the posts that a user likes, the latest like first, as viewer sees them: at most limit likes older
// than row before (0 for the first page). Likes of deleted posts are skipped. If skipped likes make the page short,
// rest is where the list continues; nil at its end.
func (s *Store) LikedPosts(
	ctx context.Context, viewer, userID, before int64, limit int,
) (list []models.Liked[models.Post], rest *models.ListKey, err error) {
	likes := likesOf("post_likes", userID)
	visible := func(where db.Conditions, limit int) *gorm.DB {
		where.Add(db.NotBlocked("p.user_id"), viewer)
		query := `
			SELECT ` + content.ViewSummary.Columns() + `, l.id AS row_id, l.created_at AS liked_at
			FROM ` + likes.From + `
			STRAIGHT_JOIN posts p ON p.id=l.post_id AND p.status=` + db.SQLNormal + `
			STRAIGHT_JOIN ` + content.ListedUsers + `
			` + content.ViewSummary.Join(viewer) + `
			` + where.Clause() + `
			ORDER BY ` + likes.Order() + `
			LIMIT ?`
		return s.Read(ctx).Raw(query, where.Between([]any{viewer}, limit)...)
	}
	size := func(l *models.Liked[models.Post]) int { return db.PostSize(&l.Item) }
	list, rest, err = db.Sift(ctx, s.DB, likes, db.BeforeID(before), limit, visible, size)
	if err != nil {
		return nil, nil, fmt.Errorf("list liked posts of user %d: %w", userID, err)
	}
	return list, rest, nil
}

// LikedComments lists the comments that a user likes, as LikedPosts does. Comments under posts of authors whom the
// viewer blocks are skipped, too.
func (s *Store) LikedComments(
	ctx context.Context, viewer, userID, before int64, limit int,
) (list []models.Liked[models.Comment], rest *models.ListKey, err error) {
	likes := likesOf("comment_likes", userID)
	visible := func(where db.Conditions, limit int) *gorm.DB {
		where.Add(db.NotBlocked("p.user_id"), viewer)
		where.Add(db.NotBlocked("c.user_id"), viewer)
		query := `
			SELECT ` + content.CommentColumns + `, l.id AS row_id, l.created_at AS liked_at
			FROM ` + likes.From + `
			STRAIGHT_JOIN comments c ON c.id=l.comment_id AND c.status=` + db.SQLNormal + `
			STRAIGHT_JOIN posts p ON p.id=c.post_id AND p.status=` + db.SQLNormal + `
			STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=c.user_id
			` + where.Clause() + `
			ORDER BY ` + likes.Order() + `
			LIMIT ?`
		return s.Read(ctx).Raw(query, where.Between([]any{viewer}, limit)...)
	}
	size := func(l *models.Liked[models.Comment]) int { return db.CommentSize(&l.Item) }
	list, rest, err = db.Sift(ctx, s.DB, likes, db.BeforeID(before), limit, visible, size)
	if err != nil {
		return nil, nil, fmt.Errorf("list liked comments of user %d: %w", userID, err)
	}
	return list, rest, nil
}
