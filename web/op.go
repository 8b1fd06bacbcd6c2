package web

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// opPage is what every page of the operators' desk has.
type opPage struct {
	view

	Tab     string
	Problem *problem
	Done    string // what the form did that led here, in words; "" for nothing
}

// opRoutes are the paths of the operators' desk.
func (s *Server) opRoutes(mux router) {
	mux.Handle("GET /operate", s.operators((*visit).opState))
	mux.Handle("GET /operate/like", s.operators((*visit).opLike))
	mux.Handle("POST /operate/like", s.operators((*visit).opSetLike))
	mux.Handle("GET /operate/dead-letters", s.operators((*visit).opLetters))
	mux.Handle("POST /operate/dead-letters/{id}", s.operators((*visit).opResolveLetter))
	mux.Handle("GET /operate/reconcile", s.operators((*visit).opReconcileForm))
	mux.Handle("POST /operate/reconcile", s.operators((*visit).opReconcile))
	mux.Handle("GET /operate/webhooks", s.operators((*visit).opWebhooks))
	mux.Handle("POST /operate/webhooks", s.operators((*visit).opCreateWebhook))
	mux.Handle("GET /operate/webhooks/{id}", s.operators((*visit).opWebhook))
	mux.Handle("POST /operate/webhooks/{id}", s.operators((*visit).opEditWebhook))
	mux.Handle("POST /operate/webhooks/{id}/{act}", s.operators((*visit).opWebhookAct))
	mux.Handle("POST /operate/webhooks/{id}/replay/{delivery}", s.operators((*visit).opReplay))
}

// operators is private for admins. For others its pages do not exist: the API refuses what the pages ask.
func (s *Server) operators(h func(*visit) error) http.HandlerFunc {
	return s.private(func(v *visit) error {
		err := h(v)
		if p := (*problem)(nil); errors.As(err, &p) && p.Status == http.StatusForbidden && p.Code == "forbidden" {
			return errNotFound
		}
		return err
	})
}

// forbidden reports whether the API refuses err because the account is not an admin's.
func forbidden(err error) bool { return problemOf(err).Status == http.StatusForbidden }

// statePage is the state of the pipeline with its history.
type statePage struct {
	opPage

	Pipeline pipelineState
	History  pipelineHistory
	Findings []finding
	Charts   []chart
	Window   string
}

// Newest returns the samples, latest first.
func (p *statePage) Newest() []pipelineSample {
	list := slices.Clone(p.History.Items)
	slices.Reverse(list)
	return list
}

// finding is a sentence about the pipeline.
type finding struct {
	Text string // translated
	Bad  bool
	Link string // to the page that helps; "" if there is none
}

func (v *visit) opState() error {
	p := &statePage{Window: "hour"}
	p.Tab, p.Title = "state", "Operate"
	if v.r.URL.Query().Get("window") == "day" {
		p.Window = "day"
	}
	err := v.load(v.fetch("/v1/admin/pipeline", &p.Pipeline),
		v.fetch(query("/v1/admin/pipeline/history", "window", p.Window), &p.History))
	if err != nil {
		return err
	}
	now := time.Now()
	p.Findings = v.lang.findings(&p.Pipeline, p.History, now)
	p.Charts = v.lang.charts(p.History, p.Window, now)
	v.render(http.StatusOK, "op_state", p)
	return nil
}

// Times after which something is said to be late.
const (
	lateOutbox  = 10 * time.Second
	lateSeconds = 10.0
	lateSample  = time.Minute
)

// findings returns the state of the pipeline in words: first what is wrong, or that all is well.
func (l *language) findings(p *pipelineState, h pipelineHistory, now time.Time) []finding {
	var list []finding
	bad := func(link, text string) { list = append(list, finding{text, true, link}) }
	if p.Redis != nil && *p.Redis != "ok" {
		bad("", l.text("Redis does not answer. Likes are refused until it does; everything else works."))
	}
	if shards := shardsWhere(p, shardState.Closed); shards != "" {
		bad("", l.text("Shards that take no likes: %s. Their worker opens them, if one runs.", shards))
	}
	idle := func(s shardState) bool { return s.Open != nil && s.Relay == nil }
	if shards := shardsWhere(p, idle); shards != "" {
		bad("", l.text("Shards that no worker relays: %s. Likes wait in Redis.", shards))
	}
	late := func(s shardState) bool { return s.OldestAt != nil && now.Sub(*s.OldestAt) > lateOutbox }
	if shards := shardsWhere(p, late); shards != "" {
		waits := int(now.Sub(*p.Totals.OldestAt).Seconds())
		bad("", l.text("Shards whose likes wait for Kafka: %s, for %d s.", shards, waits))
	}
	if n := len(h.Items); n > 0 && now.Sub(h.Items[n-1].At) < lateSample+time.Duration(h.StepSeconds)*time.Second {
		if lag := h.Items[n-1].LagSeconds; lag != nil && *lag > lateSeconds {
			bad("", l.text("MySQL is %d s behind, most in shard %d.", int(*lag), slowest(p)))
		}
	} else {
		bad("", l.text("There is no recent sample for the charts. They need a running cron process."))
	}
	if n := p.Totals.OpenGaps; n > 0 {
		bad("/operate/reconcile", l.text("%d open gaps: the job reconcile repairs them.", n))
	}
	if n := p.Totals.DeadLetters; n > 0 {
		bad("/operate/dead-letters", l.text("%d dead letters wait for you.", n))
	}
	switch {
	case p.Mode == "direct":
		list = append(list, finding{Text: l.text("Each like is written to MySQL directly. There are no shards.")})
	case len(list) == 0:
		list = append(list, finding{Text: l.text("All is well. All %d shards take likes, and MySQL keeps up.",
			len(p.Shards))})
	}
	return list
}

// shardsWhere returns the numbers of the shards for which is holds, separated by commas.
func shardsWhere(p *pipelineState, is func(shardState) bool) string {
	var list []string
	for _, s := range p.Shards {
		if is(s) {
			list = append(list, strconv.Itoa(s.Shard))
		}
	}
	return strings.Join(list, ", ")
}

// slowest returns the shard with the most events that MySQL does not have.
func slowest(p *pipelineState) int {
	shard, most := 0, int64(-1)
	for _, s := range p.Shards {
		if s.LagEvents != nil && *s.LagEvents > most {
			shard, most = s.Shard, *s.LagEvents
		}
	}
	return shard
}

// charts draws the history.
func (l *language) charts(h pipelineHistory, window string, now time.Time) []chart {
	from := now.Add(-time.Hour)
	if window == "day" {
		from = now.Add(-24 * time.Hour)
	}
	at := make([]time.Time, len(h.Items))
	for i := range h.Items {
		at[i] = h.Items[i].At
		if at[i].Before(from) {
			at[i] = from // a step that began before
		}
	}
	var list []chart
	for _, c := range []struct {
		title string // translated
		value func(*pipelineSample) *float64
	}{
		{l.text("Accepted a second"), func(s *pipelineSample) *float64 { return s.AcceptedPerSecond }},
		{l.text("Written to MySQL a second"), func(s *pipelineSample) *float64 { return s.AppliedPerSecond }},
		{l.text("Likes that wait for Kafka"), func(s *pipelineSample) *float64 { return s.OutboxEvents }},
		{l.text("Seconds that MySQL is behind"), func(s *pipelineSample) *float64 { return s.LagSeconds }},
	} {
		values := make([]*float64, len(h.Items))
		for i := range h.Items {
			values[i] = c.value(&h.Items[i])
		}
		list = append(list, newChart(c.title, from, now, at, values))
	}
	return list
}

// likePage watches a like travel.
type likePage struct {
	opPage

	PostID   string
	Post     *post
	Trace    likeTrace
	AnswerMS string // how long the answer of the API took; "" if none was asked for
	Steps    []step
}

// step is a stop of a like on its way, with what is known of its time: in ms after the gate had accepted it.
type step struct {
	Name     string
	What     string
	From, To string // not before, not after; "" if unknown
	Done     bool
}

func (v *visit) opLike() error {
	q := v.r.URL.Query()
	p := &likePage{PostID: strings.TrimPrefix(q.Get("post"), "#"), AnswerMS: q.Get("ms")}
	p.Tab, p.Title = "like", "Watch a like travel"
	if _, err := strconv.ParseFloat(p.AnswerMS, 64); err != nil {
		p.AnswerMS = ""
	}
	if p.PostID == "" {
		var state pipelineState // so that the page exists for admins alone
		if err := v.load(v.fetch("/v1/admin/pipeline", &state)); err != nil {
			return err
		}
		v.render(http.StatusOK, "op_like", p)
		return nil
	}
	p.Post = &post{}
	err := v.load(v.fetch(at("admin", "pipeline", "posts", p.PostID), &p.Trace), v.fetch(at("posts", p.PostID), p.Post))
	status := http.StatusOK
	if problem := problemOf(err); err != nil && problem.Status == http.StatusNotFound && v.me.Operates() {
		p.Problem, p.Post = problem, nil
		status = http.StatusNotFound
	} else if err != nil {
		return err
	}
	p.Steps = stepsOf(p.Trace)
	v.render(status, "op_like", p)
	return nil
}

// stepsOf returns the steps that a trace shows. One look is a bound for the time of each: what is not done by then is
// done later, and what is done was done before.
func stepsOf(t likeTrace) []step {
	if t.AcceptedAt == nil {
		return nil
	}
	since := func(at time.Time) string {
		return strconv.FormatInt(max(0, at.Sub(*t.AcceptedAt).Milliseconds()), 10)
	}
	list := []step{
		{Name: "gate", What: "Redis has accepted it", From: "0", To: "0", Done: true},
		{Name: "kafka", What: "Kafka has it", Done: *t.Sent},
		{Name: "mysql", What: "MySQL has it", Done: *t.Applied},
	}
	switch {
	case t.AppliedAt != nil:
		list[1].To, list[2].To = since(*t.AppliedAt), since(*t.AppliedAt)
	case *t.Sent:
		list[1].To, list[2].From = since(t.At), since(t.At)
	default:
		list[1].From, list[2].From = since(t.At), since(t.At)
	}
	return list
}

// opSetLike likes a post as the admin, or takes that back.
func (v *visit) opSetLike() error {
	id, method := v.r.FormValue("post"), http.MethodPut
	if v.r.FormValue("liked") == "false" {
		method = http.MethodDelete
	}
	if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return errNotFound
	}
	began := time.Now()
	if err := v.send(method, at("posts", id, "like"), nil, nil); err != nil {
		return err
	}
	took := float64(time.Since(began).Microseconds()) / 1000
	return v.redirect(query("/operate/like", "post", id, "ms", fmt.Sprintf("%.1f", took)))
}
