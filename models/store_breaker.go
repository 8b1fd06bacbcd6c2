package models

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"gorm.io/gorm"
)

// guardedPool refuses work at once while MySQL is known not to answer. Without it every request would wait for a dial
// or a read to time out, hold its connection meanwhile, and take the requests that need no MySQL down with it.
//
// A connection that is refused or lost counts as a failure, and a context that ends while a connection is made. A statement
// that the server refused, or ended at its time limit, is an answer. A call whose context ends otherwise, in a statement or
// while it waits for a connection, counts as nothing. breakerPause after it opened, the breaker lets one call through at a
// time, and refuses all others until one succeeds. Statements of a transaction that has begun are not held back: they end
// by themselves, with their connection.
type guardedPool struct {
	*sql.DB
	breaker *gobreaker.TwoStepCircuitBreaker[any]
	reads   limitedReads
}

const (
	breakerFailures = 5           // in a row, until MySQL is taken for away
	breakerPause    = time.Second // until it is tried again
)

// errGaveUp is reported to the breaker for a call whose context ended, unless it was connecting.
var errGaveUp = errors.New("the call was given up")

type connectingKey struct{}

// notingConnector notes in the context of a guarded call whether the call is connecting.
type notingConnector struct{ driver.Connector }

// Connect connects.
func (c notingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	connecting, ok := ctx.Value(connectingKey{}).(*atomic.Bool)
	if !ok {
		return c.Connector.Connect(ctx)
	}
	connecting.Store(true)
	conn, err := c.Connector.Connect(ctx)
	connecting.Store(err != nil)
	return conn, err
}

func newGuardedPool(pool *sql.DB) *guardedPool {
	return &guardedPool{DB: pool, breaker: gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "mysql",
		Timeout:     breakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errGaveUp) },
		IsSuccessful: func(err error) bool {
			return err == nil || cannotWrite(err) || outOfTime(err) || ErrorCode(err) != CodeUnavailable
		},
	})}
}

// guard runs one call of the pool.
func guard[T any](ctx context.Context, g *guardedPool, call func(ctx context.Context) (T, error)) (T, error) {
	done, err := g.breaker.Allow()
	if err != nil {
		var none T
		return none, Unavailable("The database is not available at the moment; try again.", err)
	}
	var connecting atomic.Bool
	result, err := call(context.WithValue(ctx, connectingKey{}, &connecting))
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !connecting.Load() {
		done(errGaveUp)
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
	return guard(ctx, g, func(ctx context.Context) (*sql.Rows, error) {
		return g.DB.QueryContext(ctx, g.reads.statement(ctx, query), args...)
	})
}

// QueryRowContext runs a query of one row, as QueryContext does. The breaker does not count it.
func (g *guardedPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return g.DB.QueryRowContext(ctx, g.reads.statement(ctx, query), args...)
}

// BeginTx begins a transaction, whose reads end as those of QueryContext do.
func (g *guardedPool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	tx, err := guard(ctx, g, func(ctx context.Context) (*sql.Tx, error) { return g.DB.BeginTx(ctx, opts) })
	if err != nil {
		return nil, err
	}
	return &limitedTx{tx, g.reads}, nil
}
