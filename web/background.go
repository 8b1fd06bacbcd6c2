package web

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// maxAfter bounds the calls that run at the same time after answers. Further calls are skipped.
const maxAfter = 64

// background runs work that no reader should wait for.
type background struct{ room *semaphore.Weighted }

func newBackground() background { return background{semaphore.NewWeighted(maxAfter)} }

// after calls f in a goroutine, which may outlive the request. It reports false if maxAfter calls are running. The
// context of f has no deadline, because each request to the API has one: apiTimeout.
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
