package handlers

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/counters"
	"likewise/handlers/pages"
	"likewise/models"
)

type dropJSON struct {
	ID            int64            `json:"id"`
	PostID        int64            `json:"post_id"`
	Author        authorJSON       `json:"author"` // who made it
	Title         string           `json:"title"`
	Stock         int64            `json:"stock"`
	Claimed       int64            `json:"claimed"`
	Remaining     int64            `json:"remaining"`
	BeginsAt      *time.Time       `json:"begins_at"`
	EndsAt        *time.Time       `json:"ends_at"`
	ConfirmWithin *int64           `json:"confirm_within"` // seconds
	ClosedAt      *time.Time       `json:"closed_at"`
	State         models.DropState `json:"state"` // upcoming, open, sold_out or ended
	Version       int64            `json:"version"`
	CreatedAt     time.Time        `json:"created_at"`
	UpdatedAt     time.Time        `json:"updated_at"`
	Claim         *ownClaimJSON    `json:"claim"` // the viewer's, while it is in force
	Can           dropCanJSON      `json:"can"`
}

// ownClaimJSON is a claim that is in force.
type ownClaimJSON struct {
	ID        models.ID  `json:"id"`
	State     string     `json:"state"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// dropsJSON shows drops to the viewer. Reading what is left of them takes one call for all.
func (s *Server) dropsJSON(c *fiber.Ctx, drops []models.Drop) ([]dropJSON, error) {
	states, err := s.claimGate.States(c.UserContext(), viewerID(c), drops)
	if err != nil {
		return nil, err
	}
	posts := make([]int64, len(drops))
	for i := range drops {
		posts[i] = drops[i].PostID
	}
	able, err := s.abilitiesOn(c, nil, posts)
	if err != nil {
		return nil, err
	}
	now := s.now()
	out := make([]dropJSON, len(drops))
	for i := range drops {
		out[i] = s.dropJSON(&drops[i], states[i], now)
		out[i].Can = able.drop(&drops[i], out[i].State, out[i].Claim != nil)
	}
	return out, nil
}

func (s *Server) dropJSON(d *models.Drop, state counters.DropClaims, now time.Time) dropJSON {
	out := dropJSON{
		ID: d.ID, PostID: d.PostID, Author: s.author(d.Author), Title: d.Title, Stock: d.Stock,
		Claimed: state.Claimed, Remaining: max(0, d.Stock-state.Claimed), BeginsAt: d.BeginsAt, EndsAt: d.EndsAt,
		ClosedAt: d.ClosedAt, Version: d.Version, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}
	if d.ConfirmWithin > 0 {
		out.ConfirmWithin = &d.ConfirmWithin
	}
	if c := state.Own; c != nil {
		out.Claim = &ownClaimJSON{models.ID(c.ID), c.State.String(), c.ExpiresAt}
	}
	out.State = d.StateAt(now, out.Remaining)
	return out
}

func (s *Server) replyDrop(c *fiber.Ctx, status int, d *models.Drop) error {
	out, err := s.dropsJSON(c, []models.Drop{*d})
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, etag(d.Version))
	return c.Status(status).JSON(out[0])
}

func (s *Server) listDrops(c *fiber.Ctx) error {
	postID, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.Drop, dropJSON]{
		Name: "drops:post=" + strconv.FormatInt(postID, 10),
		Read: func(ctx context.Context, at pages.Position) ([]models.Drop, *models.ListKey, error) {
			return pages.All(s.stock.DropsOfPost(ctx, postID, at.ID(), at.Limit))
		},
		Key:  func(d *models.Drop) models.ListKey { return models.ListKey{ID: d.ID} },
		Show: pages.Together(func(drops []models.Drop) ([]dropJSON, error) { return s.dropsJSON(c, drops) }),
	})
}

// createDrop attaches a drop to the post in the path.
func (s *Server) createDrop(c *fiber.Ctx) error {
	var in models.DropSettings
	var begins, ends *string
	var confirm *int64
	err := decode(c, fields{
		"title": lineOf{
			&in.Title,
		},
		"stock":          &in.Stock,
		"begins_at":      &begins,
		"ends_at":        &ends,
		"confirm_within": &confirm,
	})
	if err != nil {
		return err
	}
	if in.BeginsAt, err = timeOf("begins_at", begins); err != nil {
		return err
	}
	if in.EndsAt, err = timeOf("ends_at", ends); err != nil {
		return err
	}
	if confirm != nil {
		if in.ConfirmWithin = *confirm; in.ConfirmWithin == 0 {
			in.ConfirmWithin = -1 // 0 stands for none, and nobody can ask for it
		}
	}
	if err := in.Validate(); err != nil {
		return err
	}
	post, err := s.ownPost(c)
	if err != nil {
		return err
	}
	drop, err := s.stock.CreateDrop(c.UserContext(), viewerID(c), post.ID, in)
	if err != nil {
		return err
	}
	return s.replyCreatedDrop(c, drop)
}

func (s *Server) replyCreatedDrop(c *fiber.Ctx, d *models.Drop) error {
	if err := s.replyDrop(c, http.StatusCreated, d); err != nil {
		return err
	}
	c.Set(fiber.HeaderLocation, "/v1/drops/"+strconv.FormatInt(d.ID, 10))
	return nil
}

// repeatDrop answers a repeated request to create a drop.
func (s *Server) repeatDrop(c *fiber.Ctx) error {
	drop, err := s.stock.Drop(c.UserContext(), madeID(c))
	if err != nil {
		return err
	}
	return s.replyCreatedDrop(c, drop)
}

func (s *Server) dropOfPath(c *fiber.Ctx) (*models.Drop, error) {
	id, err := pathID(c, models.KindDrop)
	if err != nil {
		return nil, err
	}
	return s.stock.Drop(c.UserContext(), id)
}

func (s *Server) readDrop(c *fiber.Ctx) error {
	drop, err := s.dropOfPath(c)
	if err != nil {
		return err
	}
	return s.replyDrop(c, http.StatusOK, drop)
}

// ownDrop returns the drop in the path, if the permission of the route allows the viewer to act on those of the author
// of its post.
func (s *Server) ownDrop(c *fiber.Ctx) (*models.Drop, error) {
	drop, err := s.dropOfPath(c)
	if err != nil {
		return nil, err
	}
	post, err := s.content.PostByID(c.UserContext(), viewerID(c), drop.PostID)
	if err != nil {
		return nil, err
	}
	return drop, allowOn(c, post.Author.ID)
}

func (s *Server) editDrop(c *fiber.Ctx) error {
	matches, err := ifMatch(c)
	if err != nil {
		return err
	}
	var title, begins, ends *string
	var stock *int64
	err = decode(c, fields{"title": &title, "stock": &stock, "begins_at": &begins, "ends_at": &ends})
	if err != nil {
		return err
	}
	drop, err := s.ownDrop(c)
	if err != nil {
		return err
	}
	if err := matches(drop.Version); err != nil {
		return err
	}
	in := drop.Settings()
	if title != nil {
		in.Title = *title
	}
	in.Title = models.CleanLine(in.Title)
	if stock != nil {
		in.Stock = *stock
	}
	if begins != nil {
		if in.BeginsAt, err = timeOf("begins_at", begins); err != nil {
			return err
		}
	}
	if ends != nil {
		if in.EndsAt, err = timeOf("ends_at", ends); err != nil {
			return err
		}
	}
	if err := in.Validate(); err != nil {
		return err
	}
	if drop, err = s.stock.UpdateDrop(c.UserContext(), viewerID(c), drop.ID, drop.Version, in); err != nil {
		return err
	}
	s.applyDrop(c, drop.ID)
	return s.replyDrop(c, http.StatusOK, drop)
}

func (s *Server) closeDrop(c *fiber.Ctx) error {
	drop, err := s.ownDrop(c)
	if err != nil {
		return err
	}
	if drop, err = s.stock.CloseDrop(c.UserContext(), viewerID(c), drop.ID); err != nil {
		return err
	}
	s.applyDrop(c, drop.ID)
	return s.replyDrop(c, http.StatusOK, drop)
}

// applyTimeout bounds the sending of changed settings to the gate.
const applyTimeout = 10 * time.Second

// applyDrop sends changed settings of a drop to the gate. They are committed: after a failure, the job "claims" sends
// them, and until then the gate goes by the former settings.
func (s *Server) applyDrop(c *fiber.Ctx, id int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), applyTimeout)
	defer cancel()
	if err := s.claimGate.Apply(ctx, id); err != nil {
		s.log.Error("settings of a drop not applied", "drop_id", id, "request_id", requestID(c), "error", err)
	}
}
