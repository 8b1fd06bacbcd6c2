package protocol

import "fmt"

// The largest model of claims that fits in a ClaimState.
const (
	maxClaims  = 7  // ids
	maxPending = 14 // events that are accepted and not applied
	maxJobs    = 2
)

// ClaimRules are the rules of claims that those of likes do not have, or have in another form. The product has all of
// them.
type ClaimRules struct {
	StockAtGate       bool // a claim needs stock at the gate
	OneEach           bool // the gate answers a user's second claim with the first
	ReturnNames       bool // a return names its claim
	ReleaseNames      bool // a release names its claim
	ReleaseAnyway     bool // the event of a release is sent even if the gate does not hold the claim
	StockAtWriter     bool // the writer rejects a claim beyond the stock of MySQL
	RejectReleases    bool // a rejected claim is to be released
	TakenOnce         bool // a claim that is in its row already changes nothing
	ReturnMatches     bool // the writer compares the claim of a return with that of the row
	ReturnOnce        bool // a return of an ended claim does not change the count
	TakesPlace        bool // a claim of a user with a live row takes its place, and is not counted
	EndReleases       bool // a claim that MySQL ends is to be released
	EndChecks         bool // an expiry requires that the claim is still reserved
	ReleasedByEvent   bool // to_release is cleared by the event of the gate, not by the call
	SettingsByEvent   bool // sent_version is set by the event of the gate, not by the call
	SettingsByVersion bool // the gate ignores settings of an older version
	ClearProbes       bool // what is to be sent about a cold drop is cleared after an event has followed the eviction
	ClearLooks        bool // and if the drop is still cold under the lock of its row
	ClearSparesLoads  bool // and no load has begun
	ClearAwaitsLoads  bool // nor had one begun when the event was sent
	ClearOnlyFound    bool // only what was found before the event is cleared
	ClearSameEpoch    bool // and if the shard was not opened since the event was sent
	CleanCheck        bool // a drop is evicted only if its last change is at or before the watermark
	GapKeeps          bool // no drop of a shard with a gap is evicted
	LoadLock          bool // the end of a load requires its lock
	Barrier           bool // a shard is opened after the watermark has reached the epoch's first event
	ForgetTargets     bool // after Redis lost events that MySQL has, the drop is evicted
	ReconcileReleases bool // the reconciler sends releases again, too
}

// AllClaimRules returns the complete protocol.
func AllClaimRules() ClaimRules {
	return ClaimRules{
		StockAtGate: true, OneEach: true, ReturnNames: true, ReleaseNames: true, ReleaseAnyway: true,
		StockAtWriter: true, RejectReleases: true, TakenOnce: true, ReturnMatches: true, ReturnOnce: true,
		TakesPlace: true, EndReleases: true, EndChecks: true, ReleasedByEvent: true, SettingsByEvent: true,
		SettingsByVersion: true, ClearProbes: true, ClearLooks: true, ClearSparesLoads: true, ClearAwaitsLoads: true,
		ClearOnlyFound: true, ClearSameEpoch: true,
		CleanCheck: true, GapKeeps: true, LoadLock: true, Barrier: true, ForgetTargets: true, ReconcileReleases: true,
	}
}

// ClaimModel is the life of one drop of a shard. What the model of likes shows is taken for granted: the outbox, relay,
// Kafka and writer are one queue that delivers each event once and in order. A crash of Redis closes the shard, and
// loses any events that Kafka does not have yet, and the queue moves on before the shard is opened.
type ClaimModel struct {
	Rules    ClaimRules
	Users    int // 1 to 2
	Jobs     int // 0 to 2
	Stock    uint8
	Reserved bool // claims have to be confirmed
	Budget   ClaimBudget
}

// ClaimBudget bounds a search by how often each kind of step may occur on a path.
type ClaimBudget struct {
	Claims     uint8 // that the gate accepts
	Returns    uint8 // by users
	Voids      uint8
	Changes    uint8 // of the stock, by one
	Cools      uint8
	Loads      uint8
	LockLosses uint8 // of the warming lock
	Crashes    uint8 // of Redis, with an earlier state, or with nothing lost
	LogLosses  uint8 // of one event each
	Reasserts  uint8
}

// claimEvent is an event of the shard.
type claimEvent struct{ Kind, User, ID uint8 }

// The kinds of events. Lost marks an event that Kafka had and has lost.
const (
	eventTaken uint8 = 1 + iota
	eventReturned
	eventSet // ID is the version
	eventProbe
	eventLost
)

// shelf is what Redis has of the shard. Positions are numbers of events after the watermark, so that states are equal
// whatever came before.
type shelf struct {
	Open                 bool
	Known                int8 // of the last event that this Redis has; below 0: it lacks some that are applied
	Warm                 bool
	Count                uint8
	Held                 [maxUsers]uint8 // claim by user; 0 for none
	Stock, Version, Told uint8
	Last                 int8  // of the drop; 0: it is applied
	Marks                uint8 // by claim: it was returned or released
	Lock                 bool  // of the load
}

// claimOf is a row of claims.
type claimOf struct {
	ID, State uint8
	ToRelease bool
}

// The states of a claim, as in models.ClaimState.
const (
	reserved uint8 = 1 + iota
	confirmed
	returned
	expired
	rejected
	voidedState
)

func (c claimOf) live() bool { return c.State == reserved || c.State == confirmed }

// ledger is what MySQL has of the drop.
type ledger struct {
	Rows                 [maxUsers]claimOf
	Claimed              int8
	Stock, Version, Sent uint8
	Gap                  bool
}

// The next step of the job claims.
const (
	jobIdle uint8 = iota
	jobSend
	jobProbe
	jobFlush
	jobClear
)

// job is a process that runs the job claims, or that sends settings after a change. Version is 0 if it releases a
// claim.
type job struct {
	PC, User, ID   uint8
	Version, Stock uint8
	Probe          int8 // the position; 0: it is applied
	Opened         uint8
}

// stocking is a load. Opened is that of the shard when it began.
type stocking struct {
	PC             uint8 // as of loader
	Opened         uint8
	Held           [maxUsers]uint8
	Stock, Version uint8
}

// ClaimState is a state of a ClaimModel.
type ClaimState struct {
	Pending                 [maxPending]claimEvent
	Kafka, Len              int8            // of the last event that Kafka has, and of the last one accepted
	Base                    [maxUsers]uint8 // the claims that users hold after the applied events
	IDs                     uint8
	Opened                  uint8 // openings of the shard
	Redis, Saved            shelf
	Remembered              bool
	MySQL                   ledger
	Jobs                    [maxJobs]job
	Load                    stocking
	Lost                    bool // Redis has lost events that Kafka has
	Oversold, Unconfirmed   bool // for check: what a step did
	Revived, Needless, Full bool
	Left                    ClaimBudget
}

func (m *ClaimModel) start() ClaimState {
	s := ClaimState{Opened: 1, Left: m.Budget}
	s.Redis = shelf{Open: true, Warm: true, Stock: m.Stock, Version: 1, Told: 1}
	s.MySQL.Stock, s.MySQL.Version, s.MySQL.Sent = m.Stock, 1, 1
	return s
}

// add appends an event to the outbox.
func (s *ClaimState) add(kind uint8, user int, id uint8) {
	if s.Len == maxPending {
		s.Full = true
		return
	}
	s.Pending[s.Len] = claimEvent{kind, uint8(user), id}
	s.Len++
	s.Redis.Known = s.Len
	if kind != eventProbe {
		s.Redis.Last = s.Len
	}
}

// truth returns the claim that each user holds after all events.
func (s *ClaimState) truth() [maxUsers]uint8 {
	held := s.Base
	for _, e := range s.Pending[:s.Len] {
		e.fold(&held)
	}
	return held
}

// A lost event keeps the others of its claim in User and ID, so fold needs its kind: see claimLose.
func (e claimEvent) fold(held *[maxUsers]uint8) {
	switch {
	case e.Kind == eventTaken, e.Kind == eventLost+eventTaken:
		held[e.User] = e.ID
	case (e.Kind == eventReturned || e.Kind == eventLost+eventReturned) && held[e.User] == e.ID:
		held[e.User] = 0
	}
}

func (m *ClaimModel) tidy(s *ClaimState) {
	if s.Left.Crashes == 0 {
		s.Saved, s.Remembered = shelf{}, false
	}
	if s.Redis.Open && s.Left.Crashes == 0 {
		s.Redis.Known = 0 // nothing reads it
	}
}

func (m *ClaimModel) check(_, s *ClaimState) string {
	r, db := &s.Redis, &s.MySQL
	live := int8(0)
	for _, row := range db.Rows {
		if row.live() {
			live++
		}
	}
	held := uint8(0)
	for _, id := range r.Held {
		if id != 0 {
			held++
		}
	}
	switch {
	case s.Full:
		return "stuck: there are more events than the budget permits"
	case s.Oversold:
		return "the gate has accepted more claims than its stock"
	case s.Unconfirmed:
		return "a confirmed claim has expired, or is reserved again"
	case s.Revived:
		return "a claim that had ended is live again"
	case s.Needless:
		return "a claim is rejected though the stock was not lowered"
	case db.Claimed != live:
		return fmt.Sprintf("claimed is %d and there are %d live claims", db.Claimed, live)
	case db.Claimed < 0 || db.Claimed > int8(db.Stock):
		return fmt.Sprintf("claimed is %d and the stock is %d", db.Claimed, db.Stock)
	case r.Warm && r.Count != held:
		return fmt.Sprintf("the gate counts %d claims and holds %d", r.Count, held)
	}
	if !r.Open || !r.Warm {
		return ""
	}
	if r.Version < db.Version && db.Sent >= db.Version || r.Version > db.Version {
		return fmt.Sprintf("the gate has the settings %d, MySQL has %d, and nothing sends them", r.Version, db.Version)
	}
	for u, id := range s.truth() {
		row := db.Rows[u]
		ended := id != 0 && row.ID == id && !row.live()
		switch {
		case r.Held[u] != id && (!ended || r.Held[u] != 0):
			return fmt.Sprintf("the gate holds claim %d of %s, who has claim %d", r.Held[u], names[u], id)
		case ended && r.Held[u] == id && !row.ToRelease:
			return fmt.Sprintf("the gate holds claim %d of %s, which MySQL has ended, and nothing releases it",
				id, names[u])
		}
	}
	return ""
}

func (m *ClaimModel) checkRest(s *ClaimState) string {
	r, db := &s.Redis, &s.MySQL
	switch {
	case !r.Open:
		return "stuck: the shard is closed for ever"
	case s.Len != 0:
		return "stuck: an event is not applied"
	case db.Sent != db.Version:
		return "stuck: the gate may lack the settings"
	case r.Warm && (r.Version != db.Version || r.Stock != db.Stock):
		return fmt.Sprintf("at rest the gate has a stock of %d in version %d, and MySQL of %d in version %d",
			r.Stock, r.Version, db.Stock, db.Version)
	}
	for u, id := range s.truth() {
		row := db.Rows[u]
		switch {
		case row.ToRelease:
			return fmt.Sprintf("stuck: claim %d of %s is not released", row.ID, names[u])
		case id != 0 && row.ID != id:
			return fmt.Sprintf("at rest %s was acknowledged claim %d, and MySQL has claim %d", names[u], id, row.ID)
		case row.live() && row.ID != id:
			return fmt.Sprintf("at rest claim %d of %s is live, and the gate has accepted its return", row.ID, names[u])
		case r.Warm && row.live() != (r.Held[u] != 0):
			return fmt.Sprintf("at rest the gate holds claim %d of %s, whose row is in state %d",
				r.Held[u], names[u], row.State)
		}
	}
	return ""
}
