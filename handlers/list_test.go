package handlers_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models/content"
)

// fill inserts n posts by one author, or n comments on a post. Several share each time and each count.
func (a *api) fill(t *testing.T, n int, as account, postID, parentID int64) {
	t.Helper()
	for i := range n {
		query, args := "INSERT INTO posts (title, content, user_id, created_at, likes_count) VALUES ('T','C',?,?,?)",
			[]any{as.ID}
		if postID != 0 {
			query = `
				INSERT INTO comments (content, user_id, post_id, parent_id, created_at, likes_count)
				VALUES ('C',?,?,NULLIF(?,0),?,?)`
			args = []any{as.ID, postID, parentID}
		}
		args = append(args, fmt.Sprintf("2026-01-0%d 00:00:00", 1+i*7%4), i*5%3)
		if _, err := a.store.Pool().Exec(query, args...); err != nil {
			t.Fatal(err)
		}
	}
}

// walk reads a list to its end and calls between after each page. It returns how often each id appeared, and the items.
func (a *api) walk(t *testing.T, path string, limit int, id func(obj) float64,
	between func()) (map[float64]int, []obj) {
	t.Helper()
	seen := map[float64]int{}
	var all []obj
	cursor := ""
	for range 1000 {
		p := read[page[obj]](t, a.must(t, 200, account{}, "GET",
			fmt.Sprintf("%s%slimit=%d%s", path, separator(path), limit, cursor), nil))
		for _, item := range p.Items {
			seen[id(item)]++
		}
		all = append(all, p.Items...)
		if p.NextCursor == nil {
			return seen, all
		}
		if len(p.Items) != limit {
			t.Fatalf("a page that is not the last has %d items, want %d", len(p.Items), limit)
		}
		cursor = "&cursor=" + url.QueryEscape(*p.NextCursor)
		between()
	}
	t.Fatal("the list does not end")
	return nil, nil
}

func separator(path string) string {
	if strings.Contains(path, "?") {
		return "&"
	}
	return "?"
}

func itemID(item obj) float64 { return item["id"].(float64) }

func checkOnce(t *testing.T, what string, seen map[float64]int, want []int64) {
	t.Helper()
	for _, id := range want {
		if seen[float64(id)] != 1 {
			t.Errorf("%s: item %d appeared %d times", what, id, seen[float64(id)])
		}
	}
}

func (a *api) ids(t *testing.T, query string) []int64 {
	t.Helper()
	rows, err := a.store.Pool().QueryContext(context.Background(), query)
	require.NoError(t, err)
	defer rows.Close()
	var list []int64
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		list = append(list, id)
	}
	require.NoError(t, rows.Err())
	return list
}

func TestLists_returnEachItemOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		a.fill(t, 57, ada, 0, 0)
		posts := a.ids(t, "SELECT id FROM posts")
		a.fill(t, 57, ada, posts[0], 0)
		comments := a.ids(t, "SELECT id FROM comments")
		a.fill(t, 57, ada, posts[0], comments[0])
		replies := a.ids(t, "SELECT id FROM comments WHERE parent_id IS NOT NULL")
		for _, list := range []struct {
			path   string
			want   []int64
			arrive func(as account) // adds an item to the list
		}{
			{"/v1/posts?sort=new", posts, func(as account) { a.newPost(t, as) }},
			{"/v1/posts?sort=top", posts, func(as account) { a.newPost(t, as) }},
			{fmt.Sprintf("/v1/posts?sort=new&author=%d", ada.ID), posts, func(as account) { a.newPost(t, as) }},
			{fmt.Sprintf("/v1/posts?sort=top&author=%d", ada.ID), posts, func(as account) { a.newPost(t, as) }},
			{fmt.Sprintf("/v1/posts/%d/comments?sort=old", posts[0]), comments,
				func(as account) { a.newComment(t, as, posts[0]) }},
			{fmt.Sprintf("/v1/posts/%d/comments?sort=new", posts[0]), comments,
				func(as account) { a.newComment(t, as, posts[0]) }},
			{fmt.Sprintf("/v1/posts/%d/comments?sort=top", posts[0]), comments,
				func(as account) { a.newComment(t, as, posts[0]) }},
			{fmt.Sprintf("/v1/comments/%d/replies?sort=old", comments[0]), replies,
				func(as account) { a.newReply(t, as, comments[0]) }},
			{fmt.Sprintf("/v1/comments/%d/replies?sort=new", comments[0]), replies,
				func(as account) { a.newReply(t, as, comments[0]) }},
			{fmt.Sprintf("/v1/comments/%d/replies?sort=top", comments[0]), replies,
				func(as account) { a.newReply(t, as, comments[0]) }},
		} {
			for _, limit := range []int{1, 5, 19, 57, 100}[testkit.Volume(0, 2):] {
				seen, items := a.walk(t, list.path, limit, itemID, func() {})
				checkOnce(t, list.path, seen, list.want)
				if len(items) < 57 {
					t.Errorf("%s: %d items", list.path, len(items))
				}
				checkSorted(t, list.path, items)
			}
			arrived := 0
			seen, _ := a.walk(t, list.path, 5, itemID, func() {
				if arrived++; arrived <= 10 {
					list.arrive(ada)
				}
			})
			checkOnce(t, list.path+" while new ones arrive", seen, list.want)
			for id, n := range seen {
				if n != 1 {
					t.Errorf("%s: item %v came %d times", list.path, id, n)
				}
			}
		}
		if p := read[page[obj]](t, a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/posts?author=%d", bob.ID),
			nil)); p.Items == nil || len(p.Items) != 0 || p.NextCursor != nil {
			t.Errorf("an empty list is %+v", p)
		}
	})
}

// checkSorted checks that a list has the order that its path requests.
func checkSorted(t *testing.T, path string, items []obj) {
	t.Helper()
	for i := 1; i < len(items); i++ {
		key := func(item obj) string {
			if strings.Contains(path, "sort=top") {
				return fmt.Sprintf("%09.0f %09.0f", item["likes_count"], item["id"])
			}
			return fmt.Sprintf("%s %09.0f", item["created_at"], item["id"])
		}
		before, after := key(items[i-1]), key(items[i])
		if strings.Contains(path, "sort=old") {
			before, after = after, before
		}
		if before <= after {
			t.Fatalf("%s: %v comes before %v", path, items[i-1], items[i])
		}
	}
}

func TestLikers_returnEachUserOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		users := a.accounts(t, 23)
		for _, target := range a.targets(t, users[0]) {
			var want []int64
			for _, u := range users {
				a.must(t, 200, u, "PUT", pathOf(target)+"/like", nil)
				want = append(want, u.ID)
			}
			a.settle()
			userID := func(item obj) float64 { return item["user"].(obj)["id"].(float64) }
			for _, limit := range []int{1, 5, 23, 100} {
				seen, items := a.walk(t, pathOf(target)+"/likes", limit, userID, func() {})
				checkOnce(t, pathOf(target), seen, want)
				if len(items) != len(users) || items[0]["created_at"] == nil ||
					items[0]["user"].(obj)["username"] == "" {
					t.Errorf("%d likers, the first one is %v", len(items), items[0])
				}
			}
		}
	})
}

func TestLists_badQuery(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	c := a.newComment(t, ada, p.ID)
	for _, path := range []string{"/v1/posts", pathOf(p) + "/comments", pathOf(c) + "/replies", pathOf(p) + "/likes",
		pathOf(c) + "/likes"} {
		for _, limit := range []string{"0", "101", "-1", "x", "", "1e1", "99999999999999999999", "%00"} {
			a.refusedField(t, 422, "invalid", "limit", account{}, "GET", path+"?limit="+limit, nil)
		}
		for _, limit := range []string{"1", "100"} {
			a.must(t, 200, account{}, "GET", path+"?limit="+limit+"&whatever=1", nil)
		}
		for _, cursor := range []string{"", "x", "%00", "AAAA", strings.Repeat("A", 43), strings.Repeat("A", 3000),
			"%0a" + strings.Repeat("A", 42)} {
			a.refusedField(t, 400, "malformed", "cursor", account{}, "GET", path+"?cursor="+cursor, nil)
		}
		if strings.HasSuffix(path, "likes") {
			continue
		}
		for _, sort := range []string{"", "best", "NEW", "new,top", "%ff"} {
			a.refusedField(t, 422, "invalid", "sort", account{}, "GET", path+"?sort="+sort, nil)
		}
	}
	a.refusedField(t, 422, "invalid", "sort", account{}, "GET", "/v1/posts?sort=old", nil)
	for _, author := range []string{"", "0", "-1", "ada", "1.0"} {
		a.refusedField(t, 422, "invalid", "author", account{}, "GET", "/v1/posts?author="+author, nil)
	}
}

func TestCursor_thatWasTamperedWithIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	a.fill(t, 3, ada, 0, 0)
	next := func(path string) string {
		p := read[page[obj]](t, a.must(t, 200, account{}, "GET", path+separator(path)+"limit=1", nil))
		return *p.NextCursor
	}
	cursor := next("/v1/posts")
	a.must(t, 200, account{}, "GET", "/v1/posts?cursor="+cursor, nil)
	refuse := func(path, cursor string) {
		a.refusedField(t, 400, "malformed", "cursor", account{}, "GET",
			path+separator(path)+"cursor="+url.QueryEscape(cursor), nil)
	}
	for i := range len(cursor) {
		for _, c := range []byte{cursor[i] ^ 1, cursor[i] ^ 0x80, cursor[i] + 1, 'A', '_', '=', 0} {
			if c != cursor[i] {
				refuse("/v1/posts", cursor[:i]+string(c)+cursor[i+1:])
			}
		}
		refuse("/v1/posts", cursor[:i])
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	require.NoError(t, err)
	for bit := range len(raw) * 8 {
		raw[bit/8] ^= 1 << (bit % 8)
		refuse("/v1/posts", base64.RawURLEncoding.EncodeToString(raw))
		raw[bit/8] ^= 1 << (bit % 8)
	}
	refuse("/v1/posts", cursor+"A")
	refuse("/v1/posts", cursor+"\n")
	// A cursor of another list is refused like a forged one.
	post := a.ids(t, "SELECT MIN(id) FROM posts")[0]
	a.fill(t, 3, ada, post, 0)
	comments := fmt.Sprintf("/v1/posts/%d/comments", post)
	lists := []string{"/v1/posts", "/v1/posts?sort=top", fmt.Sprintf("/v1/posts?author=%d", ada.ID),
		comments + "?sort=old", comments + "?sort=new", comments + "?sort=top"}
	for i, from := range lists {
		for j, to := range lists {
			if i != j {
				refuse(to, next(from))
			}
		}
	}
}

// TestLists_costTheSameWhateverTheirLength counts the statements that MySQL received.
func TestLists_costTheSameWhateverTheirLength(t *testing.T) {
	// The clock stands still, so that cached sessions do not expire while statements are counted.
	now := time.Now()
	still := func(c *handlers.Config) { c.Now = func() time.Time { return now } }
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		a.fill(t, 110, ada, 0, 0)
		p := post{ID: a.ids(t, "SELECT MIN(id) FROM posts")[0]}
		a.fill(t, 110, ada, p.ID, 0)
		c := comment{ID: a.ids(t, "SELECT MIN(id) FROM comments")[0]}
		a.fill(t, 110, ada, p.ID, c.ID)
		// Each of them has replies, and each reply has one.
		for range 2 {
			if _, err := a.store.Pool().Exec(`
				INSERT INTO comments (content, user_id, post_id, parent_id)
				SELECT 'C', user_id, post_id, id
				FROM comments`); err != nil {
				t.Fatal(err)
			}
		}
		for _, u := range a.accounts(t, 3) {
			a.must(t, 200, u, "PUT", pathOf(p)+"/like", nil)
		}
		for _, query := range []string{
			"INSERT INTO tags (name, posts_count) SELECT CONCAT('tag', id), 110 FROM posts",
			`INSERT INTO post_tags (post_id, tag_id, position, created_at)
			SELECT p.id, t.id, 0, p.created_at
			FROM posts p, tags t
			WHERE t.name IN ('tag1','tag2')`,
			fmt.Sprintf(`
				INSERT INTO post_revisions (post_id, version, title, content, tags)
				SELECT %d, id, 'T', 'C', ''
				FROM posts`, p.ID),
			fmt.Sprintf("UPDATE posts SET version=1000 WHERE id=%d", p.ID),
		} {
			if _, err := a.store.Pool().Exec(query); err != nil {
				t.Fatal(err)
			}
		}
		for more := 1; more > 0; {
			var err error
			if more, err = content.New(a.store).IndexPosts(t.Context(), 50); err != nil {
				t.Fatal(err)
			}
		}
		a.must(t, 200, ada, "GET", "/v1/posts", nil) // caches the session and opens the connection
		for _, list := range []struct {
			path  string
			limit int64
		}{
			{"/v1/posts?sort=new", 2}, {"/v1/posts?sort=top", 2}, {fmt.Sprintf("/v1/posts?author=%d", ada.ID), 2},
			{"/v1/posts?sort=hot", 2}, {"/v1/posts?sort=active", 2},
			{fmt.Sprintf("/v1/posts?sort=hot&author=%d", ada.ID), 2},
			{"/v1/posts?tag=tag1", 3}, {"/v1/posts?sort=top&tag=tag1", 3}, {"/v1/posts?q=c", 3},
			{"/v1/posts?q=t+c&sort=hot&tag=tag2", 3},
			{"/v1/tags", 1}, {"/v1/tags?sort=name&q=t", 1}, {pathOf(p) + "/revisions", 2},
			{pathOf(p) + "/comments?sort=old", 3}, {pathOf(p) + "/comments?sort=new", 3},
			{pathOf(p) + "/comments?sort=top", 3},
			{pathOf(c) + "/replies", 3}, {pathOf(p) + "/likes", 2},
		} {
			for _, as := range []account{ada, {}} {
				var first int64
				for i, limit := range []int{1, 20, 100} {
					a.settle()
					a.sent.take()
					r := a.must(t, 200, as, "GET", fmt.Sprintf("%s%slimit=%d", list.path, separator(list.path), limit),
						nil)
					statements := a.sent.take()
					sent := int64(len(statements))
					if got := len(read[page[obj]](t, r).Items); got != limit && !strings.HasSuffix(list.path, "likes") {
						t.Fatalf("%s: %d items, want %d", list.path, got, limit)
					}
					shared := a.mode == "gated" && sent == 0 // with an earlier request of the same second
					if i == 0 || a.mode == "gated" && !shared {
						first = sent // behind the gate it depends on cold targets of the page
					}
					most := list.limit
					if as.Token != "" && strings.HasPrefix(list.path, "/v1/posts?") &&
						!strings.Contains(list.path, "tag=") && !strings.Contains(list.path, "q=") {
						most++ // reads the viewer's blocks
					}
					if as.Token != "" && a.mode == "direct" && strings.HasPrefix(list.path, "/v1/posts?") {
						most++ // reads the viewer's standings
					}
					if as.Token != "" &&
						(strings.Contains(list.path, "/comments?") || strings.HasSuffix(list.path, "/replies")) {
						most++ // reads what the viewer may do
					}
					if strings.Contains(list.path, "tag=") && strings.Contains(list.path, "q=") {
						most++ // reads the end of the segment
					}
					if a.mode == "gated" && as.Token != "" {
						most++ // once a second, whether the viewer blocks somebody or has bookmarks
					}
					if !shared && (sent != first || sent < 1 || sent > most) {
						t.Errorf("%s of %d for %q: %d statements, want at most %d and as many as for 1 (%d):\n%s",
							list.path, limit, as.Name, sent, most, first, strings.Join(statements, "\n"))
					}
				}
			}
		}
	}, still)
}
