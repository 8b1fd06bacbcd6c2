// Package models holds the domain: users, posts, comments and likes, the rules they keep, and the Store that keeps
// them in MySQL.
//
// MySQL is the record of truth. An exported Store method is one transaction (or one statement); a deadlock or a lock
// wait that ran out is retried here, around the whole transaction, and nowhere else. Statements that follow a user's
// input use placeholders; statements that are built hold numbers only.
package models

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Store keeps the domain in MySQL, MariaDB or TiDB. It is safe for concurrent use.
type Store struct {
	db        *gorm.DB
	pool      *sql.DB
	guarded   *guardedPool // of pool
	now       func() time.Time
	shards    int
	cursorKey []byte
	retried   func(RetryCause)
}

// Options are what a Store can be told. The zero value is what production uses.
type Options struct {
	MaxConns int              // open connections at most; 0 means 32
	Now      func() time.Time // the clock; nil means time.Now
	Retried  func(RetryCause) // called each time a transaction fails for a cause that running it again may cure
}

// RetryCause is why a transaction is run again.
type RetryCause string

// The causes. Transactions that keep the lock order queue, so the first stays rare.
const (
	RetryDeadlock RetryCause = "deadlock"  // the server ended it, because it and another waited for each other
	RetryLockWait RetryCause = "lock_wait" // it waited for a lock for longer than the server allows
	RetryChanged  RetryCause = "changed"   // a row that it had read was changed before it wrote
)

// RetryCauses lists all causes.
var RetryCauses = []RetryCause{RetryDeadlock, RetryLockWait, RetryChanged}

// ErrNotMigrated means that the schema is missing or older than this binary needs.
var ErrNotMigrated = errors.New("the database is not migrated: run `likewise migrate up`")

// DSN checks a go-sql-driver DSN and sets what the product relies on: UTC, times as time.Time, parameters sent with
// the statement, strict SQL, one statement a call, and limits on how long a silent server is waited for.
func DSN(dsn string) (string, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", fmt.Errorf("mysql dsn: %w", err)
	}
	if c.DBName == "" {
		return "", errors.New("mysql dsn: names no database, such as user:password@tcp(host:3306)/likewise")
	}
	c.ParseTime, c.Loc, c.InterpolateParams = true, time.UTC, true
	c.MultiStatements, c.ClientFoundRows = false, false
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	if c.ReadTimeout == 0 {
		c.ReadTimeout = 15 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 15 * time.Second
	}
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	c.Params["time_zone"] = "'+00:00'"
	c.Params["sql_mode"] = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'"
	if err := c.Apply(mysql.Charset("utf8mb4", "utf8mb4_unicode_ci")); err != nil {
		return "", fmt.Errorf("mysql dsn: %w", err)
	}
	return c.FormatDSN(), nil
}

// Open connects to the database that dsn names and reads what was fixed at install. An unreachable server or a
// missing schema (ErrNotMigrated) is an error.
func Open(ctx context.Context, dsn string, opts Options) (*Store, error) {
	dsn, err := DSN(dsn)
	if err != nil {
		return nil, err
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	config.Logger = driverLog{}
	if config.Params["innodb_lock_wait_timeout"] == "" {
		config.Params["innodb_lock_wait_timeout"] = strconv.Itoa(lockWait)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	pool := sql.OpenDB(notingConnector{connector})
	if opts.MaxConns == 0 {
		opts.MaxConns = 32
	}
	pool.SetMaxOpenConns(opts.MaxConns)
	pool.SetMaxIdleConns(opts.MaxConns)
	pool.SetConnMaxLifetime(3 * time.Minute)
	guarded := newGuardedPool(pool)
	db, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: guarded, SkipInitializeWithVersion: true}), &gorm.Config{
		Logger:                 logger.Discard,
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open gorm: %w", err), pool.Close())
	}
	s := &Store{db: db, pool: pool, guarded: guarded, now: opts.Now, retried: opts.Retried}
	if s.now == nil {
		s.now = time.Now
	}
	if s.retried == nil {
		s.retried = func(RetryCause) {}
	}
	if err := s.readInstall(ctx); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	// A read that takes longer than the driver waits is given up, deadline or not.
	guarded.reads.background = config.ReadTimeout
	return s, nil
}

// driverLog is where the driver tells of connections that broke. The calls that they broke return errors of their own.
type driverLog struct{}

func (driverLog) Print(v ...any) { slog.Debug("mysql driver", "message", fmt.Sprint(v...)) }

func (s *Store) readInstall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var version string
	err := s.pool.QueryRowContext(ctx, "SELECT COUNT(*), VERSION() FROM like_shards").Scan(&s.shards, &version)
	if s.guarded.reads.server = serverMySQL; strings.Contains(version, "MariaDB") {
		s.guarded.reads.server = serverMariaDB
	}
	if err == nil {
		err = s.pool.QueryRowContext(ctx, "SELECT value FROM settings WHERE name='cursor_key'").Scan(&s.cursorKey)
	}
	if mysqlCode(err) == errNoSuchTable || errors.Is(err, sql.ErrNoRows) || err == nil && s.shards == 0 {
		return ErrNotMigrated
	}
	if err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	return nil
}

// Close closes the connections; its error is always nil. What the pool has to report is that it could not take leave on
// a connection that had broken before, in an error that cannot be told from others: the connection is closed all the
// same, and nobody can act on it.
func (s *Store) Close() error {
	_ = s.pool.Close()
	return nil
}

// Ping reports whether MySQL answers, and whether it is asked at all: see guardedPool.
func (s *Store) Ping(ctx context.Context) error {
	_, err := guard(ctx, s.guarded, func(ctx context.Context) (any, error) { return nil, s.pool.PingContext(ctx) })
	return err
}

// Pool gives the connection pool, for its statistics.
func (s *Store) Pool() *sql.DB { return s.pool }

// Shards is the number of shards fixed at install.
func (s *Store) Shards() int { return s.shards }

// CursorKey is the key that signs list cursors, the same in every process of an installation.
func (s *Store) CursorKey() []byte { return s.cursorKey }

// MySQL error numbers that the code acts on.
const (
	errWriteFile      = 3 // the next two as well: no room on a disk
	errDiskFull       = 1021
	errTooManyConns   = 1040
	errShutdown       = 1053
	errDuplicateKey   = 1062
	errTableFull      = 1114
	errLockWait       = 1205
	errDeadlock       = 1213
	errNoSuchTable    = 1146
	errDataOutOfRange = 1264
	errReadOnly       = 1290 // with --read-only; the next below with super_read_only and others
	errBadDateTime    = 1292
	errBadValue       = 1366
	errDataTooLong    = 1406
	errInterrupted    = 1317 // by KILL QUERY
	errSignal         = 1644
	errReadOnlyMode   = 1836
	errTimeMariaDB    = 1969 // a statement took longer than its limit
	errTimeMySQL      = 3024
	errCheckMySQL     = 3819
	errCheckMariaDB   = 4025
)

// mysqlCode gives the server's error number, 0 for any other error.
func mysqlCode(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// cannotWrite reports whether the server is there but takes no writes: its disk is full, or somebody made it read-only.
func cannotWrite(err error) bool {
	switch mysqlCode(err) {
	case errWriteFile, errDiskFull, errTableFull, errReadOnly, errReadOnlyMode:
		return true
	}
	return false
}

// outOfTime reports whether the server ended a statement that took longer than it may.
func outOfTime(err error) bool {
	switch mysqlCode(err) {
	case errInterrupted, errTimeMariaDB, errTimeMySQL:
		return true
	}
	return false
}

// IsBadData reports whether the server refused the data itself, so that trying again cannot help. Every other error
// says something about the server or the connection.
func IsBadData(err error) bool {
	switch mysqlCode(err) {
	case errDataOutOfRange, errBadDateTime, errBadValue, errDataTooLong, errSignal, errCheckMySQL, errCheckMariaDB:
		return true
	}
	return false
}

// errChangedMeanwhile makes transact run the transaction again: a row it had read was changed before it wrote.
var errChangedMeanwhile = errors.New("a row changed between reading and writing it")

// maxAttempts bounds the runs of one transaction. Fifty writers of one row deadlock a few times at most; whoever
// loses this often is better told to come back.
const maxAttempts = 20

// The lock order. Every transaction locks rows in this order, those of one table by ascending key, so that two transactions
// that meet queue and none ends in a deadlock:
//
//  1. like_shards
//  2. users: who acts, who is acted on, who follows and is followed
//  3. what is decided or worked off: content_operations, like_rings, dead_letters
//  4. posts
//  5. comments
//  6. what belongs to a row above, under the lock of that row: likes, terms, revisions, redactions, tags of a post, cases
//     and reports, members of a ring
//  7. what belongs to a user alone, by one key that all its writers go through: sessions, notifications and blocks by the
//     primary key, bookmarks and follows by the unique key of user and object, held names by the primary key
//  8. tags: posts of all authors share them, so they are held for the shortest time
//
// No transaction needs all of it; each skips what it has no need of and never goes back. A comment that is written or deleted
// locks its post, a like its target.
//
// Rows are locked through the key that the list names, if need be with FORCE INDEX. Left alone, the servers may lock an
// entry of a secondary index first and its row second, while a transaction that holds the row wants to change the entry.
// Where the rows are found by another index they are read without a lock, locked by their keys and looked at again.

// transact runs fn in a READ COMMITTED transaction: no gap locks, and every statement sees what is committed. It
// retries deadlocks, lock waits and errChangedMeanwhile; when those do not end it gives CodeUnavailable. An error at
// COMMIT is returned as it is: the outcome is unknown then. The caller of the context is looked up first (see WithCaller).
//
// Under the claim of a request with an Idempotency-Key, the transaction is the effect of the request: the key is marked in
// the same COMMIT (see WithClaim).
func (s *Store) transact(ctx context.Context, act func(tx *gorm.DB) error) error {
	fn, committed := claimed(ctx, func(tx *gorm.DB) error {
		if err := s.admitCaller(tx); err != nil {
			return err
		}
		return act(tx)
	})
	for attempt := 1; ; attempt++ {
		err := s.db.WithContext(ctx).Transaction(fn, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err == nil {
			committed()
			return nil
		}
		cause := retryCause(err)
		if cause == "" {
			return err
		}
		s.retried(cause)
		if attempt == maxAttempts {
			return Unavailable("The database is too busy; try again.", err)
		}
		slog.DebugContext(ctx, "transaction runs again", "attempt", attempt, "cause", cause, "error", err)
		pause := time.NewTimer(time.Duration(rand.Int64N(int64(attempt) * int64(2*time.Millisecond))))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// retryCause returns why a transaction that ended in err is run again, "" if it is not.
func retryCause(err error) RetryCause {
	switch code := mysqlCode(err); {
	case code == errDeadlock:
		return RetryDeadlock
	case code == errLockWait:
		return RetryLockWait
	case errors.Is(err, errChangedMeanwhile):
		return RetryChanged
	}
	return ""
}

// write runs one statement as a transaction and says how many rows it changed. Alone it would neither be retried nor spare
// others gap locks: a statement outside a transaction has the isolation of its session.
func (s *Store) write(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		result := tx.Exec(query, args...)
		changed = result.RowsAffected
		return result.Error
	})
	return changed, err
}

// insert runs an INSERT of one row and returns the row's id. In a request with an Idempotency-Key, the answer is made from
// this row (see Made); a row that is not in the answer is written without insert.
func (s *Store) insert(tx *gorm.DB, query string, args ...any) (int64, error) {
	result, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, query, args...)
	if err != nil {
		return 0, err
	}
	id, err := result.LastInsertId()
	if err == nil {
		made(tx, id)
	}
	return id, err
}

// joinIDs writes ids for an IN list. Only numbers get in, so nothing needs quoting.
func joinIDs(ids []int64) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(id, 10))
	}
	return b.String()
}

// second gives the time as a TIMESTAMP column keeps it: whole seconds, UTC.
func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// hexOf writes a hash for UNHEX(?). Bytes that are no text must not stand in a statement: the server could not show it in
// its process list, and MySQL fails every query of the list for it.
func hexOf(hash [32]byte) string { return hex.EncodeToString(hash[:]) }
