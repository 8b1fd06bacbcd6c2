package db

import (
	"context"
	"fmt"

	"likewise/models"
)

// TargetTable names the tables and the column of a kind of target. FromOpen is the FROM clause of a target t whose post
// is not deleted, so that t.status is the only condition left: a comment on a deleted post is closed.
type TargetTable struct {
	Targets, Likes, Column, FromOpen string
}

// TargetTables are the tables of the kinds that can be liked.
var TargetTables = map[models.TargetKind]TargetTable{
	models.KindPost: {"posts", "post_likes", "post_id", "posts t"},
	models.KindComment: {
		"comments", "comment_likes", "comment_id",
		"comments t JOIN posts p ON p.id=t.post_id AND p.status=" + SQLNormal,
	},
}

// TargetOpen reports whether the target exists and is not deleted. A comment or drop on a deleted post is not open.
func (s *DB) TargetOpen(ctx context.Context, target models.Target) (bool, error) {
	open, err := s.OpenAmong(ctx, []models.Target{target})
	return open[target], err
}

// IDsByKind returns the ids of targets of each kind.
func IDsByKind(targets []models.Target) map[models.TargetKind][]int64 {
	ids := map[models.TargetKind][]int64{}
	for _, t := range targets {
		ids[t.Kind] = append(ids[t.Kind], t.ID)
	}
	return ids
}

// TableOf returns the table of a kind of target.
func TableOf(kind models.TargetKind) string {
	if kind == models.KindDrop {
		return "drops"
	}
	return TargetTables[kind].Targets
}

// OpenAmong returns the set of those targets that are open, as TargetOpen reports. It takes a query for each kind.
func (s *DB) OpenAmong(ctx context.Context, targets []models.Target) (map[models.Target]bool, error) {
	open := make(map[models.Target]bool, len(targets))
	for kind, ids := range IDsByKind(targets) {
		query := `
			SELECT t.id
			FROM ` + TargetTables[kind].FromOpen + `
			WHERE t.id IN (` + JoinIDs(ids) + `) AND t.status=` + SQLNormal
		if kind == models.KindDrop {
			query = `
			SELECT d.id
			FROM drops d
			JOIN posts p ON p.id=d.post_id
			WHERE d.id IN (` + JoinIDs(ids) + `) AND p.status=` + SQLNormal
		}
		var found []int64
		if err := s.Read(ctx).Raw(query).Scan(&found).Error; err != nil {
			return nil, fmt.Errorf("read which of %d targets are open: %w", len(targets), err)
		}
		for _, id := range found {
			open[models.Target{Kind: kind, ID: id}] = true
		}
	}
	return open, nil
}
