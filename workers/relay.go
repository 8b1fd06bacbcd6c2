package workers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/sethvargo/go-retry"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Relay moves events from the outboxes in Redis to Kafka, and opens shards that are closed.
//
// For each shard it reads the head of the outbox, sends it as one record, and removes it from the outbox when Kafka has
// acknowledged it. The first like after a pause is sent at once. While others follow, a record is sent at each multiple
// of relayTick, because a record costs Redis, the broker and the writer more than a like.
//
// A relay stores no position. After a failure or an unknown outcome it reads and sends the head again, and the like
// writer drops the events that it has applied. Records hold consecutive events, and Kafka writes a record completely or
// not at all. So resent records cannot leave a gap, even if a relay without the lock sends them.
//
// Before it sends a batch, a relay compares it with MySQL and with what it has trimmed itself. A Redis whose positions
// have gone back would otherwise accept events that the like writer drops: see wentBack.
type Relay struct {
	redis    *counters.Redis
	store    *likes.Store
	kafka    Kafka
	metrics  *Metrics
	now      func() time.Time
	trimmed  []models.Position // by shard: the last position that this relay removed from the outbox in its epoch
	unusable atomic.Pointer[topicProblem]
	openings
}

// NewRelay returns a relay. Run starts it.
func NewRelay(r *counters.Redis, store *db.DB, kafka Kafka, m *Metrics) *Relay {
	relay := &Relay{redis: r, store: likes.New(store), kafka: kafka, metrics: m, now: store.Now,
		trimmed: make([]models.Position, store.Shards())}
	for shard := range store.Shards() {
		relay.noteOpening(shard)
	}
	return relay
}

const (
	relayLock     = 5 * time.Second        // after a relay is killed, its shards wait this long for another
	relayPatience = 10 * time.Second       // for a lock that another relay holds
	relayContend  = 500 * time.Millisecond // after a lock was lost or released, before the next attempt at it
	relayFirst    = 100 * time.Millisecond // first back-off after a failure
	relayMost     = 2 * time.Second        // longest back-off after consecutive failures
	relayBatch    = 1000                   // most runs in a record
	relayBytes    = 500_000                // after which a record is sent, of at most 1 MB, which is Kafka's default
	relayTick     = 100 * time.Millisecond // between two records of an open shard, unless more waits than fits
	relayWait     = 500 * time.Millisecond // for a run, between two checks of the shard
	openingWait   = 20 * time.Millisecond  // the same while the shard is being opened
	openingLimit  = 30 * time.Second       // after which the first event of an epoch counts as lost
	relayWatch    = 30 * time.Second       // between two looks at the configuration of the topic
	relayRemember = 2 * time.Second        // between two looks at the watermark while runs come
	relayIdle     = 30 * time.Second       // the same while none comes
)

// Run relays until ctx ends. It contends for the locks of all shards with the relays of other processes.
func (r *Relay) Run(ctx context.Context) {
	producer, err := retry.DoValue(ctx, backOff(retryFirst, retryMost), r.connect)
	if err != nil {
		return // ctx ended
	}
	var shards sync.WaitGroup
	shards.Go(func() { r.watchTopic(ctx) })
	for shard := range r.store.Shards() {
		shards.Go(func() { r.serve(ctx, producer, shard) })
	}
	shards.Wait()
	if err := producer.Close(); err != nil {
		r.store.Logger().WarnContext(ctx, "kafka producer not closed", "error", err)
	}
}

// connect creates the topic if it is missing, and returns a producer. All its errors are retried.
func (r *Relay) connect(ctx context.Context) (sarama.SyncProducer, error) {
	err := r.kafka.Check(ctx, r.store.DB)
	if err == nil {
		var producer sarama.SyncProducer
		if producer, err = sarama.NewSyncProducer(r.kafka.Brokers, r.kafka.config()); err == nil {
			return producer, nil
		}
	}
	r.store.Logger().WarnContext(ctx, "relay waits for kafka", "error", err)
	return nil, retry.RetryableError(err)
}

// watchTopic looks every relayWatch whether the topic has been told to lose records. While it is, events stay in the
// outboxes.
func (r *Relay) watchTopic(ctx context.Context) {
	for pause(ctx, relayWatch) {
		err := r.kafka.EnsureTopic(r.store.Shards())
		if err != nil && !Misconfigured(err) {
			continue // the brokers do not answer, and sending fails, too
		}
		if err != nil {
			r.store.Logger().ErrorContext(ctx, "the topic cannot be used: likes stay in redis", "error", err)
		}
		r.unusable.Store(&topicProblem{err})
	}
}

// topicProblem is why the topic cannot be used; its err is nil if it can.
type topicProblem struct{ err error }

// topicError returns why the topic cannot be used, as watchTopic found.
func (r *Relay) topicError() error {
	if p := r.unusable.Load(); p != nil {
		return p.err
	}
	return nil
}

// serve contends for a shard's lock and relays while it is held.
func (r *Relay) serve(ctx context.Context, producer sarama.SyncProducer, shard int) {
	token := lockToken()
	for ctx.Err() == nil {
		failures := 0 // consecutive; a lock that another relay holds resets the number
		_ = retry.Do(ctx, backOff(relayFirst, relayMost), func(ctx context.Context) error {
			outbox, err := r.redis.AwaitOutbox(ctx, shard, token, relayLock, relayPatience)
			if err == nil {
				err = r.hold(ctx, producer, shard, outbox)
			}
			r.endOpening(ctx, shard, false)
			if err == nil || ctx.Err() != nil || errors.Is(err, counters.ErrLockLost) {
				return err
			}
			failures++
			r.metrics.relayErrors.Inc()
			if failures%10 == 1 { // the first of several, and then about one in twenty seconds
				level := slog.LevelWarn
				if errors.Is(err, errSetBack) || errors.Is(err, counters.ErrForeign) || Misconfigured(err) {
					level = slog.LevelError // until an operator acts
				}
				r.store.Logger().Log(ctx, level, "relay starts over", "shard", shard, "error", err)
				noteFailure(ctx, r.store.DB, []int{shard}, models.StageRelay, err)
			}
			if errors.Is(err, sarama.ErrUnknownTopicOrPartition) { // the topic was deleted
				created := r.kafka.EnsureTopic(r.store.Shards())
				r.store.Logger().WarnContext(ctx, "topic is created again", "topic", r.kafka.Topic, "error", created)
			}
			return retry.RetryableError(err)
		})
		pause(ctx, relayContend)
	}
}

// process returns the name of this process, for operators. Relay locks and recorded failures have it.
func process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + ":" + strconv.Itoa(os.Getpid())
}

// lockToken returns a new token of a lock, which names this process.
func lockToken() string { return process() + "/" + rand.Text() }

const noteLimit = time.Second // for recording a failure

// noteFailure records a failure in MySQL, for Desk. If that fails, too, noteFailure only logs it.
func noteFailure(ctx context.Context, store *db.DB, shards []int, stage models.Stage, failure error) {
	ctx, cancel := context.WithTimeout(ctx, noteLimit)
	defer cancel()
	if err := likes.New(store).NoteFailure(ctx, shards, stage, process(), failure); err != nil {
		store.Logger().DebugContext(ctx, "failure not recorded", "stage", string(stage), "error", err)
	}
}

// hold relays until the lock is lost, something fails or ctx ends, and releases the lock.
func (r *Relay) hold(ctx context.Context, producer sarama.SyncProducer, shard int, outbox *counters.Outbox) error {
	r.metrics.relayShards.Inc()
	defer r.metrics.relayShards.Dec()
	return outbox.While(ctx, func(held context.Context) error { return r.relay(held, producer, shard, outbox) })
}

func (r *Relay) relay(ctx context.Context, producer sarama.SyncProducer, shard int, outbox *counters.Outbox) error {
	if err := outbox.Own(ctx); err != nil {
		return err
	}
	if err := r.remember(ctx, shard, outbox); err != nil {
		return err
	}
	remembered := r.now()
	var opening *opening
	compared := false // with MySQL: when the lock is taken, and then with runs, so that an idle shard costs nothing
	for ctx.Err() == nil {
		info, err := outbox.Info(ctx)
		if err != nil {
			return err
		}
		if info.Open && !compared {
			if overtaken, err := r.overtaken(ctx, shard, info.Last); err != nil {
				return err
			} else if overtaken {
				continue
			}
			compared = true
			r.endOpening(ctx, shard, false)
		}
		patience := relayWait
		switch {
		case info.Open:
			opening = nil
		case opening == nil || r.now().Sub(opening.since) > openingLimit:
			if opening, err = r.beginOpening(ctx, shard, outbox); err != nil {
				return err
			}
			patience = openingWait
		default:
			done, err := r.finishOpening(ctx, shard, outbox, opening)
			if err != nil {
				return err
			}
			if !done {
				patience = openingWait
			}
		}
		runs, err := outbox.Read(ctx, models.Position{}, relayBatch, patience)
		if err != nil {
			return err
		}
		if due := r.now().Sub(remembered); due > relayIdle || due > relayRemember && len(runs) > 0 {
			if err := r.remember(ctx, shard, outbox); err != nil {
				return err
			}
			remembered = r.now()
		}
		if len(runs) == 0 {
			continue
		}
		if info.Open {
			if back, err := r.wentBack(ctx, shard, runs); err != nil {
				return err
			} else if back {
				continue
			}
		}
		if err := r.topicError(); err != nil {
			return err
		}
		read := len(runs)
		runs = upToBytes(runs, relayBytes)
		if err := r.send(producer, shard, runs); err != nil {
			return err
		}
		last := runs[len(runs)-1].Pos
		if err := outbox.Trim(ctx, last); err != nil {
			return err
		}
		r.trimmed[shard] = models.Position{} // while a shard is opened, a replica may have runs that were trimmed
		if info.Open {
			r.trimmed[shard] = last
		}
		r.metrics.relayed.Add(float64(len(runs)))
		if info.Open && read < relayBatch && len(runs) == read {
			// The shards wait for the same moments, so that their records share requests to the broker and the writer.
			now := r.now()
			wait(ctx, now.Truncate(relayTick).Add(relayTick).Sub(now))
		}
	}
	return nil
}

// upToBytes returns the first runs, at least one, that have no more than this many bytes together.
func upToBytes(runs []models.Enveloped, limit int) []models.Enveloped {
	size := 0
	for i, item := range runs {
		if size += len(item.Run) + 32; size > limit && i > 0 { // 32 for the position, and JSON
			return runs[:i]
		}
	}
	return runs
}

// send sends runs to Kafka as one record, and returns when every in-sync replica has it. If the record is too large for
// the broker, send halves it.
func (r *Relay) send(producer sarama.SyncProducer, shard int, runs []models.Enveloped) error {
	value, err := json.Marshal(
		models.Envelope{V: models.EnvelopeVersion, Site: r.store.Site(), Shard: shard, Runs: runs},
	)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{
		Topic:     r.kafka.Topic,
		Partition: int32(shard),
		Key:       sarama.StringEncoder(strconv.Itoa(shard)),
		Value:     sarama.ByteEncoder(value),
	})
	if errors.Is(err, sarama.ErrMessageSizeTooLarge) && len(runs) > 1 {
		half := len(runs) / 2
		if err := r.send(producer, shard, runs[:half]); err != nil {
			return err
		}
		return r.send(producer, shard, runs[half:])
	}
	if err != nil {
		return fmt.Errorf("send to kafka: %w", err)
	}
	return nil
}

// opening is the state of a shard that is being opened.
type opening struct {
	epoch    int64
	restored models.Position // the last position in this Redis when the shard was closed
	since    time.Time
}

// overtaken reports whether MySQL has applied a position after the last one of an open shard, which it closes then. The
// site has had another Redis meanwhile, as after a network partition or a wrong setting, or this one was set back. The
// like writer drops what such a Redis accepts, so the shard must be opened again.
func (r *Relay) overtaken(ctx context.Context, shard int, last models.Position) (bool, error) {
	applied, err := r.store.Applied(ctx, shard)
	if err != nil || !applied.After(last) {
		return false, err
	}
	closed, err := r.redis.CloseOvertaken(ctx, shard, applied)
	if closed {
		logOvertaken(ctx, r.store.DB, shard, applied)
	}
	return closed, err
}

// errSetBack means that MySQL lacks events that it had applied before: it was restored from a backup, or lost commits.
var errSetBack = errors.New("mysql has gone back")

// remember notes the watermark of the shard in Redis. If a relay has seen a later one, remember closes the
// shard and returns errSetBack: MySQL would issue ids again whose likes Redis has.
func (r *Relay) remember(ctx context.Context, shard int, outbox *counters.Outbox) error {
	for _, refuse := range []bool{false, true} { // the second time with what MySQL has after Redis was asked
		applied, err := r.store.Applied(ctx, shard)
		if err != nil {
			return err
		}
		seen, err := outbox.Remember(ctx, applied, refuse)
		if err != nil {
			return err
		}
		if !seen.After(applied) {
			return nil
		}
		if refuse {
			return fmt.Errorf("%w: it has applied events of shard %d up to %s, and had up to %s; if it was restored, "+
				"stop all processes, run `likewise migrate restored`, and empty Redis",
				errSetBack, shard, applied, seen)
		}
	}
	return nil
}

func logOvertaken(ctx context.Context, store *db.DB, shard int, applied models.Position) {
	store.Logger().
		ErrorContext(ctx, "mysql has applied events that this redis does not know; the shard is opened again",
			"shard", shard, "applied", applied.String())
}

// wentBack reports whether the positions of an open shard have gone back, and closes the shard then. Runs are the head
// of its outbox. MySQL alone does not show it once the shard is past the watermark again, but this relay remembers what
// it has trimmed.
func (r *Relay) wentBack(ctx context.Context, shard int, runs []models.Enveloped) (bool, error) {
	first, last := runs[0].Pos, runs[len(runs)-1].Pos
	trimmed := r.trimmed[shard]
	if trimmed.IsZero() || first.After(trimmed) {
		return r.overtaken(ctx, shard, last)
	}
	closed, err := r.redis.CloseRewound(ctx, shard, last.Epoch)
	if closed {
		r.store.Logger().ErrorContext(ctx, "redis was set back to earlier positions; the shard is opened again",
			"shard", shard, "relayed", trimmed.String(), "read", first.String())
	}
	return closed, err
}

// beginOpening adds the first event of a new epoch to the end of the outbox.
func (r *Relay) beginOpening(ctx context.Context, shard int, outbox *counters.Outbox) (*opening, error) {
	info, err := outbox.Info(ctx)
	if err != nil {
		return nil, err
	}
	epoch, err := r.store.NextEpoch(ctx, shard, info.Last.Epoch)
	if err != nil {
		return nil, err
	}
	restored, err := outbox.Seal(ctx, epoch)
	if err != nil {
		return nil, err
	}
	r.store.Logger().DebugContext(ctx, "shard is being opened",
		"shard", shard, "epoch", epoch, "restored", restored.String())
	r.noteOpening(shard)
	return &opening{epoch: epoch, restored: restored, since: r.now()}, nil
}

// finishOpening opens the shard once MySQL has every event before the first of the epoch. If MySQL then has events that
// Redis lacks, Redis has lost its last acknowledged writes. In that case finishOpening evicts the shard's targets
// first, and they are warmed from MySQL again.
func (r *Relay) finishOpening(ctx context.Context, shard int, outbox *counters.Outbox, o *opening) (bool, error) {
	state, err := r.store.ShardState(ctx, shard)
	if err != nil {
		return false, err
	}
	switch {
	case state.Epoch > o.epoch || state.Applied.Epoch > o.epoch:
		// Another relay has begun to open the shard under a higher epoch. The like writer would drop likes of this one.
		return false, counters.ErrLockLost
	case state.Applied.Epoch < o.epoch:
		return false, nil
	}
	forgotten := state.Sealed.After(o.restored)
	if forgotten {
		if !state.Whole() { // two faults at once
			r.store.Logger().ErrorContext(ctx, "likes are lost: mysql lacks them, and redis has lost its last writes",
				"shard", shard, "gaps", state.OpenGaps, "dead_letters", state.Letters)
		}
		if err := outbox.ForgetTargets(ctx, o.epoch); err != nil {
			return false, err
		}
		r.store.Logger().InfoContext(ctx, "targets of a shard are loaded again, because redis has lost its last writes",
			"shard", shard, "epoch", o.epoch)
	}
	if err := outbox.Opened(ctx, o.epoch); err != nil {
		return false, err
	}
	r.metrics.opened.Inc()
	r.store.Logger().DebugContext(ctx, "shard is open", "shard", shard, "epoch", o.epoch, "forgotten", forgotten,
		"took", r.now().Sub(o.since))
	r.endOpening(ctx, shard, true)
	return true, nil
}

// openings are the shards that a relay is opening, or may have to. It logs those that it opened in one line, when none
// is left.
type openings struct {
	mu      sync.Mutex
	pending map[int]bool
	opened  int
	began   time.Time // when the first of them was noted
}

// Opening returns the number of shards that the relay is opening, or may have to.
func (r *Relay) Opening() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

func (r *Relay) noteOpening(shard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		r.pending, r.began = map[int]bool{}, r.now()
	}
	r.pending[shard] = true
}

// endOpening notes that a shard was opened, or that this relay does not open it any longer.
func (r *Relay) endOpening(ctx context.Context, shard int, opened bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.pending[shard] {
		return
	}
	delete(r.pending, shard)
	if opened {
		r.opened++
	}
	if len(r.pending) == 0 && r.opened > 0 {
		took := r.now().Sub(r.began).Round(time.Millisecond)
		r.store.Logger().InfoContext(ctx, "shards are open", "opened", r.opened, "took", took)
		r.opened = 0
	}
}
