package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	_ "github.com/go-sql-driver/mysql"

	"likewise/models"
	"likewise/models/db"
)

// rows is the number of posts, comments and revisions of each kind. It exceeds the size of a page.
const rows = 110

// worst has the ids of the content that fill wrote.
type worst struct {
	author   int64
	post     int64 // the post with all comments and revisions
	small    int64 // a post of ordinary size
	deepest  int64 // the last of a chain of 64 replies
	token    string
	modToken string
}

func openSQL(dsn string) (*sql.DB, error) { return sql.Open("mysql", dsn) }

// fill writes the content with the longest JSON and HTML: 60 KB of ampersands.
func fill(ctx context.Context, store *db.Store) (w worst, err error) {
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
	newUser := func(name string, role models.Role) (id int64, token string) {
		user := &models.User{Username: name, Email: name + models.NoEmailDomain}
		if err == nil {
			err = store.CreateUser(ctx, user)
		}
		insert("UPDATE users SET created_at='2020-01-01', role=? WHERE id=?", role, user.ID)
		if err == nil {
			token, err = store.CreateSession(ctx, user.ID)
		}
		return user.ID, token
	}
	content := strings.Repeat("&", models.MaxContent)
	w.author, w.token = newUser("siege-author", models.RoleUser)
	_, w.modToken = newUser("siege-moderator", models.RoleModerator)
	if err != nil {
		return w, err
	}
	// Posts are created through the store, so that they have tags and search terms, and changed afterwards.
	for i := range rows {
		post, err := store.CreatePost(
			ctx,
			models.Author{ID: w.author},
			models.PostText{Title: fmt.Sprintf("Post %d", i), Content: "needle", Tags: models.Tags{"siege"}},
		)
		if err != nil {
			return w, err
		}
		w.post = post.ID
		insert("UPDATE posts SET content=?, pinned=1 WHERE id=?", content, post.ID)
		insert("INSERT INTO bookmarks (user_id, post_id, created_at) VALUES (?,?,'2026-01-01')", w.author, post.ID)
		insert("INSERT INTO post_likes (user_id, post_id, created_at) VALUES (?,?,'2026-01-01')", w.author, post.ID)
	}
	const comment = `
		INSERT INTO comments (post_id, user_id, parent_id, depth, content, created_at)
		VALUES (?,?,?,?,?,'2026-01-01')`
	for range rows {
		top := insert(comment, w.post, w.author, nil, 1, content)
		insert("INSERT INTO comment_likes (user_id, comment_id, created_at) VALUES (?,?,'2026-01-01')", w.author, top)
		for range 3 {
			insert(comment, w.post, w.author, top, 2, content)
		}
	}
	var parent any
	for depth := 1; depth <= models.MaxDepth; depth++ {
		w.deepest = insert(comment, w.post, w.author, parent, depth, content)
		parent = w.deepest
	}
	for version := range rows {
		insert(`
			INSERT INTO post_revisions (post_id, version, editor_id, title, content, tags, created_at)
			VALUES (?,?,?,'T',?,'','2026-01-01')`, w.post, -version-1, w.author, content)
	}
	if err != nil {
		return w, err
	}
	small, err := store.CreatePost(
		ctx,
		models.Author{ID: w.author},
		models.PostText{Title: "A small post", Content: "A *few* words."},
	)
	if err != nil {
		return w, err
	}
	w.small = small.ID
	return w, nil
}
