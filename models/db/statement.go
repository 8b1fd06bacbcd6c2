package db

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
)

// lockWait is the time in seconds for which a statement waits for a row that another transaction holds. A writer that
// waits longer starts again at the end of the row's queue: with a short wait, some writers of a hot post would never
// reach its front on a slow server. A writer whose request has ended waits on the server no longer than this.
const lockWait = 5

// limitedReads adds to each read a time limit that the server enforces. Without it, a read goes on after its client has
// gone: the driver closes the connection, but neither MariaDB nor MySQL notices before the statement ends. The zero
// value adds no limits.
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

// statement returns query, if it is a read, with a time limit. The limit is up to a second shorter than the rest of
// ctx, so that even a busy server answers before the driver has to close the connection.
func (l limitedReads) statement(ctx context.Context, query string) string {
	if l.server == serverUnknown || !isRead(query) {
		return query
	}
	limit := l.background
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = left - min(left/4, time.Second)
	}
	limit = max(limit, time.Millisecond)
	if l.server == serverMariaDB {
		return fmt.Sprintf("SET STATEMENT max_statement_time=%.3f FOR %s", limit.Seconds(), query)
	}
	at := topSelect(query) + len("SELECT")
	return fmt.Sprintf("%s /*+ MAX_EXECUTION_TIME(%d) */%s", query[:at], limit.Milliseconds(), query[at:])
}

// blank holds the white space with which a statement in a raw string begins.
const blank = " \t\n"

// isRead reports whether a statement of this package reads. Its reads begin with SELECT, WITH, or a parenthesis, after
// any white space.
func isRead(query string) bool {
	query = strings.TrimLeft(query, blank+"(")
	return strings.HasPrefix(query, "SELECT") || strings.HasPrefix(query, "WITH")
}

// topSelect returns the position of the SELECT whose hints MySQL applies to the whole statement: the first one, or the
// first after common table expressions.
func topSelect(query string) int {
	if !strings.HasPrefix(strings.TrimLeft(query, blank), "WITH") {
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

// limitedTx is a transaction whose reads have time limits.
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
