package testkit

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// AddUsers adds a row for each user id from first to last that has none. Likes of users without a row are dropped.
func AddUsers(t testing.TB, pool *sql.DB, first, last int64) {
	t.Helper()
	var rows []string
	for id := first; id <= last; id++ {
		rows = append(rows, fmt.Sprintf("(%d,'member-%[1]d','member-%[1]d@example.org','')", id))
		if len(rows) < 5000 && id < last {
			continue
		}
		insert := `
			INSERT IGNORE INTO users (id, username, email, password_hash)
			VALUES ` + strings.Join(rows, ",")
		if _, err := pool.ExecContext(t.Context(), insert); err != nil {
			t.Fatalf("add users: %v", err)
		}
		rows = rows[:0]
	}
}
