package moderation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

// ContentQuery selects the posts or comments that moderators list. A field with its zero value does not filter.
type ContentQuery struct {
	ViewerID     int64
	View         content.PostView // of posts
	Status       models.Status
	AuthorID     int64
	Text         string    // is contained in the title or content, without regard to case
	Since, Until time.Time // created from, and before
	Reported     bool      // there is an open case
	Locked       bool      // of posts alone, as the next
	Pinned       bool
	After        *models.ListKey // nil for the first page
	Limit        int
}

// searchWindow is the number of rows in which one page of a list searches a text. Deleted posts, and comments, have no
// search index.
const searchWindow = 5000

// from returns the tables that the rows x of a kind are read from, and the conditions.
func (q ContentQuery) from(kind models.TargetKind) (from string, where db.Conditions) {
	table := db.TargetTables[kind].Targets
	use := func(index string) string { return table + " x FORCE INDEX (" + index + ")" }
	switch {
	case q.Reported:
		from = `report_cases r FORCE INDEX (idx_open_target)
			STRAIGHT_JOIN ` + table + ` x ON x.id=r.target_id`
		where.Add("r.is_open=1 AND r.target_type=?", kind)
	case q.Pinned:
		from = use("idx_pinned_created")
	case q.Locked:
		from = use("idx_locked_created")
	case q.AuthorID != 0:
		from = use("idx_user_status_created")
	case q.Status != 0:
		from = use("idx_status_created")
	default:
		from = use("idx_created_at")
	}
	where.AddIf(q.Pinned, "x.pinned=1")
	where.AddIf(q.Locked, "x.locked=1")
	where.AddIf(q.AuthorID != 0, "x.user_id=?", q.AuthorID)
	where.AddIf(q.Status != 0, "x.status=?", q.Status)
	where.AddIf(!q.Since.IsZero(), "x.created_at>=?", models.WholeSeconds(q.Since))
	where.AddIf(!q.Until.IsZero(), "x.created_at<?", models.WholeSeconds(q.Until))
	if after, args := db.KeyRange("x.created_at", "FROM_UNIXTIME(?)", "x.id", q.After, nil); after != "" {
		where.Add(after, args...)
	}
	return from, where
}

// keys returns the query of the ids and times of the first limit rows, with its arguments.
func (q ContentQuery) keys(kind models.TargetKind, limit int) (query string, args []any) {
	from, where := q.from(kind)
	query = `
			SELECT x.id, x.created_at
			FROM ` + from + `
			` + where.Clause() + `
			ORDER BY x.created_at DESC, x.id DESC
			LIMIT ?`
	return query, append(where.Args, limit)
}

// window returns the rows in which the next page of the list looks for the text. rest is where the list continues after
// them; nil at its end.
func (s *Store) window(
	ctx context.Context, kind models.TargetKind, q ContentQuery,
) (ids []int64, rest *models.ListKey, err error) {
	query, args := q.keys(kind, searchWindow)
	var rows []struct {
		ID        int64
		CreatedAt time.Time
	}
	if err := s.Read(ctx).Raw(query, args...).Scan(&rows).Error; err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	if len(rows) == searchWindow {
		last := rows[len(rows)-1]
		rest = &models.ListKey{Value: last.CreatedAt.Unix(), ID: last.ID}
	}
	return ids, rest, nil
}

// contentColumns describes a list of posts p or comments c with their author u.
type contentColumns struct {
	alias   string // p or c
	columns string // with one placeholder: the viewer's id
	join    string // further tables; "" for none
	text    string // the condition that the text is in row x; each placeholder takes the pattern
}

// listContent reads a page of a list. If it searches a text, rest is where the list continues after the rows that were
// examined; nil if those were all.
func listContent[T any](
	ctx context.Context, s *Store, kind models.TargetKind, q ContentQuery, c contentColumns, size func(*T) int,
) (items []T, rest *models.ListKey, err error) {
	keys, args := q.keys(kind, q.Limit)
	if q.Text != "" {
		var ids []int64
		if ids, rest, err = s.window(ctx, kind, q); err != nil {
			return nil, nil, err
		}
		keys, args = q.search(kind, c, ids)
	}
	query := `
		SELECT ` + c.columns + moderationColumns(kind, c.alias) + `
		FROM (` + keys + `) k
		STRAIGHT_JOIN ` + db.TargetTables[kind].Targets + ` ` + c.alias + ` ON ` + c.alias + `.id=k.id
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=` + c.alias + `.user_id
		` + c.join + `
		LEFT JOIN users d ON d.id=` + c.alias + `.deleted_by
		ORDER BY k.created_at DESC, k.id DESC`
	read := s.Read(ctx).Raw(query, append([]any{q.ViewerID}, args...)...)
	items, _, err = db.ScanPage(read, db.PageBytes, size)
	return items, rest, err
}

// search returns the query of the ids and times of those rows that contain the text, with its arguments.
func (q ContentQuery) search(kind models.TargetKind, c contentColumns, ids []int64) (query string, args []any) {
	like := "%" + db.LikeEscape(q.Text) + "%"
	for range strings.Count(c.text, "?") {
		args = append(args, like)
	}
	query = `
			SELECT x.id, x.created_at
			FROM ` + db.TargetTables[kind].Targets + ` x
			WHERE x.id IN (` + db.JoinIDs(append(ids, 0)) + `) AND (` + c.text + `)
			ORDER BY x.created_at DESC, x.id DESC
			LIMIT ?`
	return query, append(args, q.Limit)
}

// moderationColumns reads a Moderation of the row alias, with the user d who deleted it.
func moderationColumns(kind models.TargetKind, alias string) string {
	return strings.ReplaceAll(`,
			x.deleted_at AS deletion_at, d.id AS deletion_by_id, d.username AS deletion_by_username,
			d.display_name AS deletion_by_display_name, d.avatar_url AS deletion_by_avatar_url,
			x.delete_reason AS deletion_reason, COALESCE(x.operation_id,0) AS deletion_operation,
			x.purged AS deletion_purged,
			COALESCE((
				SELECT r.id
				FROM report_cases r FORCE INDEX (idx_open_target)
				WHERE r.is_open=1 AND r.target_type='`+string(kind)+`' AND r.target_id=x.id),0) AS report_id`,
		"x.", alias+".")
}

var commentModerated = "p.title AS post_title, " + content.CommentColumns

// ModeratedPosts lists posts, latest first. It takes one query, with a Text two. If fewer than Limit of the examined
// posts have the Text, rest is where the list continues after them; otherwise it is nil.
func (s *Store) ModeratedPosts(
	ctx context.Context, q ContentQuery,
) (posts []models.ModeratedPost, rest *models.ListKey, err error) {
	c := contentColumns{
		alias:   "p",
		columns: q.View.Columns(),
		join:    q.View.Join(q.ViewerID),
		text:    "x.title LIKE ? OR x.content LIKE ?",
	}
	size := func(p *models.ModeratedPost) int { return db.PostSize(&p.Post) }
	posts, rest, err = listContent(ctx, s, models.KindPost, q, c, size)
	if err != nil {
		return nil, nil, fmt.Errorf("list posts for moderation: %w", err)
	}
	if len(posts) >= q.Limit {
		rest = nil
	}
	return posts, rest, nil
}

// ModeratedComments lists comments as ModeratedPosts lists posts.
func (s *Store) ModeratedComments(
	ctx context.Context, q ContentQuery,
) (comments []models.ModeratedComment, rest *models.ListKey, err error) {
	c := contentColumns{
		alias:   "c",
		columns: commentModerated,
		join:    "STRAIGHT_JOIN posts p ON p.id=c.post_id",
		text:    "x.content LIKE ?",
	}
	size := func(m *models.ModeratedComment) int { return len(m.Comment.Content) }
	comments, rest, err = listContent(ctx, s, models.KindComment, q, c, size)
	if err != nil {
		return nil, nil, fmt.Errorf("list comments for moderation: %w", err)
	}
	if len(comments) >= q.Limit {
		rest = nil
	}
	return comments, rest, nil
}

// ModeratedPost reads a post, deleted or not. CodeNotFound: it never existed.
func (s *Store) ModeratedPost(ctx context.Context, viewer, id int64) (*models.ModeratedPost, error) {
	query := `
		SELECT ` + content.PostColumns + `, ` + content.FullColumns + moderationColumns(models.KindPost, "p") + `
		FROM posts p
		JOIN users u ON u.id=p.user_id
		LEFT JOIN users d ON d.id=p.deleted_by
		WHERE p.id=?`
	var p models.ModeratedPost
	read := s.Read(ctx).Raw(query, viewer, id).Scan(&p)
	if read.Error != nil {
		return nil, fmt.Errorf("read post %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.NotFound(models.KindPost)
	}
	return &p, nil
}

// ModeratedComment reads a comment, deleted or not. CodeNotFound: it never existed.
func (s *Store) ModeratedComment(ctx context.Context, viewer, id int64) (*models.ModeratedComment, error) {
	query := `
		SELECT ` + commentModerated + moderationColumns(models.KindComment, "c") + `
		FROM comments c
		JOIN users u ON u.id=c.user_id
		JOIN posts p ON p.id=c.post_id
		LEFT JOIN users d ON d.id=c.deleted_by
		WHERE c.id=?`
	var c models.ModeratedComment
	read := s.Read(ctx).Raw(query, viewer, id).Scan(&c)
	if read.Error != nil {
		return nil, fmt.Errorf("read comment %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.NotFound(models.KindComment)
	}
	return &c, nil
}
