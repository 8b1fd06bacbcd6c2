package likes

import (
	"context"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// closeAgain is how long after the first time the targets of a deletion are closed for the second time. A restart or a
// failover of Redis may lose its last seconds. If it loses a mark of close.lua and no like, the targets of the shard
// stay warm, and a deleted one would accept likes.
const closeAgain = time.Minute

// OpenClosings returns the closings that are due, in the order of their ids: at most limit above after. Each deletion
// is due at once, and a second time closeAgain after the first. No row stays for long, so OpenClosings reads few other
// rows.
func (s *Store) OpenClosings(ctx context.Context, after int64, limit int) ([]models.Closing, error) {
	const query = `
		SELECT id, kind AS target_kind, target_id, told AS last, done_comment_id
		FROM gate_closings
		WHERE id>? AND (told=0 OR deleted_at<?)
		ORDER BY id
		LIMIT ?`
	late := models.WholeSeconds(s.Now()).Add(-closeAgain)
	var list []models.Closing
	if err := s.Read(ctx).Raw(query, after, late, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read closings: %w", err)
	}
	return list, nil
}

// AdvanceClosing records that the comments of the post up to one are closed in the gate.
func (s *Store) AdvanceClosing(ctx context.Context, id, commentID int64) error {
	const update = `
		UPDATE gate_closings
		SET done_comment_id=?
		WHERE id=?`
	if _, err := s.Write(ctx, update, commentID, id); err != nil {
		return fmt.Errorf("advance closing %d: %w", id, err)
	}
	return nil
}

// EndClosing records that the target and all its comments are closed in the gate. The first closing may be late, so the
// time until the second begins with it.
func (s *Store) EndClosing(ctx context.Context, c models.Closing) error {
	query, args := `
		UPDATE gate_closings
		SET told=1, deleted_at=?, done_comment_id=0
		WHERE id=?`, []any{models.WholeSeconds(s.Now()), c.ID}
	if c.Last {
		query, args = `
			DELETE FROM gate_closings
			WHERE id=?`, []any{c.ID}
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := db.HoldMode(tx); err != nil {
			return err
		}
		return tx.Exec(query, args...).Error
	})
	if err != nil {
		return fmt.Errorf("end closing %d: %w", c.ID, err)
	}
	return nil
}
