package counters

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// loader makes cold targets warm. Targets that are asked for while it works are loaded together: two queries and two
// scripts for up to loadTargets of them, or in a cluster two scripts for each shard. A target of many likers is loaded
// by itself, beside the others.
//
// The lock of a target keeps two processes from loading it at once. It is taken before MySQL is read, and a deletion
// takes it away, so that nothing read before the deletion is put in place after it. The loader writes the users into
// sets that no target uses yet; one script then makes them those of the target. Sets of a load that was given up are
// garbage, and swept.
type loader struct {
	gate    *shardGate
	loading loading
	large   chan struct{} // held by each load of a large target

	mu      sync.Mutex
	waiting []load
	running bool
}

// loading reads what the gate keeps of targets, and writes it into Redis: likeLoading or dropLoading.
type loading interface {
	// sizes returns the numbers of users of those targets that exist and are not deleted.
	sizes(ctx context.Context, targets []models.Target) (map[models.Target]int64, error)
	// read reads targets, and returns a function that makes them warm.
	read(ctx context.Context, targets []models.Target) (place warming, err error)
	// large makes a target of many users warm. It calls keep before each step, with the number of sets that are about
	// to be written, and returns its error.
	large(ctx context.Context, target models.Target, token, epoch string, keep func(sets int) error) error
}

// warming adds the commands that make targets warm to a pipeline. It returns a function for each target, to be called
// after the pipeline. This reports whether the target is warm. If not, what was read may be old.
type warming func(ctx context.Context, p pipe, batch []load, token string) []func() (warm bool, err error)

// load is a target that is to be loaded, with a function to call before MySQL is asked, and one for the outcome.
type load struct {
	target models.Target
	asked  func()
	done   func(error)
	open   bool   // it was, when MySQL was asked while another process held its lock
	epoch  string // of its shard, when its lock was taken
}

const (
	loadTargets = 64               // targets at once
	loadUsers   = 5_000            // likers of a target that is loaded with others
	loadLarge   = 2                // large targets at once
	loadLock    = 10 * time.Second // a loader that is silent for this long has lost the target
	loadLimit   = 8 * time.Second  // for targets that are loaded together
	largeLimit  = 10 * time.Minute // for a large target: far more than 10 million likers
	largePage   = 250              // likers a query
	largeSets   = 4                // sets a round trip: 40 µs of Redis, which other likes have to wait for
	loadAgain   = 10 * time.Millisecond
)

func newLoader(g *shardGate, kind loading) *loader {
	return &loader{gate: g, loading: kind, large: make(chan struct{}, loadLarge)}
}

// add loads a target. It calls asked right before MySQL is asked whether the target exists, and then done: with nil if
// the gate is to be asked again, with CodeNotFound if the target is deleted or does not exist, and with CodeUnavailable
// if it cannot be loaded.
func (l *loader) add(target models.Target, asked func(), done func(error)) {
	l.queue(load{target: target, asked: asked, done: done})
}

func (l *loader) queue(item load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, item)
	if !l.running {
		l.running = true
		go l.run()
	}
}

func (l *loader) run() {
	for {
		l.mu.Lock()
		n := min(len(l.waiting), loadTargets)
		if n == 0 {
			l.waiting, l.running = nil, false
			l.mu.Unlock()
			return
		}
		batch := l.waiting[:n:n]
		l.waiting = l.waiting[n:]
		l.mu.Unlock()
		l.together(batch)
	}
}

// together loads some targets.
func (l *loader) together(batch []load) {
	ctx, cancel := context.WithTimeout(context.Background(), loadLimit)
	defer cancel()
	token := strings.ToLower(rand.Text()[:10])
	locked, held := l.lock(ctx, token, batch)
	var targets []models.Target
	for _, item := range slices.Concat(locked, held) {
		if !item.open {
			targets = append(targets, item.target)
			item.asked()
		}
	}
	sizes, err := l.loading.sizes(ctx, targets)
	if err != nil {
		l.unlock(ctx, token, locked, false)
		l.fail(slices.Concat(locked, held), err)
		return
	}
	var small, gone []load
	for _, item := range held {
		if _, open := sizes[item.target]; !open && !item.open {
			item.done(models.NotFound(item.target.Kind))
			continue
		}
		item.open = true
		time.AfterFunc(loadAgain, func() { l.queue(item) })
	}
	targets = targets[:0]
	for _, item := range locked {
		size, open := sizes[item.target]
		switch {
		case !open:
			gone = append(gone, item)
		case size > loadUsers:
			go l.alone(item, token)
		default:
			small, targets = append(small, item), append(targets, item.target)
		}
	}
	l.unlock(ctx, token, gone, true)
	for _, item := range gone {
		item.done(models.NotFound(item.target.Kind))
	}
	if len(small) == 0 {
		return
	}
	place, err := l.loading.read(ctx, targets)
	if err != nil {
		l.unlock(ctx, token, small, false)
		l.fail(small, err)
		return
	}
	l.warmTogether(ctx, token, small, place)
}

func (l *loader) fail(batch []load, err error) {
	for _, item := range batch {
		item.done(models.Unavailable(l.gate.busy, fmt.Errorf("load %s: %w", item.target, err)))
	}
}

// lock takes the locks of targets. It returns the targets whose lock it got, and those whose lock another process
// holds. It finishes targets that are warm or whose shard is closed, and fails those of which Redis did not reply.
func (l *loader) lock(ctx context.Context, token string, batch []load) (locked, held []load) {
	calls := inCalls(l.gate.redis, batch)
	replies := make([]*redis.Cmd, len(calls))
	_ = l.gate.redis.pipelined(ctx, func(p pipe) { // each reply has its error
		for i, call := range calls {
			var keys []string
			for _, item := range call {
				k := l.gate.redis.keys(item.target)
				keys = append(keys, k.warming, k.shard, k.likes)
			}
			replies[i] = p.script(ctx, "lock", keys, token, loadLock.Milliseconds())
		}
	})
	var ready, free []load
	for i, call := range calls {
		for j, item := range call {
			values, err := ofTarget[[]any](replies[i], j)
			if err == nil && len(values) != 3 {
				err = fmt.Errorf("%d values instead of 3", len(values))
			}
			if err != nil {
				free = append(free, item)
				l.fail([]load{item}, err)
				continue
			}
			mine, warm := values[0] == int64(1), values[2] == int64(1)
			item.epoch, _ = values[1].(string)
			switch {
			case !mine && !warm && item.epoch != "":
				held = append(held, item)
			case warm || item.epoch == "": // the gate replies so
				free = append(free, item)
				ready = append(ready, item)
			default:
				item.open = false // a deletion since then has taken the lock away
				locked = append(locked, item)
			}
		}
	}
	l.unlock(ctx, token, free, false)
	for _, item := range ready {
		item.done(nil)
	}
	return locked, held
}

// inCalls divides targets into calls of a script. Keys of several shards are on one node, except in a cluster.
func inCalls(r *Redis, batch []load) [][]load {
	if _, cluster := r.client.(*redis.ClusterClient); !cluster {
		return [][]load{batch}
	}
	byShard := map[int][]load{}
	for _, item := range batch {
		shard := item.target.Shard(r.shards)
		byShard[shard] = append(byShard[shard], item)
	}
	return slices.Collect(maps.Values(byShard))
}

// ofTarget returns what a script replied to one of its targets.
func ofTarget[T any](reply *redis.Cmd, i int) (value T, err error) {
	values, err := reply.Slice()
	if err != nil {
		return value, err
	}
	if i >= len(values) {
		return value, fmt.Errorf("redis replied to %d targets", len(values))
	}
	if err, failed := values[i].(error); failed {
		return value, err
	}
	value, ok := values[i].(T)
	if !ok {
		err = fmt.Errorf("redis replied %v", values[i])
	}
	return value, err
}

// unlock releases locks. They expire by themselves; this only saves the next loader a wait. Of targets that are gone,
// it also removes the tickets, so that an id that never existed leaves no key.
func (l *loader) unlock(ctx context.Context, token string, batch []load, gone bool) {
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
	defer cancel()
	err := l.gate.redis.pipelined(ctx, func(p pipe) {
		for _, item := range batch {
			k := l.gate.redis.keys(item.target)
			lock := l.gate.redis.lock(k.warming, token)
			if gone {
				lock.releaseIn(ctx, p, k.likes+":waiting")
			} else {
				lock.releaseIn(ctx, p)
			}
		}
	})
	if err != nil {
		l.gate.log.DebugContext(ctx, "locks of loads not released", "error", err)
	}
}

// warmTogether writes the users of targets into Redis, makes the targets warm, in one round trip, and finishes them. If
// a key of one target has a wrong type, or a node of the cluster does not answer, the other targets are warm all the
// same.
func (l *loader) warmTogether(ctx context.Context, token string, batch []load, place warming) {
	var placed []func() (bool, error)
	_ = l.gate.redis.pipelined(ctx, func(p pipe) { placed = place(ctx, p, batch, token) }) // each has its error
	var failed, done []load
	for i, item := range batch {
		warm, err := placed[i]()
		switch {
		case err != nil:
			failed = append(failed, item)
			l.fail([]load{item}, err)
			continue
		case !warm:
			l.refused(ctx, item)
			failed = append(failed, item)
		}
		done = append(done, item)
	}
	l.unlock(ctx, token, failed, false)
	for _, item := range done {
		item.done(nil)
	}
}

// allOf returns the outcome of commands, the last of which replies 0 if the target is not warm.
func allOf(commands []redis.Cmder) (warm bool, err error) {
	for _, c := range commands {
		if c.Err() != nil {
			return false, c.Err()
		}
	}
	n, err := commands[len(commands)-1].(*redis.Cmd).Int()
	return n != 0, err
}

// refused logs a load that did not make its target warm: what was read may be old. The gate is asked again.
func (l *loader) refused(ctx context.Context, item load) {
	l.gate.log.InfoContext(ctx, "target was closed, or its lock was lost, while it was loaded",
		"target", item.target.String())
}

// put adds a set of a load to a pipeline: its users, and 0. It sorts users.
func (r *Redis) put(ctx context.Context, p pipe, k targetKeys, token string, set int, users []int64) *redis.Cmd {
	return p.script(ctx, "put", []string{k.warming, setKey(k.likes, token, set)}, token, dumpSet(users))
}

// alone loads a target of many likers: pages of its users into memory, some 20 bytes each, and then set by set into
// Redis.
func (l *loader) alone(item load, token string) {
	ctx, cancel := context.WithTimeout(context.Background(), largeLimit)
	defer cancel()
	err := l.awaitLarge(ctx, item.target, token)
	if err == nil {
		noted, due := -1, time.Time{} // each extension is a round trip
		err = l.loading.large(ctx, item.target, token, item.epoch, func(sets int) error {
			if now := time.Now(); sets != noted || now.After(due) {
				noted, due = sets, now.Add(loadLock/10)
				return l.keep(ctx, item.target, token, sets)
			}
			return nil
		})
		<-l.large
	}
	if err != nil {
		l.unlock(ctx, token, []load{item}, false)
	}
	switch {
	case errors.Is(err, ErrLockLost): // often to a deletion
		l.refused(ctx, item)
		item.done(nil)
	case err != nil:
		l.fail([]load{item}, err)
	default:
		item.done(nil)
	}
}

// awaitLarge waits until fewer than loadLarge targets are being loaded, and keeps the lock meanwhile.
func (l *loader) awaitLarge(ctx context.Context, target models.Target, token string) error {
	for {
		select {
		case l.large <- struct{}{}:
			return nil
		case <-time.After(loadLock / 3):
		}
		if err := l.keep(ctx, target, token, 0); err != nil {
			return err
		}
	}
}

// keep extends the lock of a target, and notes how many sets the load is about to write. It returns ErrLockLost if the
// lock is lost.
func (l *loader) keep(ctx context.Context, target models.Target, token string, sets int) error {
	k := l.gate.redis.keys(target)
	kept, err := l.gate.redis.run(ctx, "load", []string{k.warming, k.garbage, k.likes},
		token, loadLock.Milliseconds(), sets).Int()
	if err == nil && kept == 0 {
		err = ErrLockLost
	}
	return err
}

// likeLoading loads the users who like posts and comments.
type likeLoading struct {
	redis *Redis
	store *db.DB
}

func (l likeLoading) sizes(ctx context.Context, targets []models.Target) (map[models.Target]int64, error) {
	states, err := likes.New(l.store).StatesOf(ctx, 0, targets)
	sizes := make(map[models.Target]int64, len(states))
	for target, state := range states {
		sizes[target] = state.Count
	}
	return sizes, err
}

func (l likeLoading) read(ctx context.Context, targets []models.Target) (warming, error) {
	users, err := likes.New(l.store).LikersOf(ctx, targets)
	return func(ctx context.Context, p pipe, batch []load, token string) []func() (bool, error) {
		placed := map[models.Target]func() (bool, error){}
		small := slices.DeleteFunc(slices.Clone(batch), func(item load) bool {
			return setsFor(len(users[item.target])) > 1
		})
		for _, call := range inCalls(l.redis, small) {
			l.warmSmall(ctx, p, call, users, token, placed)
		}
		return eachOf(batch, func(item load) func() (bool, error) {
			if of := placed[item.target]; of != nil {
				return of
			}
			commands := l.warmSets(ctx, p, item, users[item.target], token)
			return func() (bool, error) { return allOf(commands) }
		})
	}, err
}

// warmSmall makes targets warm whose users are one set.
func (l likeLoading) warmSmall(
	ctx context.Context, p pipe, batch []load, users map[models.Target][]int64, token string,
	placed map[models.Target]func() (bool, error),
) {
	if len(batch) == 0 {
		return
	}
	keys, args := []string(nil), []any{token}
	for _, item := range batch {
		k, list := l.redis.keys(item.target), users[item.target]
		keys = append(keys, k.shard, k.likes, k.warming, setKey(k.likes, token, 0))
		args = append(args, item.epoch, len(list), dumpSet(list))
	}
	reply := p.script(ctx, "place", keys, args...)
	for i, item := range batch {
		placed[item.target] = func() (bool, error) {
			n, err := ofTarget[int64](reply, i)
			return n == 1, err
		}
	}
}

// warmSets makes a target warm whose users are many sets.
func (l likeLoading) warmSets(ctx context.Context, p pipe, item load, users []int64, token string) []redis.Cmder {
	k, sets := l.redis.keys(item.target), setsFor(len(users))
	commands := []redis.Cmder{l.redis.noteLoad(ctx, p, k, token, sets)}
	for _, part := range spread(users, sets) {
		commands = append(commands, l.redis.put(ctx, p, k, token, part.set, part.users))
	}
	return append(commands, p.script(ctx, "warm",
		[]string{k.shard, k.likes, k.warming, k.garbage}, token, item.epoch, sets, len(users)))
}

// eachOf returns the result of f for each element of a list.
func eachOf[E, R any](list []E, f func(E) R) []R {
	results := make([]R, len(list))
	for i, item := range list {
		results[i] = f(item)
	}
	return results
}

// noteLoad adds the script load to a pipeline.
func (r *Redis) noteLoad(ctx context.Context, p pipe, k targetKeys, token string, sets int) *redis.Cmd {
	return p.script(ctx, "load", []string{k.warming, k.garbage, k.likes},
		token, loadLock.Milliseconds(), sets)
}

func (l likeLoading) large(
	ctx context.Context, target models.Target, token, epoch string, keep func(sets int) error,
) error {
	r := l.redis
	k := r.keys(target)
	var users []int64
	for after := int64(0); ; {
		if err := keep(0); err != nil {
			return err
		}
		page, err := likes.New(l.store).LikerIDs(ctx, target, after, largePage)
		if err != nil {
			return err
		}
		users = append(users, page...)
		if len(page) < largePage {
			break
		}
		after = page[len(page)-1]
	}
	sets := setsFor(len(users))
	for parts := range slices.Chunk(spread(users, sets), largeSets) {
		if err := keep(sets); err != nil {
			return err
		}
		err := r.pipelined(ctx, func(p pipe) {
			for _, part := range parts {
				r.put(ctx, p, k, token, part.set, part.users)
			}
		})
		if err != nil {
			return fmt.Errorf("load users: %w", err)
		}
	}
	keys := []string{k.shard, k.likes, k.warming, k.garbage}
	warm, err := r.run(ctx, "warm", keys, token, epoch, sets, len(users)).Int()
	if err == nil && warm == 0 {
		err = ErrLockLost
	}
	return err
}
