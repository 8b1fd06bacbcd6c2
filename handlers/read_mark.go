package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// readerStateJSON is the relation of the viewer to a post.
type readerStateJSON struct {
	LastRead     *lastReadJSON `json:"last_read"`    // null if the viewer has not read it, and for the anonymous
	UnreadCount  *int64        `json:"unread_count"` // null as last_read
	Subscription *string       `json:"subscription"` // null without one
}

// lastReadJSON is how far the viewer has read.
type lastReadJSON struct {
	CommentID *int64    `json:"comment_id"` // null if there was no comment
	At        time.Time `json:"at"`
}

func newReaderStateJSON(state models.ReaderState) readerStateJSON {
	out := readerStateJSON{Subscription: present(state.Subscription.String())}
	if m := state.Mark; m != nil {
		out.LastRead, out.UnreadCount = &lastReadJSON{present(m.CommentID), m.ReadAt}, &m.Unread
	}
	return out
}

// readerStates returns the viewer's states towards posts, by id. What the counting of unread comments examines is
// charged.
func (s *Server) readerStates(c *fiber.Ctx, posts []int64) (map[int64]models.ReaderState, error) {
	view, known, err := s.viewpoint(c)
	if err != nil || known && !view.HasReaderStates {
		return nil, err
	}
	states, examined, err := s.reader.ReaderStates(c.UserContext(), viewerID(c), posts)
	if err != nil {
		return nil, err
	}
	s.charge(c, examined)
	return states, nil
}

// markRead marks the comments on a post as read, up to the one in comment_id or the latest.
//
// It does not end the edition of shared reads, which have no marks. But a viewpoint of the edition may have no
// states yet, and lists would then show none.
func (s *Server) markRead(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	var upTo *int64
	if err := decode(c, fields{"comment_id": &upTo}); err != nil {
		return err
	}
	if upTo != nil && *upTo < 1 {
		return models.Invalid("comment_id",
			models.BadFormat(models.FormatID, "must be the id of a comment on this post"))
	}
	view, _, err := s.viewpoint(c)
	if err != nil {
		return err
	}
	if err := s.reader.MarkRead(c.UserContext(), viewerID(c), id, valueOf(upTo)); err != nil {
		return err
	}
	if !view.HasReaderStates {
		s.endEdition(c)
	}
	states, examined, err := s.reader.ReaderStates(c.UserContext(), viewerID(c), []int64{id})
	if err != nil {
		return err
	}
	s.charge(c, examined)
	return c.JSON(newReaderStateJSON(states[id]))
}

// listUnread lists summaries of the posts with comments that the viewer has not read, the latest comment first. What
// the counting of unread comments examines is charged.
func (s *Server) listUnread(c *fiber.Ctx) error {
	examined := 0
	err := replyList(s, c, pages.Listing[models.Post, postItem]{
		Name: pages.OfUser("unread", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) (list []models.Post, rest *models.ListKey, err error) {
			list, rest, examined, err = s.reader.UnreadPosts(ctx, viewerID(c), at.After, at.Limit)
			return list, rest, err
		},
		Key:  func(p *models.Post) models.ListKey { return p.Key(models.PostsActive) },
		Show: pages.Each(s.summary),
	})
	s.charge(c, examined)
	return err
}
