package content

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"likewise/models/db"
)

// DropIDs returns the ids of the drops of a post, deleted or not, in ascending order. There are at most MaxDrops.
func (s *Store) DropIDs(ctx context.Context, postID int64) ([]int64, error) {
	ids, err := DropsOf(s.Read(ctx), []int64{postID})
	if err != nil {
		return nil, fmt.Errorf("read drops of post %d: %w", postID, err)
	}
	return ids, nil
}

// DropsOf returns the ids of the drops of posts, in their order.
func DropsOf(conn *gorm.DB, posts []int64) ([]int64, error) {
	if len(posts) == 0 {
		return nil, nil
	}
	query := `
		SELECT id
		FROM drops FORCE INDEX (idx_post_id)
		WHERE post_id IN (` + db.JoinIDs(db.Ascending(posts)) + `)`
	var ids []int64
	if err := conn.Raw(query).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read drops of posts: %w", err)
	}
	return db.Ascending(ids), nil
}
