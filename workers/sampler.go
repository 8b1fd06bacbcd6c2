package workers

import (
	"context"
	"time"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Sampler samples the state of the pipeline. Several processes may do so: the first one in each models.SampleEvery
// stores its sample. It is not safe for concurrent use.
//
// Rates and ages are measured within the process. Its first sample has no rates, and the age of what waits begins at
// what the outbox shows.
type Sampler struct {
	store   *db.DB
	redis   *counters.Redis // nil in direct mode
	before  reading         // the first one of its slot
	waiting []arrivals      // of each shard
}

// reading is what Redis and MySQL knew of the shards at a time.
type reading struct {
	at       time.Time
	accepted map[int]models.Position // of the shards that could be read
	applied  map[int]models.Position
}

// NewSampler returns a Sampler. In direct mode, r is nil.
func NewSampler(store *db.DB, r *counters.Redis) *Sampler {
	return &Sampler{store: store, redis: r}
}

// sampleWait bounds the wait for Redis.
const sampleWait = 2 * time.Second

// Sample reads the pipeline, and stores a sample if there is none of this time. It reports whether it did. If Redis
// does not answer, the sample lacks what only Redis knows.
func (s *Sampler) Sample(ctx context.Context) (added bool, err error) {
	now := reading{s.store.Now(), map[int]models.Position{}, map[int]models.Position{}}
	sample := models.PipelineSample{Slot: now.slot()}
	if s.redis != nil {
		if err := s.read(ctx, now, &sample); err != nil {
			return false, err
		}
	}
	if now.slot().Equal(s.before.slot()) {
		return false, nil
	}
	if sample.DeadLetters, err = likes.New(s.store).DeadLetters(ctx); err != nil {
		return false, err
	}
	added, err = likes.New(s.store).AddSample(ctx, sample)
	if err == nil {
		s.before = now
	}
	return added, err
}

func (r reading) slot() time.Time { return r.at.UTC().Truncate(models.SampleEvery) }

// read fills a reading, and sets what is known of the shards.
func (s *Sampler) read(ctx context.Context, now reading, sample *models.PipelineSample) error {
	// Redis first: what it accepts later is not counted, and the watermark may pass it.
	waiting, cancel := context.WithTimeout(ctx, sampleWait)
	infos, redisErr := s.redis.ShardInfos(waiting)
	cancel()
	states, err := likes.New(s.store).ShardStates(ctx)
	if err != nil {
		return err
	}
	gaps := 0
	for _, state := range states {
		now.applied[state.Shard] = state.Applied
		gaps += state.OpenGaps
	}
	sample.OpenGaps = &gaps
	if redisErr != nil {
		s.store.Logger().WarnContext(ctx, "the pipeline is sampled without redis", "error", redisErr)
	} else {
		s.addShards(infos, now, sample)
	}
	seconds := now.at.Sub(s.before.at).Seconds()
	sample.AcceptedPerSecond = rate(s.before.accepted, now.accepted, seconds)
	sample.AppliedPerSecond = rate(s.before.applied, now.applied, seconds)
	return nil
}

// addShards sets what Redis knows of the shards.
func (s *Sampler) addShards(infos []counters.ShardInfo, now reading, sample *models.PipelineSample) {
	if s.waiting == nil {
		s.waiting = make([]arrivals, len(infos))
	}
	var outbox, lag int64
	var oldest time.Duration
	closed := 0
	for _, info := range infos {
		if info.Err != nil {
			continue
		}
		applied := now.applied[info.Shard]
		now.accepted[info.Shard] = info.Last
		outbox += info.Depth
		lag += info.Last.Beyond(applied)
		if !info.Open {
			closed++
		}
		age := s.waiting[info.Shard].age(info.Last, applied, now.at)
		if info.Last.After(applied) && !info.Oldest.IsZero() {
			age = max(age, now.at.Sub(info.Oldest))
		}
		oldest = max(oldest, age)
	}
	seconds := oldest.Seconds()
	sample.OutboxEvents, sample.LagEvents, sample.LagSeconds, sample.ClosedShards = &outbox, &lag, &seconds, &closed
}

// rate returns how many events a second came between two readings, in the shards that both have; nil if none does.
func rate(before, now map[int]models.Position, seconds float64) *float64 {
	events, known := int64(0), false
	for shard, position := range now {
		if was, ok := before[shard]; ok {
			events, known = events+position.Beyond(was), true
		}
	}
	if !known || seconds <= 0 {
		return nil
	}
	perSecond := float64(events) / seconds
	return &perSecond
}
