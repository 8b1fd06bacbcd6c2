package reader

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/media"
)

const draftColumns = `
	id, draft_key, post_id, parent_id, title, content, tags, version, created_at, updated_at`

// DraftByKey reads a draft of the user. CodeNotFound: the user has no draft with this key.
func (s *Store) DraftByKey(ctx context.Context, userID int64, key string) (*models.Draft, error) {
	return readDraft(s.Read(ctx), userID, key)
}

func readDraft(conn *gorm.DB, userID int64, key string) (*models.Draft, error) {
	const query = `
		SELECT ` + draftColumns + `
		FROM drafts FORCE INDEX (idx_user_key)
		WHERE user_id=? AND draft_key=?`
	var d models.Draft
	read := conn.Raw(query, userID, key).Scan(&d)
	if read.Error != nil {
		return nil, fmt.Errorf("read a draft of user %d: %w", userID, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.Errorf(models.CodeNotFound, "There is no such draft.")
	}
	return &d, nil
}

// Drafts lists the drafts of the user, the latest created first: at most limit drafts older than row before (0 for the
// first page).
func (s *Store) Drafts(ctx context.Context, userID, before int64, limit int) ([]models.Draft, error) {
	where := db.Matching("user_id=?", userID)
	where.AddIf(before > 0, "id<?", before)
	query := `
		SELECT ` + draftColumns + `
		FROM drafts FORCE INDEX (idx_user_id)
		` + where.Clause() + `
		ORDER BY id DESC
		LIMIT ?`
	size := func(d *models.Draft) int { return len(d.Text.Content) }
	list, _, err := db.ScanPage(s.Read(ctx).Raw(query, where.Between(nil, limit)...), db.PageBytes, size)
	if err != nil {
		return nil, fmt.Errorf("list drafts of user %d: %w", userID, err)
	}
	return list, nil
}

// SaveDraft creates the user's draft with this key, or replaces the one that the check of its version admits, and
// returns it. An edit that changes nothing makes no version. CodeConflict: the user has MaxDrafts drafts.
func (s *Store) SaveDraft(
	ctx context.Context, userID int64, key string, text models.DraftText, admit func(now *models.Draft) error,
) (d *models.Draft, created bool, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		// Under this lock, nobody else writes drafts of the user.
		users, err := accounts.LockStandings(tx, userID)
		if err != nil {
			return err
		}
		if users[userID] == nil {
			return accounts.ErrNoUser()
		}
		now, err := readDraft(tx.DB, userID, key)
		if created = models.ErrorCode(err) == models.CodeNotFound; err != nil && !created {
			return err
		}
		if err := admit(now); err != nil {
			return err
		}
		if created {
			d, err = insertDraft(tx, userID, key, text)
		} else {
			d = now
			err = replaceDraft(tx, d, text)
		}
		if err != nil {
			return err
		}
		return media.SetImageUses(tx, media.DraftSubject(d.ID), []int64{userID}, text.Content)
	})
	if err != nil {
		return nil, false, fmt.Errorf("save a draft of user %d: %w", userID, err)
	}
	return d, created, nil
}

func insertDraft(tx *db.Tx, userID int64, key string, text models.DraftText) (*models.Draft, error) {
	const count = `
		SELECT COUNT(*)
		FROM drafts FORCE INDEX (idx_user_id)
		WHERE user_id=?`
	const insert = `
		INSERT INTO drafts (user_id, draft_key, post_id, parent_id, title, content, tags, created_at, updated_at)
		VALUES (?,?,?,?,?,?,?,?,?)`
	var drafts int
	if err := tx.Raw(count, userID).Scan(&drafts).Error; err != nil {
		return nil, err
	}
	if drafts >= models.MaxDrafts {
		return nil, models.Errorf(models.CodeConflict,
			"You have %d drafts, and more is not possible. Delete one first.", drafts)
	}
	now := models.WholeSeconds(tx.Now)
	id, err := tx.Insert(insert, userID, key, text.PostID, text.ParentID, text.Title, text.Content,
		strings.Join(text.Tags, " "), now, now)
	return &models.Draft{ID: id, Key: key, Text: text, CreatedAt: now, UpdatedAt: now}, err
}

// replaceDraft writes the next version of d and updates d.
func replaceDraft(tx *db.Tx, d *models.Draft, text models.DraftText) error {
	const update = `
		UPDATE drafts
		SET post_id=?, parent_id=?, title=?, content=?, tags=?, version=?, updated_at=?
		WHERE id=?`
	if d.Text.Equal(text) {
		return nil
	}
	d.Text, d.Version, d.UpdatedAt = text, d.Version+1, models.WholeSeconds(tx.Now)
	return tx.Exec(update, text.PostID, text.ParentID, text.Title, text.Content, strings.Join(text.Tags, " "),
		d.Version, d.UpdatedAt, d.ID).Error
}

// DeleteDraft deletes the user's draft with this key. Without one, it changes nothing.
func (s *Store) DeleteDraft(ctx context.Context, userID int64, key string) error {
	d, err := s.DraftByKey(ctx, userID, key)
	if models.ErrorCode(err) == models.CodeNotFound {
		return nil
	}
	if err == nil {
		_, err = s.deleteDrafts(ctx, []int64{d.ID}, "")
	}
	if err != nil {
		return fmt.Errorf("delete a draft of user %d: %w", userID, err)
	}
	return nil
}

// keepDrafts is how long a draft is kept after its latest edit.
const keepDrafts = 180 * 24 * time.Hour

// PurgeDrafts deletes at most limit drafts that have been kept for long enough, and returns how many it deleted.
func (s *Store) PurgeDrafts(ctx context.Context, limit int) (int64, error) {
	const find = `
		SELECT id
		FROM drafts FORCE INDEX (idx_updated_at)
		WHERE updated_at<=?
		ORDER BY updated_at
		LIMIT ?`
	var ids []int64
	before := models.WholeSeconds(s.Now().Add(-keepDrafts))
	if err := s.Read(ctx).Raw(find, before, limit).Scan(&ids).Error; err != nil {
		return 0, fmt.Errorf("find old drafts: %w", err)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	purged, err := s.deleteDrafts(ctx, ids, "d.updated_at<=?", before)
	if err != nil {
		return 0, fmt.Errorf("purge drafts: %w", err)
	}
	return purged, nil
}

// PurgeDraftsOf deletes at most limit drafts of a user and reports whether there may be more.
func (s *Store) PurgeDraftsOf(ctx context.Context, userID int64, limit int) (more bool, err error) {
	const find = `
		SELECT id
		FROM drafts FORCE INDEX (idx_user_id)
		WHERE user_id=?
		LIMIT ?`
	var ids []int64
	if err := s.Read(ctx).Raw(find, userID, limit).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return false, err
	}
	_, err = s.deleteDrafts(ctx, ids, "")
	return len(ids) == limit, err
}

// deleteDrafts deletes those of the drafts that meet a condition ("" for none), and frees their images.
func (s *Store) deleteDrafts(
	ctx context.Context, ids []int64, condition string, args ...any,
) (deleted int64, err error) {
	where := db.Matching("d.id IN (" + db.JoinIDs(db.Ascending(ids)) + ")")
	where.AddIf(condition != "", condition, args...)
	lock := `
		SELECT d.id
		FROM drafts d FORCE INDEX (PRIMARY)
		` + where.Clause() + `
		ORDER BY d.id
		FOR UPDATE`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		var locked []int64
		if err := tx.Raw(lock, where.Args...).Scan(&locked).Error; err != nil || len(locked) == 0 {
			return err
		}
		remove := `
			DELETE d
			FROM drafts d FORCE INDEX (PRIMARY)
			WHERE d.id IN (` + db.JoinIDs(locked) + `)`
		if err := tx.Exec(remove).Error; err != nil {
			return err
		}
		deleted = int64(len(locked))
		return media.FreeImagesOfDrafts(tx, locked)
	})
	return deleted, err
}
