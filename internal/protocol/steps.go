package protocol

import (
	"strconv"
	"strings"
)

// act is what a step does. It reports false if that is impossible in s. The meaning of who and what depends on the
// step; see say.
type act func(m *Model, s *State, who, what int) bool

// steps lists all steps of the model, with the owed steps first.
func (m *Model) steps() []step[State] {
	var all []step[State]
	owed := func(who int, say string, do act) {
		all = append(all, step[State]{func(s *State) bool { return do(m, s, who, 0) }, true, saying(say, who, 0)})
	}
	may := func(who, what int, say string, do act) {
		all = append(all, step[State]{
			func(s *State) bool { return do(m, s, who, what) }, false, saying(say, who, what),
		})
	}
	for i := range 2 {
		owed(i, "relay {who} notices the loss of its lock", relayNotice)
		owed(i, "relay {who} takes the lock", relayHold)
		owed(i, "relay {who} sees that the shard is open", relaySeesOpen)
		owed(i, "relay {who} sees that MySQL has overtaken the shard, and closes it", relayOvertaken)
		owed(i, "relay {who} takes a new epoch from MySQL (NextEpoch)", relayNextEpoch)
		owed(i, "relay {who}: Seal", relayDoSeal)
		owed(i, "relay {who} looks at the watermark (finishOpening)", relayFinish)
		owed(i, "relay {who}: ForgetTargets", relayDoForget)
		owed(i, "relay {who}: Opened", relayDoOpened)
		owed(i, "relay {who} reads the outbox", relayRead)
		owed(i, "relay {who} sends; Kafka has it", relayDoSend)
		owed(i, "relay {who}: Trim", relayDoTrim)
	}
	owed(0, "the delayed record reaches Kafka", arrive)
	for i := range 2 {
		owed(i, "writer {who} reads all records of the log", writerTake)
		owed(i, "writer {who} reads the watermark without a lock", writerReadMark)
		owed(i, "writer {who}: ApplyLikes commits", writerDoApply)
		owed(i, "writer {who} moves the watermark", writerDoMove)
		owed(i, "writer {who} marks the offset", writerDoMark)
	}
	for i := range m.Loaders {
		owed(i, "loader {who} reads the likers from MySQL", loaderDoRead)
		owed(i, "loader {who} ends the warming (warm.lua)", loaderDoFinish)
	}

	for t := range m.Targets {
		owed(t, "the gate closes target {who}", closeTarget)
	}
	owed(0, "the voider withdraws the like as its user would", voiderDoUnlike)
	owed(0, "the voider evicts the deleted target (forget)", voiderDoForget)
	owed(0, "the voider appends a probe", voiderDoProbe)
	owed(0, "the voider sees that the probe is applied (flush)", voiderDoFlush)
	owed(0, "the voider locks the row and looks that the target is cold (KeepCold)", voiderDoLook)
	owed(0, "the voider deletes the like's row and commits", voiderDoDelete)

	for t := range m.Targets {
		may(t, 0, "target {who} is deleted", deleteTarget)
		may(t, 0, "target {who} is restored", restoreTarget)
		may(t, 0, "a like finds that target {who} was restored (reopen.lua)", reopen)
		for u := range m.Users {
			may(t, u, "{user}'s like of target {who} is to be voided", requestVoid)
			may(t, u, "{user} changes the like of target {who}", like)
			may(t, u, "{user}'s like of target {who} is reasserted", reassert)
		}
		if m.Janitor {
			may(t, 0, "the janitor cools target {who}", cool)
		}
		for i := range m.Loaders {
			may(i, t, "loader {who} takes the warming lock of target {what}", loaderBegin)
		}
		may(t, 0, "FAULT: the warming lock of target {who} is lost", loseWarmLock)
	}
	if m.Users > 1 || m.Targets > 1 {
		may(0, 0, "two likes are changed together", likeTogether)
	}
	for i := range 2 {
		may(i, 0, "FAULT: relay {who} is killed or starts over", relayRestart)
		may(i, 0, "FAULT: relay {who} abandons a record that is still in flight, and starts over", relayGiveUp)
		may(i, 0, "FAULT: relay {who}'s record reaches Kafka, and a copy of it is delayed", relayDouble)
		may(i, 0, "FAULT: writer {who} is killed", writerKill)
	}
	may(0, 0, "FAULT: Kafka loses a record", loseRecord)
	may(0, 0, "FAULT: the relay lock expires", expire)
	may(0, 1, "writer 0 reads the first record only", writerTake)
	may(0, 0, "FAULT: writer 0 is paused and becomes writer 1, and another takes over as writer 0", writerPause)
	may(0, 0, "FAULT: writer 0's transaction commits, and its reply is lost", writerUnknown)
	may(0, 0, "the next loss restores the current data of Redis", remember)
	may(0, 0, "FAULT: Redis restarts without a loss", crash)
	may(0, 1, "FAULT: Redis restarts with earlier data", crash)
	may(0, 2, "FAULT: Redis restarts empty", crash)
	may(0, 0, "FAULT: Redis fails over; the demoted server follows the new one", failOver)
	may(0, 0, "FAULT: the demoted server falls behind", fallBehind)
	for i := range 2 {
		may(i, 0, "relay {who} reads the outbox of the demoted server", relayReadBehind)
	}
	may(0, 0, "FAULT: the outbox is deleted while it is empty", loseOutbox)
	may(0, 0, "FAULT: Redis is set back to earlier data with its memory", setBack)
	may(0, 0, "FAULT: a former Redis master becomes master again, with its old data", failBack)
	return all
}

var names = [...]string{"ann", "bob"}

// saying returns a function that describes a step and its changes.
func saying(say string, who, what int) func(before, after *State) string {
	r := strings.NewReplacer("{who}", strconv.Itoa(who), "{what}", strconv.Itoa(what), "{user}", names[what%2])
	return func(before, after *State) string { return r.Replace(say) + changes(before, after) }
}

func (m *Model) tidy(s *State) { s.shorten() }

// Each fault uses up one of its budget.
func pay(left *uint8) bool {
	if *left == 0 {
		return false
	}
	*left--
	return true
}

// like is counters/lua/like.lua, if it changes the state. check judges the other replies.
func like(m *Model, s *State, t, u int) bool {
	r, target := &s.Redis, &s.Redis.Targets[t]
	if r.Epoch == 0 || !target.Warm || target.Closed || !pay(&s.Left.Ops) {
		return false
	}
	return setLike(m, s, t, u, !target.Users.has(u))
}

// setLike changes a like of a warm target.
func setLike(m *Model, s *State, t, u int, liked bool) bool {
	r, target := &s.Redis, &s.Redis.Targets[t]
	if !s.add(r.next(r.Epoch, m.Rules), likeOp(t, u, liked)) {
		return false
	}
	target.set(u, liked, r.Last)
	return true
}

// set changes a like of a warm target, and its count.
func (t *target) set(u int, liked bool, last pos) {
	t.Users, t.Last = t.Users.with(u, liked), last
	if liked {
		t.Count++
	} else {
		t.Count--
	}
}

// reassert is counters/lua/reassert.lua. The reconciler and verify --repair may call it at any time.
func reassert(m *Model, s *State, t, u int) bool {
	r, target := &s.Redis, &s.Redis.Targets[t]
	if r.Epoch == 0 || !target.Warm || !pay(&s.Left.Reasserts) {
		return false
	}
	if !s.add(r.next(r.Epoch, m.Rules), likeOp(t, u, target.Users.has(u))) {
		return false
	}
	target.Last = r.Last
	return true
}

// likeTogether is like.lua with two likes: of both users, or of both targets. They are one run.
func likeTogether(m *Model, s *State, _, _ int) bool {
	t, u := 1, 0
	if m.Users > 1 {
		t, u = 0, 1
	}
	r, first, second := &s.Redis, &s.Redis.Targets[0], &s.Redis.Targets[t]
	if r.Epoch == 0 || !first.Warm || first.Closed || !second.Warm || second.Closed || !pay(&s.Left.Runs) {
		return false
	}
	if !setLike(m, s, 0, 0, !first.Users.has(0)) || s.Endless {
		return s.Endless
	}
	run := &s.History[s.Events-1]
	liked := !second.Users.has(u)
	run.Also = likeOp(t, u, liked)
	second.set(u, liked, run.Pos)
	return true
}

// cool is Janitor.Cool. It reads the watermark and evicts in one step, because an earlier watermark would evict less.
// MinCoolAfter is longer than a load. So loads that began before have ended when a target is evicted.
func cool(m *Model, s *State, t, _ int) bool {
	target := &s.Redis.Targets[t]
	if !target.Warm || target.Lock != 0 || s.MySQL.Gaps != 0 ||
		m.Rules.CleanCheck && target.Last.after(s.MySQL.Applied) {
		return false
	}
	target.forget()
	return true
}

func (t *target) forget() { t.Warm, t.Users, t.Count, t.Last, t.Closed = false, 0, 0, pos{}, false }

// loaderBegin is the start of a load in counters/load.go. It reads the lock, the epoch and the target in one step,
// because the lock comes first and is checked again at the end.
func loaderBegin(_ *Model, s *State, i, t int) bool {
	l, target := &s.Loaders[i], &s.Redis.Targets[t]
	if l.PC != loaderIdle || s.Redis.Epoch == 0 || target.Warm || target.Lock != 0 {
		return false
	}
	*l = loader{PC: loaderRead, Target: uint8(t), Epoch: s.Redis.Epoch}
	target.Lock = uint8(i + 1)
	return true
}

func loaderDoRead(_ *Model, s *State, i, _ int) bool {
	l := &s.Loaders[i]
	if l.PC != loaderRead {
		return false
	}
	if s.MySQL.Deleted[l.Target] {
		if target := &s.Redis.Targets[l.Target]; int(target.Lock) == i+1 {
			target.Lock = 0
		}
		*l = loader{}
		return true
	}
	l.Users, l.PC = s.MySQL.Rows[l.Target], loaderFinish
	return true
}

// loaderDoFinish is counters/lua/warm.lua and the release of the lock.
func loaderDoFinish(m *Model, s *State, i, _ int) bool {
	l := &s.Loaders[i]
	if l.PC != loaderFinish {
		return false
	}
	target := &s.Redis.Targets[l.Target]
	locked := int(target.Lock) == i+1
	if (locked || !m.Rules.WarmLock) && (s.Redis.Epoch == l.Epoch || !m.Rules.WarmEpoch) && !target.Warm {
		target.Warm, target.Users, target.Count, target.Last = true, l.Users, uint8(l.Users.size()), pos{}
	}
	if locked {
		target.Lock = 0
	}
	*l = loader{}
	return true
}

func loseWarmLock(_ *Model, s *State, t, _ int) bool {
	if s.Redis.Targets[t].Lock == 0 || !pay(&s.Left.LockLosses) {
		return false
	}
	s.Redis.Targets[t].Lock = 0
	return true
}

// deleteTarget is a deletion. It waits for a transaction that holds the row's lock.
func deleteTarget(_ *Model, s *State, t, _ int) bool {
	if s.MySQL.Deleted[t] || s.Voider.locks(t) || !pay(&s.Left.Deletions) {
		return false
	}
	s.MySQL.Deleted[t], s.MySQL.Closing[t] = true, true
	return true
}

// closeTarget is counters/lua/close.lua, by the deleting process or by the job. It may come late, even after a
// restoration.
func closeTarget(m *Model, s *State, t, _ int) bool {
	if !s.MySQL.Closing[t] {
		return false
	}
	target := &s.Redis.Targets[t]
	target.Closed = target.Warm
	if m.Rules.CloseTakesLock {
		target.Lock = 0
	}
	s.MySQL.Closing[t] = false
	return true
}

// restoreTarget does not call the gate.
func restoreTarget(_ *Model, s *State, t, _ int) bool {
	if !s.MySQL.Deleted[t] || s.Voider.locks(t) || !pay(&s.Left.Restorations) {
		return false
	}
	s.MySQL.Deleted[t] = false
	return true
}

func reopen(_ *Model, s *State, t, _ int) bool {
	target := &s.Redis.Targets[t]
	if !target.Closed || s.MySQL.Deleted[t] {
		return false
	}
	target.Closed = false
	return true
}

// requestVoid is the part of Voider.sweep that reads a row.
func requestVoid(_ *Model, s *State, t, u int) bool {
	if s.Voider.PC != voiderIdle || !s.MySQL.Rows[t].has(u) || !pay(&s.Left.Voids) {
		return false
	}
	s.Voider = voider{PC: voiderUnlike, Target: uint8(t), User: uint8(u)}
	return true
}

// voiderDoUnlike is SetLike by the voider. A deleted target is not found, unless it is still open in the gate.
func voiderDoUnlike(m *Model, s *State, _, _ int) bool {
	v, r := &s.Voider, &s.Redis
	t := int(v.Target)
	target := &r.Targets[t]
	switch {
	case v.PC != voiderUnlike || r.Epoch == 0:
		return false
	case target.Warm && !target.Closed:
		done := !target.Users.has(int(v.User)) || setLike(m, s, t, int(v.User), false)
		*v = voider{}
		return done
	case s.MySQL.Deleted[t]:
		v.PC = voiderForget
	default:
		*v = voider{} // the target has to be warmed or opened; the next run tries again
	}
	return true
}

// voiderDoForget is Redis.Forget. A target that it cannot evict is left for the next run.
func voiderDoForget(m *Model, s *State, _, _ int) bool {
	v := &s.Voider
	if v.PC != voiderForget {
		return false
	}
	target := &s.Redis.Targets[v.Target]
	if target.Warm && m.Rules.VoidForgets {
		if s.Redis.Epoch == 0 || s.MySQL.Gaps != 0 || m.Rules.CleanCheck && target.Last.after(s.MySQL.Applied) {
			*v = voider{}
			return true
		}
		target.forget()
	}
	v.PC = voiderProbe
	return true
}

func voiderDoProbe(m *Model, s *State, _, _ int) bool {
	v, r := &s.Voider, &s.Redis
	if v.PC != voiderProbe || r.Epoch == 0 {
		return false
	}
	v.PC = voiderLook
	if m.Rules.VoidProbes {
		if !s.add(r.next(r.Epoch, m.Rules), opProbe) {
			return false
		}
		v.PC, v.Probe = voiderFlush, r.Last
	}
	return true
}

func voiderDoFlush(_ *Model, s *State, _, _ int) bool {
	v := &s.Voider
	if v.PC != voiderFlush || v.Probe.after(s.MySQL.Applied) {
		return false
	}
	v.PC, v.Probe = voiderLook, pos{}
	return true
}

// voiderDoLook is the first half of Store.WithdrawLike: it locks the row and calls Redis.KeepCold.
func voiderDoLook(m *Model, s *State, _, _ int) bool {
	v := &s.Voider
	if v.PC != voiderLook {
		return false
	}
	target := &s.Redis.Targets[v.Target]
	if m.Rules.VoidTakesLock {
		target.Lock = 0
	}
	if !s.MySQL.Deleted[v.Target] || target.Warm && m.Rules.VoidLooks {
		*v = voider{}
		return true
	}
	v.PC = voiderDelete
	if !m.Rules.VoidLocksRow {
		v.PC = voiderDeleteUnlocked
	}
	return true
}

// voiderDoDelete is the second half of Store.WithdrawLike. The model records the withdrawal as an event that MySQL has.
func voiderDoDelete(_ *Model, s *State, _, _ int) bool {
	v, db := &s.Voider, &s.MySQL
	if v.PC != voiderDelete && v.PC != voiderDeleteUnlocked {
		return false
	}
	t, u := int(v.Target), int(v.User)
	*v = voider{}
	if !db.Rows[t].has(u) {
		return true
	}
	db.Rows[t] = db.Rows[t].with(u, false)
	db.Count[t]--
	if s.Events == maxEvents {
		s.Endless = true
		return true
	}
	s.History[s.Events] = event{Pos: db.Applied, Op: likeOp(t, u, false)}
	db.Taken |= 1 << s.Events
	s.Redis.Known |= 1 << s.Events
	s.Events++
	return true
}

func (s *State) holds(i int) bool { return int(s.Redis.Lock) == i+1 }

// idle releases the relay's lock if it holds it, and makes the relay idle.
func (s *State) idle(i int) bool {
	if s.holds(i) {
		s.Redis.Lock = 0
	}
	s.Relays[i] = relay{}
	return true
}

func relayNotice(_ *Model, s *State, i, _ int) bool {
	return s.Relays[i].PC == relayReady && !s.holds(i) && s.idle(i)
}

func relayHold(_ *Model, s *State, i, _ int) bool {
	if s.Relays[i].PC != relayIdle || s.Redis.Lock != 0 && !s.holds(i) {
		return false
	}
	s.Redis.Lock, s.Relays[i].PC = uint8(i+1), relayReady
	return true
}

func relaySeesOpen(_ *Model, s *State, i, _ int) bool {
	r := &s.Relays[i]
	if r.PC != relayReady || s.Redis.Epoch == 0 || r.Opening == 0 {
		return false
	}
	r.Opening, r.Restored = 0, pos{}
	return true
}

// relayOvertaken is Relay.overtaken. The relay asks before it sends a batch; here it may ask at any time.
func relayOvertaken(m *Model, s *State, i, _ int) bool {
	last, applied := s.Redis.last(m.Rules), s.MySQL.Applied
	if s.Relays[i].PC != relayReady || s.Redis.Epoch == 0 || !applied.after(last) ||
		!m.Rules.OvertakenByPlace && applied.Epoch <= last.Epoch {
		return false
	}
	s.Redis.Epoch, s.Redis.Opening = 0, 0
	return true
}

// relayNextEpoch is the first half of beginOpening. openingLimit expires if the first event of the epoch was lost.
func relayNextEpoch(m *Model, s *State, i, _ int) bool {
	r := &s.Relays[i]
	if r.PC != relayReady || s.Redis.Epoch != 0 || r.Opening != 0 && r.Opening == s.Redis.Opening {
		return false
	}
	epoch := max(s.MySQL.Epoch, s.MySQL.Applied.Epoch, s.Redis.last(m.Rules).Epoch)
	if m.Rules.Epoch {
		epoch++
	}
	s.MySQL.Epoch, r.Opening, r.PC = epoch, epoch, relaySeal
	return true
}

// relayDoSeal is counters/lua/seal.lua.
func relayDoSeal(m *Model, s *State, i, _ int) bool {
	r, redis := &s.Relays[i], &s.Redis
	if r.PC != relaySeal {
		return false
	}
	if !s.holds(i) && m.Rules.SealLocked || redis.Epoch != 0 {
		return s.idle(i)
	}
	last, first := redis.last(m.Rules), pos{r.Opening, 0}
	if !m.Rules.Epoch {
		first = redis.next(r.Opening, m.Rules)
	}
	if !s.add(first, 0) {
		return s.idle(i)
	}
	if !s.Endless {
		s.History[s.Events-1].Before = last
	}
	if !redis.HasRestored || !m.Rules.RestoredKept {
		redis.HasRestored, redis.Restored = true, last
	}
	redis.Opening = r.Opening
	r.Restored, r.PC = redis.Restored, relayReady
	return true
}

// relayFinish is the part of finishOpening that reads MySQL and decides the next step.
func relayFinish(m *Model, s *State, i, _ int) bool {
	r, db := &s.Relays[i], &s.MySQL
	if r.PC != relayReady || s.Redis.Epoch != 0 || r.Opening == 0 {
		return false
	}
	applied := db.Applied.Epoch
	switch {
	case db.Epoch > r.Opening && m.Rules.HighestEpoch:
		return s.idle(i)
	case applied < r.Opening && m.Rules.Barrier:
		return false
	case applied > r.Opening:
		return s.idle(i)
	}
	known := db.Sealed
	if applied < r.Opening {
		known = db.Applied
	}
	r.PC = relayOpened
	if known.after(r.Restored) && m.Rules.ForgetTargets {
		r.PC = relayForget
	}
	return true
}

func relayDoForget(m *Model, s *State, i, _ int) bool {
	r := &s.Relays[i]
	if r.PC != relayForget {
		return false
	}
	if m.Rules.ForgetUnderLock && (!s.holds(i) || s.Redis.Opening != r.Opening) {
		return s.idle(i)
	}
	s.Needless = s.Needless || !s.lostLikes()
	for t := range s.Redis.Targets {
		s.Redis.Targets[t] = target{}
	}
	r.PC = relayOpened
	return true
}

// relayDoOpened is counters/lua/opened.lua.
func relayDoOpened(m *Model, s *State, i, _ int) bool {
	r, redis := &s.Relays[i], &s.Redis
	if r.PC != relayOpened {
		return false
	}
	if !s.holds(i) && m.Rules.OpenedLocked || redis.Opening != r.Opening && m.Rules.OpenedChecks {
		return s.idle(i)
	}
	redis.Epoch, redis.Opening, redis.HasRestored, redis.Restored = r.Opening, 0, false, pos{}
	r.PC = relayReady
	return true
}

func relayRead(m *Model, s *State, i, _ int) bool {
	r := &s.Relays[i]
	if r.PC != relayReady || s.Redis.Outbox == 0 {
		return false
	}
	r.Batch, r.PC = s.Redis.Outbox, relaySend
	if !m.Rules.TrimAfterAck {
		r.PC = relayTrim
	}
	return true
}

func relayDoSend(m *Model, s *State, i, _ int) bool {
	r := &s.Relays[i]
	if r.PC != relaySend {
		return false
	}
	s.send(r.Batch)
	r.PC = relayTrim
	if !m.Rules.TrimAfterAck {
		r.Batch, r.PC = 0, relayReady
	}
	return true
}

// relayDoTrim is counters/lua/trim.lua.
func relayDoTrim(m *Model, s *State, i, _ int) bool {
	r := &s.Relays[i]
	if r.PC != relayTrim {
		return false
	}
	if !s.holds(i) && m.Rules.TrimLocked {
		return s.idle(i)
	}
	last := s.last(r.Batch)
	for id := range int(s.Events) {
		if s.Redis.Outbox.has(id) && !s.History[id].Pos.after(last) {
			s.Redis.Outbox &^= 1 << id
		}
	}
	if !m.Rules.TrimAfterAck {
		r.PC = relaySend
		return true
	}
	r.Batch, r.PC = 0, relayReady
	return true
}

func relayRestart(_ *Model, s *State, i, _ int) bool {
	return s.Relays[i].PC != relayIdle && pay(&s.Left.RelayKills) && s.idle(i)
}

func relayGiveUp(_ *Model, s *State, i, _ int) bool {
	if s.Relays[i].PC != relaySend || s.InFlight != 0 || !pay(&s.Left.Delays) {
		return false
	}
	s.InFlight = s.Relays[i].Batch
	return s.idle(i)
}

func relayDouble(m *Model, s *State, i, _ int) bool {
	if s.Relays[i].PC != relaySend || s.InFlight != 0 || !pay(&s.Left.Delays) {
		return false
	}
	s.InFlight = s.Relays[i].Batch
	return relayDoSend(m, s, i, 0)
}

func arrive(_ *Model, s *State, _, _ int) bool {
	if s.InFlight == 0 {
		return false
	}
	s.send(s.InFlight)
	s.InFlight = 0
	return true
}

// loseRecord loses the first record that no writer has read.
func loseRecord(_ *Model, s *State, _, _ int) bool {
	if s.Offset == s.Len || s.Writers[0].PC != writerIdle || s.Writers[1].PC != writerIdle || !pay(&s.Left.LogLosses) {
		return false
	}
	copy(s.Log[s.Offset:], s.Log[s.Offset+1:s.Len])
	s.Len--
	s.Log[s.Len] = 0
	return true
}

func expire(_ *Model, s *State, _, _ int) bool {
	if s.Redis.Lock == 0 || !pay(&s.Left.Expiries) {
		return false
	}
	s.Redis.Lock = 0
	return true
}

// writerTake reads from the first record that is not marked. The model has no position of the reader itself, because
// reading the last records again in the same batch has the same effect.
func writerTake(m *Model, s *State, i, what int) bool {
	w := &s.Writers[i]
	if w.PC != writerIdle || i != 0 || s.Offset == s.Len || what == 1 && s.Len < s.Offset+2 {
		return false
	}
	*w = writer{PC: writerApply, From: s.Offset, To: s.Len}
	if what == 1 {
		w.To = s.Offset + 1
	}
	if !m.Rules.OffsetAfterCommit {
		s.Offset = w.To
	}
	return true
}

func writerReadMark(m *Model, s *State, i, _ int) bool {
	w := &s.Writers[i]
	if m.Rules.ShardsLocked || w.PC != writerApply {
		return false
	}
	w.PC, w.Mark, w.Sealed = writerWrite, s.MySQL.Applied, s.MySQL.Sealed
	return true
}

// writerDoApply is ApplyLikes. It is one step, because its transaction locks the shard's row before it reads.
func writerDoApply(m *Model, s *State, i, _ int) bool {
	w := &s.Writers[i]
	switch {
	case m.Rules.ShardsLocked && w.PC == writerApply:
		w.Mark, w.Sealed = s.MySQL.Applied, s.MySQL.Sealed
	case !m.Rules.ShardsLocked && w.PC == writerWrite:
	default:
		return false
	}
	m.applyLikes(s, w)
	w.PC = writerMove
	if m.Rules.WatermarkWithRows {
		return writerDoMove(m, s, i, 0)
	}
	return true
}

func writerDoMove(_ *Model, s *State, i, _ int) bool {
	w := &s.Writers[i]
	if w.PC != writerMove {
		return false
	}
	s.MySQL.Applied, s.MySQL.Sealed = w.Mark, w.Sealed
	w.PC, w.Mark, w.Sealed = writerMark, pos{}, pos{}
	return true
}

// writerDoMark marks the offset. Kafka refuses the offset of a writer whose session has ended.
func writerDoMark(m *Model, s *State, i, _ int) bool {
	w := &s.Writers[i]
	if w.PC != writerMark {
		return false
	}
	if i == 0 && m.Rules.OffsetAfterCommit {
		s.Offset = w.To
	}
	*w = writer{}
	return true
}

func writerKill(_ *Model, s *State, i, _ int) bool {
	if s.Writers[i].PC == writerIdle || !pay(&s.Left.WriterKills) {
		return false
	}
	s.Writers[i] = writer{}
	return true
}

func writerPause(_ *Model, s *State, _, _ int) bool {
	if s.Writers[0].PC == writerIdle || s.Writers[1].PC != writerIdle || !pay(&s.Left.WriterPauses) {
		return false
	}
	s.Writers[1], s.Writers[0] = s.Writers[0], writer{}
	return true
}

func writerUnknown(m *Model, s *State, _, _ int) bool {
	before := s.Writers[0]
	if !pay(&s.Left.WriterKills) || !writerDoApply(m, s, 0, 0) {
		return false
	}
	s.Writers[0] = writer{PC: writerApply, From: before.From, To: before.To}
	return true
}

// applyLikes is Store.applyLikes. w.Mark and w.Sealed have the values that were read, and then the values to write.
func (m *Model) applyLikes(s *State, w *writer) {
	db := &s.MySQL
	last := map[[2]int]bool{}
	for _, record := range s.Log[w.From:w.To] {
		for id := range int(s.Events) {
			if !record.has(id) {
				continue
			}
			e := s.History[id]
			if e.Pos.after(w.Mark) {
				if !e.follows(w.Mark, m.Rules) {
					db.Gaps = 1
				}
				if e.Pos.Epoch > w.Mark.Epoch && (w.Mark.Seq > 0 || !m.Rules.SealedKept) {
					w.Sealed = w.Mark
				}
				w.Mark = e.Pos
			} else if m.Rules.SequenceCheck {
				continue
			}
			db.Taken |= 1 << id
			likes := e.likes()
			if len(likes) > 1 && !m.Rules.RunWhole {
				likes = likes[:1]
			}
			for _, l := range likes {
				key := [2]int{l.target, l.user}
				if _, there := last[key]; !there || m.Rules.FoldOrder {
					last[key] = l.liked
				}
				if !m.Rules.CountByRows {
					db.Count[l.target] += map[bool]int8{true: 1, false: -1}[l.liked]
				}
			}
		}
	}
	for t := range m.Targets {
		for u := range m.Users {
			liked, changed := last[[2]int{t, u}]
			there := db.Rows[t].has(u)
			db.Rows[t] = db.Rows[t].with(u, liked || !changed && there)
			switch {
			case !changed || !m.Rules.CountByRows:
			case liked && !there:
				db.Count[t]++
			case !liked && (there || !m.Rules.RowCheck):
				db.Count[t]--
			}
		}
	}
}

// remember chooses the current data for a later crash. Like an append-only file or a replica, a crash restores a prefix
// of the writes.
func remember(_ *Model, s *State, _, _ int) bool {
	if s.Left.RedisCrashes+s.Left.Failbacks+s.Left.SetBacks == 0 || s.Remembered {
		return false
	}
	s.Saved, s.Remembered = s.Redis, true
	return true
}

// crash restarts Redis. All scripts take the shard for closed from then on (counters/lua/shard.lua).
func crash(m *Model, s *State, _, what int) bool {
	if what == 1 && s.Saved == (redis{}) || !pay(&s.Left.RedisCrashes) {
		return false
	}
	switch what {
	case 1:
		s.Redis = s.Saved
	case 2:
		s.Redis, s.Saved = redis{}, redis{}
	}
	if m.Rules.ServerCheck {
		s.Redis.Epoch, s.Redis.Opening = 0, 0
	}
	s.crashed()
	return true
}

// failBack is a change of masters that the replication id does not reveal: since Saved, another server was master, and
// this one was never demoted.
func failBack(m *Model, s *State, _, _ int) bool {
	if s.Saved == (redis{}) || s.Remembered || s.Left.RedisCrashes == m.Budget.RedisCrashes || !pay(&s.Left.Failbacks) {
		return false
	}
	s.Redis = s.Saved
	s.crashed()
	return true
}

// failOver promotes a replica that has everything. Its replication id is new, so it closes the shard.
func failOver(m *Model, s *State, _, _ int) bool {
	if s.Demoted || !pay(&s.Left.Failovers) {
		return false
	}
	if m.Rules.ServerCheck {
		s.Redis.Epoch, s.Redis.Opening = 0, 0
	}
	s.Demoted, s.Behind = true, replica{}
	return true
}

// fallBehind keeps what the demoted server has at this time. The scripts that do not write answer on it.
func fallBehind(_ *Model, s *State, _, _ int) bool {
	if !s.Demoted {
		return false
	}
	s.Demoted = false
	s.Behind = replica{Open: s.Redis.Epoch != 0, Outbox: s.Redis.Outbox, Targets: s.Redis.Targets}
	return true
}

// relayReadBehind is a read by a relay that has lost its lock without noticing, or not: a replica has the lock, too.
func relayReadBehind(m *Model, s *State, i, _ int) bool {
	r := &s.Relays[i]
	if r.PC != relayReady || m.Rules.RoleCheck || s.Behind.Outbox == 0 {
		return false
	}
	r.Batch, r.PC = s.Behind.Outbox, relaySend
	return true
}

// loseOutbox deletes an outbox whose events Kafka has, as an operator or an eviction might. The hash stays.
func loseOutbox(_ *Model, s *State, _, _ int) bool {
	if s.Redis.Outbox != 0 || s.Redis.Forgot || !pay(&s.Left.OutboxLosses) {
		return false
	}
	s.Redis.Forgot = true
	return true
}

// setBack is a virtual machine that is set back to a snapshot with its memory: no replication id shows it.
func setBack(_ *Model, s *State, _, _ int) bool {
	if s.Saved == (redis{}) || !pay(&s.Left.SetBacks) {
		return false
	}
	s.Redis = s.Saved
	s.crashed()
	return true
}

func (s *State) crashed() {
	s.Remembered = false
	if s.Left.RedisCrashes+s.Left.Failbacks+s.Left.SetBacks == 0 {
		s.Saved = redis{}
	}
}
