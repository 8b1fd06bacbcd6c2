package images

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/binary"
	"hash/adler32"
	"hash/crc32"
	"image"
	"image/png"
	"io"
)

const pngMagic = "\x89PNG\r\n\x1a\n"

// The types of color of PNG.
const (
	pngGray    = 0
	pngRGB     = 2
	pngPalette = 3
	pngGrayA   = 4
	pngRGBA    = 6
)

// pngHead is the header of a PNG.
type pngHead struct {
	width, height   int64
	depth, color    byte
	interlaced      bool
	palette, transp []byte
}

// readPNG passes over checksums and all chunks that hold no pixels, as browsers do.
func readPNG(file []byte) (*header, error) {
	p, h := pngHead{}, &header{lossless: true}
	var data [][]byte
	var profile []byte
	rest := file[len(pngMagic):]
	for first := true; len(rest) >= 8; first = false {
		length, kind := int64(binary.BigEndian.Uint32(rest)), string(rest[4:8])
		body := rest[8:]
		body = body[:min(length, int64(len(body)))]
		rest = rest[8+len(body):]
		rest = rest[min(4, len(rest)):] // a checksum
		if first != (kind == "IHDR") {
			return nil, errDamaged
		}
		switch kind {
		case "IHDR":
			if len(body) != 13 || body[10] != 0 || body[11] != 0 {
				return nil, errDamaged
			}
			p = pngHead{width: int64(binary.BigEndian.Uint32(body)), height: int64(binary.BigEndian.Uint32(body[4:])),
				depth: body[8], color: body[9], interlaced: body[12] == 1}
		case "PLTE":
			p.palette = body
		case "tRNS":
			p.transp = body
		case "IDAT":
			data = append(data, body)
		case "eXIf":
			h.exif = body
		case "iCCP":
			profile = inflateProfile(body)
		case "IEND":
			rest = nil
		}
	}
	if p.width < 1 || p.height < 1 || p.width > MaxPixels || p.height > MaxPixels {
		return nil, tooManyPixels(p.width, p.height)
	}
	h.canvas = image.Pt(int(p.width), int(p.height))
	h.decoded, h.memory = p.memory()
	if c := profileColors(profile); c != nil && c.gray == (p.color == pngGray || p.color == pngGrayA) {
		h.colors = c
	}
	h.pixels = func(chunked func(...[]byte) io.Reader) (image.Image, error) {
		return png.Decode(p.again(chunked(data...)))
	}
	return h, nil
}

// inflateProfile returns the color profile of a chunk: a name, a method, and the compressed profile.
func inflateProfile(body []byte) []byte {
	_, packed, ok := bytes.Cut(body, []byte{0})
	if !ok || len(packed) < 2 {
		return nil
	}
	in, err := zlib.NewReader(bytes.NewReader(packed[1:]))
	if err != nil {
		return nil
	}
	profile, _ := io.ReadAll(io.LimitReader(in, maxProfile+1)) // a profile that is cut is not a profile
	return profile
}

// bits returns the bits of a pixel.
func (p pngHead) bits() int64 {
	samples := map[byte]int64{pngGray: 1, pngRGB: 3, pngPalette: 1, pngGrayA: 2, pngRGBA: 4}
	return samples[p.color] * int64(p.depth)
}

// row returns the bytes of a row of so many pixels, as they are compressed.
func (p pngHead) row(width int64) int64 { return 1 + (width*p.bits()+7)/8 }

// memory returns the bytes of the picture, and those that image/png allocates: the picture, two rows, and the pictures
// of all passes.
func (p pngHead) memory() (decoded, all int64) {
	var pixel int64 = 4
	switch {
	case p.depth == 16 && p.color == pngGray && p.transp == nil:
		pixel = 2
	case p.depth == 16:
		pixel = 8
	case p.color == pngPalette, p.color == pngGray && p.transp == nil:
		pixel = 1
	}
	decoded = pixel * p.width * p.height
	all = decoded + 2*p.row(p.width)
	if p.interlaced {
		all *= 2
	}
	return decoded, all
}

// size returns the bytes of all rows, as they are compressed.
func (p pngHead) size() (n int64) {
	passes := [][4]int64{{0, 0, 1, 1}} // the first column and row, and the steps to the next ones
	if p.interlaced {
		passes = [][4]int64{
			{0, 0, 8, 8},
			{4, 0, 8, 8},
			{0, 4, 4, 8},
			{2, 0, 4, 4},
			{0, 2, 2, 4},
			{1, 0, 2, 2},
			{0, 1, 1, 2},
		}
	}
	for _, pass := range passes {
		width := (p.width - pass[0] + pass[2] - 1) / pass[2]
		height := (p.height - pass[1] + pass[3] - 1) / pass[3]
		if width > 0 && height > 0 {
			n += p.row(width) * height
		}
	}
	return n
}

// again returns a PNG with the same pixels, all that is needed for them, and nothing else. data is their compressed
// form.
func (p pngHead) again(data io.Reader) io.Reader {
	head := make([]byte, 8, 13)
	binary.BigEndian.PutUint32(head, uint32(p.width))
	binary.BigEndian.PutUint32(head[4:], uint32(p.height))
	var interlaced byte
	if p.interlaced {
		interlaced = 1
	}
	out := appendChunk([]byte(pngMagic), "IHDR", append(head, p.depth, p.color, 0, 0, interlaced))
	if p.color == pngPalette {
		colors := min(len(p.palette)/3, 1<<min(p.depth, 8))
		out = appendChunk(out, "PLTE", p.palette[:3*colors])
		if n := min(len(p.transp), colors); n > 0 {
			out = appendChunk(out, "tRNS", p.transp[:n])
		}
	}
	if p.color == pngGray && len(p.transp) == 2 || p.color == pngRGB && len(p.transp) == 6 {
		out = appendChunk(out, "tRNS", p.transp)
	}
	_, err := io.ReadFull(data, make([]byte, 2)) // the header of zlib
	rows := &storedRows{in: flate.NewReader(data), left: p.size(), sum: adler32.New(), err: err}
	return io.MultiReader(bytes.NewReader(out), rows, bytes.NewReader(appendChunk(nil, "IEND", nil)))
}

func appendChunk(to []byte, kind string, data []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(data)))
	from := len(to)
	to = append(append(to, kind...), data...)
	return binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(to[from:]))
}

// storedRows reads rows as chunks of IDAT that are not compressed, with correct checksums, and no more rows than there
// should be.
type storedRows struct {
	in   io.Reader
	left int64 // bytes of rows
	sum  interface {
		io.Writer
		Sum32() uint32
	}
	begun bool
	out   []byte // of the current chunk, not read yet
	buf   [16 << 10]byte
	err   error
}

func (r *storedRows) Read(p []byte) (int, error) {
	if len(r.out) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.out) == 0 {
		return 0, r.err
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// next makes the next chunk. It returns io.EOF with the last one.
func (r *storedRows) next() error {
	n := int(min(r.left, int64(len(r.buf))))
	if _, err := io.ReadFull(r.in, r.buf[:n]); err != nil {
		return io.ErrUnexpectedEOF
	}
	_, _ = r.sum.Write(r.buf[:n]) // a hash returns no error
	r.left -= int64(n)
	var data []byte
	if !r.begun {
		data, r.begun = append(data, 0x78, 0x01), true
	}
	var last byte
	if r.left == 0 {
		last = 1
	}
	data = append(data, last, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
	data = append(data, r.buf[:n]...)
	if r.left > 0 {
		r.out = appendChunk(nil, "IDAT", data)
		return nil
	}
	r.out = appendChunk(nil, "IDAT", binary.BigEndian.AppendUint32(data, r.sum.Sum32()))
	return io.EOF
}
