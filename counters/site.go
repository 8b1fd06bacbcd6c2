package counters

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// ErrForeign means that Redis belongs to another installation. Two sites that used one Redis would take likes for each
// other.
var ErrForeign = errors.New("this redis belongs to another installation")

func foreign(shard int, site, other string) error {
	return fmt.Errorf(
		"%w: its shard %d has the installation id %s, and MySQL has %s; set LIKEWISE_REDIS to a Redis, or "+
			"a logical database, of its own",
		ErrForeign,
		shard,
		other,
		site,
	)
}

// UseSite sets the id of the installation, which is db.DB.Site, before the first call. From then on, connections
// to a Redis of another installation fail with ErrForeign. Relays note the id in the hashes of shards.
func (r *Redis) UseSite(site string) { r.site = site }

// greet runs on every connection before the first command.
func (r *Redis) greet(ctx context.Context, conn *redis.Conn) error {
	if err := refuseReplica(ctx, conn); err != nil {
		return err
	}
	return r.checkSite(ctx, conn)
}

// CheckSite returns ErrForeign if a shard in Redis belongs to another installation. A connection that was made before
// the shard was opened has not noticed.
func (r *Redis) CheckSite(ctx context.Context) error { return r.checkSite(ctx, r.client) }

// checkSite reads the ids of shards over one connection. A node of a cluster has some of the shards, and a Sentinel has
// none, so other errors mean nothing.
func (r *Redis) checkSite(ctx context.Context, conn interface {
	Pipelined(ctx context.Context, add func(redis.Pipeliner) error) ([]redis.Cmder, error)
},
) error {
	if r.site == "" {
		return nil
	}
	replies := make([]*redis.StringCmd, r.shards)
	_, err := conn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range replies {
			replies[shard] = p.HGet(ctx, shardKey(shard), "site")
		}
		return nil
	})
	if errors.Is(err, ErrForeign) { // of a new connection
		return err
	}
	for shard, reply := range replies {
		if site, err := reply.Result(); err == nil && site != r.site {
			return foreign(shard, r.site, site)
		}
	}
	return nil
}

// Own notes the id of the installation in the hash of the shard. If the shard belongs to another installation, Own
// returns ErrForeign.
func (o *Outbox) Own(ctx context.Context) error {
	if o.redis.site == "" {
		return nil
	}
	key := shardKey(o.shard)
	site, err := o.redis.client.HGet(ctx, key, "site").Result()
	if errors.Is(err, redis.Nil) { // a Redis that is out of memory refuses to write
		if err = o.redis.client.HSetNX(ctx, key, "site", o.redis.site).Err(); err == nil {
			site, err = o.redis.client.HGet(ctx, key, "site").Result()
		}
	}
	if err != nil {
		return fmt.Errorf("owner of shard %d: %w", o.shard, err)
	}
	if site != o.redis.site {
		return foreign(o.shard, o.redis.site, site)
	}
	return nil
}

// Remember notes the watermark of the shard, which was read from MySQL before the call, and returns the highest one
// that was noted. If that is higher and refuse is set, Remember closes the shard. If the lock was lost, it returns
// ErrLockLost.
func (o *Outbox) Remember(ctx context.Context, applied models.Position, refuse bool) (models.Position, error) {
	closing := 0
	if refuse {
		closing = 1
	}
	seen, err := o.redis.run(ctx, "remember", []string{shardKey(o.shard), relayKey(o.shard)},
		o.token, applied.String(), closing).Text()
	if err != nil {
		return models.Position{}, fmt.Errorf("remember watermark of shard %d: %w", o.shard, err)
	}
	if seen == "" {
		return models.Position{}, ErrLockLost
	}
	return models.ParsePosition(seen)
}
