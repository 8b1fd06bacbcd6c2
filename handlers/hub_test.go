package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/internal/testkit"
	"likewise/models"
)

var errUnreadable = errors.New("it cannot be read")

// newSlowHub watches the given number of posts. Two chunks of them can be read within a round and no more, and what
// has the post that is bad not at all.
func newSlowHub(t *testing.T, posts int, bad int64) (watching *stream) {
	t.Helper()
	var mu sync.Mutex
	reads := map[context.Context]int{}
	read := func(ctx context.Context, targets []models.Target) (map[models.Target]*counts, error) {
		mu.Lock()
		reads[ctx]++
		n := reads[ctx]
		mu.Unlock()
		if n > 2 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if slices.Contains(targets, postTarget(bad)) {
			return nil, errUnreadable
		}
		now := map[models.Target]*counts{}
		for _, target := range targets {
			now[target] = &counts{event: []byte("new")}
		}
		return now, nil
	}
	log := slog.New(slog.DiscardHandler)
	h, err := newHub(prometheus.NewRegistry(), log, streamLimits{streams: 1, targets: posts}, read)
	if err != nil {
		t.Fatal(err)
	}
	h.pace.round, h.pace.read = time.Millisecond, 20*time.Millisecond
	targets, known := make([]models.Target, posts), map[models.Target]*counts{}
	for i := range targets {
		targets[i] = postTarget(int64(i + 1))
		known[targets[i]] = &counts{event: []byte("old")}
	}
	s := &stream{hub: h, targets: make([]*watched, posts), changed: make(chan struct{}, 1), ended: make(chan struct{})}
	if err := h.join(s, targets, known); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.leave(s)
		h.running.Add(-2) // it has no connection to serve
		h.running.Wait()
	})
	return s
}

func awaitNews(t *testing.T, s *stream, without int64) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		old := 0
		for _, w := range s.targets {
			if string(w.counts.Load().event) == "old" && w.target.ID != without {
				old++
			}
		}
		return old == 0, fmt.Sprintf("%d of %d targets have no news", old, len(s.targets))
	})
}

// One client that watches much must not keep the news from all others.
func TestHub_readsInSeveralRoundsWhatOneHasNoTimeFor(t *testing.T) {
	awaitNews(t, newSlowHub(t, 5*roundChunk+1, 0), 0)
}

func TestHub_passesOverWhatCannotBeRead(t *testing.T) {
	awaitNews(t, newSlowHub(t, 3*roundChunk, 7), 7)
}
