package models

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
)

// MaxDrafts is the number of drafts of an account.
const MaxDrafts = 50

// draftKeyPattern permits what needs no escaping in a path.
var draftKeyPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ValidDraftKey reports whether a draft can have the key.
func ValidDraftKey(key string) bool { return draftKeyPattern.MatchString(key) }

// Draft is a text that its user has not posted yet, and that nobody else sees.
type Draft struct {
	ID        int64
	Key       string    `gorm:"column:draft_key"` // chosen by the client
	Text      DraftText `gorm:"embedded"`
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// DraftText is the part of a draft that its user writes: of a new post, or of a comment if it has a PostID.
type DraftText struct {
	PostID   int64 // 0: it is a new post
	ParentID int64 // the comment that it replies to; 0 for none
	Title    string
	Content  string
	Tags     Tags // see NormalTags
}

// Validate returns CodeInvalid with every field that breaks a rule. Parts may be empty: a draft is not finished.
func (t DraftText) Validate() error {
	var f fieldErrors
	f.checkLength("title", t.Title, MaxTitle)
	f.checkLine("title", t.Title)
	f.checkText(t.Content)
	f.checkTags(t.Tags)
	f.check(t.PostID >= 0, "post_id", BadFormat(FormatID, "must be the id of a post"))
	f.check(t.ParentID >= 0, "parent_id", BadFormat(FormatID, "must be the id of a comment"))
	f.check(t.ParentID == 0 || t.PostID != 0, "parent_id", About(FieldNeeds, "post_id", "needs post_id"))
	comment := t.PostID != 0
	f.check(!comment || t.Title == "", "title",
		About(FieldExclusive, "post_id", "must be empty: a comment has no title"))
	f.check(!comment || len(t.Tags) == 0, "tags",
		About(FieldExclusive, "post_id", "must be empty: a comment has no tags"))
	return f.err()
}

const draftColumns = `
	id, draft_key, post_id, parent_id, title, content, tags, version, created_at, updated_at`

// DraftByKey reads a draft of the user. CodeNotFound: the user has no draft with this key.
func (s *Store) DraftByKey(ctx context.Context, userID int64, key string) (*Draft, error) {
	return readDraft(s.db.WithContext(ctx), userID, key)
}

func readDraft(db *gorm.DB, userID int64, key string) (*Draft, error) {
	const query = `
		SELECT ` + draftColumns + `
		FROM drafts FORCE INDEX (idx_user_key)
		WHERE user_id=? AND draft_key=?`
	var d Draft
	read := db.Raw(query, userID, key).Scan(&d)
	if read.Error != nil {
		return nil, fmt.Errorf("read a draft of user %d: %w", userID, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, Errorf(CodeNotFound, "There is no such draft.")
	}
	return &d, nil
}

// Drafts lists the drafts of the user, the latest created first: at most limit drafts older than row before (0 for the
// first page).
func (s *Store) Drafts(ctx context.Context, userID, before int64, limit int) ([]Draft, error) {
	where := matching("user_id=?", userID)
	where.addIf(before > 0, "id<?", before)
	query := `
		SELECT ` + draftColumns + `
		FROM drafts FORCE INDEX (idx_user_id)
		` + where.clause() + `
		ORDER BY id DESC
		LIMIT ?`
	size := func(d *Draft) int { return len(d.Text.Content) }
	list, _, err := scanPage(s.db.WithContext(ctx).Raw(query, where.between(nil, limit)...), PageBytes, size)
	if err != nil {
		return nil, fmt.Errorf("list drafts of user %d: %w", userID, err)
	}
	return list, nil
}

// SaveDraft creates the user's draft with this key, or replaces the one that the check of its version admits, and
// returns it. An edit that changes nothing makes no version. CodeConflict: the user has MaxDrafts drafts.
func (s *Store) SaveDraft(
	ctx context.Context, userID int64, key string, text DraftText, admit func(now *Draft) error,
) (d *Draft, created bool, err error) {
	err = s.transact(ctx, func(tx *Tx) error {
		// Under this lock, nobody else writes drafts of the user.
		users, err := lockStandings(tx, userID)
		if err != nil {
			return err
		}
		if users[userID] == nil {
			return errNoUser()
		}
		now, err := readDraft(tx.DB, userID, key)
		if created = ErrorCode(err) == CodeNotFound; err != nil && !created {
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
		return setImageUses(tx, draftSubject(d.ID), []int64{userID}, text.Content)
	})
	if err != nil {
		return nil, false, fmt.Errorf("save a draft of user %d: %w", userID, err)
	}
	return d, created, nil
}

func insertDraft(tx *Tx, userID int64, key string, text DraftText) (*Draft, error) {
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
	if drafts >= MaxDrafts {
		return nil, Errorf(CodeConflict, "You have %d drafts, and more is not possible. Delete one first.", drafts)
	}
	now := wholeSeconds(tx.Now)
	id, err := tx.insert(insert, userID, key, text.PostID, text.ParentID, text.Title, text.Content,
		strings.Join(text.Tags, " "), now, now)
	return &Draft{ID: id, Key: key, Text: text, CreatedAt: now, UpdatedAt: now}, err
}

// replaceDraft writes the next version of d and updates d.
func replaceDraft(tx *Tx, d *Draft, text DraftText) error {
	const update = `
		UPDATE drafts
		SET post_id=?, parent_id=?, title=?, content=?, tags=?, version=?, updated_at=?
		WHERE id=?`
	if d.Text.equal(text) {
		return nil
	}
	d.Text, d.Version, d.UpdatedAt = text, d.Version+1, wholeSeconds(tx.Now)
	return tx.Exec(update, text.PostID, text.ParentID, text.Title, text.Content, strings.Join(text.Tags, " "),
		d.Version, d.UpdatedAt, d.ID).Error
}

func (t DraftText) equal(other DraftText) bool {
	return t.PostID == other.PostID && t.ParentID == other.ParentID && t.Title == other.Title &&
		t.Content == other.Content && slices.Equal(t.Tags, other.Tags)
}

// DeleteDraft deletes the user's draft with this key. Without one, it changes nothing.
func (s *Store) DeleteDraft(ctx context.Context, userID int64, key string) error {
	d, err := s.DraftByKey(ctx, userID, key)
	if ErrorCode(err) == CodeNotFound {
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
	before := wholeSeconds(s.now().Add(-keepDrafts))
	if err := s.db.WithContext(ctx).Raw(find, before, limit).Scan(&ids).Error; err != nil {
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

// purgeDraftsOf deletes at most limit drafts of a user and reports whether there may be more.
func (s *Store) purgeDraftsOf(ctx context.Context, userID int64, limit int) (more bool, err error) {
	const find = `
		SELECT id
		FROM drafts FORCE INDEX (idx_user_id)
		WHERE user_id=?
		LIMIT ?`
	var ids []int64
	if err := s.db.WithContext(ctx).Raw(find, userID, limit).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return false, err
	}
	_, err = s.deleteDrafts(ctx, ids, "")
	return len(ids) == limit, err
}

// deleteDrafts deletes those of the drafts that meet a condition ("" for none), and frees their images.
func (s *Store) deleteDrafts(
	ctx context.Context, ids []int64, condition string, args ...any,
) (deleted int64, err error) {
	where := matching("d.id IN (" + joinIDs(ascending(ids)) + ")")
	where.addIf(condition != "", condition, args...)
	lock := `
		SELECT d.id
		FROM drafts d FORCE INDEX (PRIMARY)
		` + where.clause() + `
		ORDER BY d.id
		FOR UPDATE`
	err = s.transact(ctx, func(tx *Tx) error {
		var locked []int64
		if err := tx.Raw(lock, where.args...).Scan(&locked).Error; err != nil || len(locked) == 0 {
			return err
		}
		remove := `
			DELETE d
			FROM drafts d FORCE INDEX (PRIMARY)
			WHERE d.id IN (` + joinIDs(locked) + `)`
		if err := tx.Exec(remove).Error; err != nil {
			return err
		}
		deleted = int64(len(locked))
		return freeImagesOfDrafts(tx, locked)
	})
	return deleted, err
}
