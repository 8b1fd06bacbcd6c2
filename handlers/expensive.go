package handlers

import (
	"context"

	"likewise/models"
)

// expensiveShare bounds how many expensive requests use the database at once. The others wait, so that a cheap request
// finds a free connection. The bound on the requests in flight of an address limits how many of its requests wait.
//
// A request may hold its connection while it waits to build a large answer, and the request that builds one needs a
// connection to finish. All shares together must therefore leave connections free, or these requests block each other
// until their deadlines.
type expensiveShare chan struct{}

// newExpensiveShares returns a quarter of the connections for everyone, and an eighth for moderators.
func newExpensiveShares(connections int) (everyone, moderators expensiveShare) {
	return make(expensiveShare, max(1, connections/4)), make(expensiveShare, max(1, connections/8))
}

// enter waits for a place; leave returns it. If ctx ends first, enter returns CodeUnavailable.
func (s expensiveShare) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, models.Unavailable("Too many large requests are waiting; try again.", ctx.Err())
	}
}
