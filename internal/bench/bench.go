// Package bench measures likes, claims and reads side by side on private servers, and prints ratios: `likewise bench`.
//
// It never uses the servers of a site. The roles that it measures are processes of their own. Every measurement ends
// with a check of what MySQL then has.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/internal/servers"
	"likewise/models"
	"likewise/workers"
)

// Options are the flags of `likewise bench`.
type Options struct {
	Settings
	Quick    bool   `help:"${bench_quick_help}"`
	Recorded string `type:"path" default:"docs/benchmarks.json" help:"${bench_recorded_help}"`
	Record   string `type:"path" placeholder:"FOLDER" help:"${bench_record_help}"`
	JSON     bool   `name:"json" help:"Print JSON."`

	// Program is the path of likewise-dev, whose roles are measured.
	Program string `kong:"-"`
}

// Settings are the sizes of a measurement. The ratios of two measurements are comparable if these are the same.
type Settings struct {
	Clients int           `default:"64" help:"Connections of the clients, with one request in flight on each."`
	Rounds  int           `default:"5" help:"${bench_rounds_help}"`
	Length  time.Duration `default:"2s" help:"How long a contender runs in a round, unless its requests are counted."`
	Users   int           `default:"100000" help:"Accounts, all of which like one hot post, once each."`
	Likes   int           `default:"20000" help:"${bench_likes_help}"`
	Posts   int           `default:"10000" help:"Posts that are liked as often as Zipf's law has it."`
	Sizes   []int         `default:"1000,10000,100000,1000000" help:"${bench_sizes_help}"`
	Loads   []float64     `default:"0.1,0.25,0.5,0.75,0.9,1,1.2" help:"${bench_loads_help}"`
	Parts   []string      `enum:"${bench_parts},${bench_attacks}" default:"${bench_parts}" help:"${bench_parts_help}"`
	Only    []string      `sep:"none" placeholder:"TEXT" help:"${bench_only_help}"`
}

// quick are those of --quick: about a minute. It measures what has ratios.
func quick() Settings {
	return Settings{
		Clients: 64, Rounds: 5, Length: 200 * time.Millisecond, Users: 2000, Likes: 1000, Posts: 500,
		Parts: []string{partScenarios, partClaims, partIDs, partPipeline},
	}
}

// The parts of a measurement.
const (
	partScenarios = "scenarios"
	partLoad      = "load"
	partLag       = "lag"
	partClaims    = "claims"
	partIDs       = "ids"
	partPipeline  = "pipeline"
	partSizes     = "sizes"

	// These attack a site of their own.
	partUnread     = "unread"
	partUnreadWide = "unread-wide"
	partExpensive  = "expensive"
	partUploads    = "uploads"
)

// crowd is the factor by which the number of clients exceeds --clients during an overload.
const crowd = 16

// likersAtMost is the number of users who like and unlike the same post.
const likersAtMost = 5000

// Flags returns the flags of the settings, for the page.
func (b Settings) Flags() string {
	list := func(of any) string { return strings.ReplaceAll(strings.Trim(fmt.Sprint(of), "[]"), " ", ",") }
	flags := fmt.Sprintf("--clients=%d --rounds=%d --length=%v --users=%d --likes=%d --posts=%d ", b.Clients, b.Rounds,
		b.Length, b.Users, b.Likes, b.Posts) +
		fmt.Sprintf("--sizes=%s --loads=%s --parts=%s", list(b.Sizes), list(b.Loads), list(b.Parts))
	for _, text := range b.Only {
		flags += fmt.Sprintf(" --only=%q", text)
	}
	return flags
}

// isChosen reports whether --only selects a name.
func (b *Settings) isChosen(name string) bool {
	contains := func(text string) bool { return strings.Contains(name, text) }
	return len(b.Only) == 0 || slices.ContainsFunc(b.Only, contains)
}

// chosen returns the rows of a table that --only names, those that they are compared with, and the bare route.
func (b *Settings) chosen(table []*scenario) []*scenario {
	if len(b.Only) == 0 {
		return table
	}
	names := map[string]bool{bareRoute: true}
	for _, s := range table {
		if b.isChosen(s.name) {
			names[s.name], names[s.against] = true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(table), func(s *scenario) bool {
		return !names[s.name] || s.against != "" && !names[s.against]
	})
}

func (b *Settings) check() error {
	switch {
	case b.Clients < 1 || b.Rounds < 1 || b.Length < 10*time.Millisecond:
		return errors.New("--clients and --rounds must be at least 1, and --length 10ms")
	case b.Users < crowd*b.Clients || b.Users < b.Likes:
		return fmt.Errorf("--users must be at least %d × --clients, and at least --likes", crowd)
	case b.Likes < 1 || b.Posts < 1:
		return errors.New("--likes and --posts must be at least 1")
	case slices.ContainsFunc(b.Loads, func(load float64) bool { return !(load > 0 && load <= 10) }):
		return errors.New("--loads must be above 0 and at most 10")
	case slices.ContainsFunc(b.Sizes, func(posts int) bool { return posts < 1 || posts > 100_000_000 }):
		return errors.New("--sizes must be from 1 to 100000000")
	case slices.Contains(b.Parts, partExpensive) && (slices.Max(b.Sizes) < minLarge || slices.Max(b.Sizes) > maxLarge):
		return fmt.Errorf("the largest of --sizes must be from %d to %d for expensive", minLarge, maxLarge)
	case b.Users < likesPerPost:
		return fmt.Errorf("--users must be at least %d", likesPerPost)
	}
	return nil
}

// Run measures, and prints or records the report.
func (o *Options) Run(ctx context.Context, out io.Writer, log *slog.Logger) error {
	var recorded *record
	if o.Quick {
		o.Settings = quick()
		var err error
		if recorded, err = readRecord(o.Recorded); err != nil {
			return err
		}
	}
	report, err := o.measure(ctx, log, o.Program)
	if err != nil {
		return err
	}
	if o.Record != "" {
		quick := quick()
		log.InfoContext(ctx, "bench measures the ratios that --quick compares")
		short, err := quick.measure(ctx, log, o.Program)
		if err != nil {
			return err
		}
		if err := (&record{Report: report, Quick: short.ratios()}).write(o.Record); err != nil {
			return err
		}
	}
	if o.JSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = report.print(out)
	}
	if recorded != nil {
		err = errors.Join(err, recorded.compare(report))
	}
	return errors.Join(err, report.beyond())
}

// bench has the servers, processes and users that the measurements share.
type bench struct {
	Settings
	program       string       // path of likewise-dev
	log           *slog.Logger // of the progress
	all           *servers.All
	gated, direct *site // each with a database of its own, because a site has one mode
	redis         *redis.Client

	production *servers.Product // an API of the gated site, with logs and limits
	plain      *servers.Product // the same without logs and limits
	immediate  *servers.Product // an API of the direct site, with logs and limits
	crowded    *servers.Product // an API of the direct site, without limits, for an overload
	worker     *servers.Product

	times  attackTimes
	values map[string]float64 // by the name of a figure, for the ratios of later ones
	report *report
}

// measure measures all parts, each on servers that it starts and stops.
func (b *Settings) measure(ctx context.Context, log *slog.Logger, program string) (*report, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "likewise-bench-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(dir)
	m := &bench{
		Settings: *b, program: program, log: log, times: fullTimes(), values: map[string]float64{},
		report: newReport(b),
	}
	if slices.ContainsFunc(b.Parts, func(part string) bool { return !isAttack(part) }) {
		err = m.run(ctx, dir)
	}
	if err == nil && slices.ContainsFunc(b.Parts, isAttack) {
		err = m.measureAttacks(ctx, dir)
	}
	return m.report, err
}

// run measures the parts that are not attacks.
func (b *bench) run(ctx context.Context, dir string) (err error) {
	if b.all, err = servers.StartAll(ctx, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(), b.all.Stop(context.WithoutCancel(ctx))) }()
	if err := b.open(ctx, dir); err != nil {
		return err
	}
	if b.report.Servers, err = b.gated.describeServers(ctx); err != nil {
		return err
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{partScenarios, b.measureScenarios},
		{partLoad, b.measureLoads},
		{partLag, b.measureLag},
		{partClaims, b.measureClaims},
		{partIDs, b.measureIDs},
		{partPipeline, b.measurePipeline},
		{"verify", b.verify},
		{partSizes, b.measureSizes},
	} {
		if part.name != "verify" && !slices.Contains(b.Parts, part.name) {
			continue
		}
		b.log.InfoContext(ctx, "bench begins", "part", part.name)
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// open opens both sites, starts the roles, and creates the users.
func (b *bench) open(ctx context.Context, dir string) (err error) {
	if b.gated, err = openSite(ctx, b.all.MySQL, "likewise"); err != nil {
		return err
	}
	if err := b.gated.openGate(ctx, b.all.Redis.URL()); err != nil {
		return err
	}
	if err := b.gated.useMemory(ctx); err != nil {
		return err
	}
	if b.direct, err = openSite(ctx, b.all.MySQL, "likewise_direct"); err != nil {
		return err
	}
	if err := b.direct.store.StartLikes(ctx, models.LikesDirect); err != nil {
		return err
	}
	options, err := redis.ParseURL(b.all.Redis.URL())
	if err != nil {
		return fmt.Errorf("redis url: %w", err)
	}
	options.PoolSize = b.Clients
	b.redis = redis.NewClient(options)
	if err := b.startRoles(ctx, dir); err != nil {
		return err
	}
	if err := b.gated.awaitOpen(ctx); err != nil {
		return err
	}
	for _, site := range []*site{b.gated, b.direct} {
		b.log.InfoContext(ctx, "bench creates accounts", "accounts", b.Users)
		if err := site.createUsers(ctx, b.Users, b.likers()); err != nil {
			return err
		}
	}
	return nil
}

// likers is the number of users who like and unlike.
func (b *Settings) likers() int { return min(b.Users, likersAtMost) }

// limitFactor keeps all limits on, and above what the clients of one address reach.
const limitFactor = "10000"

// startRoles starts the worker and the APIs, each as a process.
func (b *bench) startRoles(ctx context.Context, dir string) (err error) {
	gated := []string{
		"LIKEWISE_MYSQL_DSN=" + b.gated.dsn,
		"LIKEWISE_REDIS=" + b.all.Redis.URL(),
		"LIKEWISE_KAFKA=" + b.all.Kafka.Brokers()[0],
	}
	direct := []string{"LIKEWISE_MYSQL_DSN=" + b.direct.dsn}
	const noDrain = "LIKEWISE_DRAIN=0s" // no proxy has to notice the end
	const logs, noLogs = "--log-level=info", "--log-level=error"
	const limits, noLimits = "--limits=" + limitFactor, "--limits=0"
	for _, role := range []struct {
		into      **servers.Product
		name      string
		variables []string
		args      []string
	}{
		{&b.worker, "worker", gated, []string{"worker", logs}},
		{&b.production, "api", gated, []string{"api", logs, limits}},
		{&b.plain, "api-plain", gated, []string{"api", noLogs, noLimits}},
		{&b.immediate, "api-direct", direct, []string{"api", logs, limits, "--likes=direct"}},
		{&b.crowded, "api-crowded", direct, []string{"api", logs, noLimits, "--likes=direct"}},
	} {
		args := append([]string{"--log-format=json"}, role.args...)
		if *role.into, err = servers.StartProduct(
			ctx, role.name, b.program, filepath.Join(dir, role.name+".log"), append(role.variables, noDrain), args...,
		); err != nil {
			return err
		}
	}
	return nil
}

// stopLimit is more than a role takes to drain.
const stopLimit = 10 * time.Second

// close stops the APIs, and then the worker, and closes the sites.
func (b *bench) close() error {
	apis := []*servers.Product{b.crowded, b.immediate, b.plain, b.production}
	stopped := make([]error, len(apis))
	var stopping sync.WaitGroup
	for i, api := range apis {
		stopping.Go(func() { stopped[i] = stop(api) })
	}
	stopping.Wait()
	err := errors.Join(errors.Join(stopped...), stop(b.worker))
	if b.redis != nil {
		b.redis.Close()
	}
	for _, site := range []*site{b.gated, b.direct} {
		if site != nil {
			err = errors.Join(err, site.close())
		}
	}
	return err
}

// stop stops a role, unless it is nil.
func stop(role *servers.Product) error {
	if role == nil {
		return nil
	}
	if err := role.Terminate(stopLimit); err != nil {
		return fmt.Errorf("%s: %w", role.Name, err)
	}
	return nil
}

// settleLimit bounds the wait for rows. A worker writes the likes of the longest round in less.
const settleLimit = 5 * time.Minute

// settle waits until MySQL has every like and claim that was answered.
func (b *bench) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return workers.Flush(ctx, b.gated.redis, b.gated.store)
}
