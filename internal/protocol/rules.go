package protocol

import "fmt"

// Rules are the rules of the protocol. The product has all of them. Switching one off shows what it prevents.
type Rules struct {
	Epoch             bool // opening a shard takes a new epoch
	SequenceCheck     bool // the writer drops events up to the watermark
	OffsetAfterCommit bool // offsets are marked after the commit
	TrimAfterAck      bool // the outbox is trimmed after Kafka's acknowledgement
	RowCheck          bool // an unlike decrements the count only if it deletes a row
	CountByRows       bool // counts change by rows, not by events
	FoldOrder         bool // the last event of a batch decides for each (target, user)
	WatermarkWithRows bool // the watermark is written in the transaction of the rows
	ShardsLocked      bool // ApplyLikes locks the like_shards row before it reads it
	ServerCheck       bool // a shard is closed on every server but the one that it was opened on, which a crash ends
	RoleCheck         bool // a shard is closed on a server that is not a master
	LastKept          bool // the hash of the shard keeps the last position, too
	OvertakenByPlace  bool // a shard is opened again if the watermark is after its last position
	Barrier           bool // a shard is opened after the watermark has reached the epoch's first event
	ForgetTargets     bool // after Redis lost events that MySQL has, the shard's targets are evicted
	ForgetUnderLock   bool // ForgetTargets requires the relay lock and the opening
	RestoredKept      bool // a second attempt at opening keeps the restored position of the first
	HighestEpoch      bool // finishOpening requires its epoch to be the last that MySQL has issued
	OpenedChecks      bool // Opened requires that the opening is its own
	OpenedLocked      bool // Opened requires the relay lock
	SealLocked        bool // Seal requires the relay lock
	TrimLocked        bool // Trim requires the relay lock
	CleanCheck        bool // a target is evicted only if its last change is at or before the watermark
	WarmLock          bool // the end of warming requires the warming lock
	WarmEpoch         bool // the end of warming requires the epoch in which it began
	OpeningNames      bool // the first event of an epoch names the position before it, and the writer compares it
	SealedKept        bool // an epoch without events after its first does not move the sealed position
	RunWhole          bool // a run is applied whole before the watermark moves to it
	CloseTakesLock    bool // closing a deleted target takes the lock of a load away
	VoidForgets       bool // the voider evicts a deleted target before it deletes the row
	VoidProbes        bool // the voider waits for an event after the eviction
	VoidLooks         bool // the voider looks whether the target is cold, under the lock of its row
	VoidTakesLock     bool // the same, and takes the lock of a load away
	VoidLocksRow      bool // the target's row is locked from that look to the deletion of the like
}

// AllRules returns the complete protocol.
func AllRules() Rules {
	return Rules{
		Epoch:             true,
		SequenceCheck:     true,
		OffsetAfterCommit: true,
		TrimAfterAck:      true,
		RowCheck:          true,
		CountByRows:       true,
		FoldOrder:         true,
		WatermarkWithRows: true,
		ShardsLocked:      true,
		ServerCheck:       true,
		RoleCheck:         true,
		LastKept:          true,
		OvertakenByPlace:  true,
		Barrier:           true,
		ForgetTargets:     true,
		ForgetUnderLock:   true,
		RestoredKept:      true,
		HighestEpoch:      true,
		OpenedChecks:      true,
		OpenedLocked:      true,
		SealLocked:        true,
		TrimLocked:        true,
		CleanCheck:        true,
		WarmLock:          true,
		WarmEpoch:         true,
		OpeningNames:      true,
		SealedKept:        true,
		RunWhole:          true,
		CloseTakesLock:    true,
		VoidForgets:       true,
		VoidProbes:        true,
		VoidLooks:         true,
		VoidTakesLock:     true,
		VoidLocksRow:      true,
	}
}

// Model is a protocol and the bounds of its search.
type Model struct {
	Rules   Rules
	Targets int // 1 to 2
	Users   int // 1 to 2
	Loaders int // 0 to 2
	Janitor bool
	// NewTarget starts with a cold target 0 that was just created. Otherwise every target is warm.
	NewTarget bool
	// PromiseOnly checks only the promise to users, and no internal invariants.
	PromiseOnly bool
	Budget      Budget
}

// start returns the first state: an open shard without events.
func (m *Model) start() State {
	s := State{Left: m.Budget}
	s.MySQL.Epoch, s.Redis.Epoch = 1, 1
	s.add(pos{1, 0}, 0)
	s.Redis.Outbox = 0
	s.MySQL.Applied, s.MySQL.Taken = pos{1, 0}, 1
	s.Redis.Lock, s.Relays[0].PC = 1, relayReady
	for t := range m.Targets {
		s.Redis.Targets[t].Warm = true
	}
	if m.NewTarget {
		s.Redis.Targets[0].Warm = false
	}
	return s
}

// check describes a violation by a state, or by the step that led to it. It returns "" if it finds none.
func (m *Model) check(before, s *State) string {
	r, db := &s.Redis, &s.MySQL
	if s.Left.SetBacks < m.Budget.SetBacks {
		return "" // Redis has lost what it acknowledged
	}
	for t := range m.Targets {
		if int(db.Count[t]) != db.Rows[t].size() {
			return fmt.Sprintf("likes_count of target %d is %d and there are %d rows", t, db.Count[t],
				db.Rows[t].size())
		}
		if int(r.Targets[t].Count) != r.Targets[t].Users.size() {
			return fmt.Sprintf("the gate counts %d for target %d and its set has %d users", r.Targets[t].Count, t,
				r.Targets[t].Users.size())
		}
	}
	if s.Endless && m.Budget.LogLosses == 0 {
		return "stuck: resending or reopening does not end"
	}
	truth := s.fold(r.Known | db.Taken)
	for t, liked := range truth {
		if r.Epoch != 0 && r.Targets[t].Warm && r.Targets[t].Users != liked {
			return fmt.Sprintf("the gate answers that target %d is liked by %s, but it is liked by %s", t,
				r.Targets[t].Users, liked)
		}
	}
	for t, liked := range truth {
		if b := s.Behind; b.Open && !m.Rules.RoleCheck && b.Targets[t].Warm && b.Targets[t].Users != liked {
			return fmt.Sprintf("the demoted server answers that target %d is liked by %s, but it is liked by %s", t,
				b.Targets[t].Users, liked)
		}
	}
	if m.PromiseOnly {
		return ""
	}
	if s.Needless {
		return "an opening has forgotten the targets though Redis lost no like"
	}
	if before.MySQL.Applied.after(db.Applied) {
		return fmt.Sprintf("the watermark went back from %s to %s", before.MySQL.Applied, db.Applied)
	}
	if db.Gaps != 0 && s.Left.LogLosses < m.Budget.LogLosses {
		return "" // what Kafka lost is missing, and the reconciler has to send it again
	}
	if db.Gaps != 0 {
		return "a gap is recorded though Kafka lost nothing"
	}
	if applied := s.fold(db.Taken); applied != db.Rows {
		return fmt.Sprintf("the rows are %v, and the applied events make them %v", db.Rows, applied)
	}
	for id := range int(s.Events) {
		e := s.History[id]
		if e.Op == 0 || !r.Known.has(id) || db.Taken.has(id) {
			continue
		}
		if !e.Pos.after(db.Applied) {
			return fmt.Sprintf("event %s was accepted, is not in MySQL, and is not after the watermark %s", e.Pos,
				db.Applied)
		}
		for _, l := range e.likes() {
			if r.Epoch != 0 && !r.Targets[l.target].Warm {
				return fmt.Sprintf("target %d is cold and its event %s is not in MySQL", l.target, e.Pos)
			}
		}
	}
	for t, liked := range truth {
		if r.Epoch != 0 && !r.Targets[t].Warm && db.Rows[t] != liked {
			return fmt.Sprintf("target %d is cold; MySQL has likes by %s and the truth is %s", t, db.Rows[t], liked)
		}
	}
	return ""
}

// checkRest checks a state without owed steps.
func (m *Model) checkRest(s *State) string {
	if m.Budget.LogLosses > 0 {
		return ""
	}
	r, db := &s.Redis, &s.MySQL
	if r.Epoch == 0 || r.Last.Epoch > r.Epoch {
		return "stuck: the shard is closed for ever"
	}
	if s.Left.SetBacks < m.Budget.SetBacks {
		for t := range m.Targets {
			if r.Targets[t].Warm && r.Targets[t].Users != db.Rows[t] {
				return fmt.Sprintf("at rest the gate answers that target %d is liked by %s, and MySQL has likes by %s",
					t, r.Targets[t].Users, db.Rows[t])
			}
		}
		return ""
	}
	for t, liked := range s.fold(r.Known | db.Taken) {
		if db.Rows[t] != liked {
			return fmt.Sprintf("at rest MySQL has likes of target %d by %s, and the acknowledged likes are by %s", t,
				db.Rows[t], liked)
		}
	}
	if !m.PromiseOnly && (r.Outbox != 0 || r.Last != db.Applied) {
		return fmt.Sprintf("at rest the watermark is %s and the last event %s", db.Applied, r.Last)
	}
	return ""
}

func (u users) String() string {
	switch u {
	case 0:
		return "nobody"
	case 1:
		return "ann"
	case 2:
		return "bob"
	}
	return "ann and bob"
}
