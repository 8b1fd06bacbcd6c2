package handlers

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// banUser bans the user in the path until a time, or permanently without one. The ban takes effect in this process at
// once, and in others within seconds (see signin.Sessions).
func (s *Server) banUser(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	var until *string
	ban := models.Ban{Until: models.ForGood}
	if err := decode(c, fields{"until": &until, "reason": lineOf{&ban.Reason}}); err != nil {
		return err
	}
	if until != nil {
		if ban.Until, err = time.Parse(time.RFC3339, *until); err != nil {
			return models.Invalid("until", models.BadTime())
		}
	}
	ended, err := s.moderation.BanUser(c.UserContext(), viewerID(c), id, &ban)
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.JSON(newBanJSON(&ban))
}

// unbanUser ends the ban of the user in the path. Sessions and tokens that the ban has ended stay ended.
func (s *Server) unbanUser(c *fiber.Ctx) error {
	id, reason, err := pathIDAndReason(c, "user")
	if err != nil {
		return err
	}
	if err := s.moderation.UnbanUser(c.UserContext(), viewerID(c), id, reason); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// deleteBannedUser deletes the account of the user in the path, who must be banned.
func (s *Server) deleteBannedUser(c *fiber.Ctx) error {
	id, reason, err := pathIDAndReason(c, "user")
	if err != nil {
		return err
	}
	ended, err := s.privacy.DeleteBannedUser(c.UserContext(), viewerID(c), id, reason)
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.SendStatus(fiber.StatusNoContent)
}
