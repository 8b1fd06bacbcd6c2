package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// spell is a condition that one actor begins and ends: a target is deleted, or an account is banned.
type spell struct {
	mu      sync.Mutex
	began   time.Duration // when the first request that begins it was sent; 0 if it does not hold
	sure    time.Duration // when its beginning was acknowledged; 0 if it was not
	ending  time.Duration // when the first request that ends it was sent; 0 for none
	over    time.Duration // when the end of the last one was acknowledged
	trouble int64         // the site's trouble when began was set
	busy    bool          // an actor works on it
}

// take makes the caller the only actor. It reports false if there is one.
func (s *spell) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return false
	}
	s.busy = true
	return true
}

func (s *spell) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
}

func (s *spell) begin(now time.Duration, trouble int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began == 0 {
		s.began, s.trouble = now, trouble
	}
}

func (s *spell) confirm(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sure = now
}

func (s *spell) beginEnd(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = cmp.Or(s.ending, now)
}

func (s *spell) end(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.sure, s.ending, s.over = 0, 0, 0, now
}

// may reports whether the condition may have held at some time since from.
func (s *spell) may(from time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began != 0 || s.over > from
}

// must reports whether the condition held, and every process knew it, from a time until now. The trouble of the site
// must not have changed since the condition began, and no fault may have been active: a process that cannot reach a
// server learns of it later.
func (s *spell) must(from time.Duration, trouble int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sure != 0 && s.sure < from && s.ending == 0 && s.trouble == trouble && trouble%2 == 0
}

// holds reports whether the condition is acknowledged and nobody ends it.
func (s *spell) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sure != 0 && s.ending == 0
}

// account is a user.
type account struct {
	id      int64
	name    string
	outcast bool // moderators ban the account, void its likes or delete it
	pass    atomic.Pointer[pass]
	banned  spell // or deleted, which has no end
	// voids and claimVoids are guarded by banned.take, and read when all actors have stopped.
	voids      []void
	claimVoids []claimVoid
}

// pass is a token and its end.
type pass struct {
	token string
	ended atomic.Bool // a request that ends it was sent
}

func newAccount(id int64, token string) *account {
	a := &account{id: id}
	a.pass.Store(&pass{token: token})
	return a
}

// void is a request to withdraw the likes of a user that were accepted in a period. It is carried out at any time after
// its start, and has been carried out when the oracle judges.
type void struct {
	start        time.Duration // when it was requested
	since, until time.Duration // of the run
	all          bool          // the account is deleted: all likes
	certain      bool          // it was acknowledged
}

func (v void) period() string {
	if v.all {
		return "the whole account"
	}
	return fmt.Sprintf("%.3f s to %.3f s", v.since.Seconds(), v.until.Seconds())
}

// roundingOfPeriods is how far the acceptance of a like may be from its time in MySQL, which has whole seconds.
const roundingOfPeriods = 2 * time.Second

// covers reports whether an operation that took effect was, possibly and certainly, in the period. The time of a like
// is that of Redis's clock.
func (v void) covers(o op, last time.Duration) (may, must bool) {
	if v.all {
		return true, true
	}
	must = true
	for _, off := range append([]time.Duration{0}, o.offsets...) {
		begin, end := o.start+off-roundingOfPeriods, forever
		if last != forever {
			end = last + off + roundingOfPeriods
		}
		may = may || end >= v.since && begin <= v.until
		must = must && begin >= v.since && end <= v.until
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
func (e endings) apply(i int, o op) endings {
	var next endings
	for _, state := range e {
		switch {
		case !o.want:
			next.add(notLiked)
		case state == notLiked:
			next.add(i)
		default:
			next.add(state)
		}
	}
	return next
}

// forever is a time after the end of every run.
const forever = time.Duration(1<<63 - 1)

// mayBeVoided reports whether the like that an operation set may have been withdrawn at the given time.
func (r *register) mayBeVoided(o op, last func(op) time.Duration, at time.Duration) bool {
	return slices.ContainsFunc(r.user.voids, func(v void) bool {
		may, _ := v.covers(o, last(o))
		return may && v.start <= at
	})
}

// possible returns the final states that the promise allows: that of the last acknowledged operation, and those of
// unknown operations that may have taken effect later. last returns until when an operation may take effect.
//
// An operation that was answered with 5xx has ended. One without an answer may take effect after later ones for as long
// as the API works on it. Likes that were withdrawn, with an account or by a moderator, are not set in the end, unless
// the user set them again since.
func (r *register) possible(last func(op) time.Duration) (liked, not bool) {
	states := endings{notLiked}
	var open []int // unknown operations that may still take effect
	drift := func(at time.Duration) {
		for before := -1; before != len(states); {
			before = len(states)
			for _, i := range open {
				for _, state := range states.apply(i, r.ops[i]) {
					states.add(state)
				}
			}
			for _, state := range states {
				if state != notLiked && r.mayBeVoided(r.ops[state], last, at) {
					states.add(notLiked)
				}
			}
		}
	}
	for i, o := range r.ops {
		open = slices.DeleteFunc(open, func(i int) bool { return last(r.ops[i]) < o.start })
		drift(o.end)
		switch o.outcome {
		case ok:
			states = states.apply(i, o)
		case unknown, pending:
			open = append(open, i)
		case failed:
		}
		drift(o.end)
	}
	drift(forever)
	for _, state := range states {
		if state == notLiked {
			not = true
			continue
		}
		withdrawn := false
		for _, v := range r.user.voids {
			_, must := v.covers(r.ops[state], last(r.ops[state]))
			withdrawn = withdrawn || must && v.certain
		}
		liked, not = liked || !withdrawn, not || withdrawn
	}
	return liked, not
}
