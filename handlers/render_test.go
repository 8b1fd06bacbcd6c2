package handlers_test

import (
	"strings"
	"testing"

	"likewise/models"
)

func TestRender_isWhatAPostWouldShow(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	const content = "Some *content* of @Bob.\n\n<script>alert(1)</script>"
	p := read[post](t, a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "A title", "content": content}))
	r := a.must(t, 200, ada, "POST", "/v1/render", obj{"content": content})
	got := read[struct {
		ContentHTML string `json:"content_html"`
	}](t, r).ContentHTML
	const link = `<a href="/users/bob" class="mention">@Bob</a>`
	if got != p.ContentHTML || !strings.Contains(got, link) ||
		!strings.Contains(got, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Errorf("rendered as %q, and the post has %q", got, p.ContentHTML)
	}
	if n := a.number(t, "SELECT COUNT(*) FROM posts"); n != 1 {
		t.Errorf("%d posts", n)
	}
	a.refusedField(t, 422, "invalid", "content", ada, "POST", "/v1/render", obj{"content": " "})
	a.refusedField(t, 422, "invalid", "content", ada, "POST", "/v1/render",
		obj{"content": strings.Repeat("x", models.MaxContent+1)})
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/render", obj{"content": content})
}

// A long text costs more than a short one: an address has 1,000 requests, and one more for every 20 ms.
func TestRender_countsByLength(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, "", 1))
	ada := a.account(t)
	long := obj{"content": strings.Repeat("x", models.MaxContent)}
	rendered := 0
	for rendered <= 100 && a.send(t, ada, "POST", "/v1/render", long).Status == 200 {
		rendered++
	}
	if rendered < 10 || rendered > 30 {
		t.Errorf("%d texts of %d bytes were rendered", rendered, models.MaxContent)
	}
}
