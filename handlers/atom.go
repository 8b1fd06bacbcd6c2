package handlers

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

// Feeds and the sitemap are for programs that do not log in: everybody gets what the anonymous see. Their links lead to
// the pages of the front end, whose URL is Config.PublicURL.

// maxPublicURL is the length of Config.PublicURL, in bytes. Every link contains it.
const maxPublicURL = 200

// CheckPublicURL returns an error unless the URL is absolute and can be put before a path; "" is none.
func CheckPublicURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(s, "/") || strings.HasSuffix(s, "#") ||
		strings.HasSuffix(s, "?") || len(s) > maxPublicURL || u.String() != s {
		return fmt.Errorf("%q is not of the form https://HOST or https://HOST/PATH, without a slash at its end", s)
	}
	return nil
}

// publicURL is the URL of the front end; "" if it is not configured.
type publicURL string

// host returns the host, which names the site.
func (p publicURL) host() string {
	u, err := url.Parse(string(p))
	if err != nil {
		return ""
	}
	return u.Host
}

// siteName returns the name of a site that has no other: its host, as people know it.
func (p publicURL) siteName() string {
	if u, err := url.Parse(string(p)); err == nil && u.Hostname() != "localhost" && u.Hostname() != "" {
		return u.Hostname()
	}
	return "Likewise"
}

// isOn reports whether a request with this Host was sent to the public URL. Some proxies leave out the port.
func (p publicURL) isOn(host string) bool {
	public := strings.ToLower(p.host())
	host = strings.ToLower(host)
	return host == public || host == hostname(public)
}

func (p publicURL) home() string { return string(p) + "/" }

func (p publicURL) post(id int64) string { return string(p) + "/posts/" + strconv.FormatInt(id, 10) }

func (p publicURL) user(id int64) string { return string(p) + "/users/" + strconv.FormatInt(id, 10) }

func (p publicURL) tag(name string) string { return string(p) + "/tags/" + url.PathEscape(name) }

func (p publicURL) comment(postID, id int64) string {
	return p.post(postID) + "#comment-" + strconv.FormatInt(id, 10)
}

// errNoPublicURL is the answer of feeds and sitemaps of a site without a public URL.
func errNoPublicURL() error {
	return models.Errorf(models.CodeNotFound, "The operator of this site has not set --public-url, so it has no feeds.")
}

const (
	mimeAtom = "application/atom+xml; charset=utf-8"
	mimeXML  = "application/xml; charset=utf-8"

	// feedEntries is the number of entries of a feed. A feed ends earlier at db.PageBytes.
	feedEntries = 50
	feedAge     = "public, max-age=60"
	sitemapAge  = "public, max-age=3600"
)

// The elements of a feed (RFC 4287).
type (
	atomLink struct {
		Rel  string `xml:"rel,attr"`
		Type string `xml:"type,attr,omitempty"`
		Href string `xml:"href,attr"`
	}
	atomText struct {
		Type string `xml:"type,attr"`
		Text string `xml:",chardata"`
	}
	atomAuthor struct {
		Name string `xml:"name"`
		URI  string `xml:"uri"`
	}
	atomCategory struct {
		Term string `xml:"term,attr"`
	}
	atomEntry struct {
		XMLName    xml.Name       `xml:"entry"`
		ID         string         `xml:"id"`
		Title      string         `xml:"title"`
		Link       atomLink       `xml:"link"`
		Author     atomAuthor     `xml:"author"`
		Published  atomTime       `xml:"published"`
		Updated    atomTime       `xml:"updated"`
		Categories []atomCategory `xml:"category"`
		Content    atomText       `xml:"content"`
	}
	atomHead struct {
		XMLName xml.Name   `xml:"http://www.w3.org/2005/Atom feed"`
		Base    string     `xml:"xml:base,attr"`
		ID      string     `xml:"id"`
		Title   string     `xml:"title"`
		Updated atomTime   `xml:"updated"`
		Links   []atomLink `xml:"link"`
	}
)

// atomTime is a time in UTC.
type atomTime time.Time

func (t atomTime) MarshalText() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format(time.RFC3339)), nil
}

// feed is a feed under construction.
type feed struct {
	path  string // of the feed itself
	page  string // of the front end
	title string
	// Each entry is read when its turn comes, so that none is rendered that does not fit.
	entries int
	entry   func(i int) (atomEntry, error)
}

// encode returns the feed as XML: the entries that fit in db.PageBytes, and at least one.
func (f feed) encode(base publicURL) ([]byte, error) {
	var entries bytes.Buffer
	var updated time.Time
	for i := range f.entries {
		e, err := f.entry(i)
		if err != nil {
			return nil, err
		}
		text, err := xml.Marshal(e)
		if err != nil {
			return nil, fmt.Errorf("encode an entry of a feed: %w", err)
		}
		if i > 0 && entries.Len()+len(text) > db.PageBytes {
			break
		}
		entries.Write(text)
		entries.WriteByte('\n')
		if at := time.Time(e.Updated); at.After(updated) {
			updated = at
		}
	}
	if updated.IsZero() {
		updated = time.Unix(0, 0) // an empty feed was never updated
	}
	head, err := xml.Marshal(atomHead{
		Base: base.home(), ID: string(base) + f.path, Title: f.title, Updated: atomTime(updated),
		Links: []atomLink{
			{Rel: "self", Type: "application/atom+xml", Href: string(base) + f.path},
			{Rel: "alternate", Type: "text/html", Href: f.page},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode a feed: %w", err)
	}
	const end = "</feed>"
	head = bytes.TrimSuffix(head, []byte(end))
	return bytes.Join([][]byte{[]byte(xml.Header), head, []byte("\n"), entries.Bytes(), []byte(end)}, nil), nil
}

// replyXML answers with a document that is the same for everybody, and that requests of the same edition share. Unlike
// other answers, it can be kept by any cache for a while.
func (s *Server) replyXML(
	c *fiber.Ctx, name, contentType, age string, build func(context.Context) ([]byte, error),
) error {
	if s.publicURL == "" {
		return errNoPublicURL()
	}
	body, err := readShared(c, s, name, func(ctx context.Context) ([]byte, error) {
		body, err := build(ctx)
		if err == nil {
			err = db.Spend(ctx, len(body))
		}
		return body, err
	})
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, contentType)
	c.Set(fiber.HeaderCacheControl, age)
	c.Response().SetBodyRaw(body)
	return nil
}

func (s *Server) replyFeed(c *fiber.Ctx, name string, read func(context.Context) (feed, error)) error {
	return s.replyXML(c, "feed:"+name, mimeAtom, feedAge, func(ctx context.Context) ([]byte, error) {
		f, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return f.encode(s.publicURL)
	})
}

// postFeed adds the newest posts that match q to a feed.
func (s *Server) postFeed(ctx context.Context, f feed, q content.PostQuery) (feed, error) {
	q.Sort, q.View, q.Limit = models.PostsNew, content.ViewFull, feedEntries
	found, err := s.content.ListPosts(ctx, q)
	if err != nil {
		return feed{}, err
	}
	f.entries = len(found.Posts)
	//nolint:contextcheck // rendering needs no deadline: its cost is bounded
	f.entry = func(i int) (atomEntry, error) { return s.postEntry(&found.Posts[i]) }
	return f, nil
}

func (s *Server) postEntry(p *models.Post) (atomEntry, error) {
	html, err := s.markdown.HTML(postTarget(p.ID), p.Version, p.Content)
	link := s.publicURL.post(p.ID)
	e := atomEntry{
		ID: link, Title: p.Title, Link: atomLink{Rel: "alternate", Href: link}, Author: s.atomAuthor(p.Author),
		Published: atomTime(p.CreatedAt), Updated: atomTime(p.UpdatedAt), Content: atomText{"html", html},
	}
	for _, tag := range p.Tags {
		e.Categories = append(e.Categories, atomCategory{tag})
	}
	return e, err
}

func (s *Server) commentEntry(p *models.Post, m *models.Comment) (atomEntry, error) {
	html, err := s.markdown.HTML(commentTarget(m.ID), m.Version, m.Content)
	link, author := s.publicURL.comment(p.ID, m.ID), s.atomAuthor(m.Author)
	return atomEntry{
		ID: link, Title: author.Name + ": " + p.Title, Link: atomLink{Rel: "alternate", Href: link}, Author: author,
		Published: atomTime(m.CreatedAt), Updated: atomTime(m.UpdatedAt), Content: atomText{"html", html},
	}, err
}

func (s *Server) atomAuthor(a models.Author) atomAuthor {
	name := a.Username
	if a.DisplayName != nil {
		name = *a.DisplayName
	}
	return atomAuthor{name, s.publicURL.user(a.ID)}
}

// feedNew is the feed of the newest posts.
func (s *Server) feedNew(c *fiber.Ctx) error {
	return s.replyFeed(c, "new", func(ctx context.Context) (feed, error) {
		f := feed{path: "/v1/feeds/new", page: s.publicURL.home(), title: "New posts on " + s.publicURL.host()}
		return s.postFeed(ctx, f, content.PostQuery{})
	})
}

// feedTag is the feed of the newest posts with a tag.
func (s *Server) feedTag(c *fiber.Ctx) error {
	name, err := url.PathUnescape(c.Params("tag"))
	if err != nil {
		return fiber.ErrNotFound
	}
	tag := models.NormalTag(name)
	if !models.ValidTag(tag) {
		return models.Errorf(models.CodeNotFound, "There is no such tag.")
	}
	return s.replyFeed(c, "tag="+tag, func(ctx context.Context) (feed, error) {
		f := feed{
			path: "/v1/feeds/tags/" + url.PathEscape(tag), page: s.publicURL.tag(tag),
			title: "Posts tagged " + tag + " on " + s.publicURL.host(),
		}
		return s.postFeed(ctx, f, content.PostQuery{Tag: tag})
	})
}

// feedUser is the feed of the newest posts of a user.
func (s *Server) feedUser(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	return s.replyFeed(c, fmt.Sprintf("user=%d", id), func(ctx context.Context) (feed, error) {
		user, err := s.accounts.UserByID(ctx, id)
		if err != nil {
			return feed{}, err
		}
		author := s.atomAuthor(models.Author{ID: id, Username: user.Username, DisplayName: user.DisplayName})
		f := feed{
			path: "/v1/feeds/users/" + strconv.FormatInt(id, 10), page: author.URI,
			title: "Posts by " + author.Name + " on " + s.publicURL.host(),
		}
		return s.postFeed(ctx, f, content.PostQuery{AuthorID: id})
	})
}

// feedThread is the feed of the latest comments on a post.
func (s *Server) feedThread(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	return s.replyFeed(c, fmt.Sprintf("post=%d", id), func(ctx context.Context) (feed, error) {
		post, err := s.content.PostByID(ctx, 0, id)
		if err != nil {
			return feed{}, err
		}
		comments, err := s.content.LatestComments(ctx, id, feedEntries)
		if err != nil {
			return feed{}, err
		}
		return feed{
			path: "/v1/feeds/posts/" + strconv.FormatInt(id, 10), page: s.publicURL.post(id),
			title: "Comments on " + post.Title, entries: len(comments),
			//nolint:contextcheck // as in postFeed
			entry: func(i int) (atomEntry, error) { return s.commentEntry(post, &comments[i]) },
		}, nil
	})
}
