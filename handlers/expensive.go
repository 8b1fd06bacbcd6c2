package handlers

import (
	"context"
	"sync"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// expensiveShare bounds how many expensive requests use the database at once. The others wait, so that a cheap request
// finds a free connection. A request whose pages are shared does not use the database, and does not wait. The bound on
// the requests in flight of an address limits how many of its requests wait.
//
// A request may hold its connection while it waits to build a large answer, and the request that builds one needs a
// connection to finish. All shares together must therefore leave connections free, or these requests block each other
// until their deadlines.
type expensiveShare chan struct{}

// newExpensiveShares returns a quarter of the connections for everyone, and an eighth for moderators.
func newExpensiveShares(connections int) (everyone, moderators expensiveShare) {
	return make(expensiveShare, max(1, connections/4)), make(expensiveShare, max(1, connections/8))
}

// place is the place of one request in a share. Its queries may run at the same time.
type place struct {
	share expensiveShare
	free  chan struct{} // closed when no query has to wait

	mu           sync.Mutex
	taken, ended bool
}

func newPlace(share expensiveShare) *place { return &place{share: share, free: make(chan struct{})} }

// enter waits until the request has its place. If ctx ends first, it returns CodeUnavailable. A query that goes on
// after the request has ended, because others wait for it, needs no place.
func (p *place) enter(ctx context.Context) error {
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

func (p *place) has() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// hasPlace reports whether the request has a place in an expensiveShare.
func hasPlace(c *fiber.Ctx) bool {
	p, ok := c.Locals(placeKey).(*place)
	return ok && p.has()
}

// leave returns the place at the end of the request.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken {
		<-p.share
	} else {
		close(p.free)
	}
	p.ended = true
}
