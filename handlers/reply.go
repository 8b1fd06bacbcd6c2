package handlers

import (
	"bytes"
	"context"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
)

// replyList answers with the page of a list that ?limit= and ?cursor= select.
func replyList[R, J any](s *Server, c *fiber.Ctx, l pages.Listing[R, J]) error {
	h, err := encodeList(s, c, l)
	if err != nil {
		return err
	}
	return s.replyHalves(c, h)
}

// encodeList returns the page of a list that ?limit= and ?cursor= select.
func encodeList[R, J any](s *Server, c *fiber.Ctx, l pages.Listing[R, J]) (*pages.Halves, error) {
	n, err := pageLimit(c)
	if err != nil {
		return nil, err
	}
	after, err := s.cursors.After(c, l.Name)
	if err != nil {
		return nil, err
	}
	rows, rest, err := l.Read(c.UserContext(), pages.Position{After: after, Limit: n + 1})
	if err != nil {
		return nil, err
	}
	p := pages.Page[R]{Name: l.Name, Rows: rows, Limit: n, Key: l.Key, Rest: rest}
	if l.More != nil {
		if p.More, err = l.More(c); err != nil {
			return nil, err
		}
	}
	return pages.Encode(s.cursors, budget(c.UserContext(), c), p, l.Show)
}

// replyPage answers with a page.
func replyPage[R, J any](s *Server, c *fiber.Ctx, p pages.Page[R], show pages.Shower[R, J]) error {
	h, err := pages.Encode(s.cursors, budget(c.UserContext(), c), p, show)
	if err != nil {
		return err
	}
	return s.replyHalves(c, h)
}

func replyEncoded(c *fiber.Ctx, body []byte) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(body)
	return nil
}

// replyHalves answers with h and the halves of the viewer, and with further members.
func (s *Server) replyHalves(c *fiber.Ctx, h *pages.Halves, members ...pages.Member) error {
	s.charge(c, h.Examined)
	body, err := s.join(c, h, members...)
	if err != nil {
		return err
	}
	return replyEncoded(c, body)
}

// replyItem answers with v, whose rows are from a pages.Source.
func (s *Server) replyItem(c *fiber.Ctx, v pages.Item, rows pages.Source) error {
	h := &pages.Halves{Rows: rows}
	if err := v.AppendTo(h); err != nil {
		return err
	}
	return s.replyHalves(c, h)
}

// replyShared answers with a page. If share is set, requests share its first halves as the anonymous see them, under a
// name, which must differ from those of all other reads. Read returns the page as the viewer sees it. Members are the
// viewer's, or change without an edition, so an answer with any is made for each request.
func (s *Server) replyShared(
	c *fiber.Ctx, name string, share bool, read func(ctx context.Context, viewer int64) (*pages.Halves, error),
	members ...pages.Member,
) error {
	h, edition, share, err := s.firstHalves(c, name, share, read)
	if err != nil {
		return err
	}
	if !share || viewerID(c) != 0 || hasPlace(c) || len(members) > 0 {
		return s.replyHalves(c, h, members...)
	}
	s.charge(c, h.Examined)
	answer, err := s.shared.Answer(c.UserContext(), edition, name, func() ([]byte, error) { return s.join(c, h) })
	if err != nil {
		return err
	}
	c.Locals(encodedKey, answer)
	return replyEncoded(c, answer.Body)
}

// firstHalves returns a page as replyShared reads it, and the edition in which it is shared. ok is false if it is not.
func (s *Server) firstHalves(
	c *fiber.Ctx, name string, share bool, read func(ctx context.Context, viewer int64) (*pages.Halves, error),
) (h *pages.Halves, edition int64, ok bool, err error) {
	if edition, ok, err = s.sharing(c, share); err != nil {
		return nil, 0, false, err
	}
	if !ok {
		h, err = read(c.UserContext(), viewerID(c))
		return h, 0, false, err
	}
	h, err = readShared(c, s, name, func(ctx context.Context) (*pages.Halves, error) {
		h, err := read(ctx, 0)
		if err != nil {
			return nil, err
		}
		h.Rows, h.Body = pages.ReadByAnyone, bytes.Clone(h.Body) // without unused capacity
		return h, nil
	})
	return h, edition, true, err
}

// sharing returns the edition, and whether the viewer sees the rows that all see.
func (s *Server) sharing(c *fiber.Ctx, share bool) (edition int64, ok bool, err error) {
	if !share {
		return 0, false, nil
	}
	if edition, ok = s.edition(c); !ok {
		return 0, false, nil
	}
	_, ok, err = s.asAnyone(c)
	return edition, ok, err
}
