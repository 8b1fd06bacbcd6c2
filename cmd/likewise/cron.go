package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"likewise/models"
	"likewise/workers"
)

type cronCmd struct {
	Serve cronServeCmd `cmd:"" default:"withargs" help:"Run the jobs on schedule until told to stop. Any number of copies may run."`
	Run   cronRunCmd   `cmd:"" help:"Run one job once: for any other scheduler."`
}

// cronFlags configure the jobs.
type cronFlags struct {
	mysqlFlags
	kafkaFlags
	likesFlags
	secretFlags
	CoolAfter time.Duration `env:"LIKEWISE_COOL_AFTER" default:"1h" help:"Drop a post or comment from Redis when it was not liked for so long; at least ${min_cool}."`
}

// Validate asks for what is missing.
func (f *cronFlags) Validate() error {
	weak := f.check(f.MySQLDSN, f.gateURL())
	if !f.gated() {
		return errors.Join(required(f.mysqlFlags.setting()), weak)
	}
	return errors.Join(required(f.mysqlFlags.setting(), f.likesFlags.setting(), f.kafkaFlags.setting()), weak)
}

type cronServeCmd struct {
	cronFlags
	AdminListen string `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:9082" help:"Address of /metrics, /readyz and /healthz, which clients must not reach."`
}

// Run runs the jobs until ctx ends.
func (s *cronServeCmd) Run(ctx context.Context) error {
	c, jobs, err := s.open(ctx)
	if err != nil {
		return err
	}
	admin, err := listenAdmin(s.AdminListen)
	if err != nil {
		return errors.Join(err, c.close())
	}
	return errors.Join(c.withAdmin(ctx, admin, func() error { runJobs(ctx, jobs); return nil }), c.close())
}

type cronRunCmd struct {
	cronFlags
	Job     string        `arg:"" enum:"flush,cool,reconcile,drift,index,purge,void,rings,moderate,close,export" help:"flush: push every like accepted so far through to MySQL. cool: drop idle posts and comments from Redis. reconcile: mend shards that lost events. drift: compare a stretch of posts and comments, as verify does with all. index: put posts into the search index that were written before there was one. purge: delete expired sessions and idempotency keys, events of the security log that are older than 90 days, and old notifications. void: take back the likes of deleted accounts, and what moderators asked for. rings: look for accounts that like the same author in the same seconds, again and again. moderate: delete and restore what moderators asked for of all that a user wrote. close: make Redis refuse likes of what was deleted by a process that died before it could. export: build the archives that users asked for of their data, and delete those that have expired."`
	Timeout time.Duration `default:"1m" help:"Give up after so long."`
}

// Run runs one job and fails if the job does.
func (r *cronRunCmd) Run(ctx context.Context, out output) error {
	c, jobs, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	for _, job := range jobs {
		if job.name == r.Job {
			result, err := job.run(ctx)
			if err == nil {
				fmt.Fprintln(out.stdout, result)
			}
			return err
		}
	}
	return fmt.Errorf("there is no %s job with --likes=direct: every like is in MySQL already", r.Job)
}

func (f *cronFlags) open(ctx context.Context) (*core, []job, error) {
	if f.CoolAfter < workers.MinCoolAfter {
		return nil, nil, fmt.Errorf("--cool-after must be at least %s", workers.MinCoolAfter)
	}
	c, err := openCore(ctx, f.mysqlFlags, f.likesFlags)
	if err != nil {
		return nil, nil, err
	}
	return c, c.jobs(f.config(), f.CoolAfter), nil
}

// job is something that is done every so often. Jobs may run in several processes at once.
type job struct {
	name  string
	every time.Duration
	run   func(ctx context.Context) (result string, err error)
}

// jobs are those that apply: without a gate there is nothing to flush, cool or reconcile.
func (c *core) jobs(kafka workers.Kafka, coolAfter time.Duration) []job {
	watch := workers.NewDriftWatch(c.store, c.redis, c.likes, c.registry, func(d models.Difference) {
		if !d.Undecided {
			slog.Error("drift: likewise verify --repair mends it", "target", d.Target.String(), "problem", d.Problem)
		}
	})
	jobs := []job{
		{"purge", time.Hour, c.purge},
		{"index", time.Minute, c.index},
		{"drift", time.Minute, func(ctx context.Context) (string, error) {
			n, err := watch.Watch(ctx)
			return fmt.Sprintf("found %d differences", n), err
		}},
		{"void", 5 * time.Second, c.void},
		{"moderate", 2 * time.Second, c.moderate},
		{"close", 10 * time.Second, c.closeDeleted},
		{"export", 5 * time.Second, c.export},
		{"rings", time.Hour, func(ctx context.Context) (string, error) {
			read, found, err := workers.NewRingFinder(c.store, time.Now).Find(ctx)
			return fmt.Sprintf("read %d likes, found %d rings", read, found), err
		}},
	}
	if c.redis == nil {
		return jobs
	}
	janitor := workers.NewJanitor(c.redis, c.store, c.metrics, coolAfter, time.Now)
	reconciler := workers.NewReconciler(c.redis, c.store, c.likes)
	return append(jobs,
		job{"flush", time.Minute, func(ctx context.Context) (string, error) { return c.flush(ctx, kafka) }},
		job{"cool", 10 * time.Minute, func(ctx context.Context) (string, error) {
			cooled, warm, err := janitor.Cool(ctx)
			return fmt.Sprintf("cooled %d targets, %d stay warm", cooled, warm), err
		}},
		job{"reconcile", 30 * time.Second, func(ctx context.Context) (string, error) {
			probed, err := reconciler.Probe(ctx, probeAfter)
			if err != nil {
				return "", err
			}
			resent, err := reconciler.Reconcile(ctx)
			return fmt.Sprintf("sent %d likes again, probed %d shards", resent, probed), err
		}},
	)
}

// runJobs runs each job on its own schedule, the first time at once, until ctx ends and none is running.
func runJobs(ctx context.Context, jobs []job) {
	var running sync.WaitGroup
	for _, j := range jobs {
		running.Go(func() {
			for {
				limited, cancel := context.WithTimeout(ctx, max(j.every, time.Minute))
				result, err := j.run(limited)
				cancel()
				switch {
				case err != nil && ctx.Err() == nil:
					slog.ErrorContext(ctx, "cron job failed", "job", j.name, "error", err)
				case err == nil:
					slog.DebugContext(ctx, "cron job done", "job", j.name, "result", result)
				}
				select {
				// A little off the beat, so that copies that were started together do not stay together.
				case <-time.After(j.every - j.every/10 + rand.N(j.every/5)):
				case <-ctx.Done():
					return
				}
			}
		})
	}
	running.Wait()
}

// probeAfter is how long events may take from Kafka to MySQL before it is asked whether they are lost.
const probeAfter = time.Minute

// flushGrace is how long the watermarks may stand still before flush does the workers' job too.
const flushGrace = 2 * time.Second

// flush returns when every like that was accepted before the call is in MySQL. Mostly the workers are that far within
// milliseconds. If nothing gets there at all, as when none is running, this process relays and writes as well until it is
// done; workers that are merely behind are left alone, since one more in their group would stop them all for a moment.
func (c *core) flush(ctx context.Context, kafka workers.Kafka) (string, error) {
	ctx, stop := context.WithCancel(ctx)
	var helping sync.WaitGroup
	defer func() {
		stop()
		awaitFor(&helping, drainLimit)
	}()
	flushed := make(chan error, 1)
	go func() { flushed <- workers.Flush(ctx, c.redis, c.store) }() // it ends with ctx
	before, _ := c.watermarks(ctx)                                  // unknown is like none: then the first look is the beginning
	for help := false; ; {
		select {
		case err := <-flushed:
			return "every like accepted so far is in MySQL", err
		case <-time.After(flushGrace):
		}
		now, err := c.watermarks(ctx)
		if help || err != nil {
			continue // there is nothing more to be done, or nothing that can be
		}
		if help = slices.Equal(now, before); help {
			slog.InfoContext(ctx, "nothing gets to MySQL: flush takes part")
			helping.Go(func() { workers.NewRelay(c.redis, c.store, kafka, c.metrics).Run(ctx) })
			helping.Go(func() { workers.NewLikeWriter(c.store, kafka, c.metrics).Run(ctx) })
		}
		before = now
	}
}

// watermarks gives how far each shard is in MySQL.
func (c *core) watermarks(ctx context.Context) ([]models.Position, error) {
	states, err := c.store.ShardStates(ctx)
	positions := make([]models.Position, len(states))
	for i, s := range states {
		positions[i] = s.Applied
	}
	return positions, err
}

// awaitFor waits for group, but no longer than limit.
func awaitFor(group *sync.WaitGroup, limit time.Duration) (ended bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

const purgeBatch = 1000

// purge deletes expired sessions, idempotency keys and held names, and old notifications, a batch at a time so that no statement holds
// its locks for long.
func (c *core) purge(ctx context.Context) (string, error) {
	sessions, err := inBatches(ctx, c.store.PurgeSessions)
	if err != nil {
		return "", err
	}
	keys, err := inBatches(ctx, c.store.PurgeIdempotencyKeys)
	if err != nil {
		return "", err
	}
	events, err := inBatches(ctx, c.store.PurgeSecurityLog)
	if err != nil {
		return "", err
	}
	held, err := inBatches(ctx, c.store.PurgeHeldNames)
	if err != nil {
		return "", err
	}
	notifications, err := inBatches(ctx, c.store.PurgeNotifications)
	return fmt.Sprintf("deleted %d expired sessions, %d idempotency keys, %d old events of the security log, %d held names and %d old notifications",
		sessions, keys, events, held, notifications), err
}

// inBatches calls purge until there is nothing left, and says how many rows it deleted.
func inBatches(ctx context.Context, purge func(ctx context.Context, limit int) (int64, error)) (purged int64, err error) {
	for {
		n, err := purge(ctx, purgeBatch)
		purged += n
		if err != nil || n < purgeBatch {
			return purged, err
		}
	}
}

const (
	indexBatch  = 100
	indexMargin = 5 * time.Second // of a run, to end in
)

// index puts posts into the search index for as long as it may run. Usually there is nothing to do: whoever writes a post
// indexes it.
func (c *core) index(ctx context.Context) (string, error) {
	for indexed := 0; ; {
		n, err := c.store.IndexPosts(ctx, indexBatch)
		indexed += n
		if err != nil || n < indexBatch {
			return fmt.Sprintf("indexed %d posts", indexed), err
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < indexMargin {
			return fmt.Sprintf("indexed %d posts, and there are more: run it again", indexed), nil
		}
	}
}

// void takes back the likes of deleted accounts, and what moderators asked for.
func (c *core) void(ctx context.Context) (string, error) {
	voider := workers.NewVoider(c.store, nil, c.store, time.Now)
	if c.redis != nil {
		voider = workers.NewVoider(c.store, c.redis, c.likes, time.Now)
	}
	likes, done, err := voider.Void(ctx)
	return fmt.Sprintf("took back %d likes, %d requests are done", likes, done), err
}

// moderate deletes and restores what moderators asked for of all that a user wrote.
func (c *core) moderate(ctx context.Context) (string, error) {
	changed, err := workers.NewModerator(c.store, c.targets).Moderate(ctx)
	return fmt.Sprintf("deleted or restored %d posts and comments", changed), err
}

// closeDeleted tells the gate of deletions whose process died before it could.
func (c *core) closeDeleted(ctx context.Context) (string, error) {
	closed, err := workers.NewCloser(c.store, c.targets).Close(ctx)
	return fmt.Sprintf("closed %d posts and comments", closed), err
}

// export builds the archives that users asked for, and deletes those that have expired.
func (c *core) export(ctx context.Context) (string, error) {
	built, removed, err := workers.NewExporter(c.store).Export(ctx)
	return fmt.Sprintf("built %d archives, deleted %d", built, removed), err
}
