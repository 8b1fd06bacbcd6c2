package workers

import (
	"context"
	"fmt"

	"likewise/counters"
	"likewise/models"
	"likewise/models/stock"
)

// verifyDrops compares all drops.
func (v *Verifier) verifyDrops(ctx context.Context, sum *Verification) error {
	for after := int64(0); ; {
		list, err := stock.New(v.store.DB).TallyDrops(ctx, after, verifyPage)
		if err != nil || len(list) == 0 {
			return err
		}
		after = list[len(list)-1].ID
		if err := v.verifyDropPage(ctx, list, sum); err != nil {
			return err
		}
	}
}

// verifyOneDrop compares one drop, which may have no row.
func (v *Verifier) verifyOneDrop(ctx context.Context, target models.Target, sum *Verification) error {
	tally, exists, err := stock.New(v.store.DB).TallyDrop(ctx, target.ID)
	switch {
	case err != nil:
		return err
	case exists:
		return v.verifyDropPage(ctx, []models.DropTally{tally}, sum)
	}
	return v.gate.verifyStray(ctx, target, sum)
}

// sampleDrops is Sample for drops.
func (v *Verifier) sampleDrops(ctx context.Context, after int64, limit int) (Verification, int64, error) {
	var sum Verification
	list, err := stock.New(v.store.DB).TallyDrops(ctx, after, limit)
	if err != nil || len(list) == 0 {
		return sum, 0, err
	}
	err = v.verifyDropPage(ctx, list, &sum)
	return sum, list[len(list)-1].ID, err
}

// verifyDropPage compares the counts of drops with their rows, and those that are warm with Redis.
func (v *Verifier) verifyDropPage(ctx context.Context, list []models.DropTally, sum *Verification) error {
	sum.Drops += len(list)
	for _, tally := range list {
		sum.Claims += tally.Rows
		if tally.Problem() == "" {
			continue
		}
		tally, exists, err := stock.New(v.store.DB).LockedDropTally(ctx, tally.ID)
		if err != nil {
			return err
		}
		problem := tally.Problem()
		if !exists || problem == "" {
			continue
		}
		target := models.Target{Kind: models.KindDrop, ID: tally.ID}
		err = v.found(ctx, sum, target, problem, func() error {
			return stock.New(v.store.DB).RecountDrop(ctx,
				tally.ID)
		})
		if err != nil {
			return err
		}
	}
	return v.gate.verifyDrops(ctx, list, sum)
}

func (v *gatedVerifier) verifyDrops(ctx context.Context, drops []models.DropTally, sum *Verification) error {
	targets := make([]models.Target, len(drops))
	for i, drop := range drops {
		targets[i] = models.Target{Kind: models.KindDrop, ID: drop.ID}
	}
	states, err := v.redis.TargetStates(ctx, targets)
	if err != nil {
		return err
	}
	for i, state := range states {
		if !state.Warm {
			continue
		}
		sum.Warm++
		if err := v.verifyDrop(ctx, targets[i], sum); err != nil {
			return err
		}
	}
	return nil
}

// verifyDrop compares the claims, the count and the settings of a warm drop with MySQL, as verifyWarm does with likes.
func (v *gatedVerifier) verifyDrop(ctx context.Context, target models.Target, sum *Verification) error {
	return v.settle(ctx, target, sum, func(state counters.TargetState) (*difference, error) {
		return v.compareDrop(ctx, target, state)
	})
}

// compareDrop returns what differs between a warm drop in a state and MySQL, or nil. A claim that MySQL has ended, and
// that is about to be released, does not differ.
func (v *gatedVerifier) compareDrop(
	ctx context.Context, target models.Target, state counters.TargetState,
) (*difference, error) {
	forget := func() error { return v.forget(ctx, target) }
	if state.Count != state.Users {
		return &difference{fmt.Sprintf("the count in Redis is %d and %d users have claims there",
			state.Count, state.Users), forget}, nil
	}
	differ, example, ended, err := v.claimDrifts(ctx, target.ID)
	if err != nil {
		return nil, err
	}
	set, err := v.redis.SettingsOf(ctx, target.ID)
	if err != nil {
		return nil, err
	}
	stored, err := stock.New(v.store.DB).DropGate(ctx, []int64{target.ID}, 0)
	if err != nil {
		return nil, err
	}
	tally, exists, err := stock.New(v.store.DB).TallyDrop(ctx, target.ID)
	if err != nil || !exists {
		return nil, err // verifyStrays reports it
	}
	row := stored[target.ID]
	switch {
	case differ > 0:
		return &difference{fmt.Sprintf("Redis has %d claims and MySQL %d; they differ in %d, such as %s",
			state.Count, tally.Rows, differ, example), func() error { return v.resendClaims(ctx, target.ID) }}, nil
	case len(ended) > 0:
		return &difference{fmt.Sprintf("%d claims are in Redis that MySQL has ended, such as %s",
			len(ended), ended[0]), func() error { return v.releaseEnded(ctx, target.ID, ended) }}, nil
	case !state.Closed && !tally.Open:
		return &difference{"it takes claims in Redis but its post is deleted in MySQL",
			func() error { return v.likes.CloseTargets(ctx, []models.Target{target}) }}, nil
	case row != nil && !tally.Unsent && !sameSettings(*row, set):
		return &difference{fmt.Sprintf("Redis has a stock of %d in version %d, and MySQL %d in version %d",
			set.Stock, set.Version, row.Stock, row.Version), forget}, nil
	}
	return nil, nil //nolint:nilnil // no difference
}

// claimDrifts returns the number of differences between the claims of a warm drop and the rows, with an example, and
// those claims that MySQL has ended and nothing releases.
func (v *gatedVerifier) claimDrifts(
	ctx context.Context, dropID int64,
) (differ int, example models.ClaimDrift, ended []models.ClaimDrift, err error) {
	err = eachClaimDrift(ctx, v.redis, v.store.DB, dropID, func(drifts []models.ClaimDrift) error {
		for _, d := range drifts {
			switch {
			case d.Leaves:
			case d.Ended:
				ended = append(ended, d)
			default:
				if differ++; differ == 1 {
					example = d
				}
			}
		}
		return nil
	})
	return differ, example, ended, err
}

// resendClaims sends the claims of a drop that differ through the pipeline, and returns when none does.
func (v *gatedVerifier) resendClaims(ctx context.Context, dropID int64) error {
	if _, err := resendClaims(ctx, v.redis, v.store.DB, v.likes, dropID); err != nil {
		return err
	}
	return v.await(ctx, func(ctx context.Context) (bool, error) {
		differ, _, _, err := v.claimDrifts(ctx, dropID)
		return differ == 0, err
	})
}

// releaseEnded marks claims that MySQL has ended to be released by the job claims.
func (v *gatedVerifier) releaseEnded(ctx context.Context, dropID int64, ended []models.ClaimDrift) error {
	for _, d := range ended {
		if _, err := stock.New(v.store.DB).ReleaseClaim(ctx, dropID, d.UserID, d.Gate); err != nil {
			return err
		}
	}
	return nil
}

// sameSettings reports whether two drops have the same stock, window and version, to the millisecond.
func sameSettings(a, b models.GateDrop) bool {
	return a.Stock == b.Stock && a.Version == b.Version &&
		counters.Millis(a.Begins) == counters.Millis(b.Begins) && counters.Millis(a.Ends) == counters.Millis(b.Ends)
}
