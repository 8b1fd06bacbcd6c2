package models

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
)

// Closing is a deletion that the gate has to hear of. It is written with the deletion, so that it comes to its end
// though whoever deleted dies before telling the gate; see workers.Closer.
type Closing struct {
	ID            int64
	Target        Target `gorm:"embedded;embeddedPrefix:target_"`
	Last          bool   // no process can open the target any more that saw it before the deletion
	DoneCommentID int64  // of a post: the gate has heard of its comments up to here
}

// lateOpening is by far longer than a request takes: one that made a comment before its post was deleted may tell the
// gate of it only after the gate was told of the deletion, and die before it looks.
const lateOpening = time.Minute

// askClosing records deletions for the gate, in their transaction. An operation has a record of its own.
func askClosing(tx *gorm.DB, kind TargetKind, ids []int64, d Deletion) error {
	if d.Operation != 0 || len(ids) == 0 {
		return nil
	}
	args := make([]any, 0, 3*len(ids))
	for _, id := range ids {
		args = append(args, kind, id, second(d.At))
	}
	rows := strings.TrimSuffix(strings.Repeat("(?,?,?),", len(ids)), ",")
	if err := tx.Exec("INSERT INTO gate_closings (kind, target_id, deleted_at) VALUES "+rows, args...).Error; err != nil {
		return fmt.Errorf("record deletion for the gate: %w", err)
	}
	return nil
}

// OpenClosings gives what the gate has to hear of now, in the order of ids, at most limit above after: each deletion at
// once, and once more when no late opening can follow. It reads little more than it gives: no row stays for long.
func (s *Store) OpenClosings(ctx context.Context, after int64, limit int) ([]Closing, error) {
	late := second(s.now()).Add(-lateOpening)
	var list []Closing
	err := s.db.WithContext(ctx).Raw("SELECT id, kind AS target_kind, target_id, deleted_at<? AS last, done_comment_id FROM gate_closings"+
		" WHERE id>? AND (told=0 OR deleted_at<?) ORDER BY id LIMIT ?", late, after, late, limit).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("read closings: %w", err)
	}
	return list, nil
}

// AdvanceClosing records that the gate has heard of the comments on the post up to one.
func (s *Store) AdvanceClosing(ctx context.Context, id, commentID int64) error {
	if _, err := s.write(ctx, "UPDATE gate_closings SET done_comment_id=? WHERE id=?", commentID, id); err != nil {
		return fmt.Errorf("advance closing %d: %w", id, err)
	}
	return nil
}

// EndClosing records that the gate has heard of all of it.
func (s *Store) EndClosing(ctx context.Context, c Closing) error {
	query := "UPDATE gate_closings SET told=1, done_comment_id=0 WHERE id=?"
	if c.Last {
		query = "DELETE FROM gate_closings WHERE id=?"
	}
	if _, err := s.write(ctx, query, c.ID); err != nil {
		return fmt.Errorf("end closing %d: %w", c.ID, err)
	}
	return nil
}
