package migrations_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/migrations"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// MySQL cannot roll a DDL statement back, so a file with two could be half applied.
func TestFiles_areNumberedAndHoldOneStatementEach(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.sql") // sorted
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for i, name := range files {
		require.Equal(t, fmt.Sprintf("%05d", i+1), name[:5], "the number of %s", name)
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		statement, ok := strings.CutPrefix(string(text), "-- +goose Up\n")
		require.True(t, ok, "%s starts with another line", name)
		require.NotContains(t, statement, "-- +goose", "%s goes forward only", name)
		code := regexp.MustCompile(`'[^']*'|--[^\n]*`).ReplaceAllString(statement, "")
		require.Equal(t, 1, strings.Count(code, ";"), "statements in %s", name)
		if table, ok := strings.CutPrefix(statement, "CREATE TABLE "); ok {
			require.Equal(t, name[6:], table[:strings.IndexByte(table, ' ')]+".sql")
		}
	}
}

// On a large table a migration is silent for longer than any connection of the product waits.
func TestUp_waitsForASlowServer(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "LOCK TABLES settings WRITE") // Up writes to it
	require.NoError(t, err)
	var result error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result = migrations.Up(t.Context(), dsn+"&readTimeout=500ms", 0)
	}()
	select {
	case <-done:
		t.Errorf("Up did not wait: %v", result)
	case <-time.After(3 * time.Second):
	}
	_, err = conn.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	<-done
	require.NoError(t, result)
}
