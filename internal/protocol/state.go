// Package protocol models the life of a shard as a state machine that is small enough to search all its states. The
// model has the gate, the outbox, relays, Kafka's partition, like writers, MySQL, and the warming, cooling and opening
// of targets and shards. Crashes, pauses and reordering may occur at every step. The model follows docs/design.md, with
// the names of the code. docs/model.md describes the checks and their results.
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

// event is an entry of the outbox: a run of one or two likes, or an event of the shard. Without an entry, all fields
// are zero.
type event struct {
	Pos    pos
	Also   uint8 // the second like of a run; 0 for none
	Op     uint8 // 0 is models.ShardOpened, and opProbe a probe
	Before pos   // of models.ShardOpened: the last position in the outbox before it
}

// follows is LikeRecord.follows.
func (e event) follows(watermark pos, rules Rules) bool {
	if e.Pos.Epoch == watermark.Epoch {
		return e.Pos.follows(watermark)
	}
	return e.Pos.Seq == 0 && e.Op == 0 && (!rules.OpeningNames || !e.Before.after(watermark))
}

// opProbe is the Op of an event without a like. It is after those of all likes.
const opProbe = 1 + maxTargets<<2

func likeOp(target, user int, liked bool) uint8 {
	op := uint8(1 + target<<2 + user<<1)
	if liked {
		op++
	}
	return op
}

// likeOf is one like of a run.
type likeOf struct {
	target, user int
	liked        bool
}

// likes returns the likes of a run, in their order.
func (e event) likes() []likeOf {
	var list []likeOf
	for _, op := range []uint8{e.Op, e.Also} {
		if op != 0 && op != opProbe {
			list = append(list, likeOf{int(op-1) >> 2, int(op-1) >> 1 & 1, (op-1)&1 == 1})
		}
	}
	return list
}

// events is a set of events, by their index in State.History. The index is the order of acceptance, so a set is also a
// sequence: the outbox, or a Kafka record.
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
	Lock  uint8 // 1 + the loader that holds it; 0 if free
	// Closed marks a target as deleted. It refuses likes.
	Closed bool
}

// redis has the keys of the shard. It does not have the replication id: a crash closes the shard in the same step,
// because every script compares the id.
type redis struct {
	Epoch, Opening uint8 // 0 if absent
	HasRestored    bool
	Restored       pos
	Lock           uint8 // relay lock: 1 + its holder; 0 if free
	Outbox         events
	Last           pos  // of the last event in the hash of the shard
	Forgot         bool // the outbox does not have that position: it was deleted while it was empty
	Targets        [maxTargets]target
	Known          events // only for checks: the accepted events that this Redis has not lost
}

// replica has what a demoted server knew when it fell behind its primary. It has the primary's replication id, so the
// shard is open on it if it was open on the primary.
type replica struct {
	Open    bool
	Outbox  events
	Targets [maxTargets]target
}

// mysql has the shard's row in like_shards, the rows of likes and the counts.
type mysql struct {
	Epoch           uint8
	Applied, Sealed pos
	Gaps            uint8
	Rows            [maxTargets]users
	Count           [maxTargets]int8
	Deleted         [maxTargets]bool
	Closing         [maxTargets]bool // a row in gate_closings: the gate is not closed yet
	Taken           events           // only for checks: the events that were applied and not dropped
}

// The next step of a relay.
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
	Opening  uint8 // the epoch of workers.opening; 0 for nil
	Restored pos
	Batch    events
}

// The next step of a writer.
const (
	writerIdle uint8 = iota
	writerApply
	writerWrite // only without ShardsLocked: Mark is the watermark read
	writerMove  // only without WatermarkWithRows: the rows are committed, and Mark is the watermark to set
	writerMark
)

// writer has the records of the log from From to before To. Writer 0 owns the partition. Writer 1 owned it before it
// was paused.
type writer struct {
	PC, From, To uint8
	Mark, Sealed pos
}

// The next step of a loader.
const (
	loaderIdle uint8 = iota
	loaderRead
	loaderFinish
)

type loader struct {
	PC, Target, Epoch uint8
	Users             users
}

// The next step of the voider.
const (
	voiderIdle uint8 = iota
	voiderUnlike
	voiderForget
	voiderProbe
	voiderFlush
	voiderLook
	voiderDelete // the transaction holds the lock of the target's row
	voiderDeleteUnlocked
)

// voider withdraws the like of a user of a target.
type voider struct {
	PC, Target, User uint8
	Probe            pos
}

// locks reports whether the voider's transaction holds the lock of the target's row.
func (v voider) locks(t int) bool { return v.PC == voiderDelete && int(v.Target) == t }

// Budget bounds a search by how often each kind of step may occur on a path. Other steps are not bounded.
type Budget struct {
	Ops          uint8 // likes and unlikes that change the state
	Runs         uint8 // of two likes that change the state
	Reasserts    uint8 // of one like each
	RedisCrashes uint8 // each without a loss, with the loss of any tail, or with the loss of all data
	Failbacks    uint8 // a replaced master becomes master again, with its old data and its old replication id
	Expiries     uint8 // of the relay lock, unnoticed by its holder
	RelayKills   uint8 // kills of a relay, and restarts after a failure
	Delays       uint8 // of a record that its relay has abandoned, or of its copy
	WriterKills  uint8 // kills of a writer, and commits with an unknown outcome
	WriterPauses uint8 // while another writer takes over
	Failovers    uint8 // without a loss; the demoted server stays, and falls behind at some time
	OutboxLosses uint8 // deletions of the outbox while it is empty
	SetBacks     uint8 // of Redis with its memory, to an earlier state. Of these, only rest is checked
	LogLosses    uint8 // of an acknowledged record in Kafka. Rest is not checked, for there is no reconciler
	LockLosses   uint8 // expiries of a warming lock, and deletions of it
	Deletions    uint8 // of targets
	Restorations uint8
	Voids        uint8 // of one like each
}

// State is a state of the model.
type State struct {
	History     [maxEvents]event
	Events      uint8 // number of events in History
	Redis       redis
	Saved       redis // an earlier Redis, which the next crash with a loss restores
	Remembered  bool  // Saved was chosen since the last crash
	Demoted     bool  // a server that was demoted follows Redis
	Behind      replica
	MySQL       mysql
	Log         [maxLog]events // Kafka's partition, from the first record that a writer may still read
	Len, Offset uint8          // the length of Log, and the first record that is not marked
	InFlight    events         // a record that its relay has abandoned, and that may still arrive
	Relays      [2]relay
	Writers     [2]writer
	Loaders     [2]loader
	Voider      voider
	Needless    bool // an opening forgot the targets though Redis had lost no like
	Endless     bool // there are more events or records than the budget permits
	Left        Budget
}

// add adds an event to the outbox as XADD does, and reports whether Redis accepts it.
func (s *State) add(p pos, op uint8) bool {
	if !p.after(s.Redis.Last) && !s.Redis.Forgot {
		return false
	}
	if s.Events == maxEvents {
		s.Endless = true
		return true
	}
	s.History[s.Events] = event{Pos: p, Op: op}
	s.Redis.Outbox |= 1 << s.Events
	s.Redis.Known |= 1 << s.Events
	s.Redis.Last, s.Redis.Forgot = p, false
	s.Events++
	return true
}

// last returns the last position that Redis knows.
func (r *redis) last(rules Rules) pos {
	if r.Forgot && !rules.LastKept {
		return pos{}
	}
	return r.Last
}

// next returns the position that the scripts append under an epoch. Without LastKept, it is the id that XADD assigns to
// "EPOCH-*".
func (r *redis) next(epoch uint8, rules Rules) pos {
	if last := r.last(rules); epoch == last.Epoch {
		return pos{epoch, last.Seq + 1}
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

// lostLikes reports whether MySQL has likes that Redis has lost.
func (s *State) lostLikes() bool {
	for id := range int(s.Events) {
		if s.History[id].Op != 0 && s.MySQL.Taken.has(id) && !s.Redis.Known.has(id) {
			return true
		}
	}
	return false
}

// shorten removes records that no writer can read, so that states that differ only in them are equal.
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

// last returns the highest position in a record.
func (s *State) last(record events) pos { return s.History[bits.Len16(uint16(record))-1].Pos }

// fold returns the state of every like after the given events.
func (s *State) fold(of events) (liked [maxTargets]users) {
	for id := range int(s.Events) {
		if !of.has(id) {
			continue
		}
		for _, l := range s.History[id].likes() {
			liked[l.target] = liked[l.target].with(l.user, l.liked)
		}
	}
	return liked
}
