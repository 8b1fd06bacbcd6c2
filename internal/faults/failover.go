package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/internal/servers"
)

// standby is a second Redis with data of its own. It replicates from the first while a fault needs it. The links of the
// replication, one each way, lead through proxies, so that the replica can be behind.
type standby struct {
	server      *servers.Redis
	client      *redis.Client
	fromFirst   *proxy // to the first Redis, for the second
	fromStandby *proxy // to the second Redis, for the first
}

// standby starts a second Redis, which has all of the first one's data when standby returns.
func (x *injection) standby(ctx context.Context) (*standby, error) {
	dir := filepath.Join(x.dir, "standby")
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove data of the standby: %w", err)
	}
	server, err := servers.StartRedis(ctx, dir, "--appendfsync", "no")
	if err != nil {
		return nil, err
	}
	b := &standby{server: server}
	b.client = redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DisableIdentity: true})
	for _, way := range []struct {
		link **proxy
		to   string
	}{{&b.fromFirst, x.single.Addr()}, {&b.fromStandby, server.Addr()}} {
		if *way.link, err = newProxy(); err != nil {
			return b, err
		}
		(*way.link).lead(way.to)
	}
	if err := replicate(ctx, b.client, b.fromFirst); err != nil {
		return b, err
	}
	return b, awaitSync(ctx, x.rdb, b.client)
}

// stop stops the second Redis.
func (b *standby) stop(ctx context.Context) error {
	for _, p := range []*proxy{b.fromFirst, b.fromStandby} {
		if p != nil {
			p.close()
		}
	}
	return errors.Join(b.client.Close(), b.server.Stop(ctx))
}

// replicate makes a server a replica of the one that a proxy leads to.
func replicate(ctx context.Context, replica *redis.Client, from *proxy) error {
	host, port, _ := strings.Cut(from.addr(), ":")
	if err := replica.Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		return fmt.Errorf("make a replica: %w", err)
	}
	return nil
}

// replication returns a field of INFO replication.
func replication(ctx context.Context, of *redis.Client, field string) (string, error) {
	info, err := of.Info(ctx, "replication").Result()
	if err != nil {
		return "", fmt.Errorf("read replication: %w", err)
	}
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// awaitSync waits until a replica has everything that its primary has.
func awaitSync(ctx context.Context, primary, replica *redis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		link, err := replication(ctx, replica, "master_link_status")
		if err != nil {
			return err
		}
		at, err := replication(ctx, replica, "slave_repl_offset")
		if err != nil {
			return err
		}
		goal, err := replication(ctx, primary, "master_repl_offset")
		if err != nil {
			return err
		}
		has, _ := strconv.ParseInt(at, 10, 64) // empty before the first synchronization
		must, err := strconv.ParseInt(goal, 10, 64)
		if err != nil {
			return fmt.Errorf("read replication: %w", err)
		}
		if link == "up" && has >= must {
			return nil
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("the replica does not follow: %w", err)
		}
	}
}

// exchange promotes a replica and demotes its primary, without a loss: the primary accepts no writes until the replica
// has all. The product's next connections lead to the promoted server, and its present ones stay.
func (x *injection) exchange(ctx context.Context, primary, replica *redis.Client, to string, back *proxy) error {
	err := primary.Do(ctx, "CLIENT", "PAUSE", "10000", "WRITE").Err()
	if err = errors.Join(err, awaitSync(ctx, primary, replica)); err != nil {
		return fmt.Errorf("exchange servers: %w", err)
	}
	err = replica.Do(ctx, "REPLICAOF", "NO", "ONE").Err()
	if err = errors.Join(err, replicate(ctx, primary, back)); err != nil {
		return fmt.Errorf("exchange servers: %w", err)
	}
	x.toRedis.lead(to)
	if err := primary.Do(ctx, "CLIENT", "UNPAUSE").Err(); err != nil {
		return fmt.Errorf("exchange servers: %w", err)
	}
	return nil
}

// failedOver promotes a second Redis while an API stands still. The first becomes its replica, follows until the shards
// are open on the new primary, and is behind from then on. So the API finds its connections alive, and they lead to a
// server that knows less than was acknowledged. In the end the first is promoted again.
func failedOver(ctx context.Context, x *injection) (err error) {
	b, err := x.standby(ctx)
	if b != nil {
		defer func() { err = errors.Join(err, b.stop(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return err
	}
	x.toRedis.set(condition{delay: 60 * ms}) // so that the processes open more connections
	err = x.hold(ctx, 1*s1, 1500*ms)
	api := x.one(x.apis)[0]
	api.signal(syscall.SIGSTOP)
	defer api.signal(syscall.SIGCONT)
	x.toRedis.set(condition{})
	if err = errors.Join(err, x.exchange(ctx, x.rdb, b.client, b.server.Addr(), b.fromStandby)); err != nil {
		return err
	}
	err = x.hold(ctx, 1500*ms, 2500*ms)
	if err = errors.Join(err, awaitSync(ctx, b.client, x.rdb)); err != nil {
		return err
	}
	b.fromStandby.set(condition{flow: stalled})
	err = x.hold(ctx, 1500*ms, 2500*ms)
	api.signal(syscall.SIGCONT)
	if err = errors.Join(err, x.hold(ctx, 2*s1, 4*s1)); err != nil {
		return err
	}
	b.fromStandby.set(condition{})
	if err := awaitSync(ctx, b.client, x.rdb); err != nil {
		return err
	}
	if err := x.exchange(ctx, b.client, x.rdb, x.single.Addr(), b.fromFirst); err != nil {
		return err
	}
	err = x.during(ctx, 500*ms, 1500*ms, func() error {
		x.toRedis.resetTo(b.server.Addr())
		return nil
	})
	return errors.Join(err, awaitLog(ctx, x.rdb))
}

// awaitLog waits until a server that was a replica keeps what it acknowledges in its log again. It writes a new log if
// it was sent all data.
func awaitLog(ctx context.Context, of *redis.Client) error {
	for {
		info, err := of.Info(ctx, "persistence").Result()
		if err != nil {
			return fmt.Errorf("read persistence: %w", err)
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			return nil
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}
