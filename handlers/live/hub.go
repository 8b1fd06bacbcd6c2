// Package live sends counts of posts, comments and drops to open streams (server-sent events) as they change.
//
// The Hub reads the counts of all watched targets once in each round, however many streams watch a target, and runs no
// rounds while nothing is watched. It holds the latest counts of each target and nothing else. A stream compares them
// with what it sent last, so nothing is queued for a client: a slow client misses counts that are outdated by the time
// it reads on. A client that does not read at all is disconnected.
//
// The Hub owns the goroutine of its rounds and two for each stream, and Shutdown waits for them. hub.mu guards the
// maps; a stream's connection and what it sent belong to its own goroutines.
package live

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/models"
)

// Bounds of streams.
const (
	// MaxTargets is how many posts, comments and drops one stream may watch: the largest thread, its post and drops.
	// With ids of eight digits, they fit in the header of a request, with an id of an event to resume from.
	MaxTargets = 512
	// MaxStreams is the default bound on the streams of a process. One address may open maxStreamsOfOne of them, times
	// the factor of NewLimits: an address may be that of a school, and may take a hundredth of all.
	MaxStreams      = 10_000
	maxStreamsOfOne = 100
	// MaxWatched bounds the targets of all streams of a process: reading so many takes a second. Streams of one address
	// may watch maxWatchedOfOne of them, times the factor.
	MaxWatched, maxWatchedOfOne = 20_000, 4_000
	// fewStreams and fewTargets are the share of an address while three quarters of all are taken.
	fewStreams, fewTargets = 10, MaxTargets
	// RetryAfter is when a client should retry whose address has too many streams.
	RetryAfter = 10 * time.Second
)

// Reader returns the counts of at most 1000 targets. Its map has an entry for every target, even for deleted ones.
type Reader func(ctx context.Context, targets []models.Target) (map[models.Target]*Counts, error)

// Blocks returns whom each of the viewers blocks.
type Blocks func(ctx context.Context, viewers []int64) (map[int64][]int64, error)

// Hub sends the counts of watched targets to streams. It is safe for concurrent use.
type Hub struct {
	Pace   Pace   // may be changed before the first stream
	Limits Limits // may be changed before the first stream

	read    Reader
	blocks  Blocks
	log     *slog.Logger
	metrics metrics

	mu      sync.Mutex // guards all below
	watched map[models.Target]*watched
	streams map[string]*stream  // by id
	of      map[string]*holding // by the key of the client's address; no entry without a stream
	stopped bool
	rounds  bool           // whether the goroutine of the rounds runs
	stop    func()         // ends it; never nil
	running sync.WaitGroup // that goroutine, and two for each stream
}

// Pace holds the intervals of streams.
type Pace struct {
	Round     time.Duration // between two reads of the counts, and between two writes to a client
	Heartbeat time.Duration // between two writes to a client whose counts do not change
	Write     time.Duration // the deadline of a write, after which the client is disconnected
	Read      time.Duration // the deadline of the queries of one round
	Blocks    time.Duration // between two reads of whom the viewers block
}

// Limits bounds the streams of a process.
type Limits struct {
	Streams int
	Targets int // that all streams watch together: each costs a part of every round
	// ofOne is the share of one address; nil means that addresses are not limited. The last quarter of streams and of
	// targets is a reserve, in which an address may only have the share few. So addresses that use their whole share
	// leave room for others.
	ofOne, few *share
}

// share is a part of what a process takes.
type share struct{ streams, targets int }

// NewLimits returns the limits of a process with at most that many streams. factor multiplies those of an address;
// 0 means that addresses are not limited.
func NewLimits(streams int, factor float64) Limits {
	l := Limits{Streams: streams, Targets: MaxWatched}
	if factor > 0 {
		l.ofOne = &share{max(1, int(maxStreamsOfOne*factor)), max(MaxTargets, int(maxWatchedOfOne*factor))}
		l.few = &share{min(fewStreams, l.ofOne.streams), fewTargets}
	}
	return l
}

// OfOne returns how many streams one address may open; 0 means any number.
func (l Limits) OfOne() int {
	if l.ofOne == nil {
		return 0
	}
	return l.ofOne.streams
}

// holding counts the streams of one address.
type holding struct {
	streams int
	targets map[models.Target]int // how many of the streams watch the target
}

// Counts is the event that streams send about a target. It is immutable.
type Counts struct {
	gone   bool
	event  []byte // as sent, without an id
	digest string // stands for event in the ids of streams, in digestLength characters
	news   *news  // nil if the event is the same for every viewer
}

// news are the comments or posts of an event.
type news struct {
	event string
	items []models.NewsItem
	data  func(ids []int64) any
}

const digestLength = 4

// watched is a target of at least one stream. The rounds skip a target that was deleted or unknown when the stream
// began: clients can invent any number of ids, and each would cost a part of every round.
type watched struct {
	target  models.Target
	counted bool // read in the rounds
	counts  atomic.Pointer[Counts]
	streams map[*stream]int // how often each follows it: twice while it changes; guarded by Hub.mu
}

type metrics struct {
	open    prometheus.GaugeFunc
	targets prometheus.GaugeFunc
	events  prometheus.Counter
	dropped prometheus.Counter
}

// chunk is how many targets are read at a time, and published before the next are read.
const chunk = 1000

// NewHub returns a Hub without streams and registers its metrics.
func NewHub(registry *prometheus.Registry, log *slog.Logger, limits Limits, read Reader, blocks Blocks) (*Hub, error) {
	h := &Hub{
		read: read, blocks: blocks, log: log, Limits: limits,
		Pace: Pace{
			Round: time.Second, Heartbeat: 15 * time.Second, Write: 5 * time.Second, Read: 5 * time.Second,
			Blocks: time.Minute,
		},
		watched: map[models.Target]*watched{}, streams: map[string]*stream{}, of: map[string]*holding{},
		stop: func() {},
	}
	gauge := func(name, help string, value func() int) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			h.mu.Lock()
			defer h.mu.Unlock()
			return float64(value())
		})
	}
	h.metrics = metrics{
		open: gauge("likewise_streams", "Open streams of counts.", func() int { return len(h.streams) }),
		targets: gauge("likewise_stream_targets", "Posts, comments and drops that open streams watch.",
			func() int { return len(h.watched) }),
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "likewise_stream_events_total",
			Help: "Events written to streams."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "likewise_streams_dropped_total",
			Help: "Streams that were closed because their client did not read."}),
	}
	for _, c := range []prometheus.Collector{h.metrics.open, h.metrics.targets, h.metrics.events, h.metrics.dropped} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return h, nil
}

// Admit returns an error if a client at from cannot open a stream of targets now: CodeUnavailable, or CodeRateLimited
// if its address has too many. An admitted client may still be refused by Serve, if the last place was taken meanwhile.
func (h *Hub) Admit(from string, targets []models.Target, known map[models.Target]*Counts) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refusal(from, targets, known, nil)
}

// refusal is Admit with the lock held. If the targets are to replace those of a stream, it returns an error only if
// more are followed then.
func (h *Hub) refusal(
	from string, targets []models.Target, known map[models.Target]*Counts, of *stream,
) error {
	mine := h.of[from]
	if mine == nil {
		mine = &holding{}
	}
	more, moreOfMine := 0, 0
	if of != nil {
		left, leftOfMine := h.leftBy(of, mine, targets)
		more, moreOfMine = -left, -leftOfMine
	}
	for _, t := range targets {
		if h.watched[t] == nil && known[t].gone {
			continue
		}
		if h.watched[t] == nil {
			more++
		}
		if mine.targets[t] == 0 {
			moreOfMine++
		}
	}
	switch {
	case h.stopped:
		return models.Unavailable("The server is stopping; try again.", errStopping)
	case of == nil && len(h.streams) >= h.Limits.Streams:
		return models.Errorf(models.CodeUnavailable, "The server has reached its limit of streams; try again.")
	case more > 0 && len(h.watched)+more > h.Limits.Targets:
		return models.Errorf(models.CodeUnavailable,
			"The server has reached its limit of watched posts, comments and drops; try again.")
	case h.Limits.ofOne == nil:
		return nil
	}
	allowed := *h.Limits.ofOne
	if len(h.streams) >= h.Limits.Streams-h.Limits.Streams/4 {
		allowed.streams = h.Limits.few.streams
	}
	if len(h.watched)+more > h.Limits.Targets-h.Limits.Targets/4 {
		allowed.targets = h.Limits.few.targets
	}
	switch {
	case of == nil && mine.streams >= allowed.streams:
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: RetryAfter,
			Message: "Your address has too many open streams; close some and try again."}
	// Even if other addresses watch the targets already: they may leave, and the targets would stay.
	case moreOfMine > 0 && len(mine.targets)+moreOfMine > allowed.targets:
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: RetryAfter,
			Message: "The streams of your address watch too many posts, comments and drops; close some and try again."}
	}
	return nil
}

// leftBy returns how many targets nobody follows, and how many the address does not follow, once a stream follows
// others alone.
func (h *Hub) leftBy(s *stream, mine *holding, others []models.Target) (left, leftOfMine int) {
	kept := make(map[models.Target]bool, len(others))
	for _, t := range others {
		kept[t] = true
	}
	for _, w := range s.follows.Load().targets {
		if !w.counted || kept[w.target] {
			continue
		}
		if len(w.streams) == 1 && h.watched[w.target] == w {
			left++
		}
		if mine.targets[w.target] == 1 {
			leftOfMine++
		}
	}
	return left, leftOfMine
}

// Latest returns the latest counts of the targets that are watched.
func (h *Hub) Latest(targets []models.Target) map[models.Target]*Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := map[models.Target]*Counts{}
	for _, t := range targets {
		if w := h.watched[t]; w != nil {
			known[t] = w.counts.Load()
		}
	}
	return known
}

// Holds reports whether an open stream has the id and belongs to the owner.
func (h *Hub) Holds(id string, owner [32]byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.streams[id]
	return s != nil && s.owner == owner
}

// ErrNoStream means that no open stream has the id, or that it belongs to another owner.
var ErrNoStream = &models.Error{Code: models.CodeNotFound, Message: "The stream was not found; it may have ended."}

// Change replaces what a stream follows. The counts of targets that it did not follow are sent at once. Change returns
// ErrNoStream, or an error of Admit; then the stream follows what it did.
func (h *Hub) Change(id string, owner [32]byte, f Following) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.streams[id]
	if s == nil || s.owner != owner {
		return ErrNoStream
	}
	if err := h.refusal(s.from, f.Targets, f.Known, s); err != nil {
		return err
	}
	before := s.follows.Load()
	h.watch(s, f)
	h.unwatch(s, before)
	select {
	case s.replaced <- struct{}{}:
	default: // it has not begun to send the last change
	}
	return nil
}

// join adds a stream and what it follows. Its errors are those of Admit.
func (h *Hub) join(s *stream, f Following) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refusal(s.from, f.Targets, f.Known, nil); err != nil {
		return err
	}
	h.streams[s.id] = s
	if h.of[s.from] == nil {
		h.of[s.from] = &holding{targets: map[models.Target]int{}}
	}
	h.of[s.from].streams++
	h.watch(s, f)
	h.running.Add(2) // serve and discard
	if !h.rounds {
		h.begin()
	}
	return nil
}

// begin begins the rounds. h.mu is locked.
func (h *Hub) begin() {
	ctx, stop := context.WithCancel(context.Background())
	h.rounds, h.stop = true, stop
	h.running.Go(func() {
		defer stop()
		h.run(ctx)
	})
}

// watch makes a stream follow targets. h.mu is locked.
func (h *Hub) watch(s *stream, f Following) {
	mine := h.of[s.from]
	now := &follows{targets: make([]*watched, len(f.Targets)), private: f.Private, news: f.News}
	for i, t := range f.Targets {
		w := h.watched[t]
		if w == nil {
			w = &watched{target: t, counted: !f.Known[t].gone, streams: map[*stream]int{}}
			w.counts.Store(f.Known[t])
			if w.counted {
				h.watched[t] = w
			}
		}
		if w.counted {
			mine.targets[t]++
		}
		w.streams[s]++
		now.targets[i] = w
	}
	blocked := setOf(f.Blocked)
	s.blocked.Store(&blocked)
	s.follows.Store(now)
}

// unwatch makes a stream follow targets no longer. h.mu is locked.
func (h *Hub) unwatch(s *stream, f *follows) {
	mine := h.of[s.from]
	for _, w := range f.targets {
		if w.counted {
			if mine.targets[w.target]--; mine.targets[w.target] == 0 {
				delete(mine.targets, w.target)
			}
		}
		if w.streams[s]--; w.streams[s] == 0 {
			delete(w.streams, s)
		}
		if len(w.streams) == 0 && h.watched[w.target] == w {
			delete(h.watched, w.target)
		}
	}
}

func (h *Hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s.id)
	h.unwatch(s, s.follows.Load())
	if mine := h.of[s.from]; mine.streams > 1 {
		mine.streams--
	} else {
		delete(h.of, s.from)
	}
}

// run runs rounds until nothing is watched or ctx ends. A long round delays the next, and a round that times out is
// continued by the next.
func (h *Hub) run(ctx context.Context) {
	beat := time.NewTicker(h.Pace.Round)
	defer beat.Stop()
	blocks := time.NewTicker(h.Pace.Blocks)
	defer blocks.Stop()
	failing := false
	var left []models.Target // that the last round did not reach
	for {
		select {
		case <-ctx.Done():
			return
		case <-blocks.C:
			if err := h.readBlocks(ctx); err != nil && ctx.Err() == nil {
				h.log.WarnContext(ctx, "streams may have news of users whom their viewers block", "error", err)
			}
			continue
		case <-beat.C:
		}
		targets := h.targets()
		if len(targets) == 0 {
			return
		}
		if len(left) == 0 {
			left = targets
		}
		var err error
		if left, err = h.round(ctx, left); err != nil && !failing && ctx.Err() == nil {
			h.log.Warn("streams are late until the counts can be read again", "error", err)
		}
		failing = err != nil
	}
}

// round reads the counts of targets and publishes them, until Pace.Read has passed. It returns the targets that are
// left and the error that ended it. If the first chunk cannot be read, round skips it, so that the others do not wait
// for it.
func (h *Hub) round(ctx context.Context, targets []models.Target) (left []models.Target, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.Pace.Read)
	defer cancel()
	for begun := false; len(targets) > 0; begun = true {
		batch := targets[:min(chunk, len(targets))]
		now, err := h.read(ctx, batch)
		if err != nil && begun {
			return targets, err
		}
		targets = targets[len(batch):]
		if err != nil {
			return targets, err
		}
		h.publish(now)
	}
	return nil, nil
}

// readBlocks reads whom the viewers block whose streams have news.
func (h *Hub) readBlocks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.Pace.Read)
	defer cancel()
	streams := map[int64][]*stream{}
	h.mu.Lock()
	for _, s := range h.streams {
		if s.viewer != 0 && s.follows.Load().news {
			streams[s.viewer] = append(streams[s.viewer], s)
		}
	}
	h.mu.Unlock()
	for viewers := range slices.Chunk(slices.Collect(maps.Keys(streams)), chunk) {
		blocked, err := h.blocks(ctx, viewers)
		if err != nil {
			return err
		}
		for _, viewer := range viewers {
			for _, s := range streams[viewer] {
				if now := setOf(blocked[viewer]); !maps.Equal(now, *s.blocked.Load()) {
					s.blocked.Store(&now)
					s.wake()
				}
			}
		}
	}
	return nil
}

func setOf(users []int64) map[int64]bool {
	if len(users) == 0 {
		return nil // as of nearly every stream
	}
	set := make(map[int64]bool, len(users))
	for _, user := range users {
		set[user] = true
	}
	return set
}

// targets returns the watched targets in random order, so that a chunk that cannot be read holds other targets in each
// round. Without targets it ends the rounds.
func (h *Hub) targets() []models.Target {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rounds = len(h.watched) > 0
	targets := slices.Collect(maps.Keys(h.watched))
	rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	return targets
}

// publish stores the counts that have changed and wakes the streams of their targets.
func (h *Hub) publish(now map[models.Target]*Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for target, counts := range now {
		w := h.watched[target]
		if w == nil || string(w.counts.Load().event) == string(counts.event) {
			continue
		}
		w.counts.Store(counts)
		for s := range w.streams {
			s.wake()
		}
	}
}

// Shutdown ends every stream and refuses new ones. It waits for their goroutines; if ctx ends before, it returns an
// error.
func (h *Hub) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	h.stopped = true
	h.stop()
	for _, s := range h.streams {
		s.end()
	}
	h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		h.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end streams: %w", ctx.Err())
	}
}

// NewCounts returns the event of a target: its name, and data as JSON.
func NewCounts(event string, data any) (*Counts, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	sum := sha256.Sum256(append([]byte(event), text...))
	return &Counts{
		event:  fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, text),
		digest: base64.RawURLEncoding.EncodeToString(sum[:])[:digestLength],
	}, nil
}

// NewGone returns the event of a target that is deleted or unknown.
func NewGone(event string, data any) (*Counts, error) {
	c, err := NewCounts(event, data)
	if err == nil {
		c.gone = true
	}
	return c, err
}

// NewNews returns the event of a target whose data has the ids of comments or posts. A stream leaves out those of users
// whom its viewer blocks.
func NewNews(event string, items []models.NewsItem, data func(ids []int64) any) (*Counts, error) {
	n := &news{event, items, data}
	c, err := n.counts(nil)
	if err == nil {
		c.news = n
	}
	return c, err
}

func (n *news) counts(blocked map[int64]bool) (*Counts, error) {
	ids := make([]int64, 0, len(n.items))
	for _, item := range n.items {
		if !blocked[item.UserID] {
			ids = append(ids, item.ID)
		}
	}
	return NewCounts(n.event, n.data(ids))
}

// without returns the event for a viewer who blocks these users.
func (c *Counts) without(blocked map[int64]bool) *Counts {
	if c.news == nil || !slices.ContainsFunc(c.news.items, func(i models.NewsItem) bool { return blocked[i.UserID] }) {
		return c
	}
	if seen, err := c.news.counts(blocked); err == nil { // it always is: the data was encoded before
		return seen
	}
	return c
}

// Gone reports whether the target is deleted or unknown.
func (c *Counts) Gone() bool { return c.gone }

var errStopping = errors.New("the server is stopping")
