package counters

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// shards is the number that testkit installs its databases with.
const shards = 16

func post(id int64) models.Target    { return models.Target{Kind: models.KindPost, ID: id} }
func comment(id int64) models.Target { return models.Target{Kind: models.KindComment, ID: id} }
func pos(epoch, seq int64) models.Position {
	return models.Position{Epoch: epoch, Seq: seq}
}

// newRedis returns the code under test and a plain client to see what it stored. No shard is open.
func newRedis(t testing.TB) (*Redis, *redis.Client) {
	t.Helper()
	o := testkit.Redis(t)
	return openRedis(t, fmt.Sprintf("redis://%s/%d", o.Addr, o.DB))
}

func openRedis(t testing.TB, url string) (*Redis, *redis.Client) {
	t.Helper()
	r, err := Open(url, shards)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	o.MaxRetries = -1
	plain := redis.NewClient(o)
	t.Cleanup(func() { plain.Close() })
	return r, plain
}

// privateRedis starts a server that the test may kill, without the MySQL and Kafka that testkit.Servers adds.
func privateRedis(t testing.TB, flags ...string) *servers.Redis {
	t.Helper()
	server, err := servers.StartRedis(t.Context(), t.TempDir(), flags...)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, server.Stop(context.Background()))
	})
	return server
}

// openShard opens a closed shard as its relay does.
func openShard(t testing.TB, r *Redis, shard int, epoch int64) {
	t.Helper()
	outbox, err := r.HoldOutbox(t.Context(), shard, rand.Text(), time.Minute)
	require.NoError(t, err)
	_, err = outbox.Seal(t.Context(), epoch)
	require.NoError(t, err)
	require.NoError(t, outbox.Opened(t.Context(), epoch))
	require.NoError(t, outbox.Release(t.Context()))
}

// forgetTargets makes the targets of a shard cold, as its relay does while it opens the shard.
func forgetTargets(t testing.TB, r *Redis, shard int) {
	t.Helper()
	outbox, err := r.HoldOutbox(t.Context(), shard, rand.Text(), time.Minute)
	require.NoError(t, err)
	require.ErrorIs(t, outbox.ForgetTargets(t.Context(), 9), ErrLockLost, "no opening")
	require.NoError(t, r.client.HSet(t.Context(), shardKey(shard), "opening", 9).Err())
	require.ErrorIs(t, outbox.ForgetTargets(t.Context(), 8), ErrLockLost, "another opening")
	require.NoError(t, outbox.ForgetTargets(t.Context(), 9))
	require.NoError(t, r.client.Del(t.Context(), relayKey(shard)).Err())
	require.ErrorIs(t, outbox.ForgetTargets(t.Context(), 9), ErrLockLost, "no lock")
	require.NoError(t, r.client.HDel(t.Context(), shardKey(shard), "opening").Err())
}

// closeShard closes a shard, as a restart of the server does.
func closeShard(t testing.TB, plain *redis.Client, shard int) {
	t.Helper()
	require.NoError(t, plain.HDel(t.Context(), shardKey(shard), "epoch", "opening").Err())
}

// forum is a Likes on a database of its own with every shard open, and users and posts to like.
type forum struct {
	*Likes
	plain   *redis.Client
	queries *queries
	dsn     string // of the same database, unwatched
	author  models.Author
	epochs  []int64 // by shard

	mu       sync.Mutex
	outcomes map[Outcome]int
}

func newForum(t testing.TB) *forum {
	t.Helper()
	r, plain := newRedis(t)
	return newOpenForum(t, r, plain)
}

// newOpenForum opens the shards of a Redis.
func newOpenForum(t testing.TB, r *Redis, plain *redis.Client) *forum {
	t.Helper()
	f := newForumOn(t, r)
	f.plain = plain
	for shard := range shards {
		epoch, err := likes.New(f.store).NextEpoch(t.Context(), shard, 0)
		require.NoError(t, err)
		openShard(t, r, shard, epoch)
		f.epochs = append(f.epochs, epoch)
	}
	return f
}

// newForumOn is newForum on a Redis whose shards are as they are.
func newForumOn(t testing.TB, r *Redis) *forum {
	t.Helper()
	dsn := testkit.Database(t)
	seen, queries := watch(t, dsn)
	store, err := db.Open(t.Context(), seen, db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	testkit.AddUsers(t, store.Pool(), 1, 1000)
	author := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(store).CreateUser(t.Context(), author))
	f := &forum{queries: queries, dsn: dsn, author: models.Author{ID: author.ID}, outcomes: map[Outcome]int{}}
	f.Likes = NewLikes(r, store, LikesOptions{Count: func(o Outcome) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.outcomes[o]++
	}})
	return f
}

func (f *forum) post(t testing.TB) models.Target {
	t.Helper()
	p, err := content.New(f.store).CreatePost(t.Context(), f.author, models.PostText{Title: "Title",
		Content: "Content"})
	require.NoError(t, err)
	return post(p.ID)
}

func (f *forum) comment(t testing.TB, on models.Target) models.Target {
	t.Helper()
	c, err := content.New(f.store).CreateComment(t.Context(), f.author, on.ID, nil,
		models.CommentText{Content: "Content"})
	require.NoError(t, err)
	return comment(c.ID)
}

// inMySQL puts likes into MySQL, past the gate.
func (f *forum) inMySQL(t testing.TB, target models.Target, users ...int64) {
	t.Helper()
	for _, user := range users {
		_, err := likes.New(f.store).SetLike(t.Context(), target, user, true)
		require.NoError(t, err)
	}
}

func (f *forum) like(t testing.TB, target models.Target, user int64) {
	t.Helper()
	_, err := f.SetLike(t.Context(), target, user, true)
	require.NoError(t, err)
}

// counted returns how often an outcome was counted.
func (f *forum) counted(o Outcome) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outcomes[o]
}

// queries sees what a Store sends to MySQL.
type queries struct {
	mu     sync.Mutex
	texts  []string
	before func(query string) // called before each is sent; may wait
}

var watched atomic.Int64

// watch returns a data source name whose connections report their queries.
func watch(t testing.TB, dsn string) (string, *queries) {
	t.Helper()
	c, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	q := &queries{before: func(string) {}}
	network := "watched" + strconv.FormatInt(watched.Add(1), 10)
	mysql.RegisterDialContext(network, func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return watchedConn{conn, q}, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(network) })
	c.Net = network
	return c.FormatDSN(), q
}

type watchedConn struct {
	net.Conn
	queries *queries
}

// Write looks for the packets COM_QUERY, which the driver writes whole: four bytes of length and number, 3, the text.
func (c watchedConn) Write(b []byte) (int, error) {
	if len(b) > 5 && b[3] == 0 && b[4] == 3 {
		text := testkit.Unlimited(string(b[5:]))
		c.queries.mu.Lock()
		c.queries.texts = append(c.queries.texts, text)
		before := c.queries.before
		c.queries.mu.Unlock()
		before(text)
	}
	return c.Conn.Write(b)
}

// hold calls fn before each query from now on.
func (q *queries) hold(fn func(query string)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.before = fn
}

// reset forgets the queries so far.
func (q *queries) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.texts = nil
}

// selects counts the queries that contain part.
func (q *queries) selects(part string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, text := range q.texts {
		if strings.HasPrefix(text, "SELECT") && strings.Contains(text, part) {
			n++
		}
	}
	return n
}

// Parts of the queries that read who likes posts: some posts together, and one page of one post of many likers.
const (
	loads = "post_id, user_id FROM post_likes"
	pages = "SELECT user_id FROM post_likes"
)

// stored is what one Redis database holds: a hash as map[string]string, a set as sorted members, a stream as its
// "id payload" lines, a string as it is.
type stored map[string]any

type hash = map[string]string

// dump reads everything of a Redis database except the servers and clocks of shards, and when targets changed.
func dump(t testing.TB, plain *redis.Client) stored {
	t.Helper()
	ctx := t.Context()
	all := stored{}
	keys, err := plain.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		kind, err := plain.Type(ctx, key).Result()
		require.NoError(t, err)
		switch kind {
		case "hash":
			fields, err := plain.HGetAll(ctx, key).Result()
			require.NoError(t, err)
			delete(fields, "server")
			delete(fields, "seen")
			delete(fields, "at")
			delete(fields, "since")
			if len(fields) > 0 {
				all[key] = fields
			}
		case "set":
			members, err := plain.SMembers(ctx, key).Result()
			require.NoError(t, err)
			slices.Sort(members)
			all[key] = members
		case "stream":
			all[key] = entries(t, plain, key)
		case "zset":
			members, err := plain.ZRange(ctx, key, 0, -1).Result()
			require.NoError(t, err)
			all[key] = members
		case "string":
			value, err := plain.Get(ctx, key).Result()
			require.NoError(t, err)
			all[key] = value
		default:
			t.Fatalf("key %s is a %s", key, kind)
		}
	}
	return all
}

// only returns the part of what is stored whose keys contain part.
func (s stored) only(part string) stored {
	s = maps.Clone(s)
	maps.DeleteFunc(s, func(key string, _ any) bool { return !strings.Contains(key, part) })
	return s
}

// entries returns a stream as its "id run" lines, without the times of the runs.
func entries(t testing.TB, plain *redis.Client, key string) []string {
	t.Helper()
	messages, err := plain.XRange(t.Context(), key, "-", "+").Result()
	require.NoError(t, err)
	lines := []string{}
	for _, m := range messages {
		run, _ := m.Values["run"].(string)
		if words := strings.SplitN(run, " ", 3); words[0] == "likes" || words[0] == "claims" {
			run = words[2]
		}
		lines = append(lines, m.ID+" "+run)
	}
	return lines
}

// fold returns who likes what after every event of a shard's outbox, and fails if the numbers have a hole.
func fold(t require.TestingT, ctx context.Context, plain *redis.Client, shard int) map[models.Target]map[int64]bool {
	messages, err := plain.XRange(ctx, outboxKey(shard), "-", "+").Result()
	require.NoError(t, err)
	likes := map[models.Target]map[int64]bool{}
	var last models.Position
	for i, m := range messages {
		p, err := models.ParsePosition(m.ID)
		require.NoError(t, err)
		events, err := models.Run(m.Values["run"].(string)).Events(shard, shards)
		require.NoError(t, err)
		follows := p.Follows(last) || p.Seq == 0 && events[0].Type == models.ShardOpened && events[0].After == last
		require.True(t, i == 0 || follows, "%s comes after %s", p, last)
		last = p
		for _, e := range events {
			if e.Type == models.ShardOpened {
				continue
			}
			if likes[e.Target()] == nil {
				likes[e.Target()] = map[int64]bool{}
			}
			likes[e.Target()][e.UserID] = e.Liked()
		}
	}
	return likes
}

// countTrips counts what is sent to Redis from now on: single commands and pipelines.
func countTrips(t testing.TB, r *Redis) *atomic.Int64 {
	t.Helper()
	// The first pipeline makes a connection of its own, which asks for the role of the server.
	_, err := r.client.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Ping(t.Context()).Err() })
	require.NoError(t, err)
	for _, script := range r.script { // none is sent twice
		require.NoError(t, script.Load(t.Context(), r.client).Err())
	}
	trips := &roundTrips{}
	r.client.AddHook(trips)
	return &trips.n
}

type roundTrips struct{ n, commands atomic.Int64 }

func (c *roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (c *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		c.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// ofOneShard returns what a script of the gate replied to a call of one shard.
func ofOneShard(reply *redis.Cmd) ([]any, error) {
	shards, err := reply.Slice()
	if err != nil {
		return nil, err
	}
	if err, failed := shards[0].(error); failed {
		return nil, err
	}
	return shards[0].([]any), nil
}

// numbers is ofOneShard for the script of likes. The id of the installation, which these shards lack, counts as 0.
func numbers(reply *redis.Cmd) ([]int64, error) {
	values, err := ofOneShard(reply)
	list := make([]int64, len(values))
	for i, value := range values {
		list[i], _ = value.(int64)
	}
	return list, err
}
