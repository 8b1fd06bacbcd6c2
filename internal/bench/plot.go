package bench

import (
	"bytes"
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// curves are named lines of a plot.
type curves struct {
	title, x, y string
	logX, logY  bool
	names       []string // in the order of the legend
	points      map[string]plotter.XYs
}

func (c *curves) add(name string, x, y float64) {
	if c.points == nil {
		c.points = map[string]plotter.XYs{}
	}
	if c.points[name] == nil {
		c.names = append(c.names, name)
	}
	c.points[name] = append(c.points[name], plotter.XY{X: x, Y: y})
}

// svg draws the curves. An axis with a logarithmic scale needs positive values.
func (c *curves) svg() ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.X.Min, p.Y.Min = 0, 0
	for _, axis := range []struct {
		*plot.Axis

		log bool
	}{{&p.X, c.logX}, {&p.Y, c.logY}} {
		if axis.log {
			axis.Min = 1e300 // Add lowers it to the data
			axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		}
	}
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	for i, name := range c.names {
		line, marks, err := plotter.NewLinePoints(c.points[name])
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", name, err)
		}
		line.Color, marks.Color, marks.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(line, marks)
		p.Legend.Add(name, line, marks)
	}
	p.Y.Max *= 1.3 // room for the legend
	if c.logY {
		p.Y.Max *= 10
	}
	canvas, err := p.WriterTo(18*vg.Centimeter, 11*vg.Centimeter, "svg")
	if err != nil {
		return nil, fmt.Errorf("plot: %w", err)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("plot: %w", err)
	}
	return b.Bytes(), nil
}

// plots draws what the report has points of, by name.
func (r *report) plots() (map[string][]byte, error) {
	const offered = "offered, requests/s"
	throughput := &curves{title: "Throughput", x: offered, y: "reached, requests/s", logX: true, logY: true}
	latencies := &curves{title: "p99 of the latency", x: offered, y: "ms", logX: true, logY: true}
	for _, point := range r.Loads {
		throughput.add(point.Name, point.Offered, point.Reached)
		latencies.add(point.Name, point.Offered, point.P99)
	}
	sizes := &curves{title: "Cost against size", x: "posts (each with 10 likes)", y: "p50, ms", logX: true, logY: true}
	for _, point := range r.Sizes {
		sizes.add(point.Name, float64(point.Posts), point.P50)
	}
	lags := &curves{title: "From answer to row", x: "ms", y: "% of the likes", logX: true}
	for _, lag := range r.Lag {
		for _, p := range lag.Percentiles {
			lags.add(lag.Name, p.MS, p.Percent)
		}
	}
	drawn := map[string][]byte{}
	all := map[string]*curves{"throughput": throughput, "latency": latencies, "size": sizes, "lag": lags}
	for name, c := range all {
		if len(c.names) == 0 {
			continue
		}
		var err error
		if drawn[name], err = c.svg(); err != nil {
			return nil, err
		}
	}
	return drawn, nil
}
