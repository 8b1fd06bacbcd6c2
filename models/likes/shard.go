package likes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/db"
)

// ShardStates reads every shard in order.
func (s *Store) ShardStates(ctx context.Context) ([]models.ShardState, error) {
	return shardStates(s.Read(ctx), db.Conditions{})
}

// Watermarks returns Applied of the shards that are whole.
func (s *Store) Watermarks(ctx context.Context) (map[int]models.Position, error) {
	states, err := s.ShardStates(ctx)
	if err != nil {
		return nil, err
	}
	watermarks := map[int]models.Position{}
	for _, state := range states {
		if state.Whole() {
			watermarks[state.Shard] = state.Applied
		}
	}
	return watermarks, nil
}

// ShardState reads one shard.
func (s *Store) ShardState(ctx context.Context, shard int) (models.ShardState, error) {
	states, err := shardStates(s.Read(ctx), db.Matching("s.shard=?", shard))
	if err == nil && len(states) == 0 {
		err = errNotInstalled(shard)
	}
	if err != nil {
		return models.ShardState{}, err
	}
	return states[0], nil
}

// Applied reads the watermark of one shard. It is one lookup, for callers that ask often.
func (s *Store) Applied(ctx context.Context, shard int) (models.Position, error) {
	const query = `
		SELECT applied_epoch AS epoch, applied_seq AS seq
		FROM like_shards
		WHERE shard=?`
	var applied models.Position
	read := s.Read(ctx).Raw(query, shard).Scan(&applied)
	if read.Error != nil {
		return models.Position{}, fmt.Errorf("read watermark of shard %d: %w", shard, read.Error)
	}
	if read.RowsAffected == 0 {
		return models.Position{}, errNotInstalled(shard)
	}
	return applied, nil
}

func errNotInstalled(shard int) error { return fmt.Errorf("shard %d is not installed", shard) }

// shardStates reads the gaps and letters after the watermarks. A single statement could return a watermark without a
// gap below it; see Tally.
func shardStates(read *gorm.DB, where db.Conditions) ([]models.ShardState, error) {
	query := `
		SELECT s.shard, s.epoch, s.applied_epoch, s.applied_seq, s.applied_at, s.sealed_epoch, s.sealed_seq
		FROM like_shards s
		` + where.Clause() + `
		ORDER BY s.shard`
	var rows []struct {
		Mark      watermark `gorm:"embedded"`
		Epoch     int64
		AppliedAt time.Time
	}
	if err := read.Raw(query, where.Args...).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read shards: %w", err)
	}
	states, shards := make([]models.ShardState, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		states[i] = models.ShardState{
			Shard: r.Mark.Shard, Epoch: r.Epoch, Applied: r.Mark.pos(), AppliedAt: r.AppliedAt,
			Sealed: models.Position{Epoch: r.Mark.SealedEpoch, Seq: r.Mark.SealedSeq},
		}
		shards[i] = int64(r.Mark.Shard)
	}
	if len(states) == 0 {
		return nil, nil
	}
	gaps, err := countByShard(read, `
		SELECT shard, COUNT(*) AS number
		FROM like_gaps FORCE INDEX (idx_open)
		WHERE shard IN (`+db.JoinIDs(shards)+`) AND reconciled_at IS NULL
		GROUP BY shard`)
	if err != nil {
		return nil, fmt.Errorf("count gaps: %w", err)
	}
	letters, err := countByShard(read, `
		SELECT shard, COUNT(*) AS number
		FROM dead_letters FORCE INDEX (idx_resolved_at)
		WHERE resolved_at IS NULL
		GROUP BY shard`)
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	for i := range states {
		states[i].OpenGaps, states[i].Letters = gaps[states[i].Shard], letters[states[i].Shard]
	}
	return states, nil
}

// countByShard returns the numbers of a query of shards and numbers.
func countByShard(read *gorm.DB, query string) (map[int]int, error) {
	var rows []struct{ Shard, Number int }
	if err := read.Raw(query).Scan(&rows).Error; err != nil {
		return nil, err
	}
	numbers := make(map[int]int, len(rows))
	for _, row := range rows {
		numbers[row.Shard] = row.Number
	}
	return numbers, nil
}

// NextEpoch hands out a new epoch of a shard. It is higher than every one before and than above.
func (s *Store) NextEpoch(ctx context.Context, shard int, above int64) (int64, error) {
	var epoch int64
	err := s.Transact(ctx, func(tx *db.Tx) error {
		var mode models.LikesMode
		const read = `
			SELECT value
			FROM settings
			WHERE name='likes'
			LOCK IN SHARE MODE`
		if err := tx.Raw(read).Scan(&mode).Error; err != nil {
			return err
		}
		if mode != "" && mode != models.LikesGated {
			return fmt.Errorf("%w: they are %s", models.ErrNotGated, mode)
		}
		update := tx.Exec(`
			UPDATE like_shards
			SET epoch=GREATEST(epoch, applied_epoch, ?)+1
			WHERE shard=?`, above, shard)
		if update.Error != nil {
			return update.Error
		}
		if update.RowsAffected == 0 {
			return errNotInstalled(shard)
		}
		return tx.Raw(`
			SELECT epoch
			FROM like_shards
			WHERE shard=?`, shard).Scan(&epoch).Error
	})
	if err != nil {
		return 0, fmt.Errorf("next epoch of shard %d: %w", shard, err)
	}
	return epoch, nil
}

// OpenGaps reads the gaps of a shard that are not reconciled.
func (s *Store) OpenGaps(ctx context.Context, shard int) (models.Gaps, error) {
	const query = `
		SELECT id, after_epoch AS epoch, after_seq AS seq
		FROM like_gaps
		WHERE shard=? AND reconciled_at IS NULL
		ORDER BY after_epoch, after_seq`
	var rows []struct {
		ID    int64
		After models.Position `gorm:"embedded"`
	}
	if err := s.Read(ctx).Raw(query, shard).Scan(&rows).Error; err != nil {
		return models.Gaps{}, fmt.Errorf("read gaps of shard %d: %w", shard, err)
	}
	var gaps models.Gaps
	for _, row := range rows {
		gaps.IDs = append(gaps.IDs, row.ID)
	}
	if len(rows) > 0 {
		gaps.After = rows[0].After
	}
	return gaps, nil
}

// CloseGaps records that the shard was compared with Redis and repaired after these gaps appeared.
func (s *Store) CloseGaps(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	update := `
		UPDATE like_gaps
		SET reconciled_at=?
		WHERE id IN (` + db.JoinIDs(db.Ascending(ids)) + `)`
	if _, err := s.Write(ctx, update, s.Now().UTC()); err != nil {
		return fmt.Errorf("close gaps: %w", err)
	}
	return nil
}

const maxFailure = 500 // characters of shard_failures.error

// NoteFailure stores a failure of a stage of some shards, in place of the one before. The pipeline desk shows it.
func (s *Store) NoteFailure(ctx context.Context, shards []int, stage models.Stage, worker string, failure error) error {
	if len(shards) == 0 {
		return nil
	}
	text := []rune(strings.ToValidUTF8(failure.Error(), "?"))
	text = text[:min(len(text), maxFailure)]
	now, args := s.Now().UTC(), []any{}
	for _, shard := range shards {
		args = append(args, shard, string(stage), worker, string(text), now)
	}
	insert := `
		INSERT INTO shard_failures (shard, stage, worker, error, failed_at)
		VALUES ` + strings.Repeat(",(?,?,?,?,?)", len(shards))[1:] + `
		ON DUPLICATE KEY UPDATE worker=VALUES(worker), error=VALUES(error), failed_at=VALUES(failed_at)`
	if _, err := s.Write(ctx, insert, args...); err != nil {
		return fmt.Errorf("note failure: %w", err)
	}
	return nil
}

// ShardFailures lists the failures that NoteFailure stored.
func (s *Store) ShardFailures(ctx context.Context) ([]models.ShardFailure, error) {
	const query = `
		SELECT shard, stage, worker, error, failed_at
		FROM shard_failures
		ORDER BY shard, stage`
	var list []models.ShardFailure
	if err := s.Read(ctx).Raw(query).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read failures: %w", err)
	}
	return list, nil
}
