package handlers

import (
	"context"

	"likewise/models"
)

// dearShare is the part of the database's connections that requests of dear routes may use together. The others wait for
// their turn, so that a cheap request finds a connection, and a database with little else to do, however many dear ones
// there are and wherever they come from. How many of one address wait is bounded by what it may have under way.
type dearShare chan struct{}

func newDearShare(connections int) dearShare { return make(dearShare, max(1, connections/4)) }

// enter waits for a turn; leave ends it. If ctx ends first, enter returns CodeUnavailable.
func (s dearShare) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, models.Unavailable("Too many large requests are waiting; try again.", ctx.Err())
	}
}
