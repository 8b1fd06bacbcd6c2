package images

import (
	"encoding/binary"
	"image"
	"math"
	"sync"
)

// maxProfile bounds the bytes of a color profile that is read.
const maxProfile = 1 << 20

// colors says which colors the numbers of a picture mean.
type colors struct {
	gray   bool // a picture without colors: curve[0] alone counts
	linear [3][256]float64
	matrix matrix // from linear numbers to the linear ones of sRGB
}

type matrix [3][3]float64

// fromD50 leads from CIE XYZ for the white point D50, to which profiles refer, to linear sRGB.
var fromD50 = matrix{
	{3.1338561, -1.6168667, -0.4906146},
	{-0.9787684, 1.9161415, 0.0334540},
	{0.0719453, -0.2289914, 1.4052427},
}

func (m matrix) times(n matrix) (out matrix) {
	for i := range out {
		for j := range out[i] {
			for k := range n {
				out[i][j] += m[i][k] * n[k][j]
			}
		}
	}
	return out
}

// profileColors reads a color profile: curves, and a matrix if it is of RGB. nil: it is damaged, or consists of tables
// for another purpose, as those of print do. Then the numbers are taken for sRGB.
func profileColors(icc []byte) *colors {
	if len(icc) < 132 || len(icc) > maxProfile {
		return nil
	}
	c := &colors{gray: string(icc[16:20]) == "GRAY"}
	if c.gray {
		if !setCurve(&c.linear[0], profileTag(icc, "kTRC")) {
			return nil
		}
		return c
	}
	if string(icc[16:24]) != "RGB XYZ " {
		return nil
	}
	var columns matrix
	for i, color := range []string{"r", "g", "b"} {
		xyz := profileTag(icc, color+"XYZ")
		if len(xyz) < 20 || !setCurve(&c.linear[i], profileTag(icc, color+"TRC")) {
			return nil
		}
		for j := range columns {
			columns[j][i] = fixed(xyz[8+4*j:])
		}
	}
	c.matrix = fromD50.times(columns)
	return c
}

// profileTag returns a tag of a profile; nil if there is none.
func profileTag(icc []byte, name string) []byte {
	tags := icc[132:]
	for range binary.BigEndian.Uint32(icc[128:]) {
		if len(tags) < 12 {
			return nil
		}
		if string(tags[:4]) == name {
			from, size := int64(binary.BigEndian.Uint32(tags[4:])), int64(binary.BigEndian.Uint32(tags[8:]))
			if from+size > int64(len(icc)) {
				return nil
			}
			return icc[from : from+size]
		}
		tags = tags[12:]
	}
	return nil
}

// fixed returns a signed number with 16 binary places.
func fixed(b []byte) float64 { return float64(int32(binary.BigEndian.Uint32(b))) / (1 << 16) }

// setCurve reads the curve of a tag, and reports whether it can be read.
func setCurve(curve *[256]float64, tag []byte) bool {
	if len(tag) < 12 {
		return false
	}
	var at func(x float64) float64
	switch string(tag[:4]) {
	case "curv":
		at = sampledCurve(tag[8:])
	case "para":
		at = parametricCurve(tag[8:])
	}
	if at == nil {
		return false
	}
	for i := range curve {
		y := at(float64(i) / 255)
		if math.IsNaN(y) {
			return false
		}
		curve[i] = min(max(y, 0), 1)
	}
	return true
}

// sampledCurve returns a curve through a number of samples. No sample means a straight line, and one an exponent.
func sampledCurve(b []byte) func(x float64) float64 {
	n, b := int64(binary.BigEndian.Uint32(b)), b[4:]
	if n > int64(len(b)/2) {
		return nil
	}
	switch n {
	case 0:
		return func(x float64) float64 { return x }
	case 1:
		exponent := float64(binary.BigEndian.Uint16(b)) / (1 << 8)
		return func(x float64) float64 { return math.Pow(x, exponent) }
	}
	sample := func(i int64) float64 { return float64(binary.BigEndian.Uint16(b[2*i:])) / math.MaxUint16 }
	return func(x float64) float64 {
		i := min(int64(x*float64(n-1)), n-2)
		return sample(i) + (x*float64(n-1)-float64(i))*(sample(i+1)-sample(i))
	}
}

// parametricCurve returns a curve with the parameters that ICC.1 names g, a, b, c, d, e and f.
func parametricCurve(b []byte) func(x float64) float64 {
	kind, b := binary.BigEndian.Uint16(b), b[4:]
	if kind > 4 {
		return nil
	}
	n := [...]int{1, 3, 4, 5, 7}[kind]
	if len(b) < 4*n {
		return nil
	}
	p := [7]float64{1: 1} // a is 1 if it is left out
	for i := range n {
		p[i] = fixed(b[4*i:])
	}
	g, a, beta, c, d, e, f := p[0], p[1], p[2], p[3], p[4], p[5], p[6]
	switch kind {
	case 1:
		c, d = 0, -beta/a
	case 2:
		c, d, e, f = 0, -beta/a, c, c
	}
	return func(x float64) float64 {
		if x >= d {
			return math.Pow(max(0, a*x+beta), g) + e
		}
		return c*x + f
	}
}

// encoded returns the number of sRGB for a linear one, in steps of 1/linearSteps.
var encoded = sync.OnceValue(func() *[linearSteps + 1]uint8 {
	var table [linearSteps + 1]uint8
	for i := range table {
		x := float64(i) / linearSteps
		if x <= 0.0031308 {
			x *= 12.92
		} else {
			x = 1.055*math.Pow(x, 1/2.4) - 0.055
		}
		table[i] = uint8(x*255 + 0.5)
	}
	return &table
})

const linearSteps = 1 << 14

// at returns the color of sRGB that the numbers mean.
func (c *colors) at(r, g, b uint8) (toR, toG, toB uint8) {
	table := encoded()
	if c.gray {
		r = table[int(c.linear[0][r]*linearSteps+0.5)]
		return r, r, r
	}
	in := [3]float64{c.linear[0][r], c.linear[1][g], c.linear[2][b]}
	var out [3]uint8
	for i, row := range c.matrix {
		x := row[0]*in[0] + row[1]*in[1] + row[2]*in[2]
		out[i] = table[int(min(max(x, 0), 1)*linearSteps+0.5)]
	}
	return out[0], out[1], out[2]
}

// isSRGB reports whether the numbers are those of sRGB, but for what rounding changes.
func (c *colors) isSRGB() bool {
	near := func(a, b uint8) bool { return max(a, b)-min(a, b) <= 1 }
	for r := 0; r < 256; r += 15 {
		for g := 0; g < 256; g += 15 {
			for b := 0; b < 256; b += 15 {
				if c.gray && (g != r || b != r) {
					continue
				}
				toR, toG, toB := c.at(uint8(r), uint8(g), uint8(b))
				if !near(toR, uint8(r)) || !near(toG, uint8(g)) || !near(toB, uint8(b)) {
					return false
				}
			}
		}
	}
	return true
}

// convert converts a picture to sRGB.
func (c *colors) convert(p *image.RGBA) {
	if c == nil || c.isSRGB() {
		return
	}
	for y := range p.Rect.Dy() {
		row := p.Pix[y*p.Stride:][:4*p.Rect.Dx()]
		for ; len(row) > 0; row = row[4:] {
			switch alpha := uint32(row[3]); alpha {
			case 0:
			case 255:
				row[0], row[1], row[2] = c.at(row[0], row[1], row[2])
			default:
				var plain [3]uint8
				for i := range plain {
					plain[i] = uint8(min(255, (uint32(row[i])*255+alpha/2)/alpha))
				}
				plain[0], plain[1], plain[2] = c.at(plain[0], plain[1], plain[2])
				for i := range plain {
					row[i] = uint8((uint32(plain[i])*alpha + 127) / 255)
				}
			}
		}
	}
}
