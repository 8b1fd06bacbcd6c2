package db

import (
	"context"
	"fmt"
	"time"

	"likewise/models"
)

// LateLikes is longer than any request. For so long, a like can be accepted after its session has expired, and a
// transaction can commit after it wrote the time of a like.
const LateLikes = time.Minute

// UseLikeClock makes the store compare the times of likes with a clock, instead of that of MySQL, which accepts the
// likes of direct mode. It is called before the store is used.
func (s *DB) UseLikeClock(clock models.LikeClock) { s.likeClock = clock }

// LikeTime reads the clock by which likes are accepted. No other clock is compared with the times of likes: the clocks
// of two machines may differ.
func (s *DB) LikeTime(ctx context.Context) (earliest, latest time.Time, err error) {
	if s.likeClock != nil {
		return s.likeClock(ctx)
	}
	now, err := s.ServerTime(ctx)
	return now.Add(-LateLikes), now, err // a transaction may have written an earlier time, and commit later
}

// ServerTime reads the clock of MySQL, to the millisecond.
func (s *DB) ServerTime(ctx context.Context) (now time.Time, err error) {
	const query = `SELECT CURRENT_TIMESTAMP(3)`
	if err := s.Read(ctx).Raw(query).Scan(&now).Error; err != nil {
		return now, fmt.Errorf("read the time of mysql: %w", err)
	}
	return now, nil
}

// ClaimTime reads the clock that decides which claims have expired: that of Redis, which dated them, or the earliest of
// its servers. The clocks of two processes may differ, so they would not agree whether a claim can be confirmed. In
// direct mode, and while Redis does not answer, it is the clock of the process; the conditional UPDATEs of ConfirmClaim
// and ExpireClaims keep the stock right whatever it shows.
func (s *DB) ClaimTime(ctx context.Context) time.Time {
	now := s.Now()
	if s.likeClock != nil && !s.direct.Load() {
		reading, cancel := context.WithTimeout(ctx, claimClockWait)
		defer cancel()
		if earliest, _, err := s.likeClock(reading); err == nil {
			now = earliest
		}
	}
	return now.UTC().Truncate(time.Millisecond)
}

// claimClockWait is how long a confirmation waits for the clock of Redis.
const claimClockWait = 500 * time.Millisecond
