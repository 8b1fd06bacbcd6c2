package handlers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"likewise/handlers"
	"likewise/internal/testkit"
)

// id waits for the id of the stream.
func (f *follower) id(t *testing.T) string {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) { return f.stream.Load() != "", "it has no id" })
	id, _ := f.stream.Load().(string)
	return id
}

func (f *follower) path(t *testing.T) string {
	t.Helper()
	return "/v1/streams/" + f.id(t)
}

func TestStream_canBeChanged(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		// Only what is written at once arrives within the test.
		a.SetStreamPace(20*time.Millisecond, time.Minute, 5*time.Second)
		ada, bob := a.account(t), a.account(t)
		p, q := a.newPost(t, ada), a.newPost(t, ada)
		c := a.newComment(t, bob, p.ID)
		f := a.watch(t, fmt.Sprintf("posts=%d", p.ID), header{"Authorization", "Bearer " + bob.Token})
		f.next(t)
		before := f.lastID.Load()
		post := func(p post, likes, comments int64) counted {
			return counted{Type: "post", ID: p.ID, LikesCount: likes, CommentsCount: comments}
		}
		a.must(t, 204, bob, "PUT", f.path(t), obj{"posts": []int64{p.ID, q.ID}, "comments": []int64{c.ID}})
		if e := f.next(t); e.data != post(q, 0, 0) {
			t.Errorf("at first of what is new: %+v", e)
		}
		if e := f.next(t); e.data != (counted{Type: "comment", ID: c.ID}) || e.id == "" || e.id == before {
			t.Errorf("then of what is new: %+v", e)
		}
		a.must(t, 200, bob, "PUT", pathOf(q)+"/like", nil)
		f.await(t, "counts", post(q, 1, 0))

		a.must(t, 204, bob, "PUT", f.path(t), obj{"posts": []int64{q.ID}, "notifications": true})
		if n := f.nextNews(t); n.ID != bob.ID {
			t.Errorf("%+v", n)
		}
		if n := a.metric(t, "likewise_stream_targets"); n != 2 {
			t.Errorf("%v targets are followed, want 2", n)
		}
		a.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
		a.must(t, 200, ada, "PUT", pathOf(q)+"/like", nil)
		if e := f.next(t); e.data != post(q, 2, 0) {
			t.Errorf("the stream has an event of what it follows no longer: %+v", e)
		}

		// A client that reconnects names the targets in the URL.
		id := f.lastID.Load().(string)
		f.close()
		query := fmt.Sprintf("posts=%d&notifications=true", q.ID)
		f = a.watch(t, query, header{"Authorization", "Bearer " + bob.Token}, header{"Last-Event-ID", id})
		a.must(t, 204, bob, "PUT", f.path(t), obj{"posts": []int64{p.ID, q.ID}, "notifications": true})
		if e := f.next(t); e.data != post(p, 1, 1) {
			t.Errorf("resumed with %+v", e)
		}
	})
}

// What is refused leaves the stream as it was.
func TestStream_refusesChanges(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, redisURL(t), 1))
	a.brisk()
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	ids := make([]int64, 513)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	authorized := func(as account) header { return header{"Authorization", "Bearer " + as.Token} }
	f := a.watch(t, fmt.Sprintf("posts=%d", p.ID), authorized(ada))
	f.next(t)
	path := f.path(t)
	if id := f.id(t); len(id) < 26 {
		t.Errorf("the id %s could be guessed", id)
	}
	some := obj{"posts": []int64{p.ID}}
	for name, path := range map[string]string{
		"unknown": "/v1/streams/none", "of no process": "/v1/streams/none.none", "longer": path + "x",
	} {
		if r := a.send(t, ada, "PUT", path, some); r.Status != 404 {
			t.Errorf("an id that is %s: %s", name, r)
		}
	}
	a.refused(t, 404, "not_found", bob, "PUT", path, some)
	a.refused(t, 404, "not_found", account{}, "PUT", path, some)
	a.refused(t, 404, "not_found", ada.with(a.newToken(t, ada, "read").Token), "PUT", path, some)
	a.refused(t, 404, "not_found", ada, "PUT", path, obj{"posts": []int64{4242}})
	a.refusedField(t, 422, "invalid", "posts", ada, "PUT", path, obj{})
	a.refusedField(t, 422, "invalid", "posts", ada, "PUT", path, obj{"posts": ids})
	a.refusedField(t, 422, "invalid", "comments", ada, "PUT", path, obj{"comments": []int64{0}})
	a.refusedField(t, 422, "invalid", "users", ada, "PUT", path, obj{"users": []int64{1}})
	a.refusedField(t, 400, "malformed", "posts", ada, "PUT", path, obj{"posts": "1"})
	anonymous := a.watch(t, fmt.Sprintf("posts=%d", p.ID))
	a.refused(t, 401, "unauthorized", account{}, "PUT", anonymous.path(t), obj{"notifications": true})
	a.must(t, 204, account{}, "PUT", anonymous.path(t), some)
	a.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
	f.await(t, "counts", counted{Type: "post", ID: p.ID, LikesCount: 1})

	f.close()
	a.awaitStreams(t, 1)
	a.refused(t, 404, "not_found", ada, "PUT", path, some)
}

func TestStream_limitsChanges(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.brisk()
	a.SetMaxWatched(4)
	ada := a.account(t)
	posts := make([]int64, 5)
	for i := range posts {
		posts[i] = a.newPost(t, ada).ID
	}
	f := a.watch(t, fmt.Sprintf("posts=%d", posts[0]))
	for range 2 { // a change that is refused costs nothing
		_, r := a.refused(t, 503, "unavailable", account{}, "PUT", f.path(t), obj{"posts": posts})
		if r.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	a.must(t, 204, account{}, "PUT", f.path(t), obj{"posts": posts[:4]})
	a.must(t, 204, account{}, "PUT", f.path(t), obj{"posts": posts[1:]})
	if n := a.metric(t, "likewise_stream_targets"); n != 4 {
		t.Errorf("%v targets are followed, want 4", n)
	}
	a.must(t, 204, account{}, "PUT", f.path(t), obj{"posts": posts[:1]})
	a.watch(t, fmt.Sprintf("posts=%d,%d,%d", posts[1], posts[2], posts[3])) // there is room again
}

// A proxy sends the change to any process.
func TestStream_isChangedByEveryProcess(t *testing.T) {
	t.Parallel()
	here, there, _ := twoProcesses(t, func(c *handlers.Config) { c.MaxStreams = 2 })
	here.brisk()
	here.SetMaxWatched(2)
	ada, bob := here.account(t), here.account(t)
	p, q, r := here.newPost(t, ada), here.newPost(t, ada), here.newPost(t, ada)
	f := here.watch(t, fmt.Sprintf("posts=%d", p.ID), header{"Authorization", "Bearer " + ada.Token})
	f.next(t)
	both := obj{"posts": []int64{p.ID, q.ID}}
	testkit.Eventually(t, 20*time.Second, func() (bool, string) { // both processes receive
		r := there.send(t, ada, "PUT", f.path(t), both)
		return r.Status == 204, r.String()
	})
	if e := f.next(t); e.data != (counted{Type: "post", ID: q.ID}) {
		t.Errorf("%+v", e)
	}
	there.refused(t, 404, "not_found", bob, "PUT", f.path(t), both)
	there.refused(t, 404, "not_found", ada, "PUT", f.path(t)+"x", both)
	there.refused(t, 404, "not_found", ada, "PUT", f.path(t), obj{"posts": []int64{4242}})
	there.refused(t, 503, "unavailable", ada, "PUT", f.path(t), obj{"posts": []int64{p.ID, q.ID, r.ID}})
	there.must(t, 204, ada, "PUT", f.path(t), obj{"posts": []int64{q.ID}, "notifications": true})
	if n := f.nextNews(t); n.ID != ada.ID {
		t.Errorf("%+v", n)
	}
	f.close()
	here.awaitStreams(t, 0)
	there.refused(t, 404, "not_found", ada, "PUT", f.path(t), both)

	// A process that has ended receives nothing.
	process, _, _ := strings.Cut(f.id(t), ".")
	there.refused(t, 404, "not_found", ada, "PUT", "/v1/streams/"+process[1:]+"A.x", both)
}

// In direct mode, processes do not know one another, and the client opens another stream.
func TestStream_isChangedByItsProcessInDirectMode(t *testing.T) {
	t.Parallel()
	here := newAPI(t, modes[0])
	there := serve(t, here.store)
	p := here.newPost(t, here.account(t))
	f := here.watch(t, fmt.Sprintf("posts=%d", p.ID))
	there.refused(t, 404, "not_found", account{}, "PUT", f.path(t), obj{"posts": []int64{p.ID}})
	here.must(t, 204, account{}, "PUT", f.path(t), obj{"posts": []int64{p.ID}})
}
