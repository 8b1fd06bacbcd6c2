package db_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/claimers"
	"likewise/models"
	"likewise/models/db"
)

// ways returns the ways to claim in MySQL alone, by name.
func ways(store *db.DB) map[string]claimers.Claimer {
	return map[string]claimers.Claimer{
		"direct":      claimers.Direct{Store: store},
		"conditional": claimers.Conditional{DB: store.Pool()},
		"pessimistic": claimers.Pessimistic{DB: store.Pool()},
		"optimistic":  claimers.Optimistic{DB: store.Pool()},
	}
}

// No way oversells, and no user has two claims, when 64 users claim at once, each from two devices.
func TestClaimers_neverOversell(t *testing.T) {
	t.Parallel()
	const stock = 20
	l := newDirectSite(t, 64)
	for name, way := range ways(l.store) {
		t.Run(name, func(t *testing.T) {
			d := l.drop(models.DropSettings{Stock: stock}).ID
			var all sync.WaitGroup
			var busy atomic.Int64
			start := make(chan struct{})
			for i, user := range append(l.users, l.users...) {
				all.Go(func() {
					<-start
					err := way.Claim(context.Background(), d, user, d*1000+int64(i))
					if errors.Is(err, claimers.ErrBusy) {
						busy.Add(1)
					} else if err != nil && !errors.Is(err, claimers.ErrSoldOut) {
						t.Error(err)
					}
				})
			}
			close(start)
			all.Wait()
			rows := count(t, l.store, "SELECT COUNT(*) FROM claims WHERE drop_id=?", d)
			assert.Equal(t, rows, l.claimed(d))
			if busy.Load() == 0 {
				assert.Equal(t, stock, rows)
			}
			assert.LessOrEqual(t, rows, stock)
			l.check()
		})
	}
}

// The wrong way: check, then act. It oversells, which shows that the test above would notice.
func TestClaimers_checkThenActOversells(t *testing.T) {
	t.Parallel()
	const users = 8
	l := newDirectSite(t, users)
	l.exec("ALTER TABLE drops DROP CONSTRAINT drops_not_oversold")
	d := l.drop(models.DropSettings{Stock: 1}).ID
	db := l.store.Pool()
	var checked, all sync.WaitGroup
	checked.Add(users)
	for i, user := range l.users {
		all.Go(func() {
			var left int
			err := db.QueryRowContext(context.Background(), "SELECT stock-claimed FROM drops WHERE id=?", d).Scan(&left)
			assert.NoError(t, err)
			checked.Done()
			checked.Wait() // all have seen that one is left
			if left > 0 {
				insertClaim(t, l.store, d, user, int64(100+i), models.StateConfirmed)
			}
		})
	}
	all.Wait()
	require.Equal(t, users, l.claimed(d))
}

func BenchmarkClaimDirect(b *testing.B) {
	l := newDirectSite(b, 1)
	for name, way := range ways(l.store) {
		for _, stock := range []int64{models.MaxStock, 1} {
			b.Run(fmt.Sprintf("%s/stock=%d", name, stock), func(b *testing.B) {
				d := l.drop(models.DropSettings{Stock: stock, ConfirmWithin: 60}).ID
				var user, busy atomic.Int64
				b.SetParallelism(32)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						id := user.Add(1)
						err := way.Claim(context.Background(), d, 1_000_000+id, d*10_000_000+id)
						if errors.Is(err, claimers.ErrBusy) {
							busy.Add(1)
						} else if err != nil && !errors.Is(err, claimers.ErrSoldOut) {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
				b.ReportMetric(float64(busy.Load()), "gave-up")
				l.t = b
				l.check()
			})
		}
	}
}
