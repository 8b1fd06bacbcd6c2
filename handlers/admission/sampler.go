package admission

import (
	"sync"
	"time"
)

// Sampler bounds the log lines of each kind in a second, so that requests cannot fill the disk. It counts the lines
// that it drops and reports their number once, at the end of the second.
type Sampler struct {
	report func(kind string, leftOut int)

	mu    sync.Mutex
	kinds map[string]*sample // an entry lives for a second
}

type sample struct{ logged, leftOut int }

// Log lines of each kind in a second. Refusals are much alike; errors of the server deserve more lines.
const (
	RefusalLines = 20
	ErrorLines   = 100
)

const samplePeriod = time.Second

// NewSampler returns a Sampler that calls report at the end of each second in which it has left out lines of a kind.
func NewSampler(report func(kind string, leftOut int)) *Sampler {
	return &Sampler{report: report, kinds: map[string]*sample{}}
}

// Take reports whether to log a line of the kind, of which most are logged in a second at the most. The number of kinds
// must be bounded: clients must not be able to invent them.
func (s *Sampler) Take(kind string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[kind]
	if k == nil {
		k = &sample{}
		s.kinds[kind] = k
		time.AfterFunc(samplePeriod, func() { s.end(kind) })
	}
	if k.logged < limit {
		k.logged++
		return true
	}
	k.leftOut++
	return false
}

// end ends the kind's second.
func (s *Sampler) end(kind string) {
	s.mu.Lock()
	leftOut := s.kinds[kind].leftOut
	delete(s.kinds, kind)
	s.mu.Unlock()
	if leftOut > 0 {
		s.report(kind, leftOut)
	}
}
