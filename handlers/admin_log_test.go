package handlers_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

// act is an entry of the moderation log as a moderator reads it.
type act struct {
	ID         int64
	Actor      *struct{ ID int64 }
	Action     string
	TargetType string `json:"target_type"`
	TargetID   int64  `json:"target_id"`
	Reason     string
	Before     obj
	After      obj
	RequestID  string    `json:"request_id"`
	CreatedAt  time.Time `json:"created_at"`
}

// TestModerationLog_hasEveryAct sends every operation of the contract with which moderators change something. Each
// leaves one entry with actor, reason, before and after, and a deletion by a report one more. Reads, and requests that
// only send an event, leave none.
func TestModerationLog_hasEveryAct(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.someone(caller{role: models.RoleAdmin})
	acts := 0
	for _, o := range operations(t) {
		if !strings.HasPrefix(o.path, "/v1/admin/") {
			continue
		}
		owner := w.someone(caller{role: models.RoleUser})
		path, headers := o.request(w, admin, owner)
		body := o.body(t)
		want := int64(1)
		switch o.id {
		case "resolveReports":
			body["ids"] = []int64{w.reported(owner)}
		case "resolveReport":
			want = 2
		case "pingWebhook", "replayDelivery":
			want = 0 // they send an event, and change nothing that others see
		case "unbanUser":
			w.exec("UPDATE users SET banned_until='9999-12-31', ban_reason='Spam.' WHERE id=?", owner.ID)
		case "endPreviousWebhookSecret":
			w.exec("UPDATE webhooks SET previous_secret=secret, previous_until='9999-12-31'")
		}
		before := w.number(t, "SELECT COALESCE(MAX(id),0) FROM moderation_log")
		r := w.ask(o, admin, path, body, headers)
		if r.Status >= 400 {
			t.Errorf("%s %s: %s", o.method, path, r)
			continue
		}
		left := w.number(t, "SELECT COUNT(*) FROM moderation_log WHERE id>?", before)
		if o.method == http.MethodGet {
			if left != 0 {
				t.Errorf("%s left %d entries", o.id, left)
			}
			continue
		}
		if left != want {
			t.Errorf("%s left %d entries, want %d", o.id, left, want)
			continue
		}
		if want == 0 {
			continue
		}
		acts++
		entry := read[page[act]](t, w.must(t, 200, admin, "GET", "/v1/admin/log?limit=1", nil)).Items[0]
		reason, _ := body["reason"].(string)
		if note, ok := body["note"].(string); ok {
			reason = note
		}
		if entry.Actor == nil || entry.Actor.ID != admin.ID || entry.Reason != reason || entry.Before == nil &&
			entry.After == nil || entry.RequestID != r.Header.Get("X-Request-Id") ||
			entry.Action == "" || entry.TargetType == "" {
			t.Errorf("%s (%s) left %+v, want the actor %d, the reason %q, a state and the request %s", o.id, path,
				entry, admin.ID, reason, r.Header.Get("X-Request-Id"))
		}
	}
	t.Logf("%d acts", acts)
}

func TestModerationLog_isFilteredAndExported(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	mod, other, user := a.promoted(t, a.account(t), models.RoleModerator),
		a.promoted(t, a.account(t), models.RoleModerator), a.account(t)
	p, q := a.newPost(t, user), a.newPost(t, user)
	path := func(id int64, verb string) string { return fmt.Sprintf("/v1/admin/posts/%d/%s", id, verb) }
	formula := `=HYPERLINK("http://evil","x"),2`
	hidden := "Fine; =1+2;-3"
	a.must(t, 200, mod, "POST", path(p.ID, "lock"), obj{"reason": formula})
	a.must(t, 200, mod, "POST", path(q.ID, "pin"), obj{"reason": "-1"})
	a.must(t, 200, other, "POST", path(p.ID, "delete"), obj{"reason": hidden})
	a.must(t, 200, other, "POST", path(p.ID, "delete"), obj{"reason": "Again."}) // nothing changes
	middle := read[page[act]](t,
		a.must(t, 200, mod, "GET", "/v1/admin/log?action=post.pin",
			nil)).Items[0].CreatedAt.Format("2006-01-02T15:04:05.000Z07:00")
	for query, want := range map[string]string{
		"":                            "post.delete post.pin post.lock",
		"actor=" + fmt.Sprint(mod.ID): "post.pin post.lock",
		"action=post.delete":          "post.delete",
		"target_type=post&target_id=" + fmt.Sprint(p.ID):              "post.delete post.lock",
		"target_type=comment":                                         "",
		"since=" + url.QueryEscape(middle):                            "post.delete post.pin",
		"until=" + url.QueryEscape(middle):                            "post.lock",
		"action=post.lock&actor=" + fmt.Sprint(other.ID):              "",
		"target_type=post&actor=" + fmt.Sprint(other.ID) + "&limit=1": "post.delete",
	} {
		var got []string
		for next, cursor := true, ""; next; {
			list := read[page[act]](t, a.must(t, 200, mod, "GET", "/v1/admin/log?"+query+cursor, nil))
			for _, e := range list.Items {
				got = append(got, e.Action)
			}
			if next = list.NextCursor != nil; next {
				cursor = "&cursor=" + *list.NextCursor
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", query, got, want)
		}
	}
	for query, field := range map[string]string{"actor=x": "actor", "action=A": "action", "target_id=1": "target_id",
		"since=now": "since", "cursor=x": "cursor"} {
		status, code := 422, "invalid"
		if field == "cursor" {
			status, code = 400, "malformed"
		}
		a.refusedField(t, status, code, field, mod, "GET", "/v1/admin/log?"+query, nil)
	}
	r := a.must(t, 200, mod, "GET", "/v1/admin/log.csv", nil)
	rows, err := csv.NewReader(strings.NewReader(string(r.Body))).ReadAll()
	require.NoError(t, err)
	if len(rows) != 4 || rows[3][7] != "'"+formula || rows[2][7] != "'-1" || rows[1][7] != "Fine; '=1+2;'-3" ||
		rows[1][4] != "post.delete" || rows[3][3] != mod.Name || rows[3][9] != `{"locked":true}` {
		t.Errorf("the export is\n%s", r.Body)
	}
	if !strings.Contains(string(r.Body), "\r\n") || r.Header.Get("ETag") != "" {
		t.Errorf("the export has the header %v and the body\n%s", r.Header, r.Body)
	}
	r = a.must(t, 200, mod, "GET", "/v1/admin/log.csv?action=post.pin", nil)
	if n := strings.Count(string(r.Body), "\r\n"); n != 2 {
		t.Errorf("the filtered export has %d lines:\n%s", n, r.Body)
	}
	a.refused(t, 403, "forbidden", user, "GET", "/v1/admin/log.csv", nil)
}

// TestModerationLog_isExportedWhole exports more than one page, with many acts in the same millisecond.
func TestModerationLog_isExportedWhole(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	mod := a.promoted(t, a.account(t), models.RoleModerator)
	const acts = 3500
	values := strings.Repeat(fmt.Sprintf(",(%d,'post.delete','post',1,'Spam.','r','2026-01-01 00:00:00')", mod.ID),
		acts)
	if _, err := a.store.Pool().ExecContext(t.Context(),
		"INSERT INTO moderation_log (actor_id, action, target_type, target_id, reason, request_id, created_at)"+
			" VALUES "+values[1:]); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(a.must(t, 200, mod, "GET", "/v1/admin/log.csv",
		nil).Body))).ReadAll()
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, row := range rows[1:] {
		ids[row[0]] = true
	}
	for range 10 { // a finished export frees its place
		a.must(t, 200, mod, "GET", "/v1/admin/log.csv?action=none", nil)
	}
	if len(rows) != acts+1 || len(ids) != acts {
		t.Errorf("the export has %d rows with %d ids, want %d", len(rows)-1, len(ids), acts)
	}
}
