package counters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// Outcome is the result of a call of the gate, for the metrics.
type Outcome string

// The outcomes of a call of the gate.
const (
	Changed    Outcome = "changed"    // accepted, with a new event in the outbox
	Unchanged  Outcome = "unchanged"  // accepted, and nothing to change
	Closed     Outcome = "closed"     // refused: the shard is closed
	Cold       Outcome = "cold"       // retried after the target was warmed
	Gone       Outcome = "gone"       // refused: the target is deleted or does not exist
	Full       Outcome = "full"       // refused: the outbox is at its limit
	Damaged    Outcome = "damaged"    // the target's keys contradict each other; it is forgotten if MySQL has all of it
	Late       Outcome = "late"       // retried: the call reached Redis too late, or the estimate of its clock was off
	Superseded Outcome = "superseded" // refused: the user called again while this call waited for its target
	Refused    Outcome = "refused"    // refused: likes of the user are being voided
	Unstored   Outcome = "unstored"   // refused: Redis is out of memory, or moves the shard to another node
	Failed     Outcome = "failed"     // Redis did not answer
)

// outcomes lists the outcomes by their numbers in the reply of the gate.
var outcomes = []Outcome{Unchanged, Closed, Cold, Gone, Full, Damaged, Late, Changed, Superseded, Refused,
	Unstored}

// Outcomes lists every outcome.
func Outcomes() []Outcome { return append([]Outcome{Failed}, outcomes...) }

// Likes sets and reads likes through the gate. It is safe for concurrent use.
type Likes struct {
	redis  *Redis
	store  *models.Store
	limit  int
	count  func(Outcome)
	lanes  []*lane // by shard
	loader *loader
	began  time.Time
	clocks []atomic.Pointer[serverClock] // by shard
	log    *slog.Logger
}

// serverClock is the time that a shard's server reported last, and when the report arrived, which is a little later. A
// shard on another server has another epoch.
type serverClock struct {
	ms, epoch int64
	heard     time.Duration // since Likes.began
}

// callLimit is how long a call of the gate may take to reach Redis, and how long the client waits for the reply.
const callLimit = ioTimeout

// onServer returns a time of this process on the clock of the shard's server, in milliseconds, and the epoch of that
// server. While the clock is unknown, it returns a time long past, which the gate refuses as late. It counts from the
// server's last reply, in monotonic time, because the local clock may differ from the server's, and may be changed. The
// reply was on its way for a moment, so the result is never later than it should be. It is up to 2 ms earlier, because
// the server reports whole milliseconds.
func (l *Likes) onServer(shard int, at time.Time) (ms, epoch int64) {
	clock := l.clocks[shard].Load()
	if clock == nil {
		return 0, 0
	}
	return clock.ms + (at.Sub(l.began) - clock.heard).Milliseconds() - 1, clock.epoch
}

// heard notes the time on the clock of the server that has the shard in an epoch, and reports whether that clock was
// known before.
func (l *Likes) heard(shard int, ms, epoch int64) (known bool) {
	before := l.clocks[shard].Swap(&serverClock{ms, epoch, time.Since(l.began)})
	return before != nil && before.epoch == epoch
}

// LikesOptions configure Likes. The zero value holds the defaults.
type LikesOptions struct {
	OutboxLimit int           // in likes a shard; beyond it the gate refuses likes; 0 means DefaultOutboxLimit
	Logger      *slog.Logger  // nil means slog.Default()
	Count       func(Outcome) // called with every outcome; nil means none
}

// DefaultOutboxLimit is in likes. An outbox of that size takes 2 to 8 MB of Redis memory if its likes came in crowds,
// and 35 MB if each came alone.
const DefaultOutboxLimit = 500_000

// NewLikes returns a gate in front of store.
func NewLikes(r *Redis, store *models.Store, o LikesOptions) *Likes {
	l := &Likes{redis: r, store: store, limit: o.OutboxLimit, count: o.Count, log: o.Logger, began: time.Now(),
		clocks: make([]atomic.Pointer[serverClock], r.shards)}
	if l.limit == 0 {
		l.limit = DefaultOutboxLimit
	}
	if l.log == nil {
		l.log = slog.Default()
	}
	if l.count == nil {
		l.count = func(Outcome) {}
	}
	l.loader = newLoader(l)
	for shard := range r.shards {
		l.lanes = append(l.lanes, &lane{likes: l, shard: shard, parked: map[models.Target]*parking{}})
	}
	return l
}

// Messages of refusals.
const (
	busy     = "The server cannot accept likes at the moment; try again."
	reviewed = "Likes of your account are being reviewed; try again."
	replaced = "A later call for the same like has replaced this one."
)

// SetLike sets or removes the user's like of the target, and returns the resulting state. Repeating a call changes
// nothing. For a warm target, SetLike takes one round trip to Redis, which it shares with other likes. If the
// target is deleted or does not exist, it returns CodeNotFound. After CodeUnavailable the like may have changed, and it
// is safe to try again. A call that ends because ctx does takes no effect after it has returned.
func (l *Likes) SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error) {
	a, err := l.call(ctx, target, userID, liked)
	if err != nil {
		return models.LikeState{}, err
	}
	if a.outcome != Late { // counted already
		l.count(a.outcome)
	}
	err = a.err
	switch a.outcome {
	case Changed, Unchanged:
		return models.LikeState{Liked: liked, Count: a.count}, nil
	case Gone:
		return models.LikeState{}, a.err
	case Refused:
		return models.LikeState{}, models.Unavailable(reviewed, errRefused)
	case Superseded:
		return models.LikeState{}, models.Unavailable(replaced, errSuperseded)
	case Damaged:
		// The call is not sent again: without a ticket, it could come after a later one.
		err = l.forgetDamaged(ctx, target)
	case Closed:
		err = errors.New("the shard is closed until its worker opens it")
	case Unstored:
		err = errors.New("redis cannot store it: is it out of memory, or is the slot on its way to another node?")
	case Full:
		err = errors.New("the outbox is full: is Kafka away?")
	}
	return models.LikeState{}, models.Unavailable(busy, fmt.Errorf("gate of %s: %w", target, err))
}

var errForgotten = errors.New("it was damaged, and its next like warms it")

var errRefused = errors.New("likes of the user are being voided")

var errSuperseded = errors.New("superseded while the target was loaded")

// call takes one like through its lane.
func (l *Likes) call(ctx context.Context, target models.Target, userID int64, liked bool) (answer, error) {
	c := &call{target: target, user: userID, liked: liked, done: make(chan answer, 1)}
	c.ends, _ = ctx.Deadline()
	l.lanes[target.Shard(l.redis.shards)].add(c)
	select {
	case a := <-c.done:
		return a, nil
	case <-ctx.Done():
	}
	if !c.leave() {
		// Redis may have it. The answer comes within callLimit, and is better than none. Until then, the call may take
		// effect.
		a := <-c.done
		return a, nil
	}
	l.count(Failed)
	return answer{}, models.Unavailable(busy, fmt.Errorf("gate of %s: %w", target, ctx.Err()))
}

// forgetDamaged makes a target cold whose keys contradict each other, once MySQL has every change that was accepted
// while they were whole. It returns the reason why the like must come again.
func (l *Likes) forgetDamaged(ctx context.Context, target models.Target) error {
	forgotten, err := l.redis.Forget(ctx, l.store, target)
	if err == nil && !forgotten {
		err = errors.New("its last change is not in MySQL yet, or its shard has a gap")
	}
	if err != nil {
		return fmt.Errorf("%s is damaged in redis: %w", target, err)
	}
	l.log.ErrorContext(ctx, "the keys of a target contradicted each other; it is warmed from MySQL again",
		"target", target.String())
	return errForgotten
}

// CloseBatch is the number of targets closed in one round trip, which takes Redis a few milliseconds.
const CloseBatch = 500

// CloseTargets makes the gate refuse likes of targets whose deletion is committed. It takes a round trip for each
// CloseBatch targets. After an error some may be closed, and it is safe to try again. It is also safe for targets that
// are not deleted: their next like reads MySQL and opens them.
func (l *Likes) CloseTargets(ctx context.Context, targets []models.Target) error {
	for chunk := range slices.Chunk(targets, CloseBatch) {
		_, err := l.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, t := range chunk {
				k := l.redis.keys(t)
				p.Eval(ctx, l.redis.source["close"], []string{k.likes, k.warming})
			}
			return nil
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
func (l *Likes) reopen(target models.Target, asked func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), loadLimit)
	defer cancel()
	key := l.redis.keys(target).likes
	mark, err := l.redis.client.HGet(ctx, key, "closed").Result()
	if errors.Is(err, redis.Nil) {
		return nil // opened or evicted since
	}
	if err != nil {
		return models.Unavailable(busy, fmt.Errorf("reopen %s: %w", target, err))
	}
	asked()
	open, err := l.store.TargetOpen(ctx, target)
	if err != nil {
		return err
	}
	if !open {
		return models.Errorf(models.CodeNotFound, "There is no such %s.", target.Kind)
	}
	if err := l.redis.run(ctx, "reopen", []string{key}, mark).Err(); err != nil {
		return models.Unavailable(busy, fmt.Errorf("reopen %s: %w", target, err))
	}
	return nil
}

// stateWait is how long a reader waits for Redis. It leaves enough time for MySQL.
const stateWait = 500 * time.Millisecond

// LikeStates returns the viewer's states of rows, in their order, in one round trip to Redis. Viewer 0 is anonymous.
// For cold targets and closed shards, it uses the counts in rows, and one MySQL query for the viewer's own likes. If
// Redis does not answer within half a second, it does so for all rows.
func (l *Likes) LikeStates(ctx context.Context, viewer int64, rows []models.TargetCount) ([]models.LikeState, error) {
	states := make([]models.LikeState, len(rows))
	targets := make([]models.Target, len(rows))
	for i, row := range rows {
		targets[i] = row.Target
	}
	var cold []models.Target
	for i, held := range l.held(ctx, viewer, targets) {
		if !held.known {
			states[i].Count = rows[i].Count
			cold = append(cold, targets[i])
			continue
		}
		states[i] = held.LikeState
	}
	liked, err := l.store.LikedBy(ctx, viewer, cold)
	if err != nil {
		return nil, err
	}
	for i, target := range targets {
		states[i].Liked = states[i].Liked || liked[target]
	}
	return states, nil
}

// StatesOf returns the viewer's states of targets, in one round trip to Redis. Viewer 0 is anonymous. Targets that are
// cold, closed or in a closed shard take one MySQL query. If Redis does not answer within half a second, all targets
// do. The result has no state for targets that are deleted or do not exist.
func (l *Likes) StatesOf(
	ctx context.Context,
	viewer int64,
	targets []models.Target,
) (map[models.Target]models.LikeState, error) {
	states := make(map[models.Target]models.LikeState, len(targets))
	var ask []models.Target
	closed := map[models.Target]models.LikeState{}
	for _, held := range l.held(ctx, viewer, targets) {
		switch {
		case !held.known:
			ask = append(ask, held.target)
		case held.gone: // MySQL decides: a restored target stays closed in the gate until its next like
			ask = append(ask, held.target)
			closed[held.target] = held.LikeState
		default:
			states[held.target] = held.LikeState
		}
	}
	stored, err := l.store.StatesOf(ctx, viewer, ask)
	for target, state := range stored {
		if held, ok := closed[target]; ok {
			state = held
		}
		states[target] = state
	}
	return states, err
}

// heldState is the state of a target's likes in Redis.
type heldState struct {
	models.LikeState
	target models.Target
	known  bool // the target is warm and its shard open
	gone   bool // the target is closed
}

// held reads the likes of targets from Redis, in one round trip. If Redis does not answer in time, no state is known.
func (l *Likes) held(ctx context.Context, viewer int64, targets []models.Target) []heldState {
	if len(targets) == 0 {
		return nil
	}
	states := make([]heldState, len(targets))
	places := map[int][]int{} // of the targets, by shard
	for i, target := range targets {
		states[i].target = target
		shard := target.Shard(l.redis.shards)
		places[shard] = append(places[shard], i)
	}
	asking, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	replies := map[int]*redis.Cmd{}
	ask := func(name func(*redis.Script) string, eval func(redis.Pipeliner, string, []string) *redis.Cmd) error {
		_, err := l.redis.client.Pipelined(asking, func(p redis.Pipeliner) error {
			for shard, list := range places {
				keys := make([]string, 1, 1+len(list))
				keys[0] = shardKey(shard)
				for _, i := range list {
					keys = append(keys, l.redis.keys(targets[i]).likes)
				}
				replies[shard] = eval(p, name(l.redis.script["states"]), keys)
			}
			return nil
		})
		return err
	}
	err := ask((*redis.Script).Hash, func(p redis.Pipeliner, hash string, keys []string) *redis.Cmd {
		return p.EvalSha(asking, hash, keys, viewer)
	})
	// Each node of a cluster has scripts of its own.
	lacks := func(reply *redis.Cmd) bool { return redis.HasErrorPrefix(reply.Err(), "NOSCRIPT") }
	if slices.ContainsFunc(slices.Collect(maps.Values(replies)), lacks) {
		err = ask(func(*redis.Script) string { return l.redis.source["states"] },
			func(p redis.Pipeliner, source string, keys []string) *redis.Cmd {
				return p.Eval(asking, source, keys, viewer)
			})
	}
	if err != nil {
		l.log.WarnContext(ctx, "likes are read from MySQL alone", "error", err)
	}
	for shard, list := range places {
		numbers, err := replies[shard].Int64Slice()
		if err != nil || len(numbers) != 2*len(list) {
			continue
		}
		for at, i := range list {
			count, flags := numbers[2*at], numbers[2*at+1]
			if count < 0 {
				continue
			}
			states[i].LikeState = models.LikeState{Count: count, Liked: flags&1 != 0}
			states[i].known, states[i].gone = true, flags&2 != 0
		}
	}
	return states
}
