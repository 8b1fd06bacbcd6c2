package handlers_test

import (
	"fmt"
	"testing"
	"time"

	"likewise/handlers"
)

func TestBookmarks_areAbsoluteAndListed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	var posts []post
	for range 4 {
		posts = append(posts, a.newPost(t, ada))
	}
	set := func(method string, p post, want string) {
		t.Helper()
		for range 2 {
			if r := a.must(t, 200, bob, method, pathOf(p)+"/bookmark", nil); r.String() != "200 "+want {
				t.Errorf("%s: %s, want %s", method, r, want)
			}
		}
	}
	list := func(as account, query string) (ids []int64, next *string) {
		t.Helper()
		p := read[page[struct {
			ID         int64
			Bookmarked bool
		}]](t, a.must(t, 200, as, "GET", "/v1/me/bookmarks"+query, nil))
		for _, item := range p.Items {
			ids = append(ids, item.ID)
			if !item.Bookmarked {
				t.Errorf("%d is listed and not bookmarked", item.ID)
			}
		}
		return ids, p.NextCursor
	}
	want := func(what string, want ...post) {
		t.Helper()
		ids, _ := list(bob, "")
		var wanted []int64
		for _, p := range want {
			wanted = append(wanted, p.ID)
		}
		if fmt.Sprint(ids) != fmt.Sprint(wanted) {
			t.Errorf("%s: %v, want %v", what, ids, wanted)
		}
	}
	for _, p := range posts {
		set("PUT", p, `{"bookmarked":true}`)
	}
	want("all", posts[3], posts[2], posts[1], posts[0])
	set("DELETE", posts[0], `{"bookmarked":false}`)
	want("after taking one back", posts[3], posts[2], posts[1])
	set("PUT", posts[0], `{"bookmarked":true}`)
	want("after setting it again", posts[0], posts[3], posts[2], posts[1])
	if ids, next := list(ada, ""); len(ids) != 0 || next != nil {
		t.Errorf("another's bookmarks are %v", ids)
	}
	ids, next := list(bob, "?limit=3")
	rest, end := list(bob, "?limit=3&cursor="+*next)
	if len(ids) != 3 || len(rest) != 1 || rest[0] != posts[1].ID || end != nil {
		t.Errorf("pages are %v and %v", ids, rest)
	}
	a.must(t, 204, ada, "DELETE", pathOf(posts[3]), nil)
	want("without the deleted", posts[0], posts[2], posts[1])
	for _, path := range []string{pathOf(posts[3]), "/v1/posts/9999", "/v1/posts/x"} {
		for _, method := range []string{"PUT", "DELETE"} {
			a.refused(t, 404, "not_found", bob, method, path+"/bookmark", nil)
		}
	}
	a.must(t, 200, ada, "POST", pathOf(posts[3])+"/restore", nil)
	want("after it was restored", posts[0], posts[3], posts[2], posts[1])
	a.must(t, 200, bob, "PUT", fmt.Sprintf("/v1/users/%d/block", ada.ID), nil)
	want("by somebody blocked")
	a.refused(t, 401, "unauthorized", account{}, "GET", "/v1/me/bookmarks", nil)
	a.refused(t, 401, "unauthorized", account{}, "PUT", pathOf(posts[0])+"/bookmark", nil)
}

func TestBookmarks_fiftyClientsRaceOne(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	together(50, func(i int) {
		r, err := a.try(ada, []string{"PUT", "DELETE"}[i%2], pathOf(p)+"/bookmark", nil)
		if err != nil || r.Status != 200 {
			t.Errorf("%s %v", r, err)
		}
	})
	if n := a.number(t, "SELECT COUNT(*) FROM bookmarks"); n > 1 {
		t.Errorf("%d bookmarks", n)
	}
}

func TestBookmarks_costTheSameWhateverTheirNumber(t *testing.T) {
	now := time.Now()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.Now = func() time.Time { return now } })
	ada := a.account(t)
	a.fill(t, 110, ada, 0, 0)
	if _, err := a.store.Pool().Exec("INSERT INTO bookmarks (user_id, post_id) SELECT ?, id FROM posts",
		ada.ID); err != nil {
		t.Fatal(err)
	}
	a.must(t, 200, ada, "GET", "/v1/me/bookmarks", nil)
	for _, limit := range []int{1, 20, 100} {
		before := a.statements()
		r := a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/me/bookmarks?limit=%d", limit), nil)
		if sent := a.statements() - before; sent > 4 || len(read[page[obj]](t, r).Items) != limit {
			t.Errorf("%d statements for %d posts", sent, limit)
		}
	}
}
