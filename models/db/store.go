// Package db keeps the domain of models in MySQL.
//
// MySQL is the source of truth. An exported method of DB is one transaction or one statement. Deadlocks and lock wait
// timeouts are retried here, around the whole transaction, and nowhere else. Input reaches a statement through
// placeholders only; text that is formatted into a statement consists of names and numbers of this package.
package db

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"likewise/models"
)

// DB keeps the domain in MySQL or MariaDB. It is safe for concurrent use.
type DB struct {
	db        *gorm.DB
	pool      *sql.DB
	guarded   *guardedPool // of pool
	now       func() time.Time
	shards    int
	cursorKey []byte
	site      string
	restored  string
	retried   func(RetryCause)
	refused   func(models.WriteRefusal)
	log       *slog.Logger
	excerpt   func(content string) string // nil: this process makes no excerpts
	describe  Describe
	direct    atomic.Bool      // see StartLikes
	likeClock models.LikeClock // nil: that of MySQL

	// closeTargets is nil if there is no gate; see CloseDeletedWith.
	closeTargets func(ctx context.Context, targets ...models.Target) error
}

// Options configure a DB. The zero value is for production.
type Options struct {
	MaxConns int                       // maximum number of open connections; 0 means 32
	Now      func() time.Time          // the clock; nil means time.Now
	Logger   *slog.Logger              // nil means slog.Default()
	Retried  func(RetryCause)          // called each time a transaction fails for a cause that a retry may cure
	Refused  func(models.WriteRefusal) // called each time the server answers but refuses to write
	// Excerpt returns the beginning of a post's Markdown as plain text, of at most MaxExcerpt characters. If it is nil,
	// posts are written without excerpts, and WriteExcerpts of another DB adds them.
	Excerpt func(content string) string
	// Describe returns what the events of webhooks say about their objects. Without it, a transaction that announces an
	// event to an endpoint fails.
	Describe Describe
}

// RetryCause is the reason for which a transaction is retried.
type RetryCause string

// The causes. Deadlocks stay rare, because transactions that keep the lock order queue.
const (
	RetryDeadlock RetryCause = "deadlock"  // the server ended one of two transactions that waited for each other
	RetryLockWait RetryCause = "lock_wait" // it waited for a lock longer than the server allows
	RetryChanged  RetryCause = "changed"   // a row that it had read was changed before it wrote
)

// RetryCauses lists all causes.
var RetryCauses = []RetryCause{RetryDeadlock, RetryLockWait, RetryChanged}

var errNoDescribe = errors.New("db.Options.Describe is missing")

var errNotMigrated = errors.New("the database is not migrated: run `likewise migrate up`")

// DSN checks a go-sql-driver DSN and adds the settings that the DB relies on: UTC, times as time.Time, interpolated
// parameters, strict SQL, one statement per call, and timeouts for connecting (2 s), reading and writing (15 s each).
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

// Open connects to the database that dsn names and reads the settings of the installation. It returns an error if the
// server cannot be reached, or the schema is missing.
func Open(ctx context.Context, dsn string, opts Options) (*DB, error) {
	dsn, err := DSN(dsn)
	if err != nil {
		return nil, err
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	config.Logger = driverLog{cmp.Or(opts.Logger, slog.Default())}
	if config.Params["innodb_lock_wait_timeout"] == "" {
		config.Params["innodb_lock_wait_timeout"] = strconv.Itoa(lockWait)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	pool := sql.OpenDB(recordingConnector{connector})
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
	s := &DB{db: db, pool: pool, guarded: guarded, now: opts.Now, retried: opts.Retried, refused: opts.Refused,
		log: opts.Logger, excerpt: opts.Excerpt, describe: opts.Describe}
	if s.now == nil {
		s.now = time.Now
	}
	if s.describe == nil {
		s.describe = func(*Tx, Announcement) (map[int64]Described, error) { return nil, errNoDescribe }
	}
	if s.retried == nil {
		s.retried = func(RetryCause) {}
	}
	if s.refused == nil {
		s.refused = func(models.WriteRefusal) {}
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if err := s.readInstall(ctx); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	// A read without a deadline ends when the driver stops waiting for it.
	guarded.reads.background = config.ReadTimeout
	return s, nil
}

// driverLog receives the driver's messages about broken connections. The calls on them return errors of their own.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("mysql driver", "message", fmt.Sprint(v...)) }

// Now returns the time of the DB's clock.
func (s *DB) Now() time.Time { return s.now() }

// Logger returns the DB's logger. What works on the DB logs to it.
func (s *DB) Logger() *slog.Logger { return s.log }

// readInstall reads the number of shards, the kind of the server, the key of cursors and the id of the installation.
func (s *DB) readInstall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	const shards = `
		SELECT COUNT(*), VERSION()
		FROM like_shards`
	const setting = `
		SELECT value
		FROM settings
		WHERE name=?`
	var version string
	err := s.pool.QueryRowContext(ctx, shards).Scan(&s.shards, &version)
	if s.guarded.reads.server = serverMySQL; strings.Contains(version, "MariaDB") {
		s.guarded.reads.server = serverMariaDB
	}
	if err == nil {
		err = s.pool.QueryRowContext(ctx, setting, "cursor_key").Scan(&s.cursorKey)
	}
	if err == nil {
		var site []byte
		err = s.pool.QueryRowContext(ctx, setting, "site").Scan(&site)
		s.site = hex.EncodeToString(site)
	}
	if err == nil {
		const restored = `
			SELECT COALESCE(MAX(value), '')
			FROM settings
			WHERE name='restored'`
		err = s.pool.QueryRowContext(ctx, restored).Scan(&s.restored)
	}
	if models.MySQLCode(err) == errNoSuchTable || errors.Is(err, sql.ErrNoRows) || err == nil && s.shards == 0 {
		return errNotMigrated
	}
	if err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	return nil
}

// Read returns a handle for queries without a transaction. It must not write: see Transact and Write.
func (s *DB) Read(ctx context.Context) *gorm.DB { return s.db.WithContext(ctx) }

// Close closes the connections. Its error is always nil: the pool reports only connections that had broken before, and
// those are closed, too.
func (s *DB) Close() error {
	_ = s.pool.Close()
	return nil
}

// Ping returns an error if MySQL does not answer, or if the breaker is open (see guardedPool).
func (s *DB) Ping(ctx context.Context) error {
	_, err := guard(ctx, s.guarded, func(ctx context.Context) (any, error) { return nil, s.pool.PingContext(ctx) })
	return err
}

// Pool returns the connection pool, for its statistics.
func (s *DB) Pool() *sql.DB { return s.pool }

// Shards returns the number of shards, which is fixed at installation.
func (s *DB) Shards() int { return s.shards }

// Site returns the id of the installation, which was made at random when it was installed. Records in Kafka and shards
// in Redis have it, so that two sites which share them by mistake notice.
func (s *DB) Site() string { return s.site }

// Restored returns when the database was last restored from a backup, in seconds since 1970, or "" if it never was.
func (s *DB) Restored() string { return s.restored }

// CursorKey returns the key that signs list cursors. It is the same in every process of an installation.
func (s *DB) CursorKey() []byte { return s.cursorKey }

// MySQL error numbers that the code acts on.
const (
	DuplicateKey      = 1062
	errLockWait       = 1205
	errDeadlock       = 1213
	errNoSuchTable    = 1146
	errDataOutOfRange = 1264
	errBadDateTime    = 1292
	errBadValue       = 1366
	errDataTooLong    = 1406
	errSignal         = 1644
	errCheckMySQL     = 3819
	errCheckMariaDB   = 4025
)

// IsBadData reports whether the server rejected the data itself, so that a retry cannot succeed. Other errors are about
// the server or the connection.
func IsBadData(err error) bool {
	switch models.MySQLCode(err) {
	case errDataOutOfRange, errBadDateTime, errBadValue, errDataTooLong, errSignal, errCheckMySQL, errCheckMariaDB:
		return true
	}
	return errors.Is(err, ErrBadClaim)
}

// ErrBadClaim means that the events of claims contradict MySQL, so that a retry cannot succeed (see IsBadData).
var ErrBadClaim = errors.New("the event contradicts the rows")

// Excerpt is the excerpt of a post and the version of its rules, or zero if the post has none.
type Excerpt struct {
	Text    string
	Version int
}

// HasExcerpts reports whether this process makes excerpts: see Options.Excerpt.
func (s *DB) HasExcerpts() bool { return s.excerpt != nil }

// Excerpt makes the excerpt of a post. It is zero if this process makes none.
func (s *DB) Excerpt(content string) Excerpt {
	if !s.HasExcerpts() {
		return Excerpt{}
	}
	return Excerpt{s.excerpt(content), models.ExcerptVersion}
}

// Excerpt is DB.Excerpt.
func (tx *Tx) Excerpt(content string) Excerpt { return tx.store.Excerpt(content) }

// CursorKey is DB.CursorKey.
func (tx *Tx) CursorKey() []byte { return tx.store.cursorKey }
