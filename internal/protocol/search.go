package protocol

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// Result is the result of a search.
type Result struct {
	States    int
	Steps     int // number of steps, including those to known states
	Depth     int // longest distance of a state from the start
	Complete  bool
	Violation string   // empty if none was found
	Trace     []string // the shortest path to the violation
	Took      time.Duration
}

// node is the record of a visited state. States are identified by a hash of 64 bits. The probability of any collision
// among ten million states is three in a million.
type node struct {
	from uint32
	owed uint32 // the state after the first owed step; at rest, the state itself
	via  uint8
}

// machine is a state machine with bounds, so that all its states can be searched.
type machine[S comparable] interface {
	start() S
	// steps lists all steps, with the owed steps first.
	steps() []step[S]
	// tidy makes states equal that differ only in what no step reads.
	tidy(s *S)
	// check describes a violation by a state, or by the step that led to it. It returns "" if it finds none.
	check(before, s *S) string
	// checkRest checks a state without owed steps.
	checkRest(s *S) string
}

// step is one step of a machine.
type step[S comparable] struct {
	do func(s *S) bool // reports false if it is impossible in s
	// owed steps are those of the processes without faults and without users. From every state, they must lead to rest.
	owed bool
	say  func(before, after *S) string // describes the step and its changes
}

// Search visits all states within m's budget, in order of their distance from the start. It stops at the first
// violation, or after limit states.
func Search[S comparable](m machine[S], limit int) Result {
	x := search[S]{m: m, steps: m.steps(), seen: map[uint64]uint32{}, seed: maphash.MakeSeed()}
	began := time.Now()
	start := m.start()
	at := x.run(start, limit)
	x.result.States, x.result.Took = len(x.nodes), time.Since(began)
	if x.result.Violation != "" {
		x.result.Trace = x.trace(start, at)
	}
	return x.result
}

type search[S comparable] struct {
	m      machine[S]
	steps  []step[S]
	seed   maphash.Seed
	seen   map[uint64]uint32
	nodes  []node
	result Result
}

type found[S comparable] struct {
	state S
	index uint32
}

// run returns the state with a violation, if any.
func (x *search[S]) run(start S, limit int) uint32 {
	x.nodes = append(x.nodes, node{})
	x.seen[maphash.Comparable(x.seed, start)] = 0
	level, next := []found[S]{{start, 0}}, []found[S]{}
	for ; len(level) > 0; x.result.Depth++ {
		for i := range level {
			if len(x.nodes) > limit {
				return 0
			}
			var at uint32
			if next, at = x.expand(&level[i], next); x.result.Violation != "" {
				return at
			}
		}
		level, next = next, level[:0]
	}
	x.result.Complete = true
	return x.settle()
}

// expand visits the next states of a state.
func (x *search[S]) expand(from *found[S], next []found[S]) ([]found[S], uint32) {
	rest := true
	for k, st := range x.steps {
		s := from.state
		if !st.do(&s) {
			continue
		}
		x.m.tidy(&s)
		x.result.Steps++
		hash := maphash.Comparable(x.seed, s)
		index, seen := x.seen[hash]
		if !seen {
			index = uint32(len(x.nodes))
			x.nodes = append(x.nodes, node{from: from.index, owed: index, via: uint8(k)})
			x.seen[hash] = index
			next = append(next, found[S]{s, index})
		}
		if st.owed && rest {
			rest = false
			x.nodes[from.index].owed = index
		}
		// A step to a known state may be a violation, too, such as a watermark that moves back.
		if x.result.Violation = x.m.check(&from.state, &s); x.result.Violation != "" {
			if seen {
				index = uint32(len(x.nodes))
				x.nodes = append(x.nodes, node{from: from.index, owed: index, via: uint8(k)})
			}
			return next, index
		}
	}
	if rest {
		x.result.Violation = x.m.checkRest(&from.state)
	}
	return next, from.index
}

// settle searches for a cycle of owed steps.
func (x *search[S]) settle() uint32 {
	const fresh, onWay, fine = 0, 1, 2
	colour := make([]uint8, len(x.nodes))
	var way []uint32
	for i := range x.nodes {
		at := uint32(i)
		for way = way[:0]; colour[at] == fresh; at = x.nodes[at].owed {
			colour[at] = onWay
			way = append(way, at)
			if x.nodes[at].owed == at {
				colour[at] = fine
			}
		}
		if colour[at] == onWay {
			x.result.Violation = "stuck: the owed steps form a cycle"
			return at
		}
		for _, passed := range way {
			colour[passed] = fine
		}
	}
	return 0
}

// trace returns the shortest path to a state.
func (x *search[S]) trace(s S, to uint32) []string {
	var via []uint8
	for at := to; at != 0; at = x.nodes[at].from {
		via = append(via, x.nodes[at].via)
	}
	var lines []string
	for _, k := range slices.Backward(via) {
		before, st := s, x.steps[k]
		st.do(&s)
		lines = append(lines, st.say(&before, &s))
		x.m.tidy(&s)
	}
	return lines
}

// changes describes the changes of a step that its name does not imply.
func changes(before, s *State) string {
	var parts []string
	note := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for id := before.Events; id < s.Events; id++ {
		note("event %s", s.describe(int(id)))
	}
	for i := range s.Relays {
		if r := s.Relays[i]; r.Batch != before.Relays[i].Batch && r.Batch != 0 {
			note("batch %s", s.list(r.Batch))
		}
	}
	if a, b := before.Redis.Outbox, s.Redis.Outbox; a != b && b&^a == 0 {
		note("outbox left: %s", s.list(b))
	}
	if before.Redis.Epoch != s.Redis.Epoch {
		if s.Redis.Epoch == 0 {
			note("the shard is closed")
		} else {
			note("the shard is open, epoch %d", s.Redis.Epoch)
		}
	}
	for t := range s.Redis.Targets {
		a, b := before.Redis.Targets[t], s.Redis.Targets[t]
		switch {
		case a.Warm && !b.Warm:
			note("target %d is cold", t)
		case b.Warm && (!a.Warm || a.Users != b.Users):
			note("target %d is warm, liked by %s", t, b.Users)
		}
		if before.MySQL.Rows[t] != s.MySQL.Rows[t] || before.MySQL.Count[t] != s.MySQL.Count[t] {
			note("MySQL: target %d liked by %s, likes_count %d", t, s.MySQL.Rows[t], s.MySQL.Count[t])
		}
	}
	if before.MySQL.Applied != s.MySQL.Applied {
		note("watermark %s", s.MySQL.Applied)
	}
	if lost := before.Redis.Known &^ s.Redis.Known; lost != 0 {
		note("lost: %s", s.list(lost))
	}
	if len(parts) == 0 {
		return ""
	}
	return " [" + strings.Join(parts, "; ") + "]"
}

func (s *State) describe(id int) string {
	e := s.History[id]
	if e.Op == 0 {
		return e.Pos.String() + " shard.opened"
	}
	if e.Op == opProbe {
		return e.Pos.String() + " probed"
	}
	var likes []string
	for _, l := range e.likes() {
		what := "unlikes"
		if l.liked {
			what = "likes"
		}
		likes = append(likes, fmt.Sprintf("%s %s target %d", names[l.user], what, l.target))
	}
	return e.Pos.String() + " " + strings.Join(likes, " and ")
}

func (s *State) list(es events) string {
	var list []string
	for id := range int(s.Events) {
		if es.has(id) {
			list = append(list, s.describe(id))
		}
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
