package images

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"io"
	"slices"
)

// The markers of JPEG that are used here.
const (
	jpegSOF0  = 0xc0 // baseline
	jpegSOF2  = 0xc2 // progressive
	jpegDHT   = 0xc4
	jpegRST0  = 0xd0
	jpegRST7  = 0xd7
	jpegSOI   = 0xd8
	jpegEOI   = 0xd9
	jpegSOS   = 0xda
	jpegDQT   = 0xdb
	jpegDRI   = 0xdd
	jpegJFIF  = 0xe0
	jpegEXIF  = 0xe1
	jpegICC   = 0xe2
	jpegAdobe = 0xee
)

var errDamaged = errors.New("the file is damaged")

// segment is a part of a JPEG: a marker with what belongs to it.
type segment struct {
	marker byte
	data   []byte // without marker and length
	all    []byte // from the marker on; of a scan, with its pixels
}

// segmentsOf returns the segments of a JPEG up to its end, or to where it cannot be read on.
func segmentsOf(file []byte) (list []segment) {
	rest := file[2:]
	for {
		at := nextMarker(rest)
		if at < 0 || rest[at+1] == jpegEOI {
			return list
		}
		rest = rest[at:]
		if len(rest) < 4 {
			return list
		}
		length := int(rest[2])<<8 | int(rest[3])
		if length < 2 || 2+length > len(rest) {
			return list
		}
		s := segment{rest[1], rest[4 : 2+length], rest[:2+length]}
		if s.marker == jpegSOS {
			end := nextMarker(rest[2+length:])
			if end < 0 {
				end = len(rest) - 2 - length
			}
			s.all = rest[:2+length+end]
		}
		list = append(list, s)
		rest = rest[len(s.all):]
	}
}

// nextMarker returns where the next marker begins that is followed by a segment or is the end; -1 if there is none.
func nextMarker(b []byte) int {
	for i := 0; ; i++ {
		next := bytes.IndexByte(b[i:], 0xff)
		if next < 0 || i+next+1 >= len(b) {
			return -1
		}
		i += next
		if m := b[i+1]; m != 0 && m != 0xff && (m < jpegRST0 || m > jpegRST7) {
			return i
		}
	}
}

// frame is what the header of a JPEG says of its pixels.
type frame struct {
	width, height int
	progressive   bool
	components    []component
	blocks        int64 // of all components, 64 samples each
}

// component is a color of a JPEG.
type component struct {
	id     byte
	h, v   int64 // samples, relative to the other components
	blocks int64
}

// readFrame reads the header of the pixels. image/jpeg allocates whole units of the largest component.
func readFrame(s segment) (*frame, error) {
	if len(s.data) < 6 || len(s.data) != 6+3*int(s.data[5]) {
		return nil, errDamaged
	}
	f := &frame{progressive: s.marker == jpegSOF2,
		height: int(s.data[1])<<8 | int(s.data[2]), width: int(s.data[3])<<8 | int(s.data[4])}
	var h, v int64 = 1, 1
	for d := s.data[6:]; len(d) > 0; d = d[3:] {
		c := component{id: d[0], h: int64(d[1] >> 4), v: int64(d[1] & 15)}
		if c.h < 1 || c.v < 1 {
			return nil, errDamaged
		}
		f.components = append(f.components, c)
		h, v = max(h, c.h), max(v, c.v)
	}
	if len(f.components) == 1 {
		f.components[0].h, f.components[0].v, h, v = 1, 1, 1, 1
	}
	units := ((int64(f.width) + 8*h - 1) / (8 * h)) * ((int64(f.height) + 8*v - 1) / (8 * v))
	for i := range f.components {
		c := &f.components[i]
		c.blocks = units * c.h * c.v
		f.blocks += c.blocks
	}
	return f, nil
}

const (
	blockSamples      = 64
	blockCoefficients = 64 * 4 // bytes
)

func readJPEG(file []byte) (*header, error) {
	h := &header{}
	kept := [][]byte{{0xff, jpegSOI}}
	var f *frame
	var profile [][]byte
	converted := false // to another model of colors
	for _, s := range segmentsOf(file) {
		switch s.marker {
		case jpegSOF0, jpegSOF0 + 1, jpegSOF2:
			if f != nil {
				return nil, errDamaged
			}
			var err error
			if f, err = readFrame(s); err != nil {
				return nil, err
			}
			converted = converted || len(f.components) > 3 || isNamedRGB(f.components)
		case jpegSOS:
			if f == nil {
				return nil, errDamaged
			}
			h.work += f.visited(s)
		case jpegAdobe:
			converted = converted || len(s.data) >= 12 && s.data[11] == 0
		case jpegEXIF:
			if data, ok := bytes.CutPrefix(s.data, []byte("Exif\x00\x00")); ok && h.exif == nil {
				h.exif = data
			}
		case jpegICC:
			if data, ok := bytes.CutPrefix(s.data, []byte("ICC_PROFILE\x00")); ok && len(data) > 2 {
				profile = append(profile, data)
			}
		}
		switch s.marker {
		case jpegSOF0, jpegSOF0 + 1, jpegSOF2, jpegDHT, jpegSOS, jpegDQT, jpegDRI, jpegJFIF, jpegAdobe:
			kept = append(kept, s.all)
		}
	}
	if f == nil {
		return nil, errDamaged
	}
	h.canvas, h.colors = image.Pt(f.width, f.height), f.colors(joinProfile(profile))
	h.decoded = f.blocks * blockSamples
	h.memory = h.decoded
	if f.progressive {
		h.memory += f.blocks * blockCoefficients
	}
	if converted {
		h.decoded = 4 * int64(f.width) * int64(f.height)
		h.memory += h.decoded
	}
	kept = append(kept, []byte{0xff, jpegEOI})
	h.pixels = func(chunked func(...[]byte) io.Reader) (image.Image, error) { return jpeg.Decode(chunked(kept...)) }
	return h, nil
}

// colors returns what the profile says of this number of components; nil if it is of another number.
func (f *frame) colors(profile []byte) *colors {
	if c := profileColors(
		profile,
	); c != nil &&
		(len(f.components) == 1 && c.gray || len(f.components) == 3 && !c.gray) {
		return c
	}
	return nil
}

func isNamedRGB(c []component) bool {
	return len(c) == 3 && c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B'
}

// visited returns how many blocks a scan visits.
func (f *frame) visited(scan segment) (blocks int64) {
	if len(scan.data) == 0 {
		return 0
	}
	for i := range int(scan.data[0]) {
		if 1+2*i >= len(scan.data) {
			break
		}
		for _, c := range f.components {
			if c.id == scan.data[1+2*i] {
				blocks += c.blocks
			}
		}
	}
	return blocks
}

// joinProfile joins the parts of a color profile, each of which begins with its number and the number of all.
func joinProfile(parts [][]byte) []byte {
	slices.SortStableFunc(parts, func(a, b []byte) int { return int(a[0]) - int(b[0]) })
	var all []byte
	for i, part := range parts {
		if int(part[0]) != i+1 || int(part[1]) != len(parts) {
			return nil
		}
		all = append(all, part[2:]...)
	}
	return all
}
