package counters

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// The statuses of a like in the reply of like.lua.
const (
	asAsked    = 0
	isCold     = 2
	isDeleted  = 3
	isFull     = 4
	isDamaged  = 5
	isChanged  = 7
	superseded = 8
	isRefused  = 9
	isUnstored = 10
	isLost     = 15
)

// verdict is what like.lua replies to one like.
type verdict struct{ status, number int64 }

func done(count int64) []verdict     { return []verdict{{isChanged, count}} }
func wasSo(count int64) []verdict    { return []verdict{{asAsked, count}} }
func refused(status int64) []verdict { return []verdict{{status, 0}} }

// never is a deadline that does not pass.
const never = 1 << 52

// wanted is a target with its likes, as like.lua reads them.
type wanted struct {
	target models.Target
	likes  []string
}

// gate calls like.lua, with room for limit likes. It returns no verdicts if the shard is closed.
func gate(t testing.TB, r *Redis, limit int, all ...wanted) []verdict {
	t.Helper()
	reply := callGate(t, r, limit, never, all...)
	if reply[0] == 1 {
		return nil
	}
	require.Zero(t, reply[0])
	var verdicts []verdict
	for i := 2; i < len(reply); i += 2 {
		verdicts = append(verdicts, verdict{reply[i], reply[i+1]})
	}
	return verdicts
}

func callGate(t testing.TB, r *Redis, limit int, deadline int64, all ...wanted) []int64 {
	t.Helper()
	k := r.keys(all[0].target)
	keys := []string{k.shard, k.outbox}
	args := []any{limit, 0, deadline, epochOf(t, r, all[0].target), turnOf(t, r, all[0].target), len(all)}
	for _, item := range all {
		keys = append(keys, r.keys(item.target).likes)
		args = append(args, item.target.Short(), len(item.likes))
		for _, like := range item.likes {
			args = append(args, like)
		}
	}
	reply, err := numbers(r.run(t.Context(), "like", keys, args...))
	require.NoError(t, err)
	require.InDelta(t, time.Now().UnixMilli(), reply[1], 60_000, "the clock of the server")
	return reply
}

// epochOf returns the epoch of the open shard of a target, and "" if it is closed.
func epochOf(t testing.TB, r *Redis, target models.Target) string {
	t.Helper()
	return r.client.HGet(t.Context(), r.keys(target).shard, "epoch").Val()
}

// turnOf returns the turn of the shard of a target.
func turnOf(t testing.TB, r *Redis, target models.Target) int64 {
	t.Helper()
	turn, err := r.client.HGet(t.Context(), r.keys(target).shard, "turn").Int64()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	return turn
}

func like(t testing.TB, r *Redis, target models.Target, user int64) []verdict {
	t.Helper()
	return gate(t, r, 100, wanted{target, []string{strconv.FormatInt(user, 10)}})
}

func unlike(t testing.TB, r *Redis, target models.Target, user int64) []verdict {
	t.Helper()
	return like(t, r, target, -user)
}

// warmUp makes a target warm as a loader does.
func warmUp(t testing.TB, r *Redis, target models.Target, users ...int64) {
	t.Helper()
	ctx, k, token := t.Context(), r.keys(target), "load"
	epoch, err := r.client.HGet(ctx, k.shard, "epoch").Result()
	require.NoError(t, err)
	require.NoError(t, r.client.Set(ctx, k.warming, token, time.Minute).Err())
	require.Equal(t, 1, placeUsers(t, r, target, token, epoch, users...))
}

// placeUsers ends a load whose lock token holds.
func placeUsers(t testing.TB, r *Redis, target models.Target, token, epoch string, users ...int64) int {
	t.Helper()
	ctx, k, sets := t.Context(), r.keys(target), setsFor(len(users))
	require.NoError(t, r.run(ctx, "load", []string{k.warming, k.garbage, k.likes}, token, 60_000, sets).Err())
	for _, part := range spread(users, sets) {
		err := r.pipelined(ctx, func(p pipe) {
			r.put(ctx, p, k, token, part.set, part.users)
		})
		require.NoError(t, err)
	}
	keys := []string{k.shard, k.likes, k.warming, k.garbage}
	n, err := r.run(ctx, "warm", keys, token, epoch, sets, len(users)).Int()
	require.NoError(t, err)
	return n
}

func closeTarget(t testing.TB, r *Redis, target models.Target) int {
	t.Helper()
	k := r.keys(target)
	n, err := r.run(t.Context(), "close", []string{k.likes, k.warming}).Int()
	require.NoError(t, err)
	return n
}

// newGate returns a gate whose shard 1 is open in epoch 1 and whose post 1 is warm.
func newGate(t testing.TB) (*Redis, *redis.Client) {
	t.Helper()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	warmUp(t, r, post(1))
	return r, plain
}

func TestGate_refusesWhatIsLate(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	past := time.Now().Add(-10 * time.Second).UnixMilli()
	reply := callGate(t, r, 100, past, wanted{post(1), []string{"-7"}})
	require.Len(t, reply, 5)
	require.EqualValues(t, 6, reply[0])
	require.Greater(t, reply[1], past)
	require.EqualValues(t, 1, reply[2])
	require.Equal(t, before, dump(t, plain))
}

// The caller read the clock of another server, which may be ahead. Its deadline has no meaning here.
func TestGate_refusesADeadlineOfAnotherServer(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	closeShard(t, plain, 1)
	openShard(t, r, 1, 2)
	before := dump(t, plain)
	k := r.keys(post(1))
	keys := []string{k.shard, k.outbox, k.likes}
	reply, err := numbers(r.run(t.Context(), "like", keys, 100, 0, never, 1, 0, 1, "p1", 1, "-7"))
	require.NoError(t, err)
	require.EqualValues(t, 6, reply[0])
	require.EqualValues(t, 2, reply[2], "the epoch of this server")
	require.Equal(t, before, dump(t, plain))
}

const opened = " opened 0-0"

func TestGate_like(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	require.Equal(t, done(1), like(t, r, post(1), 7))
	require.Equal(t, stored{
		"{s01}:shard":               hash{"epoch": "1", "accepted": "1", "last": "1-1"},
		"{s01}:outbox":              []string{"1-0" + opened, "1-1 p1 7"},
		"{s01}:post:1:likes":        hash{"count": "1", "sets": "1", "load": "load", "last": "1-1"},
		"{s01}:post:1:likes:load:0": []string{"0", "7"},
	}, dump(t, plain))
	for _, key := range []string{"{s01}:post:1:likes", "{s01}:post:1:likes:load:0"} {
		require.Equal(t, time.Duration(-1), plain.TTL(t.Context(), key).Val(), "%s never expires", key)
	}
	before := dump(t, plain)
	require.Equal(t, wasSo(1), like(t, r, post(1), 7))
	require.Equal(t, before, dump(t, plain))
}

func TestGate_unlike(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	before := dump(t, plain)
	require.Equal(t, wasSo(0), unlike(t, r, post(1), 7), "what was never liked")
	require.Equal(t, before, dump(t, plain))
	like(t, r, post(1), 7)
	like(t, r, post(1), 8)
	require.Equal(t, done(1), unlike(t, r, post(1), 7))
	require.Equal(t, wasSo(1), unlike(t, r, post(1), 7))
	all := dump(t, plain)
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 7", "1-2 p1 8", "1-3 p1 -7"}, all["{s01}:outbox"])
	require.Equal(t, []string{"0", "8"}, all["{s01}:post:1:likes:load:0"])
}

func TestGate_likesThatArriveTogetherAreOneRun(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	warmUp(t, r, comment(1), 7)
	require.Equal(t, []verdict{
		{isChanged, 1}, {asAsked, 1}, {isChanged, 2}, {isChanged, 1}, // of the post, in their order
		{asAsked, 1}, {isChanged, 0}, {isChanged, 1},
	}, gate(t, r, 100,
		wanted{post(1), []string{"7", "7", "8", "-7"}},
		wanted{comment(1), []string{"7", "-7", "7"}}))
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 7 8 -7 c1 -7 7"}, entries(t, plain, "{s01}:outbox"))
	all := dump(t, plain)
	require.Equal(t, hash{"count": "1", "sets": "1", "load": "load", "last": "1-1"}, all["{s01}:post:1:likes"])
	require.Equal(t, hash{"count": "1", "sets": "1", "load": "load", "last": "1-1"}, all["{s01}:comment:1:likes"])
	require.Equal(t, hash{"epoch": "1", "accepted": "5", "last": "1-1"}, all["{s01}:shard"])
	require.Equal(t, map[models.Target]map[int64]bool{post(1): {7: false, 8: true}, comment(1): {7: true}},
		fold(t, t.Context(), plain, 1))
}

func TestGate_refusesSomeOfTheLikesThatArriveTogether(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	warmUp(t, r, post(33))
	warmUp(t, r, comment(1))
	require.NoError(t, plain.Set(t.Context(), r.keys(comment(17)).likes, "of a wrong type", 0).Err())
	closeTarget(t, r, post(33))
	want := []verdict{{isCold, 1}, {isChanged, 1}, {isChanged, 2}, {isDeleted, 2}, {isDamaged, 0}, {isFull, 0}}
	require.Equal(t, want,
		gate(t, r, 2,
			wanted{post(17), []string{"7"}}, wanted{post(1), []string{"7", "8"}}, wanted{post(33), []string{"7"}},
			wanted{comment(17), []string{"7"}}, wanted{comment(1), []string{"7"}}))
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 7 8"}, entries(t, plain, "{s01}:outbox"))
}

func TestGate_refusalLeavesEveryKeyAsItWas(t *testing.T) {
	t.Parallel()
	type arrange func(t *testing.T, r *Redis, plain *redis.Client)
	nothing := func(*testing.T, *Redis, *redis.Client) {}
	for name, c := range map[string]struct {
		arrange arrange
		target  models.Target
		limit   int
		want    []verdict
	}{
		"closed shard": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			closeShard(t, plain, 1)
		}, post(1), 100, nil},
		"shard of another server": {func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			plain.HSet(t.Context(), "{s01}:shard", "server", strings.Repeat("0", 40))
		}, post(1), 100, nil},
		"shard never opened": {nothing, post(2), 100, nil},
		"full outbox":        {nothing, post(1), 0, refused(isFull)},
		"outbox beyond its limit": {func(t *testing.T, r *Redis, _ *redis.Client) {
			t.Helper()
			like(t, r, post(1), 8)
			like(t, r, post(1), 9)
		}, post(1), 1, []verdict{{isFull, 2}}},
		"set of users that is lost": {func(t *testing.T, r *Redis, plain *redis.Client) {
			t.Helper()
			plain.Del(t.Context(), setKey(r.keys(post(1)).likes, "load", 0))
		}, post(1), 100, refused(isDamaged)},
	} {
		t.Run(name, func(t *testing.T) {
			r, plain := newGate(t)
			c.arrange(t, r, plain)
			before := dump(t, plain)
			require.Equal(t, c.want, gate(t, r, c.limit, wanted{c.target, []string{"7"}}))
			require.Equal(t, before, dump(t, plain))
		})
	}
}

func TestGate_fullOutboxRefusesUnlikesAndReportsWhatIs(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	require.Equal(t, []verdict{{isFull, 1}}, gate(t, r, 1, wanted{post(1), []string{"-7"}}))
	require.Equal(t, wasSo(1), gate(t, r, 1, wanted{post(1), []string{"7"}}), "nothing is to be written")
	require.Equal(t, before, dump(t, plain))
	require.Equal(t, done(0), gate(t, r, 2, wanted{post(1), []string{"-7"}}), "with room for one")
	require.NoError(t, plain.XTrimMinID(t.Context(), "{s01}:outbox", "1-2").Err())
	require.Equal(t, []verdict{{isChanged, 1}, {isFull, 1}}, gate(t, r, 2, wanted{post(1), []string{"7", "8"}}),
		"what Kafka has takes no room")
}

func TestGate_keyOfAWrongTypeLeavesEverythingAsItWas(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]struct {
		wrong string
		fails bool // the whole call; otherwise only the like
	}{
		"{s01}:shard": {"set", true}, "{s01}:outbox": {"string", true},
		"{s01}:post:1:likes": {"set", false}, "{s01}:post:1:likes:load:0": {"hash", false},
	} {
		for _, word := range []string{"8", "-7"} {
			t.Run(key+"/"+word, func(t *testing.T) {
				r, plain := newGate(t)
				like(t, r, post(1), 7)
				ctx := t.Context()
				require.NoError(t, plain.Del(ctx, key).Err())
				switch c.wrong {
				case "set":
					require.NoError(t, plain.SAdd(ctx, key, "x").Err())
				case "hash":
					require.NoError(t, plain.HSet(ctx, key, "x", "y").Err())
				case "string":
					require.NoError(t, plain.Set(ctx, key, "x", 0).Err())
				}
				before := dump(t, plain)
				k := r.keys(post(1))
				keys := []string{k.shard, k.outbox, k.likes}
				reply, err := numbers(r.run(ctx, "like", keys, 100, 0, never, "1", 0, 1, "p1", 1, word))
				if c.fails {
					require.ErrorContains(t, err, "WRONGTYPE")
				} else {
					require.NoError(t, err)
					require.EqualValues(t, isDamaged, reply[2])
				}
				require.Equal(t, before, dump(t, plain))
			})
		}
	}
}

func TestGate_countAndSetThatDisagreeLeaveEverythingAsItWas(t *testing.T) {
	t.Parallel()
	for _, count := range []string{"", "many", "0", "2", "-1", "9223372036854775807"} {
		t.Run(count, func(t *testing.T) {
			r, plain := newGate(t)
			like(t, r, post(1), 7)
			require.NoError(t, plain.HSet(t.Context(), "{s01}:post:1:likes", "count", count).Err())
			before := dump(t, plain)
			for _, word := range []string{"7", "8", "-7"} {
				verdicts := gate(t, r, 100, wanted{post(1), []string{word}})
				require.EqualValues(t, isDamaged, verdicts[0].status)
			}
			require.Equal(t, before, dump(t, plain))
		})
	}
}

func TestGate_missesASetOfMany(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	users := make([]int64, 2000)
	for i := range users {
		users[i] = int64(i + 1)
	}
	warmUp(t, r, post(1), users...)
	sets := setsFor(len(users))
	require.Greater(t, sets, 4)
	require.NoError(t, plain.Del(t.Context(), setKey(r.keys(post(1)).likes, "load", setOf(5000, sets))).Err())
	before := dump(t, plain)
	for _, word := range []string{"5000", "-5000"} {
		require.EqualValues(t, isDamaged, gate(t, r, 100, wanted{post(1), []string{word}})[0].status)
	}
	require.Equal(t, before, dump(t, plain))
}

// The users of a lost set would be lost without a trace if the set was split: its halves would have their sentinels.
func TestGate_splitsNoSetThatIsLost(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	key := r.keys(post(1)).likes
	const sets = 4
	users := make([]int64, 1195)
	for i := range users {
		users[i] = int64(i + 1)
	}
	warmUp(t, r, post(1), users...)
	require.Equal(t, sets, setsFor(len(users)))
	require.NoError(t, plain.Del(t.Context(), setKey(key, "load", 0)).Err())
	grown := 0
	for id := int64(10_000); grown < 10; id++ {
		if setOf(id, sets) == 0 {
			continue // of the lost set
		}
		verdicts := gate(t, r, 100, wanted{post(1), []string{strconv.FormatInt(id, 10)}})
		require.EqualValues(t, isChanged, verdicts[0].status)
		grown++
	}
	require.Greater(t, setsFor(len(users)+grown), sets, "a split is due")
	require.Equal(t, strconv.Itoa(sets), plain.HGet(t.Context(), key, "sets").Val())
	for _, id := range users {
		if setOf(id, sets) == 0 {
			verdicts := gate(t, r, 100, wanted{post(1), []string{strconv.FormatInt(id, 10)}})
			require.EqualValues(t, isDamaged, verdicts[0].status, "user %d", id)
		}
	}
}

// Sets grow with their target, one split at a time, and none grows so large that Redis makes a hash table of it.
func TestGate_splitsSets(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]func(i int64) int64{
		"consecutive": func(i int64) int64 { return i },
		"every tenth": func(i int64) int64 { return 10 * i },
		"scattered":   func(i int64) int64 { return i * 2654435761 % (1 << 31) },
		"snowflakes":  func(i int64) int64 { return 1<<52 + i<<12 },
	} {
		t.Run(name, func(t *testing.T) {
			r, plain := newGate(t)
			k, ctx := r.keys(post(1)), t.Context()
			const n = 6000
			for first := int64(1); first <= n; first += 100 {
				var words []string
				for i := first; i < first+100; i++ {
					words = append(words, strconv.FormatInt(id(i), 10))
				}
				verdicts := gate(t, r, 1_000_000, wanted{post(1), words})
				require.Equal(t, verdict{isChanged, first + 99}, verdicts[99])
			}
			states, err := r.TargetStates(ctx, []models.Target{post(1)})
			require.NoError(t, err)
			require.EqualValues(t, n, states[0].Users)
			require.Equal(t, setsFor(n), states[0].Sets)
			for _, set := range setNumbers(states[0].Sets) {
				key := setKey(k.likes, "load", set)
				encoding, err := plain.ObjectEncoding(ctx, key).Result()
				require.NoError(t, err)
				assert.Equal(t, "intset", encoding, "set %d of %d", set, plain.SCard(ctx, key).Val())
				members, err := plain.SMembers(ctx, key).Result()
				require.NoError(t, err)
				require.Contains(t, members, "0")
				for _, member := range members {
					user, err := strconv.ParseInt(member, 10, 64)
					require.NoError(t, err)
					if user != 0 {
						require.Equal(t, set, setOf(user, states[0].Sets), "user %d", user)
					}
				}
			}
			for i := int64(1); i <= n; i += 97 {
				word := strconv.FormatInt(id(i), 10)
				require.Equal(t, wasSo(n), gate(t, r, 1_000_000, wanted{post(1), []string{word}}))
				require.Equal(t, done(n-1), gate(t, r, 1_000_000, wanted{post(1), []string{"-" + word}}))
				require.Equal(t, done(n), gate(t, r, 1_000_000, wanted{post(1), []string{word}}))
			}
		})
	}
}

// A split that could not be finished may have left some of its sets, with users who have unliked the target since.
func TestGate_replacesTheSetsOfASplitThatFailed(t *testing.T) {
	t.Parallel()
	for set := 1; set <= 3; set++ {
		r, plain := newGate(t)
		ctx, likes := t.Context(), r.keys(post(1)).likes
		users := make([]int64, 300)
		for i := range users {
			users[i] = int64(i + 1)
		}
		require.NoError(t, plain.Del(ctx, likes).Err())
		warmUp(t, r, post(1), users...)
		require.NoError(t, plain.SAdd(ctx, setKey(likes, "load", set), 0, 1000, 1001, 1002, 1003).Err())
		require.Equal(t, "1", plain.HGet(ctx, likes, "sets").Val())
		require.Equal(t, done(301), like(t, r, post(1), 301))
		require.Equal(t, "4", plain.HGet(ctx, likes, "sets").Val())
		require.Equal(t, append(slices.Clone(users), 301), usersOf(t, r, post(1)))
		require.Equal(t, wasSo(301), unlike(t, r, post(1), 1000))
	}
}

// What the shard remembers of the outbox may be old: it only makes the gate look when the outbox seems full.
func TestGate_looksIntoTheOutboxIfItSeemsFull(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	ctx, k := t.Context(), r.keys(post(1))
	likes := func(from, n int64) []verdict {
		var words []string
		for user := from; user < from+n; user++ {
			words = append(words, strconv.FormatInt(user, 10))
		}
		return gate(t, r, 20, wanted{post(1), words})
	}
	likes(1, 10)
	require.False(t, plain.HExists(ctx, k.shard, "relayed").Val(), "it cannot be full")
	require.Equal(t, []verdict{{isChanged, 19}, {isChanged, 20}, {isFull, 20}}, likes(11, 12)[8:11])
	require.Equal(t, "0", plain.HGet(ctx, k.shard, "relayed").Val())

	require.NoError(t, plain.XTrimMinID(ctx, k.outbox, "1-2").Err()) // the relay has sent the first ten
	require.Equal(t, []verdict{{isChanged, 29}, {isChanged, 30}, {isFull, 30}}, likes(31, 12)[8:11])
	require.Equal(t, "10", plain.HGet(ctx, k.shard, "relayed").Val())
	require.NoError(t, plain.XTrimMinID(ctx, k.outbox, "1-9").Err())
	require.Equal(t, done(50), likes(51, 20)[19:])
	require.Equal(t, "30", plain.HGet(ctx, k.shard, "relayed").Val())
}

func TestGate_numbersAreDenseOverTheTargetsOfAShard(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	targets := []models.Target{post(1), post(17), comment(1), comment(33)}
	for _, target := range targets[1:] {
		warmUp(t, r, target)
	}
	want := []string{"1-0" + opened}
	for user := int64(1); user <= 3; user++ {
		for _, target := range targets {
			require.Equal(t, done(user), like(t, r, target, user))
			require.Equal(t, wasSo(user), like(t, r, target, user), "takes no number")
			want = append(want, fmt.Sprintf("1-%d %s %d", len(want), target.Short(), user))
		}
	}
	require.Equal(t, want, entries(t, plain, "{s01}:outbox"))
}

func TestGate_numbersContinueAfterTheOutboxWasEmptied(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	require.NoError(t, plain.XTrimMaxLen(t.Context(), "{s01}:outbox", 0).Err())
	like(t, r, post(1), 8)
	require.Equal(t, []string{"1-2 p1 8"}, entries(t, plain, "{s01}:outbox"))
}

func TestGate_newEpochBeginsAtOneAfterItsFirstEvent(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	closeShard(t, plain, 1)
	openShard(t, r, 1, 5)
	require.Equal(t, done(2), like(t, r, post(1), 8), "the target is still warm")
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 7", "5-0 opened 1-1", "5-1 p1 8"},
		entries(t, plain, "{s01}:outbox"))
	require.Equal(t, hash{"count": "2", "sets": "1", "load": "load", "last": "5-1"},
		dump(t, plain)["{s01}:post:1:likes"])
}

func TestGate_memoryLimitRefusesWhole(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	r, plain := openRedis(t, server.URL())
	openShard(t, r, 1, 1)
	warmUp(t, r, post(1))
	like(t, r, post(1), 7)
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory", "1").Err())
	before := dump(t, plain)
	require.Equal(t, []verdict{{isUnstored, 1}}, like(t, r, post(1), 8))
	require.Equal(t, wasSo(1), like(t, r, post(1), 7))
	require.Equal(t, []verdict{{isUnstored, 0}}, like(t, r, post(17), 8), "not even a ticket")
	require.Equal(t, before, dump(t, plain))

	// Likes that arrive together with unlikes are refused, in every order. Unlikes go on.
	require.Equal(t, []verdict{{isUnstored, 1}, {isChanged, 0}, {isUnstored, 0}, {isUnstored, 0}},
		gate(t, r, 100, wanted{post(1), []string{"8", "-7", "9"}}, wanted{post(17), []string{"7"}}))
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 7", "1-2 p1 -7"}, entries(t, plain, "{s01}:outbox"))

	// What lets go of memory works all the same: a relay takes the lock, and drains the outbox.
	outbox, err := r.HoldOutbox(t.Context(), 1, "relay", time.Minute)
	require.NoError(t, err)
	require.NoError(t, outbox.Renew(t.Context(), time.Minute))
	require.NoError(t, outbox.Trim(t.Context(), pos(1, 2)))
	require.Empty(t, entries(t, plain, "{s01}:outbox"))
	require.Equal(t, 1, closeTarget(t, r, post(1)))
	closeShard(t, plain, 1)
	_, err = outbox.Seal(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, outbox.Opened(t.Context(), 2))
	n, err := r.Cool(t.Context(), []models.Target{post(1)}, 0, map[int]models.Position{1: pos(9, 9)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = r.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, outbox.Release(t.Context()))
}

// A like of a cold target leaves a ticket, and comes again with it. By then the user may have called again.
func TestGate_ticketsKeepTheOrderOfAUser(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	first := like(t, r, post(1), 7)
	require.Equal(t, []verdict{{isCold, 1}}, first)
	second := unlike(t, r, post(1), 7)
	require.Equal(t, []verdict{{isCold, -2}}, second)
	require.Equal(t, []verdict{{isCold, 3}}, like(t, r, post(1), 8))
	require.Equal(t, []verdict{{superseded, 0}}, gate(t, r, 100, wanted{post(1), []string{"7 1"}}), "still cold")
	require.Equal(t, []verdict{{isCold, -2}}, gate(t, r, 100, wanted{post(1), []string{"-7 -2"}}), "still cold")
	ttl := plain.PTTL(t.Context(), "{s01}:post:1:likes:waiting").Val()
	require.Greater(t, ttl, 50*time.Second)

	warmUp(t, r, post(1), 7)
	require.Equal(t, wasSo(1), gate(t, r, 100, wanted{post(1), []string{"7 1"}}), "needs no effect")
	require.Equal(t, done(0), gate(t, r, 100, wanted{post(1), []string{"-7 -2"}}))
	require.Equal(t, []verdict{{superseded, 0}}, gate(t, r, 100, wanted{post(1), []string{"7 1"}}))
	require.Equal(t, wasSo(0), gate(t, r, 100, wanted{post(1), []string{"-7 -2"}}), "it came before")
	require.Equal(t, done(1), like(t, r, post(1), 8), "a call without a ticket is the latest of its user")
	require.Equal(t, done(0), unlike(t, r, post(1), 8))
	require.Equal(t, []verdict{{superseded, 0}}, gate(t, r, 100, wanted{post(1), []string{"8 3"}}))
	require.Equal(
		t,
		hash{"count": "0", "sets": "1", "load": "load", "last": "1-3", "waiting": "1"},
		dump(t, plain)["{s01}:post:1:likes"])
	require.Equal(t, hash{"7!": "1", "8!": "1"}, dump(t, plain)["{s01}:post:1:likes:waiting"], "nobody waits")
	require.Greater(t, plain.PTTL(t.Context(), "{s01}:post:1:likes:waiting").Val(), 50*time.Second)
}

// A ticket that is gone without a later call of its user proves nothing. The user may try again.
func TestGate_lostTicketsAreNotThoseOfReplacedCalls(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	call := func(word string) []verdict { return gate(t, r, 100, wanted{post(1), []string{word}}) }
	require.Equal(t, []verdict{{isCold, 1}}, call("7"))
	plain.Del(t.Context(), "{s01}:post:1:likes:waiting")
	require.Equal(t, []verdict{{isLost, 0}}, call("7 1"), "still cold")
	require.Equal(t, []verdict{{isCold, 2}}, call("7"))
	require.Equal(t, []verdict{{isCold, -3}}, call("-8"))
	warmUp(t, r, post(1), 9)
	plain.Del(t.Context(), "{s01}:post:1:likes:waiting")
	require.Equal(t, []verdict{{isLost, 1}}, call("7 2"))
	require.Equal(t, wasSo(1), call("-8 -3"), "it is as asked")
	require.Equal(t, done(2), call("7"))
	require.Equal(t, []verdict{{isLost, 2}}, call("-7 -4"), "nobody waits")
	closeTarget(t, r, post(1))
	require.Equal(t, []verdict{{isDeleted, 4}}, call("10"))
	plain.Del(t.Context(), "{s01}:post:1:likes:waiting")
	require.Equal(t, []verdict{{isLost, 0}}, call("10 4"), "still deleted")
}

// Two processes take the same like of one user, whose finger slipped. Neither may answer that the other has replaced
// it.
func TestGate_equalCallsOfTwoProcessesShareATicket(t *testing.T) {
	t.Parallel()
	for sign, liked := range map[string]bool{"": true, "-": false} {
		r, plain := newRedis(t)
		openShard(t, r, 1, 1)
		call := func(word string) []verdict { return gate(t, r, 100, wanted{post(1), []string{word}}) }
		ticket, another := sign+"1", map[bool]string{true: "-7", false: "7"}[liked]
		require.Equal(t, []verdict{{isCold, number(t, ticket)}}, call(sign+"7"))
		require.Equal(t, []verdict{{isCold, number(t, ticket)}}, call(sign+"7"))
		require.Equal(t, []verdict{{isCold, number(t, ticket)}}, call(sign+"7 "+ticket), "the target is still cold")
		users, count := []int64{8}, int64(2)
		if !liked {
			users, count = []int64{7, 8}, 1
		}
		warmUp(t, r, post(1), users...)
		require.Equal(t, done(count), call(sign+"7 "+ticket))
		require.Equal(t, wasSo(count), call(sign+"7 "+ticket), "the other one")
		require.EqualValues(t, isChanged, call(another)[0].status)
		require.EqualValues(t, superseded, call(sign + "7 " + ticket)[0].status, "it must not undo a later call")
		require.Equal(t, hash{"7!": "1"}, dump(t, plain)["{s01}:post:1:likes:waiting"])
	}
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return n
}

func TestGate_ticketsOfADeletedTarget(t *testing.T) {
	t.Parallel()
	r, _ := newGate(t)
	closeTarget(t, r, post(1))
	require.Equal(t, []verdict{{isDeleted, 1}}, like(t, r, post(1), 7))
	require.Equal(t, []verdict{{isDeleted, -2}}, unlike(t, r, post(1), 7))
	require.Equal(t, 1, reopen(t, r, post(1), closedMark(t, r, post(1))))
	require.Equal(t, []verdict{{superseded, 0}}, gate(t, r, 100, wanted{post(1), []string{"7 1"}}))
	require.Equal(t, wasSo(0), gate(t, r, 100, wanted{post(1), []string{"-7 -2"}}))
}

func reassert(t testing.TB, r *Redis, target models.Target, limit int, users ...int64) int {
	t.Helper()
	k, args := r.keys(target), []any{limit, target.Short(), ""}
	for _, user := range users {
		args = append(args, user)
	}
	n, err := r.run(t.Context(), "reassert", []string{k.shard, k.outbox, k.likes}, args...).Int()
	require.NoError(t, err)
	return n
}

func TestReassertScript_writesWhatIs(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	require.Equal(t, 3, reassert(t, r, post(1), 2, 6, 7, 8), "an outbox with room takes all")
	before["{s01}:outbox"] = []string{"1-0" + opened, "1-1 p1 7", "1-2 p1 -6 7 -8"}
	before["{s01}:post:1:likes"].(hash)["last"] = "1-2"
	before["{s01}:shard"].(hash)["accepted"], before["{s01}:shard"].(hash)["last"] = "4", "1-2"
	require.Equal(t, before, dump(t, plain))
}

// Nothing shows whether users of a lost set like the target.
func TestReassertScript_leavesOutUsersOfALostSet(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	var users []int64
	for user := range int64(1000) {
		users = append(users, user+1)
	}
	warmUp(t, r, post(1), users...)
	sets := setsFor(len(users))
	lost := setOf(users[0], sets)
	require.NoError(t, plain.Del(t.Context(), setKey(r.keys(post(1)).likes, "load", lost)).Err())
	var kept []string
	for _, user := range users {
		if setOf(user, sets) != lost {
			kept = append(kept, strconv.FormatInt(user, 10))
		}
	}
	require.NotEmpty(t, kept)
	require.Equal(t, len(kept), reassert(t, r, post(1), 10_000, users...))
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 " + strings.Join(kept, " ")}, entries(t, plain, "{s01}:outbox"))
}

// A target that was loaded after an event knows no more of it than MySQL.
func TestReassertScript_knowsOnlyEventsSinceTheLoad(t *testing.T) {
	t.Parallel()
	r, _ := newGate(t)
	like(t, r, post(1), 7)
	l := NewLikes(r, nil, LikesOptions{})
	require.NoError(t, l.ReassertEvent(t.Context(), post(1), 7, pos(1, 1)))
	require.ErrorIs(t, l.ReassertEvent(t.Context(), post(1), 7, pos(1, 0)), ErrNotWarm, "before it was loaded")
	warmUp(t, r, comment(1), 7)
	require.ErrorIs(t, l.ReassertEvent(t.Context(), comment(1), 7, pos(1, 2)), ErrNotWarm)
	require.NoError(t, l.ReassertEvent(t.Context(), comment(1), 7, pos(1, 3)))
	require.NoError(t, l.ReassertEvent(t.Context(), comment(1), 7, pos(2, 0)))
	require.NoError(t, r.client.HDel(t.Context(), r.keys(comment(1)).likes, "since").Err())
	require.ErrorIs(t, l.ReassertEvent(t.Context(), comment(1), 7, pos(9, 9)), ErrNotWarm, "unknown")
	require.NoError(t, l.Reassert(t.Context(), comment(1), []int64{7}))
	placed := post(1 + shards)
	require.NoError(t, r.client.Set(t.Context(), r.keys(placed).warming, "load", time.Minute).Err())
	last := r.client.HGet(t.Context(), shardKey(1), "last").Val()
	set := setKey(r.keys(placed).likes, "load", 0)
	k := r.keys(placed)
	require.NoError(t, r.run(t.Context(), "place", []string{k.shard, k.likes, k.warming, set},
		"load", "1", 0, string(dumpSet(nil))).Err())
	require.Equal(t, last, r.client.HGet(t.Context(), k.likes, "since").Val())
}

func TestReassertScript_refusalLeavesEveryKeyAsItWas(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	require.Equal(t, -2, reassert(t, r, post(17), 100, 7), "cold")
	require.Equal(t, -4, reassert(t, r, post(1), 1, 7), "full")
	require.Equal(t, before, dump(t, plain))
	closeShard(t, plain, 1)
	require.Equal(t, -1, reassert(t, r, post(1), 100, 7), "closed")
}

func TestCloseScript_warm(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	want := dump(t, plain)
	for range 2 {
		require.Equal(t, 1, closeTarget(t, r, post(1)))
		want["{s01}:post:1:likes"].(hash)["closed"] = closedMark(t, r, post(1))
		require.Equal(t, want, dump(t, plain))
	}
}

// closedMark returns the mark with which the gate refuses likes of a closed target.
func closedMark(t testing.TB, r *Redis, target models.Target) string {
	t.Helper()
	mark, err := r.client.HGet(t.Context(), r.keys(target).likes, "closed").Result()
	require.NoError(t, err)
	micros, err := strconv.ParseInt(mark, 10, 64)
	require.NoError(t, err)
	require.InDelta(t, time.Now().UnixMicro(), micros, 60_000_000, "when it was closed")
	return mark
}

func reopen(t testing.TB, r *Redis, target models.Target, mark string) int {
	t.Helper()
	n, err := r.run(t.Context(), "reopen", []string{r.keys(target).likes}, mark).Int()
	require.NoError(t, err)
	return n
}

func TestReopenScript_removesTheMarkOfThatDeletion(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	require.Equal(t, 0, reopen(t, r, post(1), "1"), "it is open")
	require.Equal(t, 0, reopen(t, r, post(17), "1"), "it is cold")
	require.Equal(t, before, dump(t, plain))

	closeTarget(t, r, post(1))
	first := closedMark(t, r, post(1))
	require.Equal(t, 1, reopen(t, r, post(1), first))
	require.Equal(t, before, dump(t, plain), "as it was before the deletion")
	require.Equal(t, done(2), like(t, r, post(1), 8))

	closeTarget(t, r, post(1))
	closed := dump(t, plain)
	require.Equal(t, 0, reopen(t, r, post(1), first), "a replay after another deletion")
	require.Equal(t, closed, dump(t, plain))
}

func TestWarmScript_putsTheLoadedUsersInPlace(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	warmUp(t, r, post(1), 7, 8)
	want := stored{
		"{s01}:shard":               hash{"epoch": "1", "last": "1-0"},
		"{s01}:outbox":              []string{"1-0" + opened},
		"{s01}:post:1:likes":        hash{"count": "2", "sets": "1", "load": "load", "last": "0-0"},
		"{s01}:post:1:likes:load:0": []string{"0", "7", "8"},
	}
	require.Equal(t, want, dump(t, plain))
	k := r.keys(post(1))
	again, err := r.run(t.Context(), "warm", []string{k.shard, k.likes, k.warming, k.garbage}, "load", 1, 1, 2).Int()
	require.NoError(t, err)
	require.Equal(t, 1, again, "a replay")
	require.Equal(t, want, dump(t, plain))
}

func TestWarmScript_refusesWhatMayBeOld(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, r *Redis, plain *redis.Client){
		"lock expired": func(t *testing.T, r *Redis, plain *redis.Client) {
			t.Helper()
			plain.Del(t.Context(), r.keys(post(1)).warming)
		},
		"lock taken over": func(t *testing.T, r *Redis, plain *redis.Client) {
			t.Helper()
			plain.Set(t.Context(), r.keys(post(1)).warming, "other", time.Minute)
		},
		"target deleted": func(t *testing.T, r *Redis, _ *redis.Client) {
			t.Helper()
			require.Equal(t, 0, closeTarget(t, r, post(1)), "it is cold")
		},
		"shard closed": func(t *testing.T, _ *Redis, plain *redis.Client) {
			t.Helper()
			closeShard(t, plain, 1)
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
			require.NoError(t, plain.Set(t.Context(), r.keys(post(1)).warming, "load", time.Minute).Err())
			spoil(t, r, plain)
			before := dump(t, plain)
			require.Equal(t, 0, placeUsers(t, r, post(1), "load", "1", 7))
			// What was loaded is garbage, and swept a minute later.
			require.NoError(t, plain.ZAdd(t.Context(), garbageKey(1),
				redis.Z{Score: 1, Member: "{s01}:post:1:likes:load 1"}).Err())
			n, err := r.Sweep(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, before, dump(t, plain))
		})
	}
}

// A load took longer than its entry in the garbage lasted, and the job has swept one of its sets, or is about to.
func TestWarmScript_refusesASweptLoad(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	k := r.keys(post(1))
	warm := func() int {
		n, err := r.run(t.Context(), "warm", []string{k.shard, k.likes, k.warming, k.garbage}, "load", 1, 1, 1).Int()
		require.NoError(t, err)
		return n
	}
	require.NoError(t, plain.Set(t.Context(), k.warming, "load", time.Minute).Err())
	require.NoError(t, r.pipelined(t.Context(), func(p pipe) { r.put(t.Context(), p, k, "load", 0, []int64{7}) }))
	require.Equal(t, 0, warm(), "its sets are not noted as garbage: they were swept, and written late")
	require.NotContains(t, dump(t, plain), k.likes)
	require.NoError(t, plain.Del(t.Context(), setKey(k.likes, "load", 0)).Err())
	require.NoError(t, r.run(t.Context(), "load", []string{k.warming, k.garbage, k.likes}, "load", 60_000, 1).Err())
	require.Equal(t, 0, warm(), "a set is missing")
	require.NotContains(t, dump(t, plain), k.likes)
	require.Equal(t, 1, placeUsers(t, r, post(1), "load", "1", 7))
}

func TestWarmScript_leavesAWarmTarget(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	require.NoError(t, plain.Set(t.Context(), r.keys(post(1)).warming, "other", time.Minute).Err())
	before := dump(t, plain).only("likes:load")
	require.Equal(t, 0, placeUsers(t, r, post(1), "other", "1", 8, 9))
	require.Equal(t, before, dump(t, plain).only("likes:load"))
	require.Equal(t, wasSo(1), like(t, r, post(1), 7))
}

func cool(t testing.TB, r *Redis, target models.Target, epoch, seq, idle int) int {
	t.Helper()
	k := r.keys(target)
	n, err := r.run(t.Context(), "cool", []string{k.likes, k.garbage}, epoch, seq, idle).Int()
	require.NoError(t, err)
	return n
}

func TestCoolScript(t *testing.T) {
	t.Parallel()
	// The last event of post 1 is 3-1.
	for name, c := range map[string]struct {
		epoch, seq, idle int
		want             int
	}{
		"clean and idle":            {3, 1, 0, 1},
		"watermark beyond":          {3, 9, 0, 1},
		"watermark of a new epoch":  {4, 0, 0, 1},
		"in use":                    {3, 1, 3_600_000, 0},
		"not yet written":           {3, 0, 0, 0},
		"watermark of an old epoch": {2, 9, 0, 0},
		"no watermark":              {0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, plain := newRedis(t)
			openShard(t, r, 1, 3)
			warmUp(t, r, post(1))
			like(t, r, post(1), 7)
			want := dump(t, plain)
			require.Equal(t, c.want, cool(t, r, post(1), c.epoch, c.seq, c.idle))
			if c.want == 1 {
				delete(want, "{s01}:post:1:likes")
				want["{s01}:garbage"] = []string{"{s01}:post:1:likes:load 1"}
			}
			require.Equal(t, want, dump(t, plain))
			if c.want == 1 {
				n, err := r.Sweep(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, n)
				require.Empty(t, dump(t, plain).only("post:1"))
			}
		})
	}
}

func TestCoolScript_comparesNumbersNotText(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	k := r.keys(post(1))
	at := func(last string, epoch, seq int) int {
		fields := []any{"count", 0, "last", last, "at", 1, "load", "load", "sets", 1}
		require.NoError(t, plain.HSet(t.Context(), k.likes, fields...).Err())
		return cool(t, r, post(1), epoch, seq, 1)
	}
	require.Equal(t, 0, at("10-0", 9, 5))
	require.Equal(t, 0, at("9-10", 9, 9))
	require.Equal(t, 1, at("9-9", 9, 10))
	require.Equal(t, 1, at("9-10", 10, 0))
}

func TestCoolScript_coldAndClosed(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	require.Equal(t, 0, cool(t, r, post(17), 9, 9, 0), "cold")
	closeTarget(t, r, post(1))
	require.Equal(t, 1, cool(t, r, post(1), 0, 0, 0), "never liked, so there is nothing to write")
	require.NotContains(t, dump(t, plain), "{s01}:post:1:likes")
}

func TestSweepScript_removesManySetsInParts(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	ctx := t.Context()
	for set := range 7 {
		require.NoError(t, plain.SAdd(ctx, setKey("{s01}:post:1:likes", "old", set), 0).Err())
	}
	add := redis.Z{Score: 1, Member: "{s01}:post:1:likes:old 7"}
	require.NoError(t, plain.ZAdd(ctx, garbageKey(1), add).Err())
	soon := float64(time.Now().Add(30 * time.Second).UnixMilli())
	later := redis.Z{Score: soon, Member: "{s01}:post:1:likes:new 1"}
	require.NoError(t, plain.ZAdd(ctx, garbageKey(1), later).Err())
	for _, want := range []int{3, 3, 1, 0} {
		n, err := r.run(ctx, "sweep", []string{garbageKey(1)}, 3).Int()
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	require.Equal(t, stored{"{s01}:garbage": []string{"{s01}:post:1:likes:new 1"}}, dump(t, plain))
}

func TestGate_refusesLikesOfAUserForATime(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	warmUp(t, r, comment(1), 7)
	require.NoError(t, r.RefuseLikes(t.Context(), 7, 20*time.Second))
	require.NoError(t, r.RefuseLikes(t.Context(), 8, time.Hour), "which is a minute at most")
	require.NoError(t, r.RefuseLikes(t.Context(), 8, 20*time.Second))
	require.Equal(t, []verdict{{isRefused, 0}, {isChanged, 1}, {isChanged, 0}},
		gate(t, r, 100, wanted{post(1), []string{"7", "9"}}, wanted{comment(1), []string{"-7"}}), "unlikes pass")
	require.InDelta(t, 50*time.Second, plain.PTTL(t.Context(), refusedKey(1)).Val(), float64(10*time.Second),
		"the longest one")
	require.NoError(t, plain.ZAdd(t.Context(), refusedKey(1), redis.Z{Score: 1, Member: "7"}).Err())
	require.Equal(t, done(2), like(t, r, post(1), 7))

	// A key of a wrong type refuses, and leaves nothing behind.
	require.NoError(t, plain.Set(t.Context(), refusedKey(1), "of a wrong type", 0).Err())
	before := dump(t, plain)
	require.EqualValues(t, isDamaged, like(t, r, post(1), 10)[0].status)
	require.Equal(t, before, dump(t, plain))
}

// The network delivers the calls of a load a second time, after the target was made warm and a user has unliked it.
func TestLoad_copyThatArrivesLateChangesNothing(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	users := make([]int64, 1000)
	for i := range users {
		users[i] = int64(i + 1)
	}
	warmUp(t, r, post(1), users...)
	require.Equal(t, done(999), unlike(t, r, post(1), 7))
	before := dump(t, plain)
	require.NotContains(t, before, "{s01}:garbage")
	ctx, k := t.Context(), r.keys(post(1))
	sets := setsFor(len(users))
	require.Equal(t, 0, keepLoad(t, r, post(1), "load", sets))
	for _, part := range spread(users, sets) {
		err := r.pipelined(ctx, func(p pipe) {
			r.put(ctx, p, k, "load", part.set, part.users)
		})
		require.NoError(t, err)
	}
	require.Equal(t, before, dump(t, plain))
}

func keepLoad(t testing.TB, r *Redis, target models.Target, token string, sets int) int {
	t.Helper()
	k := r.keys(target)
	n, err := r.run(t.Context(), "load", []string{k.warming, k.garbage, k.likes}, token, 60_000, sets).Int()
	require.NoError(t, err)
	return n
}

// Redis was out of memory for a moment, and refused one of the sets.
func TestWarmScript_refusesALoadThatLacksASet(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	ctx, k := t.Context(), r.keys(post(1))
	require.NoError(t, plain.Set(ctx, k.warming, "load", time.Minute).Err())
	const sets = 1023 // of which some numbers are missing
	require.Equal(t, 1, keepLoad(t, r, post(1), "load", sets))
	for _, set := range setNumbers(sets) {
		require.NoError(t, plain.SAdd(ctx, setKey(k.likes, "load", set), 0).Err())
	}
	warm := func() int {
		keys := []string{k.shard, k.likes, k.warming, k.garbage}
		n, err := r.run(ctx, "warm", keys, "load", 1, sets, 0).Int()
		require.NoError(t, err)
		return n
	}
	for _, set := range []int{0, sets - 1} {
		require.NoError(t, plain.Del(ctx, setKey(k.likes, "load", set)).Err())
		require.Zero(t, warm())
		require.NoError(t, plain.SAdd(ctx, setKey(k.likes, "load", set), 0).Err())
	}
	require.Equal(t, 1, warm())
}

// While a slot moves for hours, Redis refuses new sets, so those of a hot target grow far beyond their size.
func TestGate_splitsASetThatHasGrownFarBeyondItsSize(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	ctx, k := t.Context(), r.keys(post(1))
	const users = 40_000
	members := make([]any, users)
	for i := range members {
		members[i] = i + 1
	}
	require.NoError(t, plain.SAdd(ctx, setKey(k.likes, "load", 0), members...).Err())
	stays := int64(30_000)
	for setOf(stays, 4) != 0 {
		stays++
	}
	require.NoError(t, plain.SAdd(ctx, setKey(k.likes, "load", 1), stays).Err(), "left by a split that failed")
	require.NoError(t, plain.HSet(ctx, k.likes, "count", users).Err())
	var want []int64
	for user := int64(1); user <= users; user++ {
		want = append(want, user)
	}
	for i := int64(1); i <= 100; i++ {
		// On a busy machine the answer may come too late. Then the call is sent again, and finds the like.
		require.Contains(t, [][]verdict{done(users + i), wasSo(users + i)}, like(t, r, post(1), users+i))
		want = append(want, users+i)
		require.NoError(t, plain.XTrimMaxLen(ctx, k.outbox, 0).Err())
		states, err := r.TargetStates(ctx, []models.Target{post(1)})
		require.NoError(t, err)
		require.Equal(t, users+i, states[0].Users)
		require.LessOrEqual(t, len(setNumbers(states[0].Sets)), int(1+12*i), "one call is not to take long")
	}
	require.Equal(t, want, usersOf(t, r, post(1)))
	require.Equal(t, done(users+99), unlike(t, r, post(1), stays))
	states, err := r.TargetStates(ctx, []models.Target{post(1)})
	require.NoError(t, err)
	require.Equal(t, setsFor(users+100), states[0].Sets)
}

func TestSweep_continuesAfterAShardThatFails(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	ctx := t.Context()
	require.NoError(t, plain.Set(ctx, garbageKey(1), "of a wrong type", 0).Err())
	require.NoError(t, plain.SAdd(ctx, setKey("{s02}:post:2:likes", "old", 0), 0).Err())
	require.NoError(t, plain.ZAdd(ctx, garbageKey(2), redis.Z{Score: 1, Member: "{s02}:post:2:likes:old 1"}).Err())
	n, err := r.Sweep(ctx)
	require.ErrorContains(t, err, "sweep shard 1")
	require.Equal(t, 1, n)
}
