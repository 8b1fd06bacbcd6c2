// Package rounds lets concurrent calls share work without seeing anything older than themselves.
package rounds

import (
	"context"
	"errors"
	"sync"
)

// Group runs functions, one at a time for each key. A call that arrives while a function runs shares the next run of
// its key with all other calls that wait for it. So no call gets a result of a run that began before the call. The zero
// Group is ready to use.
type Group[V any] struct {
	mu   sync.Mutex
	keys map[string]*rounds[V]
}

type rounds[V any] struct {
	running, next *round[V] // nil: none
}

type round[V any] struct {
	done   chan struct{}
	result V
	err    error
}

// Do returns what run returns in the next run of the key. The run is that of the first call that waits for it, and
// takes place in that call. If ctx ends before the run does, Do returns the error of ctx to all but the first call.
func (g *Group[V]) Do(ctx context.Context, key string, run func() (V, error)) (V, error) {
	g.mu.Lock()
	if g.keys == nil {
		g.keys = map[string]*rounds[V]{}
	}
	k := g.keys[key]
	if k == nil {
		k = &rounds[V]{}
		g.keys[key] = k
	}
	if mine := k.next; mine != nil {
		g.mu.Unlock()
		select {
		case <-mine.done:
			return mine.result, mine.err
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
	mine, before := &round[V]{done: make(chan struct{}), err: errors.New("the shared run panicked")}, k.running
	k.next = mine
	g.mu.Unlock()
	if before != nil {
		<-before.done
	}
	g.mu.Lock()
	k.running, k.next = mine, nil
	g.mu.Unlock()
	defer g.end(key, mine)
	mine.result, mine.err = run()
	return mine.result, mine.err
}

func (g *Group[V]) end(key string, mine *round[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.keys[key]
	k.running = nil
	if k.next == nil {
		delete(g.keys, key)
	}
	close(mine.done)
}
