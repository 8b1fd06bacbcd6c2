package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"likewise/models"
)

// sessions looks tokens up, through a cache.
//
// What MySQL said is believed for sessionFresh, so a revoked token works for that long at most, and so long is an
// unknown one not asked for again. While MySQL cannot be asked, what it said within sessionStale still holds: nobody
// can revoke anything meanwhile, and likes go on without MySQL.
type sessions struct {
	store  *models.Store
	now    func() time.Time
	log    *slog.Logger
	cache  *otter.Cache[[32]byte, sessionEntry]
	flight singleflight.Group
}

const (
	sessionFresh   = 4 * time.Second // with the requests that are under way at its end, 5 s
	sessionStale   = models.SessionStale
	sessionRetry   = time.Second // how long a failure to ask holds
	sessionTimeout = 2 * time.Second
	maxSessions    = 100_000 // about 30 MB
)

// sessionEntry is what MySQL said about a token.
type sessionEntry struct {
	session *models.Session // nil: there is no such token
	asked   time.Time
	next    time.Time // when to ask again
}

func newSessions(store *models.Store, now func() time.Time, log *slog.Logger) (*sessions, error) {
	cache, err := otter.New(&otter.Options[[32]byte, sessionEntry]{MaximumSize: maxSessions})
	if err != nil {
		return nil, fmt.Errorf("session cache: %w", err)
	}
	return &sessions{store: store, now: now, log: log, cache: cache}, nil
}

// lookup returns the session of a token's hash: CodeUnauthorized if the token is not valid, CodeUnavailable if that cannot
// be known.
func (s *sessions) lookup(ctx context.Context, hash [32]byte) (*models.Session, error) {
	entry, ok := s.cache.GetIfPresent(hash)
	if !ok || !s.now().Before(entry.next) {
		var err error
		if entry, err = s.ask(ctx, hash); err != nil {
			return nil, err
		}
	}
	if entry.session == nil || !s.now().Before(entry.session.ExpiresAt) {
		return nil, models.Errorf(models.CodeUnauthorized, "The token is not valid.")
	}
	return entry.session, nil
}

// ask asks MySQL, once for all who ask at the same time. The one whose question it was also keeps, once a minute, that
// an API token is used: nobody else waits for that.
func (s *sessions) ask(ctx context.Context, hash [32]byte) (sessionEntry, error) {
	var mine *models.Session
	answer, err, _ := s.flight.Do(string(hash[:]), func() (any, error) {
		// The answer is for everybody who waits, so the deadline is not that of the one who came first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout)
		defer cancel()
		entry := sessionEntry{asked: s.now()} // before the query: the token may be revoked while it runs
		entry.next = entry.asked.Add(sessionFresh)
		session, err := s.store.SessionByHash(ctx, hash)
		switch code := models.ErrorCode(err); {
		case err == nil:
			entry.session, mine = session, session
		case code == models.CodeUnavailable:
			known, ok := s.cache.GetIfPresent(hash)
			if !ok || s.now().Sub(known.asked) >= sessionStale {
				return nil, models.Unavailable("The token cannot be checked at the moment; try again.", err)
			}
			known.next = s.now().Add(sessionRetry)
			entry = known
		case code != models.CodeUnauthorized:
			return nil, err
		}
		s.cache.Set(hash, entry)
		return entry, nil
	})
	if err != nil {
		return sessionEntry{}, err
	}
	if mine != nil && mine.Unnoted(s.now()) {
		ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
		defer cancel()
		if err := s.store.UseToken(ctx, hash); err != nil {
			s.log.Warn("use of a token not kept", "user_id", mine.UserID, "error", err)
		}
	}
	return answer.(sessionEntry), nil
}

// forget makes this process refuse tokens at once that were just ended.
func (s *sessions) forget(hashes ...[32]byte) {
	now := s.now()
	for _, hash := range hashes {
		s.cache.Set(hash, sessionEntry{asked: now, next: now.Add(sessionFresh)})
	}
}

// refresh makes this process ask again about a token whose user has changed.
func (s *sessions) refresh(hash [32]byte) { s.cache.Invalidate(hash) }

// authorize returns the middleware that authorizes requests of a row and counts them against its limit. It refuses an
// invalid token even where none is needed: otherwise a client whose session has ended would be answered as anonymous.
func (s *Server) authorize(row route) fiber.Handler {
	rule, _ := row.permission.Rule()
	return func(c *fiber.Ctx) error {
		if rule.On != models.All {
			c.Locals(ruleKey, rule)
		}
		if rule.Scope == models.NoToken {
			s.nameCaller(c, nil, [32]byte{})
			return s.spend(c, row.limit)
		}
		var session *models.Session
		if c.Get(fiber.HeaderAuthorization) != "" {
			token, err := bearer(c)
			if err != nil {
				return err
			}
			hash := models.HashToken(token)
			if session, err = s.sessions.lookup(c.UserContext(), hash); err != nil {
				return err
			}
			c.Locals(viewerKey, session)
			if row.permission != "like.set" { // likes rely on the cached session, so that they work without MySQL
				s.nameCaller(c, session, hash)
			}
		}
		if err := rule.Admit(session); err != nil {
			return err
		}
		if rule.Least >= models.RoleModerator {
			c.SetUserContext(models.WithRequestID(c.UserContext(), requestID(c)))
		}
		return s.spend(c, row.limit)
	}
}

// nameCaller attaches the caller to the request's context; session is nil for the anonymous. Each transaction checks that
// the session is still valid when it runs (see models.Caller).
func (s *Server) nameCaller(c *fiber.Ctx, session *models.Session, hash [32]byte) {
	caller := &models.Caller{
		Session: hash, Address: s.clientAddress(c).String(), UserAgent: strings.Clone(userAgent(c)),
	}
	if session != nil {
		caller.UserID = session.UserID
	}
	c.SetUserContext(models.WithCaller(c.UserContext(), caller))
}

// allowOn returns an error unless the route's permission allows the viewer to act on an object of this owner.
func allowOn(c *fiber.Ctx, owner int64) error {
	rule, ok := c.Locals(ruleKey).(models.Rule)
	if !ok {
		return fmt.Errorf("the permission of %s does not depend on the owner", c.Route().Path)
	}
	return rule.AdmitOn(viewer(c), owner)
}

// bearer returns the request's token, in Fiber's memory.
func bearer(c *fiber.Ctx) (string, error) {
	scheme, token, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", models.Errorf(models.CodeUnauthorized, "This needs a token: Authorization: Bearer TOKEN.")
	}
	return token, nil
}

// viewer returns the session of the request; nil for the anonymous.
func viewer(c *fiber.Ctx) *models.Session {
	session, _ := c.Locals(viewerKey).(*models.Session)
	return session
}

// viewerID returns the id of the user who sent the request; 0 for the anonymous.
func viewerID(c *fiber.Ctx) int64 {
	if session := viewer(c); session != nil {
		return session.UserID
	}
	return 0
}

// viewerAuthor returns the viewer as an author. The route's permission must need a user.
func viewerAuthor(c *fiber.Ctx) models.Author { return viewer(c).Author() }
