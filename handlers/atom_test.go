package handlers_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mmcdole/gofeed"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/models/db"
)

const front = "https://forum.example"

// wellFormed checks that a document is well-formed XML.
func wellFormed(t testing.TB, body []byte) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(string(body))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %.2000s", err, body)
		}
	}
}

// feed reads a feed as a feed reader does.
func (a *api) feed(t testing.TB, path string) *gofeed.Feed {
	t.Helper()
	r := a.must(t, 200, account{}, "GET", path, nil)
	assert.Equal(t, "application/atom+xml; charset=utf-8", r.Header.Get("Content-Type"))
	assert.Equal(t, "public, max-age=60", r.Header.Get("Cache-Control"))
	wellFormed(t, r.Body)
	f, err := gofeed.NewParser().ParseString(string(r.Body))
	require.NoError(t, err, "%.2000s", r.Body)
	assert.Equal(t, "atom", f.FeedType)
	assert.Equal(t, front+path, f.FeedLink)
	assert.NotNil(t, f.UpdatedParsed)
	for _, e := range f.Items {
		assert.True(t, strings.HasPrefix(e.Link, front+"/posts/"), e.Link)
		assert.Equal(t, e.Link, e.GUID)
		assert.NotNil(t, e.PublishedParsed)
		assert.NotNil(t, e.UpdatedParsed)
		assert.NotEmpty(t, e.Authors)
	}
	return f
}

func titles(f *gofeed.Feed) (list []string) {
	for _, e := range f.Items {
		list = append(list, e.Title)
	}
	return list
}

func TestFeeds_holdTheNewest(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		assert.Empty(t, a.feed(t, "/v1/feeds/new").Items)
		ada, bob := a.account(t), a.account(t)
		const hard = `<b>"A & B"</b> ]]> 量子`
		posted := func(as account, title, content string, tags ...string) post {
			return read[post](t, a.must(t, 201, as, "POST", "/v1/posts",
				obj{"title": title, "content": content, "tags": tags}))
		}
		first := posted(ada, hard, "See <script>alert(1)</script> & *this* ]]> \u0001", "node.js", "c++")
		posted(bob, "Second", "[link](/posts/1)", "go")
		third := posted(ada, "Third", "Text", "node.js")
		gone := posted(ada, "Gone", "Text", "node.js")
		a.must(t, 204, ada, "DELETE", pathOf(gone), nil)

		got := a.feed(t, "/v1/feeds/new")
		assert.Equal(t, []string{"Third", "Second", hard}, titles(got))
		assert.Equal(t, "New posts on forum.example", got.Title)
		assert.Equal(t, front+"/", got.Link)
		e := got.Items[2]
		assert.Equal(t, fmt.Sprintf("%s/posts/%d", front, first.ID), e.Link)
		assert.Equal(t, ada.Name, e.Authors[0].Name)
		assert.Equal(t, []string{"node.js", "c++"}, e.Categories)
		html := read[struct {
			HTML string `json:"content_html"`
		}](t, a.must(t, 200, ada, "GET", pathOf(first), nil)).HTML
		assert.Equal(t, strings.ReplaceAll(html, "\u0001", "\uFFFD"), e.Content)
		assert.NotContains(t, e.Content, "<script")

		assert.Equal(t, []string{"Third", hard}, titles(a.feed(t, "/v1/feeds/tags/node.js")))
		assert.Equal(t, []string{hard}, titles(a.feed(t, "/v1/feeds/tags/c++")))
		ofTag := a.feed(t, "/v1/feeds/tags/"+url.PathEscape("量子"))
		assert.Equal(t, "Posts tagged 量子 on forum.example", ofTag.Title)
		byAda := a.feed(t, fmt.Sprintf("/v1/feeds/users/%d", ada.ID))
		assert.Equal(t, []string{"Third", hard}, titles(byAda))
		assert.Equal(t, fmt.Sprintf("%s/users/%d", front, ada.ID), byAda.Link)

		// A change shows at once, under another tag.
		tag := a.must(t, 200, account{}, "GET", "/v1/feeds/new", nil, plain).Header.Get("ETag")
		a.must(t, 304, account{}, "GET", "/v1/feeds/new", nil, plain, header{"If-None-Match", tag})
		a.must(t, 200, ada, "PATCH", pathOf(third), obj{"title": "Changed"}, header{"If-Match", "*"})
		assert.Equal(t, []string{"Changed", "Second", hard}, titles(a.feed(t, "/v1/feeds/new")))
		a.must(t, 200, account{}, "GET", "/v1/feeds/new", nil, plain, header{"If-None-Match", tag})

		// Everybody gets what the anonymous see.
		a.must(t, 200, bob, "PUT", userPath(ada)+"/block", nil)
		r := a.must(t, 200, bob, "GET", "/v1/feeds/new", nil)
		assert.Equal(t, string(a.must(t, 200, account{}, "GET", "/v1/feeds/new", nil).Body), string(r.Body))
	})
}

func TestFeeds_ofThreadsHoldTheLatestComments(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	item := a.newComment(t, ada, p.ID)
	reply := read[comment](t, a.must(t, 201, bob, "POST", pathOf(item)+"/replies", obj{"content": "A *reply* <&>"}))
	gone := a.newComment(t, ada, p.ID)
	a.must(t, 204, ada, "DELETE", pathOf(gone), nil)
	path := fmt.Sprintf("/v1/feeds/posts/%d", p.ID)
	f := a.feed(t, path)
	require.Len(t, f.Items, 2)
	assert.Equal(t, fmt.Sprintf("%s/posts/%d#comment-%d", front, p.ID, reply.ID), f.Items[0].Link)
	assert.Equal(t, fmt.Sprintf("%s/posts/%d#comment-%d", front, p.ID, item.ID), f.Items[1].Link)
	assert.Equal(t, "<p>A <em>reply</em> &lt;&amp;&gt;</p>\n", f.Items[0].Content)
	assert.Equal(t, fmt.Sprintf("%s/posts/%d", front, p.ID), f.Link)
	a.must(t, 204, ada, "DELETE", pathOf(p), nil)
	for _, path := range []string{path, "/v1/feeds/posts/x", "/v1/feeds/users/9999", "/v1/feeds/users/x",
		"/v1/feeds/tags/-", "/v1/feeds/tags/%FF", "/v1/sitemap/0", "/v1/sitemap/x", "/v1/sitemap/50001"} {
		a.refused(t, 404, "not_found", account{}, "GET", path, nil)
	}
}

func TestFeeds_areBounded(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	text := strings.Repeat("<&> ", 14_000) // each escape is escaped again
	for range 60 {
		a.exec(t, "INSERT INTO posts (user_id, title, content) VALUES (?,'Long',?)", ada.ID, text)
		a.exec(t, "INSERT INTO comments (post_id, user_id, content) VALUES (?,?,?)", p.ID, ada.ID, text)
	}
	for _, path := range []string{"/v1/feeds/new", fmt.Sprintf("/v1/feeds/posts/%d", p.ID)} {
		r := a.must(t, 200, account{}, "GET", path, nil)
		n := len(a.feed(t, path).Items)
		assert.LessOrEqual(t, len(r.Body), db.PageBytes+2000, path)
		assert.Greater(t, n, 1, path)
	}
	a.exec(t, "UPDATE posts SET content='Short', version=version+1")
	assert.Len(t, a.feed(t, "/v1/feeds/new").Items, 50)
}

func TestFeeds_needAPublicURL(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.PublicURL = "" })
	p := a.newPost(t, a.account(t))
	for _, path := range []string{"/v1/feeds/new", "/v1/feeds/tags/go", "/v1/feeds/users/1",
		fmt.Sprintf("/v1/feeds/posts/%d", p.ID), "/v1/sitemap.xml", "/v1/sitemap/1"} {
		a.refused(t, 404, "not_found", account{}, "GET", path, nil)
	}
}

func TestCheckPublicURL(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", front, "http://127.0.0.1:8080", "https://forum.example/community"} {
		assert.NoError(t, handlers.CheckPublicURL(good), good)
	}
	for _, bad := range []string{"forum.example", "/forum", "ftp://forum.example", "https://", "javascript:1",
		front + "/", front + "?a", front + "?", front + "#", front + "#a", front + "/a b",
		"https://a:b@forum.example", front + "/" + strings.Repeat("x", 200)} {
		assert.Error(t, handlers.CheckPublicURL(bad), bad)
	}
}

// links is a sitemap, or the index of one.
type links struct {
	XMLName xml.Name
	Pages   []struct {
		Loc     string    `xml:"loc"`
		LastMod time.Time `xml:"lastmod"`
	} `xml:",any"`
}

func (a *api) sitemap(t testing.TB, path, root string) (out links) {
	t.Helper()
	r := a.must(t, 200, account{}, "GET", path, nil)
	wellFormed(t, r.Body)
	require.NoError(t, xml.Unmarshal(r.Body, &out))
	assert.Equal(t, xml.Name{Space: "http://www.sitemaps.org/schemas/sitemap/0.9", Local: root}, out.XMLName)
	assert.Equal(t, "application/xml; charset=utf-8", r.Header.Get("Content-Type"))
	return out
}

func TestSitemap_listsEveryPost(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	assert.Empty(t, a.sitemap(t, "/v1/sitemap.xml", "sitemapindex").Pages)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, id := range []int64{1, 2, 2500, 2501, 5001} {
		a.exec(t, `
			INSERT INTO posts (id, user_id, title, content, created_at, updated_at, active_at)
			VALUES (?,?,'A title','Text',?,?,?)`, id, ada.ID, at, at, at.Add(time.Duration(id)*time.Second))
	}
	a.exec(t, "UPDATE posts SET status=2 WHERE id=2")
	want := map[string]time.Time{}
	for _, id := range []int64{1, 2500, 2501, 5001} {
		want[fmt.Sprintf("%s/posts/%d", front, id)] = at.Add(time.Duration(id) * time.Second)
	}
	got := map[string]time.Time{}
	index := a.sitemap(t, "/v1/sitemap.xml", "sitemapindex")
	require.Len(t, index.Pages, 3)
	for _, p := range index.Pages {
		path, ok := strings.CutPrefix(p.Loc, front)
		require.True(t, ok)
		for _, u := range a.sitemap(t, path, "urlset").Pages {
			assert.NotContains(t, got, u.Loc)
			got[u.Loc] = u.LastMod.UTC()
		}
	}
	assert.Equal(t, want, got)
	assert.Empty(t, a.sitemap(t, "/v1/sitemap/4", "urlset").Pages)
}
