package handlers

import (
	"sync"
	"time"
)

// sampler bounds the log lines of each kind in a second, so that requests cannot fill the disk. It counts the lines
// that it drops and reports their number once, at the end of the second.
type sampler struct {
	report func(kind string, leftOut int)

	mu    sync.Mutex
	kinds map[string]*sample // an entry lives for a second
}

type sample struct{ logged, leftOut int }

// Log lines of each kind in a second. Refusals are much alike; errors of the server deserve more lines.
const (
	refusalLines = 20
	errorLines   = 100
)

const samplePeriod = time.Second

func newSampler(report func(kind string, leftOut int)) *sampler {
	return &sampler{report: report, kinds: map[string]*sample{}}
}

// take reports whether to log a line of the kind, of which most are logged in a second at the most. The number of kinds
// must be bounded: clients must not be able to invent them.
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

// end ends the kind's second.
func (s *sampler) end(kind string) {
	s.mu.Lock()
	leftOut := s.kinds[kind].leftOut
	delete(s.kinds, kind)
	s.mu.Unlock()
	if leftOut > 0 {
		s.report(kind, leftOut)
	}
}
