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
	"likewise/models/db"
	"likewise/models/likes"
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

// Cool evicts the targets that were not liked for idle, on Redis's clock, and whose changes are all in MySQL, according
// to the watermarks of their shards. The watermarks must have been read before the call, and with them that the shards
// are whole. Cool skips targets of shards without a watermark, and returns the number evicted. Sweep removes what is
// left of them.
func (r *Redis) Cool(
	ctx context.Context, targets []models.Target, idle time.Duration, watermarks map[int]models.Position,
) (int, error) {
	var replies []*redis.Cmd
	err := r.pipelined(ctx, func(p pipe) {
		replies = nil
		for _, t := range targets {
			applied, ok := watermarks[t.Shard(r.shards)]
			if !ok {
				continue
			}
			k := r.keys(t)
			replies = append(replies, p.script(ctx, "cool", []string{k.likes, k.garbage},
				applied.Epoch, applied.Seq, idle.Milliseconds()))
		}
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

// Forget makes a target cold if MySQL has everything of it: its last change is at or before the watermark, and its
// shard has no gap and no dead letter, whose events only the gate may still know. It reports whether it did.
func (r *Redis) Forget(ctx context.Context, store *db.DB, target models.Target) (bool, error) {
	state, err := likes.New(store).ShardState(ctx, target.Shard(r.shards))
	if err != nil || !state.Whole() {
		return false, err
	}
	n, err := r.Cool(ctx, []models.Target{target}, 0, map[int]models.Position{state.Shard: state.Applied})
	return n == 1, err
}

// KeepCold reports whether a target is cold. It takes away the lock of a load that has begun, so that what was read
// before the call cannot make the target warm.
func (r *Redis) KeepCold(ctx context.Context, target models.Target) (bool, error) {
	return r.isCold(ctx, target, 1)
}

// IsCold reports whether a target is cold, and no load has begun that could make it warm. A caller that asks often must
// not use KeepCold: a large target, whose load takes seconds, would never become warm.
func (r *Redis) IsCold(ctx context.Context, target models.Target) (bool, error) {
	return r.isCold(ctx, target, 0)
}

func (r *Redis) isCold(ctx context.Context, target models.Target, takeLock int) (bool, error) {
	k := r.keys(target)
	warm, err := r.run(ctx, "cold", []string{k.likes, k.warming}, takeLock).Int()
	if err != nil {
		return false, fmt.Errorf("look whether %s is cold: %w", target, err)
	}
	return warm == 0, nil
}

// RefuseLikes makes the gate refuse likes of a user in all shards until limit is over, on Redis's clock. Unlikes pass.
// A limit is a minute at most.
func (r *Redis) RefuseLikes(ctx context.Context, userID int64, limit time.Duration) error {
	err := r.pipelined(ctx, func(p pipe) {
		for shard := range r.shards {
			p.script(ctx, "refuse", []string{shardKey(shard), refusedKey(shard)}, userID, limit.Milliseconds())
		}
	})
	if err != nil {
		return fmt.Errorf("refuse likes of user %d: %w", userID, err)
	}
	return nil
}

// sweepSets is the number of sets that a script removes, in a fraction of a millisecond.
const sweepSets = 200

// Sweep removes the sets of evicted targets and of loads that were given up, and returns their number. A shard that
// fails does not keep it from the others.
func (r *Redis) Sweep(ctx context.Context) (sets int, err error) {
	var failures []error
	for shard := range r.shards {
		for {
			n, err := r.run(ctx, "sweep", []string{garbageKey(shard)}, sweepSets).Int()
			if err != nil {
				failures = append(failures, fmt.Errorf("sweep shard %d: %w", shard, err))
			}
			if err != nil || n == 0 {
				break
			}
			sets += n
		}
	}
	return sets, errors.Join(failures...)
}

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
	for some := range slices.Chunk(sets, 1000) {
		sizes := make([]*redis.IntCmd, len(some))
		err := r.read(ctx, func(p redis.Pipeliner) {
			for i, one := range some {
				if one.drop {
					sizes[i] = p.HLen(ctx, one.key)
				} else {
					sizes[i] = p.SCard(ctx, one.key)
				}
			}
		})
		if err != nil {
			return fmt.Errorf("read sizes of sets: %w", err)
		}
		for i, one := range some {
			one.state.Users += sizes[i].Val() - 1 // of which one is 0, which is not a user
		}
	}
	return nil
}

// loadOf returns the name and the number of the sets of a target.
func (r *Redis) loadOf(ctx context.Context, target models.Target) (load string, sets int, err error) {
	var values *redis.SliceCmd
	err = r.read(ctx, func(p redis.Pipeliner) { values = p.HMGet(ctx, r.keys(target).likes, "load", "sets") })
	if err != nil {
		return "", 0, fmt.Errorf("read %s: %w", target, err)
	}
	load, _ = values.Val()[0].(string)
	number, _ := values.Val()[1].(string)
	if load == "" {
		return "", 0, fmt.Errorf("read users of %s: %w", target, ErrNotWarm)
	}
	if sets, err = strconv.Atoi(number); err != nil {
		return "", 0, fmt.Errorf("read %s: %w", target, err)
	}
	return load, sets, nil
}

// readSets is the number of sets read in one round trip, with some thousand users.
const readSets = 16

// EachUser calls fn with batches of the users who like a warm target. It may miss those who like it meanwhile, and may
// return a user twice. If the target is cold, or becomes cold meanwhile, EachUser returns ErrNotWarm.
func (r *Redis) EachUser(ctx context.Context, target models.Target, fn func([]int64) error) error {
	load, sets, err := r.loadOf(ctx, target)
	if err != nil {
		return err
	}
	read := map[int]bool{}
	for {
		numbers := slices.DeleteFunc(setNumbers(sets), func(n int) bool { return read[n] })
		if len(numbers) == 0 {
			return nil
		}
		for some := range slices.Chunk(numbers, readSets) {
			ids, err := r.usersOf(ctx, setKeys(r.keys(target).likes, load, some))
			if err != nil {
				return fmt.Errorf("read users of %s: %w", target, err)
			}
			if err := fn(ids); err != nil {
				return err
			}
		}
		for _, n := range numbers {
			read[n] = true
		}
		// A set that was split meanwhile has given users to new ones.
		now, more, err := r.loadOf(ctx, target)
		if err != nil {
			return err
		}
		if now != load {
			return fmt.Errorf("read users of %s: %w", target, ErrNotWarm)
		}
		sets = more
	}
}

// UsersOf returns the users of some targets, as their sets hold them now, in any order. The states are those of the
// targets a moment before. A target that became cold since has no users. All are read in one round trip.
func (r *Redis) UsersOf(ctx context.Context, targets []models.Target, states []TargetState) ([][]int64, error) {
	lists := make([][]*redis.StringSliceCmd, len(targets))
	err := r.read(ctx, func(p redis.Pipeliner) {
		for i, target := range targets {
			lists[i] = nil
			for _, key := range setKeys(r.likesKey(target), states[i].Load, setNumbers(states[i].Sets)) {
				lists[i] = append(lists[i], p.SMembers(ctx, key))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read users of %d targets: %w", len(targets), err)
	}
	users := make([][]int64, len(targets))
	for i, list := range lists {
		if users[i], err = usersIn(list); err != nil {
			return nil, fmt.Errorf("read users of %s: %w", targets[i], err)
		}
	}
	return users, nil
}

// usersOf returns the users of sets.
func (r *Redis) usersOf(ctx context.Context, keys []string) (ids []int64, err error) {
	lists := make([]*redis.StringSliceCmd, len(keys))
	err = r.read(ctx, func(p redis.Pipeliner) {
		for i, key := range keys {
			lists[i] = p.SMembers(ctx, key)
		}
	})
	if err != nil {
		return nil, err
	}
	return usersIn(lists)
}

// usersIn returns the users of sets that were read.
func usersIn(sets []*redis.StringSliceCmd) (ids []int64, err error) {
	for _, set := range sets {
		for _, member := range set.Val() {
			id, err := strconv.ParseInt(member, 10, 64)
			if err != nil {
				return nil, err
			}
			if id != 0 {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// Likers reports which of users like a warm target. The result lacks users whose set is lost. If the target is cold,
// Likers returns ErrNotWarm.
func (r *Redis) Likers(ctx context.Context, target models.Target, users []int64) (map[int64]bool, error) {
	if len(users) == 0 {
		return nil, nil
	}
	load, sets, err := r.loadOf(ctx, target)
	if err != nil {
		return nil, err
	}
	bySet := map[int][]any{}
	for _, user := range users {
		set := setOf(user, sets)
		if bySet[set] == nil {
			bySet[set] = []any{0}
		}
		bySet[set] = append(bySet[set], user)
	}
	replies := make(map[int]*redis.BoolSliceCmd, len(bySet))
	k := r.keys(target)
	err = r.read(ctx, func(p redis.Pipeliner) {
		for set, members := range bySet {
			replies[set] = p.SMIsMember(ctx, setKey(k.likes, load, set), members...)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read users of %s: %w", target, err)
	}
	liked := make(map[int64]bool, len(users))
	for set, members := range bySet {
		in := replies[set].Val()
		if !in[0] {
			continue // it is lost
		}
		for i, user := range members[1:] {
			liked[user.(int64)] = in[i+1]
		}
	}
	return liked, nil
}

// Errors of Reassert and of reading warm targets.
var (
	ErrNotWarm     = errors.New("the target is not warm")
	ErrShardClosed = errors.New("the shard is closed")
)

// Reassert sends the current state of users' likes of a warm target through the pipeline again. Events hold the
// resulting state, so additional events change nothing. Users whose set is lost are left out. If the target is cold, or
// its counter is lost, Reassert returns ErrNotWarm. If its shard is closed, it returns ErrShardClosed.
func (l *Likes) Reassert(ctx context.Context, target models.Target, users []int64) error {
	return l.reassert(ctx, target, users, "")
}

// ReassertEvent is Reassert for the like of an event that MySQL lacks, at a position. If the target was loaded after
// it, the gate does not know the event, and ReassertEvent returns ErrNotWarm.
func (l *Likes) ReassertEvent(ctx context.Context, target models.Target, user int64, at models.Position) error {
	return l.reassert(ctx, target, []int64{user}, at.String())
}

func (l *Likes) reassert(ctx context.Context, target models.Target, users []int64, known string) error {
	k := l.redis.keys(target)
	for some := range slices.Chunk(users, maxBatch) {
		args := []any{l.limit, target.Short(), known}
		for _, user := range some {
			args = append(args, user)
		}
		n, err := l.redis.run(ctx, "reassert", []string{k.shard, k.outbox, k.likes}, args...).Int()
		switch {
		case err != nil:
			return fmt.Errorf("reassert %s: %w", target, err)
		case n == -4:
			return models.Unavailable(busy, errors.New("the outbox is full"))
		case n == -1:
			return fmt.Errorf("reassert %s: %w", target, ErrShardClosed)
		case n < 0:
			return fmt.Errorf("reassert %s: %w", target, ErrNotWarm)
		}
	}
	return nil
}
