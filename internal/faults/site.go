package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"likewise/internal/faults/oracle"
	"likewise/internal/servers"
)

// site is a whole installation: servers, proxies in front of them, and the product's processes, which connect to the
// proxies. The harness connects to the servers directly, so that it can inspect and repair them while a link is cut.
type site struct {
	dir    string // logs and, unless there is a tmpfs, the servers' folders
	binary string
	began  time.Time

	clustered bool // Redis is a cluster

	mysql   *servers.MySQL
	redis   server         // one server, or the cluster
	single  *servers.Redis // nil with a cluster
	kafka   *servers.Kafka
	cluster *redisCluster // nil with one server
	noFull  string        // why disks cannot be filled; empty if they can

	noClocks       string // why clocks of the product cannot be set
	noServerClocks string // why clocks of servers cannot be set
	library        string // path of the library with the clock of servers
	serverClocks   map[string]clock
	skewMu         sync.Mutex
	skewed         []pause         // when Redis's clock was off
	skews          []time.Duration // by how much, for each of skewed
	stepped        []pause         // when any clock was off

	toMySQL, toRedis, toKafka *proxy
	toAPIs                    []*proxy // for some of the clients
	db                        *sql.DB
	rdb                       *redis.Client

	env                   []string
	apis, workers, crons  []*process
	urls                  []string     // of the APIs, and then of the proxies in front of them
	trouble               atomic.Int64 // odd from the begin of a fault until the site has recovered
	serverDeaths          atomic.Int64 // servers that ended by themselves
	logLosses             atomic.Int64 // runs that a fault took from the log
	slowStops, extraCount atomic.Int64
}

const (
	database        = "likewise"
	productUser     = "product"
	productPassword = "correct-horse-battery-staple"
)

func (s *site) since() time.Duration { return time.Since(s.began) }

// product returns the processes that must be running at the end.
func (s *site) product() []*process {
	var all []*process
	all = append(all, s.apis...)
	all = append(all, s.workers...)
	return append(all, s.crons...)
}

// startServers starts the three servers, each in its own folder of disk, and the proxies.
func (s *site) startServers(ctx context.Context, disk, fsync string) error {
	var err error
	for _, p := range []**proxy{&s.toMySQL, &s.toRedis, &s.toKafka} {
		if *p, err = newProxy(); err != nil {
			return err
		}
	}
	if s.mysql, err = servers.StartMySQL(ctx, filepath.Join(disk, "mysql")); err != nil {
		return err
	}
	if err := s.startRedis(ctx, filepath.Join(disk, "redis"), fsync); err != nil {
		return err
	}
	if s.kafka, err = servers.StartKafkaBehind(ctx, filepath.Join(disk, "kafka"), s.toKafka.addr()); err != nil {
		return err
	}
	if err := s.giveClocks(ctx); err != nil {
		return err
	}
	s.toMySQL.lead(s.mysql.Addr())
	if s.single != nil {
		s.toRedis.lead(s.single.Addr())
		s.rdb = redis.NewClient(&redis.Options{Addr: s.single.Addr(), MaxRetries: -1, DisableIdentity: true})
	}
	s.toKafka.lead(s.kafka.Addr())
	if s.db, err = sql.Open("mysql", s.mysql.DSN("")+"&timeout=2s&readTimeout=20s&writeTimeout=20s"); err != nil {
		return fmt.Errorf("open mysql: %w", err)
	}
	s.db.SetMaxIdleConns(1)
	// The account is not an administrator, who may write to a read-only server.
	for _, statement := range []string{
		"CREATE DATABASE " + database + " CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
		fmt.Sprintf("CREATE USER '%s'@'127.0.0.1' IDENTIFIED BY '%s'", productUser, productPassword),
		fmt.Sprintf("GRANT ALL ON %s.* TO '%s'@'127.0.0.1'", database, productUser),
	} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("prepare mysql: %w", err)
		}
	}
	return nil
}

// startRedis starts one Redis, or a cluster.
func (s *site) startRedis(ctx context.Context, dir, fsync string) error {
	var err error
	if s.clustered {
		s.cluster, err = startRedisCluster(ctx, dir, fsync)
		s.redis = s.cluster
		return err
	}
	// One of the faults uses the command DEBUG.
	s.single, err = servers.StartRedis(ctx, dir, "--appendfsync", fsync, "--enable-debug-command", "local")
	s.redis = s.single
	return err
}

// redisURL returns the address of Redis for the product.
func (s *site) redisURL() string {
	if s.clustered {
		return s.cluster.url()
	}
	return "redis://" + s.toRedis.addr() + "/0"
}

// giveClocks restarts MySQL and Redis with clocks that can be set.
func (s *site) giveClocks(ctx context.Context) error {
	if s.noServerClocks == "" && os.Getenv("LIKEWISE_SERVERS_MYSQL") != "" {
		s.noServerClocks = "MySQL runs in a folder tree of its own"
	}
	if s.noServerClocks == "" && s.clustered {
		s.noServerClocks = "Redis is a cluster"
	}
	if s.noServerClocks != "" {
		return nil
	}
	s.serverClocks = map[string]clock{}
	for name, server := range map[string]*servers.Server{"mysql": s.mysql.Server, "redis": s.single.Server} {
		c, err := newClock(s.dir, name)
		if err != nil {
			return err
		}
		s.serverClocks[name] = c
		server.Setenv("LD_PRELOAD="+s.library, c.env())
		if err := errors.Join(server.Stop(ctx), server.Start(ctx)); err != nil {
			return fmt.Errorf("restart %s with a clock: %w", name, err)
		}
	}
	return nil
}

// startProduct installs the schema and starts two processes of each role.
func (s *site) startProduct(ctx context.Context) error {
	dsn, err := mysql.ParseDSN(s.mysql.DSN(database))
	if err != nil {
		return fmt.Errorf("read dsn: %w", err)
	}
	dsn.Addr, dsn.User, dsn.Passwd = s.toMySQL.addr(), productUser, productPassword
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "TZ=UTC",
		"LIKEWISE_MYSQL_DSN=" + dsn.FormatDSN(),
		"LIKEWISE_REDIS=" + s.redisURL(),
		"LIKEWISE_KAFKA=" + s.toKafka.addr(),
		"LIKEWISE_COOL_AFTER=5m", // the minimum
		"LIKEWISE_LIMITS=0",      // all clients have the same address
		"LIKEWISE_ADMIN_LISTEN=127.0.0.1:0",
	}
	if out, err := s.command(ctx, "migrate", "up"); err != nil {
		return fmt.Errorf("migrate: %w: %s", err, out)
	}
	for i := range 2 {
		port, err := freePort()
		if err != nil {
			return err
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s.urls = append(s.urls, "http://"+address)
		front, err := newProxy()
		if err != nil {
			return err
		}
		front.lead(address)
		s.toAPIs = append(s.toAPIs, front)
		for _, role := range []struct {
			name string
			list *[]*process
			env  []string
		}{
			{"api", &s.apis, []string{"LIKEWISE_LISTEN=" + address, "LIKEWISE_DRAIN=0s"}},
			{"worker", &s.workers, nil},
			{"cron", &s.crons, nil},
		} {
			p, err := s.process(fmt.Sprintf("%s%d", role.name, i+1), role.env, role.name)
			if err != nil {
				return err
			}
			*role.list = append(*role.list, p)
		}
	}
	for _, front := range s.toAPIs {
		s.urls = append(s.urls, "http://"+front.addr())
	}
	for _, p := range s.product() {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

// heldAt returns the times in which an API may not have read requests: it was paused or, for clients behind a proxy,
// the proxy held them.
func (s *site) heldAt(api int) []oracle.Span {
	var held []oracle.Span
	if i := api % 2; i < len(s.apis) {
		held = s.spans(s.apis[i].pauses())
		if api >= 2 {
			held = append(held, s.spans(s.toAPIs[i].holds())...)
		}
	}
	return held
}

// spans converts times of the clock to times of the run.
func (s *site) spans(list []pause) []oracle.Span {
	spans := make([]oracle.Span, len(list))
	for i, p := range list {
		spans[i] = oracle.Span{Begin: p.begin.Sub(s.began), End: oracle.Forever}
		if !p.end.IsZero() {
			spans[i].End = p.end.Sub(s.began)
		}
	}
	return spans
}

func (s *site) process(name string, env []string, args ...string) (*process, error) {
	c, err := newClock(s.dir, name)
	return &process{
		name:   name,
		binary: s.binary,
		args:   args,
		env:    append(append(env, c.env()), s.env...),
		log:    filepath.Join(s.dir, "logs", name+".log"),
		clock:  c,
	}, err
}

func freePort() (int, error) {
	l, err := listenLow()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// command runs `likewise args` and returns its output.
func (s *site) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only the harness
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// server has the methods that the three servers share.
type server interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Kill() error
	Pause() error
	Resume() error
}

// singleServer is a server of its own.
type singleServer interface {
	server
	Exited() <-chan struct{}
	Dir() string
}

func (s *site) servers() []singleServer {
	list := []singleServer{s.mysql, s.kafka}
	if !s.clustered {
		return append(list, s.single)
	}
	for _, node := range s.cluster.nodes {
		list = append(list, node)
	}
	return list
}

// revive restarts servers that ended by themselves, as a supervisor does. Redis, for example, ends if its disk is full.
func (s *site) revive(ctx context.Context) error {
	var err error
	for _, v := range s.servers() {
		select {
		case <-v.Exited():
			s.serverDeaths.Add(1)
			err = errors.Join(err, v.Start(ctx))
		default:
		}
	}
	return err
}

// stop stops all processes and servers, and continues after errors.
func (s *site) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, p := range s.product() {
		p.kill()
	}
	if s.db != nil {
		s.db.Close()
	}
	if s.rdb != nil {
		s.rdb.Close()
	}
	all := &servers.All{MySQL: s.mysql, Redis: s.single, Kafka: s.kafka}
	err := all.Stop(ctx)
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Stop(ctx))
	}
	return err
}
