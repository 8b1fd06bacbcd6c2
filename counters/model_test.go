package counters

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"likewise/models"
	"likewise/models/likes"
)

// After any sequence of actions of users and the janitor, the gate's replies, sets and counts must equal those of a
// map. So must the likes in Kafka together with the events in the outbox. Crowds make the gate split sets and write
// runs of many likes. Calls of another process find a target cold, and come again with their tickets later.
func TestGate_agreesWithAModel(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		// Every run has new targets, two in each of two shards. Posts and comments have the same numbers.
		first, second := f.post(t), f.post(t)
		targets := []models.Target{first, f.comment(t, first), second, f.comment(t, first)}
		require.Equal(t, targets[0].ID, targets[1].ID)
		m := model{f: f, likes: map[models.Target]map[int64]bool{}, applied: map[models.Target]map[int64]bool{},
			latest: map[likeOf]int64{}}
		crowds := 0
		for _, target := range targets {
			m.likes[target], m.applied[target] = map[int64]bool{}, map[int64]bool{}
		}
		target := rapid.SampledFrom(targets)
		user := rapid.Int64Range(1, 3)
		set := func(rt *rapid.T, liked bool) {
			target, user := target.Draw(rt, "target"), user.Draw(rt, "user")
			state, err := f.SetLike(ctx, target, user, liked)
			require.NoError(rt, err)
			m.set(m.likes, target, user, liked)
			delete(m.latest, likeOf{target, user})
			require.Equal(rt, models.LikeState{Liked: liked, Count: int64(len(m.likes[target]))}, state)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"like":   func(rt *rapid.T) { set(rt, true) },
			"unlike": func(rt *rapid.T) { set(rt, false) },
			"crowd": func(rt *rapid.T) {
				if crowds++; crowds > 2 { // of 450 each, so that sets are split
					rt.Skip("enough")
				}
				m.crowd(rt, ctx, target.Draw(rt, "target"), rapid.Bool().Draw(rt, "liked"))
			},
			"come": func(rt *rapid.T) {
				of := likeOf{target.Draw(rt, "target"), user.Draw(rt, "user")}
				m.come(rt, ctx, waiter{of, rapid.Bool().Draw(rt, "liked"), 0})
			},
			"come again": func(rt *rapid.T) {
				if len(m.waiters) == 0 {
					rt.Skip("nobody waits")
				}
				i := rapid.IntRange(0, len(m.waiters)-1).Draw(rt, "waiter")
				w := m.waiters[i]
				m.waiters = slices.Delete(m.waiters, i, i+1)
				m.come(rt, ctx, w)
			},
			"apply": func(rt *rapid.T) { m.apply(rt, ctx, target.Draw(rt, "of shard").Shard(shards)) },
			"cool": func(rt *rapid.T) {
				target := target.Draw(rt, "target")
				_, err := f.redis.Forget(ctx, f.store, target)
				require.NoError(rt, err)
			},
			"sweep": func(rt *rapid.T) {
				_, err := f.redis.Sweep(ctx)
				require.NoError(rt, err)
			},
			"new epoch": func(rt *rapid.T) { m.reopen(rt, ctx, target.Draw(rt, "of shard").Shard(shards)) },
			"":          func(rt *rapid.T) { m.check(rt, ctx, targets) },
		})
		for _, target := range targets {
			m.apply(rt, ctx, target.Shard(shards))
			users, err := likes.New(f.store).LikerIDs(ctx, target, 0, 10_000)
			require.NoError(rt, err)
			require.ElementsMatch(rt, slices.Collect(maps.Keys(m.likes[target])), users)
		}
	})
}

// model is the expected state: the users who like each target, and the part of it that is in MySQL.
type model struct {
	f              *forum
	likes, applied map[models.Target]map[int64]bool
	waiters        []waiter         // calls that found their target cold
	latest         map[likeOf]int64 // the tickets of the latest calls, of those that wait
}

type likeOf struct {
	target models.Target
	user   int64
}

// waiter is a call of another process.
type waiter struct {
	likeOf
	liked  bool
	ticket int64 // 0 at first
}

// come sends one like to the gate as a process does that never loads a target.
func (m *model) come(rt *rapid.T, ctx context.Context, w waiter) {
	c := call{user: w.user, liked: w.liked, ticket: w.ticket}
	k := m.f.redis.keys(w.target)
	reply, err := numbers(m.f.redis.run(ctx, "like", []string{k.shard, k.outbox, k.likes},
		1<<40, 0, never, m.f.redis.client.HGet(ctx, k.shard, "epoch").Val(), 0, 1, w.target.Short(), 1, c.word()))
	require.NoError(rt, err)
	require.Zero(rt, reply[0])
	states, err := m.f.redis.TargetStates(ctx, []models.Target{w.target})
	require.NoError(rt, err)
	latest := m.latest[w.likeOf]
	if w.ticket != 0 && latest != w.ticket {
		want := superseded // the user has called again since
		if states[0].Warm && m.likes[w.target][w.user] == w.liked {
			want = asAsked // it needs no effect
		}
		require.EqualValues(rt, want, reply[2])
		return
	}
	if !states[0].Warm {
		require.EqualValues(rt, isCold, reply[2])
		if latest != 0 && latest > 0 == w.liked {
			require.Equal(rt, latest, reply[3], "that of the latest call, which wants the same")
		}
		w.ticket = reply[3]
		m.latest[w.likeOf] = w.ticket
		m.waiters = append(m.waiters, w)
		return
	}
	changes := m.likes[w.target][w.user] != w.liked
	require.Equal(rt, map[bool]int64{true: isChanged, false: asAsked}[changes], reply[2])
	m.set(m.likes, w.target, w.user, w.liked)
	delete(m.latest, w.likeOf)
	require.EqualValues(rt, len(m.likes[w.target]), reply[3])
}

// crowd is 450 users who like or unlike a target at the same time.
func (m *model) crowd(rt *rapid.T, ctx context.Context, target models.Target, liked bool) {
	var failed atomic.Value
	atOnce(450, func(i int) {
		if _, err := m.f.SetLike(ctx, target, int64(100+i), liked); err != nil {
			failed.Store(err)
		}
	})
	require.Nil(rt, failed.Load())
	for i := range int64(450) {
		m.set(m.likes, target, 100+i, liked)
	}
}

func (m *model) set(likes map[models.Target]map[int64]bool, target models.Target, user int64, liked bool) {
	if liked {
		likes[target][user] = true
	} else {
		delete(likes[target], user)
	}
}

// apply moves all events from a shard's outbox to MySQL, as the relay and the writer do.
func (m *model) apply(t require.TestingT, ctx context.Context, shard int) {
	require.Zero(t, m.applyWithGaps(t, ctx, shard))
}

// applyWithGaps is apply on an outbox that may have lost runs. It returns the number of gaps that the writer found.
func (m *model) applyWithGaps(t require.TestingT, ctx context.Context, shard int) int {
	outbox, err := m.f.redis.HoldOutbox(ctx, shard, "model", time.Minute)
	require.NoError(t, err)
	runs, err := outbox.Read(ctx, models.Position{}, 1000, -1)
	require.NoError(t, err)
	if len(runs) == 0 {
		return 0
	}
	var records []models.LikeRecord
	for _, run := range runs {
		events, err := run.Run.Events(shard, shards)
		require.NoError(t, err)
		records = append(records, models.LikeRecord{Shard: shard, Pos: run.Pos, Events: events})
		for _, event := range events {
			if likes := m.applied[event.Target()]; event.Type != models.ShardOpened && likes != nil {
				m.set(m.applied, event.Target(), event.UserID, event.Liked())
			}
		}
	}
	applied, err := likes.New(m.f.store).ApplyLikes(ctx, records)
	require.NoError(t, err)
	require.NoError(t, outbox.Trim(ctx, runs[len(runs)-1].Pos))
	return applied.Gaps
}

// reopen closes a shard and opens it under a new epoch.
func (m *model) reopen(rt *rapid.T, ctx context.Context, shard int) {
	require.NoError(rt, m.f.plain.HDel(ctx, shardKey(shard), "epoch").Err())
	outbox, err := m.f.redis.HoldOutbox(ctx, shard, "model", time.Minute)
	require.NoError(rt, err)
	epoch, err := likes.New(m.f.store).NextEpoch(ctx, shard, 0)
	require.NoError(rt, err)
	_, err = outbox.Seal(ctx, epoch)
	require.NoError(rt, err)
	m.apply(rt, ctx, shard)
	require.NoError(rt, outbox.Opened(ctx, epoch))
}

func (m *model) check(rt *rapid.T, ctx context.Context, targets []models.Target) {
	states, err := m.f.redis.TargetStates(ctx, targets)
	require.NoError(rt, err)
	outboxes := map[int]map[models.Target]map[int64]bool{}
	for _, target := range targets {
		if shard := target.Shard(shards); outboxes[shard] == nil {
			outboxes[shard] = fold(rt, ctx, m.f.plain, shard)
		}
	}
	for i, target := range targets {
		want := int64(len(m.likes[target]))
		inOutbox := outboxes[target.Shard(shards)][target]
		if states[i].Warm {
			require.Equal(rt, want, states[i].Count)
			require.Equal(rt, want, states[i].Users)
		} else {
			require.Empty(rt, inOutbox, "a cold target is in MySQL")
		}
		end := map[int64]bool{}
		for user := range m.applied[target] {
			end[user] = true
		}
		for user, liked := range inOutbox {
			if delete(end, user); liked {
				end[user] = true
			}
		}
		require.Equal(rt, m.likes[target], end)
	}
}
