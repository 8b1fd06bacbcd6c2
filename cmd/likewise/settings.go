package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"likewise/counters"
	"likewise/handlers"
	"likewise/migrations"
	"likewise/models"
	"likewise/workers"
)

// commandVars are the figures that help texts and defaults take from the code.
func commandVars() kong.Vars {
	return kong.Vars{
		"shards":       strconv.Itoa(migrations.DefaultShards),
		"like_limit":   strconv.Itoa(handlers.DefaultLikeLimit),
		"outbox_limit": strconv.Itoa(counters.DefaultOutboxLimit),
		"min_cool":     workers.MinCoolAfter.String(),

		"dev_help":   "Run everything in one process, with private MariaDB, Redis and Kafka servers.",
		"bench_help": "Measure likes side by side on private servers, and print ratios.",
	}
}

// minMySQLConns leaves connections to short requests while a list waits for its turn with one.
const minMySQLConns = 4

// mysqlFlags say where the record of truth is.
type mysqlFlags struct {
	MySQLDSN   string `name:"mysql-dsn" env:"LIKEWISE_MYSQL_DSN" required:"" placeholder:"USER:PASSWORD@tcp(HOST:3306)/DATABASE" help:"MySQL, MariaDB or TiDB database."`
	MySQLConns int    `name:"mysql-conns" env:"LIKEWISE_MYSQL_CONNS" default:"32" help:"Connections to MySQL at most; at least 4."`
}

func (f mysqlFlags) open(ctx context.Context, retried *prometheus.CounterVec) (*models.Store, error) {
	if f.MySQLConns < minMySQLConns {
		return nil, fmt.Errorf("--mysql-conns must be at least %d", minMySQLConns)
	}
	options := models.Options{MaxConns: f.MySQLConns}
	if retried != nil {
		for _, cause := range models.RetryCauses {
			retried.WithLabelValues(string(cause)) // shown from the start, so that an alert sees the first one
		}
		options.Retried = func(cause models.RetryCause) { retried.WithLabelValues(string(cause)).Inc() }
	}
	return models.Open(ctx, f.MySQLDSN, options)
}

// setting is something that a command may not be able to do without.
type setting struct {
	flag, env, value string
	unless           string // what makes it needless, if anything does
	form             string // what the value should look like, if it does not
}

// required names every setting that is not there, as a flag and as a variable, or one that cannot be read. It is asked
// before kong's own check, which names the flags alone and knows nothing of what --likes changes. Values hold
// passwords: neither they nor what a parser says of them is shown.
func required(settings ...setting) error {
	var missing []string
	for _, s := range settings {
		if s.value == "" {
			missing = append(missing, fmt.Sprintf("--%s (or $%s)%s", s.flag, s.env, s.unless))
		}
	}
	if len(missing) > 0 {
		return errors.New("missing: " + strings.Join(missing, ", "))
	}
	for _, s := range settings {
		if s.form != "" {
			return fmt.Errorf("--%s (or $%s) is not of the form %s", s.flag, s.env, s.form)
		}
	}
	return nil
}

// Validate asks for what is missing; a command that needs more than MySQL has its own.
func (f mysqlFlags) Validate() error { return required(f.setting()) }

func (f mysqlFlags) setting() setting { return mysqlSetting(f.MySQLDSN) }

func mysqlSetting(dsn string) setting {
	s := setting{flag: "mysql-dsn", env: "LIKEWISE_MYSQL_DSN", value: dsn}
	if _, err := models.DSN(dsn); err != nil {
		s.form = "USER:PASSWORD@tcp(HOST:3306)/DATABASE"
	}
	return s
}

// likesFlags choose how likes are taken, and where the gate is.
type likesFlags struct {
	Likes       string `enum:"gated,direct" default:"gated" env:"LIKEWISE_LIKES" help:"gated: through Redis and Kafka. direct: one MySQL transaction a like, for small sites without Redis and Kafka."`
	Redis       string `env:"LIKEWISE_REDIS" placeholder:"redis://HOST:6379/0" help:"Redis 7.0 or later, or Valkey. With ?master_name=NAME&addr=HOST:PORT Sentinel; as redis+cluster://HOST:PORT?addr=HOST:PORT a cluster."`
	OutboxLimit int    `env:"LIKEWISE_OUTBOX_LIMIT" default:"${outbox_limit}" help:"Likes that may wait for Kafka in each shard before more are refused."`
}

func (f likesFlags) gated() bool { return f.Likes == "gated" }

// gateURL is where Redis is, "" in direct mode.
func (f likesFlags) gateURL() string {
	if !f.gated() {
		return ""
	}
	return f.Redis
}

func (f likesFlags) setting() setting {
	if !f.gated() {
		return setting{value: "needless"}
	}
	s := redisSetting(f.Redis)
	s.unless = " unless --likes=direct"
	return s
}

func redisSetting(url string) setting {
	s := setting{flag: "redis", env: "LIKEWISE_REDIS", value: url}
	// Opening connects to nothing, and knows best what it can read.
	r, err := counters.Open(url, 1)
	if err != nil {
		s.form = "redis://HOST:6379/0"
		return s
	}
	_ = r.Close() // there is nothing to close
	return s
}

// kafkaFlags say where the event log is.
type kafkaFlags struct {
	Kafka    []string `env:"LIKEWISE_KAFKA" placeholder:"HOST:9092" help:"Kafka brokers to start from."`
	Topic    string   `env:"LIKEWISE_TOPIC" default:"likewise.likes" help:"Topic of the like events; created when it is missing."`
	Replicas int16    `env:"LIKEWISE_REPLICAS" default:"0" help:"Replicas of the topic when it is created; 0: the broker's default."`
	Group    string   `env:"LIKEWISE_GROUP" default:"likewise" help:"Consumer group of the like writers."`
}

func (f kafkaFlags) config() workers.Kafka {
	return workers.Kafka{Brokers: f.Kafka, Topic: f.Topic, Replicas: f.Replicas, Group: f.Group}
}

func (f kafkaFlags) setting() setting {
	return setting{flag: "kafka", env: "LIKEWISE_KAFKA", value: strings.Join(f.Kafka, ",")}
}

// originFlags say whose pages may use the API.
type originFlags struct {
	CORSOrigins []string `name:"cors-origins" env:"LIKEWISE_CORS_ORIGINS" placeholder:"https://forum.example" help:"Origins whose pages may use the API from a browser, separated by commas; * alone means all, and none is none."`
}

func (f originFlags) check() error {
	if err := handlers.CheckOrigins(f.CORSOrigins); err != nil {
		return fmt.Errorf("--cors-origins (or $LIKEWISE_CORS_ORIGINS): %w", err)
	}
	return nil
}

// core is what every role of the product is made of.
type core struct {
	registry *prometheus.Registry
	store    *models.Store
	redis    *counters.Redis // nil in direct mode
	likes    *counters.Likes // nil in direct mode
	targets  counters.Targets
	metrics  *workers.Metrics
}

// openCore connects to MySQL and, in gated mode, prepares the gate. The caller closes it.
func openCore(ctx context.Context, m mysqlFlags, l likesFlags) (*core, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	retried := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "likewise_transaction_retries_total",
		Help: "Transactions that failed for a cause that running them again may cure: deadlock, lock_wait or changed, a row that changed between reading and writing it."},
		[]string{"cause"})
	registry.MustRegister(retried)
	store, err := m.open(ctx, retried)
	if err != nil {
		return nil, err
	}
	registry.MustRegister(collectors.NewDBStatsCollector(store.Pool(), "likewise"))
	c := &core{registry: registry, store: store, targets: counters.NewTargets(store, nil), metrics: workers.NewMetrics(registry)}
	if !l.gated() {
		return c, nil
	}
	if err := c.openGate(l); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *core) openGate(l likesFlags) error {
	if l.OutboxLimit < 1 {
		return errors.New("--outbox-limit must be at least 1")
	}
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "likewise_gate_total",
		Help: "Calls of the gate, by outcome."}, []string{"outcome"})
	c.registry.MustRegister(outcomes)
	for _, o := range counters.Outcomes() {
		outcomes.WithLabelValues(string(o)) // so that a rate has a beginning
	}
	var err error
	if c.redis, err = counters.Open(l.Redis, c.store.Shards()); err != nil {
		return err
	}
	c.likes = counters.NewLikes(c.redis, c.store, counters.LikesOptions{OutboxLimit: l.OutboxLimit,
		Count: func(o counters.Outcome) { outcomes.WithLabelValues(string(o)).Inc() }})
	c.targets = counters.NewTargets(c.store, c.likes)
	return nil
}

// checkPolicy refuses to go on with a Redis that throws likes away when memory is short. A Redis that is away is no
// reason to stop: it is checked again when the process is started the next time.
func (c *core) checkPolicy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := c.redis.CheckPolicy(ctx)
	if errors.Is(err, counters.ErrEvicts) {
		return err
	}
	return nil
}

func (c *core) close() error {
	var err error
	if c.redis != nil {
		err = c.redis.Close()
	}
	if err = errors.Join(err, c.store.Close()); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
