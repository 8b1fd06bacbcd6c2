package db

import (
	"context"
	"errors"
	"fmt"
)

// A lock in Redis expires, so its holder may be paused, lose it to another process and then continue. A transaction
// that belongs to a lock therefore has a fencing number: the number that MySQL issued when the lock was acquired. MySQL
// commits the transaction only if it has issued no later one. The number comes from MySQL and not from the lock's
// Redis, because a Redis that lost its memory would begin again with low numbers.

// ErrFenced means that another process has acquired the lock that a transaction belongs to. Nothing was written.
var ErrFenced = errors.New("another process has taken over the lock")

type (
	fenceKey       struct{}
	transactionKey struct{}
)

// fence is the fencing number of the holder of a lock.
type fence struct {
	lock   string
	number int64
}

// NextFence issues a fencing number of a lock, for a process that has acquired it. It waits for transactions with an
// earlier number that are under way, and fences off those that have not begun. Afterwards, the process must make sure
// that it still holds the lock.
func (s *DB) NextFence(ctx context.Context, lock string) (number int64, err error) {
	err = s.Transact(ctx, func(tx *Tx) error {
		const issue = `
			INSERT INTO settings (name, value)
			VALUES (?, '1')
			ON DUPLICATE KEY UPDATE value=CAST(value AS SIGNED)+1`
		if err := tx.Exec(issue, fenceName(lock)).Error; err != nil {
			return err
		}
		const read = `
			SELECT CAST(value AS SIGNED)
			FROM settings
			WHERE name=?`
		return tx.Raw(read, fenceName(lock)).Scan(&number).Error
	})
	if err != nil {
		return 0, fmt.Errorf("fencing number of %s: %w", lock, err)
	}
	return number, nil
}

func fenceName(lock string) string { return "fence:" + lock }

// WithFence returns a context whose transactions return ErrFenced once the lock has a later fencing number.
func WithFence(ctx context.Context, lock string, number int64) context.Context {
	return context.WithValue(ctx, fenceKey{}, fence{lock, number})
}

// admitFence compares the fencing number of the context with that of the lock (see WithFence). It locks the number
// until COMMIT, so that a later holder begins after the transaction.
func admitFence(ctx context.Context, tx *Tx) error {
	own, ok := ctx.Value(fenceKey{}).(fence)
	if !ok {
		return nil
	}
	const query = `
		SELECT CAST(value AS SIGNED)
		FROM settings
		WHERE name=?
		LOCK IN SHARE MODE`
	var latest int64
	if err := tx.Raw(query, fenceName(own.lock)).Scan(&latest).Error; err != nil {
		return fmt.Errorf("check fencing number: %w", err)
	}
	if latest != own.number {
		return fmt.Errorf("%w: %s has the number %d, after %d", ErrFenced, own.lock, latest, own.number)
	}
	return nil
}

// WithTransaction marks the context of a transaction.
func WithTransaction(ctx context.Context) context.Context {
	return context.WithValue(ctx, transactionKey{}, true)
}

// InTransaction reports whether ctx is that of a transaction of a DB. What is called with it holds locks on rows.
func InTransaction(ctx context.Context) bool { return ctx.Value(transactionKey{}) != nil }
