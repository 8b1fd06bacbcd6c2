// Package migrations holds the schema as plain SQL files and runs them with goose.
//
// The schema began as one CREATE TABLE a file. It changes by new files alone: a file that was released never changes.
// Each file holds one statement, because MySQL commits implicitly around DDL and no transaction could undo half a file.
// A lock table serialises concurrent runs. Its lease outlives a killed run by ten seconds.
package migrations

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// DefaultShards is the number of shards of an installation that does not choose one.
const DefaultShards = 16

// MaxShards bounds the number of shards: each costs a Kafka partition, a Redis stream and a relay.
const MaxShards = 256

// ErrShards means that the database was installed with another number of shards than the one requested. The number is
// part of every stored key and of the topic, so it is fixed at install.
var ErrShards = errors.New("the number of shards is fixed at install")

// Applied is one migration and when it was applied.
type Applied struct {
	Version int64
	Name    string        // "" if only a newer version of the program knows it
	At      time.Time     // zero while pending
	Took    time.Duration // of those that Run applied
}

// Up is Run without its list.
func Up(ctx context.Context, dsn string, shards int) error {
	_, err := Run(ctx, dsn, shards)
	return err
}

// Run applies the pending migrations, and installs the shards (1 to MaxShards), the key that signs cursors, and the id
// of the installation. It returns the migrations that it applied, also with an error. It can run again, and in several
// processes at once. If shards is 0, the installed number stays, and a new installation gets DefaultShards. If another
// number is installed, Run returns ErrShards.
func Run(ctx context.Context, dsn string, shards int) ([]Applied, error) {
	if shards < 0 || shards > MaxShards {
		return nil, fmt.Errorf("shards must be between 1 and %d", MaxShards)
	}
	db, provider, err := open(dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	results, err := provider.Up(ctx)
	if partly, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partly.Applied
	}
	done := make([]Applied, len(results))
	for i, r := range results {
		done[i] = Applied{Version: r.Source.Version, Name: r.Source.Path, Took: r.Duration}
	}
	if err != nil {
		return done, fmt.Errorf("migrate: %w", err)
	}
	if err := installShards(ctx, db, shards); err != nil {
		return done, err
	}
	return done, errors.Join(installKey(ctx, db, "cursor_key", 32), installKey(ctx, db, "site", 8))
}

// Status lists every migration, oldest first. Those that only a newer version of the program knows come last.
func Status(ctx context.Context, dsn string) ([]Applied, error) {
	db, provider, err := open(dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	status, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	list := make([]Applied, 0, len(status))
	for _, s := range status {
		list = append(list, Applied{Version: s.Source.Version, Name: s.Source.Path, At: s.AppliedAt})
	}
	const newer = `
		SELECT version_id, MAX(tstamp)
		FROM goose_db_version
		WHERE is_applied AND version_id>?
		GROUP BY version_id
		ORDER BY version_id`
	rows, err := db.QueryContext(ctx, newer, Latest())
	if err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var a Applied
		if err := rows.Scan(&a.Version, &a.At); err != nil {
			return nil, fmt.Errorf("migration status: %w", err)
		}
		list = append(list, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	return list, nil
}

// Latest returns the number of the last migration that this version of the program knows.
func Latest() int64 {
	names, err := fs.Glob(files, "*.sql") // ascending
	if err != nil || len(names) == 0 {
		panic("no migrations are embedded")
	}
	version, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		panic(err)
	}
	return version
}

// ErrNewerSchema means that a newer version of the program has migrated the database.
var ErrNewerSchema = errors.New("the schema is newer than this version of the program")

// ErrOlderSchema means that migrations are pending.
var ErrOlderSchema = errors.New("the schema is older than this version of the program: run `likewise migrate up`")

// Check compares the schema with this version of the program. It returns ErrOlderSchema or ErrNewerSchema if the two
// differ.
func Check(ctx context.Context, db *sql.DB) error {
	const query = `
		SELECT COALESCE(MAX(version_id), 0)
		FROM goose_db_version
		WHERE is_applied`
	var version int64
	if err := db.QueryRowContext(ctx, query).Scan(&version); err != nil {
		return fmt.Errorf("read the version of the schema: %w", err)
	}
	switch latest := Latest(); {
	case version < latest:
		return fmt.Errorf("%w (it has migration %d of %d)", ErrOlderSchema, version, latest)
	case version > latest:
		return fmt.Errorf("%w (it has migration %d, and this version knows %d)", ErrNewerSchema, version, latest)
	}
	return nil
}

func open(dsn string) (*sql.DB, *goose.Provider, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("mysql dsn: %w", err)
	}
	// A statement on a large table may take hours. If the connection timed out, the server would finish the statement,
	// but goose would not record it, and the next run would fail because the change is already there.
	config.ReadTimeout, config.WriteTimeout = 0, 0
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, nil, fmt.Errorf("mysql dsn: %w", err)
	}
	db := sql.OpenDB(connector)
	locker, err := lock.NewMySQLTableLocker(
		lock.WithTableLeaseDuration(10*time.Second),
		lock.WithTableHeartbeatInterval(2*time.Second),
		lock.WithTableLockTimeout(500*time.Millisecond, 240),
	)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("migration lock: %w", err), db.Close())
	}
	provider, err := goose.NewProvider(goose.DialectMySQL, db, files, goose.WithLocker(locker))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read migrations: %w", err), db.Close())
	}
	return db, provider, nil
}

func installShards(ctx context.Context, db *sql.DB, shards int) error {
	var installed int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM like_shards").Scan(&installed); err != nil {
		return fmt.Errorf("count shards: %w", err)
	}
	switch {
	case installed == 0:
		if shards == 0 {
			shards = DefaultShards
		}
		rows := make([]string, shards)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d)", i)
		}
		// IGNORE: another process may install the same rows at this moment.
		_, err := db.ExecContext(ctx, "INSERT IGNORE INTO like_shards (shard) VALUES "+strings.Join(rows, ","))
		if err != nil {
			return fmt.Errorf("install shards: %w", err)
		}
	case shards != 0 && shards != installed:
		return fmt.Errorf("%w: this database has %d, not %d", ErrShards, installed, shards)
	}
	return nil
}

// installKey makes a random value of a setting, of some bytes, unless there is one.
func installKey(ctx context.Context, db *sql.DB, name string, size int) error {
	key := make([]byte, size)
	rand.Read(key) // never fails: crypto/rand ends the process instead
	const insert = "INSERT IGNORE INTO settings (name, value) VALUES (?, UNHEX(?))"
	if _, err := db.ExecContext(ctx, insert, name, hex.EncodeToString(key)); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	return nil
}
