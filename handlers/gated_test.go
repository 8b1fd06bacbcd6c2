package handlers_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/models/db"
	"likewise/workers"
)

// gated stores likes and claims behind the Redis gate, with a relay and a writer that carry them to MySQL.
func gated(t *testing.T, store, behind *db.DB) parts {
	t.Helper()
	r, _, settle := pipeline(t, behind)
	store.UseLikeClock(r.Clock)
	likes := counters.NewLikes(r, store, counters.LikesOptions{})
	claims := counters.NewClaims(r, store, counters.ClaimsOptions{})
	metrics := workers.NewMetrics()
	return parts{
		likes: likes, gate: likes, claims: claims, ids: counters.NewIDs(r, store), edition: counters.NewEdition(r),
		desk: workers.NewDesk(store, r, likes), releaser: workers.NewReleaser(store, r, claims, metrics),
		peers:  counters.NewPeers(r, slog.New(slog.DiscardHandler)),
		settle: settle,
	}
}

// pipeline is gated, with the parts behind the gate.
func pipeline(t *testing.T, store *db.DB) (r *counters.Redis, likes *counters.Likes, settle func()) {
	t.Helper()
	return pipelineOn(t, store, redisURL(t))
}

// pipelineOn is pipeline on the Redis at url.
func pipelineOn(t *testing.T, store *db.DB,
	url string) (r *counters.Redis, likes *counters.Likes, settle func()) {
	t.Helper()
	r, err := counters.Open(url, store.Shards())
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	brokers, topic := testkit.Topic(t)
	kafka := workers.Kafka{Brokers: brokers, Topic: topic}
	metrics := workers.NewMetrics()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { workers.NewRelay(r, store, kafka, metrics).Run(ctx) })
	running.Go(func() { workers.NewLikeWriter(store, kafka, metrics).Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		infos, err := r.ShardInfos(context.Background())
		if err != nil {
			return false, err.Error()
		}
		for _, info := range infos {
			if !info.Open {
				return false, fmt.Sprintf("shard %d is closed", info.Shard)
			}
		}
		return true, ""
	})
	store.UseLikeClock(r.Clock)
	return r, counters.NewLikes(r, store, counters.LikesOptions{}), func() {
		t.Helper()
		flushing, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, workers.Flush(flushing, r, store))
	}
}
