package handlers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"likewise/handlers"
)

// notification is a notification as a client decodes it.
type notification struct {
	ID    int64
	Kind  string
	Actor *struct{ Username string }
	Post  struct {
		ID    int64
		Title string
	}
	CommentID *int64 `json:"comment_id"`
	Milestone *int64
	Read      bool
}

func (a *api) notifications(t testing.TB, as account, query string) []notification {
	t.Helper()
	return read[page[notification]](t, a.must(t, 200, as, "GET", "/v1/notifications"+query, nil)).Items
}

func (a *api) unread(t testing.TB, as account) int64 {
	t.Helper()
	return unreadIn(t, a.must(t, 200, as, "GET", "/v1/notifications/unread-count", nil))
}

func unreadIn(t testing.TB, r reply) int64 {
	t.Helper()
	return read[struct {
		UnreadCount int64 `json:"unread_count"`
	}](t, r).UnreadCount
}

func TestNotifications_coverRepliesMentionsAndMilestones(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		p := a.newPost(t, ada)
		c := a.newComment(t, bob, p.ID)
		a.must(t, 201, ada, "POST", fmt.Sprintf("/v1/comments/%d/replies", c.ID),
			obj{"content": "Thanks, @" + bob.Name + "."})
		a.must(t, 201, bob, "POST", "/v1/posts",
			obj{"title": "About", "content": "**@" + strings.ToUpper(ada.Name) + "**, `@" + bob.Name + "`"})
		mine := a.newPost(t, ada)
		a.must(t, 200, ada, "PUT", pathOf(mine)+"/like", nil)
		a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
		a.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
		a.must(t, 200, ada, "PUT", pathOf(c)+"/like", nil)
		a.settle()

		list := a.notifications(t, ada, "")
		if len(list) != 3 || list[0].Kind != "milestone" || list[0].Actor != nil || list[0].CommentID != nil ||
			*list[0].Milestone != 1 || list[0].Post.ID != p.ID ||
			list[1].Kind != "mention" || list[1].Actor.Username != bob.Name || list[1].CommentID != nil ||
			list[1].Post.Title != "About" ||
			list[2].Kind != "reply" || *list[2].CommentID != c.ID || list[2].Milestone != nil || list[2].Read {
			t.Errorf("told %+v", list)
		}
		if got := a.notifications(t, bob, ""); len(got) != 2 || got[0].Kind != "milestone" ||
			*got[0].CommentID != c.ID || got[1].Kind != "reply" {
			t.Errorf("told %+v", got)
		}
		if n := a.unread(t, ada); n != 3 {
			t.Errorf("%d unread", n)
		}
		r := a.must(t, 200, ada, "POST", "/v1/notifications/read", obj{"ids": []int64{list[1].ID}})
		if n := unreadIn(t, r); n != 2 {
			t.Errorf("%d left unread", n)
		}
		if got := a.notifications(t, ada, "?unread=true"); len(got) != 2 || got[0].ID != list[0].ID ||
			got[1].ID != list[2].ID {
			t.Errorf("unread are %+v", got)
		}
		a.newComment(t, bob, p.ID)
		if n := unreadIn(t, a.must(t, 200, ada, "POST", "/v1/notifications/read", obj{"up_to": list[0].ID})); n != 1 {
			t.Errorf("%d left unread, want the one that arrived meanwhile", n)
		}
		if got := a.notifications(t, ada, "?unread=false"); len(got) != 4 || got[0].Read || !got[1].Read ||
			!got[3].Read {
			t.Errorf("all are %+v", got)
		}
	})
}

func TestNotifications_comeInPagesAtTwoQueriesEach(t *testing.T) {
	now := time.Now()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.Now = func() time.Time { return now } })
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	for range 23 {
		a.newComment(t, bob, p.ID)
	}
	for _, query := range []string{"?limit=5", "?limit=5&unread=true"} {
		var ids []int64
		for path := "/v1/notifications" + query; path != ""; {
			before := a.statements()
			got := read[page[notification]](t, a.must(t, 200, ada, "GET", path, nil))
			if sent := a.statements() - before; sent > 2 && len(ids) > 0 { // the first one signs in
				t.Errorf("%d queries for a page", sent)
			}
			for _, n := range got.Items {
				if len(ids) > 0 && n.ID >= ids[len(ids)-1] {
					t.Errorf("%d comes after %d", n.ID, ids[len(ids)-1])
				}
				ids = append(ids, n.ID)
			}
			if path = ""; got.NextCursor != nil {
				path = "/v1/notifications" + query + "&cursor=" + *got.NextCursor
			}
		}
		if len(ids) != 23 {
			t.Errorf("%s: %d notifications, want 23", query, len(ids))
		}
	}
	next := read[page[notification]](t, a.must(t, 200, ada, "GET", "/v1/notifications?limit=1", nil)).NextCursor
	for as, path := range map[account]string{bob: "/v1/notifications?cursor=",
		ada: "/v1/notifications?unread=true&cursor="} {
		a.refusedField(t, 400, "malformed", "cursor", as, "GET", path+*next, nil)
	}
}

func TestNotifications_refuseBadInput(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for _, path := range []string{"GET /v1/notifications", "GET /v1/notifications/unread-count",
		"POST /v1/notifications/read"} {
		method, path, _ := strings.Cut(path, " ")
		a.refused(t, 401, "unauthorized", account{}, method, path, nil)
	}
	a.refusedField(t, 422, "invalid", "unread", ada, "GET", "/v1/notifications?unread=yes", nil)
	for _, body := range []obj{{}, {"ids": nil, "up_to": nil}, {"ids": []int64{}}, {"ids": []int64{0}},
		{"ids": make([]int64, 101)}, {"ids": []int64{1}, "up_to": 1}} {
		a.refusedField(t, 422, "invalid", "ids", ada, "POST", "/v1/notifications/read", body)
	}
	a.refusedField(t, 400, "malformed", "ids", ada, "POST", "/v1/notifications/read", obj{"ids": []any{1, nil}})
	a.refusedField(t, 422, "invalid", "up_to", ada, "POST", "/v1/notifications/read", obj{"up_to": 0})
	for field, value := range map[string]any{"ids": []string{"1"}, "up_to": "1"} {
		a.refusedField(t, 400, "malformed", field, ada, "POST", "/v1/notifications/read", obj{field: value})
	}
	a.must(t, 200, ada, "POST", "/v1/notifications/read", obj{"up_to": int64(1<<63 - 1)})
}
