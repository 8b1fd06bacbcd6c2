package handlers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/workers"
)

// TestDeleteMe_reachesRedis deletes an account with much state in Redis, while Redis is down, and keeps sending
// requests with a session that another process has cached.
func TestDeleteMe_reachesRedis(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, server.Stop(context.Background()))
	})
	url := server.URL()
	store := openStore(t, testkit.Database(t))
	gate, likes, _ := pipelineOn(t, store, url)
	a := serve(t, store, limited(t, url, 1), behindProxy, behindGate(likes, likes))
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })

	const home, elsewhere = "192.0.2.1", "198.51.100.7"
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"}, comesFrom(home))
	in := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login",
		obj{"login": "ada", "password": "difference engine"}, comesFrom(home)))
	ada := account{ID: in.User.ID, Token: in.Token}
	bob := a.account(t)
	use := func(as account) post {
		t.Helper()
		p := a.newPost(t, as)
		for range 3 {
			a.must(t, 200, as, "PUT", pathOf(p)+"/like", nil)
		}
		a.must(t, 200, as, "GET", "/v1/posts?q=title", nil)
		return p
	}
	use(ada)
	use(bob)
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": "wrong"},
		comesFrom(elsewhere))
	// kept returns the Redis keys that name the account, and the posts that Redis holds as liked by it.
	kept := func(id int64) (found []string) {
		t.Helper()
		keys, err := client.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			ofTarget := strings.HasPrefix(key, "{")
			if !ofTarget && slices.Contains(strings.Split(key, ":"), fmt.Sprint(id)) {
				found = append(found, key)
			}
			if ofTarget && strings.Contains(key, ":likes:") && client.SIsMember(t.Context(), key, id).Val() {
				found = append(found, key)
			}
		}
		return found
	}
	if len(kept(ada.ID)) == 0 || len(kept(bob.ID)) == 0 {
		t.Fatalf("Redis has %v of one account and %v of the other before", kept(ada.ID), kept(bob.ID))
	}
	a.must(t, 200, ada, "GET", "/v1/me", nil) // the session is cached
	void := func() (done int, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, done, err = workers.NewVoider(a.store, gate, likes).Void(ctx)
		return done, err
	}

	require.NoError(t, server.Stop(t.Context()))
	a.must(t, 204, ada, "DELETE", "/v1/me", obj{"password": "difference engine"})
	if done, err := void(); done != 0 || err == nil {
		t.Fatalf("while Redis is down %d requests are done: %v", done, err)
	}
	require.NoError(t, server.Start(t.Context()))
	if len(kept(ada.ID)) == 0 {
		t.Fatal("Redis restarted without its data")
	}
	testkit.Eventually(t, time.Minute, func() (bool, string) { // the shards have to be opened again
		done, err := void()
		if done != 0 {
			t.Fatal("the request is done although sessions may still be cached")
		}
		return err == nil, fmt.Sprint(err)
	})
	if left := kept(ada.ID); len(left) != 0 {
		t.Errorf("Redis keeps %v", left)
	}
	limiter, err := counters.OpenLimiter(url, time.Minute, nil) // of a process that has cached the session
	require.NoError(t, err)
	t.Cleanup(func() { limiter.Close() })
	limiter.Take(t.Context(), counters.AccountLimit(ada.ID, "writes"), counters.Rate{Burst: 2, Every: time.Hour}, 1)
	if len(kept(ada.ID)) == 0 {
		t.Fatal("nothing was written again")
	}
	a.exec(t, "UPDATE like_voids SET requested_at=requested_at - INTERVAL 12 MINUTE")
	if done, err := void(); err != nil || done != 1 {
		t.Errorf("%d requests are done: %v", done, err)
	}
	if left := kept(ada.ID); len(left) != 0 {
		t.Errorf("Redis keeps %v of what was written after the deletion", left)
	}
	if len(kept(bob.ID)) == 0 {
		t.Error("state of other accounts was deleted from Redis")
	}
}
