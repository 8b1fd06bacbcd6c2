package models

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// Revision is a version of a post's text.
type Revision struct {
	Version   int64
	Editor    Author `gorm:"embedded;embeddedPrefix:author_"` // who wrote it
	Title     string
	Content   string // Markdown
	Tags      Tags
	CreatedAt time.Time // when it was written
}

// keepRevision writes down the version of a post that is about to be replaced. Counting never moves updated_at, so that
// is when the version was written.
func keepRevision(tx *gorm.DB, postID int64) error {
	err := tx.Exec("INSERT INTO post_revisions (post_id, version, editor_id, title, content, tags, created_at)"+
		" SELECT p.id, p.version, p.edited_by, p.title, p.content, COALESCE("+tagNames+",''), p.updated_at FROM posts p WHERE p.id=?", postID).Error
	if err != nil {
		return fmt.Errorf("keep revision of post %d: %w", postID, err)
	}
	return nil
}

// ListRevisions lists the versions of a post, latest first and the one that is there now included: at most limit with
// numbers below before (0 for the first page), in two queries. CodeNotFound: the post is deleted or was never there.
func (s *Store) ListRevisions(ctx context.Context, postID, before int64, limit int) ([]Revision, error) {
	var now []Revision
	err := s.db.WithContext(ctx).Raw("SELECT p.version, "+authorColumns+", p.title, p.content, "+tagNames+" AS tags, p.updated_at AS created_at"+
		" FROM posts p JOIN users u ON u.id=COALESCE(p.edited_by,p.user_id) WHERE p.id=? AND p.status=1", postID).Scan(&now).Error
	if err != nil {
		return nil, fmt.Errorf("read post %d: %w", postID, err)
	}
	if len(now) == 0 {
		return nil, notFound(KindPost)
	}
	if before == 0 || before > now[0].Version {
		before = now[0].Version
	} else {
		now = nil
	}
	old, _, err := scanPage(s.db.WithContext(ctx).Raw("SELECT r.version, "+authorColumns+", r.title, r.content, r.tags, r.created_at"+
		" FROM post_revisions r STRAIGHT_JOIN posts p ON p.id=r.post_id STRAIGHT_JOIN users u ON u.id=COALESCE(r.editor_id,p.user_id)"+
		" WHERE r.post_id=? AND r.version<? ORDER BY r.version DESC LIMIT ?", postID, before, limit-len(now)), func(r *Revision) int { return len(r.Content) })
	if err != nil {
		return nil, fmt.Errorf("list revisions of post %d: %w", postID, err)
	}
	return append(now, old...), nil
}
