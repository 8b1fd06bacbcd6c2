package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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

// A role exports its own metrics and no others: another's zero would look like a measurement, and would hide from an
// alert that nobody has the role.
func TestMetrics_areThoseOfTheRole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	api, _ := s.api()
	web, _ := startWeb(t, "http://127.0.0.1:1")
	roles := map[string]*process{"api": api,
		"worker": s.start(append([]string{"worker"}, withMail(t, "smtp://127.0.0.1:1")...)...),
		"cron":   s.start("cron"), "web": web}
	s.awaitOpen()
	own := map[string][]string{
		"likewise_http_requests_in_flight": {"api"},
		"likewise_gate_total":              {"api", "cron"},
		"likewise_gate_claims_total":       {"api", "cron"},
		"likewise_outbox_limit":            {"api", "cron"},
		"likewise_relay_shards":            {"worker"},
		"likewise_writer_partitions":       {"worker"},
		"likewise_gaps_open":               {"worker"},
		"likewise_dead_letters":            {"worker"},
		"likewise_redis_memory_ratio":      {"worker"},
		"likewise_mail_oldest_seconds":     {"worker"},
		"likewise_warm_targets":            {"cron"},
		"likewise_claims_expired_total":    {"cron"},
		"likewise_drift_total":             {"cron"},
		"likewise_job_failures":            {"cron"},
		"likewise_mysql_refusals_total":    {"api", "worker", "cron"},
		"likewise_dependency_up":           {"api", "worker", "cron", "web"},
	}
	for role, p := range roles {
		var metrics map[string]float64
		testkit.Eventually(t, patience, func() (bool, string) {
			metrics = scrape(t, p.admin())
			_, done := metrics[`likewise_job_failures{task="claims"}`]
			return role != "cron" || done, "no job has run"
		})
		for name, owners := range own {
			_, there := metrics[name]
			assert.Equal(t, slices.Contains(owners, role), there, "%s of %s", name, role)
		}
		for other := range roles {
			likes := "gated"
			if other == "web" {
				likes = ""
			}
			_, there := metrics[`likewise_role{likes="`+likes+`",role="`+other+`"}`]
			assert.Equal(t, role == other, there, "role %s of %s", other, role)
		}
		_, kafka := metrics[`likewise_dependency_up{dependency="kafka"}`]
		assert.Equal(t, role == "worker", kafka, "%s asks Kafka", role)
	}
}
