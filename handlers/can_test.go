package handlers_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/people"
)

// attempt is a request that an ability is about.
type attempt struct {
	method, path string
	body         any
}

// cast are an author, and viewers by what they are to the author.
type cast struct {
	author  account
	viewers map[string]account
}

// newCast calls prepare with each account before its first request.
func newCast(t *testing.T, a *api, prepare func(account)) cast {
	t.Helper()
	all := a.accounts(t, 5)
	for _, as := range all {
		prepare(as)
	}
	author, blocked, other, mod, admin := all[0], all[1], all[2], all[3], all[4]
	a.must(t, 200, author, "PUT", fmt.Sprintf("/v1/users/%d/block", blocked.ID), nil)
	return cast{author, map[string]account{
		"the anonymous":         {},
		"the author":            author,
		"another user":          other,
		"a blocked user":        blocked,
		"a moderator":           a.promoted(t, mod, models.RoleModerator),
		"an admin":              a.promoted(t, admin, models.RoleAdmin),
		"the author to read":    author.with(a.newToken(t, author, "read").Token),
		"a blocked user to see": blocked.with(a.newToken(t, blocked, "read").Token),
	}}
}

// holds compares each ability that an object states with what the route answers. fresh makes a new object for each
// attempt, and returns its path and the requests.
func (a *api) holds(
	t *testing.T, viewer string, as account, fresh func() (path string, attempts map[string]attempt),
) {
	t.Helper()
	_, attempts := fresh()
	for _, name := range slices.Sorted(maps.Keys(attempts)) {
		path, attempts := fresh()
		can := read[struct{ Can map[string]bool }](t, a.must(t, 200, as, "GET", path, nil)).Can
		if len(can) != len(attempts) {
			t.Fatalf("%s states %v, and %d are tried", path, can, len(attempts))
		}
		try := attempts[name]
		r := a.send(t, as, try.method, try.path, try.body, header{"If-Match", "*"})
		if stated, does := can[name], r.Status < 300; stated != does {
			t.Errorf("%s can %s: %t, but %s %s is answered with %s", viewer, name, stated, try.method, try.path, r)
		}
	}
}

func TestCan_isWhatTheRoutesAnswer(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	stranger := a.account(t)
	// So that no session is cached as one that nobody blocks.
	people := newCast(t, a, func(as account) { a.block(t, stranger, as) })
	admin := people.viewers["an admin"]
	reason := obj{"reason": "A reason."}
	lock := func(id int64) { a.must(t, 200, admin, "POST", fmt.Sprintf("/v1/admin/posts/%d/lock", id), reason) }
	report := func(kind string, id int64) attempt {
		return attempt{"POST", "/v1/reports", obj{"target_type": kind, "target_id": id, "reason": "spam"}}
	}
	for viewer, as := range people.viewers {
		for _, locked := range []bool{false, true} {
			name := viewer
			if locked {
				name += ", on a locked post"
			}
			newPost := func(by account) post {
				p := a.newPost(t, by)
				if locked {
					lock(p.ID)
				}
				return p
			}
			a.holds(t, name, as, func() (string, map[string]attempt) {
				p := newPost(people.author)
				path, moderated := pathOf(p), fmt.Sprintf("/v1/admin/posts/%d", p.ID)
				return path, map[string]attempt{
					"edit":     {"PATCH", path, obj{"title": "Another title"}},
					"delete":   {"DELETE", path, nil},
					"comment":  {"POST", path + "/comments", obj{"content": "A comment."}},
					"like":     {"PUT", path + "/like", nil},
					"bookmark": {"PUT", path + "/bookmark", nil},
					"report":   report("post", p.ID),
					"add_drop": {"POST", path + "/drops", obj{"title": "A ticket", "stock": 3}},
					"remove":   {"POST", moderated + "/delete", reason},
					"lock":     {"POST", moderated + "/lock", reason},
					"pin":      {"POST", moderated + "/pin", reason},
				}
			})
			// The author of the comment blocks somebody, or the author of the post does.
			for _, ofPost := range []account{people.author, admin} {
				a.holds(t, name, as, func() (string, map[string]attempt) {
					p := a.newPost(t, ofPost)
					m := a.newComment(t, people.author, p.ID)
					if ofPost == people.author {
						m = a.newComment(t, admin, p.ID)
					}
					if locked {
						lock(p.ID)
					}
					path, moderated := pathOf(m), fmt.Sprintf("/v1/admin/comments/%d", m.ID)
					return path, map[string]attempt{
						"edit":   {"PATCH", path, obj{"content": "Another comment."}},
						"delete": {"DELETE", path, nil},
						"reply":  {"POST", path + "/replies", obj{"content": "A reply."}},
						"like":   {"PUT", path + "/like", nil},
						"report": report("comment", m.ID),
						"remove": {"POST", moderated + "/delete", reason},
					}
				})
			}
			for _, settings := range []obj{
				{"title": "A ticket", "stock": 3},
				{"title": "A ticket", "stock": 3, "begins_at": "2037-01-01T00:00:00Z"},
			} {
				a.holds(t, name, as, func() (string, map[string]attempt) {
					p := a.newPost(t, people.author)
					r := a.must(t, 201, people.author, "POST", pathOf(p)+"/drops", settings)
					d := read[struct{ ID int64 }](t, r)
					if locked {
						lock(p.ID)
					}
					path := fmt.Sprintf("/v1/drops/%d", d.ID)
					return path, map[string]attempt{
						"edit":  {"PATCH", path, obj{"title": "Another ticket"}},
						"close": {"POST", path + "/close", nil},
						"claim": {"POST", path + "/claims", nil},
					}
				})
			}
		}
		for kind, meet := range map[string]func() account{
			"a user":      func() account { return a.account(t) },
			"a moderator": func() account { return a.promoted(t, a.account(t), models.RoleModerator) },
			"themselves":  func() account { return as },
			"one who blocks them": func() account {
				u := a.account(t)
				a.block(t, u, as)
				return u
			},
			"one whom they block": func() account {
				u := a.account(t)
				a.block(t, as, u)
				return u
			},
		} {
			if kind == "themselves" && as.ID == 0 {
				continue
			}
			a.holds(t, viewer+" with "+kind, as, func() (string, map[string]attempt) {
				u := meet()
				path, moderated := fmt.Sprintf("/v1/users/%d", u.ID), fmt.Sprintf("/v1/admin/users/%d", u.ID)
				return path, map[string]attempt{
					"follow":         {"PUT", path + "/follow", nil},
					"block":          {"PUT", path + "/block", nil},
					"ban":            {"POST", moderated + "/ban", reason},
					"remove_content": {"POST", moderated + "/content/delete", reason},
				}
			})
		}
	}
}

// block makes one user block another, in the database: a token may lack the scope.
func (a *api) block(t *testing.T, user, other account) {
	t.Helper()
	if user.ID == 0 || other.ID == 0 {
		return
	}
	require.NoError(t, people.New(a.store).Block(t.Context(), user.ID, other.ID))
}

// Shared reads are the same objects for all viewers; what each may do must not be.
func TestCan_isNotShared(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		people := newCast(t, a, func(account) {})
		p := a.newPost(t, people.author)
		m := a.newComment(t, people.author, p.ID)
		type able struct {
			ID  int64
			Can map[string]bool
		}
		for range 3 {
			for viewer, as := range people.viewers {
				own := viewer == "the author"
				replies := own || viewer == "another user" || viewer == "a moderator" || viewer == "an admin"
				posts := read[page[able]](t, a.must(t, 200, as, "GET", "/v1/posts", nil)).Items
				thread := read[page[able]](t, a.must(t, 200, as, "GET", pathOf(p)+"/thread", nil)).Items
				if len(posts) != 1 || posts[0].ID != p.ID || posts[0].Can["edit"] != own {
					t.Errorf("%s sees %v", viewer, posts)
				}
				if len(thread) != 1 || thread[0].ID != m.ID || thread[0].Can["edit"] != own ||
					thread[0].Can["reply"] != replies {
					t.Errorf("%s sees %v", viewer, thread)
				}
			}
		}
	})
}
