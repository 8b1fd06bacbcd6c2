package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// webhookEvents are the types of events of webhooks.
var webhookEvents = []string{
	"post.created", "post.edited", "post.deleted", "post.restored",
	"comment.created", "comment.edited", "comment.deleted", "comment.restored",
	"like.milestone", "report.opened", "report.decided", "user.banned", "user.unbanned",
	"claim.confirmed", "claim.rejected",
}

// webhooksPage is the list of webhooks, or one of them.
type webhooksPage struct {
	opPage

	Hooks      []webhook
	Next       string
	Hook       *webhook // of the page of one
	Deliveries []delivery
	State      string // of the deliveries
	URL        string // in the form
	Events     []string
	Active     bool
	Version    int64
	Key        string
	Secret     string // shown now, and never again
}

// AllEvents returns the types of events that can be chosen.
func (p *webhooksPage) AllEvents() []string { return webhookEvents }

// Has reports whether a type of events is chosen.
func (p *webhooksPage) Has(event string) bool { return slices.Contains(p.Events, event) }

func (v *visit) opWebhooks() error {
	p := &webhooksPage{Key: newKey()}
	if v.r.URL.Query().Get("done") == "delete" {
		p.Done = "The webhook was deleted."
	}
	return v.showWebhooks(http.StatusOK, p)
}

func (v *visit) showWebhooks(status int, p *webhooksPage) error {
	p.Tab, p.Title = "webhooks", "Webhooks"
	var page list[webhook]
	if err := v.load(v.fetch(query("/v1/admin/webhooks", "limit", "100", "cursor", v.cursor()), &page)); err != nil {
		return formOr(p.Problem, err)
	}
	p.Hooks, p.Next = page.Items, v.next(page.NextCursor)
	v.render(status, "op_webhooks", p)
	return nil
}

func (v *visit) opCreateWebhook() error {
	if err := v.r.ParseForm(); err != nil {
		return errBadForm
	}
	f := v.r.PostForm
	p := &webhooksPage{URL: strings.TrimSpace(f.Get("url")), Events: f["event"], Key: f.Get("key")}
	var made webhook
	body := map[string]any{"url": p.URL, "events": append([]string{}, p.Events...)}
	err := v.send(http.MethodPost, "/v1/admin/webhooks", body, &made, "Idempotency-Key", p.Key)
	switch {
	case err == nil:
		return v.showSecret(&made)
	case expired(err), forbidden(err):
		return err
	}
	p.Problem = problemOf(err)
	p.Key = keyAfter(p.Key, p.Problem)
	return v.showWebhooks(p.Problem.Status, p)
}

func webhookPath(id int64) string { return "/operate/webhooks/" + strconv.FormatInt(id, 10) }

func (v *visit) opWebhook() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &webhooksPage{}
	switch v.r.URL.Query().Get("done") {
	case "saved":
		p.Done = "Saved."
	case "ping":
		p.Done = "A ping is on its way. It appears below."
	case "replay":
		p.Done = "It is sent again."
	case "end-previous":
		p.Done = "The previous secret signs no longer."
	}
	return v.showWebhook(http.StatusOK, id, p)
}

// showWebhook shows one webhook with its deliveries. The form has the values of the webhook, unless it failed.
func (v *visit) showWebhook(status int, id int64, p *webhooksPage) error {
	p.Tab, p.Title, p.Hook = "webhooks", "Webhook", &webhook{}
	if p.State = v.r.URL.Query().Get("state"); p.State != "pending" && p.State != "delivered" && p.State != "failed" {
		p.State = "all"
	}
	var page list[delivery]
	path := query(at("admin", "webhooks", id, "deliveries"), "limit", "30", "state", p.State, "cursor", v.cursor())
	err := v.load(v.fetch(at("admin", "webhooks", id), p.Hook), v.fetch(path, &page))
	if err != nil && p.Secret == "" { // no later answer has the secret
		return formOr(p.Problem, err)
	}
	p.Hook.ID = id
	p.Deliveries, p.Next = page.Items, v.next(page.NextCursor)
	p.Here = webhookPath(id)
	if p.Problem == nil || p.URL == "" {
		p.URL, p.Events, p.Active, p.Version = p.Hook.URL, p.Hook.Events, p.Hook.Active, p.Hook.Version
	}
	v.render(status, "op_webhook", p)
	return nil
}

func (v *visit) opEditWebhook() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	if err := v.r.ParseForm(); err != nil {
		return errBadForm
	}
	f := v.r.PostForm
	p := &webhooksPage{URL: strings.TrimSpace(f.Get("url")), Events: f["event"], Active: f.Get("active") != ""}
	if p.Version, err = strconv.ParseInt(f.Get("version"), 10, 64); err != nil {
		return errBadForm
	}
	body := map[string]any{"url": p.URL, "events": append([]string{}, p.Events...), "active": p.Active}
	err = v.send(http.MethodPatch, at("admin", "webhooks", id), body, nil, "If-Match", etag(p.Version))
	if v.savedBefore(err, id, p) {
		err = nil
	}
	switch {
	case err == nil:
		return v.redirect(webhookPath(id) + "?done=saved")
	case expired(err), forbidden(err):
		return err
	}
	p.Problem = problemOf(err)
	if p.Problem.Status == http.StatusPreconditionFailed && p.Problem.Version != nil {
		p.Version = *p.Problem.Version // sending the form again replaces what is shown beside it
	}
	return v.showWebhook(p.Problem.Status, id, p)
}

// savedBefore reports whether an edit was refused because an earlier request has saved it, whose answer was lost.
func (v *visit) savedBefore(err error, id int64, sent *webhooksPage) bool {
	if err == nil || problemOf(err).Status != http.StatusPreconditionFailed {
		return false
	}
	var now webhook
	if err := v.fetch(at("admin", "webhooks", id), &now)(); err != nil {
		return false
	}
	slices.Sort(now.Events)
	return now.URL == sent.URL && now.Active == sent.Active &&
		slices.Equal(now.Events, slices.Sorted(slices.Values(sent.Events)))
}

// opWebhookAct does what a button of a webhook's page says.
func (v *visit) opWebhookAct() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	path, key := at("admin", "webhooks", id), v.r.FormValue("key")
	next := webhookPath(id) + "?done=" + v.r.PathValue("act")
	var made webhook
	switch v.r.PathValue("act") {
	case "delete":
		err, next = v.send(http.MethodDelete, path, nil, nil), "/operate/webhooks?done=delete"
	case "ping":
		err = v.send(http.MethodPost, path+"/ping", nil, nil, "Idempotency-Key", key)
	case "end-previous":
		err = v.send(http.MethodDelete, path+"/previous-secret", nil, nil)
	case "rotate":
		err, next = v.send(http.MethodPost, path+"/rotate-secret", nil, &made, "Idempotency-Key", key), ""
	default:
		return errNotFound
	}
	switch {
	case err == nil && next != "":
		return v.redirect(next)
	case err == nil:
		return v.showSecret(&made)
	case expired(err), forbidden(err), problemOf(err).Status == http.StatusNotFound:
		return err
	}
	p := &webhooksPage{}
	p.Problem = problemOf(err)
	return v.showWebhook(p.Problem.Status, id, p)
}

// showSecret shows the secret that was made: no other answer of the API has it, not even that to a repetition.
func (v *visit) showSecret(made *webhook) error {
	p := &webhooksPage{Secret: deref(made.Secret)}
	if p.Secret == "" {
		p.Done = "This was done before. Its secret was shown then; if you do not have it, make a new one."
	}
	return v.showWebhook(http.StatusOK, made.ID, p)
}

func (v *visit) opReplay() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	replay := at("admin", "webhooks", id, "deliveries", v.r.PathValue("delivery"), "replay")
	err = v.send(http.MethodPost, replay, nil, nil,
		"Idempotency-Key", v.r.FormValue("key"))
	if err != nil {
		return err
	}
	return v.redirect(webhookPath(id) + "?done=replay")
}
