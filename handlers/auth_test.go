package handlers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/likes"
)

// clock is a clock that a test sets.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

func TestSession_endsEverywhereWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	here := serve(t, store)
	var ahead clock
	there := serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	ada := here.account(t)
	there.must(t, 200, ada, "GET", "/v1/me", nil) // now it is cached
	here.must(t, 204, ada, "POST", "/v1/auth/logout", nil)
	here.refused(t, 401, "unauthorized", ada, "GET", "/v1/me", nil) // here at once
	ahead.advance(5 * time.Second)
	there.refused(t, 401, "unauthorized", ada, "GET", "/v1/me", nil)
}

func TestSession_unknownTokensAreRemembered(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	var ahead clock
	a := serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	ada := a.account(t)
	token, hash := models.NewToken()
	a.refused(t, 401, "unauthorized", account{Token: token}, "GET", "/v1/me", nil)
	if _, err := store.Pool().Exec("INSERT INTO sessions (token_hash, user_id, expires_at) VALUES (?,?,'2037-01-01')",
		hash[:], ada.ID); err != nil {
		t.Fatal(err)
	}
	a.refused(t, 401, "unauthorized", account{Token: token}, "GET", "/v1/me", nil)
	ahead.advance(5 * time.Second)
	a.must(t, 200, account{Token: token}, "GET", "/v1/me", nil)
}

func TestSession_outlivesMySQL(t *testing.T) {
	mysql, err := servers.StartMySQL(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, mysql.Stop(context.Background()))
	})
	dsn, err := mysql.Migrate(t.Context(), "likewise")
	require.NoError(t, err)
	store := openStore(t, dsn)
	var ahead clock
	warm := scriptedLikes{likes.New(store),
		func(context.Context) (models.LikeState, error) { return models.LikeState{Liked: true, Count: 1}, nil }}
	a := serve(t, store, func(c *handlers.Config) { c.Now, c.Likes = ahead.now, warm })
	ada, bob := a.account(t), a.account(t)
	like := func() { t.Helper(); a.must(t, 200, ada, "PUT", "/v1/posts/1/like", nil) }
	like()

	if err := mysql.Pause(); err != nil { // takes connections and never answers
		t.Fatal(err)
	}
	ahead.advance(6 * time.Second)
	start := time.Now()
	like()
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("a silent MySQL held a like up for %v", took)
	}
	require.NoError(t, mysql.Resume())
	require.NoError(t, mysql.Kill())
	like()
	ahead.advance(6 * time.Second)
	like()
	ahead.advance(9 * time.Minute)
	like()
	// A token that is not cached is not reported as invalid, because that is unknown now.
	for _, as := range []account{bob, {Token: "made up"}} {
		if _, r := a.refused(t, 503, "unavailable", as, "PUT", "/v1/posts/1/like",
			nil); r.Header.Get("Retry-After") != "1" {
			t.Errorf("no Retry-After in %v", r.Header)
		}
	}
	a.refused(t, 503, "unavailable", account{}, "GET", "/v1/posts", nil)
	a.refused(t, 503, "unavailable", account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": "x"})
	a.must(t, 200, account{}, "GET", "/healthz", nil)
	ahead.advance(time.Minute)
	a.refused(t, 503, "unavailable", ada, "PUT", "/v1/posts/1/like", nil)

	require.NoError(t, mysql.Start(t.Context()))
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { // the store tries it again once a second
		r := a.send(t, ada, "PUT", "/v1/posts/1/like", nil)
		return r.Status == 200, r.String()
	})
	a.must(t, 200, bob, "GET", "/v1/me", nil)
	a.refused(t, 401, "unauthorized", account{Token: "made up"}, "GET", "/v1/me", nil)
}
