package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Reconciler repairs shards whose events were lost in the log. The janitor does not evict targets of such a shard, so
// the gate still has every acknowledged like. If a like differs in MySQL, the Reconciler sends its state in the gate
// through the pipeline again.
type Reconciler struct {
	redis *counters.Redis
	store *likes.Store
	likes *counters.Likes
	scan  func(ctx context.Context, shard int, fn func([]models.Target) error) error // EachWarmOf of redis
}

// NewReconciler returns a Reconciler.
func NewReconciler(r *counters.Redis, store *db.DB, gate *counters.Likes) *Reconciler {
	return &Reconciler{redis: r, store: likes.New(store), likes: gate, scan: r.EachWarmOf}
}

// Probe finds shards whose outbox is empty although MySQL lacks their last events, and has applied none for stalled.
// The log may have lost those events, and only a later event would reveal the gap. So Probe sends an event without an
// effect to each such shard. Probe closes shards that MySQL has overtaken, because the relay of an idle shard does not
// ask MySQL. It returns the number of shards probed or closed. A shard that fails, such as one that is moving to
// another node, does not keep the others from being probed.
func (r *Reconciler) Probe(ctx context.Context, stalled time.Duration) (probed int, err error) {
	states, err := r.store.ShardStates(ctx)
	if err != nil {
		return 0, err
	}
	infos, err := r.redis.ShardInfos(ctx)
	if err != nil {
		return 0, err
	}
	var failures []error
	for i, state := range states {
		var done bool
		err := infos[i].Err
		switch {
		case err != nil:
		case state.Applied.After(infos[i].Last):
			if done, err = r.redis.CloseOvertaken(ctx, state.Shard, state.Applied); done {
				logOvertaken(ctx, r.store.DB, state.Shard, state.Applied)
			}
		case infos[i].Runs == 0 && infos[i].Open && infos[i].Last.After(state.Applied) &&
			r.store.Now().Sub(state.AppliedAt) >= stalled:
			r.store.Logger().WarnContext(ctx, "events that Kafka acknowledged have not arrived", "shard", state.Shard,
				"accepted", infos[i].Last.String(), "applied", state.Applied.String())
			done, err = r.redis.Probe(ctx, state.Shard)
		}
		if err != nil {
			failures = append(failures, err)
		}
		if done {
			probed++
		}
		if ctx.Err() != nil {
			break
		}
	}
	return probed, errors.Join(failures...)
}

// Reconcile repairs every shard that has an open gap, and returns the number of likes and claims sent again. Gaps of a
// shard that fails stay open, and do not keep the other shards from being repaired.
func (r *Reconciler) Reconcile(ctx context.Context) (resent int, err error) {
	states, err := r.store.ShardStates(ctx)
	if err != nil {
		return 0, err
	}
	var failures []error
	for _, s := range states {
		if s.OpenGaps == 0 {
			continue
		}
		n, err := r.reconcile(ctx, s.Shard)
		resent += n
		if err != nil {
			failures = append(failures, fmt.Errorf("reconcile shard %d: %w", s.Shard, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return resent, errors.Join(failures...)
}

// reconcile repairs a shard. It reads the targets that were changed since the first gap began. The gaps stay open
// unless the shard was open under the same epoch from the beginning to the end, because Redis may have lost targets
// otherwise. They stay open, too, if the shard is moving to another node, because the scan could miss targets.
func (r *Reconciler) reconcile(ctx context.Context, shard int) (resent int, err error) {
	gaps, err := r.store.OpenGaps(ctx, shard) // later gaps are left to the next call
	if err != nil {
		return 0, err
	}
	before, err := r.redis.ShardInfo(ctx, shard)
	if err != nil {
		return 0, err
	}
	if !before.Open {
		return 0, counters.ErrShardClosed
	}
	err = r.scan(ctx, shard, func(targets []models.Target) error {
		changed, err := r.redis.ChangedAfter(ctx, targets, gaps.After)
		if err != nil {
			return err
		}
		for _, target := range changed {
			n, err := r.resend(ctx, target)
			resent += n
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return resent, err
	}
	now, err := r.redis.ShardInfo(ctx, shard)
	switch {
	case err != nil:
		return resent, err
	case !now.Open:
		return resent, counters.ErrShardClosed
	case now.Last.Epoch != before.Last.Epoch || before.Last.After(now.Last):
		return resent, errReopened
	}
	if err := r.store.CloseGaps(ctx, gaps.IDs); err != nil {
		return resent, err
	}
	r.store.Logger().InfoContext(ctx, "shard is reconciled with Redis",
		"shard", shard, "gaps", len(gaps.IDs), "resent", resent)
	return resent, nil
}

// errReopened means that a shard was opened again, or set back, while its targets were compared.
var errReopened = errors.New("the shard was opened again meanwhile; the next run compares it once more")

// resend sends the likes of a target that differ between MySQL and the gate. These include likes in the pipeline, which
// are sent twice without harm. Of a damaged target, resend sends what is left.
func (r *Reconciler) resend(ctx context.Context, target models.Target) (resent int, err error) {
	if target.Kind == models.KindDrop {
		resent, err = resendClaims(ctx, r.redis, r.store.DB, r.likes, target.ID)
	} else {
		err = eachDiffering(ctx, r.redis, r.store.DB, target, func(users []int64) error {
			resent += len(users)
			return r.likes.Reassert(ctx, target, users)
		})
	}
	if errors.Is(err, counters.ErrNotWarm) {
		return resent, nil // an opening of the shard has evicted it: what Redis knew is no longer the truth
	}
	return resent, err
}

// comparePage is how many users are compared at a time, and the most that a comparison holds in memory.
const comparePage = 5000

// eachDiffering calls fn with the users whose like of a warm target is only in Redis or only in MySQL, in batches. A
// user may occur twice. Users whose set in Redis is lost do not occur.
func eachDiffering(
	ctx context.Context,
	redis *counters.Redis,
	store *db.DB,
	target models.Target,
	fn func([]int64) error,
) error {
	for after := int64(0); ; {
		ids, err := likes.New(store).LikerIDs(ctx, target, after, comparePage)
		if err != nil {
			return err
		}
		in, err := redis.Likers(ctx, target, ids)
		if err != nil {
			return err
		}
		differ := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
			liked, known := in[id]
			return liked || !known
		})
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
	// Numbers do not tell whether Redis has more: a like of one user that MySQL lacks hides behind the unlike of
	// another.
	return redis.EachUser(ctx, target, func(ids []int64) error {
		in, err := likes.New(store).LikedAmong(ctx, target, ids)
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
