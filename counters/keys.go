package counters

import (
	"fmt"
	"strconv"

	"likewise/models"
)

// All keys of a shard have the same hash tag, so that the keys of a script are on one node of a cluster:
//
//	{s07}:shard                  hash    epoch (absent if closed), server (its replication id when the shard was
//	                                     opened), opening, restored, drained (the last Position when the shard was
//	                                     closed), accepted (likes, ever), relayed (likes, ever, that have left the
//	                                     outbox; may be too low), tickets (ever), refusing (ms: until then, likes of
//	                                     some users are refused)
//	{s07}:outbox                 stream  runs that Kafka does not have yet; an entry's id is the run's Position, and
//	                                     "before" the number of likes accepted before it
//	{s07}:relay                  string  lock of the shard's relay
//	{s07}:refused                zset    users whose likes are refused, each with the time until then (ms); expires
//	{s07}:garbage                zset    loads that no target uses, each with the time after which it is swept (ms)
//	{s07}:post:42:likes          hash    count, sets, load, last (Position of the last change), at (its time, ms),
//	                                     closed (when, µs), waiting (if there may be tickets)
//	{s07}:post:42:likes:LOAD:0   set     some of the users who like the target, and 0; see sets.go
//	{s07}:post:42:likes:waiting  hash    tickets of users whose calls wait for the target, those of
//	                                     unlikes negative; expires
//	{s07}:post:42:warming        string  lock of the process that loads the target
//
// Other keys belong to no shard. A script uses one of them at a time:
//
//	limits:OWNER                 zset    limits of an owner, each with the time when its burst is refilled (µs);
//	                                     expires with the last of them
//
// Personal data is in the sets of liked targets, in the outbox until Kafka has the events, and in
// limits:account:ID. When an account is deleted, the job void removes its likes and its limits.
//
// limits:account:ID holds the limits of an account (posts, writes, likes, …). It also holds login, which counts
// attempts at the password, for at most an hour. It holds known:NETWORK, for 30 days, for each network with a
// successful login. The other owners of limits are networks and hashes of login names. A hash has the networks of its
// attempts, for at most 15 minutes.

func shardTag(shard int) string { return fmt.Sprintf("{s%02d}", shard) }

func limitsKey(owner string) string { return "limits:" + owner }

func shardKey(shard int) string  { return shardTag(shard) + ":shard" }
func outboxKey(shard int) string { return shardTag(shard) + ":outbox" }
func relayKey(shard int) string  { return shardTag(shard) + ":relay" }

func refusedKey(shard int) string { return shardTag(shard) + ":refused" }
func garbageKey(shard int) string { return shardTag(shard) + ":garbage" }

// targetKeys are the keys of one target.
type targetKeys struct {
	shard, outbox, garbage, likes, warming string
}

func (r *Redis) keys(t models.Target) targetKeys {
	shard := t.Shard(r.shards)
	prefix := shardTag(shard) + ":" + string(t.Kind) + ":" + strconv.FormatInt(t.ID, 10)
	return targetKeys{
		shard: shardKey(shard), outbox: outboxKey(shard), garbage: garbageKey(shard),
		likes: prefix + ":likes", warming: prefix + ":warming",
	}
}

// parseLikesKey returns the target of a "…:likes" key.
func parseLikesKey(key string) (models.Target, bool) {
	var shard int
	var rest string
	if _, err := fmt.Sscanf(key, "{s%d}:%s", &shard, &rest); err != nil {
		return models.Target{}, false
	}
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		prefix, suffix := string(kind)+":", ":likes"
		if len(rest) > len(prefix)+len(suffix) && rest[:len(prefix)] == prefix &&
			rest[len(rest)-len(suffix):] == suffix {
			id, err := strconv.ParseInt(rest[len(prefix):len(rest)-len(suffix)], 10, 64)
			return models.Target{Kind: kind, ID: id}, err == nil
		}
	}
	return models.Target{}, false
}
