package admission

import (
	"context"
	"sync"

	"likewise/models"
)

// Share bounds how many expensive requests use the database at once. The others wait, so that a cheap request
// finds a free connection. A request whose pages are shared does not use the database, and does not wait. The bound on
// the requests in flight of an address limits how many of its requests wait.
//
// A request may hold its connection while it waits to build a large answer, and the request that builds one needs a
// connection to finish. All shares together must therefore leave connections free, or these requests block each other
// until their deadlines.
type Share chan struct{}

// NewShares returns a quarter of the connections for everyone, and an eighth for moderators.
func NewShares(connections int) (everyone, moderators Share) {
	return make(Share, max(1, connections/4)), make(Share, max(1, connections/8))
}

// Place is the place of one request in a share. Its queries may run at the same time.
type Place struct {
	share Share
	free  chan struct{} // closed when no query has to wait

	mu           sync.Mutex
	taken, ended bool
}

// NewPlace returns the place of a request that does not have it yet.
func NewPlace(share Share) *Place { return &Place{share: share, free: make(chan struct{})} }

// Enter waits until the request has its place. If ctx ends first, it returns CodeUnavailable. A query that goes on
// after the request has ended, because others wait for it, needs no place.
func (p *Place) Enter(ctx context.Context) error {
	select {
	case <-p.free:
		return nil
	default:
	}
	select {
	case <-p.free:
		return nil
	case <-ctx.Done():
		return models.Unavailable("Too many large requests are waiting; try again.", ctx.Err())
	case p.share <- struct{}{}:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken || p.ended { // another query came first
		<-p.share
		return nil
	}
	p.taken = true
	close(p.free)
	return nil
}

// Has reports whether the request has its place.
func (p *Place) Has() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Leave returns the place at the end of the request.
func (p *Place) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken {
		<-p.share
	} else {
		close(p.free)
	}
	p.ended = true
}
