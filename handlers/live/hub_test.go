package live

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

var errUnreadable = errors.New("it cannot be read")

func postTarget(id int64) models.Target { return models.Target{Kind: models.KindPost, ID: id} }

// newSlowHub watches the given number of posts. Two chunks of them can be read within a round, and a chunk with the
// post bad cannot be read.
func newSlowHub(t *testing.T, posts int, bad int64) (watching *stream) {
	t.Helper()
	var mu sync.Mutex
	reads := map[context.Context]int{}
	read := func(ctx context.Context, targets []models.Target) (map[models.Target]*Counts, error) {
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
		now := map[models.Target]*Counts{}
		for _, target := range targets {
			now[target] = &Counts{event: []byte("new")}
		}
		return now, nil
	}
	log := slog.New(slog.DiscardHandler)
	h, err := NewHub(prometheus.NewRegistry(), log, Limits{Streams: 1, Targets: posts}, read, nil)
	require.NoError(t, err)
	h.Pace.Round, h.Pace.Read = time.Millisecond, 20*time.Millisecond
	targets, known := make([]models.Target, posts), map[models.Target]*Counts{}
	for i := range targets {
		targets[i] = postTarget(int64(i + 1))
		known[targets[i]] = &Counts{event: []byte("old")}
	}
	s := newStream(h, "one", Client{})
	require.NoError(t, h.join(s, Following{Targets: targets, Known: known}))
	t.Cleanup(func() {
		h.leave(s)
		h.running.Add(-2) // the stream has no goroutines
		h.running.Wait()
	})
	return s
}

func awaitNews(t *testing.T, s *stream, without int64) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		old := 0
		for _, w := range s.follows.Load().targets {
			if string(w.counts.Load().event) == "old" && w.target.ID != without {
				old++
			}
		}
		return old == 0, fmt.Sprintf("%d of %d targets have no news", old, len(s.follows.Load().targets))
	})
}

// One client that watches many targets must not delay all others.
func TestHub_spreadsManyTargetsOverRounds(t *testing.T) {
	t.Parallel()
	awaitNews(t, newSlowHub(t, 5*chunk+1, 0), 0)
}

func TestHub_skipsTargetsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	awaitNews(t, newSlowHub(t, 3*chunk, 7), 7)
}

// page is how many targets each stream of a crowd watches.
const page = 100

// crowd is a Hub with the limits of production whose streams have no clients.
type crowd struct {
	t       *testing.T
	hub     *Hub
	streams []*stream
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	read := func(context.Context, []models.Target) (map[models.Target]*Counts, error) { return nil, nil }
	h, err := NewHub(prometheus.NewRegistry(), slog.New(slog.DiscardHandler), NewLimits(MaxStreams, 1), read, nil)
	require.NoError(t, err)
	c := &crowd{t: t, hub: h}
	t.Cleanup(func() {
		c.leaveAll()
		h.running.Wait()
	})
	return c
}

// postsFrom returns n posts to follow, beginning with first.
func postsFrom(first, n int) Following {
	f := Following{Targets: make([]models.Target, n), Known: map[models.Target]*Counts{}}
	for i := range f.Targets {
		f.Targets[i] = postTarget(int64(first + i))
		f.Known[f.Targets[i]] = &Counts{event: []byte("old")}
	}
	return f
}

// join opens a stream from an address that watches 100 posts, beginning with first.
func (c *crowd) join(from string, first int) (*stream, error) {
	s := newStream(c.hub, rand.Text(), Client{From: from})
	if err := c.hub.join(s, postsFrom(first, page)); err != nil {
		return nil, err
	}
	c.streams = append(c.streams, s)
	return s, nil
}

func (c *crowd) leave(s *stream) {
	c.hub.leave(s)
	c.hub.running.Add(-2) // the stream has no goroutines
	c.streams = slices.DeleteFunc(c.streams, func(other *stream) bool { return other == s })
}

func (c *crowd) leaveAll() {
	for len(c.streams) > 0 {
		c.leave(c.streams[0])
	}
}

// fill opens streams from an address, each for other posts, until one is refused, and returns their number.
func (c *crowd) fill(from string, first int) (streams int) {
	for ; streams < maxStreamsOfOne; streams++ {
		if _, err := c.join(from, first+streams*page); err != nil {
			if models.ErrorCode(err) != models.CodeRateLimited {
				c.t.Errorf("%s is refused with %v", from, err)
			}
			break
		}
	}
	return streams
}

// Addresses that use their whole share must leave room for others.
func TestHub_hasRoomForAnotherAddress(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	const apart = 1_000_000
	// The share, until three quarters are taken; then as many as fit in fewTargets.
	for i, want := range []int{40, 40, 40, 30, 5, 5} {
		from := fmt.Sprintf("203.0.113.%d", i)
		if n := c.fill(from, (i+1)*apart); n != want {
			t.Errorf("%s has %d streams, want %d", from, n, want)
		}
	}
	if _, err := c.join("198.51.100.1", 1); err != nil {
		t.Errorf("another address is refused: %v", err)
	}
}

func watchedBy(streams []*stream) (targets []models.Target) {
	for _, s := range streams {
		for _, w := range s.follows.Load().targets {
			targets = append(targets, w.target)
		}
	}
	return targets
}

// Watching a target that another address watches costs nothing until that one leaves, so it counts from the beginning.
func TestHub_countsSharedTargetsForEachAddress(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	const apart = 1_000_000
	for round := range 8 {
		var first []*stream
		for i := range maxStreamsOfOne {
			at := (round+1)*apart + i*page
			s, err := c.join("203.0.113.1", at)
			if err != nil {
				break
			}
			first = append(first, s)
			_, _ = c.join("203.0.113.2", at) // fails beyond its share
		}
		for _, s := range first {
			c.leave(s)
		}
	}
	if n := len(c.hub.Latest(watchedBy(c.streams))); n > maxWatchedOfOne {
		t.Errorf("one address watches %d posts, and may watch %d", n, maxWatchedOfOne)
	}
	c.leaveAll()
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if len(c.hub.of) != 0 || len(c.hub.watched) != 0 {
		t.Errorf("%d addresses and %d targets are left", len(c.hub.of), len(c.hub.watched))
	}
}

// A change is charged for what the stream follows in addition, and a refused one leaves the stream as it was.
func TestHub_chargesChangesAsOpenings(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	const apart = 1_000_000
	from := "203.0.113.1"
	if n := c.fill(from, apart); n != maxWatchedOfOne/page {
		t.Fatalf("%d streams", n)
	}
	s := c.streams[0]
	watched := func() int { return len(c.hub.Latest(watchedBy(c.streams))) }
	if err := c.hub.Change(s.id, [32]byte{}, postsFrom(apart, page+1)); err != nil {
		t.Errorf("a target that another stream of the address follows: %v", err)
	}
	err := c.hub.Change(s.id, [32]byte{}, postsFrom(2*apart, page+1))
	if models.ErrorCode(err) != models.CodeRateLimited {
		t.Errorf("one more than the share: %v", err)
	}
	if n := len(s.follows.Load().targets); n != page+1 {
		t.Errorf("after a refused change the stream follows %d targets", n)
	}
	if err := c.hub.Change(s.id, [32]byte{}, postsFrom(2*apart, page)); err != nil {
		t.Errorf("as many others: %v", err)
	}
	if n := watched(); n != maxWatchedOfOne {
		t.Errorf("%d targets are followed, want %d", n, maxWatchedOfOne)
	}
	if err := c.hub.Change(s.id, [32]byte{}, postsFrom(2*apart, 1)); err != nil {
		t.Errorf("fewer: %v", err)
	}
	if n := watched(); n != maxWatchedOfOne-page+1 {
		t.Errorf("%d targets are followed, want %d", n, maxWatchedOfOne-page+1)
	}
	c.hub.mu.Lock()
	c.hub.Limits.Targets = len(c.hub.watched)
	c.hub.mu.Unlock()
	err = c.hub.Change(s.id, [32]byte{}, postsFrom(3*apart, 2))
	if models.ErrorCode(err) != models.CodeUnavailable {
		t.Errorf("more than the process takes: %v", err)
	}
	if err := c.hub.Change(s.id, [32]byte{1}, postsFrom(apart, 1)); !errors.Is(err, ErrNoStream) {
		t.Errorf("a stream of another owner: %v", err)
	}
	c.leaveAll()
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if len(c.hub.of) != 0 || len(c.hub.watched) != 0 || len(c.hub.streams) != 0 {
		t.Errorf("%d addresses, %d targets and %d streams are left",
			len(c.hub.of), len(c.hub.watched), len(c.hub.streams))
	}
}
