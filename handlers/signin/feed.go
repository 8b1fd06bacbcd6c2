package signin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"likewise/models"
	"likewise/models/accounts"
)

// change is the last change of a user's sessions.
type change struct {
	count  int64 // of the feed, with this change
	readAt time.Time
}

// feed is the users whose sessions have ended or changed, as far as this process has read them.
type feed struct {
	mu    sync.RWMutex
	users map[int64]change // for the time that an entry can be older
	count int64            // changes that were read
	since time.Time        // changes that were committed before are not in the feed
	read  time.Time        // before the last reading that succeeded

	// Of the reader alone. A number that was issued is missing until its transaction commits, or for ever if it was
	// rolled back.
	last    int64
	missing map[int64]time.Time // since when
}

const (
	readEvery   = time.Second
	readTimeout = 2 * time.Second
	readAtOnce  = 10_000 // changes
	// maxMissing bounds the numbers that are looked for. A server that issues every third number alone has many.
	maxMissing = 500
)

// position returns how many changes have been read.
func (f *feed) position() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.count
}

// changed reports whether a change of a user's sessions was read after a position.
func (f *feed) changed(userID, position int64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.users[userID].count > position
}

// covers reports whether all changes after a time, but for the last seconds, have been read.
func (f *feed) covers(queried, now time.Time) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return !f.since.IsZero() && queried.After(f.since) && now.Sub(f.read) < fresh
}

// Run reads the feed once a second and records uses of API tokens, until ctx ends.
func (s *Sessions) Run(ctx context.Context) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	reading := true
	for {
		err := s.readFeed(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && reading:
			s.log.Warn("changes of sessions cannot be read; every token is checked again after some seconds",
				"after", fresh.String(), "error", err)
		case err == nil && !reading:
			s.log.Info("changes of sessions are read again")
		}
		reading = err == nil
		s.recordWithin(ctx)
		select {
		case <-ctx.Done():
			s.recordWithin(context.WithoutCancel(ctx))
			return
		case <-tick.C:
		}
	}
}

func (s *Sessions) recordWithin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s.recordUses(ctx)
}

// readFeed reads all changes that are committed.
func (s *Sessions) readFeed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	f := &s.feed
	began := s.now()
	if f.missing == nil {
		last, err := accounts.New(s.store).LastSessionChange(ctx)
		if err != nil {
			return err
		}
		f.last, f.missing = last, map[int64]time.Time{}
		for id := max(1, last-maxMissing); id <= last; id++ {
			f.missing[id] = began // it may be committed after began
		}
	}
	for more := true; more; {
		missing := make([]int64, 0, len(f.missing))
		for id := range f.missing {
			missing = append(missing, id)
		}
		changes, err := accounts.New(s.store).SessionChanges(ctx, f.last, missing, readAtOnce)
		if err != nil {
			return err
		}
		if f.last > 0 && !slices.ContainsFunc(changes, func(c models.SessionChange) bool { return c.ID == f.last }) {
			f.restart()
			return fmt.Errorf("change %d is gone, as if the database had been restored from a backup", f.last)
		}
		f.take(changes, s.now())
		more = len(changes) >= readAtOnce
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = began
	}
	f.read = began
	for user, c := range f.users {
		if began.Sub(c.readAt) > stale {
			delete(f.users, user)
		}
	}
	return nil
}

// restart forgets where the reader was. Until the feed is read again, it covers nothing, and then nothing older.
func (f *feed) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing, f.since = nil, time.Time{}
}

// take records changes, and which numbers before the last of them are missing.
func (f *feed) take(changes []models.SessionChange, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == nil {
		f.users = map[int64]change{}
	}
	for _, c := range changes {
		_, missing := f.missing[c.ID]
		if c.ID <= f.last && !missing {
			continue // the last one is read again each time, to see that it is there
		}
		f.count++
		f.users[c.UserID] = change{f.count, now}
		delete(f.missing, c.ID)
		if c.ID <= f.last {
			continue
		}
		for id := max(f.last+1, c.ID-maxMissing); id < c.ID; id++ {
			f.missing[id] = now
		}
		f.last = c.ID
	}
	for id, since := range f.missing {
		// A session that was read before a change is read again before the change is as old as this.
		if now.Sub(since) > stale || id < f.last-maxMissing && len(f.missing) > maxMissing {
			delete(f.missing, id)
		}
	}
}
