package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is what a client knows of an operation.
type outcome uint8

const (
	pending outcome = iota // not answered yet
	ok                     // 2xx: it must be so from now on
	failed                 // refused for good (4xx), or never sent
	unknown                // 5xx, no answer in time, or a connection that broke
)

func (o outcome) String() string { return [...]string{"pending", "ok", "failed", "unknown"}[o] }

// noStatus is the status of an operation that got no answer at all.
const noStatus = 0

// op is one PUT or DELETE of a like.
type op struct {
	want       bool
	outcome    outcome
	status     uint16 // HTTP; noStatus when there was no answer
	api        uint8
	start, end time.Duration // since the run began
}

// target is a post or comment.
type target struct {
	kind string // as in paths: posts or comments
	id   int64
	// likers are the users that ever liked it or might have: no count, however old, can be above.
	likers atomic.Int64
	// The likes that might be there now and those that are there for sure, and how many of the first came and of the
	// second went since the beginning. What a like is answered must lie between them.
	maybe, came, sure, went atomic.Int64
}

// bounds are what a target was like when an operation began.
type bounds struct{ maybe, came, sure, went int64 }

// bounds reads what counts changes first: a change in between is then counted twice, which only widens the bounds.
func (t *target) bounds() bounds {
	b := bounds{came: t.came.Load(), went: t.went.Load()}
	b.maybe, b.sure = t.maybe.Load(), t.sure.Load()
	return b
}

// since returns the least and the most that a correct count can have been at any instant from b until now.
func (t *target) since(b bounds) (least, most int64) {
	return b.sure - (t.went.Load() - b.went), b.maybe + (t.came.Load() - b.came)
}

func (t *target) path() string { return fmt.Sprintf("/v1/%s/%d", t.kind, t.id) }
func (t *target) name() string { return fmt.Sprintf("%s %d", strings.TrimSuffix(t.kind, "s"), t.id) }

type account struct {
	id    int64
	token string
}

// register is the like of one user on one target: a boolean that one client alone writes, one operation after another.
type register struct {
	target *target
	user   *account
	ops    []op
	ever   bool // an operation that sets it was begun
	maybe  bool // it may be set now
	sure   bool // it is set now, unless the promise is broken

	// An operation without an answer may still be on its way, and may be applied after later ones: HTTP has no order
	// across connections. Nothing is done to the register until it must have arrived or perished. An operation that
	// was answered 5xx holds nothing up: the product has said that it is done with it.
	heldCalm  int64         // not before the site's calm is above this
	heldUntil time.Duration // and not before this instant of the run
}

// begin notes that an operation is about to leave; the note is to be given to finish.
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
	switch {
	case o.outcome == ok && o.want && !r.sure, o.outcome == failed && went:
		r.sure = true
		r.target.sure.Add(1)
	case o.outcome == ok && !o.want && r.maybe, o.outcome == failed && came:
		r.maybe = false
		r.target.maybe.Add(-1)
	}
}

// possible are the states that the promise allows at the end: that of the last acknowledged operation, or of a later
// unknown one.
func (r *register) possible() (liked, notLiked bool) {
	notLiked = true // before the first operation
	for _, o := range r.ops {
		switch o.outcome {
		case ok:
			liked, notLiked = o.want, !o.want
		case unknown, pending:
			liked = liked || o.want
			notLiked = notLiked || !o.want
		case failed:
		}
	}
	return liked, notLiked
}

// lastWanted is what the newest operation asked for.
func (r *register) lastWanted() bool { return len(r.ops) > 0 && r.ops[len(r.ops)-1].want }

// story is the history for people; of a long one, the end.
func (r *register) story() string {
	const most = 40
	var b strings.Builder
	fmt.Fprintf(&b, "%s, user %d, %d operations", r.target.name(), r.user.id, len(r.ops))
	ops := r.ops
	if len(ops) > most {
		fmt.Fprintf(&b, ", the last %d", most)
		ops = ops[len(ops)-most:]
	}
	for _, o := range ops {
		verb := "unlike"
		if o.want {
			verb = "like"
		}
		fmt.Fprintf(
			&b,
			"\n    %9.3f s to %9.3f s  api%d  %-6s  %s",
			o.start.Seconds(),
			o.end.Seconds(),
			o.api+1,
			verb,
			o.outcome,
		)
		if o.status != noStatus {
			fmt.Fprintf(&b, " %d", o.status)
		}
	}
	return b.String()
}

// creation is a POST of a post or comment. Its text holds a marker that nothing else has.
type creation struct {
	kind    string // posts or comments
	parent  int64  // the post of a comment
	marker  string
	author  int64
	outcome outcome
	status  uint16
	id      int64 // when ok
	start   time.Duration
}

func (c *creation) story() string {
	return fmt.Sprintf(
		"%s %q of user %d at %.3f s: %s %d, id %d",
		strings.TrimSuffix(c.kind, "s"),
		c.marker,
		c.author,
		c.start.Seconds(),
		c.outcome,
		c.status,
		c.id,
	)
}

// targets is what clients choose from. It only grows.
type targets struct {
	mu   sync.RWMutex
	hot  []*target
	cold []*target
	// discussed are the posts that get comments: few, so that reading all comments at the end stays affordable.
	discussed []*target
}

func (t *targets) add(x *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cold = append(t.cold, x)
}

// violations are the broken promises. Of each sort some are kept in words, all are counted.
type violations struct {
	mu    sync.Mutex
	count map[string]int
	list  []violation
	tell  func(violation) // of each that is kept; may be nil
}

type violation struct {
	Sort string        `json:"sort"`
	At   time.Duration `json:"at_ns"`
	Text string        `json:"text"`
}

// keptOfSort bounds the violations of each sort that are reported: one defect can break thousands of likes.
const keptOfSort = 5

func (v *violations) addf(sort string, at time.Duration, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count == nil {
		v.count = map[string]int{}
	}
	v.count[sort]++
	if v.count[sort] <= keptOfSort {
		told := violation{sort, at, fmt.Sprintf(format, args...)}
		v.list = append(v.list, told)
		if v.tell != nil {
			v.tell(told)
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
