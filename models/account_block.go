package models

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// notBlocked is the condition, with one placeholder for the viewer's id, that the author in column is not one whose
// content the viewer has chosen not to see. It holds for the anonymous, whose id is 0.
func notBlocked(column string) string { return blockOf(column) + " IS NULL" }

// isBlocked is the opposite of notBlocked.
func isBlocked(column string) string { return blockOf(column) + " IS NOT NULL" }

// blockOf looks up one block. As a plain EXISTS, MariaDB would read all blocks that the viewer has made.
func blockOf(column string) string {
	return "(SELECT 1 FROM blocks b WHERE b.user_id=? AND b.blocked_id=" + column + " LIMIT 1)"
}

// RefuseBlocked gives CodeForbidden when the target's author has blocked the user. A target that is not there is
// nobody's: it gives no error.
func (s *Store) RefuseBlocked(ctx context.Context, target Target, userID int64) error {
	var n int
	err := s.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM "+likeTables[target.Kind].targets+" t JOIN blocks b ON b.user_id=t.user_id AND b.blocked_id=?"+
		" WHERE t.id=?", userID, target.ID).Scan(&n).Error
	if err != nil {
		return fmt.Errorf("read blocks of the author of %s: %w", target, err)
	}
	if n > 0 {
		return Errorf(CodeForbidden, "The author has blocked you.")
	}
	return nil
}

// lockPair locks two accounts, the lower id first, so that what is between two users changes one after the other.
// CodeNotFound when the other one is not there or was deleted, CodeUnauthorized when the user was.
func lockPair(tx *gorm.DB, userID, other int64) error {
	var there []int64
	err := tx.Raw("SELECT id FROM users FORCE INDEX (PRIMARY) WHERE id IN (" + joinIDs([]int64{userID, other}) + ") AND deleted_at IS NULL ORDER BY id FOR UPDATE").Scan(&there).Error
	if err != nil {
		return err
	}
	found := map[int64]bool{}
	for _, id := range there {
		found[id] = true
	}
	switch {
	case !found[userID]:
		return Errorf(CodeUnauthorized, "The account was deleted.")
	case !found[other]:
		return errNoUser()
	}
	return nil
}

// Block hides what other writes from the user, and keeps other from answering to and liking what the user writes; it
// ends follows between the two, in the same transaction. Blocking twice changes nothing. CodeNotFound when there is no
// such user, CodeForbidden for oneself.
func (s *Store) Block(ctx context.Context, userID, other int64) error {
	if userID == other {
		return Errorf(CodeForbidden, "You cannot block yourself.")
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := lockPair(tx, userID, other); err != nil {
			return err
		}
		insert := tx.Exec("INSERT INTO blocks (user_id, blocked_id, created_at) VALUES (?,?,?) ON DUPLICATE KEY UPDATE user_id=user_id",
			userID, other, second(s.now()))
		if insert.Error != nil {
			return insert.Error
		}
		if err := unfollow(tx, userID, other); err != nil {
			return err
		}
		return unfollow(tx, other, userID)
	})
	if err != nil {
		return fmt.Errorf("block user %d: %w", other, err)
	}
	return nil
}

// Unblock ends a block; ending what is not there is no error.
func (s *Store) Unblock(ctx context.Context, userID, other int64) error {
	if _, err := s.write(ctx, "DELETE FROM blocks WHERE user_id=? AND blocked_id=?", userID, other); err != nil {
		return fmt.Errorf("unblock user %d: %w", other, err)
	}
	return nil
}

// ListedUser is a user in a list of followers, followed or blocked users.
type ListedUser struct {
	Author    Author    `gorm:"embedded;embeddedPrefix:author_"`
	Since     time.Time // when the follow or block was made
	ListOrder int64     // the id that breaks ties in the list's order
}

// Key gives the user's place in the list.
func (u *ListedUser) Key() ListKey { return ListKey{u.Since.Unix(), u.ListOrder} }

// BlockedUsers lists whom the user blocks and who are not deleted, latest first: at most limit after the key (nil for the
// first page). If what is passed over makes the page short, rest is where the list continues; nil for its end.
func (s *Store) BlockedUsers(ctx context.Context, userID int64, after *ListKey, limit int) (list []ListedUser, rest *ListKey, err error) {
	blocks := trail{
		from: "blocks b FORCE INDEX (idx_user_created)", where: "b.user_id=?", args: []any{userID},
		time: "b.created_at", id: "b.blocked_id",
	}
	list, rest, err = sift(ctx, s, blocks, after, limit, func(where string, args []any, limit int) *gorm.DB {
		return s.db.WithContext(ctx).Raw(`
SELECT `+authorColumns+`, b.created_at AS since, b.blocked_id AS list_order
FROM `+blocks.from+`
STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=b.blocked_id AND u.deleted_at IS NULL
WHERE `+where+`
ORDER BY `+blocks.order()+`
LIMIT ?`, append(args, limit)...)
	}, noContent[ListedUser])
	if err != nil {
		return nil, nil, fmt.Errorf("list blocks of user %d: %w", userID, err)
	}
	return list, rest, nil
}
