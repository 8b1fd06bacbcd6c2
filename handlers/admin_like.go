package handlers

import (
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/likes"
)

// givenLikeJSON is a like as moderators see it, even if the target is deleted or gone.
type givenLikeJSON struct {
	Type         models.TargetKind `json:"target_type"`
	ID           int64             `json:"target_id"`
	LikedAt      time.Time         `json:"liked_at"`
	TargetStatus string            `json:"target_status"` // normal, deleted or gone
	Author       *namedJSON        `json:"author"`        // null if the target is gone
	PostTitle    string            `json:"post_title"`
}

// namedJSON is a user by name.
type namedJSON struct {
	ID       int64  `json:"id"`
	Username string `json:"username"`
}

// listGivenLikes lists the likes of the user in the path that MySQL holds, latest first.
func (s *Server) listGivenLikes(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	kind, err := oneOf(c, "type", models.KindPost, models.KindComment)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.GivenLike, givenLikeJSON]{
		Name: pages.OfUser("given-likes:"+string(kind), id),
		Read: func(ctx context.Context, at pages.Position) ([]models.GivenLike, *models.ListKey, error) {
			return pages.All(s.likes.LikesGiven(ctx, kind, id, at.ID(), at.Limit))
		},
		Key:  func(l *models.GivenLike) models.ListKey { return models.ListKey{ID: l.RowID} },
		Show: pages.Each(func(l *models.GivenLike) givenLikeJSON { return newGivenLikeJSON(kind, l) }),
	})
}

func newGivenLikeJSON(kind models.TargetKind, l *models.GivenLike) givenLikeJSON {
	out := givenLikeJSON{Type: kind, ID: l.TargetID, LikedAt: l.LikedAt, TargetStatus: "gone", PostTitle: l.PostTitle}
	if l.Status != 0 {
		out.TargetStatus = l.Status.String()
	}
	if l.AuthorID != 0 {
		out.Author = &namedJSON{l.AuthorID, l.Author}
	}
	return out
}

// likeVoidJSON is a request to void likes, and its progress.
type likeVoidJSON struct {
	ID          int64      `json:"id"`
	UserID      int64      `json:"user_id"`
	Reason      string     `json:"reason"`
	RequestedBy int64      `json:"requested_by"`
	RequestedAt time.Time  `json:"requested_at"`
	Since       *time.Time `json:"since"`
	Until       *time.Time `json:"until"`
	LikesLeft   *int       `json:"likes_left"` // null if not counted
	DoneAt      *time.Time `json:"done_at"`
}

func newLikeVoidJSON(v *likes.LikeVoid) likeVoidJSON {
	return likeVoidJSON{
		ID: v.ID, UserID: v.UserID, Reason: v.Reason, RequestedBy: v.RequestedBy, RequestedAt: v.RequestedAt,
		Since: v.LikedSince, Until: v.LikedUntil, DoneAt: v.DoneAt,
	}
}

// voidLikes requests that likes of the user in the path are voided.
func (s *Server) voidLikes(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	var since, until *string
	v := likes.LikeVoid{UserID: id, RequestedBy: viewerID(c)}
	if err := decode(c, fields{"reason": lineOf{&v.Reason}, "since": &since, "until": &until}); err != nil {
		return err
	}
	if v.LikedSince, err = timeOf("since", since); err != nil {
		return err
	}
	if v.LikedUntil, err = timeOf("until", until); err != nil {
		return err
	}
	if err := s.likes.VoidLikes(c.UserContext(), &v); err != nil {
		return err
	}
	return s.replyRequestedVoid(c, &v)
}

// replyRequestedVoid answers 202: the cron job "void" carries the request out.
func (s *Server) replyRequestedVoid(c *fiber.Ctx, v *likes.LikeVoid) error {
	c.Location("/v1/admin/like-voids/" + strconv.FormatInt(v.ID, 10))
	return s.replyLikeVoid(c.Status(fiber.StatusAccepted), v)
}

// timeOf parses a time in a field of the body; nil stays nil.
func timeOf(field string, text *string) (*time.Time, error) {
	if text == nil {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, *text)
	if err != nil {
		return nil, models.Invalid(field, models.BadTime())
	}
	at = at.UTC()
	return &at, nil
}

// readLikeVoid shows the progress of a request.
func (s *Server) readLikeVoid(c *fiber.Ctx) error {
	id, err := pathID(c, "request")
	if err != nil {
		return err
	}
	v, err := s.likes.LikeVoid(c.UserContext(), id)
	if err != nil {
		return err
	}
	return s.replyLikeVoid(c, v)
}

func (s *Server) replyLikeVoid(c *fiber.Ctx, v *likes.LikeVoid) error {
	left, err := s.likes.LikesLeft(c.UserContext(), *v)
	if err != nil {
		return err
	}
	out := newLikeVoidJSON(v)
	out.LikesLeft = &left
	return c.JSON(out)
}
