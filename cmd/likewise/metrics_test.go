package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// A deadlock between a request and another connection is counted. The series exists before the first deadlock.
func TestMetrics_countDeadlocks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p, url := s.api("--likes=direct")
	ada := s.accounts(1)[0]
	post := newPost(t, url, ada)
	var parent contentJSON
	call(t, url, ada, "POST", post.path()+"/comments", obj{"content": "A comment."}, http.StatusCreated, &parent)
	holdMetric := func(value string) {
		t.Helper()
		testkit.Eventually(t, patience, func() (bool, string) {
			r, err := send(t, p.admin(), account{}, "GET", "/metrics", nil)
			if err != nil {
				return false, err.Error()
			}
			want := `likewise_transaction_retries_total{cause="deadlock"} ` + value + "\n"
			return strings.Contains(r.body, want), "the metrics have no " + want
		})
	}
	holdMetric("0")

	for n := range 200 {
		s.exec(`
			INSERT INTO users (username, email, password_hash)
			VALUES (CONCAT('user', ?), CONCAT(?, '@example.org'), '')`, n, n)
	}
	other, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	change := func(query string, args ...any) {
		t.Helper()
		_, err := other.ExecContext(t.Context(), query, args...)
		require.NoError(t, err)
	}
	change(
		"UPDATE users SET bio='changed' WHERE username LIKE 'user%'",
	) // the server ends the transaction that has changed less
	change("UPDATE comments SET content='locked' WHERE id=?", parent.ID)
	answered := make(chan reply, 1)
	go func() {
		r, err := sendOnce(url, ada, "/v1/comments/1/replies", `{"content":"A reply."}`, "key")
		if err != nil {
			r.body = err.Error()
		}
		answered <- r
	}()
	testkit.Eventually(t, patience, func() (bool, string) {
		var waits int
		err := s.db.QueryRowContext(context.Background(), `
			SELECT COUNT(*)
			FROM information_schema.processlist
			WHERE db=DATABASE() AND info LIKE 'UPDATE comments FORCE INDEX (PRIMARY)%'`).Scan(&waits)
		return err == nil && waits > 0, "the reply does not wait for its parent"
	})
	change("UPDATE posts SET title='locked' WHERE id=?", post.ID)
	require.NoError(t, other.Commit())
	r := <-answered
	require.Equal(t, http.StatusCreated, r.status, "%s", r)
	holdMetric("1")
}
