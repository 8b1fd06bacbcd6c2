package workers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// BenchmarkRelay measures how fast the relay of one shard empties an outbox of 100,000 runs, of 1 and of 64 likes each.
// "kafka-share" is the part of the time in which it waits for Kafka, which is all that reading ahead could save. One
// run is enough: -benchtime 1x.
func BenchmarkRelay(b *testing.B) {
	all := testkit.Servers(b)
	dsn, err := all.MySQL.Migrate(b.Context(), "likewise")
	require.NoError(b, err)
	store, err := db.Open(b.Context(), dsn, db.Options{})
	require.NoError(b, err)
	defer store.Close()
	gate, err := counters.Open(all.Redis.URL(), store.Shards())
	require.NoError(b, err)
	defer gate.Close()
	options, err := redis.ParseURL(all.Redis.URL())
	require.NoError(b, err)
	plain := redis.NewClient(options)
	defer plain.Close()
	kafka := Kafka{Brokers: all.Kafka.Brokers(), Topic: "likes"}
	require.NoError(b, kafka.EnsureTopic(store.Shards()))
	producer, err := sarama.NewSyncProducer(kafka.Brokers, kafka.config())
	require.NoError(b, err)
	defer producer.Close()

	const runs = 100_000
	for shard, size := range []int{1, 64} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			epoch, err := likes.New(store).NextEpoch(b.Context(), shard, 0)
			require.NoError(b, err)
			outbox, err := gate.HoldOutbox(b.Context(), shard, "bench", time.Minute)
			require.NoError(b, err)
			_, err = outbox.Seal(b.Context(), epoch)
			require.NoError(b, err)
			require.NoError(b, outbox.Opened(b.Context(), epoch))
			require.NoError(b, outbox.Release(b.Context()))
			events := make([]models.Event, size)
			user := int64(0)
			for range b.N {
				for range runs / 1000 {
					_, err := plain.Pipelined(b.Context(), func(p redis.Pipeliner) error {
						for range 1000 {
							for i := range events {
								user++
								target := models.Target{Kind: models.KindPost, ID: int64(16 + shard)}
								events[i] = models.LikeEvent(target, user, true, time.Now())
							}
							p.XAdd(b.Context(), &redis.XAddArgs{
								Stream: fmt.Sprintf("{s%02d}:outbox", shard),
								ID:     fmt.Sprint(epoch, "-", user/int64(size)),
								Values: []any{"run", string(models.NewRun(events...)), "before", 0},
							})
						}
						return nil
					})
					require.NoError(b, err)
				}
			}
			waiting := &timedProducer{SyncProducer: producer}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var running sync.WaitGroup
			began := time.Now()
			relay := NewRelay(gate, store, kafka, NewMetrics())
			running.Go(func() { relay.serve(ctx, waiting, shard) })
			testkit.Eventually(b, 5*time.Minute, func() (bool, string) {
				n, err := plain.XLen(ctx, fmt.Sprintf("{s%02d}:outbox", shard)).Result()
				return err == nil && n == 0, fmt.Sprint(n, " runs are left, ", err)
			})
			took := time.Since(began)
			cancel()
			running.Wait()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.N*runs*size)/took.Seconds(), "likes/s")
			b.ReportMetric(waiting.spent.Seconds()/took.Seconds(), "kafka-share")
		})
	}
}

// timedProducer adds up the time of its sends.
type timedProducer struct {
	sarama.SyncProducer
	spent time.Duration
}

func (t *timedProducer) SendMessage(m *sarama.ProducerMessage) (partition int32, offset int64, err error) {
	began := time.Now()
	defer func() { t.spent += time.Since(began) }()
	return t.SyncProducer.SendMessage(m)
}
