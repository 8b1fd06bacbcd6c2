package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stockScenario is a part of the life of a drop and its faults.
type stockScenario struct {
	name         string
	narrow, wide ClaimModel
}

var stockScenarios = []stockScenario{
	{
		name:   "claims, returns and expiries",
		narrow: ClaimModel{Users: 2, Jobs: 2, Stock: 1, Reserved: true, Budget: ClaimBudget{Claims: 3, Returns: 1}},
		wide: ClaimModel{Users: 2, Jobs: 2, Stock: 1, Reserved: true,
			Budget: ClaimBudget{Claims: 4, Returns: 2, Reasserts: 1}},
	},
	{
		name:   "the stock changes",
		narrow: ClaimModel{Users: 2, Jobs: 1, Stock: 2, Budget: ClaimBudget{Claims: 2, Returns: 1, Changes: 2}},
		wide:   ClaimModel{Users: 2, Jobs: 2, Stock: 2, Budget: ClaimBudget{Claims: 3, Returns: 1, Changes: 2}},
	},
	{
		name: "warming and cooling",
		narrow: ClaimModel{Users: 1, Jobs: 1, Stock: 1, Reserved: true,
			Budget: ClaimBudget{Claims: 2, Changes: 1, Cools: 2, Loads: 2, LockLosses: 1}},
		wide: ClaimModel{Users: 2, Jobs: 1, Stock: 1, Reserved: true,
			Budget: ClaimBudget{Claims: 3, Returns: 1, Changes: 1, Cools: 2, Loads: 2, LockLosses: 1}},
	},
	{
		name: "Redis crashes",
		narrow: ClaimModel{Users: 2, Jobs: 1, Stock: 1, Reserved: true,
			Budget: ClaimBudget{Claims: 2, Returns: 1, Loads: 1, Crashes: 1}},
		wide: ClaimModel{Users: 2, Jobs: 1, Stock: 1, Reserved: true,
			Budget: ClaimBudget{Claims: 3, Returns: 1, Loads: 1, Crashes: 2}},
	},
	{
		name: "Redis crashes, warming and cooling",
		narrow: ClaimModel{Users: 1, Jobs: 1, Stock: 1,
			Budget: ClaimBudget{Claims: 1, Voids: 1, Changes: 1, Cools: 2, Loads: 2, Crashes: 1}},
		wide: ClaimModel{Users: 2, Jobs: 1, Stock: 1,
			Budget: ClaimBudget{Claims: 2, Voids: 1, Changes: 1, Cools: 2, Loads: 2, Crashes: 1}},
	},
	{
		name: "Redis crashes twice, warming and cooling",
		wide: ClaimModel{Users: 1, Jobs: 1, Stock: 1,
			Budget: ClaimBudget{Claims: 1, Voids: 1, Changes: 1, Cools: 2, Loads: 2, Crashes: 2}},
	},
	{
		name: "the log loses events",
		narrow: ClaimModel{Users: 2, Jobs: 1, Stock: 1,
			Budget: ClaimBudget{Claims: 2, Returns: 1, Voids: 1, Cools: 1, Loads: 1, LogLosses: 1}},
		wide: ClaimModel{Users: 2, Jobs: 1, Stock: 1, Reserved: true,
			Budget: ClaimBudget{Claims: 3, Returns: 1, Cools: 1, Loads: 1, LogLosses: 2}},
	},
}

var (
	shop = ClaimModel{Users: 2, Jobs: 1, Stock: 1, Reserved: true,
		Budget: ClaimBudget{Claims: 3, Returns: 1}}
	reduced = ClaimModel{Users: 2, Jobs: 2, Stock: 2,
		Budget: ClaimBudget{Claims: 2, Changes: 2}}
	chilled = ClaimModel{Users: 2, Jobs: 1, Stock: 1,
		Budget: ClaimBudget{Claims: 2, Voids: 1, Cools: 1, Loads: 1}}
	slow = ClaimModel{Users: 1, Jobs: 1, Stock: 1, Reserved: true,
		Budget: ClaimBudget{Claims: 1, Cools: 1, Loads: 1, LockLosses: 1}}
	crashed = ClaimModel{Users: 2, Jobs: 1, Stock: 1, Reserved: true,
		Budget: ClaimBudget{Claims: 2, Loads: 1, Crashes: 1}}
	recalled = ClaimModel{Users: 1, Jobs: 1, Stock: 1,
		Budget: ClaimBudget{Claims: 1, Voids: 1, Changes: 1, Cools: 2, Loads: 1, Crashes: 1}}
	retold = ClaimModel{Users: 1, Jobs: 2, Stock: 1,
		Budget: ClaimBudget{Claims: 2, Voids: 1, Loads: 1, Crashes: 1}}
	twiceCrashed = ClaimModel{Users: 1, Jobs: 1, Stock: 1,
		Budget: ClaimBudget{Changes: 1, Cools: 2, Crashes: 2}}
	reloading = ClaimModel{Users: 1, Jobs: 1, Stock: 1,
		Budget: ClaimBudget{Claims: 1, Voids: 1, Changes: 1, Cools: 2, Loads: 2, LockLosses: 1, Crashes: 1}}
	punctured = ClaimModel{Users: 1, Jobs: 1, Stock: 1,
		Budget: ClaimBudget{Claims: 2, Returns: 1, Voids: 1, LogLosses: 1}}
	pressed = ClaimModel{Users: 1, Jobs: 1, Stock: 1, Reserved: true,
		Budget: ClaimBudget{Claims: 1, Reasserts: 1}}
	leaky = ClaimModel{Users: 2, Jobs: 1, Stock: 1,
		Budget: ClaimBudget{Claims: 2, Cools: 1, Loads: 1, LogLosses: 1}}
)

// stockMutant is the protocol of claims without one of its rules.
type stockMutant struct {
	rule  string
	off   func(*ClaimRules)
	in    ClaimModel
	spare bool
}

var stockMutants = []stockMutant{
	{rule: "claims beyond the stock", off: func(r *ClaimRules) { r.StockAtGate = false }, in: shop},
	{rule: "two claims by one user", off: func(r *ClaimRules) { r.OneEach = false }, in: reduced},
	{rule: "returns that name no claim", off: func(r *ClaimRules) { r.ReturnNames = false }, in: shop},
	{rule: "releases that name no claim", off: func(r *ClaimRules) { r.ReleaseNames = false }, in: shop},
	{rule: "no event of a release that has nothing to release", off: func(r *ClaimRules) { r.ReleaseAnyway = false },
		in: chilled},
	{rule: "no stock at the writer", off: func(r *ClaimRules) { r.StockAtWriter = false }, in: reduced},
	{rule: "rejected claims are not released", off: func(r *ClaimRules) { r.RejectReleases = false },
		in: reduced},
	{rule: "a claim that has its row is taken again", off: func(r *ClaimRules) { r.TakenOnce = false },
		in: pressed},
	{rule: "returns of any claim", off: func(r *ClaimRules) { r.ReturnMatches = false }, in: retold},
	{rule: "returns are counted twice", off: func(r *ClaimRules) { r.ReturnOnce = false }, in: shop},
	{rule: "a claim in the place of another is counted", off: func(r *ClaimRules) { r.TakesPlace = false },
		in: punctured},
	{rule: "ended claims are not released", off: func(r *ClaimRules) { r.EndReleases = false }, in: shop},
	{rule: "confirmed claims expire", off: func(r *ClaimRules) { r.EndChecks = false }, in: shop},
	{rule: "released by the call", off: func(r *ClaimRules) { r.ReleasedByEvent = false }, in: crashed},
	{rule: "settings sent by the call", off: func(r *ClaimRules) { r.SettingsByEvent = false }, in: recalled},
	{rule: "settings of any version", off: func(r *ClaimRules) { r.SettingsByVersion = false }, in: reduced},
	{rule: "cleared without a probe", off: func(r *ClaimRules) { r.ClearProbes = false }, in: recalled},
	{rule: "cleared without looking that the drop is cold", off: func(r *ClaimRules) { r.ClearLooks = false },
		in: reloading, spare: true},
	{rule: "cleared during a load", off: func(r *ClaimRules) { r.ClearSparesLoads = false },
		in: reloading, spare: true},
	{rule: "a probe during a load", off: func(r *ClaimRules) { r.ClearAwaitsLoads = false }, in: recalled},
	{rule: "cleared during a load, with a probe during it",
		off: func(r *ClaimRules) { r.ClearSparesLoads, r.ClearAwaitsLoads = false, false }, in: chilled},
	{rule: "cleared after another opening", off: func(r *ClaimRules) { r.ClearSameEpoch = false },
		in: twiceCrashed},
	{rule: "cleared what came later", off: func(r *ClaimRules) { r.ClearOnlyFound = false }, in: recalled},
	{rule: "cooled without the clean check", off: func(r *ClaimRules) { r.CleanCheck = false }, in: chilled},
	{rule: "cooled with a gap", off: func(r *ClaimRules) { r.GapKeeps = false }, in: leaky},
	{rule: "warmed without the lock", off: func(r *ClaimRules) { r.LoadLock = false }, in: slow},
	{rule: "warm from MySQL without the barrier", off: func(r *ClaimRules) { r.Barrier = false },
		in: crashed},
	{rule: "drops not forgotten after a loss", off: func(r *ClaimRules) { r.ForgetTargets = false },
		in: crashed},
	{rule: "lost releases are not sent again", off: func(r *ClaimRules) { r.ReconcileReleases = false },
		in: punctured},
}

// Without any of the rules, the search finds a violation.
func TestClaimModel_everyRuleIsNeeded(t *testing.T) {
	for _, mutant := range stockMutants {
		t.Run(mutant.rule, func(t *testing.T) {
			m := mutant.in
			m.Rules = AllClaimRules()
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
		})
	}
}

// The promise of claims holds in every state within the bounds.
func TestClaimModel(t *testing.T) {
	for _, s := range stockScenarios {
		if s.narrow.Users == 0 && !*large {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			m := s.narrow
			if *large {
				m = s.wide
			}
			m.Rules = AllClaimRules()
			states, partly := bound()
			r := Search(&m, states)
			t.Logf("%d states, %d steps, %d deep, %v; %+v", r.States, r.Steps, r.Depth, r.Took.Round(1e6), m.Budget)
			require.Empty(t, r.Violation, strings.Join(r.Trace, "\n"))
			require.True(t, r.Complete || partly, "there are more than %d states", states)
		})
	}
}
