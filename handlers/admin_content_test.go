package handlers_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/moderation"
)

func (a *api) moderator(t *testing.T) account {
	t.Helper()
	return a.promoted(t, a.account(t), models.RoleModerator)
}

func moderated(kind string, id int64, verb string) string {
	return fmt.Sprintf("/v1/admin/%ss/%d/%s", kind, id, verb)
}

// TestModeration_closesAndOpensForLikes deletes and restores a post and a comment, and likes them in between.
func TestModeration_closesAndOpensForLikes(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		mod, ada := a.moderator(t), a.account(t)
		p := a.newPost(t, ada)
		m := a.newComment(t, ada, p.ID)
		likePost, likeComment := fmt.Sprintf("/v1/posts/%d/like", p.ID), fmt.Sprintf("/v1/comments/%d/like", m.ID)
		reason := obj{"reason": "Spam."}
		a.must(t, 200, ada, "PUT", likePost, nil)
		a.must(t, 200, ada, "PUT", likeComment, nil)
		a.settle()
		a.must(t, 200, mod, "POST", moderated("comment", m.ID, "delete"), reason)
		a.refused(t, 404, "not_found", mod, "PUT", likeComment, nil)
		a.must(t, 200, mod, "POST", moderated("comment", m.ID, "restore"), reason)
		a.must(t, 200, mod, "PUT", likeComment, nil)
		a.must(t, 200, mod, "POST", moderated("post", p.ID, "delete"), reason)
		a.refused(t, 404, "not_found", mod, "PUT", likePost, nil)
		a.refused(t, 404, "not_found", mod, "PUT", likeComment, nil)
		a.refused(t, 403, "forbidden", ada, "POST", fmt.Sprintf("/v1/posts/%d/restore", p.ID), nil)
		a.must(t, 200, mod, "POST", moderated("post", p.ID, "restore"), reason)
		if l := read[like](t, a.must(t, 200, mod, "PUT", likePost, nil)); l.LikesCount != 2 {
			t.Errorf("the restored post has %d likes, want 2", l.LikesCount)
		}
		if l := read[like](t, a.must(t, 200, mod, "PUT", likeComment, nil)); l.LikesCount != 2 {
			t.Errorf("the comment has %d likes, want 2", l.LikesCount)
		}
		a.settle()
		if n := a.number(t, "SELECT likes_count FROM posts"); n != 2 {
			t.Errorf("likes_count is %d, want 2", n)
		}
	})
}

type deletion struct {
	By          *struct{ ID int64 }
	Reason      *string
	OperationID *int64 `json:"operation_id"`
}

type moderatedItem struct {
	Post     *post
	Comment  *comment
	Deletion *deletion
	ReportID *int64 `json:"report_id"`
}

// ids of posts or comments.
func (a *api) moderatedIDs(t *testing.T, as account, path string) []int64 {
	t.Helper()
	var ids []int64
	for cursor := ""; ; {
		list := read[page[moderatedItem]](t, a.must(t, 200, as, "GET", path+cursor, nil))
		for _, item := range list.Items {
			if item.Post != nil {
				ids = append(ids, item.Post.ID)
			} else {
				ids = append(ids, item.Comment.ID)
			}
		}
		if list.NextCursor == nil {
			return ids
		}
		cursor = "&cursor=" + *list.NextCursor
	}
}

func TestModeration_listsContentOfAnyStatus(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	mod, ada, bob := a.moderator(t), a.account(t), a.account(t)
	var posts []int64
	for i := range 6 {
		as := []account{ada, bob}[i%2]
		posts = append(posts, read[post](t,
			a.must(t, 201, as, "POST", "/v1/posts",
				obj{"title": fmt.Sprint("Title ", i), "content": fmt.Sprintf("100%% of _%d_", i)})).ID)
	}
	one := a.newComment(t, ada, posts[0]).ID
	two := a.newComment(t, bob, posts[1]).ID
	a.must(t, 200, mod, "POST", moderated("post", posts[1], "delete"), obj{"reason": "Spam."})
	a.must(t, 204, ada, "DELETE", fmt.Sprintf("/v1/posts/%d", posts[2]), nil)
	a.must(t, 200, mod, "POST", moderated("post", posts[3], "lock"), obj{"reason": "Enough."})
	a.must(t, 200, mod, "POST", moderated("post", posts[4], "pin"), obj{"reason": "News."})
	a.must(t, 200, mod, "POST", moderated("comment", two, "delete"), obj{"reason": "Spam."})
	a.must(t, 201, bob, "POST", "/v1/reports", obj{"target_type": "post", "target_id": posts[5], "reason": "spam"})
	a.must(t, 201, bob, "POST", "/v1/reports",
		obj{"target_type": "comment", "target_id": one, "reason": "abuse", "detail": "Rude."})
	all := slices.Clone(posts)
	slices.Reverse(all)
	of := func(i ...int) []int64 {
		var ids []int64
		for _, n := range i {
			ids = append(ids, posts[n])
		}
		return ids
	}
	for path, want := range map[string][]int64{
		"posts?":                             all,
		"posts?limit=1":                      all,
		"posts?status=normal":                of(5, 4, 3, 0),
		"posts?status=deleted&limit=1":       of(2, 1),
		"posts?locked=true":                  of(3),
		"posts?pinned=true":                  of(4),
		"posts?reported=true":                of(5),
		"posts?author=" + fmt.Sprint(bob.ID): of(5, 3, 1),
		"posts?status=deleted&author=" + fmt.Sprint(ada.ID): of(2),
		"posts?q=TITLE+1": of(1),
		"posts?limit=2&q=" + url.QueryEscape("0% of _"): all,
		"posts?q=" + url.QueryEscape("10_%"):            nil,
		"posts?until=2020-01-01T00:00:00Z":              nil,
		"posts?since=2020-01-01T00:00:00Z&limit=4":      all,
		"comments?":                             {two, one},
		"comments?status=deleted":               {two},
		"comments?reported=true":                {one},
		"comments?limit=1&q=comment":            {two, one},
		"comments?author=" + fmt.Sprint(ada.ID): {one},
	} {
		if got := a.moderatedIDs(t, mod, "/v1/admin/"+path); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	item := read[moderatedItem](t, a.must(t, 200, mod, "GET", fmt.Sprintf("/v1/admin/posts/%d", posts[1]), nil))
	if item.Post.Status != "deleted" || item.Deletion == nil || item.Deletion.By == nil ||
		item.Deletion.By.ID != mod.ID || *item.Deletion.Reason != "Spam." {
		t.Errorf("the deleted post is shown as %+v", item)
	}
	item = read[moderatedItem](t, a.must(t, 200, mod, "GET", fmt.Sprintf("/v1/admin/comments/%d", two), nil))
	if item.Comment.Status != "deleted" || item.Comment.Author == nil || item.Comment.Content == "" ||
		item.Deletion == nil {
		t.Errorf("the deleted comment is shown as %+v", item)
	}
	for path, field := range map[string]string{"posts?status=gone": "status", "posts?author=x": "author",
		"posts?q=": "q", "comments?since=now": "since", "posts?locked=1": "locked"} {
		a.refusedField(t, 422, "invalid", field, mod, "GET", "/v1/admin/"+path, nil)
	}
	a.refused(t, 404, "not_found", mod, "POST", moderated("post", 999, "delete"), obj{"reason": "Spam."})
	a.refusedField(t, 422, "invalid", "reason", mod, "POST", moderated("post", posts[0], "delete"), obj{"reason": " "})
}

func TestModeration_locksAndPins(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	mod, ada := a.moderator(t), a.account(t)
	p, q := a.newPost(t, ada), a.newPost(t, ada)
	m := a.newComment(t, ada, p.ID)
	reason := obj{"reason": "Enough."}
	a.must(t, 200, mod, "POST", moderated("post", p.ID, "lock"), reason)
	a.refused(t, 403, "locked", ada, "POST", fmt.Sprintf("/v1/posts/%d/comments", p.ID), obj{"content": "x"})
	a.refused(t, 403, "locked", ada, "POST", fmt.Sprintf("/v1/comments/%d/replies", m.ID), obj{"content": "x"})
	if n := a.number(t, "SELECT comments_count FROM posts WHERE id=?", p.ID); n != 1 {
		t.Errorf("the locked post has %d comments", n)
	}
	// A moderator says why it is locked, and everybody reads that.
	a.must(t, 201, mod, "POST", fmt.Sprintf("/v1/comments/%d/replies", m.ID), obj{"content": "Please calm down."})
	a.must(t, 201, mod, "POST", fmt.Sprintf("/v1/posts/%d/comments", p.ID), obj{"content": "It was off topic."})
	if r := a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/posts/%d/comments", p.ID), nil); !strings.Contains(
		string(r.Body), "It was off topic.") || !strings.Contains(string(r.Body), "Please calm down.") {
		t.Errorf("the comments on the locked post are %s", r)
	}
	// Moderators edit no text of others in it, and a block binds them.
	a.refused(t, 403, "forbidden", mod, "PATCH", pathOf(m), obj{"content": "x"}, header{"If-Match", "*"})
	a.block(t, ada, mod)
	a.refused(t, 403, "forbidden", mod, "POST", fmt.Sprintf("/v1/posts/%d/comments", p.ID), obj{"content": "x"})
	a.must(t, 200, ada, "DELETE", fmt.Sprintf("/v1/users/%d/block", mod.ID), nil)
	if r := a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/posts/%d", p.ID), nil); !strings.Contains(string(r.Body),
		`"locked":true`) {
		t.Errorf("the locked post is %s", r)
	}
	a.must(t, 200, mod, "POST", moderated("post", p.ID, "unlock"), reason)
	a.newComment(t, ada, p.ID)

	pinned := func(query string) []int64 {
		var ids []int64
		for _, item := range read[page[post]](t, a.must(t, 200, ada, "GET", "/v1/posts?pinned=true"+query, nil)).Items {
			ids = append(ids, item.ID)
		}
		return ids
	}
	a.must(t, 200, mod, "POST", moderated("post", q.ID, "pin"), reason)
	a.must(t, 200, mod, "POST", moderated("post", p.ID, "pin"), reason)
	for query, want := range map[string][]int64{"": {q.ID, p.ID}, "&sort=hot": {q.ID, p.ID},
		"&sort=top&limit=1": {q.ID}, "&q=title": {q.ID, p.ID}, "&author=999": nil} {
		if got := pinned(query); !slices.Equal(got, want) {
			t.Errorf("pinned%s: got %v, want %v", query, got, want)
		}
	}
	a.must(t, 200, mod, "POST", moderated("post", q.ID, "delete"), reason)
	a.must(t, 200, mod, "POST", moderated("post", p.ID, "unpin"), reason)
	if got := pinned(""); got != nil {
		t.Errorf("pinned: got %v, want none", got)
	}
	a.refusedField(t, 422, "invalid", "pinned", ada, "GET", "/v1/posts?pinned=no", nil)
}

func TestAccounts_areFoundByModerators(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	mod := a.moderator(t)
	for _, name := range []string{"ann", "Anna", "an_na", "bert"} {
		if err := accounts.New(a.store).CreateUser(t.Context(),
			&models.User{Username: name, Email: "mail-" + name + "@example.org"}); err != nil {
			t.Fatal(err)
		}
	}
	names := func(query string) []string {
		var names []string
		for cursor := ""; ; {
			list := read[page[struct{ Username string }]](t,
				a.must(t, 200, mod, "GET", "/v1/admin/users?"+query+cursor, nil))
			for _, item := range list.Items {
				names = append(names, item.Username)
			}
			if list.NextCursor == nil {
				return names
			}
			cursor = "&cursor=" + *list.NextCursor
		}
	}
	bert := a.number(t, "SELECT id FROM users WHERE username='bert'")
	a.must(t, 200, mod, "POST", fmt.Sprintf("/v1/admin/users/%d/ban", bert), obj{"reason": "Spam."})
	for query, want := range map[string][]string{
		"limit=2":                {"bert", "an_na", "Anna", "ann", mod.Name},
		"username=AN&limit=1":    {"an_na", "ann", "Anna"},
		"username=an_":           {"an_na"},
		"role=moderator":         {mod.Name},
		"banned=true":            {"bert"},
		"username=b&banned=true": {"bert"},
		"username=an&role=admin": nil,
	} {
		got := names(query)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	admin := a.promoted(t, a.account(t), models.RoleAdmin)
	byEmail := read[page[struct{ Username string }]](t,
		a.must(t, 200, admin, "GET", "/v1/admin/users?email=mail-a&limit=2", nil))
	if len(byEmail.Items) != 2 || byEmail.NextCursor == nil {
		t.Errorf("by address: %+v", byEmail)
	}
	r := string(a.must(t, 200, mod, "GET", fmt.Sprintf("/v1/admin/users/%d", bert), nil).Body)
	for _, want := range []string{`"email":"mail-bert@example.org"`, `"ban":{"until":null,"reason":"Spam."}`,
		`"sessions_count":0`, `"role":"user"`} {
		if !strings.Contains(r, want) {
			t.Errorf("the account is %s, want %s in it", r, want)
		}
	}
	a.refused(t, 404, "not_found", mod, "GET", "/v1/admin/users/999", nil)
	for query, field := range map[string]string{"username=": "username", "role=boss": "role",
		"email=a&username=b": "email"} {
		a.refusedField(t, 422, "invalid", field, mod, "GET", "/v1/admin/users?"+query, nil)
	}
}

func TestReports_areResolvedTogether(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	mod, mod2, ada, bob := a.moderator(t), a.moderator(t), a.account(t), a.account(t)
	p := a.newPost(t, ada)
	m := a.newComment(t, ada, p.ID)
	report := func(as account, kind string, id int64) reply {
		return a.must(t, 201, as, "POST", "/v1/reports", obj{"target_type": kind, "target_id": id, "reason": "spam"})
	}
	first := report(bob, "post", p.ID)
	if again := report(bob, "post", p.ID); string(again.Body) != string(first.Body) {
		t.Errorf("reporting again is answered with %s, first it was %s", again, first)
	}
	report(bob, "comment", m.ID)
	report(mod2, "comment", m.ID)
	for body, field := range map[string]string{
		`{"target_type":"user","target_id":1,"reason":"spam"}`: "target_type",
		`{"target_type":"post","reason":"spam"}`:               "target_id",
		`{"target_type":"post","target_id":1,"reason":"x"}`:    "reason",

		`{"target_type":"post","target_id":1,"reason":"spam","detail":"` + strings.Repeat("x", 1001) + `"}`: "detail",
	} {
		a.refusedField(t, 422, "invalid", field, bob, "POST", "/v1/reports", body)
	}
	a.refused(t, 404, "not_found", bob, "POST", "/v1/reports",
		obj{"target_type": "post", "target_id": 999, "reason": "spam"})
	type reportCase struct {
		ID             int64
		TargetType     string `json:"target_type"`
		Excerpt        string
		Status         string
		ReportersCount int64               `json:"reporters_count"`
		ClaimedBy      *struct{ ID int64 } `json:"claimed_by"`
	}
	cases := read[page[reportCase]](t, a.must(t, 200, mod, "GET", "/v1/admin/reports", nil)).Items
	if len(cases) != 2 || cases[1].ReportersCount != 2 || cases[1].Excerpt != "A comment." ||
		cases[0].TargetType != "post" {
		t.Fatalf("the queue is %+v", cases)
	}
	claim := fmt.Sprintf("/v1/admin/reports/%d/claim", cases[1].ID)
	if k := read[reportCase](t, a.must(t, 200, mod2, "POST", claim, nil)); k.Status != "claimed" ||
		k.ClaimedBy == nil || k.ClaimedBy.ID != mod2.ID {
		t.Errorf("the claimed case is %+v", k)
	}
	a.refused(t, 409, "conflict", mod, "POST", claim, nil)
	a.must(t, 200, mod2, "POST", claim, nil)
	if n := len(read[page[obj]](t,
		a.must(t, 200, mod, "GET", fmt.Sprintf("/v1/admin/reports/%d/reports?limit=1", cases[1].ID),
			nil)).Items); n != 1 {
		t.Errorf("%d reports on a page of one", n)
	}
	var out struct {
		Results []struct {
			ID     int64
			Status string
			Code   *string
		}
	}
	a.must(t, 200, mod, "POST", "/v1/admin/reports/resolve",
		obj{"ids": []int64{cases[0].ID, cases[1].ID, 999, cases[0].ID}, "action": "removed", "note": "Spam."}).into(t,
		&out)
	var got []string
	for _, r := range out.Results {
		got = append(got, r.Status)
		if r.Code != nil {
			got = append(got, *r.Code)
		}
	}
	if strings.Join(got, " ") != "resolved failed conflict failed not_found failed conflict" {
		t.Errorf("the results are %v", got)
	}
	a.refused(t, 404, "not_found", ada, "GET", fmt.Sprintf("/v1/posts/%d", p.ID), nil)
	a.must(t, 200, mod2, "POST", fmt.Sprintf("/v1/admin/reports/%d/resolve", cases[1].ID),
		obj{"action": "dismissed", "note": "Fine."})
	a.refused(t, 409, "conflict", mod2, "POST", fmt.Sprintf("/v1/admin/reports/%d/resolve", cases[1].ID),
		obj{"action": "dismissed", "note": "Fine."})
	told := string(a.must(t, 200, bob, "GET", "/v1/notifications", nil).Body)
	if strings.Count(told, `"kind":"report"`) != 2 || !strings.Contains(told, `"outcome":"removed"`) ||
		!strings.Contains(told, `"outcome":"dismissed"`) || strings.Contains(told, mod.Name) {
		t.Errorf("the reporter is told %s", told)
	}
	mine := string(a.must(t, 200, bob, "GET", "/v1/me/reports?limit=2", nil).Body)
	if strings.Count(mine, `"status":"resolved"`) != 2 || strings.Contains(mine, "Spam.") {
		t.Errorf("the reporter reads %s", mine)
	}
	for body, field := range map[string]string{`{"ids":[],"action":"removed","note":"x"}`: "ids",
		`{"ids":[1],"action":"burn","note":"x"}`: "action", `{"ids":[1],"action":"removed","note":""}`: "note"} {
		a.refusedField(t, 422, "invalid", field, mod, "POST", "/v1/admin/reports/resolve", body)
	}
}

func TestOperation_isRequestedOnceAndUndone(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	mod, eve := a.moderator(t), a.account(t)
	p := a.newPost(t, eve)
	path := fmt.Sprintf("/v1/admin/users/%d/content/delete", eve.ID)
	key := header{"Idempotency-Key", "once"}
	first := a.must(t, 202, mod, "POST", path, obj{"reason": "Spam."}, key)
	again := a.must(t, 202, mod, "POST", path, obj{"reason": "Spam."}, key)
	if string(again.Body) != string(first.Body) || a.number(t, "SELECT COUNT(*) FROM content_operations") != 1 {
		t.Errorf("the repetition is answered with %s, first it was %s", again, first)
	}
	operation := first.Header.Get("Location")
	id := a.number(t, "SELECT id FROM content_operations")
	for {
		step, err := moderation.New(a.store).StepOperation(context.Background(), id)
		require.NoError(t, err)
		if step.Done {
			break
		}
		require.NoError(t, moderation.New(a.store).CloseStep(context.Background(), id, step))
	}
	if r := a.must(t, 200, mod, "GET", operation, nil); !strings.Contains(string(r.Body), `"state":"deleted"`) ||
		!strings.Contains(string(r.Body), `"posts_deleted":1`) {
		t.Errorf("the operation is %s", r)
	}
	a.refused(t, 404, "not_found", mod, "GET", fmt.Sprintf("/v1/posts/%d", p.ID), nil)
	item := read[moderatedItem](t, a.must(t, 200, mod, "GET", fmt.Sprintf("/v1/admin/posts/%d", p.ID), nil))
	if item.Deletion == nil || item.Deletion.OperationID == nil || *item.Deletion.OperationID != id {
		t.Errorf("the post is %+v", item)
	}
	if r := a.must(t, 202, mod, "POST", operation+"/undo", obj{"reason": "No spam."}); !strings.Contains(string(r.Body),
		`"state":"undoing"`) {
		t.Errorf("the operation is %s", r)
	}
	a.refused(t, 404, "not_found", mod, "GET", "/v1/admin/operations/999", nil)
	a.refused(t, 403, "forbidden", mod, "POST", fmt.Sprintf("/v1/admin/users/%d/content/delete", mod.ID),
		obj{"reason": "Spam."})
}
