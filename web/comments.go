package web

import (
	"html/template"
	"strings"

	"github.com/maypok86/otter/v2"
)

// A page may have hundreds of comments, and most visitors see each of them alike. So the HTML of a comment without its
// replies is kept by what it is made from. The replies are put together here.

// commentView is a comment as a viewer sees it.
type commentView struct {
	*comment

	New      bool // to the viewer
	Focus    bool // the page is about it
	First    bool // the first new one of the page
	ByAuthor bool // by the author of the post
	Member   bool // the viewer has signed in
}

// commentKey is what the HTML of a comment is made from. A version of a comment has one text.
type commentKey struct {
	id, version, likes, author            int64
	name, status, age                     string
	liked                                 bool
	can                                   commentCan
	isNew, focus, first, byAuthor, member bool
}

// maxCommentBytes bounds what is kept of comments in one language.
const maxCommentBytes = 32 << 20

func newCommentCache() (*otter.Cache[commentKey, string], error) {
	return otter.New(&otter.Options[commentKey, string]{
		MaximumWeight: maxCommentBytes,
		Weigher: func(k commentKey, html string) uint32 {
			return uint32(len(k.name) + len(html) + 256)
		},
	})
}

// commented is a page with comments.
type commented interface{ thread() *threadPage }

func (p *threadPage) thread() *threadPage { return p }

// comments returns the HTML of a page's comments. It consists of what templates have made.
func (l *language) comments(page commented) (template.HTML, error) {
	var out strings.Builder
	p := page.thread()
	for i := range p.Comments {
		if err := l.appendComment(&out, p, &p.Comments[i]); err != nil {
			return "", err
		}
	}
	return template.HTML(out.String()), nil //nolint:gosec // see above
}

func (l *language) appendComment(out *strings.Builder, p *threadPage, c *comment) error {
	own, err := l.ownHTML(p, c)
	if err != nil {
		return err
	}
	out.WriteString(own)
	if rest := c.Replies.NextCursor; rest != nil || len(c.Replies.Items) > 0 {
		out.WriteString(`<div class="replies">`)
		for i := range c.Replies.Items {
			if err := l.appendComment(out, p, &c.Replies.Items[i]); err != nil {
				return err
			}
		}
		if rest != nil {
			err := l.pages["thread"].ExecuteTemplate(out, "replies-rest", repliesRest{
				ID: c.ID, PostID: c.PostID, Cursor: *rest, Count: c.RepliesCount,
				Deep: c.Depth >= threadDepth && len(c.Replies.Items) == 0,
			})
			if err != nil {
				return err
			}
		}
		out.WriteString("</div>")
	}
	out.WriteString("</details></article>")
	return nil
}

// repliesRest is where the replies to a comment continue.
type repliesRest struct {
	ID, PostID, Count int64

	Cursor string
	Deep   bool // the page is not deep enough for any of them
}

// ownHTML returns the HTML of a comment up to its replies.
func (l *language) ownHTML(p *threadPage, c *comment) (string, error) {
	view := commentView{
		comment: c, New: p.IsNew(c), Focus: c.ID == p.Focus, First: c.ID == p.First, Member: p.Me != nil,
		ByAuthor: c.Author != nil && p.Post != nil && c.Author.ID == p.Post.Author.ID,
	}
	key := commentKey{
		id: c.ID, version: c.Version, likes: c.LikesCount, status: c.Status, liked: c.Liked,
		age: l.ago(c.CreatedAt, p.now), can: c.Can, isNew: view.New, focus: view.Focus, first: view.First,
		byAuthor: view.ByAuthor, member: view.Member,
	}
	if c.Author != nil {
		key.author, key.name = c.Author.ID, c.Author.Name()
	}
	if known, ok := l.kept.GetIfPresent(key); ok {
		return known, nil
	}
	var out strings.Builder
	if err := l.pages["thread"].ExecuteTemplate(&out, "comment", view); err != nil {
		return "", err
	}
	l.kept.Set(key, out.String())
	return out.String(), nil
}
