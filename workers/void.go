package workers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"likewise/counters"
	"likewise/models"
)

// Voider withdraws the likes of deleted accounts, and the other likes that rows of like_voids request.
//
// It withdraws a like as its user would, so that the gate, the rows and the counts stay consistent. Some accepted likes
// are not in MySQL yet. So a request is done when three conditions hold: the time of the user's last possible like has
// passed, every accepted like has been applied, and no row is left. Until then every run works on the request. A
// Voider may be killed at any time. Two Voiders at once do the same work twice.
//
// For a deleted account, the Voider also removes the other rows of the account, and its keys in Redis. While Redis is
// down, the request stays open. It also stays open until every cached session of the account has expired, so that rows
// written in such a session are removed, too.
//
// The gate refuses unlikes of deleted targets. The Voider withdraws such a like in MySQL, after the gate has evicted
// the target. Otherwise the gate would keep the like, and count it again if the deletion is undone.
type Voider struct {
	store *models.Store
	gate  voidGate
	likes likeSetter
	now   func() time.Time
	turn  time.Duration
}

// likeSetter is *models.Store in direct mode, and *counters.Likes otherwise.
type likeSetter interface {
	SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error)
}

// NewVoider returns a Voider. In direct mode, r is nil and likes is the store.
func NewVoider(store *models.Store, r *counters.Redis, likes likeSetter, now func() time.Time) *Voider {
	v := &Voider{store: store, gate: directVoids{}, likes: likes, now: now, turn: voidTurn}
	if r != nil {
		v.gate = &gatedVoids{r, store}
	}
	return v
}

// voidGate has the methods of the gate that a Voider needs besides SetLike: gatedVoids, or directVoids in direct mode.
type voidGate interface {
	// flush waits until every like that was accepted is in MySQL.
	flush(ctx context.Context) error
	// forgetAccount deletes the keys of an account in Redis.
	forgetAccount(ctx context.Context, userID int64) error
	// forget evicts a deleted target from the gate, and reports whether it is cold. The target stays cold, because the
	// gate does not warm deleted targets.
	forget(ctx context.Context, target models.Target) (cold bool, err error)
}

// directVoids has nothing to forget: without a gate, every like is in MySQL already.
type directVoids struct{}

func (directVoids) flush(context.Context) error { return nil }

func (directVoids) forgetAccount(context.Context, int64) error { return nil }

func (directVoids) forget(context.Context, models.Target) (bool, error) { return true, nil }

type gatedVoids struct {
	redis *counters.Redis
	store *models.Store
}

func (g *gatedVoids) flush(ctx context.Context) error { return Flush(ctx, g.redis, g.store) }

func (g *gatedVoids) forgetAccount(ctx context.Context, userID int64) error {
	return g.redis.ForgetAccount(ctx, userID)
}

func (g *gatedVoids) forget(ctx context.Context, target models.Target) (cold bool, err error) {
	if _, err := g.redis.Forget(ctx, g.store, target); err != nil {
		return false, err
	}
	states, err := g.redis.TargetStates(ctx, []models.Target{target})
	return err == nil && !states[0].Warm, err
}

const (
	voidRequests = 100              // a query
	voidTurn     = 10 * time.Second // for a request in a run; the next run continues
	voidPage     = 500              // likes a query
	voidAtOnce   = 8                // concurrent likes; few, so that users' likes are not delayed
	voidRounds   = 3                // in a turn, for likes that were in the pipeline when it began
)

// Void works on the open requests until its time is nearly over. Requests without a turn come first, and then those
// whose last turn is the oldest. Void returns the numbers of likes withdrawn and of requests done.
func (v *Voider) Void(ctx context.Context) (likes, done int, err error) {
	began := v.now()
	var failures []error
	for {
		open, err := v.store.OpenLikeVoids(ctx, began, voidRequests)
		if err != nil {
			return likes, done, errors.Join(append(failures, err)...)
		}
		for _, request := range open {
			// This comes before the work, so that a request that always fails does not block the others.
			if err := v.store.TakeLikeVoidTurn(ctx, request.ID, began); err != nil {
				return likes, done, errors.Join(append(failures, err)...)
			}
			n, finished, err := v.take(ctx, request)
			likes += n
			if finished {
				done++
			}
			if err != nil && len(failures) < runFailures { // the next request may succeed
				failures = append(failures, fmt.Errorf("void likes of user %d: %w", request.UserID, err))
			}
			if nearlyOver(ctx) {
				return likes, done, errors.Join(failures...)
			}
		}
		if len(open) < voidRequests {
			return likes, done, errors.Join(failures...)
		}
	}
}

// take works on a request until the end of its turn. An unfinished request is not an error.
func (v *Voider) take(ctx context.Context, request models.LikeVoid) (likes int, done bool, err error) {
	turn, cancel := context.WithTimeout(ctx, v.turn)
	defer cancel()
	likes, done, err = v.void(turn, request)
	if err != nil && errors.Is(turn.Err(), context.DeadlineExceeded) {
		v.store.Logger().InfoContext(ctx, "voiding likes continues in the next run",
			"user_id", request.UserID, "likes", likes)
		err = nil
	}
	return likes, done, err
}

func (v *Voider) void(ctx context.Context, request models.LikeVoid) (likes int, done bool, err error) {
	// The user's last possible like is accepted before this time. Only a turn that begins later can end the request.
	last := v.now().After(request.LastLike())
	if err := v.purge(ctx, request.UserID); err != nil {
		return 0, false, err
	}
	for round := range voidRounds {
		// The first round withdraws the likes in MySQL. It does not wait for the pipeline, which may be down.
		if round > 0 {
			if err := v.gate.flush(ctx); err != nil {
				return likes, false, err
			}
		}
		found, withdrawn, err := v.sweep(ctx, request)
		likes += withdrawn
		switch {
		case err != nil:
			return likes, false, err
		case found == 0 && !last:
			return likes, false, nil
		case found == 0 && round > 0:
			v.store.Logger().InfoContext(ctx, "likes are voided",
				"user_id", request.UserID, "requested_by", request.RequestedBy)
			return likes, true, v.store.CloseLikeVoid(ctx, request.ID)
		}
	}
	return likes, false, nil
}

// purge removes the other rows of a deleted account, and its keys in Redis.
func (v *Voider) purge(ctx context.Context, userID int64) error {
	deleted, err := v.store.PurgeUser(ctx, userID)
	if err != nil || !deleted {
		return err
	}
	return v.gate.forgetAccount(ctx, userID)
}

// sweep withdraws every like of the request that MySQL has. It returns the numbers of rows found and of likes
// withdrawn. The latter may be lower: the next run withdraws the others.
func (v *Voider) sweep(ctx context.Context, request models.LikeVoid) (found, withdrawn int, err error) {
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		for after := int64(0); ; {
			rows, err := v.store.VoidedLikes(ctx, request, kind, after, voidPage)
			if err != nil {
				return found, withdrawn, err
			}
			if len(rows) == 0 {
				break
			}
			found, after = found+len(rows), rows[len(rows)-1].RowID
			var gone atomic.Int64
			group, together := errgroup.WithContext(ctx)
			group.SetLimit(voidAtOnce)
			for _, row := range rows {
				group.Go(func() error {
					ok, err := v.unlike(together, models.Target{Kind: kind, ID: row.TargetID}, request.UserID)
					if ok {
						gone.Add(1)
					}
					return err
				})
			}
			err = group.Wait()
			withdrawn += int(gone.Load())
			if err != nil {
				return found, withdrawn, err
			}
		}
	}
	return found, withdrawn, nil
}

// unlike withdraws one like. It reports false if the like must be withdrawn in another run.
func (v *Voider) unlike(ctx context.Context, target models.Target, userID int64) (bool, error) {
	_, err := v.likes.SetLike(ctx, target, userID, false)
	if models.ErrorCode(err) != models.CodeNotFound {
		return err == nil, err
	}
	if cold, err := v.gate.forget(ctx, target); err != nil || !cold {
		return false, err
	}
	return v.store.WithdrawLike(ctx, target, userID)
}
