package models_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

// floodFor is how long a flood lasts; 0: until every writer has written a few times between any two acts.
var floodFor = flag.Duration("flood", 0, "how long a flood of writers lasts, such as 10s; see `make flood`")

// retries counts what a store reports to Options.Retried.
type retries struct {
	deadlock, lockWait, changed atomic.Int64
}

func (r *retries) count(cause models.RetryCause) {
	switch cause {
	case models.RetryDeadlock:
		r.deadlock.Add(1)
	case models.RetryLockWait:
		r.lockWait.Add(1)
	case models.RetryChanged:
		r.changed.Add(1)
	}
}

// openCounted returns a store on a database of the test's own, and what its transactions were run again for. The test
// fails if one of them ends in a deadlock.
func openCounted(t *testing.T) (*models.Store, *retries) {
	t.Helper()
	var r retries
	store, err := models.Open(t.Context(), testkit.Database(t), models.Options{MaxConns: 48, Retried: r.count})
	require.NoError(t, err)
	t.Cleanup(func() {
		if n := r.deadlock.Load(); n > 0 {
			t.Errorf("%d deadlocks; the latest:\n%s", n, latestDeadlock(t, store))
		}
		require.NoError(t, store.Close())
	})
	return store, &r
}

// latestDeadlock returns what the server shows of the latest deadlock: the statements that met, and their locks.
func latestDeadlock(t *testing.T, store *models.Store) string {
	t.Helper()
	var engine, name, status string
	require.NoError(t, store.Pool().QueryRowContext(context.Background(), "SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &status))
	_, status, _ = strings.Cut(status, "LATEST DETECTED DEADLOCK\n")
	status, _, _ = strings.Cut(status, "\nTRANSACTIONS\n")
	lines := strings.Split(status, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, " ") && strings.Contains(line, ": len ") // the bytes of locked records
	}), "\n")
}

// flood runs writers until it is stopped.
type flood struct {
	t       *testing.T
	done    chan struct{}
	writers sync.WaitGroup
	rounds  []atomic.Int64 // by writer
}

// startFlood runs n writers, each over and over. A writer's errors fail the test, except for those with a code of allowed.
func startFlood(t *testing.T, n int, allowed []models.Code, write func(random *rand.Rand, writer int) error) *flood {
	f := &flood{t: t, done: make(chan struct{}), rounds: make([]atomic.Int64, n)}
	for i := range n {
		f.writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for {
				select {
				case <-f.done:
					return
				default:
				}
				if err := write(random, i); err != nil && !slices.Contains(allowed, models.ErrorCode(err)) {
					t.Error(err)
				}
				f.rounds[i].Add(1)
			}
		})
	}
	return f
}

// goOn returns when every writer has written some more, or a share of the time that -flood sets is over.
func (f *flood) goOn(rounds int64, share float64) {
	f.t.Helper()
	if *floodFor > 0 {
		<-time.After(time.Duration(share * float64(*floodFor)))
		return
	}
	var want []int64
	for i := range f.rounds {
		want = append(want, f.rounds[i].Load()+rounds)
	}
	testkit.Eventually(f.t, time.Minute, func() (bool, string) {
		for i := range f.rounds {
			if f.rounds[i].Load() < want[i] {
				return false, fmt.Sprintf("writer %d is stuck", i)
			}
		}
		return true, ""
	})
}

func (f *flood) stop() (written int64) {
	close(f.done)
	f.writers.Wait()
	for i := range f.rounds {
		written += f.rounds[i].Load()
	}
	return written
}

// act fails the test if what a moderator does fails, and returns how long it took.
func act(t *testing.T, what string, do func() error) time.Duration {
	t.Helper()
	began := time.Now()
	require.NoError(t, do(), what)
	return time.Since(began).Round(time.Millisecond)
}

// TestModeration_queuesUnderAFlood lets 32 writers comment on, reply below, like and edit one post, while a moderator
// pins, locks, deletes and restores it, and decides a report.
func TestModeration_queuesUnderAFlood(t *testing.T) {
	store, retried := openCounted(t)
	ctx := context.Background()
	ada, mod := newUser(t, store, "ada"), newUser(t, store, "mod")
	require.NoError(t, store.SetRole(ctx, mod.ID, models.RoleModerator))
	const writers = 32
	users := make([]models.Author, writers)
	for i := range users {
		users[i] = newUser(t, store, fmt.Sprintf("user%d", i))
	}
	post, err := store.CreatePost(ctx, ada, models.PostText{Title: "A post", Content: "with text", Tags: models.Tags{"go", "sql"}})
	require.NoError(t, err)
	target := models.Target{Kind: models.KindPost, ID: post.ID}
	var mu sync.Mutex
	comments := []*models.Comment{newComment(t, store, ada, post, nil), newComment(t, store, ada, post, nil)}
	one := func(random *rand.Rand) *models.Comment {
		mu.Lock()
		defer mu.Unlock()
		return comments[max(0, len(comments)-1-random.IntN(8))]
	}
	var seqs [writers]int64
	allowed := []models.Code{models.CodeNotFound, models.CodeLocked, models.CodePrecondition}
	f := startFlood(t, writers, allowed, func(random *rand.Rand, w int) error {
		user := users[w]
		comment := func(parent *int64) error {
			c, err := store.CreateComment(ctx, user, post.ID, parent, models.CommentText{Content: "C", Mentions: []string{"mod"}})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			comments = append(comments, c)
			return nil
		}
		switch w % 8 {
		case 0:
			return comment(nil)
		case 1, 2:
			c := one(random)
			if c.Depth == models.MaxDepth {
				return comment(nil)
			}
			return comment(&c.ID)
		case 3:
			_, err := store.SetLike(ctx, target, user.ID, random.IntN(2) == 0)
			return err
		case 4:
			_, err := store.SetLike(ctx, models.Target{Kind: models.KindComment, ID: one(random).ID}, user.ID, random.IntN(2) == 0)
			return err
		case 5: // a like writer's batch
			shard := w / 8 * 4
			var records []models.LikeRecord
			for range 20 {
				on := target
				if random.IntN(3) > 0 {
					on = models.Target{Kind: models.KindComment, ID: one(random).ID}
				}
				records = append(records, models.LikeRecord{Shard: shard, Pos: models.Position{Epoch: 1, Seq: seqs[w]},
					Event: models.LikeEvent(on, users[random.IntN(writers)].ID, random.IntN(2) == 0, past), Topic: "likes"})
				seqs[w]++
			}
			_, err := store.ApplyLikes(ctx, records)
			return err
		case 6:
			c := one(random)
			if random.IntN(3) == 0 {
				return store.DeleteComment(ctx, c)
			}
			_, err := store.UpdateComment(ctx, user.ID, c.ID, c.Version, models.CommentText{Content: fmt.Sprint("edit ", random.Int64())})
			return err
		default:
			now, err := store.PostByID(ctx, 0, post.ID)
			if err != nil {
				return err
			}
			_, err = store.UpdatePost(ctx, ada.ID, post.ID, now.Version,
				models.PostText{Title: "A post", Content: fmt.Sprint("edit ", random.Int64()), Tags: models.Tags{"go", fmt.Sprint("tag", random.IntN(4))}})
			return err
		}
	})
	report, err := store.ReportContent(ctx, users[0].ID, models.NewReport{Target: target, Reason: "spam"})
	require.NoError(t, err)
	f.goOn(3, 0.2)
	took := map[string]time.Duration{}
	took["pin"] = act(t, "pin", func() error { return store.SetPostFlag(ctx, mod.ID, post.ID, models.PostPinned, true, "why") })
	took["lock"] = act(t, "lock", func() error { return store.SetPostFlag(ctx, mod.ID, post.ID, models.PostLocked, true, "why") })
	took["unlock"] = act(t, "unlock", func() error { return store.SetPostFlag(ctx, mod.ID, post.ID, models.PostLocked, false, "why") })
	f.goOn(3, 0.3)
	took["delete"] = act(t, "delete", func() error { return store.RemoveContent(ctx, mod.ID, target, "why") })
	f.goOn(1, 0.1)
	took["restore"] = act(t, "restore", func() error { return store.ReinstateContent(ctx, mod.ID, target, "why") })
	f.goOn(3, 0.2)
	var caseID int64
	require.NoError(t, store.Pool().QueryRowContext(ctx, "SELECT case_id FROM reports WHERE id=?", report.ID).Scan(&caseID))
	took["decide"] = act(t, "decide", func() error {
		_, err := store.ResolveReport(ctx, mod.ID, caseID, models.Verdict{Outcome: models.OutcomeRemoved, Note: "why"})
		return err
	})
	f.goOn(1, 0.2)
	written := f.stop()
	t.Logf("%d writes, %d deadlocks, %d lock waits, %d changed meanwhile; the moderator waited %v", written,
		retried.deadlock.Load(), retried.lockWait.Load(), retried.changed.Load(), took)
	checkCounts(t, store)
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		tallies, err := store.Tally(ctx, kind, 0, 1_000_000)
		require.NoError(t, err)
		for _, tally := range tallies {
			assert.Equal(t, tally.LikeRows, tally.Likes, "likes of %s %d", kind, tally.ID)
		}
	}
	assert.Zero(t, retried.lockWait.Load(), "lock waits that ran out")
	if *floodFor > 0 {
		assert.Less(t, took["delete"], time.Second)
	}
}
