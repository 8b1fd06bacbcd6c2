package people

import (
	"context"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// SQLFollowing is the level of a subscription as a literal of SQL.
var SQLFollowing = db.Literal(models.Following)

// SQLMuted is the level of a post that its user mutes.
var SQLMuted = db.Literal(models.Muted)

// NotMuted returns the condition that a user does not mute a post. Both are columns or placeholders.
func NotMuted(user, post string) string {
	return "(SELECT 1 FROM subscriptions q WHERE q.user_id=" + user + " AND q.post_id=" + post +
		" AND q.level=" + SQLMuted + " LIMIT 1) IS NULL"
}

// SetSubscription sets the user's subscription to a post; NotSubscribed ends it. Repeating it changes nothing.
// CodeNotFound: the post is deleted or never existed.
func (s *Store) SetSubscription(ctx context.Context, userID, postID int64, level models.Subscription) error {
	open, err := s.TargetOpen(ctx, models.Target{Kind: models.KindPost, ID: postID})
	if err != nil {
		return err
	}
	if !open {
		return models.NotFound(models.KindPost)
	}
	const find = `
		SELECT id, level
		FROM subscriptions FORCE INDEX (idx_user_post)
		WHERE user_id=? AND post_id=?`
	const insert = `
		INSERT INTO subscriptions (user_id, post_id, level, created_at)
		VALUES (?,?,?,?)`
	const update = `
		UPDATE subscriptions
		SET level=?
		WHERE id=?`
	const remove = `
		DELETE FROM subscriptions
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		// Under this lock, nobody else writes subscriptions of the user, and a plain INSERT is enough.
		users, err := accounts.LockStandings(tx, userID)
		if err != nil {
			return err
		}
		if users[userID] == nil {
			return accounts.ErrNoUser()
		}
		var now struct {
			ID    int64
			Level models.Subscription
		}
		if err := tx.Raw(find, userID, postID).Scan(&now).Error; err != nil {
			return err
		}
		switch {
		case now.Level == level:
			return nil
		case level == models.NotSubscribed:
			return tx.Exec(remove, now.ID).Error
		case now.ID == 0:
			return tx.Exec(insert, userID, postID, level, models.WholeSeconds(tx.Now)).Error
		}
		return tx.Exec(update, level, now.ID).Error
	})
	if err != nil {
		return fmt.Errorf("set subscription to post %d: %w", postID, err)
	}
	return nil
}

// AddThreadNews leaves a new comment on a followed post to NotifyFollowers. The caller holds the row of the post.
func AddThreadNews(tx *db.Tx, c *models.Comment) error {
	const insert = `
		INSERT INTO thread_news (post_id, latest_id, from_id)
		VALUES (?,?,?)
		ON DUPLICATE KEY UPDATE latest_id=VALUES(latest_id)`
	if err := tx.Exec(insert, c.PostID, c.ID, c.ID-1).Error; err != nil {
		return fmt.Errorf("write news of post %d: %w", c.PostID, err)
	}
	return nil
}

// ReadThreadNews marks the user's notification of comments on a followed post, up to this one, as read.
func ReadThreadNews(tx *db.Tx, userID, postID, upTo int64, now time.Time) error {
	const find = `
		SELECT id
		FROM notifications FORCE INDEX (idx_once)
		WHERE user_id=? AND kind=? AND post_id=? AND comment_id<=? AND read_at IS NULL`
	var ids []int64
	if err := tx.Raw(find, userID, models.NotifyComment, postID, upTo).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return err
	}
	update := `
		UPDATE notifications FORCE INDEX (PRIMARY)
		SET read_at=?
		WHERE id IN (` + db.JoinIDs(db.Ascending(ids)) + `) AND read_at IS NULL`
	return tx.Exec(update, now).Error
}

// threadNews is a row of thread_news: a post with new comments, and the pass over its followers.
type threadNews struct {
	PostID, LatestID, FromID, ToID, AfterUser int64
	Status                                    models.Status // of the post
}

// NotifyFollowers notifies some followers of a post of its new comments: at most limit followers of the first post
// after this id that has any, or whose pass has not ended. Posts in passed begin no new pass.
//
// A follower has at most one unread notification of a post. It is about the first of the new comments that is neither
// the follower's nor by somebody whom they block, and that they have neither read nor were notified of as a reply or
// mention. A comment itself writes one row, whatever the number of followers. Comments that are written during a pass
// wait for the next one together. So a post causes one pass at a time, however many comments it gets.
//
// A step that was interrupted is repeated, and notifies nobody twice.
func (s *Store) NotifyFollowers(
	ctx context.Context, after int64, limit int, passed map[int64]bool,
) (step models.NewsStep, err error) {
	const next = `
		SELECT t.post_id, t.latest_id, t.from_id, t.to_id, t.after_user, p.status
		FROM thread_news t FORCE INDEX (PRIMARY)
		STRAIGHT_JOIN posts p ON p.id=t.post_id
		WHERE t.post_id>?
		ORDER BY t.post_id
		LIMIT 1`
	var news threadNews
	if err := s.Read(ctx).Raw(next, after).Scan(&news).Error; err != nil {
		return step, fmt.Errorf("read news of followed posts: %w", err)
	}
	if news.PostID == 0 {
		return step, nil
	}
	step.PostID = news.PostID
	switch {
	case news.Status != models.StatusNormal:
		_, err = s.Write(ctx, "DELETE FROM thread_news WHERE post_id=?", news.PostID)
	case news.ToID == 0 && passed[news.PostID]:
	default:
		step.Worked, step.Begun = true, news.ToID == 0
		step.Notified, err = s.notifySomeFollowers(ctx, news, limit)
	}
	if err != nil {
		return step, fmt.Errorf("notify followers of post %d: %w", news.PostID, err)
	}
	return step, nil
}

// notifySomeFollowers takes one step of a pass, and begins and ends it.
func (s *Store) notifySomeFollowers(ctx context.Context, news threadNews, limit int) (notified int64, err error) {
	const begin = `
		UPDATE thread_news
		SET to_id=?
		WHERE post_id=? AND to_id=0`
	const find = `
		SELECT user_id
		FROM subscriptions FORCE INDEX (idx_post_level)
		WHERE post_id=? AND level=? AND user_id>?
		ORDER BY user_id
		LIMIT ?`
	const advance = `
		UPDATE thread_news
		SET after_user=?
		WHERE post_id=? AND to_id=? AND after_user=?`
	const remove = `
		DELETE FROM thread_news
		WHERE post_id=? AND to_id=? AND latest_id=to_id`
	const end = `
		UPDATE thread_news
		SET from_id=to_id, to_id=0, after_user=0
		WHERE post_id=? AND to_id=?`
	if news.ToID == 0 {
		news.ToID = news.LatestID
		if _, err := s.Write(ctx, begin, news.ToID, news.PostID); err != nil {
			return 0, err
		}
	}
	var followers []int64
	err = s.Read(ctx).Raw(find, news.PostID, models.Following, news.AfterUser, limit).Scan(&followers).Error
	if err != nil {
		return 0, err
	}
	if len(followers) > 0 {
		if notified, err = s.notifyThese(ctx, news, followers); err != nil {
			return 0, err
		}
	}
	if len(followers) == limit {
		_, err = s.Write(ctx, advance, followers[limit-1], news.PostID, news.ToID, news.AfterUser)
		return notified, err
	}
	removed, err := s.Write(ctx, remove, news.PostID, news.ToID)
	if err == nil && removed == 0 {
		_, err = s.Write(ctx, end, news.PostID, news.ToID)
	}
	return notified, err
}

// readUpTo is the last comment on a post that the follower f has read. It has one placeholder, the post.
const readUpTo = `COALESCE((SELECT m.comment_id FROM read_marks m WHERE m.user_id=f.user_id AND m.post_id=?), 0)`

// notifyThese notifies those of these followers whom the news of a post concern.
func (s *Store) notifyThese(ctx context.Context, news threadNews, followers []int64) (int64, error) {
	insert := `
		INSERT INTO notifications (user_id, kind, actor_id, post_id, comment_id, created_at)
		SELECT w.user_id, ?, c.user_id, c.post_id, c.id, c.created_at
		FROM (
			SELECT f.user_id, (
				SELECT n.id
				FROM comments n FORCE INDEX (idx_post_id)
				WHERE n.post_id=? AND n.id>? AND n.id<=? AND n.status=` + db.SQLNormal + ` AND n.user_id<>f.user_id
					AND n.id>` + readUpTo + `
					AND ` + blocksNot("f.user_id", "n.user_id") + `
					AND (
						SELECT 1
						FROM notifications r FORCE INDEX (idx_once)
						WHERE r.user_id=f.user_id AND r.kind IN (?,?) AND r.post_id=? AND r.comment_id=n.id
						LIMIT 1
					) IS NULL
				ORDER BY n.id
				LIMIT 1
			) AS comment_id
			FROM subscriptions f FORCE INDEX (idx_user_post)
			STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=f.user_id AND u.deleted_at IS NULL
			WHERE f.post_id=? AND f.user_id IN (` + db.JoinIDs(followers) + `) AND f.level=` + SQLFollowing + `
				AND ` + readUpTo + `<?
				AND (
					SELECT 1
					FROM notifications r FORCE INDEX (idx_once)
					JOIN comments x ON x.id=r.comment_id AND x.status=` + db.SQLNormal + `
					WHERE r.user_id=f.user_id AND r.kind=? AND r.post_id=? AND r.read_at IS NULL
						AND ` + blocksNot("f.user_id", "x.user_id") + `
					LIMIT 1
				) IS NULL
		) w
		JOIN comments c ON c.id=w.comment_id` + NotificationOnce
	return s.Write(ctx, insert, models.NotifyComment, news.PostID, news.FromID, news.ToID, news.PostID,
		models.NotifyReply,
		models.NotifyMention, news.PostID, news.PostID, news.PostID, news.ToID, models.NotifyComment, news.PostID)
}
