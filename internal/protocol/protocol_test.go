package protocol

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	large   = flag.Bool("large", false, "search the wide bounds of `make model`")
	nearest = flag.Int("nearest", 0, "with -large, search so many states of a scenario, the nearest; 0 means all")
)

// scenario is a part of the protocol and its faults. Every test run searches the narrow model, and `make model` the
// wide one. A search of all faults at once would be too large, so a scenario combines faults that affect each other.
type scenario struct {
	name         string
	narrow, wide Model // narrow has no targets if the scenario is for the wide search only
	partly       bool  // wide has more than stateLimit states, and only the nearest are searched
}

var scenarios = []scenario{
	{
		name:   "relays hand over",
		narrow: Model{Targets: 1, Users: 1, Budget: Budget{Ops: 2, Expiries: 1, Delays: 1}},
		wide:   Model{Targets: 1, Users: 1, Budget: Budget{Ops: 3, Expiries: 1, Delays: 1, RelayKills: 1}},
	},
	{
		name:   "writers hand over",
		narrow: Model{Targets: 1, Users: 1, Budget: Budget{Ops: 3, Reasserts: 1, WriterPauses: 1}},
		wide:   Model{Targets: 1, Users: 1, Budget: Budget{Ops: 3, Reasserts: 1, Delays: 1, WriterPauses: 1}},
	},
	{
		name:   "two targets, two users",
		narrow: Model{Targets: 2, Users: 2, Budget: Budget{Ops: 2, WriterPauses: 1}},
		wide:   Model{Targets: 2, Users: 2, Budget: Budget{Ops: 3, Delays: 1, WriterPauses: 1}},
	},
	{
		name:   "runs of two likes",
		narrow: together,
		wide:   Model{Targets: 2, Users: 1, Budget: Budget{Ops: 1, Runs: 1, RedisCrashes: 1}},
	},
	{
		name: "Redis crashes twice",
		wide: Model{Targets: 1, Users: 1, Loaders: 1, Budget: Budget{Ops: 2, RedisCrashes: 2}},
	},
	{
		name:   "Redis crashes, a record comes late",
		narrow: Model{Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 1, Delays: 1}},
		wide:   Model{Targets: 1, Users: 1, Budget: Budget{Ops: 2, RedisCrashes: 1, Delays: 1}},
	},
	{
		name:   "Redis crashes, relays hand over",
		narrow: Model{Targets: 1, Users: 1, Budget: Budget{RedisCrashes: 1, Expiries: 1}},
		wide:   Model{Targets: 1, Users: 1, Loaders: 1, Budget: Budget{Ops: 2, RedisCrashes: 1, Expiries: 1}},
	},
	{
		name:   "Redis crashes, writers hand over",
		narrow: Model{Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 1, WriterPauses: 1}},
		wide:   Model{Targets: 1, Users: 1, Loaders: 1, Budget: Budget{Ops: 2, RedisCrashes: 1, WriterPauses: 1}},
	},
	{
		name: "Redis crashes, a record comes late, writers hand over",
		wide: Model{
			Targets: 1,
			Users:   1,
			Loaders: 1,
			Budget:  Budget{Ops: 1, RedisCrashes: 1, Delays: 1, WriterPauses: 1},
		},
	},
	{
		name:   "Redis crashes twice, relays hand over",
		wide:   Model{Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 2, Expiries: 1}},
		partly: true,
	},
	{
		name:   "Redis fails over, and the demoted server is behind",
		narrow: demoted,
		wide:   Model{Targets: 1, Users: 1, Loaders: 1, Budget: Budget{Ops: 2, Failovers: 1}},
	},
	{
		name:   "the outbox is deleted",
		narrow: forgetful,
		wide: Model{Targets: 1, Users: 1, Loaders: 1, Janitor: true,
			Budget: Budget{Ops: 3, OutboxLosses: 2, RedisCrashes: 1}},
	},
	{
		name:   "Redis is set back with its memory",
		narrow: setBackOnce,
		wide:   setBackOnce,
	},
	{
		name:   "warming and cooling",
		narrow: Model{Targets: 1, Users: 1, Loaders: 2, Janitor: true, Budget: Budget{Ops: 3, LockLosses: 1}},
		wide: Model{
			Targets: 1,
			Users:   2,
			Loaders: 2,
			Janitor: true,
			Budget:  Budget{Ops: 4, LockLosses: 2, WriterPauses: 1},
		},
	},
	{
		name:   "warming while Redis crashes",
		narrow: Model{Targets: 1, Users: 1, Loaders: 1, Janitor: true, Budget: Budget{Ops: 1, RedisCrashes: 1}},
		wide: Model{
			Targets: 1,
			Users:   1,
			Loaders: 2,
			Janitor: true,
			Budget:  Budget{Ops: 2, RedisCrashes: 1, LockLosses: 1},
		},
	},
	{
		name:   "a new target while Redis crashes",
		narrow: Model{Targets: 1, Users: 1, Loaders: 1, NewTarget: true, Budget: Budget{Ops: 1, RedisCrashes: 1}},
		wide: Model{
			Targets:   1,
			Users:     1,
			Loaders:   2,
			NewTarget: true,
			Janitor:   true,
			Budget:    Budget{Ops: 2, RedisCrashes: 1},
		},
	},
	{
		name:   "deletions, restorations and voids",
		narrow: voided,
		wide: Model{Targets: 1, Users: 1, Loaders: 1, Janitor: true,
			Budget: Budget{Ops: 3, Deletions: 2, Restorations: 2, Voids: 2, LockLosses: 1}},
	},
	{
		name:   "voids while Redis crashes",
		narrow: voidedCrash,
		wide: Model{Targets: 1, Users: 1, Loaders: 1,
			Budget: Budget{Ops: 2, Deletions: 1, Restorations: 1, Voids: 1, RedisCrashes: 1}},
	},
	{
		name:   "Kafka loses a record while Redis crashes",
		narrow: Model{Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 1, LogLosses: 1}},
		wide: Model{
			Targets: 1,
			Users:   1,
			Loaders: 1,
			Janitor: true,
			Budget:  Budget{Ops: 2, RedisCrashes: 1, LogLosses: 1},
		},
	},
}

// stateLimit bounds the memory of a search to about two gigabytes.
const stateLimit = 8_000_000

// bound returns how many states of a scenario are searched, and whether that may be less than all.
func bound() (states int, partly bool) {
	if *nearest > 0 {
		return *nearest, true
	}
	return stateLimit, false
}

// The promise holds in every state within the bounds. From every state, the shard comes to rest: it is open, and MySQL
// has every acknowledged like.
func TestModel(t *testing.T) {
	for _, s := range scenarios {
		if s.narrow.Targets == 0 && !*large {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			m := s.narrow
			if *large {
				m = s.wide
			}
			m.Rules = AllRules()
			states, partly := bound()
			r := Search(&m, states)
			t.Logf("%d states, %d steps, %d deep, %v; %+v", r.States, r.Steps, r.Depth, r.Took.Round(1e6), m.Budget)
			require.Empty(t, r.Violation, strings.Join(r.Trace, "\n"))
			require.True(t, r.Complete || s.partly || partly, "there are more than %d states", states)
		})
	}
}

// mutant is the protocol without some of its rules.
type mutant struct {
	rule string
	off  func(*Rules)
	in   Model
	// wide mutants need the bounds of the wide search.
	wide bool
	// spare marks a rule without which the model has no violation. docs/model.md explains why the protocol has it.
	spare bool
	// unseen marks a rule without which users see nothing as long as Kafka loses nothing.
	unseen bool
	// far marks a rule without which users see something, but only after more than stateLimit states.
	far bool
}

var (
	handover = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 2, Expiries: 1, Delays: 1}}
	killed   = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 2, Reasserts: 1, WriterKills: 1}}
	paused   = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 3, WriterPauses: 1}}
	lost     = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 1, RelayKills: 1}}
	emptied  = Model{Targets: 1, Users: 1, Budget: Budget{RedisCrashes: 1}}
	twice    = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 2}}
	warming  = Model{Targets: 1, Users: 1, Loaders: 2, Janitor: true, Budget: Budget{Ops: 2, LockLosses: 1}}
	created  = Model{Targets: 1, Users: 1, Loaders: 1, NewTarget: true, Budget: Budget{Ops: 1, RedisCrashes: 1}}
	again    = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 2, Expiries: 1}}
	holed    = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 1, LogLosses: 1}}
	reloaded = Model{Targets: 1, Users: 1, Loaders: 1, Janitor: true, Budget: Budget{Ops: 1, RedisCrashes: 1}}
	voided   = Model{Targets: 1, Users: 1, Loaders: 1, Janitor: true,
		Budget: Budget{Ops: 2, Deletions: 2, Restorations: 1, Voids: 1}}
	voidedCrash = Model{Targets: 1, Users: 1, Loaders: 1,
		Budget: Budget{Ops: 1, Deletions: 1, Voids: 1, RedisCrashes: 1}}
	together  = Model{Targets: 2, Users: 1, Budget: Budget{Ops: 1, Runs: 2, WriterPauses: 1}}
	demoted   = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 2, Failovers: 1}}
	forgetful = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 2, OutboxLosses: 1}}
	// No more than one change follows the one that is lost, so that the shard is not past the watermark again.
	setBackOnce = Model{Targets: 1, Users: 1, Budget: Budget{Ops: 2, SetBacks: 1}}
	reopened    = Model{Targets: 1, Users: 1, Loaders: 1, Budget: Budget{Ops: 2, RedisCrashes: 1, Expiries: 1}}
)

var mutants = []mutant{
	{rule: "no epoch", off: func(r *Rules) { r.Epoch = false }, in: lost},
	{rule: "no sequence check", off: func(r *Rules) { r.SequenceCheck = false }, in: handover},
	{rule: "offset before commit", off: func(r *Rules) { r.OffsetAfterCommit = false }, in: killed},
	{rule: "trim before ack", off: func(r *Rules) { r.TrimAfterAck = false }, in: lost},
	{rule: "unlike without row check", off: func(r *Rules) { r.RowCheck = false }, in: killed},
	{rule: "count by events", off: func(r *Rules) { r.CountByRows = false }, in: killed},
	{rule: "no fold order", off: func(r *Rules) { r.FoldOrder = false }, in: handover},
	{rule: "watermark in a separate transaction", off: func(r *Rules) { r.WatermarkWithRows = false }, in: paused},
	{rule: "shard rows not locked", off: func(r *Rules) { r.ShardsLocked = false }, in: paused},
	{rule: "no check of the server", off: func(r *Rules) { r.ServerCheck = false }, in: lost},
	{rule: "a demoted server is asked", off: func(r *Rules) { r.RoleCheck = false }, in: demoted},
	{rule: "the outbox alone has the last position", off: func(r *Rules) { r.LastKept = false }, in: forgetful},
	{rule: "overtaken by an epoch alone", off: func(r *Rules) { r.OvertakenByPlace = false }, in: setBackOnce},
	{rule: "warm from MySQL without the barrier", off: func(r *Rules) { r.Barrier = false }, in: lost},
	{rule: "targets not forgotten after a loss", off: func(r *Rules) { r.ForgetTargets = false }, in: lost},
	{
		rule: "targets forgotten without the lock",
		off:  func(r *Rules) { r.ForgetUnderLock = false },
		in:   reopened,
		wide: true,
	},
	{rule: "restored not kept", off: func(r *Rules) { r.RestoredKept = false }, in: lost},
	{
		rule: "opened under an epoch that is not the last",
		off:  func(r *Rules) { r.HighestEpoch = false },
		in:   again,
		wide: true,
		far:  true,
	},
	{rule: "opened without its opening", off: func(r *Rules) { r.OpenedChecks = false }, in: twice},
	{rule: "cooled without the clean check", off: func(r *Rules) { r.CleanCheck = false }, in: warming},
	{rule: "warmed without the lock", off: func(r *Rules) { r.WarmLock = false }, in: warming},
	{rule: "sealed by an epoch without likes", off: func(r *Rules) { r.SealedKept = false }, in: lost, unseen: true},
	{
		rule:   "openings do not name the position before",
		off:    func(r *Rules) { r.OpeningNames = false },
		in:     holed,
		unseen: true,
	},
	{rule: "warmed without the epoch", off: func(r *Rules) { r.WarmEpoch = false }, in: created, spare: true},
	{
		rule: "warmed without epoch and lock",
		off:  func(r *Rules) { r.WarmEpoch, r.WarmLock = false, false },
		in:   reloaded,
	},
	{rule: "trim without the lock", off: func(r *Rules) { r.TrimLocked = false }, in: handover, spare: true},
	{
		rule:  "opened without the lock",
		off:   func(r *Rules) { r.OpenedLocked = false },
		in:    reopened,
		wide:  true,
		spare: true,
	},
	{
		rule:  "closed without taking the lock of a load",
		off:   func(r *Rules) { r.CloseTakesLock = false },
		in:    voided,
		spare: true,
	},
	{
		rule: "voided without evicting the target",
		off:  func(r *Rules) { r.VoidForgets, r.VoidLooks = false, false },
		in:   voided,
	},
	{rule: "half of a run applied", off: func(r *Rules) { r.RunWhole = false }, in: together},
	{rule: "voided without a probe", off: func(r *Rules) { r.VoidProbes = false }, in: voidedCrash},
	{rule: "voided without looking that the target is cold", off: func(r *Rules) { r.VoidLooks = false }, in: voided},
	{rule: "voided without taking the lock of a load", off: func(r *Rules) { r.VoidTakesLock = false }, in: voided},
	{rule: "voided without the lock of the row", off: func(r *Rules) { r.VoidLocksRow = false }, in: voided},
	{rule: "sealed without the lock", off: func(r *Rules) { r.SealLocked = false }, in: emptied, wide: true},
}

// Without any of the rules, the search finds a violation. The wide search also finds one that users can see.
func TestModel_everyRuleIsNeeded(t *testing.T) {
	for _, mutant := range mutants {
		if mutant.wide && (!*large || *nearest > 0) {
			continue
		}
		t.Run(mutant.rule, func(t *testing.T) {
			m := mutant.in
			m.Rules = AllRules()
			mutant.off(&m.Rules)
			r := Search(&m, stateLimit)
			t.Logf("%s\nafter %d steps; %d states, %v\n%s", r.Violation, len(r.Trace), r.States, r.Took.Round(1e6),
				strings.Join(r.Trace, "\n"))
			if mutant.spare {
				require.Empty(t, r.Violation)
				require.True(t, r.Complete)
				return
			}
			require.NotEmpty(t, r.Violation, "nothing found in %d states", r.States)
			if *large && *nearest == 0 && !mutant.unseen && !mutant.far {
				m.PromiseOnly = true
				r = Search(&m, stateLimit)
				t.Logf("seen by users: %s\nafter %d steps; %d states", r.Violation, len(r.Trace), r.States)
				require.NotEmpty(t, r.Violation, "nothing seen in %d states", r.States)
			}
		})
	}
}

// A former master that was neither restarted nor demoted still has its replication id, so its shards stay open. The
// model shows the violation that follows.
func TestModel_replicationIDDoesNotRevealAFailback(t *testing.T) {
	r := Search(&Model{Rules: AllRules(), Targets: 1, Users: 1, Budget: Budget{Ops: 1, RedisCrashes: 1, Failbacks: 1}},
		stateLimit)
	t.Logf("%s\nafter %d steps\n%s", r.Violation, len(r.Trace), strings.Join(r.Trace, "\n"))
	require.NotEmpty(t, r.Violation)
}
