package web

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// plainProblem answers a script with an error as JSON, in the language of the page.
func (v *visit) plainProblem(err error) error {
	p := problemOf(err)
	if p.RetryAfter > 0 {
		v.w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	encoded, err := json.Marshal(map[string]any{
		"status": p.Status, "code": p.Code, "detail": v.explain(p), "request_id": v.idOf(p),
	})
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/problem+json")
	v.w.Header().Set("Cache-Control", "no-store")
	v.w.WriteHeader(p.Status)
	_, _ = v.w.Write(encoded) // the browser has gone, if that fails
	return nil
}

// formOr returns the problem of a form, whose page cannot be shown because of err, or else err.
func formOr(failed *problem, err error) error {
	if failed != nil && !expired(err) {
		return failed
	}
	return err
}

// idOf returns the id of the request that a problem belongs to.
func (v *visit) idOf(p *problem) string {
	if p.RequestID != "" {
		return p.RequestID
	}
	return v.id
}

// explain returns a problem as a text, where a page has no room for its parts.
func (v *visit) explain(p *problem) string {
	text := v.reasonOf(p)
	for _, e := range p.Errors {
		text += " " + v.lang.text("%s %s.", v.lang.text(e.Field), v.lang.text(e.Message))
	}
	if p.uncertain() {
		text += " " + v.lang.text("Request %s.", v.idOf(p))
	}
	return text
}

// reasonOf returns what a person should know about a problem, without its parts.
func (v *visit) reasonOf(p *problem) string {
	switch {
	case p.Code == "banned" && p.Ban != nil && p.Ban.Until != nil:
		return v.lang.text("You are banned until %s: %s", v.lang.date(*p.Ban.Until), p.Ban.Reason)
	case p.Code == "banned" && p.Ban != nil:
		return v.lang.text("You are banned: %s", p.Ban.Reason)
	case p.Status == http.StatusTooManyRequests && p.RetryAfter > 0:
		return v.lang.text("That was a lot at once. Try again in %d s. Nothing is lost.", p.RetryAfter)
	case p.uncertain() && p.Once:
		return v.lang.text("The forum does not answer. Send it again in a moment: it is carried out only once.")
	case p.uncertain():
		return v.lang.text("The forum does not answer. Try again in a moment.")
	}
	return v.lang.text(p.Detail)
}
