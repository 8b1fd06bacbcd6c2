package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// answerLimit is how long a client waits for an answer. The product's own deadline may be longer, as with impatient
// users.
const answerLimit = 5 * time.Second

// lateAfter is how long after a recovery an operation without an answer may still be applied.
const lateAfter = 20 * time.Second

// storm has the state that all clients share.
type storm struct {
	site       *site
	http       *http.Client
	violations *violations
	targets    *targets
	tally      tally

	mu    sync.Mutex
	index map[string]*target // by path

	quiet sync.RWMutex // held by the goroutine that needs the clients to pause
}

// tally counts the outcomes of requests.
type tally struct {
	writes, reads [unknown + 1]atomic.Int64 // by outcome; writes are likes, unlikes and creations
	likes, posts  atomic.Int64              // acknowledged
	comments      atomic.Int64
	held          atomic.Int64 // operations that were delayed because of one without an answer
}

func newStorm(s *site) *storm {
	return &storm{
		site: s, violations: &violations{}, targets: &targets{}, index: map[string]*target{},
		http: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: 128, DisableCompression: true,
			DialContext: (&net.Dialer{Timeout: time.Second}).DialContext,
		}},
	}
}

func (st *storm) know(kind string, id int64) *target {
	st.mu.Lock()
	defer st.mu.Unlock()
	t := &target{kind: kind, id: id}
	if known, ok := st.index[t.path()]; ok {
		return known
	}
	st.index[t.path()] = t
	return t
}

func (st *storm) known(kind string, id int64) *target {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.index[fmt.Sprintf("/v1/%s/%d", kind, id)]
}

// answer is the answer to a request.
type answer struct {
	outcome outcome
	status  int
	body    []byte
}

// send sends a request, and checks the answer by the rules for all answers.
func (st *storm) send(ctx context.Context, api int, as *account, method, path string, body any) answer {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			panic(err) // bodies have only strings and numbers
		}
		in = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, st.site.urls[api]+path, in)
	if err != nil {
		panic(err) // the addresses are valid
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if as != nil {
		request.Header.Set("Authorization", "Bearer "+as.token)
	}
	response, err := st.http.Do(request)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return answer{outcome: failed} // nothing was sent
		}
		return answer{outcome: unknown}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{outcome: unknown}
	}
	a := answer{status: response.StatusCode, body: text}
	what := method + " " + path
	switch {
	case a.status < 300:
		a.outcome = ok
	case a.status == http.StatusRequestTimeout:
		a.outcome = unknown
	case a.status < 500:
		a.outcome = failed
		if a.status != http.StatusTooManyRequests {
			// Every request of the storm is valid, so a 4xx is a wrong answer.
			st.violations.addf(
				"blamed the client",
				st.site.since(),
				"api%d: %s answers %d %s",
				api+1,
				what,
				a.status,
				text,
			)
		}
	default:
		a.outcome = unknown
	}
	if a.status >= 400 {
		st.holdProblem(api, what, a, response.Header)
	}
	return a
}

// internals matches terms of the implementation, which answers must not contain.
var internals = regexp.MustCompile(
	`(?i)sql|redis|kafka|sarama|gorm|mariadb|dial |tcp|127\.0\.0\.1|goroutine|\.go\b|panic|deadlock|\blua\b|\beof\b|` +
		`outbox|shard|broken pipe|connection re|i/o timeout|context (deadline|canceled)|/tmp|/home|/usr|Error [0-9]{4}`,
)

// holdProblem checks an error response against the README.
func (st *storm) holdProblem(api int, what string, a answer, header http.Header) {
	var p struct {
		Code      string
		RequestID string `json:"request_id"`
	}
	bad := func(sort string) {
		st.violations.addf(sort, st.site.since(), "api%d: %s answers %d %s", api+1, what, a.status, a.body)
	}
	if header.Get("Content-Type") != "application/problem+json" || json.Unmarshal(a.body, &p) != nil || p.Code == "" {
		bad("an error that is not problem+json")
		return
	}
	if internals.Match(bytes.ReplaceAll(a.body, []byte(p.RequestID), nil)) {
		bad("internals in an answer")
	}
	if a.status == http.StatusServiceUnavailable && header.Get("Retry-After") == "" {
		bad("503 without Retry-After")
	}
}

// seen has the fields of a post or comment that the storm checks.
type seen struct {
	ID            int64  `json:"id"`
	Title         string `json:"title"`
	Content       string `json:"content"`
	LikesCount    int64  `json:"likes_count"`
	CommentsCount int64  `json:"comments_count"`
	Liked         bool   `json:"liked"`
}

// holdCount checks that a count is possible.
func (st *storm) holdCount(t *target, count int64, where string) {
	if t == nil {
		return // its creator has no answer yet
	}
	if count < 0 {
		st.violations.addf("a negative count", st.site.since(), "%s: %s says %d", t.name(), where, count)
	}
	if most := t.likers.Load(); count > most {
		st.violations.addf(
			"a count above its likers",
			st.site.since(),
			"%s: %s says %d, but at most %d users ever liked it",
			t.name(),
			where,
			count,
			most,
		)
	}
}

// set performs one operation on a register, at the given API.
func (st *storm) set(ctx context.Context, api int, r *register, want bool) outcome {
	came, went := r.begin(want)
	before := r.target.bounds()
	method := http.MethodDelete
	if want {
		method = http.MethodPut
	}
	o := op{want: want, api: uint8(api), start: st.site.since()}
	a := st.send(ctx, api, r.user, method, r.target.path()+"/like", nil)
	o.end, o.outcome, o.status = st.site.since(), a.outcome, uint16(a.status)
	if a.outcome == ok {
		var said struct {
			Liked      *bool  `json:"liked"`
			LikesCount *int64 `json:"likes_count"`
		}
		if err := json.Unmarshal(
			a.body,
			&said,
		); err != nil || said.Liked == nil || said.LikesCount == nil ||
			*said.Liked != want {
			st.violations.addf("a wrong answer", o.end, "%s %s/like answers %s", method, r.target.path(), a.body)
		} else {
			st.holdCount(r.target, *said.LikesCount, "the answer to a like")
			if least, most := r.target.since(before); *said.LikesCount < least || *said.LikesCount > most {
				st.violations.addf(
					"a count that cannot be",
					o.end,
					"%s %s/like by user %d answers %s, but there were %d to %d likes",
					method,
					r.target.path(),
					r.user.id,
					a.body,
					least,
					most,
				)
			}
		}
		st.tally.likes.Add(1)
	}
	if a.outcome == unknown && a.status == noStatus {
		r.heldCalm, r.heldUntil = st.site.calm.Load(), o.end+lateAfter
	}
	st.tally.writes[a.outcome].Add(1)
	r.finish(o, came, went)
	return a.outcome
}

// held reports whether an operation without an answer may still arrive.
func (st *storm) held(r *register) bool {
	return r.heldUntil > 0 && (st.site.calm.Load() <= r.heldCalm || st.site.since() < r.heldUntil)
}

// client is one user agent with its own accounts.
type client struct {
	st        *storm
	n         int
	rng       *rand.Rand
	users     []*account
	api       int // the API that it uses
	registers map[registerKey]*register
	order     []*register // the same, in order of creation
	made      []*creation
}

type registerKey struct {
	target *target
	user   int64
}

func newClient(st *storm, n int, seed uint64, users []*account) *client {
	return &client{st: st, n: n, rng: rand.New(rand.NewPCG(seed, uint64(n))), users: users, api: n % 2,
		registers: map[registerKey]*register{}}
}

// run performs operations until ctx ends, at most one in each interval.
func (c *client) run(ctx context.Context, interval time.Duration) {
	next := time.Now().Add(time.Duration(c.rng.Float64() * float64(interval)))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		c.st.quiet.RLock()
		if ctx.Err() == nil {
			// An operation that has begun is completed, because a cancelled request has an unknown outcome.
			c.act(context.WithoutCancel(ctx))
		}
		c.st.quiet.RUnlock()
		next = next.Add(interval)
		if now := time.Now(); next.Before(now) {
			next = now // requests that a fault delayed are not made up for
		}
	}
}

func (c *client) act(ctx context.Context) {
	switch p := c.rng.Float64(); {
	case p < 0.76:
		c.like(ctx)
	case p < 0.762:
		c.post(ctx)
	case p < 0.768:
		c.comment(ctx)
	case p < 0.93:
		c.readOne(ctx)
	default:
		c.readList(ctx)
	}
}

// retire switches to the other API after one did not answer.
func (c *client) retire(a outcome, status int) {
	if a == failed && status == noStatus || a == unknown && status == noStatus {
		c.api = 1 - c.api
	}
}

func (c *client) like(ctx context.Context) {
	for range 5 {
		r := c.choose()
		if c.st.held(r) {
			c.st.tally.held.Add(1)
			continue
		}
		want := c.rng.Float64() < 0.85
		if r.lastWanted() {
			want = c.rng.Float64() < 0.2
		}
		for range 2 {
			outcome := c.st.set(ctx, c.api, r, want)
			last := r.ops[len(r.ops)-1]
			c.retire(outcome, int(last.status))
			if outcome != failed || last.status != noStatus {
				return // only a request that was not sent is repeated at once, at the other API
			}
		}
		return
	}
}

// choose returns a hot target, one that this client has used before, or any.
func (c *client) choose() *register {
	c.st.targets.mu.RLock()
	var t *target
	p := c.rng.Float64()
	switch {
	case p < 0.45:
		t = c.st.targets.hot[c.rng.IntN(len(c.st.targets.hot))]
	case p >= 0.65 || len(c.order) == 0:
		t = c.st.targets.cold[c.rng.IntN(len(c.st.targets.cold))]
	}
	c.st.targets.mu.RUnlock()
	if t == nil {
		return c.order[c.rng.IntN(len(c.order))]
	}
	return c.register(t, c.users[c.rng.IntN(len(c.users))])
}

func (c *client) register(t *target, user *account) *register {
	key := registerKey{t, user.id}
	r, ok := c.registers[key]
	if !ok {
		r = &register{target: t, user: user}
		c.registers[key] = r
		c.order = append(c.order, r)
	}
	return r
}

func (c *client) post(ctx context.Context) {
	made := c.create(ctx, &creation{kind: "posts"})
	if made.outcome == ok {
		c.st.targets.add(c.st.know("posts", made.id))
	}
}

func (c *client) comment(ctx context.Context) {
	c.st.targets.mu.RLock()
	on := c.st.targets.discussed[c.rng.IntN(len(c.st.targets.discussed))]
	c.st.targets.mu.RUnlock()
	made := c.create(ctx, &creation{kind: "comments", parent: on.id})
	if made.outcome == ok {
		c.st.targets.add(c.st.know("comments", made.id))
	}
}

// create sends a creation once. Without an Idempotency-Key, a repeated creation may create twice.
func (c *client) create(ctx context.Context, made *creation) *creation {
	user := c.users[c.rng.IntN(len(c.users))]
	made.marker = fmt.Sprintf("marker-%d-%d-%d", c.n, len(c.made), c.rng.Uint64())
	made.author, made.start = user.id, c.st.site.since()
	c.made = append(c.made, made)
	path, body := "/v1/posts", map[string]any{"title": made.marker, "content": "The text of " + made.marker}
	if made.kind == "comments" {
		path, body = fmt.Sprintf("/v1/posts/%d/comments", made.parent), map[string]any{"content": made.marker}
	}
	a := c.st.send(ctx, c.api, user, http.MethodPost, path, body)
	c.retire(a.outcome, a.status)
	made.outcome, made.status = a.outcome, uint16(a.status)
	c.st.tally.writes[a.outcome].Add(1)
	if a.outcome != ok {
		return made
	}
	var said seen
	if err := json.Unmarshal(
		a.body,
		&said,
	); err != nil || said.ID == 0 || !strings.Contains(said.Title+said.Content, made.marker) ||
		said.LikesCount != 0 {
		c.st.violations.addf("a wrong answer", c.st.site.since(), "POST %s answers %s", path, a.body)
	}
	made.id = said.ID
	if made.kind == "posts" {
		c.st.tally.posts.Add(1)
	} else {
		c.st.tally.comments.Add(1)
	}
	return made
}

func (c *client) read(ctx context.Context, path string) []byte {
	var as *account
	if c.rng.Float64() < 0.7 {
		as = c.users[c.rng.IntN(len(c.users))]
	}
	a := c.st.send(ctx, c.api, as, http.MethodGet, path, nil)
	c.retire(a.outcome, a.status)
	c.st.tally.reads[a.outcome].Add(1)
	if a.outcome != ok {
		return nil
	}
	return a.body
}

func (c *client) readOne(ctx context.Context) {
	t := c.choose().target
	if body := c.read(ctx, t.path()); body != nil {
		var said seen
		if err := json.Unmarshal(body, &said); err != nil || said.ID != t.id {
			c.st.violations.addf("a wrong answer", c.st.site.since(), "GET %s answers %s", t.path(), body)
			return
		}
		c.st.holdCount(t, said.LikesCount, "GET "+t.path())
	}
}

func (c *client) readList(ctx context.Context) {
	kind, path := "posts", "/v1/posts?sort="+[]string{"new", "top"}[c.rng.IntN(2)]
	if c.rng.IntN(2) == 0 {
		c.st.targets.mu.RLock()
		on := c.st.targets.discussed[c.rng.IntN(len(c.st.targets.discussed))]
		c.st.targets.mu.RUnlock()
		kind, path = "comments", on.path()+"/comments?sort="+[]string{"old", "new", "top"}[c.rng.IntN(3)]
	}
	if body := c.read(ctx, path); body != nil {
		var said struct{ Items []seen }
		if err := json.Unmarshal(body, &said); err != nil || said.Items == nil {
			c.st.violations.addf("a wrong answer", c.st.site.since(), "GET %s answers %s", path, body)
			return
		}
		for _, item := range said.Items {
			c.st.holdCount(c.st.known(kind, item.ID), item.LikesCount, "GET "+path)
		}
	}
}

// readTokens parses the output of `likewise user token`.
func readTokens(text string) ([]*account, error) {
	var list []*account
	for line := range strings.Lines(text) {
		id, token, found := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.ParseInt(id, 10, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("not an id and a token: %q", line)
		}
		list = append(list, &account{n, token})
	}
	return list, nil
}
