package pages

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"likewise/counters"
	"likewise/counters/rounds"
	"likewise/models"
	"likewise/models/db"
)

// Shared holds what MySQL returned for reads that many people make at once: posts, pages of posts and comments, as
// the anonymous see them. It is used while the edition lasts that was current before the read, for at most sharedLife.
// So everybody sees their own changes, and those of all others that were answered. Changes without a request, such as
// those of jobs and commands, show within sharedLife. Counts of likes, and what differs between viewers, are read anew
// for each request.
type Shared struct {
	edition *counters.Edition // nil in direct mode, where nothing is shared
	timeout time.Duration     // of a read
	cache   *otter.Cache[sharedKey, sharedRead]
	// viewpoints are those of viewers. Nothing but a request changes them, so they live longer.
	viewpoints *otter.Cache[viewpointKey, models.Viewpoint]
	behind     atomic.Bool                    // a change was answered, and the edition has not ended yet
	answers    rounds.Group[*Encoded]         // to the anonymous
	last       *otter.Cache[string, *Encoded] // answers to the anonymous, by the name of the read
	views      rounds.Batch[int64, map[int64]models.Viewpoint]
}

type viewpointKey struct{ edition, viewer int64 }

type sharedKey struct {
	edition int64
	name    string
}

type sharedRead struct {
	result any // nobody changes it
	size   int // of the content, in bytes
}

const (
	sharedLife = time.Second
	maxShared  = 64 << 20 // bytes
	// sharedOverhead is the size of a read without its content, in bytes. A page has up to 100 rows.
	sharedOverhead = 32 << 10

	lastLife = 10 * time.Second
	maxLast  = 16 << 20 // bytes

	viewpointLife = 10 * time.Second
	maxViewpoints = 50_000 // about 5 MB
)

// NewShared returns the shared reads of a process. A read ends after timeout; edition is nil in direct mode.
func NewShared(edition *counters.Edition, timeout time.Duration) (*Shared, error) {
	cache, err := otter.New(&otter.Options[sharedKey, sharedRead]{
		ExpiryCalculator: otter.ExpiryWriting[sharedKey, sharedRead](sharedLife),
		MaximumWeight:    maxShared,
		Weigher:          func(_ sharedKey, r sharedRead) uint32 { return uint32(r.size + sharedOverhead) },
	})
	if err != nil {
		return nil, fmt.Errorf("shared reads: %w", err)
	}
	viewpoints, err := otter.New(&otter.Options[viewpointKey, models.Viewpoint]{
		ExpiryCalculator: otter.ExpiryWriting[viewpointKey, models.Viewpoint](viewpointLife),
		MaximumSize:      maxViewpoints,
	})
	if err != nil {
		return nil, fmt.Errorf("viewpoints: %w", err)
	}
	last, err := otter.New(&otter.Options[string, *Encoded]{
		ExpiryCalculator: otter.ExpiryWriting[string, *Encoded](lastLife),
		MaximumWeight:    maxLast,
		Weigher:          func(name string, e *Encoded) uint32 { return uint32(len(name) + 2*len(e.Body)) },
	})
	if err != nil {
		return nil, fmt.Errorf("last answers: %w", err)
	}
	return &Shared{edition: edition, timeout: timeout, cache: cache, viewpoints: viewpoints, last: last}, nil
}

// Answer returns the answer to the anonymous that read returns, and that others who wait for it in the same edition
// get, too. Most pages have not changed since the last answer of that name, which is then returned with its codings.
//
// Nobody waits here with a place in an admission.Share: read may have to wait for one.
func (s *Shared) Answer(
	ctx context.Context, edition int64, name string, read func() ([]byte, error),
) (*Encoded, error) {
	return s.answers.Do(ctx, strconv.FormatInt(edition, 10)+" "+name, func() (*Encoded, error) {
		body, err := read()
		if err != nil {
			return nil, err
		}
		if last, ok := s.last.GetIfPresent(name); ok && bytes.Equal(last.Body, body) {
			return last, nil
		}
		e := newEncoded(body)
		s.last.Set(name, e)
		return e, nil
	})
}

// Read returns what load returns, or what it has returned to another request in the same edition. Both see the same
// object and must not change it. The name must differ from those of all other reads.
func Read[T any](
	ctx context.Context, s *Shared, edition int64, name string, load func(context.Context) (T, error),
) (result T, err error) {
	key := sharedKey{edition, name}
	if read, ok := s.cache.GetIfPresent(key); ok {
		result, _ = read.result.(T)
		return result, nil
	}
	// Before the load, and before others wait for it. Otherwise the load could wait for a place that one of them has.
	if err := db.Enter(ctx); err != nil {
		return result, err
	}
	read, err := s.cache.Get(ctx, key, otter.LoaderFunc[sharedKey, sharedRead](
		func(ctx context.Context, _ sharedKey) (sharedRead, error) {
			// Others wait for the result, so it must not end with this request.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
			defer cancel()
			var size atomic.Int64
			result, err := load(db.WithBudget(ctx, func(n int) error {
				size.Add(int64(n))
				return db.Spend(ctx, n)
			}))
			if h, ok := any(result).(*Halves); ok && h != nil {
				return sharedRead{result, h.Size()}, err // the rows are not kept
			}
			return sharedRead{result, int(size.Load())}, err
		}))
	if err != nil {
		return result, err
	}
	result, _ = read.result.(T)
	return result, nil
}

// Viewpoint returns the Viewpoint of a viewer, which query reads for all that ask meanwhile.
func (s *Shared) Viewpoint(
	ctx context.Context, edition, viewer int64,
	query func(ctx context.Context, viewers []int64) (map[int64]models.Viewpoint, error),
) (models.Viewpoint, error) {
	key := viewpointKey{edition, viewer}
	if view, ok := s.viewpoints.GetIfPresent(key); ok {
		return view, nil
	}
	if err := db.Enter(ctx); err != nil { // as in Read
		return models.Viewpoint{}, err
	}
	return s.viewpoints.Get(ctx, key, otter.LoaderFunc[viewpointKey, models.Viewpoint](
		func(ctx context.Context, _ viewpointKey) (models.Viewpoint, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
			defer cancel()
			return Gather(ctx, &s.views, s.timeout/2, viewer, query)
		}))
}

// Gather returns what query finds for an id. While one query of the batch runs, the calls that come meanwhile gather
// for the next. A query that hangs ends after timeout, half of the time of a request, so that those that wait for the
// next still have time.
func Gather[T any](
	ctx context.Context, batch *rounds.Batch[int64, map[int64]T], timeout time.Duration, id int64,
	query func(ctx context.Context, ids []int64) (map[int64]T, error),
) (T, error) {
	found, _, err := batch.Do(ctx, "", id, func(ids []int64) (map[int64]T, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return query(ctx, ids)
	})
	return found[id], err
}

// Current returns the edition of a request that begins. ok is false in direct mode and while Redis does not answer.
func (s *Shared) Current(ctx context.Context) (edition int64, ok bool) {
	if s.edition == nil || s.behind.Load() && s.End(ctx) != nil {
		return 0, false
	}
	edition, err := s.edition.Current(ctx)
	return edition, err == nil
}

// Off reports whether nothing is shared, in direct mode.
func (s *Shared) Off() bool { return s.edition == nil }

// Bytes returns the weight of the reads that are kept, in bytes.
func (s *Shared) Bytes() uint64 { return s.cache.WeightedSize() }

// End ends the edition. If that fails, this process shares nothing until it succeeds.
func (s *Shared) End(ctx context.Context) error {
	s.behind.Store(true)
	if err := s.edition.Advance(ctx); err != nil {
		return err
	}
	s.behind.Store(false)
	return nil
}
