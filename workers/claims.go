package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/stock"
)

// Releaser does what claims need as time passes. It ends those that were not confirmed in time, and warns the users of
// those that expire soon. Shares whose claims MySQL has ended first (expired, rejected and voided ones) it puts back
// into the stock of the gate. It also sends the gate the settings of drops that have changed.
//
// Each step is safe to repeat: a claim expires by a conditional UPDATE, the gate releases a claim by its id and takes
// settings by their version. MySQL keeps what is left to do until the event of the gate is applied. So a Releaser may
// be killed at any time, and several at once do some of the work twice.
type Releaser struct {
	store   *stock.Store
	redis   *counters.Redis  // nil in direct mode
	claims  *counters.Claims // nil in direct mode
	metrics *Metrics
}

// NewReleaser returns a Releaser. In direct mode, r and claims are nil.
func NewReleaser(store *db.DB, r *counters.Redis, claims *counters.Claims, m *Metrics) *Releaser {
	return &Releaser{store: stock.New(store), redis: r, claims: claims, metrics: m}
}

// Released counts what a run of a Releaser did.
type Released struct {
	Expired int // claims
	Warned  int // users of claims that expire soon
	Sent    int // releases and settings sent to the gate; some may have been sent before
	Cold    int // drops of which the gate holds nothing, so that nothing has to be sent
}

const (
	releasePage = 500
	coldWait    = 10 * time.Second // for the pipeline, before cold drops are left to the next run
)

// Release works until nothing is due and everything is sent, or its time is nearly over.
func (r *Releaser) Release(ctx context.Context) (done Released, err error) {
	for {
		expired, warned, err := r.store.ExpireClaims(ctx)
		done.Expired += expired
		done.Warned += warned
		r.metrics.expired.Add(float64(expired))
		if err != nil {
			return done, err
		}
		if expired+warned == 0 || nearlyOver(ctx) {
			break
		}
	}
	if r.claims == nil {
		return done, nil
	}
	cold := coldDrops{}
	// The drops of one shard that fails do not keep the others from theirs.
	err = errors.Join(r.releaseEnded(ctx, &done, cold), r.sendSettings(ctx, &done, cold))
	if len(cold) > 0 && !nearlyOver(ctx) {
		err = errors.Join(err, r.clearCold(ctx, &done, cold))
	}
	return done, err
}

// coldDrops is what could not be sent because the gate holds nothing of the drops, by drop.
type coldDrops map[int64]*models.ColdDrop

func (c coldDrops) of(id int64) *models.ColdDrop {
	if c[id] == nil {
		c[id] = &models.ColdDrop{ID: id}
	}
	return c[id]
}

// releaseEnded sends the gate the claims that MySQL has ended, and adds those to drops that are cold to cold.
func (r *Releaser) releaseEnded(ctx context.Context, done *Released, cold coldDrops) error {
	var failures []error
	for after := (models.EndedClaim{}); ; {
		list, err := r.store.ClaimsToRelease(ctx, after, releasePage)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if len(list) > 0 {
			after = list[len(list)-1]
			left, err := r.claims.Release(ctx, list)
			if err != nil && len(failures) < runFailures {
				failures = append(failures, fmt.Errorf("release claims: %w", err))
			}
			for _, item := range left {
				drop := cold.of(item.DropID)
				drop.Claims = append(drop.Claims, item)
			}
			r.sent(done, len(list)-len(left), err)
		}
		if len(list) < releasePage || nearlyOver(ctx) {
			return errors.Join(failures...)
		}
	}
}

// sendSettings sends the gate the settings that it may not have, and adds those of drops that are cold to cold.
func (r *Releaser) sendSettings(ctx context.Context, done *Released, cold coldDrops) error {
	var failures []error
	for after := int64(0); ; {
		list, err := r.store.SettingsToSend(ctx, after, releasePage)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if len(list) > 0 {
			after = list[len(list)-1].ID
			left, err := r.claims.Settings(ctx, list)
			if err != nil && len(failures) < runFailures {
				failures = append(failures, fmt.Errorf("send settings of drops: %w", err))
			}
			for _, item := range left {
				cold.of(item.ID).Version = item.Version
			}
			r.sent(done, len(list)-len(left), err)
		}
		if len(list) < releasePage || nearlyOver(ctx) {
			return errors.Join(failures...)
		}
	}
}

func (r *Releaser) sent(done *Released, n int, err error) {
	if err == nil {
		done.Sent += n
		r.metrics.released.Add(float64(n))
	}
}

// clearCold records what need not be sent about drops that are cold. It waits for the pipeline, so that an event
// follows the eviction of each: otherwise a Redis that loses its last writes could have the drop again. A drop that is
// being loaded is left to the next run, which finds it warm. A load that begins later reads what MySQL has now. A drop
// whose keys are moving to another node is left to the next run, too.
func (r *Releaser) clearCold(ctx context.Context, done *Released, drops coldDrops) error {
	waiting, cancel := context.WithTimeout(ctx, coldWait)
	defer cancel()
	targets := make([]models.Target, 0, len(drops))
	var failures []error
	for id := range drops {
		target := models.Target{Kind: models.KindDrop, ID: id}
		cold, err := r.redis.IsCold(waiting, target)
		if err != nil && len(failures) < runFailures {
			failures = append(failures, fmt.Errorf("cold drops: %w", err))
		}
		if cold {
			targets = append(targets, target)
		}
	}
	slices.SortFunc(targets, func(a, b models.Target) int { return int(a.ID - b.ID) })
	targets, err := confirmCold(waiting, r.redis, r.store.DB, targets)
	if err != nil {
		return errors.Join(append(failures, fmt.Errorf("cold drops: %w", err))...)
	}
	for _, target := range targets {
		cleared, err := r.store.ClearCold(ctx, *drops[target.ID], func() (bool, error) {
			return r.redis.IsCold(ctx, target)
		})
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if cleared {
			done.Cold++
		}
	}
	return errors.Join(failures...)
}

// heldClaims returns a function that reads the claims of a warm drop for Store.CompareClaims. It reads Redis once.
func heldClaims(
	ctx context.Context, r *counters.Redis, dropID int64,
) (func(context.Context, int64, int64) ([]models.LiveClaim, error), error) {
	held, err := r.HeldClaims(ctx, dropID)
	if err != nil {
		return nil, err
	}
	list := make([]models.LiveClaim, 0, len(held))
	for user, id := range held {
		list = append(list, models.LiveClaim{UserID: user, ID: id})
	}
	slices.SortFunc(list, func(a, b models.LiveClaim) int { return int(a.UserID - b.UserID) })
	return func(_ context.Context, after, upTo int64) ([]models.LiveClaim, error) {
		from, to := usersAbove(list, after), len(list)
		if upTo > 0 {
			to = usersAbove(list, upTo)
		}
		return list[from:to], nil
	}, nil
}

// usersAbove returns the index of the first claim of a user above after.
func usersAbove(list []models.LiveClaim, after int64) int {
	i, _ := slices.BinarySearchFunc(list, after+1, func(c models.LiveClaim, user int64) int {
		return int(c.UserID - user)
	})
	return i
}

// resendClaims sends the state in the gate of every claim to a drop that differs from MySQL through the pipeline, and
// the version of the settings. Claims on their way to MySQL are sent twice without harm. Claims that MySQL has ended
// are sent, too, if it waits for their return: the log may have lost it. It returns the number of claims sent.
func resendClaims(
	ctx context.Context, r *counters.Redis, store *db.DB, likes *counters.Likes, dropID int64,
) (resent int, err error) {
	err = eachClaimDrift(ctx, r, store, dropID, func(drifts []models.ClaimDrift) error {
		var claims []models.LiveClaim
		for _, d := range drifts {
			for _, id := range []int64{d.Row, d.Gate} {
				if id != 0 {
					claims = append(claims, models.LiveClaim{UserID: d.UserID, ID: id})
				}
			}
		}
		resent += len(claims)
		return likes.ReassertClaims(ctx, dropID, claims)
	})
	if err != nil {
		return resent, err
	}
	var ended []models.LiveClaim
	for after := (models.EndedClaim{DropID: dropID}); ; {
		list, err := stock.New(store).ClaimsToRelease(ctx, after, releasePage)
		if err != nil {
			return resent, err
		}
		for _, item := range list {
			if item.DropID == dropID {
				ended = append(ended, models.LiveClaim{UserID: item.UserID, ID: item.ID})
			}
		}
		if len(list) < releasePage || list[len(list)-1].DropID != dropID {
			break
		}
		after = list[len(list)-1]
	}
	return resent + len(ended), likes.ReassertClaims(ctx, dropID, ended)
}

// reassertClaim sends the state in the gate of the claims of an event's user to a drop: of the one that the gate holds,
// and of the one that MySQL has. at is the position of the event.
func reassertClaim(
	ctx context.Context, r *counters.Redis, store *db.DB, likes *counters.Likes,
	event models.Event, at models.Position,
) error {
	dropID, userID := event.ID, event.UserID
	rows, err := stock.New(store).ClaimsAmong(ctx, userID, []int64{dropID})
	if err != nil {
		return err
	}
	held, err := r.HeldClaim(ctx, dropID, userID)
	if err != nil {
		return err
	}
	var claims []models.LiveClaim
	for _, id := range []int64{rows[dropID].ID, held} { // the later one last
		if id != 0 && (len(claims) == 0 || claims[0].ID != id) {
			claims = append(claims, models.LiveClaim{UserID: userID, ID: id})
		}
	}
	return likes.ReassertClaimEvent(ctx, dropID, claims, at)
}

// eachClaimDrift calls fn with batches of the differences between the claims of a warm drop and the rows.
func eachClaimDrift(
	ctx context.Context, r *counters.Redis, store *db.DB, dropID int64, fn func([]models.ClaimDrift) error,
) error {
	held, err := heldClaims(ctx, r, dropID)
	if err != nil {
		return err
	}
	return stock.New(store).CompareClaims(ctx, dropID, held, fn)
}
