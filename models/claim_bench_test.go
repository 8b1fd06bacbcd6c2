package models_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// claimer claims a share of a drop in one transaction of MySQL. It returns errGone if none is left, and errBusy if it
// gave up.
type claimer interface {
	claim(ctx context.Context, dropID, userID, id int64) error
}

var (
	errGone = errors.New("sold out")
	errBusy = errors.New("too many others claim at the same time")
)

// claimers are the ways to claim in direct mode: ours, and the other two that textbooks have.
func claimers(store *models.Store) map[string]claimer {
	return map[string]claimer{
		"conditional": conditional{store}, "pessimistic": pessimistic{store.Pool()}, "optimistic": optimistic{store.Pool()},
	}
}

// conditional counts by UPDATE … WHERE claimed<stock.
type conditional struct{ store *models.Store }

func (w conditional) claim(ctx context.Context, dropID, userID, id int64) error {
	_, _, err := w.store.ClaimDirect(ctx, dropID, userID, id)
	if models.ErrorCode(err) == models.CodeSoldOut {
		return errGone
	}
	return err
}

// pessimistic reads the count with FOR UPDATE, so that all others wait while it decides.
type pessimistic struct{ db *sql.DB }

func (w pessimistic) claim(ctx context.Context, dropID, userID, id int64) error {
	tx, err := w.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var stock, claimed int64
	err = tx.QueryRowContext(ctx, "SELECT stock, claimed FROM drops WHERE id=? FOR UPDATE", dropID).Scan(&stock, &claimed)
	if err != nil {
		return err
	}
	if claimed >= stock {
		return errGone
	}
	if repeated, err := insertBench(ctx, tx, dropID, userID, id); repeated || err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE drops SET claimed=claimed+1 WHERE id=?", dropID); err != nil {
		return err
	}
	return tx.Commit()
}

// optimistic reads the count without a lock and counts only if it is still the same. It tries again, but not for ever.
type optimistic struct{ db *sql.DB }

const optimisticTries = 200

func (w optimistic) claim(ctx context.Context, dropID, userID, id int64) error {
	for range optimisticTries {
		var stock, claimed int64
		err := w.db.QueryRowContext(ctx, "SELECT stock, claimed FROM drops WHERE id=?", dropID).Scan(&stock, &claimed)
		if err != nil {
			return err
		}
		if claimed >= stock {
			return errGone
		}
		switch won, err := w.swap(ctx, dropID, userID, id, claimed); {
		case err != nil:
			return err
		case won:
			return nil
		}
	}
	return errBusy
}

// swap reports whether the claim is written, or was before.
func (w optimistic) swap(ctx context.Context, dropID, userID, id, claimed int64) (won bool, err error) {
	tx, err := w.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	swapped, err := tx.ExecContext(ctx, "UPDATE drops SET claimed=? WHERE id=? AND claimed=?", claimed+1, dropID, claimed)
	if err != nil {
		return false, err
	}
	if n, err := swapped.RowsAffected(); n == 0 || err != nil {
		return false, err
	}
	if repeated, err := insertBench(ctx, tx, dropID, userID, id); repeated || err != nil {
		return repeated, err
	}
	return true, tx.Commit()
}

// insertBench writes the row of a claim and reports whether the user has one.
func insertBench(ctx context.Context, tx *sql.Tx, dropID, userID, id int64) (repeated bool, err error) {
	_, err = tx.ExecContext(ctx, `
		INSERT INTO claims (drop_id, user_id, id, state, created_at)
		VALUES (?, ?, ?, ?, NOW(3))`, dropID, userID, id, models.StateConfirmed)
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == 1062 {
		return true, nil
	}
	return false, err
}

// No way oversells, and no user has two claims, when 64 users claim at once, each from two devices.
func TestClaimers_neverOversell(t *testing.T) {
	t.Parallel()
	const stock = 20
	l := newDirectSite(t, 64)
	for name, way := range claimers(l.store) {
		t.Run(name, func(t *testing.T) {
			d := l.drop(models.DropSettings{Stock: stock}).ID
			var all sync.WaitGroup
			var busy atomic.Int64
			start := make(chan struct{})
			for i, user := range append(l.users, l.users...) {
				all.Go(func() {
					<-start
					err := way.claim(context.Background(), d, user, d*1000+int64(i))
					if errors.Is(err, errBusy) {
						busy.Add(1)
					} else if err != nil && !errors.Is(err, errGone) {
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
	for name, way := range claimers(l.store) {
		for _, stock := range []int64{models.MaxStock, 1} {
			b.Run(fmt.Sprintf("%s/stock=%d", name, stock), func(b *testing.B) {
				d := l.drop(models.DropSettings{Stock: stock, ConfirmWithin: 60}).ID
				var user, busy atomic.Int64
				b.SetParallelism(32)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						id := user.Add(1)
						err := way.claim(context.Background(), d, 1_000_000+id, d*10_000_000+id)
						if errors.Is(err, errBusy) {
							busy.Add(1)
						} else if err != nil && !errors.Is(err, errGone) {
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
