package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Spell is a condition that one actor begins and ends: a target is deleted, or an account is banned.
type Spell struct {
	mu      sync.Mutex
	began   time.Duration // when the first request that begins it was sent; 0 if it does not hold
	sure    time.Duration // when its beginning was acknowledged; 0 if it was not
	ending  time.Duration // when the first request that ends it was sent; 0 for none
	over    time.Duration // when the end of the last one was acknowledged
	trouble int64         // the site's trouble when began was set
	busy    bool          // an actor works on it
}

// Take makes the caller the only actor. It reports false if there is one.
func (s *Spell) Take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return false
	}
	s.busy = true
	return true
}

// Release lets another actor work on it.
func (s *Spell) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
}

// Begin records that a request that begins the condition is sent.
func (s *Spell) Begin(now time.Duration, trouble int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began == 0 {
		s.began, s.trouble = now, trouble
	}
}

// Confirm records that its beginning was acknowledged.
func (s *Spell) Confirm(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sure = now
}

// BeginEnd records that a request that ends the condition is sent.
func (s *Spell) BeginEnd(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = cmp.Or(s.ending, now)
}

// End records that its end was acknowledged.
func (s *Spell) End(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.sure, s.ending, s.over = 0, 0, 0, now
}

// May reports whether the condition may have held at some time since from.
func (s *Spell) May(from time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began != 0 || s.over > from
}

// Must reports whether the condition held, and every process knew it, from a time until now. The trouble of the site
// must not have changed since the condition began, and no fault may have been active: a process that cannot reach a
// server learns of it later.
func (s *Spell) Must(from time.Duration, trouble int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sure != 0 && s.sure < from && s.ending == 0 && s.trouble == trouble && trouble%2 == 0
}

// Holds reports whether the condition is acknowledged and nobody ends it.
func (s *Spell) Holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sure != 0 && s.ending == 0
}

// Account is a user.
type Account struct {
	ID      int64
	Name    string
	Outcast bool // moderators ban the account, void its likes or delete it
	Pass    atomic.Pointer[Pass]
	Banned  Spell // or deleted, which has no end
	// Voids and ClaimVoids are guarded by Banned.Take, and read when all actors have stopped.
	Voids      []Void
	ClaimVoids []ClaimVoid
}

// Pass is a token and its end.
type Pass struct {
	Token string
	Ended atomic.Bool // a request that ends it was sent
}

// NewAccount returns an account with a token.
func NewAccount(id int64, token string) *Account {
	a := &Account{ID: id}
	a.Pass.Store(&Pass{Token: token})
	return a
}

// Void is a request to withdraw the likes of a user that were accepted in a period. It is carried out at any time after
// its start, and has been carried out when the oracle judges.
type Void struct {
	Start        time.Duration // when it was requested
	Since, Until time.Duration // of the run
	All          bool          // the account is deleted: all likes
	Certain      bool          // it was acknowledged
}

func (v Void) period() string {
	if v.All {
		return "the whole account"
	}
	return fmt.Sprintf("%.3f s to %.3f s", v.Since.Seconds(), v.Until.Seconds())
}

// roundingOfPeriods is how far the acceptance of a like may be from its time in MySQL, which has whole seconds.
const roundingOfPeriods = 2 * time.Second

// covers reports whether an operation that took effect was, possibly and certainly, in the period. The time of a like
// is that of Redis's clock.
func (v Void) covers(o Op, last time.Duration) (may, must bool) {
	if v.All {
		return true, true
	}
	must = true
	for _, off := range append([]time.Duration{0}, o.offsets...) {
		begin, end := o.Start+off-roundingOfPeriods, Forever
		if last != Forever {
			end = last + off + roundingOfPeriods
		}
		may = may || end >= v.Since && begin <= v.Until
		must = must && begin >= v.Since && end <= v.Until
	}
	return may, must
}

// notLiked is the state of a register that is not set. Any other state is the index of the operation that set it.
const notLiked = -1

// endings are the states that a register may have.
type endings []int

func (e *endings) add(state int) {
	if !slices.Contains(*e, state) {
		*e = append(*e, state)
	}
}

// apply returns the states after operation i.
func (e endings) apply(i int, o Op) endings {
	var next endings
	for _, state := range e {
		switch {
		case !o.Want:
			next.add(notLiked)
		case state == notLiked:
			next.add(i)
		default:
			next.add(state)
		}
	}
	return next
}

// mayBeVoided reports whether the like that an operation set may have been withdrawn at the given time.
func (r *Register) mayBeVoided(o Op, last func(Op) time.Duration, at time.Duration) bool {
	return slices.ContainsFunc(r.User.Voids, func(v Void) bool {
		may, _ := v.covers(o, last(o))
		return may && v.Start <= at
	})
}

// possible returns the final states that the promise allows: that of the last acknowledged operation, and those of
// unknown operations that may have taken effect later. last returns until when an operation may take effect.
//
// An operation that was answered with 5xx has ended. One without an answer may take effect after later ones for as long
// as the API works on it. Likes that were withdrawn, with an account or by a moderator, are not set in the end, unless
// the user set them again since.
func (r *Register) possible(last func(Op) time.Duration) (liked, not bool) {
	states := endings{notLiked}
	var open []int // unknown operations that may still take effect
	drift := func(at time.Duration) {
		for before := -1; before != len(states); {
			before = len(states)
			for _, i := range open {
				for _, state := range states.apply(i, r.Ops[i]) {
					states.add(state)
				}
			}
			for _, state := range states {
				if state != notLiked && r.mayBeVoided(r.Ops[state], last, at) {
					states.add(notLiked)
				}
			}
		}
	}
	for i, o := range r.Ops {
		open = slices.DeleteFunc(open, func(i int) bool { return last(r.Ops[i]) < o.Start })
		drift(o.End)
		switch o.Outcome {
		case OK:
			states = states.apply(i, o)
		case Unknown, Pending:
			open = append(open, i)
		case Failed:
		}
		drift(o.End)
	}
	drift(Forever)
	for _, state := range states {
		if state == notLiked {
			not = true
			continue
		}
		withdrawn := false
		for _, v := range r.User.Voids {
			_, must := v.covers(r.Ops[state], last(r.Ops[state]))
			withdrawn = withdrawn || must && v.Certain
		}
		liked, not = liked || !withdrawn, not || withdrawn
	}
	return liked, not
}
