package web

import "net/http"

// linkPage is a page that a mail leads to, or that asks for such a mail. Opening it changes nothing, because programs
// that look for malware open the links in mails: its form does.
type linkPage struct {
	view

	Action  string // the path of the form
	Token   string // of the link
	Email   string
	Key     string
	Text    string // what the form does, or what it has done
	Button  string
	Done    bool
	Problem *problem
}

// forgotForm asks for the address of an account whose password is lost.
func (v *visit) forgotForm() error {
	p := &linkPage{Key: newKey()}
	p.Title = "Set a new password"
	return v.showLink("forgot", p, nil)
}

func (v *visit) forgot() error {
	p := &linkPage{Email: v.r.FormValue("email"), Key: v.r.FormValue("key")}
	p.Title = "Set a new password"
	err := v.send(http.MethodPost, "/v1/auth/password-reset", map[string]any{"email": p.Email}, nil,
		"Idempotency-Key", p.Key)
	if err == nil {
		p.Done = true
	} else {
		p.Key = keyAfter(p.Key, problemOf(err))
	}
	return v.showLink("forgot", p, err)
}

func (v *visit) resetForm() error {
	p := &linkPage{Token: v.r.URL.Query().Get("token")}
	if p.Token == "" {
		return v.redirect("/forgot")
	}
	p.Title = "Set a new password"
	return v.showLink("reset", p, nil)
}

func (v *visit) reset() error {
	p := &linkPage{Token: v.r.FormValue("token")}
	p.Title = "Set a new password"
	err := v.send(http.MethodPost, "/v1/auth/password-reset/confirm",
		map[string]any{"token": p.Token, "password": v.r.FormValue("password")}, nil)
	if err == nil {
		v.endSession() // it has ended with all others
		p.Done = true
	}
	return v.showLink("reset", p, err)
}

// mailLink is a page whose form sends the token of a link and nothing else.
type mailLink struct {
	api string // the path at the API
	Title, Text, Button,
	Done string // what the form has done
}

// links are these pages, by path.
var links = map[string]mailLink{
	"/confirm": {
		api: "/v1/auth/email/confirm", Title: "Confirm your address", Text: "This address will belong to your account.",
		Button: "Confirm the address", Done: "Your address is confirmed.",
	},
	"/undo": {
		api: "/v1/auth/email/undo", Title: "Undo the change of address", Button: "Undo the change",
		Text: "Your account will get its former address back, and all its sessions will end.",
		Done: "Your account has its former address again. Set a new password now if you did not change the address.",
	},
}

func (v *visit) linkForm() error {
	path := v.r.URL.Path
	l := links[path]
	p := &linkPage{Action: path, Token: v.r.URL.Query().Get("token"), Text: l.Text, Button: l.Button}
	p.Title = l.Title
	return v.showLink("link", p, nil)
}

func (v *visit) useLink() error {
	path := v.r.URL.Path
	l := links[path]
	p := &linkPage{Action: path, Token: v.r.FormValue("token"), Text: l.Text, Button: l.Button}
	err := v.send(http.MethodPost, l.api, map[string]any{"token": p.Token}, nil)
	if err == nil {
		p.Done, p.Text = true, l.Done
	}
	p.Title = l.Title
	return v.showLink("link", p, err)
}

// showLink shows a page of a link, with the problem of its form.
func (v *visit) showLink(name string, p *linkPage, failed error) error {
	p.Here = "/"
	status := http.StatusOK
	if failed != nil {
		p.Problem = problemOf(failed)
		v.again(p.Problem)
		status = p.Problem.Status
	} else if err := v.load(); err != nil && !expired(err) {
		return err
	}
	v.render(status, name, p)
	return nil
}

// changeEmail asks the API to send a mail to a new address, or once more to one that is not confirmed.
func (v *visit) changeEmail() error {
	email := v.r.FormValue("email")
	err := v.send(http.MethodPut, "/v1/me/email", map[string]any{"email": email}, nil)
	if err == nil {
		return v.redirect("/settings?mailed")
	}
	if expired(err) || unproven(err) {
		return err
	}
	p := &settingsPage{Tab: "profile", Email: email, Problem: problemOf(err)}
	_ = v.load()
	if v.me != nil {
		p.Profile = *v.me
	}
	return v.renderSettings(p)
}
