package db

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"likewise/internal/testkit"
	"likewise/models"
)

func TestStatement_hasTheLimitOfItsContext(t *testing.T) {
	t.Parallel()
	mysql := limitedReads{server: serverMySQL, background: 15 * time.Second}
	for query, want := range map[string]string{
		"SELECT 1":                      "SELECT /*+ MAX_EXECUTION_TIME(15000) */ 1",
		"\n\tSELECT 1":                  "\n\tSELECT /*+ MAX_EXECUTION_TIME(15000) */ 1",
		"(SELECT 1) UNION (SELECT 2)":   "(SELECT /*+ MAX_EXECUTION_TIME(15000) */ 1) UNION (SELECT 2)",
		"WITH a AS (SELECT 1) SELECT 2": "WITH a AS (SELECT 1) SELECT /*+ MAX_EXECUTION_TIME(15000) */ 2",
		"UPDATE t SET a=1":              "UPDATE t SET a=1",
		"\n\tUPDATE t\n\tSET a=1":       "\n\tUPDATE t\n\tSET a=1",
		// As raw strings begin.
		"\n\t(\n\t\tSELECT 1)\n\tUNION ALL (\n\t\tSELECT 2)": "\n\t(\n\t\tSELECT /*+ MAX_EXECUTION_TIME(15000) */ 1)" +
			"\n\tUNION ALL (\n\t\tSELECT 2)",
		"\n\t\tWITH a AS (\n\t\t\tSELECT 1)\n\t\tSELECT 2": "\n\t\tWITH a AS (\n\t\t\tSELECT 1)" +
			"\n\t\tSELECT /*+ MAX_EXECUTION_TIME(15000) */ 2",
	} {
		assert.Equal(t, want, mysql.statement(context.Background(), query))
		assert.Equal(t, testkit.Unlimited(query), testkit.Unlimited(want), "without its limit")
	}
	mariadb := limitedReads{server: serverMariaDB, background: 15 * time.Second}
	for query, want := range map[string]string{
		"SELECT 1":                   "SET STATEMENT max_statement_time=15.000 FOR SELECT 1",
		"\n\t\tSELECT 1":             "SET STATEMENT max_statement_time=15.000 FOR \n\t\tSELECT 1",
		"\n\t\t(\n\t\t\tSELECT 1)":   "SET STATEMENT max_statement_time=15.000 FOR \n\t\t(\n\t\t\tSELECT 1)",
		"DELETE FROM t":              "DELETE FROM t",
		"\n\t\tDELETE\n\t\tFROM t":   "\n\t\tDELETE\n\t\tFROM t",
		"\n\t\tINSERT INTO t SELECT": "\n\t\tINSERT INTO t SELECT",
	} {
		assert.Equal(t, want, mariadb.statement(context.Background(), query))
		assert.Equal(t, testkit.Unlimited(query), testkit.Unlimited(want), "without its limit")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.Regexp(t, `^SET STATEMENT max_statement_time=5[89]\.\d{3} FOR SELECT 1$`, mariadb.statement(ctx, "SELECT 1"))
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	assert.Contains(t, mariadb.statement(ended, "SELECT 1"), "=0.001 ", "0 would be no limit")
}

// The server ends a read at its time limit: in every form of a statement, and in a transaction.
func TestReads_areEndedByTheServer(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), testkit.Database(t), Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	testkit.AddUsers(t, s.Pool(), 1, 1)
	// It would take days. An interrupted SLEEP is not an error in MySQL.
	const endless = `
		SELECT COUNT(*)
		FROM users u, information_schema.collations a, information_schema.collations b, information_schema.collations c,
			information_schema.collations d`
	var forms sync.WaitGroup
	for name, query := range map[string]string{
		"a query": endless,
		"a union": "(" + endless + ") UNION ALL (SELECT 1)",
		"with":    "WITH r AS (SELECT 1) " + endless,
	} {
		read := func(db *gorm.DB) error {
			var n []int
			return db.Raw(query).Scan(&n).Error
		}
		// A second of the four is left to the server to answer in.
		forms.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			err := read(s.Read(ctx))
			assert.True(t, models.OutOfTime(err), "%s: %v", name, err)
			assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), name)
		})
		forms.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			err := s.Transact(ctx, func(tx *Tx) error { return read(tx.DB) })
			assert.True(t, models.OutOfTime(err), "%s in a transaction: %v", name, err)
		})
	}
	forms.Wait()
	var reads sync.WaitGroup
	for range 2 * BreakerFailures {
		reads.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_ = s.Read(ctx).Raw(endless).Scan(new([]int)).Error
		})
	}
	reads.Wait()
	assert.NoError(t, s.Ping(t.Context()), "a slow read is not an unreachable server")
}
