package web

import (
	"net/http"
	"strconv"
)

// lettersPage lists dead letters.
type lettersPage struct {
	opPage

	Status  string // open or resolved
	Letters []deadLetter
	Next    string
	Of      int64  // the letter of the form that failed
	Reason  string // of that form
	Key     string
}

func (v *visit) opLetters() error {
	p := &lettersPage{Status: "open"}
	if v.r.URL.Query().Get("status") == "resolved" {
		p.Status = "resolved"
	}
	switch v.r.URL.Query().Get("done") {
	case "retry":
		p.Done = "The likes of the letter were sent again."
	case "discard":
		p.Done = "The letter was discarded."
	}
	return v.showLetters(http.StatusOK, p)
}

func (v *visit) showLetters(status int, p *lettersPage) error {
	p.Tab, p.Title = "letters", "Dead letters"
	var page list[deadLetter]
	path := query("/v1/admin/dead-letters", "status", p.Status, "limit", "20", "cursor", v.cursor())
	if err := v.load(v.fetch(path, &page)); err != nil {
		return formOr(p.Problem, err)
	}
	p.Letters, p.Next = page.Items, v.next(page.NextCursor)
	v.render(status, "op_letters", p)
	return nil
}

func (v *visit) opResolveLetter() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	act := v.r.FormValue("do")
	if act != "retry" && act != "discard" {
		return errBadForm
	}
	reason, key := v.r.FormValue("reason"), v.r.FormValue("key")
	err = v.send(http.MethodPost, at("admin", "dead-letters", id, act), map[string]any{"reason": reason}, nil,
		"Idempotency-Key", key)
	if err == nil {
		return v.redirect(query("/operate/dead-letters", "done", act))
	}
	if expired(err) || forbidden(err) {
		return err
	}
	p := &lettersPage{Status: "open", Of: id, Reason: reason}
	p.Problem = problemOf(err)
	p.Key = keyAfter(key, p.Problem)
	return v.showLetters(p.Problem.Status, p)
}

// reconcilePage compares a target, or a stretch of a shard, and repairs what it found.
type reconcilePage struct {
	opPage

	Kind   string // of the target
	Target string // its id
	Shard  string // instead of a target
	Cursor string // the stretch of the shard begins behind it
	Reason string
	Key    string
	Result *reconciliation
}

// Found returns the number of differences that a repair would take care of.
func (p *reconcilePage) Found() int64 {
	if p.Result == nil {
		return 0
	}
	return int64(len(p.Result.Differences))
}

func (v *visit) opReconcileForm() error {
	p := &reconcilePage{Kind: "post", Target: v.r.URL.Query().Get("post")}
	p.Tab, p.Title = "reconcile", "Reconcile"
	var state pipelineState // so that the page exists for admins alone
	if err := v.load(v.fetch("/v1/admin/pipeline", &state)); err != nil {
		return err
	}
	v.render(http.StatusOK, "op_reconcile", p)
	return nil
}

// opReconcile compares, or repairs. Both show their result at once: a repetition of either finds what is left.
func (v *visit) opReconcile() error {
	f := v.r.FormValue
	p := &reconcilePage{
		Kind: f("kind"), Target: f("target"), Shard: f("shard"), Cursor: f("cursor"), Reason: f("reason"),
	}
	p.Tab, p.Title = "reconcile", "Reconcile"
	repair := f("do") == "repair"
	body := map[string]any{"dry_run": !repair}
	if repair {
		body["reason"] = p.Reason
	}
	if p.Shard != "" {
		body["shard"] = numberOrText(p.Shard)
		if p.Cursor != "" {
			body["cursor"] = p.Cursor
		}
	} else {
		body["target_type"], body["target_id"] = p.Kind, numberOrText(p.Target)
	}
	var result reconciliation
	err := v.send(http.MethodPost, "/v1/admin/reconcile", body, &result, "Idempotency-Key", f("key"))
	if err != nil {
		if expired(err) || forbidden(err) {
			return err
		}
		p.Problem = problemOf(err)
		p.Key = keyAfter(f("key"), p.Problem)
		v.again(p.Problem)
		v.render(p.Problem.Status, "op_reconcile", p)
		return nil
	}
	p.Result, p.Key, p.Reason = &result, newKey(), ""
	_ = v.load() // the result is shown, whether the page has a menu or not
	v.render(http.StatusOK, "op_reconcile", p)
	return nil
}

// numberOrText returns a number of a form. The API says what is wrong with other texts.
func numberOrText(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	return 0
}
