package handlers_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"likewise/handlers"
)

// What was just created has no likes, marks or blocks. Its answer is that of a later read, and asks neither the gate
// nor MySQL for them.
func TestCreated_asksNothingThatNobodyCanHaveDone(t *testing.T) {
	t.Parallel()
	likes := &countingLikes{}
	a := newAPI(t, modes[0], func(c *handlers.Config) { likes.Likes, c.Likes = c.Likes, likes })
	ada, bob, mod := a.account(t), a.account(t), a.moderator(t)
	p := a.newPost(t, bob)
	for _, as := range []account{ada, mod} {
		a.must(t, 200, a.account(t), "PUT", userPath(as)+"/block", nil) // so that others may have blocked them
	}
	fresh := func(as account, path string, body obj) {
		t.Helper()
		a.must(t, 200, as, "GET", "/v1/me", nil) // caches the session
		calls := likes.calls.Load()
		a.sent.take()
		r := a.must(t, 201, as, "POST", path, body)
		assert.Equal(t, calls, likes.calls.Load(), "%s reads likes", path)
		statements := a.sent.take()
		committed := false
		for _, s := range statements {
			if committed && strings.HasPrefix(strings.TrimSpace(s), "SELECT") {
				t.Errorf("%s reads after its COMMIT:\n%s", path, s)
			}
			committed = committed || s == "COMMIT"
		}
		assert.True(t, committed, "%v", statements)
		again := a.must(t, 200, as, "GET", r.Header.Get("Location"), nil)
		assert.Equal(t, string(again.Body), withoutPostComments(r), path)
	}
	fresh(ada, "/v1/posts", obj{"title": "A title", "content": "C"})
	fresh(ada, pathOf(p)+"/comments", obj{"content": "C"})
	fresh(ada, pathOf(a.newComment(t, bob, p.ID))+"/replies", obj{"content": "C"})
	a.must(t, 200, a.moderator(t), "POST", moderated("post", p.ID, "lock"), obj{"reason": "Heat."})
	fresh(mod, pathOf(p)+"/comments", obj{"content": "C"}) // locks do not bind moderators
}
