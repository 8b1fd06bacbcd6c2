package handlers

import (
	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// Sizes of a thread.
const (
	defaultDepth       = 3
	maxDepth           = 10
	defaultThreadLimit = 100
	maxThreadLimit     = 500
)

// readThread shows a post's comments as a tree, with a cursor wherever it is cut. The cursors of the top level are those
// of listComments.
func (s *Server) readThread(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	q := models.ThreadQuery{ViewerID: viewerID(c), PostID: id}
	if q.Depth, err = numberOf(c, "depth", defaultDepth, maxDepth); err != nil {
		return err
	}
	if q.Limit, err = numberOf(c, "limit", defaultThreadLimit, maxThreadLimit); err != nil {
		return err
	}
	if q.Sort, q.After, err = s.commentsPlace(c, topLevelList(id)); err != nil {
		return err
	}
	comments, more, err := s.store.Thread(c.UserContext(), q)
	if err != nil {
		return err
	}
	items, err := s.treeJSON(c, comments, q.Sort)
	if err != nil {
		return err
	}
	var next *string
	if more {
		cursor := s.cursors.encode(topLevelList(id)+string(q.Sort), comments[len(comments)-1].Key(q.Sort))
		next = &cursor
	}
	return c.JSON(list[commentJSON]{items, next})
}

// readAncestors shows what a comment replies to, what that replies to, and so on, from the top level down.
func (s *Server) readAncestors(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	comments, err := s.store.Ancestors(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	items, err := s.commentsJSON(c, comments)
	if err != nil {
		return err
	}
	return c.JSON(list[commentJSON]{Items: items})
}
