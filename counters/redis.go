// Package counters is the gate in front of MySQL. It keeps the users who like a target, and their number, in Redis. Of
// drops, which are limited stock, it keeps the users who have a claim, and the number that is left. A drop is a target
// whose claims take the place of likes.
//
// Source of truth: a target is warm if its likes hash exists. For a warm target in an open shard, Redis holds the
// latest acknowledged state, and the outbox holds every change that Kafka does not have yet. For all other targets,
// MySQL is the source of truth. Likes do not expire: Redis must run with maxmemory-policy noeviction.
//
// Rebuilding: a cold target is warmed from MySQL on its first like. If a server is restarted, replaced or emptied, its
// shards are closed (see lua/shard.lua) until every event in Kafka is in MySQL. Then the relay opens the shard under a
// new epoch. If MySQL has events that Redis had lost, the relay evicts the shard's targets first.
//
// Refusals: in a closed shard, or with a full outbox, a like fails with models.CodeUnavailable and changes nothing.
// Retries: after a lost connection, go-redis may run a script twice. A second run changes nothing more, and its reply
// may be that nothing was left to do. The scripts like and claim are sent once: see runOnce.
package counters

import (
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/sony/gobreaker/v2"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// Redis is the connection to the gate's server, Sentinel group or cluster. It is safe for concurrent use.
type Redis struct {
	client   redis.UniversalClient
	blocking redis.UniversalClient // for blocking reads, which would occupy the connections of other calls
	shards   int
	site     string            // the id of the installation; "" in tools that do not know it
	source   map[string]string // of the scripts, by file name without ".lua"
	script   map[string]*redis.Script
}

// Open returns a client for url, which has one of the forms
//
//	redis://[user:password@]host:port[/db]                              one server
//	redis://host:port?master_name=NAME&addr=host2:port2                 Sentinel
//	redis+cluster://host:port?addr=host2:port2                          Cluster
//
// The scheme rediss uses TLS; see WithTLS. Open does not connect: if Redis is down, each call returns an error. The
// number of shards is that of the installation, db.DB.Shards.
func Open(url string, shards int, options ...Option) (*Redis, error) {
	setPoolLog()
	r := &Redis{shards: shards, source: map[string]string{}, script: map[string]*redis.Script{}}
	files, err := luaFiles.ReadDir("lua")
	if err != nil {
		return nil, fmt.Errorf("read scripts: %w", err)
	}
	for _, f := range files {
		source, err := luaFiles.ReadFile("lua/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("read scripts: %w", err)
		}
		r.source[strings.TrimSuffix(f.Name(), ".lua")] = string(source)
	}
	for name, source := range r.source {
		if name == "shard" || name == "gate" {
			continue // parts of others
		}
		source = heads[name] + r.common(name) + source
		r.source[name], r.script[name] = source, redis.NewScript(source)
	}
	if r.client, err = connect(url, connection{16 * runtime.GOMAXPROCS(0), ioTimeout, r.greet}, options); err != nil {
		return nil, err
	}
	if item, ok := r.client.(*redis.Client); ok {
		item.AddHook(newBreaker())
	}
	if r.blocking, err = connect(url, connection{shards + 2, ioTimeout, r.greet}, options); err != nil {
		return nil, errors.Join(err, r.client.Close())
	}
	return r, nil
}

// common returns what precedes a script.
func (r *Redis) common(name string) string {
	switch name {
	case "take", "put", "put_claims":
		return ""
	case "like", "claim":
		return r.source["gate"]
	default:
		return r.source["shard"]
	}
}

// poolLog logs failed connections of go-redis at debug level. Each call that fails for lack of a connection returns its
// own error. go-redis has one logger for all clients of a process, so it cannot be injected.
type poolLog struct{}

// setPoolLog sets the logger once in a process, because go-redis does not lock it against clients in use.
var setPoolLog = sync.OnceFunc(func() { redis.SetLogger(poolLog{}) })

func (poolLog) Printf(ctx context.Context, format string, v ...any) {
	slog.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...)) //nolint:sloglint // see poolLog
}

const ioTimeout = time.Second

// connection configures the connections of a client.
type connection struct {
	pool    int                                               // most connections
	timeout time.Duration                                     // for connecting, and for a reply
	first   func(ctx context.Context, conn *redis.Conn) error // runs on each new connection
}

// Option changes how a client connects.
type Option func(*tls.Config) *tls.Config

// WithTLS sets the authorities that the client trusts and its certificate, for URLs with rediss. Each server of a
// cluster or of a Sentinel group must have a certificate for the host under which the others know it.
func WithTLS(c *tls.Config) Option {
	return func(*tls.Config) *tls.Config { return c.Clone() }
}

// secured returns the settings of TLS for one server, or for several under their own names. It returns nil without TLS.
func secured(parsed *tls.Config, several bool, options []Option) *tls.Config {
	if parsed == nil {
		return nil
	}
	name := parsed.ServerName
	for _, option := range options {
		parsed = option(parsed)
	}
	if parsed.ServerName = name; several {
		parsed.ServerName = "" // each connection takes that of its address
	}
	parsed.MinVersion = max(parsed.MinVersion, tls.VersionTLS12)
	return parsed
}

// RefusesAccount reports whether Redis has refused a user name or password, or requires them.
func RefusesAccount(err error) bool {
	return redis.IsAuthError(err)
}

func connect(url string, how connection, options []Option) (redis.UniversalClient, error) {
	noMaint := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch {
	case strings.HasPrefix(url, "redis+cluster://"), strings.HasPrefix(url, "rediss+cluster://"):
		o, err := redis.ParseClusterURL(strings.Replace(url, "+cluster", "", 1))
		if err != nil {
			return nil, fmt.Errorf("redis url: %w", err)
		}
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = how.timeout, how.timeout, how.timeout
		o.ContextTimeoutEnabled = true
		o.MaxRetries, o.DialerRetries, o.PoolSize, o.OnConnect = 1, 1, how.pool, how.first
		o.DisableIdentity, o.MaintNotificationsConfig = true, noMaint
		o.TLSConfig = secured(o.TLSConfig, true, options)
		// Each node has a breaker, so that one that does not answer leaves the others open.
		o.NewClient = func(node *redis.Options) *redis.Client {
			client := redis.NewClient(node)
			client.AddHook(newBreaker())
			return client
		}
		return redis.NewClusterClient(o), nil
	case strings.Contains(url, "master_name="):
		o, err := redis.ParseFailoverURL(url)
		if err != nil {
			return nil, fmt.Errorf("redis url: %w", err)
		}
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = how.timeout, how.timeout, how.timeout
		o.ContextTimeoutEnabled = true
		o.MaxRetries, o.DialerRetries, o.PoolSize, o.OnConnect = 1, 1, how.pool, how.first
		o.DisableIdentity = true
		o.TLSConfig = secured(o.TLSConfig, true, options)
		return redis.NewFailoverClient(o), nil
	default:
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, fmt.Errorf("redis url: %w", err)
		}
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = how.timeout, how.timeout, how.timeout
		o.ContextTimeoutEnabled = true
		o.MaxRetries, o.DialerRetries, o.PoolSize, o.OnConnect = 1, 1, how.pool, how.first
		o.DisableIdentity, o.MaintNotificationsConfig = true, noMaint
		o.TLSConfig = secured(o.TLSConfig, false, options)
		return redis.NewClient(o), nil
	}
}

// heads are the first lines of some scripts. A script with any head is not run on a replica. Some run even if Redis is
// out of memory, because they let go of memory, or let a relay do so.
var heads = func() map[string]string {
	heads := map[string]string{"take": "#!lua\n", "put": "#!lua\n", "put_claims": "#!lua\n"}
	for _, name := range []string{"hold", "trim", "seal", "opened", "forget", "cool", "sweep", "remember"} {
		heads[name] = "#!lua flags=allow-oom\n"
	}
	return heads
}()

// errReplica refuses a connection to a replica, which accepts no likes and may be behind. A primary that is demoted
// later keeps its connections. So each script, and each pipeline that reads, finds out for itself.
var errReplica = errors.New("the redis server is a replica")

// refuseReplica runs on every connection before the first command.
func refuseReplica(ctx context.Context, conn *redis.Conn) error {
	// A Sentinel has no section of that name.
	info, err := conn.Info(ctx, "replication").Result()
	if err != nil {
		return fmt.Errorf("read role: %w", err)
	}
	if strings.Contains(info, "role:slave") {
		return errReplica
	}
	return nil
}

// Ping reports whether Redis answers.
func (r *Redis) Ping(ctx context.Context) error { return r.client.Ping(ctx).Err() }

// Clock reads the clocks of the servers that accept likes, and returns the earliest and the latest time.
func (r *Redis) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return earliest, latest, fmt.Errorf("time of redis: %w", err)
	}
	for i, node := range nodes {
		now, err := node.Time(ctx).Result()
		if err != nil {
			return earliest, latest, fmt.Errorf("time of redis: %w", err)
		}
		if i == 0 || now.Before(earliest) {
			earliest = now
		}
		if i == 0 || now.After(latest) {
			latest = now
		}
	}
	return earliest, latest, nil
}

// ErrEvicts means that a server may evict keys when it runs out of memory.
var ErrEvicts = errors.New("redis may evict keys")

func errPolicy(policy string) error {
	return fmt.Errorf("%w: its maxmemory-policy is %s; set noeviction, or likes are lost when it runs out of memory",
		ErrEvicts, policy)
}

// CheckPolicy returns ErrEvicts if a server that accepts likes may evict keys. A like that is evicted before it is in
// MySQL is lost. No shard is opened on such a server: see Outbox.Seal.
func (r *Redis) CheckPolicy(ctx context.Context) error {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return fmt.Errorf("read maxmemory-policy: %w", err)
	}
	for _, node := range nodes {
		info, err := node.InfoMap(ctx, "memory").Result()
		if err != nil {
			return fmt.Errorf("read maxmemory-policy: %w", err)
		}
		if policy := info["Memory"]["maxmemory_policy"]; policy != "" && policy != "noeviction" {
			return errPolicy(policy)
		}
	}
	return nil
}

// MemoryRatio returns the share of its maxmemory that the fullest server uses; 0 if no server has a limit.
func (r *Redis) MemoryRatio(ctx context.Context) (ratio float64, err error) {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return 0, fmt.Errorf("read memory of redis: %w", err)
	}
	for _, node := range nodes {
		info, err := node.InfoMap(ctx, "memory").Result()
		if err != nil {
			return 0, fmt.Errorf("read memory of redis: %w", err)
		}
		limit, err := strconv.ParseFloat(info["Memory"]["maxmemory"], 64)
		if err != nil || limit == 0 {
			continue // a server that does not name its limit has none to compare with
		}
		used, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
		if err != nil {
			return 0, fmt.Errorf("read memory of redis: %w", err)
		}
		ratio = max(ratio, used/limit)
	}
	return ratio, nil
}

// Close closes the connections.
func (r *Redis) Close() error { return errors.Join(r.client.Close(), r.blocking.Close()) }

// run executes a script by its file name.
func (r *Redis) run(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	return r.script[name].Run(ctx, r.client, keys, args...)
}

// pipe adds commands and scripts to a pipeline.
type pipe struct {
	redis.Pipeliner
	redis  *Redis
	source bool // scripts go with their sources
}

// script adds a script by its file name.
func (p pipe) script(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	if p.source {
		return p.Eval(ctx, p.redis.source[name], keys, args...)
	}
	return p.EvalSha(ctx, p.redis.script[name].Hash(), keys, args...)
}

// pipelined executes in one round trip what add adds. Sources would cost Redis more time than the scripts, so it sends
// their hashes. If a server has forgotten a script, as after a restart, pipelined calls add again and sends everything
// with sources, so all of it must be safe to repeat. Each command has its error; pipelined returns the first.
func (r *Redis) pipelined(ctx context.Context, add func(p pipe)) error {
	return r.pipelinedOn(ctx, r.client, add)
}

// read is pipelined for commands that read, and fails on a replica. A cluster redirects commands with keys, so no
// replica answers them.
func (r *Redis) read(ctx context.Context, add func(p redis.Pipeliner)) error {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		_, err := cluster.Pipelined(ctx, func(p redis.Pipeliner) error {
			add(p)
			return nil
		})
		return err
	}
	return r.readOn(ctx, r.client, add)
}

// readOn is read on one server.
func (r *Redis) readOn(ctx context.Context, client redis.Cmdable, add func(p redis.Pipeliner)) error {
	return r.pipelinedOn(ctx, client, func(p pipe) {
		p.script(ctx, "primary", nil)
		add(p.Pipeliner)
	})
}

// pipelinedOn is pipelined on one server, or on a cluster.
func (r *Redis) pipelinedOn(ctx context.Context, client redis.Cmdable, add func(p pipe)) error {
	var err error
	for _, source := range []bool{false, true} {
		var commands []redis.Cmder
		commands, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
			add(pipe{p, r, source})
			return nil
		})
		forgotten := func(c redis.Cmder) bool { return redis.HasErrorPrefix(c.Err(), "NOSCRIPT") }
		if !slices.ContainsFunc(commands, forgotten) {
			break
		}
	}
	return err
}

// runOnce executes a script as run does, but never sends it again after a connection was lost. Each attempt could be on
// its way for a moment, and the first could arrive after the reply to the second.
func (r *Redis) runOnce(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	words := make([]any, 3, 3+len(keys)+len(args))
	words[2] = len(keys)
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, args...)
	words[0], words[1] = "evalsha", r.script[name].Hash()
	cmd := redis.NewCmd(ctx, words...)
	err := r.client.Process(ctx, once{cmd})
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		words = slices.Clone(words)
		words[0], words[1] = "eval", r.source[name]
		cmd = redis.NewCmd(ctx, words...)
		_ = r.client.Process(ctx, once{cmd}) // cmd has the error
	}
	return cmd
}

// once is a command that go-redis does not retry.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// mayArrive reports whether a command that failed may reach Redis later: it was sent, and Redis did not reply.
func mayArrive(err error) bool {
	var reply redis.Error
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	return !errors.As(err, &reply) &&
		!errors.Is(err, gobreaker.ErrOpenState) && !errors.Is(err, gobreaker.ErrTooManyRequests) &&
		!errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrClosed) && !errors.Is(err, errReplica) &&
		!errors.Is(err, ErrForeign)
}

// redisError returns the text of an error with which Redis replied, and "" for other errors.
func redisError(err error) string {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return reply.Error()
	}
	return ""
}

// nodes returns the clients of all servers that accept writes.
func (r *Redis) nodes(ctx context.Context) (nodes []redis.Cmdable, err error) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{r.client}, nil
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

// node returns the client of the server that holds a shard's keys, for commands such as SCAN.
func (r *Redis) node(ctx context.Context, shard int) (redis.Cmdable, error) {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, shardKey(shard))
	}
	return r.client, nil
}
