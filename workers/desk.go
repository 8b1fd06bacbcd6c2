package workers

import (
	"context"
	"time"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/stock"
)

// Desk inspects and repairs the pipeline for moderators' tools. It is safe for concurrent use.
type Desk struct {
	store *db.DB
	redis *counters.Redis // nil in direct mode
	likes *counters.Likes // nil in direct mode
}

// NewDesk returns a Desk. In direct mode, r and likes are nil.
func NewDesk(store *db.DB, r *counters.Redis, likes *counters.Likes) *Desk {
	return &Desk{store: store, redis: r, likes: likes}
}

// Gated reports whether the site has a gate, and so a pipeline.
func (d *Desk) Gated() bool { return d.redis != nil }

// ShardInfos returns the state of every shard in Redis, in order. It must not be called in direct mode.
func (d *Desk) ShardInfos(ctx context.Context) ([]counters.ShardInfo, error) {
	return d.redis.ShardInfos(ctx)
}

// Trace returns how far the last change of the likes of a target has come. It must not be called in direct mode.
func (d *Desk) Trace(ctx context.Context, target models.Target) (trace models.LikeTrace, err error) {
	trace.Shard = target.Shard(d.store.Shards())
	// What is read later is further on, so no step can be missing before one that is there.
	trace.Position, trace.AcceptedAt, err = d.redis.LastChange(ctx, target)
	if err != nil || trace.Position.IsZero() {
		return trace, err
	}
	info, err := d.redis.ShardInfo(ctx, trace.Shard)
	if err != nil {
		return trace, err
	}
	state, err := likes.New(d.store).ShardState(ctx, trace.Shard)
	if err != nil {
		return trace, err
	}
	trace.Applied = !trace.Position.After(state.Applied)
	trace.Sent = trace.Applied || info.Sent(trace.Position)
	if trace.Applied {
		trace.AppliedAt = state.AppliedAt
	}
	return trace, nil
}

// Reassert sends the current state of the like or the claim of an event through the pipeline again. at is the position
// of the event. If the gate does not hold the state, because the target is cold or was loaded after the event, Reassert
// returns counters.ErrNotWarm.
func (d *Desk) Reassert(ctx context.Context, event models.Event, at models.Position) error {
	target := event.Target()
	if !d.Gated() {
		return counters.ErrNotWarm
	}
	if target.Kind == models.KindDrop {
		return reassertClaim(ctx, d.redis, d.store, d.likes, event, at)
	}
	return d.likes.ReassertEvent(ctx, target, event.UserID, at)
}

// Compare compares a target; see Verifier. With repair, it repairs the differences.
func (d *Desk) Compare(ctx context.Context, target models.Target, repair bool) (found []models.Difference, err error) {
	_, err = d.verifier(repair, &found).Target(ctx, target)
	return found, err
}

// CompareShard compares targets of a kind in a shard, with ids above after. It stops after limit targets or at the time
// end. It returns the number compared and the id to continue after, or 0 if all targets are compared.
func (d *Desk) CompareShard(
	ctx context.Context,
	shard int,
	kind models.TargetKind,
	after int64,
	limit int,
	end time.Time,
	repair bool,
) (found []models.Difference, compared int, next int64, err error) {
	sum, next, err := d.verifier(repair, &found).Stretch(ctx, shard, kind, after, limit, end)
	return found, sum.Posts + sum.Comments + sum.Drops, next, err
}

func (d *Desk) verifier(repair bool, found *[]models.Difference) *Verifier {
	add := func(item models.Difference) { *found = append(*found, item) }
	return NewVerifier(d.store, d.redis, d.likes, repair, add)
}

// VoidClaims ends the claims of a user that are in force, of one drop or of all, and returns their number; see
// db.DB.VoidClaims. In gated mode it waits until MySQL has the claims that were accepted before. If the pipeline
// does not deliver them within the time of ctx, it returns CodeUnavailable, and has ended none. A claim that is
// accepted during the call may stay, as one that comes right after it does.
func (d *Desk) VoidClaims(ctx context.Context, v models.ClaimVoid) (int, error) {
	if d.Gated() {
		if err := FlushOpen(ctx, d.redis, d.store); err != nil {
			return 0, models.Unavailable("The claims on their way to the database have not arrived; try again.", err)
		}
	}
	return stock.New(d.store).VoidClaims(ctx, v)
}
