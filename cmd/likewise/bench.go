//go:build dev

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"likewise/handlers"
	"likewise/internal/servers"
	"likewise/models"
	"likewise/workers"
)

// benchCmd measures on its own private servers, never on those of a site.
type benchCmd struct {
	Clients int           `default:"32" help:"Connections that like at once, one user each."`
	Rounds  int           `default:"5" help:"${bench_rounds_help}"`
	Length  time.Duration `default:"1s" help:"How long a contender runs in a round."`
	Likes   int           `default:"100000" help:"${bench_likes_help}"`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// measurement is one line of the report. Ratios are comparable between machines, and figures are not.
type measurement struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	P50      float64 `json:"p50_ms,omitempty"`
	P99      float64 `json:"p99_ms,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	Baseline string  `json:"baseline,omitempty"`
}

// Run measures, and prints the report.
func (b *benchCmd) Run(ctx context.Context, out output) error {
	if b.Clients < 1 || b.Rounds < 1 || b.Length < 10*time.Millisecond || b.Likes < 1000 {
		return errors.New("--clients and --rounds must be at least 1, --length 10ms and --likes 1000")
	}
	dir, err := os.MkdirTemp("", "likewise-bench-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(dir)
	all, err := servers.StartAll(ctx, dir)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler) // logging each request would distort the measurements
	report, err := b.measure(ctx, log, all)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if err = errors.Join(err, all.Stop(stopping)); err != nil {
		return err
	}
	if b.JSON {
		encoder := json.NewEncoder(out.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	for _, m := range report {
		latency, ratio := "", ""
		if m.P50 > 0 {
			latency = fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", m.P50, m.P99)
		}
		if m.Baseline != "" {
			ratio = fmt.Sprintf("%.2f × %s", m.Ratio, m.Baseline)
		}
		fmt.Fprintf(w, "%s\t%.0f %s\t%s\t%s\n", m.Name, m.Value, m.Unit, latency, ratio)
	}
	return w.Flush()
}

// bench has the servers and users that the measurements share.
type bench struct {
	*benchCmd
	gated, direct *benchSite // each with a database of its own, because a site has one mode
	redis         *redis.Client
	all           *servers.All
}

// benchSite is a site with its users.
type benchSite struct {
	*core
	users     []string // tokens, one a client
	author    models.Author
	customers []int64 // ids of accounts that claim, as many as --likes
}

func (b *benchCmd) measure(ctx context.Context, log *slog.Logger, all *servers.All) ([]measurement, error) {
	gated, err := b.open(ctx, log, all.MySQL, devDatabase, gateAt(all.Redis.URL()))
	if err != nil {
		return nil, err
	}
	defer gated.close()
	direct, err := b.open(ctx, log, all.MySQL, devDatabase+"_direct", likesFlags{Likes: "direct"})
	if err != nil {
		return nil, err
	}
	defer direct.close()
	options, err := redis.ParseURL(all.Redis.URL())
	if err != nil {
		return nil, fmt.Errorf("redis url: %w", err)
	}
	options.PoolSize = b.Clients
	m := &bench{benchCmd: b, gated: gated, direct: direct, redis: redis.NewClient(options), all: all}
	defer m.redis.Close()

	working, stop := context.WithCancel(ctx)
	var roles sync.WaitGroup
	roles.Go(func() { gated.work(working, devKafka(all)) })
	defer roles.Wait()
	defer stop()
	if err := gated.awaitOpen(ctx); err != nil {
		return nil, err
	}
	for _, site := range []*benchSite{gated, direct} {
		if err := site.createUsers(ctx, b.Clients); err != nil {
			return nil, err
		}
		if err := site.createCustomers(ctx, b.Likes); err != nil {
			return nil, err
		}
	}
	var report []measurement
	for _, measure := range []func(context.Context) ([]measurement, error){m.overHTTP, m.hotDrop, m.ids, m.drain} {
		part, err := measure(ctx)
		if err != nil {
			return nil, err
		}
		report = append(report, part...)
	}
	return report, nil
}

// open opens a site with a new database.
func (b *benchCmd) open(
	ctx context.Context, log *slog.Logger, server *servers.MySQL, name string, likes likesFlags,
) (*benchSite, error) {
	dsn, err := prepareDatabase(ctx, server, name)
	if err != nil {
		return nil, err
	}
	c, err := openCore(ctx, log, mysqlFlags{MySQLDSN: dsn, MySQLConns: 32}, likes)
	if err != nil {
		return nil, err
	}
	return &benchSite{core: c}, nil
}

func (b *benchSite) createUsers(ctx context.Context, clients int) error {
	for i := range clients {
		name := "bench-" + strconv.Itoa(i)
		user := &models.User{Username: name, Email: name + "@bench" + models.NoEmailDomain}
		if err := b.store.CreateUser(ctx, user); err != nil {
			return err
		}
		token, err := b.store.CreateSession(ctx, user.ID)
		if err != nil {
			return err
		}
		b.users = append(b.users, token)
		b.author = models.Author{ID: user.ID, Username: name}
	}
	return nil
}

func (b *benchSite) createPost(ctx context.Context) (models.Target, error) {
	post, err := b.store.CreatePost(ctx, b.author, models.PostText{Title: "A hot post", Content: "with text"})
	if err != nil {
		return models.Target{}, err
	}
	return models.Target{Kind: models.KindPost, ID: post.ID}, nil
}

// contender is one way to answer a request.
type contender struct {
	samples

	clients   int  // 0: as many as --clients
	status    int  // of the answers that count; 0: 200
	mayRefuse bool // 503 is an answer, though not one that counts
	request   func(client, n int, r *fasthttp.Request)
}

// samples are what the rounds of a contender have measured.
type samples struct {
	name, baseline string
	rates          []float64       // one a round
	latencies      []time.Duration // of what counts
}

// measurement returns the median round. It looks the baseline up in rates, and adds its own rate.
func (s *samples) measurement(unit string, rates map[string]float64) measurement {
	slices.Sort(s.rates)
	slices.Sort(s.latencies)
	m := measurement{Name: s.name, Unit: unit, Value: s.rates[len(s.rates)/2]}
	if n := len(s.latencies); n > 0 {
		m.P50, m.P99 = ms(s.latencies[n/2]), ms(s.latencies[n*99/100])
	}
	rates[s.name] = m.Value
	if s.baseline != "" {
		m.Baseline, m.Ratio = s.baseline, m.Value/rates[s.baseline]
	}
	return m
}

// round lets all clients act, again and again, until the length of a round is over. act reports whether the act counts.
func (s *samples) round(
	ctx context.Context, clients int, length time.Duration, act func(client, n int) (counts bool, err error),
) error {
	var mu sync.Mutex
	var failed error
	done := 0
	began := time.Now()
	deadline := began.Add(length)
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			var took []time.Duration
			var err error
			for n := 0; err == nil && time.Now().Before(deadline) && ctx.Err() == nil; n++ {
				var counts bool
				began := time.Now()
				if counts, err = act(client, n); counts {
					took = append(took, time.Since(began))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			done += len(took)
			s.latencies = append(s.latencies, took...)
			failed = errors.Join(failed, err)
		})
	}
	running.Wait()
	s.rates = append(s.rates, float64(done)/time.Since(began).Seconds())
	return errors.Join(failed, ctx.Err())
}

// overHTTP measures likes and unlikes of one post by all clients, through the gate and directly, and compares them with
// an empty route. It compares claims to a drop that is sold out with likes.
func (b *bench) overHTTP(ctx context.Context) ([]measurement, error) {
	serving, stop := context.WithCancel(ctx)
	var apis sync.WaitGroup
	defer apis.Wait()
	defer stop()
	serve := func(c *core, maxInFlight int) (string, error) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("listen: %w", err)
		}
		apis.Go(func() {
			if err := c.serveAPI(serving, listener, handlers.Config{MaxInFlight: maxInFlight}); err != nil {
				fmt.Fprintln(os.Stderr, "likewise bench:", err)
			}
		})
		return "http://" + listener.Addr().String(), nil
	}
	gated, err := serve(b.gated.core, 0)
	if err != nil {
		return nil, err
	}
	direct, err := serve(b.direct.core, 0)
	if err != nil {
		return nil, err
	}
	// Two more APIs, each with its own registry, measure an overload.
	var crowded [2]string
	for i, maxInFlight := range []int{b.Clients, crowd * b.Clients} {
		c := *b.direct.core
		c.registry = prometheus.NewRegistry()
		if crowded[i], err = serve(&c, maxInFlight); err != nil {
			return nil, err
		}
	}
	like := func(site *benchSite, base string) func(int, int, *fasthttp.Request) {
		target, errPost := site.createPost(ctx)
		err = errors.Join(err, errPost)
		url := base + "/v1/posts/" + strconv.FormatInt(target.ID, 10) + "/like"
		return func(client, n int, r *fasthttp.Request) {
			r.Header.SetMethod([]string{fasthttp.MethodPut, fasthttp.MethodDelete}[n%2])
			r.Header.Set("Authorization", "Bearer "+site.users[client%len(site.users)])
			r.SetRequestURI(url)
		}
	}
	soldOut, err := b.soldOutDrop(ctx)
	if err != nil {
		return nil, err
	}
	contenders := []*contender{
		{
			samples: samples{name: "bare route"},
			request: func(_, _ int, r *fasthttp.Request) { r.SetRequestURI(gated + "/healthz") },
		},
		{samples: samples{name: "like, direct", baseline: "bare route"}, request: like(b.direct, direct)},
		{samples: samples{name: "like, gated", baseline: "like, direct"}, request: like(b.gated, gated)},
		{
			samples: samples{name: "claim of a sold-out drop, gated", baseline: "like, gated"},
			status:  fasthttp.StatusConflict,
			request: func(client, _ int, r *fasthttp.Request) {
				r.Header.SetMethod(fasthttp.MethodPost)
				r.Header.Set("Authorization", "Bearer "+b.gated.users[client])
				r.SetRequestURI(gated + "/v1/drops/" + strconv.FormatInt(soldOut, 10) + "/claims")
			},
		},
		{
			samples:   samples{name: "like, direct, 16 × the clients, all admitted", baseline: "like, direct"},
			clients:   crowd * b.Clients,
			mayRefuse: true, // on a busy machine, the time of some is over before MySQL has answered
			request:   like(b.direct, crowded[1]),
		},
		{
			samples:   samples{name: "like, direct, 16 × the clients, most refused", baseline: "like, direct"},
			clients:   crowd * b.Clients,
			mayRefuse: true,
			request:   like(b.direct, crowded[0]),
		},
	}
	if err != nil {
		return nil, err
	}
	for range b.Rounds {
		for _, c := range contenders {
			if err := b.race(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	var report []measurement
	rates := map[string]float64{}
	for _, c := range contenders {
		report = append(report, c.measurement("requests/s", rates))
	}
	report = append(report, measurement{Name: "like, gated", Unit: "requests/s", Value: rates["like, gated"],
		Baseline: "bare route", Ratio: rates["like, gated"] / rates["bare route"]})
	return report, nil
}

// crowd is the factor by which the number of clients exceeds --clients during an overload.
const crowd = 16

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// race runs one contender with all clients for one round.
func (b *bench) race(ctx context.Context, c *contender) error {
	clients := b.Clients
	if c.clients > 0 {
		clients = c.clients
	}
	status := fasthttp.StatusOK
	if c.status > 0 {
		status = c.status
	}
	client := &fasthttp.Client{MaxConnsPerHost: clients, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	requests, responses := make([]fasthttp.Request, clients), make([]fasthttp.Response, clients)
	return c.round(ctx, clients, b.Length, func(i, n int) (bool, error) {
		request, response := &requests[i], &responses[i]
		c.request(i, n, request)
		if err := client.Do(request, response); err != nil {
			return false, fmt.Errorf("%s: %w", c.name, err)
		}
		switch {
		case response.StatusCode() == status:
			return true, nil
		case c.mayRefuse && response.StatusCode() == fasthttp.StatusServiceUnavailable:
			pauseRefused(ctx) // the client retries a little later
			return false, nil
		}
		return false, fmt.Errorf("%s: %d %s", c.name, response.StatusCode(), response.Body())
	})
}

// pauseRefused waits as a refused client does before its next attempt.
func pauseRefused(ctx context.Context) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}

// drain fills the outbox without a worker, as after an outage of Kafka, and measures how fast a worker empties it. It
// compares this with the same rows in plain batches. It also compares the memory of the likes in Redis with a plain
// set.
func (b *bench) drain(ctx context.Context) ([]measurement, error) {
	target, err := b.gated.createPost(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.likeAll(ctx, target); err != nil {
		return nil, err
	}
	if err := workers.Flush(ctx, b.gated.redis, b.gated.store); err != nil {
		return nil, err
	}
	through := float64(b.Likes) / time.Since(began).Seconds()
	post, err := b.redisMemory(ctx, fmt.Sprintf("{s*}:post:%d:likes*", target.ID))
	if err != nil {
		return nil, err
	}
	pipe := b.redis.Pipeline()
	for i := range b.Likes {
		pipe.SAdd(ctx, "bench:plain", i+1_000_000)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("fill plain set: %w", err)
	}
	plain, err := b.redisMemory(ctx, "bench:plain")
	if err != nil {
		return nil, err
	}
	inserted, err := b.insertPlainly(ctx)
	if err != nil {
		return nil, err
	}
	perLike, perMember := float64(post)/float64(b.Likes), float64(plain)/float64(b.Likes)
	return []measurement{
		{Name: "plain batches of INSERT", Unit: "rows/s", Value: inserted},
		{
			Name:     "gate to MySQL, end to end",
			Unit:     "likes/s",
			Value:    through,
			Baseline: "plain batches of INSERT",
			Ratio:    through / inserted,
		},
		{Name: "memory of a plain set", Unit: "bytes/member", Value: perMember},
		{
			Name:     "memory of a warm post",
			Unit:     "bytes/like",
			Value:    perLike,
			Baseline: "plain set",
			Ratio:    perLike / perMember,
		},
	}, nil
}

// likeAll makes b.Likes users like the target through the gate.
func (b *bench) likeAll(ctx context.Context, target models.Target) error {
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	lanes := 16 * runtime.GOMAXPROCS(0)
	for lane := range lanes {
		running.Go(func() {
			for i := lane; i < b.Likes; i += lanes {
				if _, err := b.gated.likes.SetLike(ctx, target, int64(i)+1_000_000, true); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	running.Wait()
	return failed
}

// insertPlainly writes as many rows as drain into a copy of post_likes, 2,000 in each statement and transaction. Any
// writer in batches must do at least that.
func (b *bench) insertPlainly(ctx context.Context) (rowsPerSecond float64, err error) {
	const batch = 2000
	pool := b.gated.store.Pool()
	if _, err := pool.ExecContext(ctx, "CREATE TABLE bench_likes LIKE post_likes"); err != nil {
		return 0, fmt.Errorf("create table: %w", err)
	}
	began := time.Now()
	for start := 0; start < b.Likes; start += batch {
		var rows []string
		for i := start; i < min(start+batch, b.Likes); i++ {
			rows = append(rows, "(1,"+strconv.Itoa(i)+")")
		}
		insert := "INSERT INTO bench_likes (post_id, user_id) VALUES " + strings.Join(rows, ",")
		if _, err := pool.ExecContext(ctx, insert); err != nil {
			return 0, fmt.Errorf("insert: %w", err)
		}
	}
	return float64(b.Likes) / time.Since(began).Seconds(), nil
}

// redisMemory returns the bytes that the keys of a pattern take in Redis.
func (b *bench) redisMemory(ctx context.Context, pattern string) (int64, error) {
	var sum int64
	keys := b.redis.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		n, err := b.redis.MemoryUsage(ctx, keys.Val(), 0).Result() // 0: of every member
		if err != nil {
			return 0, fmt.Errorf("read memory: %w", err)
		}
		sum += n
	}
	if err := keys.Err(); err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return sum, nil
}
