package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/privacy"
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
// While a Voider withdraws likes of a period, the gate refuses further likes of the user. Otherwise a user could
// withdraw a like of the period and give it again after it had been read here, and the Voider would take the new one.
// A user without a like of the period can like, however long the request stays open.
//
// The gate refuses unlikes of deleted targets. The Voider withdraws such a like in MySQL, after the gate has evicted
// the target. Otherwise the gate would keep the like, and count it again if the deletion is undone.
type Voider struct {
	store *likes.Store
	gate  voidGate
	likes likeSetter
	turn  time.Duration
}

// likeSetter is *likes.Store in direct mode, and *counters.Likes otherwise.
type likeSetter interface {
	SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error)
}

// NewVoider returns a Voider. In direct mode, r is nil and setter is a likes.Store.
func NewVoider(store *db.DB, r *counters.Redis, setter likeSetter) *Voider {
	v := &Voider{store: likes.New(store), gate: directVoids{}, likes: setter, turn: voidTurn}
	if r != nil {
		v.gate = &gatedVoids{r, store}
	}
	return v
}

// voidGate has the methods of the gate that a Voider needs besides SetLike: gatedVoids, or directVoids in direct mode.
type voidGate interface {
	// flush waits until every like that was accepted is in MySQL, and so until all shards are open.
	flush(ctx context.Context) error
	// forgetAccount deletes the keys of an account in Redis.
	forgetAccount(ctx context.Context, userID int64) error
	// refuse makes the gate refuse likes of a user for a time. It returns when that ends on the clock of likes, or the
	// zero time if nothing is refused.
	refuse(ctx context.Context, userID int64, limit time.Duration) (until time.Time, err error)
	// forget evicts deleted targets from the gate, and returns those that are cold and whose shard is open. When it
	// returns, MySQL has a later event of these shards. If Redis loses the evictions, it has lost that event, too. Then
	// the shard evicts all its targets when it is opened.
	forget(ctx context.Context, targets []models.Target) (cold []models.Target, err error)
	// keepCold reports whether a deleted target is still cold, and keeps loads that have begun from warming it. It is
	// called in the transaction that withdraws a like, under the lock of the target's row.
	keepCold(ctx context.Context, target models.Target) (cold bool, err error)
}

// directVoids has nothing to forget: without a gate, every like is in MySQL already.
type directVoids struct{}

func (directVoids) flush(context.Context) error { return nil }

func (directVoids) forgetAccount(context.Context, int64) error { return nil }

func (directVoids) refuse(context.Context, int64, time.Duration) (until time.Time, err error) {
	return until, nil
}

func (directVoids) forget(_ context.Context, targets []models.Target) ([]models.Target, error) {
	return targets, nil
}

func (directVoids) keepCold(context.Context, models.Target) (bool, error) { return true, nil }

type gatedVoids struct {
	redis *counters.Redis
	store *db.DB
}

func (g *gatedVoids) flush(ctx context.Context) error { return FlushOpen(ctx, g.redis, g.store) }

func (g *gatedVoids) forgetAccount(ctx context.Context, userID int64) error {
	return g.redis.ForgetAccount(ctx, userID)
}

func (g *gatedVoids) refuse(ctx context.Context, userID int64, limit time.Duration) (until time.Time, err error) {
	now, _, err := g.store.LikeTime(ctx)
	if err != nil {
		return until, err
	}
	return now.Add(limit), g.redis.RefuseLikes(ctx, userID, limit)
}

func (g *gatedVoids) forget(ctx context.Context, targets []models.Target) ([]models.Target, error) {
	for _, target := range targets {
		if _, err := g.redis.Forget(ctx, g.store, target); err != nil {
			return nil, err
		}
	}
	return confirmCold(ctx, g.redis, g.store, targets)
}

// confirmCold returns those targets that are cold and whose shard is open. When it returns, MySQL has a later event of
// these shards. If Redis loses the evictions, it has lost that event, too. Then the shard evicts all its targets when
// it is opened. It leaves out targets of shards that were opened meanwhile, because the event may have been lost
// before, and of those that cannot be read.
func confirmCold(
	ctx context.Context, r *counters.Redis, store *db.DB, targets []models.Target,
) ([]models.Target, error) {
	states, err := r.TargetStates(ctx, targets)
	if err != nil {
		return nil, err
	}
	before, err := r.ShardInfos(ctx)
	if err != nil {
		return nil, err
	}
	probed := map[int]bool{} // by shard: whether an event was sent
	for _, target := range targets {
		shard := target.Shard(store.Shards())
		if _, ok := probed[shard]; ok {
			continue
		}
		if probed[shard] = false; before[shard].Err != nil {
			continue
		}
		if probed[shard], err = r.Probe(ctx, shard); err != nil {
			return nil, err
		}
	}
	var cold []models.Target
	for i, target := range targets {
		if !states[i].Warm && probed[target.Shard(store.Shards())] {
			cold = append(cold, target)
		}
	}
	if len(cold) == 0 {
		return nil, nil
	}
	if err := flushShards(ctx, r, store, func(shard int) bool { return probed[shard] }, true); err != nil {
		return nil, err
	}
	now, err := r.ShardInfos(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(cold, func(target models.Target) bool {
		shard := target.Shard(store.Shards())
		return now[shard].Err != nil || !now[shard].Open || now[shard].Last.Epoch != before[shard].Last.Epoch
	}), nil
}

func (g *gatedVoids) keepCold(ctx context.Context, target models.Target) (bool, error) {
	return g.redis.KeepCold(ctx, target)
}

const (
	voidRequests = 100              // a query
	voidTurn     = 10 * time.Second // for a request in a run; the next run continues
	voidRefusal  = voidTurn + 2*time.Second
	voidPage     = 500 // likes a query
	voidAtOnce   = 8   // concurrent likes; few, so that users' likes are not delayed
	voidRounds   = 3   // in a turn, for likes that were in the pipeline when it began
)

// Void works on the open requests until its time is nearly over. Requests without a turn come first, and then those
// whose last turn is the oldest. Void returns the numbers of likes withdrawn and of requests done.
func (v *Voider) Void(ctx context.Context) (voided, done int, err error) {
	began, err := v.store.ServerTime(ctx)
	if err != nil {
		return 0, 0, err
	}
	var failures []error
	for {
		open, err := v.store.OpenLikeVoids(ctx, began, voidRequests)
		if err != nil {
			return voided, done, errors.Join(append(failures, err)...)
		}
		for _, request := range open {
			// This comes before the work, so that a request that always fails does not block the others.
			if err := v.store.ScheduleLikeVoid(ctx, request.ID, began); err != nil {
				return voided, done, errors.Join(append(failures, err)...)
			}
			n, finished, err := v.take(ctx, request)
			voided += n
			if finished {
				done++
			}
			if err != nil && len(failures) < runFailures { // the next request may succeed
				failures = append(failures, fmt.Errorf("void likes of user %d: %w", request.UserID, err))
			}
			if nearlyOver(ctx) {
				return voided, done, errors.Join(failures...)
			}
		}
		if len(open) < voidRequests {
			return voided, done, errors.Join(failures...)
		}
	}
}

// take works on a request until the end of its turn. An unfinished request is not an error.
func (v *Voider) take(ctx context.Context, request likes.OpenLikeVoid) (voided int, done bool, err error) {
	turn, cancel := context.WithTimeout(ctx, v.turn)
	defer cancel()
	voided, done, err = v.void(turn, request)
	if errors.Is(err, errRefusalOver) || err != nil && errors.Is(turn.Err(), context.DeadlineExceeded) {
		v.store.Logger().InfoContext(ctx, "voiding likes continues in the next run",
			"user_id", request.UserID, "likes", voided)
		err = nil
	}
	return voided, done, err
}

func (v *Voider) void(ctx context.Context, request likes.OpenLikeVoid) (voided int, done bool, err error) {
	// Only a turn that begins after the last like can end the request.
	over, err := v.store.LikesOver(ctx, request)
	if err != nil {
		return 0, false, err
	}
	if err := v.purge(ctx, request.UserID); err != nil {
		return 0, false, err
	}
	for round := range voidRounds {
		// The first round withdraws the likes in MySQL. Unless the user can like meanwhile, it does not wait for the
		// pipeline, which may be down.
		flushed := round > 0 || request.LikedUntil != nil
		if flushed {
			if err := v.gate.flush(ctx); err != nil {
				return voided, false, err
			}
		}
		found, withdrawn, err := v.sweep(ctx, request.LikeVoid)
		voided += withdrawn
		switch {
		case err != nil:
			return voided, false, err
		case found == 0 && !over:
			return voided, false, nil
		case found == 0 && flushed:
			v.store.Logger().InfoContext(ctx, "likes are voided",
				"user_id", request.UserID, "requested_by", request.RequestedBy)
			return voided, true, v.store.CloseLikeVoid(ctx, request.ID)
		}
	}
	return voided, false, nil
}

// purge removes the other rows of a deleted account, and its keys in Redis.
func (v *Voider) purge(ctx context.Context, userID int64) error {
	deleted, err := privacy.New(v.store.DB).PurgeUser(ctx, userID)
	if err != nil || !deleted {
		return err
	}
	return v.gate.forgetAccount(ctx, userID)
}

// sweep withdraws every like of the request that MySQL has. It returns the numbers of rows found and of likes
// withdrawn. The latter may be lower: the next run withdraws the others.
//
// If the user can like meanwhile, the likes in the pipeline have been flushed. If there is a like of the request, sweep
// makes the gate refuse the user's likes, and flushes again. Then all rows have the times of the last likes. Before
// each page of likes, sweep looks whether a step of the clock has ended the refusal.
func (v *Voider) sweep(ctx context.Context, request likes.LikeVoid) (found, withdrawn int, err error) {
	var refusedUntil time.Time
	if request.LikedUntil != nil {
		if left, err := v.store.LikesLeft(ctx, request); err != nil || left == 0 {
			return 0, 0, err
		}
		if refusedUntil, err = v.gate.refuse(ctx, request.UserID, voidRefusal); err != nil {
			return 0, 0, err
		}
		if err := v.gate.flush(ctx); err != nil {
			return 0, 0, err
		}
	}
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		for after := int64(0); ; {
			rows, err := v.store.VoidedLikes(ctx, request, kind, after, voidPage)
			if err != nil {
				return found, withdrawn, err
			}
			if len(rows) == 0 {
				break
			}
			if err := v.stillRefused(ctx, refusedUntil); err != nil {
				return found, withdrawn, err
			}
			found, after = found+len(rows), rows[len(rows)-1].RowID
			n, err := v.withdraw(ctx, request, kind, rows)
			withdrawn += n
			if err != nil {
				return found, withdrawn, err
			}
		}
	}
	return found, withdrawn, nil
}

// errRefusalOver means that the gate may accept likes of the user again, so rows that were read may be old.
var errRefusalOver = errors.New("the clock of the gate was set ahead")

// stillRefused returns errRefusalOver if the clock of the gate shows the end of a refusal, or a later time. A turn is
// shorter than a refusal, so the clock was set ahead. The zero time is that of no refusal.
func (v *Voider) stillRefused(ctx context.Context, until time.Time) error {
	if until.IsZero() {
		return nil
	}
	_, now, err := v.store.LikeTime(ctx)
	if err == nil && !now.Before(until) {
		return errRefusalOver
	}
	return err
}

// withdraw withdraws some likes, and returns the number of those withdrawn.
func (v *Voider) withdraw(
	ctx context.Context, request likes.LikeVoid, kind models.TargetKind, rows []models.VoidedLike,
) (withdrawn int, err error) {
	var unliked atomic.Int64
	var mu sync.Mutex
	var deleted []models.Target
	group, together := errgroup.WithContext(ctx)
	group.SetLimit(voidAtOnce)
	for _, row := range rows {
		group.Go(func() error {
			target := models.Target{Kind: kind, ID: row.TargetID}
			_, err := v.likes.SetLike(together, target, request.UserID, false)
			switch {
			case err == nil:
				unliked.Add(1)
			case models.ErrorCode(err) == models.CodeNotFound:
				mu.Lock()
				deleted = append(deleted, target)
				mu.Unlock()
				return nil
			}
			return err
		})
	}
	err = group.Wait()
	withdrawn = int(unliked.Load())
	if err != nil || len(deleted) == 0 {
		return withdrawn, err
	}
	cold, err := v.gate.forget(ctx, deleted)
	if err != nil {
		return withdrawn, err
	}
	for _, target := range cold {
		done, err := v.store.WithdrawLike(ctx, target, request.UserID, func() (bool, error) {
			return v.gate.keepCold(ctx, target)
		})
		if err != nil {
			return withdrawn, err
		}
		if done {
			withdrawn++
		}
	}
	return withdrawn, nil
}
