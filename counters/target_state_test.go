package counters

import (
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

// A position that is damaged may have been any, so its target may be one that a gap is about.
func TestChangedAfter_returnsTargetsWithADamagedPosition(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	targets := []models.Target{post(1), post(17), comment(1)}
	warmUp(t, r, post(17))
	for _, last := range []string{"1-1", "x", "", "1", "-1-0"} {
		require.NoError(t, plain.HSet(t.Context(), r.keys(post(1)).likes, "last", last).Err())
		changed, err := r.ChangedAfter(t.Context(), targets, pos(1, 1))
		require.NoError(t, err)
		if last == "1-1" {
			require.Empty(t, changed, "neither later, nor warm")
		} else {
			require.Equal(t, targets[:1], changed, "%q", last)
		}
	}
}

func TestTargetStates(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	warmUp(t, r, post(17))
	like(t, r, post(1), 7)
	like(t, r, post(1), 8)
	closeTarget(t, r, post(1))
	many := make([]int64, 1000)
	for i := range many {
		many[i] = int64(i + 1)
	}
	warmUp(t, r, post(33), many...)
	set := setKey(r.keys(post(33)).likes, "load", setOf(500, setsFor(1000)))
	require.NoError(t, plain.SRem(t.Context(), set, 500).Err())
	trips := countTrips(t, r)
	states, err := r.TargetStates(t.Context(), []models.Target{post(999), post(1), post(17), post(33)})
	require.NoError(t, err)
	require.EqualValues(t, 2, trips.Load())
	require.Equal(t, []TargetState{
		{},
		{Warm: true, Closed: true, Count: 2, Users: 2, Sets: 1, Load: "load", Last: pos(1, 2)},
		{Warm: true, Sets: 1, Load: "load"},
		{Warm: true, Count: 1000, Users: 999, Sets: setsFor(1000), Load: "load"},
	}, states)

	require.NoError(t, plain.HSet(t.Context(), r.keys(post(1)).likes, "last", "never").Err())
	states, err = r.TargetStates(t.Context(), []models.Target{post(1), post(17)})
	require.NoError(t, err, "a damaged target does not hide the others")
	require.NotEqual(t, states[0].Count, states[0].Users)
	require.True(t, states[0].Warm)
	require.Equal(t, TargetState{Warm: true, Sets: 1, Load: "load"}, states[1])
}
