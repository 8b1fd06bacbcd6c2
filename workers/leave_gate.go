package workers

import (
	"context"
	"fmt"
	"strings"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// LeaveGate makes a gated site direct if MySQL has every like and claim that the gate accepted. It moves nothing to
// MySQL, and waits for nothing: the processes of the site have been stopped before.
//
// LeaveGate returns CodeConflict, and the site stays gated, if an event is on its way to MySQL, if Redis and MySQL
// differ in a target, each of which it reports, or if the last event of a shard is not known: the shard was closed, or
// another Redis has served the site since it was opened. In that case Kafka may have likes that this Redis has lost.
//
// A gated process that was not stopped does no harm. LeaveGate closes the gate before it compares the last events, and
// no shard is opened on a direct site.
func LeaveGate(
	ctx context.Context, r *counters.Redis, gate *counters.Likes, store *db.DB, report func(models.Difference),
) error {
	states, err := likes.New(store).ShardStates(ctx)
	if err != nil {
		return fmt.Errorf("leave the gate: %w", err)
	}
	infos, err := r.ShardInfos(ctx)
	if err != nil {
		return fmt.Errorf("leave the gate: %w", err)
	}
	// First, because the comparison of a target waits for its events.
	if err := inFlight(states, infos); err != nil {
		return err
	}
	sum, err := NewVerifier(store, r, gate, false, report).Verify(ctx)
	if err != nil {
		return fmt.Errorf("leave the gate: %w", err)
	}
	if sum.Differences+sum.Undecided > 0 {
		return models.Errorf(models.CodeConflict, "Redis, rows and counts do not agree: %d differences, %d "+
			"posts, comments and drops that could not be compared. Run `likewise verify --repair` and `likewise cron "+
			"run flush`, and then this command again.", sum.Differences, sum.Undecided)
	}
	return likes.New(store).SwitchToDirect(ctx, closeGate(r))
}

// closeGate returns a function that closes the gate, and returns CodeConflict if MySQL may lack an event.
func closeGate(r *counters.Redis) func(ctx context.Context, states []models.ShardState) error {
	return func(ctx context.Context, states []models.ShardState) error {
		goals, err := r.CloseShards(ctx)
		if err != nil {
			return err
		}
		return inFlight(states, goals)
	}
}

// inFlight returns CodeConflict if MySQL lacks an event up to the last of a shard, or if the last one is unknown.
func inFlight(states []models.ShardState, goals []counters.ShardInfo) error {
	var lacking []string
	for i, s := range states {
		goal := goals[i]
		b := Behind{Shard: s.Shard, Gaps: s.OpenGaps, Letters: s.Letters, Applied: s.Applied, Goal: goal.Last,
			Depth: goal.Depth, Unread: goal.Err, Closed: !goal.Open || s.Applied.After(goal.Last)}
		if !s.Whole() || b.Unread != nil || b.Closed || goal.Last.After(s.Applied) {
			lacking = append(lacking, b.String())
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return models.Errorf(models.CodeConflict, "MySQL may lack likes and claims that Redis accepted: %s. "+
		"Run `likewise cron run flush`, and then this command again.", strings.Join(lacking, "; "))
}
