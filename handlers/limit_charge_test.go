package handlers_test

import (
	"fmt"
	"strings"
	"testing"
)

// A search reports whether it is complete, and is charged by what it examined.
func TestSearch_isChargedByWhatItExamined(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, "", 1))
	ada := a.account(t)
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := a.store.Pool().Exec(query, args...); err != nil {
			t.Fatal(err)
		}
	}
	const posts = 10_000
	for from := 1; from <= posts; from += 1000 {
		var rows, first, second []string
		for id := from; id < from+1000; id++ {
			rows = append(rows, fmt.Sprintf("(%d,%d,'T','C',1)", id, ada.ID))
			first, second = append(first, fmt.Sprintf("(%d,'alpha',5)", id)),
				append(second, fmt.Sprintf("(%d,'beta',5)", id))
		}
		exec("INSERT INTO posts (id, user_id, title, content, terms_version) VALUES " + strings.Join(rows, ","))
		exec("INSERT INTO post_terms (post_id, term, weight) VALUES " + strings.Join(first, ","))
		exec("INSERT INTO post_terms (post_id, term, weight) VALUES " + strings.Join(second, ","))
	}
	exec("INSERT INTO post_terms (post_id, term, weight) VALUES (1,'gamma',5), (1,'delta',5), (1,'epsilon',5)")
	left := func(q string, complete bool) int {
		t.Helper()
		r := a.must(t, 200, account{}, "GET", "/v1/posts?limit=5&q="+q, nil)
		p := read[struct{ Complete *bool }](t, r)
		if p.Complete == nil || *p.Complete != complete {
			t.Errorf("q=%s: complete is %v, want %v", q, p.Complete, complete)
		}
		var name string
		var n int
		if _, err := fmt.Sscanf(strings.ReplaceAll(r.Header.Get("RateLimit"), ";", " "), "%q r=%d", &name,
			&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := left("gamma", true)
	if after := left("gamma", true); before-after > 1 {
		t.Errorf("a search for a rare word costs %d", before-after)
	}
	before = left("alpha+beta", true)
	if after := left("gamma", true); before-after < 5 {
		t.Errorf("a search of 20,000 postings costs %d more", before-after)
	}
	exec("INSERT INTO post_terms (post_id, term, weight) SELECT post_id, 'zeta', 5 FROM post_terms WHERE term='alpha'")
	left("alpha+beta+zeta", false)
	if p := read[obj](t, a.must(t, 200, account{}, "GET", "/v1/posts", nil)); p["complete"] != nil {
		t.Error("a list without a search has complete")
	}
}
