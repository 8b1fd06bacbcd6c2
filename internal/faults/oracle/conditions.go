package oracle

import (
	"slices"
	"time"
)

// Span is a time of the run. Its end is forever until it is known.
type Span struct{ Begin, End time.Duration }

// Forever is a time after the end of every run.
const Forever = time.Duration(1<<63 - 1)

func (s Span) meets(begin, end time.Duration) bool { return s.End >= begin && s.Begin <= end }

// Skew is a time in which Redis's clock was off.
type Skew struct {
	Span

	Off time.Duration
}

// Conditions are what happened to the processes and clocks of a site, so that requests took longer or got wrong times.
type Conditions struct {
	Held    [][]Span // by API: when it may not have read requests
	Stepped []Span   // when any clock was off
	Skewed  []Skew
}

// last returns until when an operation may have taken effect.
func (c *Conditions) last(o Op) time.Duration {
	var held []Span
	if int(o.API) < len(c.Held) {
		held = c.Held[o.API]
	}
	return Last(o, held)
}

// offsets returns by how much Redis's clock was off at times between two times of the run: 0 if it was right
// throughout.
func (c *Conditions) offsets(begin, end time.Duration) []time.Duration {
	list := []time.Duration{0}
	for _, s := range c.Skewed {
		if s.meets(begin, end) {
			list = append(list, s.Off)
		}
	}
	return list
}

// skewedSince reports whether Redis's clock has been off at some time since a time of the run.
func (c *Conditions) skewedSince(from time.Duration) bool {
	return slices.ContainsFunc(c.Skewed, func(s Skew) bool { return s.meets(from, Forever) })
}

// steppedIn reports whether any clock may have been off between two times of the run.
func (c *Conditions) steppedIn(begin, end time.Duration) bool {
	return slices.ContainsFunc(c.Stepped, func(s Span) bool { return s.meets(begin, end) })
}

// RequestLimit is the time after which an API ends a request, from when it has read it.
const RequestLimit = 10 * time.Second

// Transit is how long a request takes to reach a process that runs, on a busy machine.
const Transit = 2 * time.Second

// Last returns until when an operation may take effect, given when its API may not have read requests. After an answer,
// it has ended. If its client gave up, or a proxy broke the connection, the API works on it until the deadline of the
// request. That begins when the API reads the request: nobody can know before whether its client still waits. If the
// connection itself has ended, so has the API.
func Last(o Op, held []Span) time.Duration {
	switch {
	case o.Status != NoStatus || o.Outcome == Failed:
		return o.End
	case o.Broken:
		return o.End + Transit
	}
	begin := o.Start
	for _, s := range held {
		if s.meets(o.Start, o.End+Transit) {
			begin = max(begin, s.End)
		}
	}
	if begin == Forever {
		return Forever
	}
	return begin + RequestLimit + Transit
}
