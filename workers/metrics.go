package workers

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Metrics are the workers' metrics for Prometheus.
type Metrics struct {
	relayed          prometheus.Counter
	relayErrors      prometheus.Counter
	relayShards      prometheus.Gauge
	opened           prometheus.Counter
	writerErrors     prometheus.Counter
	writerPartitions prometheus.Gauge
	events           *prometheus.CounterVec
	gaps             prometheus.Counter
	batchSize        prometheus.Histogram
	batchSeconds     prometheus.Histogram
	delay            prometheus.Histogram
	warm             prometheus.Gauge
	cooled           prometheus.Counter
	expired          prometheus.Counter
	released         prometheus.Counter
	rejected         prometheus.Counter
	failing          *prometheus.GaugeVec

	depth      *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	lag        *prometheus.GaugeVec
	lagSeconds *prometheus.GaugeVec
	open       *prometheus.GaugeVec
	memory     prometheus.Gauge
	openGaps   prometheus.Gauge
	letters    prometheus.Gauge
	monitoring *prometheus.CounterVec

	timeless map[int]time.Time // by shard: when a run without a time was first seen at the head of the outbox
	waiting  []arrivals        // by shard
	applied  []models.Position // by shard, as of the last successful read
}

// NewMetrics returns new metrics. ExportPipeline and ExportJobs register those that a process owns.
func NewMetrics() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	byShard := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"shard"})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	m := &Metrics{
		timeless:    map[int]time.Time{},
		relayed:     counter("likewise_relay_events_total", "Runs of likes and claims moved from outboxes to Kafka."),
		relayErrors: counter("likewise_relay_errors_total", "Times a relay had to start over."),
		relayShards: gauge("likewise_relay_shards", "Shards whose relay lock this process holds."),
		opened:      counter("likewise_shards_opened_total", "Times a closed shard was opened."),
		writerErrors: counter(
			"likewise_writer_errors_total",
			"Failed attempts at writing a batch, and errors of the consumer group.",
		),
		writerPartitions: gauge("likewise_writer_partitions", "Partitions that this process writes."),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "likewise_writer_events_total",
			Help: "Events read from Kafka, by result."}, []string{"result"}),
		gaps: counter("likewise_gaps_total", "Gaps found in the numbers of runs. Should always be 0."),
		batchSize: histogram(
			"likewise_writer_batch_events",
			"Events in one transaction.",
			prometheus.ExponentialBuckets(1, 4, 7),
		),
		batchSeconds: histogram(
			"likewise_writer_batch_seconds",
			"Duration of one transaction.",
			prometheus.ExponentialBuckets(0.001, 2.5, 10),
		),
		delay: histogram(
			"likewise_like_delay_seconds",
			"From the acceptance of the latest like or claim in a batch to its commit.",
			prometheus.ExponentialBuckets(0.005, 2.5, 12),
		),
		warm:   gauge("likewise_warm_targets", "Posts, comments and drops in Redis, after the janitor's last run."),
		cooled: counter("likewise_cooled_targets_total", "Targets that the janitor evicted from Redis."),
		expired: counter("likewise_claims_expired_total",
			"Claims that were not confirmed in time and went back into stock."),
		released: counter("likewise_claims_sent_total",
			"Releases of ended claims, and settings of drops, sent to the gate until their events are in MySQL."),
		rejected: counter("likewise_claims_rejected_total",
			"Claims that the gate accepted and MySQL could not: stock was lowered, or the account or post deleted."),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "likewise_job_failures",
			Help: "Consecutive failed runs of a job of cron, since its last success in this process.",
		}, []string{"task"}),

		depth: byShard("likewise_outbox_events", "Likes and claims that wait for Kafka."),
		oldest: byShard(
			"likewise_outbox_oldest_seconds",
			"Age of the oldest run that waits for Kafka. Runs without likes age from when they were first seen.",
		),
		lag: byShard("likewise_writer_lag_events", "Runs accepted by the gate and not yet in MySQL."),
		lagSeconds: byShard(
			"likewise_writer_lag_seconds",
			"Age of the oldest run that the gate accepted and MySQL does not have, to within 10 s; 0 if none waits.",
		),
		open: byShard("likewise_shard_open", "1 if the shard accepts likes and claims."),
		memory: gauge("likewise_redis_memory_ratio",
			"Share of maxmemory that the fullest Redis server uses; 0 without a maxmemory."),
		openGaps: gauge("likewise_gaps_open", "Gaps whose shard is not reconciled yet."),
		letters: gauge(
			"likewise_dead_letters",
			"Events that could not be applied and wait for an operator.",
		),
		monitoring: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "likewise_monitor_errors_total",
			Help: "Failed reads of the pipeline's state. After one, its gauges are stale."}, []string{"source"}),
	}
	return m
}

// ExportPipeline registers the metrics of relay, like writer and Monitor, which a worker owns. A process that exported
// them without being a worker would report its zeros as facts.
func (m *Metrics) ExportPipeline(reg prometheus.Registerer) {
	reg.MustRegister(
		m.relayed,
		m.relayErrors,
		m.relayShards,
		m.opened,
		m.writerErrors,
		m.writerPartitions,
		m.events,
		m.gaps,
		m.batchSize,
		m.batchSeconds,
		m.delay,
		m.rejected,
		m.depth,
		m.oldest,
		m.lag,
		m.lagSeconds,
		m.open,
		m.memory,
		m.openGaps,
		m.letters,
		m.monitoring,
	)
}

// ExportJobs registers the metrics of the jobs, which cron owns.
func (m *Metrics) ExportJobs(reg prometheus.Registerer) {
	reg.MustRegister(m.warm, m.cooled, m.expired, m.released, m.failing)
}

func (m *Metrics) observeBatch(runs []models.LikeRecord, done models.LikesApplied, began, ended time.Time) {
	events := 0
	var last models.Event
	for _, run := range runs {
		if n := len(run.Events); n > 0 {
			events, last = events+n, run.Events[n-1]
		}
	}
	m.batchSize.Observe(float64(events))
	m.batchSeconds.Observe(ended.Sub(began).Seconds())
	m.gaps.Add(float64(done.Gaps))
	m.rejected.Add(float64(done.Rejected))
	m.events.WithLabelValues("duplicate").Add(float64(done.Duplicates))
	m.events.WithLabelValues("vanished").Add(float64(done.Vanished))
	m.events.WithLabelValues("stranger").Add(float64(done.Strangers))
	m.events.WithLabelValues("dead_letter").Add(float64(done.DeadLetters))
	m.events.WithLabelValues("accepted").Add(float64(done.Accepted))
	if last.At > 0 {
		m.delay.Observe(max(0, ended.Sub(time.UnixMilli(last.At)).Seconds()))
	}
}

// monitorEvery is the greatest age of the pipeline's gauges.
const monitorEvery = 5 * time.Second

// Monitor reads the pipeline's state into the gauges until ctx ends.
func (m *Metrics) Monitor(ctx context.Context, r *counters.Redis, store *db.DB) {
	for {
		m.observe(ctx, r, store)
		if !pause(ctx, monitorEvery) {
			return
		}
	}
}

func (m *Metrics) observe(ctx context.Context, r *counters.Redis, store *db.DB) {
	ctx, cancel := context.WithTimeout(ctx, monitorEvery)
	defer cancel()
	infos, err := m.observeRedis(ctx, r, store)
	if infos == nil {
		// A gauge that cannot be read would report the past.
		for _, gauge := range []*prometheus.GaugeVec{m.depth, m.oldest, m.open, m.lag, m.lagSeconds} {
			gauge.Reset()
		}
		m.monitorFailed(ctx, store, "redis", err)
		return
	}
	if err != nil {
		m.monitorFailed(ctx, store, "redis", err)
	}
	// What waits for MySQL ages all the more if MySQL does not answer.
	err = m.observeMySQL(ctx, store)
	for i, info := range infos {
		if i >= len(m.applied) {
			break // MySQL has not answered yet
		}
		if info.Err != nil {
			continue
		}
		shard, now := strconv.Itoa(info.Shard), store.Now()
		age := m.waiting[i].age(info.Last, m.applied[i], now)
		if age > 0 {
			age = max(age, m.oldestAge(info, now))
		}
		m.lag.WithLabelValues(shard).Set(float64(info.Last.Beyond(m.applied[i])))
		m.lagSeconds.WithLabelValues(shard).Set(age.Seconds())
	}
	if err != nil {
		m.monitorFailed(ctx, store, "mysql", err)
	}
}

// observeRedis returns the states of the shards, or nil if Redis does not answer. The error is also that of a shard
// that cannot be read.
func (m *Metrics) observeRedis(
	ctx context.Context, r *counters.Redis, store *db.DB,
) ([]counters.ShardInfo, error) {
	infos, err := r.ShardInfos(ctx)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, info := range infos {
		shard := strconv.Itoa(info.Shard)
		if info.Err != nil {
			for _, gauge := range []*prometheus.GaugeVec{m.depth, m.oldest, m.open, m.lag, m.lagSeconds} {
				gauge.DeleteLabelValues(shard)
			}
			failures = append(failures, info.Err)
			continue
		}
		m.depth.WithLabelValues(shard).Set(float64(info.Depth))
		m.oldest.WithLabelValues(shard).Set(m.oldestAge(info, store.Now()).Seconds())
		open := 0.0
		if info.Open {
			open = 1
		}
		m.open.WithLabelValues(shard).Set(open)
	}
	used, err := r.MemoryRatio(ctx)
	m.memory.Set(used)
	return infos, errors.Join(append(failures, err)...)
}

func (m *Metrics) observeMySQL(ctx context.Context, store *db.DB) error {
	states, err := likes.New(store).ShardStates(ctx)
	if err != nil {
		return err
	}
	gaps := 0
	m.applied = make([]models.Position, len(states))
	for i, state := range states {
		gaps += state.OpenGaps
		m.applied[i] = state.Applied
	}
	if m.waiting == nil {
		m.waiting = make([]arrivals, len(states))
	}
	m.openGaps.Set(float64(gaps))
	letters, err := likes.New(store).DeadLetters(ctx)
	if err != nil {
		return err
	}
	m.letters.Set(float64(letters))
	return nil
}

// oldestAge returns the age of the oldest run in the outbox of a shard. Only Monitor calls it.
func (m *Metrics) oldestAge(info counters.ShardInfo, now time.Time) time.Duration {
	oldest := info.Oldest
	if info.Runs == 0 || !oldest.IsZero() {
		delete(m.timeless, info.Shard)
	} else { // a probe or an opening, whose likes behind it wait as well
		if m.timeless[info.Shard].IsZero() {
			m.timeless[info.Shard] = now
		}
		oldest = m.timeless[info.Shard]
	}
	if oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(oldest))
}

func (m *Metrics) monitorFailed(ctx context.Context, store *db.DB, source string, err error) {
	if ctx.Err() == context.Canceled {
		return
	}
	m.monitoring.WithLabelValues(source).Inc()
	store.Logger().WarnContext(ctx, "the pipeline's state cannot be read", "source", source, "error", err)
}
