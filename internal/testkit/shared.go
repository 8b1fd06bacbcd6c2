package testkit

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"likewise/internal/servers"
)

// Database returns the data source name of a database of the test, with the whole schema, for 16 shards, and without
// content. Its account is an administrator's. After the test, the account gets another password, and another test may
// get the database, emptied.
func Database(t testing.TB) string {
	t.Helper()
	server := sharedMySQL(t)
	pool, err := sharedPool()
	if err != nil {
		t.Fatalf("make the database that tests copy: %v", err)
	}
	l, err := pool.take(t.Context())
	if err != nil {
		t.Fatalf("make database: %v", err)
	}
	t.Cleanup(func() {
		if err := pool.giveBack(context.Background(), l); err != nil {
			t.Errorf("return database: %v", err)
		}
	})
	return l.dsn(server)
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

	// sharedPool is made once, on the shared server.
	sharedPool = sync.OnceValues(func() (*pool, error) {
		c, err := mysql.ParseDSN(shared.mysql.DSN(""))
		if err != nil {
			return nil, err
		}
		c.MultiStatements = true
		db, err := sql.Open("mysql", c.FormatDSN())
		if err != nil {
			return nil, err
		}
		return newPool(context.Background(), db, shared.mysql.DSN(templateName))
	})
	redisDatabases = func() chan int {
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
