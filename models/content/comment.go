package content

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/media"
	"likewise/models/people"
	"likewise/models/search"
)

// CommentColumns are the columns of a Comment. They have one placeholder, the viewer's id.
var CommentColumns = `
	c.id, c.post_id, c.parent_id, ` + accounts.AuthorColumns + `, c.depth, c.content, c.likes_count, c.replies_count,
	c.status, c.version, c.created_at, c.updated_at,
	(` + commentReplied + `) AS more,
	` + db.IsBlocked("c.user_id") + ` AS blocked`

// commentReplied is the condition that a comment was ever replied to. Deleted replies count, too, because there may be
// replies to them.
//
// For a plain EXISTS, MariaDB would read the parents of all comments and look up c among them.
const commentReplied = `(SELECT 1 FROM comments r WHERE r.parent_id=c.id LIMIT 1) IS NOT NULL`

// commentShown is the condition that a list shows a comment. It has one placeholder, the viewer's id.
var commentShown = `(c.status=` + db.SQLNormal + ` AND ` + db.NotBlocked("c.user_id") + ` OR ` + commentReplied + `)`

// CreateComment writes a comment on a post, or a reply if parentID is not nil, and counts it, in one transaction. It
// returns CodeNotFound if the post or the parent is deleted or never existed; CodeInvalid for parent_id if the parent
// belongs to another post or has MaxDepth; CodeForbidden if the author of the post or of the parent has blocked this
// one; and CodeLocked if a moderator has locked the post and the author does not moderate.
//
// The post's row is locked first and held until the commit, so the changes of its comments are serialized.
func (s *Store) CreateComment(ctx context.Context, author models.Author, postID int64, parentID *int64,
	text models.CommentText,
) (*models.Comment, error) {
	var c *models.Comment
	weights := search.Weights("", text.Content)
	err := s.Transact(ctx, func(tx *db.Tx) error {
		now := models.WholeSeconds(tx.Now)
		c = &models.Comment{
			PostID: postID, ParentID: parentID, Author: author, Content: text.Content, Status: models.StatusNormal,
			CreatedAt: now, UpdatedAt: now,
		}
		count := tx.Exec(`
			UPDATE posts FORCE INDEX (PRIMARY)
			SET comments_count=comments_count+1, active_at=GREATEST(active_at,?), updated_at=updated_at
			WHERE id=? AND status=?`, now, postID, models.StatusNormal)
		if count.Error != nil {
			return count.Error
		}
		if count.RowsAffected == 0 {
			return models.NotFound(models.KindPost)
		}
		if err := SyncTags(tx, postID); err != nil {
			return err
		}
		place, err := parentFor(tx, author.ID, postID, parentID)
		if err != nil {
			return err
		}
		c.Depth, c.PostComments = place.depth(), place.PostComments
		c.ID, err = insertComment(tx, c, weights)
		if err != nil {
			return err
		}
		tx.Announce(models.CommentCreated, c.ID)
		if place.Followed {
			if err := people.AddThreadNews(tx, c); err != nil {
				return err
			}
		}
		repliesTo := place.PostAuthorID
		if parentID != nil {
			repliesTo = place.ParentAuthorID
		}
		if err := people.NotifyComment(tx, c, repliesTo, text.Mentions); err != nil {
			return err
		}
		return media.AddImageUses(tx, media.TargetSubject(models.Target{Kind: models.KindComment, ID: c.ID}),
			[]int64{author.ID},
			text.Content)
	})
	if err != nil {
		return nil, fmt.Errorf("create comment: %w", err)
	}
	return c, nil
}

// insertComment writes a comment with the terms of its text and returns its id. The caller counts it on its post and
// parent.
func insertComment(tx *db.Tx, c *models.Comment, weights map[string]int) (int64, error) {
	id, err := tx.Insert(`
		INSERT INTO comments (post_id, user_id, parent_id, depth, content, created_at, updated_at, terms_version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		c.PostID, c.Author.ID, c.ParentID, c.Depth, c.Content, c.CreatedAt, c.UpdatedAt, search.Version)
	if err != nil {
		return 0, err
	}
	return id, writeTerms(tx, models.Target{Kind: models.KindComment, ID: id}, weights)
}

// commentParent is the place of a new comment: under a post, and under a parent if it is a reply.
type commentParent struct {
	PostAuthorID    int64
	PostComments    int64 // with the new one
	Locked          bool  // the post
	ParentAuthorID  int64 // this and the other fields of the parent are 0 at the top level
	ParentPostID    int64
	ParentDepth     int
	ParentStatus    models.Status
	Followed        bool // somebody follows the post
	BlockedByPost   bool // the post's author has blocked the writer
	BlockedByParent bool
}

func (p *commentParent) depth() int { return p.ParentDepth + 1 }

// parentFor counts a reply on its parent and returns the place, if the writer may write there. The caller has locked
// the post's row, and counted the new comment there.
func parentFor(tx *db.Tx, writer, postID int64, parentID *int64) (*commentParent, error) {
	query := `
		SELECT
			p.user_id AS post_author_id,
			p.comments_count AS post_comments,
			p.locked,
			COALESCE(c.user_id, 0) AS parent_author_id,
			COALESCE(c.post_id, 0) AS parent_post_id,
			COALESCE(c.depth, 0) AS parent_depth,
			COALESCE(c.status, 0) AS parent_status,
			(
				SELECT 1
				FROM subscriptions q FORCE INDEX (idx_post_level)
				WHERE q.post_id=p.id AND q.level=` + people.SQLFollowing + `
				LIMIT 1
			) IS NOT NULL AS followed,
			EXISTS (SELECT 1 FROM blocks b WHERE b.user_id=p.user_id AND b.blocked_id=?) AS blocked_by_post,
			EXISTS (SELECT 1 FROM blocks b WHERE b.user_id=c.user_id AND b.blocked_id=?) AS blocked_by_parent
		FROM posts p
		LEFT JOIN comments c ON c.id=?
		WHERE p.id=?`
	var p commentParent
	if err := tx.Raw(query, writer, writer, parentID, postID).Scan(&p).Error; err != nil {
		return nil, err
	}
	if err := despiteLock(tx, writer, p.Locked, "it takes no new comments"); err != nil {
		return nil, err
	}
	switch {
	case parentID != nil && p.ParentPostID != 0 && p.ParentPostID != postID:
		return nil, models.Invalid("parent_id", models.Broken(models.FieldOtherPost, "is a comment of another post"))
	case parentID != nil && p.ParentStatus != models.StatusNormal:
		return nil, models.NotFound(models.KindComment)
	case p.depth() > models.MaxDepth:
		return nil, models.Invalid("parent_id", models.Fault{Code: models.FieldTooDeep,
			Params:  models.Params{"max": models.MaxDepth},
			Message: fmt.Sprintf("is %d levels deep, and replies go no deeper", models.MaxDepth)})
	case p.BlockedByPost:
		return nil, models.Errorf(models.CodeForbidden, "The author of this post has blocked you.")
	case p.BlockedByParent:
		return nil, models.Errorf(models.CodeForbidden, "The author of the comment that you reply to has blocked you.")
	case parentID == nil:
		return &p, nil
	}
	count := tx.Exec(`
		UPDATE comments FORCE INDEX (PRIMARY)
		SET replies_count=replies_count+1, updated_at=updated_at
		WHERE id=? AND status=?`, *parentID, models.StatusNormal)
	if count.Error == nil && count.RowsAffected == 0 {
		return nil, models.NotFound(models.KindComment)
	}
	return &p, count.Error
}

// CommentByID reads a comment as viewer (0 for the anonymous) sees it, without its replies. If the comment or its post
// is deleted, or the comment never existed, CommentByID returns CodeNotFound.
func (s *Store) CommentByID(ctx context.Context, viewer, id int64) (*models.Comment, error) {
	return readComment(s.Read(ctx), viewer, id)
}

func readComment(conn *gorm.DB, viewer, id int64) (*models.Comment, error) {
	var c models.Comment
	query := `
		SELECT ` + CommentColumns + `
		FROM comments c
		JOIN users u ON u.id=c.user_id
		JOIN posts p ON p.id=c.post_id AND p.status=?
		WHERE c.id=? AND c.status=?`
	read := conn.Raw(query, viewer, models.StatusNormal, id, models.StatusNormal).Scan(&c)
	if read.Error != nil {
		return nil, fmt.Errorf("read comment %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.NotFound(models.KindComment)
	}
	return &c, nil
}

// order is how the database keeps a sort of one level of comments, or of all on a post: by a column and then by id.
type order struct {
	column    string
	value     string // the placeholder for a ListKey's value in the column
	later     string // the comparison for "further down the list"
	direction string
	// index is (post_id, parent_id, column, id), or (post_id, id). It has to be forced: for a page in the middle of a
	// long list, the servers tend to read everything before the page.
	index string
}

func orderOf(sort models.CommentSort) order {
	switch sort {
	case models.CommentsTop:
		return order{"c.likes_count", "?", "<", " DESC", "idx_post_parent_likes"}
	case models.CommentsNew:
		return order{"c.created_at", "FROM_UNIXTIME(?)", "<", " DESC", "idx_post_parent_created"}
	case models.CommentsFlatOld:
		return order{"c.id", "?", ">", " ASC", "idx_post_id"}
	case models.CommentsFlatNew:
		return order{"c.id", "?", "<", " DESC", "idx_post_id"}
	default:
		return order{"c.created_at", "FROM_UNIXTIME(?)", ">", " ASC", "idx_post_parent_created"}
	}
}

// CommentQuery selects the comments of a list: the top level of a post, the replies to a comment, or, if Sort is flat,
// all comments on a post.
type CommentQuery struct {
	ViewerID int64 // 0 for the anonymous
	PostID   int64 // ignored with ParentID
	ParentID int64 // of the replies; 0 for the top level
	Sort     models.CommentSort
	After    *models.ListKey // nil for the first page
	Limit    int
}

// ListComments lists comments, without the replies to them. A comment that is Hidden from the viewer stays in the list
// if it was ever replied to, and the caller hides its content and author. Other hidden comments are passed over. If
// that or the size of the content makes the page short, rest is the place where the list continues; it is nil at the
// end of the list.
//
// ListComments runs one query, a second one for an empty list, and further ones if it passes over many comments. It
// returns CodeNotFound if the post or parent never existed or is deleted, except for a deleted parent with replies.
func (s *Store) ListComments(
	ctx context.Context, q CommentQuery,
) (comments []models.Comment, rest *models.ListKey, err error) {
	root, err := s.readRoot(ctx, q, branchBounds{comments: q.Limit, bytes: db.PageBytes, passed: db.MaxPassed / 2})
	if err != nil {
		return nil, nil, fmt.Errorf("list comments: %w", err)
	}
	return root.Replies, root.RepliesRest(q.Sort), nil
}

// commentListOpen returns CodeNotFound if a list is empty because its post or parent is deleted or never existed.
func (s *Store) commentListOpen(ctx context.Context, q CommentQuery) error {
	kind, args := models.KindPost, []any{q.PostID, models.StatusNormal}
	query := `
		SELECT COUNT(*)
		FROM posts
		WHERE id=? AND status=?`
	if q.ParentID != 0 {
		kind, args = models.KindComment, []any{models.StatusNormal, q.ParentID, models.StatusNormal}
		query = `
			SELECT COUNT(*)
			FROM comments c
			JOIN posts p ON p.id=c.post_id AND p.status=?
			WHERE c.id=? AND (c.status=? OR ` + commentReplied + `)`
	}
	var n int
	if err := s.Read(ctx).Raw(query, args...).Scan(&n).Error; err != nil {
		return fmt.Errorf("list comments: %w", err)
	}
	if n == 0 {
		return models.NotFound(kind)
	}
	return nil
}

// CommentsCount returns the number of comments on a post that are not deleted, or 0 if the post does not exist.
func (s *Store) CommentsCount(ctx context.Context, postID int64) (n int64, err error) {
	const query = `
		SELECT comments_count
		FROM posts FORCE INDEX (PRIMARY)
		WHERE id=?`
	if err := s.Read(ctx).Raw(query, postID).Scan(&n).Error; err != nil {
		return 0, fmt.Errorf("read the number of comments on post %d: %w", postID, err)
	}
	return n, nil
}

// LatestComments lists the latest comments on a post, at any depth, as the anonymous see them: at most limit, and none
// beyond PageBytes of content. Deleted comments are left out.
func (s *Store) LatestComments(ctx context.Context, postID int64, limit int) ([]models.Comment, error) {
	// The order names every column of the index; see lastCommenter.
	query := `
		SELECT ` + CommentColumns + `
		FROM comments c FORCE INDEX (idx_post_status_created)
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=c.user_id
		WHERE c.post_id=? AND c.status=` + db.SQLNormal + `
		ORDER BY c.post_id DESC, c.status DESC, c.created_at DESC, c.id DESC
		LIMIT ?`
	list, _, err := db.ScanPage(s.Read(ctx).Raw(query, 0, postID, limit), db.PageBytes, db.CommentSize)
	if err != nil {
		return nil, fmt.Errorf("list the latest comments on post %d: %w", postID, err)
	}
	return list, nil
}

// UpdateComment replaces the text of a comment that has the given version, as UpdatePost does for posts. It returns
// CodeLocked if the comment's post is locked.
func (s *Store) UpdateComment(ctx context.Context, editor, id, version int64, text models.CommentText,
) (c *models.Comment, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		post, err := LockTargetPost(tx, models.Target{Kind: models.KindComment, ID: id})
		if err != nil {
			return err
		}
		if c, err = readComment(tx.DB, editor, id); err != nil {
			return err
		}
		if err := mayEdit(tx, editor, post.Locked); err != nil {
			return err
		}
		if c.Version != version {
			return models.VersionMismatch(c.Version)
		}
		if c.Content == text.Content {
			return nil
		}
		if err := ReplaceComment(tx, c, editor, text.Content); err != nil {
			return err
		}
		return people.NotifyAddedMentions(tx, c, text.Mentions)
	})
	if err != nil {
		return nil, fmt.Errorf("update comment %d: %w", id, err)
	}
	return c, nil
}

// ReplaceComment writes the next version of c, whose post's row is locked, keeps the old one as a Revision and updates
// c. editor is 0 for the text that a redaction leaves.
func ReplaceComment(tx *db.Tx, c *models.Comment, editor int64, content string) error {
	if err := keepRevision(tx, models.Target{Kind: models.KindComment, ID: c.ID}); err != nil {
		return err
	}
	c.Content, c.Version, c.UpdatedAt = content, c.Version+1, models.WholeSeconds(tx.Now)
	const update = `
		UPDATE comments
		SET content=?, version=?, updated_at=?, edited_by=NULLIF(?,user_id), terms_version=?
		WHERE id=?`
	tx.Announce(models.CommentEdited, c.ID)
	indexed := 0
	if c.Status == models.StatusNormal {
		indexed = search.Version
	}
	if err := tx.Exec(update, c.Content, c.Version, c.UpdatedAt, editor, indexed, c.ID).Error; err != nil {
		return err
	}
	owners := []int64{c.Author.ID, editor}
	if err := media.AddImageUses(tx, media.TargetSubject(models.Target{Kind: models.KindComment, ID: c.ID}), owners,
		content); err != nil {
		return err
	}
	if err := deleteTerms(tx, models.KindComment, c.ID); err != nil || indexed == 0 {
		return err // a deleted comment is not indexed
	}
	return writeTerms(tx, models.Target{Kind: models.KindComment, ID: c.ID}, search.Weights("", content))
}

// DeleteComment marks a comment as deleted by its author and subtracts it from the counts, in one transaction. Its
// replies stay. If the comment is already deleted or never existed, DeleteComment returns CodeNotFound.
func (s *Store) DeleteComment(ctx context.Context, c *models.Comment) error {
	err := s.Transact(ctx, func(tx *db.Tx) error {
		hidden, err := HideComments(tx, []int64{c.ID}, models.Deletion{At: tx.Now, By: c.Author})
		if err == nil && len(hidden) == 0 {
			return models.NotFound(models.KindComment)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete comment %d: %w", c.ID, err)
	}
	return nil
}

// CommentIDs returns the ids of a post's comments that are not deleted, in ascending order: at most limit ids above
// after.
func (s *Store) CommentIDs(ctx context.Context, postID, after int64, limit int) ([]int64, error) {
	const query = `
		SELECT id
		FROM comments FORCE INDEX (idx_post_id)
		WHERE post_id=? AND id>? AND status=?
		ORDER BY id
		LIMIT ?`
	var ids []int64
	err := s.Read(ctx).Raw(query, postID, after, models.StatusNormal, limit).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("read comments of post %d: %w", postID, err)
	}
	return ids, nil
}
