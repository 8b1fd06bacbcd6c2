package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
)

// tree is a comment with its first replies.
type tree struct {
	comment
	Depth     int
	CreatedAt time.Time `json:"created_at"`
	Replies   page[tree]
}

// seed is a comment of a thread that is inserted at once. Ids count from 1 within the thread, and parent 0 is the top.
type seed struct{ parent, depth int }

// plant inserts a thread and its counts directly into MySQL, and returns the id before its first comment. Many comments
// share each time and each number of likes.
func (a *api) plant(t testing.TB, as account, postID int64, seeds []seed) (base int64) {
	t.Helper()
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := a.store.Pool().Exec(query, args...); err != nil {
			t.Fatal(err)
		}
	}
	base = a.number(t, "SELECT COALESCE(MAX(id),0) FROM comments")
	var rows []string
	for i, s := range seeds {
		parent := "NULL"
		if s.parent != 0 {
			parent = fmt.Sprint(base + int64(s.parent))
		}
		rows = append(rows, fmt.Sprintf("(%d,%d,%d,%s,%d,'C',FROM_UNIXTIME(%d),%d)", base+int64(i)+1, postID, as.ID,
			parent, s.depth, 1_700_000_000+i*7%900, i*5%7))
	}
	for batch := range slices.Chunk(rows, 2000) {
		exec("INSERT INTO comments (id, post_id, user_id, parent_id, depth, content, created_at, likes_count) VALUES " +
			strings.Join(batch, ","))
	}
	exec(`
		UPDATE posts
		SET comments_count=(SELECT COUNT(*) FROM comments WHERE post_id=posts.id AND status=1),
			updated_at=updated_at
		WHERE id=?`, postID)
	exec("UPDATE comments c JOIN"+
		" (SELECT parent_id, COUNT(*) AS n FROM comments WHERE status=1 AND post_id=? GROUP BY parent_id) r"+
		" ON r.parent_id=c.id"+
		" SET c.replies_count=r.n, c.updated_at=c.updated_at", postID)
	return base
}

// deepThread is n comments down to 64 levels: chains of replies, and below one comment a level each with many siblings.
func deepThread(n int) []seed {
	var seeds []seed
	add := func(parent, depth int) int {
		seeds = append(seeds, seed{parent, depth})
		return len(seeds)
	}
	for range 3 {
		for parent, depth := 0, 1; depth <= models.MaxDepth; depth++ {
			parent = add(parent, depth)
		}
	}
	siblings := (n - len(seeds)) / models.MaxDepth
	for parent, depth := 0, 1; depth <= models.MaxDepth; depth++ {
		spine := 0
		for i := range siblings {
			if c := add(parent, depth); i == depth*29%siblings {
				spine = c
			}
		}
		parent = spine
	}
	for len(seeds) < n {
		add(0, 1)
	}
	return seeds
}

// wideThread is n comments on two levels: one comment has thousands of siblings and another thousands of replies.
func wideThread(n int) []seed {
	var seeds []seed
	for range n / 2 {
		seeds = append(seeds, seed{0, 1})
	}
	for i := range n - n/2 {
		parent := n / 4
		if i%5 >= 3 {
			parent = 1 + i%100*20
		}
		seeds = append(seeds, seed{parent, 2})
	}
	return seeds
}

// place is the part of a tree that follow decodes.
type place struct {
	ID      int64
	Replies page[place]
}

// follow reads a tree to its end, through every cursor from path on, and returns how often each comment appeared. It
// does not validate the answers against the contract, which would take most of the time.
func (a *api) follow(t *testing.T, path string, between func()) map[int64]int {
	t.Helper()
	seen := map[int64]int{}
	queue := []string{path}
	for requests := 0; len(queue) > 0; requests++ {
		if requests > 20_000 {
			t.Error("the tree does not end")
			return seen
		}
		next := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		var answer page[place]
		req, err := http.NewRequest(http.MethodGet, a.url+next, nil)
		if err != nil {
			t.Error(err)
			return seen
		}
		req.Header.Set("Accept-Encoding", "identity")
		resp, err := a.client.Do(req)
		if err == nil {
			err = json.NewDecoder(resp.Body).Decode(&answer)
			resp.Body.Close()
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %v %v", next, resp, err)
			return seen
		}
		own, _, _ := strings.Cut(next, "&cursor=")
		own, _, _ = strings.Cut(own, "&around=") // which no cursor has
		var visit func(list page[place], at string)
		visit = func(list page[place], at string) {
			for _, c := range list.Items {
				seen[c.ID]++
				visit(c.Replies, fmt.Sprintf("/v1/comments/%d/replies?limit=100", c.ID))
			}
			if list.NextCursor != nil {
				queue = append(queue, at+"&cursor="+url.QueryEscape(*list.NextCursor))
			}
		}
		visit(answer, own)
		between()
	}
	return seen
}

// churn creates comments in a thread and deletes some of its own and of the others, one at each call of step.
type churn struct {
	a      *api
	as     account
	postID int64
	doomed []int64 // to be deleted, in this order

	steps   chan int // numbered from 1
	turns   atomic.Int64
	workers sync.WaitGroup
	added   atomic.Int64
	deleted atomic.Int64
}

func (c *churn) start(t *testing.T, base int64, size int) {
	c.steps = make(chan int, 2)
	var next atomic.Int64
	for i := range 2 {
		c.workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			var own []int64
			for turn := range c.steps {
				switch turn % 4 {
				case 0:
					if len(own) > 0 {
						if r, err := c.a.try(c.as, "DELETE", fmt.Sprintf("/v1/comments/%d", own[0]), nil); err != nil ||
							r.Status != 204 {
							t.Errorf("delete: %s %v", r, err)
						}
						own = own[1:]
						continue
					}
				case 1:
					if n := int(next.Add(1)) - 1; n < len(c.doomed) {
						if r, err := c.a.try(c.as, "DELETE", fmt.Sprintf("/v1/comments/%d", c.doomed[n]),
							nil); err != nil || r.Status != 204 {
							t.Errorf("delete: %s %v", r, err)
						}
						c.deleted.Add(1)
						continue
					}
				}
				body := obj{"content": "New."}
				if random.IntN(5) > 0 {
					body["parent_id"] = base + 1 + random.Int64N(int64(size))
				}
				r, err := c.a.try(c.as, "POST", fmt.Sprintf("/v1/posts/%d/comments", c.postID), body)
				// The parent is deleted, or too deep.
				if err != nil || r.Status != 201 && r.Status != 404 && r.Status != 422 {
					t.Errorf("reply: %s %v", r, err)
				}
				if r.Status == 201 {
					own = append(own, read[comment](t, r).ID)
					c.added.Add(1)
				}
			}
		})
	}
}

// step waits while both workers are busy, so that a walk of any speed meets as many changes.
func (c *churn) step() { c.steps <- int(c.turns.Add(1)) }

func (c *churn) end() {
	close(c.steps)
	c.workers.Wait()
}

// TestThreads_returnEachOfTenThousandCommentsOnce follows every cursor of a deep and of a wide thread, in every order,
// both through lists and through the tree, while comments are created and deleted.
func TestThreads_returnEachOfTenThousandCommentsOnce(t *testing.T) {
	t.Parallel()
	size := testkit.Volume(10_000, 2_000)
	for name, seeds := range map[string][]seed{"deep": deepThread(size), "wide": wideThread(size)} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, modes[0])
			ada := a.account(t)
			p := a.newPost(t, ada)
			base := a.plant(t, ada, p.ID, seeds)
			if n := a.number(t, "SELECT COUNT(*) FROM comments WHERE depth=?",
				models.MaxDepth); (n > 0) != (name == "deep") {
				t.Fatalf("%d comments are at the greatest depth", n)
			}
			replied := map[int]bool{}
			for _, s := range seeds {
				replied[s.parent] = true
			}
			change := &churn{a: a, as: ada, postID: p.ID}
			doomedLeaf := map[int64]bool{}
			for i := 13; i < size; i += 17 {
				id := base + int64(i)
				change.doomed = append(change.doomed, id)
				doomedLeaf[id] = !replied[i]
			}
			change.start(t, base, size)
			var walks sync.WaitGroup
			for _, sort := range []string{"old", "new", "top"} {
				walks.Go(func() {
					for _, path := range []string{"/comments?limit=100", "/thread?limit=500&depth=10"} {
						requests := 0
						seen := a.follow(t, pathOf(p)+path+"&sort="+sort, func() {
							if requests++; requests%testkit.Volume(4, 2) == 0 {
								change.step()
							}
						})
						missed, twice := 0, 0
						for i := range size {
							if id := base + int64(i) + 1; seen[id] == 0 && !doomedLeaf[id] {
								missed++
							}
						}
						for _, n := range seen {
							if n > 1 {
								twice++
							}
						}
						if missed > 0 || twice > 0 {
							t.Errorf("%s by %s: %d comments were missed and %d came twice", path, sort, missed, twice)
						}
						t.Logf("%s by %s: %d requests", path, sort, requests)
					}
				})
			}
			walks.Wait()
			change.end()
			if added, deleted := change.added.Load(), change.deleted.Load(); added < 20 || deleted < 10 {
				t.Errorf("%d comments were added and %d deleted meanwhile: too few", added, deleted)
			}
			counted, rows := a.number(t, "SELECT comments_count FROM posts"),
				a.number(t, "SELECT COUNT(*) FROM comments WHERE status=1")
			if counted != rows {
				t.Errorf("%d comments are counted, and there are %d", counted, rows)
			}
		})
	}
}

// shape formats a tree: the indices of the comments, and "+" for a cursor.
func shape(list page[tree], base int64) string {
	var b strings.Builder
	for i, c := range list.Items {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(&b, c.ID-base)
		if len(c.Replies.Items) > 0 || c.Replies.NextCursor != nil {
			b.WriteString("(" + shape(c.Replies, base) + ")")
		}
	}
	if list.NextCursor != nil {
		b.WriteString("+")
	}
	return b.String()
}

// TestComments_comeWithTheirReplies checks the lists and threads of a small tree, and the place of every comment in it.
func TestComments_comeWithTheirReplies(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		p := a.newPost(t, ada)
		// 1 has the replies 5 to 9, 2 has 10, and 10 has 11, which has 12.
		base := a.plant(t, ada, p.ID,
			[]seed{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}, {2, 2}, {10, 3}, {11, 4}})
		replies := func(n int64) string { return fmt.Sprintf("/v1/comments/%d/replies", base+n) }
		for _, c := range []struct{ path, want string }{
			{pathOf(p) + "/comments", "1(5 6 7+) 2(10(+)) 3 4"},
			{pathOf(p) + "/comments?sort=new", "4 3 2(10(+)) 1(5 6 7+)"},
			{pathOf(p) + "/comments?limit=1", "1(5 6 7+)+"},
			{replies(1), "5 6 7 8 9"},
			{replies(1) + "?sort=new&limit=2", "9 8+"},
			{replies(2), "10(11(+))"},
			{replies(10), "11(12)"},
			{replies(3), ""},
			{pathOf(p) + "/thread", "1(5 6 7 8 9) 2(10(11(+))) 3 4"},
			{pathOf(p) + "/thread?depth=1", "1(+) 2(+) 3 4"},
			{pathOf(p) + "/thread?depth=4", "1(5 6 7 8 9) 2(10(11(12))) 3 4"},
			{pathOf(p) + "/thread?depth=10&sort=new", "4 3 2(10(11(12))) 1(9 8 7 6 5)"},
			{pathOf(p) + "/thread?limit=1", "1(+)+"},
			{pathOf(p) + "/thread?limit=1&depth=1", "1(+)+"},
			{pathOf(p) + "/thread?limit=2", "1(5+)+"},
			{pathOf(p) + "/thread?limit=8&depth=2", "1(5 6+) 2(10(+)) 3 4"},
			{pathOf(p) + "/thread?limit=4&depth=3", "1(5+) 2(+)+"},
		} {
			list := read[page[tree]](t, a.must(t, 200, ada, "GET", c.path, nil))
			if got := shape(list, base); got != c.want {
				t.Errorf("%s: %s, want %s", c.path, got, c.want)
			}
			var check func(list page[tree])
			check = func(list page[tree]) {
				if list.Items == nil {
					t.Errorf("%s: items is null", c.path)
				}
				for _, r := range list.Items {
					if n := len(r.Replies.Items); int64(n) > r.RepliesCount || r.Replies.NextCursor == nil &&
						int64(n) < r.RepliesCount {
						t.Errorf("%s: %d comes with %d of %d replies and the cursor %v", c.path, r.ID-base, n,
							r.RepliesCount, r.Replies.NextCursor)
					}
					for _, below := range r.Replies.Items {
						if *below.ParentID != r.ID || below.Depth != r.Depth+1 {
							t.Errorf("%s: %d, at depth %d, is below %d at depth %d", c.path, below.ID, below.Depth,
								r.ID, r.Depth)
						}
					}
					check(r.Replies)
				}
			}
			check(list)
		}
		// Each cursor continues where its list was cut, with or without ?sort=.
		top := read[page[tree]](t, a.must(t, 200, ada, "GET", pathOf(p)+"/thread?sort=new&limit=10&depth=2", nil))
		if got := shape(top, base); got != "4 3 2(10(+)) 1(9 8 7+)" {
			t.Fatalf("the thread is %s", got)
		}
		for _, c := range []struct {
			path   string
			cursor *string
			want   string
		}{
			{replies(1), top.Items[3].Replies.NextCursor, "6 5"},
			{replies(10), top.Items[2].Replies.Items[0].Replies.NextCursor, "11(12)"},
			{pathOf(p) + "/thread", read[page[tree]](t,
				a.must(t, 200, ada, "GET", pathOf(p)+"/thread?limit=4&sort=new", nil)).NextCursor,
				"2(10(11(+))) 1(9 8 7 6 5)"},
			{pathOf(p) + "/comments", read[page[tree]](t,
				a.must(t, 200, ada, "GET", pathOf(p)+"/thread?limit=4&sort=top", nil)).NextCursor, "4 1(5 6 7+)"},
		} {
			for _, order := range []string{"", "&sort=new", "&sort=old", "&sort=top"} {
				r := a.send(t, ada, "GET", c.path+"?cursor="+url.QueryEscape(*c.cursor)+order, nil)
				switch {
				case r.Status == 400 && order != "": // another order than the cursor's
				case r.Status != 200:
					t.Errorf("%s%s: %s", c.path, order, r)
				default:
					if got := shape(read[page[tree]](t, r), base); got != c.want {
						t.Errorf("%s%s: %s, want %s", c.path, order, got, c.want)
					}
				}
			}
		}
		item := read[tree](t, a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/comments/%d", base+11), nil))
		if got := shape(page[tree]{Items: []tree{item}}, base); got != "11(+)" || item.Depth != 3 {
			t.Errorf("a comment by itself is %s at depth %d", got, item.Depth)
		}
		if got := shape(read[page[tree]](t,
			a.must(t, 200, ada, "GET", replies(11)+"?cursor="+*item.Replies.NextCursor, nil)), base); got != "12" {
			t.Errorf("its replies are %s", got)
		}
		if got := shape(read[page[tree]](t,
			a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/comments/%d/ancestors", base+12), nil)),
			base); got != "2(+) 10(+) 11(+)" {
			t.Errorf("the ancestors of 12 are %s", got)
		}
		a.refused(t, 404, "not_found", ada, "GET", "/v1/comments/999999/ancestors", nil)
		a.refused(t, 404, "not_found", ada, "GET", "/v1/posts/999999/thread", nil)
		empty := a.newPost(t, ada)
		if got := read[page[tree]](t, a.must(t, 200, ada, "GET", pathOf(empty)+"/thread", nil)); got.Items == nil ||
			len(got.Items) != 0 || got.NextCursor != nil {
			t.Errorf("the thread of a post without comments is %+v", got)
		}
		a.must(t, 204, ada, "DELETE", pathOf(p), nil)
		a.refused(t, 404, "not_found", ada, "GET", pathOf(p)+"/thread", nil)
	})
}

func TestThread_costsAQueryALevel(t *testing.T) {
	now := time.Now()
	// No session is looked up again.
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.Now = func() time.Time { return now } })
	ada := a.account(t)
	p := a.newPost(t, ada)
	a.plant(t, ada, p.ID, deepThread(5000))
	for _, as := range []account{ada, {}} {
		for _, depth := range []int64{1, 2, 10} {
			for _, limit := range []int{1, 100, 500} {
				before := a.statements()
				a.must(t, 200, as, "GET", fmt.Sprintf("%s/thread?depth=%d&limit=%d", pathOf(p), depth, limit), nil)
				most := depth + 1 // and one for the likes
				if as.Token != "" {
					most++ // and one for what the viewer may do
				}
				if sent := a.statements() - before; sent > most {
					t.Errorf("%d levels of %d comments for %q: %d statements", depth, limit, as.Name, sent)
				}
			}
		}
	}
}

func TestThread_badQuery(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	for name, values := range map[string][]string{
		"depth": {"0", "11", "-1", "x", ""}, "limit": {"0", "501", "-1", "x", ""}, "sort": {"", "hot", "OLD"},
	} {
		for _, value := range values {
			a.refusedField(t, 422, "invalid", name, account{}, "GET", pathOf(p)+"/thread?"+name+"="+value, nil)
		}
	}
	a.refusedField(t, 400, "malformed", "cursor", account{}, "GET", pathOf(p)+"/thread?cursor=AAAA", nil)
	a.must(t, 200, account{}, "GET", pathOf(p)+"/thread?depth=10&limit=500&sort=top", nil)
}

func TestReply_goesNoDeeperThan64Levels(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	var seeds []seed
	for depth := 1; depth < models.MaxDepth; depth++ {
		seeds = append(seeds, seed{depth - 1, depth})
	}
	base := a.plant(t, ada, p.ID, seeds)
	deepest := read[tree](t, a.must(t, 201, ada, "POST", fmt.Sprintf("/v1/comments/%d/replies", base+int64(len(seeds))),
		obj{"content": "C"}))
	if deepest.Depth != models.MaxDepth {
		t.Errorf("the depth is %d", deepest.Depth)
	}
	a.refusedField(t, 422, "invalid", "parent_id", ada, "POST", pathOf(deepest.comment)+"/replies", obj{"content": "C"})
	a.refusedField(t, 422, "invalid", "parent_id", ada, "POST", pathOf(p)+"/comments",
		obj{"content": "C", "parent_id": deepest.ID})
	if n := a.number(t, "SELECT comments_count FROM posts"); n != models.MaxDepth {
		t.Errorf("%d comments are counted", n)
	}
}

// TestTrees_areBoundedInBytes reads very long comments: every answer stays within its bound, and no comment is lost.
func TestTrees_areBoundedInBytes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	var seeds []seed
	top := testkit.Volume(20, 8)
	for range top {
		seeds = append(seeds, seed{0, 1})
	}
	for i := range 3 * top {
		seeds = append(seeds, seed{1 + i%top, 2})
	}
	base := a.plant(t, ada, p.ID, seeds)
	if _, err := a.store.Pool().Exec(
		"UPDATE comments SET content=REPEAT('word ', 11000), updated_at=updated_at"); err != nil {
		t.Fatal(err)
	}
	const most = 1 << 20 // bytes of JSON, which contains each text as Markdown and as HTML
	for _, path := range []string{
		pathOf(p) + "/thread?limit=500&depth=1", pathOf(p) + "/thread?limit=500&depth=2",
		pathOf(p) + "/thread?limit=500&depth=10",
		pathOf(p) + "/comments?limit=100",
	} {
		var add func(list page[tree])
		add = func(list page[tree]) {
			for _, r := range list.Items {
				if len(r.Content) != 55_000 {
					t.Errorf("%s: comment %d has %d bytes", path, r.ID-base, len(r.Content))
				}
				add(r.Replies)
			}
		}
		r := a.must(t, 200, account{}, "GET", path, nil)
		add(read[page[tree]](t, r))
		if len(r.Body) > most || len(r.Body) < most*3/4 {
			t.Errorf("%s brings %d bytes, want at most %d", path, len(r.Body), most)
		}
		seen := a.follow(t, path, func() {})
		for i := range seeds {
			if n := seen[base+int64(i)+1]; n != 1 {
				t.Errorf("%s: comment %d came %d times", path, i+1, n)
			}
		}
	}
}

// TestBlockedAuthors_leaveNoMoreThanAPlace reads a thread as a user who has blocked one of its authors.
func TestBlockedAuthors_leaveNoMoreThanAPlace(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, eve := a.account(t), a.account(t), a.account(t)
		p := a.newPost(t, eve)
		top := a.newComment(t, eve, p.ID)
		alone := a.newComment(t, eve, p.ID)
		other := a.newComment(t, bob, p.ID)
		hidden, answered := a.newReply(t, eve, other.ID), a.newReply(t, eve, other.ID)
		below, under := a.newReply(t, bob, top.ID), a.newReply(t, bob, answered.ID)
		a.must(t, 200, ada, "PUT", pathOf(top)+"/like", nil)
		a.settle()
		a.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/users/%d/block", eve.ID), nil)
		shapes := func(as account, path string) string {
			t.Helper()
			r := a.must(t, 200, as, "GET", path, nil)
			list := read[page[tree]](t, r)
			var check func(list page[tree])
			check = func(list page[tree]) {
				for _, c := range list.Items {
					mine := c.Author != nil && c.Content != "" && c.ContentHTML != "" && c.Status == "normal"
					gone := c.Author == nil && c.Content == "" && c.ContentHTML == "" && !c.Liked &&
						c.Status == "blocked"
					if fromEve := c.ID == top.ID || c.ID == answered.ID || c.ID == alone.ID ||
						c.ID == hidden.ID; as.ID == ada.ID && fromEve && !gone || (as.ID != ada.ID || !fromEve) &&
						!mine {
						t.Errorf("%s shows %s comment %+v", path, as.Name, c)
					}
					check(c.Replies)
				}
			}
			check(list)
			return shape(list, 0)
		}
		withAll := fmt.Sprintf("%d(%d) %d %d(%d %d(+))", top.ID, below.ID, alone.ID, other.ID, hidden.ID, answered.ID)
		withoutEve := fmt.Sprintf("%d(%d) %d(%d(+))", top.ID, below.ID, other.ID, answered.ID)
		for as, want := range map[account]string{ada: withoutEve, bob: withAll, {}: withAll} {
			if got := shapes(as, pathOf(p)+"/comments"); got != want {
				t.Errorf("the list for %q is %s, want %s", as.Name, got, want)
			}
			if got := shapes(as, pathOf(p)+"/thread?depth=2"); got != want {
				t.Errorf("the thread for %q is %s, want %s", as.Name, got, want)
			}
		}
		if got := shapes(ada, pathOf(other)+"/replies"); got != fmt.Sprintf("%d(%d)", answered.ID, under.ID) {
			t.Errorf("the replies are %s", got)
		}
		if got := shapes(ada, pathOf(answered)+"/replies"); got != fmt.Sprint(under.ID) {
			t.Errorf("the replies below a place are %s", got)
		}
		// Eve's reply is refused.
		mine := a.newComment(t, ada, p.ID)
		fine := a.newPost(t, ada)
		a.refused(t, 403, "forbidden", eve, "POST", pathOf(mine)+"/replies", obj{"content": "C"})
		a.refused(t, 403, "forbidden", eve, "POST", pathOf(fine)+"/comments", obj{"content": "C"})
		a.must(t, 201, eve, "POST", pathOf(p)+"/comments", obj{"content": "C"})
		a.must(t, 200, ada, "DELETE", fmt.Sprintf("/v1/users/%d/block", eve.ID), nil)
		a.must(t, 201, eve, "POST", pathOf(mine)+"/replies", obj{"content": "C"})
	})
}

// TestThreads_costTheSameOnEveryPage compares the rows that MySQL reads for the first and the last page of 10,000
// siblings, and of 10,000 replies.
func TestThreads_costTheSameOnEveryPage(t *testing.T) {
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	var seeds []seed
	replies := testkit.Volume(10_000, 2_500)
	for i := range 2 * replies {
		seeds = append(seeds, seed{i / replies, 1 + i/replies})
	}
	base := a.plant(t, ada, p.ID, seeds)
	if _, err := a.store.Pool().Exec("ANALYZE TABLE comments"); err != nil {
		t.Fatal(err)
	}
	overhead := -a.rowsRead(t) + a.rowsRead(t)
	for _, list := range []string{pathOf(p) + "/comments?", fmt.Sprintf("/v1/comments/%d/replies?", base+1),
		pathOf(p) + "/thread?depth=3&"} {
		for _, sort := range []string{"old", "new", "top"} {
			path := list + "limit=100&sort=" + sort
			cursor := ""
			cost := func() int64 {
				before := a.rowsRead(t)
				list := read[page[tree]](t, a.must(t, 200, account{}, "GET", path+cursor, nil))
				spent := a.rowsRead(t) - before - overhead
				if list.NextCursor != nil {
					cursor = "&cursor=" + url.QueryEscape(*list.NextCursor)
				}
				return spent
			}
			first := cost()
			for range testkit.Volume(60, 5) {
				r := read[page[tree]](t, a.must(t, 200, account{}, "GET", path+cursor, nil))
				cursor = "&cursor=" + url.QueryEscape(*r.NextCursor)
			}
			last := cost()
			t.Logf("%s: MySQL reads %d rows for the first page and %d for one far behind", path, first, last)
			if first > 2000 || last > first+50 {
				t.Errorf("%s: MySQL reads %d rows for the first page and %d for one far behind", path, first, last)
			}
		}
	}
}

// rowsRead returns how many rows and index entries MySQL has read since it was started.
func (a *api) rowsRead(t testing.TB) int64 {
	t.Helper()
	rows, err := a.store.Pool().QueryContext(context.Background(), "SHOW GLOBAL STATUS LIKE 'Handler_read%'")
	require.NoError(t, err)
	defer rows.Close()
	var sum int64
	for rows.Next() {
		var name string
		var n int64
		require.NoError(t, rows.Scan(&name, &n))
		sum += n
	}
	require.NoError(t, rows.Err())
	return sum
}
