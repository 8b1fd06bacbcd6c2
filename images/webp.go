package images

import (
	"bytes"
	"encoding/binary"
	"image"
	"io"

	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"
	"golang.org/x/image/webp"
)

// webpParts are the chunks of a WebP, or of a frame of an animation, that are used.
type webpParts struct {
	head, frame        []byte // of the whole, and of the first frame
	alpha, vp8, vp8l   []byte
	exif, icc          []byte
	canvas, at, pixels image.Point
}

// readWebP reads the chunks of a WebP up to its first frame.
func readWebP(file []byte) (*header, error) {
	p := webpChunks(file[12:])
	if p.frame != nil {
		if len(p.frame) < 16 || len(p.head) < 10 {
			return nil, errDamaged
		}
		first := webpChunks(p.frame[16:])
		p.alpha, p.vp8, p.vp8l = first.alpha, first.vp8, first.vp8l
		p.at = image.Pt(2*uint24(p.frame), 2*uint24(p.frame[3:]))
	}
	if err := p.measure(); err != nil {
		return nil, err
	}
	h := &header{canvas: p.canvas, at: p.at, lossless: p.vp8l != nil, exif: p.exif}
	h.decoded, h.memory = p.memory()
	if c := profileColors(p.icc); c != nil && !c.gray {
		h.colors = c
	}
	h.pixels = func(chunked func(...[]byte) io.Reader) (image.Image, error) {
		return webp.Decode(chunked(p.again()...))
	}
	return h, nil
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// chunkVP8 is the name of a chunk with a lossy image; names have four characters.
const chunkVP8 = "VP8 "

// webpChunks returns the first chunk of each kind. A chunk that is cut ends with the file.
func webpChunks(b []byte) (p webpParts) {
	for of := map[string]*[]byte{
		"VP8X": &p.head, "ANMF": &p.frame, "ALPH": &p.alpha, chunkVP8: &p.vp8, "VP8L": &p.vp8l, "EXIF": &p.exif,
		"ICCP": &p.icc,
	}; len(b) >= 8; {
		size := int64(binary.LittleEndian.Uint32(b[4:]))
		end := min(8+size, int64(len(b)))
		if data := of[string(b[:4])]; data != nil && *data == nil {
			*data = b[8:end:end]
		}
		b = b[min(end+size&1, int64(len(b))):]
	}
	return p
}

// measure sets the sizes of the pixels, as they say, and of the canvas, as the head says if there is one.
func (p *webpParts) measure() error {
	switch {
	case p.vp8 != nil:
		d := vp8.NewDecoder()
		d.Init(bytes.NewReader(p.vp8), len(p.vp8))
		h, err := d.DecodeFrameHeader()
		if err != nil {
			return err
		}
		p.pixels, p.vp8l = image.Pt(h.Width, h.Height), nil
	case p.vp8l != nil:
		h, err := vp8l.DecodeConfig(bytes.NewReader(p.vp8l))
		if err != nil {
			return err
		}
		p.pixels, p.alpha = image.Pt(h.Width, h.Height), nil
	default:
		return errDamaged
	}
	p.canvas = p.pixels
	if p.frame != nil {
		p.canvas = image.Pt(1+uint24(p.head[4:]), 1+uint24(p.head[7:]))
	}
	return nil
}

// memory returns the bytes of the picture, and those that the decoders of golang.org/x/image hold.
func (p *webpParts) memory() (decoded, all int64) {
	area := int64(p.pixels.X+15) * int64(p.pixels.Y+15)
	if p.vp8 == nil {
		return 4 * area, losslessMemory(area)
	}
	decoded = area + area/2
	all = decoded + area/8 + int64(len(p.vp8))
	if len(p.alpha) > 0 {
		decoded += area
		all = max(all, losslessMemory(area)) + area
	}
	return decoded, all
}

// losslessMemory returns the bytes that lossless data of so many pixels take: first four for each pixel, the numbers of
// the groups of Huffman trees, and the trees; then twice four for each pixel.
//
// golang.org/x/image reads at most 2,600 groups, and at most one for each tile of 4×4 pixels. Each is of some 2.8 kB
// and has two nodes of 12 bytes for each of 3,136 symbols at most. A few bytes of the file suffice for all of a group.
func losslessMemory(area int64) int64 {
	const groups, group = 2600, 2800 + 3136*2*12
	return max(4*area+area/2+min(groups, area/16+1)*group, 8*area+area/2)
}

// again returns a WebP with the pixels alone.
func (p *webpParts) again() [][]byte {
	var out [][]byte
	size := 4
	add := func(kind string, data []byte) {
		head := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(data)))
		out = append(out, head, data, make([]byte, len(data)&1))
		size += 8 + len(data) + len(data)&1
	}
	if len(p.alpha) > 0 {
		head := make([]byte, 10)
		head[0] = 1 << 4 // there is an alpha channel
		for i, side := range []int{p.pixels.X - 1, p.pixels.Y - 1} {
			head[4+3*i], head[5+3*i], head[6+3*i] = byte(side), byte(side>>8), byte(side>>16)
		}
		add("VP8X", head)
		add("ALPH", p.alpha)
	}
	if p.vp8 != nil {
		add("VP8 ", p.vp8)
	} else {
		add("VP8L", p.vp8l)
	}
	head := append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(size)), "WEBP"...)
	return append([][]byte{head}, out...)
}
