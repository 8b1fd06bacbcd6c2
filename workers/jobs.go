package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/counters"
	"likewise/models"
)

// Job is a background job. Several processes may run the same job at once, though those that serve it take turns.
type Job struct {
	Name    string
	Every   time.Duration // how often a process runs it
	Limit   time.Duration // after which it is canceled; the next run continues or begins again
	Purpose string        // a sentence for operators, shown by --help and in docs/cli.md
	Gated   bool          // it needs the gate, and does not exist in direct mode

	run func(*Jobs, context.Context) (result string, err error)
}

// schedule is the table of jobs. To add a job, add a row with a method of Jobs, in the order of names. Tests compare
// the table with docs/cli.md.
var schedule = []Job{
	{
		"claims", time.Second, time.Minute,
		"End claims that were not confirmed in time, put ended claims back into stock, " +
			"and send changed settings of drops.",
		false, (*Jobs).expireClaims,
	},
	{
		"close", 10 * time.Second, time.Minute,
		"Close deleted posts and their comments and drops in Redis, for processes that died before they could.",
		false, (*Jobs).closeDeleted,
	},
	{
		"cool", 10 * time.Minute, 10 * time.Minute,
		"Evict idle posts, comments and drops from Redis.",
		true, (*Jobs).cool,
	},
	{
		"drift", time.Minute, time.Minute,
		"Compare some of the posts, comments and drops, as verify does with all of them.",
		false, (*Jobs).drift,
	},
	{
		"export", 5 * time.Second, time.Minute,
		"Build the archives of their data that users requested, and delete expired ones.",
		false, (*Jobs).export,
	},
	{
		"flush", time.Minute, time.Minute,
		"Wait until every like and claim accepted so far is in MySQL.",
		true, (*Jobs).flush,
	},
	{
		"index", time.Minute, time.Minute,
		"Add posts to the search index that are not in it, or were indexed by older rules.",
		false, (*Jobs).index,
	},
	{
		"moderate", 2 * time.Second, time.Minute,
		"Delete and restore everything that a user wrote, as moderators requested.",
		false, (*Jobs).moderate,
	},
	{
		"purge", time.Hour, time.Hour,
		"Delete expired sessions, idempotency keys and held names, and old notifications and security events.",
		false, (*Jobs).purge,
	},
	{
		"reconcile", 30 * time.Second, reconcileLimit,
		"Repair shards that lost events.",
		true, (*Jobs).reconcile,
	},
	{
		"rings", time.Hour, time.Hour,
		"Find accounts that repeatedly like the same author in the same seconds.",
		false, (*Jobs).rings,
	},
	{
		"void", 5 * time.Second, time.Minute,
		"Withdraw the likes of deleted accounts, and those that moderators voided.",
		false, (*Jobs).void,
	},
}

// Schedule returns the table of jobs.
func Schedule() []Job { return slices.Clone(schedule) }

// ErrDirect means that a job needs the gate, on a site without one.
var ErrDirect = errors.New("this job does not exist in direct mode, where every like and claim is in MySQL already")

// JobsConfig holds what the jobs of a site need.
type JobsConfig struct {
	Store     *models.Store
	Redis     *counters.Redis  // nil in direct mode
	Likes     *counters.Likes  // nil in direct mode
	Claims    *counters.Claims // nil in direct mode
	Targets   counters.Targets
	Kafka     Kafka
	Metrics   *Metrics
	Registry  prometheus.Registerer // of the metrics that only jobs have
	CoolAfter time.Duration         // see NewJanitor
}

// Jobs runs the jobs of a site. It is safe for concurrent use, except for two runs of the same job.
type Jobs struct {
	JobsConfig

	log        *slog.Logger
	watch      *DriftWatch
	janitor    *Janitor
	reconciler *Reconciler
}

// NewJobs returns the jobs of a site. It registers metrics, so a registry has one Jobs.
func NewJobs(c JobsConfig) *Jobs {
	j := &Jobs{JobsConfig: c, log: c.Store.Logger()}
	j.watch = NewDriftWatch(c.Store, c.Redis, c.Likes, c.Registry, func(d models.Difference) {
		if !d.Undecided {
			j.log.Error("drift found; `likewise verify --repair` repairs it",
				"target", d.Target.String(), "problem", d.Problem)
		}
	})
	if j.gated() {
		j.janitor = NewJanitor(c.Redis, c.Store, c.Metrics, c.CoolAfter)
		j.reconciler = NewReconciler(c.Redis, c.Store, c.Likes)
	}
	return j
}

func (j *Jobs) gated() bool { return j.Targets.Gated() }

// Run runs one job once and returns a sentence about what it did. If ctx has no deadline, the job has its Limit. In
// direct mode, a job that needs the gate returns ErrDirect.
func (j *Jobs) Run(ctx context.Context, name string) (result string, err error) {
	i := slices.IndexFunc(schedule, func(job Job) bool { return job.Name == name })
	if i < 0 {
		return "", fmt.Errorf("there is no job %s", name)
	}
	if schedule[i].Gated && !j.gated() {
		return "", ErrDirect
	}
	if _, ok := ctx.Deadline(); ok {
		return schedule[i].run(j, ctx)
	}
	limited, cancel := context.WithTimeout(ctx, schedule[i].Limit)
	defer cancel()
	return schedule[i].run(j, limited)
}

// Serve runs every job on its schedule, the first time at once, until ctx ends and no job is running.
func (j *Jobs) Serve(ctx context.Context) {
	var running sync.WaitGroup
	for _, job := range schedule {
		if !job.Gated || j.gated() {
			running.Go(func() { j.repeat(ctx, job) })
		}
	}
	running.Wait()
}

func (j *Jobs) repeat(ctx context.Context, job Job) {
	for {
		limited, cancel := context.WithTimeout(ctx, job.Limit)
		result, err := j.runAlone(limited, job)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			j.log.ErrorContext(ctx, "cron job failed", "job", job.Name, "error", err)
		case err == nil:
			j.log.DebugContext(ctx, "cron job done", "job", job.Name, "result", result)
		}
		select {
		// Up to a tenth early or late, so that processes that start together do not run their jobs together.
		case <-time.After(job.Every - job.Every/10 + rand.N(job.Every/5)):
		case <-ctx.Done():
			return
		}
	}
}

// jobLock is how long a job that was killed keeps other processes from running it.
const jobLock = 5 * time.Second

// runAlone runs a job under its lock, so that two processes do not do the same work at once. If another process runs
// the job, runAlone skips it. The lock is not needed for correctness: without Redis, the job runs all the same.
func (j *Jobs) runAlone(ctx context.Context, job Job) (result string, err error) {
	if j.Redis == nil {
		return job.run(j, ctx)
	}
	lock := j.Redis.JobLock(job.Name, lockToken())
	if err := lock.Acquire(ctx, jobLock, 0); errors.Is(err, counters.ErrLockLost) {
		return "another process runs it", nil
	} else if err != nil {
		return job.run(j, ctx)
	}
	number, err := j.Store.NextFence(ctx, job.Name)
	if err == nil { // the lock may have been lost before the number was issued
		err = lock.Renew(ctx, jobLock)
	}
	err = lock.While(ctx, func(ctx context.Context) error {
		if err == nil {
			result, err = job.run(j, models.WithFence(ctx, job.Name, number))
		}
		return err
	})
	return result, err
}

func (j *Jobs) expireClaims(ctx context.Context) (string, error) {
	done, err := NewReleaser(j.Store, j.Redis, j.Claims, j.Metrics).Release(ctx)
	return fmt.Sprintf("%d claims expired, warned %d users, sent %d releases and settings, %d drops are cold",
		done.Expired, done.Warned, done.Sent, done.Cold), err
}

func (j *Jobs) closeDeleted(ctx context.Context) (string, error) {
	closed, err := NewCloser(j.Store, j.Targets).Close(ctx)
	return fmt.Sprintf("closed %d posts, comments and drops", closed), err
}

func (j *Jobs) cool(ctx context.Context) (string, error) {
	cooled, warm, err := j.janitor.Cool(ctx)
	return fmt.Sprintf("cooled %d targets, %d stay warm", cooled, warm), err
}

func (j *Jobs) drift(ctx context.Context) (string, error) {
	n, err := j.watch.Watch(ctx)
	return fmt.Sprintf("found %d differences", n), err
}

func (j *Jobs) export(ctx context.Context) (string, error) {
	built, removed, err := NewExporter(j.Store).Export(ctx)
	return fmt.Sprintf("built %d archives, deleted %d", built, removed), err
}

const (
	indexBatch  = 100
	indexMargin = 5 * time.Second // before its deadline, a run starts no other batch
)

// index works until all posts are indexed or its time is nearly over. Usually there is nothing to do, because posts are
// indexed when they are written.
func (j *Jobs) index(ctx context.Context) (string, error) {
	for indexed := 0; ; {
		n, err := j.Store.IndexPosts(ctx, indexBatch)
		indexed += n
		if err != nil || n < indexBatch {
			return fmt.Sprintf("indexed %d posts", indexed), err
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < indexMargin {
			return fmt.Sprintf("indexed %d posts, and more are left: run it again", indexed), nil
		}
	}
}

func (j *Jobs) moderate(ctx context.Context) (string, error) {
	changed, err := NewModerator(j.Store, j.Targets).Moderate(ctx)
	return fmt.Sprintf("deleted or restored %d posts and comments", changed), err
}

// purge deletes in batches, so that no statement holds its locks for long.
func (j *Jobs) purge(ctx context.Context) (string, error) {
	sessions, err := inBatches(ctx, j.Store.PurgeSessions)
	if err != nil {
		return "", err
	}
	keys, err := inBatches(ctx, j.Store.PurgeIdempotencyKeys)
	if err != nil {
		return "", err
	}
	events, err := inBatches(ctx, j.Store.PurgeSecurityLog)
	if err != nil {
		return "", err
	}
	held, err := inBatches(ctx, j.Store.PurgeHeldNames)
	if err != nil {
		return "", err
	}
	notifications, err := inBatches(ctx, j.Store.PurgeNotifications)
	return fmt.Sprintf("deleted %d expired sessions, %d idempotency keys, %d old events of the security log, "+
		"%d held names and %d old notifications", sessions, keys, events, held, notifications), err
}

const purgeBatch = 1000

// inBatches calls purge until nothing is left, and returns the number of rows deleted.
func inBatches(
	ctx context.Context, purge func(ctx context.Context, limit int) (int64, error),
) (purged int64, err error) {
	for {
		n, err := purge(ctx, purgeBatch)
		purged += n
		if err != nil || n < purgeBatch {
			return purged, err
		}
	}
}

const (
	// probeAfter is how long events may take from Kafka to MySQL before a probe checks whether they are lost.
	probeAfter = time.Minute
	// reconcileLimit is enough for a target of ten million likers. A comparison of one target cannot be continued in
	// another run, because the target changes meanwhile.
	reconcileLimit = 30 * time.Minute
)

func (j *Jobs) reconcile(ctx context.Context) (string, error) {
	probed, err := j.reconciler.Probe(ctx, probeAfter)
	if err != nil {
		return "", err
	}
	resent, err := j.reconciler.Reconcile(ctx)
	return fmt.Sprintf("sent %d likes again, probed %d shards", resent, probed), err
}

func (j *Jobs) rings(ctx context.Context) (string, error) {
	read, found, err := NewRingFinder(j.Store, j.Store.Now).Find(ctx)
	return fmt.Sprintf("read %d likes, found %d rings", read, found), err
}

func (j *Jobs) void(ctx context.Context) (string, error) {
	voider := NewVoider(j.Store, nil, j.Store, j.Store.Now)
	if j.gated() {
		voider = NewVoider(j.Store, j.Redis, j.Likes, j.Store.Now)
	}
	likes, done, err := voider.Void(ctx)
	return fmt.Sprintf("withdrew %d likes, %d requests are done", likes, done), err
}

const (
	flushGrace = 2 * time.Second // without progress, after which flush relays and writes itself
	flushDrain = 9 * time.Second // for a batch under way when flush has ended
)

// flush returns when every like that was accepted before the call is in MySQL. Workers usually need milliseconds. If
// the watermarks stand still, as without a worker, this process relays and writes, too. It does not help workers that
// are merely behind: another member would make their consumer group pause.
func (j *Jobs) flush(ctx context.Context) (string, error) {
	ctx, stop := context.WithCancel(ctx)
	var helping sync.WaitGroup
	defer func() {
		stop()
		AwaitGroup(&helping, flushDrain)
	}()
	flushed := make(chan error, 1)
	go func() { flushed <- FlushWhole(ctx, j.Redis, j.Store) }() // ends with ctx
	before, _ := j.watermarks(ctx)                               // after an error, the first successful read counts
	for help := false; ; {
		select {
		case err := <-flushed:
			return "every like accepted so far is in MySQL", err
		case <-time.After(flushGrace):
		}
		now, err := j.watermarks(ctx)
		if help || err != nil {
			continue
		}
		if help = slices.Equal(now, before); help {
			j.log.InfoContext(ctx, "flush relays and writes, because no worker does")
			helping.Go(func() { NewRelay(j.Redis, j.Store, j.Kafka, j.Metrics).Run(ctx) })
			helping.Go(func() { NewLikeWriter(j.Store, j.Kafka, j.Metrics).Run(ctx) })
		}
		before = now
	}
}

// watermarks returns the watermark of each shard, in order.
func (j *Jobs) watermarks(ctx context.Context) ([]models.Position, error) {
	states, err := j.Store.ShardStates(ctx)
	positions := make([]models.Position, len(states))
	for i, s := range states {
		positions[i] = s.Applied
	}
	return positions, err
}

// AwaitGroup waits for group, but no longer than limit. It reports whether the group is done.
func AwaitGroup(group *sync.WaitGroup, limit time.Duration) (done bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		group.Wait()
	}()
	select {
	case <-ended:
		return true
	case <-time.After(limit):
		return false
	}
}
