package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// pairs returns pairs of faults that affect each other.
func pairs(redis func(*injection) server, workers func(*injection) []*process) []fault {
	link := func(x *injection) *proxy { return x.toRedis }
	all := []fault{
		{kind: "redis clock steps back while calls are held", do: clockBackWhileHeld},
		{kind: "redis clock steps back before calls are held", do: heldAfterClockBack},
		{kind: "redis clock stays behind, workers killed", do: clockBehindWithoutWorkers},
		{kind: "redis clock behind, killed", do: both(serverClockOff("redis", false), serversKilled(2*s1, redis))},
		{kind: "redis clock ahead, killed", do: both(serverClockOff("redis", true), serversKilled(2*s1, redis))},
	}
	for i := range all {
		all[i].serverClock = true
	}
	return append(all,
		fault{kind: "redis calls held, killed", do: both(held(6*s1, link), serversKilled(2*s1, redis))},
		fault{
			kind: "redis killed, worker paused past lock and session",
			do: both(serversKilled(2*s1, redis), paused(func(x *injection) []*process {
				return x.one(workers(x))
			}, 11*s1, 13*s1)),
		},
	)
}

// both injects two faults at once, each with random choices of its own.
func both(one, other func(context.Context, *injection) error) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		parts := [2]*injection{x.part(), x.part()}
		var errs [2]error
		var all sync.WaitGroup
		for i, do := range [2]func(context.Context, *injection) error{one, other} {
			all.Go(func() { errs[i] = do(ctx, parts[i]) })
		}
		all.Wait()
		x.notes = append(append(x.notes, parts[0].notes...), parts[1].notes...)
		return errors.Join(errs[:]...)
	}
}

// part returns an injection for a part of a fault.
func (x *injection) part() *injection {
	return &injection{site: x.site, st: x.st, rng: rand.New(rand.NewPCG(x.rng.Uint64(), 0))}
}

// clockBack sets Redis's clock back until the returned function is called.
func (x *injection) clockBack() (end func() error, err error) {
	c, off := x.serverClocks["redis"], x.skew(false)
	x.skewBegins(&x.stepped)
	x.redisSkewBegins(off)
	return func() error {
		err := c.set(0)
		x.skewEnds(&x.stepped)
		x.skewEnds(&x.skewed)
		return err
	}, c.set(off)
}

// clockBackWhileHeld holds calls to Redis, sets its clock back, and delivers the calls when their callers have given
// up.
func clockBackWhileHeld(ctx context.Context, x *injection) error {
	picks := rand.New(rand.NewPCG(x.rng.Uint64(), 0))
	x.toRedis.hold(func() bool { return picks.IntN(2) == 0 })
	err := x.hold(ctx, 200*ms, 600*ms)
	end, failure := x.clockBack()
	err = errors.Join(err, failure, x.hold(ctx, 2*s1, 4*s1))
	x.notef("%d requests", x.toRedis.release())
	return errors.Join(err, x.during(ctx, 1*s1, 3*s1, end))
}

// heldAfterClockBack sets the clock back first. So processes that have not called since estimate it from before.
func heldAfterClockBack(ctx context.Context, x *injection) error {
	end, err := x.clockBack()
	picks := rand.New(rand.NewPCG(x.rng.Uint64(), 0))
	for range 2 {
		x.toRedis.hold(func() bool { return picks.IntN(2) == 0 })
		err = errors.Join(err, x.hold(ctx, 1200*ms, 2*s1))
	}
	x.notef("%d requests", x.toRedis.release())
	return errors.Join(err, x.during(ctx, 1*s1, 3*s1, end))
}

// clockBehindWithoutWorkers sets Redis's clock back by hours and kills the workers, which hold its locks. The clock
// stays behind until the site has recovered.
func clockBehindWithoutWorkers(ctx context.Context, x *injection) error {
	end, err := x.clockBack()
	x.afterwards = end
	err = errors.Join(err, x.hold(ctx, 0, 300*time.Millisecond))
	killAll(x.workers)
	return errors.Join(err, x.during(ctx, 200*ms, 2*s1, func() error { return startAll(x.workers) }))
}
