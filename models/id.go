package models

import (
	"fmt"
	"strconv"
)

// ID is a global id: positive, of at most 63 bits, and ordered by time. In JSON it is a string, because JavaScript
// rounds numbers of more than 53 bits.
//
// The upper bits are a slot, a number that is reserved in MySQL (see ReserveSlots) and issued once. The lower IDBits
// are chosen by the process that holds the slot.
type ID int64

// The layout of an ID. A slot is a millisecond since 2026, so the slots suffice until the year 2165.
const (
	IDBits   = 21      // of an ID, within its slot
	MaxSlots = 1 << 42 // slots
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
