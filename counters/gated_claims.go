package counters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/maypok86/otter/v2"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/stock"
)

// DropClaims is the part of a drop that claims change.
type DropClaims struct {
	Claimed int64         // live claims of all users
	Own     *models.Claim // the viewer's claim that is in force; nil for none
}

// DirectClaims makes and reads claims in MySQL, in direct mode. It is safe for concurrent use.
type DirectClaims struct {
	store *stock.Store
	ids   *IDs
}

// NewDirectClaims returns the claims in store, whose ids are from ids.
func NewDirectClaims(store *db.DB, ids *IDs) *DirectClaims {
	return &DirectClaims{stock.New(store), ids}
}

// newID returns the id of a new claim, which belongs to the shard of its drop.
func (d *DirectClaims) newID(ctx context.Context, dropID int64) (int64, error) {
	shards := d.store.Shards()
	id, err := d.ids.Next(ctx, models.Target{Kind: models.KindDrop, ID: dropID}.Shard(shards), shards)
	return int64(id), err
}

// Claim claims one of the stock of a drop for a user, and reports whether the claim is new. If the user has a live
// claim already, Claim returns that one. It returns the errors of stock.Store.ClaimDirect.
func (d *DirectClaims) Claim(ctx context.Context, dropID, userID int64) (*models.Claim, bool, error) {
	id, err := d.newID(ctx, dropID)
	if err != nil {
		return nil, false, err
	}
	return d.store.ClaimDirect(ctx, dropID, userID, id)
}

// Return returns a claim that is in force to the stock. It returns the errors of stock.Store.ReturnDirect.
func (d *DirectClaims) Return(ctx context.Context, c *models.Claim) error {
	_, err := d.store.ReturnDirect(ctx, c.UserID, c.ID)
	return err
}

// ClaimByID returns a claim, or CodeNotFound.
func (d *DirectClaims) ClaimByID(ctx context.Context, id int64) (*models.Claim, error) {
	held, err := d.store.ClaimByID(ctx, id)
	if err != nil {
		return nil, err
	}
	return &held.Claim, nil
}

// States returns the claims of drops, in their order, as a viewer sees them. Viewer 0 is anonymous.
func (d *DirectClaims) States(ctx context.Context, viewer int64, drops []models.Drop) ([]DropClaims, error) {
	states, ids := make([]DropClaims, len(drops)), make([]int64, len(drops))
	for i := range drops {
		states[i].Claimed, ids[i] = drops[i].Claimed, drops[i].ID
	}
	if viewer == 0 || len(drops) == 0 {
		return states, nil
	}
	claims, err := d.store.ClaimsAmong(ctx, viewer, ids)
	if err != nil {
		return nil, err
	}
	for i := range drops {
		if c := claims[ids[i]]; c.State.Live() {
			states[i].Own = &c
		}
	}
	return states, nil
}

// Apply does nothing: changed settings of a drop take effect in MySQL.
func (d *DirectClaims) Apply(context.Context, int64) error { return nil }

// GatedClaims makes claims at the gate, and reads them there and in MySQL, which has what the gate does not know: the
// rows of claims, and claims of cold drops. It is safe for concurrent use.
type GatedClaims struct {
	*DirectClaims

	gate *Claims
	// confirm has the time to confirm a claim of a drop, in seconds, which never changes. The gate does not know it.
	confirm *otter.Cache[int64, int64]
}

// maxConfirmTimes is how many drops a process remembers the time to confirm a claim of.
const maxConfirmTimes = 10_000

// NewGatedClaims returns the claims behind gate.
func NewGatedClaims(gate *Claims, ids *IDs) (*GatedClaims, error) {
	confirm, err := otter.New(&otter.Options[int64, int64]{MaximumSize: maxConfirmTimes})
	if err != nil {
		return nil, fmt.Errorf("cache of drops: %w", err)
	}
	return &GatedClaims{DirectClaims: NewDirectClaims(gate.store, ids), gate: gate, confirm: confirm}, nil
}

// Claim claims one of the stock of a drop for a user, and reports whether the claim is new. If the user has a live
// claim already, Claim returns that one. It returns the errors of Claims.Claim. If MySQL has ended the user's last
// claim and the gate does not release it, Claim returns CodeUnavailable.
func (g *GatedClaims) Claim(ctx context.Context, dropID, userID int64) (*models.Claim, bool, error) {
	id, err := g.newID(ctx, dropID)
	if err != nil {
		return nil, false, err
	}
	for range 2 {
		taken, err := g.gate.Claim(ctx, dropID, userID, id)
		if err != nil {
			return nil, false, err
		}
		of := TakenClaim{ID: taken.ID, DropID: dropID, UserID: userID, At: taken.At}
		if taken.Changed {
			c, err := g.reserved(ctx, of)
			return c, true, err
		}
		c, err := g.ClaimByID(ctx, taken.ID)
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

// Return returns a claim that is in force to the stock. It returns the errors of Claims.Return. If the gate does not
// know the claim, and MySQL has not ended it, Return returns CodeUnavailable.
func (g *GatedClaims) Return(ctx context.Context, c *models.Claim) error {
	returned, err := g.gate.Return(ctx, c.DropID, c.UserID, c.ID)
	if err != nil || returned.Changed {
		return err
	}
	// The user does not hold the claim at the gate: it has ended since it was read, or the gate has lost it.
	now, err := g.ClaimByID(ctx, c.ID)
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

// ClaimByID returns a claim from MySQL, or from the gate if its row is not in MySQL yet. The gate may have returned it
// since, or accepted it only now.
func (g *GatedClaims) ClaimByID(ctx context.Context, id int64) (*models.Claim, error) {
	c, err := g.DirectClaims.ClaimByID(ctx, id)
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
	now, err := g.DirectClaims.ClaimByID(ctx, id)
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
func (g *GatedClaims) reserved(ctx context.Context, taken TakenClaim) (*models.Claim, error) {
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

// States takes the counts and claims of warm drops from the gate, and the rest from MySQL. Of a claim, the gate knows
// the id alone, so one query reads the rows of all. A claim without a row yet is reserved.
func (g *GatedClaims) States(ctx context.Context, viewer int64, drops []models.Drop) ([]DropClaims, error) {
	ids := make([]int64, len(drops))
	for i := range drops {
		ids[i] = drops[i].ID
	}
	warm := g.gate.States(ctx, viewer, ids)
	var cold []models.Drop
	var places []int
	var claimed []int64 // drops
	states := make([]DropClaims, len(drops))
	for i := range drops {
		if state, ok := warm[ids[i]]; ok && !state.Gone {
			states[i].Claimed = state.Claimed
			if state.ClaimID != 0 {
				claimed = append(claimed, ids[i])
			}
			continue
		}
		cold, places = append(cold, drops[i]), append(places, i)
	}
	rows, err := g.store.ClaimsAmong(ctx, viewer, claimed)
	if err != nil {
		return nil, err
	}
	for i := range drops {
		if id := warm[ids[i]].ClaimID; slices.Contains(claimed, ids[i]) {
			states[i].Own = g.held(ctx, &drops[i], rows[ids[i]], id)
		}
	}
	rest, err := g.DirectClaims.States(ctx, viewer, cold)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		states[place] = rest[i]
	}
	return states, nil
}

// held returns the claim to a drop that its user holds at the gate, by its id; nil if MySQL has ended it. Row is what
// MySQL has of the user and the drop. The time of expiry is missing if the gate does not tell when it accepted a claim
// without a row.
func (g *GatedClaims) held(ctx context.Context, d *models.Drop, row models.Claim, id int64) *models.Claim {
	switch {
	case row.ID == id && row.State.Live():
		return &row
	case row.ID == id:
		return nil
	}
	c := &models.Claim{ID: id, DropID: d.ID, State: models.StateReserved}
	if d.ConfirmWithin == 0 {
		return c
	}
	if taken, ok, err := g.gate.Taken(ctx, id); err == nil && ok && !taken.At.IsZero() {
		expires := taken.At.Add(time.Duration(d.ConfirmWithin) * time.Second)
		c.ExpiresAt = &expires
	}
	return c
}

// Apply sends the settings of a drop to the gate, where they take effect. If the drop is cold, it has no effect.
func (g *GatedClaims) Apply(ctx context.Context, dropID int64) error {
	settings, err := g.store.SettingsToSend(ctx, dropID-1, 1)
	if err != nil || len(settings) == 0 || settings[0].ID != dropID {
		return err
	}
	_, err = g.gate.Settings(ctx, settings)
	return err
}
