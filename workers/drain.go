package workers

import (
	"context"
	"fmt"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Drain closes the gate of a site that is draining, and waits until every like that it accepted is in MySQL. As Flush
// does, it needs relays and like writers. If ctx ends first, it returns a FlushError and can be called again.
//
// If a shard was closed before, or another Redis has served the site since the shard was opened, this Redis does not
// have the last likes. Some may be in Kafka. In that case Drain returns CodeConflict, and the shards must be opened
// again first.
func Drain(ctx context.Context, r *counters.Redis, store *db.DB) error {
	goals, err := r.CloseShards(ctx)
	if err != nil {
		return err
	}
	states, err := likes.New(store).ShardStates(ctx)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	var unknown []int
	for i, goal := range goals {
		if !goal.Open || states[i].Applied.After(goal.Last) {
			unknown = append(unknown, goal.Shard)
		}
	}
	if len(unknown) > 0 {
		return models.Errorf(models.CodeConflict, "The shards %v were closed, so their last likes are not known. "+
			"Wait until workers have opened all shards, and run this command again.", unknown)
	}
	return flushTo(ctx, r, store, goals)
}
