package db_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
)

// The size of a large site: posts and, for each, a few rows of everything else. User 1 and post 1 have the most.
var (
	largePosts = int64(testkit.Volume(100_000, 30_000))
	largeUsers = int64(testkit.Volume(10_000, 5_000))
)

const largeShare = 5_000 // what belongs to user 1, post 1 or comment 1

// fillLarge writes a large site. Times go up with ids, a minute apiece, and end now.
func fillLarge(t testing.TB, store *db.DB) {
	t.Helper()
	conn, err := patient(store).Conn(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	run := func(query string, args ...any) {
		t.Helper()
		_, err := conn.ExecContext(context.Background(), query, args...)
		require.NoError(t, err, query)
	}
	run("SET unique_checks=0")
	run("CREATE TEMPORARY TABLE digits (n INT PRIMARY KEY)")
	run("INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)")
	run("CREATE TEMPORARY TABLE numbers (n INT PRIMARY KEY)")
	run("INSERT INTO numbers SELECT n FROM digits")
	for size := int64(10); size < largePosts; size *= 10 {
		// A temporary table can be opened once in a statement.
		for digit := int64(1); digit < 10; digit++ {
			run("CREATE TEMPORARY TABLE more AS SELECT n FROM numbers WHERE n<?", size)
			run("INSERT INTO numbers SELECT n+? FROM more", digit*size)
			run("DROP TEMPORARY TABLE more")
		}
	}
	at := "FROM_UNIXTIME(" + strconv.FormatInt(time.Now().Unix()-60*largePosts, 10) + "+60*n)"
	run("START TRANSACTION")
	write := func(table, columns, selected string, n int64) {
		t.Helper()
		const step = 4_000 // rows a statement, none of which takes longer than a connection waits
		for from := int64(0); from < n; from += step {
			run(
				fmt.Sprintf(
					"INSERT INTO %s (%s) SELECT %s FROM numbers WHERE n>=%d AND n<%d ORDER BY n",
					table,
					columns,
					selected,
					from,
					min(from+step, n),
				),
			)
		}
	}
	write(
		"users",
		"id, username, email, password_hash, created_at",
		"n+1, CONCAT('user',n+1), CONCAT('user',n+1,'@x'), '', "+at,
		largeUsers,
	)
	write(
		"posts",
		`id, user_id, title, content, likes_count, comments_count, created_at, updated_at, hot_score, active_at,
			terms_version`,
		fmt.Sprintf(
			`n+1, IF(n%%20=0, 1, 2+n%%(%d-1)), 'A title', 'Some content.', IF(n%%3=0, n%%97, 0), 1, %s, %s,
				UNIX_TIMESTAMP(%s)+n%%997, %s, 1`,
			largeUsers,
			at,
			at,
			at,
			strings.Replace(at, "60*n", "60*n+n%7919", 1),
		),
		largePosts,
	)
	write("comments", "id, post_id, parent_id, user_id, content, likes_count, created_at, updated_at", fmt.Sprintf(
		`n+1, IF(n<%d, 1, n-n%%2+1), IF(n<%d, IF(n BETWEEN 1 AND %d, 1, NULL), IF(n%%2=1, n, NULL)),
			IF(n%%20=0, 1, 2+n%%(%d-1)), 'A comment.', n%%5, %s, %s`,
		2*largeShare,
		2*largeShare,
		largeShare,
		largeUsers,
		at,
		at,
	), largePosts)
	for table, column := range map[string]string{
		"post_likes":    "post_id",
		"comment_likes": "comment_id",
		"bookmarks":     "post_id",
	} {
		target := fmt.Sprintf("IF(n<%d, 1, n+1)", largeShare)
		write(
			table,
			column+", user_id, created_at",
			fmt.Sprintf("%s, IF(n<%d, n+1, IF(n%%10=0, 1, 2+n%%(%d-1))), %s", target, largeShare, largeUsers, at),
			largePosts,
		)
	}
	mine := fmt.Sprintf("IF(n<%[1]d, n+1, IF(n%%50=0, 1, 2+n%%(%[2]d-1))), IF(n<%[1]d, 1, n+1)", largeShare, largeUsers)
	write("subscriptions", "user_id, post_id, level, created_at", mine+", 1+(n%7=0), "+at, largePosts)
	write("read_marks", "user_id, post_id, comment_id, read_at", mine+", n%500, "+at, largePosts)
	write("thread_news", "post_id, latest_id, from_id", fmt.Sprintf("n+1, %d, 0", largeShare), 100)
	write("images", "name, user_id, state, type, width, height, bytes, thumbnail_bytes, due_at",
		"LPAD(n, 20, '0'), IF(n%10=0, 1, 2+n%5), 2, 'image/png', 1, 1, 1, 1, IF(n%100, NULL, NOW())", 2*largeShare)
	write("drafts", "user_id, draft_key, title, content, tags, created_at, updated_at",
		fmt.Sprintf("IF(n<50, 1, n), CONCAT('d',n), '', 'A draft.', '', %s, %s", at, at), largeShare)
	write("follows", "user_id, followed_id, created_at", "1, n+2, "+at, largeShare)
	write("follows", "user_id, followed_id, created_at", "n+2, 1, "+at, largeShare)
	write("follows", "user_id, followed_id, created_at", "n+2, n+3, "+at, largeShare)
	write("blocks", "user_id, blocked_id, created_at", fmt.Sprintf("1, %d-n, %s", largeUsers, at), 1000)
	write("blocks", "user_id, blocked_id, created_at", "n+2, n+3, "+at, largeShare)
	write(
		"sessions",
		"token_hash, user_id, created_at, expires_at",
		"UNHEX(SHA2(n,256)), IF(n%10=0, 1, n), "+at+", NOW() + INTERVAL 1 DAY",
		2*largeShare,
	)
	write("notifications", "user_id, kind, actor_id, post_id, comment_id, created_at, read_at",
		"IF(n%2=0, 1, n), 1, 2, 1+n, n+1, "+at+", IF(n%3=0, NULL, "+at+")", 4*largeShare)
	write(
		"tags",
		"id, name, posts_count",
		fmt.Sprintf("n+1, CONCAT('tag',n+1), IF(n=0, %d, IF(n=1, 50, 1+n%%500))", largePosts/2),
		largeUsers,
	)
	// Half of them go to others below.
	write(
		"post_tags",
		"post_id, tag_id, position, created_at, status, user_id, likes_count, hot_score, active_at",
		fmt.Sprintf(
			`n+1, 1, 0, %s, IF((n+1)%%50=7, 2, 1), IF(n%%20=0, 1, 2+n%%(%d-1)), IF(n%%3=0, n%%97, 0),
				UNIX_TIMESTAMP(%s)+n%%997, %s`,
			at,
			largeUsers,
			at,
			strings.Replace(at, "60*n", "60*n+n%7919", 1),
		),
		largePosts,
	)
	run("UPDATE post_tags SET tag_id=3+post_id%5000 WHERE post_id%2=0 AND post_id%2000<>0")
	run("UPDATE post_tags SET tag_id=2 WHERE post_id%2000=0")
	write("post_terms", "post_id, term, weight", "n+1, IF(n%2=0, 'common', CONCAT('word',n%1000)), 1+n%300", largePosts)
	write("post_terms", "post_id, term, weight", "n+1, CONCAT('mid',n%10), 1+n%299", largePosts)
	write("comment_terms", "comment_id, term, weight", "n+1, IF(n%2=0, 'common', CONCAT('word',n%1000)), 1+n%300",
		largeShare)
	write("comment_terms", "comment_id, term, weight", "n+1, CONCAT('mid',n%10), 1+n%299", largeShare)
	write("moderation_log", "actor_id, action, target_type, target_id, reason, request_id, created_at",
		"1+n%3, IF(n%3=0, 'post.delete', 'user.ban'), IF(n%3=0, 'post', 'user'), 1+n%1000, '', '', "+at, 4*largeShare)
	write(
		"post_revisions",
		"post_id, version, title, content, tags, created_at",
		"1, n, 'A title', 'Some content.', '', "+at,
		largeShare,
	)
	write(
		"comment_revisions",
		"comment_id, version, content, size, created_at",
		"1, n, 'A comment.', 10, "+at,
		largeShare,
	)
	run("UPDATE posts SET version=? WHERE id=1", largeShare)
	run("UPDATE comments SET version=? WHERE id=1", largeShare)
	write("redactions", "is_open, target_type, target_id, version, requested_by, reason, requested_at",
		"IF(n%10<2, 1, NULL), IF(n%2=0, 'post', 'comment'), n+1, 0, IF(n%20=0, 1, n+1), 'A reason.', "+at, 2*largeShare)
	write("report_cases", "is_open, target_type, target_id, reporters_count, first_at, last_at",
		"IF(n%10<2, 1, NULL), IF(n%2=0, 'post', 'comment'), n+1, 1, "+at+", "+at, 4*largeShare)
	write(
		"reports",
		"case_id, reporter_id, reason, detail, created_at",
		fmt.Sprintf("n+1, IF(n%%20=0, 1, 2+n%%(%d-1)), 'spam', '', %s", largeUsers, at),
		4*largeShare,
	)
	write("drops", "id, post_id, user_id, title, stock, claimed, version, created_at, updated_at",
		fmt.Sprintf("n+1, IF(n<%d, 1, n+1), IF(n%%20=0, 1, 2+n%%(%d-1)), 'Tickets', %d, 0, 1+(n%%1000=0), %s, %s",
			largeShare, largeUsers, largePosts, at, at), 4*largeShare)
	write("claims", "drop_id, user_id, id, state, created_at, due_at, to_release",
		fmt.Sprintf("IF(n<%[1]d, 1, n+1), IF(n<%[1]d, n+1, IF(n%%10=0, 1, 2+n%%(%[2]d-1))), n+1, 1+n%%6, %[3]s, "+
			"IF(n%%6=0 AND n%%1000=0, %[3]s, NULL), n%%6>2 AND n%%1001=0", largeShare, largeUsers, at), 4*largeShare)
	write("webhooks", "id, url, events, secret, created_by, created_at, updated_at",
		"n+1, 'https://example.org', 'post.created', '', 1, "+at+", "+at, models.MaxWebhooks)
	write("webhook_events", "id, webhook_id, type, object_type, object_id, user_id, data, state, attempt_log, due_at,"+
		" retry_until, created_at",
		fmt.Sprintf("n+1, 1+n%%40, 'post.created', 'post', n+1, 1+n%%%d, '{}', IF(n%%10=0, 1, 2), '[]', %s, %s, %s",
			largeUsers, at, at, at), 4*largeShare)
	run("UPDATE posts SET pinned=(id%1000=0), locked=(id%500=0), status=IF(id%50=7, 2, 1)")
	run("COMMIT")
	run(`
		ANALYZE TABLE users, posts, comments, post_likes, comment_likes, bookmarks, follows, blocks, sessions,
			notifications, tags, post_tags, post_terms, comment_terms, post_revisions, comment_revisions, redactions,
			moderation_log, report_cases, reports, drops, claims, webhooks, webhook_events, subscriptions, read_marks,
			thread_news, drafts, images`)
}
