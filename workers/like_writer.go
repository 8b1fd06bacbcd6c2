package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/sethvargo/go-retry"

	"likewise/models"
)

// LikeWriter reads events from Kafka and applies them to MySQL. A batch has events of all partitions that the process
// owns, and is one transaction: see models.Store.ApplyLikes. LikeWriter marks offsets after the commit. If it reads a
// batch twice, the transaction drops the second by its positions.
type LikeWriter struct {
	store   *models.Store
	kafka   Kafka
	metrics *Metrics
	now     func() time.Time
}

// NewLikeWriter returns a LikeWriter. Run starts it.
func NewLikeWriter(store *models.Store, kafka Kafka, m *Metrics) *LikeWriter {
	return &LikeWriter{store: store, kafka: kafka, metrics: m, now: store.Now}
}

const (
	batchEvents = 2000                  // events after which a batch is written
	batchDelay  = 20 * time.Millisecond // after its first record, when a smaller batch is written
	batchLimit  = 30 * time.Second      // for one attempt at writing a batch
	queued      = 64                    // records that wait for the previous batch; sarama blocks further ones
)

// Run writes until ctx ends.
func (w *LikeWriter) Run(ctx context.Context) {
	_ = retry.Do(ctx, backOff(retryFirst, retryMost), func(ctx context.Context) error {
		err := w.consume(ctx)
		if ctx.Err() == nil {
			w.store.Logger().WarnContext(ctx, "like writer joins again", "error", err)
		}
		return retry.RetryableError(err)
	})
}

// consume takes part in the consumer group until it fails or ctx ends.
func (w *LikeWriter) consume(ctx context.Context) error {
	if err := w.kafka.EnsureTopic(w.store.Shards()); err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup(w.kafka.Brokers, w.kafka.Group, w.kafka.groupConfig())
	if err != nil {
		return fmt.Errorf("join group: %w", err)
	}
	drained := make(chan struct{})
	go func() { // ends when the group is closed
		defer close(drained)
		var logged time.Time
		for err := range group.Errors() {
			w.metrics.writerErrors.Inc()
			if w.now().Sub(logged) > time.Second { // a missing broker causes one per partition, repeatedly
				logged = w.now()
				w.store.Logger().WarnContext(ctx, "consumer group reported an error", "error", err)
			}
		}
	}()
	defer func() {
		if err := group.Close(); err != nil {
			w.store.Logger().WarnContext(ctx, "consumer group not left", "error", err)
		}
		<-drained
	}()
	for ctx.Err() == nil {
		// Consume returns at every rebalance; the next call joins again.
		if err := group.Consume(ctx, []string{w.kafka.Topic}, &batcher{writer: w}); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
	}
	return nil
}

// batcher gathers the records of all partitions of one group session into batches. It owns the goroutine that writes.
type batcher struct {
	writer  *LikeWriter
	records chan *sarama.ConsumerMessage
	stopped chan struct{}
}

// Setup starts writing.
func (b *batcher) Setup(session sarama.ConsumerGroupSession) error {
	b.records, b.stopped = make(chan *sarama.ConsumerMessage, queued), make(chan struct{})
	owned := 0
	for _, partitions := range session.Claims() {
		owned += len(partitions)
	}
	b.writer.metrics.writerPartitions.Set(float64(owned))
	b.writer.store.Logger().InfoContext(session.Context(), "like writer owns partitions", "partitions", owned)
	go func() {
		defer close(b.stopped)
		b.write(session)
	}()
	return nil
}

// Cleanup waits until writing has stopped. The next owner reads unwritten records again.
func (b *batcher) Cleanup(sarama.ConsumerGroupSession) error {
	<-b.stopped
	b.writer.metrics.writerPartitions.Set(0)
	return nil
}

// ConsumeClaim passes the records of one partition to write.
func (b *batcher) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			select {
			case b.records <- record:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// write gathers batches and writes them until the session ends.
func (b *batcher) write(session sarama.ConsumerGroupSession) {
	ctx := session.Context()
	timer := time.NewTimer(batchDelay)
	timer.Stop()
	for {
		var events []models.LikeRecord
		last := map[int32]*sarama.ConsumerMessage{}
		add := func(record *sarama.ConsumerMessage) {
			events = append(events, decode(record, b.writer.store.Shards())...)
			last[record.Partition] = record
		}
		select {
		case record := <-b.records:
			add(record)
		case <-ctx.Done():
			return
		}
		timer.Reset(batchDelay)
		for full := false; !full && len(events) < batchEvents; {
			select {
			case record := <-b.records:
				add(record)
			case <-timer.C:
				full = true
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
		timer.Stop()
		if !b.writer.apply(ctx, events) {
			return
		}
		for _, record := range last {
			session.MarkMessage(record, "")
		}
	}
}

// decode returns the runs of a record. An unreadable record becomes one with a Problem and without a position.
func decode(record *sarama.ConsumerMessage, shards int) []models.LikeRecord {
	base := models.LikeRecord{
		Shard:     int(record.Partition),
		Topic:     record.Topic,
		Partition: record.Partition,
		Offset:    record.Offset,
	}
	envelope, err := models.DecodeEnvelope(record.Value, base.Shard)
	if err != nil {
		base.Payload, base.Problem = record.Value, err.Error()
		return []models.LikeRecord{base}
	}
	runs := make([]models.LikeRecord, len(envelope.Runs))
	for i, one := range envelope.Runs {
		runs[i] = base
		runs[i].Pos, runs[i].Payload = one.Pos, []byte(one.Run)
		if runs[i].Events, err = one.Run.Events(base.Shard, shards); err != nil {
			runs[i].Problem = err.Error()
		}
	}
	return runs
}

// apply writes events, and retries until it succeeds. If ctx ends first, it reports false. The end of ctx does not
// cancel a transaction, because a cancelled query continues in the server and holds its locks.
func (w *LikeWriter) apply(ctx context.Context, events []models.LikeRecord) bool {
	if len(events) == 0 {
		return true
	}
	attempt := 0
	err := retry.Do(ctx, backOff(retryFirst, retryMost), func(ctx context.Context) error {
		attempt++
		err := w.try(ctx, events)
		if err == nil || models.IsBadData(err) {
			return err
		}
		w.metrics.writerErrors.Inc()
		w.store.Logger().WarnContext(ctx, "batch is tried again",
			"events", len(events), "attempt", attempt, "error", err)
		if attempt%10 == 1 {
			noteFailure(ctx, w.store, shardsOf(events), models.StageWriter, err)
		}
		return retry.RetryableError(err)
	})
	if models.IsBadData(err) {
		return w.isolate(ctx, events, err)
	}
	return err == nil
}

// try writes events once, within batchLimit.
func (w *LikeWriter) try(ctx context.Context, events []models.LikeRecord) error {
	began := w.now()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchLimit)
	defer cancel()
	done, err := w.store.ApplyLikes(limited, events)
	if err != nil {
		return err
	}
	w.metrics.applied(events, done, began, w.now())
	if done.Gaps > 0 {
		w.store.Logger().ErrorContext(ctx, "events are missing from the log: the shard will be reconciled with Redis",
			"gaps", done.Gaps)
	}
	return nil
}

func shardsOf(events []models.LikeRecord) []int {
	var shards []int
	for _, e := range events {
		shards = append(shards, e.Shard)
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

// isolate halves a batch that MySQL refuses, in order, until the bad event is alone. That event becomes a dead letter.
func (w *LikeWriter) isolate(ctx context.Context, events []models.LikeRecord, cause error) bool {
	if len(events) > 1 {
		half := len(events) / 2
		return w.apply(ctx, events[:half]) && w.apply(ctx, events[half:])
	}
	if events[0].Problem != "" {
		// MySQL refuses the dead letter, too. The event must not be lost, so the writer waits for an operator.
		cause = errors.Join(errors.New("a dead letter cannot be stored"), cause)
		w.store.Logger().ErrorContext(ctx, "like writer is stuck",
			"shard", events[0].Shard, "position", events[0].Pos.String(), "error", cause)
		return pause(ctx, 5*time.Second) && w.apply(ctx, events)
	}
	events[0].Problem = cause.Error()
	return w.apply(ctx, events)
}
