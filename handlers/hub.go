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
	metrics streamMetrics

	mu      sync.Mutex // guards all below
	watched map[models.Target]*watched
	streams map[*stream]struct{}
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
}

// counts is what a stream tells of a target. It does not change.
type counts struct {
	gone   bool
	event  []byte // as it is sent, without an id
	digest string // stands for event in the ids of streams, in digestLength characters
}

const digestLength = 4

// watched is a target that somebody watches.
type watched struct {
	target  models.Target
	counts  atomic.Pointer[counts]
	streams map[*stream]struct{} // guarded by hub.mu
}

type streamMetrics struct {
	open    prometheus.GaugeFunc
	targets prometheus.GaugeFunc
	events  prometheus.Counter
	dropped prometheus.Counter
}

// roundTimeout bounds the queries of one round.
const roundTimeout = 5 * time.Second

func newHub(registry *prometheus.Registry, log *slog.Logger, read func(context.Context, []models.Target) (map[models.Target]*counts, error)) (*hub, error) {
	h := &hub{
		read: read, log: log,
		pace:    streamPace{round: time.Second, heartbeat: 15 * time.Second, write: 5 * time.Second},
		watched: map[models.Target]*watched{}, streams: map[*stream]struct{}{},
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

// open is how many streams there are; no more are taken once the hub has stopped.
func (h *hub) open() (n int, stopped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.streams), h.stopped
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

// join lets a stream watch its targets, whose counts the caller has just read. false: the hub has stopped.
func (h *hub) join(s *stream, targets []models.Target, known map[models.Target]*counts) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	h.streams[s] = struct{}{}
	for i, t := range targets {
		w := h.watched[t]
		if w == nil {
			w = &watched{target: t, streams: map[*stream]struct{}{}}
			w.counts.Store(known[t])
			h.watched[t] = w
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
	return true
}

func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
	for _, w := range s.targets {
		if delete(w.streams, s); len(w.streams) == 0 {
			delete(h.watched, w.target)
		}
	}
}

// run makes a round after the other until nothing is watched or ctx ends. A round that takes long delays the next.
func (h *hub) run(ctx context.Context) {
	beat := time.NewTicker(h.pace.round)
	defer beat.Stop()
	failing := false
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
		reading, cancel := context.WithTimeout(ctx, roundTimeout)
		now, err := h.read(reading, targets)
		cancel()
		switch {
		case err == nil:
			h.publish(now)
		case !failing && ctx.Err() == nil:
			h.log.Warn("streams get no news until the counts can be read again", "error", err)
		}
		failing = err != nil
	}
}

// targets gives what is watched; when that is nothing the rounds end.
func (h *hub) targets() []models.Target {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rounds = len(h.watched) > 0
	return slices.Collect(maps.Keys(h.watched))
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

// activities reads the counts of targets. Those that are gone are there too, and say so.
func (s *Server) activities(ctx context.Context, targets []models.Target) (map[models.Target]*counts, error) {
	found, err := s.store.Activities(ctx, targets)
	if err != nil {
		return nil, err
	}
	rows := make([]models.TargetCount, len(found))
	for i, a := range found {
		rows[i] = models.TargetCount{Target: a.Target, Count: a.Likes}
	}
	var likes []models.LikeState
	for chunk := range slices.Chunk(rows, 1000) {
		states, err := s.likes.LikeStates(ctx, 0, chunk)
		if err != nil {
			return nil, err
		}
		likes = append(likes, states...)
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
