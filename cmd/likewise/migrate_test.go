package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/migrations"
)

// An old program on a newer schema might write rows that the new one does not expect. An operator who undoes an upgrade
// starts it on purpose.
func TestStart_refusesTheSchemaOfAnotherVersion(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, url := s.api("--likes=direct")
	next := migrations.Latest() + 1
	s.exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, 1)", next)
	commands := []string{
		"api --likes=direct", "worker", "cron", "cron run purge", "verify", "user token --count 1", "likes gated",
		"import stackexchange .",
	}
	for _, args := range commands {
		said := fail(t, 1, s.env, strings.Fields(args)...)
		assert.Contains(t, said, "the schema is newer than this version of the program", args)
		assert.Contains(t, said, "--allow-newer-schema", args)
	}
	assert.Contains(t, s.succeed("user", "token", "--count", "1", "--allow-newer-schema"), "\t")
	s.env = append(s.env, "LIKEWISE_ALLOW_NEWER_SCHEMA=true")
	assert.Contains(t, s.succeed("user", "token", "--count", "1"), "\t")
	status := s.succeed("migrate", "status")
	assert.Regexp(t, `(?m)^000\d\d of a newer version +2\d{3}-`, status)
	assert.Contains(t, status, "the schema is newer than this version of the program")
	assert.NotContains(t, s.succeed("migrate", "up"), "up to date")
	reply, err := http.Get(url + "/v1/posts")
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	assert.Equal(t, http.StatusOK, reply.StatusCode, "a process that runs goes on")

	s.exec("DELETE FROM goose_db_version WHERE version_id>=?", next-1)
	said := fail(t, 1, s.env, "worker")
	assert.Contains(t, said, "the schema is older than this version of the program: run `likewise migrate up`")
}

// Ids, epochs and global ids that were issued after the backup are in Kafka, in links and in clients.
func TestRestored_raisesEveryID(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.succeed("user", "create", "ada", "ada@example.org")
	s.exec("INSERT INTO settings (name, value) VALUES ('ids', '5')")
	var tables []string
	rows, err := s.db.QueryContext(t.Context(), `
		SELECT table_name
		FROM information_schema.columns
		WHERE table_schema=DATABASE() AND extra LIKE '%auto_increment%' AND table_name NOT LIKE 'goose%'`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var table string
		require.NoError(t, rows.Scan(&table))
		tables = append(tables, table)
	}
	require.NoError(t, rows.Err())
	require.Contains(t, tables, "users")
	out := s.succeed("migrate", "restored")
	for _, table := range tables {
		assert.Regexp(t, `(?m)^`+table+` +next id 1\d{8}$`, out)
	}
	s.succeed("user", "create", "bob", "bob@example.org")
	assert.Equal(t, 1, s.count("SELECT COUNT(*) FROM users WHERE id>100000000"))
	assert.Equal(t, 1, s.count("SELECT COUNT(*) FROM settings WHERE name='ids' AND value>3600000"))
	assert.Zero(t, s.count("SELECT COUNT(*) FROM like_shards WHERE epoch<UNIX_TIMESTAMP()-600"))
	again := s.succeed("migrate", "restored")
	assert.Regexp(t, `(?m)^users +next id 2\d{8}$`, again)
}
