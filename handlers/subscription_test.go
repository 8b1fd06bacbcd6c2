package handlers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/models"
	"likewise/models/people"
	"likewise/workers"
)

// notifyFollowers runs the job that notifies the followers of posts.
func (a *api) notifyFollowers(t testing.TB) string {
	t.Helper()
	jobs := workers.NewJobs(workers.JobsConfig{
		Store: a.store, Targets: counters.NewTargets(a.store, nil),
		Metrics: workers.NewMetrics(), Registry: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := jobs.Run(ctx, "notify")
	require.NoError(t, err)
	require.Zero(t, a.number(t, "SELECT COUNT(*) FROM thread_news"), "news are left")
	return result
}

func (a *api) subscribe(t testing.TB, as account, p post, level string) {
	t.Helper()
	for range 2 { // repeating it changes nothing
		r := a.must(t, 200, as, "PUT", pathOf(p)+"/subscription", obj{"level": level})
		require.Equal(t, fmt.Sprintf(`200 {"subscription":%q}`, level), r.String())
	}
}

// told returns the notifications of a user, latest first, as a test compares them.
func (a *api) told(t testing.TB, as account) []string {
	t.Helper()
	list := []string{}
	for _, n := range a.notifications(t, as, "?limit=100") {
		text := fmt.Sprintf("%s %d", n.Kind, valueAt(n.CommentID))
		if n.Read {
			text += " read"
		}
		list = append(list, text)
	}
	return list
}

func TestSubscriptions_areAbsoluteAndListed(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		followed, muted, other := a.newPost(t, ada), a.newPost(t, ada), a.newPost(t, ada)
		a.subscribe(t, bob, followed, "following")
		a.subscribe(t, bob, muted, "following")
		a.subscribe(t, bob, muted, "muted")
		want := map[int64]string{followed.ID: "unread, following", muted.ID: "unread, muted"}
		assert.Equal(t, want, a.standingsIn(t, bob, "/v1/me/subscriptions"))
		want[other.ID] = "unread"
		assert.Equal(t, want, a.standingsIn(t, bob, "/v1/posts"))
		assert.Empty(t, a.standingsIn(t, ada, "/v1/me/subscriptions"))
		a.markRead(t, bob, followed.ID, obj{})
		assert.Equal(t, "read to 0, 0 unread, following", a.standingsIn(t, bob, "/v1/posts")[followed.ID])

		first := read[page[post]](t, a.must(t, 200, bob, "GET", "/v1/me/subscriptions?limit=1", nil))
		rest := read[page[post]](t, a.must(t, 200, bob, "GET",
			"/v1/me/subscriptions?limit=1&cursor="+*first.NextCursor, nil))
		assert.Equal(t, []int64{muted.ID, followed.ID}, []int64{first.Items[0].ID, rest.Items[0].ID})
		for range 2 {
			r := a.must(t, 200, bob, "DELETE", pathOf(muted)+"/subscription", nil)
			assert.Equal(t, `200 {"subscription":null}`, r.String())
		}
		assert.Len(t, a.standingsIn(t, bob, "/v1/me/subscriptions"), 1)

		a.refusedField(t, 422, "invalid", "level", bob, "PUT", pathOf(other)+"/subscription", obj{"level": "watching"})
		a.refusedField(t, 422, "invalid", "level", bob, "PUT", pathOf(other)+"/subscription", obj{})
		a.refused(t, 401, "unauthorized", account{}, "PUT", pathOf(other)+"/subscription", obj{"level": "muted"})
		a.must(t, 204, ada, "DELETE", pathOf(followed), nil)
		assert.Empty(t, a.standingsIn(t, bob, "/v1/me/subscriptions"))
		for _, path := range []string{pathOf(followed), "/v1/posts/9999", "/v1/posts/x"} {
			a.refused(t, 404, "not_found", bob, "PUT", path+"/subscription", obj{"level": "muted"})
			a.refused(t, 404, "not_found", bob, "DELETE", path+"/subscription", nil)
		}
	})
}

func TestFollowers_areNotifiedOnceUntilTheyRead(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob, carol, dan := a.account(t), a.account(t), a.account(t), a.account(t)
	p := a.newPost(t, ada)
	told := func(as account, want ...string) {
		t.Helper()
		a.notifyFollowers(t)
		assert.ElementsMatch(t, want, a.told(t, as))
	}
	for _, as := range []account{bob, carol, dan} {
		a.subscribe(t, as, p, "following")
	}
	item := a.newComment(t, dan, p.ID)
	told(bob, fmt.Sprintf("comment %d", item.ID))
	told(dan) // the author
	told(ada, fmt.Sprintf("reply %d", item.ID))
	a.newComment(t, dan, p.ID)
	told(bob, fmt.Sprintf("comment %d", item.ID)) // unread

	// Reading the post reads the notification, if it has been read that far.
	list := a.notifications(t, bob, "")
	require.Equal(t, dan.Name, list[0].Actor.Username)
	require.Equal(t, p.ID, list[0].Post.ID)
	a.must(t, 200, carol, "POST", "/v1/notifications/read", obj{"up_to": int64(1 << 40)})
	a.markRead(t, bob, p.ID, obj{})
	told(bob, fmt.Sprintf("comment %d read", item.ID))
	told(carol, fmt.Sprintf("comment %d read", item.ID))
	three := a.newComment(t, dan, p.ID)
	for _, as := range []account{bob, carol} {
		told(as, fmt.Sprintf("comment %d read", item.ID), fmt.Sprintf("comment %d", three.ID))
	}

	// Who has read the comment already, was notified of it otherwise, or wrote it, is not notified.
	four := read[comment](t, a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": "@" + dan.Name}))
	told(dan, fmt.Sprintf("mention %d", four.ID))
	a.markRead(t, bob, p.ID, obj{})
	a.newComment(t, carol, p.ID)
	a.markRead(t, bob, p.ID, obj{})
	told(bob, fmt.Sprintf("comment %d read", item.ID), fmt.Sprintf("comment %d read", three.ID))

	// A notification of a deleted comment is hidden, and keeps no other away.
	six := a.newComment(t, ada, p.ID)
	told(bob, fmt.Sprintf("comment %d read", item.ID), fmt.Sprintf("comment %d read", three.ID),
		fmt.Sprintf("comment %d", six.ID))
	a.must(t, 204, ada, "DELETE", pathOf(six), nil)
	seven := a.newComment(t, ada, p.ID)
	told(bob, fmt.Sprintf("comment %d read", item.ID), fmt.Sprintf("comment %d read", three.ID),
		fmt.Sprintf("comment %d", seven.ID))

	// Comments of blocked users notify nobody, nor does a comment that was deleted before its turn.
	a.markRead(t, bob, p.ID, obj{})
	before := a.told(t, bob)
	a.must(t, 200, bob, "PUT", userPath(dan)+"/block", nil)
	a.newComment(t, dan, p.ID)
	gone := a.newComment(t, carol, p.ID)
	a.must(t, 204, carol, "DELETE", pathOf(gone), nil)
	a.notifyFollowers(t)
	assert.Len(t, a.told(t, bob), len(before)-2, "those by the blocked user are hidden") // one and three
	a.must(t, 200, bob, "DELETE", pathOf(p)+"/subscription", nil)
	a.newComment(t, ada, p.ID)
	a.notifyFollowers(t)
	assert.Len(t, a.told(t, bob), len(before)-2)
}

func TestMuted_notifiesOfNothingButOutcomes(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		p := a.newPost(t, ada)
		m := a.newComment(t, ada, p.ID)
		a.subscribe(t, ada, p, "muted")
		act := func() {
			a.must(t, 201, bob, "POST", pathOf(p)+"/comments", obj{"content": "For @" + ada.Name})
			a.must(t, 201, bob, "POST", pathOf(m)+"/replies", obj{"content": "A reply"})
			a.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
			a.must(t, 200, bob, "PUT", pathOf(m)+"/like", nil)
			a.settle()
			a.notifyFollowers(t)
		}
		act()
		assert.Empty(t, a.told(t, ada))
		a.must(t, 201, ada, "POST", "/v1/reports", obj{"target_type": "post", "target_id": p.ID, "reason": "spam"})
		id := a.number(t, "SELECT id FROM report_cases")
		a.must(t, 200, a.moderator(t), "POST", fmt.Sprintf("/v1/admin/reports/%d/resolve", id),
			obj{"action": "dismissed", "note": "Fine."})
		assert.Equal(t, []string{"report 0"}, a.told(t, ada))
		a.must(t, 200, ada, "DELETE", pathOf(p)+"/subscription", nil)
		act()
		assert.Len(t, a.told(t, ada), 3, "a reply to the post, and one to the comment")
	})
}

// A comment costs the same with many followers, and a step of the job takes care of a part of them. Interrupted steps
// are repeated, and comments that come meanwhile wait for one more pass.
func TestFollowers_areNotifiedInBoundedSteps(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	p, hot := a.newPost(t, ada), a.newPost(t, ada)
	const followers = 23
	readers := a.accounts(t, followers)
	cost := func() int64 {
		before := a.statements()
		a.newComment(t, bob, hot.ID)
		return a.statements() - before
	}
	without := cost()
	for _, as := range readers {
		a.subscribe(t, as, hot, "following")
	}
	cost() // the first names the thread, and all others wait with it
	assert.LessOrEqual(t, cost(), without+1)
	a.subscribe(t, readers[0], p, "following")
	a.newComment(t, bob, p.ID)

	passed := map[int64]bool{}
	notified := int64(0)
	step := func(after int64) models.NewsStep {
		t.Helper()
		s, err := people.New(a.store).NotifyFollowers(t.Context(), after, 10, passed)
		require.NoError(t, err)
		notified += s.Notified
		return s
	}
	assert.Equal(t, models.NewsStep{PostID: p.ID, Worked: true, Begun: true, Notified: 1}, step(0))
	assert.Equal(t, models.NewsStep{PostID: hot.ID, Worked: true, Begun: true, Notified: 10}, step(p.ID))
	a.exec(t, "UPDATE thread_news SET after_user=0") // the process died before it wrote where it was
	assert.Equal(t, models.NewsStep{PostID: hot.ID, Worked: true, Notified: 0}, step(p.ID))
	late := a.newComment(t, bob, hot.ID)
	assert.EqualValues(t, 10, step(p.ID).Notified)
	assert.EqualValues(t, 3, step(p.ID).Notified)
	passed[hot.ID] = true
	assert.Equal(t, models.NewsStep{PostID: hot.ID}, step(0), "the pass for the late comment waits")
	a.must(t, 200, readers[1], "POST", "/v1/notifications/read", obj{"up_to": int64(1 << 40)})
	assert.Equal(t, "notified 1 followers", a.notifyFollowers(t))
	assert.EqualValues(t, followers+1, notified)
	assert.Contains(t, a.told(t, readers[1]), fmt.Sprintf("comment %d", late.ID))
	assert.Equal(t, int64(followers+2), a.number(t, "SELECT COUNT(*) FROM notifications WHERE kind=8"))

	// The news of a deleted post are dropped.
	a.newComment(t, bob, hot.ID)
	a.must(t, 204, ada, "DELETE", pathOf(hot), nil)
	assert.Equal(t, "notified 0 followers", a.notifyFollowers(t))
}
