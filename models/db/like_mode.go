package db

import (
	"context"
	"fmt"

	"likewise/models"
)

// LikesMode returns the mode of the site, or "" before the first process has started.
func (s *DB) LikesMode(ctx context.Context) (models.LikesMode, error) {
	const query = `
		SELECT value
		FROM settings
		WHERE name='likes'`
	var mode models.LikesMode
	if err := s.Read(ctx).Raw(query).Scan(&mode).Error; err != nil {
		return "", fmt.Errorf("read mode of likes: %w", err)
	}
	return mode, nil
}

// StartLikes starts a process in a mode, gated or direct. The first process of a site decides. If the site is in
// another mode, StartLikes returns CodeConflict.
//
// After a start in direct mode, the DB returns CodeUnavailable for what may be done in direct mode alone, if the
// site has left it: SetLike, WithdrawLike, EndClosing and CloseLikeVoid.
func (s *DB) StartLikes(ctx context.Context, mode models.LikesMode) error {
	const insert = `
		INSERT IGNORE INTO settings (name, value)
		VALUES ('likes', ?)`
	is, err := s.LikesMode(ctx)
	if err == nil && is == "" {
		if _, err = s.Write(ctx, insert, string(mode)); err == nil {
			is, err = s.LikesMode(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("start in mode %s: %w", mode, err)
	}
	if is == mode {
		s.direct.Store(mode == models.LikesDirect)
		return nil
	}
	return models.Errorf(models.CodeConflict, "The likes of this site are %s, and not %s: see `likewise likes --help`.",
		is, mode)
}

// ErrNoMode has CodeConflict: the site has no mode that could change.
var ErrNoMode error = &models.Error{Code: models.CodeConflict, Message: "No process of this site has started yet. " +
	"The first one decides whether its likes are gated or direct: set LIKEWISE_LIKES."}

// SwitchToGated makes a direct site gated. It waits for direct likes and claims in progress; later ones are refused. If
// the site has no mode yet, it returns CodeConflict.
func (s *DB) SwitchToGated(ctx context.Context) error {
	return s.switchLikes(ctx, models.LikesGated, func(*Tx) error { return nil })
}

// SwitchToDirect makes a gated site direct. It calls closeGate while MySQL issues no epoch and applies no event.
// closeGate closes every shard, compares its last event with what MySQL has applied, by shard, and returns CodeConflict
// if they differ. After an error of closeGate, or if a shard has a gap or an unresolved dead letter, the site stays
// gated. If the site has no mode yet, SwitchToDirect returns CodeConflict.
//
// Direct mode is an epoch of each shard that Redis never had. So when the gate opens a shard afterwards, MySQL has
// events that Redis lacks, and the relay evicts all of the shard's targets.
func (s *DB) SwitchToDirect(
	ctx context.Context, closeGate func(ctx context.Context, applied []models.Position) error,
) error {
	return s.switchLikes(ctx, models.LikesDirect, func(tx *Tx) error { return leaveGate(ctx, tx, closeGate) })
}

// switchLikes changes the mode of a site. NextEpoch and direct likes wait until it has ended. If the site has the mode,
// switchLikes does nothing.
func (s *DB) switchLikes(ctx context.Context, to models.LikesMode, leave func(*Tx) error) error {
	const lock = `
		SELECT value
		FROM settings
		WHERE name='likes'
		FOR UPDATE`
	const update = `
		UPDATE settings
		SET value=?
		WHERE name='likes'`
	err := s.Transact(ctx, func(tx *Tx) error {
		var is models.LikesMode
		if err := tx.Raw(lock).Scan(&is).Error; err != nil || is == to {
			return err
		}
		if is == "" {
			return ErrNoMode
		}
		if err := leave(tx); err != nil {
			return err
		}
		return tx.Exec(update, string(to)).Error
	})
	if err != nil {
		return fmt.Errorf("switch likes to %s: %w", to, err)
	}
	return nil
}

// leaveGate moves the epoch and the watermark of each shard beyond those of the gate. A relay that has begun to open a
// shard does not finish: its epoch is a lower one. The watermark has seq 1, because shardMark.move keeps the end of an
// epoch if the epoch has had a like.
func leaveGate(
	ctx context.Context, tx *Tx, closeGate func(ctx context.Context, applied []models.Position) error,
) error {
	const lock = `
		SELECT applied_epoch AS epoch, applied_seq AS seq
		FROM like_shards
		ORDER BY shard
		FOR UPDATE`
	var applied []models.Position
	if err := tx.Raw(lock).Scan(&applied).Error; err != nil {
		return err
	}
	// The like writer records gaps and dead letters under the lock of the shard, so none can follow.
	const gaps = `
		SELECT DISTINCT shard
		FROM like_gaps
		WHERE reconciled_at IS NULL
		ORDER BY shard`
	var shards []int
	if err := tx.Raw(gaps).Scan(&shards).Error; err != nil {
		return err
	}
	if len(shards) > 0 {
		return models.Errorf(models.CodeConflict, "MySQL lacks likes of the shards %v that the log lost. "+
			"Run `likewise cron run reconcile`, which sends them again; then run this command again.", shards)
	}
	const letters = `
		SELECT DISTINCT shard
		FROM dead_letters FORCE INDEX (idx_resolved_at)
		WHERE resolved_at IS NULL
		ORDER BY shard`
	if err := tx.Raw(letters).Scan(&shards).Error; err != nil {
		return err
	}
	if len(shards) > 0 {
		return models.Errorf(models.CodeConflict, "The shards %v have dead letters, whose likes only Redis may have. "+
			"Retry or discard them while the site runs gated; then run this command again.", shards)
	}
	if err := closeGate(ctx, applied); err != nil {
		return err
	}
	const raise = `
		UPDATE like_shards
		SET epoch=GREATEST(epoch, applied_epoch)+1`
	if err := tx.Exec(raise).Error; err != nil {
		return err
	}
	const apply = `
		UPDATE like_shards
		SET applied_epoch=epoch, applied_seq=1, applied_at=?`
	return tx.Exec(apply, tx.Now).Error
}
