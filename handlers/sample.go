package handlers

import (
	"sync"
	"time"
)

// sampler bounds how many lines of each kind are logged in a second, so that requests cannot fill the disk. What is left
// out is counted and reported once, at the end of the second.
type sampler struct {
	report func(kind string, leftOut int)

	mu    sync.Mutex
	kinds map[string]*sample // an entry lives for a second
}

type sample struct{ logged, leftOut int }

// Lines a second of each kind. A request of which the server says no is one line of many alike; an error of ours is worth
// more of them.
const (
	refusalLines = 20
	errorLines   = 100
)

const samplePeriod = time.Second

func newSampler(report func(kind string, leftOut int)) *sampler {
	return &sampler{report: report, kinds: map[string]*sample{}}
}

// take reports whether a line of the kind is to be logged, of which most may be in a second. Kinds must be few, and never
// a client's invention.
func (s *sampler) take(kind string, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[kind]
	if k == nil {
		k = &sample{}
		s.kinds[kind] = k
		time.AfterFunc(samplePeriod, func() { s.end(kind) })
	}
	if k.logged < most {
		k.logged++
		return true
	}
	k.leftOut++
	return false
}

// end begins the kind's next second.
func (s *sampler) end(kind string) {
	s.mu.Lock()
	leftOut := s.kinds[kind].leftOut
	delete(s.kinds, kind)
	s.mu.Unlock()
	if leftOut > 0 {
		s.report(kind, leftOut)
	}
}
