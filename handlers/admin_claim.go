package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/db"
)

// givenClaimJSON is a claim as moderators and the author of the post see it.
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
	return s.replyClaimsOfDrop(c, id)
}

// replyClaimsOfDrop answers with a page of the claims of a drop.
func (s *Server) replyClaimsOfDrop(c *fiber.Ctx, id int64) error {
	return replyList(s, c, pages.Listing[models.ClaimOfDrop, givenClaimJSON]{
		Name: "claims:drop=" + strconv.FormatInt(id, 10),
		Read: func(ctx context.Context, at pages.Position) ([]models.ClaimOfDrop, *models.ListKey, error) {
			return pages.All(s.stock.ClaimsOfDrop(ctx, id, at.ID(), at.Limit))
		},
		Key:  func(m *models.ClaimOfDrop) models.ListKey { return models.ListKey{ID: m.ID} },
		Show: pages.Each(s.givenClaimJSON),
	})
}

type claimsVoidedJSON struct {
	Voided int `json:"voided"`
}

// voidClaims ends the claims of the user in the path that are in force: those of one drop, or of all.
func (s *Server) voidClaims(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	var dropID *int64
	v := models.ClaimVoid{UserID: id, ActorID: viewerID(c)}
	if err := decode(c, fields{"drop_id": &dropID, "reason": lineOf{&v.Reason}}); err != nil {
		return err
	}
	if dropID != nil {
		if v.DropID = *dropID; v.DropID < 1 {
			return models.Invalid("drop_id", models.BadFormat(models.FormatID, "must be the id of a drop"))
		}
	}
	voided, err := s.desk.VoidClaims(c.UserContext(), v)
	if err != nil {
		return err
	}
	return c.JSON(claimsVoidedJSON{voided})
}

func (s *Server) repeatVoidClaims(c *fiber.Ctx) error {
	kept, err := db.KeptAnswer(c.UserContext())
	if err != nil {
		return err
	}
	var out claimsVoidedJSON
	if err := json.Unmarshal(kept, &out.Voided); err != nil {
		return fmt.Errorf("read kept answer: %w", err)
	}
	return c.JSON(out)
}
