package reader

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/people"
)

// MarkRead marks the comments on a post as read by a user, up to this one; 0 means the latest. A mark only moves
// forward. MarkRead also marks the user's notification of these comments as read, if the user follows the post.
// CodeNotFound: the post is deleted or never existed. CodeInvalid: the comment belongs to another post.
//
// The comments on a post are committed in the order of their ids, because their transactions lock the post first. So
// no comment appears below a mark later, unless it is restored.
func (s *Store) MarkRead(ctx context.Context, userID, postID, upTo int64) error {
	const read = `
		SELECT
			COALESCE((
				SELECT c.id
				FROM comments c FORCE INDEX (idx_post_id)
				WHERE c.post_id=p.id
				ORDER BY c.post_id DESC, c.id DESC
				LIMIT 1
			), 0) AS latest,
			EXISTS (SELECT 1 FROM comments c WHERE c.id=? AND c.post_id=p.id) AS belongs
		FROM posts p
		WHERE p.id=? AND p.status=?`
	const upsert = `
		INSERT INTO read_marks (user_id, post_id, comment_id, read_at)
		VALUES (?,?,?,?)
		ON DUPLICATE KEY UPDATE
			read_at=IF(VALUES(comment_id)>=comment_id, VALUES(read_at), read_at),
			comment_id=GREATEST(comment_id, VALUES(comment_id))`
	var post struct {
		Latest  int64
		Belongs bool
	}
	found := s.Read(ctx).Raw(read, upTo, postID, models.StatusNormal).Scan(&post)
	switch {
	case found.Error != nil:
		return fmt.Errorf("read post %d: %w", postID, found.Error)
	case found.RowsAffected == 0:
		return models.NotFound(models.KindPost)
	case upTo == 0:
		upTo = post.Latest
	case !post.Belongs:
		return models.Invalid("comment_id", models.Broken(models.FieldOtherPost,
			"must be the id of a comment on this post"))
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		now := models.WholeSeconds(tx.Now)
		if err := tx.Exec(upsert, userID, postID, upTo, now).Error; err != nil {
			return err
		}
		return people.ReadThreadNews(tx, userID, postID, upTo, now)
	})
	if err != nil {
		return fmt.Errorf("mark post %d as read by user %d: %w", postID, userID, err)
	}
	return nil
}

// ReaderStates returns the relations of a user to posts, by post; those to which the user has none are missing.
// examined is the number of comments that were examined. ReaderStates runs one query, and a second one if there are
// comments after one of the marks.
//
// Comments are unread if they were written after the mark by somebody else, whom the user does not block, and are not
// deleted.
func (s *Store) ReaderStates(
	ctx context.Context, userID int64, posts []int64,
) (states map[int64]models.ReaderState, examined int, err error) {
	if len(posts) == 0 {
		return nil, 0, nil
	}
	ids := db.JoinIDs(posts)
	query := `
		SELECT m.post_id, 0 AS level, m.comment_id, m.read_at, COALESCE((
				SELECT c.id
				FROM comments c FORCE INDEX (idx_post_id)
				WHERE c.post_id=m.post_id
				ORDER BY c.post_id DESC, c.id DESC
				LIMIT 1
			), 0)>m.comment_id AS news
		FROM read_marks m FORCE INDEX (PRIMARY)
		WHERE m.user_id=? AND m.post_id IN (` + ids + `)
		UNION ALL
		SELECT s.post_id, s.level, 0, NULL, FALSE
		FROM subscriptions s FORCE INDEX (idx_user_post)
		WHERE s.user_id=? AND s.post_id IN (` + ids + `)`
	var rows []struct {
		PostID    int64
		Level     models.Subscription
		CommentID int64
		ReadAt    *time.Time
		News      bool
	}
	if err := s.Read(ctx).Raw(query, userID, userID).Scan(&rows).Error; err != nil {
		return nil, 0, fmt.Errorf("read marks of user %d: %w", userID, err)
	}
	states = map[int64]models.ReaderState{}
	var behind []int64
	for _, row := range rows {
		state := states[row.PostID]
		if row.ReadAt == nil {
			state.Subscription = row.Level
		} else {
			state.Mark = &models.ReadMark{CommentID: row.CommentID, ReadAt: *row.ReadAt}
		}
		states[row.PostID] = state
		if row.News {
			behind = append(behind, row.PostID)
		}
	}
	if len(behind) == 0 {
		return states, 0, nil
	}
	examined, err = s.countUnread(ctx, userID, behind, states)
	return states, examined, err
}

// countUnread sets the unread comments of the marks of these posts. The ids are values of the statement: with those of
// a joined table, the servers would read all comments on a post.
func (s *Store) countUnread(
	ctx context.Context, userID int64, posts []int64, states map[int64]models.ReaderState,
) (examined int, err error) {
	parts := make([]string, len(posts))
	var args []any
	for i, id := range posts {
		parts[i] = `
		SELECT ? AS post_id, COUNT(*) AS examined,
			COALESCE(SUM(x.status=` + db.SQLNormal + ` AND x.user_id<>? AND ` + db.NotBlocked("x.user_id") + `),
				0) AS unread
		FROM (
			SELECT c.status, c.user_id
			FROM comments c FORCE INDEX (idx_post_id)
			WHERE c.post_id=? AND c.id>?
			ORDER BY c.id
			LIMIT ?
		) x`
		args = append(args, id, userID, userID, id, states[id].Mark.CommentID, models.MaxUnreadComments)
	}
	var counts []struct {
		PostID, Unread int64
		Examined       int
	}
	query := strings.Join(parts, `
		UNION ALL`)
	if err := s.Read(ctx).Raw(query, args...).Scan(&counts).Error; err != nil {
		return 0, fmt.Errorf("count unread comments of user %d: %w", userID, err)
	}
	for _, n := range counts {
		examined += n.Examined
		if n.Examined == models.MaxUnreadComments {
			n.Unread = models.MaxUnreadComments
		}
		states[n.PostID].Mark.Unread = n.Unread
	}
	return examined, nil
}

// keepMarks is how long a read mark is kept after its user last read the post.
const keepMarks = 365 * 24 * time.Hour

// PurgeReadMarks deletes at most limit read marks that have been kept for long enough, and returns how many it deleted.
func (s *Store) PurgeReadMarks(ctx context.Context, limit int) (purged int64, err error) {
	const find = `
		SELECT user_id, post_id
		FROM read_marks FORCE INDEX (idx_read_at)
		WHERE read_at<=?
		ORDER BY read_at
		LIMIT ?`
	type key struct{ UserID, PostID int64 }
	var keys []key
	before := models.WholeSeconds(s.Now().Add(-keepMarks))
	err = s.Read(ctx).Raw(find, before, limit).Scan(&keys).Error
	if err != nil {
		return 0, fmt.Errorf("find old read marks: %w", err)
	}
	for batch := range slices.Chunk(keys, db.PurgeBatch) {
		values := make([]string, len(batch))
		for i, k := range batch {
			values[i] = fmt.Sprintf("SELECT %d AS user_id, %d AS post_id", k.UserID, k.PostID)
		}
		remove := `
			DELETE m
			FROM (` + strings.Join(values, " UNION ALL ") + `) k
			STRAIGHT_JOIN read_marks m FORCE INDEX (PRIMARY) ON m.user_id=k.user_id AND m.post_id=k.post_id
			WHERE m.read_at<=?`
		n, err := s.Write(ctx, remove, before)
		purged += n
		if err != nil {
			return purged, fmt.Errorf("purge read marks: %w", err)
		}
	}
	return purged, nil
}
