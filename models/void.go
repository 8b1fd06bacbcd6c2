package models

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"gorm.io/gorm"
)

// LikeVoid is a request to take back likes of a user: all of them, or those accepted in a time. It is a row, so that it
// is carried out to its end whatever dies on the way; see workers.Voider.
type LikeVoid struct {
	ID          int64
	UserID      int64
	RequestedBy int64
	RequestedAt time.Time
	LikedSince  *time.Time // nil: from the first
	LikedUntil  *time.Time // nil: to the last
}

// lateLikes is how much longer a like may be accepted than the session that it came with is believed: the deadline of a
// request, and what the clocks of two machines may differ by.
const lateLikes = time.Minute

// LastLike is when the last like that the request is about may be accepted. A user whose sessions have ended is still
// believed by processes that cannot ask, for SessionStale.
func (v *LikeVoid) LastLike() time.Time {
	if v.LikedUntil != nil {
		return v.LikedUntil.Add(lateLikes)
	}
	return v.RequestedAt.Add(SessionStale + lateLikes)
}

// OpenLikeVoids gives the oldest requests that are not done, at most limit.
func (s *Store) OpenLikeVoids(ctx context.Context, limit int) ([]LikeVoid, error) {
	var list []LikeVoid
	err := s.db.WithContext(ctx).Raw("SELECT id, user_id, requested_by, requested_at, liked_since, liked_until FROM like_voids"+
		" WHERE done_at IS NULL ORDER BY id LIMIT ?", limit).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("read like voids: %w", err)
	}
	return list, nil
}

// CloseLikeVoid records that none of the likes is left and none can come.
func (s *Store) CloseLikeVoid(ctx context.Context, id int64) error {
	if err := s.db.WithContext(ctx).Exec("UPDATE like_voids SET done_at=? WHERE id=? AND done_at IS NULL", s.now().UTC(), id).Error; err != nil {
		return fmt.Errorf("close like void %d: %w", id, err)
	}
	return nil
}

// VoidedLike is a like that a LikeVoid takes back.
type VoidedLike struct {
	RowID    int64
	TargetID int64
}

// VoidedLikes gives the likes of a kind of target that the request is about and that MySQL has, in the order of their
// rows: at most limit after row after.
func (s *Store) VoidedLikes(ctx context.Context, v LikeVoid, kind TargetKind, after int64, limit int) ([]VoidedLike, error) {
	t := likeTables[kind]
	where, args := "user_id=? AND id>?", []any{v.UserID, after}
	if v.LikedSince != nil {
		where, args = where+" AND created_at>=?", append(args, *v.LikedSince)
	}
	if v.LikedUntil != nil {
		where, args = where+" AND created_at<=?", append(args, *v.LikedUntil)
	}
	var list []VoidedLike
	err := s.db.WithContext(ctx).Raw("SELECT id AS row_id, "+t.column+" AS target_id FROM "+t.likes+" FORCE INDEX (idx_user_id) WHERE "+where+" ORDER BY id LIMIT ?",
		append(args, limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("read likes of user %d: %w", v.UserID, err)
	}
	return list, nil
}

// WithdrawLike takes back a like of a target that is deleted, row and count in one transaction; it reports whether the
// target is deleted. No gate may hold the target: it would not hear of it. The target cannot be restored meanwhile, and
// whoever warms it after that reads what is left.
func (s *Store) WithdrawLike(ctx context.Context, target Target, userID int64) (deleted bool, err error) {
	t := likeTables[target.Kind]
	err = s.transact(ctx, func(tx *gorm.DB) error {
		open, err := lockTarget(tx, target)
		if deleted = !open; err != nil || open {
			return err
		}
		remove := tx.Exec("DELETE FROM "+t.likes+" WHERE "+t.column+"=? AND user_id=?", target.ID, userID)
		if remove.Error != nil || remove.RowsAffected == 0 {
			return remove.Error
		}
		return tx.Exec("UPDATE "+t.targets+" SET "+t.adding("-1")+" WHERE id=?", target.ID).Error
	})
	if err != nil {
		return false, fmt.Errorf("withdraw like of %s: %w", target, err)
	}
	return deleted, nil
}

// lockTarget locks a target, a comment after its post, and reports whether it is open.
func lockTarget(tx *gorm.DB, target Target) (open bool, err error) {
	postID := target.ID
	if target.Kind == KindComment {
		if err := tx.Raw("SELECT COALESCE(MAX(post_id),0) FROM comments WHERE id=?", target.ID).Scan(&postID).Error; err != nil {
			return false, err
		}
	}
	var status Status // stays 0 when there is no row
	if err := tx.Raw("SELECT status FROM posts WHERE id=? FOR UPDATE", postID).Scan(&status).Error; err != nil {
		return false, err
	}
	open = status == StatusNormal
	if target.Kind == KindComment {
		status = 0
		if err := tx.Raw("SELECT status FROM comments WHERE id=? FOR UPDATE", target.ID).Scan(&status).Error; err != nil {
			return false, err
		}
		open = open && status == StatusNormal
	}
	return open, nil
}

// purgeBatch bounds the rows that one transaction of PurgeUser deletes.
const purgeBatch = 500

// PurgeUser deletes what hangs on an account that was deleted, besides content and likes: sessions, follows and blocks in
// both directions, bookmarks, notifications. An account that was not deleted is left alone. It can be run again at any time.
func (s *Store) PurgeUser(ctx context.Context, userID int64) error {
	var deleted int
	if err := s.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM users WHERE id=? AND deleted_at IS NOT NULL", userID).Scan(&deleted).Error; err != nil {
		return fmt.Errorf("read user %d: %w", userID, err)
	}
	if deleted == 0 {
		return nil
	}
	for _, where := range []string{"sessions WHERE user_id=?", "blocks WHERE user_id=?", "blocks WHERE blocked_id=?", "bookmarks WHERE user_id=?",
		"notifications WHERE user_id=?", "follows WHERE followed_id=?"} { // nobody sees or counts the followers of a deleted account
		for more := true; more; {
			remove := s.db.WithContext(ctx).Exec("DELETE FROM "+where+" LIMIT "+strconv.Itoa(purgeBatch), userID)
			if remove.Error != nil {
				return fmt.Errorf("purge user %d: %w", userID, remove.Error)
			}
			more = remove.RowsAffected == purgeBatch
		}
	}
	for more := true; more; {
		err := s.transact(ctx, func(tx *gorm.DB) error {
			n, err := unfollowSome(tx, userID)
			more = n > 0
			return err
		})
		if err != nil {
			return fmt.Errorf("end follows of user %d: %w", userID, err)
		}
	}
	return nil
}

// unfollowSome ends some follows of a user and says how many. The users are locked before the follows, as everywhere.
func unfollowSome(tx *gorm.DB, userID int64) (int, error) {
	var ids []int64
	if err := tx.Raw("SELECT followed_id FROM follows WHERE user_id=? ORDER BY followed_id LIMIT ?", userID, purgeBatch).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return 0, err
	}
	list := joinIDs(ids)
	var locked []int64
	if err := tx.Raw("SELECT id FROM users WHERE id IN (" + list + ") ORDER BY id FOR UPDATE").Scan(&locked).Error; err != nil {
		return 0, err
	}
	remove := tx.Exec("DELETE FROM follows WHERE user_id=? AND followed_id IN ("+list+")", userID)
	if remove.Error != nil {
		return 0, remove.Error
	}
	if remove.RowsAffected != int64(len(ids)) {
		return 0, errChangedMeanwhile
	}
	return len(ids), tx.Exec("UPDATE users SET followers_count=followers_count-1, updated_at=updated_at WHERE id IN (" + list + ")").Error
}
