package counters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// TargetState is the state of a target in Redis.
type TargetState struct {
	Warm   bool
	Closed bool            // the target was deleted
	Count  int64           // the counter
	Users  int64           // the sizes of the sets together, or -1; equal to Count unless the target is damaged
	Sets   int             // the lowest number above those of the sets over which the users are spread
	Load   string          // the name of the load that made the target warm
	Last   models.Position // of the last change since the target was warmed; zero if it was not changed
}

// TargetStates reads targets in two round trips, in their order. The sizes are those of a later instant than the rest.
func (r *Redis) TargetStates(ctx context.Context, targets []models.Target) ([]TargetState, error) {
	hashes := make([]*redis.SliceCmd, len(targets))
	err := r.read(ctx, func(p redis.Pipeliner) {
		for i, t := range targets {
			hashes[i] = p.HMGet(ctx, r.keys(t).likes, "count", "last", "closed", "sets", "load")
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read targets: %w", err)
	}
	states := make([]TargetState, len(targets))
	for i := range targets {
		values := hashes[i].Val()
		if values[0] == nil {
			continue
		}
		state := &states[i]
		count, _ := values[0].(string)
		last, _ := values[1].(string)
		sets, _ := values[3].(string)
		state.Load, _ = values[4].(string)
		var err1, err2, err3 error
		state.Count, err1 = strconv.ParseInt(count, 10, 64)
		state.Last, err2 = models.ParsePosition(last)
		state.Sets, err3 = strconv.Atoi(sets)
		if errors.Join(err1, err2, err3) != nil {
			state.Sets, state.Users = 0, -1
		}
		state.Warm, state.Closed = true, values[2] != nil
	}
	return states, r.countUsers(ctx, targets, states)
}

// LastChange returns the position of the last change of a target since it was warmed, and its time by the clock of
// Redis. If there was none, or the target is cold, the position is zero.
func (r *Redis) LastChange(ctx context.Context, target models.Target) (models.Position, time.Time, error) {
	var hash *redis.SliceCmd
	err := r.read(ctx, func(p redis.Pipeliner) { hash = p.HMGet(ctx, r.keys(target).likes, "last", "at") })
	if err != nil {
		return models.Position{}, time.Time{}, fmt.Errorf("read the last change of %s: %w", target, err)
	}
	last, changed := hash.Val()[0].(string)
	if !changed {
		return models.Position{}, time.Time{}, nil
	}
	at, _ := hash.Val()[1].(string)
	position, err1 := models.ParsePosition(last)
	ms, err2 := strconv.ParseInt(at, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return models.Position{}, time.Time{}, fmt.Errorf("read the last change of %s: %w", target, err)
	}
	return position, time.UnixMilli(ms), nil
}

// countUsers sets the number of users of warm targets.
func (r *Redis) countUsers(ctx context.Context, targets []models.Target, states []TargetState) error {
	type set struct {
		state *TargetState
		key   string
		drop  bool
	}
	var sets []set
	for i := range states {
		for _, n := range setNumbers(states[i].Sets) {
			key := setKey(r.likesKey(targets[i]), states[i].Load, n)
			sets = append(sets, set{&states[i], key, targets[i].Kind == models.KindDrop})
		}
	}
	for batch := range slices.Chunk(sets, 1000) {
		sizes := make([]*redis.IntCmd, len(batch))
		err := r.read(ctx, func(p redis.Pipeliner) {
			for i, item := range batch {
				if item.drop {
					sizes[i] = p.HLen(ctx, item.key)
				} else {
					sizes[i] = p.SCard(ctx, item.key)
				}
			}
		})
		if err != nil {
			return fmt.Errorf("read sizes of sets: %w", err)
		}
		for i, item := range batch {
			item.state.Users += sizes[i].Val() - 1 // of which one is 0, which is not a user
		}
	}
	return nil
}

// ChangedAfter returns the warm ones of targets of one shard that were changed after a position.
func (r *Redis) ChangedAfter(
	ctx context.Context, targets []models.Target, after models.Position,
) ([]models.Target, error) {
	replies := make([]*redis.StringCmd, len(targets))
	err := r.read(ctx, func(p redis.Pipeliner) {
		for i, t := range targets {
			replies[i] = p.HGet(ctx, r.keys(t).likes, "last")
		}
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read last changes: %w", err)
	}
	var changed []models.Target
	for i, t := range targets {
		last, err := replies[i].Result()
		if errors.Is(err, redis.Nil) {
			continue // not since it was warmed
		}
		if err != nil {
			return nil, fmt.Errorf("read the last change of %s: %w", t, err)
		}
		pos, err := models.ParsePosition(last)
		if err != nil || pos.After(after) { // a damaged position may have been any
			changed = append(changed, t)
		}
	}
	return changed, nil
}
