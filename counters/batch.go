package counters

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// call is one like, claim or return on its way through the gate.
type call struct {
	target models.Target
	user   int64
	liked  bool
	claim  string    // the word of a claim or a return; "" for a like
	ends   time.Time // the caller's deadline, or zero
	ticket int64     // of a call that had to wait for its target; 0 for others
	asked  bool      // MySQL was asked about its target after it was parked
	late   int       // how often it reached Redis too late
	also   []*call   // earlier calls for the same like, which get the same answer
	done   chan answer
	state  atomic.Int32
}

// The states of a call. The caller can withdraw a call that waits. Once a call is taken, Redis may have it; if the
// caller then gives up, the call is not queued again.
const (
	callWaits int32 = iota
	callTaken
	callLeft
	callLeaving
)

// answer is the reply of the gate to a call, or the reason why there is none.
type answer struct {
	outcome Outcome
	count   int64 // of likes, or of the remaining stock; of a like that has to wait, its ticket
	claim   int64 // the id of the claim that the user holds or has returned, or 0
	at      int64 // of a claim: when the gate answered, in ms on the server's clock
	err     error
}

// leave takes the call back. It reports whether Redis will never see the call. If not, the answer comes within
// callLimit.
func (c *call) leave() bool {
	for {
		if c.state.CompareAndSwap(callWaits, callLeft) {
			return true
		}
		if c.state.CompareAndSwap(callTaken, callLeaving) {
			return false
		}
	}
}

func (c *call) take() bool { return c.state.CompareAndSwap(callWaits, callTaken) }

// taken takes the call or, if its caller gave up, the latest of the calls that wait for the same answer. It returns nil
// if nobody waits.
func (c *call) taken() *call {
	if c.take() {
		return c
	}
	for i, one := range slices.Backward(c.also) {
		if one.take() {
			return one.inPlaceOf(c, i)
		}
	}
	return nil
}

// again makes a taken call one that waits. If its caller is giving up, again answers it, and returns the latest of the
// calls that wait for the same answer, or nil.
func (c *call) again() *call {
	if c.state.CompareAndSwap(callTaken, callWaits) {
		return c
	}
	c.done <- answer{outcome: Failed, err: errLeft}
	if n := len(c.also); n > 0 {
		return c.also[n-1].inPlaceOf(c, n-1)
	}
	return nil
}

var errLeft = errors.New("the caller gave up before the target was loaded")

// inPlaceOf makes also[i] of an earlier call go on for that call, and for the rest of also.
func (c *call) inPlaceOf(gone *call, i int) *call {
	c.ticket, c.asked, c.late, c.also = gone.ticket, gone.asked, gone.late, gone.also[:i]
	return c
}

func (c *call) answer(a answer) {
	c.done <- a
	for _, one := range c.also {
		if one.take() {
			one.done <- a
		}
	}
}

// gateScript is a script of the gate.
type gateScript struct {
	name string
	read func(reply *redis.Cmd) (head []int64, answers []answer, err error)
}

// likeScript is the gate of likes.
var likeScript = gateScript{"like", func(reply *redis.Cmd) (head []int64, answers []answer, err error) {
	numbers, err := reply.Int64Slice()
	if err != nil || len(numbers) < 2 || numbers[0] != 0 {
		return numbers, nil, err
	}
	answers = make([]answer, 0, len(numbers)/2)
	for i := 2; i+1 < len(numbers); i += 2 {
		answers = append(answers, answer{outcome: outcomes[numbers[i]], count: numbers[i+1]})
	}
	return numbers[:2], answers, nil
}}

// lane gathers the likes of a shard, or its claims. At most one call of its script is in flight; likes that arrive
// meanwhile share the next one, in the order of their arrival. An idle site waits for nothing. Under load, one script,
// one round trip and one entry of the outbox carry many likes.
type lane struct {
	gate   *shardGate
	script gateScript
	shard  int

	mu      sync.Mutex
	waiting []*call
	parked  map[models.Target]*parking
	running bool
}

// parking holds the calls of a target that is being loaded or reopened: of likes at most one of each user, in their
// order. A large target is loaded for many seconds, so calls whose callers gave up are dropped now and then.
type parking struct {
	calls []*call       // nil for one that was replaced
	of    map[int64]int // by user
	limit int           // the number of calls at which parking looks for ones to drop
}

const parkingLimit = 1024

// add parks a call, and returns the earlier one of its user, whose place it takes, or nil. Claims and returns take the
// place of none: each has an effect of its own.
func (p *parking) add(c *call) (earlier *call) {
	if i, ok := p.of[c.user]; ok && c.claim == "" {
		earlier, p.calls[i] = p.calls[i], nil
	}
	if len(p.calls) >= p.limit {
		calls := p.all()
		p.calls, p.of = nil, make(map[int64]int, len(calls))
		for _, one := range calls {
			if one.state.Load() != callLeft || len(one.also) > 0 {
				p.append(one)
			}
		}
		p.limit = max(parkingLimit, 2*len(p.calls))
	}
	p.append(c)
	return earlier
}

func (p *parking) append(c *call) {
	p.of[c.user] = len(p.calls)
	p.calls = append(p.calls, c)
}

// all returns the calls in their order.
func (p *parking) all() []*call {
	return slices.DeleteFunc(slices.Clone(p.calls), func(c *call) bool { return c == nil })
}

// maxBatch is the maximum number of likes in one call of the gate. Redis works on them for about 0.3 ms.
const maxBatch = 128

// add queues a call. If no call is in flight, add sends the call itself, and returns with its answer: a goroutine for
// it would cost a lone like a third of its time. If its target is being loaded, the call goes to the gate nevertheless,
// for the ticket that keeps its order with calls of other processes.
func (l *lane) add(c *call) {
	l.mu.Lock()
	l.waiting = append(l.waiting, c)
	if l.running {
		l.mu.Unlock()
		return
	}
	l.running = true
	l.mu.Unlock()
	l.sendNext()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
	l.start()
}

// start starts run if calls wait and it is not running. The caller holds l.mu.
func (l *lane) start() {
	if !l.running && len(l.waiting) > 0 {
		l.running = true
		go l.run()
	}
}

// run sends batches until no call waits.
func (l *lane) run() {
	for {
		if l.sendNext() > 1 {
			runtime.Gosched() // to callers that have their answers, and may have another like for the next batch
		}
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.waiting, l.running = nil, false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// sendNext sends the next batch, and returns its size.
func (l *lane) sendNext() int {
	l.mu.Lock()
	n := min(len(l.waiting), maxBatch)
	batch := make([]*call, 0, n)
	for _, c := range l.waiting[:n] {
		if c := c.taken(); c != nil {
			batch = append(batch, c)
		}
	}
	clear(l.waiting[:n])
	l.waiting = l.waiting[n:]
	l.mu.Unlock()
	if len(batch) > 0 {
		l.send(batch)
	}
	return len(batch)
}

// send makes one call of the gate, and answers its likes or lets them wait.
func (l *lane) send(batch []*call) {
	// The likes of one target follow one another. Those of different targets have no order.
	at := map[models.Target]int{}
	var groups [][]*call
	begin, ends := time.Now(), callLimit
	for _, c := range batch {
		i, ok := at[c.target]
		if !ok {
			i = len(groups)
			at[c.target], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], c)
		if !c.ends.IsZero() {
			ends = min(ends, c.ends.Sub(begin))
		}
	}
	keys := make([]string, 2, 2+len(groups))
	keys[0], keys[1] = shardKey(l.shard), outboxKey(l.shard)
	deadline, epoch := l.gate.onServer(l.shard, begin.Add(ends))
	args := make([]any, 3, 3+2*len(groups)+len(batch))
	args[0], args[1], args[2] = l.gate.limit, deadline, epoch
	order := batch[:0:0]
	for _, group := range groups {
		target := group[0].target
		keys = append(keys, l.gate.redis.keys(target).likes)
		args = append(args, target.Short(), len(group))
		for _, c := range group {
			args = append(args, c.word())
		}
		order = append(order, group...)
	}

	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	head, answers, err := l.script.read(l.gate.redis.runOnce(ctx, l.script.name, keys, args...))
	want := map[int64]int{0: 2, 1: 2, 6: 3}
	if err == nil && (len(head) == 0 || len(head) != want[head[0]] || head[0] == 0 && len(answers) != len(order)) {
		err = fmt.Errorf("the gate replied %d numbers and %d answers to %d calls", len(head), len(answers), len(order))
	}
	if err != nil {
		if mayArrive(err) {
			// What the network still holds is rejected from then on. Before, it could undo the caller's next call.
			<-time.After(time.Until(begin.Add(ends)))
		}
		for _, c := range order {
			c.answer(answer{outcome: Failed, err: err})
		}
		return
	}
	switch outcome := outcomes[head[0]]; outcome {
	case Unchanged:
		l.gate.heard(l.shard, head[1], epoch)
		l.settle(order, answers)
	case Late:
		l.retryLate(order, l.gate.heard(l.shard, head[1], head[2]))
	default:
		for _, c := range order {
			c.answer(answer{outcome: outcome})
		}
	}
}

// word returns the call in the form that the script reads.
func (c *call) word() string {
	if c.claim != "" {
		return c.claim
	}
	var b []byte
	if !c.liked {
		b = append(b, '-')
	}
	b = strconv.AppendInt(b, c.user, 10)
	if c.ticket != 0 {
		b = strconv.AppendInt(append(b, ' '), c.ticket, 10)
	}
	return string(b)
}

// settle answers the calls of a batch, and parks those that have to wait.
func (l *lane) settle(order []*call, answers []answer) {
	for i, c := range order {
		switch a := answers[i]; a.outcome {
		case Cold, Gone:
			l.gate.count(a.outcome)
			c.ticket = a.count
			l.park(c, a.outcome == Gone)
		case Superseded:
			if !l.join(c, order[i+1:]) {
				c.answer(a)
			}
		default:
			c.answer(a)
		}
	}
}

// maxLate is how often a call is retried after it reached Redis too late.
const maxLate = 3

// lateMargin is the time that a caller needs to have left for a retry. One with less would make the others late again.
const lateMargin = 20 * time.Millisecond

// join makes a superseded call wait for the answer of a later call for the same like, if there is one in this process:
// among those after it in its batch, those that are parked or those that wait. It reports whether the call waits.
func (l *lane) join(c *call, after []*call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parked []*call
	if p := l.parked[c.target]; p != nil {
		if i, ok := p.of[c.user]; ok {
			parked = p.calls[i : i+1]
		}
	}
	for _, calls := range [][]*call{after, parked, l.waiting} {
		for _, later := range calls {
			if later.target == c.target && later.user == c.user && later.liked == c.liked {
				if c = c.again(); c != nil {
					later.also = slices.Concat(c.also, []*call{c}, later.also)
				}
				return true
			}
		}
	}
	return false
}

// retryLate queues late calls again, first of all, if the clock of the server was unknown or that of another server, if
// the estimate of it was off, or if another caller's deadline was near.
func (l *lane) retryLate(order []*call, known bool) {
	var again []*call
	now := time.Now()
	for _, c := range order {
		if known {
			l.gate.count(Late)
			if c.late++; c.late > maxLate || !c.ends.IsZero() && c.ends.Sub(now) < lateMargin {
				c.answer(answer{outcome: Late, err: errors.New("the call reached redis too late")})
				continue
			}
		}
		if c = c.again(); c != nil {
			again = append(again, c)
		}
	}
	l.mu.Lock()
	l.waiting = append(again, l.waiting...)
	l.mu.Unlock()
}

// park keeps a call until its target is loaded or, if that was deleted, MySQL was asked whether it was restored. A
// later call of the same user takes the place of an earlier one.
func (l *lane) park(c *call, gone bool) {
	if c = c.again(); c == nil {
		return
	}
	c.asked = false
	l.mu.Lock()
	parked, ok := l.parked[c.target]
	if !ok {
		parked = &parking{of: map[int64]int{}, limit: parkingLimit}
		l.parked[c.target] = parked
	}
	superseded := parked.add(c)
	if superseded != nil && superseded.liked == c.liked {
		c.also, superseded = slices.Concat(superseded.also, []*call{superseded}, c.also), nil
	}
	l.mu.Unlock()
	if superseded != nil {
		superseded = superseded.taken()
	}
	if superseded != nil {
		superseded.answer(answer{outcome: Superseded})
	}
	switch {
	case ok:
	case gone:
		go func() { l.resume(c.target, l.gate.reopen(c.target, func() { l.ask(c.target) })) }()
	default:
		target := c.target
		l.gate.loader.add(target, func() { l.ask(target) }, func(err error) { l.resume(target, err) })
	}
}

// ask marks the parked calls of a target, because MySQL is asked about it now.
func (l *lane) ask(target models.Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if parked := l.parked[target]; parked != nil {
		for _, c := range parked.all() {
			c.asked = true
		}
	}
}

// resume queues the parked calls of a target, before those that arrived later. If err is not nil, it answers them with
// err. An answer from before the target was created or restored must not reach a call that came after it, so those that
// were parked since MySQL was asked go to the gate once more.
func (l *lane) resume(target models.Target, err error) {
	missing := models.ErrorCode(err) == models.CodeNotFound
	l.mu.Lock()
	var parked []*call
	if waiting := l.parked[target]; waiting != nil {
		parked = waiting.all()
	}
	delete(l.parked, target)
	var failed []*call
	if err != nil {
		parked = slices.DeleteFunc(slices.Clone(parked), func(c *call) bool {
			if missing && !c.asked {
				return false
			}
			failed = append(failed, c)
			return true
		})
	}
	l.waiting = append(parked, l.waiting...)
	l.start()
	l.mu.Unlock()
	outcome := Failed
	if missing {
		outcome = Gone
	}
	for _, c := range failed {
		if c = c.taken(); c != nil {
			c.answer(answer{outcome: outcome, err: err})
		}
	}
}
