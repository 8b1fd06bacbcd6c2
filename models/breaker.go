package models

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
	"gorm.io/gorm"
)

// guardedPool refuses work at once while MySQL is known not to answer. Without it every request would wait for a dial
// or a read to time out, hold its connection meanwhile, and take the requests that need no MySQL down with it.
//
// Only what says that the server is away counts as a failure; a statement that it refused is an answer. A call that waits
// for a connection until its context ends counts as nothing: the calls that hold the connections report whether the
// server answers. One call is let through every breakerPause to find out whether it is back. Statements of a transaction that has begun are not held
// back: they end by themselves, with their connection.
type guardedPool struct {
	*sql.DB
	breaker *gobreaker.TwoStepCircuitBreaker[any]
	reads   limitedReads
}

const (
	breakerFailures = 5           // in a row, until MySQL is taken for away
	breakerPause    = time.Second // until it is tried again
)

// errNotAsked is reported to the breaker for a call whose context ended before it had a connection.
var errNotAsked = errors.New("the server was not asked")

func newGuardedPool(pool *sql.DB) *guardedPool {
	return &guardedPool{DB: pool, breaker: gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "mysql",
		Timeout:     breakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errNotAsked) },
		IsSuccessful: func(err error) bool {
			return err == nil || errors.Is(err, context.Canceled) || cannotWrite(err) || outOfTime(err) || ErrorCode(err) != CodeUnavailable
		},
	})}
}

// guard runs one call of the pool.
func guard[T any](ctx context.Context, g *guardedPool, call func() (T, error)) (T, error) {
	done, err := g.breaker.Allow()
	if err != nil {
		var none T
		return none, Unavailable("The database is not available at the moment; try again.", err)
	}
	pool := g.Stats()
	waits := ctx.Err() != nil || pool.InUse >= pool.MaxOpenConnections
	result, err := call()
	if waits && errors.Is(err, context.DeadlineExceeded) {
		done(errNotAsked)
	} else {
		done(err)
	}
	return result, err
}

// ExecContext refuses the statement. Outside a transaction it would neither be retried nor spare others gap locks: writes go
// through Store.transact or Store.write.
func (g *guardedPool) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.New("a statement that writes was sent outside a transaction")
}

// QueryContext runs a query. The server ends a read when ctx ends.
func (g *guardedPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return guard(ctx, g, func() (*sql.Rows, error) { return g.DB.QueryContext(ctx, g.reads.statement(ctx, query), args...) })
}

// QueryRowContext runs a query of one row, as QueryContext does. The breaker does not count it.
func (g *guardedPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return g.DB.QueryRowContext(ctx, g.reads.statement(ctx, query), args...)
}

// BeginTx begins a transaction, whose reads end as those of QueryContext do.
func (g *guardedPool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	tx, err := guard(ctx, g, func() (*sql.Tx, error) { return g.DB.BeginTx(ctx, opts) })
	if err != nil {
		return nil, err
	}
	return &limitedTx{tx, g.reads}, nil
}
