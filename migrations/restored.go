package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// idGap is by how much Restored raises each counter of ids: more than a site issues between two backups. Redis keeps
// ids of users in 4 bytes up to 2^31, which leaves room for 20 restores.
const idGap = 100_000_000

// slotGap is by how much Restored raises the global ids, in ms: they may be some minutes ahead of the clock.
const slotGap = 3_600_000

// Raised is a table and the next id that it issues.
type Raised struct {
	Table string
	Next  int64
}

// Restored prepares a database that was restored from a backup. No id or epoch may be issued again that was issued
// after the backup: events in Kafka, links and clients have it. So Restored raises the ids of all tables by idGap, the
// global ids by slotGap, and the epochs of shards to the time in seconds. It records that time, from which on like
// writers read the topic from the beginning. No process may run meanwhile. Restored can run again.
func Restored(ctx context.Context, dsn string) ([]Raised, error) {
	db, _, err := open(dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := Check(ctx, db); errors.Is(err, ErrNewerSchema) {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	defer conn.Close()
	tables, err := counters(ctx, conn)
	if err != nil {
		return nil, err
	}
	for i := range tables {
		tables[i].Next += idGap
		raise := fmt.Sprintf("ALTER TABLE `%s` AUTO_INCREMENT=%d", tables[i].Table, tables[i].Next)
		if _, err := conn.ExecContext(ctx, raise); err != nil {
			return nil, fmt.Errorf("raise the ids of %s: %w", tables[i].Table, err)
		}
	}
	const slots = `
		UPDATE settings
		SET value=GREATEST(CAST(value AS SIGNED), (UNIX_TIMESTAMP()-1767225600)*1000)+?
		WHERE name='ids'`
	if _, err := conn.ExecContext(ctx, slots, slotGap); err != nil {
		return nil, fmt.Errorf("raise global ids: %w", err)
	}
	const epochs = `
		UPDATE like_shards
		SET epoch=GREATEST(epoch+1, UNIX_TIMESTAMP())`
	if _, err := conn.ExecContext(ctx, epochs); err != nil {
		return nil, fmt.Errorf("raise epochs: %w", err)
	}
	const restored = `
		REPLACE INTO settings (name, value)
		VALUES ('restored', UNIX_TIMESTAMP())`
	if _, err := conn.ExecContext(ctx, restored); err != nil {
		return nil, fmt.Errorf("record the restore: %w", err)
	}
	return tables, nil
}

// counters returns the tables that issue ids, with the next id of each.
func counters(ctx context.Context, conn *sql.Conn) ([]Raised, error) {
	// MySQL caches the numbers for a day otherwise. MariaDB takes the statement for a comment.
	if _, err := conn.ExecContext(ctx, "/*!80000 SET SESSION information_schema_stats_expiry=0 */"); err != nil {
		return nil, fmt.Errorf("read ids: %w", err)
	}
	// In MySQL, a table into which nothing was inserted has no number.
	const query = `
		SELECT t.table_name, COALESCE(t.auto_increment, 1)
		FROM information_schema.columns c
		JOIN information_schema.tables t ON t.table_schema=c.table_schema AND t.table_name=c.table_name
		WHERE c.table_schema=DATABASE() AND c.extra LIKE '%auto_increment%' AND t.table_name NOT LIKE 'goose%'
		ORDER BY t.table_name`
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read ids: %w", err)
	}
	defer rows.Close()
	var tables []Raised
	for rows.Next() {
		var t Raised
		if err := rows.Scan(&t.Table, &t.Next); err != nil {
			return nil, fmt.Errorf("read ids: %w", err)
		}
		tables = append(tables, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read ids: %w", err)
	}
	return tables, nil
}
