package db

import (
	"context"
	"errors"
	"fmt"

	"likewise/models"
)

var errNoSlots = errors.New("no slots of ids are left: the clock of Redis or of this machine is far ahead")

// ReserveSlots reserves n consecutive slots of ids, from atLeast or later, and returns the first one. Each reservation
// is above all earlier ones. It is committed before its slots are used, so no slot is issued twice, whatever Redis and
// the clocks do.
func (s *DB) ReserveSlots(ctx context.Context, atLeast, n int64) (first int64, err error) {
	err = s.Transact(ctx, func(tx *Tx) error {
		const reserve = `
			INSERT INTO settings (name, value)
			VALUES ('ids', ?)
			ON DUPLICATE KEY UPDATE value=GREATEST(CAST(value AS SIGNED), ?)+?`
		if err := tx.Exec(reserve, atLeast+n, atLeast, n).Error; err != nil {
			return err
		}
		const read = `
			SELECT CAST(value AS SIGNED)
			FROM settings
			WHERE name='ids'`
		var end int64
		if err := tx.Raw(read).Scan(&end).Error; err != nil {
			return err
		}
		if end > models.MaxSlots {
			return errNoSlots
		}
		first = end - n
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("reserve slots of ids: %w", err)
	}
	return first, nil
}
