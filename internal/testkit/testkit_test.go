package testkit_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/IBM/sarama"
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestDatabase_isMigratedAndPrivate(t *testing.T) {
	open := func() *sql.DB {
		begin := time.Now()
		db, err := sql.Open("mysql", testkit.Database(t))
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		t.Logf("made in %v", time.Since(begin).Round(time.Millisecond))
		return db
	}
	first, second := open(), open()
	_, err := first.Exec("INSERT INTO users (username, email, password_hash) VALUES ('ada', 'ada@example.org', '')")
	require.NoError(t, err)
	for db, want := range map[*sql.DB]int{first: 1, second: 0} {
		var users, shards, versions int
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM users").Scan(&users))
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM like_shards").Scan(&shards))
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM goose_db_version").Scan(&versions))
		require.Equal(t, want, users)
		require.Equal(t, 16, shards)
		require.NotZero(t, versions)
	}
}

func TestRedis_isPrivate(t *testing.T) {
	first, second := redis.NewClient(testkit.Redis(t)), redis.NewClient(testkit.Redis(t))
	t.Cleanup(func() { first.Close(); second.Close() })
	require.NoError(t, first.Set(t.Context(), "key", "value", 0).Err())
	require.ErrorIs(t, second.Get(t.Context(), "key").Err(), redis.Nil)
}

func TestTopic_isPrivate(t *testing.T) {
	brokers, first := testkit.Topic(t)
	_, second := testkit.Topic(t)
	require.NotEqual(t, first, second)
	client, err := sarama.NewClient(brokers, nil)
	require.NoError(t, err)
	defer client.Close()
	topics, err := client.Topics()
	require.NoError(t, err)
	require.NotContains(t, topics, first)
}

func TestServers_canBeKilled(t *testing.T) {
	all := testkit.Servers(t)
	client := redis.NewClient(&redis.Options{Addr: all.Redis.Addr(), MaxRetries: -1})
	defer client.Close()
	require.NoError(t, client.Ping(t.Context()).Err())
	require.NoError(t, all.Redis.Kill())
	require.Error(t, client.Ping(t.Context()).Err())
	require.NoError(t, all.Redis.Start(t.Context()))
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		err := client.Ping(t.Context()).Err()
		return err == nil, "redis does not answer"
	})
}
