package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/migrations"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/likes"
)

// recovered logs the time from since until likes are accepted again and every like is in MySQL.
func (p *pipeline) recovered(since time.Time) {
	p.t.Helper()
	p.awaitOpen()
	open := time.Since(since)
	p.flush()
	p.t.Logf(
		"recovery: likes are taken after %v, everything is in MySQL after %v",
		open.Round(time.Millisecond),
		time.Since(since).Round(time.Millisecond),
	)
}

// head returns the record that a relay would send next for a shard.
func (p *pipeline) head(shard int) models.Envelope {
	p.t.Helper()
	envelope := models.Envelope{V: models.EnvelopeVersion, Shard: shard}
	entries, err := p.raw.XRange(context.Background(), fmt.Sprintf("{s%02d}:outbox", shard), "-", "+").Result()
	require.NoError(p.t, err)
	for _, entry := range entries {
		pos, err := models.ParsePosition(entry.ID)
		require.NoError(p.t, err)
		envelope.Runs = append(envelope.Runs, models.Enveloped{Pos: pos, Run: models.Run(entry.Values["run"].(string))})
	}
	return envelope
}

func (p *pipeline) produceEnvelope(e models.Envelope) {
	p.t.Helper()
	value, err := json.Marshal(e)
	require.NoError(p.t, err)
	p.produce(e.Shard, string(value))
}

func TestRecovery_relayKilledAfterKafkasAckAndBeforeTheTrim(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.flush()
	stop()
	p.set(target, 1, true)
	p.set(target, 2, true)
	p.set(target, 1, false)
	p.produceEnvelope(p.head(6)) // the relay dies before it trims the outbox
	began := time.Now()
	p.work()
	p.recovered(began)
	assert.Equal(t, []int64{2}, p.likers(target))
	assert.Equal(t, 0, p.count("SELECT COUNT(*) FROM like_gaps"))
	assert.Empty(t, p.verify(false))
}

func TestRecovery_relayPausedPastItsLockWhileAnotherTookOver(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.flush()
	stop()
	p.set(target, 1, true)
	paused := p.head(6) // a relay has read this, and is paused
	p.work()            // another relay takes over
	p.flush()
	p.set(target, 1, false)
	p.flush()
	p.produceEnvelope(paused) // the first relay resumes, and sends its record
	p.set(target, 2, true)
	p.flush()
	assert.Equal(t, []int64{2}, p.likers(target), "the unlike came after the like")
	assert.Empty(t, p.verify(false))
}

func TestRecovery_writerKilledAfterCommitAndBeforeTheOffset(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.flush()
	stop()
	p.set(target, 1, true)
	p.set(target, 2, true)
	envelope := p.head(6)
	p.produceEnvelope(envelope)
	value, err := json.Marshal(envelope)
	require.NoError(t, err)
	_, err = likes.New(p.store).ApplyLikes(
		t.Context(),
		decode(&sarama.ConsumerMessage{Topic: p.kafka.Topic, Partition: 6, Value: value}, 16),
	)
	require.NoError(t, err) // the writer dies before it marks its offsets
	p.set(target, 2, false)
	began := time.Now()
	p.work()
	p.recovered(began)
	assert.Equal(t, []int64{1}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// A writer hangs in its transaction while the group assigns its partitions to another writer.
func TestRecovery_writerPausedInATransactionWhileAnotherTookOver(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.post()
	p.set(target, 1, true)
	p.flush()

	blocker, err := p.store.Pool().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = blocker.ExecContext(
		t.Context(),
		"SELECT id FROM post_likes WHERE post_id=? AND user_id=1 FOR UPDATE",
		target.ID,
	)
	require.NoError(t, err)
	p.set(target, 2, true)
	p.set(target, 4, true)
	p.set(target, 1, false)
	p.awaitBlocked()
	var stopping sync.WaitGroup
	stopping.Go(stop) // the session ends, and the transaction continues
	p.work()
	p.set(target, 3, true)
	began := time.Now()
	require.NoError(t, blocker.Rollback())
	p.recovered(began)
	stopping.Wait()
	assert.Equal(t, []int64{2, 3, 4}, p.likers(target))
	assert.Equal(t, 0, p.count("SELECT COUNT(*) FROM like_gaps"))
	assert.Empty(t, p.verify(false))
}

// awaitBlocked waits until the writer's transaction, which has written likes by then, waits for one that it deletes,
// and returns its connection.
func (p *pipeline) awaitBlocked() (connection int) {
	p.t.Helper()
	testkit.Eventually(p.t, patience, func() (bool, string) {
		connection = p.count(`
			SELECT COALESCE(MAX(id),0)
			FROM information_schema.processlist
			WHERE db=DATABASE() AND info LIKE 'DELETE FROM post_likes%'`)
		return connection > 0, "no writer waits for the like"
	})
	return connection
}

func TestRecovery_writersConnectionKilledInATransaction(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.flush()
	blocker, err := p.store.Pool().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = blocker.ExecContext(
		t.Context(),
		"SELECT id FROM post_likes WHERE post_id=? AND user_id=1 FOR UPDATE",
		target.ID,
	)
	require.NoError(t, err)
	p.set(target, 2, true)
	p.set(target, 1, false)
	p.exec(fmt.Sprintf("KILL %d", p.awaitBlocked()))
	began := time.Now()
	require.NoError(t, blocker.Rollback())
	p.recovered(began)
	assert.Equal(t, []int64{2}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// commitCutter is a proxy in front of MySQL. When armed, it forwards a COMMIT and drops the connection before the
// reply, so that the outcome is unknown to the client.
type commitCutter struct {
	net.Listener
	armed atomic.Int32
	cut   atomic.Int32
}

func newCommitCutter(t *testing.T, server string) *commitCutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &commitCutter{Listener: listener}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		serving.Wait()
	})
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			serving.Go(func() { c.pipe(client, upstream) })
		}
	})
	return c
}

func (c *commitCutter) pipe(client, upstream net.Conn) {
	var cutting atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := upstream.Read(buffer)
			if err != nil || cutting.Load() { // the reply to the COMMIT is lost
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		if n == 11 && string(buffer[4:n]) == "\x03COMMIT" && c.armed.Add(-1) >= 0 {
			cutting.Store(true)
			c.cut.Add(1)
		}
		if _, err := upstream.Write(buffer[:n]); err != nil {
			break
		}
	}
	if cutting.Load() {
		<-done
	}
	upstream.Close()
	<-done
}

func TestRecovery_unknownCommit(t *testing.T) {
	t.Parallel()
	brokers, topic := testkit.Topic(t)
	r := testkit.Redis(t)
	dsn := testkit.Database(t)
	address := dsn[strings.Index(dsn, "tcp(")+4 : strings.Index(dsn, ")/")]
	cutter := newCommitCutter(t, address)
	dsn = strings.Replace(dsn, address, cutter.Addr().String(), 1)
	p := newPipeline(t, dsn, fmt.Sprintf("redis://%s/%d", r.Addr, r.DB), brokers, topic)
	p.start()
	target := p.post()
	p.flush()
	for user := int64(1); user <= 12; user++ {
		if user%4 == 0 {
			cutter.armed.Store(1)
		}
		p.set(target, user, true)
		p.set(target, user, user%3 != 0)
		if user%4 == 0 {
			p.flush()
		}
	}
	began := time.Now()
	p.recovered(began)
	assert.Positive(t, cutter.cut.Load(), "no COMMIT was cut")
	t.Logf("%d replies to COMMIT were cut", cutter.cut.Load())
	assert.Equal(t, []int64{1, 2, 4, 5, 7, 8, 10, 11}, p.likers(target))
	assert.Equal(t, 0, p.count("SELECT COUNT(*) FROM like_gaps"))
	assert.Empty(t, p.verify(false))
}

// The topic is deleted while it has acknowledged events that MySQL does not have.
func TestRecovery_topicLostBelowTheWatermark(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target, other := p.postIn(6), p.postIn(7)
	p.set(target, 1, true)
	p.set(other, 1, true)
	p.flush()
	stop()
	p.set(target, 1, false)
	p.set(target, 2, true)
	// Kafka acknowledges the events, the relay trims them, and then the topic is deleted.
	require.NoError(t, p.raw.Do(t.Context(), "XTRIM", "{s06}:outbox", "MAXLEN", "0").Err())
	admin, err := sarama.NewClusterAdmin(p.kafka.Brokers, p.kafka.config())
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.DeleteTopic(p.kafka.Topic))
	testkit.Eventually(t, patience, func() (bool, string) { // Apache Kafka deletes topics later
		topics, err := admin.ListTopics()
		_, there := topics[p.kafka.Topic]
		return err == nil && !there, "the topic is still there"
	})
	p.work()
	p.set(other, 2, true)
	began := time.Now()
	reconciler := NewReconciler(p.redis, p.store, p.likes)
	testkit.Eventually(t, patience, func() (bool, string) {
		probed, err := reconciler.Probe(context.Background(), 0)
		return err == nil && probed > 0 || p.count("SELECT COUNT(*) FROM like_gaps") > 0, fmt.Sprintf("%v", err)
	})
	testkit.Eventually(t, patience, func() (bool, string) {
		resent, err := reconciler.Reconcile(context.Background())
		return err == nil && resent > 0, fmt.Sprintf("nothing to mend; %v", err)
	})
	p.recovered(began)
	assert.Equal(t, []int64{2}, p.likers(target))
	assert.Equal(t, []int64{1, 2}, p.likers(other))
	assert.Empty(t, p.verify(false))
}

func TestRecovery_oneShardsKeysAreGone(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target, other := p.postIn(6), p.postIn(7)
	for user := int64(1); user <= 5; user++ {
		p.set(target, user, true)
		p.set(other, user, true)
	}
	p.flush()
	keys, err := p.raw.Keys(t.Context(), "{s06}:*").Result()
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, p.raw.Del(t.Context(), keys...).Err())
	p.recovered(began)
	assert.Equal(t, int64(6), p.set(target, 6, true).Count)
	p.set(other, 6, true)
	p.flush()
	assert.Len(t, p.likers(target), 6)
	assert.Len(t, p.likers(other), 6)
	assert.Empty(t, p.verify(false))
}

func TestRecovery_mysqlIsReadOnlyForAWhile(t *testing.T) {
	t.Parallel()
	p, all := setupOwn(t)
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.flush()
	admin, err := sqlOpen(all.MySQL.DSN(""))
	require.NoError(t, err)
	defer admin.Close()
	// Administrators may not write either. The name of the setting depends on the server.
	_, err = admin.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
	require.NoError(t, err)
	admin.SetMaxOpenConns(1)
	for user := int64(2); user <= 20; user++ {
		p.set(target, user, true)
	}
	began := time.Now()
	_, err = admin.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	p.recovered(began)
	assert.Len(t, p.likers(target), 20)
	assert.Empty(t, p.verify(false))
}

func TestRecovery_everyServerKilledAtOnce(t *testing.T) {
	t.Parallel()
	p, all := setupOwn(t)
	p.start()
	target := p.post()
	const users = 100_000
	testkit.AddUsers(t, p.store.Pool(), 1, users)
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	acked := map[int64]bool{}
	unknown := map[int64]bool{}
	var clients sync.WaitGroup
	for client := range int64(8) {
		clients.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				user := (8*n+client)%users + 1
				_, err := p.likes.SetLike(context.WithoutCancel(ctx), target, user, true)
				mu.Lock()
				if err == nil {
					acked[user] = true
				} else {
					unknown[user] = true
				}
				mu.Unlock()
				if err != nil {
					pause(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	testkit.Eventually(t, patience, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return len(acked) > 500, fmt.Sprintf("%d likes", len(acked))
	})
	require.NoError(t, all.Redis.Kill())
	require.NoError(t, all.MySQL.Kill())
	require.NoError(t, all.Kafka.Kill())
	began := time.Now()
	require.NoError(t, all.Kafka.Start(t.Context()))
	require.NoError(t, all.Redis.Start(t.Context()))
	require.NoError(t, all.MySQL.Start(t.Context()))
	p.awaitOpen()
	mu.Lock()
	before := len(acked)
	mu.Unlock()
	testkit.Eventually(t, patience, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return len(acked) > before+500, fmt.Sprintf("%d likes", len(acked))
	})
	stop()
	clients.Wait()
	p.recovered(began)
	rows := map[int64]bool{}
	for after := int64(0); ; {
		ids, err := likes.New(p.store).LikerIDs(t.Context(), target, after, 10_000)
		require.NoError(t, err)
		for _, id := range ids {
			rows[id] = true
			after = id
		}
		if len(ids) < 10_000 {
			break
		}
	}
	lost, invented := 0, 0
	for user := range acked {
		if !rows[user] {
			lost++
		}
	}
	for user := range rows {
		if !acked[user] && !unknown[user] {
			invented++
		}
	}
	assert.Zero(t, lost, "of %d acknowledged likes", len(acked))
	assert.Zero(t, invented)
	assert.Empty(t, p.verify(false))
}

// MySQL is restored from a backup, and Redis starts empty. Likes since the backup are restored from Kafka.
func TestRecovery_mysqlRestoredFromABackup(t *testing.T) {
	t.Parallel()
	p, all := setupOwn(t)
	stop := p.start()
	target, other := p.post(), p.post()
	p.set(target, 1, true)
	p.set(target, 2, true)
	p.flush()
	newID := func() models.ID { // of a process that starts
		id, err := counters.NewIDs(p.redis, p.store).Next(t.Context(), 0, 1)
		require.NoError(t, err)
		return id
	}
	newID()
	data, backup := filepath.Join(all.MySQL.Dir(), "data"), filepath.Join(t.TempDir(), "backup")
	require.NoError(t, all.MySQL.Stop(t.Context()))
	copyFolder(t, data, backup)
	require.NoError(t, all.MySQL.Start(t.Context()))
	p.awaitMySQL()
	// After the backup there are likes, a restart of Redis, which begins another epoch, and likes in that epoch. The
	// ids after the restart are ahead of the clock.
	p.set(target, 1, false)
	p.flush()
	require.NoError(t, all.Redis.Kill())
	require.NoError(t, all.Redis.Start(t.Context()))
	p.awaitOpen()
	p.set(target, 3, true)
	p.set(other, 3, true)
	account := func(name string) int64 {
		u := &models.User{Username: name, Email: name + "@example.org"}
		require.NoError(t, accounts.New(p.store).CreateUser(t.Context(), u))
		return u.ID
	}
	gone, gonePost := account("gone"), p.post()
	p.set(target, gone, true)
	p.set(gonePost, 3, true)
	p.flush()
	stop()
	latest := newID()

	require.NoError(t, all.MySQL.Kill())
	copyFolder(t, backup, data)
	require.NoError(t, p.raw.FlushAll(t.Context()).Err())
	require.NoError(t, all.MySQL.Start(t.Context()))
	p.awaitMySQL()
	require.Equal(t, []int64{1, 2}, p.likers(target))
	began := time.Now()
	_, err := migrations.Restored(t.Context(), p.dsn)
	require.NoError(t, err)
	p.store, err = db.Open(t.Context(), p.dsn, db.Options{}) // processes start after a restore
	require.NoError(t, err)
	defer p.store.Close()
	p.redis, p.likes = p.gate()
	assert.Greater(t, newID(), latest, "no id is issued again")
	newcomer, newPost := account("newcomer"), p.post()
	assert.Greater(t, newcomer, gone)
	assert.Greater(t, newPost.ID, gonePost.ID)
	p.work()
	p.recovered(began)
	assert.Equal(t, []int64{2, 3}, p.likers(target))
	assert.Equal(t, []int64{3}, p.likers(other))
	assert.Empty(t, p.likers(newPost), "it does not begin with the likes of a post that is gone")
	assert.Equal(t, int64(3), p.set(target, 4, true).Count)
	p.flush()
	assert.Empty(t, p.verify(false))
	assert.Equal(t, 0, p.count("SELECT COUNT(*) FROM like_gaps"))
}

// awaitMySQL waits until MySQL answers again.
func (p *pipeline) awaitMySQL() {
	p.t.Helper()
	testkit.Eventually(p.t, patience, func() (bool, string) {
		_, err := likes.New(p.store).ShardStates(context.Background())
		return err == nil, fmt.Sprint(err)
	})
}

// During a deployment, writers read records of relays of another version. They ignore unknown fields. A record in an
// unknown format becomes a dead letter, and its likes are sent again.
func TestRecovery_recordsOfAnotherVersion(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.flush()
	stop()
	p.set(target, 1, true)
	envelope := p.head(6)
	next := envelope.Runs[0].Pos
	p.produce(
		6,
		fmt.Sprintf(
			`{"v":1,"shard":6,"zone":"a","runs":[{"pos":%q,"sent":7,"run":"likes 1700000000000 p%d 1"}]}`,
			next,
			target.ID,
		),
	)
	require.NoError(t, p.raw.Do(t.Context(), "XTRIM", "{s06}:outbox", "MAXLEN", "0").Err())
	stop = p.work()
	p.flush()
	assert.Equal(t, []int64{1}, p.likers(target))
	assert.Zero(t, p.count("SELECT COUNT(*) FROM dead_letters"))
	stop()

	p.set(target, 2, true)
	p.produce(
		6,
		fmt.Sprintf(`{"v":2,"shard":6,"liked":[[%d,2]]}`, target.ID),
	) // the relay of the other version sends this, and trims the outbox
	require.NoError(t, p.raw.Do(t.Context(), "XTRIM", "{s06}:outbox", "MAXLEN", "0").Err())
	p.set(target, 3, true)
	began := time.Now()
	p.work()
	p.flush()
	assert.Equal(t, 1, p.count("SELECT COUNT(*) FROM dead_letters WHERE error LIKE '%version 2%'"))
	resent, err := NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, resent)
	p.recovered(began)
	assert.Equal(t, []int64{1, 2, 3}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

// A relay that was paused while another began a later epoch must not open the shard under its own. Once the first event
// of the later epoch is applied, the writer would drop every like of the older epoch.
func TestRelay_leavesAnOpeningThatAnotherHasOvertaken(t *testing.T) {
	t.Parallel()
	p := setup(t)
	relay := NewRelay(p.redis, p.store, p.kafka, p.metrics)
	outbox, err := p.redis.HoldOutbox(t.Context(), 3, "token", time.Minute)
	require.NoError(t, err)
	mine, err := relay.beginOpening(t.Context(), 3, outbox)
	require.NoError(t, err)
	_, err = likes.New(p.store).ApplyLikes(t.Context(), []models.LikeRecord{{Shard: 3,
		Pos:    models.Position{Epoch: mine.epoch},
		Events: []models.Event{{Type: models.ShardOpened}}}})
	require.NoError(t, err)
	_, err = likes.New(p.store).NextEpoch(t.Context(), 3, 0) // the other relay
	require.NoError(t, err)
	_, err = relay.finishOpening(t.Context(), 3, outbox, mine)
	require.ErrorIs(t, err, counters.ErrLockLost)
	info, err := outbox.Info(t.Context())
	require.NoError(t, err)
	assert.False(t, info.Open)

	again, err := relay.beginOpening(t.Context(), 3, outbox)
	require.NoError(t, err)
	done, err := relay.finishOpening(t.Context(), 3, outbox, again)
	require.NoError(t, err)
	assert.False(t, done, "its first event is not applied yet")
	_, err = likes.New(p.store).ApplyLikes(t.Context(), []models.LikeRecord{{Shard: 3,
		Pos:    models.Position{Epoch: again.epoch},
		Events: []models.Event{{Type: models.ShardOpened}}}})
	require.NoError(t, err)
	done, err = relay.finishOpening(t.Context(), 3, outbox, again)
	require.NoError(t, err)
	assert.True(t, done)
}
