// Package handlers is the JSON API. A handler parses, validates, authorises, acts and replies; it answers an error by
// returning it, and error.go alone decides the status.
//
// Every request has a deadline and an id. Nothing that Fiber hands out (paths, headers, bodies) is kept after the
// handler returns, because Fiber uses the memory again. What is cached here, sessions and rendered Markdown, is a copy
// of MySQL that can be lost at any time.
package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"

	"likewise/models"
)

// Likes is what sets and reads likes: *models.Store in direct mode, *counters.Likes behind the Redis gate.
type Likes interface {
	// SetLike makes the user's like of the target as asked and tells what is. CodeNotFound: the target is deleted or
	// was never there. CodeUnavailable: it is safe to try again.
	SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error)
	// LikeStates gives what viewer (0 for the anonymous) sees of rows, in their order.
	LikeStates(ctx context.Context, viewer int64, rows []models.TargetCount) ([]models.LikeState, error)
}

// TargetGate hears of targets that come and go, so that the gate can open and close them.
type TargetGate interface {
	// OpenTarget is called after a target was created. When it fails the target warms on its first like.
	OpenTarget(ctx context.Context, target models.Target, createdAt time.Time) error
	// CloseTargets is called after the deletion of targets is committed.
	CloseTargets(ctx context.Context, targets []models.Target) error
}

// Config is what the API is made of.
type Config struct {
	Store    *models.Store        // required
	Likes    Likes                // required
	Gate     TargetGate           // nil in direct mode
	Registry *prometheus.Registry // required; /metrics shows everything that is registered in it

	// Ready asks what the API needs besides MySQL, by name, such as "redis". /readyz shows the names to everybody.
	Ready map[string]func(ctx context.Context) error

	Logger *slog.Logger // nil means slog.Default()
	// MaxInFlight is how many requests of /v1 are answered at once; 0 means 512. More are refused at once, so that those
	// that are taken stay quick.
	MaxInFlight int
	MaxStreams  int // streams that are open at once, which do not count as in flight; 0 means 10,000
	// Origins are those whose pages may use the API, exactly as browsers write them; "*" alone means all, none is none.
	Origins []string
	Timeout time.Duration    // for a whole request; 0 means 10 s
	Now     func() time.Time // the clock that ages cached sessions; nil means time.Now
}

// Limits on what a client sends and how long it may take to.
const (
	maxBody        = 64 << 10 // bytes; more is 413
	maxHeader      = 8 << 10  // bytes; more is 431
	requestTimeout = 10 * time.Second
	maxInFlight    = 512
	readTimeout    = 15 * time.Second
	writeTimeout   = 15 * time.Second
	idleTimeout    = 2 * time.Minute
)

// Server is the API. It is safe for concurrent use.
type Server struct {
	app         *fiber.App
	store       *models.Store
	likes       Likes
	gate        TargetGate
	ready       map[string]func(context.Context) error
	log         *slog.Logger
	timeout     time.Duration
	metrics     metrics
	sessions    *sessions
	passwords   *passwords
	idempotency idempotency
	cors        cors
	hub         *hub
	maxStreams  int
	inFlight    atomic.Int64
	most        int64 // of inFlight
	cursors     cursors
	markdown    *markdown

	mu       sync.Mutex
	listener net.Listener
	stopped  bool

	leaving atomic.Bool // every answer closes its connection from now on
}

// New makes the API. An incomplete Config, or a Registry that has an API already, is an error.
func New(c Config) (*Server, error) {
	if c.Store == nil || c.Likes == nil || c.Registry == nil {
		return nil, errors.New("handlers: Config needs Store, Likes and Registry")
	}
	if c.Timeout < 0 || c.MaxInFlight < 0 || c.MaxStreams < 0 {
		return nil, fmt.Errorf("handlers: Config.Timeout (%v), Config.MaxInFlight (%d) or Config.MaxStreams (%d) is negative", c.Timeout, c.MaxInFlight, c.MaxStreams)
	}
	if err := CheckOrigins(c.Origins); err != nil {
		return nil, fmt.Errorf("handlers: Config.Origins: %w", err)
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = maxStreams
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = maxInFlight
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Timeout == 0 {
		c.Timeout = requestTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	metrics, err := newMetrics(c.Registry)
	if err != nil {
		return nil, err
	}
	sessions, err := newSessions(c.Store, c.Now)
	if err != nil {
		return nil, err
	}
	markdown, err := newMarkdown()
	if err != nil {
		return nil, err
	}
	idempotency, err := newIdempotency(c.Store.CursorKey())
	if err != nil {
		return nil, err
	}
	s := &Server{
		most: int64(c.MaxInFlight), idempotency: idempotency, cors: cors{c.Origins}, maxStreams: c.MaxStreams,
		store: c.Store, likes: c.Likes, gate: c.Gate, ready: c.Ready, log: c.Logger, timeout: c.Timeout,
		metrics: metrics, sessions: sessions, passwords: newPasswords(), cursors: cursors{c.Store.CursorKey()}, markdown: markdown,
	}
	if s.hub, err = newHub(c.Registry, c.Logger, s.activities); err != nil {
		return nil, err
	}
	s.app = fiber.New(fiber.Config{
		AppName:               "likewise",
		DisableStartupMessage: true,
		StrictRouting:         true, // one URL for one thing
		CaseSensitive:         true,
		BodyLimit:             maxBody,
		// A form would be read before a handler could say that it wants JSON.
		DisablePreParseMultipartForm: true,
		ReadBufferSize:               maxHeader,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		ErrorHandler:                 s.unread,
	})
	s.app.Server().KeepHijackedConns = true // a stream closes its own
	s.routes(c.Registry)
	// Fiber answers an unknown method itself, in plain text, before any handler; so it never gets to see one.
	serve := s.app.Handler()
	s.app.Server().Handler = func(r *fasthttp.RequestCtx) {
		if slices.Contains(fiber.DefaultMethods, string(r.Method())) {
			serve(r)
			return
		}
		c := s.app.AcquireCtx(r)
		defer s.app.ReleaseCtx(c)
		_ = s.unread(c, fiber.ErrNotImplemented) // it answers, and has no error to give
	}
	return s, nil
}

// routes is every route there is. anyone may call with or without a token, user only with one.
func (s *Server) routes(registry *prometheus.Registry) {
	anyone, user := s.anyone, s.user
	r := s.app
	// A POST can be sent with an Idempotency-Key; what looks at it comes right before the handler.
	post := func(path string, handlers ...fiber.Handler) {
		r.Post(path, slices.Insert(handlers, len(handlers)-1, s.once)...)
	}
	r.Use(s.observe, s.cors.handle, recover.New(recover.Config{EnableStackTrace: true, StackTraceHandler: s.logPanic}))

	r.Get("/healthz", s.alive)
	r.Get("/readyz", s.readiness)
	r.Get("/metrics", adaptor.HTTPHandler(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	r.Get("/openapi.yaml", s.represent, readContract)
	r.Get("/docs", s.represent, readDocs)
	r.Get("/docs/:file", s.represent, readDocsFile)

	r.Use("/v1", s.shed, s.represent)
	r.Get("/v1/stream", anyone, s.openStream)

	post("/v1/auth/register", s.register)
	post("/v1/auth/login", s.login)
	post("/v1/auth/logout", user, s.logout)
	r.Get("/v1/me", user, s.me)
	r.Patch("/v1/me", user, s.editMe)
	r.Delete("/v1/me", user, s.deleteMe)
	r.Put("/v1/me/password", user, s.changePassword)
	r.Get("/v1/me/sessions", user, s.listSessions)
	r.Delete("/v1/me/sessions", user, s.endOtherSessions)
	r.Delete("/v1/me/sessions/:id", user, s.endSession)
	r.Get("/v1/me/blocks", user, s.listBlocks)
	r.Get("/v1/me/likes", user, s.listMyLikes)
	r.Get("/v1/feed", user, s.readFeed)

	r.Get("/v1/users", anyone, s.findUsers)
	r.Get("/v1/users/:id", anyone, s.readUser)
	r.Get("/v1/users/:id/posts", anyone, s.listUserPosts)
	r.Get("/v1/users/:id/comments", anyone, s.listUserComments)
	r.Get("/v1/users/:id/likes", anyone, s.listUserLikes)
	r.Get("/v1/users/:id/followers", anyone, s.listFollowers)
	r.Get("/v1/users/:id/following", anyone, s.listFollowing)
	r.Put("/v1/users/:id/follow", user, s.setFollow(true))
	r.Delete("/v1/users/:id/follow", user, s.setFollow(false))
	r.Put("/v1/users/:id/block", user, s.setBlock(true))
	r.Delete("/v1/users/:id/block", user, s.setBlock(false))

	r.Get("/v1/posts", anyone, s.listPosts)
	post("/v1/posts", user, s.createPost)
	r.Get("/v1/posts/:id", anyone, s.readPost)
	r.Patch("/v1/posts/:id", user, s.editPost)
	r.Delete("/v1/posts/:id", user, s.deletePost)
	post("/v1/posts/:id/restore", user, s.restorePost)
	r.Get("/v1/posts/:id/revisions", anyone, s.listRevisions)
	r.Get("/v1/posts/:id/comments", anyone, s.listComments)
	post("/v1/posts/:id/comments", user, s.createComment)
	r.Get("/v1/posts/:id/thread", anyone, s.readThread)
	r.Put("/v1/posts/:id/like", user, s.setLike(models.KindPost, true))
	r.Delete("/v1/posts/:id/like", user, s.setLike(models.KindPost, false))
	r.Get("/v1/posts/:id/likes", anyone, s.listLikers(models.KindPost))

	r.Get("/v1/tags", anyone, s.listTags)

	r.Get("/v1/comments/:id", anyone, s.readComment)
	r.Patch("/v1/comments/:id", user, s.editComment)
	r.Delete("/v1/comments/:id", user, s.deleteComment)
	r.Get("/v1/comments/:id/ancestors", anyone, s.readAncestors)
	r.Get("/v1/comments/:id/replies", anyone, s.listReplies)
	post("/v1/comments/:id/replies", user, s.createReply)
	r.Put("/v1/comments/:id/like", user, s.setLike(models.KindComment, true))
	r.Delete("/v1/comments/:id/like", user, s.setLike(models.KindComment, false))
	r.Get("/v1/comments/:id/likes", anyone, s.listLikers(models.KindComment))
}

// Serve answers requests on ln until Shutdown, and then returns nil. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listener = ln
	s.mu.Unlock()
	if err := s.app.Listener(lingeringListener{ln}); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Shutdown takes no more connections and waits until the requests under way are answered, or until ctx ends; then its
// error is returned and the connections are left to the end of the process. A connection that is kept alive is told to
// close with its next answer; one on which there is no request for closeIdleAfter is just closed. Streams end at once:
// their clients connect again, to another server.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leaving.Store(true)
	s.mu.Lock()
	s.stopped = true
	if s.listener != nil {
		// Here too, because the server knows nothing to close until Serve has got as far as to accept.
		_ = s.listener.Close()
	}
	s.mu.Unlock()
	streams := s.hub.shutdown(ctx)
	s.awaitClosed(ctx)
	if err := s.app.ShutdownWithContext(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("shut down: %w", err)
	}
	return streams
}

// closeIdleAfter is how long a client has to hear that its connection ends. A connection that is closed between two
// requests costs a client that sends at this moment its request, and it cannot know what became of it.
const closeIdleAfter = time.Second

// awaitClosed waits until every connection is closed, but no longer than closeIdleAfter.
func (s *Server) awaitClosed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeIdleAfter)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for s.app.Server().GetOpenConnectionsCount() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
	}
}

// observe wraps every request: it gives it an id and a deadline, answers its error, and counts and logs it, once.
func (s *Server) observe(c *fiber.Ctx) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	c.SetUserContext(ctx)
	nameRequest(c)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderCacheControl, uncached) // what a viewer likes is in nearly every answer
	err := c.Next()
	if err != nil {
		writeProblem(c, err)
	}
	s.finish(c, start, err)
	return nil
}

// shed refuses a request at once when the server has enough to do. One that waits for its turn instead would take as
// long as all those before it, and most clients would have given up by then.
func (s *Server) shed(c *fiber.Ctx) error {
	defer s.inFlight.Add(-1)
	if s.inFlight.Add(1) > s.most {
		return models.Errorf(models.CodeUnavailable, "The server is busy; try again.")
	}
	return c.Next()
}

// unread answers what never reached a handler: a body over the limit, a header that cannot be read. What else the
// client sent on the connection cannot be trusted to be a request, so the connection ends.
func (s *Server) unread(c *fiber.Ctx, err error) error {
	nameRequest(c)
	s.cors.allow(c)
	writeProblem(c, err)
	c.Context().SetConnectionClose()
	if conn, ok := c.Context().Conn().(*lingeringConn); ok {
		conn.linger.Store(true)
	}
	s.finish(c, time.Now(), err)
	return nil
}

func (s *Server) finish(c *fiber.Ctx, start time.Time, err error) {
	took, status := time.Since(start), c.Response().StatusCode()
	method, route := routeOf(c)
	if s.leaving.Load() {
		c.Context().SetConnectionClose()
	}
	s.metrics.observe(method, route, status, took)
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Duration("duration", took), slog.String("request_id", requestID(c)),
	}
	if session := viewer(c); session != nil {
		attrs = append(attrs, slog.Int64("user_id", session.UserID))
	}
	level := slog.LevelInfo
	if status >= 500 {
		level = slog.LevelError
		if err != nil { // /readyz says 503 without one
			attrs = append(attrs, slog.Any("error", err))
		}
	}
	s.log.LogAttrs(context.Background(), level, "request", attrs...)
}

func (s *Server) logPanic(c *fiber.Ctx, reason any) {
	s.log.Error("panic", "request_id", requestID(c), "reason", reason, "stack", string(debug.Stack()))
}
