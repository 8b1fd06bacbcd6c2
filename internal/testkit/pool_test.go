package testkit

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A database of the template is used, returned and taken again.
func TestPool_emptiesAReturnedDatabase(t *testing.T) {
	p := emptyPool(t)
	const addUser = "INSERT INTO users (username, email, password_hash) VALUES ('ada', 'ada@example.org', '')"
	tests := map[string]struct {
		statements []string
		reused     bool
	}{
		"nothing":                {nil, true},
		"rows":                   {[]string{addUser}, true},
		"rows that were deleted": {[]string{addUser, "DELETE FROM users"}, true},
		"rows of the template": {[]string{
			"DELETE FROM like_shards WHERE shard > 3", "DELETE FROM settings", "DELETE FROM goose_db_version"}, true},
		"one change of all rows": {[]string{"UPDATE like_shards SET epoch = 1"}, true},
		"a new table":            {[]string{"CREATE TABLE more (id INT)"}, false},
		"a lost table":           {[]string{"DROP TABLE tags"}, false},
		"another index":          {[]string{"CREATE INDEX more ON users (created_at)"}, false},
		"a trigger":              {[]string{"CREATE TRIGGER x BEFORE INSERT ON tags FOR EACH ROW SET @x=1"}, false},
		"an event":               {[]string{"CREATE EVENT x ON SCHEDULE AT '2037-01-01' DO SELECT 1"}, false},
		"another collation":      {[]string{"ALTER DATABASE COLLATE utf8mb4_bin"}, false},
		"a routine":              {[]string{"CREATE PROCEDURE more() SELECT 1"}, false},
		"a view":                 {[]string{"CREATE VIEW more AS SELECT 1"}, false},
		"a renamed table":        {[]string{"RENAME TABLE tags TO more"}, false},
		"another default":        {[]string{"ALTER TABLE users ALTER email SET DEFAULT 'x'"}, false},
		"ids that jump on":       {[]string{"ALTER TABLE users AUTO_INCREMENT = 1000"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			first, err := p.take(t.Context())
			require.NoError(t, err)
			fresh := contents(t, p, first)
			db := open(t, first)
			for _, s := range test.statements {
				_, err := db.Exec(s)
				require.NoError(t, err)
			}
			require.NoError(t, db.Close())
			awaitUnused(t, p, first)
			require.NoError(t, p.giveBack(t.Context(), first))
			second, err := p.take(t.Context())
			require.NoError(t, err)
			assert.Equal(t, test.reused, first.name == second.name, "the database is reused")
			assert.Equal(t, fresh, contents(t, p, second))
			db = open(t, second)
			result, err := db.Exec(addUser)
			require.NoError(t, err)
			id, err := result.LastInsertId()
			require.NoError(t, err)
			assert.EqualValues(t, 1, id)
			require.NoError(t, db.Close())
			awaitUnused(t, p, second)
			require.NoError(t, p.giveBack(t.Context(), second))
		})
	}
}

func TestPool_leavesADatabaseThatSomeoneUses(t *testing.T) {
	p := emptyPool(t)
	first, err := p.take(t.Context())
	require.NoError(t, err)
	tx, err := open(t, first).Begin()
	require.NoError(t, err)
	_, err = tx.Exec("DELETE FROM settings") // holds locks
	require.NoError(t, err)
	require.NoError(t, p.giveBack(t.Context(), first))
	second, err := p.take(t.Context())
	require.NoError(t, err)
	assert.NotEqual(t, first.name, second.name)
}

// TestPool_resetsStatistics deletes the rows of a table without ids, after the server has counted them.
func TestPool_resetsStatistics(t *testing.T) {
	p := emptyPool(t)
	first, err := p.take(t.Context())
	require.NoError(t, err)
	db := open(t, first)
	for _, s := range []string{
		"INSERT INTO thread_news (post_id, latest_id, from_id) VALUES (1, 1, 1), (2, 2, 2)",
		"ANALYZE TABLE thread_news", "DELETE FROM thread_news",
	} {
		_, err := db.Exec(s)
		require.NoError(t, err)
	}
	const estimate = `
		SELECT n_rows FROM mysql.innodb_table_stats WHERE table_name = 'thread_news' AND database_name = ?`
	var rows int
	require.NoError(t, db.QueryRow(estimate, first.name).Scan(&rows))
	require.Equal(t, 2, rows)
	require.NoError(t, db.Close())
	awaitUnused(t, p, first)
	require.NoError(t, p.giveBack(t.Context(), first))
	second, err := p.take(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.name, second.name)
	require.NoError(t, p.db.QueryRow(estimate, second.name).Scan(&rows))
	assert.Zero(t, rows)
}

// TestPool_refusesWhatATestHasLeftRunning connects after the end of a test as that test did.
func TestPool_refusesWhatATestHasLeftRunning(t *testing.T) {
	p := emptyPool(t)
	first, err := p.take(t.Context())
	require.NoError(t, err)
	db := open(t, first)
	db.SetMaxIdleConns(-1) // each query connects
	require.NoError(t, db.Ping())
	require.NoError(t, p.giveBack(t.Context(), first))
	awaitUnused(t, p, first)
	require.ErrorContains(t, db.Ping(), "Access denied")
	awaitUnused(t, p, first)
	second, err := p.take(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.name, second.name)
	require.NoError(t, open(t, second).Ping())
	assert.ErrorContains(t, db.Ping(), "Access denied")
}

// emptyPool returns an empty pool of the shared server.
func emptyPool(t *testing.T) *pool {
	t.Helper()
	sharedMySQL(t)
	common, err := sharedPool()
	require.NoError(t, err)
	return &pool{template: common.template}
}

func open(t *testing.T, l lent) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", l.dsn(shared.mysql))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// awaitUnused waits until the server has noticed that connections were closed.
func awaitUnused(t *testing.T, p *pool, l lent) {
	t.Helper()
	Eventually(t, 10*time.Second, func() (bool, string) {
		var used int
		err := p.db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE user = ?", l.name).Scan(&used)
		require.NoError(t, err)
		return used == 0, "connections are open"
	})
}

// contents returns all rows, by table.
func contents(t *testing.T, p *pool, l lent) map[string][][]string {
	t.Helper()
	conn, err := p.db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	rows := map[string][][]string{}
	for _, tab := range p.tables {
		all, err := results(t.Context(), conn, "SELECT "+tab.columns+" FROM "+l.name+"."+tab.name)
		require.NoError(t, err)
		rows[tab.name] = all[0]
	}
	return rows
}
