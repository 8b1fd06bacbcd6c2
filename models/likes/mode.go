package likes

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

// ErrNoMode has CodeConflict: the site has no mode that could change.
var ErrNoMode error = &models.Error{Code: models.CodeConflict, Message: "No process of this site has started yet. " +
	"The first one decides whether its likes are gated or direct: set LIKEWISE_LIKES."}

// SwitchToGated makes a direct site gated. It waits for direct likes and claims in progress; later ones are refused. If
// the site has no mode yet, it returns CodeConflict.
func (s *Store) SwitchToGated(ctx context.Context) error {
	return s.switchLikes(ctx, models.LikesGated, func(*db.Tx) error { return nil })
}

// SwitchToDirect makes a gated site direct. It calls closeGate while MySQL issues no epoch and applies no event.
// closeGate closes every shard, compares it with what MySQL has, and returns CodeConflict if MySQL lacks an event.
// After an error of closeGate, the site stays gated. If the site has no mode yet, SwitchToDirect returns CodeConflict.
//
// Direct mode is an epoch of each shard that Redis never had. So when the gate opens a shard afterwards, MySQL has
// events that Redis lacks, and the relay evicts all of the shard's targets.
func (s *Store) SwitchToDirect(
	ctx context.Context, closeGate func(ctx context.Context, states []models.ShardState) error,
) error {
	return s.switchLikes(ctx, models.LikesDirect, func(tx *db.Tx) error { return leaveGate(ctx, tx, closeGate) })
}

// switchLikes changes the mode of a site. NextEpoch and direct likes wait until it has ended. If the site has the mode,
// switchLikes does nothing.
func (s *Store) switchLikes(ctx context.Context, to models.LikesMode, leave func(*db.Tx) error) error {
	const lock = `
		SELECT value
		FROM settings
		WHERE name='likes'
		FOR UPDATE`
	const update = `
		UPDATE settings
		SET value=?
		WHERE name='likes'`
	err := s.Transact(ctx, func(tx *db.Tx) error {
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
// shard does not finish: its epoch is a lower one. The watermark has seq 1, because watermark.move keeps the end of an
// epoch if the epoch has had a like.
func leaveGate(
	ctx context.Context, tx *db.Tx, closeGate func(ctx context.Context, states []models.ShardState) error,
) error {
	// The like writer records gaps and dead letters under the lock of the shard, so none can follow.
	const lock = `
		SELECT shard
		FROM like_shards
		ORDER BY shard
		FOR UPDATE`
	var shards []int
	if err := tx.Raw(lock).Scan(&shards).Error; err != nil {
		return err
	}
	states, err := shardStates(tx.DB, db.Conditions{})
	if err != nil {
		return err
	}
	if err := closeGate(ctx, states); err != nil {
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
