package counters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Cool evicts the targets that were not liked for idle, on Redis's clock, and whose changes are all in MySQL, according
// to the watermarks of their shards. The watermarks must have been read before the call, and with them that the shards
// are whole. Cool skips targets of shards without a watermark, and returns the number evicted. Sweep removes what is
// left of them.
func (r *Redis) Cool(
	ctx context.Context, targets []models.Target, idle time.Duration, watermarks map[int]models.Position,
) (int, error) {
	var replies []*redis.Cmd
	err := r.pipelined(ctx, func(p pipe) {
		replies = nil
		for _, t := range targets {
			applied, ok := watermarks[t.Shard(r.shards)]
			if !ok {
				continue
			}
			k := r.keys(t)
			replies = append(replies, p.script(ctx, "cool", []string{k.likes, k.garbage},
				applied.Epoch, applied.Seq, idle.Milliseconds()))
		}
	})
	if err != nil {
		return 0, fmt.Errorf("cool targets: %w", err)
	}
	cooled := 0
	for _, reply := range replies {
		n, err := reply.Int()
		if err != nil {
			return cooled, fmt.Errorf("cool target: %w", err)
		}
		cooled += n
	}
	return cooled, nil
}

// Forget makes a target cold if MySQL has everything of it: its last change is at or before the watermark, and its
// shard has no gap and no dead letter, whose events only the gate may still know. It reports whether it did.
func (r *Redis) Forget(ctx context.Context, store *db.DB, target models.Target) (bool, error) {
	state, err := likes.New(store).ShardState(ctx, target.Shard(r.shards))
	if err != nil || !state.Whole() {
		return false, err
	}
	n, err := r.Cool(ctx, []models.Target{target}, 0, map[int]models.Position{state.Shard: state.Applied})
	return n == 1, err
}

// KeepCold reports whether a target is cold. It takes away the lock of a load that has begun, so that what was read
// before the call cannot make the target warm.
func (r *Redis) KeepCold(ctx context.Context, target models.Target) (bool, error) {
	return r.isCold(ctx, target, 1)
}

// IsCold reports whether a target is cold, and no load has begun that could make it warm. A caller that asks often must
// not use KeepCold: a large target, whose load takes seconds, would never become warm.
func (r *Redis) IsCold(ctx context.Context, target models.Target) (bool, error) {
	return r.isCold(ctx, target, 0)
}

func (r *Redis) isCold(ctx context.Context, target models.Target, takeLock int) (bool, error) {
	k := r.keys(target)
	warm, err := r.run(ctx, "cold", []string{k.likes, k.warming}, takeLock).Int()
	if err != nil {
		return false, fmt.Errorf("look whether %s is cold: %w", target, err)
	}
	return warm == 0, nil
}

// sweepSets is the number of sets that a script removes, in a fraction of a millisecond.
const sweepSets = 200

// Sweep removes the sets of evicted targets and of loads that were given up, and returns their number. A shard that
// fails does not keep it from the others.
func (r *Redis) Sweep(ctx context.Context) (sets int, err error) {
	var failures []error
	for shard := range r.shards {
		for {
			n, err := r.run(ctx, "sweep", []string{garbageKey(shard)}, sweepSets).Int()
			if err != nil {
				failures = append(failures, fmt.Errorf("sweep shard %d: %w", shard, err))
			}
			if err != nil || n == 0 {
				break
			}
			sets += n
		}
	}
	return sets, errors.Join(failures...)
}
