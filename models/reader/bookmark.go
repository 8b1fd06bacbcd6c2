package reader

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// SetBookmark sets or deletes the user's bookmark of a post. Repeating it changes nothing. CodeNotFound: the post is
// deleted or never existed.
func (s *Store) SetBookmark(ctx context.Context, userID, postID int64, bookmarked bool) error {
	open, err := s.TargetOpen(ctx, models.Target{Kind: models.KindPost, ID: postID})
	if err != nil {
		return err
	}
	if !open {
		return models.NotFound(models.KindPost)
	}
	const find = `
		SELECT id
		FROM bookmarks FORCE INDEX (idx_user_post)
		WHERE user_id=? AND post_id=?`
	const insert = `
		INSERT INTO bookmarks (user_id, post_id, created_at)
		VALUES (?,?,?)`
	const remove = `
		DELETE FROM bookmarks
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		// Under this lock, nobody else writes bookmarks of the user, and a plain INSERT is enough; see setLikeRow.
		users, err := accounts.LockStandings(tx, userID)
		if err != nil {
			return err
		}
		if users[userID] == nil {
			return accounts.ErrNoUser()
		}
		var id int64
		if err := tx.Raw(find, userID, postID).Scan(&id).Error; err != nil {
			return err
		}
		switch {
		case bookmarked && id == 0:
			return tx.Exec(insert, userID, postID, models.WholeSeconds(tx.Now)).Error
		case !bookmarked && id != 0:
			return tx.Exec(remove, id).Error
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set bookmark of post %d: %w", postID, err)
	}
	return nil
}

// BookmarkedPosts lists the posts that the user bookmarked, the latest bookmark first: at most limit bookmarks older
// than row before (0 for the first page). Deleted posts, and posts of authors whom the user blocks, are skipped. If
// skipped posts make the page short, rest is where the list continues; nil at its end.
func (s *Store) BookmarkedPosts(
	ctx context.Context, userID, before int64, limit int,
) (list []models.KeptPost, rest *models.ListKey, err error) {
	return s.keptPosts(ctx, "bookmarks", userID, before, limit)
}

// keptPosts lists the posts in the user's rows of a table, as BookmarkedPosts does.
func (s *Store) keptPosts(
	ctx context.Context, table string, userID int64, before int64, limit int,
) (list []models.KeptPost, rest *models.ListKey, err error) {
	kept := db.Trail{
		From:  table + " k FORCE INDEX (idx_user_id)",
		Where: db.Matching("k.user_id=?", userID),
		ID:    "k.id",
	}
	visible := func(where db.Conditions, limit int) *gorm.DB {
		where.Add(db.NotBlocked("p.user_id"), userID)
		query := `
			SELECT ` + content.ViewSummary.Columns() + `, k.id AS row_id
			FROM ` + kept.From + `
			STRAIGHT_JOIN posts p ON p.id=k.post_id AND p.status=` + db.SQLNormal + `
			STRAIGHT_JOIN ` + content.ListedUsers + `
			` + content.ViewSummary.Join(userID) + `
			` + where.Clause() + `
			ORDER BY ` + kept.Order() + `
			LIMIT ?`
		return s.Read(ctx).Raw(query, where.Between([]any{userID}, limit)...)
	}
	size := func(k *models.KeptPost) int { return db.PostSize(&k.Post) }
	list, rest, err = db.Sift(ctx, s.DB, kept, db.BeforeID(before), limit, visible, size)
	if err != nil {
		return nil, nil, fmt.Errorf("list %s of user %d: %w", table, userID, err)
	}
	return list, rest, nil
}
