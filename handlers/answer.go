package handlers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"

	"likewise/models"
)

// A request is under way until the last byte of its answer is written, and holds memory all the while: the content that
// was read for it, and then its body. A client that does not read its answer holds that until writeTimeout. So memory is
// counted as it is taken, for the process and for each address, and a request that would go over a limit is refused,
// before the work is done for it where that is known.
//
// An address has room for many people, so its requests wait for each other rather than being refused, up to a number.
const (
	maxHeld    = 64 << 20  // bytes; not for an address that holds little
	littleHeld = 128 << 10 // bytes: those who read their answers are served although others do not

	// Of an address, times Config.LimitFactor.
	maxHeldOfOne   = 8 << 20 // bytes
	maxAtWorkOfOne = 4       // requests that are worked on at once; more wait
	minHeldOfOne   = 4 << 20 // one page takes that much while it is made

	shareOfOne = 4 // of the requests under way, an address has at most one in that many
)

// retryHeld is when an address may try again whose answers wait to be read.
const retryHeld = time.Second

// answers counts the requests that are under way, and what they hold.
type answers struct {
	most      int           // requests
	held      int64         // bytes
	mostOfOne int           // requests of one address; 0: any number, and so with the next two
	heldOfOne int64         // bytes of one address
	atWork    int           // requests of one address that are worked on
	large     chan struct{} // has room for the requests that may go on beyond littleHeld
	inFlight  prometheus.Gauge
	bytes     prometheus.Gauge
	limited   prometheus.Counter // requests that were refused for heldOfOne or mostOfOne

	mu    sync.Mutex
	count int
	all   int64              // bytes
	of    map[string]*holder // by address as network.Key names it; only those with a request under way
}

// holder is what the requests of one address hold.
type holder struct {
	count int
	bytes int64
	turns chan struct{} // has room for those that are worked on
}

// answer is what one request holds.
type answer struct {
	*answers
	from   string
	holder *holder
	own    int64 // bytes
	large  bool  // holds a place in answers.large
	ended  bool
}

// begin counts a request. CodeUnavailable: there are too many, or they hold too much. CodeRateLimited: those of the same
// address do.
func (k *answers) begin(from string) (*answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.of[from]
	if h == nil {
		h = &holder{turns: make(chan struct{}, max(1, k.atWork))}
	}
	if k.count >= k.most {
		return nil, busy()
	}
	if k.mostOfOne > 0 && h.count >= k.mostOfOne {
		return nil, k.tooMuch()
	}
	if err := k.closed(h); err != nil {
		return nil, err
	}
	k.of[from] = h
	h.count++
	k.count++
	k.inFlight.Set(float64(k.count))
	return &answer{answers: k, from: from, holder: h}, nil
}

func busy() error { return models.Unavailable("The server is busy; try again.", errOverload) }

var errOverload = errors.New("too many requests are in flight, or their answers wait to be read")

func (k *answers) tooMuch() error {
	k.limited.Inc()
	return &models.Error{Code: models.CodeRateLimited, RetryAfter: retryHeld,
		Message: "Too many answers for your address wait to be read; read them, and try again."}
}

// closed returns the error for a request that is not to be worked on, because of what those before it hold.
func (k *answers) closed(h *holder) error {
	switch {
	case k.heldOfOne > 0 && h.bytes+models.PageBytes > k.heldOfOne:
		return k.tooMuch()
	case k.all >= k.held && h.bytes > littleHeld:
		return busy()
	}
	return nil
}

// await waits until it is the request's turn, and returns what ends the turn. Errors are as those of begin.
func (a *answer) await(ctx context.Context) (done func(), err error) {
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
	if err := a.closed(a.holder); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// hold counts n more bytes. It returns errors as begin does, and then nothing is counted. A request that goes beyond
// littleHeld waits until few others do: reading, rendering and encoding a large answer keeps a processor and the database
// busy, and a short request would wait for all of them that are under way.
func (a *answer) hold(ctx context.Context, n int) error {
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
func (a *answer) enterLarge(ctx context.Context) error {
	select {
	case a.answers.large <- struct{}{}:
		a.large = true
		return nil
	case <-ctx.Done():
		return busy()
	}
}

func (a *answer) leaveLarge() {
	if a.large {
		<-a.answers.large
		a.large = false
	}
}

// settle counts n bytes in place of all that was counted before, whether there is room for them or not.
func (a *answer) settle(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(int64(n) - a.own)
}

// end counts the request no more.
func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.add(-a.own)
	a.ended = true
	a.count--
	a.inFlight.Set(float64(a.count))
	if a.holder.count--; a.holder.count == 0 {
		delete(a.of, a.from)
	}
}

func (a *answer) add(n int64) {
	if a.ended {
		return
	}
	a.own += n
	a.holder.bytes += n
	a.all += n
	a.bytes.Set(float64(a.all))
}

// hold counts memory that the answer to c takes, as answer.hold.
func hold(c *fiber.Ctx, n int) error {
	if a, ok := c.Locals(answerKey).(*answer); ok {
		return a.hold(c.UserContext(), n)
	}
	return nil
}
