package workers

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// patience bounds every wait for a condition. It is long, for busy machines.
const patience = 60 * time.Second

// pipeline is the whole pipeline of likes on real servers, for one test.
type pipeline struct {
	t       *testing.T
	dsn     string
	url     string
	store   *db.DB
	redis   *counters.Redis
	likes   *counters.Likes
	kafka   Kafka
	metrics *Metrics
	raw     *redis.Client // to read and damage keys
	author  models.Author
}

// setup returns a pipeline on the shared servers, without workers.
func setup(t *testing.T) *pipeline {
	t.Helper()
	brokers, topic := testkit.Topic(t)
	r := testkit.Redis(t)
	return newPipeline(t, testkit.Database(t), fmt.Sprintf("redis://%s/%d", r.Addr, r.DB), brokers, topic)
}

// setupOwn returns a pipeline on servers that the test may kill.
func setupOwn(t *testing.T) (*pipeline, *servers.All) {
	t.Helper()
	all := testkit.Servers(t)
	dsn, err := all.MySQL.Migrate(t.Context(), "likewise")
	require.NoError(t, err)
	return newPipeline(t, dsn, all.Redis.URL(), all.Kafka.Brokers(), "likes"), all
}

func newPipeline(t *testing.T, dsn, url string, brokers []string, topic string) *pipeline {
	t.Helper()
	p := &pipeline{t: t, dsn: dsn, url: url, kafka: Kafka{Brokers: brokers, Topic: topic},
		metrics: NewMetrics()}
	var err error
	p.store, err = db.Open(t.Context(), dsn, db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.store.Close()) })
	p.redis, p.likes = p.gate()
	p.store.UseLikeClock(p.redis.Clock)
	address, _, _ := strings.Cut(strings.Replace(url, "redis+cluster", "redis", 1), "?") // of a cluster: one node
	options, err := redis.ParseURL(address)
	require.NoError(t, err)
	p.raw = redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, p.raw.Close()) })
	testkit.AddUsers(t, p.store.Pool(), 1, 2000)
	u := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(p.store).CreateUser(t.Context(), u))
	p.author = models.Author{ID: u.ID, Username: u.Username}
	return p
}

// gate returns a gate with its own connections, as in another process.
func (p *pipeline) gate() (*counters.Redis, *counters.Likes) {
	p.t.Helper()
	r, err := counters.Open(p.url, p.store.Shards())
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, r.Close()) })
	r.UseSite(p.store.Site())
	return r, counters.NewLikes(r, p.store, counters.LikesOptions{})
}

// work runs a relay and a like writer until stop is called or the test ends.
func (p *pipeline) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { NewRelay(p.redis, p.store, p.kafka, p.metrics).Run(ctx) })
	running.Go(func() { NewLikeWriter(p.store, p.kafka, p.metrics).Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	p.t.Cleanup(stop)
	return stop
}

// awaitOpen waits until every shard accepts likes.
func (p *pipeline) awaitOpen() {
	p.t.Helper()
	testkit.Eventually(p.t, patience, func() (bool, string) {
		infos, err := p.redis.ShardInfos(context.Background())
		if err != nil {
			return false, err.Error()
		}
		for _, info := range infos {
			if !info.Open {
				return false, fmt.Sprintf("shard %d is closed", info.Shard)
			}
		}
		return true, ""
	})
}

// start calls work and awaitOpen.
func (p *pipeline) start() (stop func()) {
	p.t.Helper()
	stop = p.work()
	p.awaitOpen()
	return stop
}

func (p *pipeline) post() models.Target {
	p.t.Helper()
	post, err := content.New(p.store).CreatePost(
		context.Background(),
		p.author,
		models.PostText{Title: "A post", Content: "with text"},
	)
	require.NoError(p.t, err)
	return models.Target{Kind: models.KindPost, ID: post.ID}
}

// postIn creates a post that belongs to the shard.
func (p *pipeline) postIn(shard int) models.Target {
	p.t.Helper()
	for {
		if target := p.post(); target.Shard(p.store.Shards()) == shard {
			return target
		}
	}
}

func (p *pipeline) set(target models.Target, user int64, liked bool) models.LikeState {
	p.t.Helper()
	state, err := p.likes.SetLike(context.Background(), target, user, liked)
	require.NoError(p.t, err)
	require.Equal(p.t, liked, state.Liked)
	return state
}

// flush waits until every accepted like is in MySQL.
func (p *pipeline) flush() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(p.t, Flush(ctx, p.redis, p.store))
}

// likers returns the users who like the target in MySQL, after comparing the count with the rows.
func (p *pipeline) likers(target models.Target) []int64 {
	p.t.Helper()
	tally, ok, err := likes.New(p.store).TallyOf(context.Background(), target)
	require.NoError(p.t, err)
	require.True(p.t, ok)
	require.Equal(p.t, tally.LikeRows, tally.Likes, "likes_count of %s and its rows", target)
	ids, err := likes.New(p.store).LikerIDs(context.Background(), target, 0, 10_000)
	require.NoError(p.t, err)
	return ids
}

// verify returns the differences that a Verifier reports.
func (p *pipeline) verify(repair bool) []string {
	p.t.Helper()
	var found []string
	sum, err := NewVerifier(
		p.store,
		p.redis,
		p.likes,
		repair,
		func(d models.Difference) { found = append(found, d.String()) },
	).Verify(context.Background())
	require.NoError(p.t, err)
	require.Equal(p.t, len(found), sum.Differences+sum.Undecided)
	slices.Sort(found)
	return found
}

// likesKey returns the key of a target's likes hash.
func (p *pipeline) likesKey(target models.Target) string {
	return fmt.Sprintf("{s%02d}:%s:likes", target.Shard(p.store.Shards()), target)
}

// set0 returns the key of the first set of a warm target, which is its only one while it has few users.
func (p *pipeline) set0(target models.Target) string {
	p.t.Helper()
	load, err := p.raw.HGet(context.Background(), p.likesKey(target), "load").Result()
	require.NoError(p.t, err)
	return p.likesKey(target) + ":" + load + ":0"
}

// idle makes warm targets appear to have been liked last two hours ago.
func (p *pipeline) idle(targets ...models.Target) {
	p.t.Helper()
	for _, target := range targets {
		require.NoError(p.t, p.raw.HIncrBy(context.Background(), p.likesKey(target), "at",
			-(2*time.Hour).Milliseconds()).Err())
	}
}

func (p *pipeline) exec(query string, args ...any) {
	p.t.Helper()
	_, err := p.store.Pool().ExecContext(context.Background(), query, args...)
	require.NoError(p.t, err)
}

func (p *pipeline) count(query string, args ...any) int {
	p.t.Helper()
	var n int
	require.NoError(p.t, p.store.Pool().QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

// produce writes a record to the topic, without the relay.
func (p *pipeline) produce(shard int, value string) {
	p.t.Helper()
	require.NoError(p.t, p.kafka.EnsureTopic(p.store.Shards()))
	producer, err := sarama.NewSyncProducer(p.kafka.Brokers, p.kafka.config())
	require.NoError(p.t, err)
	defer producer.Close()
	_, _, err = producer.SendMessage(
		&sarama.ProducerMessage{Topic: p.kafka.Topic, Partition: int32(shard), Value: sarama.StringEncoder(value)},
	)
	require.NoError(p.t, err)
}

// copyFolder copies a folder and its subfolders, but no deeper ones. Redis keeps its append-only file in such a folder.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to))
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
}

func containsText(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, text) })
}
