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
	"math"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"likewise/counters"
	"likewise/models"
)

// Likes is what sets and reads likes: *models.Store in direct mode, *counters.Likes behind the Redis gate.
type Likes interface {
	// SetLike makes the user's like of the target as asked and tells what is. CodeNotFound: the target is deleted or
	// was never there. CodeUnavailable: it is safe to try again.
	SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error)
	// LikeStates gives what viewer (0 for the anonymous) sees of rows, in their order.
	LikeStates(ctx context.Context, viewer int64, rows []models.TargetCount) ([]models.LikeState, error)
	// StatesOf gives what viewer sees of targets; what is deleted or was never there has no state.
	StatesOf(ctx context.Context, viewer int64, targets []models.Target) (map[models.Target]models.LikeState, error)
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
	Desk     Desk                 // required
	Registry *prometheus.Registry // required; the API's metrics are registered in it

	Logger *slog.Logger // nil means slog.Default()
	// MaxInFlight is how many requests of /v1 are under way at once, until their answers are written; 0 means 512. More
	// are refused at once, so that those that are taken stay quick.
	MaxInFlight int
	MaxStreams  int // streams that are open at once, which do not count as in flight; 0 means 10,000
	// Origins are those whose pages may use the API, exactly as browsers write them; "*" alone means all, none is none.
	Origins []string
	// AvatarHosts are the hosts whose pictures readers load; "*" alone means every host, and none is none.
	AvatarHosts []string
	// ReservedNames are usernames that nobody can register, besides those that models.NewReservedNames has by itself.
	ReservedNames []string
	// Limiter counts what clients do; nil means that nobody is limited. The limits in limit.go are multiplied by
	// LimitFactor; 0 means 1.
	Limiter     *counters.Limiter
	LimitFactor float64
	// LikeLimit is how many likes and unlikes an account may give in a minute; 0 means DefaultLikeLimit. LimitFactor
	// multiplies it, too.
	LikeLimit int
	// TrustedProxies are believed when they say in X-Forwarded-For where a request came from.
	TrustedProxies []netip.Prefix
	Timeout        time.Duration    // for a whole request; 0 means 10 s
	Now            func() time.Time // the clock that ages cached sessions; nil means time.Now
}

// Limits on what a client sends and how long it may take to.
const (
	maxBody        = 384 << 10 // bytes; more is 413. It has room for models.MaxContent bytes, each as an escape (\u0041)
	maxHeader      = 8 << 10   // bytes; more is 431
	requestTimeout = 10 * time.Second
	maxInFlight    = 512
	readTimeout    = 15 * time.Second
	writeTimeout   = 15 * time.Second
	idleTimeout    = 2 * time.Minute
)

// Server is the API. It is safe for concurrent use.
type Server struct {
	app            *fiber.App
	store          *models.Store
	likes          Likes
	gate           TargetGate
	desk           Desk
	now            func() time.Time
	log            *slog.Logger
	lines          *sampler
	timeout        time.Duration
	metrics        metrics
	sessions       *sessions
	passwords      *passwords
	idempotency    idempotency
	cors           cors
	hub            *hub
	answers        answers
	exports        atomic.Int64 // downloads that are under way
	exporting      sync.Map     // int64: users whose archive is being sent
	cursors        cursors
	markdown       *markdown
	limits         limits
	likeLimits     likeLimits
	dear           dearShare
	moderatorShare dearShare
	proxies        []netip.Prefix
	connections    connections
	avatarHosts    avatarHosts
	reserved       models.ReservedNames
	untold         sync.Once                    // that somebody else says so
	permissions    map[string]models.Permission // of each route, by method and path

	mu       sync.Mutex
	listener net.Listener
	stopped  bool

	leaving atomic.Bool // every answer closes its connection from now on
}

// New makes the API. An incomplete Config, or a Registry that has an API already, is an error.
func New(c Config) (*Server, error) {
	if c.Store == nil || c.Likes == nil || c.Desk == nil || c.Registry == nil {
		return nil, errors.New("handlers: Config needs Store, Likes, Desk and Registry")
	}
	if c.Timeout < 0 || c.MaxInFlight < 0 || c.MaxStreams < 0 {
		return nil, fmt.Errorf("handlers: Config.Timeout (%v), Config.MaxInFlight (%d) or Config.MaxStreams (%d) is negative", c.Timeout, c.MaxInFlight, c.MaxStreams)
	}
	if err := CheckOrigins(c.Origins); err != nil {
		return nil, fmt.Errorf("handlers: Config.Origins: %w", err)
	}
	if err := CheckAvatarHosts(c.AvatarHosts); err != nil {
		return nil, fmt.Errorf("handlers: Config.AvatarHosts: %w", err)
	}
	reserved, err := models.NewReservedNames(c.ReservedNames)
	if err != nil {
		return nil, fmt.Errorf("handlers: Config.ReservedNames: %w", err)
	}
	if c.LimitFactor < 0 || math.IsNaN(c.LimitFactor) || math.IsInf(c.LimitFactor, 0) {
		return nil, fmt.Errorf("handlers: Config.LimitFactor is %v", c.LimitFactor)
	}
	if c.LikeLimit < 0 {
		return nil, fmt.Errorf("handlers: Config.LikeLimit is %d", c.LikeLimit)
	}
	if c.LimitFactor == 0 {
		c.LimitFactor = 1
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
	sessions, err := newSessions(c.Store, c.Now, c.Logger)
	if err != nil {
		return nil, err
	}
	markdown, err := newMarkdown()
	if err != nil {
		return nil, err
	}
	if _, err := files(); err != nil {
		return nil, err
	}
	idempotency, err := newIdempotency(c.Store.CursorKey())
	if err != nil {
		return nil, err
	}
	s := &Server{
		idempotency: idempotency, cors: cors{c.Origins},
		store: c.Store, likes: c.Likes, gate: c.Gate, desk: c.Desk, now: c.Now, log: c.Logger, timeout: c.Timeout,
		metrics: metrics, sessions: sessions, passwords: newPasswords(), cursors: cursors{c.Store.CursorKey()}, markdown: markdown,
		permissions: map[string]models.Permission{}, avatarHosts: c.AvatarHosts, reserved: reserved,
	}
	s.lines = newSampler(func(kind string, leftOut int) {
		s.log.Warn("requests left out of the log", "kind", kind, "left_out", leftOut)
	})
	if s.likeLimits, err = newLikeLimits(c.LikeLimit); err != nil {
		return nil, err
	}
	s.limits, s.proxies = limits{c.Limiter, c.LimitFactor, c.Now}, c.TrustedProxies
	s.dear, s.moderatorShare = newDearShares(c.Store.Pool().Stats().MaxOpenConnections)
	s.connections = connections{most: descriptors(maxConnections), exempt: s.trusted, log: c.Logger,
		open: metrics.open, refused: metrics.refused, of: map[string]int{}}
	s.answers = answers{most: c.MaxInFlight, held: maxHeld, large: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), inFlight: metrics.inFlight, bytes: metrics.held,
		limited: metrics.limited.WithLabelValues("answers"), of: map[string]*holder{}}
	if c.Limiter != nil {
		s.answers.mostOfOne = max(1, c.MaxInFlight/shareOfOne)
		s.answers.heldOfOne = max(minHeldOfOne, int64(maxHeldOfOne*c.LimitFactor))
		s.answers.atWork = max(1, int(maxAtWorkOfOne*c.LimitFactor))
		s.connections.mostOfOne = max(minConnectionsOfOne, int(maxConnectionsOfOne*c.LimitFactor))
	}
	if err := c.Registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "likewise_password_hashes_total", Help: "Passwords that were hashed, to be stored or compared.",
	}, func() float64 { return float64(s.passwords.hashed.Load()) })); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	shares := c.LimitFactor
	if c.Limiter == nil {
		shares = 0
	}
	if s.hub, err = newHub(c.Registry, c.Logger, newStreamLimits(c.MaxStreams, shares), s.activities); err != nil {
		return nil, err
	}
	s.app = fiber.New(fiber.Config{
		AppName:               "likewise",
		DisableStartupMessage: true,
		RequestMethods:        append(slices.Clone(fiber.DefaultMethods), unknownMethod),
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
		JSONEncoder:                  encodeJSON,
	})
	s.app.Server().KeepHijackedConns = true // a stream closes its own
	s.app.Server().ConnState = written
	s.routes()
	for route, p := range s.permissions {
		if _, ok := p.Rule(); !ok {
			return nil, fmt.Errorf("handlers: %s: there is no permission %q", route, p)
		}
	}
	// Fiber answers a method that it does not know itself, in plain text, before any handler. So it knows one name for all
	// of those, which no route takes.
	serve := s.app.Handler()
	s.app.Server().Handler = func(r *fasthttp.RequestCtx) {
		if !slices.Contains(fiber.DefaultMethods, string(r.Method())) {
			r.Request.Header.SetMethod(unknownMethod)
		}
		if err := checkFraming(r.Request.Header.RawHeaders()); err != nil {
			c := s.app.AcquireCtx(r)
			defer s.app.ReleaseCtx(c)
			_ = s.unread(c, err) // it answers, and has no error of its own
			return
		}
		serve(r)
	}
	return s, nil
}

// routes is every route there is, each with the permission that it takes. To add one: name its permission here, give it a
// line in models/account_permission.go unless it has one, and say the same in the contract as x-permission, with the security
// that goes with it. A handler whose permission is not for all objects calls allowOn with the owner of what it
// found. Tests hold the three against each other, and every operation to the rule.
func (s *Server) routes() {
	r := s.app
	get, put, patch, remove := s.route(r.Get, "GET"), s.route(r.Put, "PUT"), s.route(r.Patch, "PATCH"), s.route(r.Delete, "DELETE")
	// A POST can be sent with an Idempotency-Key: repeat answers what was carried out before; see once.
	postOnce := s.route(r.Post, "POST")
	post := func(path string, p models.Permission, handler, repeat fiber.Handler) {
		postOnce(path, p, s.once(repeat), handler)
	}
	r.Use(s.observe, s.cors.mark, recover.New(recover.Config{EnableStackTrace: true, StackTraceHandler: s.logPanic}))

	get("/healthz", "system.read", s.alive)
	// All else counts against the address and is shed, paths that do not exist included.
	r.Use(s.requests, s.shed, s.cors.preflight)
	get("/openapi.yaml", "system.read", sendFile("openapi.yaml"))
	get("/docs", "system.read", sendFile("docs.html"))
	get("/docs/:file", "system.read", sendDocsFile)

	r.Use("/v1", s.represent)
	get("/v1/stream", "stream.read", s.openStream)

	post("/v1/auth/register", "account.create", s.register, s.repeatRegistration)
	post("/v1/auth/login", "session.create", s.login, s.login)
	r.Use("/v1/auth/logout", s.repeatLogout)
	post("/v1/auth/logout", "session.end", s.logout, replyNothing)
	get("/v1/me", "account.read", s.me)
	patch("/v1/me", "account.edit", s.editMe)
	remove("/v1/me", "account.delete", s.deleteMe)
	put("/v1/me/password", "account.password", s.changePassword)
	get("/v1/me/sessions", "session.list", s.listSessions)
	remove("/v1/me/sessions", "session.end", s.endOtherSessions)
	remove("/v1/me/sessions/:id", "session.end", s.endSession)
	get("/v1/me/tokens", "token.list", s.listTokens)
	post("/v1/me/tokens", "token.create", s.createToken, s.repeatToken)
	remove("/v1/me/tokens/:id", "token.revoke", s.revokeToken)
	get("/v1/me/blocks", "block.list", s.listBlocks)
	get("/v1/me/export", "account.export", s.exportMe)
	get("/v1/me/likes", "like.list", s.listMyLikes)
	get("/v1/me/bookmarks", "bookmark.list", s.listBookmarks)
	get("/v1/feed", "feed.read", s.readFeed)

	get("/v1/users", "user.read", s.findUsers)
	get("/v1/users/:id", "user.read", s.readUser)
	get("/v1/users/:id/posts", "post.read", s.listUserPosts)
	get("/v1/users/:id/comments", "comment.read", s.listUserComments)
	get("/v1/users/:id/likes", "like.read", s.listUserLikes)
	get("/v1/users/:id/followers", "user.read", s.listFollowers)
	get("/v1/users/:id/following", "user.read", s.listFollowing)
	put("/v1/users/:id/follow", "follow.set", s.setFollow(true))
	remove("/v1/users/:id/follow", "follow.set", s.setFollow(false))
	put("/v1/users/:id/block", "block.set", s.setBlock(true))
	remove("/v1/users/:id/block", "block.set", s.setBlock(false))

	get("/v1/posts", "post.read", s.listPosts)
	post("/v1/posts", "post.create", s.createPost, s.repeatPost)
	get("/v1/posts/:id", "post.read", s.readPost)
	patch("/v1/posts/:id", "post.edit", s.editPost)
	remove("/v1/posts/:id", "post.delete", s.deletePost)
	post("/v1/posts/:id/restore", "post.restore", s.restorePost, s.readPost)
	get("/v1/posts/:id/revisions", "post.read", s.listRevisions(models.KindPost, false))
	get("/v1/posts/:id/revisions/:version", "post.read", s.readRevision(models.KindPost, false))
	post("/v1/posts/:id/revisions/:version/redaction", "post.redact", s.requestRedaction(models.KindPost), s.repeatRedaction)
	get("/v1/posts/:id/comments", "comment.read", s.listComments)
	post("/v1/posts/:id/comments", "comment.create", s.createComment, s.repeatComment)
	get("/v1/posts/:id/thread", "comment.read", s.readThread)
	put("/v1/posts/:id/like", "like.set", s.setLike(models.KindPost, true))
	remove("/v1/posts/:id/like", "like.set", s.setLike(models.KindPost, false))
	get("/v1/posts/:id/likes", "like.read", s.listLikers(models.KindPost))
	put("/v1/posts/:id/bookmark", "bookmark.set", s.setBookmark(true))
	remove("/v1/posts/:id/bookmark", "bookmark.set", s.setBookmark(false))

	get("/v1/tags", "post.read", s.listTags)

	post("/v1/reports", "report.create", s.reportContent, s.repeatReport)
	get("/v1/me/reports", "report.list", s.listMyReports)
	get("/v1/me/redactions", "redaction.list", s.listMyRedactions)

	get("/v1/likes", "like.read", s.readLikes)

	get("/v1/notifications", "notification.list", s.listNotifications)
	get("/v1/notifications/unread-count", "notification.list", s.countUnread)
	post("/v1/notifications/read", "notification.read", s.readNotifications, s.countUnread)

	get("/v1/comments/:id", "comment.read", s.readComment)
	patch("/v1/comments/:id", "comment.edit", s.editComment)
	remove("/v1/comments/:id", "comment.delete", s.deleteComment)
	get("/v1/comments/:id/ancestors", "comment.read", s.readAncestors)
	get("/v1/comments/:id/replies", "comment.read", s.listReplies)
	post("/v1/comments/:id/replies", "comment.create", s.createReply, s.repeatComment)
	get("/v1/comments/:id/revisions", "comment.read", s.listRevisions(models.KindComment, false))
	get("/v1/comments/:id/revisions/:version", "comment.read", s.readRevision(models.KindComment, false))
	post("/v1/comments/:id/revisions/:version/redaction", "comment.redact", s.requestRedaction(models.KindComment), s.repeatRedaction)
	put("/v1/comments/:id/like", "like.set", s.setLike(models.KindComment, true))
	remove("/v1/comments/:id/like", "like.set", s.setLike(models.KindComment, false))
	get("/v1/comments/:id/likes", "like.read", s.listLikers(models.KindComment))

	get("/v1/admin/posts", "admin.post.read", s.listModeratedPosts)
	get("/v1/admin/posts/:id", "admin.post.read", s.readModerated(models.KindPost))
	post("/v1/admin/posts/:id/delete", "admin.post.delete", s.removeContent(models.KindPost), s.readModerated(models.KindPost))
	post("/v1/admin/posts/:id/restore", "admin.post.restore", s.reinstateContent(models.KindPost), s.readModerated(models.KindPost))
	post("/v1/admin/posts/:id/lock", "admin.post.lock", s.flagPost(models.PostLocked, true), s.readModerated(models.KindPost))
	post("/v1/admin/posts/:id/unlock", "admin.post.lock", s.flagPost(models.PostLocked, false), s.readModerated(models.KindPost))
	post("/v1/admin/posts/:id/pin", "admin.post.pin", s.flagPost(models.PostPinned, true), s.readModerated(models.KindPost))
	post("/v1/admin/posts/:id/unpin", "admin.post.pin", s.flagPost(models.PostPinned, false), s.readModerated(models.KindPost))
	get("/v1/admin/posts/:id/revisions", "admin.post.read", s.listRevisions(models.KindPost, true))
	get("/v1/admin/posts/:id/revisions/:version", "admin.post.read", s.readRevision(models.KindPost, true))
	post("/v1/admin/posts/:id/revisions/:version/redact", "admin.post.redact", s.redactVersion(models.KindPost), s.readModerated(models.KindPost))
	post("/v1/admin/posts/:id/purge", "admin.post.purge", s.purgeContent(models.KindPost), s.readModerated(models.KindPost))
	get("/v1/admin/comments", "admin.comment.read", s.listModeratedComments)
	get("/v1/admin/comments/:id", "admin.comment.read", s.readModerated(models.KindComment))
	post("/v1/admin/comments/:id/delete", "admin.comment.delete", s.removeContent(models.KindComment), s.readModerated(models.KindComment))
	post("/v1/admin/comments/:id/restore", "admin.comment.restore", s.reinstateContent(models.KindComment), s.readModerated(models.KindComment))
	get("/v1/admin/comments/:id/revisions", "admin.comment.read", s.listRevisions(models.KindComment, true))
	get("/v1/admin/comments/:id/revisions/:version", "admin.comment.read", s.readRevision(models.KindComment, true))
	post("/v1/admin/comments/:id/revisions/:version/redact", "admin.comment.redact", s.redactVersion(models.KindComment), s.readModerated(models.KindComment))
	post("/v1/admin/comments/:id/purge", "admin.comment.purge", s.purgeContent(models.KindComment), s.readModerated(models.KindComment))
	get("/v1/admin/reports", "admin.report.read", s.listReportCases)
	post("/v1/admin/reports/resolve", "admin.report.resolve", s.resolveReports, replyKept)
	get("/v1/admin/reports/:id", "admin.report.read", s.readReportCase)
	get("/v1/admin/reports/:id/reports", "admin.report.reporters", s.listReportsOfCase)
	post("/v1/admin/reports/:id/claim", "admin.report.claim", s.claimReport, s.readReportCase)
	post("/v1/admin/reports/:id/resolve", "admin.report.resolve", s.resolveReport, s.readReportCase)
	get("/v1/admin/redactions", "admin.redaction.read", s.listRedactions)
	get("/v1/admin/redactions/:id", "admin.redaction.read", s.readRedaction)
	post("/v1/admin/redactions/:id/resolve", "admin.redaction.resolve", s.resolveRedaction, s.readRedaction)
	get("/v1/admin/log", "admin.log.read", s.listActs)
	get("/v1/admin/security-log", "admin.security.read", s.listSecurityEvents)
	get("/v1/admin/log.csv", "admin.log.read", s.exportActs)
	get("/v1/admin/users", "admin.user.read", s.listAccounts)
	get("/v1/admin/users/:id", "admin.user.read", s.readAccount)
	post("/v1/admin/users/:id/content/delete", "admin.content.delete", s.removeAllContent, s.repeatOperation)
	get("/v1/admin/operations/:id", "admin.content.read", s.readOperation)
	post("/v1/admin/operations/:id/undo", "admin.content.restore", s.undoOperation, s.repeatOperation)
	post("/v1/admin/users/:id/ban", "admin.user.ban", s.banUser, s.repeatBan)
	post("/v1/admin/users/:id/unban", "admin.user.ban", s.unbanUser, replyNothing)
	post("/v1/admin/users/:id/delete", "admin.user.delete", s.deleteBannedUser, replyNothing)
	put("/v1/admin/users/:id/role", "admin.user.role", s.changeRole)
	get("/v1/admin/users/:id/likes", "admin.like.read", s.listGivenLikes)
	post("/v1/admin/users/:id/likes/void", "admin.like.void", s.voidLikes, s.repeatVoid)
	get("/v1/admin/like-voids/:id", "admin.like.read", s.readLikeVoid)
	get("/v1/admin/like-rings", "admin.ring.read", s.listLikeRings)
	post("/v1/admin/like-rings/:id/dismiss", "admin.ring.resolve", s.dismissLikeRing, replyNothing)
	post("/v1/admin/like-rings/:id/void", "admin.ring.resolve", s.voidLikeRing, s.repeatRingVoids)

	get("/v1/admin/pipeline", "admin.pipeline.read", s.readPipeline)
	get("/v1/admin/dead-letters", "admin.pipeline.read", s.listDeadLetters)
	post("/v1/admin/dead-letters/:id/retry", "admin.pipeline.mend", s.retryDeadLetter, s.repeatLetter)
	post("/v1/admin/dead-letters/:id/discard", "admin.pipeline.mend", s.discardDeadLetter, s.repeatLetter)
	post("/v1/admin/reconcile", "admin.pipeline.mend", s.reconcile, replyKept)
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
	if err := s.app.Listener(lingeringListener{ln, &s.connections}); err != nil && !errors.Is(err, net.ErrClosed) {
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
	s.secure(c)
	c.Set(fiber.HeaderCacheControl, uncached) // what a viewer likes is in nearly every answer
	err := c.Next()
	if err != nil {
		writeProblem(c, err)
	}
	s.finish(c, start, err)
	return nil
}

// unread answers what never reached a handler: a body over the limit, a header that cannot be read. What else the
// client sent on the connection cannot be trusted to be a request, so the connection ends.
func (s *Server) unread(c *fiber.Ctx, err error) error {
	nameRequest(c)
	s.secure(c)
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
	if kind, most := logKind(route, status, err); kind != "" && !s.lines.take(kind, most) {
		return
	}
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
		attrs = append(attrs, slog.Any("error", err))
	}
	s.log.LogAttrs(context.Background(), level, "request", attrs...)
}

// logKind returns what a request is sampled as in the log, and how many lines of that kind a second has; kind "" means that
// it is always logged. Requests that are limited by address and go well are.
func logKind(route string, status int, err error) (kind string, most int) {
	switch {
	case errors.Is(err, errShed):
		return "shed", refusalLines
	case status >= 500:
		return strconv.Itoa(status), errorLines
	case status >= 400 && route == noRoute:
		return strconv.Itoa(status) + " without a route", refusalLines
	case status >= 400:
		return strconv.Itoa(status), refusalLines
	case route == "/healthz": // it is not limited
		return route, refusalLines
	}
	return "", 0
}

func (s *Server) logPanic(c *fiber.Ctx, reason any) {
	if !s.lines.take("panic", refusalLines) {
		return
	}
	s.log.Error("panic", "request_id", requestID(c), "reason", reason, "stack", string(debug.Stack()))
}
