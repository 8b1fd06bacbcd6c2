package handlers_test

import (
	"testing"
)

// TestLock_keepsAuthorsFromEditing locks a post: then only moderators can change its text and that of its comments.
func TestLock_keepsAuthorsFromEditing(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, mod := a.account(t), a.account(t), a.moderator(t)
	p := a.newPost(t, ada)
	m := a.newComment(t, bob, p.ID)
	byMod := a.newComment(t, mod, p.ID)
	as := header{"If-Match", "*"}
	reason := obj{"reason": "Heated."}
	a.must(t, 200, mod, "POST", moderated("post", p.ID, "lock"), reason)
	a.refused(t, 403, "locked", ada, "PATCH", pathOf(p), obj{"content": "Something else."}, as)
	a.refused(t, 403, "locked", ada, "PATCH", pathOf(p), obj{"tags": []string{"go"}}, as)
	a.refused(t, 403, "locked", bob, "PATCH", pathOf(m), obj{"content": "Something else."}, as)
	if n := a.number(t, `
		SELECT SUM(version)
		FROM (SELECT version FROM posts UNION ALL SELECT version FROM comments) v`); n != 0 {
		t.Errorf("%d edits of a locked post were taken", n)
	}
	a.must(t, 200, mod, "PATCH", pathOf(byMod), obj{"content": "A moderator's last word."}, as)
	a.must(t, 200, mod, "POST", moderated("post", p.ID, "unlock"), reason)
	a.must(t, 200, ada, "PATCH", pathOf(p), obj{"content": "Something else."}, as)
	a.must(t, 200, bob, "PATCH", pathOf(m), obj{"content": "Something else."}, as)

	// Authors can still delete their content in a locked post: that hides it and destroys nothing.
	a.must(t, 200, mod, "POST", moderated("post", p.ID, "lock"), reason)
	a.must(t, 204, bob, "DELETE", pathOf(m), nil)
	a.must(t, 204, ada, "DELETE", pathOf(p), nil)
}
