package web

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// newKey returns an Idempotency-Key.
func newKey() string { return rand.Text() }

// keyAfter returns the key for sending a form again after p. A request whose outcome is not known must not be carried
// out twice, so its key stays, even if the text changes: then the API refuses the key if the first text was posted.
// After a refusal another text needs another key.
func keyAfter(key string, p *problem) string {
	if key != "" && (p.uncertain() || p.Code == codeKeyInUse) {
		return key
	}
	return newKey()
}

// postForm is the form for a post.
type postForm struct {
	view

	ID      int64 // 0 for a new post
	Heading string
	Text    string // Markdown
	Subject string // the title of the post
	Tags    string // separated by spaces or commas
	Key     string
	Draft   string  // the key of the draft
	Saved   bool    // the text is that of the draft
	Drafted int64   // the version of the draft; -1 for none
	Version int64   // that is edited
	Others  []draft // of new posts, which can be continued
	Problem *problem
	Now     *post // the version that somebody else has saved meanwhile
	Comment bool  // a comment is edited
	Over    *comment
	PostID  int64
	Preview string // HTML
}

// newPost shows the form for a post: empty with a draft of its own, or filled from the draft in ?draft=.
func (v *visit) newPost() error {
	p := newPostForm()
	var page list[draft]
	var d draft
	more := v.optional(v.fetch("/v1/me/drafts?limit=50", &page))
	if key := v.r.URL.Query().Get("draft"); key != "" {
		more = v.fetchDraft(key, &d)
	}
	if err := v.load(more); err != nil {
		return err
	}
	p.fill(&d)
	for _, other := range page.Items {
		if other.ofNewPost() {
			p.Others = append(p.Others, other)
		}
	}
	v.render(http.StatusOK, "post_form", p)
	return nil
}

func newPostForm() *postForm {
	p := &postForm{Heading: "Write a post", Key: newKey(), Draft: "post-" + rand.Text(), Drafted: -1}
	p.Title = p.Heading
	return p
}

// fill shows a draft; d has no key if there is none.
func (p *postForm) fill(d *draft) {
	if d.Key != "" {
		p.Subject, p.Text, p.Tags = d.Title, d.Content, strings.Join(d.Tags, " ")
		p.Draft, p.Drafted, p.Saved = d.Key, d.Version, true
	}
}

// sent fills the form with what was sent.
func (p *postForm) sent(f url.Values) {
	p.Subject, p.Text, p.Tags, p.Key = f.Get("title"), newlines(f.Get("content")), f.Get("tags"), f.Get("key")
	p.Draft, p.Drafted = f.Get("draft"), draftVersion(f)
}

// sentDraft returns the key of the draft that a form was filled from or has saved, and which its text replaces; nil for
// none.
func sentDraft(f url.Values) any {
	if key := f.Get("draft"); key != "" {
		return key
	}
	return nil
}

// draftVersion returns the version of the draft that a form has saved; -1 for none.
func draftVersion(f url.Values) int64 {
	n, err := strconv.ParseInt(f.Get("draft_version"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// splitTags returns the tags in a line.
func splitTags(line string) []string {
	tags := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(", \t，、", r) })
	for i, tag := range tags {
		tags[i] = strings.TrimPrefix(tag, "#") // c# is a tag
	}
	return tags
}

func (v *visit) createPost() error {
	f := v.r.PostForm
	p := newPostForm()
	p.sent(f)
	if f.Get("do") == "preview" {
		return v.previewPost(p)
	}
	var made post
	err := v.send(http.MethodPost, "/v1/posts", map[string]any{
		"title": p.Subject, "content": p.Text, "tags": splitTags(p.Tags), "draft": sentDraft(f),
	}, &made, "Idempotency-Key", p.Key)
	if err == nil {
		return v.written(fmt.Sprintf("/posts/%d", made.ID))
	}
	p.Problem = problemOf(err)
	p.Key = keyAfter(p.Key, p.Problem)
	switch {
	case v.scripted():
		v.w.Header().Set("X-Next-Key", p.Key)
		return v.plainProblem(err)
	case expired(err):
		return err
	}
	v.again(p.Problem)
	v.render(p.Problem.Status, "post_form", p)
	return nil
}

// written leads to what a form has written: a script by the header alone, so that it can still show a failure itself.
func (v *visit) written(path string) error {
	if !v.scripted() {
		return v.redirect(path)
	}
	v.w.Header().Set("Location", path)
	v.w.WriteHeader(http.StatusCreated)
	return nil
}

var errBadForm = &problem{Status: http.StatusBadRequest, Code: "malformed", Detail: "The form could not be read."}

// newlines turns the line ends of a form into those of the texts.
func newlines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// expired reports whether the session has ended, so that fail asks to sign in and keeps the form.
func expired(err error) bool { return problemOf(err).Status == http.StatusUnauthorized }

// again prepares showing a form again: with the header of the account, if the API answers.
func (v *visit) again(p *problem) {
	if p.RetryAfter > 0 {
		v.w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if left(v.r.Context()) {
		return
	}
	if p.uncertain() {
		v.config.Log.WarnContext(v.r.Context(), "form not saved", "request_id", v.id, "path", v.r.URL.Path, "error", p)
		return
	}
	_ = v.load() // without it, the page has no menu of the account
}

func (v *visit) previewPost(p *postForm) error {
	var out struct {
		ContentHTML string `json:"content_html"`
	}
	err := v.send(http.MethodPost, "/v1/render", map[string]any{"content": p.Text}, &out)
	if expired(err) && err != nil {
		return err
	}
	status := http.StatusOK
	if err != nil {
		p.Problem = problemOf(err)
		status = p.Problem.Status
	}
	p.Preview = out.ContentHTML
	_ = v.load()
	v.render(status, "post_form", p)
	return nil
}

// preview answers a script with a rendered text.
func (v *visit) preview() error {
	var out struct {
		ContentHTML string `json:"content_html"`
	}
	content := newlines(v.r.FormValue("content"))
	if err := v.send(http.MethodPost, "/v1/render", map[string]any{"content": content}, &out); err != nil {
		return v.plainProblem(err)
	}
	v.fragment(http.StatusOK, "post_form", "preview", &postForm{Preview: out.ContentHTML})
	return nil
}

func (v *visit) createComment() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	f := v.r.PostForm
	parent, _ := strconv.ParseInt(f.Get("parent_id"), 10, 64)
	form := newCommentForm(id, parent)
	form.Text, form.Key = newlines(f.Get("content")), f.Get("key")
	if key := f.Get("draft"); key != "" {
		form.Draft, form.Version, form.Saved = key, draftVersion(f), true
	}
	if f.Get("do") == "preview" {
		return v.previewComment(&form)
	}
	body := map[string]any{"content": form.Text, "draft": sentDraft(f)}
	if parent != 0 {
		body["parent_id"] = parent
	}
	var made comment
	err = v.send(http.MethodPost, at("posts", id, "comments"), body, &made, "Idempotency-Key", form.Key)
	switch {
	case err != nil && v.scripted():
		v.w.Header().Set("X-Next-Key", keyAfter(form.Key, problemOf(err)))
		return v.plainProblem(err)
	case err != nil && expired(err):
		return err
	case err != nil:
		form.Problem = problemOf(err)
		form.Key = keyAfter(form.Key, form.Problem)
		v.again(form.Problem)
		v.renderCommentForm(form.Problem.Status, form, "")
		return nil
	case v.scripted():
		p := &threadPage{Post: &post{ID: id}, Comments: []comment{made}, Seen: -1, Mode: "tree"}
		v.me = &account{author: deref(made.Author)}
		v.w.Header().Set("Location", commentPath(made.ID))
		v.w.Header().Set("X-Comments", strconv.FormatInt(made.PostComments, 10))
		v.fragment(http.StatusCreated, "thread", "comments", p)
		return nil
	}
	return v.redirect(commentPath(made.ID))
}

// commentPath returns the page of a comment, at the comment.
func commentPath(id int64) string { return fmt.Sprintf("/comments/%d#comment-%d", id, id) }

type commentPageForm struct {
	view

	Form    commentForm
	Parent  *comment
	Preview string
}

func (v *visit) previewComment(form *commentForm) error {
	var out struct {
		ContentHTML string `json:"content_html"`
	}
	if err := v.send(http.MethodPost, "/v1/render", map[string]any{"content": form.Text}, &out); err != nil {
		if expired(err) {
			return err
		}
		form.Problem = problemOf(err)
	}
	_ = v.load()
	v.renderCommentForm(http.StatusOK, *form, out.ContentHTML)
	return nil
}

func (v *visit) renderCommentForm(status int, form commentForm, preview string) {
	p := &commentPageForm{Form: form, Preview: preview}
	p.Title = "Comment"
	if form.ParentID != 0 {
		var c comment
		if err := v.fetch(at("comments", form.ParentID), &c)(); err == nil {
			p.Parent = &c
		} else {
			v.without("the comment that is answered", err)
		}
	}
	v.render(status, "comment_form", p)
}

// commentOnPost is a page for a comment, which goes on with the draft in ?draft=.
func (v *visit) commentOnPost() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &commentPageForm{Form: newCommentForm(id, 0)}
	p.Title = "Comment"
	return v.showCommentForm(p, v.fetch(at("posts", id), nil))
}

// replyForm is a page for a reply, for browsers without scripts.
func (v *visit) replyForm() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &commentPageForm{Form: newCommentForm(0, id), Parent: &comment{}}
	p.Title = "Reply"
	return v.showCommentForm(p, v.fetch(at("comments", id), p.Parent))
}

// showCommentForm shows a form for a comment on what about reads.
func (v *visit) showCommentForm(p *commentPageForm, about func() error) error {
	key := cmp.Or(v.r.URL.Query().Get("draft"), p.Form.Draft)
	var d draft
	if err := v.load(about, v.fetchDraft(key, &d)); err != nil {
		return err
	}
	if p.Parent != nil {
		p.Form = newCommentForm(p.Parent.PostID, p.Parent.ID)
	}
	if d.Key != "" {
		p.Form.fill(&d)
	}
	if v.r.URL.Query().Get("quote") != "" && p.Form.Text == "" && p.Parent != nil {
		p.Form.Text = quote(p.Parent.Content)
	}
	v.render(http.StatusOK, "comment_form", p)
	return nil
}

// quote returns a text as a quotation in Markdown.
func quote(text string) string {
	return "> " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n> ") + "\n\n"
}

// editForm shows a form with a text, or with the draft of its edit. The draft may be of an earlier version, which was
// replaced meanwhile: then saving it shows both.
func (v *visit) editForm(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := newEditForm(kind, id)
	var page list[draft]
	asked := draft{Key: v.r.URL.Query().Get("draft")}
	drafts := v.optional(v.fetch("/v1/me/drafts?limit=50", &page))
	if asked.edits(kind, id) >= 0 {
		page.Items = make([]draft, 1)
		drafts = v.fetchDraft(asked.Key, &page.Items[0])
	}
	if err := v.load(v.readEdited(p), drafts); err != nil {
		return err
	}
	now := p.Version
	p.Draft, p.Drafted = fmt.Sprintf("edit-%s-%d-%d", kind, id, now), -1
	for _, d := range page.Items {
		if version := d.edits(kind, id); version >= 0 && (!p.Saved || version == now) {
			p.fill(&d)
			p.Version = version
		}
	}
	v.render(http.StatusOK, "post_form", p)
	return nil
}

func newEditForm(kind string, id int64) *postForm {
	p := &postForm{ID: id, Heading: "Edit", Comment: kind == "comments"}
	p.Title = p.Heading
	return p
}

// readEdited returns a fetch of the text that a form edits, as it is now.
func (v *visit) readEdited(p *postForm) func() error {
	return func() error {
		if p.Comment {
			var c comment
			err := v.fetch(at("comments", p.ID), &c)()
			p.Text, p.Version, p.PostID = c.Content, c.Version, c.PostID
			return err
		}
		var old post
		err := v.fetch(at("posts", p.ID), &old)()
		p.Subject, p.Text, p.Tags, p.Version = old.Title, old.Content, strings.Join(old.Tags, " "), old.Version
		return err
	}
}

// edit saves a text. If somebody else has saved another version meanwhile, the form shows both.
func (v *visit) edit(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	f := v.r.PostForm
	p := newEditForm(kind, id)
	p.sent(f)
	p.Key = ""
	p.Version, _ = strconv.ParseInt(f.Get("version"), 10, 64)
	path := fmt.Sprintf("/posts/%d", id)
	if p.Comment {
		path = commentPath(id)
	}
	switch f.Get("do") {
	case "preview":
		return v.previewPost(p)
	case "discard":
		v.dropDraft(p.Draft)
		return v.redirect(v.r.URL.Path)
	}
	body := map[string]any{"content": p.Text}
	if !p.Comment {
		body["title"], body["tags"] = p.Subject, splitTags(p.Tags)
	}
	err = v.send(http.MethodPatch, at(kind, id), body, nil, "If-Match", etag(p.Version))
	p.Problem = problemOf(err)
	if err != nil && p.Problem.Status == http.StatusPreconditionFailed {
		now := newEditForm(kind, id)
		if v.readEdited(now)() == nil && now.equal(p) { // an earlier request has saved it, and its answer was lost
			err = nil
		}
	}
	switch {
	case err == nil:
		v.dropDraft(p.Draft)
		return v.written(path)
	case v.scripted():
		return v.plainProblem(err)
	case expired(err):
		return err
	case p.Problem.Status == http.StatusPreconditionFailed:
		v.conflicting(p, kind)
	}
	v.again(p.Problem)
	v.render(p.Problem.Status, "post_form", p)
	return nil
}

// equal reports whether two forms have the same text.
func (p *postForm) equal(other *postForm) bool {
	return p.Subject == other.Subject && p.Text == other.Text &&
		slices.Equal(splitTags(p.Tags), splitTags(other.Tags))
}

// dropDraft deletes the draft of an edit that was saved or given up. If that fails, the draft stays in the list.
func (v *visit) dropDraft(key string) {
	if key == "" {
		return
	}
	if err := v.send(http.MethodDelete, at("me", "drafts", key), nil, nil); err != nil {
		v.config.Log.InfoContext(v.r.Context(), "a draft not deleted", "request_id", v.id, "error", err)
	}
}

// conflicting adds the version that was saved meanwhile. Saving again replaces it.
func (v *visit) conflicting(p *postForm, kind string) {
	if p.Comment {
		var c comment
		if v.fetch(at(kind, p.ID), &c)() == nil {
			p.Over, p.Version = &c, c.Version
		}
		return
	}
	var now post
	if v.fetch(at(kind, p.ID), &now)() == nil {
		p.Now, p.Version = &now, now.Version
	}
}

// remove deletes a text of the account.
func (v *visit) remove(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	switch sure := v.r.FormValue("sure") != ""; {
	case !sure && kind == "comments":
		return v.ask("Delete this comment?", "Delete the comment", v.back("/"))
	case !sure:
		return v.ask("Delete this post?", "Delete the post", v.back("/"))
	}
	if err := v.send(http.MethodDelete, at(kind, id), nil, nil); err != nil {
		return err
	}
	if kind == "posts" {
		return v.redirect(fmt.Sprintf("/posts/%d/restore", id))
	}
	return v.redirect(v.back("/"))
}

// surePage asks before what cannot be undone.
type surePage struct {
	view

	Question, Act, Action, Back string
}

// ask asks before the form is carried out.
func (v *visit) ask(question, act, back string) error {
	p := &surePage{Question: question, Act: act, Action: v.r.URL.Path, Back: back}
	p.Title = act
	if err := v.load(); err != nil {
		return err
	}
	v.render(http.StatusOK, "sure", p)
	return nil
}

// restoreForm offers to undo a deletion.
func (v *visit) restoreForm() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &surePage{
		Question: "The post is deleted. You can restore it within 24 hours.", Act: "Restore the post",
		Action: fmt.Sprintf("/posts/%d/restore", id), Back: "/new",
	}
	p.Title = "Deleted"
	if err := v.load(); err != nil {
		return err
	}
	v.render(http.StatusOK, "sure", p)
	return nil
}

func (v *visit) restore() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	if err := v.send(http.MethodPost, at("posts", id, "restore"), nil, nil); err != nil {
		return err
	}
	return v.redirect(fmt.Sprintf("/posts/%d", id))
}

// like likes or unlikes. The wanted state is in the form, so sending it twice changes nothing.
func (v *visit) like(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	method := http.MethodPut
	if v.r.FormValue("liked") == "false" {
		method = http.MethodDelete
	}
	if err := v.send(method, at(kind, id, "like"), nil, nil); err != nil {
		return err
	}
	anchor := "#post"
	if kind == "comments" {
		anchor = fmt.Sprintf("#comment-%d", id)
	}
	return v.redirect(v.back("/") + anchor)
}

func (v *visit) bookmark() error { return v.set("posts", "bookmark", nil) }

// toggle follows or blocks a user, or ends that.
func (v *visit) toggle(what string) error { return v.set("users", what, nil) }

// set puts or deletes a state, as the field "on" says.
func (v *visit) set(kind, state string, body any) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	method := http.MethodPut
	if v.r.FormValue("on") == "false" {
		method, body = http.MethodDelete, nil
	}
	if err := v.send(method, at(kind, id, state), body, nil); err != nil {
		return err
	}
	return v.redirect(v.back("/"))
}

func (v *visit) subscribe() error {
	return v.set("posts", "subscription", map[string]any{"level": v.r.FormValue("level")})
}

func (v *visit) markRead() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	if err := v.send(http.MethodPut, at("posts", id, "read"), map[string]any{}, nil); err != nil {
		return err
	}
	return v.redirect(v.back("/"))
}

type reportPage struct {
	view

	Kind    string
	ID      int64
	Reason  string
	Detail  string
	Key     string
	Back    string
	Problem *problem
	Done    bool
}

func (v *visit) reportForm(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &reportPage{Kind: kind, ID: id, Key: newKey(), Back: v.back("/")}
	p.Title = "Report"
	if err := v.load(v.fetch(at(kind, id), nil)); err != nil {
		return err
	}
	v.render(http.StatusOK, "report", p)
	return nil
}

func (v *visit) report(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &reportPage{Kind: kind, ID: id, Reason: v.r.FormValue("reason"), Detail: newlines(v.r.FormValue("detail")),
		Key: v.r.FormValue("key"), Back: v.back("/")}
	p.Title = "Report"
	err = v.send(http.MethodPost, "/v1/reports", map[string]any{
		"target_type": strings.TrimSuffix(kind, "s"), "target_id": id, "reason": p.Reason, "detail": p.Detail,
	}, nil, "Idempotency-Key", p.Key)
	status := http.StatusOK
	switch {
	case expired(err) && err != nil:
		return err
	case err != nil:
		p.Problem = problemOf(err)
		p.Key, status = keyAfter(p.Key, p.Problem), p.Problem.Status
		v.again(p.Problem)
	default:
		p.Done = true
		_ = v.load() // the report has arrived, whether the page has a menu or not
	}
	v.render(status, "report", p)
	return nil
}
