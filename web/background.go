package web

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// maxAfter bounds what goes on at the same time after answers. What exceeds it is not done.
const maxAfter = 64

// background runs what no reader should wait for.
type background struct{ room *semaphore.Weighted }

func newBackground() background { return background{semaphore.NewWeighted(maxAfter)} }

// after calls f in a goroutine. The request may end before. It reports false if there is no room. Requests to the API
// end by themselves, after apiTimeout.
func (b background) after(ctx context.Context, f func(context.Context)) bool {
	if !b.room.TryAcquire(1) {
		return false
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer b.room.Release(1)
		f(ctx)
	}()
	return true
}

// Wait waits until nothing goes on after an answer, or until ctx ends. Meanwhile nothing else begins.
func (s *Server) Wait(ctx context.Context) error {
	if err := s.background.room.Acquire(ctx, maxAfter); err != nil {
		return err
	}
	s.background.room.Release(maxAfter)
	return nil
}
