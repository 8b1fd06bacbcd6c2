package workers

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// sampled is a pipeline with a clock of its own for samplers.
type sampled struct {
	*pipeline

	later *db.DB // the store with that clock
	now   time.Time
}

func newSampled(t *testing.T) *sampled {
	t.Helper()
	s := &sampled{pipeline: setup(t), now: time.Now().UTC().Truncate(models.SampleEvery).Add(time.Second)}
	var err error
	s.later, err = db.Open(t.Context(), s.dsn, db.Options{Now: func() time.Time { return s.now }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.later.Close()) })
	return s
}

// samples returns those of the last hour.
func (s *sampled) samples() []models.PipelineSample {
	s.t.Helper()
	list, err := likes.New(s.later).Samples(s.t.Context(), s.now.Add(-time.Hour), models.SampleEvery)
	require.NoError(s.t, err)
	return list
}

func (s *sampled) sample(by *Sampler) (added bool) {
	s.t.Helper()
	added, err := by.Sample(s.t.Context())
	require.NoError(s.t, err)
	return added
}

func TestSampler_twoProcessesStoreOneSample(t *testing.T) {
	t.Parallel()
	s := newSampled(t)
	s.start()
	target := s.post()
	one, two := NewSampler(s.later, s.redis), NewSampler(s.later, s.redis)
	require.True(t, s.sample(one))
	require.False(t, s.sample(two))
	s.now = s.now.Add(4 * time.Second)
	require.False(t, s.sample(one))
	list := s.samples()
	require.Len(t, list, 1)
	assert.Equal(t, s.now.Truncate(models.SampleEvery), list[0].Slot.UTC())
	assert.Nil(t, list[0].AcceptedPerSecond, "there is nothing to compare with")

	for user := range int64(20) {
		s.set(target, user+1, true)
	}
	s.flush()
	s.now = s.now.Add(6 * time.Second) // 10 s after the first reading
	require.True(t, s.sample(two))
	require.False(t, s.sample(one))
	list = s.samples()
	require.Len(t, list, 2)
	last := list[1]
	assert.InDelta(t, 2, *last.AcceptedPerSecond, 0.001)
	assert.InDelta(t, 2, *last.AppliedPerSecond, 0.001)
	assert.Zero(t, *last.OutboxEvents)
	assert.Zero(t, *last.LagEvents)
	assert.Zero(t, *last.LagSeconds)
	assert.Zero(t, *last.ClosedShards)
	assert.Zero(t, *last.OpenGaps)
	assert.Zero(t, last.DeadLetters)

	// At the same moment, too.
	s.now = s.now.Add(models.SampleEvery)
	var both sync.WaitGroup
	added := make([]bool, 2)
	for i, by := range []*Sampler{one, two} {
		both.Go(func() {
			var err error
			added[i], err = by.Sample(t.Context())
			assert.NoError(t, err)
		})
	}
	both.Wait()
	assert.NotEqual(t, added[0], added[1])
	require.Len(t, s.samples(), 3)
}

func TestSampler_continuesAfterAKill(t *testing.T) {
	t.Parallel()
	s := newSampled(t)
	s.start()
	target := s.post()
	require.True(t, s.sample(NewSampler(s.later, s.redis)))
	s.now = s.now.Add(time.Minute)
	next := NewSampler(s.later, s.redis) // what the one before had in memory is lost
	require.True(t, s.sample(next))
	s.set(target, 1, true)
	s.flush()
	s.now = s.now.Add(models.SampleEvery)
	require.True(t, s.sample(next))
	list := s.samples()
	require.Len(t, list, 3)
	assert.Nil(t, list[1].AcceptedPerSecond)
	assert.InDelta(t, 0.1, *list[2].AcceptedPerSecond, 0.001)
}

func TestSampler_measuresWhatWaits(t *testing.T) {
	t.Parallel()
	s := newSampled(t)
	stop := s.start()
	target := s.postIn(3)
	s.set(target, 1, true)
	s.flush()
	stop()
	s.set(target, 2, true)
	s.set(target, 3, true)
	by := NewSampler(s.later, s.redis)
	require.True(t, s.sample(by))
	s.now = s.now.Add(3 * models.SampleEvery)
	require.True(t, s.sample(by))
	list := s.samples()
	require.Len(t, list, 2)
	last := list[1]
	assert.EqualValues(t, 2, *last.OutboxEvents)
	assert.EqualValues(t, 2, *last.LagEvents)
	assert.GreaterOrEqual(t, *last.LagSeconds, 29.0)
	assert.Zero(t, *last.AppliedPerSecond)

	s.closeShard(3)
	s.addGap(4)
	s.now = s.now.Add(models.SampleEvery)
	require.True(t, s.sample(by))
	last = s.samples()[2]
	assert.Equal(t, 1, *last.ClosedShards)
	assert.Equal(t, 1, *last.OpenGaps)
}

func TestSampler_keepsADay(t *testing.T) {
	t.Parallel()
	s := newSampled(t)
	for i := range 2*sampledBatch + 10 {
		s.exec("INSERT INTO pipeline_samples (slot, dead_letters) VALUES (?, 7)",
			s.now.Truncate(models.SampleEvery).Add(-models.SamplesKept-time.Duration(i+1)*models.SampleEvery))
	}
	s.exec("INSERT INTO pipeline_samples (slot, dead_letters) VALUES (?, 8)",
		s.now.Truncate(models.SampleEvery).Add(-models.SamplesKept+2*models.SampleEvery))
	by := NewSampler(s.later, nil)
	require.True(t, s.sample(by))
	assert.Equal(t, sampledBatch+12, s.count("SELECT COUNT(*) FROM pipeline_samples"), "it deletes in batches")
	for range 2 {
		s.now = s.now.Add(models.SampleEvery)
		require.True(t, s.sample(by))
	}
	assert.Equal(t, 4, s.count("SELECT COUNT(*) FROM pipeline_samples"))
	assert.Equal(t, 1, s.count("SELECT COUNT(*) FROM pipeline_samples WHERE dead_letters=8"))
}

// sampledBatch is how many old samples a new one deletes.
const sampledBatch = 100

func TestSampler_showsWhatItKnows(t *testing.T) {
	t.Parallel()
	s := newSampled(t)
	away, err := counters.Open("redis://127.0.0.1:1/0", s.store.Shards())
	require.NoError(t, err)
	defer away.Close()
	dark := NewSampler(s.later, away)
	require.True(t, s.sample(dark))
	s.now = s.now.Add(models.SampleEvery)
	require.True(t, s.sample(dark))
	last := s.samples()[1]
	assert.Nil(t, last.AcceptedPerSecond)
	assert.Nil(t, last.OutboxEvents)
	assert.Nil(t, last.LagSeconds)
	assert.Nil(t, last.ClosedShards)
	assert.Zero(t, *last.AppliedPerSecond)
	assert.Zero(t, *last.OpenGaps)

	s.now = s.now.Add(models.SampleEvery)
	require.True(t, s.sample(NewSampler(s.later, nil)), "in direct mode")
	last = s.samples()[2]
	assert.Equal(t, models.PipelineSample{Slot: last.Slot}, last)
}

func TestDesk_tracesALike(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(5)
	desk := NewDesk(p.store, p.redis, p.likes)
	trace, err := desk.Trace(t.Context(), target)
	require.NoError(t, err)
	require.Equal(t, models.LikeTrace{Shard: 5}, trace, "nobody has liked it")

	p.set(target, 1, true)
	p.flush()
	first, err := desk.Trace(t.Context(), target)
	require.NoError(t, err)
	assert.True(t, first.Sent)
	assert.True(t, first.Applied)
	assert.WithinDuration(t, time.Now(), first.AcceptedAt, time.Minute)
	assert.WithinDuration(t, first.AcceptedAt, first.AppliedAt, time.Minute)

	stop()
	p.set(target, 2, true)
	second, err := desk.Trace(t.Context(), target)
	require.NoError(t, err)
	assert.True(t, second.Position.Follows(first.Position))
	assert.False(t, second.Sent)
	assert.False(t, second.Applied)
	assert.Zero(t, second.AppliedAt)
}
