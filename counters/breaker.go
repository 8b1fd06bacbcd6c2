package counters

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"likewise/models"
)

// breaker refuses commands at once while a server does not answer, so that a like is refused and a list is read from
// MySQL without waiting for a timeout each. An error that the server replies counts as an answer. The open breaker
// admits one call every models.BreakerPause. It opens after as many failures as the breaker of MySQL.
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[any]
}

func newBreaker() breaker {
	return breaker{gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "redis",
		Timeout:     models.BreakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= models.BreakerFailures },
		IsSuccessful: func(err error) bool {
			var answer redis.Error // Nil is one
			return err == nil || errors.As(err, &answer) || errors.Is(err, context.Canceled)
		},
	})}
}

// guarded marks the context of a call that a breaker has let through. A call may have to make a connection first, and
// what is said on that to begin with, the fence included, is a part of the call.
type guarded struct{}

// call guards one call. If the breaker is open, refuse sets the error of the commands.
func (b breaker) call(ctx context.Context, refuse func(error), next func(context.Context) error) error {
	if ctx.Value(guarded{}) != nil {
		return next(ctx)
	}
	done, err := b.Allow()
	if err != nil {
		refuse(err)
		return err
	}
	err = next(context.WithValue(ctx, guarded{}, true))
	done(err)
	return err
}

// DialHook leaves dialing alone: commands are what waits.
func (b breaker) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook guards a command.
func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return b.call(ctx, cmd.SetErr, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook guards a pipeline. If the pipeline fails as a whole, each of its commands has the error. go-redis
// leaves them without one when Redis answered the first words on a new connection with an error, such as LOADING right
// after a restart, and their zero values would read as replies.
func (b breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		fail := func(err error) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return b.call(ctx, fail, func(ctx context.Context) error {
			err := next(ctx, cmds)
			if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
				fail(err)
			}
			return err
		})
	}
}
