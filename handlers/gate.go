package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// closeTimeout bounds the closing of a deleted target.
const closeTimeout = 10 * time.Second

// closePost closes a deleted post and all its comments in the gate.
func (s *Server) closePost(c *fiber.Ctx, id int64) { s.closeTarget(c, postTarget(id)) }

// closeComment closes a deleted comment in the gate.
func (s *Server) closeComment(c *fiber.Ctx, id int64) { s.closeTarget(c, commentTarget(id)) }

// closeTarget has its own deadline: the deletion is committed, and the rest of the request's time may be too short.
// A failure is an error for the operator alone. Until workers.Closer gets to the target, the gate accepts its likes.
func (s *Server) closeTarget(c *fiber.Ctx, target models.Target) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), closeTimeout)
	defer cancel()
	if err := s.targets.Close(ctx, target); err != nil {
		s.log.Error("deleted target not closed", "target", target.String(), "request_id", requestID(c), "error", err)
	}
}
