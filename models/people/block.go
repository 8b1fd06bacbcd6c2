package people

import (
	"context"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// blocksNot returns the condition that the user in one column does not block the user in another.
func blocksNot(user, other string) string {
	return strings.Replace(db.NotBlocked(other), "?", user, 1)
}

// RefuseBlocked returns CodeForbidden if the target's author has blocked the user. A target that does not exist has no
// author and causes no error.
func (s *Store) RefuseBlocked(ctx context.Context, target models.Target, userID int64) error {
	query := `
		SELECT COUNT(*)
		FROM ` + db.TargetTables[target.Kind].Targets + ` t
		JOIN blocks b ON b.user_id=t.user_id AND b.blocked_id=?
		WHERE t.id=?`
	if target.Kind == models.KindDrop {
		query = `
		SELECT COUNT(*)
		FROM drops d
		JOIN posts t ON t.id=d.post_id
		JOIN blocks b ON b.user_id=t.user_id AND b.blocked_id=?
		WHERE d.id=?`
	}
	var n int
	if err := s.Read(ctx).Raw(query, userID, target.ID).Scan(&n).Error; err != nil {
		return fmt.Errorf("read blocks of the author of %s: %w", target, err)
	}
	if n > 0 {
		return models.Errorf(models.CodeForbidden, "The author has blocked you.")
	}
	return nil
}

// BlockedBy returns whom each of the users blocks.
func (s *Store) BlockedBy(ctx context.Context, users []int64) (map[int64][]int64, error) {
	blocked := map[int64][]int64{}
	if len(users) == 0 {
		return blocked, nil
	}
	query := `
		SELECT user_id, blocked_id
		FROM blocks FORCE INDEX (PRIMARY)
		WHERE user_id IN (` + db.JoinIDs(users) + `)`
	var rows []struct{ UserID, BlockedID int64 }
	if err := s.Read(ctx).Raw(query).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read whom %d users block: %w", len(users), err)
	}
	for _, row := range rows {
		blocked[row.UserID] = append(blocked[row.UserID], row.BlockedID)
	}
	return blocked, nil
}

// BlockersAmong returns which of these users block the viewer.
func (s *Store) BlockersAmong(ctx context.Context, viewer int64, users []int64) (map[int64]bool, error) {
	if len(users) == 0 {
		return nil, nil
	}
	query := `
		SELECT user_id
		FROM blocks FORCE INDEX (PRIMARY)
		WHERE user_id IN (` + db.JoinIDs(users) + `) AND blocked_id=?`
	var ids []int64
	if err := s.Read(ctx).Raw(query, viewer).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read who blocks user %d: %w", viewer, err)
	}
	blockers := make(map[int64]bool, len(ids))
	for _, id := range ids {
		blockers[id] = true
	}
	return blockers, nil
}

// lockPair locks two accounts, the lower id first, so that changes between two users take place one after another.
// CodeNotFound: the other account does not exist or was deleted. CodeUnauthorized: the user's account was deleted.
func lockPair(tx *db.Tx, userID, other int64) error {
	found, err := accounts.LockStandings(tx, userID, other)
	switch {
	case err != nil:
		return err
	case found[userID] == nil:
		return models.Errorf(models.CodeUnauthorized, "The account was deleted.")
	case found[other] == nil:
		return accounts.ErrNoUser()
	}
	return nil
}

// Block hides the content of other from the user, and keeps other from replying to and liking the user's content. It
// ends follows between the two in the same transaction. Blocking twice changes nothing. CodeNotFound: the other user
// does not exist. CodeForbidden: the two are the same.
func (s *Store) Block(ctx context.Context, userID, other int64) error {
	if userID == other {
		return models.Errorf(models.CodeForbidden, "You cannot block yourself.")
	}
	const insert = `
		INSERT INTO blocks (user_id, blocked_id, created_at)
		VALUES (?,?,?)
		ON DUPLICATE KEY UPDATE user_id=user_id`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := lockPair(tx, userID, other); err != nil {
			return err
		}
		inserted := tx.Exec(insert, userID, other, models.WholeSeconds(tx.Now))
		if inserted.Error != nil {
			return inserted.Error
		}
		if inserted.RowsAffected > 0 {
			if err := accounts.SessionsChanged(tx, other); err != nil { // Session.Blocked
				return err
			}
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

// Unblock ends a block. Without a block it changes nothing.
func (s *Store) Unblock(ctx context.Context, userID, other int64) error {
	const remove = `
		DELETE FROM blocks
		WHERE user_id=? AND blocked_id=?`
	if _, err := s.Write(ctx, remove, userID, other); err != nil {
		return fmt.Errorf("unblock user %d: %w", other, err)
	}
	return nil
}

// BlockedUsers lists the users whom the user blocks and who are not deleted, latest first: at most limit after the key
// (nil for the first page). If skipped users make the page short, rest is where the list continues; nil at its end.
func (s *Store) BlockedUsers(
	ctx context.Context, userID int64, after *models.ListKey, limit int,
) (list []models.ListedUser, rest *models.ListKey, err error) {
	blocks := db.Trail{
		From:  "blocks b FORCE INDEX (idx_user_created)",
		Where: db.Matching("b.user_id=?", userID),
		Time:  "b.created_at",
		ID:    "b.blocked_id",
	}
	visible := func(where db.Conditions, limit int) *gorm.DB {
		query := `
			SELECT ` + accounts.AuthorColumns + `, b.created_at AS since, b.blocked_id AS list_order
			FROM ` + blocks.From + `
			STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=b.blocked_id AND u.deleted_at IS NULL
			` + where.Clause() + `
			ORDER BY ` + blocks.Order() + `
			LIMIT ?`
		return s.Read(ctx).Raw(query, append(where.Args, limit)...)
	}
	list, rest, err = db.Sift(ctx, s.DB, blocks, after, limit, visible, db.NoContent[models.ListedUser])
	if err != nil {
		return nil, nil, fmt.Errorf("list blocks of user %d: %w", userID, err)
	}
	return list, rest, nil
}
