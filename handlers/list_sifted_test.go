package handlers_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"likewise/models"
)

// A list whose rows are mostly hidden has empty pages with cursors, and following them to the end returns every visible
// row once.
func TestLists_continueAfterAnEmptyPage(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, cy, dan := a.account(t), a.account(t), a.account(t), a.account(t)
	// Hidden are all but the first and the last; others is added to ids of users and replies.
	const rows, others = 12_000, 100_000
	for _, statement := range []struct {
		query string
		args  []any
	}{
		{`
INSERT INTO posts (id, user_id, title, content, created_at, status)
WITH digits AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
numbers AS (
	SELECT 1+a.n+10*b.n+100*c.n+1000*d.n+10000*e.n AS n
	FROM digits a, digits b, digits c, digits d, digits e
	WHERE e.n<2)
SELECT n, ?, 'T', 'C', FROM_UNIXTIME(1600000000+n), IF(n IN (1,?), 1, 2)
FROM numbers
WHERE n<=?
ORDER BY n`, []any{bob.ID, rows, rows}},
		{`
INSERT INTO users (id, username, email, password_hash, created_at, deleted_at)
SELECT id+?, CONCAT('hidden',id), CONCAT('hidden',id,'@example.org'), '', created_at, IF(status=1, NULL, created_at)
FROM posts
ORDER BY id`, []any{others}},
		{"INSERT INTO follows (user_id, followed_id) SELECT id, ? FROM users WHERE id>? ORDER BY id",
			[]any{ada.ID, others}},
		{"INSERT INTO follows (user_id, followed_id) SELECT ?, id FROM users WHERE id>? ORDER BY id",
			[]any{ada.ID, others}},
		{`INSERT INTO blocks (user_id, blocked_id, created_at)
			SELECT ?, id, created_at
			FROM users
			WHERE id>?
			ORDER BY id`, []any{cy.ID, others}},
		{`INSERT INTO blocks (user_id, blocked_id)
			SELECT ?, id
			FROM users
			WHERE id>? AND deleted_at IS NOT NULL
			ORDER BY id`, []any{dan.ID, others}},
		{"INSERT INTO post_likes (user_id, post_id) SELECT id, 1 FROM users WHERE id>? ORDER BY id", []any{others}},
		{"INSERT INTO post_likes (user_id, post_id) SELECT ?, id FROM posts ORDER BY id", []any{cy.ID}},
		{"INSERT INTO bookmarks (user_id, post_id) SELECT ?, id FROM posts ORDER BY id", []any{ada.ID}},
		{"INSERT INTO notifications (user_id, kind, actor_id, post_id) SELECT ?, ?, ?, id FROM posts ORDER BY id",
			[]any{ada.ID, models.NotifyMention, bob.ID}},
		{`
INSERT INTO comments (id, post_id, user_id, content, likes_count, created_at, status)
SELECT id, 1, ?, 'C', id DIV 500, created_at, status
FROM posts
ORDER BY id`, []any{bob.ID}},
		{`
INSERT INTO comments (id, post_id, parent_id, depth, user_id, content, likes_count, created_at, status)
SELECT id+?, 1, 1, 2, ?, 'C', id DIV 500, created_at, status
FROM posts
ORDER BY id`, []any{others, bob.ID}},
		{`INSERT INTO tags (id, name, posts_count)
			SELECT id, CONCAT('t',LPAD(id,5,'0')), IF(status=1, 1, 0)
			FROM posts`, nil},
		{"ANALYZE TABLE users, posts, follows, blocks, post_likes, bookmarks, notifications, comments, tags", nil},
	} {
		if _, err := a.store.Pool().ExecContext(t.Context(), statement.query, statement.args...); err != nil {
			t.Fatalf("%s: %v", statement.query, err)
		}
	}

	id := func(item obj) string { return fmt.Sprint(int64(item["id"].(float64)) % others) }
	of := func(name string) func(obj) string { return func(item obj) string { return id(item[name].(obj)) } }
	tag := func(item obj) string { return strings.TrimLeft(item["name"].(string), "t0") }
	first, last := "1", fmt.Sprint(rows)
	for _, list := range []struct {
		path string
		as   account
		id   func(obj) string
		want []string
	}{
		{userPath(ada) + "/followers", account{}, of("user"), []string{last, first}},
		{userPath(ada) + "/following", account{}, of("user"), []string{last, first}},
		{"/v1/me/blocks", cy, of("user"), []string{last, first}},
		{"/v1/posts/1/likes", dan, of("user"), []string{fmt.Sprint(cy.ID), last, first}},
		{"/v1/me/likes", cy, of("post"), []string{last, first}},
		{"/v1/me/bookmarks", ada, id, []string{last, first}},
		{"/v1/notifications", ada, of("post"), []string{last, first}},
		{"/v1/notifications?unread=true", ada, of("post"), []string{last, first}},
		{"/v1/posts/1/comments?sort=old", account{}, id, []string{first, last}},
		{"/v1/posts/1/comments?sort=new", account{}, id, []string{last, first}},
		{"/v1/posts/1/comments?sort=top", account{}, id, []string{last, first}},
		{"/v1/comments/1/replies?sort=old", account{}, id, []string{first, last}},
		{"/v1/comments/1/replies?sort=new", account{}, id, []string{last, first}},
		{"/v1/comments/1/replies?sort=top", account{}, id, []string{last, first}},
		{"/v1/posts/1/thread?depth=1&sort=old", account{}, id, []string{first, last}},
		{"/v1/posts/1/thread?depth=2&sort=top", account{}, id, []string{last, first}},
		{"/v1/tags?sort=name&q=t", account{}, tag, []string{first, last}},
		{"/v1/tags?q=t", account{}, tag, []string{last, first}},
	} {
		var seen []string
		empty := false
		next := list.path + separator(list.path) + "limit=1"
		for pages := 1; next != ""; pages++ {
			if pages > 20 {
				t.Fatalf("%s does not end", list.path)
			}
			p := read[page[obj]](t, a.must(t, 200, list.as, "GET", next, nil))
			for _, item := range p.Items {
				seen = append(seen, list.id(item))
			}
			if next = ""; p.NextCursor != nil {
				empty = empty || len(p.Items) == 0
				next = list.path + separator(list.path) + "limit=1&cursor=" + url.QueryEscape(*p.NextCursor)
			}
		}
		if !slices.Equal(seen, list.want) {
			t.Errorf("%s shows %q, want %q", list.path, seen, list.want)
		}
		if !empty && list.path != "/v1/tags?q=t" { // both used tags are found at once
			t.Errorf("%s does not have an empty page with a cursor", list.path)
		}
	}
}
