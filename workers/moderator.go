package workers

import (
	"context"
	"errors"
	"fmt"

	"likewise/counters"
	"likewise/models/moderation"
)

// Moderator deletes and restores all content of a user, as moderators request: see models.ContentOperation.
//
// It works in batches. Each batch changes MySQL, then closes the targets in the gate, and then records both. If a
// Moderator is killed in between, the next one closes the batch again. Several Moderators take turns.
type Moderator struct {
	store   *moderation.Store
	targets counters.Targets
}

// NewModerator returns a Moderator.
func NewModerator(store *moderation.Store, targets counters.Targets) *Moderator {
	return &Moderator{store, targets}
}

const moderateOperations = 100 // per run

// Moderate works on the open operations until they are done or its time is nearly over. It returns the number of posts
// and comments that were deleted or restored.
func (m *Moderator) Moderate(ctx context.Context) (changed int, err error) {
	ids, err := m.store.OpenOperations(ctx, moderateOperations)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		n, failed := m.carryOut(ctx, id)
		changed += n
		if failed != nil { // the next operation may succeed
			err = errors.Join(err, failed)
		}
	}
	return changed, err
}

func (m *Moderator) carryOut(ctx context.Context, id int64) (changed int, err error) {
	for {
		if nearlyOver(ctx) {
			return changed, nil // the next run continues
		}
		step, err := m.store.StepOperation(ctx, id)
		changed += step.Changed
		if err != nil {
			return changed, err
		}
		if step.Done {
			m.store.Logger().InfoContext(ctx, "content operation is done", "operation", id)
			return changed, nil
		}
		goOn := func(int64) (bool, error) { return !nearlyOver(ctx), nil }
		if done, err := m.targets.CloseInBatches(ctx, step.Close, 0, goOn); err != nil {
			return changed, fmt.Errorf("close the content that operation %d deleted: %w", id, err)
		} else if !done {
			return changed, nil
		}
		if err := m.store.CloseStep(ctx, id, step); err != nil {
			return changed, err
		}
	}
}
