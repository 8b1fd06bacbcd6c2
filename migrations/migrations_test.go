package migrations_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/migrations"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// On a big table a migration is silent for longer than any connection of the product waits.
func TestUp_waitsForTheServerAsLongAsItTakes(t *testing.T) {
	dsn := testkit.Database(t)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "LOCK TABLES settings WRITE") // Up writes into it
	require.NoError(t, err)
	var result error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result = migrations.Up(t.Context(), dsn+"&readTimeout=500ms", 0)
	}()
	select {
	case <-done:
		t.Errorf("it did not wait: %v", result)
	case <-time.After(3 * time.Second):
	}
	_, err = conn.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	<-done
	require.NoError(t, result)
}
