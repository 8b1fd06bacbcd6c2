package workers

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/models"
)

func TestMetrics_countRejectedClaims(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for range 2 {
		m.applied(nil, models.LikesApplied{Claimed: 5, Rejected: 3}, time.Now(), time.Now())
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	counted := map[string]float64{}
	for _, family := range families {
		counted[family.GetName()] = family.GetMetric()[0].GetCounter().GetValue()
	}
	assert.InDelta(t, 6, counted["likewise_claims_rejected_total"], 0)
}

// A probe or an opening has no time. If it is stuck at the head of an outbox, so are the likes behind it.
func TestMetrics_oldestAgeCountsRunsWithoutATime(t *testing.T) {
	t.Parallel()
	m := NewMetrics(prometheus.NewRegistry())
	now := time.Now()
	empty, probe := counters.ShardInfo{Shard: 3}, counters.ShardInfo{Shard: 3, Runs: 5, Depth: 4}
	like := counters.ShardInfo{Shard: 3, Runs: 1, Depth: 1, Oldest: now.Add(-time.Hour)}
	assert.Zero(t, m.oldestAge(empty, now))
	assert.Zero(t, m.oldestAge(probe, now))
	assert.Equal(t, time.Minute, m.oldestAge(probe, now.Add(time.Minute)))
	assert.Equal(t, time.Hour, m.oldestAge(like, now))
	assert.Zero(t, m.oldestAge(probe, now.Add(time.Hour)), "another one")
	assert.Zero(t, m.oldestAge(empty, now.Add(2*time.Hour)))
}
