package handlers_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
)

// sample is a post with everything that a list can filter or sort by.
type sample struct {
	id, author, likes int64
	created, active   time.Time
	tags              []string
	words             string
	deleted           bool
}

// samples inserts n posts; several share each time and each count. Most have the tag "often" and the word "often"; few
// have the tag "seldom", the word "seldom" and the Chinese word.
func (a *api) samples(t *testing.T, n int, authors []account) []sample {
	t.Helper()
	r := rand.New(rand.NewPCG(4, 2))
	now := time.Now().UTC().Truncate(time.Second)
	list := make([]sample, n)
	for i := range list {
		s := sample{author: authors[r.IntN(len(authors))].ID, likes: []int64{0, 1, 10, 11, 500}[r.IntN(5)],
			words: "text"}
		s.created = now.Add(-time.Minute - time.Hour*time.Duration([]int{0, 20, 30, 6 * 24, 8 * 24, 29 * 24, 31 * 24,
			364 * 24, 400 * 24, 900 * 24}[r.IntN(10)]))
		s.active = s.created.Add(time.Duration(r.IntN(3)) * time.Hour)
		if r.IntN(10) < 8 {
			s.tags, s.words = append(s.tags, "often"), s.words+" often"
		}
		if r.IntN(10) == 0 {
			s.tags, s.words = append(s.tags, "seldom"), s.words+" seldom 量子计算"
		}
		if s.deleted = r.IntN(10) == 0; s.deleted {
			s.words += " gone"
		}
		p, err := content.New(a.store).CreatePost(t.Context(), models.Author{ID: s.author},
			models.PostText{Title: "Title", Content: s.words, Tags: s.tags})
		require.NoError(t, err)
		s.id = p.ID
		for _, change := range []string{
			"UPDATE posts SET created_at=?, updated_at=created_at, active_at=?, likes_count=?, hot_score=? WHERE id=?",
			`UPDATE post_tags g
			JOIN posts p ON p.id=g.post_id
			SET g.created_at=p.created_at, g.active_at=p.active_at,
				g.likes_count=p.likes_count, g.hot_score=p.hot_score
			WHERE p.id=?`,
		} {
			args := []any{s.id}
			if strings.HasPrefix(change, "UPDATE posts") {
				args = []any{s.created, s.active, s.likes, models.HotScore(s.created, s.likes), s.id}
			}
			if _, err := a.store.Pool().ExecContext(t.Context(), change, args...); err != nil {
				t.Fatal(err)
			}
		}
		if s.deleted {
			require.NoError(t, content.New(a.store).DeletePost(t.Context(), s.author, s.id))
		}
		list[i] = s
	}
	return list
}

// TestPosts_everyOrderWithEveryFilter compares each list, read in pages of several sizes, with all posts sorted and
// filtered in memory. The sizes and the shares of tags and words exercise every query plan.
func TestPosts_everyOrderWithEveryFilter(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	authors := a.accounts(t, 3)
	all := a.samples(t, 150, authors)
	place := map[string]func(sample) int64{
		"new": func(s sample) int64 { return s.created.Unix() },
		"hot": func(s sample) int64 { return models.HotScore(s.created, s.likes) },
		"top": func(s sample) int64 { return s.likes }, "active": func(s sample) int64 { return s.active.Unix() },
	}
	days := map[string]int{"all": 10_000, "day": 1, "week": 7, "month": 30, "year": 365}
	now := time.Now()
	// Under the race detector each list has one of the windows, in turn.
	lists, step := 0, testkit.Volume(1, len(days))
	for sort, value := range place {
		for turn, window := range slices.Sorted(maps.Keys(days)) {
			n := days[window]
			for _, author := range []int64{0, authors[0].ID} {
				for _, tag := range []string{"", "often", "seldom", "Seldom", "never"} {
					for _, q := range []string{"", "often", "seldom", "text seldom often", "子计", "量子 text",
						"often never"} {
						if lists++; (lists+turn)%step != 0 {
							continue
						}
						var want []sample
						for _, s := range all {
							if s.deleted || s.created.Before(now.AddDate(0, 0, -n)) || author != 0 &&
								s.author != author ||
								tag != "" && !slices.Contains(s.tags, strings.ToLower(tag)) ||
								slices.ContainsFunc(strings.Fields(q),
									func(word string) bool { return !strings.Contains(s.words, word) }) {
								continue
							}
							want = append(want, s)
						}
						slices.SortFunc(want, func(x, y sample) int {
							if value(x) != value(y) {
								return int(value(y) - value(x))
							}
							return int(y.id - x.id)
						})
						path := "/v1/posts?sort=" + sort + "&window=" + window
						if author != 0 {
							path += fmt.Sprint("&author=", author)
						}
						if tag != "" {
							path += "&tag=" + tag
						}
						if q != "" {
							path += "&q=" + url.QueryEscape(q)
						}
						_, items := a.walk(t, path, 7+len(want)%30, itemID, func() {})
						if len(items) != len(want) {
							t.Fatalf("%s: %d posts, want %d", path, len(items), len(want))
						}
						for i, item := range items {
							if item["id"] != float64(want[i].id) {
								t.Fatalf("%s: post %v is at %d, want %d", path, item["id"], i, want[i].id)
							}
						}
					}
				}
			}
		}
	}
	if gone := read[page[obj]](t, a.must(t, 200, account{}, "GET", "/v1/posts?q=gone", nil)); len(gone.Items) != 0 {
		t.Errorf("a search finds the deleted %v", gone.Items)
	}
}

// The window is fixed when the first page is read: later pages must include posts that have left it since.
func TestPosts_windowStaysWhereItWas(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	late, soon := a.newPost(t, ada), a.newPost(t, ada)
	leaves := time.Now().UTC().Truncate(time.Second).Add(3 * time.Second)
	if _, err := a.store.Pool().Exec("UPDATE posts SET created_at=?, likes_count=3 WHERE id=?",
		leaves.Add(-24*time.Hour), soon.ID); err != nil {
		t.Fatal(err)
	}
	for _, sort := range []string{"new", "top"} {
		path := "/v1/posts?window=day&limit=1&sort=" + sort
		first := read[page[post]](t, a.must(t, 200, account{}, "GET", path, nil))
		if sort == "new" && (first.NextCursor == nil || first.Items[0].ID != late.ID) {
			t.Fatalf("the first page is %+v", first)
		}
		if sort == "top" {
			break
		}
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			p := read[page[post]](t, a.must(t, 200, account{}, "GET", path, nil))
			return p.NextCursor == nil, "the old post stays in the window"
		})
		second := read[page[post]](t, a.must(t, 200, account{}, "GET", path+"&cursor="+*first.NextCursor, nil))
		if len(second.Items) != 1 || second.Items[0].ID != soon.ID {
			t.Errorf("the second page is %+v", second)
		}
	}
}

func TestSearch_rank(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	write := func(title, content string) float64 {
		p := read[obj](t, a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": title, "content": content}))
		return p["id"].(float64)
	}
	filler := strings.Repeat("Something else entirely. ", 60)
	mentions := write("Other things", "Once a qubit. "+filler)
	about := write("Other things", "A qubit, and a qubit more: qubits.")
	titled := write("On qubits", filler)
	both := write("Qubits", "Qubits are qubits.")
	write("Quite another", filler)
	search := func(q string) []float64 {
		_, items := a.walk(t, "/v1/posts?q="+url.QueryEscape(q), 2, itemID,
			func() { write("Newly about qubit", "x"+filler) })
		var ids []float64
		for _, item := range items {
			if item["id"].(float64) <= both {
				ids = append(ids, item["id"].(float64))
			}
		}
		return ids
	}
	if got := search("qubit"); !slices.Equal(got, []float64{both, titled, about, mentions}) {
		t.Errorf("qubit finds %v", got)
	}
	if got := search("QUBITS entirely"); !slices.Equal(got, []float64{titled, mentions}) {
		t.Errorf("two words find %v", got)
	}

	chinese := write("缓存", "用 Redis 做缓存, 并发编程与数据库表设计")
	for q, found := range map[string]bool{
		"缓存": true, "数据库": true, "并发 数据库": true, "redis缓存": true, "据库表": true, "表": true,
		"缓库": false, "库数": false,
	} {
		if got := search(q); slices.Contains(got, chinese) || len(got) > 0 {
			t.Errorf("%s finds %v of the others", q, got)
		}
		_, items := a.walk(t, "/v1/posts?q="+url.QueryEscape(q), 5, itemID, func() {})
		if got := len(items) == 1 && items[0]["id"] == chinese; got != found {
			t.Errorf("%s is found: %v, want %v", q, got, found)
		}
	}

	// An edit reranks the post by its new text.
	a.must(t, 200, ada, "PATCH", fmt.Sprintf("/v1/posts/%.0f", chinese),
		obj{"title": "Qubits", "content": "no more of that"}, header{"If-Match", "*"})
	if _, items := a.walk(t, "/v1/posts?q="+url.QueryEscape("缓存"), 5, itemID, func() {}); len(items) != 0 {
		t.Errorf("the old text is found: %v", items)
	}
	if _, items := a.walk(t, "/v1/posts?q=more", 5, itemID, func() {}); len(items) != 2 {
		t.Errorf("the new text is not found: %v", items)
	}
}

func TestPosts_badFilters(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	for _, bad := range []struct{ field, query string }{
		{"window", "window="}, {"window", "window=hour"}, {"sort", "sort=relevance"}, {"sort", "q=x&sort=old"},
		{"q", "q="}, {"q", "q=%20"}, {"q", "q=%3F%21"}, {"q", "q=%ff"}, {"q", "q=" + strings.Repeat("a", 201)},
		{"tag", "tag="}, {"tag", "tag=a%20b"}, {"tag", "tag=" + strings.Repeat("a", 31)}, {"tag", "tag=%ff"},
	} {
		a.refusedField(t, 422, "invalid", bad.field, account{}, "GET", "/v1/posts?"+bad.query, nil)
	}
	for _, bad := range []struct{ field, query string }{{"q", "q="}, {"q", "q=%25"}, {"q", "q=_"},
		{"sort", "sort=new"}} {
		a.refusedField(t, 422, "invalid", bad.field, account{}, "GET", "/v1/tags?"+bad.query, nil)
	}
	ada := a.account(t)
	a.samples(t, 20, []account{ada})
	lists := []string{"/v1/posts?window=year", "/v1/posts?window=month", "/v1/posts?tag=often", "/v1/posts?q=often",
		"/v1/posts?q=often&sort=new", "/v1/posts?q=text", "/v1/posts?tag=often&q=often"}
	for i, from := range lists {
		p := read[page[obj]](t, a.must(t, 200, account{}, "GET", from+"&limit=1", nil))
		for j, to := range lists {
			if i != j {
				a.refusedField(t, 400, "malformed", "cursor", account{}, "GET", to+"&cursor="+*p.NextCursor, nil)
			}
		}
	}
	spelled := read[page[obj]](t, a.must(t, 200, account{}, "GET", "/v1/posts?q=Often&tag=OFTEN&limit=1", nil))
	a.must(t, 200, account{}, "GET", "/v1/posts?q=OFTEN%21&tag=often&cursor="+*spelled.NextCursor, nil)
}
