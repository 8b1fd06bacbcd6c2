package counters

import (
	"context"
	"fmt"
	"time"
)

// RefuseLikes makes the gate refuse likes of a user in all shards until limit is over, on Redis's clock. Unlikes pass.
// A limit is a minute at most.
func (r *Redis) RefuseLikes(ctx context.Context, userID int64, limit time.Duration) error {
	err := r.pipelined(ctx, func(p pipe) {
		for shard := range r.shards {
			p.script(ctx, "refuse", []string{shardKey(shard), refusedKey(shard)}, userID, limit.Milliseconds())
		}
	})
	if err != nil {
		return fmt.Errorf("refuse likes of user %d: %w", userID, err)
	}
	return nil
}
