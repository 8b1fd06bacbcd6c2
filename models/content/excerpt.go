package content

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

// writeExcerpt stores the excerpt of a post whose row is locked.
func writeExcerpt(tx *db.Tx, postID int64, e db.Excerpt) error {
	const update = `
		UPDATE posts
		SET excerpt=?, excerpt_version=?, updated_at=updated_at
		WHERE id=?`
	return tx.Exec(update, e.Text, e.Version, postID).Error
}

// WriteExcerpts makes the excerpts of at most limit posts that have none, or one of an earlier ExcerptVersion. It
// returns their number: fewer than limit if none is left. Each excerpt is written in a transaction of its own, and
// several callers may run at once. A DB without Options.Excerpt writes none.
func (s *Store) WriteExcerpts(ctx context.Context, limit int) (int, error) {
	if !s.HasExcerpts() {
		return 0, nil
	}
	const query = `
		SELECT id
		FROM posts FORCE INDEX (idx_status_excerpt)
		WHERE status=? AND excerpt_version<?
		ORDER BY status, excerpt_version, id
		LIMIT ?`
	var ids []int64
	err := s.Read(ctx).Raw(query, models.StatusNormal, models.ExcerptVersion, limit).Scan(&ids).Error
	if err != nil {
		return 0, fmt.Errorf("find posts without excerpts: %w", err)
	}
	for _, id := range ids {
		if err := s.excerptPost(ctx, id); err != nil {
			return 0, fmt.Errorf("write excerpt of post %d: %w", id, err)
		}
	}
	return len(ids), nil
}

func (s *Store) excerptPost(ctx context.Context, id int64) error {
	const query = `
		SELECT content
		FROM posts FORCE INDEX (PRIMARY)
		WHERE id=? AND status=? AND excerpt_version<?
		FOR UPDATE`
	return s.Transact(ctx, func(tx *db.Tx) error {
		var content string
		read := tx.Raw(query, id, models.StatusNormal, models.ExcerptVersion).Scan(&content)
		if read.Error != nil || read.RowsAffected == 0 {
			return read.Error // without a row, another process has written the excerpt, or the post is deleted
		}
		return writeExcerpt(tx, id, s.Excerpt(content))
	})
}
