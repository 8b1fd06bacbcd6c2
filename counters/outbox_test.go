package counters

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

func hold(t testing.TB, r *Redis, shard int) *Outbox {
	t.Helper()
	outbox, err := r.HoldOutbox(t.Context(), shard, rand.Text(), time.Minute)
	require.NoError(t, err)
	return outbox
}

// takeOver moves the relay lock of a shard to another holder.
func takeOver(t testing.TB, plain *redis.Client, shard int) {
	t.Helper()
	require.NoError(t, plain.Set(t.Context(), relayKey(shard), "somebody else", time.Minute).Err())
}

func TestHoldOutbox_oneAtATime(t *testing.T) {
	r, plain := newRedis(t)
	outbox := hold(t, r, 1)
	require.Equal(t, outbox.lock.Token(), dump(t, plain)["{s01}:relay"])
	require.InDelta(t, time.Minute, plain.TTL(t.Context(), "{s01}:relay").Val(), float64(time.Second))

	_, err := r.HoldOutbox(t.Context(), 1, rand.Text(), time.Minute)
	require.ErrorIs(t, err, ErrLockLost)
	hold(t, r, 2)

	require.NoError(t, outbox.Release(t.Context()))
	hold(t, r, 1)
}

func TestHoldOutbox_sameTokenAcquiresItsLockAgain(t *testing.T) {
	r, plain := newRedis(t)
	for range 2 {
		_, err := r.HoldOutbox(t.Context(), 1, "mine", time.Minute)
		require.NoError(t, err)
		require.Equal(t, stored{"{s01}:relay": "mine"}, dump(t, plain))
	}
	_, err := r.HoldOutbox(t.Context(), 1, "another's", time.Minute)
	require.ErrorIs(t, err, ErrLockLost)
}

func TestOutbox_renewHoldsTheLock(t *testing.T) {
	r, plain := newRedis(t)
	outbox := hold(t, r, 1)
	require.NoError(t, outbox.Renew(t.Context(), time.Hour))
	require.InDelta(t, time.Hour, plain.TTL(t.Context(), "{s01}:relay").Val(), float64(time.Second))
}

func TestOutbox_expiredLockIsLost(t *testing.T) {
	r, _ := newRedis(t)
	outbox, err := r.HoldOutbox(t.Context(), 1, rand.Text(), 100*time.Millisecond) // must not take longer than that
	require.NoError(t, err)
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		return errors.Is(outbox.Renew(t.Context(), time.Millisecond), ErrLockLost), "the lock is still held"
	})
	hold(t, r, 1)
}

func TestOutbox_withALostLockChangesNothing(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	outbox := hold(t, r, 1)
	takeOver(t, plain, 1)
	before := dump(t, plain)
	assert.ErrorIs(t, outbox.Renew(t.Context(), time.Minute), ErrLockLost)
	assert.ErrorIs(t, outbox.Trim(t.Context(), pos(1, 1)), ErrLockLost)
	assert.NoError(t, outbox.Release(t.Context()))
	require.Equal(t, before, dump(t, plain))

	closeShard(t, plain, 1)
	require.NoError(t, plain.HSet(t.Context(), "{s01}:shard", "opening", 2).Err())
	before = dump(t, plain)
	_, err := outbox.Seal(t.Context(), 2)
	assert.ErrorIs(t, err, ErrLockLost)
	assert.ErrorIs(t, outbox.Opened(t.Context(), 2), ErrLockLost)
	require.Equal(t, before, dump(t, plain))
}

func TestOutbox_trimRemovesAcknowledgedEvents(t *testing.T) {
	r, plain := newGate(t)
	for user := range int64(4) {
		like(t, r, post(1), user+1)
	}
	outbox := hold(t, r, 1)
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 2)))
	require.Equal(t, []string{`1-3 "on"`, `1-4 "on"`}, entries(t, plain, "{s01}:outbox"))
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 1)), "late and behind")
	require.Equal(t, []string{`1-3 "on"`, `1-4 "on"`}, entries(t, plain, "{s01}:outbox"))

	closeShard(t, plain, 1)
	require.NoError(t, outbox.Release(t.Context()))
	openShard(t, r, 1, 2)
	outbox = hold(t, r, 1)
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 4)))
	require.Equal(t, []string{"2-0" + opened}, entries(t, plain, "{s01}:outbox"))
	require.NoError(t, outbox.Trim(t.Context(), pos(2, 0)))
	last, err := outbox.Last(t.Context())
	require.NoError(t, err)
	require.Equal(t, pos(2, 0), last, "an empty outbox knows where it stands")
}

func TestOutbox_trimOfAMissingOutbox(t *testing.T) {
	r, plain := newRedis(t)
	require.NoError(t, hold(t, r, 1).Trim(t.Context(), pos(1, 1)))
	require.NotContains(t, dump(t, plain), "{s01}:outbox")
}

func TestOutbox_read(t *testing.T) {
	r, _ := newGate(t)
	gate(t, r, post(1), 1, 7, `{"any": "payload"}`, 100)
	like(t, r, post(1), 8)
	outbox := hold(t, r, 1)

	events, err := outbox.Read(t.Context(), 2, time.Second)
	require.NoError(t, err)
	require.Equal(t, []models.Enveloped{
		{Pos: pos(1, 0), Event: json.RawMessage(`{"type":"shard.opened"}`)},
		{Pos: pos(1, 1), Event: json.RawMessage(`{"any": "payload"}`)},
	}, events)
	again, err := outbox.Read(t.Context(), 2, time.Second)
	require.NoError(t, err)
	require.Equal(t, events, again, "the head stays until it is trimmed")

	require.NoError(t, outbox.Trim(t.Context(), pos(1, 2)))
	none, err := outbox.Read(t.Context(), 2, time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestOutbox_readWaitsForAnEvent(t *testing.T) {
	r, plain := newGate(t)
	outbox := hold(t, r, 1)
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 0)))
	type result struct {
		events []models.Enveloped
		err    error
	}
	read := make(chan result, 1)
	go func() {
		events, err := outbox.Read(t.Context(), 10, time.Minute)
		read <- result{events, err}
	}()
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		return plain.InfoMap(t.Context(), "clients").Item("Clients", "blocked_clients") == "1", "nobody waits"
	})
	like(t, r, post(1), 7)
	got := <-read
	require.NoError(t, got.err)
	require.Equal(t, []models.Enveloped{{Pos: pos(1, 1), Event: json.RawMessage(`"on"`)}}, got.events)
}

func TestOutbox_readEndsWithItsContext(t *testing.T) {
	r, _ := newRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := hold(t, r, 1).Read(ctx, 10, time.Minute)
	require.Error(t, err)
	require.Less(t, time.Since(begin), 5*time.Second)
}

// A payload that is not JSON must not block other events, and must stay readable.
func TestOutbox_readOfAPayloadThatIsNotJSON(t *testing.T) {
	r, plain := newGate(t)
	for _, values := range []map[string]any{{"e": `{"broken`}, {"e": "\xff\x00"}, {"other": "field"}} {
		require.NoError(
			t,
			plain.XAdd(t.Context(), &redis.XAddArgs{Stream: "{s01}:outbox", ID: "1-*", Values: values}).Err(),
		)
	}
	like(t, r, post(1), 7)
	events, err := hold(t, r, 1).Read(t.Context(), 10, time.Second)
	require.NoError(t, err)
	text, err := json.Marshal(models.Envelope{V: 1, Shard: 1, Events: events[1:]})
	require.NoError(t, err)
	require.JSONEq(t, `{"v":1,"shard":1,"events":[
		{"pos":"1-1","event":"{\"broken"},
		{"pos":"1-2","event":"\ufffd\u0000"},
		{"pos":"1-3","event":""},
		{"pos":"1-4","event":"on"}]}`, string(text))
}

func TestOutbox_sealAndOpened(t *testing.T) {
	r, plain := newRedis(t)
	outbox := hold(t, r, 1)
	open, err := outbox.Open(t.Context())
	require.NoError(t, err)
	require.False(t, open)

	restored, err := outbox.Seal(t.Context(), 4)
	require.NoError(t, err)
	require.True(t, restored.IsZero(), "this Redis knows nothing yet")
	require.Equal(t, stored{
		"{s01}:shard":  hash{"opening": "4", "restored": "0-0"},
		"{s01}:outbox": []string{"4-0" + opened},
		"{s01}:relay":  outbox.lock.Token(),
	}, dump(t, plain))
	require.Equal(t, isClosed, like(t, r, post(1), 7), "not before MySQL has everything")

	require.NoError(t, outbox.Opened(t.Context(), 4))
	require.Equal(t, stored{
		"{s01}:shard":  hash{"epoch": "4"},
		"{s01}:outbox": []string{"4-0" + opened},
		"{s01}:relay":  outbox.lock.Token(),
	}, dump(t, plain))
	open, err = outbox.Open(t.Context())
	require.NoError(t, err)
	require.True(t, open)
}

func TestOutbox_sealKeepsTheRestoredPositionOverTwoAttempts(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	closeShard(t, plain, 1)
	outbox := hold(t, r, 1)
	for epoch := int64(2); epoch <= 3; epoch++ {
		restored, err := outbox.Seal(t.Context(), epoch)
		require.NoError(t, err)
		require.Equal(t, pos(1, 1), restored)
	}
	require.Equal(t, hash{"opening": "3", "restored": "1-1"}, dump(t, plain)["{s01}:shard"])
	require.ErrorIs(t, outbox.Opened(t.Context(), 2), ErrLockLost, "the first attempt was given up")
	require.NoError(t, outbox.Opened(t.Context(), 3))

	// The next opening starts with a new position.
	closeShard(t, plain, 1)
	restored, err := outbox.Seal(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, pos(3, 0), restored)
}

func TestOutbox_sealKnowsThePositionOfAnEmptiedOutbox(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	outbox := hold(t, r, 1)
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 1)))
	closeShard(t, plain, 1)
	restored, err := outbox.Seal(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, pos(1, 1), restored)
	require.Equal(t, []string{"2-0" + opened}, entries(t, plain, "{s01}:outbox"))
}

func TestOutbox_sealRefusesAnOpenShardAndAnOldEpoch(t *testing.T) {
	r, plain := newGate(t)
	outbox := hold(t, r, 1)
	before := dump(t, plain)
	_, err := outbox.Seal(t.Context(), 2)
	require.ErrorIs(t, err, ErrLockLost)
	require.Equal(t, before, dump(t, plain), "open")

	closeShard(t, plain, 1)
	before = dump(t, plain)
	_, err = outbox.Seal(t.Context(), 1)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrLockLost)
	require.Equal(t, before, dump(t, plain), "an epoch is not begun twice")
}

func TestOutbox_openedNeedsTheSealOfThisRun(t *testing.T) {
	r, plain := newRedis(t)
	outbox := hold(t, r, 1)
	require.ErrorIs(t, outbox.Opened(t.Context(), 1), ErrLockLost, "never sealed")
	_, err := outbox.Seal(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, plain.HSet(t.Context(), "{s01}:shard", "run", "of another server").Err())
	fresh, _ := openRedis(t, urlOf(plain))
	require.NoError(t, fresh.Ping(t.Context()))
	require.ErrorIs(t, outbox.Opened(t.Context(), 1), ErrLockLost)
	require.Equal(t, hash{"restored": "0-0"}, dump(t, plain)["{s01}:shard"])
}

func TestOutbox_forgetTargets(t *testing.T) {
	r, plain := newRedis(t)
	for shard := range 2 {
		openShard(t, r, shard, 1)
	}
	for _, target := range []models.Target{post(1), post(17), comment(33), post(16)} {
		openNew(t, r, target)
		like(t, r, target, 7)
	}
	loader(t, r, plain, "token", 7)
	want := dump(t, plain)
	for key := range want.only("{s01}:") {
		if key != "{s01}:shard" && key != "{s01}:outbox" {
			delete(want, key)
		}
	}
	forgetTargets(t, r, 1)
	require.Equal(t, want, dump(t, plain))
	require.Contains(t, want, "{s00}:post:16:likes")
}

func TestShardInfos(t *testing.T) {
	r, plain := newRedis(t)
	openShard(t, r, 1, 3)
	openNew(t, r, post(1))
	holder := hold(t, r, 1).lock.Token()
	event, err := json.Marshal(models.LikeEvent(post(1), 7, true, start))
	require.NoError(t, err)
	gate(t, r, post(1), 1, 7, string(event), 100)
	like(t, r, post(1), 8)
	openShard(t, r, 2, 5)
	require.NoError(t, plain.XTrimMaxLen(t.Context(), "{s02}:outbox", 0).Err())

	trips := countTrips(t, r)
	infos, err := r.ShardInfos(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, trips.Load())
	require.Len(t, infos, shards)
	require.Equal(t, ShardInfo{Shard: 0}, infos[0])
	require.Equal(
		t,
		ShardInfo{Shard: 1, Open: true, Held: true, Holder: holder, Depth: 3, Last: pos(3, 2)},
		infos[1],
		"the first event has no time",
	)
	require.Equal(t, ShardInfo{Shard: 2, Open: true, Last: pos(5, 0)}, infos[2])

	require.NoError(t, plain.XDel(t.Context(), "{s01}:outbox", "3-0").Err())
	info, err := r.shardInfo(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(
		t,
		ShardInfo{Shard: 1, Open: true, Held: true, Holder: holder, Depth: 2, Last: pos(3, 2), Oldest: start},
		info,
	)
}
