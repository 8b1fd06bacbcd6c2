package models

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// LikesMode is how the likes of a site reach MySQL. All processes of a site agree on it, because Redis is the truth in
// one mode and MySQL in the other.
type LikesMode string

// The modes.
const (
	LikesGated    LikesMode = "gated"    // through the gate
	LikesDraining LikesMode = "draining" // on the way from gated to direct: the gate is closed, the pipeline works on
	LikesDirect   LikesMode = "direct"   // in one transaction each
)

// LikesMode returns the mode of the site, or "" before the first process has started.
func (s *Store) LikesMode(ctx context.Context) (LikesMode, error) {
	const query = `
		SELECT value
		FROM settings
		WHERE name='likes'`
	var mode LikesMode
	if err := s.db.WithContext(ctx).Raw(query).Scan(&mode).Error; err != nil {
		return "", fmt.Errorf("read mode of likes: %w", err)
	}
	return mode, nil
}

// StartLikes reports whether a process may start in a mode, gated or direct. The first process of a site decides. If
// the site is in another mode, StartLikes returns CodeConflict.
func (s *Store) StartLikes(ctx context.Context, mode LikesMode) error {
	const insert = `
		INSERT IGNORE INTO settings (name, value)
		VALUES ('likes', ?)`
	is, err := s.LikesMode(ctx)
	if err == nil && is == "" {
		if _, err = s.write(ctx, insert, string(mode)); err == nil {
			is, err = s.LikesMode(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("start in mode %s: %w", mode, err)
	}
	if is == mode || is == LikesDraining && mode == LikesGated {
		return nil
	}
	return Errorf(CodeConflict, "The likes of this site are %s, and not %s: see `likewise likes --help`.", is, mode)
}

// SwitchLikes changes the mode of a site: from gated to draining, from draining to direct or back to gated, and from
// direct to gated. The caller has done what each step needs: see the command likes. SwitchLikes to the present mode
// does nothing. For another step it returns CodeConflict.
//
// From direct to gated, all targets in Redis are stale: each shard evicts them when it is opened.
func (s *Store) SwitchLikes(ctx context.Context, to LikesMode) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		var is LikesMode
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
		case is == LikesDirect && to == LikesGated:
			if err := tx.Exec("UPDATE like_shards SET stale=1").Error; err != nil {
				return err
			}
		case is == LikesGated && to == LikesDraining, is == LikesDraining:
		default:
			return Errorf(CodeConflict, "The likes of this site are %s, and cannot become %s.", is, to)
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

// errNotDirect refuses a like in direct mode after the site has left that mode.
func errNotDirect() *Error {
	return &Error{Code: CodeUnavailable, Message: "The server cannot accept likes at the moment; try again."}
}
