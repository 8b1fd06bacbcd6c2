package oracle

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Outcome is the outcome of an operation, as its client knows it.
type Outcome uint8

// The outcomes of operations.
const (
	Pending Outcome = iota // not answered yet
	OK                     // 2xx: the effect must last
	Failed                 // 4xx, or never sent: it must have no effect
	Unknown                // 5xx, no answer in time, or a broken connection
)

func (o Outcome) String() string { return [...]string{"pending", "ok", "failed", "unknown"}[o] }

// NoStatus is the status of an operation without an answer.
const NoStatus = 0

// APIName returns the name of an API: the processes take turns, with and without a proxy.
func APIName(api int) string { return fmt.Sprintf("api%d", api%2+1) }

// Op is one PUT or DELETE of a like.
type Op struct {
	Want       bool
	Outcome    Outcome
	Status     uint16 // HTTP; NoStatus without an answer
	API        uint8
	Start, End time.Duration // since the run began
	Broken     bool          // the connection ended before the client gave up
	// offsets are by how much Redis's clock may have been off when the operation took effect. The judge sets them.
	offsets []time.Duration
}

// Target is a post or comment.
type Target struct {
	Kind   string // as in paths: posts or comments
	ID     int64
	Parent *Target  // the post of a comment; nil if unknown
	Author *Account // nil if unknown
	Gone   Spell    // its deletion

	// Likers counts the users who liked the target at any time, or may have. Every count is at most that, even a stale
	// one.
	Likers atomic.Int64
	// maybe is the number of likes that may be set now, and sure the number of likes that must be set. came counts the
	// increments of maybe, and went the decrements of sure. Counts in answers must be between sure and maybe.
	maybe, came, sure, went atomic.Int64
}

// Bounds are the numbers of a target when an operation began.
type Bounds struct{ maybe, came, sure, went int64 }

// Bounds reads came and went first. So a concurrent change may be counted twice, which only widens the bounds.
func (t *Target) Bounds() Bounds {
	b := Bounds{came: t.came.Load(), went: t.went.Load()}
	b.maybe, b.sure = t.maybe.Load(), t.sure.Load()
	return b
}

// Since returns the lowest and the highest correct count at any time from b until now.
func (t *Target) Since(b Bounds) (low, high int64) {
	return b.sure - (t.went.Load() - b.went), b.maybe + (t.came.Load() - b.came)
}

// MayBeGone reports whether the target, or the post of the comment, may have been deleted at some time since from.
func (t *Target) MayBeGone(from time.Duration) bool {
	return t.Gone.May(from) || t.Parent != nil && t.Parent.Gone.May(from)
}

// MustBeGone reports whether the gate must have known since from that the target is deleted.
func (t *Target) MustBeGone(from time.Duration, trouble int64) bool {
	return t.Gone.Must(from, trouble) || t.Parent != nil && t.Parent.Gone.Must(from, trouble)
}

// Path returns the path of the target in the API.
func (t *Target) Path() string { return fmt.Sprintf("/v1/%s/%d", t.Kind, t.ID) }

// Name returns the name of the target in reports.
func (t *Target) Name() string { return fmt.Sprintf("%s %d", strings.TrimSuffix(t.Kind, "s"), t.ID) }

// RegisterKey identifies a register.
type RegisterKey struct {
	Target *Target
	User   int64
}

// Register is the like of one user on one target: a boolean. Only one client writes it, one operation at a time.
type Register struct {
	Target *Target
	User   *Account
	Ops    []Op
	ever   bool // an operation to set it was begun
	maybe  bool // it may be set now
	sure   bool // it must be set now
	Open   []Op // operations without an answer that may still take effect
}

// Settle removes the operations from Open that can no longer take effect at the given time.
func (r *Register) Settle(now time.Duration, last func(Op) time.Duration) {
	r.Open = slices.DeleteFunc(r.Open, func(o Op) bool { return last(o) < now })
}

// Opposed reports whether an operation may still take effect that asked for the opposite of want.
func (r *Register) Opposed(want bool) bool {
	return slices.ContainsFunc(r.Open, func(o Op) bool { return o.Want != want })
}

// Begin records that an operation is about to be sent. Its results are the last arguments of Finish.
func (r *Register) Begin(want bool) (came, went bool) {
	if want && !r.ever {
		r.ever = true
		r.Target.Likers.Add(1)
	}
	came, went = want && !r.maybe, !want && r.sure
	if came {
		r.maybe = true
		r.Target.maybe.Add(1)
		r.Target.came.Add(1)
	}
	if went {
		r.sure = false
		r.Target.sure.Add(-1)
		r.Target.went.Add(1)
	}
	return came, went
}

// Finish records the answer to an operation.
func (r *Register) Finish(o Op, came, went bool) {
	r.Ops = append(r.Ops, o)
	if o.Outcome == Unknown && o.Status == NoStatus {
		r.Open = append(r.Open, o)
	}
	switch {
	case r.Opposed(o.Want == (o.Outcome == OK)):
	case o.Outcome == OK && o.Want && !r.sure && !r.User.Outcast, o.Outcome == Failed && went:
		r.sure = true
		r.Target.sure.Add(1)
	case o.Outcome == OK && !o.Want && r.maybe, o.Outcome == Failed && came:
		r.maybe = false
		r.Target.maybe.Add(-1)
	}
}

// LastWanted returns the state that the last operation requested.
func (r *Register) LastWanted() bool { return len(r.Ops) > 0 && r.Ops[len(r.Ops)-1].Want }

// story returns the last operations as text.
func (r *Register) story() string {
	const most = 40
	var b strings.Builder
	fmt.Fprintf(&b, "%s, user %d, %d operations", r.Target.Name(), r.User.ID, len(r.Ops))
	ops := r.Ops
	if len(ops) > most {
		fmt.Fprintf(&b, ", the last %d", most)
		ops = ops[len(ops)-most:]
	}
	for _, v := range r.User.Voids {
		fmt.Fprintf(&b, "\n    %9.3f s  likes are withdrawn, of %s", v.Start.Seconds(), v.period())
	}
	for _, o := range ops {
		verb := "unlike"
		if o.Want {
			verb = "like"
		}
		fmt.Fprintf(&b, "\n    %9.3f s to %9.3f s  %s  %-6s  %s", o.Start.Seconds(), o.End.Seconds(),
			APIName(int(o.API)), verb, o.Outcome)
		if o.Status != NoStatus {
			fmt.Fprintf(&b, " %d", o.Status)
		}
	}
	return b.String()
}

// Creation is a POST of a post or comment. Its text has a unique marker.
type Creation struct {
	Kind    string // posts or comments
	Parent  int64  // the post of a comment
	Marker  string
	Author  *Account
	Outcome Outcome
	status  uint16
	ID      int64 // if ok
	Start   time.Duration
}

// Settle notes an answer. After one without a certain outcome, a refusal leaves it uncertain.
func (c *Creation) Settle(o Outcome, status uint16) {
	if o == Failed && c.Outcome == Unknown {
		return
	}
	c.Outcome, c.status = o, status
}

// Story returns the creation as text.
func (c *Creation) Story() string {
	return fmt.Sprintf("%s %q of user %d at %.3f s: %s %d, id %d", strings.TrimSuffix(c.Kind, "s"), c.Marker,
		c.Author.ID, c.Start.Seconds(), c.Outcome, c.status, c.ID)
}
