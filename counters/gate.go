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
	"likewise/models/db"
)

// shardGate is what Likes and Claims have in common: lanes to one script, a loader of what it decides about, and the
// clocks of the servers.
type shardGate struct {
	redis  *Redis
	store  *db.DB
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

func newShardGate(r *Redis, store *db.DB, o gateOptions) *shardGate {
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
// shard on another server has another epoch. After the clock was set back, it has another turn.
type serverClock struct {
	ms, epoch, turn int64
	heard           time.Duration // since shardGate.began
}

// callLimit is how long a call of the gate may take to reach Redis, and how long the client waits for the reply.
const callLimit = ioTimeout

const (
	// clockAge is how long a report of a server's clock is used for deadlines. The clock may have been set since.
	clockAge = 5 * time.Second
	// clockSlack and clockDrift are by how much a clock may fall behind without being set back: a little at once, as it
	// reports whole milliseconds, and one in so many milliseconds, which is twice as much as clocks are slewed.
	clockSlack = 20 * time.Millisecond
	clockDrift = 1000
)

// period is when a call of a shard may take effect, in milliseconds on the clock of the shard's server. The clock shows
// earliest or later, unless it was set back or stood still.
type period struct{ earliest, deadline, epoch, turn int64 }

// period returns the period of a call that begins at a time and whose callers wait for it. If the clock is unknown, or
// was reported too long ago, the deadline is 0, and the gate refuses the call as late.
//
// It counts from the server's last reply, in monotonic time, because the local clock may differ from the server's, and
// may be changed. The reply was on its way for a moment, so the result is never later than it should be.
func (g *shardGate) period(shard int, begin time.Time, wait time.Duration) period {
	clock := g.clocks[shard].Load()
	if clock == nil {
		return period{}
	}
	age := begin.Sub(g.began) - clock.heard
	p := period{clock.ms + (age - clockSlack - age/clockDrift).Milliseconds(), 0, clock.epoch, clock.turn}
	if age <= clockAge {
		p.deadline = p.earliest + wait.Milliseconds()
	}
	return p
}

// heard notes the time on the clock of the server that has the shard in an epoch and a turn, and reports whether that
// clock was known before.
func (g *shardGate) heard(shard int, ms, epoch, turn int64) (known bool) {
	now := &serverClock{ms, epoch, turn, time.Since(g.began)}
	before := g.clocks[shard].Swap(now)
	return before != nil && before.epoch == epoch && before.turn == turn && now.heard-before.heard <= clockAge
}

// lapseLimit is how long a failed call waits for the reply of lapse.
const lapseLimit = 250 * time.Millisecond

// lapse makes parcels late that failed and may still arrive. Their deadlines are over, so it changes nothing, unless
// the clock of the server was set back or stood still. If Redis does not answer, the next call of a process that has
// read the clock before makes them late.
func (g *shardGate) lapse(batch []parcel) {
	ctx, cancel := context.WithTimeout(context.Background(), lapseLimit)
	defer cancel()
	// With its source, lapse takes effect even if the reply comes too late.
	_, err := g.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, item := range batch {
			if item.deadline > 0 {
				p.Eval(ctx, g.redis.source["lapse"], []string{shardKey(item.lane.shard)},
					item.deadline, item.epoch, item.turn)
			}
		}
		return nil
	})
	if err != nil {
		g.log.DebugContext(ctx, "calls not made late", "error", err)
	}
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
	case Undated:
		err = errors.New("mysql cannot store the time that redis shows: is its clock wrong?")
	case Full:
		err = errors.New("the outbox is full: is Kafka away?")
	case Lost:
		err = errors.New("its ticket is gone")
	}
	return models.Unavailable(g.busy, fmt.Errorf("gate of %s: %w", target, err))
}

var errForgotten = errors.New("it was damaged, and its next call warms it")

// forgetDamaged makes a target cold whose keys contradict each other, once MySQL has every change that was accepted
// while they were whole. It returns the reason why the like must come again.
func (g *shardGate) forgetDamaged(ctx context.Context, target models.Target) error {
	forgotten, err := g.redis.Forget(ctx, g.store, target)
	if err == nil && !forgotten {
		err = errors.New("its last change is not in MySQL yet, or its shard has a gap or a dead letter")
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
