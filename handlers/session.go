package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// sessionInfoJSON is a session in the viewer's list.
type sessionInfoJSON struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	UserAgent string    `json:"user_agent"` // "" if the client sent none
	Current   bool      `json:"current"`
}

// sessionHash returns the hash of the request's token. The route's permission must need a user.
func sessionHash(c *fiber.Ctx) [32]byte {
	token, err := bearer(c)
	if err != nil { // impossible: authorize has read it
		return [32]byte{}
	}
	return models.HashToken(token)
}

func (s *Server) logout(c *fiber.Ctx) error {
	hash := sessionHash(c)
	if err := s.accounts.DeleteSession(c.UserContext(), hash); err != nil {
		return err
	}
	s.sessions.Forget(hash)
	return c.SendStatus(http.StatusNoContent)
}

// reauthenticate proves that it is the user who uses the session, for permissions that are models.RecentOnly.
func (s *Server) reauthenticate(c *fiber.Ctx) error {
	var password string
	if err := decode(c, fields{"password": &password}); err != nil {
		return err
	}
	user, err := s.accounts.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	if err := s.checkPassword(c, user, "password", password); err != nil {
		return err
	}
	hash := sessionHash(c)
	if err := s.accounts.ProveSession(c.UserContext(), user, hash); err != nil {
		return err
	}
	s.sessions.Refresh(hash)
	return c.SendStatus(http.StatusNoContent)
}

func (s *Server) listSessions(c *fiber.Ctx) error {
	current := sessionHash(c)
	return replyList(s, c, pages.Listing[models.SessionInfo, sessionInfoJSON]{
		Name: pages.OfUser("sessions", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.SessionInfo, *models.ListKey, error) {
			return pages.All(s.accounts.Sessions(ctx, viewerID(c), at.After, at.Limit))
		},
		Key: (*models.SessionInfo).Key,
		Show: pages.Each(func(info *models.SessionInfo) sessionInfoJSON {
			return sessionInfoJSON{
				models.SessionID(info.Hash()), info.CreatedAt, info.ExpiresAt, info.UserAgent, info.Hash() == current,
			}
		}),
	})
}

func (s *Server) endSession(c *fiber.Ctx) error {
	return s.endSessions(c)(s.accounts.EndSession(c.UserContext(), viewerID(c), c.Params("id")))
}

// endOtherSessions ends all sessions of the viewer but that of the request.
func (s *Server) endOtherSessions(c *fiber.Ctx) error {
	return s.endSessions(c)(s.accounts.EndOtherSessions(c.UserContext(), viewerID(c), sessionHash(c)))
}

// endSessions answers when sessions were ended: here at once, in other processes within seconds (see signin.Sessions).
func (s *Server) endSessions(c *fiber.Ctx) func(ended [][32]byte, err error) error {
	return func(ended [][32]byte, err error) error {
		if err != nil {
			return err
		}
		s.sessions.Forget(ended...)
		return c.SendStatus(http.StatusNoContent)
	}
}
