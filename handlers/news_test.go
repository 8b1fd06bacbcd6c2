package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

// news is the data of an event about notifications.
type news struct {
	Type        string
	ID          int64
	UnreadCount int64 `json:"unread_count"`
	Items       []struct {
		Kind    string
		Excerpt string
		Actor   *struct{ Username string }
	}
}

// nextNews returns the next event of a stream that is about notifications.
func (f *follower) nextNews(t *testing.T) news {
	t.Helper()
	for {
		e := f.next(t)
		if e.kind != "notifications" {
			continue
		}
		var n news
		require.NoError(t, json.Unmarshal([]byte(e.raw), &n))
		return n
	}
}

func TestNotifications_haveAnExcerpt(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, cyd := a.account(t), a.account(t), a.account(t)
	p := a.newPost(t, ada)
	c := read[comment](t, a.must(t, 201, bob, "POST", pathOf(p)+"/comments",
		obj{"content": "**Some** [link](https://example.org/x) " + strings.Repeat("of a text ", 100)}))
	a.must(t, 201, cyd, "POST", "/v1/posts", obj{"title": "About", "content": "*Hello* @" + ada.Name})
	a.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
	excerpts := func() (all []string) {
		t.Helper()
		for _, n := range read[page[struct{ Kind, Excerpt string }]](t,
			a.must(t, 200, ada, "GET", "/v1/notifications", nil)).Items {
			all = append(all, n.Kind+": "+n.Excerpt)
		}
		return all
	}
	got := excerpts()
	if len(got) != 3 || got[0] != "milestone: Some content." || got[1] != "mention: Hello @"+ada.Name ||
		!strings.HasPrefix(got[2], "reply: Some link of a text") || !strings.HasSuffix(got[2], "…") {
		t.Errorf("%q", got)
	}
	// The outcome of a report stays, without the text that was deleted.
	a.must(t, 201, ada, "POST", "/v1/reports", obj{"target_type": "comment", "target_id": c.ID, "reason": "spam"})
	mod := a.promoted(t, a.account(t), models.RoleModerator)
	id := a.number(t, "SELECT id FROM report_cases")
	a.must(t, 200, mod, "POST", fmt.Sprintf("/v1/admin/reports/%d/resolve", id),
		obj{"action": "removed", "note": "Spam."})
	if got := excerpts(); len(got) != 3 || got[0] != "report: " {
		t.Errorf("after the comment was removed: %q", got)
	}
	a.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/users/%d/block", cyd.ID), nil)
	if got := excerpts(); len(got) != 2 {
		t.Errorf("of a blocked user: %q", got)
	}
}

func TestStream_sendsNotifications(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.brisk()
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	ofAda := a.watch(t, fmt.Sprintf("notifications=true&posts=%d", p.ID),
		header{"Authorization", "Bearer " + ada.Token})
	ofBob := a.watch(t, "notifications=true", header{"Authorization", "Bearer " + bob.Token})
	if n := ofAda.nextNews(t); n.UnreadCount != 0 || len(n.Items) != 0 || n.ID != ada.ID || n.Type != "notifications" {
		t.Errorf("at the beginning: %+v", n)
	}
	if n := ofBob.nextNews(t); n.ID != bob.ID {
		t.Errorf("Bob receives %+v", n)
	}
	for i := range 7 {
		a.newComment(t, bob, p.ID)
		n := ofAda.nextNews(t)
		for n.UnreadCount != int64(i+1) {
			n = ofAda.nextNews(t)
		}
		if len(n.Items) != min(i+1, 5) || n.Items[0].Kind != "reply" || n.Items[0].Excerpt != "A comment." ||
			n.Items[0].Actor.Username != bob.Name {
			t.Errorf("after comment %d: %+v", i+1, n)
		}
	}
	list := a.notifications(t, ada, "?unread=true")
	for left := 6; left >= 5; left-- { // both within a second
		a.must(t, 200, ada, "POST", "/v1/notifications/read", obj{"ids": []int64{list[left].ID}})
		n := ofAda.nextNews(t)
		for n.UnreadCount != int64(left) {
			n = ofAda.nextNews(t)
		}
	}
	select {
	case e := <-ofBob.events:
		t.Errorf("Bob receives %s %s", e.kind, e.raw)
	default:
	}

	for as, want := range map[account]int{
		{}:  http.StatusUnauthorized,
		ada: http.StatusOK,
		ada.with(a.newToken(t, ada, "write").Token): http.StatusForbidden,
		ada.with(a.newToken(t, ada, "read").Token):  http.StatusOK,
	} {
		if r := a.send(t, as, "HEAD", "/v1/stream?notifications=true", nil); r.Status != want {
			t.Errorf("a stream of %+v is answered with %d", as, r.Status)
		}
	}
}

// What is sent is private, so that the stream must end with the session.
func TestStream_ofNotificationsEndsWithTheSession(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.brisk()
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	f := a.watch(t, "notifications=true", header{"Authorization", "Bearer " + ada.Token})
	f.nextNews(t)
	a.must(t, 204, ada, "POST", "/v1/auth/logout", nil)
	a.newComment(t, bob, p.ID)
	for e := range f.events {
		t.Fatalf("after the logout the stream sends %s", e.raw)
	}
}
