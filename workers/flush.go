package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"likewise/counters"
	"likewise/models"
)

// Behind is a shard whose watermark is behind the last event that the gate accepted, or that is closed, so that this
// event is unknown.
type Behind struct {
	Shard   int
	Closed  bool            // since the flush began
	Goal    models.Position // the last event accepted when the flush began
	Applied models.Position // the watermark
	Depth   int64           // likes still in the outbox
}

// FlushError lists the shards that could not be flushed.
type FlushError struct {
	Behind []Behind
	Cause  error
}

func (e *FlushError) Error() string {
	var parts []string
	for _, b := range e.Behind {
		if b.Closed {
			parts = append(parts, fmt.Sprintf("shard %d is closed, MySQL has up to %s", b.Shard, b.Applied))
			continue
		}
		parts = append(parts, fmt.Sprintf("shard %d: accepted up to %s, MySQL has up to %s, %d likes in the outbox",
			b.Shard, b.Goal, b.Applied, b.Depth))
	}
	return fmt.Sprintf("not everything reached MySQL (%v): %s", e.Cause, strings.Join(parts, "; "))
}

func (e *FlushError) Unwrap() error { return e.Cause }

// Flush waits until MySQL has every event that Redis knew when the call began. Flush itself moves no events: it needs
// relays and like writers in this process or another. If ctx ends first, Flush returns a FlushError.
//
// If a shard is closed, Redis may have lost its last acknowledged likes, while Kafka still has them. Then Flush does not
// wait for those, and FlushOpen does.
func Flush(ctx context.Context, r *counters.Redis, store *models.Store) error {
	goals, err := r.ShardInfos(ctx)
	if err != nil {
		return err
	}
	return flush(ctx, r, store, goals, false)
}

// FlushOpen waits until every like that was acknowledged before the call is in MySQL. It waits until closed shards are
// open, because only then MySQL has all that was acknowledged before. If ctx ends first, it returns a FlushError.
func FlushOpen(ctx context.Context, r *counters.Redis, store *models.Store) error {
	return flushShards(ctx, r, store, func(int) bool { return true })
}

// flushShards is FlushOpen for some shards.
func flushShards(ctx context.Context, r *counters.Redis, store *models.Store, which func(shard int) bool) error {
	goals, err := r.ShardInfos(ctx)
	if err != nil {
		return err
	}
	goals = slices.DeleteFunc(goals, func(info counters.ShardInfo) bool { return !which(info.Shard) })
	return flush(ctx, r, store, goals, true)
}

// flush waits until MySQL has the last events of goals. With open, shards that are closed in goals get a goal when they
// are open.
func flush(
	ctx context.Context, r *counters.Redis, store *models.Store, goals []counters.ShardInfo, open bool,
) error {
	var behind []Behind // as of the last successful read, because ctx may end during a read
	for {
		now, err := unflushed(ctx, r, store, goals, open)
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
	ctx context.Context, r *counters.Redis, store *models.Store, goals []counters.ShardInfo, open bool,
) ([]Behind, error) {
	infos, err := r.ShardInfos(ctx)
	if err != nil {
		return nil, err
	}
	states, err := store.ShardStates(ctx)
	if err != nil {
		return nil, err
	}
	var behind []Behind
	for i := range goals {
		goal := &goals[i]
		info, applied := infos[goal.Shard], states[goal.Shard].Applied
		if open && !goal.Open && info.Open {
			*goal = info
		}
		closed := open && !goal.Open
		if closed || goal.Last.After(applied) {
			behind = append(behind, Behind{
				Shard: goal.Shard, Closed: closed, Goal: goal.Last, Applied: applied, Depth: info.Depth,
			})
		}
	}
	return behind, nil
}
