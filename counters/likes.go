package counters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"likewise/models"
)

// Outcome is the result of a call of the gate, for the metrics.
type Outcome string

// The outcomes of a call of the gate.
const (
	Changed   Outcome = "changed"   // accepted, with a new event in the outbox
	Unchanged Outcome = "unchanged" // accepted, and nothing to change
	Closed    Outcome = "closed"    // refused: the shard is closed
	Cold      Outcome = "cold"      // retried after the target was warmed
	Gone      Outcome = "gone"      // refused: the target is deleted or does not exist
	Full      Outcome = "full"      // refused: the outbox is at its limit
	Damaged   Outcome = "damaged"   // the target's keys contradict each other; it is forgotten if MySQL has all of it
	Late      Outcome = "late"      // retried: the call reached Redis too late, or the estimate of its clock was off
	Failed    Outcome = "failed"    // Redis did not answer
)

var outcomes = []Outcome{Unchanged, Closed, Cold, Gone, Full, Damaged, Late}

// Outcomes lists every outcome.
func Outcomes() []Outcome { return append([]Outcome{Changed, Failed}, outcomes...) }

// Likes sets and reads likes through the gate. It is safe for concurrent use.
type Likes struct {
	redis   *Redis
	store   *models.Store
	limit   int
	now     func() time.Time
	count   func(Outcome)
	warming singleflight.Group
	clocks  []atomic.Pointer[serverClock] // by shard
	log     *slog.Logger
}

// serverClock is the time on a shard's server, as of its last reply, and the local time when the reply arrived.
type serverClock struct {
	ms    int64
	heard time.Time
}

// callLimit is how long a call of the gate may take to reach Redis. The client waits at least as long for the reply, so
// the gate refuses every copy of a call that arrives after the client has given up.
const callLimit = ioTimeout

// deadline returns the end of callLimit on the clock of the shard's server. While that clock is unknown, it returns 0,
// which the gate refuses as late. The deadline counts from the server's last reply, because the local clock may differ
// from the server's, and may be changed. The time since that reply is monotonic time and not LikesOptions.Now, because
// it bounds a call on a connection, as the deadline of a socket does.
func (l *Likes) deadline(shard int) int64 {
	clock := l.clocks[shard].Load()
	if clock == nil {
		return 0
	}
	return clock.ms + (time.Since(clock.heard) + callLimit).Milliseconds()
}

// LikesOptions configure Likes. The zero value holds the defaults.
type LikesOptions struct {
	OutboxLimit int              // in events a shard; beyond it the gate refuses likes; 0 means DefaultOutboxLimit
	Now         func() time.Time // the clock; nil means time.Now
	Logger      *slog.Logger     // nil means slog.Default()
	Count       func(Outcome)    // called with every outcome; nil means none
}

// DefaultOutboxLimit is in events. An outbox of that size takes about 15 MB of Redis memory.
const DefaultOutboxLimit = 100_000

// NewLikes returns a gate in front of store.
func NewLikes(r *Redis, store *models.Store, o LikesOptions) *Likes {
	l := &Likes{redis: r, store: store, limit: o.OutboxLimit, now: o.Now, count: o.Count,
		clocks: make([]atomic.Pointer[serverClock], r.shards)}
	if l.limit == 0 {
		l.limit = DefaultOutboxLimit
	}
	if l.now == nil {
		l.now = time.Now
	}
	if l.log = o.Logger; l.log == nil {
		l.log = slog.Default()
	}
	if l.count == nil {
		l.count = func(Outcome) {}
	}
	return l
}

const busy = "The server cannot accept likes at the moment; try again."

// SetLike sets or removes the user's like of the target, and returns the resulting state. Repeating a call changes
// nothing. For a warm target, SetLike makes one round trip to Redis. If the target is deleted or does not exist, it
// returns CodeNotFound. After CodeUnavailable the like may have changed, and it is safe to try again.
func (l *Likes) SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error) {
	want := "0"
	if liked {
		want = "1"
	}
	now := l.now()
	event, err := json.Marshal(models.LikeEvent(target, userID, liked, now))
	if err != nil {
		return models.LikeState{}, fmt.Errorf("encode event: %w", err)
	}
	k := l.redis.keys(target)
	shard := target.Shard(l.redis.shards)
	// A cold target takes two attempts, and so does the first call of a shard, which only learns the server's time.
	// More attempts are needed only if the shard is opened or the target evicted in between.
	for range 5 {
		reply, err := l.redis.run(ctx, "like", []string{k.shard, k.likes, k.users, k.outbox},
			want, userID, event, l.limit, now.UnixMilli(), l.deadline(shard)).Int64Slice()
		if err != nil || len(reply) == 0 {
			l.count(Failed)
			return models.LikeState{}, models.Unavailable(busy, fmt.Errorf("gate of %s: %w", target, err))
		}
		outcome := outcomes[reply[0]]
		if outcome == Unchanged && reply[2] == 1 {
			outcome = Changed
		}
		if outcome != Late || l.clocks[shard].Load() != nil { // the first call of a shard is always late
			l.count(outcome)
		}
		switch outcome {
		case Changed, Unchanged:
			l.clocks[shard].Store(&serverClock{reply[3], time.Now()})
			return models.LikeState{Liked: liked, Count: reply[1]}, nil
		case Gone:
			if err := l.reopen(ctx, target, reply[1]); err != nil {
				return models.LikeState{}, err
			}
			continue
		case Closed:
			return models.LikeState{}, models.Unavailable(
				busy,
				errors.New("the shard is closed until its worker opens it"),
			)
		case Full:
			return models.LikeState{}, models.Unavailable(busy, errors.New("the outbox is full: is Kafka down?"))
		case Late:
			l.clocks[shard].Store(&serverClock{reply[1], time.Now()})
			continue
		case Damaged:
			if err := l.forgetDamaged(ctx, target); err != nil {
				return models.LikeState{}, models.Unavailable(busy, err)
			}
		}
		if err := l.warm(ctx, target); err != nil {
			return models.LikeState{}, err
		}
	}
	return models.LikeState{}, models.Unavailable(busy, fmt.Errorf("%s does not stay warm", target))
}

// forgetDamaged evicts a target whose keys contradict each other, if MySQL has all its accepted changes.
func (l *Likes) forgetDamaged(ctx context.Context, target models.Target) error {
	state, err := l.store.ShardState(ctx, target.Shard(l.redis.shards))
	if err != nil {
		return err
	}
	forgotten, err := l.redis.Forget(ctx, target, state.Applied)
	if err == nil && !forgotten {
		err = errors.New("its last change is not in MySQL yet")
	}
	if err != nil {
		return fmt.Errorf("%s is damaged in redis: %w", target, err)
	}
	l.log.ErrorContext(ctx, "the keys of a target contradicted each other; it is warmed from MySQL again",
		"target", target.String())
	return nil
}

const (
	warmLock  = 10 * time.Second // after which the lock of a silent loader expires
	warmLimit = 30 * time.Second // for loading a target: about ten million likers
	warmChunk = 10_000           // users a round trip
)

// warm loads a cold target from MySQL. Concurrent callers share one load: by singleflight in this process, and by a
// lock among processes.
func (l *Likes) warm(ctx context.Context, target models.Target) error {
	result := l.warming.DoChan(target.String(), func() (any, error) {
		// The load serves all waiting callers, so it must not end with the context of the first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), warmLimit)
		defer cancel()
		return nil, l.load(ctx, target)
	})
	select {
	case r := <-result:
		if r.Err != nil && models.ErrorCode(r.Err) == models.CodeInternal {
			return models.Unavailable(busy, fmt.Errorf("warm %s: %w", target, r.Err))
		}
		return r.Err
	case <-ctx.Done():
		return models.Unavailable(busy, fmt.Errorf("warm %s: %w", target, ctx.Err()))
	}
}

func (l *Likes) load(ctx context.Context, target models.Target) error {
	k, r := l.redis.keys(target), l.redis
	// This comes first, so that an unknown id leaves no key behind, and costs no more than this query.
	open, err := l.store.TargetOpen(ctx, target)
	if err != nil {
		return err
	}
	if !open {
		return models.Errorf(models.CodeNotFound, "There is no such %s.", target.Kind)
	}
	lock, err := r.locks.Obtain(ctx, k.warming, warmLock, &redislock.Options{
		RetryStrategy: redislock.ExponentialBackoff(4*time.Millisecond, 200*time.Millisecond)})
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	defer func() {
		// The lock expires by itself. Its release only spares the next caller a wait.
		if err := lock.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, redislock.ErrLockNotHeld) {
			l.log.WarnContext(ctx, "warming lock not released", "target", target.String(), "error", err)
		}
	}()
	state, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HGet(ctx, k.shard, "epoch")
		p.Exists(ctx, k.likes)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return nil // the shard is closed: the next attempt at the gate returns Closed
	}
	if err != nil {
		return fmt.Errorf("read shard: %w", err)
	}
	epoch := state[0].(*redis.StringCmd).Val()
	if state[1].(*redis.IntCmd).Val() == 1 {
		return nil // the previous holder of the lock loaded it
	}
	// Again under the lock: an earlier deletion had no warming lock to delete.
	if open, err = l.store.TargetOpen(ctx, target); err != nil {
		return err
	} else if !open {
		return models.Errorf(models.CodeNotFound, "There is no such %s.", target.Kind)
	}

	loading := k.likes[:len(k.likes)-len("likes")] + "loading:" + lock.Token()
	for after := int64(0); ; {
		ids, err := l.store.LikerIDs(ctx, target, after, warmChunk)
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			after = ids[len(ids)-1]
			members := make([]any, len(ids))
			for i, id := range ids {
				members[i] = id
			}
			if _, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.SAdd(ctx, loading, members...)
				p.Expire(ctx, loading, time.Minute)
				return nil
			}); err != nil {
				return fmt.Errorf("load users: %w", err)
			}
		}
		if len(ids) < warmChunk {
			break
		}
		if err := lock.Refresh(ctx, warmLock, nil); err != nil {
			return fmt.Errorf("keep lock: %w", err)
		}
	}
	keys := []string{k.shard, k.likes, k.users, loading, k.warming}
	warm, err := r.run(ctx, "warm", keys, lock.Token(), epoch, l.now().UnixMilli()).Int()
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	if warm == 0 {
		l.log.InfoContext(ctx, "target was closed or its lock lost while it was loaded", "target", target.String())
	}
	return nil
}

// OpenTarget warms a target that was just created. After an error the target is cold, and warms on its first like.
func (l *Likes) OpenTarget(ctx context.Context, target models.Target, createdAt time.Time) error {
	k := l.redis.keys(target)
	if err := l.redis.run(ctx, "open", []string{k.shard, k.likes, k.users}, createdAt.Unix(), l.now().UnixMilli()).
		Err(); err != nil {
		return fmt.Errorf("open %s: %w", target, err)
	}
	return nil
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

// reopen opens a closed target in the gate if the target was restored. Otherwise it returns CodeNotFound. So restoring
// a post need not open all its comments, and a target that a delayed process closed after the restoration opens again.
// It costs one query of one row. Concurrent callers do not share the query, because a call after a restoration must not
// use a result from before it.
func (l *Likes) reopen(ctx context.Context, target models.Target, mark int64) error {
	open, err := l.store.TargetOpen(ctx, target)
	if err != nil {
		return err
	}
	if !open {
		return models.Errorf(models.CodeNotFound, "There is no such %s.", target.Kind)
	}
	if err := l.redis.run(ctx, "reopen", []string{l.redis.keys(target).likes}, mark).Err(); err != nil {
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
	type reply struct {
		epoch *redis.StringCmd
		likes *redis.SliceCmd
		liked *redis.BoolCmd
	}
	replies := make([]reply, 0, len(targets))
	epochs := map[string]*redis.StringCmd{}
	asking, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	_, err := l.redis.client.Pipelined(asking, func(p redis.Pipeliner) error {
		for _, target := range targets {
			k := l.redis.keys(target)
			if epochs[k.shard] == nil {
				epochs[k.shard] = p.HGet(asking, k.shard, "epoch")
			}
			r := reply{epoch: epochs[k.shard], likes: p.HMGet(asking, k.likes, "count", "closed")}
			if viewer != 0 {
				r.liked = p.SIsMember(asking, k.users, viewer)
			}
			replies = append(replies, r)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		l.log.WarnContext(ctx, "Redis does not answer: likes are read from MySQL", "error", err)
	}
	states := make([]heldState, len(targets))
	for i, r := range replies {
		states[i].target = targets[i]
		if r.epoch.Err() != nil || r.likes.Err() != nil || r.liked != nil && r.liked.Err() != nil {
			continue
		}
		values := r.likes.Val()
		text, _ := values[0].(string) // nil if the target is cold
		count, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue
		}
		states[i] = heldState{
			LikeState: models.LikeState{Count: count, Liked: r.liked != nil && r.liked.Val()},
			target:    targets[i], known: true, gone: values[1] != nil,
		}
	}
	return states
}
