package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"likewise/counters"
	"likewise/internal/claimers"
	"likewise/models"
	"likewise/models/stock"
)

// createDrop creates a drop of a post of its own. Claims to it wait for a confirmation, so they notify nobody.
func (s *site) createDrop(ctx context.Context, shares int64) (id int64, err error) {
	post, err := s.createPost(ctx)
	if err != nil {
		return 0, err
	}
	settings := models.DropSettings{Title: "Tickets", Stock: shares, ConfirmWithin: models.MaxConfirmWithin}
	drop, err := stock.New(s.store).CreateDrop(ctx, s.author.ID, post.ID, settings)
	if err != nil {
		return 0, err
	}
	return drop.ID, nil
}

// shard returns the shard of a drop.
func (b *bench) shard(dropID int64) int {
	return models.Target{Kind: models.KindDrop, ID: dropID}.Shard(b.gated.store.Shards())
}

// hotDrop is a drop that all customers of a site claim, each once. When all have claimed, the next drop is hot.
type hotDrop struct {
	site *site

	mu    sync.Mutex
	drops []int64
	next  int // customer
}

// take returns the drop, and the customer who claims it next.
func (h *hotDrop) take(ctx context.Context) (dropID, userID int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.drops) == 0 || h.next == len(h.site.customers) {
		if dropID, err = h.site.createDrop(ctx, models.MaxStock); err != nil {
			return 0, 0, err
		}
		h.drops, h.next = append(h.drops, dropID), 0
	}
	h.next++
	return h.drops[len(h.drops)-1], h.site.customers[h.next-1], nil
}

// gateClaimer claims through the gate.
type gateClaimer struct{ *counters.Claims }

// Claim implements claimers.Claimer.
func (g gateClaimer) Claim(ctx context.Context, dropID, userID, id int64) error {
	_, err := g.Claims.Claim(ctx, dropID, userID, id)
	return err
}

// claimWay is a way to claim a hot drop.
type claimWay struct {
	samples

	claimers.Claimer
	site    *site
	ids     *counters.IDs
	claimed atomic.Int64
}

// checkDrop returns an error unless the drop has so many claims, by their rows and by its count.
func (s *site) checkDrop(ctx context.Context, id, want int64) error {
	const query = `
		SELECT (SELECT COUNT(*) FROM claims WHERE drop_id=? AND state=?), (SELECT claimed FROM drops WHERE id=?)`
	var rows, counted int64
	err := s.store.Pool().QueryRowContext(ctx, query, id, models.StateReserved, id).Scan(&rows, &counted)
	if err != nil {
		return fmt.Errorf("count claims: %w", err)
	}
	if rows != want || counted != want {
		return fmt.Errorf("drop %d should have %d claims: %d have a row, and %d are counted", id, want, rows, counted)
	}
	return nil
}

// round lets all clients act in this process, again and again, until the length of a round is over. act reports whether
// the act counts.
func (s *samples) round(
	ctx context.Context, clients int, length time.Duration, act func(client int) (counts bool, err error),
) error {
	var mu sync.Mutex
	var failed error
	l := &load{latencies: newLatencies()}
	began := time.Now()
	deadline := began.Add(length)
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			latencies := newLatencies()
			var err error
			for err == nil && time.Now().Before(deadline) && ctx.Err() == nil {
				var counts bool
				began := time.Now()
				if counts, err = act(client); counts {
					err = latencies.RecordValue(max(1, time.Since(began).Microseconds()))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			l.latencies.Merge(latencies)
			failed = errors.Join(failed, err)
		})
	}
	running.Wait()
	l.took = time.Since(began)
	s.record(l)
	return errors.Join(failed, ctx.Err())
}

// inLanes calls act for each number below n, several at a time, until one fails.
func inLanes(n int, act func(i int) error) error {
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	lanes := 16 * runtime.GOMAXPROCS(0)
	for lane := range lanes {
		running.Go(func() {
			for i := lane; i < n; i += lanes {
				if err := act(i); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	running.Wait()
	return failed
}

// measureClaims measures claims to a hot drop, each by another user, through the gate, in direct mode, and in three
// ways in plain SQL. Nothing of it goes over HTTP. In the end, the counts of all drops must be those of the claims.
func (b *bench) measureClaims(ctx context.Context) error {
	const direct = "claim, direct mode"
	pool := b.direct.store.Pool()
	directIDs, gatedIDs := counters.NewIDs(nil, b.direct.store), counters.NewIDs(b.gated.redis, b.gated.store)
	inSQL := func(name string, claimer claimers.Claimer) *claimWay {
		return &claimWay{
			samples: samples{name: "claim, plain SQL: " + name, against: direct, loose: true},
			Claimer: claimer, site: b.direct, ids: directIDs,
		}
	}
	gated := &claimWay{
		samples: samples{name: "claim, gated", against: direct, loose: true},
		Claimer: gateClaimer{b.gated.claims}, site: b.gated, ids: gatedIDs,
	}
	ways := []*claimWay{
		{
			samples: samples{name: direct},
			Claimer: claimers.Direct{Store: b.direct.store}, site: b.direct, ids: directIDs,
		},
		inSQL("conditional UPDATE", claimers.Conditional{DB: pool}),
		inSQL("SELECT … FOR UPDATE", claimers.Pessimistic{DB: pool}),
		inSQL("version with bounded retry", claimers.Optimistic{DB: pool}),
		gated,
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	before := map[*site]claimTally{}
	for _, site := range []*site{b.direct, b.gated} {
		tally, err := site.countClaims(ctx)
		if err != nil {
			return err
		}
		before[site] = tally
	}
	for range b.Rounds {
		for _, way := range ways {
			began, before := time.Now(), way.claimed.Load()
			if err := b.claimAll(ctx, way); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			if way != gated {
				continue
			}
			if err := b.settle(ctx); err != nil {
				return err
			}
			rate := float64(way.claimed.Load()-before) / time.Since(began).Seconds()
			way.settled = append(way.settled, rate)
		}
	}
	for _, way := range ways {
		b.add(&b.report.Claims, way.result("claims/s"))
	}
	for site, tally := range before {
		if err := checkClaims(ctx, site, tally, ways); err != nil {
			return err
		}
	}
	return nil
}

// claimAll is a round of a way, with a new drop.
func (b *bench) claimAll(ctx context.Context, way *claimWay) error {
	drop := &hotDrop{site: way.site}
	shards := way.site.store.Shards()
	return way.round(ctx, b.Clients, b.Length, func(int) (bool, error) {
		dropID, userID, err := drop.take(ctx)
		if err != nil {
			return false, err
		}
		id, err := way.ids.Next(ctx, b.shard(dropID), shards)
		if err != nil {
			return false, err
		}
		err = way.Claim(ctx, dropID, userID, int64(id))
		if errors.Is(err, claimers.ErrBusy) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		way.claimed.Add(1)
		return true, nil
	})
}

// claimTally is how many claims the drops of a site have.
type claimTally struct{ counted, rows int64 }

func (s *site) countClaims(ctx context.Context) (t claimTally, err error) {
	const query = `
		SELECT (SELECT COALESCE(SUM(claimed), 0) FROM drops WHERE stock=?),
			(SELECT COUNT(*) FROM claims c JOIN drops d ON d.id=c.drop_id AND d.stock=? WHERE c.state IN (?,?))`
	err = s.store.Pool().QueryRowContext(ctx, query, models.MaxStock, models.MaxStock, models.StateReserved,
		models.StateConfirmed).Scan(&t.counted, &t.rows)
	if err != nil {
		return t, fmt.Errorf("count claims: %w", err)
	}
	return t, nil
}

// checkClaims returns an error unless the site has counted as many claims since before, and as many rows, as its ways
// have made.
func checkClaims(ctx context.Context, site *site, before claimTally, ways []*claimWay) error {
	var want int64
	for _, way := range ways {
		if way.site == site {
			want += way.claimed.Load()
		}
	}
	now, err := site.countClaims(ctx)
	if err != nil {
		return err
	}
	if counted, rows := now.counted-before.counted, now.rows-before.rows; counted != want || rows != want {
		return fmt.Errorf("%d claims were made, %d are counted, and %d have a row", want, counted, rows)
	}
	return nil
}

// idsAtOnce is how many ids a client takes between two looks at the clock.
const idsAtOnce = 32

// measureIDs measures global ids, as claims take them, and compares them with one INCR each.
func (b *bench) measureIDs(ctx context.Context) error {
	const incr = "ids, one INCR each"
	shards := b.gated.store.Shards()
	ids := counters.NewIDs(b.gated.redis, b.gated.store)
	ways := []struct {
		samples

		next func(client int) error
	}{
		{samples{name: incr}, func(int) error { return b.redis.Incr(ctx, "bench:id").Err() }},
		{samples{name: "ids, slots", against: incr, loose: true}, func(client int) error {
			_, err := ids.Next(ctx, client%shards, shards)
			return err
		}},
	}
	for range b.Rounds {
		for i := range ways {
			err := ways[i].round(ctx, b.Clients, b.Length, func(client int) (bool, error) {
				for range idsAtOnce {
					if err := ways[i].next(client); err != nil {
						return false, fmt.Errorf("%s: %w", ways[i].name, err)
					}
				}
				return true, nil
			})
			if err != nil {
				return err
			}
		}
	}
	for i := range ways {
		ways[i].latencies = nil // of many ids each
		for round := range ways[i].rates {
			ways[i].rates[round] *= idsAtOnce
		}
		b.add(&b.report.IDs, ways[i].result("ids/s"))
	}
	return nil
}
