package protocol

import "fmt"

// MovingRules are the rules of a scan of a shard whose slot may move to another node of a cluster. The product has all
// of them.
type MovingRules struct {
	WholeSlot bool // each page is read while the slot is on one node, and is not moving
	SameEpoch bool // the gap stays open if the shard was opened again since the beginning
}

// AllMovingRules returns the complete protocol.
func AllMovingRules() MovingRules { return MovingRules{WholeSlot: true, SameEpoch: true} }

// MovingModel is a shard with a gap that the reconciler closes. Redis alone has the last change of each target. The
// keys of the shard move one by one between the two nodes of a cluster, in any order. A page of a scan is one key.
type MovingModel struct {
	Rules    MovingRules
	Moves    uint8 // of the slot
	Openings uint8 // after a loss, by which Redis has lost one of the targets and MySQL is the truth of it
}

const scannedTargets = 2

// MovingState is a state of the model of a scan.
type MovingState struct {
	Owner           uint8                 // the node that has the slot
	Moving          bool                  // to the other node
	Shard           uint8                 // the node that has the hash of the shard
	Targets         [scannedTargets]uint8 // the node that has the target; 2 for none
	Epoch           uint8
	Scanning        bool
	Since           uint8 // the epoch at the beginning
	Node            uint8 // that is scanned
	Page            uint8
	Compared        [scannedTargets]bool
	Closed          bool  // the gap
	Moves, Openings uint8 // left
}

func (m *MovingModel) start() MovingState {
	return MovingState{Owner: 1, Shard: 1, Targets: [scannedTargets]uint8{1, 1}, Moves: m.Moves, Openings: m.Openings}
}
func (m *MovingModel) tidy(*MovingState) {}

func (m *MovingModel) steps() []step[MovingState] {
	var all []step[MovingState]
	add := func(owed bool, say string, do func(s *MovingState) bool) {
		all = append(all, step[MovingState]{do: do, owed: owed, say: func(_, after *MovingState) string {
			return fmt.Sprintf("%s [shard on node %d, targets on %v]", say, after.Shard, after.Targets)
		}})
	}
	add(true, "the hash of the shard moves", func(s *MovingState) bool { return s.moveKey(&s.Shard) })
	for i := range scannedTargets {
		add(true, fmt.Sprintf("target %d moves", i), func(s *MovingState) bool { return s.moveKey(&s.Targets[i]) })
	}
	add(true, "the move ends", (*MovingState).endMove)
	add(true, "the reconciler begins", m.begin)
	add(true, "the reconciler reads a page, and compares what is in it", m.page)
	add(true, "the reconciler closes the gap", m.close)
	add(false, "an operator begins to move the slot", func(s *MovingState) bool {
		if s.Moving || !pay(&s.Moves) {
			return false
		}
		s.Moving = true
		return true
	})
	add(false, "FAULT: Redis loses target 1, and the shard is opened again", func(s *MovingState) bool {
		if s.Closed || !pay(&s.Openings) {
			return false
		}
		s.Epoch++
		s.Targets[1] = 2
		return true
	})
	return all
}

func (s *MovingState) moveKey(node *uint8) bool {
	if !s.Moving || *node != s.Owner {
		return false
	}
	*node = 1 - s.Owner
	return true
}

func (s *MovingState) endMove() bool {
	if !s.Moving || s.Shard == s.Owner || s.Targets[0] == s.Owner || s.Targets[1] == s.Owner {
		return false
	}
	s.Owner, s.Moving = 1-s.Owner, false
	return true
}

func (m *MovingModel) begin(s *MovingState) bool {
	if s.Scanning || s.Closed {
		return false
	}
	s.Scanning, s.Since, s.Page, s.Compared = true, s.Epoch, 0, [scannedTargets]bool{}
	s.Node = 0
	if m.Rules.WholeSlot {
		s.Node = s.Owner
	}
	return true
}

// page reads a key of the node that is scanned, in the order of its hash. Without WholeSlot, the other node is next.
func (m *MovingModel) page(s *MovingState) bool {
	if !s.Scanning || s.Page == scannedTargets {
		return false
	}
	if m.Rules.WholeSlot && (s.Moving || s.Node != s.Owner) {
		s.Scanning = false // the next run begins again
		return true
	}
	if s.Targets[s.Page] == s.Node {
		s.Compared[s.Page] = true
	}
	if s.Page++; s.Page == scannedTargets && s.Node == 0 && !m.Rules.WholeSlot {
		s.Node, s.Page = 1, 0
	}
	return true
}

func (m *MovingModel) close(s *MovingState) bool {
	if !s.Scanning || s.Page < scannedTargets {
		return false
	}
	s.Scanning = false
	s.Closed = !m.Rules.SameEpoch || s.Since == s.Epoch
	return true
}

func (m *MovingModel) check(before, s *MovingState) string {
	if before.Closed || !s.Closed {
		return ""
	}
	for i, compared := range s.Compared {
		if !compared && (s.Targets[i] != 2 || s.Since != s.Epoch) {
			return fmt.Sprintf("the gap is closed, and target %d was not compared", i)
		}
	}
	return ""
}

func (m *MovingModel) checkRest(s *MovingState) string {
	if !s.Closed {
		return "stuck: the gap is open for ever"
	}
	return ""
}
