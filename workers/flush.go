package workers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"likewise/counters"
	"likewise/models"
)

// Behind is a shard whose watermark has not reached what the gate accepted.
type Behind struct {
	Shard   int
	Goal    models.Position // the last event accepted when the flush began
	Applied models.Position // the watermark
	Depth   int64           // events still in the outbox
}

// FlushError says which shards could not be flushed.
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

// Flush waits until every like that was accepted before the call is in MySQL. Relays and writers do the work, in this
// process or another; Flush only watches. FlushError when ctx ends first.
func Flush(ctx context.Context, r *counters.Redis, store *models.Store) error {
	infos, err := r.ShardInfos(ctx)
	if err != nil {
		return err
	}
	var behind []Behind // as of the last time that could be seen: ctx may end while it is being read
	for {
		now, err := unflushed(ctx, r, store, infos)
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
