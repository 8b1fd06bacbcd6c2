package models

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// DeadLetter is an event, or a whole record of the log, that could not be applied.
type DeadLetter struct {
	ID         int64
	Shard      int
	Pos        Position `gorm:"-"` // zero: the record could not be read at all, and Payload is all of it
	Epoch, Seq int64
	Topic      string
	Partition  int32  `gorm:"column:topic_partition"`
	Offset     int64  `gorm:"column:topic_offset"`
	Payload    []byte // of a list: its first MaxShownPayload bytes
	Size       int    // of the payload, in bytes
	Error      string
	CreatedAt  time.Time
	Resolution LetterFate
	ResolvedAt *time.Time
	ResolvedBy *int64
}

// LetterFate is what became of a dead letter.
type LetterFate string

// The fates.
const (
	Unresolved LetterFate = ""          // it waits for somebody to look at it
	Retried    LetterFate = "retried"   // what it is about was sent through the pipeline once more
	Discarded  LetterFate = "discarded" // it stays without effect
)

const letterColumns = "id, shard, epoch, seq, topic, topic_partition, topic_offset, LENGTH(payload) AS size, error, created_at, resolution, resolved_at, resolved_by"

// MaxShownPayload is how much of a letter's payload a list has, in bytes. A record of the log can have a megabyte.
const MaxShownPayload = 4 << 10

func (l *DeadLetter) place() { l.Pos = Position{l.Epoch, l.Seq} }

// Key gives the place of the letter in the list.
func (l *DeadLetter) Key() ListKey { return ListKey{ID: l.ID} }

// DeadLetters counts the letters that wait for somebody to look at them.
func (s *Store) DeadLetters(ctx context.Context) (int64, error) {
	var n int64
	if err := s.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM dead_letters WHERE resolved_at IS NULL").Scan(&n).Error; err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// ListDeadLetters lists letters, the latest first: those that are resolved, or those that are not; at most limit with ids
// below before (0 for the first page).
func (s *Store) ListDeadLetters(ctx context.Context, resolved bool, before int64, limit int) ([]DeadLetter, error) {
	where, args := "resolved_at IS NULL", []any{MaxShownPayload}
	if resolved {
		where = "resolution<>''" // in the order of ids, as they are few
	}
	if before > 0 {
		where, args = where+" AND id<?", append(args, before)
	}
	var list []DeadLetter
	err := s.db.WithContext(ctx).Raw("SELECT "+letterColumns+", LEFT(payload,?) AS payload FROM dead_letters WHERE "+where+" ORDER BY id DESC LIMIT ?", append(args, limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	for i := range list {
		list[i].place()
	}
	return list, nil
}

// DeadLetter reads one letter; CodeNotFound when there is none.
func (s *Store) DeadLetter(ctx context.Context, id int64) (*DeadLetter, error) {
	var l DeadLetter
	read := s.db.WithContext(ctx).Raw("SELECT "+letterColumns+", payload FROM dead_letters WHERE id=?", id).Scan(&l)
	if read.Error != nil {
		return nil, fmt.Errorf("read dead letter %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, Errorf(CodeNotFound, "There is no such dead letter.")
	}
	l.place()
	return &l, nil
}

// Events reads what the letter is about, by what is known of events today. CodeConflict when it still cannot be read.
func (l *DeadLetter) Events(shards int) ([]Event, error) {
	payloads := []json.RawMessage{l.Payload}
	if l.Pos.IsZero() {
		envelope, err := DecodeEnvelope(l.Payload, l.Shard)
		if err != nil {
			return nil, unreadable(err)
		}
		payloads = payloads[:0]
		for _, e := range envelope.Events {
			payloads = append(payloads, e.Event)
		}
	}
	events := make([]Event, len(payloads))
	for i, payload := range payloads {
		var err error
		if events[i], err = DecodeEvent(payload, l.Shard, shards); err != nil {
			return nil, unreadable(err)
		}
	}
	return events, nil
}

func unreadable(err error) error {
	return &Error{Code: CodeConflict, Message: "The letter still cannot be read.", Err: err}
}

// ResolveDeadLetter records what a moderator did about a letter, and gives it; discarding is logged with it, and of retrying
// see BeginRetry. CodeNotFound when there is none, CodeConflict when it is resolved already.
func (s *Store) ResolveDeadLetter(ctx context.Context, actor, id int64, how LetterFate, reason string) (*DeadLetter, error) {
	if err := ValidateReason(reason); err != nil {
		return nil, err
	}
	now := s.now().UTC()
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockActor(tx, actor, RoleAdmin); err != nil {
			return err
		}
		problem, err := lockOpenLetter(tx, id)
		if err != nil {
			return err
		}
		if err := tx.Exec("UPDATE dead_letters SET resolution=?, resolved_at=?, resolved_by=? WHERE id=?", string(how), now, actor, id).Error; err != nil || how == Retried {
			return err
		}
		return s.logModeration(tx, Act{ActorID: actor, Action: "dead_letter.discard", TargetType: "dead_letter", TargetID: id, Reason: reason,
			Before: map[string]any{"resolution": nil, "error": problem}, After: map[string]any{"resolution": string(how)}})
	})
	if err != nil {
		return nil, fmt.Errorf("resolve dead letter %d: %w", id, err)
	}
	return s.DeadLetter(ctx, id)
}

// BeginRetry logs that a moderator has what a letter is about sent through the pipeline once more. It comes before that is
// done, because the pipeline is not part of any transaction: whoever dies in between leaves the letter open and an entry
// too many, never an act without one. The errors are those of ResolveDeadLetter, which ends it; or FailRetry does.
func (s *Store) BeginRetry(ctx context.Context, actor, id int64, reason string, events int) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockActor(tx, actor, RoleAdmin); err != nil {
			return err
		}
		problem, err := lockOpenLetter(tx, id)
		if err != nil {
			return err
		}
		return s.logModeration(tx, Act{ActorID: actor, Action: "dead_letter.retry", TargetType: "dead_letter", TargetID: id, Reason: reason,
			Before: map[string]any{"resolution": nil, "error": problem}, After: map[string]any{"events": events}})
	})
	if err != nil {
		return fmt.Errorf("retry dead letter %d: %w", id, err)
	}
	return nil
}

// FailRetry logs that a retry came to nothing, or not to its end: the letter is still open.
func (s *Store) FailRetry(ctx context.Context, actor, id int64, reason string) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		return s.logModeration(tx, Act{ActorID: actor, Action: "dead_letter.retry_failed", TargetType: "dead_letter", TargetID: id, Reason: reason,
			After: map[string]any{"resolution": nil}})
	})
	if err != nil {
		return fmt.Errorf("retry dead letter %d: %w", id, err)
	}
	return nil
}

// lockOpenLetter locks a letter that waits for somebody, and gives its error.
func lockOpenLetter(tx *gorm.DB, id int64) (problem string, err error) {
	var letter struct {
		ID         int64
		Resolution LetterFate
		Error      string
	}
	read := tx.Raw("SELECT id, resolution, error FROM dead_letters WHERE id=? FOR UPDATE", id).Scan(&letter)
	switch {
	case read.Error != nil:
		return "", read.Error
	case read.RowsAffected == 0:
		return "", Errorf(CodeNotFound, "There is no such dead letter.")
	case letter.Resolution != Unresolved:
		return "", Errorf(CodeConflict, "The letter was %s already.", letter.Resolution)
	}
	return letter.Error, nil
}
