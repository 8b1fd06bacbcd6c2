package handlers_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// pathOf returns the path of a post or comment.
func pathOf(content any) string {
	switch c := content.(type) {
	case post:
		return fmt.Sprintf("/v1/posts/%d", c.ID)
	case comment:
		return fmt.Sprintf("/v1/comments/%d", c.ID)
	}
	panic("neither a post nor a comment")
}

// taggedVersion returns "v3" for the entity tag "v3-HASH".
func taggedVersion(r reply) string {
	version, _, _ := strings.Cut(strings.Trim(r.Header.Get("ETag"), `"`), "-")
	return version
}

func TestPost_fromCreationToDeletion(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		r := a.must(t, 201, ada, "POST", "/v1/posts",
			obj{"title": "Gödel, Escher, Bach", "content": "An *eternal* braid 🎀"})
		p := read[post](t, r)
		if r.Header.Get("Location") != pathOf(p) || taggedVersion(r) != "v0" {
			t.Errorf("header %v", r.Header)
		}
		if p.Title != "Gödel, Escher, Bach" || p.Content != "An *eternal* braid 🎀" ||
			p.ContentHTML != "<p>An <em>eternal</em> braid 🎀</p>\n" ||
			p.Author.Username != ada.Name || p.Status != "normal" || p.Version != 0 || p.LikesCount != 0 || p.Liked ||
			p.CreatedAt.IsZero() {
			t.Errorf("created %s", r)
		}
		if got := a.must(t, 200, ada, "GET", pathOf(p), nil); string(got.Body) != string(r.Body) ||
			got.Header.Get("ETag") != r.Header.Get("ETag") {
			t.Errorf("reads as %s, was created as %s", got, r)
		}

		r = a.must(t, 200, ada, "PATCH", pathOf(p), obj{"title": "GEB"}, header{"If-Match", `"v0"`})
		if edited := read[post](t, r); edited.Title != "GEB" || edited.Content != p.Content || edited.Version != 1 ||
			taggedVersion(r) != "v1" {
			t.Errorf("edited %s", r)
		}
		r = a.must(t, 200, ada, "PATCH", pathOf(p), obj{"content": "A **braid**"}, header{"If-Match", `"v1"`})
		if edited := read[post](t, r); edited.Title != "GEB" ||
			edited.ContentHTML != "<p>A <strong>braid</strong></p>\n" || edited.Version != 2 {
			t.Errorf("edited %s", r)
		}

		if r := a.must(t, 204, ada, "DELETE", pathOf(p), nil); len(r.Body) != 0 {
			t.Errorf("the deletion is answered with %s", r)
		}
		if got := read[page[post]](t, a.must(t, 200, ada, "GET", "/v1/posts", nil)); len(got.Items) != 0 {
			t.Errorf("a deleted post is listed: %+v", got)
		}
	})
}

func TestEdit_needsIfMatch(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	for _, content := range []any{p, a.newComment(t, ada, p.ID)} {
		path := pathOf(content)
		edit := func(n int) obj { return obj{"content": fmt.Sprintf("Edit %d", n)} }
		a.refused(t, 428, "if_match_required", ada, "PATCH", path, edit(0))
		for _, tag := range []string{`"v1"`, `W/"v0"`, `"v00"`, `"0"`, `"a", "b,c"`} {
			problem, r := a.refused(t, 412, "precondition_failed", ada, "PATCH", path, edit(0), header{"If-Match", tag})
			if problem.Version == nil || *problem.Version != 0 || r.Header.Get("ETag") != `"v0"` {
				t.Errorf("If-Match %s: %s with ETag %s, want version 0", tag, r, r.Header.Get("ETag"))
			}
		}
		for _, tag := range []string{`v0`, `"v0`, `"v0" "v1"`, `0`, `*, "v0"`} {
			a.refused(t, 400, "malformed", ada, "PATCH", path, edit(0), header{"If-Match", tag})
		}
		a.must(t, 200, ada, "PATCH", path, edit(1), header{"If-Match", `"x" , W/"v7","v0"`})
		a.must(t, 200, ada, "PATCH", path, edit(2), header{"If-Match", `*`})
		a.refused(t, 412, "precondition_failed", ada, "PATCH", path, edit(3), header{"If-Match", `"v1"`})
		a.refusedField(t, 422, "invalid", "content", ada, "PATCH", path, obj{"content": " "},
			header{"If-Match", `"v2"`})
	}
}

func TestEdit_oneOfTwoEditorsWins(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		p := a.newPost(t, ada)
		contents := []any{p, a.newComment(t, ada, p.ID)}
		for round := range 20 {
			for _, content := range contents {
				etag := a.must(t, 200, ada, "GET", pathOf(content), nil).Header.Get("ETag")
				replies := make([]reply, 2)
				together(2, func(i int) {
					replies[i], _ = a.try(ada, "PATCH", pathOf(content),
						obj{"content": fmt.Sprintf("Round %d editor %d", round, i)}, header{"If-Match", etag})
				})
				won, lost := replies[0], replies[1]
				if won.Status != 200 {
					won, lost = lost, won
				}
				if won.Status != 200 || lost.Status != 412 {
					t.Fatalf("round %d: %s and %s, want one 200 and one 412", round, won, lost)
				}
				now := taggedVersion(won)
				if got := read[problem](t, lost); got.Version == nil || fmt.Sprintf("v%d", *got.Version) != now ||
					taggedVersion(lost) != now {
					t.Errorf("the loser is told %s, the winner %s", lost, now)
				}
			}
		}
	})
}

func TestPost_badInput(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	long := strings.Repeat("ü", 200)
	a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": long, "content": "C"})
	match := header{"If-Match", `"v0"`}
	for _, text := range []struct {
		field string
		body  obj
	}{
		{"title", obj{"title": long + "x", "content": "C"}},
		{"title", obj{"title": "", "content": "C"}},
		{"title", obj{"title": "   ", "content": "C"}},
		{"title", obj{"title": "two\nlines", "content": "C"}},
		{"title", obj{"content": "C"}},
		{"title", obj{"title": nil, "content": "C"}},
		{"content", obj{"title": "T", "content": ""}},
		{"content", obj{"title": "T", "content": "\n \n"}},
		{"content", obj{"title": "T", "content": "nul\x00"}},
		{"content", obj{"title": "T", "content": strings.Repeat("x", 60_001)}},
		{"content", obj{"title": "T"}},
		{"tags", obj{"title": "T", "content": "C", "tags": []string{"a b"}}},
		{"tags", obj{"title": "T", "content": "C", "tags": []string{"a", ""}}},
		{"tags", obj{"title": "T", "content": "C", "tags": []string{"-"}}},
		{"tags", obj{"title": "T", "content": "C", "tags": []string{"a", "b", "c", "d", "e", "f"}}},
		{"tags", obj{"title": "T", "content": "C", "tags": []string{strings.Repeat("ü", 31)}}},
		{"state", obj{"title": "T", "content": "C", "state": "draft"}},
		{"Title", obj{"Title": "T", "title": "T", "content": "C"}},
	} {
		a.refusedField(t, 422, "invalid", text.field, ada, "POST", "/v1/posts", text.body)
		if len(text.body) == 2 && text.body["title"] != nil {
			a.refusedField(t, 422, "invalid", text.field, ada, "PATCH", pathOf(p), text.body, match)
		}
	}
	problem, _ := a.refused(t, 422, "invalid", ada, "POST", "/v1/posts", obj{"title": "", "content": ""})
	if len(problem.Errors) != 2 {
		t.Errorf("two bad fields are told as %v", problem.Errors)
	}
	if n := a.number(t, "SELECT COUNT(*) FROM posts"); n != 2 {
		t.Errorf("%d posts, want 2", n)
	}
	if n := a.number(t, "SELECT SUM(version) FROM posts"); n != 0 {
		t.Errorf("refused edits made %d versions", n)
	}
}

func TestContentHTML_isSafe(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for _, content := range []string{
		"<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))",
		"[x](JaVaScRiPt:alert(1))",
		"![x](data:text/html;base64,PHNjcmlwdD4=)", "<a href='javascript:alert(1)'>x</a>", "<svg onload=alert(1)>",
		"[x](<javascript&colon;alert(1)>)", "<iframe src=//evil></iframe>", "```\"><script>\nx\n```",
		"[x]: javascript:alert(1)\n[x]",
	} {
		p := read[post](t, a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "T", "content": content}))
		// What is shown as text may say anything: only what is a tag counts.
		for _, tag := range regexp.MustCompile(`<[^>]*>`).FindAllString(strings.ToLower(p.ContentHTML), -1) {
			for _, bad := range []string{"<script", "onerror=", "onload=", "href=\"javascript", "<iframe", "<svg",
				"src=\"data", "href='"} {
				if strings.Contains(tag, bad) {
					t.Errorf("%q becomes %q", content, p.ContentHTML)
				}
			}
		}
		if p.Content != content {
			t.Errorf("%q was stored as %q", content, p.Content)
		}
	}
}
