package handlers_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models/db"
)

// twoProcesses serves two APIs behind one gate. The statements are those of the second.
func twoProcesses(t *testing.T, changes ...func(*handlers.Config)) (here, there *api, sent *sentStatements) {
	t.Helper()
	dsn, url := testkit.Database(t), redisURL(t)
	store, recorded := openRecorded(t, dsn)
	first := openStore(t, dsn)
	r, likes, _ := pipelineOn(t, first, url)
	other, err := counters.Open(url, store.Shards())
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	gate := counters.NewLikes(other, store, counters.LikesOptions{})
	with := func(likes *counters.Likes, r *counters.Redis) []func(*handlers.Config) {
		use := func(c *handlers.Config) {
			c.Edition, c.Peers = counters.NewEdition(r), counters.NewPeers(r, c.Logger)
		}
		return append([]func(*handlers.Config){behindGate(likes, likes), use}, changes...)
	}
	here, there = serve(t, first, with(likes, r)...), serve(t, store, with(gate, other)...)
	there.sent = recorded
	return here, there, recorded
}

// pageReads returns how many of the statements read pages of posts or comments, or a post.
func pageReads(statements []string) int {
	n := 0
	for _, s := range statements {
		if strings.Contains(s, "p.title") || strings.Contains(s, "c.content") {
			n++
		}
	}
	return n
}

// Whatever one process answers, every reader of every process sees at once.
func TestShared_changesShowEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	here, there, _ := twoProcesses(t)
	ada, bob, mod := here.account(t), here.account(t), here.moderator(t)
	p := here.newPost(t, ada)
	m := here.newComment(t, bob, p.ID)
	paths := []string{
		"/v1/posts", "/v1/posts?sort=active", "/v1/posts?sort=hot&limit=5", fmt.Sprintf("/v1/posts?author=%d", ada.ID),
		pathOf(p), pathOf(p) + "/comments", pathOf(p) + "/thread", pathOf(m) + "/replies",
	}
	for round, change := range []struct {
		as           account
		method, path string
		body         obj
		shows        string // in one of the paths
	}{
		{ada, "PATCH", pathOf(p), obj{"title": "Another title"}, "Another title"},
		{ada, "POST", "/v1/posts", obj{"title": "A second post", "content": "C"}, "A second post"},
		{bob, "POST", pathOf(p) + "/comments", obj{"content": "A second comment"}, "A second comment"},
		{ada, "POST", pathOf(m) + "/replies", obj{"content": "A first reply"}, "A first reply"},
		{bob, "PATCH", pathOf(m), obj{"content": "Another comment"}, "Another comment"},
		{mod, "POST", moderated("post", p.ID, "lock"), obj{"reason": "Heat."}, `"locked":true`},
		{mod, "POST", moderated("comment", m.ID, "delete"), obj{"reason": "Spam."}, `"status":"deleted"`},
		{bob, "PUT", pathOf(p) + "/bookmark", nil, `"bookmarked":true`},
	} {
		bodies := func() string {
			var all strings.Builder
			for _, path := range paths {
				all.Write(there.must(t, 200, bob, "GET", path, nil).Body)
			}
			return all.String()
		}
		require.NotContains(t, bodies(), change.shows)
		var headers []header
		if change.method == "PATCH" {
			headers = append(headers, header{"If-Match", "*"})
		}
		r := here.send(t, change.as, change.method, change.path, change.body, headers...)
		require.Less(t, r.Status, 300, r.String())
		assert.Contains(t, bodies(), change.shows, "round %d: %s %s", round, change.method, change.path)
	}
	for _, path := range []string{"/v1/posts", "/v1/posts?sort=active", pathOf(p)} {
		assert.Contains(t, there.must(t, 200, bob, "GET", path, nil).String(), `"bookmarked":true`, path)
	}
	// Blocks are those of the viewer alone, as are bookmarks.
	assert.Contains(t, there.must(t, 200, bob, "GET", "/v1/posts", nil).String(), "A second post")
	here.must(t, 200, bob, "PUT", userPath(ada)+"/block", nil)
	assert.Contains(t, there.must(t, 200, account{}, "GET", "/v1/posts", nil).String(), "A second post")
	assert.NotContains(t, there.must(t, 200, bob, "GET", "/v1/posts", nil).String(), "A second post")
	assert.NotContains(t, there.must(t, 200, ada, "GET", pathOf(p), nil).String(), `"bookmarked":true`)
	here.must(t, 204, ada, "DELETE", pathOf(p), nil)
	there.refused(t, 404, "not_found", bob, "GET", pathOf(p), nil)
}

// A shared page does not use the database, so it does not wait for pages that do.
func TestShared_aSharedPageWaitsForNoExpensiveRequest(t *testing.T) {
	t.Parallel()
	here, _, _ := twoProcesses(t, func(c *handlers.Config) { c.Timeout = 4 * time.Second })
	ada := here.account(t)
	p := here.newPost(t, ada)
	here.newComment(t, ada, p.ID)
	for _, path := range []string{"/v1/posts", pathOf(p) + "/comments", pathOf(p) + "/thread"} {
		for _, as := range []account{ada, {}} {
			testkit.Eventually(t, time.Minute, func() (bool, string) { // a page is shared for a second
				here.must(t, 200, as, "GET", path, nil)
				release := here.FillExpensiveShare()
				defer release()
				r := here.send(t, as, "GET", path, nil)
				return r.Status == 200, r.String()
			})
		}
	}
	release := here.FillExpensiveShare()
	here.refused(t, 503, "unavailable", ada, "GET", "/v1/posts?limit=7", nil) // nobody has read it
	release()
	here.must(t, 200, ada, "GET", "/v1/posts?limit=7", nil)
}

// The bound of the cache counts the text of a post that is read alone.
func TestShared_countsTheTextOfAPost(t *testing.T) {
	t.Parallel()
	here, _, _ := twoProcesses(t)
	text := strings.Repeat("long ", 10_000)
	p := read[post](t, here.must(t, 201, here.account(t), "POST", "/v1/posts", obj{"title": "Long", "content": text}))
	testkit.Eventually(t, time.Minute, func() (bool, string) { // a read is kept for a second
		here.must(t, 200, account{}, "GET", pathOf(p), nil)
		counted := here.SharedBytes() // with 32 KiB for each read
		return counted >= 80_000, fmt.Sprintf("%d bytes", counted)
	})
}

// Requests wait for what others load, and loads wait for places in the share. No request may wait for a load whose
// place it has.
func TestShared_noLoadWaitsForThoseWhoWaitForIt(t *testing.T) {
	t.Parallel()
	here, _, _ := twoProcesses(t, func(c *handlers.Config) { c.Timeout = 20 * time.Second })
	ada := here.account(t)
	p := here.newPost(t, ada)
	here.newComment(t, ada, p.ID)
	readers := append(here.accounts(t, 24), make([]account, 24)...) // and anonymous ones
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i, as := range readers {
		all.Go(func() {
			paths := []string{"/v1/posts", pathOf(p) + "/comments", pathOf(p) + "/thread"}
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				r, err := here.try(as, "GET", paths[n%len(paths)], nil)
				if err != nil || r.Status != 200 {
					t.Errorf("%v, %v", r, err)
					return
				}
			}
		})
	}
	for i := range 60 { // each change ends what is shared
		here.must(t, 200, ada, "PATCH", pathOf(p), obj{"title": fmt.Sprintf("Title %d", i)}, header{"If-Match", "*"})
	}
	close(stop)
	all.Wait()
}

// A crowd that asks for the same takes one read, and each of them sees the own likes.
func TestShared_aCrowdTakesOneRead(t *testing.T) {
	t.Parallel()
	const crowd = 20
	now := time.Now()
	here, there, sent := twoProcesses(t, func(c *handlers.Config) { c.Now = func() time.Time { return now } })
	ada := here.account(t)
	p := here.newPost(t, ada)
	here.newComment(t, ada, p.ID)
	users := here.accounts(t, crowd)
	for i, u := range users {
		if i%2 == 0 {
			here.must(t, 200, u, "PUT", pathOf(p)+"/like", nil)
		}
	}
	for _, path := range []string{"/v1/posts", pathOf(p), pathOf(p) + "/comments", pathOf(p) + "/thread"} {
		here.must(t, 200, ada, "PATCH", pathOf(p), obj{"title": "Title of " + path}, header{"If-Match", "*"})
		sent.take()
		began := time.Now()
		var all sync.WaitGroup
		for i, u := range users {
			all.Go(func() {
				r, err := there.try(u, "GET", path, nil)
				if err != nil || r.Status != 200 {
					t.Errorf("%v, %v", r, err)
					return
				}
				if !strings.Contains(path, "comments") && !strings.Contains(path, "thread") {
					assert.Equal(t, i%2 == 0, strings.Contains(r.String(), `"liked":true`), r.String())
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took < time.Second { // else a read may have ended
			assert.LessOrEqual(t, pageReads(sent.take()), 3, path) // with replies, and a level of a thread
		}
	}
}

// Readers of many posts share queries, even if each reads another post and comes for the first time.
func TestShared_readersOfManyPostsShareQueries(t *testing.T) {
	t.Parallel()
	const crowd = 30
	here, there, sent := twoProcesses(t)
	ada := here.account(t)
	var posts []post
	for range crowd {
		posts = append(posts, here.newPost(t, ada))
	}
	users := here.accounts(t, crowd)
	testkit.Eventually(t, time.Minute, func() (bool, string) { // they may come too late to meet others
		here.must(t, 200, ada, "PATCH", pathOf(posts[0]), obj{"title": rand.Text()}, header{"If-Match", "*"})
		sent.take()
		var all sync.WaitGroup
		for i, u := range users {
			all.Go(func() {
				r, err := there.try(u, "GET", pathOf(posts[i]), nil)
				want := fmt.Sprintf(`"id":%d,`, posts[i].ID)
				if err != nil || r.Status != 200 || !strings.Contains(r.String(), want) {
					t.Errorf("%v, %v", r, err)
				}
			})
		}
		all.Wait()
		statements := sent.take()
		views := 0
		for _, s := range statements {
			if strings.Contains(s, "FROM read_marks") {
				views++
			}
		}
		reads := pageReads(statements)
		return reads < crowd && views < crowd, fmt.Sprintf("%d queries of posts, %d of viewpoints", reads, views)
	})
}

// A request that is refused changes nothing, so the shared reads stay.
func TestShared_aRefusedRequestEndsNoEdition(t *testing.T) {
	t.Parallel()
	here, there, sent := twoProcesses(t)
	ada := here.account(t)
	p := here.newPost(t, ada)
	for range 20 { // a read may end by its age
		there.must(t, 200, ada, "GET", pathOf(p), nil)
		sent.take()
		here.refused(t, 422, "invalid", ada, "POST", "/v1/posts", obj{"title": "", "content": ""})
		here.refused(t, 404, "not_found", ada, "DELETE", "/v1/posts/424242", nil)
		there.must(t, 200, ada, "GET", pathOf(p), nil)
		if pageReads(sent.take()) == 0 {
			return
		}
	}
	t.Error("the post is read again after each refusal")
}

// What a job or a command changes shows within a second.
func TestShared_changesWithoutARequestShowSoon(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1])
	ada := a.account(t)
	p := a.newPost(t, ada)
	a.must(t, 200, ada, "GET", pathOf(p), nil)
	_, err := a.store.Pool().Exec("UPDATE posts SET title='By a job' WHERE id=?", p.ID)
	require.NoError(t, err)
	changed := time.Now()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		r := a.must(t, 200, ada, "GET", pathOf(p), nil)
		return strings.Contains(r.String(), "By a job"), r.String()
	})
	t.Logf("after %v", time.Since(changed))
}

// Pages of comments that are cut must not cut those of others.
func TestShared_aPageOfCommentsIsTheSameForAll(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1])
	ada := a.account(t)
	p := a.newPost(t, ada)
	long := strings.Repeat("long ", 1900)
	for range 25 {
		m := read[comment](t, a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": long}))
		for range 2 {
			a.must(t, 201, ada, "POST", pathOf(m)+"/replies", obj{"content": long})
		}
	}
	for _, path := range []string{pathOf(p) + "/thread?limit=500", pathOf(p) + "/comments?limit=100"} {
		want := a.must(t, 200, ada, "GET", path, nil).String()
		assert.Contains(t, want, `"next_cursor":"`)
		a.must(t, 200, ada, "PUT", pathOf(p)+"/bookmark", nil) // all of the following share another read
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				r, err := a.try(ada, "GET", path, nil)
				if err != nil || r.Status != 200 || r.String() != want {
					t.Errorf("%s differs: %v, %v", path, r.Status, err)
				}
			})
		}
		all.Wait()
	}
}

// Answers to the anonymous are shared, and yet none is older than its request: it counts every like before it.
func TestShared_anAnswerIsNotOlderThanItsRequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1])
	ada := a.account(t)
	p := a.newPost(t, ada)
	m := a.newComment(t, ada, p.ID)
	users := a.accounts(t, 20)
	for path, target := range map[string]string{
		"/v1/posts": pathOf(p), pathOf(p) + "/comments": pathOf(m), pathOf(p) + "/thread": pathOf(m),
	} {
		var all sync.WaitGroup
		for _, u := range users {
			all.Go(func() {
				for _, method := range []string{"PUT", "DELETE", "PUT"} {
					liked, err := a.try(u, method, target+"/like", nil)
					if err != nil || liked.Status != 200 {
						t.Errorf("%v, %v", liked, err)
						return
					}
				}
				r, err := a.try(account{}, "GET", path, nil)
				if err != nil || r.Status != 200 {
					t.Errorf("%v, %v", r, err)
				}
			})
		}
		all.Wait()
		shown := read[page[struct {
			LikesCount int `json:"likes_count"`
		}]](t, a.must(t, 200, account{}, "GET", path, nil))
		assert.Equal(t, len(users), shown.Items[0].LikesCount, path)
		stop := make(chan struct{})
		for range 4 { // others keep asking, so that answers are shared
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = a.try(account{}, "GET", path, nil)
					}
				}
			})
		}
		for i, u := range users {
			a.must(t, 200, u, "DELETE", target+"/like", nil)
			r := a.must(t, 200, account{}, "GET", path, nil).String()
			assert.Contains(t, r, fmt.Sprintf(`"likes_count":%d,`, len(users)-i-1), path)
		}
		for i := range 20 {
			title := fmt.Sprintf("Title %d of %s.", i, path)
			a.must(t, 200, ada, "PATCH", pathOf(p), obj{"title": title}, header{"If-Match", "*"})
			a.must(t, 200, ada, "PATCH", pathOf(m), obj{"content": title}, header{"If-Match", "*"})
			assert.Contains(t, a.must(t, 200, account{}, "GET", path, nil).String(), title)
		}
		close(stop)
		all.Wait()
	}
}

// A viewer who blocks somebody reads alone. With nothing by that author on the pages, they must be the same as those
// that viewers share, to the byte: whatever the texts hold, and whatever is hidden. A shared page at the bound of its
// size may be a little shorter, because the likes of no viewer may push it over the bound.
func TestShared_aSharedPageEqualsOnesOwn(t *testing.T) {
	t.Parallel()
	here, there, _ := twoProcesses(t)
	ada, bob, zed := here.account(t), here.account(t), here.account(t)
	sly := `","likes_count":7,"liked":true,"bookmarked":true} {"likes_count":` + "`\\\"likes_count\\\":1`"
	var p post
	for i := range 6 {
		p = read[post](t, here.must(t, 201, ada, "POST", "/v1/posts",
			obj{"title": "T" + sly, "content": sly, "tags": []string{"liked", "bookmarked"}}))
		if i%2 == 0 {
			here.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
			here.must(t, 200, zed, "PUT", pathOf(p)+"/like", nil)
		}
		if i%3 == 0 {
			here.must(t, 200, bob, "PUT", pathOf(p)+"/bookmark", nil)
		}
	}
	here.must(t, 200, bob, "PUT", pathOf(p)+"/read", obj{})
	here.must(t, 200, here.moderator(t), "POST", moderated("post", p.ID, "pin"), obj{"reason": "News."})
	here.must(t, 200, bob, "PUT", pathOf(p)+"/subscription", obj{"level": "muted"})
	var last comment
	for i := range 5 {
		last = read[comment](t, here.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": sly}))
		for range 4 {
			reply := read[comment](t, here.must(t, 201, ada, "POST", pathOf(last)+"/replies", obj{"content": sly}))
			here.must(t, 200, bob, "PUT", pathOf(reply)+"/like", nil)
			here.must(t, 201, ada, "POST", pathOf(reply)+"/replies", obj{"content": sly})
		}
		if i%2 == 0 {
			here.must(t, 200, zed, "PUT", pathOf(last)+"/like", nil)
			here.must(t, 204, ada, "DELETE", pathOf(last), nil) // its replies stay
		}
	}
	long := read[post](t, here.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "Long", "content": "C"}))
	for i := range 120 {
		m := read[comment](t, here.must(t, 201, ada, "POST", pathOf(long)+"/comments",
			obj{"content": strings.Repeat(sly, 90)}))
		if i < 40 {
			here.must(t, 200, bob, "PUT", pathOf(m)+"/like", nil)
		}
	}
	paths := []string{
		"/v1/posts", "/v1/posts?sort=hot&limit=4", "/v1/posts?sort=top&tag=liked",
		"/v1/posts?pinned=once", "/v1/posts?tag=liked&pinned=once",
		pathOf(p) + "/comments", pathOf(p) + "/comments?sort=new&limit=3", pathOf(p) + "/thread",
		pathOf(p) + "/thread?sort=top&depth=2&limit=7", pathOf(last) + "/replies",
	}
	for _, path := range []string{pathOf(long) + "/comments?limit=100", pathOf(long) + "/thread?limit=500"} {
		got := there.must(t, 200, bob, "GET", path, nil).String()
		assert.LessOrEqual(t, len(got), db.PageBytes)
		assert.Greater(t, len(got), db.PageBytes*9/10)
		assert.NotContains(t, got, `"next_cursor":null`+"}\n")
		assert.Equal(t, 40, strings.Count(got, `"liked":true,"can"`), "the content holds no such member")
	}
	mod := here.moderator(t)
	shared := map[string]string{}
	for _, path := range paths {
		there.must(t, 200, zed, "GET", path, nil) // has other likes
		shared[path] = there.must(t, 200, bob, "GET", path, nil).String()
		require.Contains(t, shared[path], `"liked":true`, path)
		shared[path+" mod"] = there.must(t, 200, mod, "GET", path, nil).String()
		require.NotContains(t, shared[path+" mod"], `"liked":true`, path)
		require.Contains(t, shared[path+" mod"], `"remove":true`, path)
	}
	for _, blocker := range []account{bob, mod} {
		here.must(t, 200, blocker, "PUT", userPath(here.account(t))+"/block", nil)
	}
	for _, path := range paths {
		assert.Equal(t, there.must(t, 200, bob, "GET", path, nil).String(), shared[path], path)
		assert.Equal(t, there.must(t, 200, mod, "GET", path, nil).String(), shared[path+" mod"], path)
	}
}
