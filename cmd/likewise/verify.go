package main

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/workers"
)

type verifyCmd struct {
	mysqlFlags
	likesFlags
	Repair bool `help:"${verify_help}"`
}

// Validate reports missing settings.
func (v *verifyCmd) Validate() error { return required(v.mysqlFlags.setting(), v.likesFlags.setting()) }

// Run verifies. It returns errDiffers if a difference is not repaired, or if a target could not be compared.
func (v *verifyCmd) Run(ctx context.Context, out output) error {
	c, err := openCore(ctx, out.log, v.mysqlFlags, v.likesFlags)
	if err != nil {
		return err
	}
	defer c.close()
	sum, err := workers.NewVerifier(c.store, c.redis, c.gate, v.Repair, func(d models.Difference) {
		fmt.Fprintln(out.stdout, d)
	}).Verify(ctx)
	if err != nil {
		return err
	}
	if sum.Drops > 0 {
		fmt.Fprintf(out.stdout, "compared %d drops with %d claims\n", sum.Drops, sum.Claims)
	}
	fmt.Fprintf(out.stdout, "compared %d posts and %d comments with %d likes, %d of them with Redis: "+
		"%d differences, %d repaired, %d undecided\n",
		sum.Posts, sum.Comments, sum.Likes, sum.Warm, sum.Differences, sum.Repaired, sum.Undecided)
	if sum.Differences > sum.Repaired || sum.Undecided > 0 {
		return errDiffers
	}
	return nil
}
