package workers

import (
	"context"
	"fmt"

	"likewise/images"
	"likewise/models/db"
	"likewise/models/media"
)

// Sweeper deletes the images that nothing shows. It deletes the objects of an image first and its row last, so that a
// process that is killed in between leaves the rest to the next run.
type Sweeper struct {
	store   *db.DB
	objects images.Store
}

// NewSweeper returns a Sweeper.
func NewSweeper(store *db.DB, objects images.Store) *Sweeper { return &Sweeper{store, objects} }

// Sweep looks at images that are due, at most limit, and returns at how many. If the storage fails, the image is due
// again later, and Sweep returns the error after it has tried the others.
func (w *Sweeper) Sweep(ctx context.Context, limit int) (taken int, err error) {
	orphans, taken, err := media.New(w.store).OrphanImages(ctx, limit)
	if err != nil {
		return 0, err
	}
	var failed error
	for _, orphan := range orphans {
		if err := w.remove(ctx, orphan.Name); err != nil {
			failed = fmt.Errorf("delete image %d: %w", orphan.ID, err)
			if err := media.New(w.store).RetryImage(ctx, orphan.ID); err != nil {
				return taken, err
			}
			continue
		}
		if err := media.New(w.store).ForgetImage(ctx, orphan.ID); err != nil {
			return taken, err
		}
	}
	return taken, failed
}

func (w *Sweeper) remove(ctx context.Context, name string) error {
	if err := w.objects.Delete(ctx, images.ThumbName(name)); err != nil {
		return err
	}
	return w.objects.Delete(ctx, name)
}
