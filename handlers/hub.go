package handlers

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

// hub knows what the open streams watch, and asks for it once in each round: a target that ten thousand clients watch
// costs as much as one that a single client does, and when nobody watches anything there are no rounds.
//
// The hub holds the latest counts of each watched target and nothing else. A stream compares them with what it sent
// last; so nothing is ever queued for a client, and one that is slow misses what is outdated by the time it reads on.
type hub struct {
	read    func(ctx context.Context, targets []models.Target) (map[models.Target]*counts, error)
	log     *slog.Logger
	pace    streamPace
	limits  streamLimits
	metrics streamMetrics

	mu      sync.Mutex // guards all below
	watched map[models.Target]*watched
	streams map[*stream]struct{}
	of      map[string]*holding // what each network of clients has; no entry without a stream
	stopped bool
	rounds  bool           // whether the goroutine of the rounds runs
	stop    func()         // ends it; never nil
	running sync.WaitGroup // that goroutine, and two for each stream
}

// streamPace is how a stream passes its time.
type streamPace struct {
	round     time.Duration // between two looks at the counts, and between two writes to a client
	heartbeat time.Duration // a client that there is no news for hears from us so often
	write     time.Duration // a client that has not taken what was written to it by then is dropped
	read      time.Duration // bounds the queries of one round
}

// streamLimits are what a process takes at most.
type streamLimits struct {
	streams int
	targets int // that streams watch together: each costs a part of every round
	// ofOne is the share of one address, as networkOf counts those; nil means that addresses are not limited. The last
	// quarter of streams and of targets is a reserve, in which an address may have only as much as few. So addresses that
	// use their whole share leave room for others.
	ofOne, few *share
}

// share is a part of what a process takes.
type share struct{ streams, targets int }

// newStreamLimits returns the limits of a process that holds so many streams. Those of an address are multiplied by
// factor; 0 means that there are none.
func newStreamLimits(streams int, factor float64) streamLimits {
	l := streamLimits{streams: streams, targets: maxWatched}
	if factor > 0 {
		l.ofOne = &share{max(1, int(maxStreamsOfOne*factor)), max(maxStreamTargets, int(maxWatchedOfOne*factor))}
		l.few = &share{min(fewStreams, l.ofOne.streams), maxStreamTargets}
	}
	return l
}

// holding is what the streams of one address have.
type holding struct {
	streams int
	targets map[models.Target]int // how many of the streams watch it
}

// counts is what a stream tells of a target. It does not change.
type counts struct {
	gone   bool
	event  []byte // as it is sent, without an id
	digest string // stands for event in the ids of streams, in digestLength characters
}

const digestLength = 4

// watched is a target that somebody watches. What was gone already when a stream began is no target of the rounds: ids
// that never were would cost a part of each, and nobody can make as many posts as ids.
type watched struct {
	target  models.Target
	counted bool // a target of the rounds
	counts  atomic.Pointer[counts]
	streams map[*stream]struct{} // guarded by hub.mu
}

type streamMetrics struct {
	open    prometheus.GaugeFunc
	targets prometheus.GaugeFunc
	events  prometheus.Counter
	dropped prometheus.Counter
}

// roundChunk is how many targets are read at a time, and heard of before the next are read.
const roundChunk = 1000

func newHub(registry *prometheus.Registry, log *slog.Logger, limits streamLimits, read func(context.Context, []models.Target) (map[models.Target]*counts, error)) (*hub, error) {
	h := &hub{
		read: read, log: log, limits: limits,
		pace:    streamPace{round: time.Second, heartbeat: 15 * time.Second, write: 5 * time.Second, read: 5 * time.Second},
		watched: map[models.Target]*watched{}, streams: map[*stream]struct{}{}, of: map[string]*holding{},
		stop: func() {},
	}
	gauge := func(name, help string, value func() int) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			h.mu.Lock()
			defer h.mu.Unlock()
			return float64(value())
		})
	}
	h.metrics = streamMetrics{
		open:    gauge("likewise_streams", "Open streams of counts.", func() int { return len(h.streams) }),
		targets: gauge("likewise_stream_targets", "Posts and comments that open streams watch.", func() int { return len(h.watched) }),
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "likewise_stream_events_total",
			Help: "Events written to streams."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "likewise_streams_dropped_total",
			Help: "Streams that were ended because their client did not read."}),
	}
	for _, c := range []prometheus.Collector{h.metrics.open, h.metrics.targets, h.metrics.events, h.metrics.dropped} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return h, nil
}

// admit says whether a client at from could join now, to watch those of targets that are not gone. CodeUnavailable,
// CodeRateLimited. Who is admitted may find the last place taken by the time they join.
func (h *hub) admit(from string, targets []models.Target, known map[models.Target]*counts) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refusal(from, targets, known)
}

// refusal is admit with the lock held.
func (h *hub) refusal(from string, targets []models.Target, known map[models.Target]*counts) error {
	mine := h.of[from]
	if mine == nil {
		mine = &holding{}
	}
	more, moreOfMine := 0, 0
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
		return models.Unavailable("The server is about to stop; try again.", errStopping)
	case len(h.streams) >= h.limits.streams:
		return models.Errorf(models.CodeUnavailable, "The server has as many streams as it takes; try again.")
	case more > 0 && len(h.watched)+more > h.limits.targets:
		return models.Errorf(models.CodeUnavailable, "The streams of the server watch as much as it can read; try again.")
	case h.limits.ofOne == nil:
		return nil
	}
	allowed := *h.limits.ofOne
	if len(h.streams) >= h.limits.streams-h.limits.streams/4 {
		allowed.streams = h.limits.few.streams
	}
	if len(h.watched)+more > h.limits.targets-h.limits.targets/4 {
		allowed.targets = h.limits.few.targets
	}
	switch {
	case mine.streams >= allowed.streams:
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: retryCrowded,
			Message: "Your address has as many streams as one may have now; close some, and try again."}
	// Also if others watch the targets already: they may leave, and the targets would stay.
	case moreOfMine > 0 && len(mine.targets)+moreOfMine > allowed.targets:
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: retryCrowded,
			Message: "The streams of your address watch as many posts and comments as those of one may now; close some, and try again."}
	}
	return nil
}

// latest gives what is known of those targets that are watched.
func (h *hub) latest(targets []models.Target) map[models.Target]*counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := map[models.Target]*counts{}
	for _, t := range targets {
		if w := h.watched[t]; w != nil {
			known[t] = w.counts.Load()
		}
	}
	return known
}

// join lets a stream watch its targets, whose counts the caller has just read. Its errors are those of admit.
func (h *hub) join(s *stream, targets []models.Target, known map[models.Target]*counts) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refusal(s.from, targets, known); err != nil {
		return err
	}
	h.streams[s] = struct{}{}
	mine := h.of[s.from]
	if mine == nil {
		mine = &holding{targets: map[models.Target]int{}}
		h.of[s.from] = mine
	}
	mine.streams++
	for i, t := range targets {
		w := h.watched[t]
		if w == nil {
			w = &watched{target: t, counted: !known[t].gone, streams: map[*stream]struct{}{}}
			w.counts.Store(known[t])
			if w.counted {
				h.watched[t] = w
			}
		}
		if w.counted {
			mine.targets[t]++
		}
		w.streams[s] = struct{}{}
		s.targets[i] = w
	}
	h.running.Add(2) // serve and discard
	if !h.rounds {
		ctx, stop := context.WithCancel(context.Background())
		h.rounds, h.stop = true, stop
		h.running.Go(func() {
			defer stop()
			h.run(ctx)
		})
	}
	return nil
}

func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
	mine := h.of[s.from]
	if mine.streams--; mine.streams == 0 {
		delete(h.of, s.from)
	}
	for _, w := range s.targets {
		if w.counted {
			if mine.targets[w.target]--; mine.targets[w.target] == 0 {
				delete(mine.targets, w.target)
			}
		}
		if delete(w.streams, s); len(w.streams) == 0 && h.watched[w.target] == w {
			delete(h.watched, w.target)
		}
	}
}

// run makes a round after the other until nothing is watched or ctx ends. A round that takes long delays the next, and
// one that does not get to the end is where the next goes on.
func (h *hub) run(ctx context.Context) {
	beat := time.NewTicker(h.pace.round)
	defer beat.Stop()
	failing := false
	var left []models.Target // that the last round did not get to
	for {
		select {
		case <-ctx.Done():
			return
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
			h.log.Warn("streams get late news, or none, until the counts can be read again", "error", err)
		}
		failing = err != nil
	}
}

// round tells the streams of targets, as far as these can be read within the time of a round, and gives those that are
// left with the error that kept it from them. What cannot be read though the round began with it is passed over, lest
// others wait for it.
func (h *hub) round(ctx context.Context, targets []models.Target) (left []models.Target, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.pace.read)
	defer cancel()
	for begun := false; len(targets) > 0; begun = true {
		chunk := targets[:min(roundChunk, len(targets))]
		now, err := h.read(ctx, chunk)
		if err != nil && begun {
			return targets, err
		}
		targets = targets[len(chunk):]
		if err != nil {
			return targets, err
		}
		h.publish(now)
	}
	return nil, nil
}

// targets gives what is watched, shuffled, so that what cannot be read keeps the news from other company each time; when
// it is nothing the rounds end.
func (h *hub) targets() []models.Target {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rounds = len(h.watched) > 0
	targets := slices.Collect(maps.Keys(h.watched))
	rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	return targets
}

// publish tells the streams of what has changed.
func (h *hub) publish(now map[models.Target]*counts) {
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

// shutdown ends every stream and waits until they have ended, or until ctx ends; then its error is returned.
func (h *hub) shutdown(ctx context.Context) error {
	h.mu.Lock()
	h.stopped = true
	h.stop()
	for s := range h.streams {
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

type postCountsJSON struct {
	Type          models.TargetKind `json:"type"`
	ID            int64             `json:"id"`
	LikesCount    int64             `json:"likes_count"`
	CommentsCount int64             `json:"comments_count"`
}

type commentCountsJSON struct {
	Type         models.TargetKind `json:"type"`
	ID           int64             `json:"id"`
	LikesCount   int64             `json:"likes_count"`
	RepliesCount int64             `json:"replies_count"`
}

type goneJSON struct {
	Type models.TargetKind `json:"type"`
	ID   int64             `json:"id"`
}

// activities reads the counts of at most roundChunk targets. Those that are gone are there too, and say so.
func (s *Server) activities(ctx context.Context, targets []models.Target) (map[models.Target]*counts, error) {
	found, err := s.store.Activities(ctx, targets)
	if err != nil {
		return nil, err
	}
	rows := make([]models.TargetCount, len(found))
	for i, a := range found {
		rows[i] = models.TargetCount{Target: a.Target, Count: a.Likes}
	}
	likes, err := s.likes.LikeStates(ctx, 0, rows)
	if err != nil {
		return nil, err
	}
	all := make(map[models.Target]*counts, len(targets))
	for i, a := range found {
		var data any = postCountsJSON{a.Kind, a.ID, likes[i].Count, a.Replies}
		if a.Kind == models.KindComment {
			data = commentCountsJSON{a.Kind, a.ID, likes[i].Count, a.Replies}
		}
		if all[a.Target], err = newCounts("counts", data); err != nil {
			return nil, err
		}
	}
	for _, t := range targets {
		if all[t] == nil {
			if all[t], err = newCounts("gone", goneJSON{t.Kind, t.ID}); err != nil {
				return nil, err
			}
			all[t].gone = true
		}
	}
	return all, nil
}

func newCounts(event string, data any) (*counts, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	sum := sha256.Sum256(append([]byte(event), text...))
	return &counts{
		event:  fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, text),
		digest: base64.RawURLEncoding.EncodeToString(sum[:])[:digestLength],
	}, nil
}

var errStopping = errors.New("the server is stopping")
