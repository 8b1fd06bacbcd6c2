package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// deskPage is what every page of the moderators' desk has.
type deskPage struct {
	view

	Tab  string // the chosen part of the desk
	Note *note  // about the act that led to the page
}

func (p *deskPage) desk() *deskPage { return p }

// deskData is the data of a page of the desk: a struct that embeds a deskPage.
type deskData interface {
	pageData
	desk() *deskPage
}

// modRoutes are the paths of the moderators' desk.
func (s *Server) modRoutes(mux router) {
	for path, h := range map[string]func(*visit) error{
		"/moderate":                                  (*visit).queue,
		"/moderate/reports/{id}":                     (*visit).modReporters,
		"/moderate/posts":                            func(v *visit) error { return v.modList("posts") },
		"/moderate/comments":                         func(v *visit) error { return v.modList("comments") },
		"/moderate/posts/{id}":                       func(v *visit) error { return v.modContent("posts") },
		"/moderate/comments/{id}":                    func(v *visit) error { return v.modContent("comments") },
		"/moderate/posts/{id}/versions/{version}":    func(v *visit) error { return v.modVersion("posts") },
		"/moderate/comments/{id}/versions/{version}": func(v *visit) error { return v.modVersion("comments") },
		"/moderate/users":                            (*visit).modUsers,
		"/moderate/users/{id}":                       (*visit).modUser,
		"/moderate/users/{id}/likes":                 (*visit).modLikes,
		"/moderate/users/{id}/images":                (*visit).modImages,
		"/moderate/images/{name}":                    (*visit).modImage,
		"/moderate/operations/{id}":                  (*visit).modOperation,
		"/moderate/voids/{id}":                       (*visit).modVoid,
		"/moderate/drops/{id}":                       (*visit).modDrop,
		"/moderate/rings":                            (*visit).modRings,
		"/moderate/redactions":                       (*visit).modRedactions,
		"/moderate/log":                              (*visit).modLog,
		"/moderate/security":                         (*visit).modSecurity,
	} {
		mux.Handle("GET "+path, s.private(h))
	}
	mux.Handle("POST /moderate/reports/resolve", s.private((*visit).resolve))
	mux.Handle("POST /moderate/restore", s.private((*visit).restoreAll))
	mux.Handle("POST /moderate/images/{name}/delete", s.private((*visit).modDeleteImage))
	for name := range acts {
		mux.Handle("POST "+actPath(name, "{id}"), s.private(func(v *visit) error { return v.act(name) }))
	}
	for _, kind := range []string{"posts", "comments"} {
		mux.Handle("POST /moderate/"+kind+"/{id}/versions/{version}/redact",
			s.private(func(v *visit) error { return v.redact(kind) }))
	}
}

// loadDesk is load for pages of the desk. To others than moderators, they do not exist.
func (v *visit) loadDesk(fetches ...func() error) error {
	err := v.load(fetches...)
	if v.me != nil && !v.me.Moderates() {
		return errNotFound
	}
	return err
}

// showDesk answers with a page of the desk.
func (v *visit) showDesk(name, tab string, p deskData) error {
	d := p.desk()
	d.Tab, d.Here, d.Note = tab, withoutNote(v.r.URL), v.ownNote()
	if d.Title == "" {
		d.Title = "Moderate"
	}
	v.render(http.StatusOK, name, p)
	return nil
}

// note describes an act that was carried out. It comes from the query, signed by the session.
type note struct {
	Text string
	N    *int64 // the number in the text
	Of   string
	Link string
	Undo *undo
}

type hiddenField struct{ Name, Value string }

// undo is a form that reverses an act.
type undo struct {
	Action string
	Fields []hiddenField
}

// noteFields are the parameters of a note in a query.
var noteFields = []string{"did", "of", "n", "t", "was", "sum"}

// noteSum returns the signature of a note by the session. Without it, a link of somebody else could offer to undo what
// nobody has done.
func (v *visit) noteSum(fields url.Values) string {
	mac := hmac.New(sha256.New, []byte(v.token))
	for _, name := range noteFields {
		if name != "sum" {
			fmt.Fprintf(mac, "%s %q\n", name, fields[name])
		}
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:15])
}

// redirectWith leads to a path with a note.
func (v *visit) redirectWith(path string, fields url.Values) error {
	fields.Set("sum", v.noteSum(fields))
	return v.redirect(withNote(path, fields))
}

// ownNote returns the note in the query of the request, if this session has written it.
func (v *visit) ownNote() *note {
	q := v.r.URL.Query()
	if !hmac.Equal([]byte(q.Get("sum")), []byte(v.noteSum(q))) {
		return nil
	}
	return noteOf(q)
}

// withoutNote returns the path of a page with its query, without the note.
func withoutNote(u *url.URL) string {
	q := u.Query()
	for _, name := range noteFields {
		q.Del(name)
	}
	if len(q) == 0 {
		return u.Path
	}
	return u.Path + "?" + q.Encode()
}

// withNote returns the path of a page with a note.
func withNote(path string, fields url.Values) string {
	u, err := url.Parse(path)
	if err != nil {
		return path
	}
	q := u.Query()
	for _, name := range noteFields {
		q.Del(name)
	}
	maps.Copy(q, fields)
	u.RawQuery = q.Encode()
	return u.String()
}

// noteOf returns the note in a query; nil if there is none.
func noteOf(q url.Values) *note {
	name := q.Get("did")
	a, ok := acts[name]
	if !ok {
		a, ok = manyActs[name]
	}
	if !ok {
		return nil
	}
	n := &note{Text: a.Done}
	if strings.Contains(a.Done, "%d") {
		count, _ := strconv.ParseInt(q.Get("n"), 10, 64)
		n.N = &count
	}
	targets := contentTargets(q["t"])
	if len(targets) > 0 {
		n.Undo = &undo{Action: "/moderate/restore"}
		for _, t := range targets {
			n.Undo.Fields = append(n.Undo.Fields, hiddenField{"t", t.String()})
		}
	}
	id, err := strconv.ParseInt(q.Get("of"), 10, 64)
	if err != nil || id < 1 {
		return n
	}
	kind, _, _ := strings.Cut(name, ".")
	if deskKinds[kind] {
		n.Of, n.Link = strconv.FormatInt(id, 10), fmt.Sprintf("/moderate/%ss/%d", kind, id)
	}
	was := q.Get("was")
	switch {
	case a.Undo == "user.role" && was != "":
		n.Undo = &undo{actPath(a.Undo, n.Of), []hiddenField{{"role", was}}}
	case a.Undo != "" && a.Undo != "user.role":
		n.Undo = &undo{Action: actPath(a.Undo, n.Of)}
	}
	return n
}

// deskKinds are the things that have a page of the desk by number.
var deskKinds = map[string]bool{"post": true, "comment": true, "user": true, "operation": true, "report": true}

// target is a post or a comment.
type target struct {
	kind string // "post" or "comment"
	id   int64
}

func (t target) String() string { return t.kind + "-" + strconv.FormatInt(t.id, 10) }

// contentTargets reads targets as String writes them. It leaves out what it cannot read.
func contentTargets(list []string) []target {
	var out []target
	for _, s := range list {
		kind, number, _ := strings.Cut(s, "-")
		id, err := strconv.ParseInt(number, 10, 64)
		if err == nil && id > 0 && (kind == "post" || kind == "comment") && len(out) < maxBulk {
			out = append(out, target{kind, id})
		}
	}
	return out
}

// maxBulk is the most cases that the API resolves at once.
const maxBulk = 100

// act is what a moderator does to one thing with one form.
type act struct {
	Button string // names what it does
	Done   string
	Undo   string // the act that reverses it; "" if there is none
	Final  bool   // nothing reverses it
	// do carries the act out and adds to the note. It returns the path to go on to; "" for the one that the form names.
	// Without do, the act is a request with a reason.
	do func(v *visit, id int64, note url.Values) (string, error)
}

// manyActs are those whose form is about several things, or about none with a number.
var manyActs = map[string]act{
	"cases.dismissed": {Button: "Dismiss the reports", Done: "Dismissed: %d. The reporters are notified."},
	"cases.removed":   {Button: "Remove the content", Done: "Removed: %d. The reporters are notified."},
	"cases.restored":  {Button: "Restore the content", Done: "Restored: %d."},
	"image.delete":    {Button: "Delete the image for ever", Done: "The image was deleted.", Final: true},
	"version.redact":  {Button: "Overwrite the version for ever", Done: "The version was overwritten.", Final: true},
}

// acts are in the form thing.verb, which is also their path.
var acts = map[string]act{
	"post.delete":     {Button: "Delete the post", Done: "The post was deleted.", Undo: "post.restore"},
	"post.restore":    {Button: "Restore the post", Done: "The post was restored."},
	"post.lock":       {Button: "Lock the post", Done: "The post was locked.", Undo: "post.unlock"},
	"post.unlock":     {Button: "Unlock the post", Done: "The post was unlocked.", Undo: "post.lock"},
	"post.pin":        {Button: "Pin the post", Done: "The post was pinned.", Undo: "post.unpin"},
	"post.unpin":      {Button: "Unpin the post", Done: "The post was unpinned.", Undo: "post.pin"},
	"post.purge":      {Button: "Purge the post for ever", Done: "The post was purged.", Final: true},
	"comment.delete":  {Button: "Delete the comment", Done: "The comment was deleted.", Undo: "comment.restore"},
	"comment.restore": {Button: "Restore the comment", Done: "The comment was restored."},
	"comment.purge":   {Button: "Purge the comment for ever", Done: "The comment was purged.", Final: true},

	"report.claim": {Button: "Claim the case", Done: "The case is yours for 30 minutes.", do: (*visit).claimCase},

	"user.ban":   {Button: "Ban the account", Done: "The account was banned.", Undo: "user.unban", do: (*visit).ban},
	"user.unban": {Button: "Lift the ban", Done: "The ban was lifted."},
	"user.role":  {Button: "Change the role", Done: "The role was changed.", Undo: "user.role", do: (*visit).setRole},
	"user.content": {
		Button: "Delete all posts and comments", Done: "The deletion has begun.", do: (*visit).deleteContent,
	},
	"user.likes":  {Button: "Void the likes", Done: "The voiding has begun.", Final: true, do: (*visit).voidLikes},
	"user.claims": {Button: "Void the claims", Done: "Claims voided: %d.", Final: true, do: (*visit).voidClaims},
	"user.delete": {
		Button: "Delete the account for ever", Done: "The account was deleted.", Final: true,
		do: (*visit).modDeleteAccount,
	},
	"operation.undo": {
		Button: "Undo the deletion", Done: "The posts and comments come back.",
	},

	"ring.dismiss": {Button: "Dismiss the ring", Done: "The ring was dismissed.", do: (*visit).dismissRing},
	"ring.void": {
		Button: "Void the likes of the members", Done: "The voiding has begun for members: %d.", Final: true,
		do: (*visit).voidRing,
	},
	"redaction.redacted": {
		Button: "Overwrite the version for ever", Done: "The version was overwritten.", Final: true,
		do: (*visit).grantRedaction,
	},
	"redaction.declined": {Button: "Decline the request", Done: "The request was declined.",
		do: (*visit).declineRedaction},
}

// actPath returns the path to which the form of an act is sent.
func actPath(name, id string) string {
	kind, verb, _ := strings.Cut(name, ".")
	return "/moderate/" + kind + "s/" + id + "/" + verb
}

// actForm is a form for an act.
type actForm struct {
	act

	Action string
	Back   string
	Key    string // Idempotency-Key
	Name   string
}

// Act returns the form for an act of this page.
func (p *deskPage) Act(name string, id int64) (actForm, error) {
	a, ok := acts[name]
	if !ok {
		return actForm{}, fmt.Errorf("there is no act %q", name)
	}
	return actForm{a, actPath(name, strconv.FormatInt(id, 10)), p.Here, newKey(), name}, nil
}

// act carries out an act and leads back with a note.
func (v *visit) act(name string) error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	if err := v.r.ParseForm(); err != nil {
		return errBadForm
	}
	a, fields := acts[name], url.Values{"did": {name}, "of": {strconv.FormatInt(id, 10)}}
	do := a.do
	if do == nil {
		kind, verb, _ := strings.Cut(name, ".")
		do = plainAct("/v1/admin/" + kind + "s/%d/" + verb)
	}
	path, err := do(v, id, fields)
	if err != nil {
		return v.actAgain(a, v.r.PostForm, err)
	}
	if path == "" {
		path = v.back("/moderate")
	}
	return v.redirectWith(path, fields)
}

// plainAct returns the sending of an act that has nothing but a reason.
func plainAct(format string) func(*visit, int64, url.Values) (string, error) {
	return func(v *visit, id int64, _ url.Values) (string, error) {
		return "", v.sendReason(fmt.Sprintf(format, id), nil)
	}
}

// sendReason sends an act with its reason.
func (v *visit) sendReason(path string, out any) error {
	return v.send(http.MethodPost, path, map[string]any{"reason": v.reason()}, out,
		"Idempotency-Key", v.r.PostForm.Get("key"))
}

// reason returns the reason in a form.
func (v *visit) reason() string { return strings.TrimSpace(v.r.PostForm.Get("reason")) }

// againPage is a form that failed, with what was typed.
type againPage struct {
	deskPage

	Act     act
	Action  string
	Problem *problem
	Fields  []againField
	Back    string
}

// againField is a field of a form that failed. Those that have to be mended are shown.
type againField struct {
	Name, Value string
	Shown       bool
	Wrong       []string
}

// actAgain shows the form of an act that failed, and a note about the part that did not. It works without the API,
// which may be away.
func (v *visit) actAgain(a act, form url.Values, err error, done ...url.Values) error {
	if expired(err) {
		return err
	}
	p := &againPage{Act: a, Action: v.r.URL.Path, Problem: problemOf(err), Back: v.back("/moderate")}
	p.Title, p.Here, p.Tab = a.Button, p.Back, "again"
	p.Fields = againFields(form, p.Problem)
	for _, fields := range done {
		p.Note = noteOf(fields)
	}
	v.again(p.Problem)
	if v.me != nil && !v.me.Moderates() {
		return errNotFound
	}
	v.render(p.Problem.Status, "mod_again", p)
	return nil
}

func againFields(form url.Values, p *problem) []againField {
	var list []againField
	for name, values := range form {
		for _, value := range values {
			if name == "key" {
				value = keyAfter(value, p)
			}
			wrong := p.Of(name)
			list = append(list, againField{name, value, name == "reason" || len(wrong) > 0, wrong})
		}
	}
	slices.SortStableFunc(list, func(a, b againField) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// dayTime returns the beginning of a day, as the API takes it; "" for what is not a day.
func dayTime(day string) string {
	t, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return ""
	}
	return t.Format(time.RFC3339)
}

// whole returns a number in the query, or in a form; "" for what is not a number above 0.
func whole(s string) string {
	if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64); err == nil && n > 0 {
		return strconv.FormatInt(n, 10)
	}
	return ""
}
