package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"likewise/models"
)

// Closer tells the gate of deletions. Whoever deletes does so too, at once; the Closer is for those who died before
// they could. Several at once do the same work twice, and what was restored meanwhile is put right by its next like.
type Closer struct {
	store *models.Store
	gate  targetCloser // nil in direct mode
}

// NewCloser makes a closer. In direct mode gate is nil, and there is nobody to tell.
func NewCloser(store *models.Store, gate targetCloser) *Closer { return &Closer{store, gate} }

const (
	runMargin   = 5 * time.Second // of a run that works off a list, to end in
	runFailures = 10              // that it tells of; if Redis is away, all fail
	closePage   = 100             // deletions a query
	closeBatch  = 500             // comments on a deleted post that the gate is told of at a time
)

// Close tells the gate of what it has to hear of, until its time is nearly over, and gives the number of deletions.
func (c *Closer) Close(ctx context.Context) (closed int, err error) {
	var failures []error
	for after := int64(0); ; {
		open, err := c.store.OpenClosings(ctx, after, closePage)
		if err != nil {
			return closed, errors.Join(append(failures, err)...)
		}
		for _, one := range open {
			after = one.ID
			done, err := c.close(ctx, one)
			if done {
				closed++
			}
			if err != nil && len(failures) < runFailures { // the next may live on another node
				failures = append(failures, fmt.Errorf("close deleted %s: %w", one.Target, err))
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

// nearlyOver reports whether a run should come to its end; the next one goes on.
func nearlyOver(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < runMargin
}

func (c *Closer) close(ctx context.Context, one models.Closing) (done bool, err error) {
	if c.gate == nil {
		one.Last = true
		return true, c.store.EndClosing(ctx, one)
	}
	open, err := c.store.TargetOpen(ctx, one.Target)
	if err != nil {
		return false, err
	}
	if !open { // what was restored since would only have to be opened again
		if err := c.gate.CloseTargets(ctx, []models.Target{one.Target}); err != nil {
			return false, err
		}
		if one.Target.Kind == models.KindPost {
			ended, err := closeComments(ctx, c.store, c.gate, one.Target.ID, one.DoneCommentID, func(last int64) error {
				return c.store.AdvanceClosing(ctx, one.ID, last)
			})
			if err != nil || !ended {
				return false, err
			}
		}
	}
	return true, c.store.EndClosing(ctx, one)
}

// closeComments tells the gate of the comments on a deleted post with ids above after, a batch at a time, and calls
// passed with the last id of each. It reports false when its time is nearly over before it is done.
func closeComments(ctx context.Context, store *models.Store, gate targetCloser, postID, after int64, passed func(last int64) error) (ended bool, err error) {
	for {
		ids, err := store.CommentIDs(ctx, postID, after, closeBatch)
		if err != nil || len(ids) == 0 {
			return err == nil, err
		}
		comments := make([]models.Target, len(ids))
		for i, id := range ids {
			comments[i] = models.Target{Kind: models.KindComment, ID: id}
		}
		if err := gate.CloseTargets(ctx, comments); err != nil {
			return false, err
		}
		after = ids[len(ids)-1]
		if err := passed(after); err != nil {
			return false, err
		}
		if nearlyOver(ctx) {
			return false, nil
		}
	}
}
