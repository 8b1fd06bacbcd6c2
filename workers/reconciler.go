package workers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"likewise/counters"
	"likewise/models"
)

// Reconciler repairs shards whose events were lost in the log. The janitor does not evict targets of such a shard, so
// the gate still has every acknowledged like. If a like differs in MySQL, the Reconciler sends its state in the gate
// through the pipeline again.
type Reconciler struct {
	redis *counters.Redis
	store *models.Store
	likes *counters.Likes
	scan  func(ctx context.Context, fn func([]models.Target) error) error // EachWarm of redis
}

// NewReconciler returns a Reconciler.
func NewReconciler(r *counters.Redis, store *models.Store, likes *counters.Likes) *Reconciler {
	return &Reconciler{redis: r, store: store, likes: likes, scan: r.EachWarm}
}

// Probe finds shards whose outbox is empty although MySQL lacks their last events, and has applied none for stalled.
// The log may have lost those events, and only a later event would reveal the gap. So Probe sends an event without an
// effect to each such shard. Probe closes shards that MySQL has overtaken, because the relay of an idle shard does not
// ask MySQL. It returns the number of shards probed or closed.
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
		var done bool
		switch {
		case state.Applied.After(infos[i].Last):
			if done, err = r.redis.CloseOvertaken(ctx, state.Shard, state.Applied); done {
				logOvertaken(ctx, r.store, state.Shard, state.Applied)
			}
		case infos[i].Runs == 0 && infos[i].Open && infos[i].Last.After(state.Applied) &&
			r.store.Now().Sub(state.AppliedAt) >= stalled:
			r.store.Logger().WarnContext(ctx, "events that Kafka acknowledged have not arrived", "shard", state.Shard,
				"accepted", infos[i].Last.String(), "applied", state.Applied.String())
			done, err = r.redis.Probe(ctx, state.Shard)
		}
		if err != nil {
			return probed, err
		}
		if done {
			probed++
		}
	}
	return probed, nil
}

// Reconcile repairs every shard that has an open gap, and returns the number of likes and claims sent again. It reads
// the targets that were changed since the first gap of their shard began. Gaps of a shard that fails stay open. So do
// those of a shard that was not open under the same epoch from the beginning to the end: Redis may have lost targets,
// or the scan may have missed some because the shard moved to another node.
func (r *Reconciler) Reconcile(ctx context.Context) (resent int, err error) {
	states, err := r.store.ShardStates(ctx)
	if err != nil {
		return 0, err
	}
	gaps, after := map[int]models.Gaps{}, map[int]models.Position{} // by shard; later gaps are left to the next call
	for _, s := range states {
		if s.OpenGaps == 0 {
			continue
		}
		found, err := r.store.OpenGaps(ctx, s.Shard)
		if err != nil {
			return 0, err
		}
		gaps[s.Shard], after[s.Shard] = found, found.After
	}
	if len(gaps) == 0 {
		return 0, nil
	}
	before, err := r.redis.ShardInfos(ctx)
	if err != nil {
		return 0, err
	}
	var failures []error // one a shard, so that the other shards need not wait
	fail := func(shard int, err error) {
		delete(after, shard)
		failures = append(failures, fmt.Errorf("reconcile shard %d: %w", shard, err))
	}
	for _, shard := range slices.Sorted(maps.Keys(after)) {
		if !before[shard].Open {
			fail(shard, counters.ErrShardClosed)
		}
	}
	if len(after) == 0 {
		return 0, errors.Join(failures...)
	}
	err = r.scan(ctx, func(targets []models.Target) error {
		changed, err := r.redis.ChangedAfter(ctx, targets, after)
		if err != nil {
			return err
		}
		for _, target := range changed {
			shard := target.Shard(r.store.Shards())
			if _, ok := after[shard]; !ok {
				continue
			}
			n, err := r.resend(ctx, target)
			resent += n
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				fail(shard, err)
			}
		}
		return nil
	})
	if err != nil {
		return resent, errors.Join(append(failures, err)...)
	}
	now, err := r.redis.ShardInfos(ctx)
	if err != nil {
		return resent, errors.Join(append(failures, err)...)
	}
	for _, shard := range slices.Sorted(maps.Keys(after)) {
		switch {
		case !now[shard].Open:
			fail(shard, counters.ErrShardClosed)
			continue
		case now[shard].Last.Epoch != before[shard].Last.Epoch:
			fail(shard, errReopened)
			continue
		}
		if err := r.store.CloseGaps(ctx, gaps[shard].IDs); err != nil {
			return resent, err
		}
		r.store.Logger().InfoContext(ctx, "shard is reconciled with Redis",
			"shard", shard, "gaps", len(gaps[shard].IDs), "resent", resent)
	}
	return resent, errors.Join(failures...)
}

// errReopened means that a shard was closed and opened again while its targets were compared.
var errReopened = errors.New("the shard was opened again meanwhile; the next run compares it once more")

// resend sends the likes of a target that differ between MySQL and the gate. These include likes in the pipeline, which
// are sent twice without harm. Of a damaged target, resend sends what is left.
func (r *Reconciler) resend(ctx context.Context, target models.Target) (resent int, err error) {
	if target.Kind == models.KindDrop {
		resent, err = resendClaims(ctx, r.redis, r.store, r.likes, target.ID)
	} else {
		err = eachDiffering(ctx, r.redis, r.store, target, func(users []int64) error {
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
	store *models.Store,
	target models.Target,
	fn func([]int64) error,
) error {
	for after := int64(0); ; {
		ids, err := store.LikerIDs(ctx, target, after, comparePage)
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
