package workers

import (
	"context"
	"errors"
	"fmt"

	"likewise/counters"
	"likewise/models"
)

// verifyDrops compares all drops.
func (v *Verifier) verifyDrops(ctx context.Context, sum *Verification) error {
	for after := int64(0); ; {
		list, err := v.store.TallyDrops(ctx, after, verifyPage)
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
	tally, exists, err := v.store.TallyDrop(ctx, target.ID)
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
	list, err := v.store.TallyDrops(ctx, after, limit)
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
		tally, exists, err := v.store.LockedDropTally(ctx, tally.ID)
		if err != nil {
			return err
		}
		problem := tally.Problem()
		if !exists || problem == "" {
			continue
		}
		target := models.Target{Kind: models.KindDrop, ID: tally.ID}
		err = v.found(ctx, sum, target, problem, func() error { return v.store.RecountDrop(ctx, tally.ID) })
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

// dropProblem is a difference between a warm drop and MySQL, with its repair.
type dropProblem struct {
	text   string
	repair func() error
}

// verifyDrop compares the claims, the count and the settings of a warm drop with MySQL, as verifyWarm does with likes.
func (v *gatedVerifier) verifyDrop(ctx context.Context, target models.Target, sum *Verification) error {
	for range verifyTries {
		before, err := v.state(ctx, target)
		if err != nil || !before.Warm {
			return err
		}
		if arrived, err := v.awaitApplied(ctx, target, before.Last); err != nil {
			return err
		} else if !arrived {
			v.undecided(sum, target,
				fmt.Sprintf("its change %s did not reach MySQL within %s: is a worker running?", before.Last, v.wait))
			return nil
		}
		problem, err := v.compareDrop(ctx, target, before)
		if errors.Is(err, counters.ErrNotWarm) {
			return nil // evicted since, so MySQL has all its changes
		}
		if err != nil {
			return err
		}
		after, err := v.state(ctx, target)
		switch {
		case err != nil:
			return err
		case after != before:
			continue
		case problem == nil:
			return nil
		}
		return v.found(ctx, sum, target, problem.text, problem.repair)
	}
	v.undecided(sum, target, "it changed during every comparison")
	return nil
}

// compareDrop returns what differs between a warm drop in a state and MySQL, or nil. A claim that MySQL has ended, and
// that is about to be released, does not differ.
func (v *gatedVerifier) compareDrop(
	ctx context.Context, target models.Target, state counters.TargetState,
) (*dropProblem, error) {
	forget := func() error { return v.forget(ctx, target) }
	if state.Count != state.Users {
		return &dropProblem{fmt.Sprintf("the count in Redis is %d and %d users have claims there",
			state.Count, state.Users), forget}, nil
	}
	differ, example := 0, models.ClaimDrift{}
	var ended []models.ClaimDrift // and nothing releases them
	err := eachClaimDrift(ctx, v.redis, v.store, target.ID, func(drifts []models.ClaimDrift) error {
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
	if err != nil {
		return nil, err
	}
	set, err := v.redis.SettingsOf(ctx, target.ID)
	if err != nil {
		return nil, err
	}
	stored, err := v.store.DropGate(ctx, []int64{target.ID}, 0)
	if err != nil {
		return nil, err
	}
	tally, exists, err := v.store.TallyDrop(ctx, target.ID)
	if err != nil || !exists {
		return nil, err // verifyStrays reports it
	}
	row := stored[target.ID]
	switch {
	case differ > 0:
		return &dropProblem{fmt.Sprintf("Redis has %d claims and MySQL %d; they differ in %d, such as %s",
			state.Count, tally.Rows, differ, example), func() error {
			_, err := resendClaims(ctx, v.redis, v.store, v.likes, target.ID)
			return err
		}}, nil
	case len(ended) > 0:
		return &dropProblem{fmt.Sprintf("%d claims are in Redis that MySQL has ended, such as %s",
			len(ended), ended[0]), func() error { return v.releaseEnded(ctx, target.ID, ended) }}, nil
	case !state.Closed && !tally.Open:
		return &dropProblem{"it takes claims in Redis but its post is deleted in MySQL",
			func() error { return v.likes.CloseTargets(ctx, []models.Target{target}) }}, nil
	case row != nil && !tally.Unsent && !sameSettings(*row, set):
		return &dropProblem{fmt.Sprintf("Redis has a stock of %d in version %d, and MySQL %d in version %d",
			set.Stock, set.Version, row.Stock, row.Version), forget}, nil
	}
	return nil, nil //nolint:nilnil // no difference
}

// releaseEnded marks claims that MySQL has ended to be released by the job claims.
func (v *gatedVerifier) releaseEnded(ctx context.Context, dropID int64, ended []models.ClaimDrift) error {
	for _, d := range ended {
		if _, err := v.store.ReleaseClaim(ctx, dropID, d.UserID, d.Gate); err != nil {
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
