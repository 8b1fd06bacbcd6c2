package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"strconv"
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

// event is one event of a stream.
type event struct {
	kind string
	id   string
	at   time.Time
	raw  string
	data counted
}

// counted is the data of an event.
type counted struct {
	Type          string
	ID            int64
	LikesCount    int64 `json:"likes_count"`
	CommentsCount int64 `json:"comments_count"`
	RepliesCount  int64 `json:"replies_count"`
	Stock         int64
	Claimed       int64
	Remaining     int64
	State         string
}

// follower reads a stream.
type follower struct {
	asked  time.Time
	header http.Header
	events chan event // closed at the end of the stream
	beats  atomic.Int64
	retry  atomic.Int64
	lastID atomic.Value // string
	stream atomic.Value // string: the id of the stream
	close  func()
}

// watch opens a stream that lasts until the test ends.
func (a *api) watch(t *testing.T, query string, headers ...header) *follower {
	t.Helper()
	f, err := a.tryWatch(query, headers...)
	require.NoError(t, err)
	t.Cleanup(f.close)
	return f
}

func (a *api) tryWatch(query string, headers ...header) (*follower, error) {
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/v1/stream?"+query, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	for _, h := range headers {
		req.Header.Set(h.name, h.value)
	}
	asked := time.Now()
	resp, err := a.client.Transport.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("a stream of %s is answered with %s", query, resp.Status)
	}
	f := &follower{asked: asked, header: resp.Header, events: make(chan event, 10_000), close: cancel}
	f.lastID.Store("")
	f.stream.Store("")
	go f.read(resp)
	return f, nil
}

func (f *follower) read(resp *http.Response) {
	defer close(f.events)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	var e event
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			e.kind = value
		case "data":
			e.raw = value
			if e.kind != "stream" && json.Unmarshal([]byte(value), &e.data) != nil {
				return
			}
		case "id":
			e.id = value
		case "retry":
			ms, _ := strconv.ParseInt(value, 10, 64)
			f.retry.Store(ms)
		case ":":
			f.beats.Add(1)
		case "":
			if e.id != "" {
				f.lastID.Store(e.id)
			}
			if e.kind == "stream" {
				var stream struct{ ID string }
				if json.Unmarshal([]byte(e.raw), &stream) != nil {
					return
				}
				f.stream.Store(stream.ID)
			} else if e.kind != "" {
				e.at = time.Now()
				f.events <- e
			}
			e = event{}
		}
	}
}

// next waits for an event.
func (f *follower) next(t *testing.T) event {
	t.Helper()
	select {
	case e, ok := <-f.events:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event arrives")
	}
	return event{}
}

// await waits for an event with this data and skips others.
func (f *follower) await(t *testing.T, kind string, want counted) {
	t.Helper()
	for {
		if e := f.next(t); e.kind == kind && e.data == want {
			return
		}
	}
}

// awaitEnd waits for the end of the stream.
func (f *follower) awaitEnd(t *testing.T) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case _, ok := <-f.events:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the stream does not end")
		}
	}
}

// brisk sets a fast pace, for tests that do not measure it.
func (a *api) brisk() { a.SetStreamPace(20*time.Millisecond, time.Minute, 5*time.Second) }

func (a *api) awaitStreams(t *testing.T, want float64) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		got := a.metric(t, "likewise_streams")
		return got == want, fmt.Sprintf("%v streams are open, want %v", got, want)
	})
}

// metric returns a metric without labels.
func (a *api) metric(t *testing.T, name string) float64 {
	t.Helper()
	text := a.metrics(t)
	match := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	if match == nil {
		t.Fatalf("there is no metric %s", name)
	}
	value, err := strconv.ParseFloat(match[1], 64)
	require.NoError(t, err)
	return value
}

func TestStream_sendsEveryChange(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		a.brisk()
		users := a.accounts(t, 3)
		p, q := a.newPost(t, users[0]), a.newPost(t, users[0])
		c := a.newComment(t, users[0], p.ID)
		f := a.watch(t, fmt.Sprintf("posts=%d,%d,%d&comments=%d,4242", q.ID, p.ID, p.ID, c.ID),
			header{"Accept-Encoding", "gzip, br"})
		for name, want := range map[string]string{"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no",
			"Content-Encoding": "", "Etag": "", "Content-Length": ""} {
			if got := f.header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if f.header.Get("X-Request-Id") == "" {
			t.Error("no request id")
		}
		post := func(p post, likes, comments int64) counted {
			return counted{Type: "post", ID: p.ID, LikesCount: likes, CommentsCount: comments}
		}
		comment := func(likes, replies int64) counted {
			return counted{Type: "comment", ID: c.ID, LikesCount: likes, RepliesCount: replies}
		}
		first := map[counted]string{}
		for range 4 {
			e := f.next(t)
			first[e.data] = e.kind
		}
		for what, kind := range map[counted]string{post(p, 0, 1): "counts", post(q, 0, 0): "counts",
			comment(0, 0): "counts", {Type: "comment", ID: 4242}: "gone"} {
			if first[what] != kind {
				t.Errorf("at first %v is %q, want %q", what, first[what], kind)
			}
		}
		if ms := f.retry.Load(); ms < 1000 || ms > 5000 {
			t.Errorf("retry: %d", ms)
		}
		path := fmt.Sprintf("/v1/comments/%d", c.ID)
		a.must(t, 200, users[1], "PUT", pathOf(p)+"/like", nil)
		f.await(t, "counts", post(p, 1, 1))
		a.must(t, 200, users[1], "PUT", path+"/like", nil)
		f.await(t, "counts", comment(1, 0))
		a.newReply(t, users[1], c.ID)
		for seen := map[counted]bool{}; !seen[post(p, 1, 2)] || !seen[comment(1, 1)]; {
			seen[f.next(t).data] = true
		}
		a.must(t, 200, users[1], "DELETE", pathOf(p)+"/like", nil)
		f.await(t, "counts", post(p, 0, 2))
		a.must(t, 204, users[0], "DELETE", path, nil)
		f.await(t, "gone", counted{Type: "comment", ID: c.ID})
		a.must(t, 204, users[0], "DELETE", pathOf(q), nil)
		f.await(t, "gone", counted{Type: "post", ID: q.ID})
		a.must(t, 200, users[0], "POST", pathOf(q)+"/restore", nil)
		f.await(t, "counts", post(q, 0, 0))
	})
}

func TestStream_refusesInvalidTargets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.MaxStreams = 2 })
	ada := a.account(t)
	p := a.newPost(t, ada)
	ids := make([]string, 513)
	for i := range ids {
		ids[i] = fmt.Sprint(i + 1)
	}
	for query, field := range map[string]string{
		"": "posts", "posts=": "posts", "posts=x": "posts", "posts=1,": "posts", "posts=01": "posts",
		"posts=1&comments=-1": "comments", "comments=1,,2": "comments",
		"posts=" + strings.Join(ids, ","): "posts",
		"posts=" + strings.Join(ids[:300], ",") + "&comments=" + strings.Join(ids[:300], ","): "comments",
	} {
		a.refusedField(t, 422, "invalid", field, account{}, "GET", "/v1/stream?"+query, nil)
	}
	a.refused(t, 404, "not_found", account{}, "GET", "/v1/stream?posts=4242&comments=1", nil)
	a.refused(t, 401, "unauthorized", account{Token: "x"}, "GET", "/v1/stream?posts=1", nil)
	if r := a.must(t, 200, ada, "HEAD", "/v1/stream?posts=1",
		nil); r.Header.Get("Content-Type") != "text/event-stream" || r.Header.Get("ETag") != "" {
		t.Errorf("HEAD: %v", r.Header)
	}
	query := fmt.Sprintf("posts=%d", p.ID)
	first := a.watch(t, query+","+strings.Join(ids[1:512], ","), header{"Authorization", "Bearer " + ada.Token})
	a.watch(t, query)
	_, r := a.refused(t, 503, "unavailable", account{}, "GET", "/v1/stream?"+query, nil)
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	first.close()
	a.awaitStreams(t, 1)
	a.watch(t, query)
}

// Of many concurrent clients, only as many are admitted as the limit allows, and a closed stream frees its place.
func TestStream_hasAShareForEachAddress(t *testing.T) {
	t.Parallel()
	// An address may have 50 of them, but only ten once 45 are open.
	const all, free, few, tries = 60, 45, 10, 80
	a := newAPI(t, modes[0], limited(t, redisURL(t), 0.5), func(c *handlers.Config) {
		c.MaxStreams, c.TrustedProxies = all, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	a.brisk()
	p := a.newPost(t, a.account(t))
	path := fmt.Sprintf("/v1/stream?posts=%d", p.ID)
	from := func(address string) header { return header{"X-Forwarded-For", address} }
	fill := func(address string) (followers []*follower) {
		var mu sync.Mutex
		together(tries, func(int) {
			if f, err := a.tryWatch(fmt.Sprintf("posts=%d", p.ID), from(address)); err == nil {
				mu.Lock()
				defer mu.Unlock()
				followers = append(followers, f)
				t.Cleanup(f.close)
			} else if !strings.HasSuffix(err.Error(), "429 Too Many Requests") &&
				!strings.HasSuffix(err.Error(), "503 Service Unavailable") {
				t.Error(err) // some are refused after they were hijacked
			}
		})
		return followers
	}
	one := fill("198.51.100.1")
	if len(one) != free {
		t.Errorf("one address has %d streams, want %d", len(one), free)
	}
	_, r := a.refused(t, 429, "rate_limited", account{}, "GET", path, nil, from("198.51.100.1"))
	if r.Header.Get("Retry-After") != "10" {
		t.Errorf("Retry-After: %q", r.Header.Get("Retry-After"))
	}
	if other := fill("2001:db8::1"); len(other) != few {
		t.Errorf("another has %d streams, want %d", len(other), few)
	}
	a.refused(t, 429, "rate_limited", account{}, "GET", path, nil, from("2001:db8::ffff")) // the same network
	if third := fill("198.51.100.2"); len(third) != all-free-few {
		t.Errorf("a third has %d streams, want %d", len(third), all-free-few)
	}
	a.refused(t, 503, "unavailable", account{}, "GET", path, nil, from("198.51.100.3"))
	for _, f := range one[:20] {
		f.close()
	}
	a.awaitStreams(t, all-20)
	a.watch(t, fmt.Sprintf("posts=%d", p.ID), from("198.51.100.1"))
}

func TestStream_boundsTargetsAndIgnoresUnknownIDs(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.brisk()
	a.SetMaxWatched(2)
	ada := a.account(t)
	p, q, r := a.newPost(t, ada), a.newPost(t, ada), a.newPost(t, ada)
	f := a.watch(t, fmt.Sprintf("posts=%d,101,102,103", p.ID))
	gone := 0
	for range 4 {
		if f.next(t).kind == "gone" {
			gone++
		}
	}
	if n := a.metric(t, "likewise_stream_targets"); gone != 3 || n != 1 {
		t.Errorf("%d targets are gone and %v watched, want 3 and 1", gone, n)
	}
	g := a.watch(t, fmt.Sprintf("posts=%d,%d,104", p.ID, q.ID))
	_, refused := a.refused(t, 503, "unavailable", account{}, "GET", fmt.Sprintf("/v1/stream?posts=%d", r.ID), nil)
	if refused.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	a.watch(t, fmt.Sprintf("posts=%d,105", q.ID)) // watched already
	a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
	f.await(t, "counts", counted{Type: "post", ID: p.ID, LikesCount: 1})
	f.close()
	g.close()
	a.awaitStreams(t, 1)
	a.watch(t, fmt.Sprintf("posts=%d,106", r.ID))
}

// During many concurrent likes, every client receives events early and at most once a second for each target, and ends
// with the true counts.
func TestStream_coalescesBursts(t *testing.T) {
	eachMode(t, func(t *testing.T, a *api) {
		const clients, likes = 200, 300
		ada, users := a.account(t), a.accounts(t, 30)
		p, q := a.newPost(t, ada), a.newPost(t, ada)
		followers := make([]*follower, clients)
		together(clients, func(i int) {
			var err error
			if followers[i], err = a.tryWatch(fmt.Sprintf("posts=%d,%d", p.ID, q.ID)); err != nil {
				t.Error(err)
			}
		})
		if t.Failed() {
			return
		}
		defer func() {
			for _, f := range followers {
				f.close()
			}
		}()
		begin := time.Now()
		together(len(users), func(i int) {
			for n := range likes / len(users) {
				method := []string{"PUT", "DELETE"}[n%2]
				if r, err := a.try(users[i], method, pathOf(p)+"/like", nil); err != nil || r.Status != 200 {
					t.Errorf("%v %v", r, err)
				}
			}
			if r, err := a.try(users[i], "PUT", pathOf(p)+"/like", nil); err != nil || r.Status != 200 {
				t.Errorf("%v %v", r, err)
			}
		})
		took := time.Since(begin)
		want := counted{Type: "post", ID: p.ID, LikesCount: int64(len(users))}
		var events, highest int
		for _, f := range followers {
			of := map[int64]int{}
			n := 0
			for ended := false; !ended; {
				e := f.next(t)
				// The first cannot be sent before it was requested, and the others must be at least a second apart.
				if since := e.at.Sub(f.asked); since < time.Duration(of[e.data.ID])*time.Second {
					t.Errorf("event %d of post %d comes after %v", of[e.data.ID]+1, e.data.ID, since)
				}
				of[e.data.ID]++
				n++
				ended = e.data == want
			}
			events += n
			highest = max(highest, n)
		}
		t.Logf("%d likes in %v, %d events to %d clients, %d to one", likes+len(users), took, events, clients, highest)
	})
}

func TestStream_resumes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.brisk()
	ada := a.account(t)
	p, q := a.newPost(t, ada), a.newPost(t, ada)
	query := fmt.Sprintf("posts=%d,%d", p.ID, q.ID)
	f := a.watch(t, query)
	f.next(t)
	f.next(t)
	id := f.lastID.Load().(string)
	f.close()
	if id == "" {
		t.Fatal("events have no id")
	}
	a.must(t, 200, ada, "PUT", pathOf(q)+"/like", nil)
	want := counted{Type: "post", ID: q.ID, LikesCount: 1}
	f = a.watch(t, query, header{"Last-Event-ID", id})
	if e := f.next(t); e.data != want || e.id == id || e.id == "" {
		t.Errorf("resumed with %+v, want %v alone", e, want)
	}
	id = f.lastID.Load().(string)
	f.close()
	// Nothing has changed, so the first event is that of the next change, from any process.
	b := serve(t, a.store)
	b.brisk()
	f = b.watch(t, query, header{"Last-Event-ID", id})
	a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
	if e := f.next(t); e.data != (counted{Type: "post", ID: p.ID, LikesCount: 1}) {
		t.Errorf("resumed with %+v", e)
	}
	for _, wrong := range []string{"x", "AAAAAAAA", strings.Repeat("x", 4000)} {
		f := a.watch(t, query, header{"Last-Event-ID", wrong})
		f.next(t)
		f.next(t)
	}
}

func TestStream_sendsHeartbeats(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.SetStreamPace(20*time.Millisecond, 30*time.Millisecond, 5*time.Second)
	p := a.newPost(t, a.account(t))
	f := a.watch(t, fmt.Sprintf("posts=%d", p.ID))
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { return f.beats.Load() >= 3, "no heartbeats" })
	if len(f.events) != 1 {
		t.Errorf("%d events", len(f.events))
	}
}

// Clients that do not read, or have vanished, are disconnected.
func TestStream_dropsClientsThatDoNotRead(t *testing.T) {
	a := newAPI(t, modes[0])
	a.SetStreamPace(time.Millisecond, time.Millisecond, 300*time.Millisecond)
	ada := a.account(t)
	p := a.newPost(t, ada)
	u, err := url.Parse(a.url)
	require.NoError(t, err)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
		fmt.Fprintf(conn, "GET /v1/stream?posts=%d HTTP/1.1\r\nHost: x\r\n\r\n", p.ID)
		return conn
	}
	gone := dial()
	a.awaitStreams(t, 1)
	gone.Close()
	a.awaitStreams(t, 0)
	if n := a.metric(t, "likewise_streams_dropped_total"); n != 0 {
		t.Errorf("%v dropped; one that leaves is not", n)
	}

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const idle = 20
	for range idle {
		dial()
	}
	reader := a.watch(t, fmt.Sprintf("posts=%d", p.ID))
	a.awaitStreams(t, 1) // all but the one that reads are dropped, though heartbeats are all that is sent
	if n := a.metric(t, "likewise_streams_dropped_total"); n != idle {
		t.Errorf("%v dropped, want %d", n, idle)
	}
	a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
	reader.await(t, "counts", counted{Type: "post", ID: p.ID, LikesCount: 1})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("%d clients that did not read left %d bytes", idle, grown)
	}
}

func TestStream_endsWithTheServer(t *testing.T) {
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	query := fmt.Sprintf("posts=%d", p.ID)
	followers := make([]*follower, 50)
	for i := range followers {
		followers[i] = a.watch(t, query)
		followers[i].next(t)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	require.NoError(t, a.Shutdown(ctx))
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it takes %v", took)
	}
	for _, f := range followers {
		f.awaitEnd(t)
	}
	if n := runtime.NumGoroutine(); n > 500 {
		t.Errorf("%d goroutines are left", n)
	}
}

// failingLikes returns errors while it is set to fail.
type failingLikes struct {
	handlers.Likes
	fail *atomic.Bool
}

func (l failingLikes) LikeStates(ctx context.Context, viewer int64,
	rows []models.TargetCount) ([]models.LikeState, error) {
	if l.fail.Load() {
		return nil, models.Unavailable("not now", nil)
	}
	return l.Likes.LikeStates(ctx, viewer, rows)
}

func TestStream_outlivesItsSources(t *testing.T) {
	t.Parallel()
	fail := &atomic.Bool{}
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.Likes = failingLikes{c.Likes, fail} })
	a.SetStreamPace(20*time.Millisecond, 30*time.Millisecond, 5*time.Second)
	ada := a.account(t)
	p, q := a.newPost(t, ada), a.newPost(t, ada)
	query := fmt.Sprintf("posts=%d", p.ID)
	f := a.watch(t, query)
	f.next(t)
	fail.Store(true)
	a.must(t, 200, ada, "PUT", pathOf(p)+"/like", nil)
	beats := f.beats.Load()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { return f.beats.Load() > beats+3, "no heartbeats" })
	if len(f.events) > 0 {
		t.Errorf("it sends %+v, which cannot be known", <-f.events)
	}
	a.watch(t, query) // targets that are watched already need no query
	a.refused(t, 503, "unavailable", account{}, "GET", fmt.Sprintf("/v1/stream?posts=%d,%d", p.ID, q.ID), nil)
	fail.Store(false)
	f.await(t, "counts", counted{Type: "post", ID: p.ID, LikesCount: 1})
}

// countingLikes counts the requested targets.
type countingLikes struct {
	handlers.Likes
	calls, rows atomic.Int64
}

func (l *countingLikes) LikeStates(ctx context.Context, viewer int64,
	rows []models.TargetCount) ([]models.LikeState, error) {
	l.calls.Add(1)
	l.rows.Add(int64(len(rows)))
	return l.Likes.LikeStates(ctx, viewer, rows)
}

// A post with many watchers is read once a round, and nothing is read without watchers.
func TestStream_readsOnceForAll(t *testing.T) {
	t.Parallel()
	likes := &countingLikes{}
	a := newAPI(t, modes[0], func(c *handlers.Config) { likes.Likes, c.Likes = c.Likes, likes })
	a.brisk()
	p := a.newPost(t, a.account(t))
	followers := make([]*follower, 20)
	for i := range followers {
		followers[i] = a.watch(t, fmt.Sprintf("posts=%d", p.ID))
		followers[i].next(t)
	}
	calls, rows := likes.calls.Load(), likes.rows.Load()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { return likes.calls.Load() > calls+5, "no rounds" })
	if calls, rows = likes.calls.Load()-calls, likes.rows.Load()-rows; rows > calls {
		t.Errorf("%d rows in %d rounds", rows, calls)
	}
	for _, f := range followers {
		f.close()
	}
	a.awaitStreams(t, 0)
	a.watch(t, fmt.Sprintf("posts=%d", p.ID)).close() // restarts the rounds
	a.awaitStreams(t, 0)
	if n := a.metric(t, "likewise_stream_targets"); n != 0 {
		t.Errorf("%v targets are watched", n)
	}
}

func TestStream_doesNotCountAsInFlight(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.MaxInFlight = 2 })
	p := a.newPost(t, a.account(t))
	for range 10 {
		a.watch(t, fmt.Sprintf("posts=%d", p.ID)).next(t)
	}
	a.must(t, 200, account{}, "GET", pathOf(p), nil)
}
