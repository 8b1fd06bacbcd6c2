package workers

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/likes"
)

// otherSite returns the pipeline of another installation on the Redis and Kafka of p.
func (p *pipeline) otherSite() *pipeline {
	p.t.Helper()
	dsn := testkit.Database(p.t)
	db, err := sqlOpen(dsn)
	require.NoError(p.t, err)
	defer db.Close()
	_, err = db.ExecContext(p.t.Context(), "UPDATE settings SET value=UNHEX('00112233445566ff') WHERE name='site'")
	require.NoError(p.t, err)
	other := newPipeline(p.t, dsn, p.url, p.kafka.Brokers, p.kafka.Topic)
	require.NotEqual(p.t, p.store.Site(), other.store.Site())
	require.Len(p.t, p.store.Site(), 16)
	return other
}

func TestSites_thatShareRedisRefuseEachOther(t *testing.T) {
	t.Parallel()
	p := setup(t)
	early := p.otherSite() // it is connected before the shards have an owner
	require.NoError(t, early.redis.Ping(t.Context()))
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.flush()

	assert.ErrorIs(t, early.redis.CheckSite(t.Context()), counters.ErrForeign)
	foreign := early.post()
	foreign.ID = target.ID
	_, err := early.likes.SetLike(t.Context(), foreign, 2, true)
	require.ErrorIs(t, err, counters.ErrForeign, "a gate that was connected learns whose shard it is")
	_, err = NewJobs(JobsConfig{Store: early.store, Redis: early.redis, Likes: early.likes, Metrics: early.metrics,
		Targets:  counters.NewTargets(early.store, early.likes),
		Registry: prometheus.NewRegistry(), CoolAfter: MinCoolAfter}).Run(t.Context(), "cool")
	require.ErrorIs(t, err, counters.ErrForeign)
	outbox, err := early.redis.HoldOutbox(t.Context(), 300, "me", relayLock)
	require.NoError(t, err)
	require.NoError(t, p.raw.HSet(t.Context(), "{s300}:shard", "site", p.store.Site()).Err())
	require.ErrorIs(t, outbox.Own(t.Context()), counters.ErrForeign)

	late, _ := p.otherSite().gate()
	require.ErrorIs(t, late.Ping(t.Context()), counters.ErrForeign, "a new connection")
	assert.Equal(t, []int64{1}, p.likers(target))
	assert.Empty(t, p.verify(false))
}

func TestSites_thatShareATopicRefuseEachOther(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	other := p.otherSite()
	err := other.kafka.Check(t.Context(), other.store)
	require.ErrorIs(t, err, ErrForeign)
	require.ErrorContains(t, err, p.kafka.Topic)
	require.True(t, Misconfigured(err))
	require.NoError(t, p.kafka.Check(t.Context(), p.store))

	// The other site has written all the same. The writer stops before its record, and applies nothing of it.
	value, err := json.Marshal(models.Envelope{V: models.EnvelopeVersion, Site: other.store.Site(), Shard: 6,
		Runs: []models.Enveloped{{Pos: models.Position{Epoch: 1_000_000, Seq: 1}, Run: models.NewRun(
			models.LikeEvent(target, 2, true, p.store.Now()))}}})
	require.NoError(t, err)
	p.produce(6, string(value))
	testkit.Eventually(t, patience, func() (bool, string) {
		failures, err := likes.New(p.store).ShardFailures(t.Context())
		require.NoError(t, err)
		for _, f := range failures {
			if f.Shard == 6 && f.Stage == models.StageWriter {
				return true, ""
			}
		}
		return false, fmt.Sprint(failures)
	})
	elsewhere := p.postIn(7)
	p.set(elsewhere, 1, true)
	testkit.Eventually(t, patience, func() (bool, string) {
		return p.count("SELECT COUNT(*) FROM post_likes WHERE post_id=?", elsewhere.ID) == 1, "other shards go on"
	})
	assert.Equal(t, []int64{1}, p.likers(target))
	assert.Zero(t, p.count("SELECT COUNT(*) FROM dead_letters"))
	assert.Zero(t, p.count("SELECT COUNT(*) FROM like_gaps"))
}

// A topic that is compacted keeps one record of each shard.
func TestKafka_refusesATopicThatLosesRecords(t *testing.T) {
	t.Parallel()
	p := setup(t)
	admin, err := sarama.NewClusterAdmin(p.kafka.Brokers, p.kafka.config())
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, p.kafka.EnsureTopic(16))
	set := func(name, value string) {
		t.Helper()
		require.NoError(t, admin.IncrementalAlterConfig(sarama.TopicResource, p.kafka.Topic,
			map[string]sarama.IncrementalAlterConfigsEntry{
				name: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
			}, false))
	}
	for _, policy := range []string{"compact", "compact,delete"} {
		set("cleanup.policy", policy)
		err := p.kafka.EnsureTopic(16)
		require.ErrorIs(t, err, ErrLoses)
		assert.ErrorContains(t, err, "cleanup.policy of topic "+p.kafka.Topic+" is "+policy)
	}
	set("cleanup.policy", "delete")
	require.NoError(t, p.kafka.EnsureTopic(16))
	set("retention.ms", "60000")
	require.ErrorContains(t, p.kafka.EnsureTopic(16), "retention.ms of topic")
	set("retention.ms", "-1")
	require.NoError(t, p.kafka.EnsureTopic(16))
}

// While the topic cannot be used, events stay in the outboxes.
func TestRelay_sendsNothingToATopicThatLosesRecords(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	relay := NewRelay(p.redis, p.store, p.kafka, p.metrics)
	relay.unusable.Store(&topicProblem{ErrLoses})
	producer, err := relay.connect(t.Context())
	require.NoError(t, err)
	defer producer.Close()
	p.set(target, 2, true)
	outbox, err := p.redis.AwaitOutbox(t.Context(), 6, lockToken(), relayLock, patience)
	require.NoError(t, err)
	require.ErrorIs(t, relay.hold(t.Context(), producer, 6, outbox), ErrLoses)
	infos, err := p.redis.ShardInfos(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, infos[6].Depth)
}

// A MySQL that was restored alone lacks what Redis and Kafka have. Its ids would be issued again, so its likes are
// refused until Redis is emptied.
func TestRelay_refusesAMySQLThatWasSetBack(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	for user := int64(1); user < 6; user++ {
		p.set(target, user, true)
	}
	p.flush()
	stop()
	stop = p.start() // it remembers the watermark when it takes the lock
	testkit.Eventually(t, patience, func() (bool, string) {
		state, err := likes.New(p.store).ShardState(t.Context(), 6)
		require.NoError(t, err)
		noted := p.raw.HGet(t.Context(), "{s06}:shard", "applied").Val()
		return noted == state.Applied.String(), noted
	})
	stop()
	p.exec("UPDATE like_shards SET applied_seq=applied_seq-3 WHERE shard=6")
	stop = p.work()
	testkit.Eventually(t, patience, func() (bool, string) {
		infos, err := p.redis.ShardInfos(t.Context())
		require.NoError(t, err)
		return !infos[6].Open && infos[7].Open, fmt.Sprintf("%+v", infos[6])
	})
	testkit.Eventually(t, patience, func() (bool, string) {
		failures, err := likes.New(p.store).ShardFailures(t.Context())
		require.NoError(t, err)
		text := fmt.Sprint(failures)
		return strings.Contains(text, "mysql has gone back"), text
	})
	_, err := p.likes.SetLike(t.Context(), target, 9, true)
	require.Equal(t, models.CodeUnavailable, models.ErrorCode(err))
	stop()

	require.NoError(t, p.raw.FlushDB(t.Context()).Err())
	p.exec("UPDATE like_shards SET epoch=UNIX_TIMESTAMP()")
	p.start()
	p.set(target, 9, true)
	p.flush()
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 9}, p.likers(target))
}

// The broker that answers may not know a topic yet that was created.
func TestKafka_waitsUntilANewTopicIsKnown(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	const before = 3
	var asked atomic.Int32
	cluster.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if asked.Add(1) > before {
			return nil, nil, false
		}
		request, ok := r.(*kmsg.DescribeConfigsRequest)
		assert.True(t, ok)
		answer := kmsg.NewPtrDescribeConfigsResponse()
		answer.Version = r.GetVersion()
		for _, resource := range request.Resources {
			unknown := kmsg.NewDescribeConfigsResponseResource()
			unknown.ErrorCode = int16(sarama.ErrUnknownTopicOrPartition)
			unknown.ResourceType, unknown.ResourceName = resource.ResourceType, resource.ResourceName
			answer.Resources = append(answer.Resources, unknown)
		}
		return answer, nil, true
	})
	k := Kafka{Brokers: cluster.ListenAddrs(), Topic: "likes"}
	require.NoError(t, k.EnsureTopic(16))
	assert.EqualValues(t, before+1, asked.Load())
}
