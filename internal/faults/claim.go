package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"likewise/internal/faults/oracle"
)

// timestamp is the format of times in requests.
const timestamp = "2006-01-02T15:04:05.000Z07:00"

// claimSeen has the fields of a claim that the storm checks.
type claimSeen struct {
	ID        string     `json:"id"`
	DropID    int64      `json:"drop_id"`
	State     string     `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	EndedAt   *time.Time `json:"ended_at"`
}

// valid checks the parts of a claim against each other, and returns its id.
func (c claimSeen) valid(d *oracle.Drop) (id int64, is bool) {
	id, err := strconv.ParseInt(c.ID, 10, 64)
	is = err == nil && id > 0 && c.DropID == d.ID && (c.EndedAt == nil) == oracle.Live(c.State)
	if c.State != oracle.StateRejected {
		is = is && (c.ExpiresAt == nil) == (d.Within == 0) &&
			(c.ExpiresAt == nil || c.ExpiresAt.Sub(c.CreatedAt) == d.Within)
	}
	return id, is
}

// claim performs one operation on a share. id is the claim that it is about, and 0 for a claiming.
func (st *storm) claim(ctx context.Context, by route, s *oracle.Share, act oracle.Claiming, id int64) oracle.ClaimOp {
	d := s.Drop
	q := request{as: s.User, method: http.MethodPost, path: fmt.Sprintf("/v1/claims/%d", id)}
	q.excused = []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict}
	switch act {
	case oracle.Claims:
		q.path = d.Path() + "/claims"
		if !slices.ContainsFunc(s.Ops, func(o oracle.ClaimOp) bool { return o.Act == oracle.Claims }) {
			d.Claimants.Add(1)
		}
	case oracle.Returns:
		q.method = http.MethodDelete
	case oracle.Confirms:
		q.path += "/confirm"
	case oracle.Looks:
		q.method = http.MethodGet
	}
	o := oracle.ClaimOp{Act: act, Claim: id, Trouble: st.site.trouble.Load()}
	o.API, o.Start = uint8(by.api), st.site.since()
	pass := s.User.Pass.Load()
	a := st.send(ctx, by, q)
	o.End, o.Outcome, o.Status, o.Broken = st.site.since(), a.outcome, uint16(a.status), a.broken
	if st.site.trouble.Load() != o.Trouble {
		o.Trouble = -1
	}
	switch {
	case a.outcome == oracle.OK && act != oracle.Returns:
		st.readClaim(&o, s, q, a)
	case a.outcome == oracle.Failed && a.status != oracle.NoStatus:
		var p struct{ Code string }
		_ = json.Unmarshal(a.body, &p) // send has checked it
		o.Code = p.Code
		missing := act == oracle.Claims && a.status == http.StatusNotFound && !d.Post.MayBeGone(o.Start)
		if missing || !permitted(act, o) && !pass.Ended.Load() {
			st.violations.Addf(oracle.BlamedClient, o.End, "%s: %s answers %d %s", by.name(), q, a.status, a.body)
		}
	}
	if act == oracle.Looks {
		st.tally.reads[o.Outcome].Add(1)
	} else {
		st.tally.writes[o.Outcome].Add(1)
	}
	st.tally.claim(o)
	s.Ops = append(s.Ops, o)
	return o
}

// permitted reports whether the contract has this refusal. 404 is judged apart.
func permitted(act oracle.Claiming, o oracle.ClaimOp) bool {
	switch o.Status {
	case http.StatusForbidden:
		return o.Code == "ended" && (act == oracle.Claims || act == oracle.Returns) ||
			o.Code == "not_started" && act == oracle.Claims
	case http.StatusConflict:
		return o.Code == "sold_out" && act == oracle.Claims ||
			(o.Code == "too_late" || o.Code == "conflict") && act == oracle.Confirms
	}
	return true
}

// readClaim reads the claim in an answer.
func (st *storm) readClaim(o *oracle.ClaimOp, s *oracle.Share, q request, a answer) {
	var c claimSeen
	err := json.Unmarshal(a.body, &c)
	id, is := c.valid(s.Drop)
	switch {
	case err != nil, !is, o.Act != oracle.Claims && id != o.Claim,
		o.Act == oracle.Confirms && c.State != oracle.StateConfirmed,
		a.status == http.StatusCreated && (o.Act != oracle.Claims || !oracle.Live(c.State)):
		st.violations.Addf(oracle.WrongAnswer, o.End, "%s answers %d %s", q, a.status, a.body)
	}
	o.Claim, o.State = id, c.State
	if c.ExpiresAt != nil {
		o.Expires = c.ExpiresAt.Sub(st.site.began)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if of, known := st.claims[id]; known && of != s {
		st.violations.Addf("one claim of two users", o.End, "claim %d of user %d: %s", id, of.User.ID, s.Story())
	}
	st.claims[id] = s
}

// What the report counts of claims.
const (
	claimsMade = iota
	claimsRepeated
	claimsSoldOut
	claimsReturned
	claimsConfirmed
	claimsExpired
	dropsMade
	stocksChanged
	dropsClosed
	claimKinds
)

var claimNames = [claimKinds]string{
	"made", "repeated", "sold out", "returned", "confirmed", "seen expired", "drops", "changes of stock", "closings",
}

func (t *tally) claim(o oracle.ClaimOp) {
	kind := -1
	switch {
	case o.Made():
		kind = claimsMade
	case o.Code == "sold_out":
		kind = claimsSoldOut
	case o.Code == "too_late", o.State == oracle.StateExpired:
		kind = claimsExpired
	case o.Outcome != oracle.OK:
	case o.Act == oracle.Claims:
		kind = claimsRepeated
	case o.Act == oracle.Returns:
		kind = claimsReturned
	case o.Act == oracle.Confirms:
		kind = claimsConfirmed
	}
	if kind >= 0 {
		t.claims[kind].Add(1)
	}
}

// dropSeen has the fields of a drop that the storm checks.
type dropSeen struct {
	ID            int64      `json:"id"`
	Stock         int64      `json:"stock"`
	Claimed       int64      `json:"claimed"`
	Remaining     int64      `json:"remaining"`
	ConfirmWithin *int64     `json:"confirm_within"`
	ClosedAt      *time.Time `json:"closed_at"`
	Claim         *struct {
		ID string `json:"id"`
	} `json:"claim"`
	Version int64 `json:"version"`
}

// holdDrop checks that the numbers of a drop are possible.
func (st *storm) holdDrop(d *oracle.Drop, body []byte, where string) (seen dropSeen, is bool) {
	at := st.site.since()
	err := json.Unmarshal(body, &seen)
	if err != nil || seen.ID != d.ID || seen.Remaining != max(0, seen.Stock-seen.Claimed) ||
		(seen.ConfirmWithin == nil) != (d.Within == 0) {
		st.violations.Addf(oracle.WrongAnswer, at, "%s answers %s", where, body)
		return seen, false
	}
	if seen.Claimed < 0 || seen.Remaining < 0 {
		st.violations.Addf("a negative count", at, "%s: %s says %s", d.Name(), where, body)
	}
	if limit := min(d.Claimants.Load(), d.Ever(at)); seen.Claimed > limit {
		st.violations.Addf(oracle.OverTheStock, at, "%s: %s says %d are claimed, and at most %d can be",
			d.Name(), where, seen.Claimed, limit)
	}
	return seen, true
}

// store has the drops that clients choose from.
type store struct {
	mu         sync.RWMutex
	open, over []*oracle.Drop
}

func (s *store) add(d *oracle.Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, d)
}

// end moves a drop to those that are over.
func (s *store) end(d *oracle.Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, d); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
		s.over = append(s.over, d)
	}
}

func (s *store) all() []*oracle.Drop {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Concat(s.over, s.open)
}

// choose returns a drop, sometimes one that is over; nil if there is none.
func (s *store) choose(rng *rand.Rand) *oracle.Drop {
	s.mu.RLock()
	defer s.mu.RUnlock()
	from := s.open
	if late := s.over[max(0, len(s.over)-20):]; len(late) > 0 && rng.IntN(20) == 0 {
		from = late
	}
	if len(from) == 0 {
		return nil
	}
	return from[rng.IntN(len(from))]
}

// shop acts on a share: one that the client holds, or any.
func (c *client) shop(ctx context.Context) {
	d := c.st.drops.choose(c.rng)
	if d == nil {
		return
	}
	s := d.Share(c.users[c.rng.IntN(len(c.users))])
	if len(c.holding) > 0 && c.rng.IntN(2) == 0 {
		s = c.holding[c.rng.IntN(len(c.holding))]
	}
	act, again := c.intent(s), c.rng.IntN(2) == 0
	for range 3 {
		id := s.Held
		if act == oracle.Claims {
			id = 0
		}
		by := c.route
		if c.rng.IntN(3) == 0 {
			by = by.other()
		}
		o := c.st.claim(ctx, by, s, act, id)
		c.retire(o.Outcome, int(o.Status))
		c.believe(s, o)
		switch {
		// It was not sent, and is repeated at the other API.
		case o.Outcome == oracle.Failed && o.Status == oracle.NoStatus:
		case o.Outcome == oracle.Unknown && again && act == oracle.Returns: // the user changes their mind at once
			act, again = oracle.Claims, false
		case o.Outcome == oracle.Unknown && again && act == oracle.Claims: // the user tries again
			again = false
		default:
			return
		}
	}
}

// intent chooses what the user of a share does. Some users forget to confirm.
func (c *client) intent(s *oracle.Share) oracle.Claiming {
	p := c.rng.Float64()
	switch {
	case s.Held == 0 || p < 0.15:
		return oracle.Claims
	case p < 0.35:
		return oracle.Looks
	case s.Drop.Within > 0 && !s.Sure && s.Held%5 < 2:
		return oracle.Looks
	case s.Drop.Within > 0 && !s.Sure && p < 0.75:
		return oracle.Confirms
	}
	return oracle.Returns
}

// believe updates what the client knows of its share.
func (c *client) believe(s *oracle.Share, o oracle.ClaimOp) {
	before := s.Held
	switch {
	case o.Outcome == oracle.OK && (o.Act == oracle.Returns || !oracle.Live(o.State)), o.None(),
		o.Status == http.StatusNotFound, o.Code == "ended", o.Code == "too_late", o.Code == "conflict",
		s.User.Pass.Load().Ended.Load():
		s.Held = 0
	case o.Outcome == oracle.OK:
		s.Held = o.Claim
		s.Sure = o.State == oracle.StateConfirmed && s.Drop.Within > 0
	}
	switch {
	case before == 0 && s.Held != 0:
		c.holding = append(c.holding, s)
	case before != 0 && s.Held == 0:
		c.holding = slices.DeleteFunc(c.holding, func(h *oracle.Share) bool { return h == s })
	}
}

// readDrop reads a drop.
func (c *client) readDrop(ctx context.Context) {
	d := c.st.drops.choose(c.rng)
	if d == nil {
		return
	}
	if body := c.read(ctx, d.Path(), d.Post); body != nil {
		c.st.holdDrop(d, body, "GET "+d.Path())
	}
}
