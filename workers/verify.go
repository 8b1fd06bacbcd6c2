package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sethvargo/go-retry"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/stock"
)

// Verification holds the results of a Verifier.
type Verification struct {
	Posts, Comments int   // compared
	Likes           int64 // rows of likes of the compared targets
	Drops           int   // compared
	Claims          int64 // live rows of claims to the compared drops
	Warm            int   // compared targets that are warm in Redis
	Differences     int
	Repaired        int // of the differences; the repair of the others failed, or was not asked for
	Undecided       int // targets that could not be compared; not included in Differences
}

// Verifier compares rows, counts and Redis for every post, comment and drop, while the site is live.
//
// A difference between the counts and the rows of a target is confirmed while the row is locked. Redis is ahead of
// MySQL by the events in the pipeline. So a warm target is compared once its last change has been applied, and only if
// it did not change during the comparison. A target that changes in every attempt is reported as undecided.
type Verifier struct {
	store  *likes.Store
	gate   gateVerifier
	repair bool
	report func(models.Difference)
	now    func() time.Time
	wait   time.Duration // for a change to get from the gate to MySQL
}

// NewVerifier returns a Verifier that calls report for each difference. With repair, it sets counts to the number of
// their rows, deletes likes whose target does not exist, and ends likes and claims whose user does not exist. If Redis
// and MySQL differ in a like, it sends the state in Redis through the pipeline again, and counts that as repaired when
// MySQL has it.
func NewVerifier(
	store *db.DB,
	r *counters.Redis,
	gate *counters.Likes,
	repair bool,
	report func(models.Difference),
) *Verifier {
	v := &Verifier{
		store:  likes.New(store),
		gate:   directVerifier{likes.New(store)},
		repair: repair,
		report: report,
		now:    store.Now,
		wait:   verifyWait,
	}
	if r != nil {
		v.gate = &gatedVerifier{v, r, gate}
	}
	return v
}

// gateVerifier compares targets in Redis: gatedVerifier, or directVerifier in direct mode.
type gateVerifier interface {
	// verifyTargets compares the warm ones of targets.
	verifyTargets(ctx context.Context, targets []models.Target, sum *Verification) error
	// verifyDrops compares the warm ones of drops.
	verifyDrops(ctx context.Context, drops []models.DropTally, sum *Verification) error
	// verifyStray reports target, which has no row, if it is warm.
	verifyStray(ctx context.Context, target models.Target, sum *Verification) error
	// verifyStrays reports all warm targets that have no row.
	verifyStrays(ctx context.Context, sum *Verification) error
	// unlike takes a like away.
	unlike(ctx context.Context, target models.Target, user int64) error
}

// directVerifier has nothing to verify: without a gate, no target is warm.
type directVerifier struct{ store *likes.Store }

func (directVerifier) verifyTargets(context.Context, []models.Target, *Verification) error {
	return nil
}

func (directVerifier) verifyDrops(context.Context, []models.DropTally, *Verification) error {
	return nil
}

func (directVerifier) verifyStray(context.Context, models.Target, *Verification) error { return nil }

func (directVerifier) verifyStrays(context.Context, *Verification) error { return nil }

// gatedVerifier compares targets in Redis with MySQL.
type gatedVerifier struct {
	*Verifier

	redis *counters.Redis
	likes *counters.Likes
}

const (
	verifyPage  = 500 // targets a query
	verifyWait  = 10 * time.Second
	askedWait   = 2 * time.Second // the same in a request
	verifyPoll  = 50 * time.Millisecond
	verifyTries = 20     // comparisons of a target that changes
	verifyUsers = 10_000 // users of targets that are compared together
)

// Verify compares all posts, comments and drops once.
func (v *Verifier) Verify(ctx context.Context) (Verification, error) {
	var sum Verification
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		if err := v.verifyKind(ctx, kind, &sum); err != nil {
			return sum, err
		}
		if err := v.verifyOrphans(ctx, kind, &sum); err != nil {
			return sum, err
		}
		if err := v.verifyStrangers(ctx, kind, &sum); err != nil {
			return sum, err
		}
	}
	if err := v.verifyDrops(ctx, &sum); err != nil {
		return sum, err
	}
	if err := v.verifyStrangeClaims(ctx, &sum); err != nil {
		return sum, err
	}
	return sum, v.gate.verifyStrays(ctx, &sum)
}

// Sample compares at most limit targets of a kind with ids above after. It returns the id to continue after, or 0 at
// the end.
func (v *Verifier) Sample(
	ctx context.Context,
	kind models.TargetKind,
	after int64,
	limit int,
) (Verification, int64, error) {
	var sum Verification
	if kind == models.KindDrop {
		return v.sampleDrops(ctx, after, limit)
	}
	list, err := v.store.Tally(ctx, kind, after, limit)
	if err != nil || len(list) == 0 {
		return sum, 0, err
	}
	err = v.verifyPage(ctx, kind, list, &sum)
	return sum, list[len(list)-1].ID, err
}

// Target compares one target, which may have no row. It is for requests, and waits only askedWait for events in the
// pipeline.
func (v *Verifier) Target(ctx context.Context, target models.Target) (Verification, error) {
	var sum Verification
	v.wait = askedWait
	if target.Kind == models.KindDrop {
		return sum, v.verifyOneDrop(ctx, target, &sum)
	}
	tally, exists, err := v.store.TallyOf(ctx, target)
	if err != nil {
		return sum, err
	}
	if exists {
		return sum, v.verifyPage(ctx, target.Kind, []models.TargetTally{tally}, &sum)
	}
	likers, err := v.store.LikerIDs(ctx, target, 0, 1)
	if err != nil {
		return sum, err
	}
	if len(likers) > 0 {
		err = v.found(
			ctx,
			&sum,
			target,
			"it has likes and does not exist",
			func() error { return v.store.DeleteOrphanLikes(ctx, target) },
		)
	}
	if err != nil {
		return sum, err
	}
	return sum, v.gate.verifyStray(ctx, target, &sum)
}

// Stretch compares targets of a kind in a shard, for a request. It starts after the id after, and stops after limit
// targets or at the time end. It returns the id to continue after, or 0 if all targets are compared.
func (v *Verifier) Stretch(
	ctx context.Context,
	shard int,
	kind models.TargetKind,
	after int64,
	limit int,
	end time.Time,
) (sum Verification, next int64, err error) {
	v.wait = askedWait
	if kind == models.KindDrop {
		list, err := stock.New(v.store.DB).TallyDropsOfShard(ctx, shard, after, limit)
		if err != nil {
			return sum, 0, err
		}
		next, err = stretch(v, list, limit, end, func(item []models.DropTally) (int64, error) {
			return item[0].ID, v.verifyDropPage(ctx, item, &sum)
		})
		return sum, next, err
	}
	list, err := v.store.TallyShard(ctx, kind, shard, after, limit)
	if err != nil {
		return sum, 0, err
	}
	next, err = stretch(v, list, limit, end, func(item []models.TargetTally) (int64, error) {
		return item[0].ID, v.verifyPage(ctx, kind, item, &sum)
	})
	return sum, next, err
}

// stretch calls compare, which returns the id of what it compared, with each of a list until the time end. It returns
// the id to continue after, or 0 if the list has fewer than limit, and so is the last.
func stretch[T any](
	v *Verifier, list []T, limit int, end time.Time, compare func(item []T) (id int64, err error),
) (next int64, err error) {
	for item := range slices.Chunk(list, 1) {
		if next, err = compare(item); err != nil {
			return 0, err
		}
		if v.now().After(end) {
			return next, nil
		}
	}
	if len(list) < limit {
		return 0, nil
	}
	return next, nil
}

func (v *Verifier) verifyKind(ctx context.Context, kind models.TargetKind, sum *Verification) error {
	for after := int64(0); ; {
		list, err := v.store.Tally(ctx, kind, after, verifyPage)
		if err != nil || len(list) == 0 {
			return err
		}
		after = list[len(list)-1].ID
		if err := v.verifyPage(ctx, kind, list, sum); err != nil {
			return err
		}
	}
}

func (v *Verifier) verifyPage(
	ctx context.Context,
	kind models.TargetKind,
	list []models.TargetTally,
	sum *Verification,
) error {
	if kind == models.KindPost {
		sum.Posts += len(list)
	} else {
		sum.Comments += len(list)
	}
	targets := make([]models.Target, len(list))
	for i, t := range list {
		targets[i] = models.Target{Kind: kind, ID: t.ID}
		sum.Likes += t.LikeRows
		if err := v.verifyCounts(ctx, targets[i], t, sum); err != nil {
			return err
		}
	}
	return v.gate.verifyTargets(ctx, targets, sum)
}

// warmTarget is a warm target as Redis had it at the beginning of a comparison.
type warmTarget struct {
	models.Target

	state counters.TargetState
}

func (v *gatedVerifier) verifyTargets(ctx context.Context, targets []models.Target, sum *Verification) error {
	states, err := v.redis.TargetStates(ctx, targets)
	if err != nil {
		return err
	}
	var warm []warmTarget
	for i, state := range states {
		if state.Warm {
			warm = append(warm, warmTarget{targets[i], state})
		}
	}
	sum.Warm += len(warm)
	for len(warm) > 0 {
		n, users := 1, warm[0].state.Users
		for n < len(warm) && users+warm[n].state.Users <= verifyUsers {
			users += warm[n].state.Users
			n++
		}
		equal, err := v.equal(ctx, warm[:n])
		if err != nil {
			return err
		}
		for _, item := range warm[:n] {
			if equal[item.Target] {
				continue
			}
			if err := v.verifyWarm(ctx, item.Target, sum); err != nil {
				return err
			}
		}
		warm = warm[n:]
	}
	return nil
}

// equal returns those of targets whose users are the same in Redis and in MySQL, and which did not change while they
// were compared. It compares all in six round trips, where verifyWarm takes ten for each. The others may differ, or
// have too many users to be read at once, or have changes that MySQL does not have yet.
func (v *gatedVerifier) equal(ctx context.Context, warm []warmTarget) (map[models.Target]bool, error) {
	shards, err := v.store.ShardStates(ctx)
	if err != nil {
		return nil, err
	}
	applied := make(map[int]models.Position, len(shards))
	for _, shard := range shards {
		applied[shard.Shard] = shard.Applied
	}
	var targets []models.Target
	var before []counters.TargetState
	for _, item := range warm {
		state, has := item.state, applied[item.Shard(v.store.Shards())]
		if state.Count == state.Users && state.Users <= verifyUsers && !state.Last.After(has) {
			targets, before = append(targets, item.Target), append(before, state)
		}
	}
	if len(targets) == 0 {
		return nil, nil
	}
	rows, err := v.store.LikersOf(ctx, targets)
	if err != nil {
		return nil, err
	}
	users, err := v.redis.UsersOf(ctx, targets, before)
	if err != nil {
		return nil, err
	}
	open, err := v.store.OpenAmong(ctx, targets)
	if err != nil {
		return nil, err
	}
	after, err := v.redis.TargetStates(ctx, targets)
	if err != nil {
		return nil, err
	}
	equal := map[models.Target]bool{}
	for i, target := range targets {
		slices.Sort(rows[target])
		slices.Sort(users[i])
		equal[target] = (open[target] || before[i].Closed) && after[i] == before[i] &&
			slices.Equal(rows[target], users[i])
	}
	return equal, nil
}

func (v *Verifier) verifyCounts(
	ctx context.Context,
	target models.Target,
	t models.TargetTally,
	sum *Verification,
) error {
	if countProblem(target.Kind, t) == "" {
		return nil
	}
	t, exists, err := v.store.LockedTally(ctx, target)
	if err != nil || !exists {
		return err
	}
	problem := countProblem(target.Kind, t)
	if problem == "" {
		return nil
	}
	return v.found(ctx, sum, target, problem, func() error { return v.store.Recount(ctx, target) })
}

// countProblem describes a count, score, depth or tag that is off; "" if all are right.
func countProblem(kind models.TargetKind, t models.TargetTally) string {
	children := "comments_count"
	if kind == models.KindComment {
		children = "replies_count"
	}
	switch {
	case t.Likes != t.LikeRows:
		return fmt.Sprintf("likes_count is %d and there are %d rows", t.Likes, t.LikeRows)
	case t.Children != t.ChildRows:
		return fmt.Sprintf("%s is %d and there are %d rows", children, t.Children, t.ChildRows)
	case t.HotScore != t.HotWant:
		return fmt.Sprintf("hot_score is %d and %d likes make it %d", t.HotScore, t.Likes, t.HotWant)
	case t.Depth != t.DepthWant:
		return fmt.Sprintf("depth is %d and the parent's makes it %d", t.Depth, t.DepthWant)
	case t.TagsStale != 0:
		return fmt.Sprintf(
			"%d of its tags have another status, author, time, count or score than the post",
			t.TagsStale,
		)
	}
	return ""
}

// difference is what differs between a warm target and MySQL, with its repair.
type difference struct {
	text   string
	repair func() error
}

// verifyWarm compares a warm target's set and counter with the rows.
func (v *gatedVerifier) verifyWarm(ctx context.Context, target models.Target, sum *Verification) error {
	return v.settle(ctx, target, sum, func(state counters.TargetState) (*difference, error) {
		return v.compareLikes(ctx, target, state)
	})
}

// settle compares a warm target until it does not change meanwhile, and reports what differs. Redis may have lost what
// it accepted last, so a difference counts only if the shard is open afterwards: what is warm then is the truth.
// compare returns nil if nothing differs.
func (v *gatedVerifier) settle(
	ctx context.Context, target models.Target, sum *Verification,
	compare func(counters.TargetState) (*difference, error),
) error {
	why := "it changed during every comparison"
	for range verifyTries {
		before, err := v.state(ctx, target)
		if err != nil || !before.Warm {
			return err // evicted since, so MySQL has all its changes
		}
		if arrived, err := v.awaitApplied(ctx, target, before.Last); err != nil {
			return err
		} else if !arrived {
			why = fmt.Sprintf("its change %s did not reach MySQL within %s: is a worker running?", before.Last, v.wait)
			break
		}
		found, err := compare(before)
		if errors.Is(err, counters.ErrNotWarm) {
			return nil // evicted since
		}
		if err != nil {
			return err
		}
		after, err := v.state(ctx, target)
		if err != nil {
			return err
		}
		if after != before {
			continue
		}
		if found == nil {
			return nil
		}
		open, err := v.open(ctx, target)
		if err != nil {
			return err
		}
		if open {
			return v.found(ctx, sum, target, found.text, found.repair)
		}
		why = shardClosed
		pause(ctx, verifyPoll) // an opening takes less
	}
	v.undecided(sum, target, why)
	return nil
}

const shardClosed = "its shard is closed: is a worker running?"

// open reports whether the shard of a target is open, and MySQL has not overtaken it.
func (v *gatedVerifier) open(ctx context.Context, target models.Target) (bool, error) {
	shard := target.Shard(v.store.Shards())
	applied, err := v.store.Applied(ctx, shard) // before Redis, which is never behind on a healthy shard
	if err != nil {
		return false, err
	}
	info, err := v.redis.ShardInfo(ctx, shard)
	return err == nil && info.Open && !applied.After(info.Last), err
}

// compareLikes returns what differs between a warm target in a state and MySQL, or nil.
func (v *gatedVerifier) compareLikes(
	ctx context.Context, target models.Target, state counters.TargetState,
) (*difference, error) {
	differ, example := 0, int64(0)
	if err := eachDiffering(ctx, v.redis, v.store.DB, target, func(users []int64) error {
		differ, example = differ+len(users), users[0]
		return nil
	}); err != nil {
		return nil, err
	}
	tally, exists, err := v.store.TallyOf(ctx, target)
	if err != nil || !exists {
		return nil, err // without a row, verifyStrays reports it
	}
	open, err := v.store.TargetOpen(ctx, target)
	if err != nil {
		return nil, err
	}
	switch {
	case state.Count != state.Users:
		return &difference{fmt.Sprintf("the counter in Redis is %d and its set has %d users", state.Count, state.Users),
			func() error { return v.forget(ctx, target) }}, nil
	case differ > 0:
		return &difference{fmt.Sprintf("Redis has %d users and MySQL %d; they differ in %d, such as user %d",
			state.Users, tally.LikeRows, differ, example), func() error { return v.resend(ctx, target) }}, nil
	case !state.Closed && !open:
		return &difference{"it takes likes in Redis but is deleted in MySQL",
			func() error { return v.likes.CloseTargets(ctx, []models.Target{target}) }}, nil
	}
	return nil, nil //nolint:nilnil // no difference
}

// resend sends the state in Redis of every like that differs from MySQL through the pipeline, and returns when MySQL
// has it.
func (v *gatedVerifier) resend(ctx context.Context, target models.Target) error {
	return eachDiffering(ctx, v.redis, v.store.DB, target, func(users []int64) error {
		if err := v.likes.Reassert(ctx, target, users); err != nil {
			return err
		}
		return v.await(ctx, func(ctx context.Context) (bool, error) {
			in, err := v.redis.Likers(ctx, target, users)
			if err != nil {
				return false, err
			}
			rows, err := v.store.LikedAmong(ctx, target, users)
			for user, liked := range in {
				if liked != rows[user] {
					return false, err
				}
			}
			return true, err
		})
	})
}

// await waits until what was sent through the pipeline has its effect. After v.wait it returns an error.
func (v *gatedVerifier) await(ctx context.Context, applied func(context.Context) (bool, error)) error {
	poll := retry.WithMaxDuration(v.wait, retry.NewConstant(verifyPoll))
	return retry.Do(ctx, poll, func(ctx context.Context) error {
		done, err := applied(ctx)
		if err == nil && !done {
			return retry.RetryableError(errNotApplied)
		}
		return err
	})
}

// forget evicts a target that is damaged in Redis, or has no row. Its next like warms it from MySQL.
func (v *gatedVerifier) forget(ctx context.Context, target models.Target) error {
	forgotten, err := v.redis.Forget(ctx, v.store.DB, target)
	if err != nil || forgotten {
		return err
	}
	state, err := v.state(ctx, target)
	if err == nil && state.Warm { // otherwise the janitor came first
		err = errors.New("MySQL does not have all of its changes yet; run the repair again")
	}
	return err
}

func (v *gatedVerifier) state(ctx context.Context, target models.Target) (counters.TargetState, error) {
	states, err := v.redis.TargetStates(ctx, []models.Target{target})
	if err != nil {
		return counters.TargetState{}, err
	}
	return states[0], nil
}

// awaitApplied waits until MySQL has every event of the target's shard up to pos. It reports false after v.wait.
func (v *Verifier) awaitApplied(ctx context.Context, target models.Target, pos models.Position) (bool, error) {
	poll := retry.WithMaxDuration(v.wait, retry.NewConstant(verifyPoll))
	err := retry.Do(ctx, poll, func(ctx context.Context) error {
		state, err := v.store.ShardState(ctx, target.Shard(v.store.Shards()))
		if err == nil && pos.After(state.Applied) {
			return retry.RetryableError(errNotApplied)
		}
		return err
	})
	if errors.Is(err, errNotApplied) {
		return false, nil
	}
	return err == nil, err
}

// errNotApplied means that MySQL still lacks the change after v.wait.
var errNotApplied = errors.New("the change is not in MySQL yet: is a worker running?")

// verifyOrphans looks for likes of posts or comments that have no row.
func (v *Verifier) verifyOrphans(ctx context.Context, kind models.TargetKind, sum *Verification) error {
	orphans, err := v.store.OrphanLikes(ctx, kind, verifyPage)
	if err != nil {
		return err
	}
	for _, o := range orphans {
		err := v.found(ctx, sum, o.Target, fmt.Sprintf("it has %d likes and does not exist", o.Count),
			func() error { return v.store.DeleteOrphanLikes(ctx, o.Target) })
		if err != nil {
			return err
		}
	}
	return nil
}

// verifyStrays looks for targets in Redis that have no row in MySQL.
func (v *gatedVerifier) verifyStrays(ctx context.Context, sum *Verification) error {
	return v.redis.EachWarm(ctx, func(targets []models.Target) error {
		strays, err := v.store.Missing(ctx, targets)
		if err != nil {
			return err
		}
		for _, target := range strays {
			if err := v.stray(ctx, target, sum); err != nil {
				return err
			}
		}
		return nil
	})
}

// verifyStray is verifyStrays for one target.
func (v *gatedVerifier) verifyStray(ctx context.Context, target models.Target, sum *Verification) error {
	state, err := v.state(ctx, target)
	if err != nil || !state.Warm {
		return err
	}
	return v.stray(ctx, target, sum)
}

// stray reports a target that is warm in Redis and has no row in MySQL.
func (v *gatedVerifier) stray(ctx context.Context, target models.Target, sum *Verification) error {
	if open, err := v.open(ctx, target); err != nil {
		return err
	} else if !open {
		v.undecided(sum, target, shardClosed)
		return nil
	}
	return v.found(ctx, sum, target, "it is in Redis and does not exist in MySQL",
		func() error { return v.forget(ctx, target) })
}

// undecided reports a target that could not be compared.
func (v *Verifier) undecided(sum *Verification, target models.Target, why string) {
	sum.Undecided++
	v.report(models.Difference{Target: target, Problem: why, Undecided: true})
}

// found reports a difference. If the verifier repairs, found calls repair first. A repair that fails is reported, and
// the verifier goes on: the reason may concern that target alone.
func (v *Verifier) found(
	ctx context.Context, sum *Verification, target models.Target, problem string, repair func() error,
) error {
	d := models.Difference{Target: target, Problem: problem}
	sum.Differences++
	if v.repair {
		err := repair()
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("repair %s: %w", target, err)
		case err != nil:
			d.Failure = err.Error()
			v.store.Logger().Warn("difference not repaired",
				"target", target.String(), "problem", problem, "error", err)
		default:
			d.Repaired = true
			sum.Repaired++
			v.store.Logger().Warn("difference repaired", "target", target.String(), "problem", problem)
		}
	}
	v.report(d)
	return nil
}
