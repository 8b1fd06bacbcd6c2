package counters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// shardGate is what Likes and Claims have in common: lanes to one script, a loader of what it decides about, and the
// clocks of the servers.
type shardGate struct {
	redis  *Redis
	store  *models.Store
	limit  int
	busy   string // the message of refusals
	count  func(Outcome)
	lanes  []*lane // by shard
	loader *loader
	began  time.Time
	clocks []atomic.Pointer[serverClock] // by shard
	log    *slog.Logger
}

// gateOptions are what Likes and Claims do not have in common.
type gateOptions struct {
	script  gateScript
	loading loading
	busy    string
	LikesOptions
}

func newShardGate(r *Redis, store *models.Store, o gateOptions) *shardGate {
	g := &shardGate{redis: r, store: store, limit: o.OutboxLimit, busy: o.busy, count: o.Count, log: o.Logger,
		began: time.Now(), clocks: make([]atomic.Pointer[serverClock], r.shards)}
	if g.limit == 0 {
		g.limit = DefaultOutboxLimit
	}
	if g.log == nil {
		g.log = slog.Default()
	}
	if g.count == nil {
		g.count = func(Outcome) {}
	}
	g.loader = newLoader(g, o.loading)
	_, cluster := r.client.(*redis.ClusterClient)
	var to *sender
	for shard := range r.shards {
		if to == nil || cluster { // the keys of a script belong to one slot
			to = &sender{gate: g, script: o.script}
		}
		g.lanes = append(g.lanes, &lane{sender: to, shard: shard, parked: map[models.Target]*parking{}})
	}
	return g
}

// serverClock is the time that a shard's server reported last, and when the report arrived, which is a little later. A
// shard on another server has another epoch.
type serverClock struct {
	ms, epoch int64
	heard     time.Duration // since shardGate.began
}

// callLimit is how long a call of the gate may take to reach Redis, and how long the client waits for the reply.
const callLimit = ioTimeout

// onServer returns a time of this process on the clock of the shard's server, in milliseconds, and the epoch of that
// server. While the clock is unknown, it returns a time long past, which the gate refuses as late. It counts from the
// server's last reply, in monotonic time, because the local clock may differ from the server's, and may be changed. The
// reply was on its way for a moment, so the result is never later than it should be. It is up to 2 ms earlier, because
// the server reports whole milliseconds.
func (g *shardGate) onServer(shard int, at time.Time) (ms, epoch int64) {
	clock := g.clocks[shard].Load()
	if clock == nil {
		return 0, 0
	}
	return clock.ms + (at.Sub(g.began) - clock.heard).Milliseconds() - 1, clock.epoch
}

// heard notes the time on the clock of the server that has the shard in an epoch, and reports whether that clock was
// known before.
func (g *shardGate) heard(shard int, ms, epoch int64) (known bool) {
	before := g.clocks[shard].Swap(&serverClock{ms, epoch, time.Since(g.began)})
	return before != nil && before.epoch == epoch
}

// stateWait is how long a reader waits for Redis. It leaves enough time for MySQL.
const stateWait = 500 * time.Millisecond

// ask runs a script that returns targets as viewers see them, in one round trip: once, or in a cluster once for each
// shard. It calls read with each reply and the places of its targets. If Redis does not answer in time, the replies are
// errors.
func (g *shardGate) ask(
	ctx context.Context, script string, targets []models.Target, viewers []any, read func(*redis.Cmd, []int),
) {
	if len(targets) == 0 {
		return
	}
	calls := g.asking(targets)
	asking, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	replies := make([]*redis.Cmd, len(calls))
	ask := func(name func(*redis.Script) string, eval func(redis.Pipeliner, string, []string) *redis.Cmd) error {
		_, err := g.redis.client.Pipelined(asking, func(p redis.Pipeliner) error {
			for i, call := range calls {
				replies[i] = eval(p, name(g.redis.script[script]), call.keys)
			}
			return nil
		})
		return err
	}
	err := ask((*redis.Script).Hash, func(p redis.Pipeliner, hash string, keys []string) *redis.Cmd {
		return p.EvalSha(asking, hash, keys, viewers...)
	})
	// Each node of a cluster has scripts of its own.
	lacks := func(reply *redis.Cmd) bool { return redis.HasErrorPrefix(reply.Err(), "NOSCRIPT") }
	if slices.ContainsFunc(replies, lacks) {
		err = ask(func(*redis.Script) string { return g.redis.source[script] },
			func(p redis.Pipeliner, source string, keys []string) *redis.Cmd {
				return p.Eval(asking, source, keys, viewers...)
			})
	}
	if err != nil {
		g.log.WarnContext(ctx, "counts are read from MySQL alone", "error", err)
	}
	for i, call := range calls {
		read(replies[i], call.places)
	}
}

// asked is the part of some targets that one call asks for.
type asked struct {
	keys   []string
	places []int // of the targets
}

// asking divides targets into calls. Keys of several shards are on one node, except in a cluster.
func (g *shardGate) asking(targets []models.Target) []asked {
	places := map[int][]int{} // by shard
	for i, target := range targets {
		shard := target.Shard(g.redis.shards)
		places[shard] = append(places[shard], i)
	}
	_, cluster := g.redis.client.(*redis.ClusterClient)
	var calls []asked
	for shard, list := range places {
		if len(calls) == 0 || cluster {
			calls = append(calls, asked{})
		}
		call := &calls[len(calls)-1]
		call.keys = append(call.keys, shardKey(shard))
		for _, i := range list {
			call.keys = append(call.keys, g.redis.likesKey(targets[i]))
		}
		call.places = append(call.places, list...)
	}
	return calls
}

// take takes one call through its lane, and counts its outcome.
func (g *shardGate) take(ctx context.Context, c *call) (answer, error) {
	c.done = make(chan answer, 1)
	c.ends, _ = ctx.Deadline()
	g.lanes[c.target.Shard(g.redis.shards)].add(c)
	var a answer
	select {
	case a = <-c.done:
	case <-ctx.Done():
		if c.leave() {
			g.count(Failed)
			return answer{}, models.Unavailable(g.busy, fmt.Errorf("gate of %s: %w", c.target, ctx.Err()))
		}
		// Redis may have it. The answer comes within callLimit, and is better than none. Until then, the call may take
		// effect.
		a = <-c.done
	}
	if a.outcome != Late { // counted already
		g.count(a.outcome)
	}
	return a, nil
}

// refusal returns the error of an answer whose outcome likes and claims have in common.
func (g *shardGate) refusal(ctx context.Context, target models.Target, a answer) error {
	err := a.err
	switch a.outcome {
	case Gone:
		return a.err
	case Damaged:
		// The call is not sent again: without a ticket, it could come after a later one.
		err = g.forgetDamaged(ctx, target)
	case Closed:
		err = errors.New("the shard is closed until its worker opens it")
	case Unstored:
		err = errors.New("redis cannot store it: is it out of memory, or is the slot on its way to another node?")
	case Full:
		err = errors.New("the outbox is full: is Kafka away?")
	}
	return models.Unavailable(g.busy, fmt.Errorf("gate of %s: %w", target, err))
}

var errForgotten = errors.New("it was damaged, and its next call warms it")

// forgetDamaged makes a target cold whose keys contradict each other, once MySQL has every change that was accepted
// while they were whole. It returns the reason why the like must come again.
func (g *shardGate) forgetDamaged(ctx context.Context, target models.Target) error {
	forgotten, err := g.redis.Forget(ctx, g.store, target)
	if err == nil && !forgotten {
		err = errors.New("its last change is not in MySQL yet, or its shard has a gap")
	}
	if err != nil {
		return fmt.Errorf("%s is damaged in redis: %w", target, err)
	}
	g.log.ErrorContext(ctx, "the keys of a target contradicted each other; it is warmed from MySQL again",
		"target", target.String())
	return errForgotten
}

// CloseBatch is the number of targets closed in one round trip, which takes Redis a few milliseconds.
const CloseBatch = 500

// CloseTargets makes the gate refuse likes and claims of targets whose deletion is committed. It takes a round trip for
// each CloseBatch targets. After an error some may be closed, and it is safe to try again. It is also safe for targets
// that are not deleted: their next call reads MySQL and opens them.
func (g *shardGate) CloseTargets(ctx context.Context, targets []models.Target) error {
	for chunk := range slices.Chunk(targets, CloseBatch) {
		err := g.redis.pipelined(ctx, func(p pipe) {
			for _, t := range chunk {
				k := g.redis.keys(t)
				p.script(ctx, "close", []string{k.likes, k.warming})
			}
		})
		if err != nil {
			return fmt.Errorf("close %d targets from %s on: %w", len(chunk), chunk[0], err)
		}
	}
	return nil
}

// reopen makes the gate accept likes again of a closed target, if the target was restored. Otherwise it returns
// CodeNotFound. So restoring a post need not open all its comments, and a target that was closed late, by a process
// that slept during the restoration, opens again. It costs one query of one row. asked is called before the query.
func (g *shardGate) reopen(target models.Target, asked func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), loadLimit)
	defer cancel()
	key := g.redis.keys(target).likes
	mark, err := g.redis.client.HGet(ctx, key, "closed").Result()
	if errors.Is(err, redis.Nil) {
		return nil // opened or evicted since
	}
	if err != nil {
		return models.Unavailable(g.busy, fmt.Errorf("reopen %s: %w", target, err))
	}
	asked()
	open, err := g.store.TargetOpen(ctx, target)
	if err != nil {
		return err
	}
	if !open {
		return models.NotFound(target.Kind)
	}
	if err := g.redis.run(ctx, "reopen", []string{key}, mark).Err(); err != nil {
		return models.Unavailable(g.busy, fmt.Errorf("reopen %s: %w", target, err))
	}
	return nil
}
