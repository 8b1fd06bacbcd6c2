package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"likewise/images"
	"likewise/workers"
)

type cronCmd struct {
	Serve cronServeCmd `cmd:"" default:"withargs" help:"${cron_help}"`
	Run   cronRunCmd   `cmd:"" help:"Run one job once, for another scheduler."`
}

// cronFlags configure the jobs.
type cronFlags struct {
	mysqlFlags
	kafkaFlags
	likesFlags
	secretFlags
	webhookFlags
	imageFlags

	CoolAfter time.Duration `env:"LIKEWISE_COOL_AFTER" default:"${cool_after}" help:"${cool_after_help}"`
}

// Validate reports missing settings.
func (f *cronFlags) Validate() error {
	weak := errors.Join(f.secretFlags.check(f.MySQLDSN, f.gateURL()), f.imageFlags.check())
	if !f.gated() {
		return errors.Join(required(f.mysqlFlags.setting()), weak)
	}
	return errors.Join(required(f.mysqlFlags.setting(), f.likesFlags.setting(), f.kafkaFlags.setting()), weak)
}

// open connects to the servers. The caller closes core.
func (f *cronFlags) open(ctx context.Context, log *slog.Logger) (*core, *workers.Jobs, error) {
	if f.CoolAfter < workers.MinCoolAfter {
		return nil, nil, fmt.Errorf("--cool-after must be at least %s", workers.MinCoolAfter)
	}
	kafka, err := f.log()
	if err != nil {
		return nil, nil, err
	}
	if f.gated() {
		if err := checkKafka(kafka); err != nil {
			return nil, nil, err
		}
	}
	c, err := openCore(ctx, log, f.mysqlFlags, f.likesFlags)
	if err != nil {
		return nil, nil, err
	}
	store, err := f.store() // a storage that is down must not keep the other jobs from running
	if err != nil {
		return nil, nil, errors.Join(err, c.close())
	}
	return c, c.jobs(kafka, f.CoolAfter, f.PrivateWebhooks, store), nil
}

func (c *core) jobs(
	kafka workers.Kafka, coolAfter time.Duration, privateWebhooks bool, objects images.Store,
) *workers.Jobs {
	return workers.NewJobs(workers.JobsConfig{
		Store: c.store, Redis: c.redis, Likes: c.gate, Claims: c.claims, Targets: c.targets,
		Kafka: kafka, Metrics: c.metrics, Registry: c.registry, CoolAfter: coolAfter,
		PrivateWebhooks: privateWebhooks, Images: objects,
	})
}

type cronServeCmd struct {
	cronFlags

	AdminListen string `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:9082" help:"${admin_help}"`
}

// Run runs the jobs until ctx ends.
func (s *cronServeCmd) Run(ctx context.Context, out output) error {
	c, jobs, err := s.open(ctx, out.log)
	if err != nil {
		return err
	}
	c.export(roleCron)
	admin, err := listenAdmin(s.AdminListen)
	if err != nil {
		return errors.Join(err, c.close())
	}
	return errors.Join(c.withAdmin(ctx, admin, func() error { jobs.Serve(ctx); return nil }), c.close())
}

type cronRunCmd struct {
	cronFlags

	Job     string        `arg:"" enum:"${jobs}" help:"${jobs_help}"`
	Timeout time.Duration `default:"0s" help:"Time after which the job is canceled; 0s is the limit of the job."`
}

// Run runs one job and prints what it did.
func (r *cronRunCmd) Run(ctx context.Context, out output) error {
	c, jobs, err := r.open(ctx, out.log)
	if err != nil {
		return err
	}
	defer c.close()
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	result, err := jobs.Run(ctx, r.Job)
	if err == nil {
		fmt.Fprintln(out.stdout, result)
	}
	return err
}

// jobTexts returns the names of the jobs, and their purposes for --help.
func jobTexts() (names, help string) {
	var listed, explained []string
	for _, job := range workers.Schedule() {
		listed = append(listed, job.Name)
		explained = append(explained, job.Name+": "+job.Purpose)
	}
	return strings.Join(listed, ","), strings.Join(explained, " ")
}
