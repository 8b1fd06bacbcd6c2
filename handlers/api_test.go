package handlers_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/handlers/markdown"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/webhooks"
	"likewise/workers"
)

func TestMain(m *testing.M) {
	handlers.HashCheaply() // the tests of signin and of the program use the production cost
	testkit.Main(m)
}

// mode is a way of storing likes. The suite expects the same behaviour of each.
type mode struct {
	name string
	// parts returns the parts of an API on store. What runs behind the API, in processes of its own on a real site, is
	// on behind.
	parts func(t *testing.T, store, behind *db.DB) parts
}

var modes = []mode{
	{"direct", func(_ *testing.T, store, _ *db.DB) parts {
		metrics := workers.NewMetrics()
		return parts{
			likes: likes.New(store), ids: counters.NewIDs(nil, store), desk: workers.NewDesk(store, nil, nil),
			releaser: workers.NewReleaser(store, nil, nil, metrics), settle: func() {},
		}
	}},
	{"gated", gated},
}

// parts are the parts of the API's Config that depend on the mode, and what runs behind the API.
type parts struct {
	likes    handlers.Likes
	gate     counters.TargetGate // nil in direct mode
	claims   *counters.Claims    // nil in direct mode
	ids      *counters.IDs
	edition  *counters.Edition // nil in direct mode
	peers    *counters.Peers   // nil in direct mode
	desk     *workers.Desk
	releaser *workers.Releaser
	settle   func() // returns when MySQL holds every acknowledged like and claim
}

// use sets the parts.
func (p parts) use(c *handlers.Config) {
	behindGate(p.likes, p.gate)(c)
	c.Claims, c.IDs, c.Desk, c.Edition, c.Peers = p.claims, p.ids, p.desk, p.edition, p.peers
}

// eachMode runs the test once in each mode, on a database of its own.
func eachMode(t *testing.T, test func(t *testing.T, a *api), changes ...func(*handlers.Config)) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { test(t, newAPI(t, m, changes...)) })
	}
}

// api is a served API with its store, and a client of it.
type api struct {
	*handlers.Server
	store    *db.DB
	url      string
	client   *http.Client
	settle   func()
	releaser *workers.Releaser // of newAPI
	mode     string
	log      *logBuffer
	sent     *sentStatements // of newAPI and newScripted
	admin    http.Handler    // as on the admin listener
}

// newAPI serves an API with an empty database until the test ends. Changes come after the defaults.
func newAPI(t *testing.T, m mode, changes ...func(*handlers.Config)) *api {
	t.Helper()
	dsn := testkit.Database(t)
	store, sent := openRecorded(t, dsn)
	parts := m.parts(t, store, openStore(t, dsn))
	a := serve(t, store, append([]func(*handlers.Config){parts.use}, changes...)...)
	a.sent = sent
	a.settle, a.releaser, a.mode = parts.settle, parts.releaser, m.name
	a.compress(parts.gate != nil)
	return a
}

// compress sets whether the client requests gzip and decompresses it, which takes several times as long as the answer
// itself under the race detector. The clients of newAPI do so in gated mode alone.
func (a *api) compress(on bool) { a.client.Transport.(*http.Transport).DisableCompression = !on }

// behindGate sets the likes, and the gate in which the store closes deleted targets; nil means direct mode.
func behindGate(likes handlers.Likes, gate counters.TargetGate) func(*handlers.Config) {
	return func(c *handlers.Config) {
		c.Likes = likes
		c.Store.CloseDeletedWith(counters.NewTargets(c.Store, gate).Close)
	}
}

func openStore(t *testing.T, dsn string) *db.DB {
	t.Helper()
	store, err := db.Open(t.Context(), dsn, db.Options{
		Excerpt: markdown.NewParser().Excerpt, Describe: webhooks.Describe,
	})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

// serve serves an API, in direct mode unless changed, until the test ends.
func serve(t *testing.T, store *db.DB, changes ...func(*handlers.Config)) *api {
	t.Helper()
	log := &logBuffer{}
	config := handlers.Config{
		Store: store, Likes: likes.New(store), IDs: counters.NewIDs(nil, store), Desk: workers.NewDesk(store, nil, nil),
		Registry: prometheus.NewRegistry(),
		Logger:   slog.New(slog.NewJSONHandler(log, nil)), PublicURL: "https://forum.example",
		// On a busy machine under the race detector, 50 requests that queue for one row take longer than the 10 s of
		// production.
		Timeout: time.Minute,
	}
	for _, change := range changes {
		change(&config)
	}
	server, err := handlers.New(config)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shut down: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the API:\n%s", log.tail())
		}
	})
	return &api{
		Server: server, store: store, url: "http://" + ln.Addr().String(), settle: func() {}, log: log,
		admin: handlers.Admin(handlers.AdminConfig{Registry: config.Registry, Logger: config.Logger}),
		client: &http.Client{
			Transport: transport, Timeout: 90 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// tail returns the last lines, after the lines of earlier errors.
func (l *logBuffer) tail() string {
	lines := strings.Split(l.String(), "\n")
	last := max(0, len(lines)-20)
	var kept []string
	for _, line := range lines[:last] {
		if strings.Contains(line, `"level":"ERROR"`) {
			kept = append(kept, line)
		}
	}
	return strings.Join(append(kept[max(0, len(kept)-20):], lines[last:]...), "\n")
}

// account is a user with a token; the zero account is anonymous.
type account struct {
	ID    int64
	Name  string
	Token string
}

var made atomic.Int64

func (a *api) account(t *testing.T) account {
	t.Helper()
	name := "user" + strconv.FormatInt(made.Add(1), 10)
	user := &models.User{Username: name, Email: name + models.NoEmailDomain}
	require.NoError(t, accounts.New(a.store).CreateUser(t.Context(), user))
	return account{user.ID, name, a.session(t, user.ID)}
}

// session opens a session of a user whose password seems to have been entered in it just now, whatever the clock says.
func (a *api) session(t *testing.T, userID int64) string {
	t.Helper()
	token, err := accounts.New(a.store).CreateSession(t.Context(), userID)
	require.NoError(t, err)
	a.proveAt(t, token, "2037-01-01")
	return token
}

// proveAt sets the time at which the password was entered in a session, and waits for nothing: the session must not be
// cached.
func (a *api) proveAt(t *testing.T, token string, at any) {
	t.Helper()
	hash := models.HashToken(token)
	// In hexadecimal: MySQL cannot list a statement with other bytes among those that run.
	a.exec(t, "UPDATE sessions SET proven_at=? WHERE token_hash=UNHEX(?)", at, hex.EncodeToString(hash[:]))
}

func (a *api) accounts(t *testing.T, n int) []account {
	t.Helper()
	list := make([]account, n)
	for i := range list {
		list[i] = a.account(t)
	}
	return list
}

// metrics returns all metrics of the API, in Prometheus's format.
func (a *api) metrics(t *testing.T) string {
	t.Helper()
	answer := httptest.NewRecorder()
	a.admin.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("/metrics answers %d %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

type obj = map[string]any

// reply is a complete answer.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.Status, r.Body) }

func (r reply) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		t.Fatalf("%v in %s", err, r)
	}
}

// header changes a request.
type header struct{ name, value string }

// send sends a request. A nil body is none, a string is sent unchanged, and other values are sent as JSON.
func (a *api) send(t testing.TB, as account, method, path string, body any, headers ...header) reply {
	t.Helper()
	r, err := a.try(as, method, path, body, headers...)
	require.NoError(t, err)
	return r
}

// try is send without a test. It returns an error for an exchange that violates openapi.yaml.
func (a *api) try(as account, method, path string, body any, headers ...header) (reply, error) {
	var sent []byte
	switch b := body.(type) {
	case nil:
	case string:
		sent = []byte(b)
	default:
		var err error
		if sent, err = json.Marshal(b); err != nil {
			return reply{}, err
		}
	}
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(sent)
	}
	req, err := http.NewRequest(method, a.url+path, content)
	if err != nil {
		return reply{}, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if as.Token != "" {
		req.Header.Set("Authorization", "Bearer "+as.Token)
	}
	for _, h := range headers {
		req.Header.Set(h.name, h.value)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	raw, err := readBody(resp)
	if err != nil {
		return reply{}, err
	}
	r := reply{resp.StatusCode, resp.Header, raw}
	contract, err := spec()
	if err != nil {
		return reply{}, err
	}
	if err := contract.check(req, sent, r); err != nil {
		return reply{}, fmt.Errorf("%s %s, answered with %s, breaks the contract: %w", method, path, r, err)
	}
	return r, nil
}

// readBody is io.ReadAll with a buffer of the length that the answer declares.
func readBody(resp *http.Response) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(max(0, resp.ContentLength)) + bytes.MinRead)
	_, err := body.ReadFrom(resp.Body)
	return body.Bytes(), err
}

// must sends a request and fails unless it is answered with the status.
func (a *api) must(t testing.TB, status int, as account, method, path string, body any, headers ...header) reply {
	t.Helper()
	r := a.send(t, as, method, path, body, headers...)
	if r.Status != status {
		t.Fatalf("%s %s: got %s, want %d", method, path, r, status)
	}
	return r
}

// problem is an error as a client decodes it.
type problem struct {
	Type, Title, Detail, Code string
	Status                    int
	RequestID                 string `json:"request_id"`
	Errors                    []fieldError
	Version                   *int64
}

type fieldError struct {
	Field, Code, Message string
	Params               obj
}

// refused sends a request, fails unless it is answered with a complete problem of this status and code, and returns it.
func (a *api) refused(t testing.TB, status int, code string, as account, method, path string, body any,
	headers ...header) (problem, reply) {
	t.Helper()
	r := a.must(t, status, as, method, path, body, headers...)
	var p problem
	r.into(t, &p)
	if got := r.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("%s %s: the problem has the type %q", method, path, got)
	}
	if p.Status != status || p.Code != code || p.Type == "" || p.Title == "" || p.Detail == "" || p.RequestID == "" {
		t.Errorf("%s %s: %s, want code %s and every member", method, path, r, code)
	}
	if p.RequestID != r.Header.Get("X-Request-Id") {
		t.Errorf("%s %s: request_id %q, but the header has %q", method, path, p.RequestID, r.Header.Get("X-Request-Id"))
	}
	return p, r
}

// refusedField is refused for a problem that names the field.
func (a *api) refusedField(t testing.TB, status int, code, field string, as account, method, path string, body any,
	headers ...header) {
	t.Helper()
	p, r := a.refused(t, status, code, as, method, path, body, headers...)
	if len(p.Errors) != 1 || p.Errors[0].Field != field || p.Errors[0].Code == "" {
		t.Errorf("%s %s: %s, want the field %s named", method, path, r, field)
	}
}

// post and comment are content as a client decodes it.
type post struct {
	ID            int64
	Author        struct{ ID, Username any }
	Title         string
	Content       string
	ContentHTML   string `json:"content_html"`
	LikesCount    int64  `json:"likes_count"`
	CommentsCount int64  `json:"comments_count"`
	Liked         bool
	Status        string
	Version       int64
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
}

type comment struct {
	ID           int64
	PostID       int64  `json:"post_id"`
	ParentID     *int64 `json:"parent_id"`
	Author       *struct{ Username string }
	Content      string
	ContentHTML  string `json:"content_html"`
	LikesCount   int64  `json:"likes_count"`
	RepliesCount int64  `json:"replies_count"`
	Liked        bool
	Status       string
	Version      int64
}

type like struct {
	Liked      bool
	LikesCount int64 `json:"likes_count"`
}

type page[T any] struct {
	Items      []T
	NextCursor *string `json:"next_cursor"`
}

func read[T any](t testing.TB, r reply) T {
	t.Helper()
	var v T
	r.into(t, &v)
	return v
}

func (a *api) newPost(t testing.TB, as account) post {
	t.Helper()
	return read[post](t, a.must(t, 201, as, "POST", "/v1/posts", obj{"title": "A title", "content": "Some *content*."}))
}

func (a *api) newComment(t testing.TB, as account, postID int64) comment {
	t.Helper()
	return read[comment](t, a.must(t, 201, as, "POST", fmt.Sprintf("/v1/posts/%d/comments", postID),
		obj{"content": "A comment."}))
}

func (a *api) newReply(t testing.TB, as account, parentID int64) comment {
	t.Helper()
	return read[comment](t, a.must(t, 201, as, "POST", fmt.Sprintf("/v1/comments/%d/replies", parentID),
		obj{"content": "A reply."}))
}

// number returns the number that a query selects.
func (a *api) number(t testing.TB, query string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := a.store.Pool().QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// together calls f(0) to f(n-1) concurrently and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}
