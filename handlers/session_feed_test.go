package handlers_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/likes"
	"likewise/models/privacy"
)

// lookups returns how many of the statements look up tokens.
func lookups(statements []string) int {
	n := 0
	for _, s := range statements {
		if strings.Contains(s, "WHERE s.token_hash IN") {
			n++
		}
	}
	return n
}

// awaitFeed returns once the API has read the changes of sessions that are committed now.
func awaitFeed(t *testing.T, sent *sentStatements) {
	t.Helper()
	readings := func() int {
		sent.mu.Lock()
		defer sent.mu.Unlock()
		return sent.feeds
	}
	begun := readings()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		return readings() >= begun+4, "the changes of sessions are not read"
	})
	sent.take()
}

// The reader reads the last change again each second, to see that it is there. It does not count again.
func TestSessions_theLastChangeIsOne(t *testing.T) {
	t.Parallel()
	store, sent := openRecorded(t, testkit.Database(t))
	a := serve(t, store)
	ada, bob := a.account(t), a.account(t)
	a.must(t, 200, ada, "PUT", userPath(bob)+"/block", nil)
	awaitFeed(t, sent)
	a.must(t, 200, bob, "GET", "/v1/me", nil) // now the session is cached
	awaitFeed(t, sent)
	a.must(t, 200, bob, "GET", "/v1/me", nil)
	for _, statement := range sent.take() {
		assert.NotContains(t, statement, "FROM sessions")
	}
}

func TestSessions_aKnownTokenIsNotLookedUpUntilItsUserChanges(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	store, sent := openRecorded(t, dsn)
	elsewhere := serve(t, openStore(t, dsn))
	var ahead clock
	a := serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	ada, bob := a.account(t), a.account(t)
	awaitFeed(t, sent)
	a.must(t, 200, ada, "GET", "/v1/posts", nil)
	a.must(t, 200, bob, "GET", "/v1/posts", nil)
	for range 5 {
		ahead.advance(time.Minute)
		awaitFeed(t, sent)
		a.must(t, 200, ada, "GET", "/v1/posts", nil)
		assert.Zero(t, lookups(sent.take()), "the token was known and is looked up")
	}
	elsewhere.must(t, 200, ada, "PATCH", "/v1/me", obj{"display_name": "Countess"})
	awaitFeed(t, sent)
	a.must(t, 200, bob, "GET", "/v1/posts", nil)
	assert.Zero(t, lookups(sent.take()), "the change of another user counts")
	a.must(t, 200, ada, "GET", "/v1/posts", nil)
	assert.Equal(t, 1, lookups(sent.take()))
	ahead.advance(6 * time.Minute)
	awaitFeed(t, sent)
	a.must(t, 200, bob, "GET", "/v1/posts", nil)
	assert.Equal(t, 1, lookups(sent.take()), "no entry is older than 10 minutes")
}

// Each act that ends or changes sessions in one process reaches another one, whose clock does not move, through the
// feed. Reads and likes rely on it; transactions look at the session themselves.
func TestSessions_changesReachEveryProcess(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	here := serve(t, store)
	there := serve(t, store, func(c *handlers.Config) { // as behind the gate, where likes do not look at blocks again
		c.Likes = scriptedLikes{likes.New(store), func(context.Context) (models.LikeState, error) {
			return models.LikeState{Liked: true, Count: 1}, nil
		}}
	})
	admin := here.grow(t, here.account(t), models.RoleAdmin)
	status := func(as account) int { return there.send(t, as, "GET", "/v1/me", nil).Status }
	for name, end := range map[string]func(ada account) (want int){
		"logout": func(ada account) int { here.must(t, 204, ada, "POST", "/v1/auth/logout", nil); return 401 },
		"ban": func(ada account) int {
			here.must(t, 200, admin, "POST", fmt.Sprintf("/v1/admin/users/%d/ban", ada.ID), obj{"reason": "Spam."})
			return 401
		},
		"deletion": func(ada account) int {
			_, err := privacy.New(store).DeleteUser(t.Context(), ada.ID, "")
			require.NoError(t, err)
			return 401
		},
		"demotion": func(ada account) int {
			require.NoError(t, accounts.New(store).SetRole(t.Context(), ada.ID, models.RoleModerator))
			require.NoError(t, accounts.New(store).SetRole(t.Context(), ada.ID, models.RoleUser))
			return 401
		},
	} {
		ada := here.account(t)
		require.Equal(t, 200, status(ada), name)
		want := end(ada)
		began := time.Now()
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			got := status(ada)
			return got == want, fmt.Sprintf("%s: %d", name, got)
		})
		t.Logf("%s took effect after %v", name, time.Since(began))
	}
	ada := here.grow(t, here.account(t), models.RoleModerator)
	const byEmail = "/v1/admin/users?email=a@example.org" // for admins
	there.must(t, 403, ada, "GET", byEmail, nil)
	require.NoError(t, accounts.New(store).SetRole(t.Context(), ada.ID, models.RoleAdmin))
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		r := there.send(t, ada, "GET", byEmail, nil)
		return r.Status == 200, "promoted: " + r.String()
	})
	bob, eve := here.account(t), here.account(t)
	p := here.newPost(t, eve)
	there.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
	here.must(t, 200, eve, "PUT", fmt.Sprintf("/v1/users/%d/block", bob.ID), nil)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { // models.Session.Blocked
		r := there.send(t, bob, "PUT", pathOf(p)+"/like", nil)
		return r.Status == 403, "blocked: " + r.String()
	})
}

// If the feed cannot be read, every token is looked up again after 4 s.
func TestSessions_endWithoutTheFeed(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	here := serve(t, store)
	var ahead clock
	there := serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	ada := here.account(t)
	_, err := store.Pool().Exec("RENAME TABLE session_changes TO hidden")
	require.NoError(t, err)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		return strings.Contains(there.log.String(), "changes of sessions cannot be read"), "nothing is logged"
	})
	there.must(t, 200, ada, "GET", "/v1/me", nil)
	_, err = store.Pool().Exec("DELETE FROM sessions WHERE user_id=?", ada.ID)
	require.NoError(t, err)
	ahead.advance(5 * time.Second)
	there.refused(t, 401, "unauthorized", ada, "GET", "/v1/me", nil)
	_, err = store.Pool().Exec("RENAME TABLE hidden TO session_changes")
	require.NoError(t, err)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		return strings.Contains(there.log.String(), "changes of sessions are read again"), "nothing is logged"
	})
}

// A number that was issued first may be committed last, and one that was rolled back never.
func TestSessions_lateChangesAreRead(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	store, sent := openRecorded(t, dsn)
	other := openStore(t, dsn)
	a := serve(t, store)
	ada, bob, eve := a.account(t), a.account(t), a.account(t)
	for _, as := range []account{ada, bob, eve} {
		a.must(t, 200, as, "GET", "/v1/me", nil)
	}
	late, err := other.Pool().Begin()
	require.NoError(t, err)
	const insert = "INSERT INTO session_changes (user_id) VALUES (?)"
	_, err = late.Exec(insert, ada.ID)
	require.NoError(t, err)
	_, err = late.Exec("DELETE FROM sessions WHERE user_id=?", ada.ID)
	require.NoError(t, err)
	never, err := other.Pool().Begin()
	require.NoError(t, err)
	_, err = never.Exec(insert, eve.ID)
	require.NoError(t, err)
	require.NoError(t, never.Rollback())
	_, err = other.Pool().Exec(insert, bob.ID)
	require.NoError(t, err)
	awaitFeed(t, sent)
	a.must(t, 200, bob, "GET", "/v1/posts", nil)
	a.must(t, 200, eve, "GET", "/v1/posts", nil)
	require.NoError(t, late.Commit())
	awaitFeed(t, sent)
	a.refused(t, 401, "unauthorized", ada, "GET", "/v1/posts", nil)
}

// A database that was restored from a backup issues the same numbers once more.
func TestSessions_changesOfARestoredDatabaseAreRead(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	store, sent := openRecorded(t, dsn)
	a := serve(t, store)
	ada := a.account(t)
	for range 3 {
		a.must(t, 204, a.account(t), "POST", "/v1/auth/logout", nil)
	}
	a.must(t, 200, ada, "GET", "/v1/me", nil)
	awaitFeed(t, sent)
	for _, restore := range []string{
		"TRUNCATE TABLE session_changes",
		fmt.Sprintf("DELETE FROM sessions WHERE user_id=%d", ada.ID),
		fmt.Sprintf("INSERT INTO session_changes (user_id) VALUES (%d)", ada.ID),
	} {
		_, err := store.Pool().Exec(restore)
		require.NoError(t, err)
	}
	awaitFeed(t, sent)
	a.refused(t, 401, "unauthorized", ada, "GET", "/v1/posts", nil)
	assert.Contains(t, a.log.String(), "restored from a backup")
}

func TestSessions_tokensThatArriveTogetherShareAQuery(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	store, sent := openRecorded(t, dsn)
	a := serve(t, store)
	const crowd = 200
	users := make([]account, crowd)
	for i := range users {
		name := fmt.Sprintf("crowd-%d", i)
		u := &models.User{Username: name, Email: name + "@example.org", PasswordHash: "x"}
		require.NoError(t, accounts.New(store).CreateUser(t.Context(), u))
		token, err := accounts.New(store).CreateSession(t.Context(), u.ID)
		require.NoError(t, err)
		users[i] = account{ID: u.ID, Token: token}
	}
	unknown := make([]string, crowd)
	for i := range unknown {
		unknown[i], _ = models.NewToken()
	}
	sent.take()
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			if r, err := a.try(users[i], "GET", "/v1/me/bookmarks", nil); err != nil || r.Status != 200 {
				t.Errorf("%v, %v", r, err)
			}
		})
		all.Go(func() {
			if r, err := a.try(account{Token: unknown[i]}, "GET", "/v1/me", nil); err != nil || r.Status != 401 {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	all.Wait()
	n := lookups(sent.take())
	t.Logf("%d tokens took %d queries", 2*crowd, n)
	assert.Less(t, n, crowd)
}
