package images

import (
	"image"

	"golang.org/x/image/draw"
)

// shown returns the canvas with the pixels on it, reduced to MaxSide, in sRGB.
func (h *header) shown(pixels image.Image) *image.RGBA {
	reduced := h.averaged(pixels)
	h.colors.convert(reduced)
	return fit(reduced, MaxSide)
}

// factor returns how many columns and rows of the canvas become one before it is fitted.
func (h *header) factor() int { return max(1, max(h.canvas.X, h.canvas.Y)/MaxSide) }

// reducedSize returns the size of the canvas after that.
func (h *header) reducedSize() image.Point {
	k := h.factor()
	return image.Pt(max(1, h.canvas.X/k), max(1, h.canvas.Y/k))
}

// averaged returns the canvas, each pixel of which is the mean of a square. It holds one row of squares at a time: the
// kernels of package draw would hold the whole picture again.
func (h *header) averaged(pixels image.Image) *image.RGBA {
	size, k := h.reducedSize(), h.factor()
	to := image.NewRGBA(image.Rectangle{Max: size})
	move := pixels.Bounds().Min.Sub(h.at) // from the canvas to the pixels
	if k == 1 {
		draw.Draw(to, to.Rect, pixels, move, draw.Src)
		return to
	}
	const strip = 1 << 14 // pixels in a row that are looked at together
	across := max(1, strip/k)
	deep := min(k, h.canvas.Y)
	part := image.NewRGBA(image.Rect(0, 0, min(across*k, h.canvas.X), deep))
	for y := range size.Y {
		for x := 0; x < size.X; x += across {
			clear(part.Pix)
			draw.Draw(part, part.Rect, pixels, move.Add(image.Pt(x*k, y*k)), draw.Src)
			for i := x; i < min(x+across, size.X); i++ {
				wide := min(k, h.canvas.X)
				mean(to.Pix[to.PixOffset(i, y):][:4], part.Pix[4*(i-x)*k:], part.Stride, wide, deep)
			}
		}
	}
	return to
}

// mean sets a pixel to the mean of a rectangle of pixels.
func mean(to, from []uint8, stride, width, height int) {
	var sum [4]uint64
	for y := range height {
		row := from[y*stride:][:4*width]
		for ; len(row) >= 4; row = row[4:] {
			sum[0] += uint64(row[0])
			sum[1] += uint64(row[1])
			sum[2] += uint64(row[2])
			sum[3] += uint64(row[3])
		}
	}
	n := uint64(width * height)
	for i := range sum {
		to[i] = uint8((sum[i] + n/2) / n)
	}
}

// fit returns the picture, reduced so that no side is longer than side.
func fit(from *image.RGBA, side int) *image.RGBA {
	width, height := from.Rect.Dx(), from.Rect.Dy()
	longest := max(width, height)
	if longest <= side {
		return from
	}
	for longest >= 2*side {
		width, height = max(1, width/2), max(1, height/2)
		from, longest = scaled(from, width, height), max(width, height)
	}
	return scaled(from, max(1, width*side/longest), max(1, height*side/longest))
}

func scaled(from *image.RGBA, width, height int) *image.RGBA {
	to := image.NewRGBA(image.Rect(0, 0, width, height))
	draw.ApproxBiLinear.Scale(to, to.Bounds(), from, from.Bounds(), draw.Src, nil)
	return to
}

// turned returns the picture as it is meant to be seen, for an orientation of EXIF.
func turned(from *image.RGBA, turn int) *image.RGBA {
	if turn == 1 {
		return from
	}
	width, height := from.Bounds().Dx(), from.Bounds().Dy()
	place := func(x, y int) (int, int) { // of the source's pixel (x, y)
		switch turn {
		case 2:
			return width - 1 - x, y
		case 3:
			return width - 1 - x, height - 1 - y
		case 4:
			return x, height - 1 - y
		case 5:
			return y, x
		case 6:
			return height - 1 - y, x
		case 7:
			return height - 1 - y, width - 1 - x
		default:
			return y, width - 1 - x
		}
	}
	to := image.NewRGBA(image.Rect(0, 0, width, height))
	if turn >= 5 {
		to = image.NewRGBA(image.Rect(0, 0, height, width))
	}
	for y := range height {
		for x := range width {
			tx, ty := place(x, y)
			copy(to.Pix[to.PixOffset(tx, ty):][:4], from.Pix[from.PixOffset(x, y):])
		}
	}
	return to
}
