// Package signin verifies credentials: tokens through a cache, and passwords within a bound on the work.
//
// MySQL holds the sessions and the hashes. Sessions owns a cache of what MySQL returned for a token. An entry is fresh
// for 4 s, so a revoked token is accepted for at most that long by processes other than the one that revoked it. While
// MySQL is unavailable, a stale entry still counts for models.SessionStale: nothing can be revoked meanwhile, and likes
// work without MySQL. Losing the cache costs one query for each token.
//
// Passwords bounds how many hashes are computed at once and how many calls wait; calls over the bound are refused.
package signin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"likewise/models"
)

// Sessions looks up sessions by the hash of their token, through a cache. It is safe for concurrent use.
type Sessions struct {
	store  *models.Store
	now    func() time.Time
	log    *slog.Logger
	cache  *otter.Cache[[32]byte, entry]
	flight singleflight.Group
}

const (
	fresh        = 4 * time.Second // 5 s with the requests that are in flight at its end
	stale        = models.SessionStale
	retryAfter   = time.Second // after a query that failed
	queryTimeout = 2 * time.Second
	maxSessions  = 100_000 // about 30 MB
)

// entry is a session as MySQL returned it.
type entry struct {
	session *models.Session // nil: there is no such token
	queried time.Time
	expires time.Time // when MySQL is queried again
}

// NewSessions returns Sessions with an empty cache. now is the clock that ages its entries.
func NewSessions(store *models.Store, now func() time.Time, log *slog.Logger) (*Sessions, error) {
	cache, err := otter.New(&otter.Options[[32]byte, entry]{MaximumSize: maxSessions})
	if err != nil {
		return nil, fmt.Errorf("session cache: %w", err)
	}
	return &Sessions{store: store, now: now, log: log, cache: cache}, nil
}

// Lookup returns the session of a token's hash. It returns CodeUnauthorized if the token is not valid, and
// CodeUnavailable if MySQL is unavailable and the cache does not hold the session.
func (s *Sessions) Lookup(ctx context.Context, hash [32]byte) (*models.Session, error) {
	e, ok := s.cache.GetIfPresent(hash)
	if !ok || !s.now().Before(e.expires) {
		var err error
		if e, err = s.query(ctx, hash); err != nil {
			return nil, err
		}
	}
	if e.session == nil || !s.now().Before(e.session.ExpiresAt) {
		return nil, models.Errorf(models.CodeUnauthorized, "The token is not valid.")
	}
	return e.session, nil
}

// query queries MySQL, once for all concurrent calls. The call that runs the query also records, once a minute, that an
// API token is used; the others do not wait for that.
func (s *Sessions) query(ctx context.Context, hash [32]byte) (entry, error) {
	var mine *models.Session
	answer, err, _ := s.flight.Do(string(hash[:]), func() (any, error) {
		// The result is shared, so the deadline must not be that of the first caller.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
		defer cancel()
		e := entry{queried: s.now()} // before the query: the token may be revoked while it runs
		e.expires = e.queried.Add(fresh)
		session, err := s.store.SessionByHash(ctx, hash)
		switch code := models.ErrorCode(err); {
		case err == nil:
			e.session, mine = session, session
		case code == models.CodeUnavailable:
			known, ok := s.cache.GetIfPresent(hash)
			if !ok || s.now().Sub(known.queried) >= stale {
				return nil, models.Unavailable("The token cannot be checked at the moment; try again.", err)
			}
			known.expires = s.now().Add(retryAfter)
			e = known
		case code != models.CodeUnauthorized:
			return nil, err
		}
		s.cache.Set(hash, e)
		return e, nil
	})
	if err != nil {
		return entry{}, err
	}
	if mine != nil && mine.Unnoted(s.now()) {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		if err := s.store.UseToken(ctx, hash); err != nil {
			s.log.Warn("use of a token not recorded", "user_id", mine.UserID, "error", err)
		}
	}
	return answer.(entry), nil
}

// Forget makes this process refuse tokens at once whose sessions have ended.
func (s *Sessions) Forget(hashes ...[32]byte) {
	now := s.now()
	for _, hash := range hashes {
		s.cache.Set(hash, entry{queried: now, expires: now.Add(fresh)})
	}
}

// Refresh evicts a token from the cache, so that the next request reads it from MySQL.
func (s *Sessions) Refresh(hash [32]byte) { s.cache.Invalidate(hash) }
