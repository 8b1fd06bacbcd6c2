package models

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
)

// moderated is what acts on content look at, in a transaction that holds the row.
type moderated struct {
	AuthorID    int64
	Status      Status
	DeletedBy   int64 // 0: it is not deleted, or it is not known who did it
	OperationID int64 // the ContentOperation that deleted it, else 0
	Locked      bool  // of posts alone, as the next
	Pinned      bool
	Version     int64
	Purged      bool // it has no text any longer, and cannot be restored
}

// errOwnCase keeps moderators from deciding about themselves.
func errOwnCase() *Error {
	return Errorf(CodeForbidden, "This is about yourself: another moderator has to decide it.")
}

// state is what the moderation log keeps of it.
func (m *moderated) state() map[string]any {
	state := map[string]any{"status": m.Status.String()}
	if m.Status == StatusDeleted && m.DeletedBy != 0 {
		state["deleted_by"] = m.DeletedBy
	}
	if m.OperationID != 0 {
		state["operation_id"] = m.OperationID
	}
	return state
}

// lockModerated reads a post or comment with the post's row locked: nothing is deleted or restored without it.
// CodeNotFound when it was never there.
func lockModerated(tx *gorm.DB, target Target) (*moderated, error) {
	if err := lockTargetPost(tx, target); err != nil {
		return nil, err
	}
	flags := ", locked, pinned"
	if target.Kind == KindComment {
		flags = ""
	}
	var m moderated
	read := tx.Raw("SELECT user_id AS author_id, status, COALESCE(deleted_by,0) AS deleted_by, COALESCE(operation_id,0) AS operation_id, version, purged"+flags+" FROM "+likeTables[target.Kind].targets+" WHERE id=?", target.ID).Scan(&m)
	if read.Error == nil && read.RowsAffected == 0 {
		return nil, notFound(target.Kind)
	}
	return &m, read.Error
}

// lockTargetPost locks the post that a target is, or is on.
func lockTargetPost(tx *gorm.DB, target Target) error {
	postID := target.ID
	if target.Kind == KindComment {
		if err := tx.Raw("SELECT COALESCE(MAX(post_id),0) FROM comments WHERE id=?", target.ID).Scan(&postID).Error; err != nil {
			return err
		}
	}
	_, err := lockPosts(tx, []int64{postID}, StatusNormal)
	return err
}

// act makes an entry of the log about content.
func act(actor int64, verb string, target Target, reason string, before, after map[string]any) Act {
	return Act{ActorID: actor, Action: string(target.Kind) + "." + verb, TargetType: string(target.Kind), TargetID: target.ID, Reason: reason,
		Before: before, After: after}
}

// RemoveContent deletes a post or comment as a moderator: its author cannot restore it. One that the author deleted is the
// moderator's from then on, and so is one that a ContentOperation deleted: undoing that does not bring it back. One that a
// moderator deleted stays as it is, and nothing is logged. CodeInvalid for the reason, CodeForbidden when the actor is no
// moderator any more, CodeNotFound when it was never there.
func (s *Store) RemoveContent(ctx context.Context, actor int64, target Target, reason string) error {
	if err := ValidateReason(reason); err != nil {
		return err
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockActor(tx, actor, RoleModerator); err != nil {
			return err
		}
		before, after, tags, err := s.remove(tx, actor, target, reason)
		if err != nil || after == nil {
			return err
		}
		if err := s.logModeration(tx, act(actor, "delete", target, reason, before, after)); err != nil {
			return err
		}
		return countTags(tx, tags)
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", target, err)
	}
	return nil
}

// remove does what RemoveContent says and leaves the log and the tags to the caller. after is nil when nothing changed.
func (s *Store) remove(tx *gorm.DB, actor int64, target Target, reason string) (before, after map[string]any, tags map[int64]int, err error) {
	m, err := lockModerated(tx, target)
	if err != nil {
		return nil, nil, nil, err
	}
	before = m.state()
	now := &moderated{Status: StatusDeleted, DeletedBy: actor}
	switch {
	case m.Status == StatusNormal:
		tags, err = hide(tx, target, Deletion{At: s.now(), By: Author{ID: actor}, Reason: reason})
	case m.DeletedBy == 0 || m.OperationID != 0 || m.DeletedBy == m.AuthorID && actor != m.AuthorID:
		if m.OperationID != 0 {
			if err := mayOverrule(tx, actor, m.DeletedBy); ErrorCode(err) == CodeForbidden {
				now.DeletedBy = m.DeletedBy // else the actor could restore next what an admin had deleted
			} else if err != nil {
				return nil, nil, nil, err
			}
		}
		err = tx.Exec("UPDATE "+likeTables[target.Kind].targets+" SET deleted_at=?, deleted_by=?, delete_reason=?, operation_id=NULL, updated_at=updated_at WHERE id=?",
			second(s.now()), now.DeletedBy, reason, target.ID).Error
	default:
		return before, nil, nil, nil
	}
	return before, now.state(), tags, err
}

// ReinstateContent takes the deletion of a post or comment back, whoever deleted it and however long ago. Of one that is
// not deleted nothing changes, and nothing is logged. The errors are those of RemoveContent; CodeForbidden also when the
// actor is the author, or somebody deleted it whose role is above the actor's; CodeConflict when it was purged.
func (s *Store) ReinstateContent(ctx context.Context, actor int64, target Target, reason string) error {
	if err := ValidateReason(reason); err != nil {
		return err
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockActor(tx, actor, RoleModerator); err != nil {
			return err
		}
		m, err := lockModerated(tx, target)
		if err == nil && m.AuthorID == actor {
			err = errOwnCase()
		}
		if err != nil || m.Status == StatusNormal {
			return err
		}
		if m.Purged {
			return errPurged(target.Kind)
		}
		if err := mayOverrule(tx, actor, m.DeletedBy); err != nil {
			return err
		}
		tags, err := show(tx, target)
		if err != nil {
			return err
		}
		if err := s.logModeration(tx, act(actor, "restore", target, reason, m.state(), map[string]any{"status": StatusNormal.String()})); err != nil {
			return err
		}
		return countTags(tx, tags)
	})
	if err != nil {
		return fmt.Errorf("reinstate %s: %w", target, err)
	}
	return nil
}

// PostFlag is something that moderators set on a post, deleted or not.
type PostFlag string

// The flags.
const (
	PostLocked PostFlag = "locked" // it takes no new comments, and neither it nor its comments take edits
	PostPinned PostFlag = "pinned" // it is in the list of pinned posts
)

// MaxPinned is how many posts can be pinned at once, deleted ones included. A page of the list of pinned posts reads all
// of them and sorts them.
const MaxPinned = 100

// SetPostFlag sets a flag of a post or takes it back. Setting what is set changes nothing, and nothing is logged. The
// errors are those of RemoveContent, and CodeConflict at MaxPinned.
func (s *Store) SetPostFlag(ctx context.Context, actor, id int64, flag PostFlag, set bool, reason string) error {
	if err := ValidateReason(reason); err != nil {
		return err
	}
	target := Target{Kind: KindPost, ID: id}
	verb := map[PostFlag]map[bool]string{PostLocked: {true: "lock", false: "unlock"}, PostPinned: {true: "pin", false: "unpin"}}[flag][set]
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockActor(tx, actor, RoleModerator); err != nil {
			return err
		}
		m, err := lockModerated(tx, target)
		if err != nil {
			return err
		}
		was := m.Locked
		if flag == PostPinned {
			was = m.Pinned
		}
		if was == set {
			return nil
		}
		if flag == PostPinned && set {
			if err := roomToPin(tx); err != nil {
				return err
			}
		}
		if err := tx.Exec("UPDATE posts SET "+string(flag)+"=?, updated_at=updated_at WHERE id=?", set, id).Error; err != nil {
			return err
		}
		return s.logModeration(tx, act(actor, verb, target, reason, map[string]any{string(flag): was}, map[string]any{string(flag): set}))
	})
	if err != nil {
		return fmt.Errorf("%s post %d: %w", verb, id, err)
	}
	return nil
}

// roomToPin returns CodeConflict if MaxPinned posts are pinned. Until the commit, other transactions wait for it.
func roomToPin(tx *gorm.DB) error {
	var held string
	if err := tx.Raw("SELECT name FROM settings WHERE name='pins' FOR UPDATE").Scan(&held).Error; err != nil {
		return err
	}
	var pinned int
	const query = `
		SELECT COUNT(*)
		FROM posts FORCE INDEX (idx_pinned_created)
		WHERE pinned=1`
	if err := tx.Raw(query).Scan(&pinned).Error; err != nil {
		return err
	}
	if pinned >= MaxPinned {
		return Errorf(CodeConflict, "%d posts are pinned, deleted ones included, and more is not possible. Unpin one of them first.", pinned)
	}
	return nil
}

// Moderation is what moderators see of content besides what everybody sees.
type Moderation struct {
	Deletion Deletion `gorm:"embedded;embeddedPrefix:deletion_"` // the zero Deletion while it is not deleted
	ReportID int64    // the open case of its reports, else 0
}

// ModeratedPost is a post, deleted or not, as moderators see it.
type ModeratedPost struct {
	Post       Post       `gorm:"embedded"`
	Moderation Moderation `gorm:"embedded"`
}

// ModeratedComment is a comment, deleted or not, as moderators see it, without its replies.
type ModeratedComment struct {
	Comment    Comment `gorm:"embedded"`
	PostTitle  string
	Moderation Moderation `gorm:"embedded"`
}

// ContentQuery says which posts or comments moderators list. The zero value of a field leaves it open.
type ContentQuery struct {
	ViewerID     int64
	Status       Status
	AuthorID     int64
	Text         string    // stands in the title or content, without regard to case
	Since, Until time.Time // created from, and before
	Reported     bool      // there is an open case
	Locked       bool      // of posts alone, as the next
	Pinned       bool
	After        *ListKey // nil for the first page
	Limit        int
}

// searchWindow is among how many rows one page of a list of content looks for a text. There is no index of what was
// deleted, nor of comments.
const searchWindow = 5000

// from returns the tables that the rows x of a kind are read from, and the conditions.
func (q ContentQuery) from(kind TargetKind) (from string, where conditions) {
	table := likeTables[kind].targets
	use := func(index string) string { return table + " x FORCE INDEX (" + index + ")" }
	switch {
	case q.Reported:
		from = `report_cases r FORCE INDEX (idx_open_target)
			STRAIGHT_JOIN ` + table + ` x ON x.id=r.target_id`
		where.add("r.is_open=1 AND r.target_type=?", kind)
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
	where.addIf(q.Pinned, "x.pinned=1")
	where.addIf(q.Locked, "x.locked=1")
	where.addIf(q.AuthorID != 0, "x.user_id=?", q.AuthorID)
	where.addIf(q.Status != 0, "x.status=?", q.Status)
	where.addIf(!q.Since.IsZero(), "x.created_at>=?", second(q.Since))
	where.addIf(!q.Until.IsZero(), "x.created_at<?", second(q.Until))
	if after, args := keyRange("x.created_at", "FROM_UNIXTIME(?)", "x.id", q.After, nil); after != "" {
		where.add(after, args...)
	}
	return from, where
}

// keys returns the query of the ids and times of the first limit rows, with its arguments.
func (q ContentQuery) keys(kind TargetKind, limit int) (query string, args []any) {
	from, where := q.from(kind)
	query = `
			SELECT x.id, x.created_at
			FROM ` + from + `
			` + where.clause() + `
			ORDER BY x.created_at DESC, x.id DESC
			LIMIT ?`
	return query, append(where.args, limit)
}

// window returns the rows in which the next page of the list looks for the text. rest is where the list continues after
// them; nil at its end.
func (s *Store) window(
	ctx context.Context, kind TargetKind, q ContentQuery,
) (ids []int64, rest *ListKey, err error) {
	query, args := q.keys(kind, searchWindow)
	var rows []struct {
		ID        int64
		CreatedAt time.Time
	}
	if err := s.db.WithContext(ctx).Raw(query, args...).Scan(&rows).Error; err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	if len(rows) == searchWindow {
		last := rows[len(rows)-1]
		rest = &ListKey{last.CreatedAt.Unix(), last.ID}
	}
	return ids, rest, nil
}

// contentColumns describes a list of posts p or comments c with their author u.
type contentColumns struct {
	alias   string // p or c
	columns string // with one placeholder: the viewer's id
	join    string // a further table; "" for none
	text    string // the condition that the text is in row x; each placeholder takes the pattern
}

// listContent reads a page of a list. If it searches a text, rest is where the list continues after the rows that were
// examined; nil if those were all.
func listContent[T any](
	ctx context.Context, s *Store, kind TargetKind, q ContentQuery, c contentColumns, size func(*T) int,
) (items []T, rest *ListKey, err error) {
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
		STRAIGHT_JOIN ` + likeTables[kind].targets + ` ` + c.alias + ` ON ` + c.alias + `.id=k.id
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=` + c.alias + `.user_id
		` + c.join + `
		LEFT JOIN users d ON d.id=` + c.alias + `.deleted_by
		ORDER BY k.created_at DESC, k.id DESC`
	read := s.db.WithContext(ctx).Raw(query, append([]any{q.ViewerID}, args...)...)
	items, _, err = scanPage(read, PageBytes, size)
	return items, rest, err
}

// search returns the query of the ids and times of those rows that contain the text, with its arguments.
func (q ContentQuery) search(kind TargetKind, c contentColumns, ids []int64) (query string, args []any) {
	like := "%" + likeEscape(q.Text) + "%"
	for range strings.Count(c.text, "?") {
		args = append(args, like)
	}
	query = `
			SELECT x.id, x.created_at
			FROM ` + likeTables[kind].targets + ` x
			WHERE x.id IN (` + joinIDs(append(ids, 0)) + `) AND (` + c.text + `)
			ORDER BY x.created_at DESC, x.id DESC
			LIMIT ?`
	return query, append(args, q.Limit)
}

// moderationColumns reads a Moderation of the row alias, with the user d who deleted it.
func moderationColumns(kind TargetKind, alias string) string {
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

// likeEscape makes a text stand for itself in LIKE.
func likeEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(text)
}

var commentModerated = "p.title AS post_title, " + commentColumns

// ModeratedPosts lists posts, latest first. It takes one query, with a Text two. If fewer than Limit of the examined posts
// have the Text, rest is where the list continues after them; otherwise it is nil.
func (s *Store) ModeratedPosts(ctx context.Context, q ContentQuery) (posts []ModeratedPost, rest *ListKey, err error) {
	c := contentColumns{alias: "p", columns: postColumns, text: "x.title LIKE ? OR x.content LIKE ?"}
	size := func(p *ModeratedPost) int { return len(p.Post.Content) }
	posts, rest, err = listContent(ctx, s, KindPost, q, c, size)
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
) (comments []ModeratedComment, rest *ListKey, err error) {
	c := contentColumns{
		alias:   "c",
		columns: commentModerated,
		join:    "STRAIGHT_JOIN posts p ON p.id=c.post_id",
		text:    "x.content LIKE ?",
	}
	size := func(m *ModeratedComment) int { return len(m.Comment.Content) }
	comments, rest, err = listContent(ctx, s, KindComment, q, c, size)
	if err != nil {
		return nil, nil, fmt.Errorf("list comments for moderation: %w", err)
	}
	if len(comments) >= q.Limit {
		rest = nil
	}
	return comments, rest, nil
}

// ModeratedPost reads a post, deleted or not. CodeNotFound: it never existed.
func (s *Store) ModeratedPost(ctx context.Context, viewer, id int64) (*ModeratedPost, error) {
	query := `
		SELECT ` + postColumns + moderationColumns(KindPost, "p") + `
		FROM posts p
		JOIN users u ON u.id=p.user_id
		LEFT JOIN users d ON d.id=p.deleted_by
		WHERE p.id=?`
	var p ModeratedPost
	read := s.db.WithContext(ctx).Raw(query, viewer, id).Scan(&p)
	if read.Error != nil {
		return nil, fmt.Errorf("read post %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, notFound(KindPost)
	}
	return &p, nil
}

// ModeratedComment reads a comment, deleted or not. CodeNotFound: it never existed.
func (s *Store) ModeratedComment(ctx context.Context, viewer, id int64) (*ModeratedComment, error) {
	query := `
		SELECT ` + commentModerated + moderationColumns(KindComment, "c") + `
		FROM comments c
		JOIN users u ON u.id=c.user_id
		JOIN posts p ON p.id=c.post_id
		LEFT JOIN users d ON d.id=c.deleted_by
		WHERE c.id=?`
	var c ModeratedComment
	read := s.db.WithContext(ctx).Raw(query, viewer, id).Scan(&c)
	if read.Error != nil {
		return nil, fmt.Errorf("read comment %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, notFound(KindComment)
	}
	return &c, nil
}
