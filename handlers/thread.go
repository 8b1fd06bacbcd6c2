package handlers

import (
	"context"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// Bounds of a thread.
const (
	defaultDepth       = 3
	maxDepth           = 10
	defaultThreadLimit = 100
	maxThreadLimit     = 500
)

// readThread shows a post's comments as a tree, with a cursor wherever it is cut. Cursors of the top level also work
// with listComments.
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
	if q.Sort, q.After, err = s.commentsPosition(c, topLevelList(id)); err != nil {
		return err
	}
	comments, rest, err := s.store.Thread(c.UserContext(), q)
	if err != nil {
		return err
	}
	p := page[models.Comment]{name: topLevelList(id) + string(q.Sort), rows: comments, limit: len(comments), rest: rest}
	p.key = func(m *models.Comment) models.ListKey { return m.Key(q.Sort) }
	return replyPage(s, c, p, s.eachTree(q.Sort))
}

// readAncestors lists the ancestors of a comment, from the top level down.
func (s *Server) readAncestors(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	return replyList(s, c, listing[models.Comment, commentJSON]{
		name: "ancestors:" + strconv.FormatInt(id, 10),
		read: func(ctx context.Context, at position) ([]models.Comment, *models.ListKey, error) {
			return all(s.store.Ancestors(ctx, viewerID(c), id, at.id(), at.limit))
		},
		key:  func(m *models.Comment) models.ListKey { return models.ListKey{ID: m.ID} },
		show: s.eachComment,
	})
}
