package counters

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// scriptTime returns the time that the server has spent in scripts, with the commands that they called, and the number
// of calls.
func scriptTime(b *testing.B, plain *redis.Client) (spent time.Duration, calls int64) {
	b.Helper()
	stats, err := plain.InfoMap(b.Context(), "commandstats").Result()
	require.NoError(b, err)
	line, ok := stats["Commandstats"]["cmdstat_evalsha"]
	if !ok {
		return 0, 0
	}
	var usec int64
	_, err = fmt.Sscanf(line, "calls=%d,usec=%d", &calls, &usec)
	require.NoError(b, err)
	return time.Duration(usec) * time.Microsecond, calls
}

// simpleLike is the least that a script of one like can do: look, add, append an event, store the count. It checks
// nothing. The machine's speed decides its time, so the gate is compared with it.
var simpleLike = redis.NewScript(`
	local call = redis.call
	local time = call('TIME')
	if call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return {0} end
	local id = call('XADD', KEYS[2], '1-*', 'e', time[1] .. ' ' .. ARGV[1])
	call('SADD', KEYS[1], ARGV[1])
	call('HSET', KEYS[3], 'count', call('SCARD', KEYS[1]), 'last', id, 'at', time[1])
	return {7}`)

// simpleTime returns the time of the server for one simpleLike of a set that it keeps as a hash table.
func simpleTime(b *testing.B, plain *redis.Client) time.Duration {
	b.Helper()
	const likes = 20_000
	require.NoError(b, simpleLike.Load(b.Context(), plain).Err())
	before, _ := scriptTime(b, plain)
	for user := range likes {
		err := simpleLike.EvalSha(b.Context(), plain, []string{"{simple}:set", "{simple}:outbox", "{simple}:hash"},
			(user+1)*2654435761%(1<<31)).Err()
		require.NoError(b, err)
	}
	after, _ := scriptTime(b, plain)
	require.NoError(b, plain.Unlink(b.Context(), "{simple}:set", "{simple}:outbox", "{simple}:hash").Err())
	return (after - before) / likes
}

// serverCPU returns the processor time of the server's main thread, which a busy machine does not stretch.
func serverCPU(b *testing.B, plain *redis.Client) time.Duration {
	b.Helper()
	cpu := plain.InfoMap(b.Context(), "cpu")
	var total float64
	for _, item := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(cpu.Item("CPU", item), 64)
		require.NoError(b, err)
		total += seconds
	}
	return time.Duration(total * float64(time.Second))
}

// BenchmarkGate measures likes of one hot post that arrive 1, 4, 16 and 64 at a time. "redis-µs" is the time of the
// script according to Redis. "cpu-µs" is the processor time of Redis, with that of the connection.
func BenchmarkGate(b *testing.B) {
	server := privateRedis(b)
	r, plain := openRedis(b, server.URL())
	openShard(b, r, 1, 1)
	id := int64(1)
	for _, together := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(together), func(b *testing.B) {
			id += shards
			target := post(id)
			k := r.keys(target)
			warmUp(b, r, target)
			before, calls := scriptTime(b, plain)
			cpu := serverCPU(b, plain)
			memory := plain.MemoryUsage(b.Context(), k.outbox).Val()
			user, likes := int64(0), int64(0)
			keys := []string{k.shard, k.outbox, k.likes}
			words := make([]any, 8+together)
			copy(words, []any{1 << 40, 0, never, epochOf(b, r, target), 0, 1, target.Short(), together})
			for b.Loop() {
				for i := range together {
					user++
					words[8+i] = user * 2654435761 % (1 << 31) // sparse
				}
				likes += int64(together)
				require.NoError(b, r.run(b.Context(), "like", keys, words...).Err())
			}
			cpu = serverCPU(b, plain) - cpu
			after, n := scriptTime(b, plain)
			require.Equal(b, int64(b.N), n-calls)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64((after-before).Microseconds())/float64(likes), "redis-µs/like")
			b.ReportMetric(float64(cpu.Microseconds())/float64(likes), "cpu-µs/like")
			memory = plain.MemoryUsage(b.Context(), k.outbox).Val() - memory
			b.ReportMetric(float64(memory)/float64(likes), "outbox-B/like")
		})
	}
}

// BenchmarkHotPost measures likes of one hot post by 1 and by 64 clients, each with a like in flight at a time, through
// the whole gate. "redis-µs" is the time of the script according to Redis, "÷simple" the same against simpleLike, and
// "likes/call" is how many shared a call of the script.
func BenchmarkHotPost(b *testing.B) {
	server := privateRedis(b)
	r, plain := openRedis(b, server.URL())
	f := newForumOn(b, r)
	f.limit = 1 << 40
	for shard := range shards {
		openShard(b, r, shard, 1)
	}
	simple := simpleTime(b, plain)
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			target := f.post(b)
			f.like(b, target, 1) // warms it
			b.ResetTimer()
			require.NoError(b, plain.ConfigResetStat(b.Context()).Err())
			cpu := serverCPU(b, plain)
			took := make([]time.Duration, b.N)
			var next atomic.Int64
			var running sync.WaitGroup
			for range clients {
				running.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						began := time.Now()
						if _, err := f.SetLike(b.Context(), target, 2+n*2654435761%(1<<31), true); err != nil {
							b.Error(err)
							return
						}
						took[n-1] = time.Since(began)
					}
				})
			}
			running.Wait()
			b.StopTimer()
			cpu = serverCPU(b, plain) - cpu
			spent, calls := scriptTime(b, plain)
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "redis-µs/like")
			b.ReportMetric(float64(spent)/float64(b.N)/float64(simple), "÷simple")
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/like")
			b.ReportMetric(float64(b.N)/float64(calls), "likes/call")
			slices.Sort(took)
			b.ReportMetric(float64(took[b.N/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[b.N/10].Microseconds()), "p10-µs")
		})
	}
}

// warmLikers is the number of likers of the post that BenchmarkWarm warms.
var warmLikers = flag.Int("warm-likers", 1_000_000, "likers of the post that BenchmarkWarm warms")

// BenchmarkWarm measures how long the first like of a post of a million likers takes, and the p99 of likes of another
// post meanwhile, by one client, against the p99 before. -warm-likers sets the number. One run is enough:
// -benchtime 1x.
func BenchmarkWarm(b *testing.B) {
	f := newForum(b)
	small, large := f.post(b), f.post(b)
	f.like(b, small, 1)
	_, err := f.store.Pool().ExecContext(b.Context(), "CREATE TABLE digits (d INT PRIMARY KEY)")
	require.NoError(b, err)
	const insert = "INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)"
	_, err = f.store.Pool().ExecContext(b.Context(), insert)
	require.NoError(b, err)
	for first := 0; first < *warmLikers; first += 10_000 {
		_, err = f.store.Pool().ExecContext(b.Context(), `
			INSERT INTO post_likes (post_id, user_id)
			SELECT ?, (? + a.d + 10*b.d + 100*c.d + 1000*d.d + 1) * 214
			FROM digits a, digits b, digits c, digits d
			ORDER BY d.d, c.d, b.d, a.d`, large.ID, first)
		require.NoError(b, err)
	}
	_, err = f.store.Pool().ExecContext(b.Context(), "UPDATE posts SET likes_count=? WHERE id=?", *warmLikers, large.ID)
	require.NoError(b, err)
	for b.Loop() {
		user := int64(1)
		p99 := func(enough func(n int) bool) time.Duration {
			var took []time.Duration
			for !enough(len(took)) {
				user++
				began := time.Now()
				f.like(b, small, user)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			return took[len(took)*99/100]
		}
		before := p99(func(n int) bool { return n == 10_000 })
		warm := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			var err error
			for range 1000 { // a caller waits for a second at most, and a client tries again
				if _, err = f.SetLike(b.Context(), large, 1, true); err == nil {
					break
				}
			}
			warm <- time.Since(began)
		}()
		var took time.Duration
		during := p99(func(n int) bool {
			select {
			case took = <-warm:
			default:
			}
			return took > 0 && n > 100
		})
		states, err := f.redis.TargetStates(b.Context(), []models.Target{large})
		require.NoError(b, err)
		require.EqualValues(b, *warmLikers+1, states[0].Users)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(took.Seconds(), "s-to-warm")
		b.ReportMetric(float64(during.Microseconds()), "p99-µs")
		b.ReportMetric(float64(during)/float64(before), "p99/before")
		b.ReportMetric(float64(memoryOf(b, f.redis, f.plain, large))/float64(*warmLikers), "B/like")
	}
}

// BenchmarkMemory measures all keys of one target, loaded, or half liked through the gate. One run is enough:
// -benchtime 1x.
func BenchmarkMemory(b *testing.B) {
	server := privateRedis(b)
	r, plain := openRedis(b, server.URL())
	openShard(b, r, 1, 1)
	id := int64(1)
	for _, users := range []int{1000, 100_000, 1_000_000, 10_000_000} {
		for _, how := range []string{"loaded", "liked"} {
			b.Run(fmt.Sprint(users, "/", how), func(b *testing.B) {
				for b.Loop() {
					id += shards
					fill(b, r, post(id), users, how == "liked")
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(memoryOf(b, r, plain, post(id)))/float64(users), "B/like")
			})
		}
	}
}

// fill adds likes to a cold target, of users with sparse ids of 31 bits: all by a load, or half by the gate.
func fill(t testing.TB, r *Redis, target models.Target, users int, half bool) {
	t.Helper()
	ids := make([]int64, users)
	for i := range ids {
		ids[i] = int64(i+1) * 2654435761 % (1 << 31)
	}
	first := users
	if half {
		first = users / 2
	}
	warmUp(t, r, target, ids[:first]...)
	for batch := range slices.Chunk(ids[first:], 1000) {
		words := make([]string, len(batch))
		for i, user := range batch {
			words[i] = strconv.FormatInt(user, 10)
		}
		gate(t, r, 1<<40, wanted{target, words})
	}
}

// memoryOf returns the bytes that Redis uses for all keys of a target.
func memoryOf(t testing.TB, r *Redis, plain *redis.Client, target models.Target) int64 {
	t.Helper()
	states, err := r.TargetStates(t.Context(), []models.Target{target})
	require.NoError(t, err)
	require.Equal(t, states[0].Count, states[0].Users)
	k := r.keys(target)
	total, err := plain.MemoryUsage(t.Context(), k.likes).Result()
	require.NoError(t, err)
	for numbers := range slices.Chunk(setNumbers(states[0].Sets), 1000) {
		cmds, err := plain.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for _, set := range numbers {
				p.MemoryUsage(t.Context(), setKey(k.likes, states[0].Load, set), 0)
			}
			return nil
		})
		require.NoError(t, err)
		for _, cmd := range cmds {
			total += cmd.(*redis.IntCmd).Val()
		}
	}
	return total
}

func TestMemory_isAtMostSixBytesALike(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	openShard(t, r, 1, 1)
	for i, users := range []int{1000, 100_000} {
		for j, half := range []bool{false, true} {
			target := post(int64(1 + shards*(2*i+j)))
			fill(t, r, target, users, half)
			bytes := float64(memoryOf(t, r, plain, target)) / float64(users)
			t.Logf("%d likes, half of them through the gate: %v, %.2f bytes a like", users, half, bytes)
			require.LessOrEqual(t, bytes, 6.0)
		}
	}
}
