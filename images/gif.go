package images

import (
	"compress/lzw"
	"encoding/binary"
	"image"
	"image/color"
	"io"
)

// readGIF reads a GIF up to its first frame. image/gif refuses files for what follows the pixels, and forgets the place
// of the frame on the canvas.
func readGIF(file []byte) (*header, error) {
	const (
		extension = 0x21
		frame     = 0x2c
		control   = 0xf9
	)
	if len(file) < 13 {
		return nil, errDamaged
	}
	h := &header{lossless: true, canvas: pointAt(file[6:])}
	colors, rest := colorTable(file[10], file[13:])
	transparent := -1
	for len(rest) > 1 {
		switch {
		case rest[0] == extension:
			kind := rest[1]
			parts, after := subBlocks(rest[2:])
			if kind == control && len(parts) > 0 && len(parts[0]) >= 4 && parts[0][0]&1 == 1 {
				transparent = int(parts[0][3])
			}
			rest = after
		case rest[0] == frame && len(rest) >= 11:
			return h, h.setFrame(rest[1:], colors, transparent)
		default:
			return nil, errDamaged
		}
	}
	return nil, errDamaged
}

func pointAt(b []byte) image.Point {
	return image.Pt(int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:])))
}

// colorTable returns the table that flags announce, and what follows it.
func colorTable(flags byte, b []byte) (colors, rest []byte) {
	if flags&0x80 == 0 {
		return nil, b
	}
	n := min(3<<(flags&7+1), len(b))
	return b[:n], b[n:]
}

// subBlocks returns the blocks up to the end of their chain or of the file, and what follows.
func subBlocks(b []byte) (parts [][]byte, rest []byte) {
	for len(b) > 0 && b[0] > 0 {
		n := min(1+int(b[0]), len(b))
		parts = append(parts, b[1:n])
		b = b[n:]
	}
	return parts, b[min(1, len(b)):]
}

// setFrame sets what the header of a frame says. The canvas grows if the frame does not fit on it.
func (h *header) setFrame(b, colors []byte, transparent int) error {
	h.at = pointAt(b)
	size := pointAt(b[4:])
	flags := b[8]
	own, rest := colorTable(flags, b[9:])
	if own != nil {
		colors = own
	}
	if size.X < 1 || size.Y < 1 || len(rest) < 1 || rest[0] < 2 || rest[0] > 8 || len(colors) < 3 {
		return errDamaged
	}
	h.canvas = image.Pt(max(h.canvas.X, h.at.X+size.X), max(h.canvas.Y, h.at.Y+size.Y))
	h.decoded = int64(size.X) * int64(size.Y)
	h.memory = h.decoded
	parts, _ := subBlocks(rest[1:])
	h.pixels = func(chunked func(...[]byte) io.Reader) (image.Image, error) {
		picture := image.NewPaletted(image.Rectangle{Max: size}, palette(colors, transparent))
		in := lzw.NewReader(chunked(parts...), lzw.LSB, int(rest[0]))
		defer in.Close()
		for _, y := range rowOrder(size.Y, flags&0x40 != 0) {
			if _, err := io.ReadFull(in, picture.Pix[y*picture.Stride:][:size.X]); err != nil {
				return nil, err
			}
		}
		return picture, nil
	}
	return nil
}

// palette returns 256 colors: those of the table, and black for what it lacks.
func palette(table []byte, transparent int) color.Palette {
	colors := make(color.Palette, 256)
	for i := range colors {
		c := color.RGBA{A: 0xff}
		if 3*i+2 < len(table) {
			c.R, c.G, c.B = table[3*i], table[3*i+1], table[3*i+2]
		}
		colors[i] = c
	}
	if transparent >= 0 {
		colors[transparent] = color.RGBA{}
	}
	return colors
}

// rowOrder returns the rows of a frame in the order of the file.
func rowOrder(height int, interlaced bool) []int {
	passes := [][2]int{{0, 1}} // the first row, and the step to the next one
	if interlaced {
		passes = [][2]int{{0, 8}, {4, 8}, {2, 4}, {1, 2}}
	}
	rows := make([]int, 0, height)
	for _, pass := range passes {
		for y := pass[0]; y < height; y += pass[1] {
			rows = append(rows, y)
		}
	}
	return rows
}
