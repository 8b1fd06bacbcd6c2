//go:build dev

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"likewise/counters"
	"likewise/internal/claimers"
	"likewise/models"
	"likewise/workers"
)

// createCustomers creates accounts that claim. They never sign in.
func (b *benchSite) createCustomers(ctx context.Context, n int) error {
	const batch = 2000
	pool := b.store.Pool()
	for start := 0; start < n; start += batch {
		var rows []string
		for i := start; i < min(start+batch, n); i++ {
			rows = append(rows, fmt.Sprintf("('customer-%d','customer-%d@bench%s','')", i, i, models.NoEmailDomain))
		}
		//nolint:gosec // the rows hold numbers
		insert := "INSERT INTO users (username, email, password_hash) VALUES " + strings.Join(rows, ",")
		if _, err := pool.ExecContext(ctx, insert); err != nil {
			return fmt.Errorf("create customers: %w", err)
		}
	}
	rows, err := pool.QueryContext(ctx, "SELECT id FROM users WHERE username LIKE 'customer-%'")
	if err != nil {
		return fmt.Errorf("read customers: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return fmt.Errorf("read customers: %w", err)
		}
		b.customers = append(b.customers, id)
	}
	return rows.Err()
}

// createDrop creates a drop of a post of its own. Claims to it wait for a confirmation, so they notify nobody.
func (b *benchSite) createDrop(ctx context.Context, stock int64) (id int64, err error) {
	post, err := b.createPost(ctx)
	if err != nil {
		return 0, err
	}
	settings := models.DropSettings{Title: "Tickets", Stock: stock, ConfirmWithin: models.MaxConfirmWithin}
	drop, err := b.store.CreateDrop(ctx, b.author.ID, post.ID, settings)
	if err != nil {
		return 0, err
	}
	return drop.ID, nil
}

// soldOutDrop creates a drop behind the gate whose only share is claimed.
func (b *bench) soldOutDrop(ctx context.Context) (id int64, err error) {
	if id, err = b.gated.createDrop(ctx, 1); err != nil {
		return 0, err
	}
	claim, err := counters.NewIDs(b.gated.redis, b.gated.store).Next(ctx, b.shard(id), b.gated.store.Shards())
	if err != nil {
		return 0, err
	}
	_, err = b.gated.claims.Claim(ctx, id, b.gated.customers[0], int64(claim))
	return id, err
}

// shard returns the shard of a drop.
func (b *bench) shard(dropID int64) int {
	return models.Target{Kind: models.KindDrop, ID: dropID}.Shard(b.gated.store.Shards())
}

// hotDrop is a drop that all customers of a site claim, each once. When all have claimed, the next drop is hot.
type hotDrop struct {
	site *benchSite

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
	site    *benchSite
	ids     *counters.IDs
	behind  *samples // of a way that answers before MySQL has the claims: the rate until it has them
	claimed atomic.Int64
}

// hotDrop measures claims to a hot drop, each by another user, through the gate, in direct mode, and in three ways
// in plain SQL. Nothing of it goes over HTTP. In the end, the counts of all drops must be those of the claims.
func (b *bench) hotDrop(ctx context.Context) ([]measurement, error) {
	const direct = "claim, direct"
	pool := b.direct.store.Pool()
	directIDs, gatedIDs := counters.NewIDs(nil, b.direct.store), counters.NewIDs(b.gated.redis, b.gated.store)
	ways := []*claimWay{
		{samples: samples{name: direct}, Claimer: claimers.Direct{Store: b.direct.store}},
		{
			samples: samples{name: "claim, plain SQL: conditional UPDATE", baseline: direct},
			Claimer: claimers.Conditional{DB: pool},
		},
		{
			samples: samples{name: "claim, plain SQL: SELECT … FOR UPDATE", baseline: direct},
			Claimer: claimers.Pessimistic{DB: pool},
		},
		{
			samples: samples{name: "claim, plain SQL: version with bounded retry", baseline: direct},
			Claimer: claimers.Optimistic{DB: pool},
		},
		{
			samples: samples{name: "claim, gated", baseline: direct},
			Claimer: gateClaimer{b.gated.claims},
			site:    b.gated, ids: gatedIDs,
			behind: &samples{name: "claim, gated, until it is in MySQL", baseline: direct},
		},
	}
	settle := func() error { return workers.Flush(ctx, b.gated.redis, b.gated.store) }
	if err := settle(); err != nil {
		return nil, err
	}
	for range b.Rounds {
		for _, way := range ways {
			if way.site == nil {
				way.site, way.ids = b.direct, directIDs
			}
			began, before := time.Now(), way.claimed.Load()
			if err := b.claimAll(ctx, way); err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			if way.behind == nil {
				continue
			}
			if err := settle(); err != nil {
				return nil, err
			}
			rate := float64(way.claimed.Load()-before) / time.Since(began).Seconds()
			way.behind.rates = append(way.behind.rates, rate)
		}
	}
	var report []measurement
	rates := map[string]float64{}
	for _, way := range ways {
		report = append(report, way.measurement("claims/s", rates))
		if way.behind != nil {
			report = append(report, way.behind.measurement("claims/s", rates))
		}
	}
	return report, errors.Join(b.checkClaims(ctx, b.direct, ways), b.checkClaims(ctx, b.gated, ways))
}

// claimAll is a round of a way, with a new drop.
func (b *bench) claimAll(ctx context.Context, way *claimWay) error {
	drop := &hotDrop{site: way.site}
	shards := way.site.store.Shards()
	return way.round(ctx, b.Clients, b.Length, func(_, _ int) (bool, error) {
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

// checkClaims returns an error unless the site has counted as many claims, and as many rows, as its ways have made.
func (b *bench) checkClaims(ctx context.Context, site *benchSite, ways []*claimWay) error {
	var want, counted, rows int64
	for _, way := range ways {
		if way.site == site {
			want += way.claimed.Load()
		}
	}
	const query = `
		SELECT (SELECT COALESCE(SUM(claimed), 0) FROM drops WHERE stock=?),
			(SELECT COUNT(*) FROM claims c JOIN drops d ON d.id=c.drop_id AND d.stock=? WHERE c.state IN (?,?))`
	err := site.store.Pool().QueryRowContext(ctx, query, models.MaxStock, models.MaxStock, models.StateReserved,
		models.StateConfirmed).Scan(&counted, &rows)
	if err != nil {
		return fmt.Errorf("count claims: %w", err)
	}
	if counted != want || rows != want {
		return fmt.Errorf("%d claims were made, %d are counted, and %d have a row", want, counted, rows)
	}
	return nil
}

// idsAtOnce is how many ids a client takes between two looks at the clock.
const idsAtOnce = 32

// ids measures global ids, as claims take them, and compares them with one INCR each.
func (b *bench) ids(ctx context.Context) ([]measurement, error) {
	const incr = "ids, one INCR each"
	shards := b.gated.store.Shards()
	ids := counters.NewIDs(b.gated.redis, b.gated.store)
	ways := []struct {
		samples

		next func(client int) error
	}{
		{samples{name: incr}, func(int) error { return b.redis.Incr(ctx, "bench:id").Err() }},
		{samples{name: "ids, slots", baseline: incr}, func(client int) error {
			_, err := ids.Next(ctx, client%shards, shards)
			return err
		}},
	}
	for range b.Rounds {
		for i := range ways {
			err := ways[i].round(ctx, b.Clients, b.Length, func(client, _ int) (bool, error) {
				for range idsAtOnce {
					if err := ways[i].next(client); err != nil {
						return false, fmt.Errorf("%s: %w", ways[i].name, err)
					}
				}
				return true, nil
			})
			if err != nil {
				return nil, err
			}
			ways[i].latencies = nil // of many ids each
		}
	}
	var report []measurement
	rates := map[string]float64{}
	for i := range ways {
		for round := range ways[i].rates {
			ways[i].rates[round] *= idsAtOnce
		}
		report = append(report, ways[i].measurement("ids/s", rates))
	}
	return report, nil
}
