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
