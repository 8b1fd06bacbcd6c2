package handlers_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/images"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/media"
)

// dense is content whose JSON and HTML are longest.
var dense = strings.Repeat("&", models.MaxContent)

// listed is the number of posts, of comments on one of them and of versions in the lists of fillLists.
var listed = testkit.Volume(30, 7)

// fillDense writes lists whose rows all have dense content, and returns the post with the comments and the deepest of
// them.
func (a *api) fillDense(t *testing.T, ada account) (postID, deepest int64) {
	t.Helper()
	return a.fillLists(t, ada, dense)
}

// fillLists is fillDense with this content.
func (a *api) fillLists(t *testing.T, ada account, body string) (postID, deepest int64) {
	t.Helper()
	exec := func(query string, args ...any) int64 {
		t.Helper()
		result, err := a.store.Pool().Exec(query, args...)
		require.NoError(t, err)
		id, err := result.LastInsertId()
		require.NoError(t, err)
		return id
	}
	for i := range listed {
		p, err := content.New(a.store).CreatePost(t.Context(), models.Author{ID: ada.ID},
			models.PostText{Title: fmt.Sprintf("Post %d", i), Content: "needle", Tags: models.Tags{"dense"}})
		require.NoError(t, err)
		exec("UPDATE posts SET content=?, pinned=1 WHERE id=?", body, p.ID)
		exec("INSERT INTO bookmarks (user_id, post_id, created_at) VALUES (?,?,'2026-01-01')", ada.ID, p.ID)
		exec("INSERT INTO post_likes (user_id, post_id, created_at) VALUES (?,?,'2026-01-01')", ada.ID, p.ID)
		postID = p.ID
	}
	for i := range listed {
		id := exec("INSERT INTO comments (post_id, user_id, depth, content, created_at) VALUES (?,?,1,?,'2026-01-01')",
			postID, ada.ID, body)
		exec("INSERT INTO comment_likes (comment_id, user_id, created_at) VALUES (?,?,'2026-01-01')", id, ada.ID)
		for range i % 3 {
			exec(`
				INSERT INTO comments (post_id, user_id, parent_id, depth, content, created_at)
				VALUES (?,?,?,2,?,'2026-01-01')`, postID, ada.ID, id, body)
		}
	}
	var parent any
	for depth := 1; depth <= models.MaxDepth; depth++ {
		deepest = exec(`
			INSERT INTO comments (post_id, user_id, parent_id, depth, content, created_at)
			VALUES (?,?,?,?,?,'2026-01-02')`, postID, ada.ID, parent, depth, body)
		parent = deepest
	}
	for version := 1; version <= listed; version++ {
		exec(`
			INSERT INTO post_revisions (post_id, version, editor_id, title, content, tags, created_at)
			VALUES (?,?,?,'T',?,'','2026-01-01')`, postID, -version, ada.ID, body)
	}
	return postID, deepest
}

// setContents replaces the content of all posts and comments, as an edit would: one in six is dense, and the others are
// as long but not escaped. So a page ends between two long items, and at a dense one that does not fit.
func (a *api) setContents(t *testing.T) {
	t.Helper()
	for _, table := range []string{"posts", "comments"} {
		_, err := a.store.Pool().ExecContext(t.Context(), `
			UPDATE `+table+`
			SET content = IF(id % 6 = 0, REPEAT('&', ?), REPEAT('x', ?)),
				version = version + 1,
				updated_at = updated_at`,
			models.MaxContent, models.MaxContent)
		require.NoError(t, err)
	}
}

// TestPages_areBoundedInBytes reads every list of content to its end: no page exceeds 1 MiB, and each item appears
// once, in the order of the list in pages of one short item.
func TestPages_areBoundedInBytes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.grow(t, a.account(t), models.RoleUser), a.grow(t, a.account(t), models.RoleModerator)
	postID, deepest := a.fillLists(t, ada, "short")
	a.must(t, 200, bob, "PUT", fmt.Sprintf("/v1/users/%d/follow", ada.ID), nil)
	lists := []struct {
		path string
		as   account
		min  int // items
	}{
		{"/v1/posts", bob, listed},
		{"/v1/posts?sort=hot", bob, listed},
		{"/v1/posts?sort=top", bob, listed},
		{"/v1/posts?sort=active", bob, listed},
		{"/v1/posts?tag=dense", bob, listed},
		{"/v1/posts?tag=dense&sort=top", bob, listed},
		{"/v1/posts?q=needle", bob, listed},
		{"/v1/posts?pinned=true", bob, listed},
		{fmt.Sprintf("/v1/posts?author=%d", ada.ID), bob, listed},
		{fmt.Sprintf("/v1/users/%d/posts", ada.ID), bob, listed},
		{fmt.Sprintf("/v1/users/%d/comments", ada.ID), bob, listed + models.MaxDepth},
		{fmt.Sprintf("/v1/users/%d/likes", ada.ID), bob, listed},
		{fmt.Sprintf("/v1/users/%d/likes?type=comment", ada.ID), bob, listed},
		{"/v1/me/likes", ada, listed},
		{"/v1/me/bookmarks", ada, listed},
		{"/v1/feed", bob, listed},
		{fmt.Sprintf("/v1/posts/%d/comments", postID), bob, listed + 1},
		{fmt.Sprintf("/v1/posts/%d/comments?sort=new", postID), bob, listed + 1},
		{fmt.Sprintf("/v1/posts/%d/comments?sort=top", postID), bob, listed + 1},
		{fmt.Sprintf("/v1/posts/%d/thread?depth=10", postID), bob, listed + 1},
		{fmt.Sprintf("/v1/comments/%d/replies", deepest-1), bob, 1},
		{fmt.Sprintf("/v1/comments/%d/ancestors", deepest), bob, models.MaxDepth - 1},
		{"/v1/admin/posts", bob, listed},
		{"/v1/admin/posts?q=Post", bob, listed},
		{"/v1/admin/comments", bob, listed + models.MaxDepth},
	}
	if step := testkit.Volume(1, 3); step > 1 {
		for i := range len(lists) / step {
			lists[i] = lists[i*step]
		}
		lists = lists[:len(lists)/step]
	}
	inOnes := map[string][]string{}
	for _, list := range lists {
		inOnes[list.path], _ = a.pages(t, list.as, list.path, 1)
	}
	a.setContents(t)
	for _, list := range lists {
		items, sizes := a.pages(t, list.as, list.path, 100)
		if len(items) < list.min {
			t.Errorf("%s has %d items, want %d", list.path, len(items), list.min)
		}
		if got, want := strings.Join(items, " "), strings.Join(inOnes[list.path], " "); got != want {
			t.Errorf("%s in large pages is\n%s, in small ones\n%s", list.path, got, want)
		}
		for i, size := range sizes {
			if size > db.PageBytes {
				t.Errorf("page %d of %s has %d bytes", i, list.path, size)
			}
		}
	}
}

// listedItem is an item of a list, or what it is about, without its texts.
type listedItem struct {
	ID            any
	Post, Comment *listedItem
}

// pages reads a list to its end. It returns the id of each item, and the length of each page.
func (a *api) pages(t *testing.T, as account, path string, limit int) (ids []string, sizes []int) {
	t.Helper()
	for cursor := ""; ; {
		r := a.must(t, 200, as, "GET", fmt.Sprintf("%s%slimit=%d%s", path, separator(path), limit, cursor), nil,
			header{"Accept-Encoding", "identity"})
		p := read[page[*listedItem]](t, r)
		sizes = append(sizes, len(r.Body))
		if len(p.Items) == 0 && p.NextCursor != nil {
			t.Fatalf("%s continues after a page without items", path)
		}
		for _, item := range p.Items {
			if item.Post != nil {
				item = item.Post
			}
			if item.Comment != nil {
				item = item.Comment
			}
			ids = append(ids, fmt.Sprint(item.ID))
		}
		if p.NextCursor == nil {
			return ids, sizes
		}
		cursor = "&cursor=" + url.QueryEscape(*p.NextCursor)
		if len(sizes) > 200 {
			t.Fatalf("%s does not end", path)
		}
	}
}

// Replies that do not fit in a page are found at their cursor.
func TestPages_continueWithOmittedReplies(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.grow(t, a.account(t), models.RoleUser)
	postID, _ := a.fillDense(t, ada)
	type node struct {
		ID           float64 `json:"id"`
		RepliesCount int     `json:"replies_count"`
		Replies      page[obj]
	}
	seen := map[float64]bool{}
	cursor := ""
	for {
		p := read[page[node]](t, a.must(t, 200, account{}, "GET",
			fmt.Sprintf("/v1/posts/%d/comments?limit=100%s", postID, cursor), nil))
		for _, c := range p.Items {
			seen[c.ID] = true
			next := c.Replies.NextCursor
			for _, reply := range c.Replies.Items {
				seen[itemID(reply)] = true
			}
			for next != nil {
				more := read[page[obj]](t, a.must(t, 200, account{}, "GET",
					fmt.Sprintf("/v1/comments/%.0f/replies?cursor=%s", c.ID, url.QueryEscape(*next)), nil))
				for _, reply := range more.Items {
					if seen[itemID(reply)] {
						t.Errorf("reply %v came twice", reply["id"])
					}
					seen[itemID(reply)] = true
				}
				next = more.NextCursor
			}
		}
		if p.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + url.QueryEscape(*p.NextCursor)
	}
	for _, id := range a.ids(t, fmt.Sprintf("SELECT id FROM comments WHERE post_id=%d AND depth<=2", postID)) {
		if !seen[float64(id)] {
			t.Errorf("comment %d was not found", id)
		}
	}
}

// request sends GET path on a connection of its own, from an address, and reads no more of the answer than its window
// holds.
func (a *api) request(t *testing.T, from, path string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	return conn
}

// statusOf reads the status line of the answer on conn.
func statusOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	line := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, line); err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// gauge reads a metric of the API.
func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// A request is in flight until its answer is written: a client that does not read holds its place until it disconnects.
func TestAnswers_areInFlightUntilTheyAreWritten(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.MaxInFlight, c.Registry = 1, registry })
	ada := a.grow(t, a.account(t), models.RoleUser)
	postID, _ := a.fillDense(t, ada)
	path := fmt.Sprintf("/v1/posts/%d/comments?limit=100", postID)
	conn := a.request(t, "127.0.0.1", path)
	if got := statusOf(t, conn); got != "HTTP/1.1 200" {
		t.Fatalf("the first is answered with %s", got)
	}
	if held := gauge(t, registry, "likewise_http_answer_bytes"); held < 256<<10 || held > db.PageBytes {
		t.Errorf("an answer that is not read holds %.0f bytes", held)
	}
	a.refused(t, 503, "unavailable", account{}, "GET", "/v1/posts/1", nil)
	conn.Close()
	eventually(t, "the place is free",
		func() bool { return gauge(t, registry, "likewise_http_requests_in_flight") == 0 })
	if held := gauge(t, registry, "likewise_http_answer_bytes"); held != 0 {
		t.Errorf("%.0f bytes are held without a request", held)
	}
	a.must(t, 200, account{}, "GET", path, nil)
	r := a.must(t, 200, account{}, "HEAD", path, nil)
	a.must(t, 304, account{}, "GET", path, nil, header{"If-None-Match", r.Header.Get("ETag")})
	eventually(t, "nothing is held", func() bool {
		return gauge(t, registry, "likewise_http_requests_in_flight") == 0 &&
			gauge(t, registry, "likewise_http_answer_bytes") == 0
	})
}

// A client that does not read an image holds a place among the readers of images, and none of a request in flight.
func TestAnswers_unreadImagesHinderImagesAlone(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	objects := imagesIn(t, t.TempDir())
	a := newAPI(t, modes[0], withImages(objects),
		func(c *handlers.Config) { c.MaxInFlight, c.Registry = 1, registry })
	i := &models.Image{UserID: a.account(t).ID, Type: "image/png", Width: 1, Height: 1, Bytes: images.MaxStored}
	require.NoError(t, media.New(a.store).AddImage(t.Context(), i, "file", models.DefaultImageRoom))
	require.NoError(t, objects.Put(t.Context(), i.Name, i.Type, make([]byte, i.Bytes)))
	require.NoError(t, media.New(a.store).ShowImage(t.Context(), i.ID))
	path := models.ImagePath + i.Name
	conn := a.request(t, "127.0.0.1", path)
	require.Equal(t, "HTTP/1.1 200", statusOf(t, conn))
	a.must(t, 200, account{}, "GET", "/v1/posts", nil)
	a.refused(t, 503, "unavailable", account{}, "GET", path, nil)
	a.must(t, 200, account{}, "GET", "/v1/posts", nil)
	conn.Close()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		r, err := a.try(account{}, "GET", path, nil)
		if assert.NoError(c, err) && assert.Equal(c, 200, r.Status) {
			assert.Len(c, r.Body, images.MaxStored)
		}
	}, 20*time.Second, 20*time.Millisecond)
	a.must(t, 200, account{}, "GET", "/v1/posts", nil)
	eventually(t, "nothing is in flight",
		func() bool { return gauge(t, registry, "likewise_http_requests_in_flight") == 0 })
}

// One address holds at most its share of the memory for answers, and other addresses are not affected.
func TestAnswers_ofOneAddressHaveAShare(t *testing.T) {
	t.Parallel()
	const share = 8 << 20
	registry := prometheus.NewRegistry()
	a := newAPI(t, modes[0], limited(t, "", 1), func(c *handlers.Config) { c.Registry = registry })
	ada := a.grow(t, a.account(t), models.RoleUser)
	postID, deepest := a.fillDense(t, ada)
	paths := []string{fmt.Sprintf("/v1/comments/%d/ancestors?limit=100", deepest),
		fmt.Sprintf("/v1/posts/%d/comments?limit=100", postID), fmt.Sprintf("/v1/posts/%d", postID),
		fmt.Sprintf("/v1/posts/%d/thread?limit=500", postID)}
	var unread []net.Conn
	statuses := map[string]int{}
	for i := range 60 {
		conn := a.request(t, "127.0.0.2", paths[i%len(paths)])
		unread = append(unread, conn)
		statuses[statusOf(t, conn)]++
		if held := gauge(t, registry, "likewise_http_answer_bytes"); held > share {
			t.Fatalf("%.0f bytes are held after %d requests", held, i+1)
		}
	}
	if statuses["HTTP/1.1 200"] < 5 || statuses["HTTP/1.1 429"] < 20 || len(statuses) != 2 {
		t.Errorf("the answers are %v", statuses)
	}
	a.must(t, 200, account{}, "GET", paths[1], nil) // from another address
	for _, conn := range unread {
		conn.Close()
	}
	eventually(t, "nothing is held", func() bool { return gauge(t, registry, "likewise_http_answer_bytes") == 0 })
	again := a.request(t, "127.0.0.2", paths[0])
	if got := statusOf(t, again); got != "HTTP/1.1 200" {
		t.Errorf("the address is answered with %s after it has gone", got)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) { return holds(), what })
}

// A problem repeats a bounded part of the request.
func TestProblem_boundsItsFields(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	body := obj{"title": "T", "content": "C", strings.Repeat("ä", 50_000): 1}
	for i := range 20_000 {
		body[fmt.Sprintf("z%d", i)] = 1
	}
	p, r := a.refused(t, 422, "invalid", ada, "POST", "/v1/posts", body)
	if len(r.Body) > 8<<10 || len(p.Errors) != 20 {
		t.Errorf("%d errors in %d bytes", len(p.Errors), len(r.Body))
	}
	long, r := a.refused(t, 422, "invalid", ada, "POST", "/v1/posts",
		obj{"title": "T", "content": "C", strings.Repeat("ä", 50_000): 1})
	if len(long.Errors) != 1 || long.Errors[0].Field != strings.Repeat("ä", 100)+"…" {
		t.Errorf("the answer to a long name is %.500s", r.Body)
	}
}

// Few large answers are built at once, and a waiting request may hold a connection to the database. The request that
// builds one must still find a connection, for every role and with or without limits.
func TestAnswers_largeOnesLeaveConnectionsToEachOther(t *testing.T) {
	t.Parallel()
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	a := serve(t, store, func(c *handlers.Config) { c.Timeout = time.Minute })
	a.client.Timeout = 2 * time.Minute
	user := a.grow(t, a.account(t), models.RoleUser)
	moderator := a.grow(t, a.account(t), models.RoleModerator)
	postID, _ := a.fillDense(t, user)
	for _, list := range []struct {
		path string
		as   account
	}{
		{fmt.Sprintf("/v1/users/%d/comments?limit=100", user.ID), user},
		{fmt.Sprintf("/v1/posts/%d/comments?limit=100", postID), user},
		{"/v1/admin/comments?limit=100", moderator},
	} {
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				r, err := a.try(list.as, "GET", list.path, nil)
				if err != nil || r.Status != http.StatusOK {
					t.Errorf("%s: status %d, %v", list.path, r.Status, err)
				}
			})
		}
		all.Wait()
	}
}
