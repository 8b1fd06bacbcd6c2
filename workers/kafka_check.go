package workers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"likewise/models"
	"likewise/models/db"
)

// ErrLoses means that Kafka is told to delete records that MySQL may not have.
var ErrLoses = errors.New("the topic would lose likes")

// ErrForeign means that the topic has records of another installation.
var ErrForeign = errors.New("the topic belongs to another installation")

// Misconfigured reports whether an error of Kafka is one that a retry does not help.
func Misconfigured(err error) bool {
	return errors.Is(err, ErrPartitions) || errors.Is(err, ErrLoses) || errors.Is(err, ErrForeign)
}

// minRetention is the shortest time for which a topic must keep records. MySQL can be away for as long.
const minRetention = time.Hour

// checkConfig returns ErrLoses if the topic is compacted, because all records of a shard have one key, or if it keeps
// records for less than minRetention. If this client may not read the configuration, checkConfig returns nil.
func (k Kafka) checkConfig(admin sarama.ClusterAdmin) error {
	results, err := admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: k.Topic, ConfigNames: []string{"cleanup.policy", "retention.ms"},
	}}, sarama.DescribeConfigsOptions{})
	if err == nil && len(results) != 1 {
		err = fmt.Errorf("%d results", len(results))
	}
	if err == nil && !errors.Is(results[0].ErrorCode, sarama.ErrNoError) {
		err = results[0].ErrorCode
	}
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("configuration of topic %s: %w", k.Topic, err)
	}
	for _, e := range results[0].Configs {
		switch e.Name {
		case "cleanup.policy":
			if strings.Contains(e.Value, "compact") {
				return fmt.Errorf("%w: cleanup.policy of topic %s is %s, which keeps one record of each shard; "+
					"set it to delete", ErrLoses, k.Topic, e.Value)
			}
		case "retention.ms":
			ms, err := strconv.ParseInt(e.Value, 10, 64)
			if err == nil && ms >= 0 && ms < minRetention.Milliseconds() {
				return fmt.Errorf("%w: retention.ms of topic %s is %d; set it to at least %d, and better to some days",
					ErrLoses, k.Topic, ms, minRetention.Milliseconds())
			}
		}
	}
	return nil
}

// Check returns an error if the topic cannot hold the likes of this installation: see EnsureTopic and CheckSite.
func (k Kafka) Check(ctx context.Context, store *db.DB) error {
	if err := k.EnsureTopic(store.Shards()); err != nil {
		return err
	}
	return k.CheckSite(ctx, store)
}

// checkLimit bounds the time for reading the last records of a topic.
const checkLimit = 5 * time.Second

// CheckSite returns ErrForeign if the last record of a partition is of another installation. Two sites that used one
// topic would apply likes of each other.
func (k Kafka) CheckSite(ctx context.Context, store *db.DB) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	client, err := sarama.NewClient(k.Brokers, k.config())
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	defer consumer.Close()
	results := make(chan error, store.Shards())
	for shard := range store.Shards() {
		go func() { results <- k.checkLast(ctx, client, consumer, shard, store.Site()) }() // ends with ctx
	}
	var failure error // one is enough, and the most useful one
	for range store.Shards() {
		if err := <-results; failure == nil || errors.Is(err, ErrForeign) {
			failure = err
		}
	}
	return failure
}

// checkLast checks the last record of a partition, if there is one.
func (k Kafka) checkLast(
	ctx context.Context, client sarama.Client, consumer sarama.Consumer, shard int, site string,
) error {
	partition := int32(shard)
	oldest, err := client.GetOffset(k.Topic, partition, sarama.OffsetOldest)
	if err != nil {
		return fmt.Errorf("first record of topic %s: %w", k.Topic, err)
	}
	next, err := client.GetOffset(k.Topic, partition, sarama.OffsetNewest)
	if err != nil {
		return fmt.Errorf("last record of topic %s: %w", k.Topic, err)
	}
	if next <= oldest {
		return nil
	}
	records, err := consumer.ConsumePartition(k.Topic, partition, next-1)
	if err != nil {
		return fmt.Errorf("last record of topic %s: %w", k.Topic, err)
	}
	defer records.Close()
	select {
	case record := <-records.Messages():
		return k.checkRecord(record, site)
	case err := <-records.Errors():
		return fmt.Errorf("last record of topic %s: %w", k.Topic, err)
	case <-ctx.Done():
		return fmt.Errorf("last record of topic %s: %w", k.Topic, ctx.Err())
	}
}

// checkRecord returns ErrForeign if a record is of another installation. An unreadable one may be of any.
func (k Kafka) checkRecord(record *sarama.ConsumerMessage, site string) error {
	other := models.SiteOf(record.Value)
	if other == "" || other == site {
		return nil
	}
	return fmt.Errorf("%w: topic %s, partition %d, has records of %s at offset %d, and MySQL has the id %s; "+
		"set LIKEWISE_TOPIC to a topic of its own", ErrForeign, k.Topic, record.Partition, other, record.Offset, site)
}
