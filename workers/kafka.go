// Package workers contains the background processes: the relay from Redis to Kafka, the like writer from Kafka to
// MySQL, and the cron jobs.
//
// Who owns what: a shard's outbox belongs to the relay that holds its lock, and a Kafka partition to the like writer
// that the consumer group assigned it to. The counts are right even if two processes own the same, because the writer's
// transaction compares the positions of events. What is retried: every call that a server refuses or a connection
// loses, with exponential back-off, as long as the process runs. What is dropped: only events that MySQL already has.
// An event that cannot be applied becomes a dead letter. Every Run returns when its context ends, and not before.
package workers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// Kafka configures the event log.
type Kafka struct {
	Brokers []string
	Topic   string      // has one partition for each shard; shard n is partition n
	TLS     *tls.Config // nil means connections in plain text
	SASL    *SASL       // the account at the brokers; nil means none
}

// config returns the settings of sarama. Several of its defaults may lose data.
func (k Kafka) config() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "likewise"
	c.Version = sarama.V3_6_0_0
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 3*time.Second, 10*time.Second, 10*time.Second
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 3, 200*time.Millisecond
	c.Metadata.AllowAutoTopicCreation = false

	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Timeout = 10 * time.Second
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 5, 100*time.Millisecond
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Compression = sarama.CompressionLZ4

	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	// Offsets only save time: the like writer drops events up to the watermark. So a group whose offset is no longer in
	// the log continues at the oldest record instead of stopping.
	c.Consumer.Group.ResetInvalidOffsets = true
	c.Consumer.Offsets.AutoCommit.Enable = true // only marked offsets, and those are marked after the transaction
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	// A killed writer keeps its partitions for a session, so the session is as short as brokers allow by default.
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 6*time.Second, 2*time.Second
	c.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	c.Consumer.MaxWaitTime = 250 * time.Millisecond
	c.Consumer.Return.Errors = true

	c.Net.TLS.Enable, c.Net.TLS.Config = k.TLS != nil, k.TLS
	k.SASL.apply(c)
	return c
}

// groupConfig returns the settings of a member of the consumer group. A broker replies to a join only when the other
// members have joined or expired. This takes a session and a rebalance, or twice as long if the leader is dead. A
// member that disconnects earlier leaves a dead member behind, and its next attempt waits for that one.
func (k Kafka) groupConfig() *sarama.Config {
	c := k.config()
	c.Net.ReadTimeout = 15 * time.Second
	return c
}

// group returns the consumer group of the like writers. Its offsets belong to a database. One that was restored from a
// backup lacks events before them, so the time of the restore names another group, which begins at the oldest record.
func (k Kafka) group(restored string) string {
	if restored == "" {
		return k.Topic
	}
	return k.Topic + "." + restored
}

// pingWait bounds the wait for each broker, and is less than the timeout of /readyz.
const pingWait = time.Second

// Ping returns an error if none of the brokers answers.
func (k Kafka) Ping(ctx context.Context) error {
	config := k.config()
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = pingWait, pingWait, pingWait
	answers := make(chan error, len(k.Brokers))
	for _, address := range k.Brokers {
		go func() { answers <- pingBroker(address, k.Topic, config) }() // ends within 2 pingWait
	}
	failures := errors.New("kafka does not answer")
	for range k.Brokers {
		select {
		case err := <-answers:
			if err == nil {
				return nil
			}
			failures = errors.Join(failures, err)
		case <-ctx.Done():
			return errors.Join(failures, ctx.Err())
		}
	}
	return failures
}

func pingBroker(address, topic string, config *sarama.Config) error {
	broker := sarama.NewBroker(address)
	if err := broker.Open(config); err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	defer broker.Close()
	if _, err := broker.GetMetadata(sarama.NewMetadataRequest(config.Version, []string{topic})); err != nil {
		return fmt.Errorf("ask %s: %w", address, err)
	}
	return nil
}

// ErrPartitions means that the topic does not have one partition for each shard.
var ErrPartitions = errors.New("the topic does not have one partition for each shard")

// EnsureTopic creates the topic if it is missing. If an existing topic does not have one partition for each shard, or
// would lose records, EnsureTopic returns ErrPartitions or ErrLoses, and a retry does not help.
func (k Kafka) EnsureTopic(shards int) error {
	admin, err := sarama.NewClusterAdmin(k.Brokers, k.config())
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	defer admin.Close()
	const replicas = -1 // the broker's default.replication.factor
	keep := "delete"    // by age, and not all but one of the records of a shard
	err = admin.CreateTopic(
		k.Topic,
		&sarama.TopicDetail{NumPartitions: int32(shards), ReplicationFactor: replicas,
			ConfigEntries: map[string]*string{"cleanup.policy": &keep}},
		false,
	)
	if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", k.Topic, err)
	}
	// A topic is created before all brokers know it, and another process may have created it just now.
	for range newTopicAttempts {
		if err = k.checkTopic(admin, shards); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return err
		}
		<-time.After(newTopicRetry)
	}
	return err
}

// EnsureTopic waits for 5 s until a broker knows a new topic.
const (
	newTopicAttempts = 50
	newTopicRetry    = 100 * time.Millisecond
)

// checkTopic returns the errors of EnsureTopic about a topic that exists. The brokers may have a short retention by
// default.
func (k Kafka) checkTopic(admin sarama.ClusterAdmin, shards int) error {
	topics, err := admin.DescribeTopics([]string{k.Topic})
	if err == nil && len(topics) != 1 {
		err = fmt.Errorf("%d results", len(topics))
	}
	if err == nil && !errors.Is(topics[0].Err, sarama.ErrNoError) {
		err = topics[0].Err
	}
	if err != nil {
		return fmt.Errorf("describe topic %s: %w", k.Topic, err)
	}
	if n := len(topics[0].Partitions); n != shards {
		return fmt.Errorf("%w: topic %s has %d, and there are %d shards", ErrPartitions, k.Topic, n, shards)
	}
	return k.checkConfig(admin)
}
