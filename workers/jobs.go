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
	"likewise/images"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/moderation"
	"likewise/models/people"
	"likewise/models/privacy"
	"likewise/models/reader"
	"likewise/models/webhooks"
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
		"images", 10 * time.Minute, 5 * time.Minute,
		"Delete images that nothing has shown for a day, and those that were deleted or not stored to the end.",
		false, (*Jobs).images,
	},
	{
		"index", time.Minute, time.Minute,
		"Add posts and comments to the search index, and make excerpts of posts, where they are missing or by older " +
			"rules.",
		false, (*Jobs).index,
	},
	{
		"moderate", 2 * time.Second, time.Minute,
		"Delete and restore everything that a user wrote, as moderators requested.",
		false, (*Jobs).moderate,
	},
	{
		"notify", 2 * time.Second, time.Minute,
		"Notify followers of posts of new comments.",
		false, (*Jobs).notify,
	},
	{
		"purge", time.Hour, time.Hour,
		"Delete expired sessions, idempotency keys and held names, and old notifications, security events, " +
			"deliveries to and secrets of webhooks, read marks and drafts.",
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
		"sample", models.SampleEvery / 2, time.Minute, // so that every 10 s have a run
		"Keep the state of the pipeline of every 10 s, for a day.",
		false, (*Jobs).sample,
	},
	{
		"void", 5 * time.Second, time.Minute,
		"Withdraw the likes of deleted accounts, and those that moderators voided.",
		false, (*Jobs).void,
	},
	{
		"webhooks", time.Second, time.Minute,
		"Deliver events to webhooks.",
		false, (*Jobs).deliver,
	},
}

// Schedule returns the table of jobs.
func Schedule() []Job { return slices.Clone(schedule) }

// ErrDirect means that a job needs the gate, on a site without one.
var ErrDirect = errors.New("this job does not exist in direct mode, where every like and claim is in MySQL already")

// JobsConfig holds what the jobs of a site need.
type JobsConfig struct {
	Store     *db.DB
	Redis     *counters.Redis  // nil in direct mode
	Likes     *counters.Likes  // nil in direct mode
	Claims    *counters.Claims // nil in direct mode
	Targets   counters.Targets
	Kafka     Kafka
	Metrics   *Metrics
	Registry  prometheus.Registerer // of the metrics that only jobs have
	CoolAfter time.Duration         // see NewJanitor
	Images    images.Store          // nil: the site has none
	// PrivateWebhooks allows webhooks at private addresses, and without TLS.
	PrivateWebhooks bool
}

// Jobs runs the jobs of a site. It is safe for concurrent use, except for two runs of the same job.
type Jobs struct {
	JobsConfig

	log        *slog.Logger
	watch      *DriftWatch
	janitor    *Janitor
	reconciler *Reconciler
	courier    *Courier
	sampler    *Sampler
}

// NewJobs returns the jobs of a site. It registers metrics, so a registry has one Jobs.
func NewJobs(c JobsConfig) *Jobs {
	j := &Jobs{JobsConfig: c, log: c.Store.Logger(), courier: NewCourier(webhooks.New(c.Store), c.PrivateWebhooks,
		c.Registry), sampler: NewSampler(c.Store, c.Redis)}
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
	if err := j.checkSite(ctx); err != nil {
		return "", err
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
		failing := j.Metrics.failing.WithLabelValues(job.Name)
		switch {
		case errors.Is(err, errElsewhere):
			j.log.DebugContext(ctx, "cron job skipped", "job", job.Name, "reason", err)
		case err != nil && ctx.Err() == nil:
			failing.Inc()
			j.log.ErrorContext(ctx, "cron job failed", "job", job.Name, "error", err)
		case err == nil:
			failing.Set(0)
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

// checkSite returns an error if Redis belongs to another installation. A job would evict or close targets of that one.
func (j *Jobs) checkSite(ctx context.Context) error {
	if j.Redis == nil {
		return nil
	}
	return j.Redis.CheckSite(ctx)
}

// jobLock is how long a job that was killed keeps other processes from running it.
const jobLock = 5 * time.Second

var errElsewhere = errors.New("another process runs it")

// runAlone runs a job under its lock, so that two processes do not do the same work at once. If another process runs
// the job, runAlone returns errElsewhere. The lock is not needed for correctness: without Redis, the job runs all the
// same.
func (j *Jobs) runAlone(ctx context.Context, job Job) (result string, err error) {
	if j.Redis == nil {
		return job.run(j, ctx)
	}
	if err := j.checkSite(ctx); err != nil {
		return "", err
	}
	lock := j.Redis.JobLock(job.Name, lockToken())
	if err := lock.Acquire(ctx, jobLock, 0); errors.Is(err, counters.ErrLockLost) {
		return "", errElsewhere
	} else if err != nil {
		return job.run(j, ctx)
	}
	number, err := j.Store.NextFence(ctx, job.Name)
	if err == nil { // the lock may have been lost before the number was issued
		err = lock.Renew(ctx, jobLock)
	}
	err = lock.While(ctx, func(ctx context.Context) error {
		if err == nil {
			result, err = job.run(j, db.WithFence(ctx, job.Name, number))
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
	built, removed, err := NewExporter(privacy.New(j.Store)).Export(ctx)
	return fmt.Sprintf("built %d archives, deleted %d", built, removed), err
}

// images deletes orphaned images. A run without the storage leaves them to another.
func (j *Jobs) images(ctx context.Context) (string, error) {
	if j.Images == nil {
		return "this process has no storage of images", nil
	}
	return eachBatch(ctx, "looked at %d images", NewSweeper(j.Store, j.Images).Sweep)
}

// index adds posts and comments to the search index, and makes excerpts. Usually there is nothing to do: both are done
// when a text is written.
func (j *Jobs) index(ctx context.Context) (string, error) {
	return eachBatch(ctx, "indexed %d posts and %d comments, made %d excerpts",
		content.New(j.Store).IndexPosts, content.New(j.Store).IndexComments, content.New(j.Store).WriteExcerpts)
}

const (
	textBatch  = 100
	textMargin = 5 * time.Second // before its deadline, a run starts no other batch
)

// eachBatch calls works in turn until nothing is left, one fails, or the time of the job is nearly over. result
// describes what each has done.
func eachBatch(
	ctx context.Context, result string, works ...func(ctx context.Context, limit int) (int, error),
) (string, error) {
	done := make([]int, len(works))
	say := func() string {
		var numbers []any
		for _, n := range done {
			numbers = append(numbers, n)
		}
		return fmt.Sprintf(result, numbers...)
	}
	for {
		more, failed := false, error(nil)
		for i, work := range works {
			n, err := work(ctx, textBatch)
			done[i] += n
			more, failed = more || n >= textBatch, errors.Join(failed, err)
		}
		if failed != nil || !more {
			return say(), failed
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < textMargin {
			return say() + ", and more are left: run it again", nil
		}
	}
}

func (j *Jobs) moderate(ctx context.Context) (string, error) {
	changed, err := NewModerator(moderation.New(j.Store), j.Targets).Moderate(ctx)
	return fmt.Sprintf("deleted or restored %d posts and comments", changed), err
}

// notifyBatch is the number of followers of whom one step takes care.
const notifyBatch = 500

// notify takes a step of each post in turn, so that a post with many followers does not keep the others waiting. A run
// begins one pass over the followers of a post at most.
func (j *Jobs) notify(ctx context.Context) (string, error) {
	notified, passed := int64(0), map[int64]bool{}
	for after, idle := int64(0), true; ; {
		step, err := people.New(j.Store).NotifyFollowers(ctx, after, notifyBatch, passed)
		notified += step.Notified
		end, limited := ctx.Deadline()
		if err != nil || step.PostID == 0 && idle || limited && time.Until(end) < textMargin {
			return fmt.Sprintf("notified %d followers", notified), err
		}
		if after = step.PostID; after == 0 {
			idle = true
			continue
		}
		idle = idle && !step.Worked
		passed[step.PostID] = passed[step.PostID] || step.Begun
	}
}

// purge deletes in batches, so that no statement holds its locks for long.
func (j *Jobs) purge(ctx context.Context) (string, error) {
	sessions, err := inBatches(ctx, accounts.New(j.Store).PurgeSessions)
	if err != nil {
		return "", err
	}
	if _, err := inBatches(ctx, accounts.New(j.Store).PurgeSessionChanges); err != nil {
		return "", err
	}
	if _, err := inBatches(ctx, accounts.New(j.Store).PurgeChallenges); err != nil {
		return "", err
	}
	keys, err := inBatches(ctx, j.Store.PurgeIdempotencyKeys)
	if err != nil {
		return "", err
	}
	events, err := inBatches(ctx, accounts.New(j.Store).PurgeSecurityLog)
	if err != nil {
		return "", err
	}
	held, err := inBatches(ctx, accounts.New(j.Store).PurgeHeldNames)
	if err != nil {
		return "", err
	}
	mails, err := j.purgeMails(ctx)
	if err != nil {
		return "", err
	}
	notifications, err := inBatches(ctx, people.New(j.Store).PurgeNotifications)
	if err != nil {
		return "", err
	}
	deliveries, err := inBatches(ctx, webhooks.New(j.Store).PurgeWebhookEvents)
	if err != nil {
		return "", err
	}
	if _, err := webhooks.New(j.Store).PurgeWebhookSecrets(ctx); err != nil {
		return "", err
	}
	marks, err := inBatches(ctx, reader.New(j.Store).PurgeReadMarks)
	if err != nil {
		return "", err
	}
	drafts, err := inBatches(ctx, reader.New(j.Store).PurgeDrafts)
	return fmt.Sprintf("deleted %d expired sessions, %d idempotency keys, %d old events of the security log, "+
		"%d held names, %d old mails, %d old notifications, %d old deliveries to webhooks, %d read marks and %d drafts",
		sessions, keys, events, held, mails, notifications, deliveries, marks, drafts), err
}

// purgeMails deletes old mails, and the links and registrations that nobody can use any longer. It returns the number
// of mails.
func (j *Jobs) purgeMails(ctx context.Context) (int64, error) {
	store := accounts.New(j.Store)
	if _, err := inBatches(ctx, store.PurgeLinks); err != nil {
		return 0, err
	}
	if _, err := inBatches(ctx, store.PurgeRegistrations); err != nil {
		return 0, err
	}
	return inBatches(ctx, store.PurgeMails)
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
	read, found, err := NewRingFinder(moderation.New(j.Store), j.Store.Now).Find(ctx)
	return fmt.Sprintf("read %d likes, found %d rings", read, found), err
}

func (j *Jobs) sample(ctx context.Context) (string, error) {
	added, err := j.sampler.Sample(ctx)
	if added {
		return "stored a sample", err
	}
	return "these 10 s have a sample", err
}

func (j *Jobs) void(ctx context.Context) (string, error) {
	voider := NewVoider(j.Store, nil, likes.New(j.Store))
	if j.gated() {
		voider = NewVoider(j.Store, j.Redis, j.Likes)
	}
	voided, done, err := voider.Void(ctx)
	return fmt.Sprintf("withdrew %d likes, %d requests are done", voided, done), err
}

func (j *Jobs) deliver(ctx context.Context) (string, error) {
	delivered, failed, err := j.courier.Deliver(ctx)
	return fmt.Sprintf("delivered %d events, %d attempts failed", delivered, failed), err
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
	states, err := likes.New(j.Store).ShardStates(ctx)
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
