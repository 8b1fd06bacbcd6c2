package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// openTarget tells the gate of a target that was just created. A failure is only logged: the target then warms on its
// first like.
func (s *Server) openTarget(c *fiber.Ctx, target models.Target, createdAt time.Time) {
	if s.gate == nil {
		return
	}
	ctx := c.UserContext()
	err := s.gate.OpenTarget(ctx, target, createdAt)
	if err == nil {
		// It may have been deleted since it was written, and then the gate was told to close what it had not opened
		// yet. Whoever deletes commits before closing, so this sees a deletion that closing came too early for.
		var open bool
		if open, err = s.store.TargetOpen(ctx, target); err == nil && !open {
			err = s.gate.CloseTargets(ctx, []models.Target{target})
		}
	}
	if err != nil {
		s.log.Warn("target not opened", "target", target.String(), "request_id", requestID(c), "error", err)
	}
}

// closeTimeout bounds telling the gate of a deletion, and closeChunk the comments that it is told of at a time.
const (
	closeTimeout = 10 * time.Second
	closeChunk   = 500
)

// closePost tells the gate that a post was deleted, and all its comments with it.
func (s *Server) closePost(c *fiber.Ctx, id int64) {
	s.closeTargets(c, postTarget(id), func(ctx context.Context) error {
		targets := []models.Target{postTarget(id)}
		for after := int64(0); ; {
			if err := s.gate.CloseTargets(ctx, targets); err != nil {
				return err
			}
			ids, err := s.store.CommentIDs(ctx, id, after, closeChunk)
			if err != nil || len(ids) == 0 {
				return err
			}
			targets = targets[:0]
			for _, id := range ids {
				targets = append(targets, commentTarget(id))
			}
			after = ids[len(ids)-1]
		}
	})
}

// closeComment tells the gate that a comment was deleted.
func (s *Server) closeComment(c *fiber.Ctx, id int64) {
	target := commentTarget(id)
	s.closeTargets(c, target, func(ctx context.Context) error {
		return s.gate.CloseTargets(ctx, []models.Target{target})
	})
}

// closeTargets runs what follows a deletion that is committed. Its time is its own: the deletion is done, and what is
// left of the request's deadline may be too short to follow it up. A failure is an error for the operator alone: the
// gate takes likes of something that is deleted until a workers.Closer gets to it.
func (s *Server) closeTargets(c *fiber.Ctx, target models.Target, closeThem func(context.Context) error) {
	if s.gate == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), closeTimeout)
	defer cancel()
	if err := closeThem(ctx); err != nil {
		s.log.Error("deleted target not closed", "target", target.String(), "request_id", requestID(c), "error", err)
	}
}
