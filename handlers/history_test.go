package handlers_test

import (
	"fmt"
	"testing"
)

func TestHistory_listsEachItemOnceLatestFirst(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		a.fill(t, 23, bob, 0, 0)
		posts := a.ids(t, "SELECT id FROM posts")
		a.fill(t, 23, ada, posts[0], 0)
		a.fill(t, 5, ada, posts[1], 0)
		comments := a.ids(t, "SELECT id FROM comments")
		for _, id := range posts {
			a.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/posts/%d/like", id), nil)
		}
		for _, id := range comments {
			a.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/comments/%d/like", id), nil)
		}
		a.settle()
		hidden := posts[1] // and the comments under it
		if _, err := a.store.Pool().Exec("UPDATE posts SET status=2 WHERE id=?", hidden); err != nil {
			t.Fatal(err)
		}
		within := func(kind string) func(obj) float64 {
			return func(item obj) float64 { return item[kind].(obj)["id"].(float64) }
		}
		for path, list := range map[string]struct {
			kind string
			want []int64
		}{
			userPath(ada) + "/comments":           {"comment", comments[:23]},
			userPath(ada) + "/likes":              {"post", append(append([]int64{}, posts[:1]...), posts[2:]...)},
			userPath(ada) + "/likes?type=comment": {"comment", comments[:23]},
		} {
			for _, limit := range []int{1, 5, 23, 100} {
				seen, items := a.walk(t, path, limit, within(list.kind), func() {})
				checkOnce(t, path, seen, list.want)
				if len(items) != len(list.want) {
					t.Errorf("%s: %d items, want %d", path, len(items), len(list.want))
				}
			}
		}
		for path, want := range map[string]int{"/v1/me/likes": 22, "/v1/me/likes?type=comment": 23,
			userPath(bob) + "/likes": 0, userPath(bob) + "/comments": 0} {
			if p := read[page[obj]](t, a.must(t, 200, ada, "GET", path+separator(path)+"limit=100",
				nil)); len(p.Items) != want {
				t.Errorf("%s: %d items, want %d", path, len(p.Items), want)
			}
		}
		first := read[page[obj]](t, a.must(t, 200, ada, "GET", "/v1/me/likes?limit=1", nil)).Items[0]
		if first["comment"] != nil || first["post"].(obj)["liked"] != true || first["liked_at"] == nil {
			t.Errorf("the latest like is %v", first)
		}
		if shown := read[page[obj]](t,
			a.must(t, 200, bob, "GET", userPath(ada)+"/comments?limit=1", nil)).Items[0]; shown["post_title"] != "T" {
			t.Errorf("the latest comment is %v", shown)
		}
		a.refusedField(t, 422, "invalid", "type", ada, "GET", "/v1/me/likes?type=user", nil)
		a.refusedField(t, 422, "invalid", "type", ada, "GET", "/v1/me/likes?type=", nil)
		a.refused(t, 401, "unauthorized", account{}, "GET", "/v1/me/likes", nil)
	})
}
