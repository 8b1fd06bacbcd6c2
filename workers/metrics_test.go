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
	m := NewMetrics()
	m.ExportPipeline(registry)
	for range 2 {
		m.observeBatch(nil, models.LikesApplied{Claimed: 5, Rejected: 3}, time.Now(), time.Now())
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
	m := NewMetrics()
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

// An event that has just come is young, however long the shard was idle before. One that waits ages, even if others are
// applied meanwhile.
func TestMetrics_lagIsTheAgeOfTheOldestRunThatWaits(t *testing.T) {
	t.Parallel()
	var a arrivals
	pos := func(seq int64) models.Position { return models.Position{Epoch: 1, Seq: seq} }
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	assert.Zero(t, a.age(pos(7), pos(7), at(0)))
	assert.Zero(t, a.age(pos(8), pos(7), at(1000)), "it has just come")
	assert.Equal(t, 5*time.Second, a.age(pos(9), pos(7), at(1005)))
	assert.Equal(t, 10*time.Second, a.age(pos(20), pos(7), at(1010)))
	assert.Equal(t, 10*time.Second, a.age(pos(30), pos(8), at(1015)), "9 came by 1005")
	assert.Equal(t, 10*time.Second, a.age(pos(30), pos(10), at(1020)), "the next came by 1010")
	assert.Zero(t, a.age(pos(30), pos(30), at(1025)))
	assert.Zero(t, a.age(models.Position{Epoch: 2}, pos(30), at(2000)), "another epoch has just begun")

	for n := range 10 * arrivalsKept {
		a.age(models.Position{Epoch: 2, Seq: int64(n)}, pos(30), at(2000+n))
		require.LessOrEqual(t, len(a.notes), arrivalsKept)
	}
	assert.Equal(t, time.Duration(10*arrivalsKept)*time.Second,
		a.age(models.Position{Epoch: 2, Seq: 10 * arrivalsKept}, pos(30), at(2000+10*arrivalsKept)))
}
