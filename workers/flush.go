package workers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"likewise/counters"
	"likewise/models"
)

// Behind is a shard whose watermark is behind the last event that the gate accepted.
type Behind struct {
	Shard   int
	Goal    models.Position // the last event accepted when the flush began
	Applied models.Position // the watermark
	Depth   int64           // events still in the outbox
}

// FlushError lists the shards that could not be flushed.
type FlushError struct {
	Behind []Behind
	Cause  error
}

func (e *FlushError) Error() string {
	var parts []string
	for _, b := range e.Behind {
		parts = append(
			parts,
			fmt.Sprintf(
				"shard %d: accepted up to %s, MySQL has up to %s, %d events in the outbox",
				b.Shard,
				b.Goal,
				b.Applied,
				b.Depth,
			),
		)
	}
	return fmt.Sprintf("not everything reached MySQL (%v): %s", e.Cause, strings.Join(parts, "; "))
}

func (e *FlushError) Unwrap() error { return e.Cause }

// Flush waits until every like that was accepted before the call is in MySQL. Flush itself moves no events: it needs
// relays and like writers in this process or another. If ctx ends first, Flush returns a FlushError.
func Flush(ctx context.Context, r *counters.Redis, store *models.Store) error {
	infos, err := r.ShardInfos(ctx)
	if err != nil {
		return err
	}
	return flushTo(ctx, r, store, infos)
}

// flushTo waits until MySQL has every like up to the last of each shard.
func flushTo(ctx context.Context, r *counters.Redis, store *models.Store, goals []counters.ShardInfo) error {
	var behind []Behind // as of the last successful read, because ctx may end during a read
	for {
		now, err := unflushed(ctx, r, store, goals)
		if err == nil {
			if behind = now; len(behind) == 0 {
				return nil
			}
		}
		if !pause(ctx, 20*time.Millisecond) {
			if len(behind) > 0 {
				return &FlushError{Behind: behind, Cause: context.Cause(ctx)}
			}
			return fmt.Errorf("flush: %w", err)
		}
	}
}

func unflushed(
	ctx context.Context,
	r *counters.Redis,
	store *models.Store,
	goals []counters.ShardInfo,
) ([]Behind, error) {
	states, err := store.ShardStates(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := r.ShardInfos(ctx)
	if err != nil {
		return nil, err
	}
	var behind []Behind
	for i, goal := range goals {
		if goal.Last.After(states[i].Applied) {
			behind = append(
				behind,
				Behind{Shard: goal.Shard, Goal: goal.Last, Applied: states[i].Applied, Depth: infos[i].Depth},
			)
		}
	}
	return behind, nil
}
