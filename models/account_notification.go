package models

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
)

// NotificationKind is what a notification tells.
type NotificationKind int8

// The kinds.
const (
	NotifyReply     NotificationKind = 1 // somebody commented on the user's post, or replied to their comment
	NotifyMention   NotificationKind = 2 // somebody wrote @name
	NotifyMilestone NotificationKind = 3 // the likes of the user's post or comment reached a power of ten
	NotifyReport    NotificationKind = 4 // what the user reported was looked at
)

func (k NotificationKind) String() string {
	switch k {
	case NotifyReply:
		return "reply"
	case NotifyMention:
		return "mention"
	case NotifyReport:
		return "report"
	}
	return "milestone"
}

// Notification tells a user of something that others did. It is written in the transaction that does it, and a unique
// key keeps it from being written twice. Nobody is told of what they did themselves, nor by somebody whom they block;
// authors' own likes count towards their milestones like any other.
//
// The author of a post is told of comments at its top level, the author of a comment of direct replies. Whoever is told
// of a comment as a reply is not told of it as a mention too. Edits tell nobody.
type Notification struct {
	ID        int64
	Kind      NotificationKind
	Actor     Author `gorm:"embedded;embeddedPrefix:author_"` // who replied or mentioned; the zero Author for the other kinds
	PostID    int64
	PostTitle string // "" of a post that was deleted, or by somebody whom the user blocks, which only a report is about
	CommentID int64  // 0: it is about the post
	Milestone int64  // the number of likes that was reached; 0 for the other kinds
	ReportID  int64  // the user's report; 0 for the other kinds
	Outcome   string // of the report
	CreatedAt time.Time
	Read      bool
}

// MaxMentions is how many names in one text are told that they were mentioned; those after them are not.
const MaxMentions = 10

// Key gives the place of n in the list.
func (n *Notification) Key() ListKey { return ListKey{ID: n.ID} }

// once ends an INSERT of notifications: one that is there stays as it is.
const once = " ON DUPLICATE KEY UPDATE notifications.id=notifications.id"

// notifyComment tells those whom a new comment concerns: repliesTo, the author of its post or parent, and the users
// with these names.
func notifyComment(tx *gorm.DB, c *Comment, repliesTo int64, names []string) error {
	if repliesTo != c.Author.ID {
		err := tell(tx, NotifyReply, c.Author.ID, c.PostID, c.ID, c.CreatedAt, "u.id=?", repliesTo)
		if err != nil {
			return err
		}
	}
	return notifyMentions(tx, c.Author.ID, c.PostID, c.ID, c.CreatedAt, names, repliesTo)
}

// notifyMentions tells the users with these names, but not the one who was told of it as a reply (0 for none).
func notifyMentions(tx *gorm.DB, actor, postID, commentID int64, at time.Time, names []string, told int64) error {
	if len(names) == 0 {
		return nil
	}
	names = names[:min(len(names), MaxMentions)]
	return tell(tx, NotifyMention, actor, postID, commentID, at, "u.username IN ? AND u.id NOT IN ?", names, []int64{actor, told})
}

// tell writes a notification for each user u of whom the condition holds, who is not deleted and does not block the actor.
func tell(tx *gorm.DB, kind NotificationKind, actor, postID, commentID int64, at time.Time, where string, args ...any) error {
	args = append([]any{kind, actor, postID, commentID, at}, append(args, actor)...)
	err := tx.Exec("INSERT INTO notifications (user_id, kind, actor_id, post_id, comment_id, created_at) SELECT u.id,?,?,?,?,? FROM users u WHERE "+where+
		" AND u.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM blocks b WHERE b.user_id=u.id AND b.blocked_id=?)"+once, args...).Error
	if err != nil {
		return fmt.Errorf("write %s notifications: %w", kind, err)
	}
	return nil
}

// tellReporters tells everybody who reported it that a case is resolved. Moderators are not named.
func tellReporters(tx *gorm.DB, caseID int64, at time.Time) error {
	err := tx.Exec("INSERT INTO notifications (user_id, kind, post_id, comment_id, report_id, created_at) SELECT r.reporter_id,?,COALESCE(c.post_id,k.target_id),COALESCE(c.id,0),r.id,?"+
		" FROM reports r JOIN report_cases k ON k.id=r.case_id LEFT JOIN comments c ON k.target_type='comment' AND c.id=k.target_id"+
		" JOIN users u ON u.id=r.reporter_id AND u.deleted_at IS NULL WHERE r.case_id=?"+once, NotifyReport, at, caseID).Error
	if err != nil {
		return fmt.Errorf("tell reporters: %w", err)
	}
	return nil
}

// milestones gives the powers of ten in (above, upTo].
func milestones(above, upTo int64) []int64 {
	var list []int64
	for m := int64(1); m <= upTo; m *= 10 {
		if m > above {
			list = append(list, m)
		}
	}
	return list
}

// notifyMilestone tells the authors of targets of one kind that these many likes were reached. Deleted targets, and
// comments under deleted posts, have nobody to tell.
func notifyMilestone(tx *gorm.DB, kind TargetKind, milestone int64, ids []int64, at time.Time) error {
	about := "t.id,0"
	if kind == KindComment {
		about = "t.post_id,t.id"
	}
	err := tx.Exec("INSERT INTO notifications (user_id, kind, post_id, comment_id, milestone, created_at) SELECT t.user_id,?,"+about+",?,? FROM "+
		likeTables[kind].open+" JOIN users u ON u.id=t.user_id AND u.deleted_at IS NULL WHERE t.id IN ("+joinIDs(ids)+") AND t.status=1"+once,
		NotifyMilestone, milestone, second(at)).Error
	if err != nil {
		return fmt.Errorf("write milestones of %ss: %w", kind, err)
	}
	return nil
}

// PassMilestones keeps the author from being told of milestones up to this number of likes, which come from elsewhere and
// are no news.
func (s *Store) PassMilestones(ctx context.Context, target Target, likes int64) error {
	reached := milestones(0, likes)
	if len(reached) == 0 {
		return nil
	}
	_, err := s.write(ctx, "UPDATE "+likeTables[target.Kind].targets+" FORCE INDEX (PRIMARY) SET milestone=GREATEST(milestone,?), updated_at=updated_at WHERE id=?",
		slices.Max(reached), target.ID)
	if err != nil {
		return fmt.Errorf("pass milestones of %s: %w", target, err)
	}
	return nil
}

// notificationsOf is the trail of a user's notifications n, or of those that were not read. It names the index: for the
// latest few of a user MySQL likes to read the latest of everybody.
func notificationsOf(userID int64, unread bool) trail {
	t := trail{from: "notifications n FORCE INDEX (idx_user_id)", where: "n.user_id=?", args: []any{userID}, id: "n.id"}
	if unread {
		t.from, t.where = "notifications n FORCE INDEX (idx_user_read)", t.where+" AND n.read_at IS NULL"
	}
	return t
}

// notificationParts joins to notifications n what they are about, unless it was deleted; the user sees what became of a
// report in any case.
const notificationParts = `
STRAIGHT_JOIN posts p ON p.id=n.post_id AND (p.status=1 OR n.kind=4)
LEFT JOIN comments c ON c.id=n.comment_id
LEFT JOIN users u ON u.id=n.actor_id`

// notificationShown is the condition that neither a notification's comment was deleted, nor was it caused by somebody
// blocked since or is about a post of theirs. It has two placeholders: the user, twice.
var notificationShown = "(n.comment_id=0 OR c.status=1 OR n.kind=4) AND " + notBlocked("n.actor_id") + " AND (n.kind=4 OR " + notBlocked("p.user_id") + ")"

// Notifications lists what the user was told, latest first: at most limit notifications before the id (0 for the first
// page), and with unread only those that were not read. If what is passed over makes the page short, rest is where the
// list continues; nil for its end.
func (s *Store) Notifications(ctx context.Context, userID int64, unread bool, before int64, limit int) (list []Notification, rest *ListKey, err error) {
	told := notificationsOf(userID, unread)
	list, rest, err = sift(ctx, s, told, beforeID(before), limit, func(where string, args []any, limit int) *gorm.DB {
		args = append(append([]any{userID}, args...), userID, userID, limit)
		return s.db.WithContext(ctx).Raw(`
SELECT n.id, n.kind, `+authorColumns+`, n.post_id, IF(p.status=1 AND `+notBlocked("p.user_id")+`, p.title, '') AS post_title,
	n.comment_id, n.milestone, n.report_id,
	(SELECT k.outcome FROM reports r JOIN report_cases k ON k.id=r.case_id WHERE r.id=n.report_id) AS outcome,
	n.created_at, n.read_at IS NOT NULL AS `+"`read`"+`
FROM `+told.from+notificationParts+`
WHERE `+where+` AND `+notificationShown+`
ORDER BY `+told.order()+`
LIMIT ?`, args...)
	}, noContent[Notification])
	if err != nil {
		return nil, nil, fmt.Errorf("list notifications of user %d: %w", userID, err)
	}
	return list, rest, nil
}

// MaxUnread is how far unread notifications are counted: so many stand for more.
const MaxUnread = 100

// UnreadCount counts the notifications that Notifications lists as unread, up to MaxUnread. It looks no further back than
// the latest 5,000 that were not read, those that are hidden from the user included.
func (s *Store) UnreadCount(ctx context.Context, userID int64) (int64, error) {
	type row struct{ ID int64 }
	unread := notificationsOf(userID, true)
	list, _, err := sift(ctx, s, unread, nil, MaxUnread, func(where string, args []any, limit int) *gorm.DB {
		return s.db.WithContext(ctx).Raw(`
SELECT n.id
FROM `+unread.from+notificationParts+`
WHERE `+where+` AND `+notificationShown+`
ORDER BY `+unread.order()+`
LIMIT ?`, append(args, userID, userID, limit)...)
	}, noContent[row])
	if err != nil {
		return 0, fmt.Errorf("count unread notifications of user %d: %w", userID, err)
	}
	return int64(len(list)), nil
}

// readBatch is how many notifications one statement marks as read.
const readBatch = 1000

// ReadNotifications marks the user's notifications with these ids as read. What is not theirs or not there is passed over.
func (s *Store) ReadNotifications(ctx context.Context, userID int64, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := s.markRead(ctx, userID, "id IN ("+joinIDs(ids)+")")
	return err
}

// ReadNotificationsUpTo marks the user's notifications up to this id as read, a batch a transaction. What arrives
// meanwhile stays unread.
func (s *Store) ReadNotificationsUpTo(ctx context.Context, userID, id int64) error {
	ctx = Aside(ctx) // doing it again changes nothing
	for {
		n, err := s.markRead(ctx, userID, "id<=?", id)
		if err != nil || n < readBatch {
			return err
		}
	}
}

func (s *Store) markRead(ctx context.Context, userID int64, which string, args ...any) (int, error) {
	var ids []int64
	err := s.transact(ctx, func(tx *gorm.DB) error {
		err := tx.Raw("SELECT id FROM notifications WHERE user_id=? AND read_at IS NULL AND "+which+" ORDER BY id LIMIT ?",
			append(append([]any{userID}, args...), readBatch)...).Scan(&ids).Error
		if err != nil || len(ids) == 0 {
			return err
		}
		return tx.Exec("UPDATE notifications FORCE INDEX (PRIMARY) SET read_at=? WHERE id IN ("+joinIDs(ids)+") AND read_at IS NULL", second(s.now())).Error
	})
	if err != nil {
		return 0, fmt.Errorf("mark notifications of user %d as read: %w", userID, err)
	}
	return len(ids), nil
}

// Notifications are kept for so long after they were read, and for so long when they never are.
const (
	keepRead   = 90 * 24 * time.Hour
	keepUnread = 365 * 24 * time.Hour
)

// PurgeNotifications deletes at most limit notifications that are kept no longer and says how many it deleted. A
// milestone that was told of is remembered in the target's row, so it is not told of again.
func (s *Store) PurgeNotifications(ctx context.Context, limit int) (int64, error) {
	now, purged := s.now().UTC(), int64(0)
	for where, before := range map[string]time.Time{
		"read_at<=?":                        now.Add(-keepRead),
		"read_at IS NULL AND created_at<=?": now.Add(-keepUnread),
	} {
		var ids []int64
		err := s.db.WithContext(ctx).Raw("SELECT id FROM notifications WHERE "+where+" LIMIT ?", before, int64(limit)-purged).Scan(&ids).Error
		if err == nil && len(ids) > 0 {
			var n int64
			n, err = s.write(ctx, "DELETE n FROM notifications n FORCE INDEX (PRIMARY) WHERE n.id IN ("+joinIDs(ascending(ids))+")")
			purged += n
		}
		if err != nil {
			return purged, fmt.Errorf("purge notifications: %w", err)
		}
	}
	return purged, nil
}
