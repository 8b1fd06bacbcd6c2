package oracle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Drop is limited stock, with what its actors know of it. One keeper changes its settings, one request at a time.
type Drop struct {
	ID     int64
	Post   *Target
	Within time.Duration // to confirm a claim; 0: claims need no confirmation
	Begins time.Duration // of the run; 0: at once
	Ends   time.Duration // of the run; 0: when it is closed

	Claimants atomic.Int64 // users who may ever have claimed it

	mu      sync.Mutex
	Stocks  []Setting // requests for a stock, in their order; the first is the creation
	Closing []Setting // requests to close it
	shares  map[int64]*Share
}

// Path returns the path of the drop in the API.
func (d *Drop) Path() string { return fmt.Sprintf("/v1/drops/%d", d.ID) }

// Name returns the name of the drop in reports.
func (d *Drop) Name() string { return fmt.Sprintf("drop %d", d.ID) }

// Setting is a request to change a drop.
type Setting struct {
	Stock      int64
	Start, End time.Duration // end is forever while it is pending
	Outcome    Outcome
	// calm means that it was acknowledged while no fault was active. So every process acted on it from then on.
	// Otherwise the gate may learn of it later.
	Calm bool
}

// Share returns the share of a user. Only the client of the user calls it before the storm ends.
func (d *Drop) Share(user *Account) *Share {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.shares[user.ID]
	if !ok {
		s = &Share{Drop: d, User: user}
		if d.shares == nil {
			d.shares = map[int64]*Share{}
		}
		d.shares[user.ID] = s
	}
	return s
}

// All returns the shares in the order of their users.
func (d *Drop) All() []*Share {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]*Share, 0, len(d.shares))
	for _, s := range d.shares {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Share) int { return int(a.User.ID - b.User.ID) })
	return list
}

// Ask records that a request for a stock is sent, and answered when the returned function is called.
func (d *Drop) Ask(list *[]Setting, s Setting) (answered func(Setting)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := len(*list)
	s.End, s.Outcome = Forever, Pending
	*list = append(*list, s)
	return func(s Setting) {
		d.mu.Lock()
		defer d.mu.Unlock()
		(*list)[i] = s
	}
}

// Ever returns the highest stock that was asked for by a time.
func (d *Drop) Ever(by time.Duration) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var highest int64
	for _, s := range d.Stocks {
		if s.Start <= by && s.Outcome != Failed {
			highest = max(highest, s.Stock)
		}
	}
	return highest
}

// bounds returns the lowest and the highest stock by which the gate may have gone at some time from begin to end.
func (d *Drop) bounds(begin, end time.Duration) (low, high int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	low = int64(1<<63 - 1)
	for i, s := range d.Stocks {
		replaced := slices.ContainsFunc(d.Stocks[i+1:], func(s Setting) bool { return s.Calm && s.End < begin })
		if s.Outcome != Failed && s.Start <= end && !replaced {
			low, high = min(low, s.Stock), max(high, s.Stock)
		}
	}
	return low, high
}

// mayBeLowered reports whether the stock may have been lowered by a time.
func (d *Drop) mayBeLowered(by time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var highest int64
	for _, s := range d.Stocks {
		if s.Outcome == Failed || s.Start > by {
			continue
		}
		if s.Stock < highest {
			return true
		}
		highest = max(highest, s.Stock)
	}
	return false
}

// MayBeClosed reports whether the drop may have been closed by a time.
func (d *Drop) MayBeClosed(by time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.Closing, func(s Setting) bool { return s.Outcome != Failed && s.Start <= by })
}

// mustBeClosed reports whether every process knew before a time that the drop is closed.
func (d *Drop) mustBeClosed(before time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.Closing, func(s Setting) bool { return s.Calm && s.End < before })
}

// Claiming is what a user asks of a drop.
type Claiming uint8

// What a user may ask of a drop.
const (
	Claims   Claiming = iota // one of the stock
	Returns                  // the claim
	Confirms                 // the claim
	Looks                    // at the claim
)

func (c Claiming) String() string { return [...]string{"claim", "return", "confirm", "look"}[c] }

// ClaimOp is an operation on a share.
type ClaimOp struct {
	Op
	Act     Claiming
	Claim   int64  // the claim that the request or, of a claiming, the answer names; 0 for none
	State   string // in the answer
	Code    string // of a problem
	Expires time.Duration
	Trouble int64 // the site's, if it was the same from begin to end; otherwise an odd number
}

// Made reports whether the operation made its claim.
func (o ClaimOp) Made() bool { return o.Act == Claims && o.Status == 201 }

// None reports whether the answer says that the user has no claim: one that exists would be answered instead.
func (o ClaimOp) None() bool {
	return o.Act == Claims && (o.Code == "sold_out" || o.Code == "not_started" || o.Code == "ended")
}

// may reports whether the operation has taken effect, or may have.
func (o ClaimOp) may() bool { return o.Outcome != Failed }

// Share is what one user has of a drop. Only one client acts on it, one operation at a time.
type Share struct {
	Drop *Drop
	User *Account
	Ops  []ClaimOp
	Held int64 // the claim that the client believes in; 0 for none
	Sure bool  // it was confirmed
}

// ClaimVoid is a request to void the claims of a user.
type ClaimVoid struct {
	Start   time.Duration
	Until   time.Duration // when it can no longer take effect
	Drop    *Drop         // nil: all
	Account bool          // the account is deleted
	Certain bool          // it was acknowledged
}

// ClaimRow is a row of a claim in MySQL.
type ClaimRow struct {
	ID      int64
	State   string
	Reason  string
	Overdue bool // it expired some time ago
}

func (r ClaimRow) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d, %s %s", r.ID, r.State, r.Reason))
}

// The states of claims.
const (
	StateReserved  = "reserved"
	StateConfirmed = "confirmed"
	StateReturned  = "returned"
	StateExpired   = "expired"
	StateRejected  = "rejected"
	StateVoided    = "voided"
)

// Live reports whether a claim in the state counts against the stock.
func Live(state string) bool { return state == StateReserved || state == StateConfirmed }

// Story returns the operations as text.
func (s *Share) Story() string {
	const most = 40
	var b strings.Builder
	fmt.Fprintf(&b, "%s, user %d, %d operations", s.Drop.Name(), s.User.ID, len(s.Ops))
	for _, c := range s.Drop.Stocks[max(0, len(s.Drop.Stocks)-most/2):] {
		fmt.Fprintf(&b, "\n    %9.3f s to %9.3f s  stock %d, %s", c.Start.Seconds(), min(c.End, time.Hour).Seconds(),
			c.Stock, c.Outcome)
	}
	for _, v := range s.User.ClaimVoids {
		fmt.Fprintf(&b, "\n    %9.3f s  claims are voided", v.Start.Seconds())
	}
	ops := s.Ops
	if len(ops) > most {
		fmt.Fprintf(&b, "\n    the last %d:", most)
		ops = ops[len(ops)-most:]
	}
	for _, o := range ops {
		fmt.Fprintf(&b, "\n    %9.3f s to %9.3f s  %s  %-7s  %-7s %d %s %s %d", o.Start.Seconds(), o.End.Seconds(),
			APIName(int(o.API)), o.Act, o.Outcome, o.Status, o.Code, o.State, o.Claim)
	}
	return b.String()
}
