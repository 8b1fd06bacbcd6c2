package admission

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// A large answer waits for a place, a small one does not, and nothing is counted for an answer that gave up.
func TestAnswers_largeOnesWaitForEachOther(t *testing.T) {
	t.Parallel()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "x", Help: "Of the test."})
	all := Answers{limit: 10, held: maxHeld, large: make(chan struct{}, 1), inFlight: gauge, bytes: gauge,
		of: map[string]*holder{}}
	begin := func(address string) (*Answer, func()) {
		t.Helper()
		a, err := all.Begin(address)
		require.NoError(t, err)
		done, err := a.Await(t.Context())
		require.NoError(t, err)
		return a, done
	}
	first, firstDone := begin("a")
	require.NoError(t, first.Spend(t.Context(), 2*littleHeld))
	if err := first.Spend(t.Context(), littleHeld); err != nil {
		t.Errorf("a large answer waits for itself: %v", err)
	}
	second, secondDone := begin("b")
	if err := second.Spend(t.Context(), littleHeld); err != nil {
		t.Errorf("a small answer waits: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.Spend(ended, 1); models.ErrorCode(err) != models.CodeUnavailable {
		t.Errorf("the second large answer gets %v", err)
	}
	if second.own != littleHeld {
		t.Errorf("%d bytes are counted", second.own)
	}
	firstDone()
	assert.NoError(t, second.Spend(t.Context(), 1))
	secondDone()
	if len(all.large) != 0 {
		t.Error("a place is still taken")
	}
}
