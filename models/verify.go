package models

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// TargetTally is a post or comment with its stored counts beside what its rows say, as of one instant.
type TargetTally struct {
	ID        int64
	Status    Status
	Likes     int64 // likes_count
	LikeRows  int64
	Children  int64 // comments_count or replies_count
	ChildRows int64
	HotScore  int64 // hot_score; 0 for comments, which have none
	HotWant   int64 // what it has to be with this likes_count
}

// Difference is something of a target that does not agree with something else.
type Difference struct {
	Target   Target
	Problem  string
	Repaired bool
	// Undecided means that nothing can be said: the target's last change is still on its way, or the next one always is.
	Undecided bool
}

func (d Difference) String() string {
	s := d.Target.String() + ": " + d.Problem
	if d.Repaired {
		s += " (repaired)"
	}
	return s
}

// TallyShard is Tally for the targets of one shard.
func (s *Store) TallyShard(ctx context.Context, kind TargetKind, shard int, after int64, limit int) ([]TargetTally, error) {
	return s.tally(ctx, kind, "t.id>? AND MOD(t.id,?)=? ORDER BY t.id LIMIT ?", after, s.shards, shard, limit)
}

// LogReconcile keeps that a moderator has a target, or what a shard has after a certain target, compared and mended, with
// what a comparison just found.
func (s *Store) LogReconcile(ctx context.Context, actor int64, targetType string, targetID int64, reason string, found []Difference) error {
	problems := make([]string, 0, len(found))
	for _, d := range found {
		problems = append(problems, d.String())
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		return s.logModeration(tx, Act{ActorID: actor, Action: "pipeline.reconcile", TargetType: targetType, TargetID: targetID, Reason: reason,
			Before: map[string]any{"differences": problems}, After: map[string]any{"differences": []string{}}})
	})
	if err != nil {
		return fmt.Errorf("log reconcile: %w", err)
	}
	return nil
}

// Tally counts the rows of at most limit targets of a kind with ids above after, in the order of id. It is one
// statement, so the counts and the rows of a target belong to the same commit.
func (s *Store) Tally(ctx context.Context, kind TargetKind, after int64, limit int) ([]TargetTally, error) {
	return s.tally(ctx, kind, "t.id>? ORDER BY t.id LIMIT ?", after, limit)
}

// TallyOf counts the rows of one target; false when it has no row.
func (s *Store) TallyOf(ctx context.Context, target Target) (TargetTally, bool, error) {
	list, err := s.tally(ctx, target.Kind, "t.id=?", target.ID)
	if err != nil || len(list) == 0 {
		return TargetTally{}, false, err
	}
	return list[0], true, nil
}

func (s *Store) tally(ctx context.Context, kind TargetKind, where string, args ...any) ([]TargetTally, error) {
	t := likeTables[kind]
	children, rows := "t.comments_count", "(SELECT COUNT(*) FROM comments c WHERE c.post_id=t.id AND c.status=1)"
	hot := "t.hot_score, " + hotScoreSQL("t.likes_count") + " AS hot_want"
	if kind == KindComment {
		children, rows = "t.replies_count", "(SELECT COUNT(*) FROM comments c WHERE c.parent_id=t.id AND c.status=1)"
		hot = "0 AS hot_score, 0 AS hot_want"
	}
	var list []TargetTally
	err := s.db.WithContext(ctx).Raw("SELECT t.id, t.status, t.likes_count AS likes,"+
		" (SELECT COUNT(*) FROM "+t.likes+" l WHERE l."+t.column+"=t.id) AS like_rows, "+
		children+" AS children, "+rows+" AS child_rows, "+hot+" FROM "+t.targets+" t WHERE "+where, args...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("tally %s: %w", t.targets, err)
	}
	return list, nil
}

// LastID gives the highest id of a kind; 0 when there is none.
func (s *Store) LastID(ctx context.Context, kind TargetKind) (int64, error) {
	var id int64
	if err := s.db.WithContext(ctx).Raw("SELECT COALESCE(MAX(id),0) FROM " + likeTables[kind].targets).Scan(&id).Error; err != nil {
		return 0, fmt.Errorf("last id of %s: %w", likeTables[kind].targets, err)
	}
	return id, nil
}

// OrphanLikes gives at most limit targets of a kind that have likes and no row of their own.
func (s *Store) OrphanLikes(ctx context.Context, kind TargetKind, limit int) ([]TargetCount, error) {
	t := likeTables[kind]
	var list []struct{ ID, Count int64 }
	err := s.db.WithContext(ctx).Raw("SELECT l."+t.column+" AS id, COUNT(*) AS count FROM "+t.likes+" l LEFT JOIN "+t.targets+
		" t ON t.id=l."+t.column+" WHERE t.id IS NULL GROUP BY l."+t.column+" LIMIT ?", limit).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("find orphans in %s: %w", t.likes, err)
	}
	orphans := make([]TargetCount, len(list))
	for i, o := range list {
		orphans[i] = TargetCount{Target: Target{kind, o.ID}, Count: o.Count}
	}
	return orphans, nil
}

// Missing gives those of targets that have no row, in at most two queries.
func (s *Store) Missing(ctx context.Context, targets []Target) ([]Target, error) {
	ids := map[TargetKind][]int64{}
	for _, t := range targets {
		ids[t.Kind] = append(ids[t.Kind], t.ID)
	}
	present := map[Target]bool{}
	for kind, list := range ids {
		var found []int64
		if err := s.db.WithContext(ctx).Raw("SELECT id FROM " + likeTables[kind].targets + " WHERE id IN (" + joinIDs(list) + ")").Scan(&found).Error; err != nil {
			return nil, fmt.Errorf("read %s: %w", likeTables[kind].targets, err)
		}
		for _, id := range found {
			present[Target{kind, id}] = true
		}
	}
	var missing []Target
	for _, t := range targets {
		if !present[t] {
			missing = append(missing, t)
		}
	}
	return missing, nil
}

// Recount sets a target's stored counts, and the score of a post, to what its rows say.
func (s *Store) Recount(ctx context.Context, target Target) error {
	t := likeTables[target.Kind]
	children, rows := "comments_count", "c.post_id=? AND c.status=1"
	if target.Kind == KindComment {
		children, rows = "replies_count", "c.parent_id=? AND c.status=1"
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		// The row is locked first: whoever counts it up or down waits, so that the rows can be counted in peace.
		var id int64
		if err := tx.Raw("SELECT id FROM "+t.targets+" WHERE id=? FOR UPDATE", target.ID).Scan(&id).Error; err != nil {
			return err
		}
		var likes, childRows int64
		if err := tx.Raw("SELECT COUNT(*) FROM "+t.likes+" WHERE "+t.column+"=?", target.ID).Scan(&likes).Error; err != nil {
			return err
		}
		if err := tx.Raw("SELECT COUNT(*) FROM comments c WHERE "+rows, target.ID).Scan(&childRows).Error; err != nil {
			return err
		}
		set := children + "=?, updated_at=updated_at, likes_count=?"
		args := []any{childRows, likes}
		if target.Kind == KindPost {
			set, args = set+", hot_score="+hotScoreSQL("?"), append(args, likes)
		}
		return tx.Exec("UPDATE "+t.targets+" SET "+set+" WHERE id=?", append(args, target.ID)...).Error
	})
	if err != nil {
		return fmt.Errorf("recount %s: %w", target, err)
	}
	return nil
}

// DeleteOrphanLikes deletes the likes of a target that has no row.
func (s *Store) DeleteOrphanLikes(ctx context.Context, target Target) error {
	t := likeTables[target.Kind]
	err := s.db.WithContext(ctx).Exec("DELETE FROM "+t.likes+" WHERE "+t.column+"=? AND NOT EXISTS (SELECT 1 FROM "+t.targets+" t WHERE t.id=?)",
		target.ID, target.ID).Error
	if err != nil {
		return fmt.Errorf("delete likes of %s: %w", target, err)
	}
	return nil
}
