package models

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// Comment is a comment on a post, or a reply to a comment.
type Comment struct {
	ID           int64
	PostID       int64
	ParentID     *int64 // nil at the top level
	Author       Author `gorm:"embedded;embeddedPrefix:author_"`
	Content      string // Markdown
	LikesCount   int64
	RepliesCount int64 // direct replies that are not deleted
	Status       Status
	Version      int64 // grows with each edit
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// CommentText is what an author writes.
type CommentText struct {
	Content string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (t CommentText) Validate() error {
	var f fieldErrors
	checkContent(&f, t.Content)
	return f.err()
}

const commentColumns = "c.id, c.post_id, c.parent_id, " + authorColumns + ", c.content, c.likes_count," +
	" c.replies_count, c.status, c.version, c.created_at, c.updated_at"

// CreateComment writes a comment on a post (parentID nil) or a reply, and counts it, in one transaction. A post or
// parent that is gone gives CodeNotFound; a parent of another post gives CodeInvalid on parent_id.
//
// Rows are locked in the order posts, comments, as the like writer does, so the two do not deadlock.
func (s *Store) CreateComment(ctx context.Context, author Author, postID int64, parentID *int64, text CommentText) (*Comment, error) {
	now := second(s.now())
	c := &Comment{PostID: postID, ParentID: parentID, Author: author, Content: text.Content, Status: StatusNormal, CreatedAt: now, UpdatedAt: now}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		count := tx.Exec("UPDATE posts SET comments_count=comments_count+1, active_at=GREATEST(active_at,?), updated_at=updated_at WHERE id=? AND status=1", now, postID)
		if count.Error != nil {
			return count.Error
		}
		if count.RowsAffected == 0 {
			return notFound(KindPost)
		}
		if parentID != nil {
			if err := addReply(tx, *parentID, postID); err != nil {
				return err
			}
		}
		id, err := s.insert(tx, "INSERT INTO comments (post_id, user_id, parent_id, content, created_at, updated_at) VALUES (?,?,?,?,?,?)",
			postID, author.ID, parentID, text.Content, now, now)
		c.ID = id
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create comment: %w", err)
	}
	return c, nil
}

func addReply(tx *gorm.DB, parentID, postID int64) error {
	count := tx.Exec("UPDATE comments SET replies_count=replies_count+1, updated_at=updated_at WHERE id=? AND post_id=? AND status=1", parentID, postID)
	if count.Error != nil || count.RowsAffected > 0 {
		return count.Error
	}
	var elsewhere int
	if err := tx.Raw("SELECT COUNT(*) FROM comments WHERE id=? AND post_id<>?", parentID, postID).Scan(&elsewhere).Error; err != nil {
		return err
	}
	if elsewhere > 0 {
		return Invalid("parent_id", "is a comment of another post")
	}
	return notFound(KindComment)
}

// CommentByID gives CodeNotFound for a comment that is deleted, was never there, or stands under a deleted post.
func (s *Store) CommentByID(ctx context.Context, id int64) (*Comment, error) {
	var c Comment
	read := s.db.WithContext(ctx).Raw("SELECT "+commentColumns+" FROM comments c JOIN users u ON u.id=c.user_id"+
		" JOIN posts p ON p.id=c.post_id AND p.status=1 WHERE c.id=? AND c.status=1", id).Scan(&c)
	if read.Error != nil {
		return nil, fmt.Errorf("read comment %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, notFound(KindComment)
	}
	return &c, nil
}

// CommentSort is the order of a list of comments.
type CommentSort string

// The orders. Ties are broken by id, in the direction of the list.
const (
	CommentsOld CommentSort = "old" // earliest first
	CommentsNew CommentSort = "new" // latest first
	CommentsTop CommentSort = "top" // most likes first
)

// CommentQuery says which comments to list: the top level of a post, or the replies to a comment.
type CommentQuery struct {
	ViewerID int64 // 0 for the anonymous
	PostID   int64 // of the top level; ignored with ParentID
	ParentID int64 // of the replies; 0 for the top level
	Sort     CommentSort
	After    *ListKey // nil for the first page
	Limit    int
}

// Key gives the place of c in a list sorted by sort.
func (c *Comment) Key(sort CommentSort) ListKey {
	if sort == CommentsTop {
		return ListKey{c.LikesCount, c.ID}
	}
	return ListKey{c.CreatedAt.Unix(), c.ID}
}

// commentShown holds for a comment that a list shows: replies to a deleted one must stay within reach, and so must the
// replies to those, deleted or not.
const commentShown = "(c.status=1 OR EXISTS (SELECT 1 FROM comments r WHERE r.parent_id=c.id))"

// ListComments lists one level of comments in one query, two when there is nothing to list. A deleted comment that
// was replied to stays in the list, with status deleted: its content and author are the caller's to hide. A post or
// parent that is gone gives CodeNotFound; a deleted parent that was replied to is not gone.
func (s *Store) ListComments(ctx context.Context, q CommentQuery) ([]Comment, error) {
	column, value, less, order := "c.created_at", "FROM_UNIXTIME(?)", "<", " DESC"
	switch q.Sort {
	case CommentsTop:
		column, value = "c.likes_count", "?"
	case CommentsOld:
		less, order = ">", " ASC"
	}
	where, args := "c.post_id=? AND c.parent_id IS NULL", []any{q.PostID}
	if q.ParentID != 0 {
		where, args = "c.post_id=(SELECT post_id FROM comments WHERE id=?) AND c.parent_id=?", []any{q.ParentID, q.ParentID}
	}
	where += " AND " + commentShown
	if q.After != nil {
		where += " AND " + column + less + "=" + value + " AND (" + column + less + value + " OR c.id" + less + "?)"
		args = append(args, q.After.Value, q.After.Value, q.After.ID)
	}
	var comments []Comment
	err := s.db.WithContext(ctx).Raw("SELECT "+commentColumns+" FROM comments c JOIN users u ON u.id=c.user_id"+
		" JOIN posts p ON p.id=c.post_id AND p.status=1 WHERE "+where+
		" ORDER BY "+column+order+", c.id"+order+" LIMIT ?", append(args, q.Limit)...).Scan(&comments).Error
	if err != nil {
		return nil, fmt.Errorf("list comments: %w", err)
	}
	if len(comments) > 0 {
		return comments, nil
	}
	return nil, s.commentListOpen(ctx, q)
}

// commentListOpen tells an empty list from one that is not there.
func (s *Store) commentListOpen(ctx context.Context, q CommentQuery) error {
	kind, query, id := KindPost, "SELECT COUNT(*) FROM posts WHERE id=? AND status=1", q.PostID
	if q.ParentID != 0 {
		kind, id = KindComment, q.ParentID
		query = "SELECT COUNT(*) FROM comments c JOIN posts p ON p.id=c.post_id AND p.status=1 WHERE c.id=? AND " + commentShown
	}
	var n int
	if err := s.db.WithContext(ctx).Raw(query, id).Scan(&n).Error; err != nil {
		return fmt.Errorf("list comments: %w", err)
	}
	if n == 0 {
		return notFound(kind)
	}
	return nil
}

// UpdateComment replaces the text if the comment still has the version that the editor saw; errors as UpdatePost.
func (s *Store) UpdateComment(ctx context.Context, id, version int64, text CommentText) (*Comment, error) {
	update := s.db.WithContext(ctx).Exec("UPDATE comments SET content=?, version=version+1, updated_at=? WHERE id=? AND version=? AND status=1",
		text.Content, second(s.now()), id, version)
	if update.Error != nil {
		return nil, fmt.Errorf("update comment %d: %w", id, update.Error)
	}
	c, err := s.CommentByID(ctx, id)
	if err != nil {
		return nil, err
	}
	if update.RowsAffected == 0 {
		return nil, VersionMismatch(c.Version)
	}
	return c, nil
}

// DeleteComment hides a comment and takes it out of the counts, in one transaction. Its replies stay. CodeNotFound
// when it is gone already.
func (s *Store) DeleteComment(ctx context.Context, c *Comment) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := tx.Exec("UPDATE posts SET comments_count=comments_count-1, updated_at=updated_at WHERE id=?", c.PostID).Error; err != nil {
			return err
		}
		if c.ParentID != nil {
			if err := tx.Exec("UPDATE comments SET replies_count=replies_count-1, updated_at=updated_at WHERE id=?", *c.ParentID).Error; err != nil {
				return err
			}
		}
		hide := tx.Exec("UPDATE comments SET status=2, updated_at=updated_at WHERE id=? AND status=1", c.ID)
		if hide.Error == nil && hide.RowsAffected == 0 {
			return notFound(KindComment)
		}
		return hide.Error
	})
	if err != nil {
		return fmt.Errorf("delete comment %d: %w", c.ID, err)
	}
	return nil
}

// CommentIDs gives the ids of a post's comments that are not deleted, ascending, at most limit above after.
func (s *Store) CommentIDs(ctx context.Context, postID, after int64, limit int) ([]int64, error) {
	var ids []int64
	err := s.db.WithContext(ctx).Raw("SELECT id FROM comments WHERE post_id=? AND id>? AND status=1 ORDER BY id LIMIT ?", postID, after, limit).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("read comments of post %d: %w", postID, err)
	}
	return ids, nil
}
