package handlers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
)

// waiting counts the running statements of this form.
func (a *api) waiting(t *testing.T, statements string) int64 {
	t.Helper()
	return a.number(t, "SELECT COUNT(*) FROM information_schema.processlist"+
		" WHERE db=DATABASE() AND command='Query' AND info LIKE '"+statements+"'"+
		" AND info NOT LIKE '%processlist%'")
}

// A statement ends with its request: a second after the deadline, the process list does not show it.
func TestRequest_endsOnTheDatabaseServer(t *testing.T) {
	a := serve(t, openStore(t, testkit.Database(t)), func(c *handlers.Config) { c.Timeout = 700 * time.Millisecond })
	ada := a.account(t)
	p := a.newPost(t, ada)
	conn, err := a.store.Pool().Conn(t.Context())
	require.NoError(t, err)
	run := func(query string) {
		t.Helper()
		if _, err := conn.ExecContext(context.Background(), query); err != nil {
			t.Fatal(err)
		}
	}
	// Reading any post evaluates this, which takes hours.
	run("RENAME TABLE bookmarks TO kept_bookmarks")
	collations := "information_schema.collations"
	run("CREATE VIEW bookmarks AS SELECT a.id AS id, b.id AS user_id, c.id AS post_id FROM " + collations + " a, " +
		collations + " b, " +
		collations + " c, " + collations + " d, " + collations + " e, " + collations +
		" f WHERE a.id+b.id+c.id+d.id+e.id+f.id<0")
	left := "%SELECT%bookmarks%"
	t.Cleanup(func() {
		for _, id := range a.ids(t, "SELECT id FROM information_schema.processlist"+
			" WHERE db=DATABASE() AND command='Query' AND info LIKE '"+left+"' AND info NOT LIKE '%processlist%'") {
			run(fmt.Sprintf("KILL %d", id))
		}
		conn.Close()
	})
	for _, path := range []string{pathOf(p), "/v1/posts", "/v1/posts?q=content", "/v1/posts?q=content&sort=hot",
		fmt.Sprintf("/v1/users/%d/posts?sort=top", ada.ID)} {
		started := time.Now()
		_, r := a.refused(t, 503, "unavailable", ada, "GET", path, nil)
		if r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			n := a.waiting(t, left)
			if n > 0 && time.Since(started) > 1700*time.Millisecond {
				t.Errorf("%s: a second after the request its query is still there", path)
				return true, ""
			}
			return n == 0, fmt.Sprintf("%d queries go on", n)
		})
	}
	run("DROP VIEW bookmarks")
	run("RENAME TABLE kept_bookmarks TO bookmarks")

	// A write that waits for a row lock ends, too.
	run("START TRANSACTION")
	run(fmt.Sprintf("SELECT id FROM posts WHERE id=%d FOR UPDATE", p.ID))
	a.refused(t, 503, "unavailable", ada, "POST", pathOf(p)+"/comments", obj{"content": "C"})
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		n := a.waiting(t, "UPDATE posts%")
		return n == 0, fmt.Sprintf("%d writes wait", n)
	})
	run("ROLLBACK")
	a.must(t, 200, ada, "GET", pathOf(p), nil)
}
