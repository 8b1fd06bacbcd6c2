//go:build web

package handlers_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chrome is a browser with scripts.
type chrome struct {
	*forum

	t   *testing.T
	ctx context.Context //nolint:containedctx // a tab of chromedp is a context
	mu  sync.Mutex
	bad []string // what the browser complained about
}

// plainHost is a host without TLS, which a browser does not trust as it trusts localhost.
const plainHost = "forum.test"

// chrome opens a browser for an account; the zero account is anonymous.
func (s *forum) chrome(t *testing.T, as account) *chrome {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "make test-web installs the package chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox, // the sandbox refuses root
		chromedp.Flag("host-resolver-rules", "MAP "+plainHost+" 127.0.0.1"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, closePage := chromedp.NewContext(ctx)
	t.Cleanup(closePage)
	b := &chrome{forum: s, t: t, ctx: ctx}
	b.listen(as)
	return b
}

// tab opens another tab of the browser.
func (b *chrome) tab() *chrome {
	b.t.Helper()
	ctx, closePage := chromedp.NewContext(b.ctx)
	b.t.Cleanup(closePage)
	other := &chrome{forum: b.forum, t: b.t, ctx: ctx}
	other.listen(account{})
	return other
}

// listen notes what the browser complains about, and sets the session.
func (b *chrome) listen(as account) {
	b.t.Helper()
	said := chromedp.Console(b.ctx)
	go func() {
		for m, err := range said {
			if err != nil {
				return
			}
			if m.IsException() || m.Source == "security" || strings.Contains(m.Text, "Policy") {
				b.mu.Lock()
				b.bad = append(b.bad, m.String())
				b.mu.Unlock()
			}
		}
	}()
	b.t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.Empty(b.t, b.bad, "the browser complains")
	})
	if as.Token != "" {
		b.cookie("session", as.Token)
	}
}

func (b *chrome) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

func (b *chrome) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// js evaluates an expression in the page.
func js[T any](b *chrome, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return value
}

// run carries out a script without a result.
func (b *chrome) run(script string) {
	b.t.Helper()
	js[bool](b, "(async () => {"+script+"})().then(() => true)")
}

// awaits waits until an expression is true.
func (b *chrome) awaits(expression string) {
	b.t.Helper()
	ok := assert.Eventually(b.t, func() bool { return js[bool](b, "Boolean("+expression+")") }, 30*time.Second,
		20*time.Millisecond, expression)
	if !ok {
		b.t.Fatalf("the page has: %.3000s", js[string](b, "document.querySelector('main').innerText"))
	}
}

// A like fills the heart at once and shows the number of the answer. A failure restores both and says why.
func TestWebBrowser_likes(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	id := s.publish(t, ada, "A post")
	b := s.chrome(t, bob)
	b.open(fmt.Sprintf("/posts/%d", id))
	const button = "document.querySelector('.post .like button')"
	const count = "document.querySelector('.post .like .n').textContent"
	b.run(button + ".click()")
	b.awaits(button + ".ariaPressed === 'true' && " + count + " === '1'")
	s.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/posts/%d/like", id), nil)
	b.run(button + ".click()")
	b.awaits(button + ".ariaPressed === 'false' && " + count + " === '1'")
	b.awaits(count + " === '1'") // Ada's like is left, also if the stream is behind
	s.away.Store(true)
	b.run(button + ".click()")
	b.awaits("document.querySelector('.post .like .wrong')")
	s.away.Store(false)
	b.awaits(button + ".ariaPressed === 'false' && " + count + " === '1'")
}

// Comments and replies are sent and appear in place, once. A preview shows what a text will look like.
func TestWebBrowser_comments(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	id := s.publish(t, ada, "A post")
	first := s.say(t, ada, id, nil, "The first.")
	b := s.chrome(t, bob)
	b.open(fmt.Sprintf("/posts/%d", id))
	b.run(`const a = document.querySelector('.composer textarea'); a.value = 'Some *words*.';
		document.querySelector('.composer [value=preview]').click()`)
	b.awaits("document.querySelector('.composer [data-preview] em')")
	b.run(`const send = document.querySelector('.composer .main'); send.click(); send.click()`)
	b.awaits("document.querySelectorAll('.comment').length === 2")
	b.awaits("document.querySelector('[data-comments]').textContent === '2 comments'")
	assert.Empty(t, js[string](b, "document.querySelector('.composer textarea').value"))

	b.run(fmt.Sprintf("document.querySelector('[data-reply=\"%d\"]').click()", first))
	b.awaits(fmt.Sprintf("document.querySelector('#comment-%d .composer')", first))
	b.run(fmt.Sprintf(`const f = document.querySelector('#comment-%d .composer');
		f.querySelector('textarea').value = 'A reply.'; f.querySelector('.main').click()`, first))
	b.awaits(fmt.Sprintf("document.querySelector('#comment-%d .replies .comment')", first))
	var page struct {
		Items []struct{ Content string }
	}
	s.must(t, 200, bob, "GET", fmt.Sprintf("/v1/posts/%d/comments?flat=true", id), nil).into(t, &page)
	require.Len(t, page.Items, 3, "nothing is posted twice")

	s.lost.Store(true)
	b.run(`document.querySelector('#comments > .composer textarea').value = 'Kept.';
		document.querySelector('#comments > .composer .main').click()`)
	b.awaits("document.querySelector('#comments > .composer .problem')")
	s.lost.Store(false)
	assert.Equal(t, "Kept.", js[string](b, "document.querySelector('#comments > .composer textarea').value"))
	b.run("document.querySelector('#comments > .composer .main').click()")
	b.awaits("document.querySelectorAll('.comment').length === 4")
	s.must(t, 200, bob, "GET", fmt.Sprintf("/v1/posts/%d/comments?flat=true", id), nil).into(t, &page)
	require.Len(t, page.Items, 4, "the first request was carried out")
}

// A draft is saved while it is typed, is there after a reload, and is gone once it is posted.
func TestWebBrowser_drafts(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	b := s.chrome(t, ada)
	const area = "document.querySelector('.composer textarea')"
	b.open(fmt.Sprintf("/posts/%d", id))
	b.run(area + ".value = 'Half a'; " + area + ".dispatchEvent(new Event('input', {bubbles: true}))")
	b.awaits("document.querySelector('[data-saved]').textContent === 'Draft saved'")
	b.open(fmt.Sprintf("/posts/%d", id))
	assert.Equal(t, "Half a", js[string](b, area+".value"))
	b.run(area + ".value = 'Half a word'; " + area + ".dispatchEvent(new Event('input', {bubbles: true}))")
	b.awaits("document.querySelector('[data-saved]').textContent === 'Draft saved'")
	b.run("document.querySelector('.composer .main').click()")
	b.awaits("document.querySelector('.comment')")
	s.refused(t, 404, "not_found", ada, "GET", fmt.Sprintf("/v1/me/drafts/comment-%d", id), nil)
}

// Ten tabs of one browser, which has six connections to a host, all show what happens elsewhere, and none is blocked.
func TestWebBrowser_tabsShareAStream(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	id := s.publish(t, ada, "A post")
	b := s.chrome(t, bob)
	tabs := []*chrome{b}
	for range 9 {
		tabs = append(tabs, b.tab())
	}
	for _, tab := range tabs {
		tab.open(fmt.Sprintf("/posts/%d", id))
	}
	s.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/posts/%d/like", id), nil)
	s.say(t, ada, id, nil, "News.")
	for _, tab := range tabs {
		tab.awaits("document.querySelector('.post .like .n').textContent === '1'")
		tab.awaits("document.querySelector('[data-new] a:not([hidden])')")
	}
	tabs[9].open("/new")
	tabs[9].awaits("document.querySelector('.row')")
}

// Shortcuts move through a list and open what is chosen, and can be switched off.
func TestWebBrowser_shortcuts(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	s.publish(t, ada, "The older post")
	s.publish(t, ada, "The newer post")
	b := s.chrome(t, account{})
	b.open("/new")
	press := func(key string) {
		b.run(fmt.Sprintf("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))", key))
	}
	press("j")
	press("j")
	assert.Equal(t, "The older post", js[string](b, "document.activeElement.textContent"))
	press("?")
	b.awaits("document.querySelector('dialog').open")
	b.run("document.querySelector('[data-keys-off]').click(); document.querySelector('dialog').close()")
	press("k")
	press("o")
	assert.True(t, strings.HasSuffix(js[string](b, "location.pathname"), "/new"))
	b.run("document.querySelector('[data-keys-off]').click()")
	press("k")
	press("o")
	b.awaits("document.querySelector('h1')?.textContent === 'The newer post'")
}

// Whatever people write, nothing of it runs, and nothing is loaded from elsewhere: the browser has no complaint, and
// its title stays that of the page.
func TestWebBrowser_hostileTexts(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	mallory := s.account(t)
	hostile := strings.Join([]string{
		"<script>document.title = 'owned'</script>", "<img src=x onerror=\"document.title='owned'\">",
		"[click](javascript:document.title='owned')", "<svg onload=\"document.title='owned'\"></svg>",
		"<iframe src=\"https://evil.example/\"></iframe>", "<style>body { display: none }</style>",
		"<p style=\"position:fixed;inset:0;background:red\">over all</p>", "![](https://evil.example/pixel.png)",
		"<form action=\"https://evil.example/\"><input name=password></form>", "<base href=\"https://evil.example/\">",
		"<meta http-equiv=refresh content=\"0;url=https://evil.example/\">", "{{.Me.Email}} {{template \"page\" .}}",
		"<a href=\"data:text/html,<script>alert(1)</script>\">data</a>",
		"<details ontoggle=\"document.title='owned'\" open>",
	}, "\n\n")
	title := "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>"
	var post struct{ ID int64 }
	s.must(t, 201, mallory, "POST", "/v1/posts", obj{"title": title, "content": hostile}).into(t, &post)
	s.must(t, 200, mallory, "PATCH", "/v1/me", obj{"display_name": "<b onmouseover=alert(1)>", "bio": hostile[:400]})
	comment := s.say(t, mallory, post.ID, nil, hostile)
	b := s.chrome(t, s.account(t))
	for _, path := range []string{
		fmt.Sprintf("/posts/%d", post.ID), fmt.Sprintf("/comments/%d", comment), "/new", "/search?q=owned",
		fmt.Sprintf("/users/%d", mallory.ID), fmt.Sprintf("/comments/%d/reply?quote=1", comment),
		fmt.Sprintf("/posts/%d/revisions?version=0", post.ID), "/search?q=%3Cscript%3Ealert(1)%3C/script%3E",
		"/sign-in?next=javascript:alert(1)", fmt.Sprintf("/posts/%d/report?back=javascript:alert(1)", post.ID),
	} {
		b.open(path)
		b.run("await new Promise((r) => setTimeout(r, 100))")
		assert.NotEqual(t, "owned", js[string](b, "document.title"), path)
		assert.True(t, strings.HasPrefix(js[string](b, "location.href"), s.base), path)
		assert.Zero(t, js[int](b, `document.querySelectorAll(
			'iframe, base, object, embed, main [style], [href^="javascript:"]').length`), path)
		assert.Zero(t, js[int](b, `performance.getEntriesByType('resource')
			.filter((r) => !r.name.startsWith(location.origin)).length`), path)
	}
}
