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
	for i, item := range slices.Backward(c.also) {
		if item.take() {
			return item.inPlaceOf(c, i)
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
	for _, item := range c.also {
		if item.take() {
			item.done <- a
		}
	}
}

// gateScript is a script of the gate.
type gateScript struct {
	name string
	read func(reply any) shardReply // reads the reply to one
}

// shardReply is what a script replied to a parcel.
type shardReply struct {
	head    []int64
	site    string // of the shard, in the reply to a late call
	answers []answer
	err     error
}

// parts returns what the script replied to each parcel of a call. If err is not nil, it replied nothing.
func (s gateScript) parts(reply *redis.Cmd) ([]shardReply, error) {
	values, err := reply.Slice()
	if err != nil {
		return nil, err
	}
	parts := make([]shardReply, len(values))
	for i, value := range values {
		if failed, ok := value.(error); ok {
			parts[i].err = failed
			continue
		}
		list, _ := value.([]any)
		if len(list) == 5 && list[0] == int64(6) {
			parts[i] = s.read(list[:4])
			parts[i].site, _ = list[4].(string)
			continue
		}
		parts[i] = s.read(value)
	}
	return parts, nil
}

// likeScript is the gate of likes.
var likeScript = gateScript{"like", func(reply any) (part shardReply) {
	values, _ := reply.([]any)
	numbers := make([]int64, len(values))
	for i, value := range values {
		numbers[i], _ = value.(int64)
	}
	if len(numbers) < 2 || numbers[0] != 0 {
		part.head = numbers
		return part
	}
	part.head, part.answers = numbers[:2], make([]answer, 0, len(numbers)/2)
	for i := 2; i+1 < len(numbers); i += 2 {
		part.answers = append(part.answers, answer{outcome: outcomes[numbers[i]], count: numbers[i+1]})
	}
	return part
}}

// sender sends the calls of its lanes. At most one call of the script is in flight; likes that arrive meanwhile share
// the next one. An idle site waits for nothing. Under load, one script and one round trip carry many likes, and one
// entry of an outbox those of its shard.
type sender struct {
	gate   *shardGate
	script gateScript

	mu      sync.Mutex // of its lanes, too
	ready   []*lane    // those with calls that wait, each once
	running bool
}

// lane gathers the likes of a shard, or its claims, in the order of their arrival.
type lane struct {
	*sender

	shard   int
	queued  bool // it is in ready
	waiting []*call
	parked  map[models.Target]*parking
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
		for _, item := range calls {
			if item.state.Load() != callLeft || len(item.also) > 0 {
				p.append(item)
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

// maxBatch is the maximum number of likes in one call of the gate. Redis works on them for about 0.3 ms if they are of
// one target, and for 1 ms if each is of another.
const maxBatch = 128

// add queues a call. If no call is in flight, add sends the call itself, and returns with its answer: a goroutine for
// it would cost a lone like a third of its time. If its target is being loaded, the call goes to the gate nevertheless,
// for the ticket that keeps its order with calls of other processes.
func (l *lane) add(c *call) {
	l.mu.Lock()
	l.waiting = append(l.waiting, c)
	l.queue()
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

// queue makes the lane ready if calls wait in it. The caller holds mu.
func (l *lane) queue() {
	if !l.queued && len(l.waiting) > 0 {
		l.queued = true
		l.ready = append(l.ready, l)
	}
}

// start starts run if a lane is ready and it is not running. The caller holds s.mu.
func (s *sender) start() {
	if !s.running && len(s.ready) > 0 {
		s.running = true
		go s.run()
	}
}

// run sends batches until no call waits.
func (s *sender) run() {
	for {
		if s.sendNext() > 1 {
			runtime.Gosched() // to callers that have their answers, and may have another like for the next batch
		}
		s.mu.Lock()
		if len(s.ready) == 0 {
			s.ready, s.running = nil, false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// parcel holds the calls of one lane that are sent together.
type parcel struct {
	lane  *lane
	calls []*call // those of a target follow one another; those of different targets have no order
	period
}

// sendNext sends the next batch, and returns its size.
func (s *sender) sendNext() int {
	batch, size := s.next()
	if size > 0 {
		s.send(batch)
	}
	return size
}

// next takes the calls of the next batch. A lane with more calls than fit goes to the end of the queue.
func (s *sender) next() (batch []parcel, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for room := maxBatch; room > 0 && len(s.ready) > 0; {
		l := s.ready[0]
		s.ready = s.ready[1:]
		n := min(len(l.waiting), room)
		calls := make([]*call, 0, n)
		for _, c := range l.waiting[:n] {
			if c := c.taken(); c != nil {
				calls = append(calls, c)
			}
		}
		clear(l.waiting[:n])
		if l.waiting, l.queued = l.waiting[n:], false; len(l.waiting) == 0 {
			l.waiting = nil
		}
		l.queue()
		if room -= n; len(calls) > 0 {
			batch, size = append(batch, parcel{lane: l, calls: calls}), size+len(calls)
		}
	}
	return batch, size
}

// send makes one call of the gate, and answers its likes or lets them wait.
func (s *sender) send(batch []parcel) {
	begin, ends := time.Now(), callLimit
	calls := 0
	for _, p := range batch {
		calls += len(p.calls)
		for _, c := range p.calls {
			if !c.ends.IsZero() {
				ends = min(ends, c.ends.Sub(begin))
			}
		}
	}
	keys, args := make([]string, 0, 2*len(batch)+calls), make([]any, 1, 1+5*len(batch)+3*calls)
	args[0] = s.gate.limit
	for i := range batch {
		batch[i].period = s.gate.period(batch[i].lane.shard, begin, ends)
		keys, args = batch[i].words(keys, args)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	replies, err := s.script.parts(s.gate.redis.runOnce(ctx, s.script.name, keys, args...))
	if err == nil && len(replies) != len(batch) {
		err = fmt.Errorf("the gate replied to %d shards, not %d", len(replies), len(batch))
	}
	if err != nil && mayArrive(err) {
		// What the network still holds is rejected from then on. Before, it could undo the caller's next call.
		<-time.After(time.Until(begin.Add(ends)))
		s.gate.lapse(batch)
	}
	for i, p := range batch {
		if err != nil {
			p.fail(err)
			continue
		}
		p.answer(replies[i])
	}
}

// words appends the keys and arguments of the parcel to those of a call. It groups the calls of the parcel by target.
func (p *parcel) words(keys []string, args []any) ([]string, []any) {
	at := map[models.Target]int{}
	var groups [][]*call
	for _, c := range p.calls {
		i, ok := at[c.target]
		if !ok {
			i = len(groups)
			at[c.target], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	gate, shard := p.lane.gate, p.lane.shard
	keys = append(keys, shardKey(shard), outboxKey(shard))
	args = append(args, p.earliest, p.deadline, p.epoch, p.turn, len(groups))
	p.calls = p.calls[:0]
	for _, group := range groups {
		target := group[0].target
		keys = append(keys, gate.redis.likesKey(target))
		args = append(args, target.Short(), len(group))
		for _, c := range group {
			args = append(args, c.word())
		}
		p.calls = append(p.calls, group...)
	}
	return keys, args
}

func (p *parcel) fail(err error) {
	for _, c := range p.calls {
		c.answer(answer{outcome: Failed, err: err})
	}
}

// answer answers the calls of a parcel, or lets them wait.
func (p *parcel) answer(r shardReply) {
	l := p.lane
	want := map[int64]int{0: 2, 1: 2, 6: 4, 14: 2}
	if r.err == nil && (len(r.head) == 0 || len(r.head) != want[r.head[0]] ||
		r.head[0] == 0 && len(r.answers) != len(p.calls)) {
		r.err = fmt.Errorf("the gate replied %d numbers and %d answers to %d calls", len(r.head), len(r.answers),
			len(p.calls))
	}
	if site := l.gate.redis.site; r.err == nil && r.site != "" && site != "" && r.site != site {
		r.err = foreign(l.shard, site, r.site)
	}
	if r.err != nil {
		p.fail(r.err)
		return
	}
	switch outcome := outcomes[r.head[0]]; outcome {
	case Unchanged:
		l.gate.heard(l.shard, r.head[1], p.epoch, p.turn)
		l.settle(p.calls, r.answers)
	case Late:
		l.retryLate(p.calls, l.gate.heard(l.shard, r.head[1], r.head[2], r.head[3]))
	default:
		for _, c := range p.calls {
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

// retryLate queues late calls again, first of all, if the clock of the server was unknown, set back or that of another
// server, if the estimate of it was off, or if another caller's deadline was near.
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
	defer l.mu.Unlock()
	l.waiting = append(again, l.waiting...)
	l.queue()
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
	l.queue()
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
