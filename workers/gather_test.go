package workers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// A record costs more than a like, so likes that keep coming share one. The first does not wait for others.
func TestRelay_gathersLikesThatKeepComing(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.flush()
	before := p.records(target)
	began := time.Now()
	for user := int64(2); user <= 501; user++ {
		p.set(target, user, true)
	}
	ticks := int64(time.Since(began)/relayTick) + 1
	p.flush()
	assert.LessOrEqual(t, p.records(target)-before, ticks+2, "one at once, one at each tick, and one at the end")
	assert.Len(t, p.likers(target), 501)
}

// records returns the number of records that Kafka has of a target's shard.
func (p *pipeline) records(target models.Target) int64 {
	p.t.Helper()
	client, err := sarama.NewClient(p.kafka.Brokers, p.kafka.config())
	require.NoError(p.t, err)
	defer client.Close()
	n, err := client.GetOffset(p.kafka.Topic, int32(target.Shard(p.store.Shards())), sarama.OffsetNewest)
	require.NoError(p.t, err)
	return n
}

// A few events are written after batchDelay. Many wait for others, but not for ever, and not once there are enough.
func TestLikeWriter_gathersLongerIfThereIsMuch(t *testing.T) {
	t.Parallel()
	for _, item := range []struct {
		name    string
		records []int // events of each; 0 opens a shard
		every   time.Duration
		events  int // of the first batch
		after   time.Duration
	}{
		{"one", []int{1}, time.Millisecond, 1, batchDelay},
		{"few", []int{5, 5, 5}, time.Millisecond, 15, batchDelay},
		{"too late for the batch of a few", []int{5, 50}, 30 * time.Millisecond, 5, batchDelay},
		{"many", []int{10, 10, 10, 10}, 15 * time.Millisecond, 40, 15*time.Millisecond + batchPatience},
		{"many that keep coming", []int{99, 99, 99, 99, 99}, 60 * time.Millisecond, 4 * 99, batchPatience},
		{"many, and a shard that is being opened", []int{99, 99, 0, 99, 99}, 15 * time.Millisecond, 3*99 + 1,
			30*time.Millisecond + batchDelay},
		{"enough", []int{batchEvents - 1, 1, 1}, time.Millisecond, batchEvents, time.Millisecond},
	} {
		t.Run(item.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &batcher{records: make(chan decoded)}
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					for i, events := range item.records {
						if i > 0 && !wait(ctx, item.every) {
							return
						}
						select {
						case b.records <- decoded{
							record: &sarama.ConsumerMessage{}, events: max(1, events), opens: events == 0,
							runs: []models.LikeRecord{{Events: make([]models.Event, max(1, events))}},
						}:
						case <-ctx.Done():
							return
						}
					}
				}()
				began := time.Now()
				runs, _ := b.gather(ctx)
				cancel()
				events := 0
				for _, run := range runs {
					events += len(run.Events)
				}
				assert.Equal(t, item.events, events)
				assert.Equal(t, item.after, time.Since(began))
			})
		})
	}
}
