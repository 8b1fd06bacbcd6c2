package workers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Behind is a shard whose watermark is behind the last event that the gate accepted, a closed one or one that cannot be
// read, of which that event is unknown, or one with gaps or dead letters, whose events are not sent again yet.
type Behind struct {
	Shard   int
	Closed  bool
	Unread  error           // why Redis cannot be asked about the shard
	Gaps    int             // not reconciled; then MySQL has everything else
	Letters int             // dead letters that are not resolved, in the same way
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
	shards := make([]string, len(e.Behind))
	for i, b := range e.Behind {
		shards[i] = b.String()
	}
	return fmt.Sprintf("not everything reached MySQL (%v): %s", e.Cause, strings.Join(shards, "; "))
}

// String returns what is known of the shard, in the words of messages.
func (b Behind) String() string {
	const gaps = "shard %d has open gaps (%d), which the cron job reconcile repairs"
	const letters = "shard %d has dead letters (%d), which an admin retries or discards"
	switch {
	case b.Gaps > 0 && b.Letters > 0:
		return fmt.Sprintf(gaps+"; "+letters, b.Shard, b.Gaps, b.Shard, b.Letters)
	case b.Gaps > 0:
		return fmt.Sprintf(gaps, b.Shard, b.Gaps)
	case b.Letters > 0:
		return fmt.Sprintf(letters, b.Shard, b.Letters)
	case b.Unread != nil:
		return fmt.Sprintf("shard %d is unknown, MySQL has up to %s (%v)", b.Shard, b.Applied, b.Unread)
	case b.Closed:
		return fmt.Sprintf("shard %d is closed, MySQL has up to %s", b.Shard, b.Applied)
	}
	return fmt.Sprintf("shard %d: accepted up to %s, MySQL has up to %s, %d likes in the outbox",
		b.Shard, b.Goal, b.Applied, b.Depth)
}

func (e *FlushError) Unwrap() error { return e.Cause }

// Flush waits until MySQL has every event that Redis knew when the call began. Flush itself moves no events: it needs
// relays and like writers in this process or another. If ctx ends first, Flush returns a FlushError.
//
// If a shard is closed, Redis may have lost its last acknowledged likes, while Kafka still has them. Then Flush does
// not wait for those, and FlushOpen does. Both wait for a shard that cannot be read.
func Flush(ctx context.Context, r *counters.Redis, store *db.DB) error {
	return flushShards(ctx, r, store, everyShard, false)
}

func everyShard(int) bool { return true }

// FlushOpen waits until every like that was acknowledged before the call is in MySQL. It waits until closed shards are
// open, because only then MySQL has all that was acknowledged before. If ctx ends first, it returns a FlushError.
func FlushOpen(ctx context.Context, r *counters.Redis, store *db.DB) error {
	return flushShards(ctx, r, store, everyShard, true)
}

// flushShards is Flush for some shards, or FlushOpen if open is set.
func flushShards(
	ctx context.Context, r *counters.Redis, store *db.DB, which func(shard int) bool, open bool,
) error {
	var goals []counters.ShardInfo // as of the first time that a shard could be read, and was open if it must be
	known := map[int]bool{}
	err := await(ctx, func() (unknown []Behind, err error) {
		states, err := likes.New(store).ShardStates(ctx)
		if err != nil {
			return nil, err
		}
		infos, err := r.ShardInfos(ctx)
		if err != nil {
			return nil, err
		}
		for i, info := range infos {
			switch applied := states[i].Applied; {
			case known[info.Shard] || !which(info.Shard):
			case info.Err != nil:
				unknown = append(unknown, Behind{Shard: info.Shard, Unread: info.Err, Applied: applied})
			case open && (!info.Open || applied.After(info.Last)): // overtaken; its relay opens it again
				unknown = append(unknown, Behind{Shard: info.Shard, Closed: true, Applied: applied})
			default:
				goals, known[info.Shard] = append(goals, info), true
			}
		}
		return unknown, nil
	})
	if err != nil {
		return err
	}
	return flushTo(ctx, r, store, goals)
}

// FlushWhole is FlushOpen, and then waits until all shards are whole. The events of a gap were acknowledged and lost on
// the way, and MySQL has them when the reconciler has repaired the shard. Those of a dead letter wait for an admin. If
// ctx ends first, FlushWhole returns a FlushError.
func FlushWhole(ctx context.Context, r *counters.Redis, store *db.DB) error {
	if err := FlushOpen(ctx, r, store); err != nil {
		return err
	}
	return await(ctx, func() (behind []Behind, err error) {
		states, err := likes.New(store).ShardStates(ctx)
		for _, s := range states {
			if !s.Whole() {
				behind = append(
					behind,
					Behind{Shard: s.Shard, Gaps: s.OpenGaps, Letters: s.Letters, Applied: s.Applied},
				)
			}
		}
		return behind, err
	})
}

// flushTo waits until MySQL has every like up to the last of each of goals.
func flushTo(ctx context.Context, r *counters.Redis, store *db.DB, goals []counters.ShardInfo) error {
	return await(ctx, func() ([]Behind, error) { return unflushed(ctx, r, store, goals) })
}

// await waits until read returns no shards.
func await(ctx context.Context, read func() ([]Behind, error)) error {
	var behind []Behind // as of the last successful read, because ctx may end during a read
	for {
		now, err := read()
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
	store *db.DB,
	goals []counters.ShardInfo,
) ([]Behind, error) {
	states, err := likes.New(store).ShardStates(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := r.ShardInfos(ctx)
	if err != nil {
		return nil, err
	}
	var behind []Behind
	for _, goal := range goals {
		switch applied, info := states[goal.Shard].Applied, infos[goal.Shard]; {
		case info.Err != nil:
			behind = append(behind, Behind{Shard: goal.Shard, Unread: info.Err, Applied: applied})
		case applied.After(info.Last): // overtaken, so that the watermark does not show whether MySQL has the goal
			behind = append(behind, Behind{Shard: goal.Shard, Closed: true, Applied: applied})
		case goal.Last.After(applied):
			behind = append(behind, Behind{Shard: goal.Shard, Goal: goal.Last, Applied: applied, Depth: info.Depth})
		}
	}
	return behind, nil
}
