package counters

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"likewise/models"
)

// Errors of Reassert and of reading warm targets.
var (
	ErrNotWarm     = errors.New("the target is not warm")
	ErrShardClosed = errors.New("the shard is closed")
)

// Reassert sends the current state of users' likes of a warm target through the pipeline again. Events hold the
// resulting state, so additional events change nothing. Users whose set is lost are left out. If the target is cold, or
// its counter is lost, Reassert returns ErrNotWarm. If its shard is closed, it returns ErrShardClosed.
func (l *Likes) Reassert(ctx context.Context, target models.Target, users []int64) error {
	return l.reassert(ctx, target, users, "")
}

// ReassertEvent is Reassert for the like of an event that MySQL lacks, at a position. If the target was loaded after
// it, the gate does not know the event, and ReassertEvent returns ErrNotWarm.
func (l *Likes) ReassertEvent(ctx context.Context, target models.Target, user int64, at models.Position) error {
	return l.reassert(ctx, target, []int64{user}, at.String())
}

func (l *Likes) reassert(ctx context.Context, target models.Target, users []int64, known string) error {
	k := l.redis.keys(target)
	for batch := range slices.Chunk(users, maxBatch) {
		args := []any{l.limit, target.Short(), known}
		for _, user := range batch {
			args = append(args, user)
		}
		n, err := l.redis.run(ctx, "reassert", []string{k.shard, k.outbox, k.likes}, args...).Int()
		switch {
		case err != nil:
			return fmt.Errorf("reassert %s: %w", target, err)
		case n == -4:
			return models.Unavailable(busy, errors.New("the outbox is full"))
		case n == -1:
			return fmt.Errorf("reassert %s: %w", target, ErrShardClosed)
		case n < 0:
			return fmt.Errorf("reassert %s: %w", target, ErrNotWarm)
		}
	}
	return nil
}
