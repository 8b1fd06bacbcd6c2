package counters

import (
	"fmt"
	"strconv"

	"likewise/models"
)

// All keys of a shard have the same hash tag, so that the keys of a script are on one node of a cluster:
//
//	{s07}:shard                  hash    epoch (absent if closed), server (its replication id when the shard was
//	                                     opened), opening, restored, last (the last Position in the outbox), accepted
//	                                     (likes and claims, ever), relayed (those that have left the outbox; may be
//	                                     too low), tickets (ever), refusing (ms: until then, likes of some users are
//	                                     refused), site (the id of the installation), applied (the latest watermark
//	                                     of MySQL that a relay has seen), seen (ms: a time that the clock showed, to
//	                                     the second), turn (how often the clock was set back; see like.lua)
//	{s07}:outbox                 stream  runs that Kafka does not have yet; an entry's id is the run's Position, and
//	                                     "before" the number of likes accepted before it
//	{s07}:relay                  string  lock of the shard's relay
//	{s07}:absent                 never exists; see scanWhole
//	{s07}:refused                zset    users whose likes are refused, each with the time until then (ms); expires
//	{s07}:garbage                zset    loads that no target uses, each with the time after which it is swept (ms)
//	{s07}:post:42:likes          hash    count, sets, load, last (Position of the last change), at (its time, ms),
//	                                     since (the last Position of the shard when it was loaded), closed (when, µs),
//	                                     waiting (if there may be tickets)
//	{s07}:post:42:likes:LOAD:0   set     some of the users who like the target, and 0; see sets.go
//	{s07}:post:42:likes:waiting  hash    tickets of users whose calls wait for the target, those of unlikes negative;
//	                                     "USER!" if a call of the user came while another one waited; expires
//	{s07}:post:42:warming        string  lock of the process that loads the target
//	{s07}:drop:39:claims         hash    count, stock, begins and ends (ms; 0 for none), version (of these settings),
//	                                     sent (the version that an event has named), sets (always 1), load, last, at,
//	                                     since, closed
//	{s07}:drop:39:claims:LOAD:0  hash    user → id of the claim that the user holds, and a field 0
//	{s07}:drop:39:warming        string  lock of the process that loads the drop
//	{s07}:claim:ID               string  "39 7 1732270000123 0": drop and user of a claim, when it was accepted and
//	                                     when it was returned or released (ms; 0 for unknown or not yet); expires
//
// Other keys belong to no shard. A script uses one of them at a time:
//
//	ids                          hash    slots of global ids: last (issued), end (those below are reserved in MySQL),
//	                                     server (its replication id), asked (when a process was to reserve more, ms)
//	edition                      string  random number, a new one after each change of what readers see
//	cron:JOB                     string  lock of the process that runs a cron job
//	limits:OWNER                 zset    limits of an owner, each with the time when its burst is refilled (µs);
//	                                     expires with the last of them
//
// The channel peer:NAME has the requests to a process and the replies that it waits for; see peers.go.
//
// Personal data is in the sets of liked targets, in the hashes of claims, under the keys of claims for a day, in the
// outbox until Kafka has the events, and in limits:account:ID. When an account is deleted, the job void removes its
// likes and its limits, and ends its claims.
//
// limits:account:ID holds the limits of an account (posts, writes, likes, …). It also holds login, which counts
// attempts at the password, for at most an hour. It holds known:NETWORK, for 30 days, for each network with a
// successful login. The other owners of limits are networks and hashes of login names. A hash has the networks of its
// attempts, for at most 15 minutes.

func shardTag(shard int) string {
	if shard < len(shardTags) {
		return shardTags[shard]
	}
	return fmt.Sprintf("{s%02d}", shard)
}

// shardTags are those of the usual numbers of shards. Each key has one, so they are formatted once.
var shardTags = func() (tags [256]string) {
	for shard := range tags {
		tags[shard] = fmt.Sprintf("{s%02d}", shard)
	}
	return tags
}()

const (
	slotsKey   = "ids"
	editionKey = "edition"
)

func jobKey(job string) string { return "cron:" + job }

func limitsKey(owner string) string { return "limits:" + owner }

func shardKey(shard int) string  { return shardTag(shard) + ":shard" }
func outboxKey(shard int) string { return shardTag(shard) + ":outbox" }
func relayKey(shard int) string  { return shardTag(shard) + ":relay" }

func absentKey(shard int) string  { return shardTag(shard) + ":absent" }
func refusedKey(shard int) string { return shardTag(shard) + ":refused" }
func garbageKey(shard int) string { return shardTag(shard) + ":garbage" }

// targetKeys are the keys of one target. likes is its hash, which of a drop is the one of its claims.
type targetKeys struct {
	shard, outbox, garbage, likes, warming string
}

// peerChannel returns the name of the channel of a process.
func peerChannel(name string) string { return "peer:" + name }

func (r *Redis) keys(t models.Target) targetKeys {
	shard := t.Shard(r.shards)
	return targetKeys{
		shard: shardKey(shard), outbox: outboxKey(shard), garbage: garbageKey(shard),
		likes: r.likesKey(t), warming: targetPrefix(shard, t) + ":warming",
	}
}

// likesKey returns the key of a target's hash.
func (r *Redis) likesKey(t models.Target) string {
	prefix := targetPrefix(t.Shard(r.shards), t)
	if t.Kind == models.KindDrop {
		return prefix + ":claims"
	}
	return prefix + ":likes"
}

func targetPrefix(shard int, t models.Target) string {
	return shardTag(shard) + ":" + string(t.Kind) + ":" + strconv.FormatInt(t.ID, 10)
}

// claimKey returns the key of a claim, whose id has the shard of its drop.
func (r *Redis) claimKey(id int64) string {
	return shardTag(int(id%int64(r.shards))) + ":claim:" + strconv.FormatInt(id, 10)
}

// warmPattern matches the hashes of all warm targets, and no other key. It follows a tag.
const warmPattern = ":*s"

// parseLikesKey returns the target of a "…:likes" or "…:claims" key.
func parseLikesKey(key string) (models.Target, bool) {
	var shard int
	var rest string
	if _, err := fmt.Sscanf(key, "{s%d}:%s", &shard, &rest); err != nil {
		return models.Target{}, false
	}
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment, models.KindDrop} {
		prefix, suffix := string(kind)+":", ":likes"
		if kind == models.KindDrop {
			suffix = ":claims"
		}
		if len(rest) > len(prefix)+len(suffix) && rest[:len(prefix)] == prefix &&
			rest[len(rest)-len(suffix):] == suffix {
			id, err := strconv.ParseInt(rest[len(prefix):len(rest)-len(suffix)], 10, 64)
			return models.Target{Kind: kind, ID: id}, err == nil
		}
	}
	return models.Target{}, false
}
