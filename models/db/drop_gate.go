package db

import (
	"context"
	"fmt"

	"likewise/models"
)

// DropIDs returns the ids of the drops of a post, deleted or not, in ascending order. There are at most MaxDrops.
func (s *DB) DropIDs(ctx context.Context, postID int64) ([]int64, error) {
	ids, err := DropsOf(s.Read(ctx), []int64{postID})
	if err != nil {
		return nil, fmt.Errorf("read drops of post %d: %w", postID, err)
	}
	return ids, nil
}

// ConfirmWithin returns the time to confirm a claim of a drop, in seconds; 0: claims need no confirmation. It never
// changes. Unlike Drop, ConfirmWithin reads drops of deleted posts, too: the gate may have accepted a claim just before
// the deletion. If the drop does not exist, it returns CodeNotFound.
func (s *DB) ConfirmWithin(ctx context.Context, dropID int64) (seconds int64, err error) {
	const query = `
		SELECT confirm_within
		FROM drops FORCE INDEX (PRIMARY)
		WHERE id=?`
	read := s.Read(ctx).Raw(query, dropID).Scan(&seconds)
	if read.Error != nil {
		return 0, fmt.Errorf("read drop %d: %w", dropID, read.Error)
	}
	if read.RowsAffected == 0 {
		return 0, models.NotFound(models.KindDrop)
	}
	return seconds, nil
}
