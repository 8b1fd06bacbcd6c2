package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"gorm.io/gorm"

	"likewise/models"
)

// guardedPool is a circuit breaker: it rejects calls at once while MySQL does not answer. Without it, every request
// would hold its connection until a dial or a read times out, and requests that do not need MySQL would fail, too.
//
// A connection that is refused or lost counts as a failure, and so does a context that ends while a connection is made.
// A statement that the server rejects, or ends at its time limit, is an answer. A call whose context ends otherwise, in
// a statement or while it waits for a connection, is not counted. After BreakerPause, the open breaker admits one call
// at a time, and rejects all others until one succeeds. Statements of a transaction that has begun are not rejected:
// they end with their connection.
type guardedPool struct {
	*sql.DB
	breaker *gobreaker.TwoStepCircuitBreaker[any]
	reads   limitedReads
}

// The constants of the breakers of MySQL and of Redis.
const (
	BreakerFailures = 5           // consecutive failures that open the breaker
	BreakerPause    = time.Second // before an open breaker admits a call
)

// errCanceled is reported to the breaker for a call whose context ended, unless it was connecting.
var errCanceled = errors.New("the call was canceled")

type connectingKey struct{}

// recordingConnector records in the context of a guarded call whether the call is connecting.
type recordingConnector struct{ driver.Connector }

// Connect opens a connection.
func (c recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	connecting, ok := ctx.Value(connectingKey{}).(*atomic.Bool)
	if ok {
		connecting.Store(true)
	}
	conn, err := c.Connector.Connect(ctx)
	if ok {
		connecting.Store(err != nil)
	}
	if err != nil {
		return nil, err
	}
	bounded, ok := conn.(driverConn)
	if !ok {
		return nil, errors.Join(errors.New("the driver's connections lack a method that the store needs"), conn.Close())
	}
	return boundedConn{bounded}, nil
}

func newGuardedPool(pool *sql.DB) *guardedPool {
	return &guardedPool{DB: pool, breaker: gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "mysql",
		Timeout:     BreakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= BreakerFailures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errCanceled) },
		IsSuccessful: func(err error) bool {
			return err == nil || models.CannotWrite(err) || models.OutOfTime(err) ||
				models.ErrorCode(err) != models.CodeUnavailable
		},
	})}
}

type entranceKey struct{}

// WithEntrance returns a context under which enter is called before each query outside a transaction, and before each
// transaction. If it returns an error, they end with that error.
func WithEntrance(ctx context.Context, enter func(context.Context) error) context.Context {
	return context.WithValue(ctx, entranceKey{}, enter)
}

// Enter calls the function of WithEntrance, for a caller that must not wait for it later.
func Enter(ctx context.Context) error {
	if enter, ok := ctx.Value(entranceKey{}).(func(context.Context) error); ok {
		return enter(ctx)
	}
	return nil
}

// guard runs one call of the pool if its entrance and the breaker admit it, and counts its outcome.
func guard[T any](ctx context.Context, g *guardedPool, call func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if err := Enter(ctx); err != nil {
		return none, err
	}
	done, err := g.breaker.Allow()
	if err != nil {
		return none, models.Unavailable("The database is not available at the moment; try again.", err)
	}
	var connecting atomic.Bool
	result, err := call(context.WithValue(ctx, connectingKey{}, &connecting))
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !connecting.Load() {
		done(errCanceled)
	} else {
		done(err)
	}
	return result, err
}

// ExecContext rejects the statement: writes go through DB.Transact or DB.Write. Outside a transaction, a write
// would not be retried, and would take gap locks.
func (g *guardedPool) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.New("a statement that writes was sent outside a transaction")
}

// QueryContext runs a query. The server ends it when ctx ends.
func (g *guardedPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return guard(ctx, g, func(ctx context.Context) (*sql.Rows, error) {
		return g.DB.QueryContext(ctx, g.reads.statement(ctx, query), args...)
	})
}

// QueryRowContext runs a query of one row, as QueryContext does, but past the breaker.
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
