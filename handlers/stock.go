package handlers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/stock"
)

// stock claims the stock of drops: directStock in MySQL, gatedStock behind the Redis gate. Its errors are those of
// counters.Claims.
type claimGate interface {
	// claim claims one of the stock of a drop for a user. If the user has a claim already, claim returns that one, and
	// taken is false.
	claim(ctx context.Context, dropID, userID int64) (c *models.Claim, taken bool, err error)
	// giveBack returns a claim that is in force to the stock.
	giveBack(ctx context.Context, c *models.Claim) error
	// claimByID returns a claim, even if its row is not in MySQL yet.
	claimByID(ctx context.Context, id int64) (*models.Claim, error)
	// states returns the viewer's states of drops, in their order. Viewer 0 is anonymous.
	states(ctx context.Context, viewer int64, drops []models.Drop) ([]dropState, error)
	// apply makes changed settings of a drop take effect.
	apply(ctx context.Context, dropID int64) error
}

// dropState is the part of a drop that claims change.
type dropState struct {
	claimed int64
	claim   int64 // of the viewer, in force; 0 for none
}

// directStock has everything in MySQL.
type directStock struct {
	store *db.DB
	ids   *counters.IDs
}

// newID returns the id of a new claim, which belongs to the shard of its drop.
func (d *directStock) newID(ctx context.Context, dropID int64) (int64, error) {
	shards := d.store.Shards()
	id, err := d.ids.Next(ctx, models.Target{Kind: models.KindDrop, ID: dropID}.Shard(shards), shards)
	return int64(id), err
}

func (d *directStock) claim(ctx context.Context, dropID, userID int64) (*models.Claim, bool, error) {
	id, err := d.newID(ctx, dropID)
	if err != nil {
		return nil, false, err
	}
	return stock.New(d.store).ClaimDirect(ctx, dropID, userID, id)
}

func (d *directStock) giveBack(ctx context.Context, c *models.Claim) error {
	_, err := stock.New(d.store).ReturnDirect(ctx, c.UserID, c.ID)
	return err
}

func (d *directStock) claimByID(ctx context.Context, id int64) (*models.Claim, error) {
	held, err := stock.New(d.store).ClaimByID(ctx, id)
	if err != nil {
		return nil, err
	}
	return &held.Claim, nil
}

func (d *directStock) states(ctx context.Context, viewer int64, drops []models.Drop) ([]dropState, error) {
	states, ids := make([]dropState, len(drops)), make([]int64, len(drops))
	for i := range drops {
		states[i].claimed, ids[i] = drops[i].Claimed, drops[i].ID
	}
	if viewer == 0 || len(drops) == 0 {
		return states, nil
	}
	claims, err := stock.New(d.store).ClaimsAmong(ctx, viewer, ids)
	if err != nil {
		return nil, err
	}
	for i := range drops {
		if c := claims[ids[i]]; c.State.Live() {
			states[i].claim = c.ID
		}
	}
	return states, nil
}

func (d *directStock) apply(context.Context, int64) error { return nil }

// gatedStock claims in the gate. MySQL has the rest, and what the gate does not know.
type gatedStock struct {
	directStock
	gate *counters.Claims
	// confirm has the time to confirm a claim of a drop, in seconds, which never changes. The gate does not know it.
	confirm *otter.Cache[int64, int64]
}

// maxConfirmTimes is how many drops a process remembers the time to confirm a claim of.
const maxConfirmTimes = 10_000

// newStock returns the stock of a site; gate is nil in direct mode.
func newStock(store *db.DB, gate *counters.Claims, ids *counters.IDs) (claimGate, error) {
	direct := directStock{store, ids}
	if gate == nil {
		return &direct, nil
	}
	confirm, err := otter.New(&otter.Options[int64, int64]{MaximumSize: maxConfirmTimes})
	if err != nil {
		return nil, fmt.Errorf("cache of drops: %w", err)
	}
	return &gatedStock{direct, gate, confirm}, nil
}

func (g *gatedStock) claim(ctx context.Context, dropID, userID int64) (*models.Claim, bool, error) {
	id, err := g.newID(ctx, dropID)
	if err != nil {
		return nil, false, err
	}
	for range 2 {
		taken, err := g.gate.Claim(ctx, dropID, userID, id)
		if err != nil {
			return nil, false, err
		}
		of := counters.TakenClaim{ID: taken.ID, DropID: dropID, UserID: userID, At: taken.At}
		if taken.Changed {
			c, err := g.reserved(ctx, of)
			return c, true, err
		}
		c, err := g.claimByID(ctx, taken.ID)
		if errors.Is(err, errClaimedAgain) {
			continue // since the gate has answered
		}
		if models.ErrorCode(err) == models.CodeNotFound {
			c, err = g.reserved(ctx, of) // the gate has kept nothing but the id, and the row is on its way
		}
		if err != nil || c.State.Live() {
			return c, false, err
		}
		// MySQL has ended the claim, and the gate does not know it yet.
		if _, err := g.gate.Release(ctx, []models.EndedClaim{{DropID: dropID, UserID: userID, ID: c.ID}}); err != nil {
			return nil, false, models.Unavailable(messageBeingReleased, err)
		}
	}
	return nil, false, models.Unavailable(messageBeingReleased, errClaimedAgain) // twice
}

const messageBeingReleased = "Your last claim is being released; try again."

// errClaimedAgain reports that MySQL had ended the claim, and that a later claim of its user has taken the row.
var errClaimedAgain = errors.New("the user has claimed again since the claim ended")

func (g *gatedStock) giveBack(ctx context.Context, c *models.Claim) error {
	returned, err := g.gate.Return(ctx, c.DropID, c.UserID, c.ID)
	if err != nil || returned.Changed {
		return err
	}
	// The user does not hold the claim at the gate: it has ended since it was read, or the gate has lost it.
	now, err := g.claimByID(ctx, c.ID)
	switch {
	case errors.Is(err, errClaimedAgain):
		return nil
	case err != nil:
		return err
	case now.State.Live():
		return models.Unavailable("The claim cannot be returned at the moment; try again.", errNotHeld)
	}
	return nil
}

// errNotHeld reports that the gate does not know a claim that is live in MySQL.
var errNotHeld = errors.New("the claim is live in mysql, and its user does not hold it at the gate")

// claimByID returns a claim from MySQL. The gate may have returned it since, or accepted it only now.
func (g *gatedStock) claimByID(ctx context.Context, id int64) (*models.Claim, error) {
	c, err := g.directStock.claimByID(ctx, id)
	missing := models.ErrorCode(err) == models.CodeNotFound
	if err != nil && !missing || c != nil && !c.State.Live() {
		return c, err
	}
	taken, known, asked := g.gate.Taken(ctx, id)
	switch {
	case asked != nil && missing:
		return nil, asked
	case !known:
		return c, err
	case missing:
		if c, err = g.reserved(ctx, taken); err != nil {
			return nil, err
		}
	}
	if taken.EndedAt.IsZero() {
		return c, nil
	}
	// Either its user has returned it, which MySQL learns later, or MySQL has ended it. In the latter case, MySQL may
	// have done so after the first read, and the row may have been taken since.
	now, err := g.directStock.claimByID(ctx, id)
	switch {
	case taken.Released && models.ErrorCode(err) == models.CodeNotFound:
		return nil, errors.Join(err, errClaimedAgain)
	case err == nil && (taken.Released || !now.State.Live()):
		return now, nil
	case err != nil && models.ErrorCode(err) != models.CodeNotFound:
		return nil, err
	}
	c.State, c.EndedAt = models.StateReturned, &taken.EndedAt
	return c, nil
}

// reserved returns a claim that the gate has accepted.
func (g *gatedStock) reserved(ctx context.Context, taken counters.TakenClaim) (*models.Claim, error) {
	c := &models.Claim{
		ID: taken.ID, DropID: taken.DropID, UserID: taken.UserID, State: models.StateReserved, CreatedAt: taken.At,
	}
	seconds, ok := g.confirm.GetIfPresent(taken.DropID)
	if !ok {
		var err error
		if seconds, err = g.store.ConfirmWithin(ctx, taken.DropID); err != nil {
			return nil, err
		}
		g.confirm.Set(taken.DropID, seconds)
	}
	if seconds > 0 {
		expires := taken.At.Add(time.Duration(seconds) * time.Second)
		c.ExpiresAt = &expires
	}
	return c, nil
}

// states takes the counts and claims of warm drops from the gate, and the rest from MySQL.
func (g *gatedStock) states(ctx context.Context, viewer int64, drops []models.Drop) ([]dropState, error) {
	ids := make([]int64, len(drops))
	for i := range drops {
		ids[i] = drops[i].ID
	}
	warm := g.gate.States(ctx, viewer, ids)
	var cold []models.Drop
	var places []int
	states := make([]dropState, len(drops))
	for i := range drops {
		if state, ok := warm[ids[i]]; ok && !state.Gone {
			states[i] = dropState{state.Claimed, state.ClaimID}
			continue
		}
		cold, places = append(cold, drops[i]), append(places, i)
	}
	rest, err := g.directStock.states(ctx, viewer, cold)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		states[place] = rest[i]
	}
	return states, nil
}

func (g *gatedStock) apply(ctx context.Context, dropID int64) error {
	settings, err := stock.New(g.store).SettingsToSend(ctx, dropID-1, 1)
	if err != nil || len(settings) == 0 || settings[0].ID != dropID {
		return err
	}
	_, err = g.gate.Settings(ctx, settings)
	return err
}
