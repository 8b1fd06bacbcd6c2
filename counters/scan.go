package counters

import (
	"context"
	"errors"
	"fmt"

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
		err := r.scan(ctx, client, "{s*}"+warmPattern, func(key string) error {
			target, ok := parseLikesKey(key)
			if !ok {
				return nil
			}
			if batch = append(batch, target); len(batch) == 500 {
				return flush()
			}
			return nil
		})
		if err != nil {
			return err
		}
		return flush()
	}
	// The nodes are scanned one by one, because fn need not be safe for concurrent use. All are, because keys of a slot
	// that is being moved are on two of them.
	nodes, err := r.nodes(ctx)
	if err != nil {
		return fmt.Errorf("scan targets: %w", err)
	}
	for _, node := range nodes {
		if err := scan(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// scanPage is the number of keys that SCAN visits in a round trip, in a fraction of a millisecond.
const scanPage = 1000

// scan calls fn with the keys of a server that match a pattern. If the server is or becomes a replica, scan fails.
func (r *Redis) scan(ctx context.Context, server redis.Cmdable, pattern string, fn func(key string) error) error {
	for cursor := uint64(0); ; {
		var page *redis.ScanCmd
		err := r.readOn(ctx, server, func(p redis.Pipeliner) { page = p.Scan(ctx, cursor, pattern, scanPage) })
		if err != nil {
			return fmt.Errorf("scan targets: %w", err)
		}
		keys, next := page.Val()
		for _, key := range keys {
			if err := fn(key); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// ErrMoving means that the keys of a shard are on their way to another node of a cluster.
var ErrMoving = errors.New("the shard is moving to another node")

// EachWarmOf calls fn with batches of the warm targets of a shard, until fn fails. It misses none that is warm from the
// beginning to the end of the call. In a cluster, it reads each page at a moment at which the whole slot of the shard
// is on one node, and otherwise returns ErrMoving. It may return a target twice.
func (r *Redis) EachWarmOf(ctx context.Context, shard int, fn func([]models.Target) error) error {
	node, err := r.node(ctx, shard)
	if err != nil {
		return fmt.Errorf("scan shard %d: %w", shard, err)
	}
	for cursor := uint64(0); ; {
		keys, next, err := r.scanWhole(ctx, node, shard, cursor)
		if cluster, ok := r.client.(*redis.ClusterClient); ok && errors.Is(err, ErrMoving) {
			cluster.ReloadState(ctx) // for the next call, if it has moved already
		}
		if err != nil {
			return fmt.Errorf("scan shard %d: %w", shard, err)
		}
		var targets []models.Target
		for _, key := range keys {
			if target, ok := parseLikesKey(key); ok {
				targets = append(targets, target)
			}
		}
		if len(targets) > 0 {
			if err := fn(targets); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// scanWhole reads a page of the keys of warm targets. A node whose slot is moving refers a client that asks for a key
// that it does not have to the other node. So the transaction fails unless the slot is whole when the page is read. It
// also fails on a replica.
func (r *Redis) scanWhole(ctx context.Context, node redis.Cmdable, shard int, cursor uint64) ([]string, uint64, error) {
	var primary *redis.Cmd
	var page *redis.ScanCmd
	var absent *redis.IntCmd
	var err error
	for _, source := range []bool{false, true} { // as in pipelinedOn
		_, err = node.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			primary = pipe{tx, r, source}.script(ctx, "primary", nil)
			page = tx.Scan(ctx, cursor, shardTag(shard)+warmPattern, scanPage)
			absent = tx.Exists(ctx, absentKey(shard))
			return nil
		})
		if !redis.HasErrorPrefix(primary.Err(), "NOSCRIPT") {
			break
		}
	}
	for _, moved := range []error{absent.Err(), err} {
		if redis.HasErrorPrefix(moved, "ASK") || redis.HasErrorPrefix(moved, "MOVED") ||
			redis.HasErrorPrefix(moved, "TRYAGAIN") {
			return nil, 0, fmt.Errorf("%w: %w", ErrMoving, moved)
		}
	}
	if err != nil {
		return nil, 0, err
	}
	return page.Result()
}
