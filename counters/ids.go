package counters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// IDs issues global ids. It is safe for concurrent use.
//
// An id is a slot, which Redis issues, and a number within the slot. No slot is issued twice: Redis issues only slots
// that are reserved in MySQL, some minutes of them at a time, and a server that may have lost its last writes first
// needs new ones. So ids are unique across processes, restarts, failovers and a Redis that lost its memory, and no
// clock matters. In direct mode, each slot comes from MySQL.
//
// A process uses a slot for at most idAge and fetches the next one ahead of need. Within a slot it goes up by random
// steps, whose size changes with each slot, so that ids do not show how many there are.
//
// Order: the ids of one IDs ascend. Of two processes, an id that is asked for idAge or more after another was returned
// is the higher one. If a round trip to Redis takes longer than that, it takes idLate more than the round trip. While
// two servers act as the primary, only their uniqueness is certain.
type IDs struct {
	redis *Redis // nil in direct mode
	store *db.DB

	mu      sync.Mutex
	current block
	ahead   block
	last    int64    // the highest slot received
	fetch   *fetched // the fetch that is under way; nil if there is none
}

// block is a slot that this process may use.
type block struct {
	next    int64 // the lowest id that was not passed
	end     int64 // of the ids of the slot
	step    int64 // the ids of the slot are at most this far apart, unless a shard is asked for
	expires time.Time
	renewed time.Time // when the next slot is fetched
}

// fetched is the outcome of a fetch, for those who wait for it.
type fetched struct {
	done chan struct{}
	err  error
}

const (
	idAge        = 50 * time.Millisecond // after which a process uses no slot
	idLate       = 10 * time.Millisecond // for which a slot that arrived late is used
	idStart      = 1 << 16               // a slot begins at a random number below it
	idSteps      = 5                     // sizes of steps: at most 2^7 to 2^11 ids
	slotsAhead   = 600_000               // slots of a reservation: ten minutes
	slotsLimit   = 5 * time.Second       // for fetching a slot, and for making reserved slots available
	slotAttempts = 5
)

// slotEpoch is the time of slot 0.
var slotEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// NewIDs returns a source of ids. In direct mode, r is nil.
func NewIDs(r *Redis, store *db.DB) *IDs { return &IDs{redis: r, store: store} }

// Next returns a new id whose remainder modulo shards is shard, so that it belongs to a shard. For any id, shards is 1.
// If no slot can be had, because Redis or MySQL does not answer, Next returns CodeUnavailable.
func (g *IDs) Next(ctx context.Context, shard, shards int) (models.ID, error) {
	for {
		id, fetch := g.take(int64(shard), int64(shards))
		if fetch == nil {
			return id, nil
		}
		select {
		case <-fetch.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if fetch.err != nil {
			return 0, models.Unavailable(busy, fetch.err)
		}
	}
}

// take returns an id, or the fetch to wait for.
func (g *IDs) take(shard, shards int64) (models.ID, *fetched) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for {
		id, ok := g.current.take(now, shard, shards)
		if ok {
			if now.After(g.current.renewed) && g.ahead == (block{}) {
				g.startFetch()
			}
			return id, nil
		}
		if g.ahead == (block{}) {
			g.startFetch()
			return 0, g.fetch
		}
		g.current, g.ahead = g.ahead, block{}
	}
}

func (b *block) take(now time.Time, shard, shards int64) (models.ID, bool) {
	if !now.Before(b.expires) {
		return 0, false
	}
	id := b.next + rand.Int64N(b.step)
	id += (shard - id%shards + shards) % shards
	if id >= b.end {
		return 0, false
	}
	b.next = id + 1
	return models.ID(id), true
}

// startFetch fetches a slot ahead, unless that is under way. The caller holds the mutex.
func (g *IDs) startFetch() {
	if g.fetch == nil {
		g.fetch = &fetched{done: make(chan struct{})}
		go g.fetchAhead(g.fetch, g.last)
	}
}

// fetchAhead ends within some seconds. It has a context of its own, because others wait for its outcome, too, and a
// reservation must not become part of a request's transaction.
func (g *IDs) fetchAhead(fetch *fetched, last int64) {
	ctx, cancel := context.WithTimeout(context.Background(), slotsLimit)
	defer cancel()
	asked, slot, low, err := g.slot(ctx, last)
	g.mu.Lock()
	if err == nil {
		g.ahead = newBlock(slot, asked)
		g.last = slot
	}
	fetch.err = err
	g.fetch = nil
	g.mu.Unlock()
	close(fetch.done)
	if low > 0 {
		if err := g.reserve(ctx, low, time.Time{}); err != nil {
			g.store.Logger().WarnContext(ctx, "slots of ids not reserved ahead", "error", err)
		}
	}
}

// newBlock returns the ids of a slot that was asked for at a time.
func newBlock(slot int64, asked time.Time) block {
	first := slot << models.IDBits
	expires := asked.Add(idAge)
	if late := time.Now().Add(idLate); late.After(expires) {
		expires = late
	}
	return block{
		next:    first + rand.Int64N(idStart),
		end:     first + 1<<models.IDBits,
		step:    1 << (7 + rand.IntN(idSteps)),
		expires: expires,
		renewed: asked.Add(idAge / 2),
	}
}

// slot returns a slot above last, and when it was asked for. If slots are to be reserved ahead, low is the first one to
// reserve.
func (g *IDs) slot(ctx context.Context, last int64) (asked time.Time, slot, low int64, err error) {
	if g.redis == nil {
		asked = time.Now()
		now := g.store.Now().Sub(slotEpoch).Milliseconds()
		slot, err = g.store.ReserveSlots(ctx, max(now, last+1), 1)
		return asked, slot, 0, err
	}
	for range slotAttempts {
		asked = time.Now()
		reply, err := g.redis.run(ctx, "slot", []string{slotsKey}, last, slotsAhead/2).Int64Slice()
		if err != nil {
			return asked, 0, 0, fmt.Errorf("slot of ids: %w", err)
		}
		if reply[0] == 1 {
			if reply[2] == 1 {
				low = reply[3]
			}
			return asked, reply[1], low, nil
		}
		if err := g.reserve(ctx, reply[1], time.UnixMilli(reply[2])); err != nil {
			return asked, 0, 0, err
		}
	}
	return asked, 0, 0, errors.New("slot of ids: reserved slots were not made available")
}

// reserve reserves slots from atLeast or later and makes them available. Other processes may do so, too; then some
// slots are left out.
func (g *IDs) reserve(ctx context.Context, atLeast int64, now time.Time) error {
	first, err := g.store.ReserveSlots(ctx, atLeast, slotsAhead)
	if err != nil {
		return err
	}
	if now.IsZero() {
		if now, err = g.redis.client.Time(ctx).Result(); err != nil {
			return fmt.Errorf("time of redis: %w", err)
		}
	}
	err = g.redis.runOnce(ctx, "slots", []string{slotsKey},
		first, first+slotsAhead, now.Add(slotsLimit).UnixMilli()).Err()
	if err != nil {
		return fmt.Errorf("make slots of ids available: %w", err)
	}
	return nil
}
