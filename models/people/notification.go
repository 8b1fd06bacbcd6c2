package people

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// outcomes are, as a list of SQL, the kinds that a user always sees, whatever becomes of the content: those of reports
// and claims.
var outcomes = "(" + db.Literal(models.NotifyReport) + "," + db.Literal(models.NotifyConfirmed) + "," +
	db.Literal(models.NotifyRejected) + "," + db.Literal(models.NotifyExpiring) + ")"

// NotificationOnce ends an INSERT of notifications: one that exists stays as it is.
const NotificationOnce = `
		ON DUPLICATE KEY UPDATE notifications.id=notifications.id`

// NotifyComment notifies the users whom a new comment concerns: repliesTo, the author of its post or parent, and the
// users with these names.
func NotifyComment(tx *db.Tx, c *models.Comment, repliesTo int64, names []string) error {
	if repliesTo != c.Author.ID {
		n := models.Notification{Kind: models.NotifyReply, Actor: c.Author, PostID: c.PostID, CommentID: c.ID,
			CreatedAt: c.CreatedAt}
		if err := notify(tx, n, db.Matching("u.id=?", repliesTo)); err != nil {
			return err
		}
	}
	return NotifyMentions(tx, c.Author.ID, c.PostID, c.ID, c.CreatedAt, names, repliesTo)
}

// NotifyAddedMentions notifies the users with these names, which an edit has added to a comment. The author of its post
// or parent knows it already.
func NotifyAddedMentions(tx *db.Tx, c *models.Comment, names []string) error {
	if len(names) == 0 {
		return nil
	}
	const read = `
		SELECT COALESCE(parent.user_id, p.user_id)
		FROM posts p
		LEFT JOIN comments parent ON parent.id=?
		WHERE p.id=?`
	var repliesTo int64
	if err := tx.Raw(read, c.ParentID, c.PostID).Scan(&repliesTo).Error; err != nil {
		return fmt.Errorf("read whom comment %d replies to: %w", c.ID, err)
	}
	return NotifyMentions(tx, c.Author.ID, c.PostID, c.ID, c.UpdatedAt, names, repliesTo)
}

// NotifyMentions notifies the users with these names, except the actor and notified, the user who was notified of the
// same text as a reply (0 for none).
func NotifyMentions(
	tx *db.Tx, actor, postID, commentID int64, at time.Time, names []string, notified int64,
) error {
	if len(names) == 0 {
		return nil
	}
	names = names[:min(len(names), models.MaxMentions)]
	present, err := accounts.PresentUsernames(tx, names) // of those that are former names
	if err != nil {
		return err
	}
	names = slices.Concat(names, present)
	n := models.Notification{
		Kind: models.NotifyMention, Actor: models.Author{ID: actor}, PostID: postID, CommentID: commentID,
		CreatedAt: at,
	}
	return notify(tx, n, db.Matching("u.username IN ? AND u.id NOT IN ?", names, []int64{actor, notified}))
}

// notify writes a notification for each user u who meets the conditions, is not deleted, does not block the actor and
// does not mute the post.
func notify(tx *db.Tx, n models.Notification, where db.Conditions) error {
	where.Add("u.deleted_at IS NULL")
	where.Add("NOT EXISTS (SELECT 1 FROM blocks b WHERE b.user_id=u.id AND b.blocked_id=?)", n.Actor.ID)
	where.Add(NotMuted("u.id", "?"), n.PostID)
	insert := `
		INSERT INTO notifications (user_id, kind, actor_id, post_id, comment_id, created_at)
		SELECT u.id,?,?,?,?,?
		FROM users u
		` + where.Clause() + NotificationOnce
	args := where.Between([]any{n.Kind, n.Actor.ID, n.PostID, n.CommentID, n.CreatedAt})
	if err := tx.Exec(insert, args...).Error; err != nil {
		return fmt.Errorf("write %s notifications: %w", n.Kind, err)
	}
	return nil
}

// NotifyReporters notifies all reporters of a case that it is resolved. Moderators are not named.
func NotifyReporters(tx *db.Tx, caseID int64, at time.Time) error {
	const insert = `
		INSERT INTO notifications (user_id, kind, post_id, comment_id, report_id, created_at)
		SELECT r.reporter_id,?,COALESCE(c.post_id,k.target_id),COALESCE(c.id,0),r.id,?
		FROM reports r
		JOIN report_cases k ON k.id=r.case_id
		LEFT JOIN comments c ON k.target_type='comment' AND c.id=k.target_id
		JOIN users u ON u.id=r.reporter_id AND u.deleted_at IS NULL
		WHERE r.case_id=?` + NotificationOnce
	if err := tx.Exec(insert, models.NotifyReport, at, caseID).Error; err != nil {
		return fmt.Errorf("notify reporters: %w", err)
	}
	return nil
}

// NotifyClaims notifies the users of claims, by their ids, that they are confirmed or rejected.
func NotifyClaims(tx *db.Tx, ids []int64, at time.Time) error {
	for batch := range slices.Chunk(ids, db.WrittenClaims) {
		insert := `
		INSERT INTO notifications (user_id, kind, post_id, claim_id, created_at)
		SELECT c.user_id, IF(c.state=?, ?, ?), d.post_id, c.id, ?
		FROM claims c FORCE INDEX (idx_id)
		JOIN drops d ON d.id=c.drop_id
		JOIN users u ON u.id=c.user_id AND u.deleted_at IS NULL
		WHERE c.id IN (` + db.JoinIDs(batch) + `)` + NotificationOnce
		err := tx.Exec(insert, models.StateRejected, models.NotifyRejected, models.NotifyConfirmed,
			models.WholeSeconds(at)).Error
		if err != nil {
			return fmt.Errorf("notify users of claims: %w", err)
		}
	}
	return nil
}

// notificationsOf returns the trail of a user's notifications n, or of the unread ones. It names the index: for the
// latest few of a user MySQL tends to read the latest of all users.
func notificationsOf(userID int64, unread bool) db.Trail {
	t := db.Trail{
		From:  "notifications n FORCE INDEX (idx_user_id)",
		Where: db.Matching("n.user_id=?", userID),
		ID:    "n.id",
	}
	if unread {
		t.From = "notifications n FORCE INDEX (idx_user_read)"
		t.Where.Add("n.read_at IS NULL")
	}
	return t
}

// notificationParts joins to notifications n the content that they are about. It leaves out notifications about deleted
// posts, except outcomes: see there.
var notificationParts = `
		STRAIGHT_JOIN posts p ON p.id=n.post_id AND (p.status=` + db.SQLNormal + ` OR n.kind IN ` + outcomes + `)
		LEFT JOIN comments c ON c.id=n.comment_id
		LEFT JOIN users u ON u.id=n.actor_id`

// addNotificationShown adds the conditions that the notification's comment is not deleted, and that the user has
// blocked neither the actor nor the author of the post since.
func addNotificationShown(where *db.Conditions, userID int64) {
	where.Add("(n.comment_id=0 OR c.status=" + db.SQLNormal + " OR n.kind IN " + outcomes + ")")
	where.Add(db.NotBlocked("n.actor_id"), userID)
	where.Add("(n.kind IN "+outcomes+" OR "+db.NotBlocked("p.user_id")+")", userID)
}

// subjectText is how much of a comment is read with a notification of it, in characters of Markdown.
const subjectText = 4 * models.MaxExcerpt

// Notifications lists the user's notifications, latest first: at most limit before the id (0 for the first page), with
// unread only the unread ones. If skipped notifications make the page short, rest is where the list continues; nil at
// its end.
func (s *Store) Notifications(
	ctx context.Context, userID int64, unread bool, before int64, limit int,
) (list []models.Notification, rest *models.ListKey, err error) {
	all := notificationsOf(userID, unread)
	visible := func(where db.Conditions, limit int) *gorm.DB {
		addNotificationShown(&where, userID)
		query := `
		SELECT n.id, n.kind, ` + accounts.AuthorColumns + `, n.post_id,
			IF(p.status=` + db.SQLNormal + ` AND ` + db.NotBlocked("p.user_id") + `, p.title, '') AS post_title,
			IF(n.comment_id=0 AND p.status=` + db.SQLNormal + ` AND ` + db.NotBlocked("p.user_id") + `,
				p.excerpt, '') AS excerpt,
			IF(p.status=` + db.SQLNormal + ` AND c.status=` + db.SQLNormal + ` AND ` + db.NotBlocked("c.user_id") + `,
				LEFT(c.content,?), '') AS comment_text,
			n.comment_id, n.milestone, n.report_id, n.claim_id,
			COALESCE((SELECT m.drop_id FROM claims m FORCE INDEX (idx_id) WHERE m.id=n.claim_id), 0) AS claim_drop_id,
			COALESCE((
				SELECT d.title
				FROM claims m FORCE INDEX (idx_id)
				JOIN drops d ON d.id=m.drop_id
				WHERE m.id=n.claim_id AND p.status=` + db.SQLNormal + `), '') AS claim_drop_title,
			COALESCE((SELECT m.reason FROM claims m FORCE INDEX (idx_id) WHERE m.id=n.claim_id), '') AS claim_reason,
			(SELECT m.expires_at FROM claims m FORCE INDEX (idx_id) WHERE m.id=n.claim_id) AS claim_expires_at,
			(
				SELECT k.outcome
				FROM reports r
				JOIN report_cases k ON k.id=r.case_id
				WHERE r.id=n.report_id) AS outcome,
			n.created_at, n.read_at IS NOT NULL AS is_read
		FROM ` + all.From + notificationParts + `
		` + where.Clause() + `
		ORDER BY ` + all.Order() + `
		LIMIT ?`
		args := []any{userID, userID, userID, subjectText}
		return s.Read(ctx).Raw(query, where.Between(args, limit)...)
	}
	list, rest, err = db.Sift(ctx, s.DB, all, db.BeforeID(before), limit, visible, db.NoContent[models.Notification])
	if err != nil {
		return nil, nil, fmt.Errorf("list notifications of user %d: %w", userID, err)
	}
	return list, rest, nil
}

// UnreadCount returns the number of notifications that Notifications lists as unread, up to MaxUnread. It examines the
// latest 5,000 unread notifications, including those that are hidden from the user.
func (s *Store) UnreadCount(ctx context.Context, userID int64) (int64, error) {
	type row struct{ ID int64 }
	unread := notificationsOf(userID, true)
	visible := func(where db.Conditions, limit int) *gorm.DB {
		addNotificationShown(&where, userID)
		query := `
		SELECT n.id
		FROM ` + unread.From + notificationParts + `
		` + where.Clause() + `
		ORDER BY ` + unread.Order() + `
		LIMIT ?`
		return s.Read(ctx).Raw(query, append(where.Args, limit)...)
	}
	list, _, err := db.Sift(ctx, s.DB, unread, nil, models.MaxUnread, visible, db.NoContent[row])
	if err != nil {
		return 0, fmt.Errorf("count unread notifications of user %d: %w", userID, err)
	}
	return int64(len(list)), nil
}

// UnreadVersions returns the versions of users who are not deleted, by id. It reads two index entries of each. MySQL
// would sort all entries of a user without user_id in the orders, and MariaDB with read_at in the first one.
func (s *Store) UnreadVersions(ctx context.Context, users []int64) (map[int64]models.UnreadVersion, error) {
	query := `
		SELECT u.id,
			COALESCE((
				SELECT n.id
				FROM notifications n FORCE INDEX (idx_user_read)
				WHERE n.user_id=u.id AND n.read_at IS NULL
				ORDER BY n.user_id DESC, n.id DESC
				LIMIT 1), 0) AS unread,
			COALESCE((
				SELECT UNIX_TIMESTAMP(n.read_at)
				FROM notifications n FORCE INDEX (idx_user_read)
				WHERE n.user_id=u.id
				ORDER BY n.user_id DESC, n.read_at DESC, n.id DESC
				LIMIT 1), 0) AS read_at
		FROM users u FORCE INDEX (PRIMARY)
		WHERE u.id IN (` + db.JoinIDs(users) + `) AND u.deleted_at IS NULL`
	var rows []struct {
		ID   int64
		Mark models.UnreadVersion `gorm:"embedded"`
	}
	if err := s.Read(ctx).Raw(query).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("look for notifications of %d users: %w", len(users), err)
	}
	marks := make(map[int64]models.UnreadVersion, len(rows))
	for _, row := range rows {
		marks[row.ID] = row.Mark
	}
	return marks, nil
}

// readBatch is the number of notifications that one statement marks as read.
const readBatch = 1000

// ReadNotifications marks the user's notifications with these ids as read. It skips ids that do not exist, and those of
// other users' notifications.
func (s *Store) ReadNotifications(ctx context.Context, userID int64, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := s.markRead(ctx, userID, db.Matching("id IN ("+db.JoinIDs(ids)+")"))
	return err
}

// ReadNotificationsUpTo marks the user's notifications up to this id as read, one batch per transaction. Notifications
// that arrive meanwhile stay unread.
func (s *Store) ReadNotificationsUpTo(ctx context.Context, userID, id int64) error {
	ctx = db.Aside(ctx) // repeating it changes nothing
	for {
		n, err := s.markRead(ctx, userID, db.Matching("id<=?", id))
		if err != nil || n < readBatch {
			return err
		}
	}
}

// markRead marks at most readBatch of the user's notifications that meet the conditions as read, and returns their
// number.
func (s *Store) markRead(ctx context.Context, userID int64, where db.Conditions) (int, error) {
	where.Add("user_id=?", userID)
	where.Add("read_at IS NULL")
	find := `
		SELECT id
		FROM notifications
		` + where.Clause() + `
		ORDER BY id
		LIMIT ?`
	var ids []int64
	err := s.Transact(ctx, func(tx *db.Tx) error {
		err := tx.Raw(find, where.Between(nil, readBatch)...).Scan(&ids).Error
		if err != nil || len(ids) == 0 {
			return err
		}
		update := `
			UPDATE notifications FORCE INDEX (PRIMARY)
			SET read_at=?
			WHERE id IN (` + db.JoinIDs(ids) + `) AND read_at IS NULL`
		return tx.Exec(update, models.WholeSeconds(tx.Now)).Error
	})
	if err != nil {
		return 0, fmt.Errorf("mark notifications of user %d as read: %w", userID, err)
	}
	return len(ids), nil
}

// How long notifications are kept: after they were read, and unread ones after they were written.
const (
	keepRead   = 90 * 24 * time.Hour
	keepUnread = 365 * 24 * time.Hour
)

// PurgeNotifications deletes at most limit notifications that have been kept for long enough, and returns how many it
// deleted. The target's row keeps the milestone that was reached, so a milestone does not notify its author again.
func (s *Store) PurgeNotifications(ctx context.Context, limit int) (int64, error) {
	now, purged := s.Now().UTC(), int64(0)
	for _, where := range []db.Conditions{
		db.Matching("read_at<=?", now.Add(-keepRead)),
		db.Matching("read_at IS NULL AND created_at<=?", now.Add(-keepUnread)),
	} {
		find := `
			SELECT id
			FROM notifications
			` + where.Clause() + `
			LIMIT ?`
		var ids []int64
		err := s.Read(ctx).Raw(find, append(where.Args, int64(limit)-purged)...).Scan(&ids).Error
		if err == nil && len(ids) > 0 {
			remove := `
				DELETE n
				FROM notifications n FORCE INDEX (PRIMARY)
				WHERE n.id IN (` + db.JoinIDs(db.Ascending(ids)) + `)`
			var n int64
			n, err = s.Write(ctx, remove)
			purged += n
		}
		if err != nil {
			return purged, fmt.Errorf("purge notifications: %w", err)
		}
	}
	return purged, nil
}
