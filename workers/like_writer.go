package workers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/sethvargo/go-retry"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// LikeWriter reads runs of events from Kafka and applies them to MySQL. A batch has runs of all partitions that the
// process owns, and is one transaction: see likes.Store.ApplyLikes. LikeWriter marks offsets after the commit. If it
// reads a batch twice, the transaction drops the second by its positions.
type LikeWriter struct {
	store   *likes.Store
	kafka   Kafka
	metrics *Metrics
	now     func() time.Time
	limit   time.Duration // for one attempt at writing a batch
}

// NewLikeWriter returns a LikeWriter. Run starts it.
func NewLikeWriter(store *db.DB, kafka Kafka, m *Metrics) *LikeWriter {
	return &LikeWriter{store: likes.New(store), kafka: kafka, metrics: m, now: store.Now, limit: batchLimit}
}

const (
	batchDelay    = 20 * time.Millisecond  // after its first record, when a batch of few events is written
	batchFew      = 16                     // a batch with this many events waits longer
	batchPatience = 200 * time.Millisecond // after it has as many, when it is written
	batchEvents   = 5000                   // events after which it is written, if no other records wait
	batchMost     = 20_000                 // events after which it is written if they do, and the most that are written
	batchLimit    = 30 * time.Second       // for one attempt at writing a batch; half of a longer one is tried next
	refuseEvery   = time.Minute            // between two reports of a record that the writer does not pass
	queued        = 8                      // records that wait for the previous batch; one may have 5 MB when decoded
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
	group, err := sarama.NewConsumerGroup(w.kafka.Brokers, w.kafka.group(w.store.Restored()), w.kafka.groupConfig())
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
	records chan decoded
	stopped chan struct{}
}

// Setup starts writing.
func (b *batcher) Setup(session sarama.ConsumerGroupSession) error {
	b.records, b.stopped = make(chan decoded, queued), make(chan struct{})
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

// decoded is a record with its runs.
type decoded struct {
	record *sarama.ConsumerMessage
	runs   []models.LikeRecord
	events int  // of all runs, and at least one for each
	opens  bool // a shard is closed until the record is applied
}

// ConsumeClaim decodes the records of one partition, while the batch before is being written, and passes them to write.
func (b *batcher) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			if err := b.writer.kafka.checkRecord(record, b.writer.store.Site()); err != nil {
				b.refuse(session.Context(), record, err)
				return nil
			}
			item := decoded{record: record, runs: decode(record, b.writer.store.Shards())}
			for _, run := range item.runs {
				item.events += max(1, len(run.Events))
				item.opens = item.opens || len(run.Events) > 0 && run.Events[0].Type == models.ShardOpened
			}
			select {
			case b.records <- item:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// refuse stops at a record of another installation until the session ends. The offset stays before it, so nothing is
// lost: an operator has to give each site a topic of its own.
func (b *batcher) refuse(ctx context.Context, record *sarama.ConsumerMessage, err error) {
	w := b.writer
	for {
		w.metrics.writerErrors.Inc()
		w.store.Logger().ErrorContext(ctx, "like writer stops at a record of another installation",
			"partition", record.Partition, "offset", record.Offset, "error", err)
		noteFailure(ctx, w.store.DB, []int{int(record.Partition)}, models.StageWriter, err)
		if !pause(ctx, refuseEvery) {
			return
		}
	}
}

// write gathers batches and writes them until the session ends.
func (b *batcher) write(session sarama.ConsumerGroupSession) {
	ctx := session.Context()
	for {
		runs, last := b.gather(ctx)
		if ctx.Err() != nil {
			return
		}
		for _, batch := range cut(runs, batchMost) {
			if !b.writer.apply(ctx, batch) {
				return
			}
		}
		for _, record := range last {
			session.MarkMessage(record, "")
		}
	}
}

// cut splits runs into consecutive parts of at most this many events. A run with more of them is a part of its own.
func cut(runs []models.LikeRecord, limit int) [][]models.LikeRecord {
	var parts [][]models.LikeRecord
	begin, events := 0, 0
	for i, run := range runs {
		n := max(1, len(run.Events))
		if i > begin && events+n > limit {
			parts, begin, events = append(parts, runs[begin:i]), i, 0
		}
		events += n
	}
	if begin < len(runs) {
		parts = append(parts, runs[begin:])
	}
	return parts
}

// gather returns the runs of the next batch, and the last record of each of its partitions. It waits for the first
// record, and for batchDelay for others. If those are many, it waits for batchPatience: a transaction changes each
// target once, so likes that are written together cost less. A large batch takes what waits already: the more there is
// to catch up with, the less each like costs. Likes of a shard that is being opened are refused meanwhile, so its first
// run waits for batchDelay at most. If ctx ends, gather returns nothing.
func (b *batcher) gather(ctx context.Context) (runs []models.LikeRecord, last map[int32]*sarama.ConsumerMessage) {
	last = map[int32]*sarama.ConsumerMessage{}
	events, opens := 0, false
	var delay <-chan time.Time
	for events < batchMost {
		var item decoded
		if events >= batchEvents {
			select {
			case item = <-b.records:
			default:
				return runs, last
			}
		} else {
			select {
			case item = <-b.records:
			case <-delay:
				return runs, last
			case <-ctx.Done():
				return nil, nil
			}
		}
		if events == 0 {
			delay = time.After(batchDelay)
		}
		before := events
		runs, events = append(runs, item.runs...), events+item.events
		if item.opens && !opens {
			opens, delay = true, time.After(batchDelay)
		}
		if !opens && before < batchFew && events >= batchFew {
			delay = time.After(batchPatience)
		}
		last[item.record.Partition] = item.record
	}
	return runs, last
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
	for i, item := range envelope.Runs {
		runs[i] = base
		runs[i].Pos, runs[i].Payload = item.Pos, []byte(item.Run)
		if runs[i].Events, err = item.Run.Events(base.Shard, shards); err != nil {
			runs[i].Problem = err.Error()
		}
	}
	return runs
}

// apply writes runs, and retries until it succeeds. If ctx ends first, it reports false. The end of ctx does not
// cancel a transaction, because a cancelled query continues in the server and holds its locks. Only w.limit does.
func (w *LikeWriter) apply(ctx context.Context, runs []models.LikeRecord) bool {
	if len(runs) == 0 {
		return true
	}
	attempt := 0
	err := retry.Do(ctx, backOff(retryFirst, retryMost), func(ctx context.Context) error {
		attempt++
		err := w.try(ctx, runs)
		if err == nil || db.IsBadData(err) {
			return err
		}
		w.metrics.writerErrors.Inc()
		w.store.Logger().WarnContext(ctx, "batch is tried again",
			"runs", len(runs), "attempt", attempt, "error", err)
		if attempt%10 == 1 {
			noteFailure(ctx, w.store.DB, shardsOf(runs), models.StageWriter, err)
		}
		if errors.Is(err, errTooLong) && divisible(runs) {
			return err
		}
		return retry.RetryableError(err)
	})
	switch {
	case db.IsBadData(err):
		return w.isolate(ctx, runs, err)
	case errors.Is(err, errTooLong) && ctx.Err() == nil:
		first, second := halve(runs)
		return w.apply(ctx, first) && w.apply(ctx, second)
	}
	return err == nil
}

// errTooLong means that a batch failed after a third of the limit or later. Half of it may take less. The driver breaks
// the connection after its readTimeout, which is shorter than the limit, so that such an attempt is not at its limit.
var errTooLong = errors.New("the batch takes too long")

// try writes runs once, within the limit of a batch.
func (w *LikeWriter) try(ctx context.Context, runs []models.LikeRecord) error {
	began := w.now()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.limit)
	defer cancel()
	done, err := w.store.ApplyLikes(limited, runs)
	if err != nil && !db.IsBadData(err) && w.now().Sub(began) > w.limit/3 {
		return errors.Join(errTooLong, err)
	}
	if err != nil {
		return err
	}
	w.metrics.observeBatch(runs, done, began, w.now())
	if done.Strangers > 0 {
		w.store.Logger().WarnContext(ctx, "likes and claims of users that do not exist are dropped",
			"events", done.Strangers, "shards", shardsOf(runs))
	}
	if done.Gaps > 0 {
		w.store.Logger().ErrorContext(ctx, "events are missing from the log: the shard will be reconciled with Redis",
			"gaps", done.Gaps)
	}
	return nil
}

func shardsOf(runs []models.LikeRecord) []int {
	var shards []int
	for _, run := range runs {
		shards = append(shards, run.Shard)
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

// divisible reports whether runs have more than one event together.
func divisible(runs []models.LikeRecord) bool { return len(runs) > 1 || len(runs[0].Events) > 1 }

// halve splits runs in two, in their order. The parts of a single run do not move the watermark. After them comes the
// run without events, which does. A writer that is late may apply a part once more, after a later one. So the parts
// have only the events that decide the outcome: see models.LastEvents.
func halve(runs []models.LikeRecord) (first, second []models.LikeRecord) {
	if half := len(runs) / 2; half > 0 {
		return runs[:half], runs[half:]
	}
	run := runs[0]
	run.Events = models.LastEvents(run.Events)
	half := len(run.Events) / 2
	one, other, end := run, run, run
	one.Events, one.Part = run.Events[:half], true
	other.Events, other.Part = run.Events[half:], true
	first, second = []models.LikeRecord{one}, []models.LikeRecord{other}
	if !run.Part {
		end.Events = nil
		second = append(second, end)
	}
	return first, second
}

// isolate halves runs that MySQL refuses, in order, until the bad event is alone. That event becomes a dead letter.
func (w *LikeWriter) isolate(ctx context.Context, runs []models.LikeRecord, cause error) bool {
	if divisible(runs) {
		first, second := halve(runs)
		return w.apply(ctx, first) && w.apply(ctx, second)
	}
	run := runs[0]
	switch {
	case run.Problem == "":
		run.Problem = cause.Error()
		if len(run.Events) > 0 {
			run.Payload = []byte(models.NewRun(run.Events...))
		}
	case !bytes.HasPrefix(run.Payload, []byte(digested)):
		// MySQL refuses the dead letter, too. The other runs must not wait for it. Kafka still has the record.
		w.store.Logger().ErrorContext(ctx, "a dead letter is stored without its payload",
			"shard", run.Shard, "position", run.Pos.String(), "offset", run.Offset, "error", cause)
		run.Problem = fmt.Sprintf("the payload could not be stored (%v): %s", cause, run.Problem)
		run.Payload = fmt.Appendf(nil, "%s%x", digested, sha256.Sum256(run.Payload))
	default:
		// The record of the event must not be lost, too, so the writer waits for an operator.
		cause = errors.Join(errors.New("a dead letter cannot be stored"), cause)
		w.store.Logger().ErrorContext(ctx, "like writer is stuck",
			"shard", run.Shard, "position", run.Pos.String(), "error", cause)
		return pause(ctx, 5*time.Second) && w.apply(ctx, runs)
	}
	return w.apply(ctx, []models.LikeRecord{run})
}

// digested precedes the digest that takes the place of a payload. So letters with different payloads stay different.
const digested = "sha256 "
