package models

import (
	"context"
	"fmt"
	"slices"
)

// Activity is what happens around a target: numbers that change without an edit.
type Activity struct {
	Target
	Likes   int64
	Replies int64 // comments of a post, direct replies to a comment; those that are not deleted
}

// activityChunk bounds the ids in one query.
const activityChunk = 1000

// Activities gives those of targets that exist and are not deleted, in no particular order, with one query for each
// thousand of a kind.
func (s *Store) Activities(ctx context.Context, targets []Target) ([]Activity, error) {
	var found []Activity
	for kind, query := range map[TargetKind]string{
		KindPost: "SELECT 'post' AS kind, t.id, t.likes_count AS likes, t.comments_count AS replies FROM posts t",
		KindComment: "SELECT 'comment' AS kind, t.id, t.likes_count AS likes, t.replies_count AS replies FROM comments t" +
			" JOIN posts p ON p.id=t.post_id AND p.status=1",
	} {
		var ids []int64
		for _, t := range targets {
			if t.Kind == kind {
				ids = append(ids, t.ID)
			}
		}
		for chunk := range slices.Chunk(ids, activityChunk) {
			var rows []Activity
			if err := s.db.WithContext(ctx).Raw(query + " WHERE t.status=1 AND t.id IN (" + joinIDs(chunk) + ")").Scan(&rows).Error; err != nil {
				return nil, fmt.Errorf("read counts of %d %ss: %w", len(chunk), kind, err)
			}
			found = append(found, rows...)
		}
	}
	return found, nil
}
