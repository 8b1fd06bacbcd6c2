package counters

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// Replies of the script like.lua.
var (
	isClosed  = []int64{1}
	isCold    = []int64{2}
	isDeleted = []int64{3}
	isFull    = []int64{4}
	isDamaged = []int64{5}
)

func done(count int64) []int64       { return []int64{0, count, 1} }
func wasSo(count int64) []int64      { return []int64{0, count, 0} }
func at(ms int64) string             { return strconv.FormatInt(ms, 10) }
func gateKeys(k targetKeys) []string { return []string{k.shard, k.likes, k.users, k.outbox} }

// gate calls like.lua at the time 1000 ms with room for limit events.
func gate(t testing.TB, r *Redis, target models.Target, want int, user int64, event string, limit int) []int64 {
	t.Helper()
	reply, err := r.run(t.Context(), "like", gateKeys(r.keys(target)), want, user, event, limit, 1000, never).
		Int64Slice()
	require.NoError(t, err)
	if reply[0] == 0 {
		require.Len(t, reply, 4)
		require.InDelta(t, time.Now().UnixMilli(), reply[3], 60_000)
		reply = reply[:3]
	}
	if reply[0] == isDeleted[0] {
		require.Len(t, reply, 2)
		require.InDelta(t, time.Now().UnixMicro(), reply[1], 60_000_000, "when it was closed")
		reply = reply[:1]
	}
	return reply
}

// never is a deadline that never passes.
const never = 1 << 52

func like(t testing.TB, r *Redis, target models.Target, user int64) []int64 {
	t.Helper()
	return gate(t, r, target, 1, user, `"on"`, 100)
}

func unlike(t testing.TB, r *Redis, target models.Target, user int64) []int64 {
	t.Helper()
	return gate(t, r, target, 0, user, `"off"`, 100)
}

// openNew warms a target without likes.
func openNew(t testing.TB, r *Redis, target models.Target) {
	t.Helper()
	k := r.keys(target)
	n, err := r.run(t.Context(), "open", []string{k.shard, k.likes, k.users}, time.Now().Unix(), 500).Int()
	require.NoError(t, err)
	require.Equal(t, 1, n)
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
	openNew(t, r, post(1))
	return r, plain
}

func TestGate_refusesLateCalls(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	past := time.Now().Add(-10 * time.Second).UnixMilli()
	reply, err := r.run(t.Context(), "like", gateKeys(r.keys(post(1))), 0, 7, `"off"`, 100, 1000, past).Int64Slice()
	require.NoError(t, err)
	require.EqualValues(t, 6, reply[0])
	require.Greater(t, reply[1], past)
	require.Equal(t, before, dump(t, plain))
}

const opened = ` {"type":"shard.opened"}`

func TestGate_like(t *testing.T) {
	r, plain := newGate(t)
	require.Equal(t, done(1), gate(t, r, post(1), 1, 7, `{"any": "payload"}`, 100))
	require.Equal(t, stored{
		"{s01}:shard":              hash{"epoch": "1"},
		"{s01}:outbox":             []string{"1-0" + opened, `1-1 {"any": "payload"}`},
		"{s01}:post:1:likes":       hash{"count": "1", "last": "1-1", "at": "1000"},
		"{s01}:post:1:likes_users": []string{"7"},
	}, dump(t, plain))
}

func TestGate_repeatedLikeChangesNothing(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	require.Equal(t, wasSo(1), gate(t, r, post(1), 1, 7, `"again"`, 100))
	require.Equal(t, before, dump(t, plain))
}

func TestGate_unlike(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	like(t, r, post(1), 8)
	require.Equal(t, done(1), unlike(t, r, post(1), 7))
	require.Equal(t, stored{
		"{s01}:shard":              hash{"epoch": "1"},
		"{s01}:outbox":             []string{"1-0" + opened, `1-1 "on"`, `1-2 "on"`, `1-3 "off"`},
		"{s01}:post:1:likes":       hash{"count": "1", "last": "1-3", "at": "1000"},
		"{s01}:post:1:likes_users": []string{"8"},
	}, dump(t, plain))
}

func TestGate_repeatedUnlikeChangesNothing(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	require.Equal(t, done(0), unlike(t, r, post(1), 7))
	before := dump(t, plain)
	require.Equal(t, wasSo(0), unlike(t, r, post(1), 7))
	require.Equal(t, before, dump(t, plain))
}

func TestGate_unlikeWithoutALikeChangesNothing(t *testing.T) {
	r, plain := newGate(t)
	before := dump(t, plain)
	require.Equal(t, wasSo(0), unlike(t, r, post(1), 7))
	require.Equal(t, before, dump(t, plain))
}

func TestGate_refusalChangesNoKey(t *testing.T) {
	type arrange func(t *testing.T, r *Redis, plain *redis.Client)
	nothing := func(*testing.T, *Redis, *redis.Client) {}
	closed := func(t *testing.T, _ *Redis, plain *redis.Client) {
		t.Helper()
		closeShard(t, plain, 1)
	}
	users := func(t *testing.T, r *Redis, plain *redis.Client) {
		t.Helper()
		plain.SAdd(t.Context(), r.keys(post(17)).users, 9)
	}
	deleted := func(t *testing.T, r *Redis, _ *redis.Client) {
		t.Helper()
		closeTarget(t, r, post(1))
	}
	liked := func(t *testing.T, r *Redis, _ *redis.Client) {
		t.Helper()
		like(t, r, post(1), 8)
	}
	lost := func(t *testing.T, r *Redis, plain *redis.Client) {
		t.Helper()
		like(t, r, post(1), 8)
		plain.Del(t.Context(), r.keys(post(1)).users)
	}
	for name, c := range map[string]struct {
		arrange arrange
		target  models.Target
		limit   int
		want    []int64
	}{
		"closed shard":              {closed, post(1), 100, isClosed},
		"shard never opened":        {nothing, post(2), 100, isClosed},
		"closed and cold":           {closed, post(17), 100, isClosed},
		"cold":                      {nothing, post(17), 100, isCold},
		"cold with users":           {users, post(17), 100, isCold},
		"comment of the same id":    {nothing, comment(1), 100, isCold},
		"deleted":                   {deleted, post(1), 100, isDeleted},
		"full outbox":               {nothing, post(1), 1, isFull},
		"outbox beyond its limit":   {liked, post(1), 1, isFull},
		"set of users that is lost": {lost, post(1), 100, isDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			r, plain := newGate(t)
			c.arrange(t, r, plain)
			before := dump(t, plain)
			require.Equal(t, c.want, gate(t, r, c.target, 1, 7, `"on"`, c.limit))
			require.Equal(t, before, dump(t, plain))
		})
	}
}

func TestGate_fullOutboxRefusesUnlikesAndAnswersRepeats(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	require.Equal(t, isFull, gate(t, r, post(1), 0, 7, `"off"`, 2))
	require.Equal(t, wasSo(1), gate(t, r, post(1), 1, 7, `"on"`, 2), "nothing is to be written")
	require.Equal(t, before, dump(t, plain))
	require.Equal(t, done(0), gate(t, r, post(1), 0, 7, `"off"`, 3), "with room for one")
}

func TestGate_keyOfAWrongTypeChangesNothing(t *testing.T) {
	for key, wrong := range map[string]string{
		"{s01}:shard": "set", "{s01}:post:1:likes": "set", "{s01}:post:1:likes_users": "hash", "{s01}:outbox": "string",
	} {
		for want, user := range map[int]int64{1: 8, 0: 7} {
			t.Run(key+"/"+strconv.Itoa(want), func(t *testing.T) {
				r, plain := newGate(t)
				like(t, r, post(1), 7)
				ctx := t.Context()
				require.NoError(t, plain.Del(ctx, key).Err())
				switch wrong {
				case "set":
					require.NoError(t, plain.SAdd(ctx, key, "x").Err())
				case "hash":
					require.NoError(t, plain.HSet(ctx, key, "x", "y").Err())
				case "string":
					require.NoError(t, plain.Set(ctx, key, "x", 0).Err())
				}
				before := dump(t, plain)
				err := r.run(ctx, "like", gateKeys(r.keys(post(1))), want, user, `"e"`, 100, 1000, never).Err()
				require.ErrorContains(t, err, "WRONGTYPE")
				require.Equal(t, before, dump(t, plain))
			})
		}
	}
}

func TestGate_damagedTargetChangesNothing(t *testing.T) {
	for _, count := range []string{"", "many", "0", "2", "-1", "9223372036854775807"} {
		t.Run(count, func(t *testing.T) {
			r, plain := newGate(t)
			like(t, r, post(1), 7)
			require.NoError(t, plain.HSet(t.Context(), "{s01}:post:1:likes", "count", count).Err())
			before := dump(t, plain)
			require.Equal(t, isDamaged, like(t, r, post(1), 7))
			require.Equal(t, isDamaged, like(t, r, post(1), 8))
			require.Equal(t, isDamaged, unlike(t, r, post(1), 7))
			require.Equal(t, -2, reassert(t, r, post(1), 100, 7))
			require.Equal(t, before, dump(t, plain))
		})
	}
}

func TestGate_numbersAreDenseOverTheTargetsOfAShard(t *testing.T) {
	r, plain := newGate(t)
	targets := []models.Target{post(1), post(17), comment(1), comment(33)}
	for _, target := range targets[1:] {
		openNew(t, r, target)
	}
	want := []string{"1-0" + opened}
	for user := int64(1); user <= 3; user++ {
		for _, target := range targets {
			event := `"` + target.String() + `"`
			require.Equal(t, done(user), gate(t, r, target, 1, user, event, 100))
			require.Equal(t, wasSo(user), gate(t, r, target, 1, user, event, 100), "takes no number")
			want = append(want, "1-"+strconv.Itoa(len(want))+" "+event)
		}
	}
	require.Equal(t, want, entries(t, plain, "{s01}:outbox"))
}

func TestGate_numbersContinueAfterTheOutboxWasEmptied(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	require.NoError(t, plain.XTrimMaxLen(t.Context(), "{s01}:outbox", 0).Err())
	like(t, r, post(1), 8)
	require.Equal(t, []string{`1-2 "on"`}, entries(t, plain, "{s01}:outbox"))
}

func TestGate_newEpochBeginsAtOneAfterItsFirstEvent(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	closeShard(t, plain, 1)
	openShard(t, r, 1, 5)
	require.Equal(t, done(2), like(t, r, post(1), 8), "the target is still warm")
	require.Equal(
		t,
		[]string{"1-0" + opened, `1-1 "on"`, "5-0" + opened, `5-1 "on"`},
		entries(t, plain, "{s01}:outbox"),
	)
	require.Equal(t, hash{"count": "2", "last": "5-1", "at": "1000"}, dump(t, plain)["{s01}:post:1:likes"])
}

func TestGate_memoryLimitRefusesTheWholeCall(t *testing.T) {
	server := privateRedis(t)
	r, plain := openRedis(t, server.URL())
	openShard(t, r, 1, 1)
	openNew(t, r, post(1))
	like(t, r, post(1), 7)
	before := dump(t, plain)
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory", "1").Err())
	err := r.run(t.Context(), "like", gateKeys(r.keys(post(1))), 1, 8, `"e"`, 100, 1000, never).Err()
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, before, dump(t, plain))
}

func reassert(t testing.TB, r *Redis, target models.Target, limit int, users ...int64) int {
	t.Helper()
	args := []any{limit}
	for _, user := range users {
		args = append(args, user, `"on `+at(user)+`"`, `"off `+at(user)+`"`)
	}
	n, err := r.run(t.Context(), "reassert", gateKeys(r.keys(target)), args...).Int()
	require.NoError(t, err)
	return n
}

func TestReassertScript_writesTheCurrentState(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	require.Equal(t, 2, reassert(t, r, post(1), 100, 7, 8))
	require.Equal(t, stored{
		"{s01}:shard":              hash{"epoch": "1"},
		"{s01}:outbox":             []string{"1-0" + opened, `1-1 "on"`, `1-2 "on 7"`, `1-3 "off 8"`},
		"{s01}:post:1:likes":       hash{"count": "1", "last": "1-3", "at": "1000"}, // last delays the janitor
		"{s01}:post:1:likes_users": []string{"7"},
	}, dump(t, plain))
}

func TestReassertScript_refusalChangesNoKey(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	assert.Equal(t, -2, reassert(t, r, post(17), 100, 7), "cold")
	assert.Equal(t, -4, reassert(t, r, post(1), 3, 7, 8), "two events, room for one")
	assert.Equal(t, 0, reassert(t, r, post(1), 100), "nobody")
	require.Equal(t, before, dump(t, plain))

	closeShard(t, plain, 1)
	before = dump(t, plain)
	assert.Equal(t, -1, reassert(t, r, post(1), 100, 7), "closed")
	require.Equal(t, before, dump(t, plain))
}

func TestOpenScript_newTarget(t *testing.T) {
	r, plain := newGate(t)
	require.Equal(t, hash{"count": "0", "last": "0-0", "at": "500"}, dump(t, plain)["{s01}:post:1:likes"])
	require.NotContains(t, dump(t, plain), "{s01}:post:1:likes_users")
	require.Equal(t, done(1), like(t, r, post(1), 7))
}

func TestOpenScript_refusesOtherTargets(t *testing.T) {
	open := func(t *testing.T, r *Redis, target models.Target, age time.Duration) int {
		k := r.keys(target)
		n, err := r.run(t.Context(), "open", []string{k.shard, k.likes, k.users}, time.Now().Add(-age).Unix(), 500).
			Int()
		require.NoError(t, err)
		return n
	}
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	assert.Equal(t, 1, open(t, r, post(1), 0), "already warm")
	assert.Equal(t, 0, open(t, r, post(17), 12*time.Second), "late")
	assert.Equal(t, 0, open(t, r, post(2), 0), "closed shard")
	require.Equal(t, before, dump(t, plain))

	assert.Equal(t, 1, closeTarget(t, r, post(1)))
	assert.Equal(t, 1, open(t, r, post(1), 0))
	assert.Equal(t, isDeleted, like(t, r, post(1), 8), "what is deleted is not opened again")

	require.NoError(t, plain.HSet(t.Context(), "{s01}:shard", "opened", time.Now().Add(-12*time.Second).Unix()).Err())
	assert.Equal(
		t,
		0,
		open(t, r, post(17), 5*time.Second),
		"the shard was opened so short a time before that it may have been after",
	)
	require.NoError(t, plain.HSet(t.Context(), "{s01}:shard", "opened", time.Now().Add(-20*time.Second).Unix()).Err())
	assert.Equal(t, 1, open(t, r, post(17), 5*time.Second), "in time")
}

func TestCloseScript_warm(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	want := maps.Clone(dump(t, plain))
	for range 2 {
		require.Equal(t, 1, closeTarget(t, r, post(1)))
		want["{s01}:post:1:likes"] = hash{
			"count":  "1",
			"last":   "1-1",
			"at":     "1000",
			"closed": closedMark(t, r, post(1)),
		}
		require.Equal(t, want, dump(t, plain))
	}
}

// closedMark returns the mark in the gate's reply for a closed target.
func closedMark(t testing.TB, r *Redis, target models.Target) string {
	t.Helper()
	reply, err := r.run(t.Context(), "like", gateKeys(r.keys(target)), 1, 8, `"on"`, 100, 1000, never).Int64Slice()
	require.NoError(t, err)
	require.Equal(t, isDeleted[0], reply[0])
	return strconv.FormatInt(reply[1], 10)
}

func reopen(t testing.TB, r *Redis, target models.Target, mark string) int {
	t.Helper()
	n, err := r.run(t.Context(), "reopen", []string{r.keys(target).likes}, mark).Int()
	require.NoError(t, err)
	return n
}

func TestReopenScript_removesOnlyTheMarkOfThatDeletion(t *testing.T) {
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

func TestCloseScript_coldDeletesTheLoadersLock(t *testing.T) {
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	before := dump(t, plain)
	require.Equal(t, 0, closeTarget(t, r, post(1)))
	require.Equal(t, before, dump(t, plain), "no key for what is cold")

	l := loader(t, r, plain, "token", 7)
	require.Equal(t, 0, closeTarget(t, r, post(1)))
	require.Equal(t, 0, l.finish(t, "token", 1))
	require.Equal(t, before, dump(t, plain))
}

// load is a load of post 1 that is in progress.
type load struct {
	r     *Redis
	plain *redis.Client
	keys  []string // of warm.lua
}

// loader returns a load that holds the warming lock of post 1 under token and has loaded users.
func loader(t testing.TB, r *Redis, plain *redis.Client, token string, users ...any) load {
	t.Helper()
	k := r.keys(post(1))
	loading := "{s01}:post:1:loading:" + token
	require.NoError(t, plain.Set(t.Context(), k.warming, token, time.Minute).Err())
	if len(users) > 0 {
		require.NoError(t, plain.SAdd(t.Context(), loading, users...).Err())
		require.NoError(t, plain.Expire(t.Context(), loading, time.Minute).Err())
	}
	return load{r, plain, []string{k.shard, k.likes, k.users, loading, k.warming}}
}

func (l load) finish(t testing.TB, token string, epoch int) int {
	t.Helper()
	n, err := l.r.run(t.Context(), "warm", l.keys, token, epoch, 2000).Int()
	require.NoError(t, err)
	return n
}

func TestWarmScript_storesTheLoadedUsers(t *testing.T) {
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	l := loader(t, r, plain, "token", 7, 8)
	require.Equal(t, 1, l.finish(t, "token", 1))
	want := stored{
		"{s01}:shard":              hash{"epoch": "1"},
		"{s01}:outbox":             []string{"1-0" + opened},
		"{s01}:post:1:likes":       hash{"count": "2", "last": "0-0", "at": "2000"},
		"{s01}:post:1:likes_users": []string{"7", "8"},
		"{s01}:post:1:warming":     "token", // its holder releases it
	}
	require.Equal(t, want, dump(t, plain))
	for _, key := range []string{"{s01}:post:1:likes", "{s01}:post:1:likes_users"} {
		require.Equal(t, time.Duration(-1), plain.TTL(t.Context(), key).Val(), "%s never expires", key)
	}
	require.Equal(t, 1, l.finish(t, "token", 1), "a replay")
	require.Equal(t, want, dump(t, plain))
}

func TestWarmScript_withoutUsers(t *testing.T) {
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	// A target that lost its hash left this set, which must not be used again.
	require.NoError(t, plain.SAdd(t.Context(), r.keys(post(1)).users, 9).Err())
	l := loader(t, r, plain, "token")
	require.Equal(t, 1, l.finish(t, "token", 1))
	require.Equal(t, stored{
		"{s01}:post:1:likes":   hash{"count": "0", "last": "0-0", "at": "2000"},
		"{s01}:post:1:warming": "token",
	}, dump(t, plain).only("post:1"))
}

func TestWarmScript_refusesStaleLoads(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, l load){
		"lock expired":    func(t *testing.T, l load) { l.plain.Del(t.Context(), l.keys[4]) },
		"lock taken over": func(t *testing.T, l load) { l.plain.Set(t.Context(), l.keys[4], "other", time.Minute) },
		"shard closed":    func(t *testing.T, l load) { closeShard(t, l.plain, 1) },
		"shard closed and opened again": func(t *testing.T, l load) {
			closeShard(t, l.plain, 1)
			openShard(t, l.r, 1, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, plain := newRedis(t)
			openShard(t, r, 1, 1)
			l := loader(t, r, plain, "token", 7)
			spoil(t, l)
			before := dump(t, plain)
			require.Equal(t, 0, l.finish(t, "token", 1))
			delete(before, "{s01}:post:1:loading:token")
			require.Equal(t, before, dump(t, plain))
		})
	}
}

func TestWarmScript_keepsAWarmTarget(t *testing.T) {
	r, plain := newGate(t)
	like(t, r, post(1), 7)
	before := dump(t, plain)
	l := loader(t, r, plain, "token", 8, 9)
	require.Equal(t, 1, l.finish(t, "token", 1))
	before["{s01}:post:1:warming"] = "token"
	require.Equal(t, before, dump(t, plain))
}

func TestCoolScript(t *testing.T) {
	// Post 1 was last liked at 1000 ms; the event is 3-1.
	for name, c := range map[string]struct {
		epoch, seq, idle int
		want             int
	}{
		"clean and idle":            {3, 1, 1000, 1},
		"watermark beyond":          {3, 9, 1000, 1},
		"watermark of a new epoch":  {4, 0, 1000, 1},
		"in use":                    {3, 1, 999, 0},
		"not yet written":           {3, 0, 1000, 0},
		"watermark of an old epoch": {2, 9, 1000, 0},
		"no watermark":              {0, 0, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, plain := newRedis(t)
			openShard(t, r, 1, 3)
			openNew(t, r, post(1))
			like(t, r, post(1), 7)
			want := dump(t, plain)
			k := r.keys(post(1))
			n, err := r.run(t.Context(), "cool", []string{k.likes, k.users}, c.epoch, c.seq, c.idle).Int()
			require.NoError(t, err)
			require.Equal(t, c.want, n)
			if c.want == 1 {
				delete(want, k.likes)
				delete(want, k.users)
			}
			require.Equal(t, want, dump(t, plain))
		})
	}
}

func TestCoolScript_comparesNumbersNotText(t *testing.T) {
	r, plain := newRedis(t)
	k := r.keys(post(1))
	cool := func(last string, epoch, seq int) int {
		require.NoError(t, plain.HSet(t.Context(), k.likes, "count", 0, "last", last, "at", 1).Err())
		n, err := r.run(t.Context(), "cool", []string{k.likes, k.users}, epoch, seq, 1).Int()
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 0, cool("10-0", 9, 5))
	require.Equal(t, 0, cool("9-10", 9, 9))
	require.Equal(t, 1, cool("9-9", 9, 10))
	require.Equal(t, 1, cool("9-10", 10, 0))
}

func TestCoolScript_coldAndClosed(t *testing.T) {
	r, plain := newGate(t)
	k := r.keys(post(17))
	n, err := r.run(t.Context(), "cool", []string{k.likes, k.users}, 9, 9, 9999).Int()
	require.NoError(t, err)
	require.Equal(t, 0, n, "cold")

	closeTarget(t, r, post(1))
	k = r.keys(post(1))
	n, err = r.run(t.Context(), "cool", []string{k.likes, k.users}, 0, 0, 500).Int()
	require.NoError(t, err)
	require.Equal(t, 1, n, "never liked, so there is nothing to write")
	require.Empty(t, dump(t, plain).only("post"))
}
