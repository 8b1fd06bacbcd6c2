package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

type signPage struct {
	view

	Login, Username, Email string
	Next                   string // the path to go on to
	Again                  bool   // the session has ended
	Kept                   string // the form that was sent without a session, as JSON
	Key                    string
	Problem                *problem
}

// keptForm is a form that was sent after the session had ended. It is shown again after signing in.
type keptForm struct {
	Path   string     `json:"path"`
	Values url.Values `json:"values"`
}

// signInAgain asks to sign in. A form that was sent is kept within the page, so nothing that was typed is lost.
func (v *visit) signInAgain() {
	had := v.token != ""
	v.endSession()
	if v.scripted() {
		_ = v.plainProblem(&problem{
			Status: http.StatusUnauthorized, Code: "unauthorized", Detail: "Please sign in again.",
		})
		return
	}
	p := &signPage{Next: v.r.URL.RequestURI(), Again: had}
	p.Title, p.Here = "Sign in", "/"
	if v.r.Method == http.MethodPost {
		p.Next = v.back("/")
		if v.r.ParseForm() == nil && typed(v.r.PostForm) {
			kept, err := json.Marshal(keptForm{v.r.URL.Path, v.r.PostForm})
			if err == nil {
				p.Kept = string(kept)
			}
		}
	}
	v.render(http.StatusUnauthorized, "sign_in", p)
}

// textFields are the fields of a form that people type a text into. A form shows the first that it has.
var textFields = []string{"content", "detail", "reason"}

// typed reports whether somebody typed a text into a form.
func typed(form url.Values) bool {
	return slices.ContainsFunc(textFields, func(name string) bool { return form.Get(name) != "" })
}

func (v *visit) signInForm() error {
	p := &signPage{Next: localPath(v.r.URL.Query().Get("next"), "/")}
	p.Title, p.Here = "Sign in", "/"
	if err := v.load(); err != nil && !expired(err) {
		return err
	}
	v.render(http.StatusOK, "sign_in", p)
	return nil
}

func (v *visit) signIn() error {
	p := &signPage{
		Login: v.r.FormValue("login"), Next: localPath(v.r.FormValue("next"), "/"), Kept: v.r.FormValue("kept"),
	}
	p.Title, p.Here = "Sign in", "/"
	v.token = ""
	var s session
	err := v.send(http.MethodPost, "/v1/auth/login",
		map[string]any{"login": p.Login, "password": v.r.FormValue("password")}, &s)
	if err != nil {
		p.Problem = problemOf(err)
		v.again(p.Problem)
		v.render(p.Problem.Status, "sign_in", p)
		return nil
	}
	v.beginSession(s.Token)
	v.me = &s.User
	if p.Kept != "" {
		return v.showKept(p.Kept)
	}
	return v.redirect(p.Next)
}

// showKept shows a form that was sent without a session, filled.
func (v *visit) showKept(kept string) error {
	var form keptForm
	if err := json.Unmarshal([]byte(kept), &form); err != nil || localPath(form.Path, "") == "" {
		return v.redirect("/")
	}
	p := &keptPage{Action: form.Path}
	p.Title, p.Here = "Send it now", "/"
	if i := slices.IndexFunc(textFields, form.Values.Has); i >= 0 {
		p.Name = textFields[i]
	}
	for name, values := range form.Values {
		for _, value := range values {
			switch name {
			case p.Name:
				p.Text = value
			case "title":
				p.Subject = value
			case "do":
			default:
				p.Fields = append(p.Fields, hiddenField{name, value})
			}
		}
	}
	_, p.HasSubject = form.Values["title"]
	v.render(http.StatusOK, "kept", p)
	return nil
}

type hiddenField struct{ Name, Value string }

type keptPage struct {
	view

	Action     string
	Name, Text string
	Subject    string
	HasSubject bool
	Fields     []hiddenField
}

func (v *visit) signUpForm() error {
	p := &signPage{Key: newKey(), Next: localPath(v.r.URL.Query().Get("next"), "/")}
	p.Title, p.Here = "Sign up", "/"
	if err := v.load(); err != nil && !expired(err) {
		return err
	}
	v.render(http.StatusOK, "sign_up", p)
	return nil
}

func (v *visit) signUp() error {
	p := &signPage{
		Username: v.r.FormValue("username"), Email: v.r.FormValue("email"), Key: v.r.FormValue("key"),
		Next: localPath(v.r.FormValue("next"), "/"),
	}
	p.Title, p.Here = "Sign up", "/"
	v.token = ""
	var s session
	body := map[string]any{"username": p.Username, "email": p.Email, "password": v.r.FormValue("password")}
	if err := v.send(http.MethodPost, "/v1/auth/register", body, &s, "Idempotency-Key", p.Key); err != nil {
		p.Problem = problemOf(err)
		p.Key = keyAfter(p.Key, p.Problem)
		v.again(p.Problem)
		v.render(p.Problem.Status, "sign_up", p)
		return nil
	}
	v.beginSession(s.Token)
	return v.redirect(p.Next)
}

// signOut ends the session here in any case, and at the API if it answers.
func (v *visit) signOut() error {
	if v.token != "" {
		if err := v.send(http.MethodPost, "/v1/auth/logout", nil, nil); err != nil && !expired(err) {
			return err // the token would go on to be valid
		}
	}
	v.endSession()
	return v.redirect("/")
}

type notificationsPage struct {
	view

	Items []notification
	Next  string
	UpTo  int64
}

func (v *visit) notifications() error {
	var page list[notification]
	if err := v.load(v.fetch(query("/v1/notifications", "limit", "50", "cursor", v.cursor()), &page)); err != nil {
		return err
	}
	p := &notificationsPage{Items: page.Items, Next: v.next(page.NextCursor)}
	p.Title = "Notifications"
	for _, n := range page.Items {
		p.UpTo = max(p.UpTo, n.ID)
	}
	v.render(http.StatusOK, "notifications", p)
	return nil
}

func (v *visit) readNotifications() error {
	body := map[string]json.RawMessage{}
	if id := v.r.FormValue("id"); id != "" {
		body["ids"] = json.RawMessage("[" + id + "]")
	} else {
		body["up_to"] = json.RawMessage(v.r.FormValue("up_to"))
	}
	for _, raw := range body {
		if !json.Valid(raw) {
			return errBadForm
		}
	}
	if err := v.send(http.MethodPost, "/v1/notifications/read", body, nil); err != nil {
		return err
	}
	return v.redirect(v.back("/notifications"))
}

type claimsPage struct {
	view

	Claims []claim
	Next   string
}

func (v *visit) claims() error {
	var page list[claim]
	if err := v.load(v.fetch(query("/v1/me/claims", "limit", "50", "cursor", v.cursor()), &page)); err != nil {
		return err
	}
	p := &claimsPage{Claims: page.Items, Next: v.next(page.NextCursor)}
	p.Title = "Your claims"
	v.render(http.StatusOK, "claims", p)
	return nil
}

type draftsPage struct {
	view

	Drafts []draft
	Next   string
}

func (v *visit) drafts() error {
	var page list[draft]
	if err := v.load(v.fetch(query("/v1/me/drafts", "limit", "50", "cursor", v.cursor()), &page)); err != nil {
		return err
	}
	p := &draftsPage{Drafts: page.Items, Next: v.next(page.NextCursor)}
	p.Title = "Drafts"
	v.render(http.StatusOK, "drafts", p)
	return nil
}

func (v *visit) deleteDraft() error {
	if err := v.send(http.MethodDelete, at("me", "drafts", v.r.PathValue("name")), nil, nil); err != nil {
		return err
	}
	return v.redirect("/drafts")
}

type reportsPage struct {
	view

	Reports []report
	Next    string
}

func (v *visit) ownReports() error {
	var page list[report]
	if err := v.load(v.fetch(query("/v1/me/reports", "limit", "50", "cursor", v.cursor()), &page)); err != nil {
		return err
	}
	p := &reportsPage{Reports: page.Items, Next: v.next(page.NextCursor)}
	p.Title = "Your reports"
	v.render(http.StatusOK, "reports", p)
	return nil
}

// settingsPage is the page of each part of the settings.
type settingsPage struct {
	view

	Tab      string
	Profile  account
	Sessions []sessionInfo
	Tokens   []apiToken
	Made     *apiToken
	Next     string
	Problem  *problem
	Saved    bool
	Building bool // an archive is being made
}

func (v *visit) settings() error {
	if err := v.load(); err != nil {
		return err
	}
	return v.renderSettings(&settingsPage{Tab: "profile", Profile: *v.me, Saved: v.r.URL.Query().Has("saved")})
}

func (v *visit) renderSettings(p *settingsPage) error {
	p.Title = "Settings"
	status := http.StatusOK
	if p.Problem != nil {
		status = p.Problem.Status
		v.again(p.Problem)
	}
	v.render(status, "settings", p)
	return nil
}

func (v *visit) saveProfile() error {
	name, bio := v.r.FormValue("display_name"), newlines(v.r.FormValue("bio"))
	err := v.send(http.MethodPatch, "/v1/me", map[string]any{"display_name": name, "bio": bio}, nil)
	if err == nil {
		return v.redirect("/settings?saved")
	}
	if expired(err) {
		return err
	}
	p := &settingsPage{Tab: "profile", Problem: problemOf(err)}
	_ = v.load()
	if v.me != nil {
		p.Profile = *v.me
	}
	p.Profile.DisplayName, p.Profile.Bio = &name, bio
	return v.renderSettings(p)
}

func (v *visit) changePassword() error {
	err := v.send(http.MethodPut, "/v1/me/password", map[string]any{
		"current_password": v.r.FormValue("current_password"), "new_password": v.r.FormValue("new_password"),
	}, nil)
	if err == nil {
		return v.redirect("/settings/sessions?saved")
	}
	if expired(err) {
		return err
	}
	return v.showSessions(problemOf(err))
}

func (v *visit) sessions() error { return v.showSessions(nil) }

func (v *visit) showSessions(failed *problem) error {
	var page list[sessionInfo]
	if err := v.load(v.fetch(query("/v1/me/sessions", "limit", "100", "cursor", v.cursor()), &page)); err != nil {
		return err
	}
	return v.renderSettings(&settingsPage{
		Tab: "sessions", Sessions: page.Items, Next: v.next(page.NextCursor), Problem: failed,
		Saved: v.r.URL.Query().Has("saved"),
	})
}

func (v *visit) endSessions() error {
	list := "/v1/me/sessions"
	if id := v.r.FormValue("id"); id != "" {
		list = at("me", "sessions", id)
	}
	if err := v.send(http.MethodDelete, list, nil, nil); err != nil {
		return err
	}
	return v.redirect("/settings/sessions")
}

func (v *visit) tokens() error { return v.showTokens(nil, nil) }

func (v *visit) showTokens(made *apiToken, failed *problem) error {
	var page list[apiToken]
	if err := v.load(v.fetch("/v1/me/tokens?limit=100", &page)); err != nil {
		return err
	}
	return v.renderSettings(&settingsPage{Tab: "tokens", Tokens: page.Items, Made: made, Problem: failed})
}

func (v *visit) createToken() error {
	if err := v.r.ParseForm(); err != nil {
		return errBadForm
	}
	var made apiToken
	err := v.send(http.MethodPost, "/v1/me/tokens",
		map[string]any{"name": v.r.PostForm.Get("name"), "scopes": v.r.PostForm["scope"]}, &made)
	if err != nil {
		if expired(err) {
			return err
		}
		return v.showTokens(nil, problemOf(err))
	}
	return v.showTokens(&made, nil)
}

func (v *visit) revokeToken() error {
	if err := v.send(http.MethodDelete, at("me", "tokens", v.r.PathValue("name")), nil, nil); err != nil {
		return err
	}
	return v.redirect("/settings/tokens")
}

func (v *visit) blocks() error {
	return v.people("/v1/me/blocks", "People whom you block", "You block nobody.")
}

func (v *visit) data() error {
	if err := v.load(); err != nil {
		return err
	}
	return v.renderSettings(&settingsPage{Tab: "data", Building: v.r.URL.Query().Has("building")})
}

func (v *visit) deleteAccount() error {
	err := v.send(http.MethodDelete, "/v1/me", map[string]any{"password": v.r.FormValue("password")}, nil)
	if err != nil {
		if expired(err) {
			return err
		}
		return v.renderSettings(&settingsPage{Tab: "data", Problem: problemOf(err)})
	}
	v.endSession()
	return v.redirect("/")
}

// display keeps the theme and the language in the browser.
func (v *visit) display() error {
	if theme := v.r.FormValue("theme"); theme == "light" || theme == "dark" || theme == "auto" {
		v.setCookie(v.w, "theme", strings.TrimSuffix(theme, "auto"), sessionAge)
	}
	if name := v.r.FormValue("lang"); name != "" {
		for _, l := range v.languages {
			if l.name == name {
				v.setCookie(v.w, "lang", name, sessionAge)
			}
		}
	}
	return v.redirect(v.back("/"))
}

// explain returns what a person should know about a problem.
func (v *visit) explain(p *problem) string {
	switch {
	case p.Code == "banned" && p.Ban != nil && p.Ban.Until != nil:
		return v.lang.text("You are banned until %s: %s", v.lang.date(*p.Ban.Until), p.Ban.Reason)
	case p.Code == "banned" && p.Ban != nil:
		return v.lang.text("You are banned: %s", p.Ban.Reason)
	case p.Status == http.StatusTooManyRequests && p.RetryAfter > 0:
		return v.lang.text("That was a lot at once. Please try again in %d s. Nothing is lost.", p.RetryAfter)
	case p.uncertain():
		return v.lang.text("The forum does not answer. Send it again in a moment: it is carried out only once.")
	}
	return v.lang.text(p.Detail)
}

func (v *visit) json(status int, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Header().Set("Cache-Control", "no-store")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(encoded)
	return nil
}
