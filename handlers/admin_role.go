package handlers

import (
	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type roleJSON struct {
	Role string `json:"role"`
}

// changeRole sets the role of the user in the path. It takes effect in every process within seconds (see
// signin.Sessions).
func (s *Server) changeRole(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	var name, reason string
	if err := decode(c, fields{"role": &name, "reason": lineOf{&reason}}); err != nil {
		return err
	}
	role, err := models.ParseRole(name)
	if err != nil {
		return models.Invalid("role", models.NotOneOf(models.RoleNames()...))
	}
	ended, err := s.accounts.ChangeRole(c.UserContext(), viewerID(c), id, role, reason)
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.JSON(roleJSON{role.String()})
}
