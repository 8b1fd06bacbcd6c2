package handlers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
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
	q := models.ThreadQuery{PostID: id}
	if q.Depth, err = numberOf(c, "depth", defaultDepth, maxDepth); err != nil {
		return err
	}
	if q.Limit, err = numberOf(c, "limit", defaultThreadLimit, maxThreadLimit); err != nil {
		return err
	}
	if q.Sort, q.After, err = s.commentsPosition(c, topLevelList(id)); err != nil {
		return err
	}
	name := topLevelList(id) + string(q.Sort)
	read := func(ctx context.Context, viewer int64) ([]models.Comment, *models.ListKey, error) {
		q := q
		q.ViewerID = viewer
		return s.content.Thread(ctx, q)
	}
	list := commentList{name: name, sort: q.Sort, replies: q.Sort, read: read}
	return s.replyCommentList(c, list, fmt.Sprintf("%s depth=%d limit=%d", name, q.Depth, q.Limit), q.After == nil)
}

// readAncestors lists the ancestors of a comment, from the top level down.
func (s *Server) readAncestors(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.Comment, *commentItem]{
		Name: "ancestors:" + strconv.FormatInt(id, 10),
		Read: func(ctx context.Context, at pages.Position) ([]models.Comment, *models.ListKey, error) {
			return pages.All(s.content.Ancestors(ctx, viewerID(c), id, at.ID(), at.Limit))
		},
		Key:  func(m *models.Comment) models.ListKey { return models.ListKey{ID: m.ID} },
		Show: pages.TryEach(s.commentItem),
	})
}
