package handlers

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/maypok86/otter/v2"

	"likewise/counters"
	"likewise/counters/rounds"
	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/db"
)

// shared holds what MySQL returned for reads that many people make at once: posts, pages of posts and comments, as
// the anonymous see them. It is used while the edition lasts that was current before the read, for at most sharedLife.
// So everybody sees their own changes, and those of all others that were answered. Changes without a request, such as
// those of jobs and commands, show within sharedLife. Counts of likes, and what differs between viewers, are read anew
// for each request.
type shared struct {
	edition *counters.Edition // nil in direct mode, where nothing is shared
	cache   *otter.Cache[sharedKey, sharedRead]
	// viewpoints are those of viewers. Nothing but a request changes them, so they live longer.
	viewpoints *otter.Cache[viewpointKey, models.Viewpoint]
	behind     atomic.Bool                          // a change was answered, and the edition has not ended yet
	answers    rounds.Group[*pages.Encoded]         // to the anonymous
	last       *otter.Cache[string, *pages.Encoded] // answers to the anonymous, by the name of the read
	posts      rounds.Batch[int64, map[int64]*models.Post]
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

func newShared(edition *counters.Edition) (*shared, error) {
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
	last, err := otter.New(&otter.Options[string, *pages.Encoded]{
		ExpiryCalculator: otter.ExpiryWriting[string, *pages.Encoded](lastLife),
		MaximumWeight:    maxLast,
		Weigher:          func(name string, e *pages.Encoded) uint32 { return uint32(len(name) + 2*len(e.Body)) },
	})
	if err != nil {
		return nil, fmt.Errorf("last answers: %w", err)
	}
	return &shared{edition: edition, cache: cache, viewpoints: viewpoints, last: last}, nil
}

// answer returns the answer to the anonymous that read returns, and that others who wait for it in the same edition
// get, too. Most pages have not changed since the last answer of that name, which is then returned with its codings.
//
// Nobody waits here with a place in an admission.Share: read may have to wait for one.
func (s *shared) answer(
	ctx context.Context, edition int64, name string, read func() ([]byte, error),
) (*pages.Encoded, error) {
	return s.answers.Do(ctx, strconv.FormatInt(edition, 10)+" "+name, func() (*pages.Encoded, error) {
		body, err := read()
		if err != nil {
			return nil, err
		}
		if last, ok := s.last.GetIfPresent(name); ok && bytes.Equal(last.Body, body) {
			return last, nil
		}
		e := pages.NewEncoded(body)
		s.last.Set(name, e)
		return e, nil
	})
}

// readShared returns what load returns, or what it has returned to another request in the same edition. Both see the
// same object and must not change it. The name must differ from those of all other reads.
func readShared[T any](c *fiber.Ctx, s *Server, name string, load func(context.Context) (T, error)) (T, error) {
	ctx := c.UserContext()
	edition, ok := s.edition(c)
	if !ok {
		return load(ctx)
	}
	key := sharedKey{edition, name}
	if read, ok := s.shared.cache.GetIfPresent(key); ok {
		result, _ := read.result.(T)
		return result, nil
	}
	// Before the load, and before others wait for it. Otherwise the load could wait for a place that one of them has.
	if err := db.Enter(ctx); err != nil {
		var none T
		return none, err
	}
	read, err := s.shared.cache.Get(ctx, key, otter.LoaderFunc[sharedKey, sharedRead](
		func(ctx context.Context, _ sharedKey) (sharedRead, error) {
			// Others wait for the result, so it must not end with this request.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
			defer cancel()
			var size atomic.Int64
			result, err := load(db.WithHold(ctx, func(n int) error {
				size.Add(int64(n))
				return db.Hold(ctx, n)
			}))
			if h, ok := any(result).(*halves); ok && h != nil {
				return sharedRead{result, h.size()}, err // the rows are not kept
			}
			return sharedRead{result, int(size.Load())}, err
		}))
	if err != nil {
		var none T
		return none, err
	}
	result, _ := read.result.(T)
	return result, nil
}

// edition returns the edition of a request: one that was current while the request ran is new enough for all its reads.
// ok is false in direct mode and while Redis does not answer. The likes of the answer are then read without Redis, too,
// and log its failure.
func (s *Server) edition(c *fiber.Ctx) (edition int64, ok bool) {
	if s.shared.edition == nil {
		return 0, false
	}
	if edition, ok = c.Locals(editionKey).(int64); ok {
		return edition, true
	}
	if s.shared.behind.Load() && s.shared.end(c.UserContext()) != nil {
		return 0, false
	}
	edition, err := s.shared.edition.Current(c.UserContext())
	if err != nil {
		return 0, false
	}
	c.Locals(editionKey, edition)
	return edition, true
}

// asAnyone reports whether the viewer sees what the anonymous see, apart from likes, bookmarks and standings: the
// viewer blocks nobody.
func (s *Server) asAnyone(c *fiber.Ctx) (models.Viewpoint, bool, error) {
	view, known, err := s.viewpoint(c)
	return view, known && !view.Blocks, err
}

// viewpoint returns the viewer's Viewpoint. It is not known in direct mode and while Redis does not answer.
func (s *Server) viewpoint(c *fiber.Ctx) (view models.Viewpoint, known bool, err error) {
	viewer := viewerID(c)
	if viewer == 0 {
		return models.Viewpoint{}, true, nil
	}
	edition, ok := s.edition(c)
	if !ok {
		return models.Viewpoint{}, false, nil
	}
	key := viewpointKey{edition, viewer}
	if view, known = s.shared.viewpoints.GetIfPresent(key); known {
		return view, true, nil
	}
	if err := db.Enter(c.UserContext()); err != nil { // as in readShared
		return models.Viewpoint{}, false, err
	}
	view, err = s.shared.viewpoints.Get(c.UserContext(), key,
		otter.LoaderFunc[viewpointKey, models.Viewpoint](
			func(ctx context.Context, _ viewpointKey) (models.Viewpoint, error) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
				defer cancel()
				return readTogether(ctx, s, &s.shared.views, viewer, s.reader.Viewpoints)
			}))
	return view, err == nil, err
}

// readTogether returns what query finds for an id. While one query of the batch runs, the calls that come meanwhile
// gather for the next. A query that hangs ends after half of the time of a request, so that those that wait for the
// next still have time.
func readTogether[T any](
	ctx context.Context, s *Server, batch *rounds.Batch[int64, map[int64]T], id int64,
	query func(ctx context.Context, ids []int64) (map[int64]T, error),
) (T, error) {
	found, _, err := batch.Do(ctx, "", id, func(ids []int64) (map[int64]T, error) {
		ctx, cancel := context.WithTimeout(ctx, s.timeout/2)
		defer cancel()
		return query(ctx, ids)
	})
	return found[id], err
}

// end ends the edition. If that fails, this process shares nothing until it succeeds.
func (s *shared) end(ctx context.Context) error {
	s.behind.Store(true)
	if err := s.edition.Advance(ctx); err != nil {
		return err
	}
	s.behind.Store(false)
	return nil
}

// advance ends the edition after a request that may have changed what readers see. If it fails, other processes may
// show the state before the change for sharedLife, and the viewpoint before it for viewpointLife.
//
// A refused request has changed nothing. Otherwise clients could end editions with requests that cost them nothing.
func (s *Server) advance(c *fiber.Ctx) error {
	err := c.Next()
	if err != nil && statuses[models.ErrorCode(err)] < http.StatusInternalServerError {
		return err
	}
	s.endEdition(c)
	return err
}

// endEdition ends the edition after a change by a request. In direct mode there is none.
func (s *Server) endEdition(c *fiber.Ctx) {
	if s.shared.edition == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), s.timeout)
	defer cancel()
	if err := s.shared.end(ctx); err != nil {
		s.log.Warn("a change may be seen late", "request_id", requestID(c), "error", err)
	}
}
