package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/likes"
)

// benchEvents is the number of likes that BenchmarkLikeWriter writes of each kind, in runs of benchRun.
const (
	benchEvents = 200_000
	benchRun    = 64
)

// BenchmarkLikeWriter measures how fast the like writer brings likes from Kafka to MySQL: all of one post, and each of
// another of 20,000 posts. Both are compared with LOAD DATA of the same rows, in the same order, into a table with the
// same indexes. One run is enough: -benchtime 1x.
func BenchmarkLikeWriter(b *testing.B) {
	all := testkit.Servers(b)
	dsn, err := all.MySQL.Migrate(b.Context(), "likewise")
	require.NoError(b, err)
	store, err := db.Open(b.Context(), dsn, db.Options{})
	require.NoError(b, err)
	defer store.Close()
	author := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(b, accounts.New(store).CreateUser(b.Context(), author))

	w := &writerBench{b: b, store: store, kafka: Kafka{Brokers: all.Kafka.Brokers(), Topic: "likes"}}
	const posts = 20_000
	for first := 1; first <= posts; first += 1000 {
		var rows []string
		for id := first; id < first+1000; id++ {
			rows = append(rows, fmt.Sprintf("(%d,%d,'T','C',2,1)", id, author.ID))
		}
		w.exec(`
			INSERT INTO posts (id, user_id, title, content, likes_count, milestone)
			VALUES ` + strings.Join(rows, ","))
	}
	for range store.Shards() {
		w.runs = append(w.runs, []models.Enveloped{{Pos: models.Position{Epoch: 1}, Run: "opened 0-0"}})
		w.next = append(w.next, models.Position{Epoch: 1, Seq: 1})
	}
	for b.Loop() {
		hot := w.measure(func(int) int64 { return 1 })
		wide := w.measure(func(i int) int64 { return int64(i%posts) + 1 })
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(hot.writer, "hot-likes/s")
		b.ReportMetric(wide.writer, "wide-likes/s")
		b.ReportMetric(hot.writer/hot.load, "hot/LOAD")
		b.ReportMetric(wide.writer/wide.load, "wide/LOAD")
		b.ReportMetric(wide.writer/hot.writer, "wide/hot")
	}
}

type writerBench struct {
	b     *testing.B
	store *db.DB
	kafka Kafka
	user  int64
	runs  [][]models.Enveloped // by shard, which are not in Kafka yet
	next  []models.Position    // by shard
}

// rates are in likes a second.
type rates struct{ writer, load float64 }

func (w *writerBench) exec(query string) {
	w.b.Helper()
	_, err := w.store.Pool().ExecContext(w.b.Context(), query)
	require.NoError(w.b, err)
}

// measure puts likes of new users into Kafka, of the posts that of returns, and measures the writer and LOAD DATA.
func (w *writerBench) measure(of func(i int) int64) rates {
	w.b.Helper()
	w.exec("TRUNCATE post_likes")
	at := time.Now()
	events := make([][]models.Event, w.store.Shards())
	var rows strings.Builder
	for i := range benchEvents {
		w.user++
		target := models.Target{Kind: models.KindPost, ID: of(i)}
		user, shard := w.user, target.Shard(w.store.Shards())
		fmt.Fprintf(&rows, "%d\t%d\t%s\n", target.ID, user, at.UTC().Format(time.DateTime))
		events[shard] = append(events[shard], models.LikeEvent(target, user, true, at))
		if len(events[shard]) == benchRun {
			w.enqueue(shard, events[shard])
			events[shard] = nil
		}
	}
	for shard, batch := range events {
		if len(batch) > 0 {
			w.enqueue(shard, batch)
		}
	}
	w.produce()
	loading := w.load(rows.String())
	writing := w.write()
	return rates{writer: benchEvents / writing.Seconds(), load: benchEvents / loading.Seconds()}
}

func (w *writerBench) enqueue(shard int, events []models.Event) {
	w.runs[shard] = append(w.runs[shard], models.Enveloped{Pos: w.next[shard], Run: models.NewRun(events...)})
	w.next[shard].Seq++
}

// produce writes the queued runs to Kafka, in records such as those of the relay.
func (w *writerBench) produce() {
	w.b.Helper()
	require.NoError(w.b, w.kafka.EnsureTopic(w.store.Shards()))
	producer, err := sarama.NewSyncProducer(w.kafka.Brokers, w.kafka.config())
	require.NoError(w.b, err)
	defer producer.Close()
	for shard, runs := range w.runs {
		for len(runs) > 0 {
			batch := upToBytes(runs[:min(len(runs), relayBatch)], relayBytes)
			runs = runs[len(batch):]
			value, err := json.Marshal(models.Envelope{V: models.EnvelopeVersion, Shard: shard, Runs: batch})
			require.NoError(w.b, err)
			_, _, err = producer.SendMessage(&sarama.ProducerMessage{
				Topic: w.kafka.Topic, Partition: int32(shard), Value: sarama.ByteEncoder(value),
			})
			require.NoError(w.b, err)
		}
		w.runs[shard] = nil
	}
}

// write runs a like writer until MySQL has everything, and returns the time since it owned its partitions.
func (w *writerBench) write() time.Duration {
	w.b.Helper()
	ctx, cancel := context.WithCancel(w.b.Context())
	defer cancel()
	writer := NewLikeWriter(w.store, w.kafka, NewMetrics())
	group, err := sarama.NewConsumerGroup(w.kafka.Brokers, w.kafka.group(""), w.kafka.groupConfig())
	require.NoError(w.b, err)
	timed := &timedBatcher{batcher: batcher{writer: writer}}
	var running sync.WaitGroup
	running.Go(func() {
		for range group.Errors() {
			continue
		}
	})
	running.Go(func() {
		for ctx.Err() == nil {
			_ = group.Consume(ctx, []string{w.kafka.Topic}, timed)
		}
	})
	testkit.Eventually(w.b, 5*time.Minute, func() (bool, string) {
		states, err := likes.New(w.store).ShardStates(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, state := range states {
			if want := w.next[state.Shard]; want.Seq != state.Applied.Seq+1 {
				return false, fmt.Sprintf("shard %d is at %v, not before %v", state.Shard, state.Applied, want)
			}
		}
		return true, ""
	})
	took := time.Since(timed.began)
	cancel()
	require.NoError(w.b, group.Close())
	running.Wait()
	var rows int
	require.NoError(w.b, w.store.Pool().QueryRow("SELECT COUNT(*) FROM post_likes").Scan(&rows))
	require.Equal(w.b, benchEvents, rows)
	return took
}

// timedBatcher notes when its session began.
type timedBatcher struct {
	batcher
	began time.Time
}

func (t *timedBatcher) Setup(session sarama.ConsumerGroupSession) error {
	t.began = time.Now()
	return t.batcher.Setup(session)
}

// load loads rows into a copy of post_likes with LOAD DATA, and returns how long that took.
func (w *writerBench) load(rows string) time.Duration {
	w.b.Helper()
	const name = "rows"
	mysql.RegisterReaderHandler(name, func() io.Reader { return strings.NewReader(rows) })
	defer mysql.DeregisterReaderHandler(name)
	w.exec("SET GLOBAL local_infile=1")
	w.exec("DROP TABLE IF EXISTS loaded")
	w.exec("CREATE TABLE loaded LIKE post_likes")
	began := time.Now()
	w.exec("LOAD DATA LOCAL INFILE 'Reader::" + name + "' INTO TABLE loaded (post_id, user_id, created_at)")
	took := time.Since(began)
	var loaded int
	require.NoError(w.b, w.store.Pool().QueryRow("SELECT COUNT(*) FROM loaded").Scan(&loaded))
	require.Equal(w.b, benchEvents, loaded)
	return took
}
