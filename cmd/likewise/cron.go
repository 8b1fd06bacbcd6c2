package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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
	mailFlags

	AdminListen string `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:9082" help:"${admin_help}"`
	PublicURL   string `env:"LIKEWISE_PUBLIC_URL" placeholder:"${origin}" help:"${mail_url_help}"`
}

// Validate reports missing and invalid settings. A site with a gate has workers, which send its mails.
func (s *cronServeCmd) Validate() error {
	if s.gated() {
		return s.cronFlags.Validate()
	}
	return errors.Join(s.cronFlags.Validate(), s.checkMail(s.PublicURL))
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
	mailer, err := s.directMailer(c)
	if err != nil {
		return errors.Join(err, admin.Close(), c.close())
	}
	return errors.Join(c.withAdmin(ctx, admin, func() error {
		var running sync.WaitGroup
		if mailer != nil {
			running.Go(func() { mailer.Run(ctx) })
		}
		jobs.Serve(ctx)
		running.Wait()
		return nil
	}), c.close())
}

// directMailer returns the mailer of a site without workers; nil if there are workers, or mail is off.
func (s *cronServeCmd) directMailer(c *core) (*workers.Mailer, error) {
	if s.gated() {
		return nil, nil
	}
	return s.mailer(c, s.PublicURL)
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
