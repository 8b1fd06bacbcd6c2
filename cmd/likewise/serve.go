package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"likewise/counters"
	"likewise/handlers"
	"likewise/workers"
)

// drainLimit bounds how long requests and batches under way may take after the process was told to stop. Whatever is
// not done by then is safe: it is in Redis or Kafka, or its client never got an answer.
const drainLimit = 9 * time.Second

type apiCmd struct {
	mysqlFlags
	likesFlags
	originFlags
	doorFlags
	secretFlags
	Listen      string `env:"LIKEWISE_LISTEN" default:":8080" help:"Address to serve on."`
	AdminListen string `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:9080" help:"Address of /metrics, /readyz and /healthz, which clients must not reach."`
	MaxInFlight int    `env:"LIKEWISE_MAX_IN_FLIGHT" default:"512" help:"Requests that are answered at once; more are refused with 503."`
	MaxStreams  int    `env:"LIKEWISE_MAX_STREAMS" default:"10000" help:"Streams of counts that are open at once, which are no requests in this sense; more are refused with 503. Each needs a file descriptor."`
}

// Validate asks for what is missing.
func (a *apiCmd) Validate() error {
	return errors.Join(required(a.mysqlFlags.setting(), a.likesFlags.setting()), a.originFlags.check(), a.doorFlags.check(),
		a.secretFlags.check(a.MySQLDSN, a.gateURL()))
}

// Run serves the API until ctx ends.
func (a *apiCmd) Run(ctx context.Context) error {
	c, err := openCore(ctx, a.mysqlFlags, a.likesFlags)
	if err != nil {
		return err
	}
	if a.gated() {
		if err := c.checkPolicy(ctx); err != nil {
			return errors.Join(err, c.close())
		}
	}
	listener, err := net.Listen("tcp", a.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), c.close())
	}
	admin, err := listenAdmin(a.AdminListen)
	if err != nil {
		return errors.Join(err, listener.Close(), c.close())
	}
	config := handlers.Config{MaxInFlight: a.MaxInFlight, MaxStreams: a.MaxStreams, Origins: a.CORSOrigins}
	if err := a.doorFlags.open(&config, a.gateURL(), c.registry); err != nil {
		return errors.Join(err, admin.Close(), listener.Close(), c.close())
	}
	defer closeLimiter(config.Limiter)
	slog.InfoContext(ctx, "api serves", "address", listener.Addr().String(), "likes", a.Likes)
	return errors.Join(c.withAdmin(ctx, admin, func() error { return c.serveAPI(ctx, listener, config) }), c.close())
}

// serveAPI answers requests on listener, within the limits of config, until ctx ends and those under way are answered.
func (c *core) serveAPI(ctx context.Context, listener net.Listener, config handlers.Config) error {
	config.Store, config.Likes, config.Registry = c.store, c.store, c.registry
	config.Desk = workers.NewDesk(c.store, c.redis, c.likes)
	if c.likes != nil {
		config.Likes, config.Gate = c.likes, c.likes
	}
	api, err := handlers.New(config)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	failed := make(chan error, 1)
	go func() { failed <- api.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	slog.InfoContext(ctx, "api stops: answering what is under way")
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	if err := api.Shutdown(draining); err != nil {
		return err
	}
	return <-failed
}

type workerCmd struct {
	mysqlFlags
	kafkaFlags
	secretFlags
	Redis       string `env:"LIKEWISE_REDIS" required:"" placeholder:"redis://HOST:6379/0" help:"As for the api."`
	AdminListen string `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:9081" help:"Address of /metrics, /readyz and /healthz, which clients must not reach."`
}

// Validate asks for what is missing.
func (w *workerCmd) Validate() error {
	return errors.Join(required(w.mysqlFlags.setting(), redisSetting(w.Redis), w.kafkaFlags.setting()), w.check(w.MySQLDSN, w.Redis))
}

// Run relays and writes until ctx ends.
func (w *workerCmd) Run(ctx context.Context) error {
	kafka := w.config()
	c, err := openCore(ctx, w.mysqlFlags, gateAt(w.Redis))
	if err != nil {
		return err
	}
	if err := c.checkPolicy(ctx); err != nil {
		return errors.Join(err, c.close())
	}
	admin, err := listenAdmin(w.AdminListen)
	if err != nil {
		return errors.Join(err, c.close())
	}
	return errors.Join(c.withAdmin(ctx, admin, func() error { c.work(ctx, kafka); return nil }), c.close())
}

// gateAt are the likes flags of a role that only needs to know where Redis is.
func gateAt(redis string) likesFlags {
	return likesFlags{Likes: "gated", Redis: redis, OutboxLimit: counters.DefaultOutboxLimit}
}

// work runs the relay, the like writer and the monitor until ctx ends and they have stopped, or drainLimit has passed.
func (c *core) work(ctx context.Context, kafka workers.Kafka) {
	var running sync.WaitGroup
	running.Go(func() { workers.NewRelay(c.redis, c.store, kafka, c.metrics).Run(ctx) })
	running.Go(func() { workers.NewLikeWriter(c.store, kafka, c.metrics).Run(ctx) })
	running.Go(func() { c.metrics.Monitor(ctx, c.redis, c.store) })
	slog.InfoContext(ctx, "worker runs", "shards", c.store.Shards(), "topic", kafka.Topic)
	<-ctx.Done()
	slog.InfoContext(ctx, "worker stops: finishing what is under way")
	if !awaitFor(&running, drainLimit) {
		slog.WarnContext(ctx, "worker leaves a batch to the next one")
	}
}
