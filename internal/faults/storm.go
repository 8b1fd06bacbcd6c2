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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"likewise/internal/faults/oracle"
)

// Clients wait for an answer until their own deadline. Patient ones wait longer than the API works on a request.
// Impatient ones go on while the API may still do so.
const (
	patientLimit   = oracle.RequestLimit + oracle.Transit
	impatientLimit = 3 * time.Second
)

// last returns until when an operation may take effect.
func (s *site) last(o oracle.Op) time.Duration { return oracle.Last(o, s.heldAt(int(o.API))) }

// storm has the state that all clients share.
type storm struct {
	site       *site
	http       *http.Client
	violations *oracle.Violations
	targets    *targets
	tally      tally

	mu     sync.Mutex
	index  map[string]*oracle.Target // by path
	claims map[int64]*oracle.Share   // by the ids that answers named

	drops   store
	keepers []*keeper
	clients []*client

	outcasts   []*oracle.Account // users on whom moderators act
	moderators []*moderator

	quiet sync.RWMutex // held by the goroutine that needs the clients to pause
}

// targets are the posts and comments that clients choose from, deleted or not.
type targets struct {
	mu   sync.RWMutex
	hot  []*oracle.Target
	cold []*oracle.Target
	// disputed is as hot as the hot ones, and deleted and restored all the time.
	disputed *oracle.Target
	// discussed are the posts with comments. They are few, because all comments are read at the end.
	discussed []*oracle.Target
}

func (t *targets) add(x *oracle.Target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cold = append(t.cold, x)
}

// tally counts the outcomes of requests.
type tally struct {
	writes, reads [oracle.Unknown + 1]atomic.Int64 // by outcome; writes are likes, unlikes and creations
	likes, posts  atomic.Int64                     // acknowledged
	comments      atomic.Int64
	repeated      atomic.Int64 // with the same Idempotency-Key
	readBack      atomic.Int64 // likes that were read at once
	overtaken     atomic.Int64 // operations that were sent while one without an answer could still take effect
	moderated     [moderations]atomic.Int64
	claims        [claimKinds]atomic.Int64
	operated      [operations]atomic.Int64 // commands of the operator that succeeded
}

func newStorm(s *site) *storm {
	return &storm{
		site: s, violations: &oracle.Violations{}, targets: &targets{},
		index: map[string]*oracle.Target{}, claims: map[int64]*oracle.Share{},
		http: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: 128, DisableCompression: true,
			DialContext: (&net.Dialer{Timeout: time.Second}).DialContext,
		}},
	}
}

func (st *storm) know(kind string, id int64) *oracle.Target {
	st.mu.Lock()
	defer st.mu.Unlock()
	t := &oracle.Target{Kind: kind, ID: id}
	if known, ok := st.index[t.Path()]; ok {
		return known
	}
	st.index[t.Path()] = t
	return t
}

// born returns the target that was created.
func (st *storm) born(made *oracle.Creation) *oracle.Target {
	t := st.know(made.Kind, made.ID)
	st.mu.Lock()
	defer st.mu.Unlock()
	t.Author = made.Author
	if made.Kind == "comments" {
		t.Parent = st.index[(&oracle.Target{Kind: "posts", ID: made.Parent}).Path()]
	}
	return t
}

func (st *storm) known(kind string, id int64) *oracle.Target {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.index[fmt.Sprintf("/v1/%s/%d", kind, id)]
}

// answer is the answer to a request.
type answer struct {
	outcome oracle.Outcome
	status  int
	body    []byte
	etag    string
	broken  bool // the connection to the API ended before the client gave up
	// replayed means that a request with the same Idempotency-Key was carried out before.
	replayed bool
}

// route is a way to an API, and the deadline of those who use it.
type route struct {
	api   int // index in site.urls
	limit time.Duration
}

// name returns the name of the API.
func (r route) name() string { return oracle.APIName(r.api) }

// far reports whether a proxy is on the way.
func (r route) far() bool { return r.api >= 2 }

// other returns the same way to the other API.
func (r route) other() route { return route{r.api ^ 1, r.limit} }

// request is a request of a client. A status of 4xx is a wrong answer unless it is excused.
type request struct {
	as           *oracle.Account
	method, path string
	body         any
	header       map[string]string
	excused      []int
}

func (q request) String() string { return q.method + " " + q.path }

// send sends a request, and checks the answer by the rules for all answers.
func (st *storm) send(ctx context.Context, by route, q request) answer {
	ctx, cancel := context.WithTimeout(ctx, by.limit)
	defer cancel()
	var in io.Reader
	if q.body != nil {
		text, err := json.Marshal(q.body)
		if err != nil {
			panic(err) // bodies have only strings and numbers
		}
		in = bytes.NewReader(text)
	}
	sent, err := http.NewRequestWithContext(ctx, q.method, st.site.urls[by.api]+q.path, in)
	if err != nil {
		panic(err) // the addresses are valid
	}
	if q.body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	for name, value := range q.header {
		sent.Header.Set(name, value)
	}
	// net/http would send a request with an Idempotency-Key again by itself, and return the outcome of the second.
	sent.GetBody = nil
	begin, trouble := st.site.since(), st.site.trouble.Load()
	var used *oracle.Pass
	if q.as != nil {
		used = q.as.Pass.Load()
		sent.Header.Set("Authorization", "Bearer "+used.Token)
	}
	response, err := st.http.Do(sent)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return answer{outcome: oracle.Failed} // nothing was sent
		}
		return answer{outcome: oracle.Unknown, broken: ctx.Err() == nil && !by.far()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{outcome: oracle.Unknown, broken: ctx.Err() == nil && !by.far()}
	}
	a := answer{status: response.StatusCode, body: text, etag: response.Header.Get("ETag"),
		replayed: response.Header.Get("Idempotency-Replayed") == "true"}
	switch {
	case a.status < 300:
		a.outcome = oracle.OK
		// Other processes learn of a ban within seconds.
		if q.as != nil && q.as.Banned.Must(begin-sessionsFresh, trouble) && st.site.trouble.Load() == trouble {
			st.violations.Addf("a banned account is served", st.site.since(), "%s: %s of user %d answers %d",
				by.name(), q, q.as.ID, a.status)
		}
	case a.status == http.StatusRequestTimeout:
		a.outcome = oracle.Unknown
	case a.status < 500:
		a.outcome = oracle.Failed
		excused := a.status == http.StatusTooManyRequests || slices.Contains(q.excused, a.status)
		if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
			excused = excused || used != nil && used.Ended.Load()
		}
		if !excused {
			// Every other request of the storm is valid, so a 4xx is a wrong answer.
			st.violations.Addf(oracle.BlamedClient, st.site.since(), "%s: %s answers %d %s",
				by.name(), q, a.status, text)
		}
	default:
		a.outcome = oracle.Unknown
	}
	if a.status >= 400 {
		st.holdProblem(by, q, a, response.Header)
	}
	return a
}

// sessionsFresh is how long an API may rely on a session that was ended through another one. The README promises five
// seconds.
const sessionsFresh = 6 * time.Second

// internals matches terms of the implementation, which answers must not contain.
var internals = regexp.MustCompile(
	`(?i)sql|redis|kafka|sarama|gorm|mariadb|dial |tcp|127\.0\.0\.1|goroutine|\.go\b|panic|deadlock|\blua\b|\beof\b|` +
		`outbox|shard|broken pipe|connection re|i/o timeout|context (deadline|canceled)|/tmp|/home|/usr|Error [0-9]{4}`,
)

// holdProblem checks an error response against the README.
func (st *storm) holdProblem(by route, q request, a answer, header http.Header) {
	var p struct {
		Code      string
		RequestID string `json:"request_id"`
	}
	bad := func(sort oracle.Kind) {
		st.violations.Addf(sort, st.site.since(), "%s: %s answers %d %s", by.name(), q, a.status, a.body)
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
	Status        string `json:"status"` // of comments: deleted ones are placeholders
}

// holdCount checks that a count is possible.
func (st *storm) holdCount(t *oracle.Target, count int64, where string) {
	if t == nil {
		return // its creator has no answer yet
	}
	if count < 0 {
		st.violations.Addf("a negative count", st.site.since(), "%s: %s says %d", t.Name(), where, count)
	}
	if limit := t.Likers.Load(); count > limit {
		st.violations.Addf("a count above its likers", st.site.since(),
			"%s: %s says %d, but at most %d users ever liked it", t.Name(), where, count, limit)
	}
}

// set performs one operation on a register.
func (st *storm) set(ctx context.Context, by route, r *oracle.Register, want bool) oracle.Outcome {
	r.Settle(st.site.since(), st.site.last)
	if r.Opposed(want) {
		st.tally.overtaken.Add(1)
	}
	came, went := r.Begin(want)
	before, trouble := r.Target.Bounds(), st.site.trouble.Load()
	method := http.MethodDelete
	if want {
		method = http.MethodPut
	}
	o := oracle.Op{Want: want, API: uint8(by.api), Start: st.site.since()}
	excused := []int{http.StatusNotFound}
	if len(r.Open) > 0 || r.User.Outcast { // an earlier request, or a void of the likes, may come after this one
		excused = append(excused, http.StatusConflict)
	}
	a := st.send(ctx, by, request{
		as: r.User, method: method, path: r.Target.Path() + "/like", excused: excused,
	})
	o.End, o.Outcome, o.Status, o.Broken = st.site.since(), a.outcome, uint16(a.status), a.broken
	if a.status == http.StatusNotFound && !r.Target.MayBeGone(o.Start) {
		st.violations.Addf(oracle.BlamedClient, o.End, "%s: %s %s/like answers 404, and the target is not deleted",
			by.name(), method, r.Target.Path())
	}
	if a.outcome == oracle.OK && r.Target.MustBeGone(o.Start, trouble) && st.site.trouble.Load() == trouble {
		st.violations.Addf("a deleted target takes likes", o.End, "%s: %s %s/like of user %d answers %s",
			by.name(), method, r.Target.Path(), r.User.ID, a.body)
	}
	if a.outcome == oracle.OK {
		var said struct {
			Liked      *bool  `json:"liked"`
			LikesCount *int64 `json:"likes_count"`
		}
		if err := json.Unmarshal(a.body, &said); err != nil || said.Liked == nil || said.LikesCount == nil ||
			*said.Liked != want {
			st.violations.Addf(oracle.WrongAnswer, o.End, "%s %s/like answers %s", method, r.Target.Path(), a.body)
		} else {
			st.holdCount(r.Target, *said.LikesCount, "the answer to a like")
			if low, high := r.Target.Since(before); *said.LikesCount < low || *said.LikesCount > high {
				st.violations.Addf(
					"a count that cannot be",
					o.End,
					"%s %s/like by user %d answers %s, but there were %d to %d likes",
					method,
					r.Target.Path(),
					r.User.ID,
					a.body,
					low,
					high,
				)
			}
		}
		st.tally.likes.Add(1)
	}
	st.tally.writes[a.outcome].Add(1)
	r.Finish(o, came, went)
	return a.outcome
}

// client is one user agent with its own accounts.
type client struct {
	route

	st        *storm
	n         int
	rng       *rand.Rand
	users     []*oracle.Account
	registers map[oracle.RegisterKey]*oracle.Register
	order     []*oracle.Register // the same, in order of creation
	made      []*oracle.Creation
	holding   []*oracle.Share // that the client believes to have claims
}

func newClient(st *storm, n int, seed uint64, users []*oracle.Account) *client {
	by := route{n % 2, patientLimit}
	if n%4 >= 2 {
		by.limit = impatientLimit
	}
	if n%3 == 2 {
		by.api += 2 // behind a proxy
	}
	return &client{route: by, st: st, n: n, rng: rand.New(rand.NewPCG(seed, uint64(n))), users: users,
		registers: map[oracle.RegisterKey]*oracle.Register{}}
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
	case p < 0.62:
		c.like(ctx)
	case p < 0.76:
		c.shop(ctx)
	case p < 0.762 && !c.users[0].Outcast:
		c.post(ctx)
	case p < 0.768 && !c.users[0].Outcast:
		c.comment(ctx)
	case p < 0.79:
		c.readDrop(ctx)
	case p < 0.93:
		c.readOne(ctx)
	default:
		c.readList(ctx)
	}
}

// retire switches to the other API after one did not answer.
func (c *client) retire(a oracle.Outcome, status int) {
	if a == oracle.Failed && status == oracle.NoStatus || a == oracle.Unknown && status == oracle.NoStatus {
		c.route = c.other()
	}
}

func (c *client) like(ctx context.Context) {
	r := c.choose()
	want := c.rng.Float64() < 0.85
	if r.LastWanted() {
		want = c.rng.Float64() < 0.2
	}
	again, back := c.rng.Float64() < 0.5, c.rng.Float64() < 0.1
	for range 3 {
		outcome := c.st.set(ctx, c.route, r, want)
		last := r.Ops[len(r.Ops)-1]
		c.retire(outcome, int(last.Status))
		switch {
		// It was not sent, and is repeated at the other API.
		case outcome == oracle.Failed && last.Status == oracle.NoStatus:
		case outcome == oracle.Unknown && again: // the user changes their mind at once
			want, again = !want, false
		case outcome == oracle.OK && back:
			c.readBack(ctx, r)
			return
		default:
			return
		}
	}
}

// readBack reads a target whose like was just answered, through either API. While no fault is active, the answer has
// what was acknowledged, and a possible count. A process that waits too long for Redis may answer from MySQL, which is
// behind by a moment, so a wrong answer is a violation only if it stays.
func (c *client) readBack(ctx context.Context, r *oracle.Register) {
	want, trouble := r.LastWanted(), c.st.site.trouble.Load()
	if trouble%2 == 1 || r.User.Outcast || r.Opposed(want) {
		return
	}
	by, wrong := route{c.rng.IntN(2), c.limit}, ""
	for range 10 {
		before, begin := r.Target.Bounds(), c.st.site.since()
		a := c.st.send(ctx, by, request{
			as: r.User, method: http.MethodGet, path: r.Target.Path(), excused: []int{http.StatusNotFound},
		})
		var said seen
		if a.outcome != oracle.OK || json.Unmarshal(a.body, &said) != nil || r.Target.MayBeGone(begin) ||
			c.st.site.trouble.Load() != trouble {
			return
		}
		c.st.tally.reads[oracle.OK].Add(1)
		c.st.tally.readBack.Add(1)
		low, high := r.Target.Since(before)
		if said.Liked == want && said.LikesCount >= low && said.LikesCount <= high {
			return
		}
		wrong = fmt.Sprintf("user %d of %s: %s answers liked %v and %d likes, but liked is %v and there are %d to %d",
			r.User.ID, r.Target.Name(), by.name(), said.Liked, said.LikesCount, want, low, high)
		if wait(ctx, 300*time.Millisecond) != nil {
			return
		}
	}
	c.st.violations.Addf("a read that is not what was acknowledged", c.st.site.since(), "%s", wrong)
}

// choose returns a hot target, one that this client has used before, or any.
func (c *client) choose() *oracle.Register {
	c.st.targets.mu.RLock()
	var t *oracle.Target
	p := c.rng.Float64()
	switch {
	case p < 0.4:
		t = c.st.targets.hot[c.rng.IntN(len(c.st.targets.hot))]
	case p < 0.45:
		t = c.st.targets.disputed
	case p >= 0.65 || len(c.order) == 0:
		t = c.st.targets.cold[c.rng.IntN(len(c.st.targets.cold))]
	}
	c.st.targets.mu.RUnlock()
	if t == nil {
		return c.order[c.rng.IntN(len(c.order))]
	}
	return c.register(t, c.users[c.rng.IntN(len(c.users))])
}

func (c *client) register(t *oracle.Target, user *oracle.Account) *oracle.Register {
	key := oracle.RegisterKey{Target: t, User: user.ID}
	r, ok := c.registers[key]
	if !ok {
		r = &oracle.Register{Target: t, User: user}
		c.registers[key] = r
		c.order = append(c.order, r)
	}
	return r
}

func (c *client) post(ctx context.Context) {
	made := c.create(ctx, &oracle.Creation{Kind: "posts"})
	if made.Outcome == oracle.OK {
		c.st.targets.add(c.st.born(made))
	}
}

func (c *client) comment(ctx context.Context) {
	c.st.targets.mu.RLock()
	on := c.st.targets.discussed[c.rng.IntN(len(c.st.targets.discussed))]
	c.st.targets.mu.RUnlock()
	made := c.create(ctx, &oracle.Creation{Kind: "comments", Parent: on.ID})
	if made.Outcome == oracle.OK {
		c.st.targets.add(c.st.born(made))
	}
}

// create sends a creation. Without an Idempotency-Key it is sent once, because a repetition may create twice. With a
// key, it is repeated until there is an answer, and sometimes after it: whatever is sent has one effect and one answer.
func (c *client) create(ctx context.Context, made *oracle.Creation) *oracle.Creation {
	made.Marker = fmt.Sprintf("marker-%d-%d-%d", c.n, len(c.made), c.rng.Uint64())
	made.Author, made.Start = c.users[c.rng.IntN(len(c.users))], c.st.site.since()
	c.made = append(c.made, made)
	q := request{
		as: made.Author, method: http.MethodPost, path: "/v1/posts",
		body:    map[string]any{"title": made.Marker, "content": "The text of " + made.Marker},
		excused: []int{http.StatusNotFound},
	}
	if made.Kind == "comments" {
		q.path, q.body = fmt.Sprintf("/v1/posts/%d/comments", made.Parent), map[string]any{"content": made.Marker}
	}
	again := 1
	if c.rng.IntN(2) == 0 {
		q.header, again = map[string]string{"Idempotency-Key": made.Marker}, 5
	}
	var a answer
	for n := range again {
		if n > 0 {
			c.st.tally.repeated.Add(1)
			q.excused = append(q.excused, http.StatusConflict) // the one before is still being carried out
		}
		a = c.st.send(ctx, c.route, q)
		if a.status == http.StatusNotFound {
			on := c.st.known("posts", made.Parent)
			if on == nil || !on.MayBeGone(made.Start) {
				c.st.violations.Addf(oracle.BlamedClient, c.st.site.since(), "POST %s answers 404 %s", q.path, a.body)
			}
		}
		c.retire(a.outcome, a.status)
		made.Settle(a.outcome, uint16(a.status))
		if a.outcome == oracle.OK || a.outcome == oracle.Failed && a.status != http.StatusConflict {
			break
		}
		_ = wait(ctx, time.Duration(n)*200*time.Millisecond)
	}
	c.st.tally.writes[made.Outcome].Add(1)
	if a.outcome != oracle.OK {
		return made
	}
	said, is := c.created(made, q, a)
	if is && said.LikesCount != 0 && again == 1 {
		c.st.violations.Addf(oracle.WrongAnswer, c.st.site.since(), "POST %s answers %s", q.path, a.body)
	}
	made.ID = said.ID
	if q.header != nil && c.rng.IntN(2) == 0 {
		c.replay(ctx, made, q)
	}
	if made.Kind == "posts" {
		c.st.tally.posts.Add(1)
	} else {
		c.st.tally.comments.Add(1)
	}
	return made
}

// created reads the answer to a creation.
func (c *client) created(made *oracle.Creation, q request, a answer) (said seen, is bool) {
	err := json.Unmarshal(a.body, &said)
	if err != nil || said.ID == 0 || !strings.Contains(said.Title+said.Content, made.Marker) {
		c.st.violations.Addf(oracle.WrongAnswer, c.st.site.since(), "POST %s answers %s", q.path, a.body)
		return said, false
	}
	return said, true
}

// replay sends an acknowledged creation again. The answer is that of the first, unless the object was deleted since.
func (c *client) replay(ctx context.Context, made *oracle.Creation, q request) {
	q.excused = append(q.excused, http.StatusConflict)
	trouble, begin := c.st.site.trouble.Load(), c.st.site.since()
	a := c.st.send(ctx, c.route, q)
	c.retire(a.outcome, a.status)
	c.st.tally.repeated.Add(1)
	switch {
	case a.outcome == oracle.OK:
		if said, is := c.created(made, q, a); is && (said.ID != made.ID || !a.replayed) {
			c.st.violations.Addf("a key with two effects", c.st.site.since(),
				"%s: answered again, replayed %v, with %s", made.Story(), a.replayed, a.body)
		}
	case a.outcome == oracle.Failed && a.status != oracle.NoStatus:
		on := c.st.known("posts", made.Parent)
		if on != nil && on.MayBeGone(begin) || trouble%2 == 1 || c.st.site.trouble.Load() != trouble {
			return
		}
		c.st.violations.Addf(oracle.BlamedClient, c.st.site.since(), "%s: the same again answers %d %s", made.Story(),
			a.status, a.body)
	}
}

// read reads a path that belongs to the target on, or to none.
func (c *client) read(ctx context.Context, path string, on *oracle.Target) []byte {
	var as *oracle.Account
	if c.rng.Float64() < 0.7 {
		as = c.users[c.rng.IntN(len(c.users))]
	}
	begin := c.st.site.since()
	a := c.st.send(ctx, c.route, request{
		as: as, method: http.MethodGet, path: path, excused: []int{http.StatusNotFound},
	})
	if a.status == http.StatusNotFound && (on == nil || !on.MayBeGone(begin)) {
		c.st.violations.Addf(oracle.BlamedClient, c.st.site.since(), "GET %s answers 404 %s", path, a.body)
	}
	c.retire(a.outcome, a.status)
	c.st.tally.reads[a.outcome].Add(1)
	if a.outcome != oracle.OK {
		return nil
	}
	return a.body
}

func (c *client) readOne(ctx context.Context) {
	t := c.choose().Target
	if body := c.read(ctx, t.Path(), t); body != nil {
		var said seen
		if err := json.Unmarshal(body, &said); err != nil || said.ID != t.ID {
			c.st.violations.Addf(oracle.WrongAnswer, c.st.site.since(), "GET %s answers %s", t.Path(), body)
			return
		}
		c.st.holdCount(t, said.LikesCount, "GET "+t.Path())
	}
}

func (c *client) readList(ctx context.Context) {
	kind, path := "posts", "/v1/posts?sort="+[]string{"new", "top"}[c.rng.IntN(2)]
	var under *oracle.Target
	if c.rng.IntN(2) == 0 {
		c.st.targets.mu.RLock()
		on := c.st.targets.discussed[c.rng.IntN(len(c.st.targets.discussed))]
		c.st.targets.mu.RUnlock()
		under, kind, path = on, "comments", on.Path()+"/comments?sort="+[]string{"old", "new", "top"}[c.rng.IntN(3)]
	}
	if body := c.read(ctx, path, under); body != nil {
		var said struct{ Items []seen }
		if err := json.Unmarshal(body, &said); err != nil || said.Items == nil {
			c.st.violations.Addf(oracle.WrongAnswer, c.st.site.since(), "GET %s answers %s", path, body)
			return
		}
		for _, item := range said.Items {
			c.st.holdCount(c.st.known(kind, item.ID), item.LikesCount, "GET "+path)
		}
	}
}

// readTokens parses the output of `likewise user token`.
func readTokens(text string) ([]*oracle.Account, error) {
	var list []*oracle.Account
	for line := range strings.Lines(text) {
		id, token, found := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.ParseInt(id, 10, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("not an id and a token: %q", line)
		}
		list = append(list, oracle.NewAccount(n, token))
	}
	return list, nil
}
