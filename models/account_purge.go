package models

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// purgeBatch bounds the rows that one transaction of PurgeUser deletes.
const purgeBatch = 500

// PurgeUser deletes the rows of a deleted account, except its content and likes: sessions, follows and blocks in both
// directions, bookmarks, notifications. It reports whether the account was deleted, and leaves any other one alone. Each
// transaction is short, and PurgeUser can be run again at any time.
func (s *Store) PurgeUser(ctx context.Context, userID int64) (deleted bool, err error) {
	const query = `
		SELECT COUNT(*)>0
		FROM users
		WHERE id=? AND deleted_at IS NOT NULL`
	if err := s.db.WithContext(ctx).Raw(query, userID).Scan(&deleted).Error; err != nil {
		return false, fmt.Errorf("read user %d: %w", userID, err)
	}
	if !deleted {
		return false, nil
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		_, err := endSessions(tx, userID, "")
		return err
	})
	if err != nil {
		return true, fmt.Errorf("purge user %d: %w", userID, err)
	}
	for _, rows := range []purgedRows{
		{"blocks", "PRIMARY", "user_id", "blocked_id"},
		{"blocks", "PRIMARY", "blocked_id", "user_id"},
		{"bookmarks", "idx_user_post", "user_id", "post_id"},
		{"notifications", "PRIMARY", "user_id", "id"},
		{"follows", "idx_user_followed", "followed_id", "user_id"}, // the followers of a deleted account are not shown
	} {
		for more := true; more; {
			if more, err = s.purgeSome(ctx, rows, userID); err != nil {
				return true, fmt.Errorf("purge user %d: %w", userID, err)
			}
		}
	}
	for more := true; more; {
		err := s.transact(ctx, func(tx *gorm.DB) error {
			n, err := unfollowSome(tx, userID)
			more = n > 0
			return err
		})
		if err != nil {
			return true, fmt.Errorf("end follows of user %d: %w", userID, err)
		}
	}
	return true, nil
}

// purgedRows are rows of a table that belong to a user by one column. Together with the column other it makes the key
// that all writers of such rows use.
type purgedRows struct {
	table, index, user, other string
}

// purgeSome deletes at most purgeBatch of the rows and reports whether there may be more.
func (s *Store) purgeSome(ctx context.Context, rows purgedRows, userID int64) (more bool, err error) {
	find := fmt.Sprintf(`
		SELECT %s
		FROM %s
		WHERE %s=?
		LIMIT ?`, rows.other, rows.table, rows.user)
	var others []int64
	err = s.db.WithContext(ctx).Raw(find, userID, purgeBatch).Scan(&others).Error
	if err != nil || len(others) == 0 {
		return false, err
	}
	remove := fmt.Sprintf(`
		DELETE r
		FROM %s r FORCE INDEX (%s)
		WHERE r.%s=? AND r.%s IN (%s)`,
		rows.table, rows.index, rows.user, rows.other, joinIDs(ascending(others)))
	_, err = s.write(ctx, remove, userID)
	return len(others) == purgeBatch, err
}

// unfollowSome ends at most purgeBatch follows of a user and returns their number. The users are locked before the
// follows, in the lock order.
func unfollowSome(tx *gorm.DB, userID int64) (int, error) {
	const find = `
		SELECT followed_id
		FROM follows
		WHERE user_id=?
		ORDER BY followed_id
		LIMIT ?`
	var ids []int64
	if err := tx.Raw(find, userID, purgeBatch).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return 0, err
	}
	list := joinIDs(ids)
	lock := `
		SELECT id
		FROM users FORCE INDEX (PRIMARY)
		WHERE id IN (` + list + `)
		ORDER BY id
		FOR UPDATE`
	var locked []int64
	if err := tx.Raw(lock).Scan(&locked).Error; err != nil {
		return 0, err
	}
	remove := tx.Exec(`
		DELETE f
		FROM follows f FORCE INDEX (idx_user_followed)
		WHERE f.user_id=? AND f.followed_id IN (`+list+`)`, userID)
	if remove.Error != nil {
		return 0, remove.Error
	}
	if remove.RowsAffected != int64(len(ids)) {
		return 0, errChangedMeanwhile
	}
	count := `
		UPDATE users
		SET followers_count=followers_count-1, updated_at=updated_at
		WHERE id IN (` + list + `)`
	return len(ids), tx.Exec(count).Error
}
