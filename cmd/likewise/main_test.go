package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/images"
	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/migrations"
	"likewise/models/db"
)

// envRun makes the test binary be the product, so that what the tests start has the race detector when they have.
const envRun = "LIKEWISE_TEST_RUN"

func TestMain(m *testing.M) {
	images.ServeApart()
	if os.Getenv(envRun) != "" {
		main()
		return
	}
	testkit.Main(m)
}

// patience bounds every wait for a condition. It is long, for busy machines.
const patience = 300 * time.Second

// process is a process of the product. It is killed at the end of the test.
type process struct {
	t              *testing.T
	name           string
	stdout, stderr *printed
	*servers.Process
}

// printed has the output of a process so far.
type printed struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// start starts `likewise args` with env and with the variables that choose servers, and no other environment. Listeners
// have free ports unless env sets their addresses.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startCommand(t, env, exec.Command(testBinary(), args...))
}

func startCommand(t *testing.T, env []string, cmd *exec.Cmd) *process {
	t.Helper()
	return startCommandWith(t, env, cmd, nil)
}

// startCommandWith is startCommand with another standard error, unless stderr is nil.
func startCommandWith(t *testing.T, env []string, cmd *exec.Cmd, stderr *os.File) *process {
	t.Helper()
	p := &process{
		t:      t,
		name:   "likewise " + strings.Join(cmd.Args[1:], " "),
		stdout: &printed{},
		stderr: &printed{},
	}
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	if stderr != nil {
		cmd.Stderr = stderr
	}
	cmd.Env = []string{envRun + "=1", "LIKEWISE_LISTEN=127.0.0.1:0", "LIKEWISE_ADMIN_LISTEN=127.0.0.1:0",
		"LIKEWISE_WEB_LISTEN=127.0.0.1:0",
		"LIKEWISE_LIMITS=0", // all clients have one address
		"LIKEWISE_DRAIN=0s"} // no proxy has to notice
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LIKEWISE_") || strings.HasPrefix(v, "LIKEWISE_SERVERS_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// The race detector would keep a process that has ended well for a second.
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	var err error
	p.Process, err = servers.Spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		p.inspect(cmd.Env)
		if t.Failed() {
			t.Logf("%s (status %d) printed\n%s%s", p.name, p.status(), tail(p.stdout.String()), tail(p.stderr.String()))
		}
	})
	return p
}

// tail returns the end of the output, without the successful requests.
func tail(s string) string {
	const lines = 40
	list := slices.DeleteFunc(strings.SplitAfter(s, "\n"), func(line string) bool {
		return strings.Contains(line, "level=INFO msg=request ")
	})
	if len(list) > lines {
		list = append([]string{"…\n"}, list[len(list)-lines:]...)
	}
	return strings.Join(list, "")
}

// inspect checks that the process printed no passwords of its environment, no data races and no panics.
func (p *process) inspect(env []string) {
	p.t.Helper()
	all := p.stdout.String() + p.stderr.String()
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if name != "LIKEWISE_MYSQL_DSN" {
			continue
		}
		if c, err := mysql.ParseDSN(value); err == nil && c.Passwd != "" && strings.Contains(all, c.Passwd) {
			p.t.Errorf("%s printed its database password", p.name)
		}
	}
	for _, bad := range []string{"WARNING: DATA RACE", "panic:", "fatal error:", "msg=panic"} {
		if i := strings.Index(all, bad); i >= 0 {
			p.t.Errorf("%s printed %s", p.name, all[i:min(len(all), i+4000)])
		}
	}
}

// await waits for the exit and returns its status.
func (p *process) await() int {
	p.t.Helper()
	select {
	case <-p.Exited():
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	return p.status()
}

// status returns the exit status of a process that has ended; -1 if a signal ended it.
func (p *process) status() int { return p.State().ExitCode() }

// term sends SIGTERM.
func (p *process) term() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
}

// stop sends SIGTERM, and checks that the process exits with status 0.
func (p *process) stop() {
	p.t.Helper()
	p.term()
	require.Zero(p.t, p.await(), "exit status of %s", p.name)
}

// awaitPrint waits until the output of the process matches the pattern, and returns the first group.
func (p *process) awaitPrint(pattern *regexp.Regexp) string {
	p.t.Helper()
	var found string
	testkit.Eventually(p.t, patience, func() (bool, string) {
		select {
		case <-p.Exited():
			p.t.Fatalf("%s ended with status %d", p.name, p.status())
		default:
		}
		match := pattern.FindStringSubmatch(p.stdout.String() + p.stderr.String())
		if match == nil {
			return false, p.name + " has not printed " + pattern.String()
		}
		found = match[len(match)-1]
		return true, ""
	})
	return found
}

var (
	apiAddress   = regexp.MustCompile(`"?api serves"? .*address=(\S+)`)
	adminAddress = regexp.MustCompile(`"?admin listens"? .*address=(\S+)`)
)

// result is the result of a command.
type result struct {
	status         int
	stdout, stderr string
}

// admin returns the URL of the process's admin listener.
func (p *process) admin() string {
	p.t.Helper()
	return "http://" + p.awaitPrint(adminAddress)
}

// finish runs `likewise args`, and waits until it has ended.
func finish(t *testing.T, env []string, args ...string) result {
	t.Helper()
	p := start(t, env, args...)
	status := p.await()
	return result{status, p.stdout.String(), p.stderr.String()}
}

// succeed runs `likewise args`, which must succeed, and returns its standard output.
func succeed(t *testing.T, env []string, args ...string) string {
	t.Helper()
	r := finish(t, env, args...)
	require.Zero(t, r.status, "exit status of likewise %v: %s", args, r.stderr)
	return r.stdout
}

// fail runs `likewise args`, which must exit with the status, and returns its standard error.
func fail(t *testing.T, status int, env []string, args ...string) string {
	t.Helper()
	r := finish(t, env, args...)
	require.Equal(t, status, r.status, "exit status of likewise %v: %s%s", args, r.stdout, r.stderr)
	return r.stderr
}

// site is an installation of the product: its settings, and connections to inspect its servers.
type site struct {
	t   *testing.T
	env []string
	db  *sql.DB
	url string // of Redis
}

// newSite returns a site with an empty database on the shared servers.
func newSite(t *testing.T) *site {
	t.Helper()
	r := testkit.Redis(t)
	brokers, topic := testkit.Topic(t)
	return makeSite(t, testkit.Database(t), fmt.Sprintf("redis://%s/%d", r.Addr, r.DB), brokers, topic)
}

// ownSite returns a site on servers that the test may kill.
func ownSite(t *testing.T) (*site, *servers.All) {
	t.Helper()
	all := testkit.Servers(t)
	return siteOn(t, all), all
}

// siteOn returns a site on servers that have none.
func siteOn(t *testing.T, all *servers.All) *site {
	t.Helper()
	dsn, err := all.MySQL.Migrate(t.Context(), "likewise")
	require.NoError(t, err)
	dsn, err = db.DSN(dsn)
	require.NoError(t, err)
	return makeSite(t, dsn, all.Redis.URL(), all.Kafka.Brokers(), "likes")
}

func makeSite(t *testing.T, dsn, url string, brokers []string, topic string) *site {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return &site{t: t, db: db, url: url, env: []string{
		"LIKEWISE_MYSQL_DSN=" + dsn, "LIKEWISE_REDIS=" + url, "LIKEWISE_KAFKA=" + strings.Join(brokers, ","),
		"LIKEWISE_TOPIC=" + topic,
	}}
}

func (s *site) start(args ...string) *process {
	s.t.Helper()
	return start(s.t, s.env, args...)
}

func (s *site) succeed(args ...string) string {
	s.t.Helper()
	return succeed(s.t, s.env, args...)
}

// api starts a process of the API, and returns it with its URL.
func (s *site) api(args ...string) (*process, string) {
	s.t.Helper()
	p := s.start(append([]string{"api"}, args...)...)
	return p, "http://" + p.awaitPrint(apiAddress)
}

// awaitOpen waits until every shard accepts likes. A worker must be running.
func (s *site) awaitOpen() {
	s.t.Helper()
	r, err := counters.Open(s.url, migrations.DefaultShards)
	require.NoError(s.t, err)
	defer r.Close()
	testkit.Eventually(s.t, patience, func() (bool, string) {
		infos, err := r.ShardInfos(context.Background())
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

func (s *site) exec(query string, args ...any) {
	s.t.Helper()
	_, err := s.db.ExecContext(context.Background(), query, args...)
	require.NoError(s.t, err)
}

func (s *site) count(query string, args ...any) int {
	s.t.Helper()
	var n int
	require.NoError(s.t, s.db.QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

// verify flushes, and checks that the site has no differences.
func (s *site) verify() {
	s.t.Helper()
	s.succeed("cron", "run", "flush", "--timeout=2m")
	require.Contains(s.t, s.succeed("verify"), " 0 differences,")
}

// accounts creates n users with tokens.
func (s *site) accounts(n int) []account {
	s.t.Helper()
	list := readTokens(s.t, s.succeed("user", "token", "--count", fmt.Sprint(n)), n)
	s.exec("UPDATE sessions SET proven_at='2037-01-01'") // as if all had entered their passwords just now
	return list
}

// testBinary returns the absolute path of this program.
func testBinary() string {
	path, err := os.Executable()
	if err != nil {
		panic(err) // there is always one on Linux
	}
	return path
}
