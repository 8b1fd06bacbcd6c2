package bench

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/search"
)

// worstRows is the number of posts, comments and revisions of each kind. It exceeds the size of a page.
const worstRows = 110

// worst has the ids of the content that fill wrote.
type worst struct {
	author   int64
	post     int64 // the post with all comments and revisions
	small    int64 // a post of ordinary size
	deepest  int64 // the last of a chain of 64 replies
	token    string
	modToken string
}

// newUser creates an account with a session.
func newUser(ctx context.Context, store *db.DB, name string) (id int64, token string, err error) {
	user := &models.User{Username: name, Email: name + models.NoEmailDomain}
	if err := accounts.New(store).CreateUser(ctx, user); err != nil {
		return 0, "", err
	}
	token, err = accounts.New(store).CreateSession(ctx, user.ID)
	return user.ID, token, err
}

// fill writes the content with the longest JSON and HTML: 60 KB of ampersands.
func fill(ctx context.Context, store *db.DB) (w worst, err error) {
	pool := store.Pool()
	insert := func(query string, args ...any) (id int64) {
		if err != nil {
			return 0
		}
		var result sql.Result
		if result, err = pool.ExecContext(ctx, query, args...); err != nil {
			err = fmt.Errorf("fill: %w", err)
			return 0
		}
		id, _ = result.LastInsertId() // zero if the table has no AUTO_INCREMENT
		return id
	}
	if w.author, w.token, err = newUser(ctx, store, "attacked-author"); err != nil {
		return w, err
	}
	moderator, token, err := newUser(ctx, store, "attacked-moderator")
	if err != nil {
		return w, err
	}
	w.modToken = token
	insert("UPDATE users SET created_at='2020-01-01', role=? WHERE id=?", models.RoleUser, w.author)
	insert("UPDATE users SET created_at='2020-01-01', role=? WHERE id=?", models.RoleModerator, moderator)
	body := strings.Repeat("&", models.MaxContent)
	// Posts are created through the store, so that they have tags and search terms, and changed afterwards.
	for i := range worstRows {
		text := models.PostText{Title: fmt.Sprintf("Post %d", i), Content: "needle", Tags: models.Tags{"attacked"}}
		post, err := content.New(store).CreatePost(ctx, models.Author{ID: w.author}, text)
		if err != nil {
			return w, err
		}
		w.post = post.ID
		insert("UPDATE posts SET content=?, pinned=1 WHERE id=?", body, post.ID)
		insert("INSERT INTO bookmarks (user_id, post_id, created_at) VALUES (?,?,'2026-01-01')", w.author, post.ID)
		insert("INSERT INTO post_likes (user_id, post_id, created_at) VALUES (?,?,'2026-01-01')", w.author, post.ID)
	}
	const comment = `
		INSERT INTO comments (post_id, user_id, parent_id, depth, content, created_at)
		VALUES (?,?,?,?,?,'2026-01-01')`
	for range worstRows {
		top := insert(comment, w.post, w.author, nil, 1, body)
		insert("INSERT INTO comment_likes (user_id, comment_id, created_at) VALUES (?,?,'2026-01-01')", w.author, top)
		for range 3 {
			insert(comment, w.post, w.author, top, 2, body)
		}
	}
	var parent any
	for depth := 1; depth <= models.MaxDepth; depth++ {
		w.deepest = insert(comment, w.post, w.author, parent, depth, body)
		parent = w.deepest
	}
	for version := range worstRows {
		insert(`
			INSERT INTO post_revisions (post_id, version, editor_id, title, content, tags, created_at)
			VALUES (?,?,?,'T',?,'','2026-01-01')`, w.post, -version-1, w.author, body)
	}
	if err != nil {
		return w, err
	}
	text := models.PostText{Title: "A small post", Content: "A *few* words."}
	small, err := content.New(store).CreatePost(ctx, models.Author{ID: w.author}, text)
	if err != nil {
		return w, err
	}
	w.small = small.ID
	return w, nil
}

// The sizes of the large site, besides the number of its posts.
const (
	minLarge     = 10_000
	maxLarge     = 1_000_000
	fillStep     = 20_000 // rows a statement
	largeUsers   = 10_000
	largeTags    = 10_000 // tags with a common prefix
	taggedPosts  = 3_000  // the oldest posts, which have the same tag
	authorShare  = 20     // one post in authorShare has the same author
	topComments  = 5_000  // top-level comments on one post
	repliesOfTop = 4      // replies to each of them
	oldWords     = "alpha bravo charlie delta foxtrot golf lima papa quebec tango"
)

// large has the ids and names of the content that fillLarge wrote.
type large struct {
	author   int64
	authored int // number of posts of the author
	tag      string
	words    string // words of all posts
	prefix   string // common prefix of all tags but one
	post     int64  // the post with all comments
}

// fillLarge writes many ordinary posts, all older than a year. Each post is a minute younger than the one before.
func fillLarge(ctx context.Context, store *db.DB, posts int) (l large, err error) {
	conn, err := store.Pool().Conn(ctx)
	if err != nil {
		return l, err
	}
	defer conn.Close()
	run := func(query string, args ...any) {
		if err != nil {
			return
		}
		if _, err = conn.ExecContext(ctx, query, args...); err != nil {
			err = fmt.Errorf("fill: %w: %s", err, query)
		}
	}
	last := func(table string) (id int64) {
		if err == nil {
			err = conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(id),0) FROM "+table).Scan(&id)
		}
		return id
	}
	run("SET unique_checks=0")
	run("CREATE TEMPORARY TABLE numbers (n INT PRIMARY KEY)")
	const digit = `(
		SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
		UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`
	for from := 0; from < posts; from += 100_000 {
		run(`
			INSERT INTO numbers
			SELECT ?+a.d+10*b.d+100*c.d+1000*e.d+10000*f.d
			FROM `+digit+" a, "+digit+" b, "+digit+" c, "+digit+" e, "+digit+" f", from)
	}
	// insert writes n rows, fillStep in a statement, from the numbers 0 to n-1.
	insert := func(table, columns, selected string, n int, args ...any) {
		for from := 0; from < n; from += fillStep {
			run("INSERT INTO "+table+" ("+columns+") SELECT "+selected+" FROM numbers WHERE n>=? AND n<? ORDER BY n",
				append(slices.Clip(args), from, min(from+fillStep, n))...)
		}
	}
	user, post, comment, tag := last("users")+1, last("posts")+1, last("comments")+1, last("tags")+1
	at := fmt.Sprintf("FROM_UNIXTIME(%d+60*n)", time.Now().AddDate(0, 0, -400).Unix()-60*int64(posts))
	active := strings.Replace(at, "60*n", "60*n+n%7919", 1)
	hot, likes := "UNIX_TIMESTAMP("+at+")+n%997", "IF(n%3=0, n%97, 0)"
	of := fmt.Sprintf("%d+IF(n%%%d=0, 0, 1+n%%(%d-1))", user, authorShare, largeUsers)

	insert("users", "id, username, email, password_hash, created_at",
		fmt.Sprintf("%d+n, CONCAT('large',n), CONCAT('large',n,'%s'), '', %s", user, models.NoEmailDomain, at),
		largeUsers)
	insert("posts",
		"id, user_id, title, content, likes_count, created_at, updated_at, hot_score, active_at, terms_version",
		fmt.Sprintf("%d+n, %s, 'A title', 'Some content.', %s, %s, %s, %s, %s, 1",
			post, of, likes, at, at, hot, active),
		posts)
	insert("tags", "id, name, posts_count",
		fmt.Sprintf("%d+n, IF(n=0, 'attacked-old', CONCAT('large',n)), IF(n=0, %d, 1+n%%500)", tag, taggedPosts),
		largeTags)
	insert("post_tags", "post_id, tag_id, position, created_at, status, user_id, likes_count, hot_score, active_at",
		fmt.Sprintf("%d+n, %d, 0, %s, 1, %s, %s, %s, %s", post, tag, at, of, likes, hot, active), taggedPosts)
	for _, term := range search.QueryTerms(oldWords) { // in the order of the primary key
		insert("post_terms", "post_id, term, weight", fmt.Sprintf("%d+n, ?, 1+n%%300", post), posts, term)
	}
	newest := post + int64(posts) - 1
	insert("comments", "id, post_id, user_id, depth, content, likes_count, created_at, updated_at, terms_version",
		fmt.Sprintf("%d+n, %d, %s, 1, 'A comment.', n%%5, %s, %s, 1", comment, newest, of, at, at), topComments)
	insert("comments",
		"post_id, user_id, parent_id, depth, content, likes_count, created_at, updated_at, terms_version",
		fmt.Sprintf("%d, %s, %d+n DIV %d, 2, 'A reply.', n%%5, %s, %s, 1", newest, of, comment, repliesOfTop, at, at),
		topComments*repliesOfTop)
	run("UPDATE posts SET comments_count=? WHERE id=?", topComments*(1+repliesOfTop), newest)
	run("DROP TEMPORARY TABLE numbers")
	run("SET unique_checks=1")
	if err != nil {
		return l, err
	}
	if err := analyze(ctx, conn); err != nil {
		return l, err
	}
	return large{
		author: user, authored: posts / authorShare, tag: "attacked-old", words: oldWords, prefix: "large",
		post: newest,
	}, nil
}

// analyze updates the statistics of the tables, on which the server's plans depend.
func analyze(ctx context.Context, conn *sql.Conn) error {
	rows, err := conn.QueryContext(ctx, "ANALYZE TABLE users, posts, comments, tags, post_tags, post_terms")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}
