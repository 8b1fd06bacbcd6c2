package db

import (
	"context"
	"database/sql/driver"
)

// boundedConn is a connection whose transactions end with their context. The driver sends COMMIT and ROLLBACK without
// one. So a server that waits, for space on its disk or behind a backup, would hold the caller until the driver's read
// timeout, long after its request has ended.
type boundedConn struct{ driverConn }

// driverConn is what database/sql uses of the driver's connections.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// BeginTx begins a transaction that ends with ctx.
func (c boundedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if _, err := c.driverConn.BeginTx(ctx, opts); err != nil {
		return nil, err
	}
	return boundedTx{c.driverConn, ctx}, nil
}

// boundedTx keeps the context of BeginTx, because Commit and Rollback of driver.Tx have none.
type boundedTx struct {
	conn driverConn
	ctx  context.Context //nolint:containedctx // see the type
}

// Commit sends COMMIT. If the context ends first, the outcome is unknown.
func (tx boundedTx) Commit() error { return tx.end("COMMIT") }

// Rollback sends ROLLBACK. If the context has ended, it closes the connection instead, which has the same effect.
func (tx boundedTx) Rollback() error { return tx.end("ROLLBACK") }

func (tx boundedTx) end(statement string) error {
	_, err := tx.conn.ExecContext(tx.ctx, statement, nil)
	if err != nil {
		_ = tx.conn.Close() // a transaction may be open on it; the server rolls that back
	}
	return err
}
