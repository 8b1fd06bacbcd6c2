package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deadlines returns the model of two calls while Redis's time of day is set once. The wide one has a call more, or a
// second step.
func deadlines() ClockModel { return ClockModel{Calls: 2, Ticks: 4, Steps: 1, Reach: 3} }

// A call that was held has no effect after a later call was acknowledged, whatever happens to Redis's time of day.
func TestModel_deadlines(t *testing.T) {
	list := map[string]ClockModel{"the clock is set": deadlines()}
	if *large {
		list = map[string]ClockModel{
			"the clock is set":       {Calls: 2, Ticks: 6, Steps: 1, Reach: 4},
			"the clock is set twice": {Calls: 2, Ticks: 5, Steps: 2, Reach: 2},
			"three calls":            {Calls: 3, Ticks: 5, Steps: 1, Reach: 2},
		}
	}
	for name, m := range list {
		t.Run(name, func(t *testing.T) {
			m.Rules = AllClockRules()
			states, partly := bound()
			r := Search(&m, states)
			t.Logf("%d states, %d steps, %d deep, %v", r.States, r.Steps, r.Depth, r.Took.Round(1e6))
			require.Empty(t, r.Violation, strings.Join(r.Trace, "\n"))
			require.True(t, r.Complete || partly, "there are more than %d states", states)
		})
	}
}

func TestModel_everyRuleOfDeadlinesIsNeeded(t *testing.T) {
	for _, mutant := range []struct {
		rule string
		off  func(*ClockRules)
		// spare marks a rule that is needed only if lapse.lua does not arrive.
		spare bool
	}{
		{"no deadline", func(r *ClockRules) { r.Deadline = false }, false},
		{"a clock that was set back goes on", func(r *ClockRules) { r.Turns = false }, false},
		{"the shard does not remember its clock", func(r *ClockRules) { r.Seen = false }, false},
		{"calls that are given up stay as they are", func(r *ClockRules) { r.Lapse = false }, false},
		{"giving up leaves no trace on a right clock", func(r *ClockRules) { r.LapseSeen = false }, false},
		{"processes do not tell what time it must be", func(r *ClockRules) { r.Earliest = false }, true},
		{"readings of any age", func(r *ClockRules) { r.Fresh = false }, true},
	} {
		t.Run(mutant.rule, func(t *testing.T) {
			m := deadlines()
			m.Rules = AllClockRules()
			mutant.off(&m.Rules)
			r := Search(&m, stateLimit)
			t.Logf("%s\nafter %d steps; %d states, %v\n%s", r.Violation, len(r.Trace), r.States, r.Took.Round(1e6),
				strings.Join(r.Trace, "\n"))
			require.Equal(t, mutant.spare, r.Violation == "")
		})
	}
}

// A call is held, lapse.lua does not arrive either, and the clock is set back before a process that has never read
// it calls: three faults at once, which the rules do not cover.
func TestModel_lostLapseIsNotNoticed(t *testing.T) {
	m := deadlines()
	m.Rules, m.Lost = AllClockRules(), 1
	r := Search(&m, stateLimit)
	t.Logf("%s\nafter %d steps\n%s", r.Violation, len(r.Trace), strings.Join(r.Trace, "\n"))
	require.NotEmpty(t, r.Violation)
}
