package workers

import (
	"context"
	"errors"
	"slices"
	"time"

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

// Probe looks for shards whose outbox is empty although MySQL does not have their last events, and has had nothing new
// for stalled. Either the log still has those events, or it has lost them and no event came after that would show the
// gap; so one is sent that does. It returns the number of shards probed.
func (r *Reconciler) Probe(ctx context.Context, stalled time.Duration) (probed int, err error) {
	states, err := r.store.ShardStates(ctx)
	if err != nil {
		return 0, err
	}
	infos, err := r.redis.ShardInfos(ctx)
	if err != nil {
		return 0, err
	}
	for i, state := range states {
		if infos[i].Depth > 0 || !infos[i].Open || !infos[i].Last.After(state.Applied) ||
			r.store.Now().Sub(state.AppliedAt) < stalled {
			continue
		}
		r.store.Logger().WarnContext(ctx, "events that kafka took have not arrived: probing", "shard", state.Shard,
			"accepted", infos[i].Last.String(), "applied", state.Applied.String())
		if err := r.redis.Probe(ctx, state.Shard); err != nil {
			return probed, err
		}
		probed++
	}
	return probed, nil
}

// Reconcile repairs every shard that has an open gap, and returns the number of likes sent again.
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
		r.store.Logger().InfoContext(ctx, "shard is reconciled with Redis",
			"shard", shard, "gaps", len(ids), "resent", resent)
	}
	return resent, nil
}

// resend sends again what MySQL and the gate disagree on about a target. Likes on their way count as disagreement;
// sending those again does no harm.
func (r *Reconciler) resend(ctx context.Context, target models.Target) (resent int, err error) {
	err = eachDiffering(ctx, r.redis, r.store, target, func(users []int64) error {
		resent += len(users)
		return r.likes.Reassert(ctx, target, users)
	})
	if errors.Is(err, counters.ErrNotWarm) {
		return resent, nil // cooled or forgotten since: then MySQL has all of it, or the shard is being opened
	}
	return resent, err
}

// comparePage is how many likers are compared at a time: all that a comparison holds in memory.
const comparePage = 5000

// eachDiffering calls fn with the users whose like of a warm target is in one of Redis and MySQL only, some thousands
// at a time, and possibly twice.
func eachDiffering(
	ctx context.Context,
	redis *counters.Redis,
	store *models.Store,
	target models.Target,
	fn func([]int64) error,
) error {
	both := int64(0)
	for after := int64(0); ; {
		ids, err := store.LikerIDs(ctx, target, after, comparePage)
		if err != nil {
			return err
		}
		in, err := redis.Likers(ctx, target, ids)
		if err != nil {
			return err
		}
		differ := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return in[id] })
		both += int64(len(ids) - len(differ))
		if len(differ) > 0 {
			if err := fn(differ); err != nil {
				return err
			}
		}
		if len(ids) < comparePage {
			break
		}
		after = ids[len(ids)-1]
	}
	states, err := redis.TargetStates(ctx, []models.Target{target})
	if err != nil || states[0].Users == both {
		return err // Redis has no more than those
	}
	return redis.EachUser(ctx, target, func(ids []int64) error {
		in, err := store.LikedAmong(ctx, target, ids)
		if err != nil {
			return err
		}
		differ := slices.DeleteFunc(ids, func(id int64) bool { return in[id] })
		if len(differ) == 0 {
			return nil
		}
		return fn(differ)
	})
}
