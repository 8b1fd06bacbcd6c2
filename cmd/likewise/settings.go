package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"likewise/counters"
	"likewise/handlers"
	"likewise/handlers/markdown"
	"likewise/images"
	"likewise/migrations"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/webhooks"
	"likewise/workers"
)

// minMySQLConns leaves connections to short requests while a list holds one and waits for its turn.
const minMySQLConns = 4

// mysqlFlags configure the connection to MySQL.
type mysqlFlags struct {
	MySQLDSN   string `name:"mysql-dsn" env:"LIKEWISE_MYSQL_DSN" required:"" placeholder:"${dsn}" help:"${mysql_help}"`
	MySQLConns int    `name:"mysql-conns" env:"LIKEWISE_MYSQL_CONNS" default:"32" help:"${mysql_conns_help}"`

	AllowNewerSchema bool `name:"allow-newer-schema" env:"LIKEWISE_ALLOW_NEWER_SCHEMA" help:"${newer_schema_help}"`

	MySQLTLS tlsFlags `embed:"" prefix:"mysql-" envprefix:"LIKEWISE_MYSQL_"`
}

// open connects to MySQL. Tools pass no registry.
func (f mysqlFlags) open(ctx context.Context, log *slog.Logger, registry *prometheus.Registry) (*db.DB, error) {
	if f.MySQLConns < minMySQLConns {
		return nil, fmt.Errorf("--mysql-conns must be at least %d", minMySQLConns)
	}
	options := db.Options{MaxConns: f.MySQLConns, Logger: log, Excerpt: markdown.NewParser().Excerpt,
		Describe: webhooks.Describe}
	if registry != nil {
		countTrouble(registry, &options)
	}
	dsn, err := f.MySQLTLS.withTLS(f.MySQLDSN)
	if err != nil {
		return nil, err
	}
	store, err := db.Open(ctx, dsn, options)
	if fault := settingFault("mysql", err); fault != nil {
		return nil, fault
	}
	if err != nil {
		return nil, err
	}
	if err := f.checkSchema(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// checkSchema returns an error if the schema is that of another version of the program. The schema of the next version
// suits this one, too, but that of a later version may not.
func (f mysqlFlags) checkSchema(ctx context.Context, store *db.DB) error {
	err := migrations.Check(ctx, store.Pool())
	if !errors.Is(err, migrations.ErrNewerSchema) {
		return err
	}
	if f.AllowNewerSchema {
		store.Logger().WarnContext(ctx, "started on a newer schema", "schema", err.Error())
		return nil
	}
	return fmt.Errorf("%w; start the version that migrated it, or, if that is the next version, set "+
		"--allow-newer-schema (or $LIKEWISE_ALLOW_NEWER_SCHEMA)", err)
}

// countTrouble counts the transactions that the database refuses or has run again. The series are exported from the
// start, so that an alert sees the first one.
func countTrouble(registry *prometheus.Registry, options *db.Options) {
	retried := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "likewise_transaction_retries_total",
		Help: "Failed transactions that were retried, by cause: deadlock, lock_wait, " +
			"or changed (a row changed between its read and its write).",
	}, []string{"cause"})
	for _, cause := range db.RetryCauses {
		retried.WithLabelValues(string(cause))
	}
	options.Retried = func(cause db.RetryCause) { retried.WithLabelValues(string(cause)).Inc() }
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "likewise_mysql_refusals_total",
		Help: "Transactions that MySQL refused although it answers, by cause: full (its disk) or read_only.",
	}, []string{"cause"})
	for _, cause := range models.WriteRefusals {
		refused.WithLabelValues(string(cause))
	}
	options.Refused = func(cause models.WriteRefusal) { refused.WithLabelValues(string(cause)).Inc() }
	registry.MustRegister(retried, refused)
}

// setting is a required setting of a command.
type setting struct {
	flag, env, value string
	unless           string // the condition under which the setting is not needed, if there is one
	form             string // the expected form, if the value does not have it
	fault            error  // of settings that belong to it
}

// required returns an error that names every missing setting as a flag and as a variable, or one that cannot be parsed.
// It runs before kong's own check, which names flags alone and does not know what --likes changes. Values hold
// passwords, so neither they nor the messages of parsers are shown.
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
		if s.fault != nil {
			return s.fault
		}
	}
	return nil
}

// Validate reports a missing setting. Commands that need more than MySQL have their own Validate.
func (f mysqlFlags) Validate() error { return required(f.setting()) }

func (f mysqlFlags) setting() setting { return mysqlSetting(f.MySQLDSN, f.MySQLTLS) }

func mysqlSetting(dsn string, files tlsFlags) setting {
	s := setting{flag: "mysql-dsn", env: "LIKEWISE_MYSQL_DSN", value: dsn}
	if _, err := db.DSN(dsn); err != nil {
		s.form = mysqlForm
	} else {
		_, s.fault = files.withTLS(dsn)
	}
	return s
}

// likesFlags choose between the gate and direct mode, and configure the gate.
type likesFlags struct {
	Likes       string `enum:"gated,direct" default:"gated" env:"LIKEWISE_LIKES" help:"${likes_help}"`
	Redis       string `env:"LIKEWISE_REDIS" placeholder:"${redis}" help:"${redis_help}"`
	OutboxLimit int    `env:"LIKEWISE_OUTBOX_LIMIT" default:"${outbox_limit}" help:"${outbox_limit_help}"`

	RedisTLS tlsFlags `embed:"" prefix:"redis-" envprefix:"LIKEWISE_REDIS_"`
}

func (f likesFlags) gated() bool { return f.Likes == "gated" }

// gateURL returns the URL of Redis, or "" in direct mode.
func (f likesFlags) gateURL() string {
	if !f.gated() {
		return ""
	}
	return f.Redis
}

func (f likesFlags) setting() setting {
	if !f.gated() {
		return setting{value: "not needed"}
	}
	s := redisSetting(f.Redis, f.RedisTLS)
	s.unless = " unless --likes=direct"
	return s
}

func redisSetting(url string, files tlsFlags) setting {
	s := setting{flag: "redis", env: "LIKEWISE_REDIS", value: url}
	// Open does not connect, and accepts exactly the valid URLs.
	r, err := counters.Open(url, 1)
	if err != nil {
		s.form = redisForm
		return s
	}
	_ = r.Close() // it has no connections yet
	_, s.fault = files.redisOptions(url)
	return s
}

// kafkaFlags configure the event log.
type kafkaFlags struct {
	Kafka []string `env:"LIKEWISE_KAFKA" placeholder:"HOST:9092" help:"${kafka_help}"`
	Topic string   `env:"LIKEWISE_TOPIC" default:"likewise.likes" help:"${topic_help}"`

	KafkaTLS   bool     `name:"kafka-tls" env:"LIKEWISE_KAFKA_TLS" help:"${kafka_tls_help}"`
	KafkaFiles tlsFlags `embed:"" prefix:"kafka-" envprefix:"LIKEWISE_KAFKA_"`
	saslFlags
}

// log returns the settings of the event log.
func (f kafkaFlags) log() (k workers.Kafka, err error) {
	k = workers.Kafka{Brokers: f.Kafka, Topic: f.Topic}
	if f.KafkaTLS || f.KafkaFiles.given() {
		if k.TLS, err = f.KafkaFiles.config("kafka"); err != nil {
			return k, err
		}
	}
	k.SASL, err = f.account(k.TLS != nil)
	return k, err
}

func (f kafkaFlags) setting() setting {
	_, fault := f.log()
	return setting{flag: "kafka", env: "LIKEWISE_KAFKA", value: strings.Join(f.Kafka, ","), fault: fault}
}

// originFlags choose the origins whose pages may use the API, and the URL and the name of the front end.
type originFlags struct {
	Origins   []string `name:"cors-origins" env:"LIKEWISE_CORS_ORIGINS" placeholder:"${origin}" help:"${origins_help}"`
	PublicURL string   `env:"LIKEWISE_PUBLIC_URL" placeholder:"${origin}" help:"${public_url_help}"`
	siteFlags
}

// openFrontEnd sets the origins, the URL and the name of config.
func (f originFlags) openFrontEnd(config *handlers.Config) {
	config.Origins, config.PublicURL, config.SiteName = f.Origins, f.PublicURL, f.SiteName
}

// siteFlags name the site.
type siteFlags struct {
	SiteName string `env:"LIKEWISE_SITE_NAME" placeholder:"NAME" help:"${site_name_help}"`
}

func (f siteFlags) check() error {
	if err := models.ValidateSiteName(f.SiteName); err != nil {
		return fmt.Errorf("--site-name (or $LIKEWISE_SITE_NAME): %w", err)
	}
	return nil
}

func (f originFlags) check() error {
	if err := handlers.CheckPublicURL(f.PublicURL); err != nil {
		return fmt.Errorf("--public-url (or $LIKEWISE_PUBLIC_URL): %w", err)
	}
	if err := handlers.CheckOrigins(f.Origins); err != nil {
		return fmt.Errorf("--cors-origins (or $LIKEWISE_CORS_ORIGINS): %w", err)
	}
	return f.siteFlags.check()
}

// imageFlags choose where images are kept.
type imageFlags struct {
	Images string `env:"LIKEWISE_IMAGES" placeholder:"PLACE" help:"${images_help}"`
}

// check returns an error for an address that cannot be read. It contains a secret, and is not shown.
func (f imageFlags) check() error {
	_, err := f.store()
	return err
}

// store returns the storage of images; nil if there is none.
func (f imageFlags) store() (images.Store, error) {
	if f.Images == "" {
		return nil, nil
	}
	s, err := images.Open(f.Images)
	if err != nil {
		return nil, fmt.Errorf("--images (or $LIKEWISE_IMAGES) %w", err)
	}
	return s, nil
}

// open is store for a process that needs the storage. It returns an error if the storage cannot be used now.
func (f imageFlags) open(ctx context.Context) (images.Store, error) {
	s, err := f.store()
	if err != nil || s == nil {
		return nil, err
	}
	if err := s.Check(ctx); err != nil {
		return nil, fmt.Errorf("--images (or $LIKEWISE_IMAGES): the storage cannot be used: %w", err)
	}
	return s, nil
}

// roomFlags bound the bytes of images.
type roomFlags struct {
	ImagesRoom       int64 `env:"LIKEWISE_IMAGES_ROOM" default:"20480" help:"${images_room_help}"`
	ImagesRoomOfUser int64 `env:"LIKEWISE_IMAGES_ROOM_OF_USER" default:"200" help:"${images_room_of_user_help}"`
}

func (f roomFlags) check() error {
	const most = 1 << 40 // MiB
	if f.ImagesRoom < 1 || f.ImagesRoom > most || f.ImagesRoomOfUser < 1 || f.ImagesRoomOfUser > most {
		return errors.New("--images-room and --images-room-of-user must be at least 1 MiB")
	}
	return nil
}

func (f roomFlags) room() models.ImageRoom {
	return models.ImageRoom{User: f.ImagesRoomOfUser << 20, Site: f.ImagesRoom << 20}
}

// webhookFlags choose where webhooks can be.
type webhookFlags struct {
	PrivateWebhooks bool `name:"webhook-allow-private" env:"LIKEWISE_WEBHOOK_ALLOW_PRIVATE" help:"${webhook_help}"`
}

// core holds what every role of the product uses.
type core struct {
	log      *slog.Logger
	registry *prometheus.Registry
	store    *db.DB
	redis    *counters.Redis  // nil in direct mode
	gate     *counters.Likes  // nil in direct mode
	claims   *counters.Claims // nil in direct mode
	likes    handlers.Likes   // the gate, or the store in direct mode
	targets  counters.Targets
	metrics  *workers.Metrics
	gated    []prometheus.Collector // the metrics of the gate; none in direct mode
	mode     string                 // of likes: gated or direct
	servers  []connected            // in the order of opening
	local    bool                   // a developer's machine: see handlers.CheckHost
}

// connected is a server that the core is connected to.
type connected struct {
	name  string
	ping  func(context.Context) error
	close func() error
}

// newRegistry returns a registry with the metrics of the process.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// openCore connects to MySQL and, in gated mode, opens the gate. The caller closes the core.
func openCore(ctx context.Context, log *slog.Logger, m mysqlFlags, l likesFlags) (*core, error) {
	registry := newRegistry()
	store, err := m.open(ctx, log, registry)
	if err != nil {
		return nil, err
	}
	registry.MustRegister(collectors.NewDBStatsCollector(store.Pool(), "likewise"))
	c := &core{
		log:      log,
		registry: registry,
		store:    store,
		likes:    likes.New(store),
		targets:  counters.NewTargets(store, nil),
		metrics:  workers.NewMetrics(),
		mode:     l.Likes,
		servers:  []connected{{"mysql", store.Ping, store.Close}},
	}
	mode := models.LikesDirect
	if l.gated() {
		mode = models.LikesGated
		if err := c.openGate(ctx, l); err != nil {
			return nil, errors.Join(err, c.close())
		}
		if err := c.checkSite(ctx); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	if err := store.StartLikes(ctx, mode); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *core) openGate(ctx context.Context, l likesFlags) error {
	if l.OutboxLimit < 1 {
		return errors.New("--outbox-limit must be at least 1")
	}
	options, err := l.RedisTLS.redisOptions(l.Redis)
	if err != nil {
		return err
	}
	if c.redis, err = counters.Open(l.Redis, c.store.Shards(), options...); err != nil {
		return err
	}
	c.servers = append(c.servers, connected{"redis", c.redis.Ping, c.redis.Close})
	c.redis.UseSite(c.store.Site())
	if err := checkRedis(ctx, c.redis); err != nil {
		return err
	}
	c.gate = counters.NewLikes(c.redis, c.store, counters.LikesOptions{
		OutboxLimit: l.OutboxLimit,
		Logger:      c.log,
		Count:       c.countOutcomes("likewise_gate_total", "Calls of the gate, by outcome.", counters.Outcomes()),
	})
	c.claims = counters.NewClaims(c.redis, c.store, counters.ClaimsOptions{
		OutboxLimit: l.OutboxLimit,
		Logger:      c.log,
		Count: c.countOutcomes("likewise_gate_claims_total", "Claims, returns and releases at the gate, by outcome.",
			counters.ClaimOutcomes()),
	})
	limit := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "likewise_outbox_limit",
		Help: "Likes and claims that an outbox holds before others are refused: --outbox-limit.",
	})
	limit.Set(float64(l.OutboxLimit))
	c.gated = append(c.gated, limit)
	c.likes, c.targets = c.gate, counters.NewTargets(c.store, c.gate)
	c.store.CloseDeletedWith(c.targets.Close)
	c.store.UseLikeClock(c.redis.Clock)
	return nil
}

// checkSite returns an error if Redis belongs to another installation. If Redis does not answer, checkSite returns nil:
// each connection asks again.
func (c *core) checkSite(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := c.redis.CheckSite(ctx); errors.Is(err, counters.ErrForeign) {
		return err
	}
	return nil
}

// countOutcomes returns a function that counts the outcomes of the gate. Each is exported from the start, so that a
// rate has a beginning.
func (c *core) countOutcomes(name, help string, all []counters.Outcome) func(counters.Outcome) {
	counted := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"outcome"})
	for _, o := range all {
		counted.WithLabelValues(string(o))
	}
	c.gated = append(c.gated, counted)
	return func(o counters.Outcome) { counted.WithLabelValues(string(o)).Inc() }
}

// The roles of processes, as their metrics name them.
const (
	roleAPI    = "api"
	roleWorker = "worker"
	roleCron   = "cron"
	roleWeb    = "web"
)

// export exports the metrics that the roles of this process own, and no other: the zero of a role that a process does
// not have looks like a measurement.
func (c *core) export(roles ...string) {
	role := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "likewise_role",
		Help: "1 for each role of this process, with the mode of likes: gated or direct.",
	}, []string{"role", "likes"})
	c.registry.MustRegister(role)
	for _, r := range roles {
		role.WithLabelValues(r, c.mode).Set(1)
	}
	if slices.Contains(roles, roleWorker) {
		c.metrics.ExportPipeline(c.registry)
	}
	if slices.Contains(roles, roleCron) {
		c.metrics.ExportJobs(c.registry)
	}
	if slices.Contains(roles, roleAPI) || slices.Contains(roles, roleCron) { // which call the gate
		c.registry.MustRegister(c.gated...)
	}
}

// checkPolicy returns an error if Redis evicts likes when its memory is full. If Redis does not answer, checkPolicy
// returns nil, and the next start checks again.
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
	for _, server := range slices.Backward(c.servers) {
		err = errors.Join(err, server.close())
	}
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
