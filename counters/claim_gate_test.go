package counters

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// The statuses of a word in the reply of claim.lua that like.lua does not have.
const (
	isSoldOut   = 11
	isNotBegun  = 12
	isEnded     = 13
	bigClaim    = 9_223_372_036_854_775_807 // no number of Lua
	sameWords   = 100                       // room in the outbox
	warmVersion = 3                         // of the settings of a warmDrop
)

func drop(id int64) models.Target { return models.Target{Kind: models.KindDrop, ID: id} }

// ruling is what claim.lua replies to one word.
type ruling struct {
	status    int64
	claim     string
	remaining int64
}

// spoken is a drop with the words of a call.
type spoken struct {
	target models.Target
	words  []string
}

// claimGate calls claim.lua, with room for limit words. It returns no rulings if the shard is closed.
func claimGate(t testing.TB, r *Redis, limit int, all ...spoken) []ruling {
	t.Helper()
	reply, err := callClaims(t, r, limit, never, epochOf(t, r, all[0].target), all...)
	require.NoError(t, err)
	if reply[0] == int64(1) {
		return nil
	}
	require.EqualValues(t, 0, reply[0])
	var rulings []ruling
	for i := 2; i < len(reply); i += 3 {
		rulings = append(rulings, ruling{reply[i].(int64), reply[i+1].(string), reply[i+2].(int64)})
	}
	return rulings
}

func callClaims(
	t testing.TB, r *Redis, limit int, deadline int64, epoch string, all ...spoken,
) (reply []any, err error) {
	t.Helper()
	k := r.keys(all[0].target)
	keys, args := []string{k.shard, k.outbox}, []any{limit, 0, deadline, epoch, 0, len(all)}
	for _, item := range all {
		keys = append(keys, r.keys(item.target).likes)
		args = append(args, item.target.Short(), len(item.words))
		for _, word := range item.words {
			args = append(args, word)
		}
	}
	return ofOneShard(r.run(t.Context(), "claim", keys, args...))
}

// say sends words about drop 1.
func say(t testing.TB, r *Redis, words ...string) []ruling {
	t.Helper()
	return claimGate(t, r, sameWords, spoken{drop(1), words})
}

// warmDrop makes a drop warm as a loader does, in version 3 and without an end.
func warmDrop(t testing.TB, r *Redis, target models.Target, stock int64, claims ...models.LiveClaim) {
	t.Helper()
	epoch, err := r.client.HGet(t.Context(), r.keys(target).shard, "epoch").Result()
	require.NoError(t, err)
	require.NoError(t, r.client.Set(t.Context(), r.keys(target).warming, "load", time.Minute).Err())
	gate := &models.GateDrop{ID: target.ID, Stock: stock, Version: warmVersion, Claims: claims}
	putDrop(t, r, gate, "load")
	require.Equal(t, 1, placeDrop(t, r, gate, "load", epoch))
}

// putDrop writes the claims of a load whose lock token holds.
func putDrop(t testing.TB, r *Redis, gate *models.GateDrop, token string) {
	t.Helper()
	ctx, k := t.Context(), r.keys(gate.Target())
	err := r.pipelined(ctx, func(p pipe) {
		r.noteLoad(ctx, p, k, token, 1)
		r.putClaims(ctx, p, k, token, gate.Claims)
	})
	require.NoError(t, err)
}

// placeDrop ends a load, and returns 1 if the drop is warm.
func placeDrop(t testing.TB, r *Redis, gate *models.GateDrop, token, epoch string) int {
	t.Helper()
	k := r.keys(gate.Target())
	n, err := r.run(t.Context(), "warm_drop", []string{k.shard, k.likes, k.warming, k.garbage},
		warmDropArgs(gate, token, epoch, len(gate.Claims))...).Int()
	require.NoError(t, err)
	return n
}

// newClaimGate returns a gate whose shard 1 is open in epoch 1 and whose drop 1 is warm, with a stock of 2.
func newClaimGate(t testing.TB) (*Redis, *redis.Client) {
	t.Helper()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	warmDrop(t, r, drop(1), 2)
	return r, plain
}

// withoutTimes removes the times from the keys of claims in a dump.
func withoutTimes(s stored) stored {
	for key, value := range s {
		if words, ok := value.(string); ok && strings.Contains(key, ":claim:") {
			parts := strings.Split(words, " ")
			for i := 2; i < len(parts); i++ {
				if parts[i] != "0" {
					parts[i] = "ms"
				}
			}
			s[key] = strings.Join(parts, " ")
		}
	}
	return s
}

func dropHash(count, stock int, last string) hash {
	return hash{"count": strconv.Itoa(count), "stock": strconv.Itoa(stock), "begins": "0", "ends": "0",
		"version": "3", "sent": "0", "sets": "1", "load": "load", "last": last}
}

func TestClaimGate_takesReturnsAndTakesAgain(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	big := strconv.FormatInt(bigClaim, 10)
	require.Equal(t, []ruling{{isChanged, big, 1}}, say(t, r, "7 "+big))
	require.Equal(t, stored{
		"{s01}:shard":                hash{"epoch": "1", "accepted": "1", "last": "1-1"},
		"{s01}:outbox":               []string{"1-0" + opened, "1-1 d1 +7:" + big},
		"{s01}:drop:1:claims":        dropHash(1, 2, "1-1"),
		"{s01}:drop:1:claims:load:0": hash{"0": "0", "7": big},
		"{s01}:claim:" + big:         "1 7 ms 0",
	}, withoutTimes(dump(t, plain)))
	before := dump(t, plain)
	require.Equal(t, []ruling{{asAsked, big, 1}}, say(t, r, "7 99"), "one claim a user")
	require.Equal(t, []ruling{{asAsked, big, 1}}, say(t, r, "-7 99"), "another claim")
	require.Equal(t, []ruling{{asAsked, "", 1}}, say(t, r, "-8 99"), "nobody's claim")
	require.Equal(t, before, dump(t, plain))

	require.Equal(t, []ruling{{isChanged, "81", 0}, {isSoldOut, "", 0}, {asAsked, big, 0}},
		say(t, r, "8 81", "9 91", "7 92"))
	require.Equal(t, []ruling{{isChanged, big, 1}, {asAsked, "", 1}, {isChanged, "92", 0}, {isSoldOut, "", 0}},
		say(t, r, "-7 "+big, "-7 "+big, "9 92", "7 93"))
	require.Equal(t, stored{
		"{s01}:shard": hash{"epoch": "1", "accepted": "4", "last": "1-3"},
		"{s01}:outbox": []string{"1-0" + opened, "1-1 d1 +7:" + big, "1-2 d1 +8:81",
			"1-3 d1 -7:" + big + " +9:92"},
		"{s01}:drop:1:claims":        dropHash(2, 2, "1-3"),
		"{s01}:drop:1:claims:load:0": hash{"0": "0", "8": "81", "9": "92"},
		"{s01}:claim:" + big:         "1 7 ms " + "ms",
		"{s01}:claim:81":             "1 8 ms 0",
		"{s01}:claim:92":             "1 9 ms 0",
	}, withoutTimes(dump(t, plain)))
	for _, key := range []string{"{s01}:drop:1:claims", "{s01}:drop:1:claims:load:0"} {
		require.Equal(t, time.Duration(-1), plain.TTL(t.Context(), key).Val(), "%s never expires", key)
	}
	ttl := plain.PTTL(t.Context(), "{s01}:claim:81").Val()
	require.InDelta(t, 24*time.Hour, ttl, float64(5*time.Minute), "no wrong time zone is as far off")
}

// What a crowd asks of a drop that is sold out costs Redis no write, and three commands in all.
func TestClaimGate_soldOutCostsThreeCommands(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	r, plain := openRedis(t, server.URL())
	openShard(t, r, 1, 1)
	warmDrop(t, r, drop(1), 2)
	say(t, r, "1 11", "2 21")
	var words []string
	for user := 100; user < 100+maxBatch; user++ {
		words = append(words, fmt.Sprintf("%d %d", user, 10*user))
	}
	before := dump(t, plain)
	require.NoError(t, plain.ConfigResetStat(t.Context()).Err())
	for _, item := range claimGate(t, r, 1000, spoken{drop(1), words}) {
		require.Equal(t, ruling{isSoldOut, "", 0}, item)
	}
	stats := plain.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
	calls := map[string]string{}
	for name, text := range stats {
		calls[strings.TrimPrefix(name, "cmdstat_")], _, _ = strings.Cut(strings.TrimPrefix(text, "calls="), ",")
	}
	// Of HMGET, one is of the shard, one of the drop and one of its users. The epoch is read by this test.
	for _, command := range []string{"config|resetstat", "info", "hello", "client|setinfo", "ping", "hget", "select"} {
		delete(calls, command)
	}
	require.Equal(t, map[string]string{"evalsha": "1", "time": "1", "hmget": "3", "hlen": "1"}, calls)
	require.Equal(t, before, dump(t, plain))
}

func TestClaimGate_windowIsOfRedisClock(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	now := plain.Time(t.Context()).Val()
	say(t, r, "7 71")
	past, future := now.Add(-time.Minute).UnixMilli(), now.Add(time.Minute).UnixMilli()
	require.EqualValues(t, isChanged, say(t, r, fmt.Sprintf("=4 2 %d 0", future))[0].status)
	require.Equal(t, []ruling{{isNotBegun, "", 1}, {asAsked, "71", 1}}, say(t, r, "8 81", "7 72"))
	require.EqualValues(t, isChanged, say(t, r, fmt.Sprintf("=5 2 %d %d", past, future))[0].status)
	require.Equal(t, []ruling{{isChanged, "81", 0}}, say(t, r, "8 81"))
	require.EqualValues(t, isChanged, say(t, r, fmt.Sprintf("=6 2 %d %d", past, past))[0].status)
	before := dump(t, plain)
	require.Equal(t, []ruling{{isEnded, "", 0}, {asAsked, "71", 0}, {isEnded, "71", 0}, {asAsked, "", 0}},
		say(t, r, "9 91", "7 72", "-7 71", "-9 91"))
	require.Equal(t, before, dump(t, plain))
	require.Equal(t, []ruling{{isChanged, "71", 1}, {isEnded, "", 1}}, say(t, r, "!7 71", "9 91"),
		"a release works after the end")
}

func TestClaimGate_settingsAreAppliedByVersion(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	say(t, r, "7 71", "8 81")
	require.Equal(t, []ruling{{isChanged, "", 0}}, say(t, r, "=3 2 0 0"), "the load has sent no event of them")
	before := dump(t, plain)
	require.Equal(t, []ruling{{asAsked, "", 0}}, say(t, r, "=3 2 0 0"))
	require.Equal(t, []ruling{{asAsked, "", 0}}, say(t, r, "=2 9 0 0"))
	require.Equal(t, before, dump(t, plain))
	require.Equal(t, []ruling{{isChanged, "", 0}, {isSoldOut, "", 0}}, say(t, r, "=5 1 0 0", "9 91"))
	require.Equal(t, []ruling{{asAsked, "", 0}}, say(t, r, "=4 9 0 0"), "that of version 5 came before")
	require.Equal(t, []ruling{{isChanged, "71", 0}, {isSoldOut, "", 0}, {isChanged, "", 2}, {isChanged, "91", 1}},
		say(t, r, "-7 71", "9 91", "=10 3 0 0", "9 91"))
	require.Equal(t, []string{"1-0" + opened, "1-1 d1 +7:71 +8:81", "1-2 d1 =3", "1-3 d1 =5", "1-4 d1 -7:71 =10 +9:91"},
		entries(t, plain, "{s01}:outbox"))
	want := dropHash(2, 3, "1-4")
	want["version"], want["sent"] = "10", "10"
	require.Equal(t, want, dump(t, plain)["{s01}:drop:1:claims"])
}

// A release of a claim that is not here sends its event, once: the writer must see that the share is free.
func TestClaimGate_releaseSendsItsEventOnce(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	say(t, r, "7 71")
	require.Equal(t, []ruling{{isChanged, "71", 2}, {asAsked, "", 2}}, say(t, r, "!7 71", "-7 71"))
	before := dump(t, plain)
	require.Equal(t, []ruling{{asAsked, "", 2}}, say(t, r, "!7 71"))
	require.Equal(t, before, dump(t, plain))
	say(t, r, "8 81", "-8 81")
	require.Equal(t, []ruling{{asAsked, "", 2}}, say(t, r, "!8 81"), "its event is on its way")
	require.Equal(t, []ruling{{isChanged, "", 2}}, say(t, r, "!9 91"), "it was never loaded")
	require.Equal(t, []ruling{{asAsked, "", 2}}, say(t, r, "!9 91"))
	say(t, r, "7 72")
	require.Equal(t, []ruling{{asAsked, "72", 1}}, say(t, r, "!7 71"), "a later claim stays")
	require.Equal(t, []string{"1-0" + opened, "1-1 d1 +7:71", "1-2 d1 -7:71", "1-3 d1 +8:81 -8:81", "1-4 d1 -9:91",
		"1-5 d1 +7:72"}, entries(t, plain, "{s01}:outbox"))
}

func TestClaimGate_claimsOfDropsThatArriveTogetherAreOneRun(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	warmDrop(t, r, drop(17), 1, models.LiveClaim{UserID: 7, ID: 17})
	warmDrop(t, r, drop(33), 1)
	require.NoError(t, plain.Set(t.Context(), r.keys(drop(49)).likes, "of a wrong type", 0).Err())
	closeTarget(t, r, drop(33))
	require.Equal(t, []ruling{
		{isChanged, "71", 1}, {isSoldOut, "", 0}, {asAsked, "17", 0}, {isChanged, "17", 1}, {isChanged, "85", 0},
		{isDeleted, "", 1}, {isDeleted, "", 1}, {isChanged, "", 1}, {isDamaged, "", 0}, {isCold, "", 0},
		{isCold, "", 0},
	}, claimGate(t, r, sameWords,
		spoken{drop(1), []string{"7 71"}}, spoken{drop(17), []string{"8 81", "7 72", "-7 17", "8 85"}},
		spoken{drop(33), []string{"7 74", "-7 74", "!7 74"}}, spoken{drop(49), []string{"7 75"}},
		spoken{drop(65), []string{"7 76", "=9 9 0 0"}}))
	require.Equal(t, []string{"1-0" + opened, "1-1 d1 +7:71 d17 -7:17 +8:85 d33 -7:74"},
		entries(t, plain, "{s01}:outbox"))
	require.Equal(t, hash{"epoch": "1", "accepted": "4", "last": "1-1"}, dump(t, plain)["{s01}:shard"])
}

func TestClaimGate_refusalLeavesEveryKeyAsItWas(t *testing.T) {
	t.Parallel()
	type arrange func(t *testing.T, r *Redis, plain *redis.Client)
	set := func(field, value string) arrange {
		return func(t *testing.T, r *Redis, plain *redis.Client) {
			t.Helper()
			require.NoError(t, plain.HSet(t.Context(), r.keys(drop(1)).likes, field, value).Err())
		}
	}
	without := func(fields ...string) arrange {
		return func(t *testing.T, r *Redis, plain *redis.Client) {
			t.Helper()
			require.NoError(t, plain.HDel(t.Context(), r.keys(drop(1)).likes, fields...).Err())
		}
	}
	const claims = "{s01}:drop:1:claims:load:0"
	for name, c := range map[string]struct {
		arrange arrange
		limit   int
		status  int64 // -1: the shard is closed
	}{
		"closed shard": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			closeShard(t, plain, 1)
		}, 100, -1},
		"shard of another server": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			plain.HSet(t.Context(), "{s01}:shard", "server", strings.Repeat("0", 40))
		}, 100, -1},
		"full outbox":                {func(*testing.T, *Redis, *redis.Client) {}, 0, isFull},
		"count that is too low":      {set("count", "0"), 100, isDamaged},
		"count that is too high":     {set("count", "2"), 100, isDamaged},
		"count that is not a number": {set("count", "many"), 100, isDamaged},
		"no count":                   {without("count"), 100, isDamaged},
		"no load":                    {without("load"), 100, isDamaged},
		"no stock":                   {without("stock"), 100, isDamaged},
		"no end":                     {without("ends"), 100, isDamaged},
		"no version":                 {without("version"), 100, isDamaged},
		"another load":               {set("load", "other"), 100, isDamaged},
		"deleted post":               {set("closed", "1"), 100, isDeleted},
		"lost users": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			plain.Del(t.Context(), claims)
		}, 100, isDamaged},
		"lost field 0": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			plain.HDel(t.Context(), claims, "0")
			plain.HSet(t.Context(), claims, "5", "55")
		}, 100, isDamaged},
		"users of a wrong type": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			plain.Del(t.Context(), claims)
			plain.Set(t.Context(), claims, "text", 0)
		}, 100, isDamaged},
		"drop of a wrong type": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			plain.Del(t.Context(), "{s01}:drop:1:claims")
			plain.SAdd(t.Context(), "{s01}:drop:1:claims", "7")
		}, 100, isDamaged},
		"cold drop": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			plain.Del(t.Context(), "{s01}:drop:1:claims")
		}, 100, isCold},
	} {
		t.Run(name, func(t *testing.T) {
			r, plain := newClaimGate(t)
			say(t, r, "7 71")
			c.arrange(t, r, plain)
			before := dump(t, plain)
			for _, word := range []string{"8 81", "-7 71", "=9 9 0 0", "!7 71"} {
				rulings := claimGate(t, r, c.limit, spoken{drop(1), []string{word}})
				switch {
				case c.status == -1:
					require.Empty(t, rulings)
				case c.status == isDeleted && strings.ContainsAny(word, "!="):
					continue // these work on deleted drops
				default:
					require.Equal(t, c.status, rulings[0].status, word)
				}
				if c.status == isDeleted && strings.ContainsAny(word, "!=") {
					return
				}
				require.Equal(t, before, dump(t, plain), word)
			}
		})
	}
}

func TestClaimGate_refusesWhatIsLateOrOfAnotherServer(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	before := dump(t, plain)
	past := time.Now().Add(-10 * time.Second).UnixMilli()
	for epoch, deadline := range map[string]int64{"1": past, "2": never} {
		reply, err := callClaims(t, r, 100, deadline, epoch, spoken{drop(1), []string{"7 71"}})
		require.NoError(t, err)
		require.Len(t, reply, 5)
		require.EqualValues(t, 6, reply[0])
		require.EqualValues(t, 1, reply[2], "the epoch of this server")
	}
	require.Equal(t, before, dump(t, plain))

	// As after a restart or a promotion: the shard was opened under another replication id.
	require.NoError(t, plain.HSet(t.Context(), shardKey(1), "server", strings.Repeat("0", 40)).Err())
	before = dump(t, plain)
	for _, word := range []string{"7 71", "-7 71", "!7 71", "=2 5 0 0"} {
		reply, err := callClaims(t, r, 100, never, "1", spoken{drop(1), []string{word}})
		require.NoError(t, err)
		require.Len(t, reply, 2)
		require.EqualValues(t, 1, reply[0], "the shard is closed")
	}
	require.Equal(t, before, dump(t, plain))
}

// If the outbox cannot take the event, everything is taken back: claims, returns and settings.
func TestClaimGate_takesBackWhatHasNoEvent(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	say(t, r, "7 71")
	ctx := t.Context()
	// The stream has seen a later position, so that an entry of this epoch is refused.
	require.NoError(t, plain.XAdd(ctx, &redis.XAddArgs{Stream: "{s01}:outbox", ID: "9-0",
		Values: []any{"run", "probed", "before", "1"}}).Err())
	before := dump(t, plain)
	_, err := callClaims(t, r, 100, never, "1",
		spoken{drop(1), []string{"-7 71", "8 81", "9 91", "=9 3 5 6", "-8 81", "8 82", "!5 55", "=10 4 0 0"}})
	require.ErrorContains(t, err, "equal or smaller")
	require.Equal(t, before, dump(t, plain))
}

func TestClaimGate_memoryLimitRefusesClaimsAndNotReturns(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	r, plain := openRedis(t, server.URL())
	openShard(t, r, 1, 1)
	warmDrop(t, r, drop(1), 3)
	warmDrop(t, r, drop(17), 0)
	say(t, r, "7 71", "6 61")
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory", "1").Err())
	before := dump(t, plain)
	require.Equal(t, []ruling{{isUnstored, "", 1}, {asAsked, "71", 1}, {isUnstored, "", 1}, {isSoldOut, "", 0}},
		claimGate(t, r, 100, spoken{drop(1), []string{"8 81", "7 72", "=9 9 0 0"}}, spoken{drop(17), []string{"8 81"}}))
	require.Equal(t, before, dump(t, plain))
	require.Equal(t, []ruling{{isUnstored, "", 1}, {isChanged, "71", 2}, {isUnstored, "", 2}},
		say(t, r, "8 81", "-7 71", "9 91"))
	require.Equal(t, []ruling{{isChanged, "61", 3}}, say(t, r, "!6 61"))
	require.Equal(t, []string{"1-0" + opened, "1-1 d1 +7:71 +6:61", "1-2 d1 -7:71", "1-3 d1 -6:61"},
		entries(t, plain, "{s01}:outbox"))
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.Equal(t, []ruling{{isChanged, "81", 2}}, say(t, r, "8 81"))
}

func TestClaimGate_refusesClaimsOfAUserForATime(t *testing.T) {
	t.Parallel()
	r, _ := newClaimGate(t)
	say(t, r, "8 81")
	for user := range int64(2) {
		require.NoError(t, r.RefuseLikes(t.Context(), 7+user, time.Minute))
	}
	require.Equal(t, []ruling{{isRefused, "", 1}, {asAsked, "81", 1}, {isChanged, "81", 2}, {isRefused, "", 2},
		{isChanged, "91", 1}}, say(t, r, "7 71", "8 82", "-8 81", "8 83", "9 91"))
}

func TestWarmDrop_refusesWhatMayBeOld(t *testing.T) {
	t.Parallel()
	gate := &models.GateDrop{ID: 1, Stock: 2, Version: 1, Claims: []models.LiveClaim{{UserID: 7, ID: 71}}}
	for name, spoil := range map[string]func(t *testing.T, r *Redis, plain *redis.Client){
		"lock taken over": func(t *testing.T, r *Redis, plain *redis.Client) {
			t.Helper()
			plain.Set(t.Context(), r.keys(drop(1)).warming, "other", time.Minute)
		},
		"post deleted": func(t *testing.T, r *Redis, _ *redis.Client) {
			t.Helper()
			require.Equal(t, 0, closeTarget(t, r, drop(1)), "it is cold")
		},
		"kept cold": func(t *testing.T, r *Redis, _ *redis.Client) {
			t.Helper()
			cold, err := r.IsCold(t.Context(), drop(1))
			require.NoError(t, err)
			require.False(t, cold, "it is being loaded")
			cold, err = r.KeepCold(t.Context(), drop(1))
			require.NoError(t, err)
			require.True(t, cold)
			cold, err = r.IsCold(t.Context(), drop(1))
			require.NoError(t, err)
			require.True(t, cold)
		},
		"claim lost": func(t *testing.T, r *Redis, plain *redis.Client) {
			t.Helper()
			plain.HDel(t.Context(), setKey(r.keys(drop(1)).likes, "load", 0), "7")
		},
		"shard closed and opened again": func(t *testing.T, r *Redis, plain *redis.Client) {
			t.Helper()
			closeShard(t, plain, 1)
			openShard(t, r, 1, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, plain := newRedis(t)
			openShard(t, r, 1, 1)
			require.NoError(t, plain.Set(t.Context(), r.keys(drop(1)).warming, "load", time.Minute).Err())
			putDrop(t, r, gate, "load")
			spoil(t, r, plain)
			require.Equal(t, 0, placeDrop(t, r, gate, "load", "1"))
			require.NotContains(t, dump(t, plain), "{s01}:drop:1:claims")
		})
		if name == "claim lost" {
			continue
		}
		t.Run(name+" before the claims", func(t *testing.T) {
			r, plain := newRedis(t)
			openShard(t, r, 1, 1)
			require.NoError(t, plain.Set(t.Context(), r.keys(drop(1)).warming, "load", time.Minute).Err())
			spoil(t, r, plain)
			putDrop(t, r, gate, "load")
			require.Equal(t, 0, placeDrop(t, r, gate, "load", "1"))
			require.NotContains(t, dump(t, plain), "{s01}:drop:1:claims")
		})
	}
}

// The network delivers a part of a load once more, after the drop has become warm and a claim was returned.
func TestPutClaims_lateCopyChangesNothing(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	require.NoError(t, plain.Set(t.Context(), r.keys(drop(1)).warming, "load", time.Minute).Err())
	gate := &models.GateDrop{ID: 1, Stock: 2, Version: 1, Claims: []models.LiveClaim{{UserID: 7, ID: 71}}}
	putDrop(t, r, gate, "load")
	require.Equal(t, 1, placeDrop(t, r, gate, "load", "1"))
	say(t, r, "-7 71")
	before := dump(t, plain)
	_, err := plain.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		r.putClaims(t.Context(), pipe{p, r, true}, r.keys(drop(1)), "load", gate.Claims)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, before, dump(t, plain))
}

// A drop is evicted, swept, closed and reopened by the scripts of likes.
func TestClaimGate_dropsAreTargets(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	ctx := t.Context()
	say(t, r, "7 71")
	var warm []models.Target
	require.NoError(t, r.EachWarm(ctx, func(list []models.Target) error { warm = append(warm, list...); return nil }))
	require.Equal(t, []models.Target{drop(1)}, warm)
	states, err := r.TargetStates(ctx, warm)
	require.NoError(t, err)
	require.Equal(t, TargetState{Warm: true, Count: 1, Users: 1, Sets: 1, Load: "load", Last: pos(1, 1)}, states[0])
	closeTarget(t, r, drop(1))
	require.EqualValues(t, isDeleted, say(t, r, "8 81")[0].status)
	require.Equal(t, 1, reopen(t, r, drop(1), closedMark(t, r, drop(1))))
	require.EqualValues(t, isChanged, say(t, r, "8 81")[0].status)
	require.Equal(t, 0, cool(t, r, drop(1), 1, 1, 0), "MySQL lacks the last event")
	require.Equal(t, 1, cool(t, r, drop(1), 1, 2, 0))
	require.EqualValues(t, isCold, say(t, r, "9 91")[0].status)
	require.NoError(t, plain.ZAdd(ctx, garbageKey(1), redis.Z{Score: 1, Member: "{s01}:drop:1:claims:load 1"}).Err())
	_, err = r.Sweep(ctx)
	require.NoError(t, err)
	require.Empty(t, dump(t, plain).only("drop:1"))

	warmDrop(t, r, drop(1), 2)
	forgetTargets(t, r, 1)
	require.NotContains(t, dump(t, plain), "{s01}:drop:1:claims")
}

func TestReassertClaims_writesWhatIs(t *testing.T) {
	t.Parallel()
	r, plain := newClaimGate(t)
	say(t, r, "7 71")
	before := dump(t, plain)
	claims := NewClaims(r, nil, ClaimsOptions{})
	held := []models.LiveClaim{{UserID: 7, ID: 70}, {UserID: 7, ID: 71}, {UserID: 8, ID: 81}}
	require.NoError(t, claims.ReassertClaims(t.Context(), 1, held))
	require.NoError(t, claims.ReassertClaims(t.Context(), 1, nil))
	before["{s01}:outbox"] = []string{"1-0" + opened, "1-1 d1 +7:71", "1-2 d1 -7:70 +7:71 -8:81 =3", "1-3 d1 =3"}
	before["{s01}:drop:1:claims"].(hash)["last"] = "1-3"
	before["{s01}:shard"].(hash)["accepted"], before["{s01}:shard"].(hash)["last"] = "6", "1-3"
	require.Equal(t, before, dump(t, plain))
	require.ErrorIs(t, claims.ReassertClaims(t.Context(), 17, held), ErrNotWarm)
	require.NoError(t, plain.HSet(t.Context(), "{s01}:drop:1:claims", "count", 9).Err())
	require.ErrorIs(t, claims.ReassertClaims(t.Context(), 1, held), ErrNotWarm)
	closeShard(t, plain, 1)
	require.ErrorIs(t, claims.ReassertClaims(t.Context(), 1, held), ErrShardClosed)
}
