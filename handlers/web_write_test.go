//go:build web

package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// enter types a text into the field of a composer.
func (b *chrome) enter(field, text string) {
	b.t.Helper()
	encoded, err := json.Marshal(text)
	require.NoError(b.t, err)
	b.run(fmt.Sprintf(`const field = document.querySelector('[data-compose] [name=%s]'); field.value = %s;
		field.dispatchEvent(new Event('input', {bubbles: true}))`, field, encoded))
}

// press clicks the button of a composer that sends it.
func (b *chrome) press() {
	b.t.Helper()
	b.run("document.querySelector('[data-compose] .main').click()")
}

// notes waits until the composer says something of its draft.
func (b *chrome) notes(text string) {
	b.t.Helper()
	b.awaits(fmt.Sprintf("document.querySelector('[data-saved]').textContent.includes('%s')", text))
}

const composed = "document.querySelector('[data-compose] [name=%s]')?.value"

func (b *chrome) typed(field string) string {
	b.t.Helper()
	return js[string](b, fmt.Sprintf(composed, field))
}

type draftText struct {
	Key, Title, Content string
	Version             int64
}

func (s *forum) draftsOf(t *testing.T, as account) map[string]draftText {
	t.Helper()
	var page struct{ Items []draftText }
	s.must(t, 200, as, "GET", "/v1/me/drafts", nil).into(t, &page)
	drafts := map[string]draftText{}
	for _, d := range page.Items {
		drafts[d.Key] = d
	}
	return drafts
}

// A draft that was changed or deleted in another place, an outage and a lost answer stop no writer, and no text
// replaces one that its writer has not seen.
func TestWebBrowser_draftsGoOn(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	key := fmt.Sprintf("comment-%d", id)
	b := s.chrome(t, ada)
	b.open(fmt.Sprintf("/posts/%d", id))
	b.enter("content", "One")
	b.notes("Draft saved")

	s.must(t, 204, ada, "DELETE", "/v1/me/drafts/"+key, nil)
	b.enter("content", "One two")
	b.notes("Draft saved")
	assert.Equal(t, "One two", s.draftsOf(t, ada)[key].Content, "it is created again")

	s.away.Store(true)
	b.enter("content", "One two three")
	b.notes("The forum does not answer.")
	s.away.Store(false)
	b.notes("Draft saved") // without another input
	assert.Equal(t, "One two three", s.draftsOf(t, ada)[key].Content)

	s.lost.Store(true)
	b.enter("content", "One two three four")
	b.notes("The forum does not answer.")
	s.lost.Store(false)
	b.enter("content", "One two three four five")
	b.notes("Draft saved")
	assert.Equal(t, "One two three four five", s.draftsOf(t, ada)[key].Content)
	assert.Len(t, s.draftsOf(t, ada), 1, "this page saved the version that it did not know")

	at := s.draftsOf(t, ada)[key].Version
	s.must(t, 200, ada, "PUT", "/v1/me/drafts/"+key, obj{"content": "Of the telephone", "post_id": id},
		header{"If-Match", fmt.Sprintf(`"v%d"`, at)})
	b.enter("content", "Of the desk")
	b.notes("changed in another place")
	b.enter("content", "Of the desk alone")
	b.awaits("document.querySelector('[data-compose] [name=draft_version]').value === '1'")
	drafts := s.draftsOf(t, ada)
	require.Len(t, drafts, 2)
	assert.Equal(t, "Of the telephone", drafts[key].Content)
	own := b.typed("draft")
	assert.Equal(t, "Of the desk alone", drafts[own].Content)

	b.open("/drafts")
	b.run(fmt.Sprintf("document.querySelector('h2 a[href*=\"%s\"]').click()", own))
	b.awaits("location.pathname.endsWith('/comment') && document.querySelector('[data-compose]')")
	assert.Equal(t, "Of the desk alone", b.typed("content"))
	b.press()
	b.awaits("document.querySelector('.comment.focus')")
	drafts = s.draftsOf(t, ada)
	require.Len(t, drafts, 1)
	assert.Equal(t, "Of the telephone", drafts[key].Content)
}

// Posts that are written at the same time have drafts of their own. A closed tab loses nothing, and what is posted
// leaves no draft.
func TestWebBrowser_newPostsHaveDraftsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	b := s.chrome(t, ada)
	b.open("/posts/new")
	b.enter("title", "The first")
	b.notes("Draft saved")
	assert.Contains(t, js[string](b, "location.search"), "draft=post-", "reloading leads back")
	b.open(js[string](b, "location.pathname + location.search"))
	assert.Equal(t, "The first", b.typed("title"))

	other := b.tab()
	other.open("/posts/new")
	assert.Empty(t, other.typed("title"))
	other.enter("content", "Half a ")
	other.enter("title", "The second")
	other.open("/tags") // at once: the page saves it when it is left
	b.enter("tags", "go redis")
	b.notes("Draft saved")

	other.open("/posts/new")
	other.awaits("document.querySelectorAll('.note a').length === 2")
	other.run("[...document.querySelectorAll('.note a')].find((a) => a.textContent === 'The second').click()")
	other.awaits("document.querySelector('[name=title]')?.value === 'The second'")
	assert.Equal(t, "Half a ", other.typed("content"))
	other.enter("content", "Half a word") // is sent before it is saved
	other.press()
	other.awaits("document.querySelector('.post')?.innerText.includes('Half a word')")
	drafts := s.draftsOf(t, ada)
	require.Len(t, drafts, 1)
	for _, d := range drafts {
		assert.Equal(t, "The first", d.Title)
	}
	b.enter("content", "Done.")
	b.press()
	b.awaits("document.querySelector('.post .tag')?.textContent === 'go'")
	assert.Empty(t, s.draftsOf(t, ada))
}

// The text of an edit outlives its tab, is offered again on the form of the same edit, and is gone once it is saved.
func TestWebBrowser_editsHaveDrafts(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	comment := s.say(t, ada, id, nil, "A comment.")
	b := s.chrome(t, ada)
	for path, done := range map[string]string{
		fmt.Sprintf("/posts/%d", id): "location.pathname.startsWith('/posts') && document.querySelector('.post .text')",
		fmt.Sprintf("/comments/%d", comment): "location.pathname.includes('/comments/') && " +
			"document.querySelector('.comment.focus .text')",
	} {
		edit := path + "/edit"
		b.open(edit)
		before := b.typed("content")
		b.enter("content", "Half changed")
		b.open("/tags")
		require.Eventually(t, func() bool { return len(s.draftsOf(t, ada)) == 1 }, 10*time.Second, 20*time.Millisecond)
		b.open("/drafts")
		b.awaits(fmt.Sprintf("document.querySelector('h2 a[href^=\"%s\"]')", edit))
		b.open(edit)
		assert.Equal(t, "Half changed", b.typed("content"), path)
		b.run("document.querySelector('[value=discard]').click()")
		b.awaits(fmt.Sprintf(composed, "content") + " === " + fmt.Sprintf("%q", before))
		assert.Empty(t, s.draftsOf(t, ada))

		b.enter("content", "Half changed")
		b.notes("Draft saved")
		b.open(edit)
		b.enter("content", "Changed in full.")
		b.press()
		b.awaits(done + "?.innerText.includes('Changed in full.')")
		assert.Empty(t, s.draftsOf(t, ada), path)
		b.open(edit)
		assert.Equal(t, "Changed in full.", b.typed("content"))
	}

	// The draft is of a version that was replaced meanwhile, so saving it shows both.
	b.open(fmt.Sprintf("/posts/%d/edit", id))
	b.enter("content", "Of the desk")
	b.notes("Draft saved")
	s.must(t, 200, ada, "PATCH", fmt.Sprintf("/v1/posts/%d", id), obj{"content": "Of the telephone"},
		header{"If-Match", `"v1"`})
	b.open(fmt.Sprintf("/posts/%d/edit", id))
	assert.Equal(t, "Of the desk", b.typed("content"))
	b.press()
	b.awaits("document.querySelector('.other')?.innerText.includes('Of the telephone')")
	assert.Equal(t, "Of the desk", b.typed("content"))
	b.press()
	b.awaits("document.querySelector('.post .text')?.innerText.includes('Of the desk')")
	assert.Empty(t, s.draftsOf(t, ada))
}

// An edit whose answer was lost is saved: sending it again meets no conflict.
func TestWeb_anEditThatWasSavedIsNoConflict(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	at := fmt.Sprintf("/posts/%d/edit", id)
	v := s.as(t, ada)
	form := v.see(at).form("")
	form.Set("content", "Changed.")
	s.must(t, 200, ada, "PATCH", fmt.Sprintf("/v1/posts/%d", id), obj{"content": "Changed."},
		header{"If-Match", `"v0"`})
	d := v.post(at, form)
	require.Equal(t, http.StatusOK, d.status, d.text())
	d.has("Changed.").hasNot("meanwhile")
}

// After a lost answer, the same text is the same request. Another one is refused once, with words that say why.
func TestWebBrowser_lostAnswers(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	b := s.chrome(t, ada)
	b.open("/posts/new")
	b.enter("title", "A post")
	b.enter("content", "Its text.")
	s.lost.Store(true)
	b.press()
	b.awaits("document.querySelector('.problem')?.innerText.includes('Nothing that you typed is lost')")
	s.lost.Store(false)
	b.notes("Draft saved") // and the text stays the same
	b.press()
	b.awaits("document.querySelector('.post')")
	var page struct{ Items []struct{ ID int64 } }
	s.must(t, 200, ada, "GET", "/v1/posts", nil).into(t, &page)
	require.Len(t, page.Items, 1)
	id := page.Items[0].ID
	assert.Eventually(t, func() bool { return len(s.draftsOf(t, ada)) == 0 }, 10*time.Second, 20*time.Millisecond)

	comments := func() (list []string) {
		var page struct{ Items []struct{ Content string } }
		s.must(t, 200, ada, "GET", fmt.Sprintf("/v1/posts/%d/comments?flat=true&sort=old", id), nil).into(t, &page)
		for _, c := range page.Items {
			list = append(list, c.Content)
		}
		return list
	}
	b.enter("content", "A comment.")
	s.lost.Store(true)
	b.press()
	b.awaits("document.querySelector('.problem')")
	s.lost.Store(false)
	b.enter("content", "Another comment.")
	b.press()
	b.awaits("document.querySelector('.problem')?.innerText.includes('an earlier version')")
	assert.Equal(t, []string{"A comment."}, comments())
	b.press()
	b.awaits("document.querySelector('.comment')")
	assert.Equal(t, []string{"A comment.", "Another comment."}, comments())

	s.away.Store(true) // the request does not arrive
	b.enter("content", "A third.")
	b.press()
	b.awaits("document.querySelector('.problem')")
	s.away.Store(false)
	b.enter("content", "The third.")
	b.press()
	b.awaits("document.querySelectorAll('.comment').length === 2")
	assert.Equal(t, []string{"A comment.", "Another comment.", "The third."}, comments())
}

// Without scripts, a form that is sent again with another text says that the first has arrived.
func TestWeb_anotherTextWithTheSameKey(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	v := s.as(t, s.account(t))
	form := v.see("/posts/new").form("")
	form.Set("title", "A post")
	form.Set("content", "Its text.")
	s.lost.Store(true)
	d := v.post("/posts/new", form)
	assert.Equal(t, http.StatusServiceUnavailable, d.status)
	s.lost.Store(false)
	again := d.form("")
	assert.Equal(t, form.Get("key"), again.Get("key"))
	assert.Equal(t, form.Get("draft"), again.Get("draft"), "the same request")
	again.Set("content", "Another text.")
	d = v.post("/posts/new", again)
	assert.Equal(t, http.StatusUnprocessableEntity, d.status)
	d.has("You sent an earlier version of this, and it has arrived.").hasNot("Idempotency")
	d.done("").has("Another text.")
	v.see("/new").has("A post")
}

// A text may have 60,000 bytes, of which a Chinese character takes three.
func TestWebBrowser_countsBytes(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	b := s.chrome(t, ada)
	b.open("/posts/new")
	b.enter("title", "A long one")
	b.enter("content", strings.Repeat("字", 19_999)+"ab")
	b.notes("1 byte left")
	b.enter("content", strings.Repeat("字", 20_001))
	b.notes("3 bytes too many")
	b.press()
	b.awaits("document.querySelector('.problem')?.innerText.includes('content must have at most 60000 bytes')")
	b.awaits("document.querySelector('.problem code')")
	assert.Len(t, []rune(b.typed("content")), 20_001, "nothing is cut off")
	b.enter("content", strings.Repeat("字", 20_000))
	b.notes("0 bytes left")
	b.press()
	b.awaits("document.querySelector('.post')")
}

// A failure is told in the language of the page.
func TestWebBrowser_failuresInWords(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	b := s.chrome(t, ada)
	b.cookie("lang", "zh-Hans")
	b.open(fmt.Sprintf("/posts/%d", id))
	b.run("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
	b.run("document.querySelector('.like button').click()")
	b.awaits("document.querySelector('.like .wrong')?.textContent.includes('论坛没有响应')")
	b.enter("content", "A comment.")
	b.press()
	b.awaits("document.querySelector('.problem')?.textContent.includes('论坛没有响应')")
	b.notes("论坛没有响应")
}

// On a host without TLS, which has neither locks nor random UUIDs, everything works as well.
func TestWebBrowser_withoutTLS(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	id := s.publish(t, ada, "A post")
	s.base = strings.Replace(s.base, "localhost", plainHost, 1)
	b := s.chrome(t, bob)
	b.open(fmt.Sprintf("/posts/%d", id))
	require.False(t, js[bool](b, "isSecureContext"))
	b.enter("content", "The first.")
	b.notes("Draft saved")
	for i, text := range []string{"The first.", "The second."} {
		b.enter("content", text)
		b.press()
		b.awaits(fmt.Sprintf("document.querySelectorAll('.comment').length === %d", i+1))
	}
	assert.Empty(t, s.draftsOf(t, bob))
	tabs := []*chrome{b}
	for range 9 {
		tabs = append(tabs, b.tab())
	}
	for _, tab := range tabs {
		tab.open(fmt.Sprintf("/posts/%d", id))
	}
	s.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/posts/%d/like", id), nil)
	for _, tab := range tabs {
		tab.awaits("document.querySelector('.post .like .n').textContent === '1'")
	}
	tabs[9].open("/new")
	tabs[9].awaits("document.querySelector('.row')")
}

// A page that follows nothing else shows new notifications, in words, too. When the tab that reads the stream has
// crashed, another takes over. The threads that are read come before hundreds of comments.
func TestWebBrowser_everyTabIsServed(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	id := s.publish(t, ada, "A post")
	b := s.chrome(t, ada)
	b.open("/settings")
	s.say(t, bob, id, nil, "News.")
	b.awaits("document.querySelector('[data-bell]').textContent === '1'")
	assert.Equal(t, "Notifications: 1 unread", js[string](b, "document.querySelector('.bell').ariaLabel"))

	// A tab that is older than all others, and has crashed.
	b.run("new BroadcastChannel('likewise').postMessage({id: '0', want: 'new_posts=true'})")
	s.say(t, bob, id, nil, "More news.")
	b.awaits("document.querySelector('[data-bell]').textContent === '2'")

	b.run(`const want = 'comments=' + [...Array(700).keys()].map((n) => n + 1000).join();
		const channel = new BroadcastChannel('likewise');
		const speak = () => channel.postMessage({id: 'zz', want}); speak(); setInterval(speak, 1000)`)
	other := b.tab()
	other.open(fmt.Sprintf("/posts/%d/all", id))
	other.awaits("document.querySelectorAll('.comment').length === 2")
	other.run("await new Promise((r) => setTimeout(r, 1000))") // it has been told what there is
	s.say(t, bob, id, nil, "The latest news.")
	other.awaits("document.querySelector('[data-new] a')?.textContent === '1 new comment'")
	assert.Equal(t, "status", js[string](other, "document.querySelector('[data-new]').role"))
}

// cookie sets a cookie of the site.
func (b *chrome) cookie(name, value string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.SetCookie,
			network.SetCookieParams{Name: name, Value: value, URL: b.base, HTTPOnly: new(true)})
		return err
	}))
}
