package content

import (
	"context"
	"fmt"
	"slices"

	"likewise/models"
	"likewise/models/db"
)

// LiveCountsChunk is the maximum number of ids in one query.
const LiveCountsChunk = 1000

var liveCountsQueries = map[models.TargetKind]string{
	models.KindPost: `
		SELECT 'post' AS kind, t.id, t.likes_count AS likes, t.comments_count AS replies
		FROM posts t
		WHERE t.status=` + db.SQLNormal,
	models.KindComment: `
		SELECT 'comment' AS kind, t.id, t.likes_count AS likes, t.replies_count AS replies
		FROM comments t
		JOIN posts p ON p.id=t.post_id AND p.status=` + db.SQLNormal + `
		WHERE t.status=` + db.SQLNormal,
}

// LiveCounts returns the counts of those targets that exist and are not deleted, in no particular order. It runs one
// query for each thousand targets of a kind.
func (s *Store) LiveCounts(ctx context.Context, targets []models.Target) ([]models.LiveCounts, error) {
	var found []models.LiveCounts
	for kind, query := range liveCountsQueries {
		var ids []int64
		for _, t := range targets {
			if t.Kind == kind {
				ids = append(ids, t.ID)
			}
		}
		for chunk := range slices.Chunk(ids, LiveCountsChunk) {
			var rows []models.LiveCounts
			err := s.Read(ctx).Raw(query + " AND t.id IN (" + db.JoinIDs(chunk) + ")").Scan(&rows).Error
			if err != nil {
				return nil, fmt.Errorf("read counts of %d %ss: %w", len(chunk), kind, err)
			}
			found = append(found, rows...)
		}
	}
	return found, nil
}
