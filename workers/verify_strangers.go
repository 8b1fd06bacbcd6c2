package workers

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/stock"
)

// verifyStrangers looks for likes of users who have no row. A repair unlikes in their name.
func (v *Verifier) verifyStrangers(ctx context.Context, kind models.TargetKind, sum *Verification) error {
	likes, err := v.store.StrangeLikes(ctx, kind, verifyPage)
	if err != nil {
		return err
	}
	for _, l := range likes {
		err := v.found(ctx, sum, l.Target, fmt.Sprintf("user %d likes it and does not exist", l.UserID), func() error {
			return v.gate.unlike(ctx, l.Target, l.UserID)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// verifyStrangeClaims looks for live claims of users who have no row. A repair ends them.
func (v *Verifier) verifyStrangeClaims(ctx context.Context, sum *Verification) error {
	claims, err := stock.New(v.store.DB).StrangeClaims(ctx, verifyPage)
	if err != nil {
		return err
	}
	for _, c := range claims {
		problem := fmt.Sprintf("user %d has claim %d and does not exist", c.UserID, c.ID)
		err := v.found(ctx, sum, models.Target{Kind: models.KindDrop, ID: c.DropID}, problem, func() error {
			return stock.New(v.store.DB).EndStrangeClaim(ctx, c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (v directVerifier) unlike(ctx context.Context, target models.Target, user int64) error {
	_, err := v.store.SetLike(ctx, target, user, false)
	return err
}

func (v *gatedVerifier) unlike(ctx context.Context, target models.Target, user int64) error {
	_, err := v.likes.SetLike(ctx, target, user, false)
	return err
}
