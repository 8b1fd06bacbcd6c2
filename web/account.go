package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

type signPage struct {
	view

	Login, Username, Email string
	Next                   string // the path to go on to
	Again                  bool   // the session has ended
	Mailed                 bool   // the address has to be confirmed by the link in a mail
	Kept                   string // the form that was sent without a session, as JSON
	File                   bool   // a file was sent without a session
	Key                    string
	Problem                *problem
}

// signInAgain asks to sign in. A form that was sent is kept within the page, so nothing that was typed is lost.
func (v *visit) signInAgain() {
	had := v.token != ""
	v.endSession()
	if v.scripted() {
		_ = v.plainProblem(&problem{
			Status: http.StatusUnauthorized, Code: "unauthorized", Detail: "Your session has ended. Sign in again.",
		})
		return
	}
	p := &signPage{Next: v.r.URL.RequestURI(), Again: had}
	p.Title, p.Here = "Sign in", "/"
	if v.r.Method == http.MethodPost {
		p.Next = v.back("/")
		p.File = strings.HasPrefix(v.r.Header.Get("Content-Type"), "multipart/")
		if typed(v.r.PostForm) {
			kept, err := json.Marshal(keptForm{v.r.URL.RequestURI(), withoutSecrets(v.r.PostForm)})
			if err == nil {
				p.Kept = string(kept)
			}
		}
	}
	v.render(http.StatusUnauthorized, "sign_in", p)
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
		if p.Problem = problemOf(err); p.Problem.Challenge != "" {
			return v.askCode(&codePage{Challenge: p.Problem.Challenge, Next: p.Next, Kept: p.Kept})
		}
		v.again(p.Problem)
		v.render(p.Problem.Status, "sign_in", p)
		return nil
	}
	return v.signedIn(&s, p.Next, p.Kept)
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
	if s.Token == "" { // the address has to be confirmed first
		p.Mailed = true
		v.render(http.StatusOK, "sign_up", p)
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
	if v.r.FormValue("sure") == "" {
		return v.ask("Delete this draft?", "Delete the draft", "/drafts")
	}
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
	Email    string // that was typed
	Mailed   bool   // to a new address
	Username string // that was refused
	Sessions []sessionInfo
	Tokens   []apiToken
	Unread   bool // the tokens could not be read
	Made     *apiToken
	Token    tokenForm
	Next     string
	Problem  *problem
	Saved    bool
	Building bool // an archive is being made
}

// tokenForm is the form for an API token.
type tokenForm struct {
	Name   string
	Scopes []string
	Key    string
}

// Has reports whether a scope is chosen.
func (f tokenForm) Has(scope string) bool { return slices.Contains(f.Scopes, scope) }

func newTokenForm() tokenForm { return tokenForm{Scopes: []string{"read"}, Key: newKey()} }

func (v *visit) settings() error {
	if err := v.load(); err != nil {
		return err
	}
	q := v.r.URL.Query()
	return v.renderSettings(&settingsPage{
		Tab: "profile", Profile: *v.me, Saved: q.Has("saved"), Mailed: q.Has("mailed"),
	})
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

func (v *visit) changeUsername() error {
	name := v.r.FormValue("username")
	err := v.send(http.MethodPut, "/v1/me/username", map[string]any{"username": name}, nil)
	if err == nil {
		return v.redirect("/settings?saved")
	}
	if expired(err) || unproven(err) {
		return err
	}
	p := &settingsPage{Tab: "profile", Problem: problemOf(err), Username: name}
	_ = v.load()
	if v.me != nil {
		p.Profile = *v.me
	}
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
		return formOr(failed, err)
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

func (v *visit) tokens() error { return v.showTokens(&settingsPage{Token: newTokenForm()}) }

// showTokens shows the tokens. A token that was just made is shown even if the others cannot be read: no later answer
// has it.
func (v *visit) showTokens(p *settingsPage) error {
	var page list[apiToken]
	err := v.load(v.fetch("/v1/me/tokens?limit=100", &page))
	if err != nil && p.Made == nil {
		return formOr(p.Problem, err)
	}
	p.Tab, p.Tokens, p.Unread = "tokens", page.Items, err != nil
	return v.renderSettings(p)
}

func (v *visit) createToken() error {
	f := tokenForm{v.r.PostForm.Get("name"), v.r.PostForm["scope"], v.r.PostForm.Get("key")}
	var made apiToken
	err := v.send(http.MethodPost, "/v1/me/tokens",
		map[string]any{"name": f.Name, "scopes": f.Scopes}, &made, "Idempotency-Key", f.Key)
	switch {
	case err == nil:
		return v.showTokens(&settingsPage{Made: &made, Token: newTokenForm()})
	case expired(err), unproven(err):
		return err
	}
	p := &settingsPage{Token: f, Problem: problemOf(err)}
	p.Token.Key = keyAfter(f.Key, p.Problem)
	return v.showTokens(p)
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
