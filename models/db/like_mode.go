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
	if is == mode || is == models.LikesDraining && mode == models.LikesGated {
		s.direct.Store(mode == models.LikesDirect)
		return nil
	}
	return models.Errorf(models.CodeConflict, "The likes of this site are %s, and not %s: see `likewise likes --help`.",
		is, mode)
}

// SwitchLikes changes the mode of a site: from gated to draining, from draining to direct or back to gated, and from
// direct to gated. SwitchLikes to the present mode does nothing. For another step it returns CodeConflict.
//
// To draining, it ends the openings of shards that are under way, and NextEpoch allows no other. To direct, the caller
// has made sure that MySQL has every like that the gate accepted. For likes that only Redis has, SwitchLikes to either
// returns CodeConflict: while a shard has a gap or an unresolved dead letter, the site stays in its mode.
//
// Direct mode is an epoch of each shard that Redis never had. So when the gate opens a shard afterwards, MySQL has
// events that Redis lacks, and the relay evicts all of the shard's targets.
func (s *DB) SwitchLikes(ctx context.Context, to models.LikesMode) error {
	err := s.Transact(ctx, func(tx *Tx) error {
		var is models.LikesMode
		const lock = `
			SELECT value
			FROM settings
			WHERE name='likes'
			FOR UPDATE`
		if err := tx.Raw(lock).Scan(&is).Error; err != nil {
			return err
		}
		switch {
		case is == to:
			return nil
		case is == "":
			return &models.Error{Code: models.CodeConflict, Message: "No process of this site has started yet. " +
				"The first one decides whether its likes are gated or direct: set LIKEWISE_LIKES."}
		case is == models.LikesGated && to == models.LikesDraining, is == models.LikesDraining &&
			to == models.LikesDirect:
			if err := leaveGate(tx, to); err != nil {
				return err
			}
		case to == models.LikesGated:
		default:
			return models.Errorf(models.CodeConflict, "The likes of this site are %s, and cannot become %s.", is, to)
		}
		const update = `
			UPDATE settings
			SET value=?
			WHERE name='likes'`
		return tx.Exec(update, string(to)).Error
	})
	if err != nil {
		return fmt.Errorf("switch likes to %s: %w", to, err)
	}
	return nil
}

// leaveGate raises the epoch of each shard, because a relay does not finish an opening of a lower epoch. For direct
// mode it also moves the watermark there, to seq 1: shardMark.move keeps the end of an epoch if the epoch has had a
// like.
func leaveGate(tx *Tx, to models.LikesMode) error {
	const raise = `
		UPDATE like_shards
		SET epoch=GREATEST(epoch, applied_epoch)+1`
	if err := tx.Exec(raise).Error; err != nil {
		return err
	}
	// The like writer records gaps under the lock of the shard, so none can follow.
	const read = `
		SELECT DISTINCT shard
		FROM like_gaps
		WHERE reconciled_at IS NULL
		ORDER BY shard`
	var gaps []int
	if err := tx.Raw(read).Scan(&gaps).Error; err != nil {
		return err
	}
	if len(gaps) > 0 {
		return models.Errorf(models.CodeConflict, "MySQL lacks likes of the shards %v that the log lost. "+
			"While the site is gated, the job reconcile sends them again; then run this command again.", gaps)
	}
	const unresolved = `
		SELECT DISTINCT shard
		FROM dead_letters FORCE INDEX (idx_resolved_at)
		WHERE resolved_at IS NULL
		ORDER BY shard`
	var letters []int
	if err := tx.Raw(unresolved).Scan(&letters).Error; err != nil {
		return err
	}
	if len(letters) > 0 {
		return models.Errorf(models.CodeConflict, "The shards %v have dead letters, whose likes only Redis may have. "+
			"Retry or discard them while the site is gated; then run this command again.", letters)
	}
	if to != models.LikesDirect {
		return nil
	}
	const apply = `
		UPDATE like_shards
		SET applied_epoch=epoch, applied_seq=1, applied_at=?`
	return tx.Exec(apply, tx.Now).Error
}

// StopDraining changes the mode of a site from draining back to gated. In another mode it does nothing.
func (s *DB) StopDraining(ctx context.Context) error {
	const update = `
		UPDATE settings
		SET value=?
		WHERE name='likes' AND value=?`
	if _, err := s.Write(ctx, update, string(models.LikesGated), string(models.LikesDraining)); err != nil {
		return fmt.Errorf("stop draining: %w", err)
	}
	return nil
}
