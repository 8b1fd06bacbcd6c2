package handlers_test

import (
	"fmt"
	"strings"
	"testing"

	"likewise/models"
)

type revision struct {
	Version  int64
	Author   *struct{ Username string }
	Size     int64
	Changed  []string
	Redacted bool
	Title    *string
	Content  *string
	HTML     *string `json:"content_html"`
}

type reportCase struct {
	ID       int64
	Version  int64
	Excerpt  string
	Reported []struct {
		Version      int64
		ReportsCount int64 `json:"reports_count"`
		Excerpt      *string
	}
}

type redaction struct {
	ID      int64
	Status  string
	Outcome *string
	Note    *string
}

var anyVersion = header{"If-Match", "*"}

// TestRevisions_listIsLight edits long texts again and again; the list of versions stays short.
func TestRevisions_listIsLight(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	m := a.newComment(t, ada, p.ID)
	for _, target := range []any{p, m} {
		for i := range 30 {
			a.must(t, 200, ada, "PATCH", pathOf(target), obj{"content": fmt.Sprint(i, strings.Repeat("x", 59_000))},
				anyVersion)
		}
		r := a.must(t, 200, account{}, "GET", pathOf(target)+"/revisions?limit=100", nil)
		items := read[page[revision]](t, r).Items
		if len(items) != 31 || len(r.Body) > 300*len(items) {
			t.Errorf("%d versions in %d bytes", len(items), len(r.Body))
		}
		if first := items[0]; first.Size != int64(59_000+2) || fmt.Sprint(first.Changed) != "[content]" ||
			first.Author.Username != ada.Name || first.Content != nil {
			t.Errorf("the latest version is listed as %+v", first)
		}
		if last := items[30]; last.Version != 0 || len(last.Changed) != 0 {
			t.Errorf("the first version is listed as %+v", last)
		}
		item := read[revision](t, a.must(t, 200, account{}, "GET", pathOf(target)+"/revisions/7", nil))
		if item.Version != 7 || item.Content == nil || len(*item.Content) != 59_001 || item.HTML == nil {
			t.Errorf("version 7 is %+v", item)
		}
		for _, version := range []string{"31", "99", "-1", "07", "x", "9223372036854775808"} {
			a.refused(t, 404, "not_found", account{}, "GET", pathOf(target)+"/revisions/"+version, nil)
		}
		a.must(t, 304, account{}, "GET", pathOf(target)+"/revisions/7", nil,
			header{"If-None-Match", a.must(t, 200, account{}, "GET", pathOf(target)+"/revisions/7",
				nil).Header.Get("ETag")})
	}
}

// TestReport_keepsTheReportedVersion edits a comment after it was reported, deletes it, and then its author's account:
// moderators still see the reported version beside the present one.
func TestReport_keepsTheReportedVersion(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, eve, mod := a.account(t), a.account(t), a.person(t, "eve"), a.moderator(t)
	m := a.newComment(t, eve, a.newPost(t, ada).ID)
	a.must(t, 200, eve, "PATCH", pathOf(m), obj{"content": "You are all fools."}, anyVersion)
	for _, by := range []account{ada, bob} {
		a.must(t, 201, by, "POST", "/v1/reports", obj{"target_type": "comment", "target_id": m.ID, "reason": "abuse"})
	}
	a.must(t, 200, eve, "PATCH", pathOf(m), obj{"content": "Have a nice day!"}, anyVersion)
	check := func(when string) {
		t.Helper()
		k := read[page[reportCase]](t, a.must(t, 200, mod, "GET", "/v1/admin/reports", nil)).Items[0]
		if k.Version != 2 || k.Excerpt != "Have a nice day!" {
			t.Errorf("%s, the case shows version %d, %q", when, k.Version, k.Excerpt)
		}
		if len(k.Reported) != 1 || k.Reported[0].Version != 1 || k.Reported[0].ReportsCount != 2 ||
			*k.Reported[0].Excerpt != "You are all fools." {
			t.Errorf("%s, the case has %+v as reported", when, k.Reported)
		}
		r := read[revision](t, a.must(t, 200, mod, "GET", moderated("comment", m.ID, "revisions/1"), nil))
		if r.Content == nil || *r.Content != "You are all fools." {
			t.Errorf("%s, the reported version is %+v", when, r)
		}
	}
	check("after the edit")
	a.must(t, 204, eve, "DELETE", pathOf(m), nil)
	check("after the deletion")
	a.refused(t, 404, "not_found", ada, "GET", pathOf(m)+"/revisions/1", nil)
	a.must(t, 204, eve, "DELETE", "/v1/me", obj{"password": "difference engine"})
	check("after the deletion of the account")
}

// TestRedaction_onRequest redacts an author's address. A cached rendering of it is not shown again.
func TestRedaction_onRequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, mod := a.account(t), a.account(t), a.moderator(t)
	p := a.newPost(t, ada)
	m := a.newComment(t, ada, p.ID)
	reason := obj{"reason": "It has my address."}
	for _, target := range []any{p, m} {
		admin := strings.Replace(pathOf(target), "/v1/", "/v1/admin/", 1)
		a.must(t, 200, ada, "PATCH", pathOf(target), obj{"content": "I live in Xylophone Street."}, anyVersion)
		seen := a.must(t, 200, bob, "GET", pathOf(target), nil) // rendered
		version := pathOf(target) + "/revisions/1"
		a.refused(t, 404, "not_found", bob, "POST", version+"/redaction", reason)
		a.refusedField(t, 422, "invalid", "reason", ada, "POST", version+"/redaction", obj{"reason": " "})
		r := read[redaction](t, a.must(t, 202, ada, "POST", version+"/redaction", reason))
		if again := read[redaction](t, a.must(t, 202, ada, "POST", version+"/redaction", reason)); again.ID != r.ID {
			t.Errorf("requested again, it is %d, was %d", again.ID, r.ID)
		}
		if open := read[page[struct{ Redaction redaction }]](t,
			a.must(t, 200, mod, "GET", "/v1/admin/redactions?status=open", nil)).Items; len(open) != 1 ||
			open[0].Redaction.ID != r.ID {
			t.Errorf("open: %+v", open)
		}
		resolve := fmt.Sprintf("/v1/admin/redactions/%d/resolve", r.ID)
		a.refusedField(t, 422, "invalid", "outcome", mod, "POST", resolve, obj{"outcome": "maybe", "reason": "Hm."})
		a.must(t, 200, mod, "POST", resolve, obj{"outcome": "redacted", "reason": "An address."})
		a.refused(t, 409, "conflict", mod, "POST", resolve, obj{"outcome": "declined", "reason": "Too late."})
		mine := read[page[redaction]](t, a.must(t, 200, ada, "GET", "/v1/me/redactions", nil)).Items[0]
		if mine.ID != r.ID || mine.Status != "resolved" || *mine.Outcome != "redacted" || *mine.Note != "An address." {
			t.Errorf("the author reads %+v", mine)
		}

		// An edit based on the redacted version fails, and cached copies of it are invalid.
		a.refused(t, 412, "precondition_failed", ada, "PATCH", pathOf(target),
			obj{"content": "I live in Xylophone Street 7."}, header{"If-Match", seen.Header.Get("ETag")})
		for _, path := range []string{pathOf(target), version, pathOf(target) + "/revisions", admin,
			admin + "/revisions/1"} {
			if r := a.must(t, 200, mod, "GET", path, nil,
				header{"If-None-Match", seen.Header.Get("ETag")}); strings.Contains(string(r.Body), "Xylophone") {
				t.Errorf("%s still shows %s", path, r)
			}
		}
		if got := read[revision](t, a.must(t, 200, bob, "GET", version, nil)); !got.Redacted || got.Content != nil ||
			got.HTML != nil || got.Author.Username != ada.Name {
			t.Errorf("the redacted version is %+v", got)
		}
		if now := read[post](t, a.must(t, 200, bob, "GET", pathOf(target), nil)); now.Content != models.RedactedText ||
			now.Version != 2 {
			t.Errorf("it is %+v now", now)
		}
		a.must(t, 200, ada, "PATCH", pathOf(target), obj{"content": "Something else."}, anyVersion)

		// Without a request.
		a.must(t, 200, mod, "POST", admin+"/revisions/0/redact", obj{"reason": "A name."})
		a.refused(t, 409, "conflict", ada, "POST", pathOf(target)+"/revisions/0/redaction", reason)
	}
	if n := a.acts(t, "post.redact") + a.acts(t, "comment.redact"); n != 4 {
		t.Errorf("%d redactions are logged, want 4", n)
	}
	if found := read[page[post]](t, a.must(t, 200, bob, "GET", "/v1/posts?q=xylophone", nil)).Items; len(found) != 0 {
		t.Errorf("a search finds %+v", found)
	}
}

// TestPurge_closesAndStays purges a post and a comment with a reply. Their likes are refused, the reply stays in its
// tree, and nobody can restore them.
func TestPurge_closesAndStays(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, mod, admin := a.account(t), a.account(t), a.moderator(t),
			a.promoted(t, a.account(t), models.RoleAdmin)
		p, gone := a.newPost(t, ada), a.newPost(t, ada)
		m := a.newComment(t, ada, p.ID)
		reply := a.newReply(t, bob, m.ID)
		under := a.newComment(t, bob, gone.ID)
		for _, target := range []any{m, gone} {
			a.must(t, 200, bob, "PUT", pathOf(target)+"/like", nil)
		}
		reason := obj{"reason": "A court has ordered it."}
		for path, kind := range map[string]string{moderated("comment", m.ID, ""): "comment",
			moderated("post", gone.ID, ""): "post"} {
			a.refused(t, 403, "forbidden", mod, "POST", path+"purge", reason)
			r := a.must(t, 200, admin, "POST", path+"purge", reason)
			got := read[obj](t, r)
			if text := got[kind].(obj); got["deletion"].(obj)["purged"] != true || text["content"] != "" ||
				text["content_html"] != "" {
				t.Errorf("purged as %s", r)
			}
			a.must(t, 200, admin, "POST", path+"purge", reason)
			a.refused(t, 409, "conflict", admin, "POST", path+"restore", reason)
		}
		a.refused(t, 403, "forbidden", ada, "POST", pathOf(gone)+"/restore", nil)
		for _, target := range []any{m, gone, under} {
			a.refused(t, 404, "not_found", bob, "PUT", pathOf(target)+"/like", nil)
			a.refused(t, 404, "not_found", bob, "GET", pathOf(target), nil)
		}
		comments := read[page[struct {
			ID      int64
			Status  string
			Content string
			Replies page[comment]
		}]](t, a.must(t, 200, bob, "GET", pathOf(p)+"/comments", nil)).Items
		if len(comments) != 1 || comments[0].Status != "deleted" || len(comments[0].Replies.Items) != 1 ||
			comments[0].Replies.Items[0].ID != reply.ID {
			t.Errorf("the tree is %+v", comments)
		}
		if n := read[post](t, a.must(t, 200, bob, "GET", pathOf(p), nil)).CommentsCount; n != 1 {
			t.Errorf("%d comments are counted, want 1", n)
		}
		if n := a.acts(t, "post.purge") + a.acts(t, "comment.purge"); n != 2 {
			t.Errorf("%d purges are logged, want 2", n)
		}
		a.settle()
		for _, target := range []any{m, gone} {
			if rows, count := a.likeRows(t, target); rows != 1 || count != 1 {
				t.Errorf("%s has %d likes in rows and %d in its count, want 1", pathOf(target), rows, count)
			}
		}
	})
}

// TestEdits_ofOneTextAreLimited leaves other texts of the author alone.
func TestEdits_ofOneTextAreLimited(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, "", 1))
	ada := a.grow(t, a.account(t), models.RoleUser)
	p := a.newPost(t, ada)
	m := a.newComment(t, ada, p.ID)
	for _, target := range []any{p, m} {
		passed, r := a.until(t, 200, ada, "PATCH", pathOf(target), obj{"content": "Another text."}, anyVersion)
		if passed != 20 || !strings.Contains(r.Header.Get("RateLimit-Policy"), "edits") {
			t.Errorf("%d edits passed, and then %s", passed, r.Header.Get("RateLimit-Policy"))
		}
	}
}
