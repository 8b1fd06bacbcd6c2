package handlers

import (
	"context"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// givenClaimJSON is a claim as moderators see it.
type givenClaimJSON struct {
	claimJSON
	User *authorJSON `json:"user"` // null if the account is deleted
}

func (s *Server) givenClaimJSON(m *models.ClaimOfDrop) givenClaimJSON {
	out := givenClaimJSON{claimJSON: newClaimJSON(&m.Claim)}
	if m.User.ID != 0 {
		user := s.author(m.User)
		out.User = &user
	}
	return out
}

// listDropClaims lists the claims of the drop in the path that MySQL holds, latest first.
func (s *Server) listDropClaims(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindDrop)
	if err != nil {
		return err
	}
	return replyList(s, c, listing[models.ClaimOfDrop, givenClaimJSON]{
		name: "claims:drop=" + strconv.FormatInt(id, 10),
		read: func(ctx context.Context, at position) ([]models.ClaimOfDrop, *models.ListKey, error) {
			return all(s.store.ClaimsOfDrop(ctx, id, at.id(), at.limit))
		},
		key:  func(m *models.ClaimOfDrop) models.ListKey { return models.ListKey{ID: m.ID} },
		show: each(s.givenClaimJSON),
	})
}

// voidClaim ends a user's claim of the drop in the path.
func (s *Server) voidClaim(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindDrop)
	if err != nil {
		return err
	}
	var userID int64
	var reason string
	if err := decode(c, fields{"user_id": &userID, "reason": &reason}); err != nil {
		return err
	}
	claim, err := s.claims.Void(c.UserContext(), models.ClaimVoid{
		DropID: id, UserID: userID, ActorID: viewerID(c), Reason: reason,
	})
	if err != nil {
		return err
	}
	return c.JSON(s.givenClaimJSON(claim))
}
