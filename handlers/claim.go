package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/sethvargo/go-retry"

	"likewise/counters"
	"likewise/handlers/pages"
	"likewise/models"
)

// claimGate makes and reads claims: *counters.DirectClaims in direct mode, *counters.GatedClaims behind the Redis gate.
type claimGate interface {
	// Claim claims one of the stock of a drop for a user. If the user has a claim already, Claim returns that one, and
	// taken is false.
	Claim(ctx context.Context, dropID, userID int64) (c *models.Claim, taken bool, err error)
	// Return returns a claim that is in force to the stock.
	Return(ctx context.Context, c *models.Claim) error
	// ClaimByID returns a claim, even if its row is not in MySQL yet.
	ClaimByID(ctx context.Context, id int64) (*models.Claim, error)
	// States returns the claims of drops, in their order, as a viewer sees them. Viewer 0 is anonymous.
	States(ctx context.Context, viewer int64, drops []models.Drop) ([]counters.DropClaims, error)
	// Apply makes changed settings of a drop take effect.
	Apply(ctx context.Context, dropID int64) error
}

// newClaimGate returns the gate of claims of a Config.
func newClaimGate(c Config) (claimGate, error) {
	if c.Claims == nil {
		return counters.NewDirectClaims(c.Store, c.IDs), nil
	}
	return counters.NewGatedClaims(c.Claims, c.IDs)
}

type claimJSON struct {
	ID          models.ID  `json:"id"`
	DropID      int64      `json:"drop_id"`
	State       string     `json:"state"`
	Reason      *string    `json:"reason"` // of a claim that was rejected or voided
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
	ConfirmedAt *time.Time `json:"confirmed_at"`
	EndedAt     *time.Time `json:"ended_at"`
}

func newClaimJSON(m *models.Claim) claimJSON {
	out := claimJSON{
		ID: models.ID(m.ID), DropID: m.DropID, State: m.State.String(), CreatedAt: m.CreatedAt, ExpiresAt: m.ExpiresAt,
		ConfirmedAt: m.ConfirmedAt, EndedAt: m.EndedAt,
	}
	if m.Reason != "" {
		out.Reason = &m.Reason
	}
	return out
}

// heldClaimJSON is a claim in the list of its user.
type heldClaimJSON struct {
	claimJSON
	DropTitle string `json:"drop_title"` // "" if the post is deleted
	PostID    int64  `json:"post_id"`
}

// createClaim claims one of the stock of the drop in the path for the viewer.
func (s *Server) createClaim(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindDrop)
	if err != nil {
		return err
	}
	if err := s.rates.Like(c.UserContext(), s.client(c)); err != nil {
		return err
	}
	if err := s.mayLike(c, models.Target{Kind: models.KindDrop, ID: id}); err != nil {
		return err
	}
	claim, taken, err := s.claimGate.Claim(c.UserContext(), id, viewerID(c))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if taken {
		status = http.StatusCreated
	}
	c.Location("/v1/claims/" + models.ID(claim.ID).String())
	return c.Status(status).JSON(newClaimJSON(claim))
}

// listClaimsOfDrop lists the claims of the drop in the path that MySQL holds, latest first, to the author of its post
// and to moderators.
func (s *Server) listClaimsOfDrop(c *fiber.Ctx) error {
	drop, err := s.ownDrop(c)
	if err != nil {
		return err
	}
	return s.replyClaimsOfDrop(c, drop.ID)
}

// ownClaim returns the claim in the path, if it is the viewer's.
func (s *Server) ownClaim(c *fiber.Ctx) (*models.Claim, error) {
	id, err := pathID(c, "claim")
	if err != nil {
		return nil, err
	}
	claim, err := s.claimGate.ClaimByID(c.UserContext(), id)
	if err != nil {
		return nil, err
	}
	return claim, allowOn(c, claim.UserID)
}

func (s *Server) readClaim(c *fiber.Ctx) error {
	claim, err := s.ownClaim(c)
	if err != nil {
		return err
	}
	return c.JSON(newClaimJSON(claim))
}

// returnClaim returns the viewer's claim to the stock. A claim that has ended stays as it is.
func (s *Server) returnClaim(c *fiber.Ctx) error {
	if err := s.rates.Like(c.UserContext(), s.client(c)); err != nil {
		return err
	}
	claim, err := s.ownClaim(c)
	if err != nil {
		return err
	}
	if claim.State.Live() {
		if err := s.claimGate.Return(c.UserContext(), claim); err != nil {
			return err
		}
	}
	return c.SendStatus(http.StatusNoContent)
}

// confirmClaim confirms the viewer's claim. A claim that the gate has just accepted may not be in MySQL yet: then it
// waits for the like writer.
func (s *Server) confirmClaim(c *fiber.Ctx) error {
	claim, err := s.ownClaim(c)
	if err != nil {
		return err
	}
	if claim.State == models.StateReturned { // the gate knows it before MySQL does
		return models.Errorf(models.CodeConflict, "The claim is returned and cannot be confirmed.")
	}
	const pause = 50 * time.Millisecond
	var confirmed *models.Claim
	waits := retry.WithMaxDuration(storedWithin, retry.NewConstant(pause))
	err = retry.Do(c.UserContext(), waits, func(ctx context.Context) (err error) {
		confirmed, err = s.stock.ConfirmClaim(ctx, viewerID(c), claim.ID)
		if claim.State.Live() && models.ErrorCode(err) == models.CodeNotFound {
			return retry.RetryableError(models.Unavailable("The claim is not stored yet; try again.", err))
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.JSON(newClaimJSON(confirmed))
}

// storedWithin is how long a confirmation waits until MySQL has the claim.
const storedWithin = 3 * time.Second

// listMyClaims lists the viewer's claims that MySQL holds, latest first.
func (s *Server) listMyClaims(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.HeldClaim, heldClaimJSON]{
		Name: pages.OfUser("claims", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.HeldClaim, *models.ListKey, error) {
			return pages.All(s.stock.Claims(ctx, viewerID(c), at.ID(), at.Limit))
		},
		Key: func(m *models.HeldClaim) models.ListKey { return models.ListKey{ID: m.ID} },
		Show: pages.Each(func(m *models.HeldClaim) heldClaimJSON {
			return heldClaimJSON{newClaimJSON(&m.Claim), m.DropTitle, m.PostID}
		}),
	})
}
