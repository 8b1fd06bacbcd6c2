package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/internal/servers"
)

// redisCluster is a small Redis Cluster: masters with half of the slots each, and no replicas. The product connects to
// the nodes themselves, because they name one another's addresses.
type redisCluster struct {
	nodes   []*servers.Redis
	clients []*redis.Client
}

const clusterNodes = 2

func startRedisCluster(ctx context.Context, dir, fsync string) (*redisCluster, error) {
	c := &redisCluster{}
	var buses []int
	for i := range clusterNodes {
		bus, err := freePort()
		if err != nil {
			return c, err
		}
		node, err := servers.StartRedis(ctx, filepath.Join(dir, fmt.Sprintf("node%d", i)), "--appendfsync", fsync,
			"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", strconv.Itoa(bus))
		if err != nil {
			return c, err
		}
		buses = append(buses, bus)
		c.nodes = append(c.nodes, node)
		c.clients = append(c.clients, redis.NewClient(&redis.Options{
			Addr: node.Addr(), MaxRetries: -1, DisableIdentity: true,
		}))
	}
	host, port, err := net.SplitHostPort(c.nodes[0].Addr())
	if err != nil {
		return c, fmt.Errorf("address of a node: %w", err)
	}
	const slots = 16384
	for i, client := range c.clients {
		err := client.ClusterAddSlotsRange(ctx, i*slots/clusterNodes, (i+1)*slots/clusterNodes-1).Err()
		if err == nil && i > 0 {
			err = errors.Join(client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
				client.Do(ctx, "CLUSTER", "MEET", host, port, buses[0]).Err())
		}
		if err != nil {
			return c, fmt.Errorf("form a cluster: %w", err)
		}
	}
	return c, c.awaitReady(ctx)
}

// awaitReady waits until every node serves its slots.
func (c *redisCluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, client := range c.clients {
		for !strings.Contains(client.ClusterInfo(ctx).Val(), "cluster_state:ok") {
			if err := wait(ctx, 50*time.Millisecond); err != nil {
				return fmt.Errorf("the cluster does not become ready: %w", err)
			}
		}
	}
	return nil
}

// url returns the address for the product.
func (c *redisCluster) url() string {
	return "redis+cluster://" + c.nodes[0].Addr() + "?addr=" + c.nodes[1].Addr()
}

// each calls do for each node, and returns all errors.
func (c *redisCluster) each(do func(*servers.Redis) error) error {
	var err error
	for _, node := range c.nodes {
		err = errors.Join(err, do(node))
	}
	return err
}

// Start starts all nodes, and waits until they serve.
func (c *redisCluster) Start(ctx context.Context) error {
	err := c.each(func(node *servers.Redis) error { return node.Start(ctx) })
	return errors.Join(err, c.awaitReady(ctx))
}

// Stop stops all nodes.
func (c *redisCluster) Stop(ctx context.Context) error {
	return c.each(func(node *servers.Redis) error { return node.Stop(ctx) })
}

// Kill kills all nodes.
func (c *redisCluster) Kill() error {
	return c.each(func(node *servers.Redis) error { return node.Kill() })
}

// Pause pauses all nodes.
func (c *redisCluster) Pause() error {
	return c.each(func(node *servers.Redis) error { return node.Pause() })
}

// Resume resumes all nodes.
func (c *redisCluster) Resume() error {
	return c.each(func(node *servers.Redis) error { return node.Resume() })
}

// slotsMoved moves slots from one node to the other while likes run, key by key, as an operator reshards a cluster.
func slotsMoved(ctx context.Context, x *injection) error {
	for range 3 {
		from := x.rng.IntN(clusterNodes)
		if err := x.cluster.move(ctx, from, 1-from); err != nil {
			return err
		}
		if err := x.hold(ctx, 200*ms, 1500*ms); err != nil {
			return err
		}
	}
	return nil
}

// move moves the slot of any key of a node. Between the keys it pauses, so that calls meet every state between.
func (c *redisCluster) move(ctx context.Context, from, to int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	source, sink := c.clients[from], c.clients[to]
	key, err := source.RandomKey(ctx).Result()
	if errors.Is(err, redis.Nil) {
		return nil // it has no key
	}
	if err != nil {
		return fmt.Errorf("find a key: %w", err)
	}
	slot := source.ClusterKeySlot(ctx, key).Val()
	ids := []string{source.ClusterMyID(ctx).Val(), sink.ClusterMyID(ctx).Val()}
	err = errors.Join(sink.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0]).Err(),
		source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1]).Err())
	if err != nil {
		return fmt.Errorf("move slot %d: %w", slot, err)
	}
	host, port, err := net.SplitHostPort(c.nodes[to].Addr())
	if err != nil {
		return fmt.Errorf("address of a node: %w", err)
	}
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), 5).Result()
		if err != nil {
			return fmt.Errorf("list slot %d: %w", slot, err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			if err := source.Migrate(ctx, host, port, key, 0, 5*time.Second).Err(); err != nil {
				return fmt.Errorf("move key %s: %w", key, err)
			}
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	err = errors.Join(sink.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", ids[1]).Err(),
		source.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", ids[1]).Err())
	if err != nil {
		return fmt.Errorf("end the move of slot %d: %w", slot, err)
	}
	return nil
}

// logLosesWhileSlotsMove removes accepted likes from the outboxes while the workers stand still, as if Kafka had
// acknowledged and lost them. Redis still has their effect. The reconciler sends it again while slots move.
func logLosesWhileSlotsMove(ctx context.Context, x *injection) error {
	for _, p := range x.workers {
		p.signal(syscall.SIGSTOP)
	}
	for _, c := range x.st.clients {
		r := c.choose()
		c.st.set(ctx, c.route, r, !r.LastWanted())
	}
	var lost int64
	for _, client := range x.cluster.clients {
		keys, err := client.Keys(ctx, "*:outbox").Result()
		if err != nil {
			return fmt.Errorf("find outboxes: %w", err)
		}
		for _, key := range keys {
			n, err := client.XTrimMaxLen(ctx, key, 0).Result()
			if err != nil {
				return fmt.Errorf("trim outbox: %w", err)
			}
			lost += n
		}
	}
	x.notef("%d runs", lost)
	x.logLosses.Add(lost)
	for _, p := range x.workers {
		p.signal(syscall.SIGCONT)
	}
	reconciling, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		for reconciling.Err() == nil {
			_, _ = x.command(ctx, "cron", "run", "reconcile", "--timeout=20s") // it fails while the slot of a gap moves
		}
	})
	err := slotsMoved(ctx, x)
	stop()
	all.Wait()
	return err
}
