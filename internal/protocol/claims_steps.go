package protocol

import (
	"fmt"
	"strings"
)

// claimAct is what a step of a ClaimModel does. The meaning of who depends on the step.
type claimAct func(m *ClaimModel, s *ClaimState, who int) bool

func (m *ClaimModel) steps() []step[ClaimState] {
	var all []step[ClaimState]
	add := func(owed bool, who int, say string, do claimAct) {
		say = strings.NewReplacer("{who}", fmt.Sprint(who), "{user}", names[who%2]).Replace(say)
		all = append(all, step[ClaimState]{
			do: func(s *ClaimState) bool { return do(m, s, who) }, owed: owed,
			say: func(before, after *ClaimState) string { return say + claimChanges(before, after) },
		})
	}
	add(true, 0, "the relay sends an event; Kafka has it", claimRelay)
	add(true, 0, "ApplyLikes commits an event", claimApply)
	add(true, 0, "the reconciler sends a probe, because events do not arrive", claimProbe)
	add(true, 0, "the relay opens the shard", claimOpen)
	add(true, 0, "the loader reads the drop from MySQL", claimLoadRead)
	add(true, 0, "the loader ends the load (warm_drop.lua)", claimLoadEnd)
	add(true, 0, "the lock of a load that is over expires", claimLockExpires)
	add(true, 0, "the reconciler compares the drop, and closes the gap", claimReconcile)
	for i := range m.Jobs {
		add(true, i, "job {who} calls the gate (claim.lua)", jobDoSend)
		add(true, i, "job {who} appends a probe", jobDoProbe)
		add(true, i, "job {who} sees that the probe is applied", jobDoFlush)
		add(true, i, "job {who} locks the drop, looks that it is cold, and commits (ClearCold)", jobDoClear)
		for u := range m.Users {
			add(true, u*maxJobs+i, "job {who} reads the claim of a user to release", jobReadClaim)
		}
		add(true, i, "job {who} reads settings to send", jobReadSettings)
	}

	for u := range m.Users {
		add(false, u, "{user} claims", claimTake)
		add(false, u, "{user} returns the claim", claimReturn)
		add(false, u, "a late return of an earlier claim of {user} arrives", claimLateReturn)
		add(false, u, "{user} confirms the claim", claimConfirm)
		add(false, u, "the claim of {user} expires", claimExpire)
		add(false, u, "a moderator voids the claim of {user}", claimVoid)
		add(false, u, "the claim of {user} is reasserted", claimReassert)
	}
	add(false, 1, "the stock is raised", claimStock)
	add(false, 0, "the stock is lowered", claimStock)
	add(false, 0, "the drop is evicted (cool.lua)", claimCool)
	add(false, 0, "the loader takes the lock", claimLoadBegin)
	add(false, 0, "FAULT: the lock of the load is lost", claimLoseLock)
	add(false, 0, "FAULT: Kafka loses an event", claimLose)
	add(false, 0, "the next loss restores the current data of Redis", claimRemember)
	add(false, 0, "FAULT: Redis restarts without a loss", claimCrash)
	add(false, 1, "FAULT: Redis restarts with earlier data", claimCrash)
	return all
}

// claimChanges describes what a step has changed.
func claimChanges(before, s *ClaimState) string {
	var parts []string
	note := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	a, b := before.Redis, s.Redis
	if a.Open != b.Open || a.Warm != b.Warm || a.Held != b.Held || a.Version != b.Version {
		note("Redis: open %t, warm %t, held %v, stock %d in version %d", b.Open, b.Warm, b.Held, b.Stock, b.Version)
	}
	if before.MySQL != s.MySQL {
		note("MySQL: %+v", s.MySQL)
	}
	if s.Len > before.Len {
		note("events %v", s.Pending[before.Len:s.Len])
	}
	if len(parts) == 0 {
		return ""
	}
	return " [" + strings.Join(parts, "; ") + "]"
}

// claimTake is a claim at counters/lua/claim.lua, if it is accepted.
func claimTake(m *ClaimModel, s *ClaimState, u int) bool {
	r := &s.Redis
	if !r.Open || !r.Warm || r.Held[u] != 0 && m.Rules.OneEach || r.Count >= r.Stock && m.Rules.StockAtGate ||
		s.IDs == maxClaims || !pay(&s.Left.Claims) {
		return false
	}
	s.IDs++
	r.Held[u] = s.IDs
	r.Count++
	s.Oversold = r.Count > r.Stock
	s.add(eventTaken, u, s.IDs)
	return true
}

func claimReturn(_ *ClaimModel, s *ClaimState, u int) bool {
	if !s.Redis.Open || !s.Redis.Warm || s.Redis.Held[u] == 0 || !pay(&s.Left.Returns) {
		return false
	}
	s.drop(u, s.Redis.Held[u])
	return true
}

// drop takes away the claim that a user holds. The event names the claim of the call.
func (s *ClaimState) drop(u int, id uint8) {
	r := &s.Redis
	r.Held[u] = 0
	r.Count--
	r.Marks |= 1 << id
	s.add(eventReturned, u, id)
}

// claimLateReturn is a return that the network has delayed until after the user's next claim. The gate finds another
// claim than the one that it names.
func claimLateReturn(m *ClaimModel, s *ClaimState, u int) bool {
	row := s.MySQL.Rows[u]
	if m.Rules.ReturnNames || !s.Redis.Open || !s.Redis.Warm || s.Redis.Held[u] == 0 || row.ID == 0 ||
		s.Redis.Held[u] == row.ID || !pay(&s.Left.Returns) {
		return false
	}
	s.drop(u, row.ID)
	return true
}

// claimConfirm is Store.ConfirmClaim.
func claimConfirm(_ *ClaimModel, s *ClaimState, u int) bool {
	if row := &s.MySQL.Rows[u]; row.State == reserved {
		row.State = confirmed
		return true
	}
	return false
}

// claimExpire is Store.ExpireClaims. The time of the expiry may come at any moment.
func claimExpire(m *ClaimModel, s *ClaimState, u int) bool {
	row := &s.MySQL.Rows[u]
	if !m.Reserved || row.State != reserved && (row.State != confirmed || m.Rules.EndChecks) {
		return false
	}
	s.Unconfirmed = row.State == confirmed
	return m.end(s, row, expired)
}

// end is Store.endLocked.
func (m *ClaimModel) end(s *ClaimState, row *claimOf, state uint8) bool {
	row.State, row.ToRelease = state, m.Rules.EndReleases
	s.MySQL.Claimed--
	return true
}

func claimVoid(m *ClaimModel, s *ClaimState, u int) bool {
	row := &s.MySQL.Rows[u]
	return row.live() && pay(&s.Left.Voids) && m.end(s, row, voidedState)
}

// claimStock is Store.UpdateDrop.
func claimStock(_ *ClaimModel, s *ClaimState, raised int) bool {
	db := &s.MySQL
	stock := int8(db.Stock) - 1 + 2*int8(raised)
	if stock < 1 || stock < db.Claimed || !pay(&s.Left.Changes) {
		return false
	}
	db.Stock = uint8(stock)
	db.Version++
	return true
}

func claimRelay(_ *ClaimModel, s *ClaimState, _ int) bool {
	if s.Kafka == s.Len {
		return false
	}
	s.Kafka++
	return true
}

// claimApply is ApplyClaims for the next event. If events before it are lost, it records a gap.
func claimApply(m *ClaimModel, s *ClaimState, _ int) bool {
	for i := range s.Kafka {
		e := s.Pending[i]
		if e.Kind > eventLost {
			continue
		}
		s.MySQL.Gap = s.MySQL.Gap || i > 0
		m.applyEvent(s, e)
		s.moveWatermark(i + 1)
		return true
	}
	return false
}

func (s *ClaimState) moveWatermark(by int8) {
	for _, e := range s.Pending[:by] {
		e.fold(&s.Base)
	}
	copy(s.Pending[:], s.Pending[by:])
	clear(s.Pending[maxPending-by:])
	s.Kafka -= by
	s.Len -= by
	for _, r := range []*shelf{&s.Redis, &s.Saved} {
		r.Known, r.Last = max(-1, r.Known-by), max(0, r.Last-by)
	}
	for i := range s.Jobs {
		s.Jobs[i].Probe = max(0, s.Jobs[i].Probe-by)
	}
}

func (m *ClaimModel) applyEvent(s *ClaimState, e claimEvent) {
	db, row := &s.MySQL, &s.MySQL.Rows[e.User]
	switch e.Kind {
	case eventSet:
		db.Sent = max(db.Sent, e.ID)
	case eventReturned:
		if row.ID != e.ID && m.Rules.ReturnMatches {
			return
		}
		if row.live() || !m.Rules.ReturnOnce {
			row.State = returned
			db.Claimed--
		}
		row.ToRelease = false
	case eventTaken:
		was := *row
		if was.ID == e.ID && m.Rules.TakenOnce {
			return
		}
		*row = claimOf{ID: e.ID, State: confirmed}
		if m.Reserved {
			row.State = reserved
		}
		switch {
		case was.live() && m.Rules.TakesPlace:
		case db.Claimed >= int8(db.Stock) && m.Rules.StockAtWriter:
			*row = claimOf{ID: e.ID, State: rejected, ToRelease: m.Rules.RejectReleases}
			s.Needless = m.Budget.Changes+m.Budget.LogLosses == 0
		default:
			db.Claimed++
		}
		s.Revived = was.ID == e.ID && !was.live() && row.live()
		s.Unconfirmed = was.ID == e.ID && was.State == confirmed && row.State == reserved
	}
}

// claimProbe is Reconciler.Probe: the log may have lost the last events.
func claimProbe(_ *ClaimModel, s *ClaimState, _ int) bool {
	if !s.Redis.Open || s.Len == 0 || s.Kafka != s.Len {
		return false
	}
	for _, e := range s.Pending[:s.Len] {
		if e.Kind <= eventLost {
			return false
		}
	}
	s.add(eventProbe, 0, 0)
	return true
}

// claimOpen is the opening of the shard, from Seal to Opened.
func claimOpen(m *ClaimModel, s *ClaimState, _ int) bool {
	r := &s.Redis
	if r.Open || s.Len != 0 && m.Rules.Barrier {
		return false
	}
	if s.Lost && m.Rules.ForgetTargets {
		r.forget()
	}
	r.Open, r.Known, s.Lost = true, s.Len, false
	s.Opened++
	return true
}

func (r *shelf) forget() {
	r.Warm, r.Count, r.Held, r.Stock, r.Version, r.Told, r.Last = false, 0, [maxUsers]uint8{}, 0, 0, 0, 0
}

// claimCool is cool.lua, by the janitor or by Redis.Forget, which needs no time.
func claimCool(m *ClaimModel, s *ClaimState, _ int) bool {
	r := &s.Redis
	if !r.Warm || s.MySQL.Gap && m.Rules.GapKeeps || r.Last > 0 && m.Rules.CleanCheck || !pay(&s.Left.Cools) {
		return false
	}
	r.forget()
	return true
}

// claimLoadBegin is the start of a load in counters/load.go.
func claimLoadBegin(_ *ClaimModel, s *ClaimState, _ int) bool {
	if s.Load.PC != loaderIdle || !s.Redis.Open || s.Redis.Warm || s.Redis.Lock || !pay(&s.Left.Loads) {
		return false
	}
	s.Load = stocking{PC: loaderRead, Opened: s.Opened}
	s.Redis.Lock = true
	return true
}

// claimLoadRead is Store.DropGate.
func claimLoadRead(_ *ClaimModel, s *ClaimState, _ int) bool {
	l := &s.Load
	if l.PC != loaderRead {
		return false
	}
	for u, row := range s.MySQL.Rows {
		if row.live() {
			l.Held[u] = row.ID
		}
	}
	l.Stock, l.Version, l.PC = s.MySQL.Stock, s.MySQL.Version, loaderFinish
	return true
}

// claimLoadEnd is warm_drop.lua and the release of the lock.
func claimLoadEnd(m *ClaimModel, s *ClaimState, _ int) bool {
	l, r := &s.Load, &s.Redis
	if l.PC != loaderFinish {
		return false
	}
	if (r.Lock || !m.Rules.LoadLock) && r.Open && s.Opened == l.Opened && !r.Warm {
		r.Warm, r.Held, r.Stock, r.Version = true, l.Held, l.Stock, l.Version
		for _, id := range l.Held {
			if id != 0 {
				r.Count++
			}
		}
	}
	r.Lock = false
	*l = stocking{}
	return true
}

// claimLockExpires is for a lock that Redis had when it crashed.
func claimLockExpires(_ *ClaimModel, s *ClaimState, _ int) bool {
	if !s.Redis.Lock || s.Load.PC != loaderIdle {
		return false
	}
	s.Redis.Lock = false
	return true
}

func claimLoseLock(_ *ClaimModel, s *ClaimState, _ int) bool {
	if !s.Redis.Lock || !pay(&s.Left.LockLosses) {
		return false
	}
	s.Redis.Lock = false
	return true
}

// reassert is reassert_claims.lua for the claim that MySQL has of a user and the one that the gate has.
func (s *ClaimState) reassert(m *ClaimModel, u int) {
	row, held := s.MySQL.Rows[u], s.Redis.Held[u]
	if row.ID != held && (row.live() || row.ToRelease && m.Rules.ReconcileReleases) {
		s.add(eventReturned, u, row.ID)
	}
	if held != 0 && held != row.ID {
		s.add(eventTaken, u, held)
	}
}

// claimReconcile is Reconciler.Reconcile for the drop. It is one step, because the script reads the gate again. What
// changes in MySQL meanwhile is marked as to be released.
func claimReconcile(m *ClaimModel, s *ClaimState, _ int) bool {
	if !s.MySQL.Gap || !s.Redis.Open {
		return false
	}
	if s.Redis.Warm {
		for u := range m.Users {
			s.reassert(m, u)
		}
		s.add(eventSet, 0, s.Redis.Version)
	}
	s.MySQL.Gap = false
	return true
}

// claimReassert is a repair by verify, or the retry of a dead letter, which also sends what MySQL has already.
func claimReassert(m *ClaimModel, s *ClaimState, u int) bool {
	if !s.Redis.Open || !s.Redis.Warm || !pay(&s.Left.Reasserts) {
		return false
	}
	s.reassert(m, u)
	if held := s.Redis.Held[u]; held != 0 && held == s.MySQL.Rows[u].ID {
		s.add(eventTaken, u, held)
	}
	return true
}

// claimLose loses the first event that Kafka has and that is not lost.
func claimLose(_ *ClaimModel, s *ClaimState, _ int) bool {
	for i := range s.Kafka {
		if e := &s.Pending[i]; e.Kind <= eventLost {
			if e.Kind == eventProbe || !pay(&s.Left.LogLosses) {
				return false
			}
			e.Kind += eventLost
			return true
		}
	}
	return false
}

func claimRemember(_ *ClaimModel, s *ClaimState, _ int) bool {
	if s.Left.Crashes == 0 || s.Remembered {
		return false
	}
	s.Saved, s.Remembered = s.Redis, true
	return true
}

// claimCrash restarts Redis. Events that neither it nor Kafka has are lost.
func claimCrash(_ *ClaimModel, s *ClaimState, what int) bool {
	if what == 1 && !s.Remembered || !pay(&s.Left.Crashes) {
		return false
	}
	if what == 1 {
		s.Redis = s.Saved
		s.Lost = s.Redis.Known < s.Kafka
		left := max(s.Redis.Known, s.Kafka)
		clear(s.Pending[left:s.Len])
		s.Len = left
	}
	s.Redis.Open, s.Remembered = false, false
	return true
}

// jobReadClaim is Store.ClaimsToRelease for one claim.
func jobReadClaim(_ *ClaimModel, s *ClaimState, who int) bool {
	j, u := &s.Jobs[who%maxJobs], who/maxJobs
	row := s.MySQL.Rows[u]
	if j.PC != jobIdle || !row.ToRelease || !s.Redis.Open {
		return false
	}
	*j = job{PC: jobSend, User: uint8(u), ID: row.ID}
	return true
}

// jobReadSettings is Store.SettingsToSend.
func jobReadSettings(_ *ClaimModel, s *ClaimState, i int) bool {
	j := &s.Jobs[i]
	if j.PC != jobIdle || s.MySQL.Sent >= s.MySQL.Version || !s.Redis.Open {
		return false
	}
	*j = job{PC: jobSend, Version: s.MySQL.Version, Stock: s.MySQL.Stock}
	return true
}

// jobDoSend is counters/lua/claim.lua with a release or with settings.
func jobDoSend(m *ClaimModel, s *ClaimState, i int) bool {
	j, r := &s.Jobs[i], &s.Redis
	switch {
	case j.PC != jobSend:
		return false
	case !r.Open:
		*j = job{}
		return true
	case !r.Warm:
		j.PC = jobProbe
		if !m.Rules.ClearProbes {
			j.PC = jobClear
		}
		return true
	case j.Version == 0:
		s.release(m, int(j.User), j.ID)
	default:
		s.set(m, j.Version, j.Stock)
	}
	*j = job{}
	return true
}

func (s *ClaimState) release(m *ClaimModel, u int, id uint8) {
	r := &s.Redis
	switch {
	case r.Held[u] == id || r.Held[u] != 0 && !m.Rules.ReleaseNames:
		s.drop(u, id)
	case r.Marks>>id&1 == 0 && m.Rules.ReleaseAnyway:
		r.Marks |= 1 << id
		s.add(eventReturned, u, id)
	}
	if row := &s.MySQL.Rows[u]; row.ID == id && !m.Rules.ReleasedByEvent {
		row.ToRelease = false
	}
}

func (s *ClaimState) set(m *ClaimModel, version, stock uint8) {
	r := &s.Redis
	switch {
	case version > r.Version || version < r.Version && !m.Rules.SettingsByVersion:
		r.Stock, r.Version, r.Told = stock, version, version
		s.add(eventSet, 0, version)
	case version == r.Version && r.Told != version:
		r.Told = version
		s.add(eventSet, 0, version)
	}
	if !m.Rules.SettingsByEvent {
		s.MySQL.Sent = max(s.MySQL.Sent, version)
	}
}

// jobDoProbe is Releaser.clearCold up to the probe. A load that begins later reads what MySQL has now.
func jobDoProbe(m *ClaimModel, s *ClaimState, i int) bool {
	j := &s.Jobs[i]
	switch {
	case j.PC != jobProbe:
		return false
	case !s.Redis.Open || s.Redis.Warm || s.Redis.Lock && m.Rules.ClearAwaitsLoads:
		*j = job{}
		return true
	}
	s.add(eventProbe, 0, 0)
	j.PC, j.Probe, j.Opened = jobFlush, s.Len, s.Opened
	return true
}

// jobDoFlush waits for the probe. The opening of the next epoch has a higher position, and ends the wait, too.
func jobDoFlush(m *ClaimModel, s *ClaimState, i int) bool {
	j := &s.Jobs[i]
	switch {
	case j.PC != jobFlush || j.Probe > 0 && s.Opened == j.Opened || !s.Redis.Open:
		return false
	case s.Opened != j.Opened && m.Rules.ClearSameEpoch:
		*j = job{}
		return true
	}
	j.PC, j.Probe, j.Opened = jobClear, 0, 0
	return true
}

// jobDoClear is Store.ClearCold. The look at the gate and the COMMIT are one step: a load that begins in between reads
// what was committed before.
func jobDoClear(m *ClaimModel, s *ClaimState, i int) bool {
	j, db := &s.Jobs[i], &s.MySQL
	if j.PC != jobClear {
		return false
	}
	found := *j
	*j = job{}
	if s.Redis.Warm && m.Rules.ClearLooks || s.Redis.Lock && m.Rules.ClearSparesLoads {
		return true
	}
	if !m.Rules.ClearOnlyFound {
		db.Sent = db.Version
		for u := range db.Rows {
			db.Rows[u].ToRelease = false
		}
		return true
	}
	db.Sent = max(db.Sent, found.Version)
	if row := &db.Rows[found.User]; found.Version == 0 && row.ID == found.ID {
		row.ToRelease = false
	}
	return true
}
