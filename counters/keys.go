package counters

import (
	"fmt"
	"strconv"

	"likewise/models"
)

// Every key of a shard carries the same hash tag, so that a script's keys are on one node of a cluster:
//
//	{s07}:shard                    hash    epoch (absent: closed), opened (when, s), run (the server), opening, restored
//	{s07}:outbox                   stream  events that Kafka does not have yet; the id is the event's Position
//	{s07}:relay                    string  lock of the shard's relay
//	{s07}:post:42:likes            hash    count, last (Position of the last change), at (its time, ms), closed (when, µs)
//	{s07}:post:42:likes_users      set     users who like the target
//	{s07}:post:42:warming          string  lock of the process that loads the target
//	{s07}:post:42:loading:TOKEN    set     the users while they are loaded; expires
//
// Keys of no shard, each alone in its script:
//
//	limits:OWNER                   zset    the limits of an owner, each with the time when its burst is whole again (µs);
//	                                       expires with the last
//
// What names a user: the likes_users of what they like, and outboxes while their likes are on the way to Kafka, which
// the job that voids likes empties when the account is deleted; and limits:account:ID, which that job removes. Besides
// the limits of the account (posts, writes, likes, …) it holds login for the tries of its password, for at most an
// hour, and known:NETWORK for each network from which it has logged in, for 30 days. Other owners of limits are
// networks, and hashes of what was typed as a login, each with the networks from which it was tried, for at most 15
// minutes.

func shardTag(shard int) string { return fmt.Sprintf("{s%02d}", shard) }

func limitsKey(owner string) string { return "limits:" + owner }

func shardKey(shard int) string  { return shardTag(shard) + ":shard" }
func outboxKey(shard int) string { return shardTag(shard) + ":outbox" }
func relayKey(shard int) string  { return shardTag(shard) + ":relay" }

// targetKeys are the keys of one target.
type targetKeys struct {
	shard, outbox, likes, users, warming string
}

func (r *Redis) keys(t models.Target) targetKeys {
	shard := t.Shard(r.shards)
	prefix := shardTag(shard) + ":" + string(t.Kind) + ":" + strconv.FormatInt(t.ID, 10)
	return targetKeys{
		shard: shardKey(shard), outbox: outboxKey(shard),
		likes: prefix + ":likes", users: prefix + ":likes_users", warming: prefix + ":warming",
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
