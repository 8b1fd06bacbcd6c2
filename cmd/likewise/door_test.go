package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// drip sends text, and then a piece every half second until the server closes the connection or two minutes have
// passed. It returns the duration and the server's answer.
func drip(address, text, piece string) (took time.Duration, said string, err error) {
	start := time.Now()
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(start.Add(2 * time.Minute)); err != nil {
		return 0, "", err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return 0, "", err
	}
	if piece != "" {
		dripping := time.NewTicker(500 * time.Millisecond)
		defer dripping.Stop()
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			for {
				select {
				case <-dripping.C:
					if _, err := io.WriteString(conn, piece); err != nil {
						return
					}
				case <-ended:
					return
				}
			}
		}()
	}
	answer, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, "", errors.New("the connection is open after two minutes")
	}
	return time.Since(start), string(answer), nil // a reset is an end, too
}

// Hundreds of slow clients are disconnected in bounded time, and do not affect other clients.
func TestSlowClients_areCutOffAndHoldUpNobody(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := []string{s.env[0], "LIKEWISE_LIMITS=1"}
	p := start(t, direct, "api", "--likes=direct")
	url := "http://" + p.awaitPrint(apiAddress)
	address := strings.TrimPrefix(url, "http://")
	const likers = 100 // in turn, because each may like 30 times a minute
	users := readTokens(t, succeed(t, direct, "user", "token", "--count", strconv.Itoa(likers)), likers)
	user := users[0]
	post := newPost(t, url, user)

	const header = "POST /v1/posts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
	body := "\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{\"title\":\"T\",\"content\":\""
	kinds := map[string]struct{ text, piece string }{
		"nothing at all":               {"", ""},
		"half a line":                  {"GET /v1/po", ""},
		"a header by the byte":         {"GET /v1/posts HTTP/1.1\r\nX-A: ", "b"},
		"headers without end":          {"GET /v1/posts HTTP/1.1\r\n", "X-A: b\r\n"},
		"empty lines before a request": {"\r\n", "\r\n"},
		"a body by the byte":           {header + user.token + body, "x"},
		"a body that stops":            {header + user.token + body, ""},
		"chunks without end": {
			header + user.token + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
			"1\r\nx\r\n",
		},
		"a size of a chunk without end": {
			header + user.token + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
			"0",
		},
		"a body that nobody waits for":  {"GET /v1/posts HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n", "x"},
		"more than may be, by the byte": {header + user.token + strings.Replace(body, "60000", "60000000", 1), "x"},
		"a second request that is slow": {"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/posts HT", "T"},
		"a hundred continues, never sent": {
			header + user.token + "\r\nExpect: 100-continue\r\n" +
				"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n",
			"",
		},
	}
	var slow sync.WaitGroup
	for name, kind := range kinds {
		for range 20 {
			slow.Go(func() {
				took, said, err := drip(address, kind.text, kind.piece)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if took > 40*time.Second { // 15 s for the request, 2 s to hear the answer, and a busy machine
					t.Errorf("%s: cut off after %v", name, took)
				}
				if strings.Contains(said, "201 Created") || strings.Contains(said, " 500 ") {
					t.Errorf("%s is answered with %s", name, said)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); slow.Wait() }()
	served := 0
	var slowest time.Duration
	for waiting := true; waiting; {
		begin := time.Now()
		call(t, url, user, "GET", post.path(), nil, 200, nil)
		call(t, url, users[served%likers], "PUT", post.path()+"/like", nil, 200, nil)
		slowest = max(slowest, time.Since(begin))
		served++
		select {
		case <-done:
			waiting = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Logf("%d requests were served meanwhile, the slowest pair in %v", served, slowest)
	assert.Less(t, slowest, 5*time.Second)
	assert.Greater(t, served, 50)
	assert.Equal(t, 1, s.count("SELECT COUNT(*) FROM posts"), "half a request wrote a post")
	p.stop()
}

// More connections than the process has descriptors do not stop the process, and its connections to MySQL stay open.
func TestConnections_beyondTheDescriptorsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := []string{s.env[0], "LIKEWISE_LIMITS=1", "LIKEWISE_MYSQL_CONNS=8"}
	p := startCommand(
		t,
		direct,
		exec.Command("sh", "-c", `ulimit -n 400; exec "$0" "$@"`, testBinary(), "api", "--likes=direct"),
	)
	url := "http://" + p.awaitPrint(apiAddress)
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	for range 600 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		open = append(open, conn)
	}
	refused := map[net.Conn]bool{}
	testkit.Eventually(t, patience, func() (bool, string) {
		for _, conn := range open {
			if refused[conn] {
				continue
			}
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				refused[conn] = true
			}
		}
		return len(refused) >= 400, fmt.Sprintf("%d of %d connections are refused", len(refused), len(open))
	})
	assert.Less(t, len(refused), 600)
	for _, conn := range open {
		conn.Close()
	}
	testkit.Eventually(t, patience, func() (bool, string) {
		r, err := send(t, url, account{}, "GET", "/v1/posts", nil)
		return err == nil && r.status == 200, fmt.Sprint(r, err)
	})
	p.stop()
}

// During a wave of logins, some wait, some are refused with Retry-After, memory stays bounded, and reads are answered.
func TestLogins_byTheHundredsExhaustNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := []string{s.env[0]}
	p := start(t, direct, "api", "--likes=direct")
	url := "http://" + p.awaitPrint(apiAddress)
	call(
		t,
		url,
		account{},
		"POST",
		"/v1/auth/register",
		map[string]string{"username": "ada", "email": "ada@example.org", "password": "difference engine"},
		201,
		nil,
	)
	user := readTokens(t, succeed(t, direct, "user", "token", "--count", "1"), 1)[0]
	post := newPost(t, url, user)
	before := p.resident()
	var logins sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	const clients = 200
	each := testkit.Volume(5, 2) // logins
	for range clients {
		logins.Go(func() {
			for range each {
				r, err := send(
					t,
					url,
					account{},
					"POST",
					"/v1/auth/login",
					map[string]string{"login": "ada", "password": "wrong"},
				)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				statuses[r.status]++
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); logins.Wait() }()
	var took []time.Duration
	var highest int
	for waiting := true; waiting; {
		begin := time.Now()
		call(t, url, account{}, "GET", post.path(), nil, 200, nil)
		took = append(took, time.Since(begin))
		highest = max(highest, p.resident())
		select {
		case <-done:
			waiting = false
		case <-time.After(5 * time.Millisecond):
		}
	}
	slices.Sort(took)
	t.Logf(
		"answers %v; memory grew from %d to %d MB; %d reads meanwhile, median %v, slowest %v",
		statuses,
		before>>20,
		highest>>20,
		len(took),
		took[len(took)/2],
		took[len(took)-1],
	)
	assert.Equal(t, clients*each, statuses[401]+statuses[503])
	assert.Positive(t, statuses[401])
	assert.Less(t, highest-before, 300<<20, "200 hashes at once would take 3.8 GB")
	assert.Less(t, took[len(took)/2], time.Second)
	p.stop()
}

// resident returns the resident memory of the process, in bytes.
func (p *process) resident() int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Pid()))
	require.NoError(p.t, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	require.NoError(p.t, err)
	return pages * os.Getpagesize()
}

func TestSettings_ofTheDoorAreChecked(t *testing.T) {
	t.Parallel()
	const dsn, redis = "--mysql-dsn=u:correct-horse@tcp(127.0.0.1:1)/db", "--redis=redis://127.0.0.1:1/0"
	for args, want := range map[string]string{
		"--limits=-1":  "--limits (or $LIKEWISE_LIMITS) must be a number from 0 up",
		"--limits=NaN": "--limits (or $LIKEWISE_LIMITS) must be a number from 0 up",
		"--trusted-proxies=0.0.0.0/0": `--trusted-proxies (or $LIKEWISE_TRUSTED_PROXIES): ` +
			`"0.0.0.0/0" includes every address`,
		"--trusted-proxies=10.0.0.0/8,proxy":   `"proxy" is neither an address nor a network`,
		"--trusted-proxies=10.0.0.1/8":         "did you mean 10.0.0.0/8?",
		"--limits=1 --trusted-proxies=bogus/8": `"bogus/8" is neither an address nor a network`,
	} {
		assert.Contains(t, fail(t, 2, nil, append([]string{"api", dsn, redis}, strings.Fields(args)...)...), want, args)
	}
}

// The roles of production refuse servers on other machines with well-known passwords. Servers on this machine may
// belong to a developer.
func TestPasswords_wellKnownOnesAreRefused(t *testing.T) {
	t.Parallel()
	const strong = "likewise:9f8e7d6c5b4a@tcp(db.internal:3306)/forum"
	const far = "redis://:9f8e7d6c5b4a@cache.internal:6379/0"
	for _, dsn := range []string{
		"likewise@tcp(db.internal:3306)/forum",
		"likewise:likewise@tcp(10.0.0.5)/forum",
		"app:App@tcp(db.internal)/forum",
		"app:forum@tcp(db.internal)/forum",
		"root:root@tcp([2001:db8::1]:3306)/forum",
		"app:Password@tcp(db.internal)/forum",
		"app:changeme@tcp(db.internal)/forum",
	} {
		for _, role := range []string{
			"api --likes=direct",
			"cron --likes=direct",
			"api --redis=" + far,
			"worker --kafka=k:9092 --redis=" + far,
			"cron run purge --kafka=k:9092 --redis=" + far,
		} {
			said := fail(t, 2, nil, append(strings.Fields(role), "--mysql-dsn="+dsn)...)
			assert.Contains(
				t,
				said,
				"--mysql-dsn (or $LIKEWISE_MYSQL_DSN) has no password, or one that everybody tries first",
			)
		}
	}
	for _, url := range []string{
		"redis://cache.internal:6379/0",
		"redis://:redis@cache.internal",
		"rediss://default:default@10.0.0.9:6380",
		"redis://127.0.0.1:6379/0?master_name=m&addr=10.0.0.9:26379",
		"redis+cluster://:secret@c1.internal:6379?addr=c2.internal:6379",
	} {
		said := fail(t, 2, nil, "api", "--mysql-dsn="+strong, "--redis="+url)
		assert.Contains(t, said, "--redis (or $LIKEWISE_REDIS) has no password, or one that everybody tries first")
		assert.NotContains(t, said, "--mysql-dsn (or")
	}
	// These settings are accepted, and the servers do not exist.
	for _, env := range [][]string{
		{"LIKEWISE_MYSQL_DSN=root:root@tcp(127.0.0.1:1)/forum", "LIKEWISE_REDIS=redis://localhost:1/0"},
		{"LIKEWISE_MYSQL_DSN=root@unix(/nowhere/mysql.sock)/forum", "LIKEWISE_REDIS=redis://[::1]:1/0"},
		{"LIKEWISE_MYSQL_DSN=app:9f8e7d6c5b4a@tcp(192.0.2.1:1)/forum?timeout=100ms", "LIKEWISE_REDIS=" + far},
		{
			"LIKEWISE_MYSQL_DSN=root:root@tcp(192.0.2.1:1)/forum?timeout=100ms",
			"LIKEWISE_REDIS=redis://cache.internal:6379",
			"LIKEWISE_ALLOW_WEAK_PASSWORDS=true",
		},
	} {
		assert.NotContains(t, fail(t, 1, env, "api"), "everybody tries first")
	}
}

// No log level shows secrets, neither of successful requests nor of failed ones.
func TestLogs_holdNoSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const password, wrong, key = "difference-engine-1843", "analytical-engine-1837", "idempotency-key-Zx9"
	env := slices.Concat(s.env, []string{"LIKEWISE_LOG_LEVEL=debug", "LIKEWISE_LIMITS=0.1"})
	worker, api := start(t, env, "worker"), start(t, env, "api")
	url := "http://" + api.awaitPrint(apiAddress)
	s.awaitOpen()
	secrets := []string{
		password,
		wrong,
		key,
		"ada@example.org",
		"confidential-content",
		"confidential-title",
		"argon2",
		"made-up-token",
		"confidential-query",
	}
	request := func(method, path, token, idempotency string, body string) reply {
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		if idempotency != "" {
			req.Header.Set("Idempotency-Key", idempotency)
		}
		response, err := clients.Do(req)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return reply{response.StatusCode, response.Header, string(text)}
	}
	tokens := regexp.MustCompile(`"token":"([^"]+)"`)
	for i := range 30 {
		name := fmt.Sprint("ada", i)
		r := request(
			"POST",
			"/v1/auth/register",
			"",
			key+fmt.Sprint(i),
			fmt.Sprintf(`{"username":%q,"email":"%dada@example.org","password":%q}`, name, i, password),
		)
		if m := tokens.FindStringSubmatch(r.body); m != nil {
			secrets = append(secrets, m[1])
			token := m[1]
			request(
				"POST",
				"/v1/posts",
				token,
				key+"p"+fmt.Sprint(i),
				`{"title":"confidential-title","content":"confidential-content"}`,
			)
			request(
				"POST",
				"/v1/posts",
				token,
				key+"p"+fmt.Sprint(i),
				`{"title":"confidential-title","content":"other"}`,
			)
			request("PUT", "/v1/posts/1/like", token, "", "")
			request(
				"PUT",
				"/v1/me/password",
				token,
				"",
				fmt.Sprintf(`{"current_password":%q,"new_password":%q}`, wrong, password),
			)
			request("POST", "/v1/auth/logout", token, "", "")
			request("GET", "/v1/me", token, "", "")
		}
		request("POST", "/v1/auth/login", "", key, fmt.Sprintf(`{"login":%q,"password":%q}`, name, wrong))
		request(
			"POST",
			"/v1/auth/login",
			"",
			key,
			fmt.Sprintf(`{"login":"%dada@example.org","password":%q}`, i, password),
		)
		request("POST", "/v1/auth/login", "", key, `{"login":"ada","password":"`+wrong)
		request("GET", "/v1/posts?q=confidential-query&cursor=confidential-query", "made-up-token", "", "")
		request(strings.Repeat("B", 5), "/v1/posts/"+wrong, "made-up-token", key, "")
	}
	// From here on every statement about users fails.
	_, err := s.db.ExecContext(context.Background(), "RENAME TABLE users TO users_gone")
	require.NoError(t, err)
	for _, call := range [][2]string{
		{"POST", "/v1/auth/login"},
		{"POST", "/v1/auth/register"},
		{"GET", "/v1/me"},
		{"GET", "/v1/posts"},
	} {
		r := request(
			call[0],
			call[1],
			secrets[len(secrets)-1],
			"",
			fmt.Sprintf(`{"login":"ada@example.org","password":%q}`, password),
		)
		assert.NotContains(t, r.body, "users")
	}
	_, err = s.db.ExecContext(context.Background(), "RENAME TABLE users_gone TO users")
	require.NoError(t, err)
	api.stop()
	worker.stop()
	log := api.stdout.String() + api.stderr.String() + worker.stdout.String() + worker.stderr.String()
	require.Greater(t, strings.Count(log, "msg=request"), 50) // refusals are sampled
	for _, secret := range secrets {
		if i := strings.Index(log, secret); i >= 0 {
			t.Errorf("the log holds %q: %s", secret, log[max(0, i-200):min(len(log), i+100)])
		}
	}
	for _, stored := range s.column("SELECT HEX(token_hash) FROM sessions") {
		assert.NotContains(t, strings.ToUpper(log), stored)
	}
}

// column returns the values of a query with one column.
func (s *site) column(query string) []string {
	s.t.Helper()
	rows, err := s.db.QueryContext(context.Background(), query)
	require.NoError(s.t, err)
	defer rows.Close()
	var values []string
	for rows.Next() {
		var value string
		require.NoError(s.t, rows.Scan(&value))
		values = append(values, value)
	}
	require.NoError(s.t, rows.Err())
	return values
}
