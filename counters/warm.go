package counters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// EachWarm calls fn with batches of at most 500 warm targets of all shards, until fn fails. As with SCAN, it may miss a
// target that is warmed during the call, and it may return a target twice.
func (r *Redis) EachWarm(ctx context.Context, fn func([]models.Target) error) error {
	scan := func(ctx context.Context, client redis.Cmdable) error {
		var batch []models.Target
		flush := func() error {
			if len(batch) == 0 {
				return nil
			}
			targets := batch
			batch = nil
			return fn(targets)
		}
		keys := client.Scan(ctx, 0, "{s*}:*:likes", 1000).Iterator()
		for keys.Next(ctx) {
			target, ok := parseLikesKey(keys.Val())
			if !ok {
				continue
			}
			if batch = append(batch, target); len(batch) == 500 {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if err := keys.Err(); err != nil {
			return fmt.Errorf("scan targets: %w", err)
		}
		return flush()
	}
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return scan(ctx, r.client)
	}
	// The nodes are scanned one by one, because fn need not be safe for concurrent use.
	nodes := map[string]redis.Cmdable{}
	for shard := range r.shards {
		node, err := cluster.MasterForKey(ctx, shardKey(shard))
		if err != nil {
			return fmt.Errorf("scan targets: %w", err)
		}
		nodes[node.Options().Addr] = node
	}
	for _, node := range nodes {
		if err := scan(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// Cool evicts the targets that were not liked since idle and whose changes are all in MySQL, according to the
// watermarks of their shards. The watermarks must have been read before the call. Cool skips targets of shards without
// a watermark, and returns the number evicted.
func (r *Redis) Cool(
	ctx context.Context,
	targets []models.Target,
	idle time.Time,
	watermarks map[int]models.Position,
) (int, error) {
	var replies []*redis.Cmd
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, t := range targets {
			applied, ok := watermarks[t.Shard(r.shards)]
			if !ok {
				continue
			}
			k := r.keys(t)
			replies = append(
				replies,
				p.Eval(ctx, r.source["cool"], []string{k.likes, k.users}, applied.Epoch, applied.Seq, idle.UnixMilli()),
			)
		}
		return nil
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

// TargetState is the state of a target in Redis.
type TargetState struct {
	Warm   bool
	Closed bool            // the target was deleted
	Count  int64           // the counter
	Users  int64           // the size of the set; equal to Count unless the target is damaged
	Last   models.Position // of the last change since the target was warmed; zero if it was not changed
}

// TargetStates reads targets in one round trip, in their order.
func (r *Redis) TargetStates(ctx context.Context, targets []models.Target) ([]TargetState, error) {
	hashes := make([]*redis.SliceCmd, len(targets))
	sizes := make([]*redis.IntCmd, len(targets))
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range targets {
			k := r.keys(t)
			hashes[i] = p.HMGet(ctx, k.likes, "count", "last", "closed")
			sizes[i] = p.SCard(ctx, k.users)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read targets: %w", err)
	}
	states := make([]TargetState, len(targets))
	for i, t := range targets {
		values := hashes[i].Val()
		states[i].Users = sizes[i].Val()
		if values[0] == nil {
			continue
		}
		count, _ := values[0].(string)
		last, _ := values[1].(string)
		n, err1 := strconv.ParseInt(count, 10, 64)
		pos, err2 := models.ParsePosition(last)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
		states[i].Warm, states[i].Count, states[i].Last, states[i].Closed = true, n, pos, values[2] != nil
	}
	return states, nil
}

// EachUser calls fn with batches of the users who like a warm target. As with SSCAN, it may return a user twice.
func (r *Redis) EachUser(ctx context.Context, target models.Target, fn func([]int64) error) error {
	k := r.keys(target)
	for cursor := uint64(0); ; {
		members, next, err := r.client.SScan(ctx, k.users, cursor, "", 5000).Result()
		if err != nil {
			return fmt.Errorf("read users of %s: %w", target, err)
		}
		ids := make([]int64, len(members))
		for i, m := range members {
			if ids[i], err = strconv.ParseInt(m, 10, 64); err != nil {
				return fmt.Errorf("read users of %s: %w", target, err)
			}
		}
		if err := fn(ids); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// Likers reports which of users like a warm target, in one round trip.
func (r *Redis) Likers(ctx context.Context, target models.Target, users []int64) (map[int64]bool, error) {
	if len(users) == 0 {
		return nil, nil
	}
	members := make([]any, len(users))
	for i, id := range users {
		members[i] = id
	}
	in, err := r.client.SMIsMember(ctx, r.keys(target).users, members...).Result()
	if err != nil {
		return nil, fmt.Errorf("read users of %s: %w", target, err)
	}
	liked := make(map[int64]bool, len(users))
	for i, id := range users {
		liked[id] = in[i]
	}
	return liked, nil
}

// ErrNotWarm means that a target is cold or its shard closed.
var ErrNotWarm = errors.New("the target is not warm")

// Reassert sends the current state of users' likes of a warm target through the pipeline again. Events hold the
// resulting state, so additional events change nothing. If the target is cold or its shard closed, Reassert returns
// ErrNotWarm.
func (l *Likes) Reassert(ctx context.Context, target models.Target, users []int64) error {
	k, now := l.redis.keys(target), l.now()
	for start := 0; start < len(users); start += 500 {
		args := []any{l.limit}
		for _, user := range users[start:min(start+500, len(users))] {
			on, err1 := json.Marshal(models.LikeEvent(target, user, true, now))
			off, err2 := json.Marshal(models.LikeEvent(target, user, false, now))
			if err := errors.Join(err1, err2); err != nil {
				return fmt.Errorf("encode event: %w", err)
			}
			args = append(args, user, on, off)
		}
		n, err := l.redis.run(ctx, "reassert", []string{k.shard, k.likes, k.users, k.outbox}, args...).Int()
		switch {
		case err != nil:
			return fmt.Errorf("reassert %s: %w", target, err)
		case n == -4:
			return models.Unavailable(busy, errors.New("the outbox is full"))
		case n < 0:
			return fmt.Errorf("reassert %s: %w", target, ErrNotWarm)
		}
	}
	return nil
}

// Forget evicts a warm target whose last change is at or before watermark. It reports whether it did.
func (r *Redis) Forget(ctx context.Context, target models.Target, watermark models.Position) (bool, error) {
	n, err := r.Cool(
		ctx,
		[]models.Target{target},
		time.UnixMilli(1<<52),
		map[int]models.Position{target.Shard(r.shards): watermark},
	)
	return n == 1, err
}
