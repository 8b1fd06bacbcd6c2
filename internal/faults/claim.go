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
func (c claimSeen) valid(d *drop) (id int64, is bool) {
	id, err := strconv.ParseInt(c.ID, 10, 64)
	is = err == nil && id > 0 && c.DropID == d.id && (c.EndedAt == nil) == live(c.State)
	if c.State != stateRejected {
		is = is && (c.ExpiresAt == nil) == (d.within == 0) &&
			(c.ExpiresAt == nil || c.ExpiresAt.Sub(c.CreatedAt) == d.within)
	}
	return id, is
}

// claim performs one operation on a share. id is the claim that it is about, and 0 for a claiming.
func (st *storm) claim(ctx context.Context, by route, s *share, act claiming, id int64) claimOp {
	d := s.drop
	q := request{as: s.user, method: http.MethodPost, path: fmt.Sprintf("/v1/claims/%d", id)}
	q.excused = []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict}
	switch act {
	case claims:
		q.path = d.path() + "/claims"
		if !slices.ContainsFunc(s.ops, func(o claimOp) bool { return o.act == claims }) {
			d.claimants.Add(1)
		}
	case returns:
		q.method = http.MethodDelete
	case confirms:
		q.path += "/confirm"
	case looks:
		q.method = http.MethodGet
	}
	o := claimOp{act: act, claim: id, trouble: st.site.trouble.Load()}
	o.api, o.start = uint8(by.api), st.site.since()
	pass := s.user.pass.Load()
	a := st.send(ctx, by, q)
	o.end, o.outcome, o.status, o.broken = st.site.since(), a.outcome, uint16(a.status), a.broken
	if st.site.trouble.Load() != o.trouble {
		o.trouble = -1
	}
	switch {
	case a.outcome == ok && act != returns:
		st.readClaim(&o, s, q, a)
	case a.outcome == failed && a.status != noStatus:
		var p struct{ Code string }
		_ = json.Unmarshal(a.body, &p) // send has checked it
		o.code = p.Code
		missing := act == claims && a.status == http.StatusNotFound && !d.post.mayBeGone(o.start)
		if missing || !permitted(act, o) && !pass.ended.Load() {
			st.violations.addf("blamed the client", o.end, "%s: %s answers %d %s", by.name(), q, a.status, a.body)
		}
	}
	if act == looks {
		st.tally.reads[o.outcome].Add(1)
	} else {
		st.tally.writes[o.outcome].Add(1)
	}
	st.tally.claim(o)
	s.ops = append(s.ops, o)
	return o
}

// permitted reports whether the contract has this refusal. 404 is judged apart.
func permitted(act claiming, o claimOp) bool {
	switch o.status {
	case http.StatusForbidden:
		return o.code == "ended" && (act == claims || act == returns) || o.code == "not_started" && act == claims
	case http.StatusConflict:
		return o.code == "sold_out" && act == claims ||
			(o.code == "too_late" || o.code == "conflict") && act == confirms
	}
	return true
}

// readClaim reads the claim in an answer.
func (st *storm) readClaim(o *claimOp, s *share, q request, a answer) {
	var c claimSeen
	err := json.Unmarshal(a.body, &c)
	id, is := c.valid(s.drop)
	switch {
	case err != nil, !is, o.act != claims && id != o.claim, o.act == confirms && c.State != stateConfirmed,
		a.status == http.StatusCreated && (o.act != claims || !live(c.State)):
		st.violations.addf("a wrong answer", o.end, "%s answers %d %s", q, a.status, a.body)
	}
	o.claim, o.state = id, c.State
	if c.ExpiresAt != nil {
		o.expires = c.ExpiresAt.Sub(st.site.began)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if of, known := st.claims[id]; known && of != s {
		st.violations.addf("one claim of two users", o.end, "claim %d of user %d: %s", id, of.user.id, s.story())
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

func (t *tally) claim(o claimOp) {
	kind := -1
	switch {
	case o.made():
		kind = claimsMade
	case o.code == "sold_out":
		kind = claimsSoldOut
	case o.code == "too_late", o.state == stateExpired:
		kind = claimsExpired
	case o.outcome != ok:
	case o.act == claims:
		kind = claimsRepeated
	case o.act == returns:
		kind = claimsReturned
	case o.act == confirms:
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
func (st *storm) holdDrop(d *drop, body []byte, where string) (seen dropSeen, is bool) {
	at := st.site.since()
	err := json.Unmarshal(body, &seen)
	if err != nil || seen.ID != d.id || seen.Remaining != max(0, seen.Stock-seen.Claimed) ||
		(seen.ConfirmWithin == nil) != (d.within == 0) {
		st.violations.addf("a wrong answer", at, "%s answers %s", where, body)
		return seen, false
	}
	if seen.Claimed < 0 || seen.Remaining < 0 {
		st.violations.addf("a negative count", at, "%s: %s says %s", d.name(), where, body)
	}
	if most := min(d.claimants.Load(), d.ever(at)); seen.Claimed > most {
		st.violations.addf("more claims than the stock", at, "%s: %s says %d are claimed, and at most %d can be",
			d.name(), where, seen.Claimed, most)
	}
	return seen, true
}

// store has the drops that clients choose from.
type store struct {
	mu         sync.RWMutex
	open, over []*drop
}

func (s *store) add(d *drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, d)
}

// end moves a drop to those that are over.
func (s *store) end(d *drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, d); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
		s.over = append(s.over, d)
	}
}

func (s *store) all() []*drop {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Concat(s.over, s.open)
}

// choose returns a drop, sometimes one that is over; nil if there is none.
func (s *store) choose(rng *rand.Rand) *drop {
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
	s := d.share(c.users[c.rng.IntN(len(c.users))])
	if len(c.holding) > 0 && c.rng.IntN(2) == 0 {
		s = c.holding[c.rng.IntN(len(c.holding))]
	}
	act, again := c.intent(s), c.rng.IntN(2) == 0
	for range 3 {
		id := s.held
		if act == claims {
			id = 0
		}
		by := c.route
		if c.rng.IntN(3) == 0 {
			by = by.other()
		}
		o := c.st.claim(ctx, by, s, act, id)
		c.retire(o.outcome, int(o.status))
		c.believe(s, o)
		switch {
		case o.outcome == failed && o.status == noStatus: // was not sent, and is repeated at the other API
		case o.outcome == unknown && again && act == returns: // the user changes their mind at once
			act, again = claims, false
		case o.outcome == unknown && again && act == claims: // the user tries again
			again = false
		default:
			return
		}
	}
}

// intent chooses what the user of a share does. Some users forget to confirm.
func (c *client) intent(s *share) claiming {
	p := c.rng.Float64()
	switch {
	case s.held == 0 || p < 0.15:
		return claims
	case p < 0.35:
		return looks
	case s.drop.within > 0 && !s.sure && s.held%5 < 2:
		return looks
	case s.drop.within > 0 && !s.sure && p < 0.75:
		return confirms
	}
	return returns
}

// believe updates what the client knows of its share.
func (c *client) believe(s *share, o claimOp) {
	before := s.held
	switch {
	case o.outcome == ok && (o.act == returns || !live(o.state)), o.none(),
		o.status == http.StatusNotFound, o.code == "ended", o.code == "too_late", o.code == "conflict",
		s.user.pass.Load().ended.Load():
		s.held = 0
	case o.outcome == ok:
		s.held = o.claim
		s.sure = o.state == stateConfirmed && s.drop.within > 0
	}
	switch {
	case before == 0 && s.held != 0:
		c.holding = append(c.holding, s)
	case before != 0 && s.held == 0:
		c.holding = slices.DeleteFunc(c.holding, func(h *share) bool { return h == s })
	}
}

// readDrop reads a drop.
func (c *client) readDrop(ctx context.Context) {
	d := c.st.drops.choose(c.rng)
	if d == nil {
		return
	}
	if body := c.read(ctx, d.path(), d.post); body != nil {
		c.st.holdDrop(d, body, "GET "+d.path())
	}
}
