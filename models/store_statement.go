package models

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
)

// lockWait is how long a statement waits for a row that another transaction holds, in seconds. A writer whose request
// has ended is still waiting on the server at most this long.
const lockWait = 2

// limitedReads is how the server at hand is told to end a read by itself. When a client gives up, the driver closes the
// connection, but neither MariaDB nor MySQL notices before the statement is done: the connection is free in the pool,
// and the server works on. The zero value limits nothing.
type limitedReads struct {
	server     serverKind
	background time.Duration // the limit of a read whose context has no deadline
}

type serverKind int8

const (
	serverUnknown serverKind = iota
	serverMariaDB
	serverMySQL
)

// statement returns query with a limit on the server if it is a read. The limit is a little shorter than what is left
// of ctx, so that the server answers before the driver gives up and has to close the connection.
func (l limitedReads) statement(ctx context.Context, query string) string {
	if l.server == serverUnknown || !isRead(query) {
		return query
	}
	limit := l.background
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = left - min(left/10, 100*time.Millisecond)
	}
	limit = max(limit, time.Millisecond)
	if l.server == serverMariaDB {
		return fmt.Sprintf("SET STATEMENT max_statement_time=%.3f FOR %s", limit.Seconds(), query)
	}
	at := topSelect(query) + len("SELECT")
	return fmt.Sprintf("%s /*+ MAX_EXECUTION_TIME(%d) */%s", query[:at], limit.Milliseconds(), query[at:])
}

// isRead reports whether a statement of this package reads. Its reads begin with SELECT, WITH, or a parenthesis.
func isRead(query string) bool {
	query = strings.TrimLeft(query, " \t\n")
	return strings.HasPrefix(query, "SELECT") || strings.HasPrefix(query, "WITH") || strings.HasPrefix(query, "(SELECT")
}

// topSelect returns where the SELECT stands that MySQL takes the hints for the whole statement from: the first one, or
// with common table expressions the first after them.
func topSelect(query string) int {
	if !strings.HasPrefix(strings.TrimLeft(query, " \t\n"), "WITH") {
		return strings.Index(query, "SELECT")
	}
	depth := 0
	for i := range len(query) {
		switch {
		case query[i] == '(':
			depth++
		case query[i] == ')':
			depth--
		case depth == 0 && strings.HasPrefix(query[i:], "SELECT"):
			return i
		}
	}
	return strings.Index(query, "SELECT")
}

// limitedTx is a transaction whose reads are limited.
type limitedTx struct {
	*sql.Tx
	reads limitedReads
}

var _ gorm.ConnPoolBeginner = (*guardedPool)(nil)

// QueryContext runs a query.
func (t *limitedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.Tx.QueryContext(ctx, t.reads.statement(ctx, query), args...)
}

// QueryRowContext runs a query of one row.
func (t *limitedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return t.Tx.QueryRowContext(ctx, t.reads.statement(ctx, query), args...)
}
