package images

import "encoding/binary"

const (
	upright        = 1
	tagOrientation = 0x0112
	typeShort      = 3
)

// orientation returns the orientation in metadata, as EXIF numbers them: upright if there is none. It reads the entries
// of the first directory once and follows nothing.
func orientation(exif []byte) int {
	if len(exif) < 8 {
		return upright
	}
	var order binary.ByteOrder = binary.BigEndian
	switch string(exif[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
	default:
		return upright
	}
	first := int64(order.Uint32(exif[4:]))
	if first+2 > int64(len(exif)) {
		return upright
	}
	entries := exif[first+2:]
	for range order.Uint16(exif[first:]) {
		if len(entries) < 12 {
			break
		}
		if order.Uint16(entries) == tagOrientation && order.Uint16(entries[2:]) == typeShort {
			if turn := int(order.Uint16(entries[8:])); turn >= 1 && turn <= 8 {
				return turn
			}
			break
		}
		entries = entries[12:]
	}
	return upright
}
