package counters

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// serverTime returns the time that the server has spent in a command, and the number of its calls.
func serverTime(b *testing.B, plain *redis.Client, command string) (spent time.Duration, calls int64) {
	b.Helper()
	line := plain.InfoMap(b.Context(), "commandstats").Item("Commandstats", "cmdstat_"+command)
	if line == "" {
		return 0, 0
	}
	var usec int64
	_, err := fmt.Sscanf(line, "calls=%d,usec=%d", &calls, &usec)
	require.NoError(b, err)
	return time.Duration(usec) * time.Microsecond, calls
}

// BenchmarkGate compares an accepted like with a bare SADD, which it must include. Both are in pipelines, so that the
// server is the bottleneck, not the network. "server-us" is the time according to Redis.
func BenchmarkGate(b *testing.B) {
	const pipeline = 100
	server := privateRedis(b)
	r, plain := openRedis(b, server.URL())
	openShard(b, r, 1, 1)
	openNew(b, r, post(1))
	like(b, r, post(1), 1<<40) // loads the script
	keys, hash := gateKeys(r.keys(post(1))), r.script["like"].Hash()
	event := `{"type":"post.liked","id":1,"user_id":1234567,"at":1700000000000}`

	var perCall, perServer float64 // of SADD, in ns
	measure := func(b *testing.B, command string, send func(p redis.Pipeliner, user int)) (call, server float64) {
		before, calls := serverTime(b, plain, command)
		user := 0
		for b.Loop() {
			_, err := plain.Pipelined(b.Context(), func(p redis.Pipeliner) error {
				for range pipeline {
					user++
					send(p, user)
				}
				return nil
			})
			require.NoError(b, err)
		}
		after, n := serverTime(b, plain, command)
		call = float64(b.Elapsed()) / float64(user)
		server = float64(after-before) / float64(n-calls)
		b.ReportMetric(0, "ns/op") // an op is a whole pipeline, so its time is not reported
		b.ReportMetric(call/1e3, "us/call")
		b.ReportMetric(server/1e3, "server-us/call")
		return call, server
	}
	b.Run("SADD", func(b *testing.B) {
		require.NoError(b, plain.Del(b.Context(), "plain").Err())
		perCall, perServer = measure(
			b,
			"sadd",
			func(p redis.Pipeliner, user int) { p.SAdd(b.Context(), "plain", user) },
		)
	})
	b.Run("like", func(b *testing.B) {
		require.NoError(b, plain.Del(b.Context(), keys[2]).Err())
		require.NoError(b, plain.HSet(b.Context(), keys[1], "count", 0).Err())
		call, server := measure(b, "evalsha", func(p redis.Pipeliner, user int) {
			p.EvalSha(b.Context(), hash, keys, 1, user, event, 1<<40, 1000, never)
		})
		if perCall > 0 {
			b.ReportMetric(call/perCall, "times-SADD")
			b.ReportMetric(server/perServer, "times-server-SADD")
		}
	})
	b.Run("repeat", func(b *testing.B) {
		like(b, r, post(1), 1)
		call, _ := measure(b, "evalsha", func(p redis.Pipeliner, _ int) {
			p.EvalSha(b.Context(), hash, keys, 1, 1, event, 1<<40, 1000, never)
		})
		if perCall > 0 {
			b.ReportMetric(call/perCall, "times-SADD")
		}
	})
}

// BenchmarkConnect compares a connection with the fence and one without.
func BenchmarkConnect(b *testing.B) {
	server := privateRedis(b)
	r, _ := openRedis(b, server.URL())
	var plain time.Duration
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
			require.NoError(b, client.Ping(b.Context()).Err())
			require.NoError(b, client.Close())
		}
		plain = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("fenced", func(b *testing.B) {
		for b.Loop() {
			client, err := connect(server.URL(), connection{1, ioTimeout, r.fence})
			require.NoError(b, err)
			require.NoError(b, client.Ping(b.Context()).Err())
			require.NoError(b, client.Close())
		}
		fence := b.Elapsed()/time.Duration(b.N) - plain
		b.ReportMetric(float64(fence.Microseconds()), "us/fence")
	})
}
