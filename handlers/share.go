package handlers

import (
	"context"
	"sync"
	"time"

	"likewise/models"
)

// shares holds each address to its share of the connections to the database: what is over waits for its turn, so that
// requests of one address that take long leave the others alone.
type shares struct {
	slots   int // requests of one address that are answered at once
	waiting int // that may wait for one, until their own time is over

	mu sync.Mutex
	of map[string]*turns
}

type turns struct {
	slots chan struct{}
	users int // who holds a slot or waits for one
}

func newShares(connections, inFlight int) *shares {
	return &shares{slots: max(1, connections/4), waiting: max(1, inFlight/4), of: map[string]*turns{}}
}

// enter waits for a slot of the address; leave gives it back. CodeRateLimited when too many wait already,
// CodeUnavailable when ctx ends first.
func (s *shares) enter(ctx context.Context, address string) (leave func(), err error) {
	s.mu.Lock()
	one := s.of[address]
	if one == nil {
		one = &turns{slots: make(chan struct{}, s.slots)}
		s.of[address] = one
	}
	if one.users >= s.slots+s.waiting {
		s.mu.Unlock()
		return nil, &models.Error{Code: models.CodeRateLimited, Message: "Too many requests of this address are waiting; try again later.", RetryAfter: time.Second}
	}
	one.users++
	s.mu.Unlock()
	gone := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(s.of, address)
		}
	}
	select {
	case one.slots <- struct{}{}:
		return func() {
			<-one.slots
			gone()
		}, nil
	case <-ctx.Done():
		gone()
		return nil, models.Unavailable("The requests of this address took too long; try again.", ctx.Err())
	}
}
