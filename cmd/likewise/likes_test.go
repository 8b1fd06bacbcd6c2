package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// cluster is a site with two processes of the API and two workers.
type cluster struct {
	*site
	urls    [2]string
	admins  [2]string // of the same processes
	workers [2]*process
	users   []account
}

func newCluster(t *testing.T, users int) *cluster {
	t.Helper()
	c := &cluster{site: newSite(t)}
	c.users = c.accounts(users)
	for i := range c.workers {
		c.workers[i] = c.start("worker")
		var p *process
		p, c.urls[i] = c.api()
		c.admins[i] = p.admin()
	}
	c.awaitOpen()
	return c
}

// url returns the URL of one of the APIs, at random.
func (c *cluster) url() string { return c.urls[rand.IntN(len(c.urls))] }

// atOnce calls fn n times at the same time and waits.
func atOnce(n int, fn func(i int)) {
	var running sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		running.Go(func() {
			<-begin
			fn(i)
		})
	}
	close(begin)
	running.Wait()
}

// liked is a post or comment, with the table of its likes.
type liked struct {
	path          string // such as /v1/posts/1
	table, column string
	targets       string
	id            int64
}

func likedPost(p contentJSON) liked {
	return liked{p.path(), "post_likes", "post_id", "posts", p.ID}
}

func likedComment(c contentJSON) liked {
	return liked{fmt.Sprintf("/v1/comments/%d", c.ID), "comment_likes", "comment_id", "comments", c.ID}
}

// rows returns the users who like it in MySQL, after comparing the count with their number.
func (s *site) rows(l liked) map[int64]bool {
	s.t.Helper()
	rows, err := s.db.QueryContext(context.Background(), "SELECT user_id FROM "+l.table+" WHERE "+l.column+"=?", l.id)
	require.NoError(s.t, err)
	defer rows.Close()
	users := map[int64]bool{}
	for rows.Next() {
		var id int64
		require.NoError(s.t, rows.Scan(&id))
		users[id] = true
	}
	require.NoError(s.t, rows.Err())
	require.Equal(
		s.t,
		len(users),
		s.count("SELECT likes_count FROM "+l.targets+" WHERE id=?", l.id),
		"likes_count of %s and its rows",
		l.path,
	)
	return users
}

func TestLikes_ofOneUserRaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 60)
	post := newPost(t, c.url(), c.users[0])
	targets := []liked{likedPost(post), likedComment(newComment(t, c.url(), c.users[0], post))}
	for _, target := range targets {
		var answers [50]reply
		atOnce(len(answers), func(i int) {
			var err error
			answers[i], err = send(t, c.urls[i%2], c.users[1], "PUT", target.path+"/like", nil)
			assert.NoError(t, err)
		})
		for _, a := range answers {
			assert.Equal(t, `200 {"liked":true,"likes_count":1}`, a.String())
		}
	}
	c.succeed("cron", "run", "flush")
	for _, target := range targets {
		assert.Equal(t, map[int64]bool{c.users[1].id: true}, c.rows(target))
	}
	for round := range 5 {
		atOnce(100, func(i int) {
			target, as, set := targets[i%2], c.users[1], rand.IntN(2) == 0
			if i < 20 {
				as, set = c.users[10+i], false // who never liked it
			}
			r, err := send(t, c.url(), as, likeMethod(set), target.path+"/like", nil)
			assert.NoError(t, err)
			assert.Contains(t, []string{
				fmt.Sprintf(`200 {"liked":%t,"likes_count":0}`, set),
				fmt.Sprintf(`200 {"liked":%t,"likes_count":1}`, set),
			}, r.String())
		})
		c.succeed("cron", "run", "flush")
		for _, target := range targets {
			rows := c.rows(target)
			assert.Contains(t, []map[int64]bool{{}, {c.users[1].id: true}}, rows, "round %d of %s", round, target.path)
			var seen contentJSON
			call(t, c.url(), c.users[1], "GET", target.path, nil, http.StatusOK, &seen)
			assert.Equal(t, int64(len(rows)), seen.LikesCount)
			assert.Equal(t, len(rows) == 1, seen.Liked)
		}
	}
	c.verify()
}

// Both workers are killed and started again in turn while 200 users like and unlike.
func TestLikes_endInTheirLastAcknowledgedStateWhileWorkersAreKilled(t *testing.T) {
	t.Parallel()
	const users, commenters, kills, phase = 200, 40, 4, 3
	c := newCluster(t, users)
	post := newPost(t, c.url(), c.users[0])
	targets := []liked{likedPost(post), likedComment(newComment(t, c.url(), c.users[0], post))}
	for _, target := range targets {
		c.exec("UPDATE "+target.targets+" SET updated_at='2020-02-02 02:02:02' WHERE id=?", target.id)
	}

	// The possible states of each user's like: both after an unknown outcome.
	may := make([][2]map[bool]bool, users)
	var unknown, answered atomic.Int64
	var restarted [kills]chan struct{}
	for n := range restarted {
		restarted[n] = make(chan struct{})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		atOnce(users, func(i int) {
			may[i] = [2]map[bool]bool{{false: true}, {false: true}}
			for round := range phase * (kills + 1) {
				if n := round / phase; n > 0 {
					<-restarted[n-1] // or nobody would be liking at the last kills
				}
				kind, set := 0, rand.IntN(2) == 0
				if i < commenters {
					kind = rand.IntN(2)
				}
				r, err := send(t, c.url(), c.users[i], likeMethod(set), targets[kind].path+"/like", nil)
				switch {
				case err != nil || r.status >= 500:
					unknown.Add(1)
					may[i][kind][set] = true
				case r.status == http.StatusOK:
					answered.Add(1)
					may[i][kind] = map[bool]bool{set: true}
				default:
					t.Errorf("a like is answered %s", r)
				}
			}
		})
	}()
	for n := range kills {
		testkit.Eventually(t, patience, func() (bool, string) {
			got := answered.Load() + unknown.Load()
			return got >= int64(users*(phase*n+1)), fmt.Sprintf("%d likes are answered", got)
		})
		c.workers[n%2].Kill()
		c.workers[n%2] = c.start("worker")
		c.workers[n%2].awaitPrint(regexp.MustCompile(`"worker runs"`))
		close(restarted[n])
	}
	<-done
	t.Logf("%d likes answered, %d unknown", answered.Load(), unknown.Load())
	c.verify()
	for kind, target := range targets {
		rows := c.rows(target)
		for i, as := range c.users {
			assert.True(
				t,
				may[i][kind][rows[as.id]],
				"user %d, %s: liked is %t in MySQL, and may be %v",
				as.id,
				target.path,
				rows[as.id],
				may[i][kind],
			)
		}
		var seen contentJSON
		call(t, c.url(), account{}, "GET", target.path, nil, http.StatusOK, &seen)
		assert.Equal(t, int64(len(rows)), seen.LikesCount)
		assert.Equal(
			t,
			1,
			c.count(
				"SELECT COUNT(*) FROM "+target.targets+" WHERE version=0 AND updated_at='2020-02-02 02:02:02' AND id=?",
				target.id,
			),
			"likes touch neither version nor updated_at of %s",
			target.path,
		)
	}
	assert.Zero(t, c.count("SELECT COUNT(*) FROM like_gaps"))
	assert.Zero(t, c.count("SELECT COUNT(*) FROM dead_letters"))
	c.holdMetrics(answered.Load())
}

// holdMetrics checks the metrics of all processes, on a settled site with the given number of answered likes.
func (c *cluster) holdMetrics(answered int64) {
	t := c.t
	t.Helper()
	var workers []string
	for _, w := range c.workers {
		url := w.admin()
		call(t, url, account{}, "GET", "/healthz", nil, http.StatusOK, nil)
		workers = append(workers, url)
	}
	// The gauges are up to five seconds old.
	testkit.Eventually(t, patience, func() (bool, string) {
		sum := map[string]float64{}
		for _, url := range workers {
			for name, value := range scrape(t, url) {
				sum[name] += value
			}
		}
		for name, want := range map[string]float64{
			"likewise_relay_shards": 16, "likewise_writer_partitions": 16, "likewise_shard_open": 2 * 16,
			"likewise_outbox_events": 0, "likewise_outbox_oldest_seconds": 0, "likewise_writer_lag_events": 0,
			"likewise_gaps_open": 0, "likewise_gaps_total": 0, "likewise_dead_letters": 0,
			"likewise_writer_lag_seconds": 0,
		} {
			got, there := sum[name]
			if !there || got != want {
				return false, fmt.Sprintf("%s is %v (there: %t), not %v", name, got, there, want)
			}
		}
		return true, ""
	})
	changed, calls, requests := 0.0, 0.0, 0.0
	for _, url := range c.admins {
		m := scrape(t, url)
		changed += m[`likewise_gate_total{outcome="changed"}`]
		calls += m[`likewise_gate_total{outcome="changed"}`] + m[`likewise_gate_total{outcome="unchanged"}`]
		for name, value := range m {
			if strings.HasPrefix(name, "likewise_http_requests_total{") && strings.Contains(name, `/like"`) &&
				strings.Contains(name, `status="200"`) {
				requests += value
			}
		}
	}
	assert.GreaterOrEqual(t, calls, float64(answered))
	assert.Equal(t, float64(answered), requests, "requests by route")
	assert.Positive(t, changed)
}

// scrape reads /metrics. It returns each sample by its name and labels, and the sum of the samples of each name.
func scrape(t testing.TB, url string) map[string]float64 {
	t.Helper()
	r, err := send(t, url, account{}, "GET", "/metrics", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.status)
	samples := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(r.body)); lines.Scan(); {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || i < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[i+1:], 64)
		require.NoError(t, err, "%s", line)
		name, _, labelled := strings.Cut(line[:i], "{")
		samples[name] += value
		if labelled {
			samples[line[:i]] = value
		}
	}
	return samples
}
