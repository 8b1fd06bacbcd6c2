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
	t.Parallel()
	r, plain := newRedis(t)
	outbox := hold(t, r, 1)
	require.Equal(t, outbox.token, dump(t, plain)["{s01}:relay"])
	require.InDelta(t, time.Minute, plain.TTL(t.Context(), "{s01}:relay").Val(), float64(time.Second))

	_, err := r.HoldOutbox(t.Context(), 1, rand.Text(), time.Minute)
	require.ErrorIs(t, err, ErrLockLost)
	hold(t, r, 2)

	require.NoError(t, outbox.Release(t.Context()))
	hold(t, r, 1)
}

func TestHoldOutbox_sameTokenAcquiresItsLockAgain(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	r, plain := newRedis(t)
	outbox := hold(t, r, 1)
	require.NoError(t, outbox.Renew(t.Context(), time.Hour))
	require.InDelta(t, time.Hour, plain.TTL(t.Context(), "{s01}:relay").Val(), float64(time.Second))
}

func TestOutbox_expiredLockIsLost(t *testing.T) {
	t.Parallel()
	r, _ := newRedis(t)
	outbox, err := r.HoldOutbox(t.Context(), 1, rand.Text(), 100*time.Millisecond) // must not take longer than that
	require.NoError(t, err)
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		return errors.Is(outbox.Renew(t.Context(), time.Millisecond), ErrLockLost), "the lock is still held"
	})
	hold(t, r, 1)
}

func TestOutbox_withALostLockChangesNothing(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	r, plain := newGate(t)
	for user := range int64(4) {
		like(t, r, post(1), user+1)
	}
	outbox := hold(t, r, 1)
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 2)))
	require.Equal(t, []string{"1-3 p1 3", "1-4 p1 4"}, entries(t, plain, "{s01}:outbox"))
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 1)), "late and behind")
	require.Equal(t, []string{"1-3 p1 3", "1-4 p1 4"}, entries(t, plain, "{s01}:outbox"))

	closeShard(t, plain, 1)
	require.NoError(t, outbox.Release(t.Context()))
	openShard(t, r, 1, 2)
	outbox = hold(t, r, 1)
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 4)))
	require.Equal(t, []string{"2-0 opened 1-4"}, entries(t, plain, "{s01}:outbox"))
	require.NoError(t, outbox.Trim(t.Context(), pos(2, 0)))
	info, err := outbox.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, pos(2, 0), info.Last, "an empty outbox knows where it stands")
}

func TestOutbox_trimOfAMissingOutbox(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	require.NoError(t, hold(t, r, 1).Trim(t.Context(), pos(1, 1)))
	require.NotContains(t, dump(t, plain), "{s01}:outbox")
}

func TestOutbox_read(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	like(t, r, post(1), 8)
	outbox := hold(t, r, 1)
	texts := map[models.Position]models.Run{}
	for _, m := range plain.XRange(t.Context(), "{s01}:outbox", "-", "+").Val() {
		p, err := models.ParsePosition(m.ID)
		require.NoError(t, err)
		texts[p] = models.Run(m.Values["run"].(string))
	}

	runs, err := outbox.Read(t.Context(), models.Position{}, 2, time.Second)
	require.NoError(t, err)
	require.Equal(t, []models.Enveloped{
		{Pos: pos(1, 0), Run: "opened 0-0"}, {Pos: pos(1, 1), Run: texts[pos(1, 1)]},
	}, runs)
	again, err := outbox.Read(t.Context(), models.Position{}, 2, time.Second)
	require.NoError(t, err)
	require.Equal(t, runs, again, "the head stays until it is trimmed")
	next, err := outbox.Read(t.Context(), pos(1, 1), 2, time.Second)
	require.NoError(t, err)
	require.Equal(t, []models.Enveloped{{Pos: pos(1, 2), Run: texts[pos(1, 2)]}}, next, "what follows a position")

	require.NoError(t, outbox.Trim(t.Context(), pos(1, 2)))
	none, err := outbox.Read(t.Context(), models.Position{}, 2, time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestOutbox_readWaitsForAnEvent(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	outbox := hold(t, r, 1)
	type result struct {
		runs []models.Enveloped
		err  error
	}
	read := make(chan result, 1)
	go func() {
		runs, err := outbox.Read(t.Context(), pos(1, 0), 10, time.Minute)
		read <- result{runs, err}
	}()
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		return plain.InfoMap(t.Context(), "clients").Item("Clients", "blocked_clients") == "1", "nobody waits"
	})
	like(t, r, post(1), 7)
	got := <-read
	require.NoError(t, got.err)
	require.Len(t, got.runs, 1)
	require.Equal(t, pos(1, 1), got.runs[0].Pos)
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 7"}, entries(t, plain, "{s01}:outbox"))
}

func TestOutbox_readEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r, _ := newRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := hold(t, r, 1).Read(ctx, models.Position{}, 10, time.Minute)
	require.Error(t, err)
	require.Less(t, time.Since(begin), 5*time.Second)
}

// A run that is not readable must not block the others, and must stay as it is for the dead letters.
func TestOutbox_readOfARunThatIsNotReadable(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	for i, values := range []map[string]any{{"run": `{"broken`}, {"run": "\xff\x00"}, {"other": "field"}} {
		id := pos(1, int64(i+1)).String()
		require.NoError(
			t,
			plain.XAdd(t.Context(), &redis.XAddArgs{Stream: "{s01}:outbox", ID: id, Values: values}).Err(),
		)
		require.NoError(t, plain.HSet(t.Context(), "{s01}:shard", "last", id).Err())
	}
	like(t, r, post(1), 7)
	runs, err := hold(t, r, 1).Read(t.Context(), pos(1, 0), 10, time.Second)
	require.NoError(t, err)
	runs[3].Run = "likes 5 p1 7" // without its time
	text, err := json.Marshal(models.Envelope{V: 1, Shard: 1, Runs: runs})
	require.NoError(t, err)
	require.JSONEq(t, `{"v":1,"shard":1,"runs":[
		{"pos":"1-1","run":"{\"broken"},
		{"pos":"1-2","run":"\ufffd\u0000"},
		{"pos":"1-3","run":""},
		{"pos":"1-4","run":"likes 5 p1 7"}]}`, string(text))
}

func TestOutbox_sealAndOpened(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	outbox := hold(t, r, 1)
	info, err := outbox.Info(t.Context())
	require.NoError(t, err)
	require.False(t, info.Open)

	restored, err := outbox.Seal(t.Context(), 4)
	require.NoError(t, err)
	require.True(t, restored.IsZero(), "this Redis knows nothing yet")
	require.Equal(t, stored{
		"{s01}:shard":  hash{"opening": "4", "restored": "0-0", "last": "4-0"},
		"{s01}:outbox": []string{"4-0" + opened},
		"{s01}:relay":  outbox.token,
	}, dump(t, plain))
	require.Nil(t, like(t, r, post(1), 7), "not before MySQL has everything")

	require.NoError(t, outbox.Opened(t.Context(), 4))
	require.Equal(t, stored{
		"{s01}:shard":  hash{"epoch": "4", "last": "4-0"},
		"{s01}:outbox": []string{"4-0" + opened},
		"{s01}:relay":  outbox.token,
	}, dump(t, plain))
	info, err = outbox.Info(t.Context())
	require.NoError(t, err)
	require.True(t, info.Open)

	_, err = outbox.Seal(t.Context(), 4)
	require.ErrorIs(t, err, ErrLockLost, "it is open")
	restored, err = outbox.Seal(t.Context(), 9)
	require.NoError(t, err)
	require.Equal(t, pos(4, 0), restored)
	require.Nil(t, like(t, r, post(1), 7), "closed until it is opened under the higher epoch")
}

func TestOutbox_sealKeepsTheRestoredPositionOverTwoAttempts(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	closeShard(t, plain, 1)
	outbox := hold(t, r, 1)
	for epoch := int64(2); epoch <= 3; epoch++ {
		restored, err := outbox.Seal(t.Context(), epoch)
		require.NoError(t, err)
		require.Equal(t, pos(1, 1), restored)
	}
	require.Equal(t, hash{"opening": "3", "restored": "1-1", "accepted": "1", "last": "3-0"},
		dump(t, plain)["{s01}:shard"])
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 7", "2-0 opened 1-1", "3-0 opened 2-0"},
		entries(t, plain, "{s01}:outbox"))
	require.ErrorIs(t, outbox.Opened(t.Context(), 2), ErrLockLost, "the first attempt was given up")
	require.NoError(t, outbox.Opened(t.Context(), 3))

	// The next opening starts with a new position.
	closeShard(t, plain, 1)
	restored, err := outbox.Seal(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, pos(3, 0), restored)
}

func TestOutbox_sealKnowsThePositionOfAnEmptiedOutbox(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	outbox := hold(t, r, 1)
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 1)))
	closeShard(t, plain, 1)
	restored, err := outbox.Seal(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, pos(1, 1), restored)
	require.Equal(t, []string{"2-0 opened 1-1"}, entries(t, plain, "{s01}:outbox"),
		"names the position before it, which Kafka may have lost")
}

// An operator has deleted the outbox, or Redis has evicted it. Positions that the log has had do not come again.
func TestOutbox_positionsGoOnWithoutTheOutbox(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	lose := func() { require.NoError(t, plain.Del(t.Context(), "{s01}:outbox").Err()) }
	lose()
	info, err := hold(t, r, 1).Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, pos(1, 1), info.Last)
	require.True(t, info.Open)
	require.Equal(t, done(2), like(t, r, post(1), 8))
	require.Equal(t, []string{"1-2 p1 8"}, entries(t, plain, "{s01}:outbox"))
	lose()
	sent, err := r.Probe(t.Context(), 1)
	require.NoError(t, err)
	require.True(t, sent)
	require.Equal(t, []string{"1-3 probed"}, entries(t, plain, "{s01}:outbox"))
	lose()
	require.Equal(t, 1, reassert(t, r, post(1), 100, 8))
	require.Equal(t, []string{"1-4 p1 8"}, entries(t, plain, "{s01}:outbox"))
	lose()
	infos, err := r.CloseShards(t.Context())
	require.NoError(t, err)
	require.Equal(t, ShardInfo{Shard: 1, Open: true, Last: pos(1, 4)}, infos[1])
	require.NoError(t, plain.Del(t.Context(), relayKey(1)).Err())
	restored, err := hold(t, r, 1).Seal(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, pos(1, 4), restored)
	require.Equal(t, []string{"2-0 opened 1-4"}, entries(t, plain, "{s01}:outbox"))
}

// The outbox has a later position than the hash, so the next one is refused. The shard counts as closed until it is
// opened under a new epoch.
func TestOutbox_opensAShardThatIsBehindItsOutbox(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	for _, last := range []string{"1-0", "0-9", "one", ""} {
		require.NoError(t, plain.HSet(t.Context(), "{s01}:shard", "last", last).Err())
		k := r.keys(post(1))
		before := dump(t, plain)
		_, err := r.run(t.Context(), "like", []string{k.shard, k.outbox, k.likes},
			100, 0, never, 1, 0, 1, "p1", 1, "8").Slice()
		require.NoError(t, err)
		require.Equal(t, before, dump(t, plain), "no like without an event")
		info, err := r.ShardInfo(t.Context(), 1)
		require.NoError(t, err)
		require.False(t, info.Open, "%q", last)
		require.Equal(t, pos(1, 1), info.Last)
	}
	openShard(t, r, 1, 2)
	require.Equal(t, done(2), like(t, r, post(1), 8))
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 7", "2-0 opened 1-1", "2-1 p1 8"},
		entries(t, plain, "{s01}:outbox"))
}

func TestOutbox_closesAShardThatWasOvertaken(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	overtaken := func(applied models.Position) bool {
		closed, err := r.CloseOvertaken(t.Context(), 1, applied)
		require.NoError(t, err)
		return closed
	}
	rewound := func(epoch int64) bool {
		closed, err := r.CloseRewound(t.Context(), 1, epoch)
		require.NoError(t, err)
		return closed
	}
	before := dump(t, plain)
	require.False(t, overtaken(pos(0, 99)))
	require.False(t, overtaken(pos(1, 1)), "the last position of this Redis")
	require.False(t, rewound(9), "opened again since")
	require.Equal(t, before, dump(t, plain))

	require.True(t, overtaken(pos(1, 2)))
	require.Equal(t, hash{"accepted": "1", "last": "1-1", "restored": "1-1"}, dump(t, plain)["{s01}:shard"])
	require.False(t, overtaken(pos(1, 2)), "closed already")
	require.False(t, rewound(1), "closed already")
	restored, err := hold(t, r, 1).Seal(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, pos(1, 1), restored)
	require.NoError(t, plain.Del(t.Context(), relayKey(1)).Err())
	openShard(t, r, 1, 3)
	require.True(t, rewound(3))
	require.Equal(t, hash{"accepted": "1", "last": "3-0", "restored": "0-0"}, dump(t, plain)["{s01}:shard"])
}

func TestOutbox_sealRefusesAnEpochThatWasBegun(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	outbox := hold(t, r, 1)
	before := dump(t, plain)
	_, err := outbox.Seal(t.Context(), 1)
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
	t.Parallel()
	r, plain := newRedis(t)
	outbox := hold(t, r, 1)
	require.ErrorIs(t, outbox.Opened(t.Context(), 1), ErrLockLost, "never sealed")
	_, err := outbox.Seal(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, plain.HSet(t.Context(), "{s01}:shard", "server", "another one").Err())
	before := dump(t, plain)
	require.ErrorIs(t, outbox.Opened(t.Context(), 1), ErrLockLost)
	require.Equal(t, before, dump(t, plain))
}

func TestOutbox_forgetTargets(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	for shard := range 2 {
		openShard(t, r, shard, 1)
	}
	for _, target := range []models.Target{post(1), post(17), comment(33), post(16)} {
		warmUp(t, r, target)
		like(t, r, target, 7)
	}
	many := make([]int64, 1000)
	for i := range many {
		many[i] = int64(i + 1)
	}
	warmUp(t, r, post(49), many...)
	require.NoError(t, plain.HSet(t.Context(), r.keys(post(65)).likes, "count", 1).Err())
	want := dump(t, plain)
	for key := range want.only("{s01}:") {
		if key != "{s01}:shard" && key != "{s01}:outbox" {
			delete(want, key)
		}
	}
	forgetTargets(t, r, 1)
	require.NotContains(t, dump(t, plain), "{s01}:post:1:likes")
	require.Equal(t, want, swept(t, r, plain), "the sets are garbage, and can be swept")
	require.Contains(t, want, "{s00}:post:16:likes")
}

func TestShardInfo_knowsWhatWasSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		last models.Position
		runs int64
		what models.Position
		sent bool
	}{
		{pos(2, 9), 0, pos(2, 9), true},
		{pos(2, 9), 1, pos(2, 9), false},
		{pos(2, 9), 1, pos(2, 8), true},
		{pos(2, 9), 10, pos(2, 0), false},
		{pos(2, 9), 10, pos(1, 5), true},
		{pos(2, 0), 3, pos(1, 5), false}, // an opening behind two events of the epoch before
		{pos(1, 9), 2, pos(2, 3), false}, // Redis was set back
	} {
		info := ShardInfo{Last: c.last, Runs: c.runs}
		assert.Equal(t, c.sent, info.Sent(c.what), "%+v", c)
	}
}

func TestShardInfos(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 3)
	warmUp(t, r, post(1))
	holder := hold(t, r, 1).token
	begin := time.Now().Add(-time.Second)
	gate(t, r, 100, wanted{post(1), []string{"7", "8"}})
	like(t, r, post(1), 9)
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
		ShardInfo{Shard: 1, Open: true, Held: true, Holder: holder, Depth: 3, Runs: 3, Last: pos(3, 2)},
		infos[1],
		"the first run has no time",
	)
	require.Equal(t, ShardInfo{Shard: 2, Open: true, Last: pos(5, 0)}, infos[2])

	require.NoError(t, plain.XDel(t.Context(), "{s01}:outbox", "3-0").Err())
	info, err := r.ShardInfo(t.Context(), 1)
	require.NoError(t, err)
	require.WithinRange(t, info.Oldest, begin, time.Now().Add(time.Second))
	info.Oldest = time.Time{}
	require.Equal(
		t,
		ShardInfo{Shard: 1, Open: true, Held: true, Holder: holder, Depth: 3, Runs: 2, Last: pos(3, 2)},
		info,
	)

	require.NoError(t, hold(t, r, 3).Release(t.Context()))
	require.NoError(t, plain.XTrimMinID(t.Context(), "{s01}:outbox", "3-2").Err())
	info, err = r.ShardInfo(t.Context(), 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, info.Depth, "the likes that Kafka has are not counted")
	require.EqualValues(t, 1, info.Runs)
}
