package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// fault is a failure that the harness can cause. do injects the fault, holds it for some time and heals it. An error of
// do is an error of the harness, not of the product.
type fault struct {
	kind string
	do   func(ctx context.Context, x *injection) error
	disk bool // needs a disk that can be filled
	// clock and serverClock need clocks of processes or servers that can be set.
	clock, serverClock bool
	// single needs one Redis, which is reached through a proxy, and cluster a Redis Cluster.
	single, cluster bool
	// rest stops the clients and drains the pipeline for the duration of the fault.
	rest bool
}

// injection is an active fault. All its random choices come from rng, which depends only on the seed and on the number
// of the fault in the schedule. Neither the duration of earlier faults nor the clients change them.
type injection struct {
	*site

	st    *storm
	rng   *rand.Rand
	notes []string
	// afterwards restores what the site has to recover without, once it has recovered; nil for nothing.
	afterwards func() error
}

func newInjection(st *storm, seed uint64, number int) *injection {
	return &injection{site: st.site, st: st, rng: rand.New(rand.NewPCG(seed, uint64(number)+1<<32))}
}

func (x *injection) notef(format string, args ...any) {
	x.notes = append(x.notes, fmt.Sprintf(format, args...))
}

// hold waits for a random time from least to most.
func (x *injection) hold(ctx context.Context, low, high time.Duration) error {
	d := (low + time.Duration(x.rng.Int64N(int64(high-low)+1))).Round(10 * time.Millisecond)
	x.notef("%v", d)
	return wait(ctx, d)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// one returns one of the processes, at random.
func (x *injection) one(of []*process) []*process {
	i := x.rng.IntN(len(of))
	x.notef("%s", of[i].name)
	return of[i : i+1]
}

// during holds a fault, and then calls end, even if the harness is interrupted.
func (x *injection) during(ctx context.Context, low, high time.Duration, end func() error) error {
	err := x.hold(ctx, low, high)
	return errors.Join(err, end())
}

const (
	ms = time.Millisecond
	s1 = time.Second
)

// faults returns all faults.
func faults() []fault {
	apis := func(x *injection) []*process { return x.apis }
	workers := func(x *injection) []*process { return x.workers }
	crons := func(x *injection) []*process { return x.crons }
	product := func(x *injection) []*process { return x.product() }
	item := func(of func(*injection) []*process) func(*injection) []*process {
		return func(x *injection) []*process { return x.one(of(x)) }
	}
	mysql := func(x *injection) server { return x.mysql }
	ofRedis := func(x *injection) server { return x.redis }
	kafka := func(x *injection) server { return x.kafka }
	list := []fault{
		{kind: "api killed", do: killed(item(apis), 200*ms, 2*s1)},
		{kind: "both apis killed", do: killed(apis, 200*ms, 1*s1)},
		{kind: "worker killed", do: killed(item(workers), 200*ms, 4*s1)},
		{kind: "both workers killed", do: killed(workers, 200*ms, 3*s1)},
		{kind: "crons killed", do: killed(crons, 200*ms, 2*s1)},
		{kind: "all product processes killed", do: killed(product, 200*ms, 2*s1)},
		{kind: "worker killed again and again", do: again(4, 300*ms, 1500*ms, killed(item(workers), 0, 300*ms))},
		{kind: "api paused", do: paused(item(apis), 500*ms, 3*s1)},
		{kind: "api paused for long", do: paused(item(apis), 11*s1, 13*s1)},
		{kind: "worker paused", do: paused(item(workers), 500*ms, 4*s1)},
		{kind: "worker paused past lock and session", do: paused(item(workers), 11*s1, 15*s1)},
		{kind: "both workers paused past the lock", do: paused(workers, 6*s1, 8*s1)},
		{kind: "workers paused in turn", do: inTurnPaused},
		{kind: "crons paused", do: paused(crons, 2*s1, 6*s1)},
		{kind: "all product processes paused", do: paused(product, 1*s1, 6*s1)},
		{kind: "apis restarted in turn", do: restarted(apis)},
		{kind: "workers restarted in turn", do: restarted(workers)},
		{kind: "everything of the product restarted in turn", do: restarted(product)},
		{kind: "third worker comes and is killed", do: thirdWorker},
	}
	for _, v := range []struct {
		name  string
		of    func(*injection) server
		link  func(*injection) *proxy
		limit time.Duration // that requests are held; the callers' deadlines are shorter
	}{
		{"mysql", mysql, func(x *injection) *proxy { return x.toMySQL }, 12 * s1},
		{"redis", ofRedis, func(x *injection) *proxy { return x.toRedis }, 6 * s1},
		{"kafka", kafka, func(x *injection) *proxy { return x.toKafka }, 12 * s1},
	} {
		list = append(
			list,
			fault{kind: v.name + " killed", do: serversKilled(4*s1, v.of)},
			fault{kind: v.name + " restarted", do: serverRestarted(v.of)},
			fault{kind: v.name + " paused", do: serverPaused(500*ms, 3*s1, v.of)},
			fault{kind: v.name + " paused for long", do: serverPaused(6*s1, 8*s1, v.of)},
			fault{
				kind: v.name + " cut off",
				do:   linked(v.link, 1*s1, 5*s1, func(*injection) condition { return condition{flow: cut} }),
			},
			fault{kind: v.name + " connections reset", do: again(5, 100*ms, 800*ms, resetting(v.link))},
			fault{kind: v.name + " slow to answer", do: linked(v.link, 3*s1, 6*s1, func(x *injection) condition {
				d := time.Duration(50+x.rng.IntN(200)) * ms
				x.notef("%v each way", d)
				return condition{delay: d}
			})},
			fault{
				kind: v.name + " behind a thin line",
				do:   linked(v.link, 3*s1, 6*s1, func(*injection) condition { return condition{rate: 64 << 10} }),
			},
			fault{
				kind: v.name + " route broken, bytes late",
				do:   linked(v.link, 2*s1, 8*s1, func(*injection) condition { return condition{flow: stalled} }),
			},
			fault{
				kind: v.name + " route broken, bytes lost",
				do:   linked(v.link, 2*s1, 8*s1, func(*injection) condition { return condition{flow: lost} }),
			},
			fault{
				kind: v.name + " replies lost",
				do:   linked(v.link, 500*ms, 4*s1, func(*injection) condition { return condition{flow: deaf} }),
			},
			fault{kind: v.name + " calls held past their deadline", do: held(v.limit, v.link)},
			fault{kind: v.name + " clients gone unnoticed", do: orphaned(v.link)},
			fault{kind: v.name + " disk full", do: full(v.of), disk: true},
		)
	}
	anAPI := func(x *injection) *proxy { return x.toAPIs[x.rng.IntN(len(x.toAPIs))] }
	list = append(
		list,
		fault{kind: "api requests held past their deadline", do: held(14*s1, anAPI)},
		fault{kind: "api connections reset", do: again(5, 100*ms, 800*ms, resetting(anAPI))},
		fault{
			kind: "api replies lost",
			do: again(3, 200*ms, 1*s1, linked(func(x *injection) *proxy { return x.toAPIs[0] }, 500*ms, 2*s1,
				func(*injection) condition { return condition{flow: deaf} })),
		},
		fault{kind: "mysql read-only", do: statements("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0")},
		fault{kind: "mysql tables locked", do: tablesLocked},
		fault{kind: "mysql connections killed", do: again(5, 100*ms, 800*ms, mysqlKills)},
		fault{kind: "mysql takes few connections", do: fewConnections},
		fault{
			kind: "redis connections killed",
			do:   again(5, 100*ms, 800*ms, redisDo("client", "kill", "type", "normal", "skipme", "yes")),
		},
		fault{kind: "redis holds back writes", do: redisDo("client", "pause", "3000", "write")},
		fault{kind: "redis holds back all", do: redisDo("client", "pause", "3000", "all")},
		fault{kind: "redis forgets scripts", do: again(10, 50*ms, 300*ms, redisDo("script", "flush"))},
		fault{kind: "redis busy", do: again(3, 200*ms, 500*ms, redisDo("debug", "sleep", "1.2"))},
		fault{
			kind: "redis out of memory",
			do:   redisConfigured([]any{"config", "set", "maxmemory", "1"}, []any{"config", "set", "maxmemory", "0"}),
		},
		fault{
			kind: "redis demoted to replica",
			do:   redisConfigured([]any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}),
		},
		fault{kind: "api clock ahead", do: clockOff(apis, true), clock: true},
		fault{kind: "api clock behind", do: clockOff(apis, false), clock: true},
		fault{kind: "worker clock ahead", do: clockOff(workers, true), clock: true},
		fault{kind: "worker clock behind", do: clockOff(workers, false), clock: true},
		fault{kind: "cron clock ahead", do: clockOff(crons, true), clock: true},
		fault{kind: "cron clock behind", do: clockOff(crons, false), clock: true},
		fault{kind: "redis clock ahead", do: serverClockOff("redis", true), serverClock: true},
		fault{kind: "redis clock behind", do: serverClockOff("redis", false), serverClock: true},
		fault{kind: "mysql clock ahead", do: serverClockOff("mysql", true), serverClock: true},
		fault{kind: "mysql clock behind", do: serverClockOff("mysql", false), serverClock: true},
		fault{kind: "redis fails over, and the demoted one is behind", do: failedOver},
		fault{kind: "redis slots move", do: slotsMoved, cluster: true},
		fault{kind: "redis slots move, the log loses events", do: logLosesWhileSlotsMove, cluster: true, rest: true},
		fault{kind: "redis killed while it rewrites its log", do: killedInRewrite},
		fault{kind: "redis emptied after a flush", do: redisEmptied, rest: true},
		fault{kind: "redis loses its outboxes after a flush", do: outboxesDeleted, rest: true},
		fault{kind: "mysql and redis killed", do: serversKilled(2*s1, mysql, ofRedis)},
		fault{kind: "redis and kafka killed", do: serversKilled(2*s1, ofRedis, kafka)},
		fault{kind: "mysql and kafka killed", do: serversKilled(2*s1, mysql, kafka)},
		fault{kind: "all servers killed", do: serversKilled(2*s1, mysql, ofRedis, kafka)},
		fault{kind: "all servers paused", do: serverPaused(1*s1, 6*s1, mysql, ofRedis, kafka)},
		fault{kind: "everything killed at once", do: everythingKilled},
		fault{kind: "everything paused at once", do: everythingPaused},
		fault{kind: "redis killed, workers with it", do: withWorkers(ofRedis)},
		fault{kind: "mysql killed, workers with it", do: withWorkers(mysql)},
		fault{kind: "kafka killed, workers with it", do: withWorkers(kafka)},
	)
	list = append(list, pairs(ofRedis, workers)...)
	// Of the faults of Redis alone, these work with a cluster, too.
	for i, f := range list {
		what, itsOwn := strings.CutPrefix(f.kind, "redis ")
		switch what {
		case "killed", "killed, workers with it", "and kafka killed", "restarted", "paused", "paused for long",
			"loses its outboxes after a flush":
		default:
			list[i].single = itsOwn && !f.cluster
		}
	}
	return list
}

// killed kills processes with SIGKILL, all at once, and restarts them.
func killed(of func(*injection) []*process, low, high time.Duration) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		list := of(x)
		killAll(list)
		return x.during(ctx, low, high, func() error { return startAll(list) })
	}
}

func killAll(list []*process) {
	var all sync.WaitGroup
	for _, p := range list {
		all.Go(p.kill)
	}
	all.Wait()
}

func startAll(list []*process) error {
	var err error
	for _, p := range list {
		err = errors.Join(err, p.start())
	}
	return err
}

// paused pauses processes with SIGSTOP. To other processes they seem slow, and they do not notice the pause.
func paused(of func(*injection) []*process, low, high time.Duration) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		list := of(x)
		for _, p := range list {
			p.signal(syscall.SIGSTOP)
		}
		return x.during(ctx, low, high, func() error {
			for _, p := range list {
				p.signal(syscall.SIGCONT)
			}
			return nil
		})
	}
}

// inTurnPaused pauses one worker until its locks have expired, and resumes it while it pauses the other. So both
// workers act for the same shards.
func inTurnPaused(ctx context.Context, x *injection) error {
	a, b := x.workers[0], x.workers[1]
	a.signal(syscall.SIGSTOP)
	err := x.hold(ctx, 6*s1, 7*s1)
	b.signal(syscall.SIGSTOP)
	a.signal(syscall.SIGCONT)
	err = errors.Join(err, x.hold(ctx, 6*s1, 7*s1))
	b.signal(syscall.SIGCONT)
	return err
}

// termLimit is how long a process may take to stop. It exceeds the promised ten seconds, for busy machines.
const termLimit = 15 * time.Second

// restarted restarts processes one by one with SIGTERM, as a deployment does.
func restarted(of func(*injection) []*process) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		for _, p := range of(x) {
			if err := p.term(termLimit); err != nil {
				x.slowStops.Add(1)
				x.st.violations.Addf("a bad end", x.since(), "%v", err)
			}
			if err := p.start(); err != nil {
				return err
			}
			if err := wait(ctx, 700*ms); err != nil {
				return err
			}
		}
		return nil
	}
}

// thirdWorker starts and kills a third worker, so that the consumer group rebalances several times.
func thirdWorker(ctx context.Context, x *injection) error {
	p, err := x.process(fmt.Sprintf("extra%d", x.extraCount.Add(1)), nil, "worker")
	if err != nil {
		return err
	}
	defer p.kill()
	for range 3 {
		if err := p.start(); err != nil {
			return err
		}
		if err := x.hold(ctx, 1*s1, 3*s1); err != nil {
			return err
		}
		p.kill()
	}
	return nil
}

// again repeats a fault, with random pauses.
func again(
	times int,
	low, high time.Duration,
	do func(context.Context, *injection) error,
) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		for range times {
			if err := do(ctx, x); err != nil {
				return err
			}
			if err := x.hold(ctx, low, high); err != nil {
				return err
			}
		}
		return nil
	}
}

func serversKilled(limit time.Duration, of ...func(*injection) server) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		err := killServers(x, of...)
		return errors.Join(err, x.during(ctx, 100*ms, limit, func() error { return x.startServersAgain(ctx, of...) }))
	}
}

func killServers(x *injection, of ...func(*injection) server) error {
	errs := make([]error, len(of))
	var all sync.WaitGroup
	for i, v := range of {
		all.Go(func() { errs[i] = v(x).Kill() })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (x *injection) startServersAgain(ctx context.Context, of ...func(*injection) server) error {
	errs := make([]error, len(of))
	var all sync.WaitGroup
	for i, v := range of {
		all.Go(func() { errs[i] = v(x).Start(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func serverRestarted(of func(*injection) server) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		err := of(x).Stop(ctx)
		return errors.Join(err, x.during(ctx, 0, 2*s1, func() error { return of(x).Start(ctx) }))
	}
}

func serverPaused(low, high time.Duration, of ...func(*injection) server) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		var err error
		for _, v := range of {
			err = errors.Join(err, v(x).Pause())
		}
		return errors.Join(err, x.during(ctx, low, high, func() error {
			var err error
			for _, v := range of {
				err = errors.Join(err, v(x).Resume())
			}
			return err
		}))
	}
}

func linked(
	link func(*injection) *proxy,
	low, high time.Duration,
	c func(*injection) condition,
) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		link(x).set(c(x))
		return x.during(ctx, low, high, func() error {
			link(x).set(condition{})
			return nil
		})
	}
}

func resetting(link func(*injection) *proxy) func(context.Context, *injection) error {
	return func(_ context.Context, x *injection) error {
		link(x).reset()
		return nil
	}
}

// held keeps requests in the network for longer than their callers wait, and then delivers them. Three times it picks
// some of the connections; the others pass, and so do new ones. So their callers give up, and what they send next
// overtakes what is held.
func held(limit time.Duration, link func(*injection) *proxy) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		p, picks := link(x), rand.New(rand.NewPCG(x.rng.Uint64(), 0))
		err := func() error {
			for range 3 {
				p.hold(func() bool { return picks.IntN(2) == 0 })
				if err := x.hold(ctx, limit/12, limit/3); err != nil {
					return err
				}
			}
			return nil
		}()
		x.notef("%d requests", p.release())
		return err
	}
}

func orphaned(link func(*injection) *proxy) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		link(x).orphan()
		return x.during(ctx, 2*s1, 6*s1, func() error {
			link(x).bury()
			return nil
		})
	}
}

// full fills the disk of a server to the last byte.
func full(of func(*injection) server) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		path := filepath.Join(of(x).(singleServer).Dir(), "filler")
		if err := fill(path); err != nil {
			return err
		}
		return x.during(ctx, 2*s1, 5*s1, func() error { return os.Remove(path) })
	}
}

func fill(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fill disk: %w", err)
	}
	defer f.Close()
	var size int64
	for step := int64(64 << 20); step >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, step); {
		case err == nil:
			size += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		case errors.Is(err, unix.EINTR):
		default:
			return fmt.Errorf("fill disk: %w", err)
		}
	}
	return nil
}

func (x *injection) exec(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, err := x.db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func statements(begin, end string) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		err := x.exec(ctx, begin)
		return errors.Join(err, x.during(ctx, 2*s1, 5*s1, func() error { return x.exec(ctx, end) }))
	}
}

// tablesLocked locks all tables as a backup tool does, so that no transaction commits.
func tablesLocked(ctx context.Context, x *injection) error {
	conn, err := x.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "FLUSH TABLES WITH READ LOCK"); err != nil {
		return fmt.Errorf("lock tables: %w", err)
	}
	return x.during(ctx, 2*s1, 5*s1, func() error {
		_, err := conn.ExecContext(ctx, "UNLOCK TABLES")
		return err
	})
}

func (x *injection) productConnections(ctx context.Context) ([]int64, error) {
	rows, err := x.db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE user = ?", productUser)
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("list connections: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func mysqlKills(ctx context.Context, x *injection) error {
	ids, err := x.productConnections(ctx)
	for _, id := range ids {
		_, _ = x.db.ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // the connection may have ended
	}
	return err
}

// fewConnections limits the server to fewer connections than one process uses.
func fewConnections(ctx context.Context, x *injection) error {
	err := x.exec(ctx, "SET GLOBAL max_connections = 10")
	err = errors.Join(err, mysqlKills(ctx, x))
	return errors.Join(err,
		x.during(ctx, 3*s1, 6*s1, func() error { return x.exec(ctx, "SET GLOBAL max_connections = 500") }))
}

func redisDo(args ...string) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		list := make([]any, len(args))
		for i, a := range args {
			list[i] = a
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := x.rdb.Do(ctx, list...).Err(); err != nil {
			return fmt.Errorf("redis %s: %w", strings.Join(args, " "), err)
		}
		return nil
	}
}

func redisConfigured(begin, end []any) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		err := x.rdb.Do(ctx, begin...).Err()
		return errors.Join(err, x.during(ctx, 2*s1, 5*s1, func() error { return x.rdb.Do(ctx, end...).Err() }))
	}
}

func killedInRewrite(ctx context.Context, x *injection) error {
	if err := x.rdb.Do(ctx, "bgrewriteaof").Err(); err != nil {
		return fmt.Errorf("rewrite log: %w", err)
	}
	if err := x.hold(ctx, 0, 60*ms); err != nil {
		return err
	}
	err := x.redis.Kill()
	return errors.Join(err, x.redis.Start(ctx))
}

// redisEmptied empties Redis while the clients pause and every like is in MySQL. At that time Redis may lose all data.
func redisEmptied(ctx context.Context, x *injection) error {
	err := x.redis.Kill()
	data := filepath.Join(x.single.Dir(), "data")
	err = errors.Join(err, os.RemoveAll(data), os.Mkdir(data, 0o700))
	return errors.Join(err, x.redis.Start(ctx))
}

// outboxesDeleted deletes the outboxes while the clients pause and every like is in MySQL, as an operator might who
// takes them for leftovers. So nothing is lost but the last positions.
func outboxesDeleted(ctx context.Context, x *injection) error {
	clients := []*redis.Client{x.rdb}
	if x.clustered {
		clients = x.cluster.clients
	}
	deleted := 0
	for _, client := range clients {
		keys, err := client.Keys(ctx, "*:outbox").Result()
		if err != nil {
			return fmt.Errorf("find outboxes: %w", err)
		}
		for _, key := range keys {
			if err := client.Del(ctx, key).Err(); err != nil {
				return fmt.Errorf("delete outbox: %w", err)
			}
		}
		deleted += len(keys)
	}
	x.notef("%d outboxes", deleted)
	return x.hold(ctx, 0, 1*s1)
}

func everythingKilled(ctx context.Context, x *injection) error {
	var err error
	var both sync.WaitGroup
	all := []func(*injection) server{
		func(x *injection) server { return x.mysql },
		func(x *injection) server { return x.redis },
		func(x *injection) server { return x.kafka },
	}
	both.Go(func() { err = killServers(x, all...) })
	both.Go(func() { killAll(x.product()) })
	both.Wait()
	return errors.Join(err, x.during(ctx, 0, 1*s1, func() error {
		return errors.Join(x.startServersAgain(ctx, all...), startAll(x.product()))
	}))
}

func everythingPaused(ctx context.Context, x *injection) error {
	for _, p := range x.product() {
		p.signal(syscall.SIGSTOP)
	}
	err := serverPaused(2*s1, 8*s1, func(x *injection) server { return x.mysql },
		func(x *injection) server { return x.redis }, func(x *injection) server { return x.kafka })(ctx, x)
	for _, p := range x.product() {
		p.signal(syscall.SIGCONT)
	}
	return err
}

// withWorkers kills a server and the workers at once, so that no process knows which work was unfinished.
func withWorkers(of func(*injection) server) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		var err error
		var both sync.WaitGroup
		both.Go(func() { err = of(x).Kill() })
		both.Go(func() { killAll(x.workers) })
		both.Wait()
		return errors.Join(err, x.during(ctx, 100*ms, 2*s1, func() error {
			return errors.Join(of(x).Start(ctx), startAll(x.workers))
		}))
	}
}
