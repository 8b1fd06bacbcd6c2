package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"likewise/counters"
	"likewise/handlers"
	"likewise/handlers/network"
	"likewise/images"
	"likewise/workers"
)

// drainLimit bounds the time for requests and batches in progress after the process was told to stop. Unfinished work
// is safe: it is in Redis or Kafka, or its client got no answer.
const drainLimit = 9 * time.Second

type apiCmd struct {
	mysqlFlags
	likesFlags
	originFlags
	doorFlags
	secretFlags
	webhookFlags
	imageFlags
	roomFlags
	smtpFlag
	secretKeyFlag
	staffFlags
	Listen      string        `env:"LIKEWISE_LISTEN" default:":8080" help:"Address to serve on."`
	AdminListen string        `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:9080" help:"${admin_help}"`
	Drain       time.Duration `env:"LIKEWISE_DRAIN" default:"5s" help:"${drain_help}"`
}

// maxDrain is less than supervisors wait before they kill a process, if they are told to wait long.
const maxDrain = 10 * time.Minute

func (a *apiCmd) checkDrain() error {
	if a.Drain < 0 || a.Drain > maxDrain {
		return fmt.Errorf("--drain (or $LIKEWISE_DRAIN) must be from 0s to %s", maxDrain)
	}
	return nil
}

// Validate reports missing and invalid settings.
func (a *apiCmd) Validate() error {
	return errors.Join(required(a.mysqlFlags.setting(), a.likesFlags.setting()), a.originFlags.check(),
		a.doorFlags.check(), a.imageFlags.check(), a.roomFlags.check(),
		a.secretFlags.check(a.MySQLDSN, a.gateURL()), a.smtpFlag.check(a.PublicURL), a.checkMail(a.SMTP != ""),
		a.checkKey(), a.checkDrain())
}

// Run serves the API until ctx ends.
func (a *apiCmd) Run(ctx context.Context, out output) error {
	c, err := openCore(ctx, out.log, a.mysqlFlags, a.likesFlags)
	if err != nil {
		return err
	}
	c.export(roleAPI)
	if a.gated() {
		if err := c.checkPolicy(ctx); err != nil {
			return errors.Join(err, c.close())
		}
	}
	listener, err := network.ListenTCP(ctx, a.Listen)
	if err != nil {
		return errors.Join(err, c.close())
	}
	admin, err := listenAdmin(a.AdminListen)
	if err != nil {
		return errors.Join(err, listener.Close(), c.close())
	}
	config := handlers.Config{PrivateWebhooks: a.PrivateWebhooks}
	a.openFrontEnd(&config)
	config.Room, config.Mail = a.room(), a.SMTP != ""
	a.staffFlags.open(&config)
	if a.SecretKeyFile != "" {
		if config.SecretKey, err = a.key(); err != nil {
			return errors.Join(err, admin.Close(), listener.Close(), c.close())
		}
	} else if config.StaffSecondFactor {
		c.log.WarnContext(ctx, "moderators and admins need a second factor and cannot add one: set --secret-key-file, "+
			"or --staff-second-factor=optional")
	}
	if config.Images, err = a.imageFlags.open(ctx); err != nil {
		return errors.Join(err, admin.Close(), listener.Close(), c.close())
	}
	if err := a.doorFlags.open(&config, a.likesFlags, c.registry); err != nil {
		return errors.Join(err, admin.Close(), listener.Close(), c.close())
	}
	defer closeLimiter(c.log, config.Limiter)
	c.log.InfoContext(ctx, "api serves", "address", listener.Addr().String(), "likes", a.Likes)
	return errors.Join(c.withAdmin(ctx, admin, func() error {
		return c.serveAPI(ctx, listener, config, a.Drain)
	}), c.close())
}

// serveAPI answers requests on listener, within the limits of config, until ctx ends, drain has passed and the requests
// in progress are answered.
func (c *core) serveAPI(
	ctx context.Context, listener net.Listener, config handlers.Config, drain time.Duration,
) error {
	config.Logger, config.Registry = c.log, c.registry
	config.LogPaths, config.MakeImage = onConsole(c.log), images.MakeApart
	config.Store, config.Likes = c.store, c.likes
	config.Claims, config.IDs = c.claims, counters.NewIDs(c.redis, c.store)
	if c.redis != nil {
		config.Edition, config.Peers = counters.NewEdition(c.redis), counters.NewPeers(c.redis, c.log)
	}
	config.Desk = workers.NewDesk(c.store, c.redis, c.gate)
	api, err := handlers.New(config)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	failed := make(chan error, 1)
	go func() { failed <- api.Serve(listener) }() //nolint:contextcheck // it serves until Shutdown, longer than ctx
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if drain > 0 {
		c.log.InfoContext(ctx, "api drains: accepting requests until proxies have noticed", "for", drain)
		api.Drain(context.WithoutCancel(ctx), drain)
	}
	c.log.InfoContext(ctx, "api stops: answering the requests in progress")
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	if err := api.Shutdown(draining); err != nil {
		return err
	}
	c.log.InfoContext(ctx, "api stopped")
	return <-failed
}

type workerCmd struct {
	mysqlFlags
	kafkaFlags
	secretFlags
	mailFlags
	Redis       string `env:"LIKEWISE_REDIS" required:"" placeholder:"${redis}" help:"See api."`
	AdminListen string `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:9081" help:"${admin_help}"`
	PublicURL   string `env:"LIKEWISE_PUBLIC_URL" placeholder:"${origin}" help:"${mail_url_help}"`

	RedisTLS tlsFlags `embed:"" prefix:"redis-" envprefix:"LIKEWISE_REDIS_"`
}

// Validate reports missing and invalid settings.
func (w *workerCmd) Validate() error {
	return errors.Join(
		required(w.mysqlFlags.setting(), redisSetting(w.Redis, w.RedisTLS), w.kafkaFlags.setting()),
		w.check(w.MySQLDSN, w.Redis), w.checkMail(w.PublicURL),
	)
}

// Run relays and writes until ctx ends.
func (w *workerCmd) Run(ctx context.Context, out output) error {
	kafka, err := w.log()
	if err != nil {
		return err
	}
	if err := checkKafka(kafka); err != nil {
		return err
	}
	c, err := openCore(ctx, out.log, w.mysqlFlags, gateAt(w.Redis, w.RedisTLS))
	if err != nil {
		return err
	}
	c.export(roleWorker)
	c.pingKafka(kafka)
	if err := c.checkPolicy(ctx); err != nil {
		return errors.Join(err, c.close())
	}
	if err := kafka.Check(ctx, c.store); workers.Misconfigured(err) { // other errors are retried
		return errors.Join(err, c.close())
	}
	admin, err := listenAdmin(w.AdminListen)
	if err != nil {
		return errors.Join(err, c.close())
	}
	mailer, err := w.mailer(c, w.PublicURL)
	if err != nil {
		return errors.Join(err, admin.Close(), c.close())
	}
	work := func() error { c.work(ctx, kafka, c.relay(kafka), mailer); return nil }
	return errors.Join(c.withAdmin(ctx, admin, work), c.close())
}

// gateAt returns the likes flags of a role that does not accept likes itself.
func gateAt(redis string, files tlsFlags) likesFlags {
	return likesFlags{Likes: "gated", Redis: redis, OutboxLimit: counters.DefaultOutboxLimit, RedisTLS: files}
}

// pingKafka makes the admin listener ask Kafka, too.
func (c *core) pingKafka(kafka workers.Kafka) {
	c.servers = append(c.servers, connected{"kafka", kafka.Ping, func() error { return nil }})
}

func (c *core) relay(kafka workers.Kafka) *workers.Relay {
	return workers.NewRelay(c.redis, c.store, kafka, c.metrics)
}

// work runs the relay, the like writer, the monitor and the mailer, if there is one, until ctx ends and they have
// stopped, or drainLimit has passed.
func (c *core) work(ctx context.Context, kafka workers.Kafka, relay *workers.Relay, mailer *workers.Mailer) {
	var running sync.WaitGroup
	running.Go(func() { relay.Run(ctx) })
	running.Go(func() { workers.NewLikeWriter(c.store, kafka, c.metrics).Run(ctx) })
	running.Go(func() { c.metrics.Monitor(ctx, c.redis, c.store) })
	if mailer != nil {
		running.Go(func() { mailer.Run(ctx) })
	}
	c.log.InfoContext(ctx, "worker runs", "shards", c.store.Shards(), "topic", kafka.Topic)
	<-ctx.Done()
	c.log.InfoContext(ctx, "worker stops: finishing the batches in progress")
	if !workers.AwaitGroup(&running, drainLimit) {
		c.log.WarnContext(ctx, "worker leaves an unfinished batch to another worker")
		return
	}
	c.log.InfoContext(ctx, "worker stopped")
}
