// Package claimers has three ways to claim limited stock in one transaction of MySQL: a conditional UPDATE, SELECT …
// FOR UPDATE, and a compare-and-swap with bounded retry. None of them oversells. A test and two benchmarks compare them
// with each other and with direct mode, which has the first one in db.DB.ClaimDirect. The three send the same
// statements in plain SQL except for those that count.
package claimers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/stock"
)

// Claimer claims a share of a drop for a user. A user who has a claim keeps it.
type Claimer interface {
	// Claim writes the claim under id, unless the user has one. It returns ErrSoldOut if no share is left, and ErrBusy
	// if it gave up. After ErrBusy it is safe to try again.
	Claim(ctx context.Context, dropID, userID, id int64) error
}

// The refusals of a Claimer.
var (
	ErrSoldOut = errors.New("sold out")
	ErrBusy    = errors.New("too many others claim at the same time")
)

// Direct is the product in direct mode.
type Direct struct{ Store *db.DB }

// Claim calls ClaimDirect.
func (w Direct) Claim(ctx context.Context, dropID, userID, id int64) error {
	_, _, err := stock.New(w.Store).ClaimDirect(ctx, dropID, userID, id)
	if models.ErrorCode(err) == models.CodeSoldOut {
		return ErrSoldOut
	}
	return err
}

// Conditional reads the count without a lock, and counts a claim by UPDATE … WHERE claimed<stock.
type Conditional struct{ DB *sql.DB }

// Claim looks at the stock, counts if there is some left, and writes.
func (w Conditional) Claim(ctx context.Context, dropID, userID, id int64) error {
	return transact(ctx, w.DB, func(tx *sql.Tx) error {
		const count = `
			UPDATE drops
			SET claimed=claimed+1
			WHERE id=? AND claimed<stock`
		if _, err := look(ctx, tx, "", dropID, userID); err != nil {
			return err
		}
		counted, err := tx.ExecContext(ctx, count, dropID)
		if err != nil {
			return err
		}
		n, err := counted.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrSoldOut
		}
		return insert(ctx, tx, dropID, userID, id)
	})
}

// Pessimistic reads the count with FOR UPDATE, so that all others wait while it decides.
type Pessimistic struct{ DB *sql.DB }

// Claim locks the drop, looks at its stock, and writes.
func (w Pessimistic) Claim(ctx context.Context, dropID, userID, id int64) error {
	return transact(ctx, w.DB, func(tx *sql.Tx) error {
		const count = `
			UPDATE drops
			SET claimed=claimed+1
			WHERE id=?`
		if _, err := look(ctx, tx, "FOR UPDATE", dropID, userID); err != nil {
			return err
		}
		if err := insert(ctx, tx, dropID, userID, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, count, dropID)
		return err
	})
}

// Optimistic reads the count without a lock, and counts only if it is still the same. Otherwise it tries again, up to
// optimisticTries times. The count serves as the version.
type Optimistic struct{ DB *sql.DB }

const optimisticTries = 200

// Claim looks at the stock and swaps the count until one swap succeeds.
func (w Optimistic) Claim(ctx context.Context, dropID, userID, id int64) error {
	for range optimisticTries {
		claimed, err := look(ctx, w.DB, "", dropID, userID)
		if errors.Is(err, errRepeated) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.swap(ctx, dropID, userID, id, claimed); !errors.Is(err, errChanged) {
			return err
		}
	}
	return ErrBusy
}

// errChanged means that another claim was counted between the read and the swap.
var errChanged = errors.New("the count has changed")

func (w Optimistic) swap(ctx context.Context, dropID, userID, id, claimed int64) error {
	return transact(ctx, w.DB, func(tx *sql.Tx) error {
		const count = `
			UPDATE drops
			SET claimed=?
			WHERE id=? AND claimed=?`
		swapped, err := tx.ExecContext(ctx, count, claimed+1, dropID, claimed)
		if err != nil {
			return err
		}
		n, err := swapped.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			return errChanged
		}
		return insert(ctx, tx, dropID, userID, id)
	})
}

// errRepeated means that the user has a claim. The transaction is rolled back, and the Claimer has succeeded.
var errRepeated = errors.New("the user has a claim")

// transact runs f in a transaction with the isolation of the product. It holds the mode of the site, as each claim in
// direct mode does. After a lock wait or a deadlock, it returns ErrBusy.
func transact(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	const hold = `
		SELECT value
		FROM settings
		WHERE name='likes'
		LOCK IN SHARE MODE`
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	var mode string
	if err := tx.QueryRowContext(ctx, hold).Scan(&mode); err != nil {
		return fmt.Errorf("hold mode: %w", err)
	}
	if err := f(tx); err != nil {
		e, isMySQL := errors.AsType[*mysql.MySQLError](err)
		switch {
		case errors.Is(err, errRepeated):
			return nil
		case isMySQL && (e.Number == 1205 || e.Number == 1213):
			return ErrBusy
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// look reads what db.DB.ClaimDirect reads, and returns the count. It returns ErrSoldOut if no share is left,
// errRepeated if the user has a claim, and sql.ErrNoRows if the post is deleted.
func look(
	ctx context.Context, db interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}, lock string, dropID, userID int64,
) (claimed int64, err error) {
	query := `
		SELECT d.stock, d.claimed, COALESCE((SELECT c.id FROM claims c WHERE c.drop_id=d.id AND c.user_id=?), 0)
		FROM drops d
		WHERE d.id=? AND EXISTS (SELECT 1 FROM posts p WHERE p.id=d.post_id AND p.status=?)
		` + lock
	var stock, held int64
	err = db.QueryRowContext(ctx, query, userID, dropID, models.StatusNormal).Scan(&stock, &claimed, &held)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read drop: %w", err)
	case held != 0:
		return 0, errRepeated
	case claimed >= stock:
		return 0, ErrSoldOut
	}
	return claimed, nil
}

// insert writes the row of a claim. It returns errRepeated if the user has one.
func insert(ctx context.Context, tx *sql.Tx, dropID, userID, id int64) error {
	const insert = `
		INSERT INTO claims (drop_id, user_id, id, state, created_at)
		VALUES (?,?,?,?,NOW(3))`
	_, err := tx.ExecContext(ctx, insert, dropID, userID, id, models.StateConfirmed)
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == 1062 {
		return errRepeated
	}
	return err
}
