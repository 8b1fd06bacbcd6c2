package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The size of a thread on one page.
const (
	threadDepth = 5
	threadLimit = 100
	wholeDepth  = 10 // of one that is asked for as a whole
	wholeLimit  = 500
)

// threadPage is a post with comments.
type threadPage struct {
	view

	Post     *post
	Drops    []drop
	Comments []comment
	Sort     string
	Mode     string // "tree", "flat", "new" or "one"
	Focus    int64  // the comment that the page is about
	Next     string
	Last     int64 // the latest comment on the page
	Seen     int64 // the latest comment that the viewer had read; -1 if none is marked as new
	First    int64 // the first comment on the page that is new; 0 for none
	Whole    bool  // the page has all comments
	More     bool  // one page could have all of them
	Form     commentForm
}

// commentForm is a form for a comment.
type commentForm struct {
	Action   string
	PostID   int64
	ParentID int64
	Text     string
	Key      string // Idempotency-Key
	Draft    string // key of the draft; "" without one
	Version  int64  // of the draft
	Saved    bool   // the text is a saved draft
	Problem  *problem
}

func newCommentForm(postID, parentID int64) commentForm {
	f := commentForm{
		Action: fmt.Sprintf("/posts/%d/comments", postID), PostID: postID, ParentID: parentID, Key: newKey(),
		Draft: draftKey(postID, parentID), Version: -1,
	}
	return f
}

func draftKey(postID, parentID int64) string {
	if parentID != 0 {
		return fmt.Sprintf("reply-%d", parentID)
	}
	return fmt.Sprintf("comment-%d", postID)
}

func (f *commentForm) fill(d *draft) {
	if d != nil {
		f.Text, f.Draft, f.Version, f.Saved = d.Content, d.Key, d.Version, true
	}
}

// thread shows a post and its comments as a tree.
func (v *visit) thread() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	sort := q.Get("sort")
	if sort != "new" && sort != "top" {
		sort = "old"
	}
	var t thread
	err = v.load(v.fetch(query(at("posts", id, "thread"), "sort", sort, "depth", strconv.Itoa(threadDepth), "limit",
		strconv.Itoa(threadLimit), "cursor", v.cursor(), "include", v.included("post,drops")), &t))
	if err != nil {
		return err
	}
	p := newThreadPage(&t)
	p.Sort, p.Mode, p.Next = sort, "tree", v.next(t.NextCursor)
	p.Whole = v.cursor() == "" && t.NextCursor == nil && complete(t.Items)
	p.More = !p.Whole && p.Post.CommentsCount <= wholeLimit
	if v.cursor() == "" && sort == "old" {
		p.Canonical = v.url(fmt.Sprintf("/posts/%d", id))
	}
	p.Feed = v.url(fmt.Sprintf("/v1/feeds/posts/%d", id))
	v.show(p)
	if p.Whole {
		v.haveRead(p.Post, p.Last)
	}
	return nil
}

// whole shows all comments as a tree, up to wholeLimit.
func (v *visit) whole() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	var t thread
	err = v.load(v.fetch(query(at("posts", id, "thread"), "sort", "old", "depth", strconv.Itoa(wholeDepth), "limit",
		strconv.Itoa(wholeLimit), "include", v.included("post,drops")), &t))
	if err != nil {
		return err
	}
	next := t.NextCursor
	if next != nil || !complete(t.Items) {
		if t.Items, next, err = v.wholeTree(id); err != nil {
			return err
		}
	}
	p := newThreadPage(&t)
	p.Sort, p.Mode, p.Whole = "old", "tree", next == nil
	if next != nil {
		p.Next = fmt.Sprintf("/posts/%d/all?cursor=%s", id, url.QueryEscape(*next))
	}
	v.show(p)
	if p.Whole {
		v.haveRead(p.Post, p.Last)
	}
	return nil
}

// wholeTree reads the comments on a post in the order written, up to wholeLimit, and returns them as a tree and where
// they continue. The API cuts a tree level by level, and one that is very wide or deep has no room there.
func (v *visit) wholeTree(postID int64) ([]comment, *string, error) {
	var all []comment
	var next *string
	for len(all) < wholeLimit {
		var page list[comment]
		path := query(at("posts", postID, "comments"), "flat", "true", "sort", "old", "limit", "100", "cursor",
			deref(next))
		if err := v.fetch(path, &page)(); err != nil {
			return nil, nil, err
		}
		all = append(all, page.Items...)
		if next = page.NextCursor; next == nil {
			break
		}
	}
	return tree(all), next, nil
}

// tree returns comments in the order written as a tree. One whose parent is missing is at the top.
func tree(all []comment) []comment {
	children, present := map[int64][]comment{}, map[int64]bool{}
	for _, c := range all {
		present[c.ID] = true
	}
	for _, c := range all {
		parent := deref(c.ParentID)
		if !present[parent] {
			parent = 0
		}
		children[parent] = append(children[parent], c)
	}
	var below func(parent int64) []comment
	below = func(parent int64) []comment {
		list := children[parent]
		for i := range list {
			list[i].Replies = listOf(below(list[i].ID))
		}
		return list
	}
	return below(0)
}

func listOf(comments []comment) list[comment] { return list[comment]{Items: comments} }

// included returns what a thread includes: for who may write, also the draft, which a composer must show. Otherwise
// sending the form would delete a text that nobody has seen.
func (v *visit) included(parts string) string {
	if v.token != "" {
		parts += ",draft"
	}
	return parts
}

func newThreadPage(t *thread) *threadPage {
	p := &threadPage{Post: t.Post, Drops: t.Drops, Comments: t.Items, Seen: -1}
	if t.Post == nil {
		p.Post = &post{}
	}
	p.Named, p.About = p.Post.Title, excerpt(p.Post.Content)
	if r := p.Post.LastRead; r != nil {
		p.Seen = deref(r.CommentID)
	}
	p.Form = newCommentForm(p.Post.ID, 0)
	p.Form.fill(t.Draft)
	return p
}

// show answers with a thread.
func (v *visit) show(p *threadPage) {
	me := int64(0)
	if v.me != nil {
		me = v.me.ID
	}
	each(p.Comments, func(c *comment) {
		p.Last = max(p.Last, c.ID)
		if p.isNew(c, me) && p.First == 0 {
			p.First = c.ID
		}
	})
	id := strconv.FormatInt(p.Post.ID, 10)
	p.Live = "posts=" + id + "&threads=" + id
	for i := range p.Drops {
		if i == 0 {
			p.Live += "&drops="
		} else {
			p.Live += ","
		}
		p.Live += strconv.FormatInt(p.Drops[i].ID, 10)
	}
	v.render(http.StatusOK, "thread", p)
}

// isNew reports whether a comment was written after the viewer has last read.
func (p *threadPage) isNew(c *comment, me int64) bool {
	return p.Seen >= 0 && c.ID > p.Seen && c.Author != nil && c.Author.ID != me
}

// IsNew reports whether a comment is new to the viewer.
func (p *threadPage) IsNew(c *comment) bool {
	me := int64(0)
	if p.Me != nil {
		me = p.Me.ID
	}
	return p.isNew(c, me)
}

// each calls f with every comment of a tree, in the order of the page.
func each(comments []comment, f func(*comment)) {
	for i := range comments {
		f(&comments[i])
		each(comments[i].Replies.Items, f)
	}
}

// complete reports whether all replies are in the tree.
func complete(comments []comment) bool {
	return !slices.ContainsFunc(comments, func(c comment) bool {
		return c.Replies.NextCursor != nil || !complete(c.Replies.Items)
	})
}

// excerpt returns the beginning of a text in one line.
func excerpt(text string) string {
	const most = 200
	runes := []rune(text)
	if len(runes) > most {
		runes = append(runes[:most], '…')
	}
	for i, r := range runes {
		if r == '\n' || r == '\r' {
			runes[i] = ' '
		}
	}
	return string(runes)
}

// haveRead marks the comments on a post as read, after the answer: the reader need not wait for it. A browser that only
// fetches a page in advance has not shown it.
func (v *visit) haveRead(p *post, last int64) {
	if v.me == nil || v.r.Header.Get("Sec-Purpose") != "" ||
		p.LastRead != nil && deref(p.LastRead.CommentID) >= last {
		return
	}
	body := map[string]any{}
	if last != 0 {
		body["comment_id"] = last
	}
	mark := call{
		method: http.MethodPut, path: at("posts", p.ID, "read"), token: v.token, header: v.apiHeader(v.r, v.id),
		body: body,
	}
	ok := v.background.after(v.r.Context(), func(ctx context.Context) {
		if _, err := v.api.do(ctx, mark); err != nil {
			v.config.Log.InfoContext(ctx, "a post not marked as read", "request_id", v.id, "error", err)
		}
	})
	if !ok {
		v.config.Log.WarnContext(v.r.Context(), "a post not marked as read: too much goes on", "request_id", v.id)
	}
}

// news shows the comments that the viewer has not read, in the order written.
func (v *visit) news() error { return v.list("new") }

// flat shows all comments in the order written.
func (v *visit) flat() error { return v.list("flat") }

func (v *visit) list(mode string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	unread := ""
	if mode == "new" {
		unread = "true"
	}
	var t thread
	err = v.load(v.fetch(query(at("posts", id, "comments"), "flat", "true", "sort", "old", "unread", unread, "limit",
		"100", "cursor", v.cursor(), "include", v.included("post")), &t))
	if err != nil {
		return err
	}
	p := newThreadPage(&t)
	p.Mode, p.Sort, p.Next = mode, "old", v.next(t.NextCursor)
	v.show(p)
	if mode == "new" || t.NextCursor == nil {
		v.haveRead(p.Post, p.Last)
	}
	return nil
}

// permalink shows a comment with those that it answers, and its replies.
func (v *visit) permalink() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	about, err := strconv.ParseInt(v.r.PathValue("comment"), 10, 64)
	if err != nil || about < 1 {
		return errNotFound
	}
	var t thread
	err = v.load(v.fetch(query(at("posts", id, "thread"), "around", strconv.FormatInt(about, 10), "depth",
		strconv.Itoa(threadDepth), "include", "post"), &t))
	if err != nil {
		return err
	}
	p := newThreadPage(&t)
	p.Mode, p.Sort, p.Focus = "one", "old", about
	v.show(p)
	return nil
}

// findComment leads to a comment whose post is not known. The browser keeps the fragment of the path.
func (v *visit) findComment() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	var c comment
	if err := v.fetch(at("comments", id), &c)(); err != nil {
		return err
	}
	return v.redirect(fmt.Sprintf("/posts/%d/comments/%d", c.PostID, id))
}

// repliesPage has further replies to a comment.
type repliesPage struct {
	threadPage

	Parent comment
}

// moreReplies shows the replies to a comment that a thread had no room for.
func (v *visit) moreReplies() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	var replies list[comment]
	var parent comment
	sort := v.r.URL.Query().Get("sort")
	err = v.load(
		v.fetch(query(at("comments", id, "replies"), "limit", "100", "sort", sort, "cursor", v.cursor()), &replies),
		v.fetch(at("comments", id), &parent),
	)
	if err != nil {
		return err
	}
	p := &repliesPage{Parent: parent}
	p.Post, p.Comments, p.Mode, p.Seen = &post{ID: parent.PostID}, replies.Items, "replies", -1
	p.Next, p.Title = v.next(replies.NextCursor), "Replies"
	if v.scripted() {
		v.fragment(http.StatusOK, "replies", "comments", p)
		return nil
	}
	v.render(http.StatusOK, "replies", p)
	return nil
}

type revisionsPage struct {
	view

	Kind      string // posts or comments
	ID        int64
	Revisions []revision
	Shown     *revision
	Next      string
}

// revisions lists the versions of a text, and shows the one in ?version=.
func (v *visit) revisions(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &revisionsPage{Kind: kind, ID: id}
	p.Title = "Versions"
	var page list[revision]
	fetches := []func() error{
		v.fetch(query(at(kind, id, "revisions"), "limit", "50", "cursor", v.cursor()), &page),
	}
	if n, err := strconv.ParseInt(v.r.URL.Query().Get("version"), 10, 64); err == nil && n >= 0 {
		p.Shown = &revision{}
		fetches = append(fetches, v.fetch(at(kind, id, "revisions", n), p.Shown))
	}
	if err := v.load(fetches...); err != nil {
		return err
	}
	p.Revisions, p.Next = page.Items, v.next(page.NextCursor)
	v.render(http.StatusOK, "revisions", p)
	return nil
}

type peoplePage struct {
	view

	Heading string
	People  []listedUser
	Next    string
	Empty   string
	Blocks  bool // whom the viewer blocks
}

// likers lists who likes a post or a comment.
func (v *visit) likers(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	return v.people(at(kind, id, "likes"), "Likes", "Nobody likes it yet.")
}

// follows lists the followers of a user, or whom the user follows.
func (v *visit) follows(which string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	heading := "Followers"
	if which == "following" {
		heading = "Following"
	}
	return v.people(at("users", id, which), heading, "Nobody yet.")
}

func (v *visit) people(path, heading, empty string) error {
	var page list[listedUser]
	if err := v.load(v.fetch(query(path, "limit", "100", "cursor", v.cursor()), &page)); err != nil {
		return err
	}
	p := &peoplePage{Heading: heading, People: page.Items, Next: v.next(page.NextCursor), Empty: empty}
	p.Title, p.Blocks = heading, v.r.URL.Path == "/settings/blocks"
	v.render(http.StatusOK, "people", p)
	return nil
}

type profilePage struct {
	view

	User user
	Tab  string
	Next string
}

// profile shows a user, by id or by name, with posts or comments.
func (v *visit) profile() error {
	name := v.r.PathValue("name")
	p := &profilePage{Tab: "posts"}
	if v.r.URL.Path == "/users/"+name+"/comments" {
		p.Tab = "comments"
	}
	by, cursor := at("users", name), v.cursor()
	if _, err := strconv.ParseInt(name, 10, 64); err != nil {
		by = at("users", "by-name", name)
	}
	posts, comments := &list[post]{}, &list[titledComment]{}
	var err error
	switch {
	case cursor == "":
		p.User.Posts, p.User.Comments = posts, comments
		err = v.load(v.fetch(query(by, "include", p.Tab), &p.User))
	case by != at("users", name): // a link that nobody has given out: a page that goes on has the id
		if err = v.fetch(by, &p.User)(); err == nil {
			return v.redirect(query(p.path(), "cursor", cursor))
		}
	case p.Tab == "posts":
		err = v.load(v.fetch(by, &p.User), v.fetch(query(at("users", name, "posts"), "cursor", cursor), posts))
	default:
		err = v.load(v.fetch(by, &p.User), v.fetch(query(at("users", name, "comments"), "cursor", cursor), comments))
	}
	if moved, ok := errors.AsType[*movedError](err); ok { // a former username
		return v.redirect(strings.Replace(v.r.URL.Path, "/users/"+name, "/users/"+moved.name(), 1))
	}
	if err != nil {
		return err
	}
	if cursor != "" { // not before: the fetches run at the same time, and one of them writes the user
		p.User.Posts, p.User.Comments = posts, comments
	}
	next := p.User.Posts.NextCursor
	if p.Tab == "comments" {
		next = p.User.Comments.NextCursor
	}
	if next != nil {
		p.Next = query(p.path(), "cursor", *next)
	}
	p.Named, p.About = p.User.Name(), excerpt(p.User.Bio)
	p.Canonical = v.url("/users/" + strconv.FormatInt(p.User.ID, 10))
	p.Feed = v.url("/v1/feeds/users/" + strconv.FormatInt(p.User.ID, 10))
	v.render(http.StatusOK, "profile", p)
	return nil
}

// path returns the path of the page by the user's id.
func (p *profilePage) path() string {
	path := "/users/" + strconv.FormatInt(p.User.ID, 10)
	if p.Tab == "comments" {
		path += "/comments"
	}
	return path
}
