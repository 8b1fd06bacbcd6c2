package web

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// chart is a line over time, drawn as SVG by the template "op-chart". Its axis begins at zero.
type chart struct {
	Title string // what is shown, with its unit
	Path  string // of the line, in the attribute d; gaps are where nothing is known
	Max   float64
	Last  *float64 // the latest value
	From  time.Time
	To    time.Time
	LastX float64 // where the latest value is
	LastY float64
}

// The rectangle of the line, in the units of the drawing, which is 320 wide and 120 high.
const (
	chartLeft   = 4
	chartRight  = 268 // the latest value is written behind it
	chartTop    = 22
	chartBottom = 98
)

// newChart draws the values at ascending times, on an axis between two others. A value that is nil is unknown.
func newChart(title string, from, to time.Time, at []time.Time, values []*float64) chart {
	c := chart{Title: title, From: from, To: to}
	for _, v := range values {
		if v != nil {
			c.Max = max(c.Max, *v)
		}
	}
	c.Max = niceMax(c.Max)
	var path strings.Builder
	pen := false
	for i, v := range values {
		if v == nil {
			pen = false
			continue
		}
		x := chartLeft + (chartRight-chartLeft)*at[i].Sub(from).Seconds()/to.Sub(from).Seconds()
		y := chartBottom - (chartBottom-chartTop)**v/c.Max
		command := "L"
		if !pen {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", command, x, y)
		if next := values[i+1:]; !pen && (len(next) == 0 || next[0] == nil) {
			path.WriteString("h.1") // a single value is a dot
		}
		pen, c.Last, c.LastX, c.LastY = true, v, x, y
	}
	c.Path = path.String()
	if len(values) > 0 && values[len(values)-1] == nil {
		c.Last = nil
	}
	return c
}

// niceMax returns the end of an axis from zero: 1, 2 or 5 times a power of ten, not below v.
func niceMax(v float64) float64 {
	if v <= 1 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// brief returns a number with three digits at most, as for the axis of a chart.
func (l *language) brief(v float64) string {
	switch {
	case v >= 1e6:
		return l.text("%s million", l.brief(v/1e6))
	case v >= 100 || v == math.Trunc(v):
		return l.number(int64(math.Round(v)))
	case v >= 10:
		return l.printer.Sprintf("%.1f", v)
	}
	return l.printer.Sprintf("%.2f", v)
}
