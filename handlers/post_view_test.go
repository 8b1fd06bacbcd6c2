package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/privacy"
)

// postLists returns the paths of all lists of posts. The contract names them by their answers.
func postLists(t *testing.T, user int64) map[string]string {
	t.Helper()
	paths := map[string]string{}
	for _, o := range operations(t) {
		answer, ok := o.op.in("responses", "200", "content", "application/json", "schema")
		if ref, _ := answer.value["$ref"].(string); !ok || o.method != http.MethodGet ||
			!strings.HasSuffix(ref, "/PostPage") && !strings.HasSuffix(ref, "/LikedPage") &&
				!strings.HasSuffix(ref, "/ModeratedPostPage") {
			continue
		}
		paths[o.id] = strings.Replace(o.path, "{id}", fmt.Sprint(user), 1)
	}
	return paths
}

// Every list of posts shows summaries. MySQL does not read their texts.
func TestLists_ofPostsShowSummaries(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, mod := a.account(t), a.grow(t, a.account(t), models.RoleModerator)
	p := read[post](t, a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "A title", "content": "Some *content*."}))
	a.must(t, 200, mod, "PUT", pathOf(p)+"/like", nil)
	a.must(t, 200, mod, "PUT", pathOf(p)+"/bookmark", nil)
	a.must(t, 200, mod, "PUT", pathOf(p)+"/subscription", obj{"level": "muted"})
	a.must(t, 200, mod, "PUT", userPath(ada)+"/follow", nil)
	a.newComment(t, mod, p.ID)
	lists := postLists(t, ada.ID)
	if len(lists) != 8 {
		t.Errorf("the lists of posts are %v", lists)
	}
	lists["listUserLikes"] = userPath(mod) + "/likes"
	for _, query := range []string{"sort=hot", "sort=top", "sort=active", "q=content", "sort=new&window=day",
		fmt.Sprintf("author=%d", ada.ID)} {
		lists["listPosts?"+query] = "/v1/posts?" + query
	}
	for id, path := range lists {
		a.must(t, 200, mod, "GET", path, nil) // caches the session
		a.sent.take()
		items := read[page[obj]](t, a.must(t, 200, mod, "GET", path, nil)).Items
		if len(items) != 1 {
			t.Fatalf("%s has %d items", path, len(items))
		}
		got := items[0]
		if inner, ok := got["post"].(obj); ok {
			got = inner
		}
		commenter, _ := got["last_commenter"].(obj)
		if got["excerpt"] != "Some content." || commenter["username"] != mod.Name || got["active_at"] == nil ||
			got["content"] != nil || got["content_html"] != nil {
			t.Errorf("%s: the summary is %v", id, got)
		}
		for _, statement := range a.sent.take() {
			if strings.Contains(statement, ".content") {
				t.Errorf("%s reads the text:\n%s", id, statement)
			}
		}
	}
}

// A page of a hundred summaries is small, however long the posts are.
func TestSummaries_areSmall(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	text := strings.Repeat("All the words of a *long* post. ", 300)
	for range 100 {
		if _, err := content.New(a.store).CreatePost(t.Context(), models.Author{ID: ada.ID},
			models.PostText{Title: "A title", Content: text}); err != nil {
			t.Fatal(err)
		}
	}
	r := a.must(t, 200, account{}, "GET", "/v1/posts?limit=100", nil, header{"Accept-Encoding", "identity"})
	if n := len(read[page[obj]](t, r).Items); n != 100 || len(r.Body) > 100*1000 {
		t.Errorf("a page of %d summaries has %d bytes", n, len(r.Body))
	}
}

// The latest commenter is the author of a comment that the viewer sees, and follows deletions of it and of its author.
func TestLastCommenter_isShown(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, cy := a.account(t), a.account(t), a.account(t)
	p := a.newPost(t, ada)
	type summary struct {
		ActiveAt      time.Time                  `json:"active_at"`
		LastCommenter *struct{ Username string } `json:"last_commenter"`
	}
	seen := func(as account) string {
		t.Helper()
		item := read[page[summary]](t, a.must(t, 200, as, "GET", "/v1/posts", nil)).Items[0]
		if item.ActiveAt.Before(p.CreatedAt) {
			t.Errorf("active_at is %v", item.ActiveAt)
		}
		if item.LastCommenter == nil {
			return ""
		}
		return item.LastCommenter.Username
	}
	check := func(as account, want string) {
		t.Helper()
		if got := seen(as); got != want {
			t.Errorf("the latest commenter is %q, want %q", got, want)
		}
	}
	check(account{}, "")
	a.newComment(t, bob, p.ID)
	latest := a.newComment(t, cy, p.ID)
	check(account{}, cy.Name)
	a.must(t, 200, bob, "PUT", userPath(cy)+"/block", nil)
	check(bob, "")
	check(ada, cy.Name)
	a.must(t, 204, cy, "DELETE", fmt.Sprintf("/v1/comments/%d", latest.ID), nil)
	check(bob, bob.Name)
	a.newComment(t, cy, p.ID)
	check(ada, cy.Name)
	if _, err := privacy.New(a.store).DeleteUser(t.Context(), cy.ID, ""); err != nil {
		t.Fatal(err)
	}
	if got := seen(ada); !strings.HasPrefix(got, "deleted") {
		t.Errorf("the latest commenter, who has deleted their account, is %q", got)
	}
}
