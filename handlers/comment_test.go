package handlers_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// withoutPostComments returns the answer to the creation of a comment as the comment reads later.
func withoutPostComments(r reply) string {
	return regexp.MustCompile(`,"post_comments_count":[0-9]+`).ReplaceAllString(string(r.Body), "")
}

// etagVersion returns the version in an ETag: the fingerprint differs with the count.
func etagVersion(r reply) string {
	version, _, _ := strings.Cut(r.Header.Get("ETag"), "-")
	return version
}

func TestComment_fromCreationToDeletion(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		p := a.newPost(t, ada)
		comments := pathOf(p) + "/comments"
		r := a.must(t, 201, bob, "POST", comments, obj{"content": "First!"})
		c := read[comment](t, r)
		if r.Header.Get("Location") != pathOf(c) || c.PostID != p.ID || c.ParentID != nil ||
			c.Author.Username != bob.Name || c.ContentHTML != "<p>First!</p>\n" {
			t.Errorf("created %s at %s", r, r.Header.Get("Location"))
		}
		if got := a.must(t, 200, bob, "GET", pathOf(c), nil); string(got.Body) != withoutPostComments(r) ||
			etagVersion(got) != etagVersion(r) {
			t.Errorf("reads as %s, was created as %s", got, r)
		}
		// A reply can be created in two ways.
		one := read[comment](t, a.must(t, 201, ada, "POST", comments, obj{"content": "Indeed.", "parent_id": c.ID}))
		two := read[comment](t, a.must(t, 201, ada, "POST", pathOf(c)+"/replies", obj{"content": "Welcome."}))
		if *one.ParentID != c.ID || *two.ParentID != c.ID || two.PostID != p.ID {
			t.Errorf("replies %+v and %+v", one, two)
		}
		check := func(comments, replies int64) {
			t.Helper()
			post, parent := read[post](t, a.must(t, 200, ada, "GET", pathOf(p), nil)),
				read[comment](t, a.must(t, 200, ada, "GET", pathOf(c), nil))
			if post.CommentsCount != comments || parent.RepliesCount != replies {
				t.Errorf("%d comments and %d replies, want %d and %d", post.CommentsCount, parent.RepliesCount,
					comments, replies)
			}
		}
		check(3, 2)
		if top := read[page[comment]](t, a.must(t, 200, ada, "GET", comments, nil)); len(top.Items) != 1 ||
			top.Items[0].ID != c.ID {
			t.Errorf("top level %+v", top)
		}
		if got := read[page[comment]](t,
			a.must(t, 200, ada, "GET", pathOf(c)+"/replies?sort=new", nil)); len(got.Items) != 2 ||
			got.Items[0].ID != two.ID {
			t.Errorf("replies %+v", got)
		}
		r = a.must(t, 200, ada, "PATCH", pathOf(one), obj{"content": "Quite."}, header{"If-Match", `"v0"`})
		if edited := read[comment](t, r); edited.ContentHTML != "<p>Quite.</p>\n" || edited.Version != 1 {
			t.Errorf("edited %s", r)
		}
		a.must(t, 204, ada, "DELETE", pathOf(one), nil)
		a.refused(t, 404, "not_found", ada, "DELETE", pathOf(one), nil)
		check(2, 1)
	})
}

func TestDeletedComment_keepsItsPlaceForItsReplies(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		p := a.newPost(t, ada)
		c, alone := a.newComment(t, ada, p.ID), a.newComment(t, ada, p.ID)
		reply := a.newReply(t, ada, c.ID)
		a.must(t, 204, ada, "DELETE", pathOf(c), nil)
		a.must(t, 204, ada, "DELETE", pathOf(alone), nil)
		r := a.must(t, 200, ada, "GET", pathOf(p)+"/comments", nil)
		got := read[page[comment]](t, r)
		if len(got.Items) != 1 || got.Items[0].ID != c.ID {
			t.Fatalf("%s, want comment %d alone", r, c.ID)
		}
		if d := got.Items[0]; d.Author != nil || d.Content != "" || d.ContentHTML != "" || d.Status != "deleted" ||
			d.RepliesCount != 1 {
			t.Errorf("the deleted comment shows %s", r)
		}
		if got := read[page[comment]](t, a.must(t, 200, ada, "GET", pathOf(c)+"/replies", nil)); len(got.Items) != 1 ||
			got.Items[0].ID != reply.ID {
			t.Errorf("replies to the deleted comment: %+v", got)
		}
		for _, gone := range []comment{c, alone} {
			a.checkGone(t, ada, pathOf(gone))
			a.refused(t, 404, "not_found", ada, "POST", pathOf(gone)+"/replies", obj{"content": "Too late."})
			a.refused(t, 404, "not_found", ada, "POST", pathOf(p)+"/comments",
				obj{"content": "Too late.", "parent_id": gone.ID})
		}
	})
}

// TestComment_deletedOnTheWayKeepsRepliesReachable deletes a comment and the only reply to it, which has a reply
// itself.
func TestComment_deletedOnTheWayKeepsRepliesReachable(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := read[post](t, a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "A post", "content": "text"}))
	top := read[comment](t, a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": "top"}))
	middle := read[comment](t, a.must(t, 201, ada, "POST", pathOf(top)+"/replies", obj{"content": "middle"}))
	below := read[comment](t, a.must(t, 201, ada, "POST", pathOf(middle)+"/replies", obj{"content": "below"}))
	a.must(t, 204, ada, "DELETE", pathOf(top), nil)
	a.must(t, 204, ada, "DELETE", pathOf(middle), nil)
	for _, step := range []struct {
		path string
		id   int64
	}{{pathOf(p) + "/comments", top.ID}, {pathOf(top) + "/replies", middle.ID},
		{pathOf(middle) + "/replies", below.ID}} {
		list := read[page[comment]](t, a.must(t, 200, account{}, "GET", step.path, nil))
		if len(list.Items) != 1 || list.Items[0].ID != step.id {
			t.Errorf("%s returns %+v, want comment %d", step.path, list.Items, step.id)
		}
	}
}

// checkGone checks that every request for a deleted post or comment is answered with 404.
func (a *api) checkGone(t *testing.T, author account, path string) {
	t.Helper()
	for _, try := range [][2]string{{"GET", ""}, {"PATCH", ""}, {"DELETE", ""}, {"PUT", "/like"}, {"DELETE", "/like"},
		{"GET", "/likes"}} {
		a.refused(t, 404, "not_found", author, try[0], path+try[1], obj{"content": "C"}, header{"If-Match", `"v0"`})
	}
}

func TestDeletedPost_takesItsCommentsAndLikesWithIt(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		p := a.newPost(t, ada)
		c := a.newComment(t, bob, p.ID)
		reply := a.newReply(t, bob, c.ID)
		for _, content := range []any{p, c, reply} {
			a.must(t, 200, bob, "PUT", pathOf(content)+"/like", nil)
		}
		a.settle()
		a.must(t, 204, ada, "DELETE", pathOf(p), nil)
		a.checkGone(t, ada, pathOf(p))
		a.checkGone(t, bob, pathOf(c))
		a.checkGone(t, bob, pathOf(reply))
		a.refused(t, 404, "not_found", account{}, "GET", pathOf(p)+"/comments", nil)
		a.refused(t, 404, "not_found", account{}, "GET", pathOf(c)+"/replies", nil)
		a.refused(t, 404, "not_found", bob, "POST", pathOf(p)+"/comments", obj{"content": "Too late."})
		a.refused(t, 404, "not_found", bob, "POST", pathOf(c)+"/replies", obj{"content": "Too late."})
		a.settle()
		if n := a.number(t, `
			SELECT (SELECT COUNT(*) FROM comments)*100
				+ (SELECT COUNT(*) FROM post_likes)*10
				+ (SELECT COUNT(*) FROM comment_likes)`); n != 212 {
			t.Errorf("rows of comments, post_likes, comment_likes: %d, want 212", n)
		}
	})
}

func TestComment_badInput(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p, other := a.newPost(t, ada), a.newPost(t, ada)
	foreign := a.newComment(t, ada, other.ID)
	path := pathOf(p) + "/comments"
	a.refusedField(t, 422, "invalid", "content", ada, "POST", path, obj{"content": ""})
	a.refusedField(t, 422, "invalid", "content", ada, "POST", path, obj{})
	a.refusedField(t, 422, "invalid", "parent_id", ada, "POST", path, obj{"content": "C", "parent_id": foreign.ID})
	a.refusedField(t, 422, "invalid", "parent_id", ada, "POST", pathOf(foreign)+"/replies",
		obj{"content": "C", "parent_id": foreign.ID})
	for _, parent := range []int64{1 << 40, 0, -1} {
		a.refused(t, 404, "not_found", ada, "POST", path, obj{"content": "C", "parent_id": parent})
	}
	for _, parent := range []any{"1", 1.5, true, obj{}, []int{1}} {
		a.refusedField(t, 400, "malformed", "parent_id", ada, "POST", path, obj{"content": "C", "parent_id": parent})
	}
	a.refusedField(t, 400, "malformed", "parent_id", ada, "POST", path,
		`{"content": "C", "parent_id": 99999999999999999999}`)
	a.must(t, 201, ada, "POST", path, obj{"content": "C", "parent_id": nil})
	if n := a.number(t, "SELECT comments_count FROM posts WHERE id=?", p.ID); n != 1 {
		t.Errorf("%d comments are counted, want 1", n)
	}
}

func TestCommentCounts_areExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		users := a.accounts(t, 16)
		p := a.newPost(t, users[0])
		parents := []comment{a.newComment(t, users[0], p.ID), a.newComment(t, users[0], p.ID)}
		var failed atomic.Value
		together(len(users), func(i int) {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			var mine []comment
			for range 15 {
				method, path, want := "POST", pathOf(p)+"/comments", 201
				switch n := random.IntN(5); {
				case n == 0 && len(mine) > 0:
					method, path, want = "DELETE", pathOf(mine[0]), 204
					mine = mine[1:]
				case n < 3:
					path = pathOf(parents[random.IntN(2)]) + "/replies"
				}
				r, err := a.try(users[i], method, path, obj{"content": "C"})
				if err != nil || r.Status != want {
					failed.Store(fmt.Sprintf("%s %s: %s %v", method, path, r, err))
					return
				}
				if want == 201 {
					mine = append(mine, read[comment](t, r))
				}
			}
		})
		if why := failed.Load(); why != nil {
			t.Fatal(why)
		}
		counted, rows := a.number(t, "SELECT comments_count FROM posts"),
			a.number(t, "SELECT COUNT(*) FROM comments WHERE status=1")
		if counted != rows || rows < 10 {
			t.Errorf("%d comments are counted, and there are %d", counted, rows)
		}
		for _, c := range parents {
			counted, rows := a.number(t, "SELECT replies_count FROM comments WHERE id=?", c.ID),
				a.number(t, "SELECT COUNT(*) FROM comments WHERE parent_id=? AND status=1", c.ID)
			if counted != rows || rows < 10 {
				t.Errorf("%d replies are counted, and there are %d", counted, rows)
			}
		}
	})
}

func TestDeleteComment_countsOnceHoweverOftenItIsAsked(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		p := a.newPost(t, ada)
		a.newComment(t, ada, p.ID)
		for range 5 {
			c := a.newComment(t, ada, p.ID)
			var done, gone atomic.Int64
			together(8, func(int) {
				switch r, _ := a.try(ada, "DELETE", pathOf(c), nil); r.Status {
				case 204:
					done.Add(1)
				case 404:
					gone.Add(1)
				}
			})
			if done.Load() != 1 || gone.Load() != 7 {
				t.Errorf("%d answers 204 and %d answers 404, want 1 and 7", done.Load(), gone.Load())
			}
		}
		if n := a.number(t, "SELECT comments_count FROM posts"); n != 1 {
			t.Errorf("%d comments are counted, want 1", n)
		}
	})
}
