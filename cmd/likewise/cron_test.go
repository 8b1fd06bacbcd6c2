package main

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

func TestJobs_runOnceAndOnSchedule(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	users := s.accounts(3)
	_, url := s.api()
	worker := s.start("worker")
	s.awaitOpen()
	metrics := worker.admin()
	assert.Contains(t, scrape(t, metrics), "likewise_relay_shards")
	succeed(t, nil, "healthcheck", metrics+"/healthz")
	post := likedPost(newPost(t, url, users[0]))
	like(t, url, users[0], post.path, true)
	assert.Equal(t, "every like accepted so far is in MySQL\n", s.succeed("cron", "run", "flush"))
	assert.Len(t, s.rows(post), 1)

	// Without a worker, flush relays and writes itself.
	worker.stop()
	like(t, url, users[0], post.path, false)
	like(t, url, users[1], post.path, true)
	like(t, url, users[2], post.path, true)
	assert.Len(t, s.rows(post), 1, "nobody can have written them")
	s.succeed("cron", "run", "flush")
	assert.Equal(t, map[int64]bool{users[1].id: true, users[2].id: true}, s.rows(post))
	s.succeed("cron", "run", "flush")

	assert.Equal(t, "cooled 0 targets, 1 stay warm\n", s.succeed("cron", "run", "cool"))
	assert.Equal(t, "sent 0 likes again, probed 0 shards\n", s.succeed("cron", "run", "reconcile"))
	s.exec("UPDATE sessions SET expires_at='2020-02-02 02:02:02' WHERE user_id=?", users[2].id)
	s.exec("UPDATE posts SET terms_version=0")
	assert.Equal(t, "indexed 1 posts and 0 comments, made 0 excerpts\n", s.succeed("cron", "run", "index"),
		"the API has made it")
	s.exec("UPDATE posts SET excerpt='', excerpt_version=0")
	assert.Equal(t, "indexed 0 posts and 0 comments, made 1 excerpts\n", s.succeed("cron", "run", "index"))
	assert.Equal(t, 1, s.count("SELECT COUNT(*) FROM posts WHERE excerpt<>''"))
	assert.Equal(t, "withdrew 0 likes, 0 requests are done\n", s.succeed("cron", "run", "void"))
	assert.Equal(t, "closed 0 posts, comments and drops\n", s.succeed("cron", "run", "close"))
	assert.Regexp(t, `^read \d+ likes, found 0 rings\n$`, s.succeed("cron", "run", "rings"))
	assert.Equal(
		t,
		"deleted 1 expired sessions, 0 idempotency keys, 0 old events of the security log, "+
			"0 held names, 0 old mails, 0 old notifications, 0 old deliveries to webhooks, 0 read marks and 0 drafts\n",
		s.succeed("cron", "run", "purge"),
	)
	assert.Contains(t, fail(t, 2, s.env, "cron", "run", "dance"), "must be one of")
	assert.Contains(
		t,
		fail(t, 1, s.env, "cron", "run", "cool", "--cool-after=1s"),
		"--cool-after must be at least 5m0s",
	)
	assert.Contains(t, fail(t, 1, s.env, "cron", "run", "cool", "--mysql-conns=3"), "--mysql-conns must be at least 4")

	cron := s.start("cron", "--log-level=debug")
	metrics = cron.admin()
	for _, job := range []string{"flush", "cool", "reconcile", "purge"} {
		cron.awaitPrint(regexp.MustCompile(`"cron job done" job=` + job + ` `))
	}
	assert.Equal(t, 1.0, scrape(t, metrics)["likewise_warm_targets"])
	succeed(t, nil, "healthcheck", metrics+"/healthz")
	cron.stop()
	s.verify()
}

func TestVerify_findsAndRepairsASpoiledCount(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	users := s.accounts(2)
	_, url := s.api()
	s.start("worker")
	s.awaitOpen()
	content := newPost(t, url, users[0])
	post, comment := likedPost(content), likedComment(newComment(t, url, users[1], content))
	for _, as := range users {
		like(t, url, as, post.path, true)
		like(t, url, as, comment.path, true)
	}
	s.verify()
	s.exec("UPDATE posts SET likes_count=7")
	s.exec("DELETE FROM comment_likes WHERE user_id=?", users[0].id)
	s.exec("UPDATE comments SET likes_count=1")
	for range 2 { // looking changes nothing
		r := finish(t, s.env, "verify")
		assert.Equal(t, 1, r.status)
		assert.Contains(t, r.stdout, fmt.Sprintf("post:%d: likes_count is 7 and there are 2 rows\n", post.id))
		assert.Contains(
			t,
			r.stdout,
			fmt.Sprintf(
				"comment:%d: Redis has 2 users and MySQL 1; they differ in 1, such as user %d\n",
				comment.id,
				users[0].id,
			),
		)
		assert.Contains(
			t,
			r.stdout,
			"compared 1 posts and 1 comments with 3 likes, 2 of them with Redis: "+
				"2 differences, 0 repaired, 0 undecided\n",
		)
	}
	assert.Contains(t, s.succeed("verify", "--repair"), "2 differences, 2 repaired")
	s.verify()
	assert.Len(t, s.rows(post), 2)
	assert.Len(t, s.rows(comment), 2, "an acknowledged like is brought back")
}

func TestImport_goesThroughTheGateOfARunningSite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, url := s.api()
	s.start("worker")
	s.awaitOpen()
	const dump = "stackexchange/testdata/quantumcomputing.stackexchange"
	first := s.succeed("import", "stackexchange", dump)
	s.verify()
	counts := func() [5]int {
		var n [5]int
		for i, table := range []string{"users", "posts", "comments", "post_likes", "comment_likes"} {
			n[i] = s.count("SELECT COUNT(*) FROM " + table)
			assert.Positive(t, n[i], "%s", table)
		}
		return n
	}
	imported := counts()
	var list struct{ Items []contentJSON }
	call(t, url, account{}, "GET", "/v1/posts?sort=top&limit=1", nil, http.StatusOK, &list)
	require.Len(t, list.Items, 1)
	assert.Equal(t, int64(s.count("SELECT MAX(likes_count) FROM posts")), list.Items[0].LikesCount)

	// The columns are: read, created, already present, skipped.
	row := regexp.MustCompile(
		`(?m)^ *(users|posts|comments|post likes|comment likes) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) *$`,
	)
	second := s.succeed("import", "stackexchange", dump)
	for _, out := range []string{first, second} {
		require.Len(t, row.FindAllString(out, -1), 5, out)
	}
	for _, match := range row.FindAllStringSubmatch(second, -1) {
		assert.Equal(t, "0", match[3], "created by the second import: %s", match[1])
	}
	s.verify()
	assert.Equal(t, imported, counts())
	assert.Equal(t, 2, finish(t, s.env, "import", "stackexchange", "/nowhere").status)
	assert.Contains(t, fail(t, 1, s.env, "import", "stackexchange", t.TempDir()), "Users.xml")
}

// After SIGTERM, requests in progress are answered. Then the process exits with status 0, within seconds.
func TestAPI_answersRequestsInProgressWhenItIsStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start("worker")
	s.awaitOpen()
	users := s.accounts(20)
	api, url := s.api()
	post := newPost(t, url, users[0])
	like(t, url, users[5], post.path(), true) // warm, so that likes need no MySQL from here on

	// Some clients like on persistent connections until the listener is closed.
	var liking [10]chan string
	for i := range liking {
		liking[i] = make(chan string, 1)
		go func() {
			for n := 0; ; n++ {
				r, err := send(t, url, users[5+i], likeMethod(n%2 == 0), post.path()+"/like", nil)
				switch {
				case err != nil && strings.Contains(err.Error(), "connection refused"):
					liking[i] <- "" // it was never sent
					return
				case err != nil:
					liking[i] <- fmt.Sprintf("request %d: %v", n, err)
					return
				case r.status != http.StatusOK:
					liking[i] <- r.String()
					return
				}
			}
		}()
	}
	testkit.Eventually(t, patience, func() (bool, string) {
		return strings.Count(api.stderr.String(), "/like status=200") > 50, "nobody likes"
	})
	// A lock in MySQL delays other requests, which are in progress once their statements wait for it. They have 10 s,
	// so the lock is acquired last.
	conn, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "LOCK TABLES posts WRITE")
	require.NoError(t, err)
	posted := make(chan reply, 5)
	for i := range cap(posted) {
		go func() {
			r, err := send(t, url, users[i], "POST", "/v1/posts", obj{"title": "Late", "content": "text"})
			assert.NoError(t, err)
			posted <- r
		}()
	}
	testkit.Eventually(t, patience, func() (bool, string) {
		n := s.count(`
			SELECT COUNT(*)
			FROM information_schema.processlist
			WHERE db=DATABASE() AND state LIKE 'Waiting for table%' AND info LIKE 'INSERT INTO posts%'`)
		return n == cap(posted), fmt.Sprintf("%d requests wait for the lock", n)
	})
	api.term()
	api.awaitPrint(regexp.MustCompile("api stops"))
	_, err = conn.ExecContext(context.Background(), "UNLOCK TABLES")
	require.NoError(t, err)
	unlocked := time.Now()
	assert.Zero(t, api.await(), "exit status")
	assert.Less(t, time.Since(unlocked), 10*time.Second)
	for range cap(posted) {
		assert.Equal(t, http.StatusCreated, (<-posted).status)
	}
	for i := range liking {
		assert.Empty(t, <-liking[i])
	}
	s.verify()
}
