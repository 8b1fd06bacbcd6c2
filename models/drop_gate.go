package models

import (
	"context"
	"fmt"
)

// DropIDs returns the ids of the drops of a post, deleted or not, in ascending order. There are at most MaxDrops.
func (s *Store) DropIDs(ctx context.Context, postID int64) ([]int64, error) {
	ids, err := dropsOf(s.db.WithContext(ctx), []int64{postID})
	if err != nil {
		return nil, fmt.Errorf("read drops of post %d: %w", postID, err)
	}
	return ids, nil
}
