package admission

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/models"
	"likewise/models/db"
)

// A request is in flight until the last byte of its answer is written. Until then it holds memory: the content that was
// read for it, and then the body of the answer. A client that does not read its answer holds the body until
// writeTimeout. So memory is counted as it is allocated, for the process and for each address. A request that would
// exceed a bound is refused, before the work is done if its size is known.
//
// An image is read from its storage as the client reads it, which may take minutes and holds next to nothing. So it
// leaves its place to another request, and counts among the images that clients read; see Send.
//
// An address may be that of many people, so its requests wait for each other before they are refused.
const (
	maxHeld    = 64 << 20  // bytes of all; an address that holds at most littleHeld is exempt
	littleHeld = 128 << 10 // bytes: clients that read their answers are served although others do not

	// Bounds for one address, times AnswersConfig.Factor.
	maxHeldOfOne   = 8 << 20 // bytes
	maxAtWorkOfOne = 4       // requests that are processed at once; more wait
	minHeldOfOne   = 4 << 20 // one page takes that much while it is built

	shareOfOne = 4 // one address may have a quarter of the requests in flight
)

// retryHeld is when an address should retry that leaves too many answers unread.
const retryHeld = time.Second

// Answers counts the requests in flight and the memory that they hold. It is safe for concurrent use.
type Answers struct {
	limit     int           // requests
	held      int64         // bytes
	mostOfOne int           // requests of one address; 0: no bounds for one address
	heldOfOne int64         // bytes of one address
	atWork    int           // requests of one address that are processed at once
	large     chan struct{} // a place for each request that may exceed littleHeld
	inFlight  prometheus.Gauge
	bytes     prometheus.Gauge
	limited   prometheus.Counter // requests refused because of heldOfOne or mostOfOne

	mu      sync.Mutex         // guards all below, and every holder and answer
	count   int                // requests in flight, without readers
	readers int                // clients that read images, at most `most`
	all     int64              // bytes
	of      map[string]*holder // by network.Key of the address; no entry without a request
}

// holder counts the requests of one address and their memory.
type holder struct {
	count int
	bytes int64
	turns chan struct{} // a place for each request that is processed
}

// Answer counts the memory of one request, from Begin to End.
type Answer struct {
	*Answers
	from   string
	holder *holder
	own    int64 // bytes
	large  bool  // holds a place in Answers.large
	reads  bool  // counts among Answers.readers
	ended  bool
}

// DefaultInFlight is the default bound on the requests in flight.
const DefaultInFlight = 512

// AnswersConfig holds the bounds and the metrics of Answers.
type AnswersConfig struct {
	InFlight int     // requests that are in flight
	Factor   float64 // multiplies the bounds for one address; 0: there are none

	Requests prometheus.Gauge   // required; the requests in flight
	Bytes    prometheus.Gauge   // required; the memory of answers
	Limited  prometheus.Counter // required; requests refused because of a bound for one address
}

// NewAnswers returns the count of no requests.
func NewAnswers(c AnswersConfig) *Answers {
	k := &Answers{
		limit: c.InFlight, held: maxHeld, large: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		inFlight: c.Requests, bytes: c.Bytes, limited: c.Limited, of: map[string]*holder{},
	}
	if c.Factor > 0 {
		k.mostOfOne = max(1, c.InFlight/shareOfOne)
		k.heldOfOne = max(minHeldOfOne, int64(maxHeldOfOne*c.Factor))
		k.atWork = max(1, int(maxAtWorkOfOne*c.Factor))
	}
	return k
}

// Begin counts a request. It returns CodeUnavailable if there are too many requests or they hold too much memory, and
// CodeRateLimited if those of the same address do.
func (k *Answers) Begin(from string) (*Answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.of[from]
	if h == nil {
		h = &holder{turns: make(chan struct{}, max(1, k.atWork))}
	}
	if k.count >= k.limit {
		return nil, busy()
	}
	if k.mostOfOne > 0 && h.count >= k.mostOfOne {
		return nil, k.tooMuch()
	}
	if err := k.exhausted(h); err != nil {
		return nil, err
	}
	k.of[from] = h
	h.count++
	k.count++
	k.inFlight.Set(float64(k.count))
	return &Answer{Answers: k, from: from, holder: h}, nil
}

func busy() error { return models.Unavailable("The server is busy; try again.", ErrOverload) }

// ErrOverload is in the errors of requests that are refused because the process is busy with others.
var ErrOverload = errors.New("too many requests are in flight, or too many answers are unread")

func (k *Answers) tooMuch() error {
	k.limited.Inc()
	return &models.Error{Code: models.CodeRateLimited, RetryAfter: retryHeld,
		Message: "Your address has too many unread answers; read them and try again."}
}

// exhausted returns the error of a new request if those before it hold too much memory.
func (k *Answers) exhausted(h *holder) error {
	switch {
	case k.heldOfOne > 0 && h.bytes+db.PageBytes > k.heldOfOne:
		return k.tooMuch()
	case k.all >= k.held && h.bytes > littleHeld:
		return busy()
	}
	return nil
}

// Await waits until the request may be processed; done ends that. Its errors are those of Begin.
func (a *Answer) Await(ctx context.Context) (done func(), err error) {
	if a.atWork == 0 {
		return a.leaveLarge, nil
	}
	select {
	case a.holder.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, busy()
	}
	done = func() {
		a.leaveLarge()
		<-a.holder.turns
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.exhausted(a.holder); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// Pause lets other requests of the address be processed until resume, while the client sends the body of this one.
func (a *Answer) Pause() (resume func()) {
	if a.atWork == 0 {
		return func() {}
	}
	<-a.holder.turns
	return func() { a.holder.turns <- struct{}{} } // the others end at their deadlines
}

// Spend counts n more bytes. If it returns an error, those of Begin, nothing is counted. A request that exceeds
// littleHeld waits for a place among the large ones: reading, rendering and encoding a large answer keeps a processor
// and the database busy, and a short request would wait for all of them.
func (a *Answer) Spend(ctx context.Context, n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.large && a.own+int64(n) > littleHeld {
		a.mu.Unlock()
		err := a.enterLarge(ctx)
		a.mu.Lock()
		if err != nil {
			return err
		}
	}
	all, ofOne := a.all+int64(n), a.holder.bytes+int64(n)
	switch {
	case a.heldOfOne > 0 && ofOne > a.heldOfOne:
		return a.tooMuch()
	case all > a.held && ofOne > littleHeld:
		return busy()
	}
	a.add(int64(n))
	return nil
}

// enterLarge returns CodeUnavailable if ctx ends before there is a place.
//
// An expensive request takes its place in its Share first. In the other order, it could wait for a request
// that waits for it.
func (a *Answer) enterLarge(ctx context.Context) error {
	if err := db.Enter(ctx); err != nil {
		return err
	}
	select {
	case a.Answers.large <- struct{}{}:
		a.large = true
		return nil
	case <-ctx.Done():
		return busy()
	}
}

func (a *Answer) leaveLarge() {
	if a.large {
		<-a.Answers.large
		a.large = false
	}
}

// Settle replaces the count of the request by n bytes, even over a bound.
func (a *Answer) Settle(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(int64(n) - a.own)
}

// Send moves the request from those in flight to the images that clients read, of which there may be as many. It still
// counts for its address. So slow readers keep others from images alone. Send returns CodeUnavailable if too many
// clients read images.
func (a *Answer) Send() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readers >= a.limit {
		return busy()
	}
	a.reads = true
	a.readers++
	a.count--
	a.inFlight.Set(float64(a.count))
	return nil
}

// End ends the count of the request. Calling it again has no effect.
func (a *Answer) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.add(-a.own)
	a.ended = true
	if a.reads {
		a.readers--
	} else {
		a.count--
		a.inFlight.Set(float64(a.count))
	}
	if a.holder.count--; a.holder.count == 0 {
		delete(a.of, a.from)
	}
}

func (a *Answer) add(n int64) {
	if a.ended {
		return
	}
	a.own += n
	a.holder.bytes += n
	a.all += n
	a.bytes.Set(float64(a.all))
}
