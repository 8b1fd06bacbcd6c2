package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

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

const moderateOperations = 100 // that a run works on

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
		if nearlyOver(ctx) {
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
		if ended, err := m.closeTargets(ctx, step.Close); err != nil {
			return changed, fmt.Errorf("close what operation %d deleted: %w", id, err)
		} else if !ended {
			return changed, nil
		}
		if err := m.store.CloseStep(ctx, id, step); err != nil {
			return changed, err
		}
	}
}

// closeTargets tells the gate of what was deleted, and of all comments on posts that were; see closeComments.
func (m *Moderator) closeTargets(ctx context.Context, targets []models.Target) (ended bool, err error) {
	if m.gate == nil || len(targets) == 0 {
		return true, nil
	}
	if err := m.gate.CloseTargets(ctx, targets); err != nil {
		return false, err
	}
	for _, t := range targets {
		if t.Kind != models.KindPost {
			continue
		}
		ended, err := closeComments(ctx, m.store, m.gate, t.ID, 0, func(int64) error { return nil })
		if err != nil || !ended {
			return false, err
		}
	}
	return true, nil
}
