package handlers_test

import (
	"fmt"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"likewise/handlers"
	"likewise/models"
)

type publicUser struct {
	ID             int64
	Username       string
	DisplayName    *string `json:"display_name"`
	Bio            string
	AvatarURL      *string `json:"avatar_url"`
	PostsCount     int64   `json:"posts_count"`
	CommentsCount  int64   `json:"comments_count"`
	FollowersCount int64   `json:"followers_count"`
	FollowingCount int64   `json:"following_count"`
	Followed       bool
	Blocked        bool
}

type follow struct {
	Followed       bool
	FollowersCount int64 `json:"followers_count"`
}

func userPath(as account) string { return fmt.Sprintf("/v1/users/%d", as.ID) }

func (a *api) user(t *testing.T, as, of account) publicUser {
	t.Helper()
	return read[publicUser](t, a.must(t, 200, as, "GET", userPath(of), nil))
}

// listed returns the ids of the users in a list.
func (a *api) listed(t *testing.T, as account, path string) []int64 {
	t.Helper()
	var ids []int64
	for _, item := range read[page[struct{ User struct{ ID int64 } }]](t, a.must(t, 200, as, "GET", path, nil)).Items {
		ids = append(ids, item.User.ID)
	}
	return ids
}

func TestFollow_isAbsoluteAndCounted(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, eve := a.account(t), a.account(t), a.account(t)
	for _, step := range []struct {
		as     account
		method string
		want   follow
	}{
		{bob, "DELETE", follow{false, 0}}, {bob, "PUT", follow{true, 1}}, {bob, "PUT", follow{true, 1}},
		{eve, "PUT", follow{true, 2}},
		{bob, "DELETE", follow{false, 1}}, {bob, "DELETE", follow{false, 1}}, {bob, "PUT", follow{true, 2}},
	} {
		r := a.must(t, 200, step.as, step.method, userPath(ada)+"/follow", nil)
		if got := read[follow](t, r); got != step.want {
			t.Fatalf("%s by %s: %s, want %+v", step.method, step.as.Name, r, step.want)
		}
	}
	if got, want := a.listed(t, account{}, userPath(ada)+"/followers"),
		[]int64{bob.ID, eve.ID}; !slices.Equal(got, want) {
		t.Errorf("followers %v, want %v", got, want)
	}
	if got, want := a.listed(t, eve, userPath(bob)+"/following"), []int64{ada.ID}; !slices.Equal(got, want) {
		t.Errorf("bob follows %v, want %v", got, want)
	}
	if u := a.user(t, bob, ada); !u.Followed || u.FollowersCount != 2 || u.FollowingCount != 0 {
		t.Errorf("ada is %+v", u)
	}
	if u := a.user(t, account{}, bob); u.Followed || u.FollowersCount != 0 || u.FollowingCount != 1 {
		t.Errorf("bob is %+v", u)
	}
	a.refused(t, 403, "forbidden", ada, "PUT", userPath(ada)+"/follow", nil)
	a.refused(t, 404, "not_found", ada, "PUT", "/v1/users/424242/follow", nil)
	a.refused(t, 404, "not_found", ada, "PUT", "/v1/users/ada/follow", nil)
	a.refused(t, 401, "unauthorized", account{}, "PUT", userPath(ada)+"/follow", nil)
}

func TestFollow_hasALimit(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	for start := 0; start < models.MaxFollows-1; start += 1000 {
		if _, err := a.store.Pool().Exec("INSERT INTO follows (user_id, followed_id)"+
			" WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<?)"+
			" SELECT ?, 1000000+?+i FROM n", min(1000, models.MaxFollows-1-start), ada.ID, start); err != nil {
			t.Fatal(err)
		}
	}
	users := a.accounts(t, 10)
	var took, refused atomic.Int64
	together(len(users), func(i int) {
		switch r, _ := a.try(ada, "PUT", userPath(users[i])+"/follow", nil); r.Status {
		case 200:
			took.Add(1)
		case 409:
			refused.Add(1)
		}
	})
	if took.Load() != 1 || refused.Load() != 9 {
		t.Errorf("%d follows beyond the last were taken and %d refused", took.Load()-1, refused.Load())
	}
	a.refused(t, 409, "conflict", ada, "PUT", userPath(bob)+"/follow", nil)
}

func TestFollow_countsStayRightWhenAllHappensAtOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	users := a.accounts(t, 6)
	together(24, func(i int) {
		for n := range 10 {
			who, whom := users[(i+n)%len(users)], users[(i*5+n*3+1)%len(users)]
			method, what := []string{"PUT", "DELETE", "PUT", "PUT"}[(i+n)%4], "follow"
			if (i+n)%5 == 0 {
				what = "block"
			}
			if r, err := a.try(who, method, userPath(whom)+"/"+what, nil); err != nil || r.Status >= 500 {
				t.Errorf("%s %s: %s %v", method, what, r, err)
			}
		}
	})
	if n := a.number(t, `
		SELECT COUNT(*)
		FROM users u
		WHERE followers_count<>(SELECT COUNT(*) FROM follows f WHERE f.followed_id=u.id)`); n != 0 {
		t.Errorf("%d users have a wrong count of followers", n)
	}
	if n := a.number(t, `
		SELECT COUNT(*)
		FROM follows f
		JOIN blocks b ON b.user_id=f.user_id AND b.blocked_id=f.followed_id
			OR b.user_id=f.followed_id AND b.blocked_id=f.user_id`); n != 0 {
		t.Errorf("%d follows between users with a block", n)
	}
}

func TestFeed_listsThePostsOfFollowedUsers(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		if p := read[page[post]](t, a.must(t, 200, ada, "GET", "/v1/feed", nil)); len(p.Items) != 0 ||
			p.NextCursor != nil {
			t.Errorf("a user who follows nobody sees %+v", p)
		}
		authors := a.accounts(t, 9)
		var want []int64
		for i, author := range authors {
			a.fill(t, 3*i, author, 0, 0)
			if i%4 != 3 {
				a.must(t, 200, ada, "PUT", userPath(author)+"/follow", nil)
			}
		}
		deleted, blocked := authors[4], authors[5]
		if _, err := a.store.Pool().Exec("UPDATE posts SET status=2 WHERE user_id=?", deleted.ID); err != nil {
			t.Fatal(err)
		}
		a.must(t, 200, ada, "PUT", userPath(blocked)+"/block", nil)
		want = a.ids(t, fmt.Sprintf(`
			SELECT p.id
			FROM posts p
			JOIN follows f ON f.followed_id=p.user_id AND f.user_id=%d
			WHERE p.status=1
			ORDER BY p.created_at DESC, p.id DESC`, ada.ID))
		if len(want) != 3*(1+2+6+8) {
			t.Fatalf("%d posts to be in the feed", len(want))
		}
		for _, limit := range []int{1, 2, 5, 19, 50, 100} {
			var got []int64
			for cursor := ""; ; {
				p := read[page[post]](t, a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/feed?limit=%d%s", limit, cursor),
					nil))
				for _, item := range p.Items {
					got = append(got, item.ID)
				}
				if p.NextCursor == nil {
					break
				}
				cursor = "&cursor=" + url.QueryEscape(*p.NextCursor)
			}
			if !slices.Equal(got, want) {
				t.Errorf("by %d: %v, want %v", limit, got, want)
			}
		}
		a.refused(t, 401, "unauthorized", account{}, "GET", "/v1/feed", nil)
	})
}

func TestPeople_costTheSameWhateverTheirNumber(t *testing.T) {
	now := time.Now()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.Now = func() time.Time { return now } })
	ada, bob := a.account(t), a.account(t)
	a.fill(t, 110, ada, 0, 0)
	p := a.ids(t, "SELECT MIN(id) FROM posts")[0]
	a.fill(t, 110, ada, p, 0)
	for _, query := range []string{
		"INSERT INTO post_likes (post_id, user_id) SELECT id, ? FROM posts",
		"INSERT INTO comment_likes (comment_id, user_id) SELECT id, ? FROM comments",
		"INSERT INTO sessions (token_hash, user_id, expires_at) SELECT UNHEX(SHA2(id,256)), ?, '2037-01-01' FROM posts",
	} {
		if _, err := a.store.Pool().Exec(query, ada.ID); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range a.accounts(t, 105) {
		a.must(t, 200, u, "PUT", userPath(ada)+"/follow", nil)
		a.must(t, 200, ada, "PUT", userPath(u)+"/follow", nil)
		if u.ID%2 == 0 {
			a.fill(t, 3, u, 0, 0)
		}
	}
	for _, u := range a.accounts(t, 105) {
		a.must(t, 200, ada, "PUT", userPath(u)+"/block", nil)
	}
	for _, list := range []struct {
		path  string
		low   int64 // items of a page of 100
		limit int64 // queries
	}{
		{userPath(ada) + "/posts", 100, 5}, {userPath(ada) + "/comments", 100, 5},
		{userPath(ada) + "/likes", 100, 5}, {userPath(ada) + "/likes?type=comment", 100, 5}, {"/v1/me/likes", 100, 4},
		{userPath(ada) + "/followers", 100, 3}, {userPath(ada) + "/following", 100, 3}, {"/v1/me/blocks", 100, 2},
		{"/v1/me/sessions", 100, 1}, {"/v1/feed", 100, 5},
	} {
		a.must(t, 200, ada, "GET", list.path, nil)
		a.must(t, 200, bob, "GET", list.path, nil)
		var first int64
		for i, limit := range []int{1, 20, 100} {
			before := a.statements()
			r := a.must(t, 200, ada, "GET", fmt.Sprintf("%s%slimit=%d", list.path, separator(list.path), limit), nil)
			sent := a.statements() - before
			if i == 0 {
				first = sent
			}
			if sent != first || sent > list.limit {
				t.Errorf("%s of %d: %d statements, want at most %d and as many as for 1 (%d)", list.path, limit, sent,
					list.limit, first)
			}
			if limit == 100 && int64(len(read[page[obj]](t, r).Items)) < list.low {
				t.Errorf("%s: %d items", list.path, len(read[page[obj]](t, r).Items))
			}
		}
	}
}

// statements returns how many statements the API has sent to MySQL, but for those that read the changes of sessions.
func (a *api) statements() int64 {
	a.sent.mu.Lock()
	defer a.sent.mu.Unlock()
	return a.sent.count
}
