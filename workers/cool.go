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

// Cool evicts a target from Redis, and waits until it may: MySQL has all of the target, and its shard is whole. If
// Cool returns nil, the target was cold after the call began, and what was read from MySQL before does not make it warm
// again. If ctx ends first, Cool returns an error, and the target stays as it is.
func Cool(ctx context.Context, r *counters.Redis, store *db.DB, target models.Target) error {
	var failure error // of the last look that was not cut off
	for {
		cold, err := coolNow(ctx, r, store, target)
		if cold {
			return nil
		}
		if ctx.Err() == nil {
			failure = err
		}
		if !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s stays in redis (%w): %w", target, context.Cause(ctx), failure)
		}
	}
}

// errStaysWarm means that a target cannot be evicted yet.
var errStaysWarm = errors.New("its last like or claim is not in mysql, or it is damaged; see " +
	"`likewise cron run flush` and `likewise verify`")

// coolNow evicts the target if that is safe now, and reports whether it is cold. A cold target of a closed shard counts
// as warm: Redis may have lost it, and its last likes are on their way.
func coolNow(ctx context.Context, r *counters.Redis, store *db.DB, target models.Target) (bool, error) {
	shard := target.Shard(store.Shards())
	states, err := r.ShardInfos(ctx)
	if err != nil {
		return false, err
	}
	if !states[shard].Open {
		return false, fmt.Errorf("shard %d: %w", shard, counters.ErrShardClosed)
	}
	state, err := likes.New(store).ShardState(ctx, shard)
	if err != nil {
		return false, err
	}
	if !state.Whole() {
		return false, fmt.Errorf(
			"shard %d has %d gaps, which the cron job reconcile repairs, and %d dead letters, which an "+
				"admin retries or discards",
			shard,
			state.OpenGaps,
			state.Letters,
		)
	}
	if _, err := r.Forget(ctx, store, target); err != nil {
		return false, err
	}
	cold, err := r.KeepCold(ctx, target)
	if err == nil && !cold {
		err = errStaysWarm
	}
	return cold, err
}
