package handlers_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// targets creates a post and a comment to like.
func (a *api) targets(t *testing.T, as account) []any {
	t.Helper()
	p := a.newPost(t, as)
	return []any{p, a.newComment(t, as, p.ID)}
}

// likeRows returns the number of like rows and the count that MySQL holds for a target.
func (a *api) likeRows(t *testing.T, target any) (rows, count int64) {
	t.Helper()
	switch c := target.(type) {
	case post:
		return a.number(t, "SELECT COUNT(*) FROM post_likes WHERE post_id=?", c.ID),
			a.number(t, "SELECT likes_count FROM posts WHERE id=?", c.ID)
	case comment:
		return a.number(t, "SELECT COUNT(*) FROM comment_likes WHERE comment_id=?", c.ID),
			a.number(t, "SELECT likes_count FROM comments WHERE id=?", c.ID)
	}
	panic("neither a post nor a comment")
}

func TestLike_isAbsoluteAndShown(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		for _, target := range a.targets(t, ada) {
			path := pathOf(target)
			for _, step := range []struct {
				as     account
				method string
				want   like
			}{
				{bob, "DELETE", like{false, 0}}, // was never liked
				{ada, "PUT", like{true, 1}},
				{ada, "PUT", like{true, 1}},
				{bob, "PUT", like{true, 2}},
				{ada, "DELETE", like{false, 1}},
				{ada, "DELETE", like{false, 1}},
			} {
				r := a.must(t, 200, step.as, step.method, path+"/like", nil)
				if got := read[like](t, r); got != step.want {
					t.Fatalf("%s by %s: %s, want %+v", step.method, step.as.Name, r, step.want)
				}
			}
			a.settle()
			if rows, count := a.likeRows(t, target); rows != 1 || count != 1 {
				t.Errorf("%s: %d rows and count %d, want 1", path, rows, count)
			}
			for _, see := range []struct {
				as    account
				liked bool
			}{{bob, true}, {ada, false}, {account{}, false}} {
				if got := read[post](t, a.must(t, 200, see.as, "GET", path, nil)); got.Liked != see.liked ||
					got.LikesCount != 1 {
					t.Errorf("%s seen by %q: %+v", path, see.as.Name, got)
				}
			}
			if read[post](t, a.must(t, 200, ada, "GET", path, nil)).Version != 0 {
				t.Error("likes moved the version")
			}
		}
		list := read[page[post]](t, a.must(t, 200, bob, "GET", "/v1/posts?sort=top", nil))
		if len(list.Items) != 1 || !list.Items[0].Liked || list.Items[0].LikesCount != 1 {
			t.Errorf("listed as %+v", list)
		}
		comments := read[page[comment]](t, a.must(t, 200, bob, "GET", pathOf(list.Items[0])+"/comments", nil))
		if len(comments.Items) != 1 || !comments.Items[0].Liked || comments.Items[0].LikesCount != 1 {
			t.Errorf("listed as %+v", comments)
		}
	})
}

func TestLike_fiftyClientsRaceOneLike(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		for _, target := range a.targets(t, ada) {
			replies := make([]reply, 50)
			together(len(replies), func(i int) { replies[i], _ = a.try(ada, "PUT", pathOf(target)+"/like", nil) })
			for _, r := range replies {
				if got, want := r.String(), `200 {"liked":true,"likes_count":1}`; got != want {
					t.Fatalf("an answer is %s, want %s", got, want)
				}
			}
			a.settle()
			if rows, count := a.likeRows(t, target); rows != 1 || count != 1 {
				t.Errorf("%d rows and count %d, want 1", rows, count)
			}
		}
	})
}

func TestLike_oneUserLikesAndUnlikesAtOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		targets := a.targets(t, ada)
		for round := range 5 {
			for _, target := range targets {
				var bad atomic.Value
				methods := []string{"PUT", "DELETE"}
				if round == 0 {
					methods = []string{"DELETE"} // of what was never liked
				}
				together(50, func(i int) {
					method := methods[i%len(methods)]
					r, err := a.try(ada, method, pathOf(target)+"/like", nil)
					// While others race, the count in an answer may be 0 or 1.
					if err != nil || r.Status != 200 || !strings.HasSuffix(string(r.Body), `"likes_count":0}`) &&
						!strings.HasSuffix(string(r.Body), `"likes_count":1}`) ||
						strings.HasPrefix(string(r.Body), `{"liked":true`) != (method == "PUT") {
						bad.Store(fmt.Sprintf("%s: %s %v", method, r, err))
					}
				})
				if why := bad.Load(); why != nil {
					t.Fatalf("round %d: %v", round, why)
				}
				a.settle()
				if rows, count := a.likeRows(t, target); rows != count || rows < 0 || rows > 1 || round == 0 &&
					rows != 0 {
					t.Fatalf("round %d: %d rows and count %d", round, rows, count)
				}
			}
		}
	})
}

func TestLike_everyUserCounts(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		users := a.accounts(t, 40)
		for _, target := range a.targets(t, users[0]) {
			var failed atomic.Int64
			together(len(users), func(i int) {
				for _, method := range []string{"PUT", "DELETE", "PUT"}[:1+i%3] { // every third one ends without
					if r, err := a.try(users[i], method, pathOf(target)+"/like", nil); err != nil || r.Status != 200 {
						failed.Add(1)
					}
				}
			})
			a.settle()
			want := int64(len(users) - 13)
			if rows, count := a.likeRows(t, target); rows != want || count != want || failed.Load() != 0 {
				t.Errorf("%d rows and count %d, want %d; %d failed", rows, count, want, failed.Load())
			}
		}
	})
}

func TestLike_ofMissingTargetsLeavesNothing(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		for _, id := range []string{"1", "0", "-1", "01", "+1", "x", "1.5", "9223372036854775807",
			"9223372036854775808", "%31"} {
			for _, kind := range []string{"posts", "comments"} {
				for _, try := range [][2]string{{"PUT", "/like"}, {"DELETE", "/like"}, {"GET", "/likes"}, {"GET", ""},
					{"DELETE", ""}} {
					a.refused(t, 404, "not_found", ada, try[0], "/v1/"+kind+"/"+id+try[1], nil)
				}
			}
		}
		a.settle()
		if n := a.number(t, "SELECT (SELECT COUNT(*) FROM post_likes) + (SELECT COUNT(*) FROM comment_likes)"); n != 0 {
			t.Errorf("%d likes of nothing", n)
		}
	})
}

func TestLikes_ofSeveralTargetsAtOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		p, other, gone := a.newPost(t, ada), a.newPost(t, ada), a.newPost(t, ada)
		c := a.newComment(t, bob, p.ID)
		under := a.newComment(t, bob, gone.ID)
		for _, target := range []any{p, c, gone, under} {
			a.must(t, 200, bob, "PUT", pathOf(target)+"/like", nil)
		}
		a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
		a.must(t, 204, ada, "DELETE", pathOf(gone), nil)
		query := fmt.Sprintf("/v1/likes?targets=comment:%d,post:%d,post:%d,post:%d,comment:%d,post:99999,post:%d", c.ID,
			gone.ID, other.ID, p.ID, under.ID, p.ID)
		item := func(kind string, id int64, likes int, liked bool) string {
			return fmt.Sprintf(`{"type":%q,"id":%d,"likes_count":%d,"liked":%v}`, kind, id, likes, liked)
		}
		for as, liked := range map[account][2]bool{ada: {false, true}, bob: {true, true}, {}: {false, false}} {
			want := `200 {"items":[` + item("comment", c.ID, 1, liked[0]) + "," + item("post", other.ID, 0, false) +
				"," + item("post", p.ID, 2, liked[1]) + `]}`
			if r := a.must(t, 200, as, "GET", query, nil); r.String() != want {
				t.Errorf("seen by %q: %s, want %s", as.Name, r, want)
			}
		}
		if r := a.must(t, 200, account{}, "GET", "/v1/likes?targets=post:99999",
			nil); r.String() != `200 {"items":[]}` {
			t.Errorf("of nothing: %s", r)
		}

		a.must(t, 200, ada, "POST", pathOf(gone)+"/restore", nil)
		want := `200 {"items":[` + item("comment", under.ID, 1, true) + "," + item("post", gone.ID, 1, true) + `]}`
		if r := a.must(t, 200, bob, "GET", fmt.Sprintf("/v1/likes?targets=comment:%d,post:%d", under.ID, gone.ID),
			nil); r.String() != want {
			t.Errorf("restored: %s, want %s", r, want)
		}
		stream := a.watch(t, fmt.Sprintf("posts=%d&comments=%d", gone.ID, under.ID))
		for range 2 {
			if e := stream.next(t); e.data.LikesCount != 1 {
				t.Errorf("the stream has an event of a restored %s: %+v", e.data.Type, e)
			}
		}
	})
}

func TestLikes_ofBadTargets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	many := strings.Repeat("post:1,", 100)
	for _, query := range []string{"", "?targets=", "?targets=,", "?targets=post:1,", "?targets=post", "?targets=1",
		"?targets=user:1", "?targets=post:0",
		"?targets=post:01", "?targets=POST:1", "?targets=post:1%20", "?targets=post:1;comment:2",
		"?targets=post:9223372036854775808", "?targets=%ff:1", "?targets=" + many + "post:1"} {
		a.refusedField(t, 422, "invalid", "targets", account{}, "GET", "/v1/likes"+query, nil)
	}
	a.must(t, 200, account{}, "GET", "/v1/likes?targets="+many[:len(many)-1], nil)
	if p, r := a.refused(t, 422, "invalid", account{}, "GET", "/v1/likes?targets=post:1,comment:x,user:2",
		nil); !strings.Contains(p.Errors[0].Message, "comment:x") {
		t.Errorf("%s does not name the bad one", r)
	}
}
