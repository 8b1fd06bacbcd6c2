package handlers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers/live"
	"likewise/internal/testkit"
)

// awaitIDs waits for an event of a kind in which a member has the ids.
func (f *follower) awaitIDs(t *testing.T, kind, member string, want ...int64) {
	t.Helper()
	for {
		e := f.next(t)
		if e.kind != kind {
			continue
		}
		var data map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(e.raw), &data))
		var ids []int64
		require.NoError(t, json.Unmarshal(data[member], &ids), "%s", e.raw)
		if slices.Equal(ids, want) {
			return
		}
	}
}

// quiet fails if an event of a kind has arrived.
func (f *follower) quiet(t *testing.T, kind string) {
	t.Helper()
	for {
		select {
		case e := <-f.events:
			if e.kind == kind {
				t.Errorf("the stream has %s %s", e.kind, e.raw)
			}
		default:
			return
		}
	}
}

func TestStream_hasNewsOfThreads(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		a.brisk()
		ada, bob := a.account(t), a.account(t)
		p, q := a.newPost(t, ada), a.newPost(t, ada)
		first := a.newComment(t, bob, p.ID)
		f := a.watch(t, fmt.Sprintf("threads=%d,4242", p.ID))
		f.awaitIDs(t, "thread", "comment_ids", first.ID)
		if e := f.next(t); e.kind != "gone" || e.data.Type != "thread" || e.data.ID != 4242 {
			t.Errorf("%+v", e)
		}
		a.newComment(t, bob, q.ID) // of another post
		reply := a.newReply(t, ada, first.ID)
		f.awaitIDs(t, "thread", "comment_ids", reply.ID, first.ID)
		second := a.newComment(t, ada, p.ID)
		f.awaitIDs(t, "thread", "comment_ids", second.ID, reply.ID, first.ID)
		a.must(t, 204, ada, "DELETE", fmt.Sprintf("/v1/comments/%d", second.ID), nil)
		f.awaitIDs(t, "thread", "comment_ids", reply.ID, first.ID)
		d := read[struct{ ID int64 }](t, a.must(t, 201, ada, "POST", pathOf(p)+"/drops",
			obj{"title": "A drop", "stock": 3}))
		f.awaitIDs(t, "thread", "drop_ids", d.ID)
		a.must(t, 204, ada, "DELETE", pathOf(p), nil)
		f.await(t, "gone", counted{Type: "thread", ID: p.ID})
		a.must(t, 200, ada, "POST", pathOf(p)+"/restore", nil)
		f.awaitIDs(t, "thread", "drop_ids", d.ID)
	})
}

func TestStream_hasNewsOfPosts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.brisk()
	ada := a.account(t)
	tagged := func(tags ...string) post {
		t.Helper()
		return read[post](t, a.must(t, 201, ada, "POST", "/v1/posts",
			obj{"title": "T", "content": "C", "tags": append([]string{}, tags...)}))
	}
	p := tagged("go")
	site, tag := a.watch(t, "new_posts=true"), a.watch(t, "tags=Go,unheard")
	site.awaitIDs(t, "posts", "post_ids", p.ID)
	tag.awaitIDs(t, "posts", "post_ids", p.ID)
	other := tagged("rust")
	site.awaitIDs(t, "posts", "post_ids", other.ID, p.ID)
	second := tagged("go")
	tag.awaitIDs(t, "posts", "post_ids", second.ID, p.ID)
	site.awaitIDs(t, "posts", "post_ids", second.ID, other.ID, p.ID)
	a.must(t, 204, ada, "DELETE", pathOf(second), nil)
	tag.awaitIDs(t, "posts", "post_ids", p.ID)
	site.awaitIDs(t, "posts", "post_ids", other.ID, p.ID)

	a.must(t, 204, account{}, "PUT", site.path(t), obj{"tags": []string{"rust"}, "threads": []int64{p.ID}})
	site.awaitIDs(t, "posts", "post_ids", other.ID)
	a.refused(t, 404, "not_found", account{}, "GET", "/v1/stream?tags=unheard", nil)
	a.refusedField(t, 422, "invalid", "tags", account{}, "GET", "/v1/stream?tags=go,", nil)
	a.refusedField(t, 422, "invalid", "new_posts", account{}, "GET", "/v1/stream?new_posts=1", nil)
	many := make([]string, live.MaxTargets)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	a.refusedField(t, 422, "invalid", "tags", account{}, "PUT", site.path(t), obj{"posts": []int64{1}, "tags": many})
	a.refusedField(t, 400, "malformed", "tags", account{}, "PUT", site.path(t), obj{"tags": "go"})
}

func TestStream_leavesOutNewsOfBlockedUsers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.brisk()
	ada, bob, cyd, dan := a.account(t), a.account(t), a.account(t), a.account(t)
	p := a.newPost(t, ada)
	ofBob := a.newComment(t, bob, p.ID)
	ofCyd := a.newComment(t, cyd, p.ID)
	a.must(t, 200, dan, "PUT", fmt.Sprintf("/v1/users/%d/block", bob.ID), nil)
	query := fmt.Sprintf("threads=%d&new_posts=true", p.ID)
	f := a.watch(t, query, header{"Authorization", "Bearer " + dan.Token})
	all := a.watch(t, query)
	f.awaitIDs(t, "thread", "comment_ids", ofCyd.ID)
	f.awaitIDs(t, "posts", "post_ids", p.ID)
	all.awaitIDs(t, "thread", "comment_ids", ofCyd.ID, ofBob.ID)
	more := a.newComment(t, bob, p.ID)
	postOfBob := a.newPost(t, bob)
	all.awaitIDs(t, "thread", "comment_ids", more.ID, ofCyd.ID, ofBob.ID)
	all.awaitIDs(t, "posts", "post_ids", postOfBob.ID, p.ID)
	f.quiet(t, "thread")
	f.quiet(t, "posts")

	// Blocks that change while the stream is open are respected, too.
	a.must(t, 200, dan, "PUT", fmt.Sprintf("/v1/users/%d/block", cyd.ID), nil)
	f.awaitIDs(t, "thread", "comment_ids")
	a.must(t, 200, dan, "DELETE", fmt.Sprintf("/v1/users/%d/block", bob.ID), nil)
	f.awaitIDs(t, "posts", "post_ids", postOfBob.ID, p.ID)
}

// The versions of all threads are read together, and news again only where something has changed.
func TestStream_readsNewsThatHasChanged(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.brisk()
	ada := a.account(t)
	p, q := a.newPost(t, ada), a.newPost(t, ada)
	var last *follower
	for range 5 {
		last = a.watch(t, fmt.Sprintf("threads=%d,%d", p.ID, q.ID))
		last.awaitIDs(t, "thread", "comment_ids")
	}
	a.sent.take()
	rounds := 0
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		for _, s := range a.sent.take() {
			if strings.Contains(s, "AS latest_drop") {
				rounds++
			} else if strings.Contains(s, "AS of_id") {
				t.Errorf("the comments are read again: %s", s)
			}
		}
		return rounds > 3, "no rounds"
	})
	a.newComment(t, ada, q.ID)
	a.newComment(t, ada, q.ID)
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		for _, s := range a.sent.take() {
			if strings.Contains(s, "AS of_id") {
				return !strings.Contains(s, fmt.Sprintf("c.post_id=%d ", p.ID)), "an unchanged thread is read: " + s
			}
		}
		return false, "the comments are not read"
	})
}
