package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Closer closes deleted targets in the gate. A deleting process closes them at once; the Closer finishes for processes
// that died before. Several Closers at once do the same work twice. A target that is restored in between opens again on
// its next like.
type Closer struct {
	store   *likes.Store
	targets counters.Targets
}

// NewCloser returns a Closer.
func NewCloser(store *db.DB, targets counters.Targets) *Closer {
	return &Closer{likes.New(store), targets}
}

const (
	runMargin   = 5 * time.Second // before its deadline, at which a run ends
	runFailures = 10              // failures that a run reports; if Redis is down, all items fail
	closePage   = 100             // deletions a query
)

// Close finishes the recorded deletions until its time is nearly over, and returns their number.
func (c *Closer) Close(ctx context.Context) (closed int, err error) {
	var failures []error
	for after := int64(0); ; {
		open, err := c.store.OpenClosings(ctx, after, closePage)
		if err != nil {
			return closed, errors.Join(append(failures, err)...)
		}
		for _, item := range open {
			after = item.ID
			done, err := c.close(ctx, item)
			if done {
				closed++
			}
			if err != nil && len(failures) < runFailures { // the next may be on another node
				failures = append(failures, fmt.Errorf("close deleted %s: %w", item.Target, err))
			}
			if nearlyOver(ctx) {
				return closed, errors.Join(failures...)
			}
		}
		if len(open) < closePage {
			return closed, errors.Join(failures...)
		}
	}
}

// nearlyOver reports whether a run should end. The next run continues.
func nearlyOver(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < runMargin
}

func (c *Closer) close(ctx context.Context, item models.Closing) (done bool, err error) {
	if !c.targets.Gated() {
		item.Last = true
		return true, c.store.EndClosing(ctx, item)
	}
	open, err := c.store.TargetOpen(ctx, item.Target)
	if err != nil {
		return false, err
	}
	if !open { // a restored target stays open
		done, err := c.targets.CloseInBatches(
			ctx,
			[]models.Target{item.Target},
			item.DoneCommentID,
			func(last int64) (bool, error) {
				return !nearlyOver(ctx), c.store.AdvanceClosing(ctx, item.ID, last)
			},
		)
		if err != nil || !done {
			return false, err
		}
	}
	return true, c.store.EndClosing(ctx, item)
}
