package likes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

const letterColumns = `
	id, shard, epoch, seq, topic, topic_partition, topic_offset, LENGTH(payload) AS size, error, created_at,
	resolution, resolved_at, resolved_by`

// maxLetterError is the width of dead_letters.error, in characters.
const maxLetterError = 1000

// insertDeadLetters stores records that cannot be applied. A record that is stored already stays as it is.
func insertDeadLetters(tx *db.Tx, dead []models.LikeRecord, now time.Time) error {
	const insert = `
		INSERT INTO dead_letters (
			shard, digest, epoch, seq, topic, topic_partition, topic_offset, payload, error, created_at
		)
		VALUES (?, UNHEX(?), ?, ?, ?, ?, ?, UNHEX(?), ?, ?)
		ON DUPLICATE KEY UPDATE id=id`
	for _, r := range dead {
		reason := []rune(strings.ToValidUTF8(r.Problem, "?"))
		reason = reason[:min(len(reason), maxLetterError)]
		digest := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %s %s", r.Topic, r.Partition, r.Offset, r.Pos, r.Payload))
		err := tx.Exec(insert, r.Shard, db.HexOf(digest), r.Pos.Epoch, r.Pos.Seq, r.Topic, r.Partition, r.Offset,
			hex.EncodeToString(r.Payload), string(reason), now).Error
		if err != nil {
			return fmt.Errorf("write dead letter: %w", err)
		}
	}
	return nil
}

// DeadLetters counts the unresolved letters.
func (s *Store) DeadLetters(ctx context.Context) (int64, error) {
	const query = `
		SELECT COUNT(*)
		FROM dead_letters
		WHERE resolved_at IS NULL`
	var n int64
	if err := s.Read(ctx).Raw(query).Scan(&n).Error; err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// ListDeadLetters lists the resolved or the unresolved letters, latest first: at most limit with ids below before (0
// for the first page).
func (s *Store) ListDeadLetters(
	ctx context.Context, resolved bool, before int64, limit int,
) ([]models.DeadLetter, error) {
	where := db.Matching("resolved_at IS NULL")
	if resolved {
		where = db.Matching("resolution<>''") // read in the order of ids, because there are few
	}
	where.AddIf(before > 0, "id<?", before)
	query := `
		SELECT ` + letterColumns + `, LEFT(payload, ?) AS payload
		FROM dead_letters
		` + where.Clause() + `
		ORDER BY id DESC
		LIMIT ?`
	args := slices.Concat([]any{models.MaxShownPayload}, where.Args, []any{limit})
	var list []models.DeadLetter
	err := s.Read(ctx).Raw(query, args...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	for i := range list {
		list[i].Place()
	}
	return list, nil
}

// DeadLetter reads one letter. If it does not exist, DeadLetter returns CodeNotFound.
func (s *Store) DeadLetter(ctx context.Context, id int64) (*models.DeadLetter, error) {
	var l models.DeadLetter
	read := s.Read(ctx).Raw(`
		SELECT `+letterColumns+`, payload
		FROM dead_letters
		WHERE id=?`, id).Scan(&l)
	if read.Error != nil {
		return nil, fmt.Errorf("read dead letter %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoLetter()
	}
	l.Place()
	return &l, nil
}

func errNoLetter() *models.Error {
	return models.Errorf(models.CodeNotFound, "There is no such dead letter.")
}

// ResolveDeadLetter records how an admin resolved a letter, and returns the letter. It logs a discarded letter;
// BeginRetry logs a retried one. ResolveDeadLetter returns CodeNotFound if the letter does not exist, and CodeConflict
// if it is resolved already.
func (s *Store) ResolveDeadLetter(ctx context.Context, actor, id int64, how models.LetterFate, reason string,
) (*models.DeadLetter, error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	now := s.Now().UTC()
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleAdmin); err != nil {
			return err
		}
		problem, err := lockOpenLetter(tx, id)
		if err != nil {
			return err
		}
		const update = `
			UPDATE dead_letters
			SET resolution=?, resolved_at=?, resolved_by=?
			WHERE id=?`
		if err := tx.Exec(update, string(how), now, actor, id).Error; err != nil || how == models.Retried {
			return err
		}
		act := letterAct(actor, id, "dead_letter.discard", reason)
		act.Before = map[string]any{"resolution": nil, "error": problem}
		act.After = map[string]any{"resolution": string(how)}
		return accounts.LogModeration(tx, act)
	})
	if err != nil {
		return nil, fmt.Errorf("resolve dead letter %d: %w", id, err)
	}
	return s.DeadLetter(ctx, id)
}

func letterAct(actor, id int64, action, reason string) accounts.ModerationAct {
	return accounts.ModerationAct{ActorID: actor, Action: action, TargetType: "dead_letter", TargetID: id,
		Reason: reason}
}

// BeginRetry logs that an admin has the events of a letter sent through the pipeline again. It precedes the retry,
// because the pipeline is not part of any transaction. If the process dies in between, the letter stays open and the
// log has an entry too many, but no act without an entry. ResolveDeadLetter or FailRetry ends the retry. The errors are
// those of ResolveDeadLetter.
func (s *Store) BeginRetry(ctx context.Context, actor, id int64, reason string, events int) error {
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleAdmin); err != nil {
			return err
		}
		problem, err := lockOpenLetter(tx, id)
		if err != nil {
			return err
		}
		act := letterAct(actor, id, "dead_letter.retry", reason)
		act.Before = map[string]any{"resolution": nil, "error": problem}
		act.After = map[string]any{"events": events}
		return accounts.LogModeration(tx, act)
	})
	if err != nil {
		return fmt.Errorf("retry dead letter %d: %w", id, err)
	}
	return nil
}

// FailRetry logs that a retry failed or was not completed. The letter stays open.
func (s *Store) FailRetry(ctx context.Context, actor, id int64, reason string) error {
	err := s.Transact(ctx, func(tx *db.Tx) error {
		act := letterAct(actor, id, "dead_letter.retry_failed", reason)
		act.After = map[string]any{"resolution": nil}
		return accounts.LogModeration(tx, act)
	})
	if err != nil {
		return fmt.Errorf("retry dead letter %d: %w", id, err)
	}
	return nil
}

// lockOpenLetter locks an unresolved letter and returns its error.
func lockOpenLetter(tx *db.Tx, id int64) (problem string, err error) {
	var letter struct {
		ID         int64
		Resolution models.LetterFate
		Error      string
	}
	read := tx.Raw(`
		SELECT id, resolution, error
		FROM dead_letters
		WHERE id=?
		FOR UPDATE`, id).Scan(&letter)
	switch {
	case read.Error != nil:
		return "", read.Error
	case read.RowsAffected == 0:
		return "", errNoLetter()
	case letter.Resolution != models.Unresolved:
		return "", models.Errorf(models.CodeConflict, "The letter was %s already.", letter.Resolution)
	}
	return letter.Error, nil
}
