package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"

	"likewise/models/accounts"
)

// measurePipeline measures how fast likes of all accounts get through the gate into MySQL, against the same rows in
// plain batches of INSERT and with LOAD DATA, and the memory of the likes in Redis against a plain set.
func (b *bench) measurePipeline(ctx context.Context) error {
	const through, inserts, warm = "gate to MySQL, end to end", "plain batches of INSERT", "memory of a warm post"
	into := func(name, unit, against string, value float64) {
		b.add(&b.report.Pipeline, figure{Name: name, Unit: unit, Against: against, Value: value})
	}
	target, err := b.gated.createPost(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.likeAll(ctx, target, b.gated.customers); err != nil {
		return err
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	gate := float64(b.Users) / time.Since(began).Seconds()
	if err := b.gated.checkLikes(ctx, target.ID, target.ID, int64(b.Users)); err != nil {
		return err
	}
	post, err := b.redisMemory(ctx, fmt.Sprintf("{s*}:post:%d:likes*", target.ID))
	if err != nil {
		return err
	}
	pipe := b.redis.Pipeline()
	for _, id := range b.gated.customers {
		pipe.SAdd(ctx, "bench:plain", id)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("fill plain set: %w", err)
	}
	plain, err := b.redisMemory(ctx, "bench:plain")
	if err != nil {
		return err
	}
	inserted, err := b.insertPlainly(ctx)
	if err != nil {
		return err
	}
	loaded, err := b.loadPlainly(ctx)
	if err != nil {
		return err
	}
	into(inserts, "rows/s", "", inserted)
	b.add(&b.report.Pipeline, figure{
		Name: "LOAD DATA", Unit: "rows/s", Against: inserts, Value: loaded, Loose: true, // it measures MySQL alone
	})
	b.add(&b.report.Pipeline, figure{
		Name: through, Unit: "likes/s", Against: inserts, Value: gate, Loose: true, // a single short run
	})
	into(warm, "bytes/like", "", float64(post)/float64(b.Users))
	into("memory of a plain set", "bytes/like", warm, float64(plain)/float64(b.Users))
	return nil
}

// insertPlainly writes as many likes as there are accounts into a copy of post_likes, 2,000 in each statement and
// transaction. Any writer in batches must do at least that.
func (b *bench) insertPlainly(ctx context.Context) (rowsPerSecond float64, err error) {
	const batch = 2000
	pool := b.gated.store.Pool()
	if _, err := pool.ExecContext(ctx, "CREATE TABLE bench_inserted LIKE post_likes"); err != nil {
		return 0, fmt.Errorf("create table: %w", err)
	}
	began := time.Now()
	for start := 0; start < b.Users; start += batch {
		var rows []string
		for _, id := range b.gated.customers[start:min(start+batch, b.Users)] {
			rows = append(rows, fmt.Sprintf("(1,%d)", id))
		}
		insert := "INSERT INTO bench_inserted (post_id, user_id) VALUES " + strings.Join(rows, ",")
		if _, err := pool.ExecContext(ctx, insert); err != nil {
			return 0, fmt.Errorf("insert: %w", err)
		}
	}
	return float64(b.Users) / time.Since(began).Seconds(), nil
}

// loadPlainly does the same with LOAD DATA.
func (b *bench) loadPlainly(ctx context.Context) (rowsPerSecond float64, err error) {
	if _, err := b.gated.store.Pool().ExecContext(ctx, "CREATE TABLE bench_loaded LIKE post_likes"); err != nil {
		return 0, fmt.Errorf("create table: %w", err)
	}
	began := time.Now()
	err = b.gated.load(ctx, "bench_loaded", "post_id, user_id", b.Users, func(w io.Writer, i int) {
		fmt.Fprintf(w, "1\t%d\n", b.gated.customers[i])
	})
	return float64(b.Users) / time.Since(began).Seconds(), err
}

// redisMemory returns the bytes that the keys of a pattern take in Redis.
func (b *bench) redisMemory(ctx context.Context, pattern string) (int64, error) {
	var sum int64
	keys := b.redis.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		n, err := b.redis.MemoryUsage(ctx, keys.Val(), 0).Result() // 0: of every member
		if err != nil {
			return 0, fmt.Errorf("read memory: %w", err)
		}
		sum += n
	}
	if err := keys.Err(); err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return sum, nil
}

// lagPoll is how often MySQL is asked for new rows, and so the resolution of the lag.
const lagPoll = 2 * time.Millisecond

// measureLag measures the time from the answer to a like until another connection sees its row: for likes of one client
// and at half of the rate that the API can answer.
func (b *bench) measureLag(ctx context.Context) error {
	alone, err := b.lag(ctx, "one client, closed loop", min(b.Likes, 500), func(j *job) (schedule, error) {
		j.clients = 1
		return closedLoop(j.total, 0), nil
	})
	if err != nil {
		return err
	}
	loaded, err := b.lag(ctx, "open loop at half of what the API can answer", b.Likes, func(j *job) (schedule, error) {
		highest, err := b.capacity(ctx, hotToggled)
		return openLoop(j.total, highest/2), err
	})
	b.report.Lag = append(b.report.Lag, alone, loaded)
	return err
}

// lag sends likes of a new post, each by another user, and waits for their rows.
func (b *bench) lag(ctx context.Context, name string, likes int, plan func(*job) (schedule, error)) (lag, error) {
	target, err := b.gated.createPost(ctx)
	if err != nil {
		return lag{}, err
	}
	tokens, err := accounts.New(b.gated.store).CreateSessions(ctx, b.gated.customers[:likes])
	if err != nil {
		return lag{}, err
	}
	// Seen and answered are in microseconds from began on, by the number of the account.
	seen, answered := make([]int64, likes), make([]atomic.Int64, likes)
	path := postPath(target.ID) + "/like"
	var began time.Time
	j := &job{
		api:     b.production,
		clients: b.Clients,
		total:   likes,
		request: func(t turn, r *fasthttp.Request) {
			r.Header.SetMethod(fasthttp.MethodPut)
			authorize(r, tokens[t.i])
			r.SetRequestURI(path)
		},
		answered: func(t turn, at time.Time) { answered[t.i].Store(at.Sub(began).Microseconds()) },
	}
	due, err := plan(j)
	if err != nil {
		return lag{}, err
	}
	began = time.Now()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() { watched <- b.watchRows(watching, target.ID, seen, began) }()
	if _, err := j.run(ctx, due); err != nil {
		return lag{}, err
	}
	if err := <-watched; err != nil {
		return lag{}, err
	}
	latencies := newLatencies()
	for i := range likes {
		// A row may be seen before its answer is read.
		if err := latencies.RecordValue(max(1, seen[i]-answered[i].Load())); err != nil {
			return lag{}, fmt.Errorf("lag: %w", err)
		}
	}
	return newLag(name, latencies), nil
}

// watchRows polls the likes of a post until all accounts have one, and notes when it saw each.
func (b *bench) watchRows(ctx context.Context, postID int64, seen []int64, began time.Time) error {
	const patience = time.Minute
	poll := time.NewTicker(lagPoll)
	defer poll.Stop()
	last, left, progress := int64(0), len(seen), time.Now()
	for left > 0 {
		users, to, err := b.newRows(ctx, postID, last)
		if err != nil {
			return fmt.Errorf("watch rows: %w", err)
		}
		now := time.Now()
		for _, user := range users {
			seen[user-b.gated.customers[0]] = now.Sub(began).Microseconds()
			progress = now
		}
		last, left = to, left-len(users)
		if now.Sub(progress) > patience {
			return fmt.Errorf("%d likes have no row after %v", left, patience)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// newRows returns the users of the likes of a post after a row, and the last row.
func (b *bench) newRows(ctx context.Context, postID, after int64) (users []int64, last int64, err error) {
	const query = `
		SELECT id, user_id
		FROM post_likes FORCE INDEX (idx_post_id_desc)
		WHERE post_id=? AND id>?
		ORDER BY id`
	rows, err := b.gated.store.Pool().QueryContext(ctx, query, postID, after)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var user int64
		if err := rows.Scan(&last, &user); err != nil {
			return nil, 0, err
		}
		users = append(users, user)
	}
	return users, last, rows.Err()
}

// newLag keeps some percentiles of a lag.
func newLag(name string, latencies *hdrhistogram.Histogram) lag {
	l := lag{Name: name, latency: newLatency(latencies)}
	for _, percent := range []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.9, 100} {
		l.Percentiles = append(l.Percentiles, percentile{percent, inMS(latencies.ValueAtPercentile(percent))})
	}
	return l
}
