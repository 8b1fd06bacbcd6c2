package handlers

import (
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
	"likewise/models/db"
)

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
			if session, err = s.sessions.Lookup(c.UserContext(), hash); err != nil {
				return err
			}
			c.Locals(viewerKey, session)
			// Likes rely on the cached session, so that they work without MySQL.
			if row.permission != models.PermLikeSet {
				s.nameCaller(c, session, hash)
			}
		}
		if err := rule.Admit(session, s.staffFactor); err != nil {
			return err
		}
		if err := s.admitProof(c, rule, session); err != nil {
			return err
		}
		return s.spend(c, row.limit)
	}
}

// admitProof is rule.AdmitProof. It reads the session again before it refuses: another process may have written a proof
// that the cache does not have yet.
func (s *Server) admitProof(c *fiber.Ctx, rule models.Rule, session *models.Session) error {
	if rule.AdmitProof(session, s.now()) == nil {
		return nil
	}
	hash := sessionHash(c)
	s.sessions.Refresh(hash)
	session, err := s.sessions.Lookup(c.UserContext(), hash)
	if err != nil {
		return err
	}
	return rule.AdmitProof(session, s.now())
}

// nameCaller attaches the caller to the request's context; session is nil for the anonymous. Each transaction checks
// that the session is still valid when it runs (see db.Caller).
func (s *Server) nameCaller(c *fiber.Ctx, session *models.Session, hash [32]byte) {
	caller := &db.Caller{
		Session: hash, Address: s.clientAddress(c).String(), UserAgent: strings.Clone(userAgent(c)),
		RequestID: requestID(c),
	}
	if session != nil {
		caller.UserID = session.UserID
	}
	c.SetUserContext(db.WithCaller(c.UserContext(), caller))
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
