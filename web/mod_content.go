package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type deletion struct {
	At          *time.Time `json:"at"`
	By          *author    `json:"by"`
	Reason      *string    `json:"reason"`
	OperationID *int64     `json:"operation_id"`
	Purged      bool       `json:"purged"`
}

// modItem is a post or a comment as moderators read it.
type modItem struct {
	Post      *post     `json:"post"`
	Comment   *comment  `json:"comment"`
	PostTitle string    `json:"post_title"`
	Deletion  *deletion `json:"deletion"`
	ReportID  *int64    `json:"report_id"`
}

// Kind returns "post" or "comment".
func (i modItem) Kind() string {
	if i.Comment != nil {
		return "comment"
	}
	return "post"
}

// ID returns the number of the post or the comment.
func (i modItem) ID() int64 {
	if i.Comment != nil {
		return i.Comment.ID
	}
	return i.Post.ID
}

// Author returns the author; nil for a comment without one.
func (i modItem) Author() *author {
	if i.Comment != nil {
		return i.Comment.Author
	}
	return &i.Post.Author
}

// Title returns the title of the post, or of the post that the comment is on.
func (i modItem) Title() string {
	if i.Comment != nil {
		return i.PostTitle
	}
	return i.Post.Title
}

// Excerpt returns the beginning of the text.
func (i modItem) Excerpt() string {
	if i.Comment != nil {
		return excerpt(i.Comment.Content)
	}
	return i.Post.Excerpt
}

// ContentHTML returns the text as HTML.
func (i modItem) ContentHTML() string {
	if i.Comment != nil {
		return i.Comment.ContentHTML
	}
	return i.Post.ContentHTML
}

// Version returns the number of the present version.
func (i modItem) Version() int64 {
	if i.Comment != nil {
		return i.Comment.Version
	}
	return i.Post.Version
}

// CreatedAt returns when it was written.
func (i modItem) CreatedAt() time.Time {
	if i.Comment != nil {
		return i.Comment.CreatedAt
	}
	return i.Post.CreatedAt
}

// Likes returns the number of likes.
func (i modItem) Likes() int64 {
	if i.Comment != nil {
		return i.Comment.LikesCount
	}
	return i.Post.LikesCount
}

// filters are the conditions of a list, as they were typed.
type filters struct {
	url.Values

	action string
}

// Action returns the path of the list.
func (f filters) Action() string { return f.action }

// Any reports whether there is a condition.
func (f filters) Any() bool {
	for name, values := range f.Values {
		if name != "cursor" && len(values) > 0 && values[0] != "" {
			return true
		}
	}
	return false
}

type modListPage struct {
	deskPage

	Kind  string // posts or comments
	Items []modItem
	Query filters
	Wrong *problem // with the conditions
	Next  string
}

// modList lists posts or comments of any status.
func (v *visit) modList(kind string) error {
	q := v.r.URL.Query()
	p := &modListPage{Kind: kind, Query: filters{q, v.r.URL.Path}}
	p.Title = "Posts"
	if kind == "comments" {
		p.Title = "Comments"
	}
	var page list[modItem]
	var err error
	p.Wrong, err = v.find(q.Get("author"), func(author string) string { return modListPath(kind, author, q) }, &page)
	if err != nil {
		return err
	}
	p.Items, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_list", kind, p)
}

// modListPath returns the path of the API for the conditions of a list.
func modListPath(kind, author string, q url.Values) string {
	only := func(name string) string {
		if q.Get("only") == name {
			return "true"
		}
		return ""
	}
	pairs := []string{
		"status", q.Get("status"), "author", author, "q", strings.TrimSpace(q.Get("q")),
		"since", dayTime(q.Get("since")), "until", dayTime(q.Get("until")),
		"reported", only("reported"), "limit", "50", "cursor", q.Get("cursor"),
	}
	if kind == "posts" {
		pairs = append(pairs, "locked", only("locked"), "pinned", only("pinned"))
	}
	return query(at("admin", kind), pairs...)
}

// find loads a page of a list whose conditions name an account. It returns what is wrong with the conditions.
func (v *visit) find(account string, path func(id string) string, out any) (*problem, error) {
	id, err := v.accountID(account)
	if err == nil {
		err = v.loadDesk(v.fetch(path(id), out))
	} else if failed := v.loadDesk(); failed != nil {
		return nil, failed
	}
	return wrongConditions(err)
}

// errNoAccount is about a condition of a list.
var errNoAccount = &problem{
	Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: "No account has this name.",
}

// accountID returns the number of an account that was typed as a number or as a name; "" if nothing was typed.
func (v *visit) accountID(typed string) (string, error) {
	name := usernameOf(typed)
	if id := whole(name); id != "" || name == "" {
		return id, nil
	}
	var u user
	err := v.fetch(at("users", "by-name", name), &u)()
	if moved, ok := errors.AsType[*movedError](err); ok { // a former name
		err = v.fetch(moved.to, &u)()
	}
	if problemOf(err).Status == http.StatusNotFound {
		err = errNoAccount
	}
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(u.ID, 10), nil
}

// wrongConditions returns what is wrong with the conditions of a list, to be shown beside them; nil for nothing. It
// returns other errors as they are.
func wrongConditions(err error) (*problem, error) {
	if p := problemOf(err); err != nil && p.Status == http.StatusUnprocessableEntity {
		return p, nil
	}
	return nil, err
}

type modContentPage struct {
	deskPage

	Item     modItem
	Kinds    string // posts or comments
	Versions []revision
	Next     string
}

// Own reports whether the viewer wrote the text.
func (p *modContentPage) Own() bool {
	a := p.Item.Author()
	return a != nil && p.Me != nil && a.ID == p.Me.ID
}

// modContent shows a post or a comment with what can be done to it.
func (v *visit) modContent(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &modContentPage{Kinds: kind}
	var versions list[revision]
	err = v.loadDesk(
		v.fetch(at("admin", kind, id), &p.Item),
		v.fetch(query(at("admin", kind, id, "revisions"), "limit", "50", "cursor", v.cursor()), &versions),
	)
	if err != nil {
		return err
	}
	p.Versions, p.Next = versions.Items, v.next(versions.NextCursor)
	p.Named = p.Item.Title()
	return v.showDesk("mod_content", kind, p)
}

type modVersionPage struct {
	deskPage

	Kind    string // posts or comments
	ID      int64
	Version revision
	Form    actForm
}

// modVersion shows one version of a text, which can be overwritten there.
func (v *visit) modVersion(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	version, err := strconv.ParseInt(v.r.PathValue("version"), 10, 64)
	if err != nil || version < 0 {
		return errNotFound
	}
	p := &modVersionPage{Kind: kind, ID: id}
	p.Title = "Versions"
	if err := v.loadDesk(v.fetch(at("admin", kind, id, "revisions", version), &p.Version)); err != nil {
		return err
	}
	p.Form = actForm{
		act: manyActs["version.redact"], Action: v.r.URL.Path + "/redact",
		Back: fmt.Sprintf("/moderate/%s/%d", kind, id), Key: newKey(),
	}
	return v.showDesk("mod_version", kind, p)
}

// redact overwrites one version.
func (v *visit) redact(kind string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	if err := v.r.ParseForm(); err != nil {
		return errBadForm
	}
	path := at("admin", kind, id, "revisions", v.r.PathValue("version"), "redact")
	if err := v.sendReason(path, nil); err != nil {
		return v.actAgain(manyActs["version.redact"], v.r.PostForm, err)
	}
	return v.redirectWith(v.back("/moderate"), url.Values{"did": {"version.redact"}})
}
