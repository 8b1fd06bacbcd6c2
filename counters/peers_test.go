package counters

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// newPeers returns the peers of a process of its own, which answers with what answer returns.
func newPeers(t *testing.T, url string, answer func(context.Context, json.RawMessage) any) *Peers {
	t.Helper()
	r, err := Open(url, shards)
	require.NoError(t, err)
	p := NewPeers(r, slog.New(slog.DiscardHandler))
	p.Serve(answer)
	t.Cleanup(func() {
		p.Close()
		r.Close()
	})
	return p
}

func echo(_ context.Context, request json.RawMessage) any { return request }

// awaitPeer waits until a process receives.
func awaitPeer(t *testing.T, from *Peers, name string) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		var reply any
		err := from.Call(t.Context(), name, "hello", &reply)
		return err == nil, "the process does not receive"
	})
}

func TestPeers_carryCallsAndReplies(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	url := urlOf(plain)
	here, there := newPeers(t, url, echo), newPeers(t, url, echo)
	awaitPeer(t, here, there.Name())
	var all sync.WaitGroup
	for i := range 200 { // more than are answered at a time
		all.Go(func() {
			var reply int
			assert.NoError(t, here.Call(t.Context(), there.Name(), i, &reply))
			assert.Equal(t, i, reply)
		})
	}
	all.Wait()
	if err := here.Call(t.Context(), "NONE", 1, nil); !errors.Is(err, ErrNoPeer) {
		t.Errorf("a process that does not exist: %v", err)
	}
	there.Close()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return errors.Is(here.Call(t.Context(), there.Name(), 1, new(any)), ErrNoPeer), "a closed process receives"
	})
	here.mu.Lock()
	defer here.mu.Unlock()
	if len(here.waiting) > 0 {
		t.Errorf("%d calls wait", len(here.waiting))
	}
}

func TestPeers_giveUpOnASilentProcess(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	url := urlOf(plain)
	here := newPeers(t, url, echo)
	there := newPeers(t, url, func(ctx context.Context, request json.RawMessage) any {
		if string(request) != `"hello"` {
			<-ctx.Done()
		}
		return request
	})
	awaitPeer(t, here, there.Name())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := here.Call(ctx, there.Name(), 1, new(any)); !errors.Is(err, ErrPeerSilent) {
		t.Errorf("%v", err)
	}
}

// The processes find each other again after Redis has lost their connections.
func TestPeers_reconnect(t *testing.T) {
	t.Parallel()
	server := privateRedis(t) // on a shared one, other tests would lose their connections
	plain := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { plain.Close() })
	url := urlOf(plain)
	here, there := newPeers(t, url, echo), newPeers(t, url, echo)
	awaitPeer(t, here, there.Name())
	require.NoError(t, plain.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	awaitPeer(t, here, there.Name())
}

func TestPeers_findEachOtherInACluster(t *testing.T) {
	t.Parallel()
	url, _, _ := startCluster(t)
	for range 4 { // the channels are on different nodes
		here, there := newPeers(t, url, echo), newPeers(t, url, echo)
		awaitPeer(t, here, there.Name())
		awaitPeer(t, there, here.Name())
		if err := here.Call(t.Context(), "NONE", 1, nil); !errors.Is(err, ErrNoPeer) {
			t.Errorf("a process that does not exist: %v", err)
		}
	}
}
