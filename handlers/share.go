package handlers

import (
	"context"

	"likewise/models"
)

// dearShare bounds how many expensive requests use the database at once. The others wait for their turn, so that a cheap
// request finds a free connection. The per-address bound on requests limits how many of one address wait.
//
// A request may hold its connection while it waits for its turn to make a large answer, and the request whose turn it is
// needs a connection to go on. All shares together must therefore leave connections free, or these requests block each
// other until their deadlines.
type dearShare chan struct{}

// newDearShares returns a quarter of the connections for everyone, and an eighth for moderators.
func newDearShares(connections int) (everyone, moderators dearShare) {
	return make(dearShare, max(1, connections/4)), make(dearShare, max(1, connections/8))
}

// enter waits for a turn; leave ends it. If ctx ends first, enter returns CodeUnavailable.
func (s dearShare) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, models.Unavailable("Too many large requests are waiting; try again.", ctx.Err())
	}
}
