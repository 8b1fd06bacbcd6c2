package counters

import (
	"encoding/binary"
	"hash/crc64"
	"math"
	"slices"
)

// dumpTable is that of the CRC-64 of Redis: Jones, reflected.
var dumpTable = crc64.MakeTable(0x95ac9329ac4bc9b5)

// dumpSet returns a set of 0 and these users, in the form of DUMP, from which RESTORE makes a set. Redis copies it: a
// script with SADD takes seven times as long, and other likes wait for it. dumpSet sorts users.
//
// The form is that of an RDB file of version 6, the oldest that Redis 7 and Valkey write or read: a type, the value,
// the version and a checksum. A set of integers is one string: two little-endian numbers of 32 bits, the bytes of a
// member and the number of members, and then the members in ascending order. Redis converts a set that is larger than
// its set-max-intset-entries.
func dumpSet(users []int64) []byte {
	slices.Sort(users)
	users = slices.Compact(users)
	size := 2
	if n := len(users); n > 0 {
		switch last := users[n-1]; {
		case last > math.MaxInt32:
			size = 8
		case last > math.MaxInt16:
			size = 4
		}
	}
	length := 8 + size*(len(users)+1)
	b := make([]byte, 0, length+16)
	b = append(b, 11) // a set of integers
	switch {
	case length < 1<<6:
		b = append(b, byte(length))
	case length < 1<<14:
		b = append(b, 1<<6|byte(length>>8), byte(length))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 1<<7), uint32(length))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(users)+1))
	b = append(b, make([]byte, size)...) // 0
	for _, user := range users {
		switch size {
		case 2:
			b = binary.LittleEndian.AppendUint16(b, uint16(user))
		case 4:
			b = binary.LittleEndian.AppendUint32(b, uint32(user))
		default:
			b = binary.LittleEndian.AppendUint64(b, uint64(user))
		}
	}
	b = binary.LittleEndian.AppendUint16(b, 6)
	return binary.LittleEndian.AppendUint64(b, ^crc64.Update(math.MaxUint64, dumpTable, b))
}
