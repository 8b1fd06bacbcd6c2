package handlers

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"likewise/handlers/admission"
	"likewise/handlers/network"
	"likewise/handlers/pages"
	"likewise/models/db"
)

// use registers the rows of the table with the middleware around them. Each request passes, in this order:
//
//	observe            request id, deadline, security headers; the error's answer, metrics, log
//	cors.allowOrigin        CORS headers of every answer
//	checkHost          refuses names of hosts that may be forged                (on a developer's machine)
//	recover            a panic becomes an error
//	countRequest       refuses an address over its requests                    (not with limitNone)
//	admit              refuses a request that the server is too busy for        (not with limitNone)
//	cors.preflight     answers preflight requests                               (not with limitNone)
//	represent          entity tag, 304 and compression                          (under /v1)
//	authorize          session, permission and limit of the row
//	advance            ends the edition of shared reads after a change          (see changesReads)
//	once               answers a repeated Idempotency-Key                       (if the row has repeat)
func (s *Server) use(table []route) {
	recoverPanic := recover.New(recover.Config{EnableStackTrace: true, StackTraceHandler: s.logPanic})
	s.app.Use(s.observe, s.cors.allowOrigin, s.checkHost, recoverPanic)
	for _, row := range table {
		if row.limit == limitNone {
			s.add(row)
		}
	}
	// These apply to paths without a route, too.
	s.app.Use(s.countRequest, s.admit, s.cors.preflight)
	s.app.Use("/v1", s.represent)
	s.app.Use("/v1/auth/logout", s.repeatLogout)
	for _, row := range table {
		if row.limit != limitNone {
			s.add(row)
		}
	}
}

// add registers one row.
func (s *Server) add(row route) {
	handlers := []fiber.Handler{s.authorize(row)}
	if !s.shared.Off() && row.changesReads() {
		handlers = append(handlers, s.advance)
	}
	if row.repeat != nil {
		handlers = append(handlers, s.once(row.repeat))
	}
	handlers = append(handlers, row.handler)
	if row.method == fiber.MethodGet {
		s.app.Head(row.path, handlers...)
	}
	s.app.Add(row.method, row.path, handlers...)
}

// observe wraps every request: it sets an id and a deadline, answers the error, and counts and logs the request once.
func (s *Server) observe(c *fiber.Ctx) error {
	start := s.now()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	c.SetUserContext(ctx)
	nameRequest(c)
	s.secure(c)
	c.Set(fiber.HeaderCacheControl, pages.Uncached) // nearly every answer holds the viewer's likes
	err := c.Next()
	if err != nil {
		s.allow(c, err)
		writeProblem(c, err)
	}
	s.finish(c, start, err)
	return nil
}

// allow sets the header Allow of a refused method, at a path without parameters, to the methods of exactly that path.
// Fiber names those of every pattern that matches it: for /v1/admin/reports/resolve also GET, of /v1/admin/reports/:id.
func (s *Server) allow(c *fiber.Ctx, err error) {
	if !errors.Is(err, fiber.ErrMethodNotAllowed) {
		return
	}
	var methods []string
	for _, row := range s.table {
		if row.path != c.Path() {
			continue
		}
		methods = append(methods, row.method)
		if row.method == fiber.MethodGet {
			methods = append(methods, fiber.MethodHead)
		}
	}
	if methods != nil {
		c.Set(fiber.HeaderAllow, strings.Join(methods, ", "))
	}
}

// refuseUnread answers what never reached a handler: a body over the limit, or a header that cannot be read. Where the
// next request would begin is unknown, so the connection is closed.
func (s *Server) refuseUnread(c *fiber.Ctx, err error) error {
	nameRequest(c)
	s.secure(c)
	s.cors.allow(c)
	writeProblem(c, err)
	closeUnread(c.Context())
	s.finish(c, s.now(), err)
	return nil
}

// closeUnread closes the connection of a request whose body was not read to its end. The client can still read the
// answer.
func closeUnread(r *fasthttp.RequestCtx) {
	r.SetConnectionClose()
	if conn, ok := r.Conn().(*network.Conn); ok {
		conn.Linger()
	}
}

// finish counts a request and logs it.
func (s *Server) finish(c *fiber.Ctx, start time.Time, err error) {
	took, status := s.now().Sub(start), c.Response().StatusCode()
	method, route := routeOf(c)
	if s.leaving.Load() {
		c.Context().SetConnectionClose()
	}
	s.metrics.observe(method, route, status, took)
	if s.accessLog == AccessNone || s.accessLog == AccessErrors && status < 400 {
		return
	}
	if kind, limit := logKind(route, status, err); kind != "" && !s.logged.Take(kind, limit) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000), slog.String("request_id", requestID(c)),
	}
	if s.logPaths {
		attrs = append(attrs, slog.String("path", c.OriginalURL()))
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

// AccessLog is which requests are logged.
type AccessLog string

// The values of AccessLog. "" is AccessAll.
const (
	AccessAll    AccessLog = "all"
	AccessErrors AccessLog = "errors" // answered with 4xx or 5xx
	AccessNone   AccessLog = "none"   // not even the error of a 5xx; metrics count it
)

// logKind returns the kind that a request is sampled as in the log, and how many lines of that kind are logged in a
// second. Kind "" is always logged: successful requests, which the limits by address bound.
func logKind(route string, status int, err error) (kind string, limit int) {
	switch {
	case errors.Is(err, admission.ErrOverload):
		return "overload", admission.RefusalLines
	case status >= 500:
		return strconv.Itoa(status), admission.ErrorLines
	case status >= 400 && route == noRoute:
		return strconv.Itoa(status) + " without a route", admission.RefusalLines
	case status >= 400:
		return strconv.Itoa(status), admission.RefusalLines
	case route == "/healthz": // has no limit
		return route, admission.RefusalLines
	}
	return "", 0
}

func (s *Server) logPanic(c *fiber.Ctx, reason any) {
	if !s.logged.Take("panic", admission.RefusalLines) {
		return
	}
	s.log.Error("panic", "request_id", requestID(c), "reason", reason, "stack", string(debug.Stack()))
}

const maxRequestID = 64 // characters

// nameRequest takes the client's X-Request-Id if it is safe in a log line, and creates one otherwise.
func nameRequest(c *fiber.Ctx) {
	id := strings.Clone(c.Get(fiber.HeaderXRequestID))
	if !safeRequestID(id) {
		id = uuid.NewString()
	}
	c.Locals(requestIDKey, id)
	c.Set(fiber.HeaderXRequestID, id)
}

func safeRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

func requestID(c *fiber.Ctx) string {
	id, _ := c.Locals(requestIDKey).(string)
	return id
}

// secure sets headers that restrict what browsers do with an answer. The page at /docs has a policy of its own.
func (s *Server) secure(c *fiber.Ctx) {
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderContentSecurityPolicy, "default-src 'none'; frame-ancestors 'none'")
	c.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	c.Set("Cross-Origin-Resource-Policy", "same-origin") // for <img>, <script> and the like; CORS is unaffected
	if s.overTLS(c) {
		c.Set(fiber.HeaderStrictTransportSecurity, "max-age=31536000")
	}
}

// countRequest counts every request against its address, before any other work.
func (s *Server) countRequest(c *fiber.Ctx) error {
	if err := s.rates.Request(s.client(c)); err != nil {
		return err
	}
	return c.Next()
}

// admit refuses a request at once if the server is overloaded, or if the client leaves too many answers unread. A
// request that waited instead would take as long as all those before it, and most clients would have given up by then.
func (s *Server) admit(c *fiber.Ctx) error {
	a, err := s.answers.Begin(s.clientKey(c))
	if err != nil {
		return err
	}
	if conn, ok := c.Context().Conn().(*network.Conn); ok {
		conn.OnAnswered(a.End)
	} else {
		defer a.End()
	}
	done, err := a.Await(c.UserContext())
	if err != nil {
		return err
	}
	defer done()
	c.Locals(answerKey, a)
	ctx := c.UserContext()
	c.SetUserContext(db.WithBudget(ctx, func(n int) error { return a.Spend(ctx, n) }))
	if err := c.Next(); err != nil {
		a.Settle(0) // a problem is short
		return err
	}
	if c.Response().IsBodyStream() { // read as it is written
		a.Settle(0)
	} else {
		a.Settle(len(c.Response().Body()))
	}
	return nil
}

// budget returns a function that counts further bytes of the answer to c, as admission.Answer.Spend.
func budget(ctx context.Context, c *fiber.Ctx) func(n int) error {
	a, ok := c.Locals(answerKey).(*admission.Answer)
	if !ok {
		return func(int) error { return nil }
	}
	return func(n int) error { return a.Spend(ctx, n) }
}

// represent represents the answer as pages.Represent does. Streams pass unchanged.
func (s *Server) represent(c *fiber.Ctx) error {
	if err := c.Next(); err != nil {
		return err
	}
	if string(c.Response().Header.ContentType()) != mimeEventStream && !c.Response().IsBodyStream() {
		shared, _ := c.Locals(encodedKey).(*pages.Encoded) // nil if the body is of this request alone
		pages.Represent(c, shared)
	}
	return nil
}
