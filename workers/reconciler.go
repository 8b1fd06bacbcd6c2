package workers

import (
	"context"
	"errors"
	"log/slog"

	"likewise/counters"
	"likewise/models"
)

// Reconciler mends shards from which the log has lost events. The gate still holds what was acknowledged, because the
// janitor leaves such a shard alone; so the present state of every like that MySQL sees otherwise is sent through the
// pipeline once more.
type Reconciler struct {
	redis *counters.Redis
	store *models.Store
	likes *counters.Likes
}

// NewReconciler makes a reconciler.
func NewReconciler(r *counters.Redis, store *models.Store, likes *counters.Likes) *Reconciler {
	return &Reconciler{redis: r, store: store, likes: likes}
}

// Reconcile mends every shard that has an open gap and gives the number of likes that were sent again.
func (r *Reconciler) Reconcile(ctx context.Context) (resent int, err error) {
	states, err := r.store.ShardStates(ctx)
	if err != nil {
		return 0, err
	}
	gaps := map[int][]int64{} // by shard; only these are closed: one that appears later is the next round's
	for _, s := range states {
		if s.OpenGaps == 0 {
			continue
		}
		if gaps[s.Shard], err = r.store.OpenGaps(ctx, s.Shard); err != nil {
			return 0, err
		}
	}
	if len(gaps) == 0 {
		return 0, nil
	}
	err = r.redis.EachWarm(ctx, func(targets []models.Target) error {
		for _, target := range targets {
			if gaps[target.Shard(r.store.Shards())] == nil {
				continue
			}
			n, err := r.resend(ctx, target)
			if err != nil {
				return err
			}
			resent += n
		}
		return nil
	})
	if err != nil {
		return resent, err
	}
	for shard, ids := range gaps {
		if err := r.store.CloseGaps(ctx, ids); err != nil {
			return resent, err
		}
		slog.InfoContext(ctx, "shard is reconciled with Redis", "shard", shard, "gaps", len(ids), "resent", resent)
	}
	return resent, nil
}

// resend sends again what MySQL and the gate disagree on about a target. Likes on their way count as disagreement;
// sending those again does no harm.
func (r *Reconciler) resend(ctx context.Context, target models.Target) (int, error) {
	users, err := differing(ctx, r.redis, r.store, target)
	if err != nil || len(users) == 0 {
		return 0, err
	}
	if err := r.likes.Reassert(ctx, target, users); errors.Is(err, counters.ErrNotWarm) {
		return 0, nil // cooled or forgotten since: then MySQL has all of it, or the shard is being opened
	} else if err != nil {
		return 0, err
	}
	return len(users), nil
}

// differing gives the users whose like of a warm target is in one of Redis and MySQL only.
func differing(ctx context.Context, redis *counters.Redis, store *models.Store, target models.Target) ([]int64, error) {
	gate := map[int64]bool{}
	if err := redis.EachUser(ctx, target, func(ids []int64) error {
		for _, id := range ids {
			gate[id] = true
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var users []int64
	for after := int64(0); ; {
		ids, err := store.LikerIDs(ctx, target, after, likerPage)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if !gate[id] {
				users = append(users, id)
			}
			delete(gate, id)
		}
		if len(ids) < likerPage {
			break
		}
		after = ids[len(ids)-1]
	}
	for id := range gate {
		users = append(users, id)
	}
	return users, nil
}

// likerPage is how many likers are read from MySQL at a time.
const likerPage = 10_000
