package counters

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"likewise/models/db"
)

// breaker refuses commands at once while a server does not answer. So likes are refused, and lists are read from MySQL,
// without waiting for a timeout. An error reply counts as an answer. The breaker opens after db.BreakerFailures
// consecutive failures, and then admits one call every db.BreakerPause.
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[any]
}

func newBreaker() breaker {
	return breaker{gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "redis",
		Timeout:     db.BreakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= db.BreakerFailures },
		IsSuccessful: func(err error) bool {
			var answer redis.Error // includes redis.Nil
			return err == nil || errors.As(err, &answer) || errors.Is(err, context.Canceled)
		},
	})}
}

// guarded marks the context of a call that a breaker has admitted. If the call has to connect first, the initial
// commands on the connection, such as the check of its role, belong to the call.
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

// DialHook does not guard dialing, which is a part of a guarded command.
func (b breaker) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook guards a command.
func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return b.call(ctx, cmd.SetErr, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook guards a pipeline. If the pipeline fails as a whole, ProcessPipelineHook sets the error of each
// command. If the initial commands on a new connection fail, as with LOADING after a restart, go-redis does not set it,
// and the zero values of the commands would be taken for replies.
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
