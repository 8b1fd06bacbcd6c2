package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

// TestModeration_ofAllContentSurvivesKills kills the cron process that deletes all content of a user, and the one that
// restores it, half way. Counts are exact at any time, and the next process continues.
func TestModeration_ofAllContentSurvivesKills(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start("worker")
	_, url := s.api()
	s.awaitOpen()
	users := s.accounts(3)
	mod, eve, ada := users[0], users[1], users[2]
	s.succeed("user", "promote", "script-1", "moderator")
	post := newPost(t, url, ada)
	own := newPost(t, url, eve)
	ours := newComment(t, url, ada, own)
	const comments = 8000
	s.exec(
		"INSERT INTO comments (post_id, user_id, content) VALUES " + strings.Repeat(
			fmt.Sprintf("(%d,%d,'Buy!'),", post.ID, eve.id),
			comments-1,
		) + fmt.Sprintf(
			"(%d,%d,'Buy!')",
			post.ID,
			eve.id,
		),
	)
	s.exec("UPDATE posts SET comments_count=? WHERE id=?", comments, post.ID)
	like(t, url, mod, own.path(), true)
	like(t, url, mod, fmt.Sprintf("/v1/comments/%d", ours.ID), true)
	counted := func() int {
		// One statement sees one moment.
		s.t.Helper()
		require.Zero(t, s.count(`
			SELECT COUNT(*)
			FROM posts p
			WHERE p.comments_count<>(SELECT COUNT(*) FROM comments c WHERE c.post_id=p.id AND c.status=?)`,
			models.StatusNormal))
		return s.count("SELECT comments_count FROM posts WHERE id=?", post.ID)
	}
	// halfWay kills cron after it has begun and before it is done.
	halfWay := func(column string) {
		t.Helper()
		cron := s.start("cron")
		testkit.Eventually(t, patience, func() (bool, string) {
			return s.count("SELECT "+column+" FROM content_operations") > 0, "cron has not begun"
		})
		cron.Kill()
		n := s.count("SELECT " + column + " FROM content_operations")
		require.Less(t, n, comments, "cron was too quick to be killed")
		counted()
	}
	var operation struct {
		ID    int64
		State string
	}
	call(
		t,
		url,
		mod,
		"POST",
		fmt.Sprintf("/v1/admin/users/%d/content/delete", eve.id),
		obj{"reason": "Spam."},
		http.StatusAccepted,
		&operation,
	)
	path := fmt.Sprintf("/v1/admin/operations/%d", operation.ID)
	halfWay("comments_deleted")
	s.succeed("cron", "run", "moderate")
	call(t, url, mod, "GET", path, nil, http.StatusOK, &operation)
	assert.Equal(t, "deleted", operation.State)
	assert.Zero(t, counted())
	for _, gone := range []string{own.path(), fmt.Sprintf("/v1/comments/%d", ours.ID)} {
		call(t, url, ada, "PUT", gone+"/like", nil, http.StatusNotFound, nil)
	}
	call(t, url, mod, "POST", path+"/undo", obj{"reason": "It was somebody else."}, http.StatusAccepted, nil)
	halfWay("comments_restored")
	s.succeed("cron", "run", "moderate")
	call(t, url, mod, "GET", path, nil, http.StatusOK, &operation)
	assert.Equal(t, "undone", operation.State)
	assert.Equal(t, comments, counted())
	assert.Equal(t, int64(2), like(t, url, ada, own.path(), true).LikesCount)
	assert.Equal(t, int64(2), like(t, url, ada, fmt.Sprintf("/v1/comments/%d", ours.ID), true).LikesCount)
	assert.Equal(t, "deleted or restored 0 posts and comments\n", s.succeed("cron", "run", "moderate"))
	s.succeed("cron", "run", "flush")
	s.verify()
}
