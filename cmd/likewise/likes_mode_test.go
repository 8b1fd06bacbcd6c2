package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Redis keeps what a site had there before direct mode. None of it may count when the site is gated again.
func TestLikes_switchBetweenGatedAndDirect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	users := s.accounts(2)
	ada, bob := users[0], users[1]
	worker := s.start("worker")
	api, url := s.api()
	s.awaitOpen()
	post := newPost(t, url, ada)
	require.Equal(t, likeJSON{true, 1}, like(t, url, ada, post.path(), true))

	direct := append([]string{"LIKEWISE_LIKES=direct"}, s.env...)
	assert.Contains(t, fail(t, 1, direct, "api"), "The likes of this site are gated, and not direct")
	assert.Contains(t, fail(t, 1, direct, "cron", "run", "drift"), "The likes of this site are gated")

	// An api that was not stopped accepts no likes from now on, though its worker runs.
	s.succeed("cron", "run", "flush")
	assert.Contains(t, s.succeed("likes", "direct"), "likes are direct")
	reply, err := send(t, url, bob, "PUT", post.path()+"/like", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, reply.status, reply)
	assert.Contains(t, s.succeed("likes", "direct"), "likes are direct", "again")
	assert.Contains(t, fail(t, 1, s.env, "api"), "The likes of this site are direct, and not gated")
	api.stop()
	worker.stop()

	// Direct mode: what Redis had is changed behind its back.
	d := start(t, direct, "api")
	directURL := "http://" + d.awaitPrint(apiAddress)
	require.Equal(t, likeJSON{false, 0}, like(t, directURL, ada, post.path(), false))
	require.Equal(t, likeJSON{true, 1}, like(t, directURL, bob, post.path(), true))

	assert.Contains(t, succeed(t, s.env, "likes", "gated"), "likes are gated")
	reply, err = send(t, directURL, ada, "PUT", post.path()+"/like", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, reply.status, "the direct api was not stopped")
	d.stop()

	s.start("worker")
	_, url = s.api()
	s.awaitOpen()
	require.Equal(t, likeJSON{false, 1}, like(t, url, ada, post.path(), false), "it was unliked in direct mode")
	require.Equal(t, likeJSON{true, 2}, like(t, url, ada, post.path(), true))
	s.succeed("cron", "run", "flush")
	assert.Equal(t, map[int64]bool{ada.id: true, bob.id: true}, s.rows(likedPost(post)))
	s.verify()
}

func TestLikes_switchToDirectNeedsEveryLikeInMySQL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada := s.accounts(1)[0]
	worker := s.start("worker")
	_, url := s.api()
	s.awaitOpen()
	post := newPost(t, url, ada)
	require.Equal(t, likeJSON{true, 1}, like(t, url, ada, post.path(), true))
	s.succeed("cron", "run", "flush")
	worker.stop()
	require.Equal(t, likeJSON{false, 0}, like(t, url, ada, post.path(), false))

	printed := fail(t, 1, s.env, "likes", "direct")
	assert.Contains(t, printed, "likes stay gated: conflict: MySQL may lack likes and claims that Redis accepted: ")
	assert.Contains(t, printed, "Run `likewise cron run flush`")
	assert.Equal(t, "gated", s.modeOf())
	require.Equal(t, likeJSON{true, 1}, like(t, url, ada, post.path(), true), "the site goes on")
	require.Equal(t, likeJSON{false, 0}, like(t, url, ada, post.path(), false))

	s.succeed("cron", "run", "flush")
	s.exec("UPDATE posts SET likes_count=5 WHERE id=?", post.ID)
	printed = fail(t, 1, s.env, "likes", "direct")
	assert.Contains(t, printed, "Redis, rows and counts do not agree: 1 differences")
	assert.Equal(t, "gated", s.modeOf())
	assert.Contains(t, s.succeed("verify", "--repair"), "1 repaired")
	assert.Equal(t, 1, strings.Count(s.succeed("likes", "direct"), "likes are direct"))
	assert.Empty(t, s.rows(likedPost(post)))
}

// modeOf returns the mode of the site in MySQL, or "" if it has none.
func (s *site) modeOf() (mode string) {
	s.t.Helper()
	const query = "SELECT COALESCE(MAX(value), '') FROM settings WHERE name='likes'"
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&mode))
	return mode
}

func TestLikes_freshSitesHaveNoModeToSwitch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, to := range []string{"gated", "direct"} {
		assert.Contains(t, fail(t, 1, s.env, "likes", to), "No process of this site has started yet.")
		assert.Empty(t, s.modeOf())
	}
}

func TestLikes_switchToDirectNeedsOpenShardsWithoutGaps(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.succeed("cron", "run", "purge") // a first process, but no worker
	printed := fail(t, 1, s.env, "likes", "direct")
	assert.Contains(t, printed, "likes stay gated")
	assert.Contains(t, printed, "shard 0 is closed, MySQL has up to 0-0; shard 1 is closed")
	assert.Equal(t, "gated", s.modeOf())

	s.start("worker")
	s.awaitOpen()
	_, err := s.db.ExecContext(t.Context(), `
		INSERT INTO like_gaps (shard, after_epoch, after_seq, before_epoch, before_seq, created_at)
		VALUES (3, 0, 0, 1, 5, NOW())`)
	require.NoError(t, err)
	assert.Contains(t, fail(t, 1, s.env, "likes", "direct"), "shard 3 has open gaps (1), which the cron job reconcile")
	assert.Equal(t, "gated", s.modeOf())
}
