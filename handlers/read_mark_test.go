package handlers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/models"
	"likewise/models/reader"
)

// standing is the relation of a viewer to a post, as a client decodes it from a post or from the answer to a mark.
type standing struct {
	LastRead *struct {
		CommentID *int64 `json:"comment_id"`
		At        time.Time
	} `json:"last_read"`
	UnreadCount  *int64 `json:"unread_count"`
	Subscription *string
}

// String returns what a test compares: the last comment read, the unread ones, and the subscription.
func (s standing) String() string {
	out := "unread"
	if s.LastRead != nil {
		out = fmt.Sprintf("read to %d, %d unread", valueAt(s.LastRead.CommentID), *s.UnreadCount)
	}
	if s.Subscription != nil {
		out += ", " + *s.Subscription
	}
	return out
}

func valueAt(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}

func (a *api) markRead(t testing.TB, as account, postID int64, body obj) standing {
	t.Helper()
	return read[standing](t, a.must(t, 200, as, "PUT", fmt.Sprintf("/v1/posts/%d/read", postID), body))
}

// standingsIn returns the standings of the posts of a list, by post.
func (a *api) standingsIn(t testing.TB, as account, path string) map[int64]string {
	t.Helper()
	out := map[int64]string{}
	for _, item := range read[page[struct {
		ID int64
		standing
	}]](t, a.must(t, 200, as, "GET", path, nil)).Items {
		out[item.ID] = item.String()
	}
	return out
}

func TestReadMarks_countWhatCameSince(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, carol := a.account(t), a.account(t), a.account(t)
		p, other := a.newPost(t, ada), a.newPost(t, ada)
		first := a.newComment(t, ada, p.ID)
		everywhere := func(want string) {
			t.Helper()
			lists := []string{"/v1/posts", "/v1/posts?sort=active", "/v1/posts?q=content",
				fmt.Sprintf("/v1/users/%d/posts", ada.ID), "/v1/me/bookmarks", "/v1/feed"}
			for _, path := range lists {
				assert.Equal(t, want, a.standingsIn(t, bob, path)[p.ID], path)
			}
			got := read[standing](t, a.must(t, 200, bob, "GET", pathOf(p), nil))
			assert.Equal(t, want, got.String(), "the post itself")
		}
		a.must(t, 200, bob, "PUT", pathOf(p)+"/bookmark", nil)
		a.must(t, 200, bob, "PUT", userPath(ada)+"/follow", nil)
		everywhere("unread")
		at := func(id int64, unread int) string { return fmt.Sprintf("read to %d, %d unread", id, unread) }
		assert.Equal(t, at(first.ID, 0), a.markRead(t, bob, p.ID, obj{}).String())
		everywhere(at(first.ID, 0))

		second := a.newComment(t, carol, p.ID)
		everywhere(at(first.ID, 1))
		reply := read[comment](t, a.must(t, 201, ada, "POST", pathOf(second)+"/replies", obj{"content": "A reply"}))
		everywhere(at(first.ID, 2))
		a.newComment(t, bob, p.ID) // the viewer's own
		everywhere(at(first.ID, 2))
		assert.Equal(t, at(second.ID, 1), a.markRead(t, bob, p.ID, obj{"comment_id": second.ID}).String())
		assert.Equal(t, at(second.ID, 1), a.markRead(t, bob, p.ID, obj{"comment_id": first.ID}).String(),
			"a mark moved back")
		a.must(t, 204, ada, "DELETE", pathOf(reply), nil)
		everywhere(at(second.ID, 0))
		third := a.newComment(t, carol, p.ID)
		everywhere(at(second.ID, 1))
		a.must(t, 200, bob, "PUT", userPath(carol)+"/block", nil)
		everywhere(at(second.ID, 0))
		a.must(t, 200, bob, "DELETE", userPath(carol)+"/block", nil)
		assert.Equal(t, at(third.ID, 0), a.markRead(t, bob, p.ID, obj{"comment_id": nil}).String())
		everywhere(at(third.ID, 0))

		assert.Equal(t, "unread", a.standingsIn(t, bob, "/v1/posts")[other.ID])
		assert.Equal(t, at(0, 0), a.markRead(t, bob, other.ID, obj{}).String(), "a post without comments")
		for _, as := range []account{{}, ada} {
			assert.Equal(t, map[int64]string{p.ID: "unread", other.ID: "unread"}, a.standingsIn(t, as, "/v1/posts"))
		}
	})
}

func TestReadMarks_refuseBadInput(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p, gone := a.newPost(t, ada), a.newPost(t, ada)
	foreign := a.newComment(t, ada, gone.ID)
	for _, id := range []int64{0, -1, foreign.ID, 1 << 40} {
		a.refusedField(t, 422, "invalid", "comment_id", ada, "PUT", pathOf(p)+"/read", obj{"comment_id": id})
	}
	a.refusedField(t, 400, "malformed", "comment_id", ada, "PUT", pathOf(p)+"/read", obj{"comment_id": "1"})
	a.must(t, 204, ada, "DELETE", pathOf(gone), nil)
	for _, path := range []string{pathOf(gone), "/v1/posts/9999", "/v1/posts/x"} {
		a.refused(t, 404, "not_found", ada, "PUT", path+"/read", obj{})
	}
	a.refused(t, 401, "unauthorized", account{}, "PUT", pathOf(p)+"/read", obj{})
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM read_marks"))
}

// A page costs two queries more, whatever the number of its posts, and a viewer without marks none in gated mode.
func TestReadMarks_areReadTogether(t *testing.T) {
	now := time.Now()
	a := newAPI(t, modes[1], func(c *handlers.Config) { c.Now = func() time.Time { return now } })
	ada, bob := a.account(t), a.account(t)
	var posts []post
	for range 30 {
		p := a.newPost(t, ada)
		a.newComment(t, ada, p.ID)
		posts = append(posts, p)
	}
	took := func(as account) int {
		a.must(t, 200, as, "GET", "/v1/posts?limit=30", nil)
		before := a.statements()
		a.must(t, 200, as, "GET", "/v1/posts?limit=30", nil)
		return int(a.statements() - before)
	}
	without := took(bob)
	for _, p := range posts {
		a.markRead(t, bob, p.ID, obj{})
	}
	assert.LessOrEqual(t, took(bob), without+1, "with marks that are up to date")
	for _, p := range posts {
		a.newComment(t, ada, p.ID)
	}
	assert.LessOrEqual(t, took(bob), without+2)
	for id, got := range a.standingsIn(t, bob, "/v1/posts?limit=30") {
		assert.Contains(t, got, ", 1 unread", id)
	}
}

// A mark does not end the edition of shared reads: people who read would otherwise end it all the time.
func TestReadMarks_endNoEditionButTheFirst(t *testing.T) {
	t.Parallel()
	here, there, sent := twoProcesses(t)
	ada, bob := here.account(t), here.account(t)
	p := here.newPost(t, ada)
	c := here.newComment(t, ada, p.ID)
	shows := func(want string) {
		t.Helper()
		assert.Equal(t, want, there.standingsIn(t, bob, "/v1/posts")[p.ID])
	}
	shows("unread")
	here.markRead(t, bob, p.ID, obj{})
	shows(fmt.Sprintf("read to %d, 0 unread", c.ID))
	began := time.Now()
	there.must(t, 200, bob, "GET", "/v1/posts", nil)
	sent.take()
	for range 3 {
		here.markRead(t, bob, p.ID, obj{})
		shows(fmt.Sprintf("read to %d, 0 unread", c.ID))
	}
	if reads := pageReads(sent.take()); time.Since(began) < 900*time.Millisecond { // otherwise it ended by itself
		assert.Zero(t, reads, "pages were read again")
	}
}

func TestReadMarks_areBounded(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	mark := a.markRead(t, bob, p.ID, obj{})
	require.Equal(t, "read to 0, 0 unread", mark.String())
	values := strings.Repeat(fmt.Sprintf("(%d,%d,'A comment'),", p.ID, ada.ID), models.MaxUnreadComments-1)
	a.exec(t, "INSERT INTO comments (post_id, user_id, content) VALUES "+strings.TrimSuffix(values, ","))
	assert.Equal(t, "read to 0, 999 unread", a.standingsIn(t, bob, "/v1/posts")[p.ID])
	for range 2 {
		a.newComment(t, ada, p.ID)
		assert.Equal(t, "read to 0, 1000 unread", a.standingsIn(t, bob, "/v1/posts")[p.ID])
	}
}

func TestReadMarks_arePurged(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	old, kept := a.newPost(t, ada), a.newPost(t, ada)
	for _, as := range []account{ada, bob} {
		for _, p := range []post{old, kept} {
			a.markRead(t, as, p.ID, obj{})
		}
	}
	a.exec(t, "UPDATE read_marks SET read_at=? WHERE post_id=?", time.Now().UTC().AddDate(0, 0, -366), old.ID)
	a.exec(t, "UPDATE read_marks SET read_at=? WHERE post_id=?", time.Now().UTC().AddDate(0, 0, -364), kept.ID)
	n, err := reader.New(a.store).PurgeReadMarks(t.Context(), 100)
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	assert.Equal(t, map[int64]string{old.ID: "unread", kept.ID: "read to 0, 0 unread"},
		a.standingsIn(t, bob, "/v1/posts"))
}

func TestPosts_areListedSinceATime(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		var posts []post
		begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		for i := range 6 {
			p := a.newPost(t, ada)
			a.exec(t, "UPDATE posts SET created_at=?, active_at=created_at WHERE id=?",
				begin.Add(time.Duration(i)*time.Hour), p.ID)
			posts = append(posts, p)
		}
		for _, sort := range []string{"new", "hot", "top", "active"} {
			var ids []int64
			for cursor := ""; ; {
				got := read[page[post]](t, a.must(t, 200, ada, "GET",
					"/v1/posts?limit=2&since=2026-03-01T15:00:00%2B01:00&sort="+sort+cursor, nil))
				for _, p := range got.Items {
					ids = append(ids, p.ID)
				}
				if got.NextCursor == nil {
					break
				}
				cursor = "&cursor=" + *got.NextCursor
			}
			assert.ElementsMatch(t, []int64{posts[2].ID, posts[3].ID, posts[4].ID, posts[5].ID}, ids, sort)
		}
		for _, since := range []string{"0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z"} {
			assert.Len(t, a.standingsIn(t, ada, "/v1/posts?since="+since), 6)
		}
		assert.Empty(t, a.standingsIn(t, ada, "/v1/posts?since=9999-12-31T00:00:00Z"))
		a.refusedField(t, 422, "invalid", "since", ada, "GET", "/v1/posts?since=yesterday", nil)
		a.refusedField(t, 422, "invalid", "since", ada, "GET", "/v1/posts?since=2026-03-01T00:00:00Z&window=day", nil)
	})
}

func TestUnread_listsWhatIsUnreadTheLatestFirst(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, carol, dan := a.account(t), a.account(t), a.account(t), a.account(t)
		unread := func(want ...string) {
			t.Helper()
			got := []string{}
			path := "/v1/me/unread?limit=2"
			for {
				found := read[page[struct {
					ID      int64
					Excerpt *string
					standing
				}]](t, a.must(t, 200, bob, "GET", path, nil))
				for _, item := range found.Items {
					assert.NotNil(t, item.Excerpt)
					got = append(got, fmt.Sprintf("%d: %s", item.ID, item))
				}
				if found.NextCursor == nil {
					break
				}
				path = "/v1/me/unread?limit=2&cursor=" + *found.NextCursor
			}
			assert.Equal(t, append([]string{}, want...), got)
		}
		at := func(p post, comment int64, n int, more string) string {
			return fmt.Sprintf("%d: read to %d, %d unread%s", p.ID, comment, n, more)
		}
		marked, followed, muted, other := a.newPost(t, ada), a.newPost(t, ada), a.newPost(t, ada), a.newPost(t, dan)
		unread()
		for _, p := range []post{marked, muted, other} {
			a.markRead(t, bob, p.ID, obj{})
		}
		a.subscribe(t, bob, followed, "following")
		a.subscribe(t, bob, muted, "muted")
		unread()
		write := func(as account, p post, seconds int) comment {
			t.Helper()
			c := a.newComment(t, as, p.ID)
			// Seconds apart, whatever the speed of the test.
			when := fmt.Sprintf("FROM_UNIXTIME(%d)", 1_900_000_000+seconds)
			a.exec(t, "UPDATE comments SET created_at="+when+" WHERE id=?", c.ID)
			a.exec(t, "UPDATE posts SET active_at="+when+" WHERE id=?", p.ID)
			return c
		}
		write(bob, marked, 1) // the reader's own
		write(bob, followed, 1)
		unread()
		write(carol, marked, 2)
		write(carol, followed, 3)
		write(carol, muted, 4)
		last := write(ada, other, 5)
		never := fmt.Sprintf("%d: unread, following", followed.ID)
		unread(at(other, 0, 1, ""), never, at(marked, 0, 1, ""))
		write(bob, marked, 6) // answers; the comment before is still unread
		unread(at(marked, 0, 1, ""), at(other, 0, 1, ""), never)

		a.must(t, 200, bob, "PUT", userPath(carol)+"/block", nil)
		unread(at(other, 0, 1, ""))
		a.must(t, 200, bob, "DELETE", userPath(carol)+"/block", nil)
		a.must(t, 200, bob, "PUT", userPath(dan)+"/block", nil) // the author of the post
		unread(at(marked, 0, 1, ""), never)
		a.must(t, 200, bob, "DELETE", userPath(dan)+"/block", nil)
		a.must(t, 204, ada, "DELETE", pathOf(last), nil)
		unread(at(marked, 0, 1, ""), never)
		a.must(t, 204, ada, "DELETE", pathOf(marked), nil)
		unread(never)
		mark := a.markRead(t, bob, followed.ID, obj{})
		unread()
		write(carol, followed, 7)
		unread(at(followed, *mark.LastRead.CommentID, 1, ", following"))
		a.refused(t, 401, "unauthorized", account{}, "GET", "/v1/me/unread", nil)
	})
}
