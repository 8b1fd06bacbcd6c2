// Package signin verifies credentials: tokens through a cache, and passwords within a bound on the work.
//
// MySQL holds the sessions and the hashes. Sessions owns a cache of what MySQL returned for a token. MySQL also holds a
// feed of the users whose sessions have ended or changed. Every process reads it once a second, so a revoked token is
// refused everywhere within some 2 s. A process that cannot read the feed asks MySQL about a token again after 4 s.
// While MySQL is unavailable, an entry still counts for models.SessionStale: nothing can be revoked meanwhile, and
// likes work without MySQL. Losing the cache costs one query for all tokens that arrive together.
//
// Passwords bounds how many hashes are computed at once and how many calls wait; calls over the bound are refused.
package signin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"likewise/counters/rounds"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// Sessions looks up sessions by the hash of their token, through a cache. It is safe for concurrent use.
type Sessions struct {
	store *db.DB
	now   func() time.Time
	log   *slog.Logger
	cache *otter.Cache[[32]byte, *entry]
	feed  feed

	queries rounds.Batch[[32]byte, map[[32]byte]*entry]

	mu   sync.Mutex
	used map[[32]byte]struct{}
}

const (
	fresh        = 4 * time.Second // 5 s with the requests that are in flight at its end
	stale        = models.SessionStale
	retryAfter   = time.Second // after a query that failed
	queryTimeout = 2 * time.Second
	maxSessions  = 100_000 // about 30 MB
	// A query of a crowd waits for queryAtOnce tokens, or until queryEvery after the one before. The first of a crowd,
	// and a token that comes alone, wait for nothing.
	queryAtOnce = 24
	queryEvery  = 5 * time.Millisecond
	usedEvery   = time.Minute // recorded uses of an API token
)

// entry is a session as MySQL returned it.
type entry struct {
	session  *models.Session // nil: no session has this token
	queried  time.Time       // before the query: the token may be revoked while it runs
	position int64           // of the feed, then
	retry    time.Time       // MySQL was unavailable, and is not asked again before
	noted    atomic.Int64    // Unix time of the last use that was recorded, of an API token
}

// NewSessions returns Sessions with an empty cache. now is the clock that ages its entries.
func NewSessions(store *db.DB, now func() time.Time, log *slog.Logger) (*Sessions, error) {
	cache, err := otter.New(&otter.Options[[32]byte, *entry]{MaximumSize: maxSessions})
	if err != nil {
		return nil, fmt.Errorf("session cache: %w", err)
	}
	return &Sessions{store: store, now: now, log: log, cache: cache, used: map[[32]byte]struct{}{},
		queries: rounds.Batch[[32]byte, map[[32]byte]*entry]{Every: queryEvery, AtOnce: queryAtOnce}}, nil
}

// Lookup returns the session of a token's hash. It returns CodeUnauthorized if the token is not valid, and
// CodeUnavailable if MySQL is unavailable and the cache does not hold the session.
func (s *Sessions) Lookup(ctx context.Context, hash [32]byte) (*models.Session, error) {
	now := s.now()
	e, ok := s.cache.GetIfPresent(hash)
	if !ok || !s.counts(e, now) {
		var err error
		if e, err = s.query(ctx, hash); err != nil {
			return nil, err
		}
	}
	if e.session == nil || !now.Before(e.session.ExpiresAt) {
		return nil, models.Errorf(models.CodeUnauthorized, "The token is not valid.")
	}
	if e.session.IsToken {
		s.note(hash, e, now)
	}
	return e.session, nil
}

// counts reports whether an entry needs no query.
func (s *Sessions) counts(e *entry, now time.Time) bool {
	if e.session != nil && s.feed.changed(e.session.UserID, e.position) {
		return false
	}
	age := now.Sub(e.queried)
	return age < fresh || now.Before(e.retry) || e.session != nil && age < stale && s.feed.covers(e.queried, now)
}

// query looks up a token together with all others that arrive before its turn comes. They are never more than the
// requests that are in flight.
func (s *Sessions) query(ctx context.Context, hash [32]byte) (*entry, error) {
	found, _, err := s.queries.Do(ctx, "", hash, func(hashes [][32]byte) (map[[32]byte]*entry, error) {
		return s.run(context.WithoutCancel(ctx), hashes) // the result is shared, so one caller must not end it
	})
	if ctx.Err() != nil {
		return nil, unchecked(ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	if e := found[hash]; e != nil {
		return e, nil
	}
	return nil, unchecked(nil)
}

func unchecked(err error) error {
	return models.Unavailable("The token cannot be checked at the moment; try again.", err)
}

// run looks up tokens, of which some may be there more than once.
func (s *Sessions) run(ctx context.Context, hashes [][32]byte) (map[[32]byte]*entry, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	found := make(map[[32]byte]*entry, len(hashes))
	for _, hash := range hashes {
		found[hash] = nil
	}
	hashes = slices.Collect(maps.Keys(found))
	queried, position := s.now(), s.feed.position()
	sessions, err := accounts.New(s.store).SessionsByHash(ctx, hashes)
	if err != nil && models.ErrorCode(err) != models.CodeUnavailable {
		return nil, err
	}
	for _, hash := range hashes {
		e := &entry{session: sessions[hash], queried: queried, position: position}
		if err != nil {
			known, ok := s.cache.GetIfPresent(hash)
			if !ok || queried.Sub(known.queried) >= stale ||
				known.session != nil && s.feed.changed(known.session.UserID, known.position) {
				continue // it cannot be checked
			}
			e.session, e.queried, e.retry = known.session, known.queried, queried.Add(retryAfter)
			e.position = known.position
			e.noted.Store(known.noted.Load())
		} else if e.session != nil && e.session.LastUsedAt != nil {
			e.noted.Store(e.session.LastUsedAt.Unix())
		}
		found[hash] = e
		s.cache.Set(hash, e)
	}
	return found, nil
}

// note has the use of an API token recorded, once a minute.
func (s *Sessions) note(hash [32]byte, e *entry, now time.Time) {
	last := e.noted.Load()
	if now.Unix()-last < int64(usedEvery/time.Second) || !e.noted.CompareAndSwap(last, now.Unix()) {
		return
	}
	s.mu.Lock()
	s.used[hash] = struct{}{}
	s.mu.Unlock()
}

// recordUses records the uses of API tokens since the last call. If that fails, they are lost: the next use, a minute
// later, is recorded.
func (s *Sessions) recordUses(ctx context.Context) {
	s.mu.Lock()
	used := s.used
	s.used = map[[32]byte]struct{}{}
	s.mu.Unlock()
	hashes := make([][32]byte, 0, len(used))
	for hash := range used {
		hashes = append(hashes, hash)
	}
	for batch := range slices.Chunk(hashes, 1000) {
		if err := accounts.New(s.store).UseTokens(ctx, batch); err != nil {
			s.log.Warn("uses of tokens not recorded", "tokens", len(hashes), "error", err)
			return
		}
	}
}

// Forget makes this process refuse tokens at once whose sessions have ended.
func (s *Sessions) Forget(hashes ...[32]byte) {
	now := s.now()
	for _, hash := range hashes {
		s.cache.Set(hash, &entry{queried: now})
	}
}

// Refresh evicts a token from the cache, so that the next request reads it from MySQL.
func (s *Sessions) Refresh(hash [32]byte) { s.cache.Invalidate(hash) }
