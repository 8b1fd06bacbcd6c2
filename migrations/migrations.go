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
	Name    string
	At      time.Time // zero while pending
}

// Up applies the pending migrations, and installs the shards (1 to MaxShards) and the key that signs cursors. It can
// run again, and in several processes at once. If shards is 0, the installed number stays, and a new installation gets
// DefaultShards. If another number is installed, Up returns ErrShards.
func Up(ctx context.Context, dsn string, shards int) error {
	if shards < 0 || shards > MaxShards {
		return fmt.Errorf("shards must be between 1 and %d", MaxShards)
	}
	db, provider, err := open(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := installShards(ctx, db, shards); err != nil {
		return err
	}
	return installCursorKey(ctx, db)
}

// Status lists every migration, oldest first.
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
	list := make([]Applied, len(status))
	for i, s := range status {
		list[i] = Applied{Version: s.Source.Version, Name: s.Source.Path, At: s.AppliedAt}
	}
	return list, nil
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

func installCursorKey(ctx context.Context, db *sql.DB) error {
	key := make([]byte, 32)
	rand.Read(key) // never fails: crypto/rand ends the process instead
	const insert = "INSERT IGNORE INTO settings (name, value) VALUES ('cursor_key', UNHEX(?))"
	if _, err := db.ExecContext(ctx, insert, hex.EncodeToString(key)); err != nil {
		return fmt.Errorf("install cursor key: %w", err)
	}
	return nil
}
