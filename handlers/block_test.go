package handlers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"likewise/handlers"
	"likewise/models"
)

// withClock lets a test expire cached sessions.
func withClock(ahead *clock) func(*handlers.Config) {
	return func(c *handlers.Config) { c.Now = ahead.now }
}

func TestBlock_hidesAndEndsFollows(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, eve := a.account(t), a.account(t), a.account(t)
	post := a.newPost(t, bob)
	a.must(t, 200, ada, "PUT", userPath(bob)+"/follow", nil)
	a.must(t, 200, bob, "PUT", userPath(ada)+"/follow", nil)
	for range 2 {
		if got := a.must(t, 200, ada, "PUT", userPath(bob)+"/block", nil).String(); got != `200 {"blocked":true}` {
			t.Errorf("blocked: %s", got)
		}
	}
	if got := a.listed(t, ada, "/v1/me/blocks"); !slices.Equal(got, []int64{bob.ID}) {
		t.Errorf("blocks %v", got)
	}
	for _, u := range []account{ada, bob} {
		if p := a.user(t, ada, u); p.FollowersCount != 0 || p.FollowingCount != 0 || p.Blocked != (u == bob) {
			t.Errorf("after the block: %+v", p)
		}
	}
	a.refused(t, 403, "forbidden", ada, "PUT", userPath(bob)+"/follow", nil)
	a.refused(t, 403, "forbidden", bob, "PUT", userPath(ada)+"/follow", nil)
	a.refused(t, 403, "forbidden", ada, "PUT", userPath(ada)+"/block", nil)
	a.refused(t, 404, "not_found", ada, "PUT", "/v1/users/424242/block", nil)
	for _, path := range []string{"/v1/posts", userPath(bob) + "/posts"} {
		for as, want := range map[account]int{ada: 0, eve: 1, bob: 1, {}: 1} {
			if p := read[page[obj]](t, a.must(t, 200, as, "GET", path, nil)); len(p.Items) != want {
				t.Errorf("%s for %q: %d posts, want %d", path, as.Name, len(p.Items), want)
			}
		}
	}
	a.must(t, 200, eve, "PUT", pathOf(post)+"/like", nil)
	if p := read[page[obj]](t, a.must(t, 200, ada, "GET", userPath(eve)+"/likes", nil)); len(p.Items) != 0 {
		t.Errorf("the list of eve's likes shows %v", p.Items)
	}
	for range 2 {
		a.must(t, 200, ada, "DELETE", userPath(bob)+"/block", nil)
	}
	if p := read[page[obj]](t, a.must(t, 200, ada, "GET", "/v1/posts", nil)); len(p.Items) != 1 {
		t.Errorf("%d posts after the block", len(p.Items))
	}
	a.must(t, 200, bob, "PUT", userPath(ada)+"/follow", nil)
}

func TestBlock_keepsLikesAway(t *testing.T) {
	t.Parallel()
	var ahead clock
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, eve := a.account(t), a.account(t), a.account(t)
		targets := a.targets(t, ada)
		other := a.newPost(t, eve)
		for _, target := range targets {
			a.must(t, 200, bob, "PUT", pathOf(target)+"/like", nil)
		}
		a.must(t, 200, ada, "PUT", userPath(bob)+"/block", nil)
		ahead.advance(5 * time.Second)
		for _, target := range targets {
			a.refused(t, 403, "forbidden", bob, "PUT", pathOf(target)+"/like", nil)
			if got := read[like](t, a.must(t, 200, bob, "DELETE", pathOf(target)+"/like", nil)); got != (like{false,
				0}) {
				t.Errorf("taking the like back: %+v", got)
			}
			a.refused(t, 403, "forbidden", bob, "PUT", pathOf(target)+"/like", nil)
			a.must(t, 200, eve, "PUT", pathOf(target)+"/like", nil)
		}
		a.must(t, 200, bob, "PUT", pathOf(other)+"/like", nil)
		a.refused(t, 404, "not_found", bob, "PUT", "/v1/posts/424242/like", nil)
		a.must(t, 200, ada, "DELETE", userPath(bob)+"/block", nil)
		for _, target := range targets {
			a.must(t, 200, bob, "PUT", pathOf(target)+"/like", nil)
		}
	}, withClock(&ahead))
}

// TestBlock_costsTheUnblockedNothing counts the queries of likes that need none themselves, as behind the gate.
func TestBlock_costsTheUnblockedNothing(t *testing.T) {
	now := time.Now()
	a := newScripted(t, func(context.Context) (models.LikeState,
		error) {
		return models.LikeState{Liked: true, Count: 1}, nil
	},
		func(c *handlers.Config) { c.Now = func() time.Time { return now } })
	ada, bob, eve := a.account(t), a.account(t), a.account(t)
	p := a.newPost(t, eve)
	a.must(t, 200, ada, "PUT", userPath(bob)+"/block", nil)
	awaitFeed(t, a.sent)
	for as, want := range map[account]int{ada: 0, bob: 1, eve: 0} {
		a.must(t, 200, as, "GET", "/v1/me", nil) // now the session is cached
		for method, want := range map[string]int{"PUT": want, "DELETE": 0} {
			a.sent.take()
			for range 20 {
				a.must(t, 200, as, method, pathOf(p)+"/like", nil)
			}
			if asked := a.sent.take(); len(asked) != 20*want {
				t.Errorf("20 times %s by %s ask MySQL %d times, want %d: %q",
					method, as.Name, len(asked), 20*want, asked)
			}
		}
	}
}
