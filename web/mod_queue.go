package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

type reported struct {
	Reporter  author    `json:"reporter"`
	Reason    string    `json:"reason"`
	Detail    string    `json:"detail"`
	CreatedAt time.Time `json:"created_at"`
}

type reportedVersion struct {
	Version      int64   `json:"version"`
	ReportsCount int64   `json:"reports_count"`
	Excerpt      *string `json:"excerpt"`
}

type reportCase struct {
	ID           int64  `json:"id"`
	TargetType   string `json:"target_type"`
	TargetID     int64  `json:"target_id"`
	TargetStatus string `json:"target_status"`
	Author       author `json:"author"`
	Post         struct {
		ID    int64  `json:"id"`
		Title string `json:"title"`
	} `json:"post"`
	Version         int64             `json:"version"`
	Excerpt         string            `json:"excerpt"`
	Content         string            `json:"content"`
	Reports         []reported        `json:"reports"`
	Reported        []reportedVersion `json:"reported"`
	Status          string            `json:"status"`
	ReportersCount  int64             `json:"reporters_count"`
	Reasons         map[string]int64  `json:"reasons"`
	FirstReportedAt time.Time         `json:"first_reported_at"`
	ClaimedBy       *author           `json:"claimed_by"`
	ClaimedUntil    *time.Time        `json:"claimed_until"`
	ResolvedBy      *author           `json:"resolved_by"`
	ResolvedAt      *time.Time        `json:"resolved_at"`
	Outcome         *string           `json:"outcome"`
	Note            *string           `json:"note"`
}

// Target returns the reported content, as a form names it.
func (c reportCase) Target() string { return target{c.TargetType, c.TargetID}.String() }

// Most returns the reasons, the most frequent first.
func (c reportCase) Most() []string {
	var list []string
	for reason := range c.Reasons {
		list = append(list, reason)
	}
	slices.SortFunc(list, func(a, b string) int {
		if c.Reasons[a] != c.Reasons[b] {
			return int(c.Reasons[b] - c.Reasons[a])
		}
		return strings.Compare(a, b)
	})
	return list
}

// Old reports whether versions other than the present one were reported.
func (c reportCase) Old() bool {
	return slices.ContainsFunc(c.Reported, func(r reportedVersion) bool { return r.Version != c.Version })
}

type casePage struct {
	list[reportCase]

	OpenCount int64 `json:"open_count"`
}

// queuePage is the queue of cases with one of them.
type queuePage struct {
	deskPage

	Status    string
	Cases     []reportCase
	Chosen    *reportCase
	Asked     bool // the case was chosen, not just the first
	After     int64
	OpenCount int64
	Next      string
}

// Mine reports whether the viewer has claimed a case.
func (p *queuePage) Mine(c reportCase) bool {
	return p.Me != nil && c.ClaimedBy != nil && c.ClaimedBy.ID == p.Me.ID
}

// Row returns the path of a case in the queue.
func (p *queuePage) Row(id int64) string {
	u, err := url.Parse(p.Here)
	if err != nil {
		return "/moderate"
	}
	q := u.Query()
	q.Set("case", strconv.FormatInt(id, 10))
	return "/moderate?" + q.Encode()
}

// Then returns the path to go on to when the case is resolved.
func (p *queuePage) Then() string {
	if p.After == 0 {
		return "/moderate"
	}
	return fmt.Sprintf("/moderate?status=%s&case=%d", p.Status, p.After)
}

// List returns the path of the queue without a chosen case.
func (p *queuePage) List() string { return "/moderate?status=" + p.Status }

// queue shows the cases of a status and the chosen one.
func (v *visit) queue() error {
	q := v.r.URL.Query()
	p := &queuePage{Status: q.Get("status")}
	if p.Status != "claimed" && p.Status != "resolved" {
		p.Status = "open"
	}
	p.Title = "Reports"
	var page casePage
	var chosen reportCase
	fetches := []func() error{
		v.fetch(query("/v1/admin/reports", "status", p.Status, "limit", "50", "cursor", v.cursor()), &page),
	}
	if id := whole(q.Get("case")); id != "" {
		fetches = append(fetches, v.optional(v.fetch(at("admin", "reports", id), &chosen)))
	}
	if err := v.loadDesk(fetches...); err != nil {
		return err
	}
	p.Cases, p.OpenCount = ownFirst(page.Items, v.me), page.OpenCount
	p.choose(&chosen)
	if page.NextCursor != nil {
		p.Next = query("/moderate", "status", p.Status, "cursor", *page.NextCursor)
	}
	return v.showDesk("mod_queue", "reports", p)
}

// ownFirst puts the cases that the account has claimed before those of others.
func ownFirst(cases []reportCase, me *account) []reportCase {
	claims := func(c reportCase) bool { return me != nil && c.ClaimedBy != nil && c.ClaimedBy.ID == me.ID }
	slices.SortStableFunc(cases, func(a, b reportCase) int {
		switch {
		case claims(a) == claims(b):
			return 0
		case claims(a):
			return -1
		}
		return 1
	})
	return cases
}

// choose takes the case that was asked for, or else the first, and notes which comes after it.
func (p *queuePage) choose(asked *reportCase) {
	if asked.ID != 0 {
		p.Chosen, p.Asked = asked, true
	} else if len(p.Cases) > 0 {
		p.Chosen = &p.Cases[0]
	}
	p.After = caseAfter(p.Cases, p.Chosen)
}

// caseAfter returns the case to show when another is resolved: the following one, or else the first; 0 if none is left.
func caseAfter(cases []reportCase, chosen *reportCase) int64 {
	if chosen == nil {
		return 0
	}
	i := slices.IndexFunc(cases, func(c reportCase) bool { return c.ID == chosen.ID })
	switch {
	case i >= 0 && i+1 < len(cases):
		return cases[i+1].ID
	case len(cases) > 0 && cases[0].ID != chosen.ID:
		return cases[0].ID
	}
	return 0
}

type reportersPage struct {
	deskPage

	Case    reportCase
	Reports []reported
	Next    string
}

// modReporters shows a case with all its reports.
func (v *visit) modReporters() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &reportersPage{}
	p.Title = "Reports"
	var page list[reported]
	err = v.loadDesk(
		v.fetch(at("admin", "reports", id), &p.Case),
		v.fetch(query(at("admin", "reports", id, "reports"), "limit", "100", "cursor", v.cursor()), &page),
	)
	if err != nil {
		return err
	}
	p.Reports, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_reporters", "reports", p)
}

func (v *visit) claimCase(id int64, _ url.Values) (string, error) {
	return "", v.send(http.MethodPost, at("admin", "reports", id, "claim"), nil, nil,
		"Idempotency-Key", v.r.PostForm.Get("key"))
}

type caseResult struct {
	ID     int64   `json:"id"`
	Status string  `json:"status"`
	Code   *string `json:"code"`
	Detail *string `json:"detail"`
}

// resolve decides one case or several. Those that fail are shown again with the reason.
func (v *visit) resolve() error {
	if err := v.r.ParseForm(); err != nil {
		return errBadForm
	}
	form := v.r.PostForm
	action := form.Get("action")
	a, ok := manyActs["cases."+action]
	ids, targets := casesIn(form["case"])
	if !ok || len(ids) == 0 {
		return v.actAgain(manyActs["cases.dismissed"], form, &problem{
			Status: http.StatusUnprocessableEntity, Code: "invalid",
			Detail: "Tick at least one case, and choose what to do.",
		})
	}
	var out struct {
		Results []caseResult `json:"results"`
	}
	err := v.send(http.MethodPost, "/v1/admin/reports/resolve",
		map[string]any{"ids": ids, "action": action, "note": v.reason()}, &out, "Idempotency-Key", form.Get("key"))
	if err != nil {
		return v.actAgain(a, form, err)
	}
	fields := url.Values{"did": {"cases." + action}}
	failed := failedCases(out.Results)
	form["case"] = slices.DeleteFunc(form["case"], func(s string) bool {
		id, _, _ := strings.Cut(s, ":")
		return failed[id] == ""
	})
	_, left := casesIn(form["case"])
	if action == "removed" {
		fields["t"] = slices.DeleteFunc(targets, func(t string) bool { return slices.Contains(left, t) })
	}
	fields.Set("n", strconv.Itoa(len(ids)-len(failed)))
	if len(failed) == 0 {
		return v.redirectWith(v.back("/moderate"), fields)
	}
	if len(failed) == len(ids) {
		fields = nil
	}
	return v.actAgain(a, form, failedProblem(failed, len(ids)), fields)
}

// casesIn returns the numbers of cases in a form, and their contents. A value is the number, a colon and the content.
func casesIn(values []string) ([]int64, []string) {
	var ids []int64
	var targets []string
	for _, value := range values {
		number, content, _ := strings.Cut(value, ":")
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil || id < 1 || slices.Contains(ids, id) || len(ids) == maxBulk {
			continue
		}
		ids = append(ids, id)
		for _, t := range contentTargets([]string{content}) {
			targets = append(targets, t.String())
		}
	}
	return ids, targets
}

// failedCases returns why cases were not resolved, by their numbers.
func failedCases(results []caseResult) map[string]string {
	failed := map[string]string{}
	for _, r := range results {
		if r.Status == "failed" {
			failed[strconv.FormatInt(r.ID, 10)] = deref(r.Detail)
		}
	}
	return failed
}

// failedProblem is the problem of an act that failed in part.
func failedProblem(failed map[string]string, all int) *problem {
	p := &problem{Status: http.StatusConflict, Code: "conflict", Detail: "Nothing was done."}
	if len(failed) < all {
		p.Detail = "The others are done, but these failed."
	}
	for id, detail := range failed {
		p.Errors = append(p.Errors, fieldError{Field: "#" + id, Message: detail})
	}
	slices.SortFunc(p.Errors, func(a, b fieldError) int { return strings.Compare(a.Field, b.Field) })
	return p
}

// restoreAll restores the contents that a resolution removed.
func (v *visit) restoreAll() error {
	if err := v.r.ParseForm(); err != nil {
		return errBadForm
	}
	form := v.r.PostForm
	targets := contentTargets(form["t"])
	failed := map[string]string{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(4)
	for _, t := range targets {
		g.Go(func() error {
			path := at("admin", t.kind+"s", t.id, "restore")
			key := form.Get("key")
			if key != "" {
				key += "-" + t.String() // each is a request of its own
			}
			err := v.send(http.MethodPost, path, map[string]any{"reason": v.reason()}, nil, "Idempotency-Key", key)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[t.String()] = v.explain(problemOf(err))
			}
			return nil
		})
	}
	_ = g.Wait() // what failed is in the map
	if len(failed) > 0 {
		form["t"] = slices.DeleteFunc(form["t"], func(s string) bool { return failed[s] == "" })
		return v.actAgain(manyActs["cases.restored"], form, failedProblem(failed, len(targets)))
	}
	fields := url.Values{"did": {"cases.restored"}, "n": {strconv.Itoa(len(targets))}}
	return v.redirectWith(v.back("/moderate"), fields)
}
