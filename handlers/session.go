package handlers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// sessionInfoJSON is a session in the list of one's own.
type sessionInfoJSON struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	UserAgent string    `json:"user_agent"` // "" if the client did not say
	Current   bool      `json:"current"`
}

// sessionHash is the hash of the token that the request came with; only where there is a viewer.
func sessionHash(c *fiber.Ctx) [32]byte {
	token, err := bearer(c)
	if err != nil { // allow has read it before
		return [32]byte{}
	}
	return models.HashToken(token)
}

func (s *Server) logout(c *fiber.Ctx) error {
	hash := sessionHash(c)
	if err := s.store.DeleteSession(c.UserContext(), hash); err != nil {
		return err
	}
	s.sessions.forget(hash)
	return c.SendStatus(http.StatusNoContent)
}

func (s *Server) listSessions(c *fiber.Ctx) error {
	n, err := limit(c)
	if err != nil {
		return err
	}
	name := "sessions:user=" + strconv.FormatInt(viewerID(c), 10)
	after, err := s.cursors.after(c, name)
	if err != nil {
		return err
	}
	sessions, err := s.store.Sessions(c.UserContext(), viewerID(c), after, n+1)
	if err != nil {
		return err
	}
	sessions, next := page(s.cursors, name, sessions, n, (*models.SessionInfo).Key)
	items, current := make([]sessionInfoJSON, len(sessions)), sessionHash(c)
	for i := range sessions {
		info := &sessions[i]
		items[i] = sessionInfoJSON{models.SessionID(info.Hash()), info.CreatedAt, info.ExpiresAt, info.UserAgent, info.Hash() == current}
	}
	return c.JSON(list[sessionInfoJSON]{items, next})
}

func (s *Server) endSession(c *fiber.Ctx) error {
	return s.endSessions(c)(s.store.EndSession(c.UserContext(), viewerID(c), c.Params("id")))
}

// endOtherSessions ends all but the one that the request came with.
func (s *Server) endOtherSessions(c *fiber.Ctx) error {
	return s.endSessions(c)(s.store.EndOtherSessions(c.UserContext(), viewerID(c), sessionHash(c)))
}

// endSessions answers when sessions were ended: here at once, in other processes within sessionFresh.
func (s *Server) endSessions(c *fiber.Ctx) func(ended [][32]byte, err error) error {
	return func(ended [][32]byte, err error) error {
		if err != nil {
			return err
		}
		s.sessions.forget(ended...)
		return c.SendStatus(http.StatusNoContent)
	}
}
