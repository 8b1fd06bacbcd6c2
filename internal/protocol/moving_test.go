package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var moving = MovingModel{Moves: 2, Openings: 1}

// A gap is closed once every target was compared that Redis has, wherever the slot of the shard moves meanwhile.
func TestModel_scanOfAMovingSlot(t *testing.T) {
	m := moving
	m.Rules = AllMovingRules()
	r := Search(&m, stateLimit)
	t.Logf("%d states, %d steps, %d deep, %v", r.States, r.Steps, r.Depth, r.Took.Round(1e6))
	require.Empty(t, r.Violation, strings.Join(r.Trace, "\n"))
	require.True(t, r.Complete)
}

func TestModel_everyRuleOfTheScanIsNeeded(t *testing.T) {
	for rule, off := range map[string]func(*MovingRules){
		"pages of a slot that moves":        func(r *MovingRules) { r.WholeSlot = false },
		"gaps closed after another opening": func(r *MovingRules) { r.SameEpoch = false },
	} {
		t.Run(rule, func(t *testing.T) {
			m := moving
			m.Rules = AllMovingRules()
			off(&m.Rules)
			r := Search(&m, stateLimit)
			t.Logf("%s\nafter %d steps; %d states\n%s", r.Violation, len(r.Trace), r.States,
				strings.Join(r.Trace, "\n"))
			require.NotEmpty(t, r.Violation)
		})
	}
}
