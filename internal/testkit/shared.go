package testkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"likewise/internal/servers"
	"likewise/migrations"
)

// Database returns the data source name of a new database with the whole schema, for 16 shards, and without content.
// The database is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	name := "test_" + strconv.FormatInt(databases.Add(1), 10)
	server := sharedMySQL(t)
	template, err := makeTemplate()
	if err != nil {
		t.Fatalf("make the database that tests copy: %v", err)
	}
	if err := template.copyTo(t.Context(), name); err != nil {
		t.Fatalf("make database %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := template.drop(context.Background(), name); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return server.DSN(name)
}

// Redis returns the client options of an empty logical database of the test. The database is emptied when the test
// ends. The caller may change the options, except for the number of the database.
func Redis(t testing.TB) *redis.Options {
	t.Helper()
	server := sharedRedis(t)
	number := <-redisDatabases
	opts := &redis.Options{Addr: server.Addr(), DB: number}
	t.Cleanup(func() {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: number})
		defer client.Close()
		if err := client.FlushDB(context.Background()).Err(); err != nil {
			t.Errorf("empty redis database %d: %v", number, err)
			return // so that no other test uses it
		}
		redisDatabases <- number
	})
	return opts
}

// Topic returns a unique name of a topic. The topic does not exist; the product creates it.
func Topic(t testing.TB) (brokers []string, topic string) {
	t.Helper()
	return sharedKafka(t).Brokers(), "likes-" + strconv.FormatInt(topics.Add(1), 10)
}

var (
	databases, topics atomic.Int64
	redisDatabases    = func() chan int {
		numbers := make(chan int, 1023) // without 0, which is the default
		for i := range cap(numbers) {
			numbers <- i + 1
		}
		return numbers
	}()
)

// sharedMySQL returns a server that does not sync to disk. Tests that kill their server use Servers instead.
func sharedMySQL(t testing.TB) *servers.MySQL {
	t.Helper()
	return sharedServer(t, "mysql", &shared.mysql, func(ctx context.Context, dir string) (*servers.MySQL, error) {
		return servers.StartMySQL(ctx, dir, "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF")
	})
}

func sharedRedis(t testing.TB) *servers.Redis {
	t.Helper()
	return sharedServer(t, "redis", &shared.redis, func(ctx context.Context, dir string) (*servers.Redis, error) {
		return servers.StartRedis(ctx, dir)
	})
}

func sharedKafka(t testing.TB) *servers.Kafka {
	t.Helper()
	return sharedServer(t, "kafka", &shared.kafka, servers.StartKafka)
}

// sharedServer starts a server for the first test that needs it. After a failed start, the next test tries again.
func sharedServer[T any](t testing.TB, name string, server **T, start func(context.Context, string) (*T, error)) *T {
	t.Helper()
	dir, err := shared.folder()
	if err != nil {
		t.Fatal(err)
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if *server == nil {
		if *server, err = start(t.Context(), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return *server
}

// template is a migrated database. Copying its tables is much faster than migrating each test's database.
type template struct {
	db     *sql.DB
	tables []table
}

type table struct {
	name, definition string
	columns          string // comma-separated, without generated ones; empty if the table is empty
}

const templateName = "likewise_template"

// makeTemplate creates the template, once in a process.
var makeTemplate = sync.OnceValues(func() (*template, error) {
	ctx := context.Background()
	db, err := sql.Open("mysql", shared.mysql.DSN(""))
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+templateName); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, shared.mysql.DSN(templateName), migrations.DefaultShards); err != nil {
		return nil, err
	}
	t := &template{db: db}
	rows, err := db.QueryContext(ctx, `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema = ? AND COALESCE(generation_expression, '') = ''
		ORDER BY table_name, ordinal_position`, templateName)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, column string
		if err := rows.Scan(&name, &column); err != nil {
			return nil, err
		}
		column = "`" + column + "`"
		if last := len(t.tables) - 1; last >= 0 && t.tables[last].name == name {
			t.tables[last].columns += "," + column
		} else {
			t.tables = append(t.tables, table{name: name, columns: column})
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for i := range t.tables {
		tab := &t.tables[i]
		show := fmt.Sprintf("SHOW CREATE TABLE %s.%s", templateName, tab.name)
		if err := db.QueryRowContext(ctx, show).Scan(&tab.name, &tab.definition); err != nil {
			return nil, err
		}
		var filled bool
		count := fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM %s.%s)", templateName, tab.name)
		if err := db.QueryRowContext(ctx, count).Scan(&filled); err != nil {
			return nil, err
		}
		if !filled {
			tab.columns = ""
		}
	}
	return t, nil
})

func (t *template) copyTo(ctx context.Context, name string) error {
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	statements := []string{
		"CREATE DATABASE " + name,
		"USE " + name,
		"SET foreign_key_checks = 0", // the tables are not ordered by their keys
	}
	for _, tab := range t.tables {
		statements = append(statements, tab.definition)
		if tab.columns != "" {
			statements = append(statements, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s.%s",
				tab.name, tab.columns, tab.columns, templateName, tab.name))
		}
	}
	statements = append(statements, "SET foreign_key_checks = 1")
	for _, s := range statements {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(s, "\n", 2)[0], err)
		}
	}
	return nil
}

// drop drops a database of a test. MySQL 9 takes locks of its own data dictionary for that. About one of 300 drops is
// chosen as the victim of a deadlock with another database's CREATE or DROP, and changes nothing.
func (t *template) drop(ctx context.Context, name string) error {
	const deadlock = 1213
	for attempt := 1; ; attempt++ {
		_, err := t.db.ExecContext(ctx, "DROP DATABASE "+name)
		var refused *mysql.MySQLError
		if attempt == 5 || !errors.As(err, &refused) || refused.Number != deadlock {
			return err
		}
	}
}
