package protocol

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// Result is what a search found.
type Result struct {
	States    int
	Steps     int // followed, those to a state seen before included
	Depth     int // of the state that is farthest from the start
	Complete  bool
	Violation string   // empty if there is none
	Trace     []string // the shortest way to it
	Took      time.Duration
}

// node is what is kept of a state. States are told apart by 64 bits of hash: among ten million states the chance that
// any two are taken for one is three in a million.
type node struct {
	from uint32
	owed uint32 // the state that the first owed step leads to; itself at rest
	via  uint8
}

// Search goes through all states within m's budget, nearest first, until something is violated or limit states are
// seen.
func Search(m Model, limit int) Result {
	x := search{m: &m, steps: m.steps(), seen: map[uint64]uint32{}, seed: maphash.MakeSeed()}
	began := time.Now()
	start := m.start()
	at := x.run(start, limit)
	x.result.States, x.result.Took = len(x.nodes), time.Since(began)
	if x.result.Violation != "" {
		x.result.Trace = x.trace(start, at)
	}
	return x.result
}

type search struct {
	m      *Model
	steps  []step
	seed   maphash.Seed
	seen   map[uint64]uint32
	nodes  []node
	result Result
}

type found struct {
	State

	index uint32
}

// run returns the state at which something is violated.
func (x *search) run(start State, limit int) uint32 {
	x.nodes = append(x.nodes, node{})
	x.seen[maphash.Comparable(x.seed, start)] = 0
	level, next := []found{{start, 0}}, []found{}
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

// expand follows every step out of a state.
func (x *search) expand(from *found, next []found) ([]found, uint32) {
	rest := true
	for k, st := range x.steps {
		s := from.State
		if !st.do(x.m, &s, st.who, st.what) {
			continue
		}
		s.shorten()
		x.result.Steps++
		hash := maphash.Comparable(x.seed, s)
		index, seen := x.seen[hash]
		if !seen {
			index = uint32(len(x.nodes))
			x.nodes = append(x.nodes, node{from: from.index, owed: index, via: uint8(k)})
			x.seen[hash] = index
			next = append(next, found{s, index})
		}
		if st.owed && rest {
			rest = false
			x.nodes[from.index].owed = index
		}
		// A step back into a state seen before can still be wrong, as a watermark that goes back is.
		if x.result.Violation = x.m.check(&from.State, &s); x.result.Violation != "" {
			if seen {
				index = uint32(len(x.nodes))
				x.nodes = append(x.nodes, node{from: from.index, owed: index, via: uint8(k)})
			}
			return next, index
		}
	}
	if rest {
		x.result.Violation = x.m.checkRest(&from.State)
	}
	return next, from.index
}

// settle looks for a state from which what is owed goes round in circles.
func (x *search) settle() uint32 {
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
			x.result.Violation = "stuck: what is owed goes round in circles"
			return at
		}
		for _, passed := range way {
			colour[passed] = fine
		}
	}
	return 0
}

// trace returns the path to a state.
func (x *search) trace(s State, to uint32) []string {
	var via []uint8
	for at := to; at != 0; at = x.nodes[at].from {
		via = append(via, x.nodes[at].via)
	}
	var lines []string
	for _, k := range slices.Backward(via) {
		before, st := s, x.steps[k]
		st.do(x.m, &s, st.who, st.what)
		lines = append(lines, st.describe(&before, &s))
		s.shorten()
	}
	return lines
}

// changes returns what a step did to the shard beyond what its name says.
func changes(before, s *State) string {
	var told []string
	tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	for id := before.Events; id < s.Events; id++ {
		tell("event %s", s.describe(int(id)))
	}
	for i := range s.Relays {
		if r := s.Relays[i]; r.Batch != before.Relays[i].Batch && r.Batch != 0 {
			tell("batch %s", s.list(r.Batch))
		}
	}
	if a, b := before.Redis.Outbox, s.Redis.Outbox; a != b && b&^a == 0 {
		tell("outbox left: %s", s.list(b))
	}
	if before.Redis.Epoch != s.Redis.Epoch {
		if s.Redis.Epoch == 0 {
			tell("the shard is closed")
		} else {
			tell("the shard is open, epoch %d", s.Redis.Epoch)
		}
	}
	for t := range s.Redis.Targets {
		a, b := before.Redis.Targets[t], s.Redis.Targets[t]
		switch {
		case a.Warm && !b.Warm:
			tell("target %d is cold", t)
		case b.Warm && (!a.Warm || a.Users != b.Users):
			tell("target %d is warm, liked by %s", t, b.Users)
		}
		if before.MySQL.Rows[t] != s.MySQL.Rows[t] || before.MySQL.Count[t] != s.MySQL.Count[t] {
			tell("MySQL: target %d liked by %s, likes_count %d", t, s.MySQL.Rows[t], s.MySQL.Count[t])
		}
	}
	if before.MySQL.Applied != s.MySQL.Applied {
		tell("watermark %s", s.MySQL.Applied)
	}
	if lost := before.Redis.Known &^ s.Redis.Known; lost != 0 {
		tell("lost: %s", s.list(lost))
	}
	if len(told) == 0 {
		return ""
	}
	return " [" + strings.Join(told, "; ") + "]"
}

func (s *State) describe(id int) string {
	e := s.History[id]
	if e.Op == 0 {
		return e.Pos.String() + " shard.opened"
	}
	what := "unlikes"
	if e.liked() {
		what = "likes"
	}
	return fmt.Sprintf("%s %s %s target %d", e.Pos, names[e.user()], what, e.target())
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
