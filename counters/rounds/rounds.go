// Package rounds lets concurrent calls share work without seeing anything older than themselves.
package rounds

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Batch runs functions, one at a time for each key. A call that arrives while a function runs shares the next run of
// its key with all other calls that wait for it, and adds its argument to those of the run. So no call gets a result of
// a run that began before the call. The zero Batch is ready to use.
type Batch[A, V any] struct {
	// Every is the time from the beginning of a run to that of the next, unless AtOnce arguments wait for it. So a
	// crowd takes fewer runs, and a call that comes alone waits for nothing. 0: a run begins when the one before ends.
	Every  time.Duration
	AtOnce int // with Every, the Batch remembers its keys

	mu   sync.Mutex
	keys map[string]*rounds[A, V]
}

type rounds[A, V any] struct {
	running, next *round[A, V] // nil: none
	began         time.Time    // the last run
}

type round[A, V any] struct {
	args   []A
	full   chan struct{} // closed with the argument after which the run need not wait
	done   chan struct{}
	result V
	err    error
}

// Do returns what run returns in the next run of the key, and the place of arg among the arguments of that run. The run
// is that of the first call that waits for it, and takes place in that call. If ctx ends before the run does, Do
// returns the error of ctx to all but the first call.
func (b *Batch[A, V]) Do(ctx context.Context, key string, arg A, run func(args []A) (V, error)) (V, int, error) {
	b.mu.Lock()
	if b.keys == nil {
		b.keys = map[string]*rounds[A, V]{}
	}
	k := b.keys[key]
	if k == nil {
		k = &rounds[A, V]{}
		b.keys[key] = k
	}
	if mine := k.next; mine != nil {
		place := len(mine.args)
		mine.args = append(mine.args, arg)
		if len(mine.args) == b.AtOnce {
			close(mine.full)
		}
		b.mu.Unlock()
		select {
		case <-mine.done:
			return mine.result, place, mine.err
		case <-ctx.Done():
			var none V
			return none, place, ctx.Err()
		}
	}
	mine := &round[A, V]{args: []A{arg}, full: make(chan struct{}), done: make(chan struct{}),
		err: errors.New("the shared run panicked")}
	before, began := k.running, k.began
	k.next = mine
	b.mu.Unlock()
	if before != nil {
		<-before.done
	}
	if b.Every > 0 {
		select {
		case <-mine.full:
		case <-time.After(time.Until(began.Add(b.Every))):
		}
	}
	b.mu.Lock()
	k.running, k.next, k.began = mine, nil, time.Now()
	b.mu.Unlock()
	defer b.end(key, mine)
	mine.result, mine.err = run(mine.args)
	return mine.result, 0, mine.err
}

func (b *Batch[A, V]) end(key string, mine *round[A, V]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[key]
	k.running = nil
	if k.next == nil && b.Every == 0 {
		delete(b.keys, key)
	}
	close(mine.done)
}

// Group is a Batch whose calls have no arguments. The zero Group is ready to use.
type Group[V any] struct{ batch Batch[struct{}, V] }

// Do returns what run returns in the next run of the key, as Batch.Do.
func (g *Group[V]) Do(ctx context.Context, key string, run func() (V, error)) (V, error) {
	result, _, err := g.batch.Do(ctx, key, struct{}{}, func([]struct{}) (V, error) { return run() })
	return result, err
}
