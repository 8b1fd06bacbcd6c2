package db

import (
	"fmt"

	"gorm.io/gorm"
)

// DropsOf returns the ids of the drops of posts, in their order.
func DropsOf(conn *gorm.DB, posts []int64) ([]int64, error) {
	if len(posts) == 0 {
		return nil, nil
	}
	query := `
		SELECT id
		FROM drops FORCE INDEX (idx_post_id)
		WHERE post_id IN (` + JoinIDs(Ascending(posts)) + `)`
	var ids []int64
	if err := conn.Raw(query).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read drops of posts: %w", err)
	}
	return Ascending(ids), nil
}
