package handlers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

type blockJSON struct {
	Blocked bool `json:"blocked"`
}

// setBlock returns the handler that makes the viewer block or unblock the user in the path. Repeating it changes
// nothing.
func (s *Server) setBlock(blocked bool) fiber.Handler {
	change := s.people.Unblock
	if blocked {
		change = s.people.Block
	}
	return func(c *fiber.Ctx) error {
		id, err := otherUser(c)
		if err != nil {
			return err
		}
		if err := change(c.UserContext(), viewerID(c), id); err != nil {
			return err
		}
		return c.JSON(blockJSON{blocked})
	}
}

func (s *Server) listBlocks(c *fiber.Ctx) error {
	read := func(ctx context.Context, at pages.Position) ([]models.ListedUser, *models.ListKey, error) {
		return s.people.BlockedUsers(ctx, viewerID(c), at.After, at.Limit)
	}
	return s.replyUsers(c, "blocks", viewerID(c), read)
}

// mayLike returns an error if the target's author has blocked the viewer. If nobody blocks the viewer, as is the rule,
// it does not query MySQL. A new block takes effect within signin.Fresh.
func (s *Server) mayLike(c *fiber.Ctx, target models.Target) error {
	if !viewer(c).Blocked {
		return nil
	}
	return s.people.RefuseBlocked(c.UserContext(), target, viewerID(c))
}
