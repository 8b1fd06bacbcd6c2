package protocol

import "fmt"

// The largest model of deadlines that fits in a ClockState. Times are in ticks. Callers wait for callTicks, and no
// reading of a clock is used for longer than readingTicks.
const (
	maxCalls     = 3
	callTicks    = 2
	readingTicks = 2
)

// ClockRules are the rules of deadlines. The product has all of them.
type ClockRules struct {
	Deadline  bool // Redis refuses a call after its deadline
	Turns     bool // a call names the turn of its clock, and a clock that was set back has another
	Seen      bool // the clock was set back if it is before a time that the shard has seen
	Earliest  bool // or before a time that a process knows to be over
	Lapse     bool // a process that abandons a call begins a new turn, unless the clock has reached the deadline
	LapseSeen bool // and has the shard see the time otherwise
	Fresh     bool // a process asks for the clock again after readingTicks
}

// AllClockRules returns the complete protocol.
func AllClockRules() ClockRules {
	return ClockRules{
		Deadline:  true,
		Turns:     true,
		Seen:      true,
		Earliest:  true,
		Lapse:     true,
		LapseSeen: true,
		Fresh:     true,
	}
}

// ClockModel is the like of one user at one shard, whose calls the network may hold for any time. The user makes one
// after the other, through any of two processes. When a process has waited for callTicks, by a clock that only goes
// forward, it reports to its caller that the call has failed.
type ClockModel struct {
	Rules ClockRules
	Calls uint8 // at most maxCalls
	Ticks uint8 // of real time
	Steps uint8 // of Redis's time of day, each to any time within Reach
	Reach int8
	Lost  uint8 // lapses that do not reach Redis
}

// reading is what a process knows of a shard's clock.
type reading struct {
	Known bool
	Turn  uint8
	Value int8
	Heard uint8
}

// The states of a call.
const (
	callNone  uint8 = iota
	callSent        // its caller waits
	callOver        // the process has waited long enough, and the network still holds it
	callGiven       // the caller was told that it failed, and the network still holds it
	callDone        // it has arrived, and its caller was told
)

type heldCall struct {
	PC, By, Sent, Turn uint8
	Earliest, Deadline int8
}

// ClockState is a state of the model of deadlines.
type ClockState struct {
	Now                     uint8 // real time, as clocks that only go forward have it
	Off                     int8  // of Redis's time of day
	Turn                    uint8
	HasSeen                 bool
	Seen                    int8 // a time that the shard's clock has shown in this turn
	Readings                [2]reading
	Calls                   [maxCalls]heldCall
	Acknowledged, Effective uint8 // the last call that was acknowledged, and that took effect; counted from 1
	Steps, Lost             uint8 // left
}

func (m *ClockModel) start() ClockState { return ClockState{Steps: m.Steps, Lost: m.Lost} }
func (m *ClockModel) tidy(*ClockState)  {}

func (s *ClockState) clock() int8 { return int8(s.Now) + s.Off }

func (m *ClockModel) steps() []step[ClockState] {
	var all []step[ClockState]
	add := func(owed bool, say string, do func(s *ClockState) bool) {
		all = append(all, step[ClockState]{do: do, owed: owed, say: func(_, after *ClockState) string {
			return fmt.Sprintf("%s [time %d, Redis's %d, turn %d]", say, after.Now, after.clock(), after.Turn)
		}})
	}
	for i := range int(m.Calls) {
		add(true, fmt.Sprintf("call %d arrives", i+1), func(s *ClockState) bool { return m.arrive(s, i) })
		add(true, fmt.Sprintf("call %d is given up, with lapse.lua", i+1),
			func(s *ClockState) bool { return m.giveUp(s, i, true) })
		add(false, fmt.Sprintf("FAULT: call %d is given up, and lapse.lua does not arrive", i+1),
			func(s *ClockState) bool { return m.giveUp(s, i, false) })
	}
	for p := range 2 {
		add(false, fmt.Sprintf("process %d makes a call of another user", p),
			func(s *ClockState) bool { return m.look(s, p) })
		for i := range int(m.Calls) {
			add(false, fmt.Sprintf("the user makes call %d through process %d", i+1, p),
				func(s *ClockState) bool { return m.call(s, p, i) })
		}
	}
	add(false, "time passes", m.tick)
	for to := -m.Reach; to <= m.Reach; to++ {
		add(false, fmt.Sprintf("FAULT: Redis's time of day is set to be off by %d", to), func(s *ClockState) bool {
			if to == s.Off || !pay(&s.Steps) {
				return false
			}
			s.Off = to
			return true
		})
	}
	return all
}

// admit is that of gate.lua: it compares the clock with what is known of it, and a call with both. It reports
// whether the call may take effect.
func (m *ClockModel) admit(s *ClockState, earliest, deadline int8, turn uint8) bool {
	now, current := s.clock(), turn == s.Turn
	if m.Rules.Turns && (m.Rules.Seen && s.HasSeen && now < s.Seen || m.Rules.Earliest && current && now < earliest) {
		s.Turn, s.HasSeen, s.Seen, current = s.Turn+1, false, 0, false
	}
	if m.Rules.Seen && m.Rules.Turns && (!s.HasSeen || now > s.Seen) {
		s.HasSeen, s.Seen = true, now
	}
	return current && (now <= deadline || !m.Rules.Deadline)
}

// arrive delivers a call to Redis. A caller that still waits has the answer at once. A call that is late is not sent
// again here: the user makes the next one.
func (m *ClockModel) arrive(s *ClockState, i int) bool {
	c := &s.Calls[i]
	if c.PC == callNone || c.PC == callDone {
		return false
	}
	if m.admit(s, c.Earliest, c.Deadline, c.Turn) {
		s.Effective = uint8(i + 1)
		if c.PC == callSent {
			s.Acknowledged = uint8(i + 1)
		}
	}
	if c.PC != callGiven {
		s.hear(int(c.By))
	}
	*c = heldCall{PC: callDone}
	return true
}

// hear notes what a process learns of the clock from a reply.
func (s *ClockState) hear(p int) { s.Readings[p] = reading{true, s.Turn, s.clock(), s.Now} }

// look is a call that is not of the user, and has a reply at once.
func (m *ClockModel) look(s *ClockState, p int) bool {
	before := *s
	if r := s.Readings[p]; r.Known {
		at := r.Value + int8(s.Now-r.Heard)
		m.admit(s, at, at+callTicks, r.Turn)
	} else {
		m.admit(s, 0, -100, s.Turn+1)
	}
	s.hear(p)
	return *s != before
}

// call sends a call once the one before has ended for its user.
func (m *ClockModel) call(s *ClockState, p, i int) bool {
	r := s.Readings[p]
	if s.Calls[i].PC != callNone || i > 0 && s.Calls[i-1].PC < callGiven || !r.Known {
		return false
	}
	age := int8(s.Now - r.Heard)
	if m.Rules.Fresh && age > readingTicks {
		return false
	}
	s.Calls[i] = heldCall{callSent, uint8(p), s.Now, r.Turn, r.Value + age, r.Value + age + callTicks}
	return true
}

// giveUp is the end of a call without a reply: lapse.lua, and the answer to the caller.
func (m *ClockModel) giveUp(s *ClockState, i int, arrives bool) bool {
	c := &s.Calls[i]
	if c.PC != callOver || !arrives && (!m.Rules.Lapse || !pay(&s.Lost)) {
		return false
	}
	c.PC = callGiven
	if m.Rules.Lapse && arrives && c.Turn == s.Turn && s.clock() <= c.Deadline {
		s.Turn, s.HasSeen, s.Seen = s.Turn+1, false, 0
	} else if m.Rules.LapseSeen && m.Rules.Lapse && arrives && c.Turn == s.Turn && s.clock() > s.Seen {
		s.HasSeen, s.Seen = true, s.clock()
	}
	return true
}

func (m *ClockModel) tick(s *ClockState) bool {
	if s.Now == m.Ticks {
		return false
	}
	s.Now++
	for i := range s.Calls {
		if c := &s.Calls[i]; c.PC == callSent && s.Now > c.Sent+callTicks {
			c.PC = callOver
		}
	}
	return true
}

func (m *ClockModel) check(before, s *ClockState) string {
	if s.Effective < before.Effective && s.Effective < s.Acknowledged {
		return fmt.Sprintf("call %d takes effect after call %d was acknowledged", s.Effective, s.Acknowledged)
	}
	return ""
}

func (m *ClockModel) checkRest(*ClockState) string { return "" }
