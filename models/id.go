package models

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// ID is a global id: positive, of at most 63 bits, and ordered by time. In JSON it is a string, because JavaScript
// rounds numbers of more than 53 bits.
//
// The upper bits are a slot, a number that is reserved in MySQL (see ReserveSlots) and issued once. The lower idBits
// are chosen by the process that holds the slot.
type ID int64

// The layout of an ID. A slot is a millisecond since 2026, so the slots suffice until the year 2165.
const (
	IDBits   = 21      // of an ID, within its slot
	maxSlots = 1 << 42 // slots
)

// ParseID returns the ID with a decimal form. Another form of the same number is an error.
func ParseID(text string) (ID, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != text {
		return 0, fmt.Errorf("%q is not an id", text)
	}
	return ID(n), nil
}

// String returns the decimal form of the id.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

var errNoSlots = errors.New("no slots of ids are left: the clock of Redis or of this machine is far ahead")

// ReserveSlots reserves n consecutive slots of ids, from atLeast or later, and returns the first one. Each reservation
// is above all earlier ones. It is committed before its slots are used, so no slot is issued twice, whatever Redis and
// the clocks do.
func (s *Store) ReserveSlots(ctx context.Context, atLeast, n int64) (first int64, err error) {
	err = s.transact(ctx, func(tx *Tx) error {
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
		if end > maxSlots {
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
