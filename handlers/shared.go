package handlers

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// edition returns the edition of a request: one that was current while the request ran is new enough for all its reads.
// ok is false in direct mode and while Redis does not answer. The likes of the answer are then read without Redis, too,
// and log its failure.
func (s *Server) edition(c *fiber.Ctx) (edition int64, ok bool) {
	if edition, ok = c.Locals(editionKey).(int64); ok {
		return edition, true
	}
	if edition, ok = s.shared.Current(c.UserContext()); ok {
		c.Locals(editionKey, edition)
	}
	return edition, ok
}

// asAnyone reports whether the viewer sees what the anonymous see, apart from likes, bookmarks and standings: the
// viewer blocks nobody.
func (s *Server) asAnyone(c *fiber.Ctx) (models.Viewpoint, bool, error) {
	view, known, err := s.viewpoint(c)
	return view, known && !view.Blocks, err
}

// viewpoint returns the viewer's Viewpoint. It is not known in direct mode and while Redis does not answer.
func (s *Server) viewpoint(c *fiber.Ctx) (view models.Viewpoint, known bool, err error) {
	viewer := viewerID(c)
	if viewer == 0 {
		return models.Viewpoint{}, true, nil
	}
	edition, ok := s.edition(c)
	if !ok {
		return models.Viewpoint{}, false, nil
	}
	view, err = s.shared.Viewpoint(c.UserContext(), edition, viewer, s.reader.Viewpoints)
	return view, err == nil, err
}

// readShared is pages.Read in the edition of the request, if it has one.
func readShared[T any](c *fiber.Ctx, s *Server, name string, load func(context.Context) (T, error)) (T, error) {
	edition, ok := s.edition(c)
	if !ok {
		return load(c.UserContext())
	}
	return pages.Read(c.UserContext(), s.shared, edition, name, load)
}

// advance ends the edition after a request that may have changed what readers see. If it fails, other processes may
// show the state before the change for a second, and the viewpoint before it for ten.
//
// A refused request has changed nothing. Otherwise clients could end editions with requests that cost them nothing.
func (s *Server) advance(c *fiber.Ctx) error {
	err := c.Next()
	if err != nil && statuses[models.ErrorCode(err)] < http.StatusInternalServerError {
		return err
	}
	s.endEdition(c)
	return err
}

// endEdition ends the edition after a change by a request. In direct mode there is none.
func (s *Server) endEdition(c *fiber.Ctx) {
	if s.shared.Off() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), s.timeout)
	defer cancel()
	if err := s.shared.End(ctx); err != nil {
		s.log.Warn("a change may be seen late", "request_id", requestID(c), "error", err)
	}
}
