//go:build dev

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sethvargo/go-retry"

	"likewise/counters"
	"likewise/handlers"
	"likewise/internal/servers"
	"likewise/migrations"
	"likewise/models"
	"likewise/workers"
)

// devCommands are the commands that start private servers. See exec.go for those of the production binary.
type devCommands struct {
	Dev   devCmd   `cmd:"" help:"${dev_help}"`
	Bench benchCmd `cmd:"" help:"${bench_help}"`
}

// serveBroker serves Kafka, and does not return, in a process that was started as the embedded broker.
func serveBroker() { servers.Main() }

type devCmd struct {
	originFlags
	accountFlags
	Data   string `env:"LIKEWISE_DATA" default:".data" type:"path" help:"Folder of the servers' data."`
	Listen string `env:"LIKEWISE_LISTEN" default:"127.0.0.1:8080" help:"Address of the API."`
	// Port 0 is any free one.
	AdminListen string `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:0" help:"${admin_dev_help}"`
	// The only client is the developer, whose scripts may be fast.
	Limits float64 `env:"LIKEWISE_LIMITS" default:"0" help:"${limits_dev_help}"`
}

// Validate reports invalid settings.
func (d *devCmd) Validate() error {
	return errors.Join(d.originFlags.check(), d.door().check())
}

func (d *devCmd) door() doorFlags {
	return doorFlags{Limits: d.Limits, LikeLimit: handlers.DefaultLikeLimit, accountFlags: d.accountFlags}
}

const devDatabase = "likewise"

// Run runs the servers and every role until ctx ends.
func (d *devCmd) Run(ctx context.Context, out output) error {
	listener, err := net.Listen("tcp", d.Listen) // first, so that a second `likewise dev` fails at once
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	admin, err := listenAdmin(d.AdminListen)
	if err != nil {
		return err
	}
	defer admin.Close()
	all, err := servers.StartAll(ctx, d.Data)
	if err != nil {
		return err
	}
	err = d.serve(ctx, out, all, listener, admin)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(err, all.Stop(stopping))
}

func (d *devCmd) serve(ctx context.Context, out output, all *servers.All, listener, admin net.Listener) error {
	dsn, err := prepareDatabase(ctx, all.MySQL, devDatabase)
	if err != nil {
		return err
	}
	kafka := devKafka(all)
	c, err := openCore(ctx, out.log, mysqlFlags{MySQLDSN: dsn, MySQLConns: 32}, gateAt(all.Redis.URL()))
	if err != nil {
		return err
	}
	defer c.close()
	env, err := d.writeEnv(dsn, admin, all)
	if err != nil {
		return err
	}

	// The roles stop in the order in which a like passes them, so that each hands its likes to the next.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var roles sync.WaitGroup
	roles.Go(func() { c.work(background, kafka) })
	roles.Go(func() { c.jobs(kafka, workers.DefaultCoolAfter).Serve(background) })
	defer roles.Wait()
	defer stop()

	if err := c.awaitOpen(ctx); err != nil {
		return err
	}
	if err := d.greet(ctx, out, c, listener, admin, env); err != nil {
		return err
	}
	config := handlers.Config{Origins: d.Origins}
	if err := d.door().open(&config, all.Redis.URL(), c.registry); err != nil {
		return err
	}
	defer closeLimiter(c.log, config.Limiter)
	return c.withAdmin(ctx, admin, func() error { return c.serveAPI(ctx, listener, config) })
}

// devKafka returns the settings of the event log on private servers.
func devKafka(all *servers.All) workers.Kafka {
	return workers.Kafka{Brokers: all.Kafka.Brokers(), Topic: "likewise.likes", Group: "likewise"}
}

// prepareDatabase creates the database on a private server if it is missing, and migrates it.
func prepareDatabase(ctx context.Context, server *servers.MySQL, name string) (dsn string, err error) {
	db, err := sql.Open("mysql", server.DSN(""))
	if err != nil {
		return "", fmt.Errorf("open mysql: %w", err)
	}
	defer db.Close()
	create := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %s CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", name)
	_, err = db.ExecContext(ctx, create)
	if err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	if dsn, err = models.DSN(server.DSN(name)); err != nil {
		return "", err
	}
	return dsn, migrations.Up(ctx, dsn, 0)
}

// awaitOpen waits until every shard accepts likes, so that the first request after the greeting does not get a 503.
func (c *core) awaitOpen(ctx context.Context) error {
	poll := retry.WithMaxDuration(30*time.Second, retry.NewConstant(10*time.Millisecond))
	err := retry.Do(ctx, poll, func(ctx context.Context) error {
		infos, err := c.redis.ShardInfos(ctx)
		closed := slices.DeleteFunc(infos, func(info counters.ShardInfo) bool { return info.Open })
		if len(closed) > 0 {
			err = fmt.Errorf("%d shards are closed", len(closed))
		}
		return retry.RetryableError(err)
	})
	if err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "some shards do not accept likes yet", "error", err)
		return nil
	}
	return err
}

// writeEnv writes the settings of the running servers for a shell, readable by the owner alone.
func (d *devCmd) writeEnv(dsn string, admin net.Listener, all *servers.All) (path string, err error) {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	path = filepath.Join(d.Data, "dev.env")
	text := "# Settings of the running development servers: set -a; . " + quote(path) + "; set +a\n" +
		"LIKEWISE_MYSQL_DSN=" + quote(dsn) + "\n" +
		"LIKEWISE_REDIS=" + quote(all.Redis.URL()) + "\n" +
		"LIKEWISE_KAFKA=" + quote(strings.Join(all.Kafka.Brokers(), ",")) + "\n" +
		"LIKEWISE_ADMIN_URL=" + quote("http://"+admin.Addr().String()) + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write settings: %w", err)
	}
	return path, nil
}

// greet creates the administrator on the first start, and prints the addresses and paths.
func (d *devCmd) greet(
	ctx context.Context, out output, c *core, listener, adminListener net.Listener, env string,
) error {
	url, adminURL := "http://"+listener.Addr().String(), "http://"+adminListener.Addr().String()
	admin, err := c.firstAdmin(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out.stdout, `
Likewise runs.

  API        %s/v1/posts
  readiness  %s/readyz
  metrics    %s/metrics
  data       %s
  settings   set -a; . %s; set +a
`, url, adminURL, adminURL, d.Data, env)
	if admin != "" {
		fmt.Fprintf(out.stdout, "  login      admin, password %s (shown this once)\n", admin)
	}
	fmt.Fprintf(out.stdout, "\nStop it with Ctrl-C.\n\n")
	return nil
}

// firstAdmin creates the account "admin" if there are no accounts, and returns its password.
func (c *core) firstAdmin(ctx context.Context) (password string, err error) {
	ids, err := c.store.UserIDs(ctx, 1)
	if err != nil || len(ids) > 0 {
		return "", err
	}
	password, _ = models.NewToken()
	admin := models.Registration{Username: "admin", Email: "admin@likewise.example", Password: password}
	_, err = createUser(ctx, c.store, admin, "admin")
	return password, err
}
