package workers

import (
	"context"
	"time"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Janitor evicts idle targets from Redis. It keeps targets with changes that are not in MySQL, and all targets of
// shards with an open gap or an unresolved dead letter, because only Redis has what MySQL lacks.
type Janitor struct {
	redis   *counters.Redis
	store   *db.DB
	metrics *Metrics
	idle    time.Duration
}

// MinCoolAfter is the shortest idle time after which a target is evicted, so that targets in use are not loaded again
// and again.
const MinCoolAfter = 5 * time.Minute

// DefaultCoolAfter is the default of the flag --cool-after.
const DefaultCoolAfter = time.Hour

// NewJanitor returns a Janitor of targets that were not liked for idle, which is raised to MinCoolAfter.
func NewJanitor(r *counters.Redis, store *db.DB, m *Metrics, idle time.Duration) *Janitor {
	return &Janitor{redis: r, store: store, metrics: m, idle: max(idle, MinCoolAfter)}
}

// Cool visits all warm targets once and returns the numbers of evicted and of remaining ones.
func (j *Janitor) Cool(ctx context.Context) (cooled, warm int, err error) {
	// They come first: they, the gaps and the letters hold for the events up to the watermark, and not for later ones.
	watermarks, err := likes.New(j.store).Watermarks(ctx)
	if err != nil {
		return 0, 0, err
	}
	err = j.redis.EachWarm(ctx, func(targets []models.Target) error {
		n, err := j.redis.Cool(ctx, targets, j.idle, watermarks)
		cooled += n
		warm += len(targets) - n
		return err
	})
	j.metrics.cooled.Add(float64(cooled))
	if _, swept := j.redis.Sweep(ctx); err == nil {
		err = swept
	}
	if err == nil {
		j.metrics.warm.Set(float64(warm))
	}
	return cooled, warm, err
}
