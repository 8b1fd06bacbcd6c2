// Package protocol is the life of a shard as a state machine small enough to go through every state that it can reach:
// gate, outbox, relays, Kafka's partition, like writers, MySQL, warming, cooling and opening, with crashes, pauses and
// reordering at every step. It says what docs/design.md says, in the names of the code, and leaves out all else; see
// docs/model.md for what is checked and what was found.
package protocol

import (
	"math/bits"

	"likewise/models"
)

// The largest model that fits in a State.
const (
	maxTargets = 2
	maxUsers   = 2
	maxEvents  = 14
	maxLog     = 8
)

// pos is a models.Position in two bytes.
type pos struct{ Epoch, Seq uint8 }

func (p pos) position() models.Position {
	return models.Position{Epoch: int64(p.Epoch), Seq: int64(p.Seq)}
}
func (p pos) after(q pos) bool   { return p.position().After(q.position()) }
func (p pos) follows(q pos) bool { return p.position().Follows(q.position()) }
func (p pos) String() string     { return p.position().String() }

// event is what XADD put into the outbox; both fields are zero where there is none.
type event struct {
	Pos pos
	Op  uint8 // 0 is models.ShardOpened
}

func likeOp(target, user int, liked bool) uint8 {
	op := uint8(1 + target<<2 + user<<1)
	if liked {
		op++
	}
	return op
}

func (e event) target() int { return int(e.Op-1) >> 2 }
func (e event) user() int   { return int(e.Op-1) >> 1 & 1 }
func (e event) liked() bool { return (e.Op-1)&1 == 1 }

// events is a set of events by their index in State.History. Events are numbered as they are accepted, so a set is also
// a sequence: the outbox, or a Kafka record.
type events uint16

func (es events) has(id int) bool { return es>>id&1 == 1 }

// users is a set of users by number.
type users uint8

func (u users) has(user int) bool { return u>>user&1 == 1 }
func (u users) size() int         { return bits.OnesCount8(uint8(u)) }
func (u users) with(user int, liked bool) users {
	if liked {
		return u | 1<<user
	}
	return u &^ (1 << user)
}

// target is a target's keys in Redis: the hash, the set and the warming lock.
type target struct {
	Warm  bool
	Count uint8
	Users users
	Last  pos
	Lock  uint8 // 1 + the loader that holds it, 0 none
}

// redis is one shard's keys. The run id is not here: a crash and the fence of the first connection after it are one
// step, because nobody can see Redis between the two.
type redis struct {
	Epoch, Opening uint8 // 0 is absent
	HasRestored    bool
	Restored       pos
	Lock           uint8 // relay lock: 1 + its holder, 0 none
	Outbox         events
	Last           pos
	Targets        [maxTargets]target
	Known          events // for the checks only: what this Redis accepted and has not lost
}

// mysql is the shard's row in like_shards, the rows of likes, and the counts.
type mysql struct {
	Epoch           uint8
	Applied, Sealed pos
	Gaps            uint8
	Rows            [maxTargets]users
	Count           [maxTargets]int8
	Taken           events // for the checks only: what was applied and not dropped
}

// What a relay does next.
const (
	relayIdle uint8 = iota // contend for the lock
	relayReady
	relaySeal
	relaySend
	relayTrim
	relayForget
	relayOpened
)

type relay struct {
	PC       uint8
	Opening  uint8 // the epoch of workers.opening, 0 for nil
	Restored pos
	Batch    events
}

// What a writer does next.
const (
	writerIdle uint8 = iota
	writerApply
	writerWrite // only without ShardsLocked: the watermark is read, in Mark
	writerMove  // only without WatermarkWithRows: the rows are committed, the watermark is to be Mark
	writerMark
)

// writer has the records From up to and without To of the log. Number 0 owns the partition; number 1 owned it until it
// was paused.
type writer struct {
	PC, From, To uint8
	Mark, Sealed pos
}

// What a loader does next.
const (
	loaderIdle uint8 = iota
	loaderRead
	loaderFinish
)

type loader struct {
	PC, Target, Epoch uint8
	Users             users
}

// Budget bounds a search: how often each thing may happen on any one way. Everything else happens as often as it can.
type Budget struct {
	Ops          uint8 // likes and unlikes that change something
	Reasserts    uint8 // of one like each
	RedisCrashes uint8 // each with nothing lost, with any tail lost, or with everything lost
	Failbacks    uint8 // a master that was replaced is master again, with what it had and under its old run id
	Expiries     uint8 // of the relay lock while a relay takes itself for its holder
	RelayKills   uint8 // also: starts over after any failure
	Delays       uint8 // of a record that its relay gave up, or of a copy of it
	WriterKills  uint8 // also: COMMIT unknown
	WriterPauses uint8 // while another writer takes over
	LockLosses   uint8 // a warming lock expires, or a deletion takes it away
}

// State is everything that can differ between two moments.
type State struct {
	History     [maxEvents]event
	Events      uint8 // in History
	Redis       redis
	Saved       redis // what the next crash with a loss leaves: Redis as it once was
	Remembered  bool  // Saved was chosen since the last crash
	MySQL       mysql
	Log         [maxLog]events // Kafka's partition from the first record on that anybody may still read
	Len, Offset uint8          // of Log, and of the first record that is not marked
	InFlight    events         // a record that its relay has given up and that may arrive yet
	Relays      [2]relay
	Writers     [2]writer
	Loaders     [2]loader
	OpenCalls   uint8 // targets whose OpenTarget is still on its way
	Endless     bool  // more events or records than the budget can explain
	Left        Budget
}

// add puts an event at the end of the outbox as XADD does, and reports whether Redis takes it.
func (s *State) add(p pos, op uint8) bool {
	if !p.after(s.Redis.Last) {
		return false
	}
	if s.Events == maxEvents {
		s.Endless = true
		return true
	}
	s.History[s.Events] = event{p, op}
	s.Redis.Outbox |= 1 << s.Events
	s.Redis.Known |= 1 << s.Events
	s.Redis.Last = p
	s.Events++
	return true
}

// next is the id that XADD assigns to "EPOCH-*".
func (r *redis) next(epoch uint8) pos {
	if epoch == r.Last.Epoch {
		return pos{epoch, r.Last.Seq + 1}
	}
	return pos{epoch, 0}
}

// send appends a record to the log.
func (s *State) send(record events) {
	if s.Len == maxLog {
		s.Endless = true
		return
	}
	s.Log[s.Len] = record
	s.Len++
}

// shorten forgets records that no reader can reach, so that states which differ in those alone are one.
func (s *State) shorten() {
	first := s.Offset
	for _, w := range s.Writers {
		if w.PC != writerIdle {
			first = min(first, w.From)
		}
	}
	if first == 0 {
		return
	}
	copy(s.Log[:], s.Log[first:s.Len])
	clear(s.Log[s.Len-first : s.Len])
	s.Len -= first
	s.Offset -= first
	for i := range s.Writers {
		if w := &s.Writers[i]; w.PC != writerIdle {
			w.From -= first
			w.To -= first
		}
	}
}

// last is the highest position in a record.
func (s *State) last(record events) pos { return s.History[bits.Len16(uint16(record))-1].Pos }

// fold is the state of every like after some events.
func (s *State) fold(of events) (liked [maxTargets]users) {
	for id := range int(s.Events) {
		if e := s.History[id]; of.has(id) && e.Op != 0 {
			liked[e.target()] = liked[e.target()].with(e.user(), e.liked())
		}
	}
	return liked
}
