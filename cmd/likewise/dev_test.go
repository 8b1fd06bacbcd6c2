//go:build dev

package main

import (
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

var (
	devURL   = regexp.MustCompile(`API +(http://\S+)/v1/posts\n`)
	devStop  = regexp.MustCompile(`Stop it with Ctrl-C`)
	devForum = regexp.MustCompile(`forum +(http://localhost:\d+)\n`)
	devLogin = regexp.MustCompile(`login +admin, password (\S+) `)
)

// startDev starts `likewise dev` on dir and returns its URL once it has said all.
func startDev(t *testing.T, dir string, args ...string) (*process, string) {
	t.Helper()
	p := start(t, nil, append([]string{"dev", "--data", dir}, args...)...)
	p.awaitPrint(devStop)
	// After a kill, shards open slowly, because the locks of the killed relay still stand. No job takes that for a
	// missing worker and helps.
	assert.NotContains(t, p.stderr.String(), "no worker does")
	assert.Equal(t, 1, strings.Count(p.stderr.String(), `msg="shards are open" opened=16`), p.stderr)
	return p, p.awaitPrint(devURL)
}

// devEnv reads dev.env as a shell does.
func devEnv(t *testing.T, dir string) []string {
	t.Helper()
	shell := exec.Command("sh", "-c", `set -a; . "$1"; env`, "sh", filepath.Join(dir, "dev.env"))
	shell.Env = []string{"PATH=" + os.Getenv("PATH")} // without the settings of this test run
	out, err := shell.Output()
	require.NoError(t, err)
	var env []string
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, "LIKEWISE_") {
			env = append(env, line)
		}
	}
	require.Len(t, env, 5)
	return env
}

// awaitNobody waits until no process has dir in its arguments or environment.
func awaitNobody(t *testing.T, dir string) {
	t.Helper()
	testkit.Eventually(t, patience, func() (bool, string) {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(t, err)
		for _, cmdline := range files {
			args, _ := os.ReadFile(cmdline) // it may have ended since
			environ, _ := os.ReadFile(filepath.Join(filepath.Dir(cmdline), "environ"))
			if strings.Contains(string(args)+string(environ), dir) {
				return false, "still running: " + strings.ReplaceAll(string(args), "\x00", " ")
			}
		}
		return true, ""
	})
}

func TestDev_listensForAdminOnLoopback(t *testing.T) {
	t.Parallel()
	checkAdminListen(t, map[string]any{
		"dev": devCmd{}, "cron": cronServeCmd{}, "api": apiCmd{}, "worker": workerCmd{}, "web": webCmd{},
	})
}

func TestDev_checksOrigins(t *testing.T) {
	t.Parallel()
	said := fail(t, 2, nil, "dev", "--cors-origins=*,https://forum.example")
	assert.Contains(t, said, "--cors-origins (or $LIKEWISE_CORS_ORIGINS): origin ")
}

// Nothing is delivered: each mail is a file, and the pages show it to this machine alone.
func TestDev_showsMails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, url := startDev(t, dir, "--empty")
	forum := dev.awaitPrint(devForum)
	assert.Contains(t, dev.stdout.String(), "mails      "+forum+"/dev/mail (also in "+filepath.Join(dir, "mail")+")\n")
	key := filepath.Join(dir, "secret.key")
	info, err := os.Stat(key)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	made, err := os.ReadFile(key)
	require.NoError(t, err)

	call(t, url, account{}, "POST", "/v1/auth/password-reset", obj{"email": "admin@likewise.example"},
		http.StatusAccepted, nil)
	var files []string
	testkit.Eventually(t, patience, func() (bool, string) {
		files, err = filepath.Glob(filepath.Join(dir, "mail", "*.eml"))
		require.NoError(t, err)
		return len(files) == 1, "no mail"
	})
	get := func(path, host string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, forum+path, nil)
		require.NoError(t, err)
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	status, page := get("/dev/mail", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, page, filepath.Base(files[0]))
	status, page = get("/dev/mail/"+filepath.Base(files[0]), "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, page, `<a href="`+forum+`/reset?token=`)
	for _, path := range []string{"/dev/mail", "/dev/mail/" + filepath.Base(files[0])} {
		status, page = get(path, "evil.example")
		assert.Equal(t, http.StatusForbidden, status)
		assert.NotContains(t, page, "token")
	}

	dev.stop()
	dev, _ = startDev(t, dir)
	again, err := os.ReadFile(key)
	require.NoError(t, err)
	assert.Equal(t, string(made), string(again), "the key stays, so that links do")
	dev.stop()
}

func TestDev_keepsItsDataWhateverEndsIt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a folder's name") // that a shell must be told carefully
	dev, url := startDev(t, dir, "--empty")
	password := devLogin.FindStringSubmatch(dev.stdout.String())
	require.NotNil(t, password, "the first start shows the password")
	var session struct {
		User struct {
			ID   int64
			Role string
		}
		Token string
	}
	call(
		t,
		url,
		account{},
		"POST",
		"/v1/auth/login",
		obj{"login": "admin", "password": password[1]},
		http.StatusOK,
		&session,
	)
	assert.Equal(t, "admin", session.User.Role)
	admin := account{session.User.ID, session.Token}
	post := newPost(t, url, admin)
	comment := newComment(t, url, admin, post)
	assert.Equal(t, likeJSON{true, 1}, like(t, url, admin, post.path(), true))
	assert.Equal(t, likeJSON{true, 1}, like(t, url, admin, likedComment(comment).path, true))

	env := devEnv(t, dir)
	adminURL := ""
	assert.Contains(t, env, "LIKEWISE_API="+url)
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "LIKEWISE_ADMIN_URL="); ok {
			adminURL = value
		}
	}
	assert.Equal(t, dev.admin(), adminURL)
	awaitReady(t, adminURL, "ok", http.StatusOK)
	assert.Positive(t, scrape(t, adminURL)["likewise_http_requests_total"])
	info, err := os.Stat(filepath.Join(dir, "dev.env"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it holds a password")
	users := readTokens(t, succeed(t, env, "user", "token", "--count=20"), 20)
	readTokens(t, succeed(t, env, "user", "token", "admin"), 1)
	succeed(t, env, "cron", "run", "flush")
	assert.Contains(
		t,
		succeed(t, env, "verify"),
		"compared 1 posts and 1 comments with 2 likes, 2 of them with Redis: 0 differences",
	)

	// A second one on the same folder or the same address says so, and does no harm.
	assert.Contains(t, fail(t, 1, nil, "dev", "--data", dir), "is in use by another process")
	assert.Contains(
		t,
		fail(t, 1, nil, "dev", "--data", t.TempDir(), "--listen", strings.TrimPrefix(url, "http://")),
		"--listen (or $LIKEWISE_LISTEN): listen: ",
	)
	taken := "127.0.0.1" + strings.TrimPrefix(dev.awaitPrint(devForum), "http://localhost")
	assert.Regexp(
		t,
		`--web \(or \$LIKEWISE_WEB_LISTEN\): listen: .*address already in use`,
		fail(t, 1, nil, "dev", "--data", t.TempDir(), "--web", taken),
	)
	assert.Equal(t, likeJSON{true, 2}, like(t, url, users[1], post.path(), true))
	assert.Equal(t, env, devEnv(t, dir))

	dev.stop()
	awaitNobody(t, dir)

	dev, url = startDev(t, dir)
	assert.NotContains(t, dev.stdout.String(), "password ")
	var seen contentJSON
	call(t, url, users[1], "GET", post.path(), nil, http.StatusOK, &seen)
	assert.Equal(t, int64(2), seen.LikesCount)
	assert.Equal(t, int64(1), seen.CommentsCount)
	assert.True(t, seen.Liked)

	// Killed while users like, each one post after the other. Redis syncs each write first: with everysec, which is the
	// setting of dev, it may lose what it acknowledged while a sync was slow.
	syncEachWrite(t, devEnv(t, dir))
	posts := []contentJSON{newPost(t, url, admin), newPost(t, url, admin), newPost(t, url, admin)}
	type key struct {
		post int64
		user int64
	}
	acknowledged, mayBe := map[key]bool{}, map[key]bool{}
	var mu sync.Mutex
	var answered atomic.Int64
	var clients sync.WaitGroup
	for _, as := range users {
		clients.Go(func() {
			for {
				p, set := posts[rand.IntN(len(posts))], rand.IntN(2) == 0
				r, err := send(t, url, as, likeMethod(set), p.path()+"/like", nil)
				mu.Lock()
				k := key{p.ID, as.id}
				if err != nil {
					mayBe[k] = set
					mu.Unlock()
					return
				}
				acknowledged[k] = set
				mu.Unlock()
				assert.Equal(t, http.StatusOK, r.status, "%s", r)
				answered.Add(1)
			}
		})
	}
	testkit.Eventually(t, patience, func() (bool, string) {
		return answered.Load() >= 500, fmt.Sprintf("%d likes are answered", answered.Load())
	})
	holdRelayLocks(t, devEnv(t, dir))
	dev.Kill()
	clients.Wait()
	awaitNobody(t, dir)

	dev, url = startDev(t, dir)
	env = devEnv(t, dir)
	succeed(t, env, "cron", "run", "flush")
	assert.Contains(t, succeed(t, env, "verify"), " 0 differences,")
	for _, p := range posts {
		var liking int64
		for _, as := range users {
			call(t, url, as, "GET", p.path(), nil, http.StatusOK, &seen)
			if seen.Liked {
				liking++
			}
			k := key{p.ID, as.id}
			if maybe, unknown := mayBe[k]; unknown && maybe == seen.Liked {
				continue
			}
			assert.Equal(t, acknowledged[k], seen.Liked, "post %d, user %d", p.ID, as.id)
		}
		assert.Equal(t, liking, seen.LikesCount)
	}
	dev.stop()
	awaitNobody(t, dir)
}

// holdRelayLocks lets the relay's locks stand for a while after its end, so that the next relay opens the shards
// slowly.
func holdRelayLocks(t *testing.T, env []string) {
	t.Helper()
	client := openRedis(t, env)
	keys, err := client.Keys(t.Context(), "*relay*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 16)
	for _, key := range keys {
		require.NoError(t, client.PExpire(t.Context(), key, 8*time.Second).Err())
	}
}

// openRedis connects to the Redis of env.
func openRedis(t *testing.T, env []string) *redis.Client {
	t.Helper()
	for _, v := range env {
		if url, ok := strings.CutPrefix(v, "LIKEWISE_REDIS="); ok {
			options, err := redis.ParseURL(url)
			require.NoError(t, err)
			client := redis.NewClient(options)
			t.Cleanup(func() { client.Close() })
			return client
		}
	}
	t.Fatal("the settings name no redis")
	return nil
}

// syncEachWrite makes the Redis of env sync each write before it replies.
func syncEachWrite(t *testing.T, env []string) {
	t.Helper()
	require.NoError(t, openRedis(t, env).ConfigSet(t.Context(), "appendfsync", "always").Err())
}

// The first start on a folder writes the sample, and a start after one that was stopped writes what is left of it.
func TestDev_beginsWithASampleForum(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	dev, url := startDev(t, dir)
	said := dev.stdout.String()
	assert.True(t, strings.HasSuffix(strings.TrimSpace(said), "Stop it with Ctrl-C."), "the greeting is last: %s", said)
	pages := dev.awaitPrint(devForum)
	assert.Contains(t, said, "Open "+pages+" in a browser.")
	assert.Less(t, strings.Index(said, pages), strings.Index(said, url), "the forum is first")
	front, err := http.Get(pages)
	require.NoError(t, err)
	defer front.Body.Close()
	page, err := io.ReadAll(front.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, front.StatusCode)
	assert.Contains(t, string(page), `href="/posts/`, "the sample is on the front page")
	lead, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/", nil)
	require.NoError(t, err)
	lead.Header.Set("Accept", "text/html")
	led, err := http.DefaultTransport.RoundTrip(lead)
	require.NoError(t, err)
	led.Body.Close()
	assert.Equal(t, pages+"/", led.Header.Get("Location"))
	assert.Contains(t, said, "import stackexchange DIR")
	assert.NotContains(t, dev.stderr.String(), "shard is open")
	password := devLogin.FindStringSubmatch(said)
	require.NotNil(t, password)
	kept, err := os.ReadFile(filepath.Join(dir, "admin.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(kept), "username: admin\npassword: "+password[1]+"\n")
	info, err := os.Stat(filepath.Join(dir, "admin.txt"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	env := devEnv(t, dir)
	forum := func() map[string]int {
		succeed(t, env, "cron", "run", "flush")
		assert.Contains(t, succeed(t, env, "verify"), ": 0 differences")
		found := map[string]int{}
		db := openDSN(t, env)
		for _, table := range []string{
			"users", "posts", "comments", "post_likes", "comment_likes", "drops", "claims", "reports", "notifications",
			"follows",
		} {
			var n int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
			found[table] = n
		}
		return found
	}
	first := forum()
	assert.Equal(t, 13, first["users"], "with the administrator")
	assert.Equal(t, 20, first["posts"])
	assert.Equal(t, 1, first["drops"])
	assert.Equal(t, 3, first["claims"])
	assert.Equal(t, 1, first["reports"])
	for _, table := range []string{"comments", "post_likes", "comment_likes", "notifications", "follows"} {
		assert.Positive(t, first[table], table)
	}
	assert.Contains(t, succeed(t, env, "cron", "run", "rings"), "found 0 rings")
	assert.NotContains(t, dev.stderr.String(), "ring found", "people of the sample are suspected")
	var session struct{ User struct{ Role string } }
	in := obj{"login": "grace", "password": password[1]}
	call(t, url, account{}, "POST", "/v1/auth/login", in, http.StatusOK, &session)
	assert.Equal(t, "moderator", session.User.Role)

	// As if the first start had been stopped before its end.
	_, err = openDSN(t, env).ExecContext(t.Context(), `
		DELETE FROM imports
		WHERE source='sample' AND kind='state' AND external_id=2`)
	require.NoError(t, err)
	dev.stop()
	assert.Contains(t, dev.stdout.String(), "Likewise has stopped.")
	dev, _ = startDev(t, dir)
	env = devEnv(t, dir)
	assert.Contains(t, dev.stdout.String(), "jo: the same password")
	assert.Equal(t, first, forum(), "nothing is written twice")
	dev.stop()
}

// openDSN connects to the database of env.
func openDSN(t *testing.T, env []string) *sql.DB {
	t.Helper()
	for _, v := range env {
		if dsn, ok := strings.CutPrefix(v, "LIKEWISE_MYSQL_DSN="); ok {
			db, err := sql.Open("mysql", dsn)
			require.NoError(t, err)
			t.Cleanup(func() { db.Close() })
			return db
		}
	}
	t.Fatal("the settings name no database")
	return nil
}

// A page that a developer serves from any port of this machine may use the API.
func TestDev_answersPagesOfThisMachine(t *testing.T) {
	t.Parallel()
	dev, url := startDev(t, filepath.Join(t.TempDir(), "data"), "--empty")
	for origin, allowed := range map[string]bool{
		"http://localhost:5173": true, "http://127.0.0.1:3000": true, "https://localhost": true,
		"http://app.localhost:8000": true, "http://[::1]:4200": true,
		"https://forum.example": false, "http://localhost.forum.example": false, "http://192.0.2.1:3000": false,
		"null": false,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, url+"/v1/posts", nil)
		require.NoError(t, err)
		request.Header.Set("Origin", origin)
		request.Header.Set("Access-Control-Request-Method", "POST")
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		answer.Body.Close()
		want := ""
		if allowed {
			want = origin
		}
		assert.Equal(t, want, answer.Header.Get("Access-Control-Allow-Origin"), origin)
	}

	// The name of any other host may have been made to lead here after its page was loaded.
	metrics := dev.awaitPrint(regexp.MustCompile(`metrics +(http://\S+)\n`))
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:8080": 200, "127.0.0.1:1": 200, "[::1]:8080": 200, "app.localhost": 200,
		"forum.example": 403, "forum.example:8080": 403, "127.0.0.1.forum.example": 403, "localhost.forum.example": 403,
	} {
		for _, url := range []string{url + "/v1/posts", url + "/docs", metrics} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			require.NoError(t, err)
			request.Host = host
			answer, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			answer.Body.Close()
			assert.Equal(t, status, answer.StatusCode, "%s at %s", host, url)
		}
	}
	dev.stop()
}

func TestDev_isStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	dev := start(t, nil, "dev", "--data", dir)
	testkit.Eventually(t, patience, func() (bool, string) {
		_, err := os.Stat(filepath.Join(dir, "redis", "pid"))
		return err == nil, "no server has been started"
	})
	dev.term()
	dev.await()
	awaitNobody(t, dir)
}
