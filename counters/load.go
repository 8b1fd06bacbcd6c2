package counters

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// loader makes cold targets warm. Targets that are asked for while it works are loaded together: one query and two
// round trips for up to loadTargets of them. A target of many likers is loaded by itself, beside the others.
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
	// read reads targets. place adds the commands that make one of them warm to a pipeline, and returns these. The last
	// one replies 0 if what was read may be old.
	read(ctx context.Context, targets []models.Target) (place placing, err error)
	// large makes a target of many users warm. It calls keep before each step, with the number of sets that are about
	// to be written, and returns its error.
	large(ctx context.Context, target models.Target, token, epoch string, keep func(sets int) error) error
}

type placing func(ctx context.Context, p pipe, target models.Target, token, epoch string) []redis.Cmder

// load is a target that is to be loaded, with a function to call before MySQL is asked, and one for the outcome.
type load struct {
	target models.Target
	asked  func()
	done   func(error)
	open   bool // it was, when MySQL was asked while another process held its lock
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

func (l *loader) queue(one load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, one)
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
		some := l.waiting[:n:n]
		l.waiting = l.waiting[n:]
		l.mu.Unlock()
		l.together(some)
	}
}

// together loads some targets.
func (l *loader) together(some []load) {
	ctx, cancel := context.WithTimeout(context.Background(), loadLimit)
	defer cancel()
	token := strings.ToLower(rand.Text()[:10])
	locked, held, epochs := l.lock(ctx, token, some)
	var targets []models.Target
	for _, one := range slices.Concat(locked, held) {
		if !one.open {
			targets = append(targets, one.target)
			one.asked()
		}
	}
	sizes, err := l.loading.sizes(ctx, targets)
	if err != nil {
		l.unlock(ctx, token, locked, false)
		l.fail(slices.Concat(locked, held), err)
		return
	}
	var small, gone []load
	for _, one := range held {
		if _, open := sizes[one.target]; !open && !one.open {
			one.done(models.NotFound(one.target.Kind))
			continue
		}
		one.open = true
		time.AfterFunc(loadAgain, func() { l.queue(one) })
	}
	targets = targets[:0]
	for _, one := range locked {
		size, open := sizes[one.target]
		switch {
		case !open:
			gone = append(gone, one)
		case size > loadUsers:
			go l.alone(one, token, epochs[one.target])
		default:
			small, targets = append(small, one), append(targets, one.target)
		}
	}
	l.unlock(ctx, token, gone, true)
	for _, one := range gone {
		one.done(models.NotFound(one.target.Kind))
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
	l.place(ctx, token, small, epochs, place)
}

func (l *loader) fail(some []load, err error) {
	for _, one := range some {
		one.done(models.Unavailable(l.gate.busy, fmt.Errorf("load %s: %w", one.target, err)))
	}
}

// lock takes the locks of targets. It returns the targets whose lock it got, with the epochs of their shards, and those
// whose lock another process holds. It finishes targets that are warm or whose shard is closed, and fails those of
// which Redis did not reply.
func (l *loader) lock(
	ctx context.Context, token string, some []load,
) (locked, held []load, epochs map[models.Target]string) {
	type reply struct {
		locked *redis.Cmd
		epoch  *redis.StringCmd
		warm   *redis.IntCmd
	}
	replies := make([]reply, len(some))
	_ = l.gate.redis.pipelined(ctx, func(p pipe) { // each reply has its error
		for i, one := range some {
			k := l.gate.redis.keys(one.target)
			lock := l.gate.redis.lock(k.warming, token)
			replies[i] = reply{ // a retry of the pipeline finds its own lock
				locked: lock.holdIn(ctx, p, loadLock),
				epoch:  p.HGet(ctx, k.shard, "epoch"),
				warm:   p.Exists(ctx, k.likes),
			}
		}
	})
	var ready, free []load
	epochs = map[models.Target]string{}
	for i, one := range some {
		epoch, warm := replies[i].epoch.Val(), replies[i].warm.Val() == 1
		mine, err := replies[i].locked.Int()
		if missing := replies[i].epoch.Err(); !errors.Is(missing, redis.Nil) {
			err = errors.Join(err, missing)
		}
		if err := errors.Join(err, replies[i].warm.Err()); err != nil {
			free = append(free, one)
			l.fail([]load{one}, err)
			continue
		}
		switch {
		case mine == 0 && !warm && epoch != "":
			held = append(held, one)
			continue
		case warm || epoch == "": // the gate replies so
			free = append(free, one)
			ready = append(ready, one)
			continue
		}
		one.open = false // a deletion since then has taken the lock away
		locked = append(locked, one)
		epochs[one.target] = epoch
	}
	l.unlock(ctx, token, free, false)
	for _, one := range ready {
		one.done(nil)
	}
	return locked, held, epochs
}

// unlock releases locks. They expire by themselves; this only saves the next loader a wait. Of targets that are gone,
// it also removes the tickets, so that an id that never existed leaves no key.
func (l *loader) unlock(ctx context.Context, token string, some []load, gone bool) {
	if len(some) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
	defer cancel()
	err := l.gate.redis.pipelined(ctx, func(p pipe) {
		for _, one := range some {
			k := l.gate.redis.keys(one.target)
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

// place writes the users of targets into Redis, makes the targets warm, in one round trip, and finishes them. If a key
// of one target has a wrong type, or a node of the cluster does not answer, the other targets are warm all the same.
func (l *loader) place(
	ctx context.Context, token string, some []load, epochs map[models.Target]string, place placing,
) {
	replies := make([][]redis.Cmder, len(some))
	err := l.gate.redis.pipelined(ctx, func(p pipe) {
		for i, one := range some {
			replies[i] = place(ctx, p, one.target, token, epochs[one.target])
		}
	})
	var failed, refused, warmed []load
	for i, one := range some {
		if wrong := slices.IndexFunc(replies[i], func(c redis.Cmder) bool { return c.Err() != nil }); wrong >= 0 {
			err = replies[i][wrong].Err()
			failed = append(failed, one)
			continue
		}
		if n, _ := replies[i][len(replies[i])-1].(*redis.Cmd).Int(); n == 0 {
			l.refused(ctx, one)
			refused = append(refused, one)
			continue
		}
		warmed = append(warmed, one)
	}
	l.unlock(ctx, token, slices.Concat(failed, refused), false)
	l.fail(failed, err)
	for _, one := range slices.Concat(warmed, refused) {
		one.done(nil)
	}
}

// refused logs a load that did not make its target warm: what was read may be old. The gate is asked again.
func (l *loader) refused(ctx context.Context, one load) {
	l.gate.log.InfoContext(ctx, "target was closed, or its lock was lost, while it was loaded",
		"target", one.target.String())
}

// put adds a set of a load to a pipeline: its users, and 0. It sorts users.
func (r *Redis) put(ctx context.Context, p pipe, k targetKeys, token string, set int, users []int64) *redis.Cmd {
	return p.script(ctx, "put", []string{k.warming, setKey(k.likes, token, set)}, token, dumpSet(users))
}

// alone loads a target of many likers: pages of its users into memory, some 20 bytes each, and then set by set into
// Redis.
func (l *loader) alone(one load, token, epoch string) {
	ctx, cancel := context.WithTimeout(context.Background(), largeLimit)
	defer cancel()
	err := l.turn(ctx, one.target, token)
	if err == nil {
		noted, due := -1, time.Time{} // each extension is a round trip
		err = l.loading.large(ctx, one.target, token, epoch, func(sets int) error {
			if now := time.Now(); sets != noted || now.After(due) {
				noted, due = sets, now.Add(loadLock/10)
				return l.keep(ctx, one.target, token, sets)
			}
			return nil
		})
		<-l.large
	}
	if err != nil {
		l.unlock(ctx, token, []load{one}, false)
	}
	switch {
	case errors.Is(err, ErrLockLost): // often to a deletion
		l.refused(ctx, one)
		one.done(nil)
	case err != nil:
		l.fail([]load{one}, err)
	default:
		one.done(nil)
	}
}

// turn waits until fewer than loadLarge targets are being loaded, and keeps the lock meanwhile.
func (l *loader) turn(ctx context.Context, target models.Target, token string) error {
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
	store *models.Store
}

func (l likeLoading) sizes(ctx context.Context, targets []models.Target) (map[models.Target]int64, error) {
	states, err := l.store.StatesOf(ctx, 0, targets)
	sizes := make(map[models.Target]int64, len(states))
	for target, state := range states {
		sizes[target] = state.Count
	}
	return sizes, err
}

func (l likeLoading) read(ctx context.Context, targets []models.Target) (placing, error) {
	users, err := l.store.LikersOf(ctx, targets)
	r := l.redis
	return func(ctx context.Context, p pipe, target models.Target, token, epoch string) []redis.Cmder {
		k, list := r.keys(target), users[target]
		sets := setsFor(len(list))
		replies := []redis.Cmder{r.noteLoad(ctx, p, k, token, sets)}
		for _, part := range spread(list, sets) {
			replies = append(replies, r.put(ctx, p, k, token, part.set, part.users))
		}
		return append(replies, p.script(ctx, "warm",
			[]string{k.shard, k.likes, k.warming, k.garbage}, token, epoch, sets, len(list)))
	}, err
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
		page, err := l.store.LikerIDs(ctx, target, after, largePage)
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
