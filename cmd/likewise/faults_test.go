package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// The servers are killed one after the other, each back before the next one goes.
func TestSite_goesOnWithoutOneOfItsServers(t *testing.T) {
	t.Parallel()
	s, all := ownSite(t)
	users := s.accounts(21)
	api, url := s.api()
	admin := api.admin()
	s.start("worker")
	s.awaitOpen()
	warm := likedPost(newPost(t, url, users[0]))
	other := likedPost(newPost(t, url, users[0]))
	for _, as := range users {
		like(t, url, as, warm.path, false) // from now on the API knows the token
	}
	like(t, url, users[0], warm.path, true)
	s.succeed("cron", "run", "flush")

	require.NoError(t, all.Kafka.Kill())
	for _, as := range users[:10] {
		like(t, url, as, warm.path, true)
		like(t, url, as, other.path, true)
	}
	awaitReady(t, admin, "ok", http.StatusOK)
	began := time.Now()
	said := fail(t, 1, s.env, "cron", "run", "flush", "--timeout=5s")
	assert.Contains(t, said, "not everything reached MySQL")
	assert.Contains(t, said, "likes in the outbox")
	assert.Less(t, time.Since(began), 40*time.Second)
	assert.Len(t, s.rows(warm), 1)
	require.NoError(t, all.Kafka.Start(t.Context()))
	s.verify()
	assert.Len(t, s.rows(warm), 10)
	assert.Len(t, s.rows(other), 10)

	require.NoError(t, all.MySQL.Kill())
	for _, as := range users {
		like(t, url, as, warm.path, true)
	}
	for _, path := range []string{"/v1/posts", warm.path, warm.path + "/likes", warm.path + "/comments"} {
		r, err := send(t, url, account{}, "GET", path, nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, r.status, "%s: %s", path, r)
	}
	for _, as := range []account{users[0], {token: "unknown"}} {
		r, err := send(t, url, as, "POST", "/v1/posts", obj{"title": "A post", "content": "text"})
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, r.status, "%s", r)
	}
	awaitReady(t, admin, "unavailable", http.StatusServiceUnavailable)
	require.NoError(t, all.MySQL.Start(t.Context()))
	awaitReady(t, admin, "ok", http.StatusOK)
	s.verify()
	assert.Len(t, s.rows(warm), 21)

	require.NoError(t, all.Redis.Kill())
	for _, set := range []bool{true, false} {
		r, err := send(t, url, users[0], likeMethod(set), other.path+"/like", nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, r.status, "%s", r) // and so has Retry-After
	}
	var seen contentJSON
	call(t, url, users[1], "GET", other.path, nil, http.StatusOK, &seen)
	assert.Equal(t, int64(10), seen.LikesCount)
	assert.True(t, seen.Liked)
	call(t, url, users[15], "GET", other.path, nil, http.StatusOK, &seen)
	assert.False(t, seen.Liked)
	var list struct{ Items []contentJSON }
	call(t, url, users[1], "GET", "/v1/posts", nil, http.StatusOK, &list)
	require.Len(t, list.Items, 2)
	for _, item := range list.Items {
		assert.Equal(t, map[int64]int64{warm.id: 21, other.id: 10}[item.ID], item.LikesCount)
		assert.True(t, item.Liked)
	}
	late := likedPost(newPost(t, url, users[2]))
	awaitReady(t, admin, "degraded", http.StatusOK)
	require.NoError(t, all.Redis.Start(t.Context()))
	s.awaitOpen()
	assert.Equal(t, likeJSON{true, 11}, like(t, url, users[20], other.path, true))
	assert.Equal(t, likeJSON{true, 1}, like(t, url, users[20], late.path, true))
	awaitReady(t, admin, "ok", http.StatusOK)
	s.verify()
	assert.Len(t, s.rows(other), 11)
}

// awaitReady waits until /readyz of the admin listener at url has the status word and the HTTP status. What it says may
// be a second old.
func awaitReady(t *testing.T, url, word string, status int) {
	t.Helper()
	testkit.Eventually(t, patience, func() (bool, string) {
		r, err := send(t, url, account{}, "GET", "/readyz", nil)
		require.NoError(t, err)
		return r.status == status && strings.Contains(r.body, `"status":"`+word+`"`), r.String()
	})
}
