package counters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// Outbox is the outbox of a shard whose relay lock this process holds. The lock only avoids duplicate work. If two
// relays read the same outbox, no event is lost or applied twice, because the like writer compares positions.
type Outbox struct {
	Lock

	shard int
}

// HoldOutbox acquires the relay lock of a shard for ttl. The owner of the lock is token. If the same token already
// holds the lock, because Redis was down when it should have been released, HoldOutbox succeeds at once. If another
// token holds it, HoldOutbox returns ErrLockLost.
func (r *Redis) HoldOutbox(ctx context.Context, shard int, token string, ttl time.Duration) (*Outbox, error) {
	return r.AwaitOutbox(ctx, shard, token, ttl, 0)
}

// AwaitOutbox is HoldOutbox, but waits for the lock until wait is over.
func (r *Redis) AwaitOutbox(
	ctx context.Context, shard int, token string, ttl, wait time.Duration,
) (*Outbox, error) {
	o := &Outbox{Lock: r.lock(relayKey(shard), token), shard: shard}
	if err := o.Acquire(ctx, ttl, wait); err != nil {
		return nil, fmt.Errorf("relay of shard %d: %w", shard, err)
	}
	return o, nil
}

// Read returns the runs of the outbox after a position, the oldest first, at most limit. If there are none, Read waits
// for one. After wait it returns none, without an error.
func (o *Outbox) Read(
	ctx context.Context, after models.Position, limit int64, wait time.Duration,
) ([]models.Enveloped, error) {
	streams, err := o.redis.blocking.XRead(ctx, &redis.XReadArgs{
		Streams: []string{outboxKey(o.shard), after.String()}, Count: limit, Block: wait,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read outbox %d: %w", o.shard, err)
	}
	var runs []models.Enveloped
	for _, entry := range streams[0].Messages {
		pos, err := models.ParsePosition(entry.ID)
		if err != nil {
			return nil, fmt.Errorf("outbox %d: %w", o.shard, err)
		}
		run, _ := entry.Values["run"].(string)
		runs = append(runs, models.Enveloped{Pos: pos, Run: models.Run(run)})
	}
	return runs, nil
}

// Trim removes the events up to and including last, which Kafka has acknowledged. If this process does not hold the
// lock, Trim returns ErrLockLost.
func (o *Outbox) Trim(ctx context.Context, last models.Position) error {
	keep := models.Position{Epoch: last.Epoch, Seq: last.Seq + 1}
	n, err := o.redis.run(ctx, "trim", []string{relayKey(o.shard), outboxKey(o.shard)}, o.token, keep.String()).
		Int()
	if err != nil {
		return fmt.Errorf("trim outbox %d: %w", o.shard, err)
	}
	if n < 0 {
		return ErrLockLost
	}
	return nil
}

// Info reads the state of the shard.
func (o *Outbox) Info(ctx context.Context) (ShardInfo, error) { return o.redis.ShardInfo(ctx, o.shard) }

// Seal begins to open the shard under a new epoch, which must be higher than that of ShardInfo.Last. It adds
// ShardOpened to the outbox, and returns the last position in this Redis when the shard was closed. An open shard is
// closed. If the server may evict keys, Seal returns ErrEvicts, and the shard stays as it is.
func (o *Outbox) Seal(ctx context.Context, epoch int64) (models.Position, error) {
	reply, err := o.redis.run(ctx, "seal", []string{shardKey(o.shard), outboxKey(o.shard), relayKey(o.shard)},
		o.token, epoch).Slice()
	if policy, evicts := strings.CutPrefix(redisError(err), "EVICTS "); evicts {
		err = errPolicy(policy)
	}
	if err != nil {
		return models.Position{}, fmt.Errorf("seal shard %d: %w", o.shard, err)
	}
	if len(reply) < 2 {
		return models.Position{}, ErrLockLost
	}
	restored, _ := reply[1].(string)
	return models.ParsePosition(restored)
}

// Opened ends the opening. From then on the shard accepts likes. If the lock was lost, or Redis was restarted since the
// opening began, Opened returns ErrLockLost.
func (o *Outbox) Opened(ctx context.Context, epoch int64) error {
	ok, err := o.redis.run(ctx, "opened", []string{shardKey(o.shard), relayKey(o.shard)}, o.token, epoch).Int()
	if err != nil {
		return fmt.Errorf("open shard %d: %w", o.shard, err)
	}
	if ok == 0 {
		return ErrLockLost
	}
	return nil
}

// ForgetTargets evicts all targets of a shard that is being opened under epoch. If the lock was lost, or the opening is
// over, it returns ErrLockLost. If the shard is moving to another node, it returns ErrMoving.
func (o *Outbox) ForgetTargets(ctx context.Context, epoch int64) error {
	forget := func(found []string) error {
		keys := append([]string{shardKey(o.shard), relayKey(o.shard), garbageKey(o.shard)}, found...)
		ok, err := o.redis.run(ctx, "forget", keys, o.token, epoch).Int()
		if err == nil && ok == 0 {
			return ErrLockLost
		}
		return err
	}
	err := o.redis.EachWarmOf(ctx, o.shard, func(targets []models.Target) error {
		for batch := range slices.Chunk(targets, forgetBatch) {
			var found []string
			for _, target := range batch {
				found = append(found, o.redis.likesKey(target))
			}
			if err := forget(found); err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, forget(nil)); err != nil {
		return fmt.Errorf("forget targets of shard %d: %w", o.shard, err)
	}
	return nil
}

// forgetBatch is how many keys a script evicts. Redis runs no other command during a script.
const forgetBatch = 200

// CloseShards closes all shards: from then on the gate refuses likes until relays open the shards again. It returns
// their states at that moment: Shard, Last, and Open if the shard was open until then. Of other shards, Redis may have
// lost the last likes, and Kafka may hold likes after Last.
func (r *Redis) CloseShards(ctx context.Context) ([]ShardInfo, error) {
	replies := make([]*redis.Cmd, r.shards)
	err := r.pipelined(ctx, func(p pipe) {
		for shard := range replies {
			replies[shard] = p.script(ctx, "leave", []string{shardKey(shard), outboxKey(shard)})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("close shards: %w", err)
	}
	infos := make([]ShardInfo, r.shards)
	for shard, reply := range replies {
		values, err := reply.Slice()
		if err != nil {
			return nil, fmt.Errorf("close shard %d: %w", shard, err)
		}
		last, _ := values[1].(string)
		infos[shard] = ShardInfo{Shard: shard, Open: values[0] == int64(1)}
		if infos[shard].Last, err = models.ParsePosition(last); err != nil {
			return nil, fmt.Errorf("close shard %d: %w", shard, err)
		}
	}
	return infos, nil
}

// Probe sends an event without an effect through the pipeline of an open shard. If the shard is closed, Probe does
// nothing and reports false.
func (r *Redis) Probe(ctx context.Context, shard int) (sent bool, err error) {
	n, err := r.run(ctx, "probe", []string{shardKey(shard), outboxKey(shard)}).Int()
	if err != nil {
		return false, fmt.Errorf("probe shard %d: %w", shard, err)
	}
	return n == 1, nil
}

// CloseOvertaken closes an open shard that has not had a position that MySQL had applied before the call, and reports
// whether it did. This Redis has lost positions, or another one has served the site, and the like writer would drop
// what the shard appends. Its relay opens it again, and evicts its targets.
func (r *Redis) CloseOvertaken(ctx context.Context, shard int, applied models.Position) (closed bool, err error) {
	return r.closeOvertaken(ctx, shard, applied, "")
}

// CloseRewound is CloseOvertaken for a shard that is open under epoch, and of which the relay has read positions again
// that it had trimmed. By now the shard may be past the watermark.
func (r *Redis) CloseRewound(ctx context.Context, shard int, epoch int64) (closed bool, err error) {
	return r.closeOvertaken(ctx, shard, models.Position{}, strconv.FormatInt(epoch, 10))
}

func (r *Redis) closeOvertaken(
	ctx context.Context, shard int, applied models.Position, rewound string,
) (closed bool, err error) {
	keys := []string{shardKey(shard), outboxKey(shard)}
	n, err := r.run(ctx, "overtaken", keys, applied.String(), rewound).Int()
	if err != nil {
		return false, fmt.Errorf("close overtaken shard %d: %w", shard, err)
	}
	return n == 1, nil
}

// ShardInfo is the state of a shard in Redis.
type ShardInfo struct {
	Shard  int
	Open   bool            // it accepts likes: it was opened since its server's last restart or promotion
	Held   bool            // a relay holds its lock
	Holder string          // the token of that relay; see HoldOutbox
	Depth  int64           // likes in the outbox
	Runs   int64           // entries of the outbox
	Last   models.Position // of the last event ever added to the outbox, even if the outbox is lost
	Oldest time.Time       // when the first like of the outbox was accepted; zero if the outbox is empty
	Err    error           // why ShardInfos could not read the shard; then only Shard is set
}

// Sent reports whether the event at a position has left the outbox, which it does when Kafka has it.
func (i ShardInfo) Sent(position models.Position) bool {
	switch first := i.Last.Seq - i.Runs + 1; { // positions of an epoch follow each other, from 0
	case i.Runs == 0:
		return true
	case position.Epoch == i.Last.Epoch:
		return position.Seq < first
	default: // of an epoch before, unless Redis has lost the present one
		return i.Last.After(position) && first >= 0
	}
}

// ShardInfos reads every shard, in order, in one round trip. In a cluster, a shard cannot be read while its node does
// not answer, or while its keys are on two nodes. The other shards are not affected: Err of that shard has the error.
// If no shard can be read, ShardInfos returns the error.
func (r *Redis) ShardInfos(ctx context.Context) ([]ShardInfo, error) {
	replies := make([]*redis.Cmd, r.shards)
	first := r.pipelined(ctx, func(p pipe) {
		for shard := range replies {
			replies[shard] = p.script(ctx, "info", infoKeys(shard))
		}
	})
	infos, unread := make([]ShardInfo, r.shards), 0
	for shard, reply := range replies {
		info, err := parseShardInfo(shard, reply)
		if err != nil {
			info, unread = ShardInfo{Shard: shard, Err: err}, unread+1
			first = cmp.Or(first, err)
		}
		infos[shard] = info
	}
	if unread == len(infos) {
		return nil, fmt.Errorf("read shards: %w", first)
	}
	return infos, nil
}

// ShardInfo reads one shard.
func (r *Redis) ShardInfo(ctx context.Context, shard int) (ShardInfo, error) {
	return parseShardInfo(shard, r.run(ctx, "info", infoKeys(shard)))
}

func infoKeys(shard int) []string {
	return []string{shardKey(shard), outboxKey(shard), relayKey(shard)}
}

func parseShardInfo(shard int, reply *redis.Cmd) (ShardInfo, error) {
	values, err := reply.Slice()
	if err != nil {
		return ShardInfo{}, fmt.Errorf("read shard %d: %w", shard, err)
	}
	info := ShardInfo{Shard: shard, Open: values[0] == int64(1)}
	info.Holder, _ = values[1].(string)
	info.Held = info.Holder != ""
	info.Depth, _ = values[2].(int64)
	info.Runs, _ = values[3].(int64)
	last, _ := values[4].(string)
	if info.Last, err = models.ParsePosition(last); err != nil {
		return ShardInfo{}, fmt.Errorf("read shard %d: %w", shard, err)
	}
	first, _ := values[5].(string)
	info.Oldest = models.Run(first).Time()
	return info, nil
}
