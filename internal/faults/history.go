package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is the outcome of an operation, as its client knows it.
type outcome uint8

const (
	pending outcome = iota // not answered yet
	ok                     // 2xx: the effect must last
	failed                 // 4xx, or never sent: it must have no effect
	unknown                // 5xx, no answer in time, or a broken connection
)

func (o outcome) String() string { return [...]string{"pending", "ok", "failed", "unknown"}[o] }

// noStatus is the status of an operation without an answer.
const noStatus = 0

// op is one PUT or DELETE of a like.
type op struct {
	want       bool
	outcome    outcome
	status     uint16 // HTTP; noStatus without an answer
	api        uint8
	start, end time.Duration // since the run began
	broken     bool          // the connection ended before the client gave up
	// offsets are by how much Redis's clock may have been off when the operation took effect. The judge sets them.
	offsets []time.Duration
}

// target is a post or comment.
type target struct {
	kind   string // as in paths: posts or comments
	id     int64
	parent *target  // the post of a comment; nil if unknown
	author *account // nil if unknown
	gone   spell    // its deletion

	// likers counts the users who liked the target at any time, or may have. Every count is at most that, even a stale
	// one.
	likers atomic.Int64
	// maybe is the number of likes that may be set now, and sure the number of likes that must be set. came counts the
	// increments of maybe, and went the decrements of sure. Counts in answers must be between sure and maybe.
	maybe, came, sure, went atomic.Int64
}

// bounds are the numbers of a target when an operation began.
type bounds struct{ maybe, came, sure, went int64 }

// bounds reads came and went first. So a concurrent change may be counted twice, which only widens the bounds.
func (t *target) bounds() bounds {
	b := bounds{came: t.came.Load(), went: t.went.Load()}
	b.maybe, b.sure = t.maybe.Load(), t.sure.Load()
	return b
}

// since returns the lowest and the highest correct count at any time from b until now.
func (t *target) since(b bounds) (least, most int64) {
	return b.sure - (t.went.Load() - b.went), b.maybe + (t.came.Load() - b.came)
}

// mayBeGone reports whether the target, or the post of the comment, may have been deleted at some time since from.
func (t *target) mayBeGone(from time.Duration) bool {
	return t.gone.may(from) || t.parent != nil && t.parent.gone.may(from)
}

// mustBeGone reports whether the gate must have known since from that the target is deleted.
func (t *target) mustBeGone(from time.Duration, trouble int64) bool {
	return t.gone.must(from, trouble) || t.parent != nil && t.parent.gone.must(from, trouble)
}

func (t *target) path() string { return fmt.Sprintf("/v1/%s/%d", t.kind, t.id) }
func (t *target) name() string { return fmt.Sprintf("%s %d", strings.TrimSuffix(t.kind, "s"), t.id) }

// register is the like of one user on one target: a boolean. Only one client writes it, one operation at a time.
type register struct {
	target *target
	user   *account
	ops    []op
	ever   bool // an operation to set it was begun
	maybe  bool // it may be set now
	sure   bool // it must be set now
	open   []op // operations without an answer that may still take effect
}

// settle removes the operations from open that can no longer take effect at the given time.
func (r *register) settle(now time.Duration, last func(op) time.Duration) {
	r.open = slices.DeleteFunc(r.open, func(o op) bool { return last(o) < now })
}

// opposed reports whether an operation may still take effect that asked for the opposite of want.
func (r *register) opposed(want bool) bool {
	return slices.ContainsFunc(r.open, func(o op) bool { return o.want != want })
}

// begin records that an operation is about to be sent. Its results are the last arguments of finish.
func (r *register) begin(want bool) (came, went bool) {
	if want && !r.ever {
		r.ever = true
		r.target.likers.Add(1)
	}
	came, went = want && !r.maybe, !want && r.sure
	if came {
		r.maybe = true
		r.target.maybe.Add(1)
		r.target.came.Add(1)
	}
	if went {
		r.sure = false
		r.target.sure.Add(-1)
		r.target.went.Add(1)
	}
	return came, went
}

func (r *register) finish(o op, came, went bool) {
	r.ops = append(r.ops, o)
	if o.outcome == unknown && o.status == noStatus {
		r.open = append(r.open, o)
	}
	switch {
	case r.opposed(o.want == (o.outcome == ok)):
	case o.outcome == ok && o.want && !r.sure && !r.user.outcast, o.outcome == failed && went:
		r.sure = true
		r.target.sure.Add(1)
	case o.outcome == ok && !o.want && r.maybe, o.outcome == failed && came:
		r.maybe = false
		r.target.maybe.Add(-1)
	}
}

// lastWanted returns the state that the last operation requested.
func (r *register) lastWanted() bool { return len(r.ops) > 0 && r.ops[len(r.ops)-1].want }

// story returns the last operations as text.
func (r *register) story() string {
	const most = 40
	var b strings.Builder
	fmt.Fprintf(&b, "%s, user %d, %d operations", r.target.name(), r.user.id, len(r.ops))
	ops := r.ops
	if len(ops) > most {
		fmt.Fprintf(&b, ", the last %d", most)
		ops = ops[len(ops)-most:]
	}
	for _, v := range r.user.voids {
		fmt.Fprintf(&b, "\n    %9.3f s  likes are withdrawn, of %s", v.start.Seconds(), v.period())
	}
	for _, o := range ops {
		verb := "unlike"
		if o.want {
			verb = "like"
		}
		fmt.Fprintf(
			&b,
			"\n    %9.3f s to %9.3f s  %s  %-6s  %s",
			o.start.Seconds(),
			o.end.Seconds(),
			route{api: int(o.api)}.name(),
			verb,
			o.outcome,
		)
		if o.status != noStatus {
			fmt.Fprintf(&b, " %d", o.status)
		}
	}
	return b.String()
}

// creation is a POST of a post or comment. Its text has a unique marker.
type creation struct {
	kind    string // posts or comments
	parent  int64  // the post of a comment
	marker  string
	author  *account
	outcome outcome
	status  uint16
	id      int64 // if ok
	start   time.Duration
}

func (c *creation) story() string {
	return fmt.Sprintf(
		"%s %q of user %d at %.3f s: %s %d, id %d",
		strings.TrimSuffix(c.kind, "s"),
		c.marker,
		c.author.id,
		c.start.Seconds(),
		c.outcome,
		c.status,
		c.id,
	)
}

// targets are the posts and comments that clients choose from, deleted or not.
type targets struct {
	mu   sync.RWMutex
	hot  []*target
	cold []*target
	// disputed is as hot as the hot ones, and deleted and restored all the time.
	disputed *target
	// discussed are the posts with comments. They are few, because all comments are read at the end.
	discussed []*target
}

func (t *targets) add(x *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cold = append(t.cold, x)
}

// violations are the observed violations of the promise. All are counted, and keptOfSort of each sort are recorded.
type violations struct {
	mu    sync.Mutex
	count map[string]int
	list  []violation
	log   func(violation) // called with each recorded violation; may be nil
}

type violation struct {
	Sort string        `json:"sort"`
	At   time.Duration `json:"at_ns"`
	Text string        `json:"text"`
}

// keptOfSort is how many violations of each sort are recorded, because one defect may break thousands of likes.
const keptOfSort = 5

func (v *violations) addf(sort string, at time.Duration, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count == nil {
		v.count = map[string]int{}
	}
	v.count[sort]++
	if v.count[sort] <= keptOfSort {
		kept := violation{sort, at, fmt.Sprintf(format, args...)}
		v.list = append(v.list, kept)
		if v.log != nil {
			v.log(kept)
		}
	}
}

func (v *violations) total() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, c := range v.count {
		n += c
	}
	return n
}
