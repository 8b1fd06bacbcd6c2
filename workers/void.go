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

// Voider takes likes back: those of deleted accounts, and whatever else like_voids asks for.
//
// A like is taken back as its user would do it, so that the gate, the rows and the counts stay one. What MySQL has is
// only what has come through; so a request is done when, after the last moment at which a like could still be accepted
// for the user, everything accepted has been applied and no row is left. Until then each run goes over it again. A
// Voider that is killed leaves nothing but a shorter list; two at once do the same work twice.
//
// Of a deleted account the same turns remove everything else that hangs on it, and what Redis keeps about it. While
// Redis is away the request stays open; and it stays open until every cached session of the account has expired, so
// that what such a session has written goes as well.
//
// The gate takes no unlike of what is deleted. Such a like is withdrawn in MySQL, after the gate has forgotten the
// target: it would keep the like and, if the deletion is taken back, count it again.
type Voider struct {
	store *models.Store
	gate  voidGate
	likes likeSetter
	now   func() time.Time
	turn  time.Duration
}

// likeSetter is *models.Store in direct mode, *counters.Likes behind the gate.
type likeSetter interface {
	SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error)
}

// NewVoider makes a voider. In direct mode r is nil and likes the store.
func NewVoider(store *models.Store, r *counters.Redis, likes likeSetter, now func() time.Time) *Voider {
	v := &Voider{store: store, gate: directVoids{}, likes: likes, now: now, turn: voidTurn}
	if r != nil {
		v.gate = &gatedVoids{r, store}
	}
	return v
}

// voidGate is what a Voider needs of the gate beside its likes: gatedVoids, or directVoids in direct mode.
type voidGate interface {
	// flush waits until every like that was accepted is in MySQL.
	flush(ctx context.Context) error
	// forgetAccount deletes what Redis holds about an account.
	forgetAccount(ctx context.Context, userID int64) error
	// forget makes the gate forget a deleted target, and reports whether it holds nothing of it. The target stays cold,
	// because deleted targets are not warmed.
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
	shard, err := g.store.ShardState(ctx, target.Shard(g.store.Shards()))
	if err != nil {
		return false, err
	}
	if _, err := g.redis.Forget(ctx, target, shard.Applied); err != nil {
		return false, err
	}
	states, err := g.redis.TargetStates(ctx, []models.Target{target})
	return err == nil && !states[0].Warm, err
}

const (
	voidRequests = 100              // a query
	voidTurn     = 10 * time.Second // of a request in a run; one with many likes goes on in the next
	voidPage     = 500              // likes a query
	voidAtOnce   = 8                // likes in flight; the site's own come first
	voidRounds   = 3                // of a turn, for likes that were on their way when it began
)

// Void works on every open request, those first that it never got to and then those that have waited longest, until its
// time is nearly over. It returns the numbers of likes withdrawn and of requests done.
func (v *Voider) Void(ctx context.Context) (likes, done int, err error) {
	began := v.now()
	var failures []error
	for {
		open, err := v.store.OpenLikeVoids(ctx, began, voidRequests)
		if err != nil {
			return likes, done, errors.Join(append(failures, err)...)
		}
		for _, request := range open {
			// Before anything else: what cannot be carried out must not come first again.
			if err := v.store.TakeLikeVoidTurn(ctx, request.ID, began); err != nil {
				return likes, done, errors.Join(append(failures, err)...)
			}
			n, finished, err := v.take(ctx, request)
			likes += n
			if finished {
				done++
			}
			if err != nil && len(failures) < runFailures { // the next one may fare better
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

// take works on a request for as long as its turn lasts. An unfinished request is not an error.
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
	// What is found after that moment is the last there can be, so the request is done only by a turn that begins after
	// it.
	last := v.now().After(request.LastLike())
	if err := v.purge(ctx, request.UserID); err != nil {
		return 0, false, err
	}
	for round := range voidRounds {
		// The first round goes by what is there, and does not wait for a pipeline that may stand still.
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
			v.store.Logger().InfoContext(ctx, "likes are voided", "user_id", request.UserID, "requested_by", request.RequestedBy)
			return likes, true, v.store.CloseLikeVoid(ctx, request.ID)
		}
	}
	return likes, false, nil
}

// purge removes what hangs on an account that was deleted, in MySQL and in Redis.
func (v *Voider) purge(ctx context.Context, userID int64) error {
	deleted, err := v.store.PurgeUser(ctx, userID)
	if err != nil || !deleted {
		return err
	}
	return v.gate.forgetAccount(ctx, userID)
}

// sweep takes back every like of the request that MySQL has. It returns the numbers of rows found and of likes
// withdrawn, which may be fewer: what cannot be taken back now is left to the next run.
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

// unlike takes one like back; it reports false when that has to wait.
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
