package web

import (
	"net/http"
	"net/url"
)

// proofField is the field of any form of an account with the password, entered again. The API asks for it with
// codeUnproven before what a stolen session must not suffice for.
const proofField = "proof_password"

const codeUnproven = "reauthentication_required"

// unproven reports whether the API wants the password again before it carries out the request. The error of a form must
// reach fail then, which asks for it.
func unproven(err error) bool { return err != nil && problemOf(err).Code == codeUnproven }

type provePage struct {
	view

	Action  string
	Fields  []keptField
	Field   string // of the password
	Problem *problem
}

// askPassword asks for the password, and then goes on: to the page that was requested, or with the form that was sent.
func (v *visit) askPassword(p *problem) {
	page := &provePage{Action: "/prove", Field: proofField, Problem: p}
	page.Title, page.Here = "Enter your password again", v.back("/settings")
	form := url.Values{"next": {v.r.URL.RequestURI()}}
	if v.r.Method == http.MethodPost {
		page.Action, form = v.r.URL.RequestURI(), v.r.PostForm
	}
	page.Fields = keptFields(form, nil)
	status := http.StatusForbidden
	if p != nil {
		status = p.Status
		v.again(p)
	}
	_ = v.load() // without it, the page has no menu of the account
	v.render(status, "prove", page)
}

// prove has the password checked that a form has beside its own fields. If it is refused, prove answers with the
// question for it, and the form is not carried out.
func (v *visit) prove() (answered bool, err error) {
	if !v.r.PostForm.Has(proofField) {
		return false, nil
	}
	password := v.r.PostForm.Get(proofField)
	v.r.PostForm.Del(proofField)
	v.r.Form.Del(proofField)
	err = v.send(http.MethodPost, "/v1/auth/reauthenticate", map[string]any{"password": password}, nil)
	if err == nil || expired(err) {
		return false, err
	}
	v.askPassword(problemOf(err))
	return true, nil
}

// proved goes on to the page for which the password was asked.
func (v *visit) proved() error { return v.redirect(localPath(v.r.FormValue("next"), "/settings")) }
