package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sethvargo/go-retry"
	"gorm.io/gorm"

	"likewise/models"
)

// ErrChangedMeanwhile makes Transact retry: a row that the transaction had read was changed before it wrote.
var ErrChangedMeanwhile = errors.New("a row changed between reading and writing it")

// maxAttempts bounds the runs of one transaction. Fifty writers of one row deadlock a few times at most.
const maxAttempts = 20

// closeTimeout bounds the closing of deleted targets in the gate after a COMMIT.
const closeTimeout = 10 * time.Second

// The lock order. Every transaction locks rows in this order, those of one table by ascending key. So two transactions
// that meet queue, and neither ends in a deadlock:
//
//  1. fencing numbers in settings: shared by the writes of a cron job, exclusive for its next run; then the mode of
//     likes: shared by a direct like and a new epoch, exclusive for a switch
//  2. like_shards
//  3. users: the actor and the user acted on, the follower and the followed
//  4. decisions and jobs: content_operations, like_rings, dead_letters, webhooks
//  5. posts: a comment that is written or deleted locks its post first, a like its target
//  6. comments, then drops
//  7. rows that belong to a row above, under its lock: likes, claims, terms, revisions, redactions, tags of a post,
//     cases and reports, members of a ring; then the news of a post, which NotifyFollowers locks alone
//  8. rows that belong to one user, by the one key that all their writers use: sessions, notifications, blocks,
//     bookmarks, subscriptions, drafts, read marks and held names by the primary key, follows by the unique key of
//     user and object; then images by the primary key, and their uses under that lock
//  9. tags: posts of all authors share them, so they are held for the shortest time
//  10. webhook_events: one that changes is locked by its id
//  11. the bytes of all images in settings
//
// A transaction skips the steps that it does not need and never goes back.
//
// Rows are locked through the key that the list names, with FORCE INDEX where the server might choose otherwise. Left
// alone, the server may lock an entry of a secondary index first and its row second, while a transaction that holds the
// row waits to change the entry. Rows that are found by another index are read without a lock, locked by their keys and
// read again.

// Tx is one run of a transaction. Its methods note what the transaction must do at its end, and Transact does it:
// before COMMIT, it adds to the counts of tags, writes the events of webhooks and marks the Idempotency-Key; after
// COMMIT, it closes deleted targets in the gate.
type Tx struct {
	*gorm.DB

	// Now is when the run began, in UTC. It is the one time of all that the transaction writes and compares.
	Now time.Time

	store   *DB
	caller  *Caller         // see WithCaller
	made    []int64         // see Made
	tags    map[int64]int   // see CountTag
	events  []Announcement  // see Announce
	deleted []models.Target // see CloseAfter
}

// begin returns a run of a transaction on db.
func (s *DB) begin(ctx context.Context, conn *gorm.DB) *Tx {
	return &Tx{DB: conn, Now: s.Now().UTC(), store: s, caller: callerOf(ctx), tags: map[int64]int{}}
}

// RequestID returns the id of the request that the transaction belongs to; "" if there is none.
func (tx *Tx) RequestID() string {
	if tx.caller == nil {
		return ""
	}
	return tx.caller.RequestID
}

// Insert runs an INSERT of one row and returns the row's id. It names the row for the answer of a request with an
// Idempotency-Key (see Made); rows that are not in the answer are written with Exec.
func (tx *Tx) Insert(query string, args ...any) (int64, error) {
	result, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, query, args...)
	if err != nil {
		return 0, err
	}
	id, err := result.LastInsertId()
	if err == nil {
		tx.AnswerHas(id)
	}
	return id, err
}

// AnswerHas notes a row that the answer of the request is made from, for Made.
func (tx *Tx) AnswerHas(id int64) { tx.made = append(tx.made, id) }

// CloseAfter notes targets that the transaction has deleted. The gate closes them after COMMIT. If the process dies
// before, workers.Closer does it.
func (tx *Tx) CloseAfter(kind models.TargetKind, ids []int64) {
	for _, id := range ids {
		tx.deleted = append(tx.deleted, models.Target{Kind: kind, ID: id})
	}
}

// Transact runs act in a READ COMMITTED transaction: without gap locks, and every statement sees all committed changes.
// It retries deadlocks, lock waits and ErrChangedMeanwhile; after maxAttempts runs it returns CodeUnavailable. An error
// at COMMIT is returned as it is, because the outcome is unknown. The fencing number and the caller of the context are
// checked first (see WithFence and WithCaller). What act notes is done last (see Tx).
//
// If the request has an Idempotency-Key, the transaction is the effect of the request, and the same COMMIT marks the
// key (see WithRequestLease).
func (s *DB) Transact(ctx context.Context, act func(tx *Tx) error) error {
	var tx *Tx
	var effect effect
	run := func(db *gorm.DB) (err error) {
		tx = s.begin(ctx, db)
		effect, err = tx.run(ctx, act)
		return err
	}
	attempt := 0
	err := retry.Do(ctx, transactBackoff(), func(ctx context.Context) error {
		attempt++
		db := s.db.WithContext(WithTransaction(ctx))
		err := db.Transaction(run, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if refusal := models.RefusalOf(err); refusal != "" {
			s.refused(refusal)
		}
		cause := retryCause(err)
		if cause == "" {
			return err
		}
		s.retried(cause)
		s.Logger().DebugContext(ctx, "transaction met a conflict", "attempt", attempt, "cause", cause, "error", err)
		return retry.RetryableError(err)
	})
	switch {
	case err == nil:
		leaseOf(ctx).committed(effect)
		s.closeDeleted(ctx, tx)
	case retryCause(err) != "":
		return models.Unavailable("The database is too busy; try again.", err)
	}
	return err
}

// run checks whether the transaction may take place, runs act, and does what act has noted. It returns what is
// committed of the request afterwards.
func (tx *Tx) run(ctx context.Context, act func(tx *Tx) error) (e effect, err error) {
	if err := admitFence(ctx, tx); err != nil {
		return e, err
	}
	if err := admitCaller(tx); err != nil {
		return e, err
	}
	if err := act(tx); err != nil {
		return e, err
	}
	if err := writeTagCounts(tx); err != nil {
		return e, err
	}
	if err := writeEvents(tx); err != nil {
		return e, err
	}
	return leaseOf(ctx).record(ctx, tx)
}

// CloseDeletedWith has transactions close in the gate what they have deleted, after their COMMIT. It is called before
// the DB is used. Without it, the DB has no gate.
func (s *DB) CloseDeletedWith(closeTargets func(ctx context.Context, targets ...models.Target) error) {
	s.closeTargets = closeTargets
}

// closeDeleted closes in the gate what a committed transaction has deleted. It has a deadline of its own, because the
// rest of the request's time may be too short. A failure is an error for the operator alone: until workers.Closer gets
// to the target, the gate accepts its likes.
func (s *DB) closeDeleted(ctx context.Context, tx *Tx) {
	if len(tx.deleted) == 0 || s.closeTargets == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.closeTargets(ctx, tx.deleted...); err != nil {
		s.Logger().Error("deleted target not closed", "target", tx.deleted[0].String(), "targets", len(tx.deleted),
			"request_id", tx.RequestID(), "error", err)
	}
}

// transactBackoff returns the pauses between the runs of one transaction: after run n a random time below n times 2 ms.
func transactBackoff() retry.Backoff {
	var limit time.Duration
	longer := retry.BackoffFunc(func() (next time.Duration, stop bool) {
		limit += 2 * time.Millisecond
		return limit, false
	})
	return retry.WithMaxRetries(maxAttempts-1, retry.WithFullJitter(longer))
}

// retryCause returns the cause for which a transaction that ended in err is retried; "" if it is not.
func retryCause(err error) RetryCause {
	switch code := models.MySQLCode(err); {
	case code == errDeadlock:
		return RetryDeadlock
	case code == errLockWait:
		return RetryLockWait
	case errors.Is(err, ErrChangedMeanwhile):
		return RetryChanged
	}
	return ""
}

// Write runs one statement as a transaction and returns the number of rows that it changed. Outside a transaction, the
// statement would not be retried, and would take gap locks under the isolation level of its session.
func (s *DB) Write(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = s.Transact(ctx, func(tx *Tx) error {
		result := tx.Exec(query, args...)
		changed = result.RowsAffected
		return result.Error
	})
	return changed, err
}

// CountTag notes how many more posts have a tag.
func (tx *Tx) CountTag(id int64, more int) { tx.tags[id] += more }

// writeTagCounts adds what CountTag has noted to the counts of tags. It is at the end of the transaction, because
// everybody who uses a popular tag waits for its row. The rows are locked in the order of their ids.
func writeTagCounts(tx *Tx) error {
	maps.DeleteFunc(tx.tags, func(_ int64, more int) bool { return more == 0 })
	if len(tx.tags) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(tx.tags))
	update := `
		UPDATE tags
		SET posts_count=posts_count+` + CaseOf(tx.tags, "0") + `
		WHERE id IN (` + JoinIDs(ids) + `)`
	if err := tx.Exec(update).Error; err != nil {
		return fmt.Errorf("count tags: %w", err)
	}
	return nil
}

// CalledBy returns the caller of the transaction: see WithCaller. It is nil if there is none.
func (tx *Tx) CalledBy() *Caller { return tx.caller }
