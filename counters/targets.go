package counters

import (
	"context"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

// Targets closes targets in the gate when they are deleted. MySQL comes first: the store commits the deletion, and then
// calls Targets (see db.DB.CloseDeletedWith). Its process may die before: models.Closing is the record that lets
// workers.Closer finish for it. A new target need not be opened: it is cold, and its first like warms it.
type Targets interface {
	// Gated reports whether there is a gate. Without one, the other methods do nothing.
	Gated() bool

	// Close closes targets, and all comments on and drops of those that are posts. After an error some may be closed.
	// It is safe to repeat.
	Close(ctx context.Context, targets ...models.Target) error

	// CloseInBatches is Close for jobs that stop at a deadline and continue later. Of each post it closes the comments
	// with ids above after. It calls closed with the id of the last comment of each batch of CloseBatch. If closed
	// returns false, CloseInBatches stops and reports false.
	CloseInBatches(
		ctx context.Context, targets []models.Target, after int64, closed func(commentID int64) (goOn bool, err error),
	) (done bool, err error)
}

// TargetGate closes single targets. *Likes implements it.
type TargetGate interface {
	CloseTargets(ctx context.Context, targets []models.Target) error
}

// NewTargets returns the Targets of a site. In direct mode gate is nil.
func NewTargets(store *db.DB, gate TargetGate) Targets {
	if gate == nil {
		return directTargets{}
	}
	return &gatedTargets{store, gate}
}

// directTargets are those of a site without a gate.
type directTargets struct{}

func (directTargets) Gated() bool { return false }

func (directTargets) Close(context.Context, ...models.Target) error { return nil }

func (directTargets) CloseInBatches(context.Context, []models.Target, int64, func(int64) (bool, error)) (bool, error) {
	return true, nil
}

type gatedTargets struct {
	store *db.DB
	gate  TargetGate
}

func (t *gatedTargets) Gated() bool { return true }

func (t *gatedTargets) Close(ctx context.Context, targets ...models.Target) error {
	_, err := t.CloseInBatches(ctx, targets, 0, func(int64) (bool, error) { return true, nil })
	return err
}

func (t *gatedTargets) CloseInBatches(
	ctx context.Context, targets []models.Target, after int64, closed func(commentID int64) (goOn bool, err error),
) (done bool, err error) {
	if err := t.gate.CloseTargets(ctx, targets); err != nil {
		return false, err
	}
	for _, target := range targets {
		if target.Kind != models.KindPost {
			continue
		}
		if err := t.closeDrops(ctx, target.ID); err != nil {
			return false, err
		}
		if done, err := t.closeComments(ctx, target.ID, after, closed); err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

// closeDrops closes the drops of a post, of which there are few.
func (t *gatedTargets) closeDrops(ctx context.Context, postID int64) error {
	ids, err := content.New(t.store).DropIDs(ctx, postID)
	if err != nil || len(ids) == 0 {
		return err
	}
	drops := make([]models.Target, len(ids))
	for i, id := range ids {
		drops[i] = models.Target{Kind: models.KindDrop, ID: id}
	}
	return t.gate.CloseTargets(ctx, drops)
}

func (t *gatedTargets) closeComments(
	ctx context.Context, postID, after int64, closed func(commentID int64) (goOn bool, err error),
) (done bool, err error) {
	for {
		ids, err := content.New(t.store).CommentIDs(ctx, postID, after, CloseBatch)
		if err != nil || len(ids) == 0 {
			return err == nil, err
		}
		comments := make([]models.Target, len(ids))
		for i, id := range ids {
			comments[i] = models.Target{Kind: models.KindComment, ID: id}
		}
		if err := t.gate.CloseTargets(ctx, comments); err != nil {
			return false, err
		}
		after = ids[len(ids)-1]
		if goOn, err := closed(after); err != nil || !goOn {
			return false, err
		}
	}
}
