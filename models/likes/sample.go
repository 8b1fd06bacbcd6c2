package likes

import (
	"context"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// sampleBatch is the most samples that AddSample deletes: more than come, so that those of an outage are deleted, too.
const sampleBatch = 100

// AddSample stores a sample unless its slot has one, and deletes some that are older than models.SamplesKept. It
// reports whether it stored the sample.
func (s *Store) AddSample(ctx context.Context, sample models.PipelineSample) (added bool, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		insert := tx.Exec(`
			INSERT INTO pipeline_samples (slot, accepted_per_second, applied_per_second, outbox_events, lag_events,
				lag_seconds, closed_shards, open_gaps, dead_letters)
			VALUES (?,?,?,?,?,?,?,?,?)
			ON DUPLICATE KEY UPDATE slot=VALUES(slot)`,
			sample.Slot.UTC(), sample.AcceptedPerSecond, sample.AppliedPerSecond, sample.OutboxEvents, sample.LagEvents,
			sample.LagSeconds, sample.ClosedShards, sample.OpenGaps, sample.DeadLetters)
		if insert.Error != nil {
			return insert.Error
		}
		added = insert.RowsAffected == 1
		return tx.Exec(`
			DELETE FROM pipeline_samples
			WHERE slot<?
			ORDER BY slot
			LIMIT ?`, sample.Slot.UTC().Add(-models.SamplesKept), sampleBatch).Error
	})
	if err != nil {
		return false, fmt.Errorf("store a sample of the pipeline: %w", err)
	}
	return added, nil
}

// Samples returns the samples after a time, earliest first. The samples of each step become one, at the beginning of
// the step: it has the mean of their rates and the greatest of their other numbers.
func (s *Store) Samples(ctx context.Context, after time.Time, step time.Duration) ([]models.PipelineSample, error) {
	const query = `
		SELECT FROM_UNIXTIME(UNIX_TIMESTAMP(slot) DIV ? * ?) AS slot, AVG(accepted_per_second) AS accepted_per_second,
			AVG(applied_per_second) AS applied_per_second, MAX(outbox_events) AS outbox_events,
			MAX(lag_events) AS lag_events, MAX(lag_seconds) AS lag_seconds, MAX(closed_shards) AS closed_shards,
			MAX(open_gaps) AS open_gaps, MAX(dead_letters) AS dead_letters
		FROM pipeline_samples
		WHERE slot>?
		GROUP BY 1
		ORDER BY 1`
	seconds := int64(step / time.Second)
	var samples []models.PipelineSample
	if err := s.Read(ctx).Raw(query, seconds, seconds, after.UTC()).Scan(&samples).Error; err != nil {
		return nil, fmt.Errorf("read samples of the pipeline: %w", err)
	}
	return samples, nil
}
