package admission

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/db"
)

func TestExpensiveShare_leavesConnectionsToOthers(t *testing.T) {
	t.Parallel()
	share, _ := NewShares(8)
	var requests []*Place
	for range 3 {
		requests = append(requests, NewPlace(share))
	}
	for range 2 { // a request has one place for all its queries
		require.NoError(t, requests[0].Enter(t.Context()))
		require.NoError(t, requests[1].Enter(t.Context()))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := requests[2].Enter(ended)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "a third request of eight connections' share")

	entered := make(chan error)
	for range 2 { // queries at the same time
		go func() { entered <- requests[2].Enter(t.Context()) }()
	}
	select {
	case err := <-entered:
		t.Errorf("the third request did not wait: %v", err)
	default:
	}
	requests[0].Leave()
	for range 2 {
		require.NoError(t, <-entered)
	}
	requests[1].Leave()
	requests[2].Leave()
	assert.Empty(t, share, "places after the requests ended")

	fourth := NewPlace(share)
	fourth.Leave()
	require.NoError(t, fourth.Enter(t.Context()), "a query that outlives its request")
	assert.Empty(t, share, "a request that has ended took a place")
}

// An expensive request takes its place before it waits to build a large answer. Otherwise requests that have one of the
// two and wait for the other would wait for each other.
func TestExpensiveShare_isEnteredBeforeALargeAnswer(t *testing.T) {
	t.Parallel()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "x", Help: "Of the test."})
	all := Answers{limit: 10, held: maxHeld, large: make(chan struct{}, 1), inFlight: gauge, bytes: gauge,
		of: map[string]*holder{}}
	share := make(Share, 1)
	other := NewPlace(share)
	require.NoError(t, other.Enter(t.Context()))
	a, err := all.Begin("a")
	require.NoError(t, err)
	p := NewPlace(share)
	ctx, cancel := context.WithCancel(db.WithEntrance(t.Context(), p.Enter))
	held := make(chan error)
	go func() { held <- a.Spend(ctx, 2*littleHeld) }()
	cancel()
	require.Equal(t, models.CodeUnavailable, models.ErrorCode(<-held))
	assert.Empty(t, all.large, "a request without a place in the share builds a large answer")
	other.Leave()
	require.NoError(t, a.Spend(db.WithEntrance(t.Context(), p.Enter), 2*littleHeld))
	assert.Len(t, share, 1)
}
