package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// drop is limited stock, with what its actors know of it. One keeper changes its settings, one request at a time.
type drop struct {
	id     int64
	post   *target
	within time.Duration // to confirm a claim; 0: claims need no confirmation
	begins time.Duration // of the run; 0: at once
	ends   time.Duration // of the run; 0: when it is closed

	claimants atomic.Int64 // users who may ever have claimed it

	mu      sync.Mutex
	stocks  []setting // requests for a stock, in their order; the first is the creation
	closing []setting // requests to close it
	shares  map[int64]*share
}

func (d *drop) path() string { return fmt.Sprintf("/v1/drops/%d", d.id) }
func (d *drop) name() string { return fmt.Sprintf("drop %d", d.id) }

// setting is a request to change a drop.
type setting struct {
	stock      int64
	start, end time.Duration // end is forever while it is pending
	outcome    outcome
	// calm means that it was acknowledged while no fault was active. So every process acted on it from then on.
	// Otherwise the gate may learn of it later.
	calm bool
}

// share returns the share of a user. Only the client of the user calls it before the storm ends.
func (d *drop) share(user *account) *share {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.shares[user.id]
	if !ok {
		s = &share{drop: d, user: user}
		if d.shares == nil {
			d.shares = map[int64]*share{}
		}
		d.shares[user.id] = s
	}
	return s
}

// all returns the shares in the order of their users.
func (d *drop) all() []*share {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]*share, 0, len(d.shares))
	for _, s := range d.shares {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *share) int { return int(a.user.id - b.user.id) })
	return list
}

// ask records that a request for a stock is sent, and answered when the returned function is called.
func (d *drop) ask(list *[]setting, s setting) (answered func(setting)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := len(*list)
	s.end, s.outcome = forever, pending
	*list = append(*list, s)
	return func(s setting) {
		d.mu.Lock()
		defer d.mu.Unlock()
		(*list)[i] = s
	}
}

// ever returns the highest stock that was asked for by a time.
func (d *drop) ever(by time.Duration) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var most int64
	for _, s := range d.stocks {
		if s.start <= by && s.outcome != failed {
			most = max(most, s.stock)
		}
	}
	return most
}

// bounds returns the lowest and the highest stock by which the gate may have gone at some time from begin to end.
func (d *drop) bounds(begin, end time.Duration) (least, most int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	least = int64(1<<63 - 1)
	for i, s := range d.stocks {
		replaced := slices.ContainsFunc(d.stocks[i+1:], func(s setting) bool { return s.calm && s.end < begin })
		if s.outcome != failed && s.start <= end && !replaced {
			least, most = min(least, s.stock), max(most, s.stock)
		}
	}
	return least, most
}

// mayBeLowered reports whether the stock may have been lowered by a time.
func (d *drop) mayBeLowered(by time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var most int64
	for _, s := range d.stocks {
		if s.outcome == failed || s.start > by {
			continue
		}
		if s.stock < most {
			return true
		}
		most = max(most, s.stock)
	}
	return false
}

// mayBeClosed reports whether the drop may have been closed by a time.
func (d *drop) mayBeClosed(by time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.closing, func(s setting) bool { return s.outcome != failed && s.start <= by })
}

// mustBeClosed reports whether every process knew before a time that the drop is closed.
func (d *drop) mustBeClosed(before time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.closing, func(s setting) bool { return s.calm && s.end < before })
}

// claiming is what a user asks of a drop.
type claiming uint8

const (
	claims   claiming = iota // one of the stock
	returns                  // the claim
	confirms                 // the claim
	looks                    // at the claim
)

func (c claiming) String() string { return [...]string{"claim", "return", "confirm", "look"}[c] }

// claimOp is an operation on a share.
type claimOp struct {
	op
	act     claiming
	claim   int64  // the claim that the request or, of a claiming, the answer names; 0 for none
	state   string // in the answer
	code    string // of a problem
	expires time.Duration
	trouble int64 // the site's, if it was the same from begin to end; otherwise an odd number
}

// made reports whether the operation made its claim.
func (o claimOp) made() bool { return o.act == claims && o.status == 201 }

// none reports whether the answer says that the user has no claim: one that exists would be answered instead.
func (o claimOp) none() bool {
	return o.act == claims && (o.code == "sold_out" || o.code == "not_started" || o.code == "ended")
}

// may reports whether the operation has taken effect, or may have.
func (o claimOp) may() bool { return o.outcome != failed }

// share is what one user has of a drop. Only one client acts on it, one operation at a time.
type share struct {
	drop *drop
	user *account
	ops  []claimOp
	held int64 // the claim that the client believes in; 0 for none
	sure bool  // it was confirmed
}

// claimVoid is a request to void the claims of a user.
type claimVoid struct {
	start   time.Duration
	until   time.Duration // when it can no longer take effect
	drop    *drop         // nil: all
	account bool          // the account is deleted
	certain bool          // it was acknowledged
}

// claimRow is a row of a claim in MySQL.
type claimRow struct {
	id      int64
	state   string
	reason  string
	overdue bool // it expired some time ago
}

func (r claimRow) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d, %s %s", r.id, r.state, r.reason))
}

const (
	stateReserved  = "reserved"
	stateConfirmed = "confirmed"
	stateReturned  = "returned"
	stateExpired   = "expired"
	stateRejected  = "rejected"
	stateVoided    = "voided"
)

func live(state string) bool { return state == stateReserved || state == stateConfirmed }

// story returns the operations as text.
func (s *share) story() string {
	const most = 40
	var b strings.Builder
	fmt.Fprintf(&b, "%s, user %d, %d operations", s.drop.name(), s.user.id, len(s.ops))
	for _, c := range s.drop.stocks[max(0, len(s.drop.stocks)-most/2):] {
		fmt.Fprintf(&b, "\n    %9.3f s to %9.3f s  stock %d, %s", c.start.Seconds(), min(c.end, time.Hour).Seconds(),
			c.stock, c.outcome)
	}
	for _, v := range s.user.claimVoids {
		fmt.Fprintf(&b, "\n    %9.3f s  claims are voided", v.start.Seconds())
	}
	ops := s.ops
	if len(ops) > most {
		fmt.Fprintf(&b, "\n    the last %d:", most)
		ops = ops[len(ops)-most:]
	}
	for _, o := range ops {
		fmt.Fprintf(&b, "\n    %9.3f s to %9.3f s  %s  %-7s  %-7s %d %s %s %d", o.start.Seconds(), o.end.Seconds(),
			route{api: int(o.api)}.name(), o.act, o.outcome, o.status, o.code, o.state, o.claim)
	}
	return b.String()
}
