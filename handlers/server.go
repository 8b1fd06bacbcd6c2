// Package handlers is the JSON API.
//
// routes.go lists every route with its permission and its limit. middleware.go holds what runs around every handler.
// A handler parses, validates, authorizes, acts and replies. It returns an error to answer with it, and error.go alone
// maps errors to statuses.
//
// Every request has a deadline and an id. Fiber reuses the memory of paths, headers and bodies after the handler
// returns, so strings that outlive a request are copied. The caches of sessions and of rendered Markdown are copies of
// MySQL and can be lost at any time.
package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"likewise/counters"
	"likewise/counters/rounds"
	"likewise/handlers/admission"
	"likewise/handlers/live"
	"likewise/handlers/markdown"
	"likewise/handlers/network"
	"likewise/handlers/pages"
	"likewise/handlers/signin"
	"likewise/images"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/media"
	"likewise/models/moderation"
	"likewise/models/people"
	"likewise/models/privacy"
	"likewise/models/reader"
	"likewise/models/stock"
	"likewise/models/webhooks"
)

// Likes sets and reads likes: *db.DB in direct mode, *counters.Likes behind the Redis gate.
type Likes interface {
	// SetLike sets or removes the user's like of the target and returns the resulting state. It returns CodeNotFound
	// if the target is deleted or never existed. After CodeUnavailable, retrying is safe.
	SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error)
	// LikeStates returns the viewer's states of rows, in their order. Viewer 0 is anonymous.
	LikeStates(ctx context.Context, viewer int64, rows []models.TargetCount) ([]models.LikeState, error)
	// StatesOf returns the viewer's states of targets. Targets that are deleted or never existed have none.
	StatesOf(ctx context.Context, viewer int64, targets []models.Target) (map[models.Target]models.LikeState, error)
}

// Config holds the parts and the settings of the API.
type Config struct {
	Store   *db.DB            // required
	Likes   Likes             // required
	Claims  *counters.Claims  // nil in direct mode
	IDs     *counters.IDs     // required; of claims
	Edition *counters.Edition // nil in direct mode: requests then share no reads
	Peers   *counters.Peers   // nil in direct mode: a stream is then changed in its own process alone
	Images  images.Store      // nil: users cannot upload images
	Room    models.ImageRoom  // of images; the zero value means models.DefaultImageRoom
	// MakeImage decodes and encodes uploads, one at a time: images.MakeApart. nil means images.Make, which keeps a
	// processor of this process busy.
	MakeImage func(ctx context.Context, field string, file []byte) (*images.Made, error)
	Desk      Desk                 // required
	Registry  *prometheus.Registry // required; the API's metrics are registered in it

	Logger    *slog.Logger // nil means slog.Default()
	AccessLog AccessLog    // which requests are logged
	LogPaths  bool         // log the path of a request besides its route
	// MaxInFlight bounds the requests that are in flight, until their answers are written; 0 means 512. Requests over
	// the bound are refused at once, so that admitted requests stay fast.
	MaxInFlight int
	MaxStreams  int // open streams, which do not count as in flight; 0 means 10,000
	// Origins lists the origins whose pages may call the API, spelled as browsers send them. "*" alone allows every
	// origin, and an empty list none.
	Origins []string
	// Local is set on a developer's machine. It allows every origin on the client's own machine, too, such as
	// http://localhost:3000, and refuses requests for a host that DNS could have led here: see CheckHost.
	Local bool
	// AvatarHosts lists the hosts that avatars may be on. "*" alone allows every host, and an empty list none.
	AvatarHosts []string
	// PublicURL is the URL of the front end, such as "https://forum.example", without a slash at its end. The front end
	// forwards /v1 to the API. Feeds and the sitemap contain it; without it, there are none.
	PublicURL string
	// SiteName is the name of the site, as ValidateSiteName permits it. "" means the host of PublicURL, which is what
	// people call a site; without one, or on localhost, the name is "Likewise".
	SiteName string
	// Mail is set if the site sends mail: see workers.Mailer. Otherwise what needs mail is refused (CodeMailOff).
	Mail bool
	// Registration says who can register; "" means RegistrationOpen. RegistrationVerified needs Mail.
	Registration Registration
	// ReservedNames lists usernames that nobody can register, in addition to those of models.NewReservedNames.
	ReservedNames []string
	// SecretKey is the secret key of the site, which seals the seeds of second factors. Without it, codes of apps can
	// neither be set up nor checked (CodeFactorsOff).
	SecretKey []byte
	// StaffSecondFactor requires a session that used a second factor for what only moderators and admins may do.
	StaffSecondFactor bool
	// Limiter counts the requests of clients; nil means no limits. LimitFactor multiplies the rates of admission;
	// 0 means 1.
	Limiter     *counters.Limiter
	LimitFactor float64
	// LikeLimit bounds the likes and unlikes of an account in a minute; 0 means
	// admission.DefaultLikesPerMinute. LimitFactor
	// multiplies it, too.
	LikeLimit int
	// TrustedProxies lists the proxies whose X-Forwarded-For is trusted.
	TrustedProxies network.Proxies
	// PrivateWebhooks allows webhooks at private addresses, and without TLS.
	PrivateWebhooks bool
	Timeout         time.Duration    // of a whole request; 0 means 10 s
	Now             func() time.Time // the clock; nil means time.Now. Deadlines of sockets keep to real time
}

// Registration says who can register.
type Registration string

// The modes of registration.
const (
	RegistrationOpen     Registration = "open"     // everybody, at once
	RegistrationVerified Registration = "verified" // everybody who confirms their address
	RegistrationClosed   Registration = "closed"   // nobody; the operator creates accounts
)

// Server is the API. It is safe for concurrent use.
type Server struct {
	app         *fiber.App
	store       *db.DB
	accounts    *accounts.Store
	media       *media.Store
	people      *people.Store
	content     *content.Store
	stock       *stock.Store
	moderation  *moderation.Store
	privacy     *privacy.Store
	reader      *reader.Store
	webhooks    *webhooks.Store
	likes       *likes.Store
	gate        Likes
	claimGate   claimGate
	desk        Desk
	now         func() time.Time
	log         *slog.Logger
	logged      *admission.Sampler
	accessLog   AccessLog
	logPaths    bool
	shared      *pages.Shared
	postReads   rounds.Batch[int64, map[int64]*models.Post]
	timeout     time.Duration
	metrics     metrics
	sessions    *signin.Sessions
	passwords   *signin.Passwords
	idempotency idempotency
	cors        cors
	hub         *live.Hub
	peers       *counters.Peers // nil in direct mode
	unread      *otter.Cache[int64, knownUnread]
	news        *otter.Cache[models.Target, knownNews]
	answers     *admission.Answers
	downloads   admission.Downloads
	cursors     pages.Cursors
	markdown    *markdown.Renderer
	images      images.Store // nil: users cannot upload images
	imageMaker  func(ctx context.Context, field string, file []byte) (*images.Made, error)
	imageRoom   models.ImageRoom
	uploads     *admission.Uploads
	rates       *admission.Rates
	expensive   admission.Share
	// moderatorShare is the share of moderators, who do not wait for other users.
	moderatorShare admission.Share
	proxies        network.Proxies
	network        network.Config
	avatarHosts    avatarHosts
	publicURL      publicURL
	siteName       string
	mail           bool
	reserved       models.ReservedNames
	registration   Registration
	seeds          *accounts.Seeds // nil: the site has no secret key
	staffFactor    bool

	privateWebhooks bool
	local           bool

	warnedProxy sync.Once // of an X-Forwarded-For that is not trusted
	table       []route   // as registered

	mu       sync.Mutex
	listener net.Listener
	stopped  bool

	leaving atomic.Bool // from now on, every answer closes its connection
}

// New returns the API. It returns an error if a required part of the Config is missing, if a setting is out of range,
// or if the Registry holds an API already.
func New(c Config) (*Server, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	reserved, err := models.NewReservedNames(c.ReservedNames)
	if err != nil {
		return nil, fmt.Errorf("handlers: Config.ReservedNames: %w", err)
	}
	factor := c.LimitFactor // of the bounds for one address; 0: there are none
	if c.Limiter == nil {
		factor = 0
	}
	s := &Server{
		store: c.Store, accounts: accounts.New(c.Store), media: media.New(c.Store), people: people.New(c.Store),
		content: content.New(c.Store), stock: stock.New(c.Store), likes: likes.New(c.Store),
		reader: reader.New(c.Store), moderation: moderation.New(c.Store), webhooks: webhooks.New(c.Store),
		privacy: privacy.New(c.Store),
		gate:    c.Likes, desk: c.Desk, now: c.Now, log: c.Logger, timeout: c.Timeout,
		passwords: signin.NewPasswords(), cursors: pages.NewCursors(c.Store.CursorKey()),
		cors:    cors{c.Origins, c.Local},
		proxies: c.TrustedProxies,
		images:  c.Images, imageMaker: c.MakeImage, imageRoom: c.Room, uploads: admission.NewUploads(factor),
		avatarHosts: c.AvatarHosts, publicURL: publicURL(c.PublicURL), reserved: reserved,
		registration: c.Registration, mail: c.Mail, siteName: c.SiteName,
		privateWebhooks: c.PrivateWebhooks, local: c.Local, staffFactor: c.StaffSecondFactor,
	}
	if s.seeds, err = accounts.NewSeeds(c.SecretKey); err != nil {
		return nil, fmt.Errorf("handlers: Config.SecretKey: %w", err)
	}
	s.expensive, s.moderatorShare = admission.NewShares(c.Store.Pool().Stats().MaxOpenConnections)
	if s.metrics, err = newMetrics(c.Registry); err != nil {
		return nil, err
	}
	if s.claimGate, err = newClaimGate(c); err != nil {
		return nil, err
	}
	if s.sessions, err = signin.NewSessions(c.Store, c.Now, c.Logger); err != nil {
		return nil, err
	}
	if s.shared, err = pages.NewShared(c.Edition, c.Timeout); err != nil {
		return nil, err
	}
	if s.markdown, err = markdown.New(c.PublicURL); err != nil {
		return nil, err
	}
	if s.unread, err = newUnreadCache(); err != nil {
		return nil, fmt.Errorf("cache of notifications: %w", err)
	}
	if s.news, err = newNewsCache(); err != nil {
		return nil, fmt.Errorf("cache of news: %w", err)
	}
	if s.idempotency, err = newIdempotency(c.Store.CursorKey()); err != nil {
		return nil, err
	}
	s.rates, err = admission.NewRates(admission.RatesConfig{
		Limiter: c.Limiter, Factor: c.LimitFactor, Now: c.Now, LikesPerMinute: c.LikeLimit,
		Refused: func(policy string) { s.metrics.limited.WithLabelValues(policy).Inc() },
	})
	if err != nil {
		return nil, err
	}
	s.accessLog, s.logPaths = c.AccessLog, c.LogPaths
	s.logged = admission.NewSampler(func(kind string, leftOut int) {
		s.log.Warn("requests left out of the log", "kind", kind, "left_out", leftOut)
	})
	s.answers = admission.NewAnswers(admission.AnswersConfig{
		InFlight: c.MaxInFlight, Factor: factor, Requests: s.metrics.inFlight, Bytes: s.metrics.held,
		Limited: s.metrics.limited.WithLabelValues("answers"),
	})
	s.network = network.Config{
		Proxies: c.TrustedProxies, Now: c.Now, Logger: c.Logger, Open: s.metrics.open, Refused: s.metrics.refused,
		Factor: factor,
	}
	if err := c.Registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "likewise_password_hashes_total", Help: "Passwords hashed, to store or to compare them.",
	}, func() float64 { return float64(s.passwords.Hashed()) })); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s.hub, err = live.NewHub(c.Registry, c.Logger, live.NewLimits(c.MaxStreams, factor), s.readCounts,
		s.people.BlockedBy)
	if err != nil {
		return nil, err
	}
	s.app = s.newApp()
	if err := s.install(); err != nil {
		return nil, err
	}
	if s.peers = c.Peers; s.peers != nil {
		s.peers.Serve(s.answerPeer)
	}
	return s, nil
}

// complete checks the Config and sets the defaults.
func (c *Config) complete() error {
	if c.Store == nil || c.Likes == nil || c.IDs == nil || c.Desk == nil || c.Registry == nil {
		return errors.New("handlers: Config needs Store, Likes, IDs, Desk and Registry")
	}
	if c.Timeout < 0 || c.MaxInFlight < 0 || c.MaxStreams < 0 {
		return fmt.Errorf(
			"handlers: Config.Timeout (%v), Config.MaxInFlight (%d) or Config.MaxStreams (%d) is negative",
			c.Timeout, c.MaxInFlight, c.MaxStreams)
	}
	if err := CheckOrigins(c.Origins); err != nil {
		return fmt.Errorf("handlers: Config.Origins: %w", err)
	}
	if err := CheckAvatarHosts(c.AvatarHosts); err != nil {
		return fmt.Errorf("handlers: Config.AvatarHosts: %w", err)
	}
	if err := CheckPublicURL(c.PublicURL); err != nil {
		return fmt.Errorf("handlers: Config.PublicURL: %w", err)
	}
	if err := models.ValidateSiteName(c.SiteName); err != nil {
		return fmt.Errorf("handlers: Config.SiteName: %w", err)
	}
	c.SiteName = cmp.Or(c.SiteName, publicURL(c.PublicURL).siteName())
	if c.LimitFactor < 0 || math.IsNaN(c.LimitFactor) || math.IsInf(c.LimitFactor, 0) {
		return fmt.Errorf("handlers: Config.LimitFactor is %v", c.LimitFactor)
	}
	if err := CheckRegistration(c.Registration, c.Mail); err != nil {
		return fmt.Errorf("handlers: Config.Registration: %w", err)
	}
	if c.LikeLimit < 0 {
		return fmt.Errorf("handlers: Config.LikeLimit is %d", c.LikeLimit)
	}
	c.LimitFactor = cmp.Or(c.LimitFactor, 1)
	c.Registration = cmp.Or(c.Registration, RegistrationOpen)
	c.Room = cmp.Or(c.Room, models.DefaultImageRoom)
	c.MaxStreams = cmp.Or(c.MaxStreams, live.MaxStreams)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, admission.DefaultInFlight)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Timeout = cmp.Or(c.Timeout, admission.RequestTimeout)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MakeImage == nil {
		c.MakeImage = images.Make
	}
	return nil
}

// newApp returns Fiber's server, without routes.
func (s *Server) newApp() *fiber.App {
	app := fiber.New(fiber.Config{
		AppName:               "likewise",
		DisableStartupMessage: true,
		RequestMethods:        append(slices.Clone(fiber.DefaultMethods), unknownMethod),
		StrictRouting:         true, // one URL for each resource
		CaseSensitive:         true,
		BodyLimit:             admission.MaxBody,
		// Otherwise a form would be read before a handler could refuse anything but JSON.
		DisablePreParseMultipartForm: true,
		StreamRequestBody:            true, // see receive
		ReadBufferSize:               admission.MaxHeader,
		ReadTimeout:                  admission.ReadTimeout,
		WriteTimeout:                 admission.WriteTimeout,
		IdleTimeout:                  admission.IdleTimeout,
		ErrorHandler:                 s.refuseUnread,
		JSONEncoder:                  pages.EncodeJSON,
	})
	app.Server().KeepHijackedConns = true // a stream closes its own
	app.Server().HeaderReceived = func(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
		if isUpload(h.Method(), h.RequestURI()) {
			return fasthttp.RequestConfig{ReadTimeout: admission.UploadTimeout, WriteTimeout: admission.WriteTimeout}
		}
		return fasthttp.RequestConfig{}
	}
	app.Server().ConnState = network.StateChanged
	return app
}

// install installs the routes and their middleware, and puts the checks of the message before them.
func (s *Server) install() error {
	s.table = s.routes()
	for _, row := range s.table {
		if _, ok := row.permission.Rule(); !ok {
			return fmt.Errorf("handlers: %s %s: there is no permission %q", row.method, row.path, row.permission)
		}
	}
	s.use(s.table)
	// Fiber itself answers unknown methods, in plain text and before any handler. So it knows one name for all of them,
	// which no route takes.
	serve := s.app.Handler()
	s.app.Server().Handler = func(r *fasthttp.RequestCtx) {
		if !slices.Contains(fiber.DefaultMethods, string(r.Method())) {
			r.Request.Header.SetMethod(unknownMethod)
		}
		if err := network.CheckFraming(r.Request.Header.RawHeaders()); err != nil {
			c := s.app.AcquireCtx(r)
			defer s.app.ReleaseCtx(c)
			_ = s.refuseUnread(c, err) // always nil: it writes the answer
			return
		}
		if err := receive(r); err != nil {
			s.app.Server().ErrorHandler(r, err) // as for a body that fasthttp cannot read
			return
		}
		upload := r.RequestBodyStream() != nil
		if serve(r); upload && r.UserValue(receivedKey) == nil {
			closeUnread(r)
		}
	}
	return nil
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
	ctx, cancel := context.WithCancel(context.Background())
	var feed sync.WaitGroup
	defer feed.Wait()
	defer cancel()
	feed.Go(func() { s.sessions.Run(ctx) })
	if err := s.app.Listener(network.Listen(ln, s.network)); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Drain prepares for Shutdown: every answer closes its connection from now on, and new connections are still accepted.
// It returns after d, when proxies have noticed that the process is not ready, or at the end of ctx.
func (s *Server) Drain(ctx context.Context, d time.Duration) {
	s.leaving.Store(true)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Shutdown stops accepting connections and waits until the requests in flight are answered. If ctx ends before, it
// returns the error of ctx and leaves the connections open. A kept-alive connection is closed with its next answer, or
// after closeIdleAfter without a request. Streams end at once: their clients reconnect to another server. A connection
// is either served or refused: those that the kernel has established are accepted before the listener is closed.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leaving.Store(true)
	s.mu.Lock()
	s.stopped = true
	if s.listener != nil {
		if err := network.TurnAway(ctx, s.listener); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.WarnContext(ctx, "connections that nobody has accepted yet are reset", "error", err)
		}
		// The app does not know the listener before Serve has begun to accept.
		_ = s.listener.Close()
	}
	s.mu.Unlock()
	streams := s.hub.Shutdown(ctx)
	if s.peers != nil {
		s.peers.Close()
	}
	s.awaitClosed(ctx)
	if err := s.app.ShutdownWithContext(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("shut down: %w", err)
	}
	return streams
}

// closeIdleAfter is how long idle connections stay open after Shutdown has begun. If a connection is closed while the
// client sends a request, the client cannot know whether the request took effect.
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
