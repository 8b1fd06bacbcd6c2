package handlers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type blockJSON struct {
	Blocked bool `json:"blocked"`
}

// setBlock makes the viewer block the user in the path, or no longer. Saying it again changes nothing.
func (s *Server) setBlock(blocked bool) fiber.Handler {
	change := s.store.Unblock
	if blocked {
		change = s.store.Block
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
	return s.pageOfUsers(c, "blocks", viewerID(c), func(ctx context.Context, _, userID int64, after *models.ListKey, limit int) ([]models.ListedUser, *models.ListKey, error) {
		return s.store.BlockedUsers(ctx, userID, after, limit)
	})
}

// mayLike refuses a like of what was written by somebody who has blocked the viewer. Who is blocked by nobody, as
// nearly everybody is, is let through without a question to MySQL; a block is known here within sessionFresh.
func (s *Server) mayLike(c *fiber.Ctx, target models.Target) error {
	if !viewer(c).Blocked {
		return nil
	}
	return s.store.RefuseBlocked(c.UserContext(), target, viewerID(c))
}
