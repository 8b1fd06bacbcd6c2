package counters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/redis/go-redis/v9"

	"likewise/counters/rounds"
)

// Edition names the state of everything that the API's requests can change, except for likes and claims: it changes
// with each change. What was read from MySQL after an edition was read is current while that edition lasts, in every
// process. It is safe for concurrent use.
type Edition struct {
	redis *Redis
	reads rounds.Group[int64]
}

// NewEdition returns the edition that Redis holds.
func NewEdition(r *Redis) *Edition { return &Edition{redis: r} }

// Current returns the edition as it is after the call. Calls that arrive while one waits for Redis share the next one.
func (e *Edition) Current(ctx context.Context) (int64, error) {
	return e.reads.Do(ctx, "", func() (int64, error) {
		return e.get(context.WithoutCancel(ctx)) // others wait for it, too
	})
}

func (e *Edition) get(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	edition, err := e.redis.run(ctx, "get", []string{editionKey}).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("read the edition: %w", err)
	}
	return edition, nil
}

// Advance ends the edition. It is called after a change is committed, and before the change is answered.
//
// The new edition is a random number. A server that was restarted or promoted may have lost the latest editions, and by
// counting would issue them again.
func (e *Edition) Advance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	if err := e.redis.client.Set(ctx, editionKey, rand.Int64(), 0).Err(); err != nil {
		return fmt.Errorf("advance the edition: %w", err)
	}
	return nil
}
