package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"likewise/models"
)

// Moderator carries out what moderators request of all that a user wrote: see models.ContentOperation.
//
// It works a batch at a time: MySQL first, then the gate, then the record of both. One that is killed in between leaves
// the batch to the next, which tells the gate again; several at once take turns.
type Moderator struct {
	store *models.Store
	gate  targetCloser // nil in direct mode
}

type targetCloser interface {
	CloseTargets(ctx context.Context, targets []models.Target) error
}

// NewModerator makes a moderator. In direct mode gate is nil.
func NewModerator(store *models.Store, gate targetCloser) *Moderator { return &Moderator{store, gate} }

const (
	moderateOperations = 100             // that a run works on
	moderateMargin     = 5 * time.Second // of a run, to end in
	closeBatch         = 500             // comments on a deleted post that the gate is told of at a time
)

// Moderate works on all open operations until they are done, or its time is nearly over, and gives the posts and comments
// deleted or restored.
func (m *Moderator) Moderate(ctx context.Context) (changed int, err error) {
	ids, err := m.store.OpenOperations(ctx, moderateOperations)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		n, failed := m.carryOut(ctx, id)
		changed += n
		if failed != nil { // the next one may fare better
			err = errors.Join(err, failed)
		}
	}
	return changed, err
}

func (m *Moderator) carryOut(ctx context.Context, id int64) (changed int, err error) {
	for {
		if end, ok := ctx.Deadline(); ok && time.Until(end) < moderateMargin {
			return changed, nil // the next run goes on
		}
		step, err := m.store.StepOperation(ctx, id)
		changed += step.Changed
		if err != nil {
			return changed, err
		}
		if step.Done {
			slog.InfoContext(ctx, "content operation is done", "operation", id)
			return changed, nil
		}
		if err := m.closeTargets(ctx, step.Close); err != nil {
			return changed, fmt.Errorf("close what operation %d deleted: %w", id, err)
		}
		if err := m.store.CloseStep(ctx, id, step); err != nil {
			return changed, err
		}
	}
}

// closeTargets tells the gate of what was deleted, and of all comments on posts that were.
func (m *Moderator) closeTargets(ctx context.Context, targets []models.Target) error {
	if m.gate == nil || len(targets) == 0 {
		return nil
	}
	if err := m.gate.CloseTargets(ctx, targets); err != nil {
		return err
	}
	for _, t := range targets {
		if t.Kind != models.KindPost {
			continue
		}
		for after := int64(0); ; {
			ids, err := m.store.CommentIDs(ctx, t.ID, after, closeBatch)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				break
			}
			comments := make([]models.Target, len(ids))
			for i, id := range ids {
				comments[i] = models.Target{Kind: models.KindComment, ID: id}
			}
			if err := m.gate.CloseTargets(ctx, comments); err != nil {
				return err
			}
			after = ids[len(ids)-1]
		}
	}
	return nil
}
