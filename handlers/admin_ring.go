package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/likes"
)

// ringJSON is a suspected like ring with its evidence.
type ringJSON struct {
	ID           int64                 `json:"id"`
	Author       namedJSON             `json:"author"`
	Members      []ringMemberJSON      `json:"members"`
	Coincidences int                   `json:"coincidences"`
	Occasions    int                   `json:"occasions"`
	FirstAt      time.Time             `json:"first_at"`
	LastAt       time.Time             `json:"last_at"`
	Evidence     []models.RingOccasion `json:"evidence"`
	FoundAt      time.Time             `json:"found_at"`
	Status       models.RingStatus     `json:"status"`
	Reason       string                `json:"reason"`
	ResolvedAt   *time.Time            `json:"resolved_at"`
	ResolvedBy   *int64                `json:"resolved_by"`
}

type ringMemberJSON struct {
	User         namedJSON `json:"user"`
	Coincidences int       `json:"coincidences"`
	Likes        int       `json:"likes"`
}

// listLikeRings lists the rings with a status, latest first.
func (s *Server) listLikeRings(c *fiber.Ctx) error {
	status, err := oneOf(c, "status", models.RingOpen, models.RingDismissed, models.RingVoided)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.LikeRing, ringJSON]{
		Name: "like-rings:" + string(status),
		Read: func(ctx context.Context, at pages.Position) ([]models.LikeRing, *models.ListKey, error) {
			return pages.All(s.moderation.LikeRings(ctx, status, at.ID(), at.Limit))
		},
		Key:  (*models.LikeRing).Key,
		Show: pages.Each(newRingJSON),
	})
}

func newRingJSON(r *models.LikeRing) ringJSON {
	members := make([]ringMemberJSON, len(r.Members))
	for i, m := range r.Members {
		members[i] = ringMemberJSON{namedJSON{m.UserID, m.Username}, m.Coincidences, m.Likes}
	}
	return ringJSON{
		r.ID, namedJSON{r.AuthorID, r.Author}, members, r.Coincidences, r.Occasions, r.FirstAt, r.LastAt,
		r.Evidence, r.FoundAt, r.Status, r.Reason, r.ResolvedAt, r.ResolvedBy,
	}
}

// dismissLikeRing closes a ring without consequences.
func (s *Server) dismissLikeRing(c *fiber.Ctx) error {
	id, reason, err := pathIDAndValidReason(c, "ring")
	if err != nil {
		return err
	}
	if err := s.moderation.DismissRing(c.UserContext(), viewerID(c), id, reason); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

type likeVoidsJSON struct {
	Items []likeVoidJSON `json:"items"`
}

// voidLikeRing requests that the likes of a ring's members are voided.
func (s *Server) voidLikeRing(c *fiber.Ctx) error {
	id, reason, err := pathIDAndValidReason(c, "ring")
	if err != nil {
		return err
	}
	voids, err := s.moderation.VoidRing(c.UserContext(), viewerID(c), id, reason)
	if err != nil {
		return err
	}
	return replyRingVoids(c, voids)
}

func replyRingVoids(c *fiber.Ctx, voids []likes.LikeVoid) error {
	out := likeVoidsJSON{make([]likeVoidJSON, len(voids))}
	for i := range voids {
		out.Items[i] = newLikeVoidJSON(&voids[i])
	}
	return c.Status(fiber.StatusAccepted).JSON(out)
}
